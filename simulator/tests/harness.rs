//! Every variant of the table, under every check: odd shapes, empty ones, NaN
//! and infinities, random shapes, and the same report on any number of cores.

mod common;

use common::{clean, index_coded, random, same_on_any_number_of_cores};
use kernels::gemm::{self, Shape, Variant, schedule};
use kernels::gpu::{Global, GlobalMut, math, thread};
use kernels::launch::{Buffer, Dim3, Plan};
use kernels::{kernel, reference, vecadd};
use proptest::prelude::*;
use simulator::{
    Architecture, FaultKind, Operands, Options, Report, SimulationError, run, simulate,
};
use std::collections::BTreeSet;

fn shape(m: u64, n: u64, k: u64) -> Shape {
    Shape::new(m, n, k).expect("a small shape")
}

/// A·B and |A|·|B| in float64.
fn reference_product(shape: Shape, a: &[f32], b: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let (m, n, k) = (shape.m() as usize, shape.n() as usize, shape.k() as usize);
    let (mut product, mut magnitude) = (vec![0.0; m * n], vec![0.0; m * n]);
    for row in 0..m {
        for i in 0..k {
            let p = f64::from(a[row * k + i]);
            for column in 0..n {
                let q = f64::from(b[i * n + column]);
                product[row * n + column] += p * q;
                magnitude[row * n + column] += (p * q).abs();
            }
        }
    }
    (product, magnitude)
}

fn simulate_clean(variant: &Variant, shape: Shape, a: &[f32], b: &[f32]) -> Report {
    clean(simulate(variant, shape, a, b, &Options::default()))
}

/// Index-coded operands are multiplied exactly, random ones within the bound.
fn check(variant: &Variant, shape: Shape) {
    let (a, b) = (
        index_coded(shape.a_elements(), 1),
        index_coded(shape.b_elements(), 5),
    );
    let (product, _) = reference_product(shape, &a, &b);
    let report = simulate_clean(variant, shape, &a, &b);
    assert_eq!(report.c.len(), product.len());
    for (i, (&found, &expected)) in report.c.iter().zip(&product).enumerate() {
        assert_eq!(
            f64::from(found),
            expected,
            "{} {shape}: C[{i}]",
            variant.name
        );
    }

    let (a, b) = (random(shape.a_elements(), 1), random(shape.b_elements(), 2));
    let (product, magnitude) = reference_product(shape, &a, &b);
    let report = simulate_clean(variant, shape, &a, &b);
    // Rounding errors of a sum of K terms grow like √K where they are
    // independent (Higham and Mary, 2019); 8 leaves room.
    let factor = 8.0 * f64::from(shape.k()).sqrt() * 2f64.powi(-24);
    for (i, &found) in report.c.iter().enumerate() {
        let error = (f64::from(found) - product[i]).abs();
        let bound = factor * magnitude[i];
        assert!(
            error <= bound,
            "{} {shape}: C[{i}] is off by {error}",
            variant.name
        );
    }
}

#[test]
fn odd_shapes() {
    for variant in gemm::all() {
        for (m, n, k) in [
            (1, 1, 1),
            (17, 33, 19),
            (16, 16, 17),
            (35, 79, 19),
            (5, 7, 3),
            (2, 2, 3),
            (17, 17, 17),
            (1, 4096, 3),
            (300, 1, 2),
            (1, 1, 4099),
        ] {
            check(variant, shape(m, n, k));
        }
    }
}

#[test]
fn rectangles() {
    for variant in gemm::all() {
        check(variant, shape(256, 128, 256));
        check(variant, shape(128, 256, 64));
    }
}

#[test]
fn a_size_that_no_tile_divides() {
    let shape = shape(250, 250, 250);
    let (a, b) = (
        index_coded(shape.a_elements(), 1),
        index_coded(shape.b_elements(), 5),
    );
    let (product, _) = reference_product(shape, &a, &b);
    for variant in gemm::all() {
        let report = simulate_clean(variant, shape, &a, &b);
        assert!(
            report
                .c
                .iter()
                .zip(&product)
                .all(|(&c, &p)| f64::from(c) == p)
        );
    }
}

/// Every way of every kernel of the schedules, also those that no variant would
/// take here: all sizes of clusters, streamed tiles, tiles moved left.
#[test]
fn every_schedule() {
    let limits = Architecture::SM_90.limits();
    let mut seen = BTreeSet::new();
    // Eight steps of the deepest kernel, one column past two tiles, and a
    // multiple of four.
    for shape in [shape(33, 132, 456), shape(33, 131, 455), shape(65, 257, 70)] {
        let (a, b) = (
            index_coded(shape.a_elements(), 1),
            index_coded(shape.b_elements(), 5),
        );
        let (product, _) = reference_product(shape, &a, &b);
        for schedule in schedule::candidates(shape, &limits) {
            let plan = schedule.plan(shape, &limits).expect("a few tiles");
            let operands = Operands {
                a: &a,
                b: &b,
                c_elements: product.len(),
                shape: Some(shape),
            };
            let report = clean(run(&plan, operands, &Options::default()));
            let wrong = (0..product.len()).find(|&i| f64::from(report.c[i]) != product[i]);
            assert_eq!(wrong, None, "{schedule} {shape}");
            seen.insert(schedule.to_string());
        }
    }
    for kernel in schedule::kernels() {
        let sizes = 1..=kernel.entry.max_cluster;
        let ways: Vec<String> = if kernel.clusters() {
            sizes
                .map(|blocks| format!("clusters of {blocks}"))
                .collect()
        } else {
            vec!["whole tiles".into(), "streamed".into()]
        };
        for way in ways {
            let name = format!("{}, {way}", kernel.entry.name);
            assert!(seen.contains(&name), "{name}");
        }
    }
}

#[test]
fn empty_shapes() {
    for variant in gemm::all() {
        for (m, n, k) in [(0, 5, 7), (5, 0, 7), (0, 0, 0), (0, 0, 7)] {
            let shape = shape(m, n, k);
            let a = index_coded(shape.a_elements(), 0);
            let b = index_coded(shape.b_elements(), 0);
            let report = simulate_clean(variant, shape, &a, &b);
            assert!(report.c.is_empty() && report.launches.is_empty());
        }
        let report = simulate_clean(variant, shape(16, 16, 0), &[], &[]);
        assert_eq!(report.c, [0.0; 256], "{}", variant.name);
    }
}

#[test]
fn values_are_ieee() {
    for variant in gemm::all() {
        let product =
            |(m, n, k), a: &[f32], b: &[f32]| simulate_clean(variant, shape(m, n, k), a, b).c;
        // inf · 0 is NaN, in the column that has the zero alone.
        let inf = f32::INFINITY;
        let c = product(
            (2, 2, 3),
            &[inf, 1.0, 1.0, 1.0, 1.0, 1.0],
            &[0.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        );
        assert!(
            c[0].is_nan() && c[1] == inf && c[2] == 2.0 && c[3] == 3.0,
            "{c:?}"
        );
        // NaN stays in its row.
        let c = product((2, 2, 1), &[f32::NAN, 1.0], &[2.0, 3.0]);
        assert!(
            c[0].is_nan() && c[1].is_nan() && c[2..] == [2.0, 3.0],
            "{c:?}"
        );
        // Subnormals are not flushed.
        let tiny = f32::MIN_POSITIVE / 8.0;
        let c = product((3, 3, 2), &[tiny; 6], &[1.0; 6]);
        assert_eq!(c, [2.0 * tiny; 9]);
        // The product is exact before it is rounded.
        assert_eq!(product((1, 1, 1), &[1024.5], &[1.0]), [1024.5]);
        let (x, y) = (1.0 + f32::EPSILON, 1.0 - f32::EPSILON);
        assert_eq!(
            product((1, 1, 2), &[1.0, x], &[-1.0, y]),
            [x.mul_add(y, -1.0)]
        );
    }
}

#[test]
fn a_grid_taller_than_y_allows() {
    let m = 1_048_561;
    let shape = shape(m, 1, 1);
    let a = index_coded(m, 3);
    // One variant: 16 million threads take a while, and all variants get their
    // row of blocks from the same function.
    let variant = gemm::find("naive_16").expect("in the table");
    let report = simulate_clean(variant, shape, &a, &[2.0]);
    assert!(report.launches[0].grid[2] > 1);
    assert!(report.c.iter().zip(&a).all(|(&c, &a)| c == 2.0 * a));
}

#[test]
fn a_long_loop_is_counted_in_pieces() {
    // Far more accesses than a quantum: the requests must come out the same.
    let k = 20_000;
    let shape = shape(3, 16, k);
    let (a, b) = (random(shape.a_elements(), 1), random(shape.b_elements(), 2));
    let variant = gemm::find("naive_16").expect("in the table");
    let counters = simulate_clean(variant, shape, &a, &b).counters();
    // Two warps have a row of C: rows 0 and 1, and row 2.
    assert_eq!(counters.global_load.requests, 2 * 2 * k);
    assert_eq!(counters.flops.fma_f32, 3 * 16 * k);
}

/// All that a report says, as text.
fn text_of(result: Result<Report, SimulationError>) -> String {
    let report = match result {
        Ok(report) => report,
        Err(SimulationError::Faults(report)) => *report,
        Err(error) => panic!("{error}"),
    };
    let c: Vec<u32> = report.c.iter().map(|value| value.to_bits()).collect();
    let json = serde_json::to_string(&report).expect("a report serialises");
    format!("{json}\n{}\n{c:?}", report.table(true))
}

#[test]
fn reports_do_not_depend_on_the_number_of_cores() {
    let shape = shape(70, 90, 40);
    let (a, b) = (random(shape.a_elements(), 1), random(shape.b_elements(), 2));
    for variant in gemm::all() {
        same_on_any_number_of_cores(variant.name, || {
            text_of(simulate(variant, shape, &a, &b, &Options::default()))
        });
    }
}

#[test]
fn vectors_are_added() {
    for n in [0, 1, 255, 256, 257, 1000] {
        let (a, b) = (random(n.into(), 1), random(n.into(), 2));
        let operands = Operands {
            a: &a,
            b: &b,
            c_elements: n as usize,
            shape: None,
        };
        let report = clean(run(&vecadd::plan(n), operands, &Options::default()));
        let sums: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(report.c, sums);
        assert_eq!(report.counters().flops.add_f32, u64::from(n));
    }
}

#[test]
fn the_reference_kernel_is_a_reference() {
    for (m, n, k) in [(1, 1, 1), (17, 33, 19), (5, 7, 0), (40, 16, 100)] {
        let shape = shape(m, n, k);
        let (a, b) = (random(shape.a_elements(), 1), random(shape.b_elements(), 2));
        let operands = Operands {
            a: &a,
            b: &b,
            c_elements: 0,
            shape: Some(shape),
        };
        let report = clean(run(&reference::plan(shape), operands, &Options::default()));
        let found = report.workspace_f64();
        let (product, magnitude) = reference_product(shape, &a, &b);
        let expected: Vec<f64> = product.into_iter().chain(magnitude).collect();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() <= 1e-14 * (1.0 + expected.abs()));
        }
        let flops = report.counters().flops;
        assert_eq!(flops.single(), 0);
        assert!(flops.double() >= 4 * m * n * k);
    }
}

kernel! {
    /// c\[i\] = a\[i\] + b\[i\] where `b` and `c` may be parts of the workspace.
    ///
    /// # Safety
    ///
    /// - Each pointer is good for `n` elements, of which `c`'s are apart.
    pub unsafe fn adds(a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, n: u32)
    launch_bounds(64)
    {
        let i = thread::index_1d();
        // SAFETY: the caller's promise.
        let (a, b, mut c) = unsafe { (a.slice(n), b.slice(n), c.slice(n)) };
        if let (Some(x), Some(y)) = (a.get(i), b.get(i)) {
            c.set(i, math::add(x, y));
        }
    }
}

#[test]
fn a_launch_sees_what_those_before_it_wrote() {
    let n: u32 = 200;
    let half = Buffer::Workspace(u64::from(n) * 4);
    let launch = |a, b, c| adds::launch(Dim3::x(n.div_ceil(64)), Dim3::x(64), a, b, c, n);
    let plan = |launches| Plan {
        workspace_bytes: u64::from(n) * 8,
        launches,
    };
    let (a, b) = (random(n.into(), 1), random(n.into(), 2));
    let operands = Operands {
        a: &a,
        b: &b,
        c_elements: n as usize,
        shape: None,
    };
    let first = launch(Buffer::A, Buffer::B, Buffer::Workspace(0));
    let second = launch(Buffer::Workspace(0), Buffer::B, half);
    let third = launch(Buffer::Workspace(0), half, Buffer::C);
    let all = plan(vec![first, second.clone(), third.clone()]);
    let report = clean(run(&all, operands, &Options::default()));
    let expected: Vec<f32> = a
        .iter()
        .zip(&b)
        .map(|(a, b)| (a + b) + ((a + b) + b))
        .collect();
    assert_eq!(report.c, expected);
    assert_eq!(report.launches.len(), 3);

    // Without the first, the second reads what nothing wrote.
    let result = run(&plan(vec![second, third]), operands, &Options::default());
    let Err(SimulationError::Faults(report)) = result else {
        panic!("no fault");
    };
    let fault = &report.faults[0];
    assert_eq!(fault.kind, FaultKind::UninitializedGlobal);
    assert_eq!((fault.launch, fault.occurrences), (0, u64::from(n)));
}

#[test]
fn an_operand_of_the_wrong_length_is_an_error() {
    let variant = gemm::all().next().expect("a variant");
    let error = simulate(
        variant,
        shape(2, 3, 4),
        &[0.0; 8],
        &[0.0; 11],
        &Options::default(),
    )
    .expect_err("B has 12 elements");
    assert_eq!(
        error.to_string(),
        "B has 11 elements, and its shape asks for 12"
    );
}

#[test]
fn what_cannot_be_held_or_numbered_is_an_error() {
    let mut plan = vecadd::plan(1);
    plan.workspace_bytes = u64::MAX;
    let operands = Operands {
        a: &[1.0],
        b: &[1.0],
        c_elements: 1,
        shape: None,
    };
    let error = run(&plan, operands, &Options::default()).expect_err("16 EiB");
    assert!(matches!(error, SimulationError::Memory { .. }), "{error}");

    let variant = gemm::all().next().expect("a variant");
    let huge = Shape::new(4_000_000_000, 4_000_000_000, 0).expect("within 2^32");
    let error = simulate(variant, huge, &[], &[], &Options::default()).expect_err("10^16 blocks");
    assert!(matches!(error, SimulationError::Grid { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_shapes(m in 0u64..70, n in 0u64..70, k in 0u64..70) {
        for variant in gemm::all() {
            check(variant, shape(m, n, k));
        }
    }

    #[test]
    fn thin_shapes(long in 1u64..1500, thin in 1u64..4, depth in 0u64..40, tall: bool) {
        let (m, n) = if tall { (long, thin) } else { (thin, long) };
        for variant in gemm::all() {
            check(variant, shape(m, n, depth));
        }
    }
}
