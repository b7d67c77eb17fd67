//! Every variant on a GPU, over every case, through one harness.

mod common;

use host::cases::{self, Case};
use host::cust::memory::DeviceBuffer;
use host::graph::{Batching, Graphs};
use host::measure::Problem;
use host::transfer::HostMemory;
use host::verify::Reference;
use host::{Error, Gpu, Matrix, ptx};
use kernels::gemm::{self, Shape, Variant};
use kernels::launch::Plan;
use std::time::Duration;

fn check_all(gpu: &Gpu, cases: impl IntoIterator<Item = Case>) {
    let mut failures = Vec::new();
    for case in cases {
        let (a, b) = case.factors(7);
        let mut problem = Problem::new(gpu, &a, &b).unwrap();
        for variant in gpu.variants() {
            let verdict = problem.verify(variant).unwrap();
            if !verdict.passed() {
                failures.push(format!(
                    "{} by {} at {} ({}): {verdict}",
                    variant.name,
                    gpu.ptx().backend,
                    case.shape(),
                    case.catches
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_variant_is_right_on_every_case() {
    let Some(gpu) = common::gpu() else { return };
    check_all(&gpu, cases::SMALL.iter().chain(cases::LARGE).copied());
}

#[test]
fn every_variant_is_right_on_random_shapes() {
    let Some(gpu) = common::gpu() else { return };
    check_all(&gpu, cases::random(60, 400, 11));
}

#[test]
fn every_ptx_that_the_device_takes_is_right() {
    let Some(gpu) = common::gpu() else { return };
    let capability = gpu.info().limits.compute_capability;
    let driver = host::device::driver_version().unwrap();
    for ptx in ptx::all().filter(|ptx| ptx.runs_on(capability) && ptx.is_taken_by(driver)) {
        let gpu = Gpu::with_ptx(0, |_| Some(ptx)).unwrap();
        assert_eq!(gpu.ptx().architecture, ptx.architecture);
        check_all(&gpu, cases::SMALL.iter().copied());
    }
}

/// C for each variant, from factors given as functions of the index.
fn products(gpu: &Gpu, a: &Matrix, b: &Matrix) -> Vec<(&'static str, Matrix)> {
    gpu.variants()
        .map(|variant| (variant.name, gpu.multiply(variant.name, a, b).unwrap()))
        .collect()
}

#[test]
fn index_coded_results_are_exact() {
    let Some(gpu) = common::gpu() else { return };
    for (m, n, k) in [(2, 3, 4), (33, 65, 129), (256, 128, 256)] {
        let (a, b) = (Matrix::index_coded(m, k, 1), Matrix::index_coded(k, n, 2));
        let expected = host::cpu::triple_loop(&a, &b).unwrap();
        for (name, c) in products(&gpu, &a, &b) {
            assert_eq!(c.data(), expected.data(), "{name} at {m}×{n}×{k}");
        }
    }
}

#[test]
fn one_by_one_is_exact() {
    let Some(gpu) = common::gpu() else { return };
    let a = Matrix::new(1, 1, vec![1024.5]).unwrap();
    let b = Matrix::new(1, 1, vec![1.0]).unwrap();
    for (name, c) in products(&gpu, &a, &b) {
        assert_eq!(c.get(0, 0), 1024.5, "{name}");
    }
}

#[test]
fn infinity_and_nan_propagate() {
    let Some(gpu) = common::gpu() else { return };
    // A[0, 1] is infinite and meets B[1, 0] = 0: NaN. B[1, 1] = 1: infinity.
    let a = Matrix::new(2, 3, vec![1.0, f32::INFINITY, 2.0, 1.0, f32::NAN, 0.0]).unwrap();
    let b = Matrix::new(3, 2, vec![1.0, 1.0, 0.0, 1.0, 1.0, 1.0]).unwrap();
    for (name, c) in products(&gpu, &a, &b) {
        assert!(c.get(0, 0).is_nan(), "{name}: {}", c.get(0, 0));
        assert_eq!(c.get(0, 1), f32::INFINITY, "{name}");
        assert!(c.get(1, 0).is_nan() && c.get(1, 1).is_nan(), "{name}");
    }
}

#[test]
fn subnormals_are_kept() {
    let Some(gpu) = common::gpu() else { return };
    let least = f32::from_bits(1);
    let a = Matrix::from_fn(3, 2, |i, j| least * (1 + 2 * i + j) as f32);
    let b = Matrix::from_fn(2, 3, |i, j| (1 + i + j) as f32);
    let expected = host::cpu::triple_loop(&a, &b).unwrap();
    assert!(expected.data().iter().all(|x| *x > 0.0 && x.is_subnormal()));
    for (name, c) in products(&gpu, &a, &b) {
        assert_eq!(c.data(), expected.data(), "{name}");
    }
}

#[test]
fn results_repeat_bit_for_bit() {
    let Some(gpu) = common::gpu() else { return };
    let (a, b) = (Matrix::random(200, 300, 1), Matrix::random(300, 250, 2));
    let first = products(&gpu, &a, &b);
    for _ in 0..3 {
        for ((name, x), (_, y)) in first.iter().zip(products(&gpu, &a, &b)) {
            assert_eq!(x.data(), y.data(), "{name}");
        }
    }
}

#[test]
fn the_reference_on_the_gpu_equals_the_cpus() {
    let Some(gpu) = common::gpu() else { return };
    for (m, n, k) in [
        (1, 1, 1),
        (35, 79, 19),
        (130, 70, 500),
        (4, 4, 0),
        (0, 4, 4),
    ] {
        let (a, b) = (Matrix::random(m, k, 1), Matrix::random(k, n, 2));
        let cpu = Reference::on_cpu(&a, &b).unwrap();
        let on_gpu = Reference::on_gpu(&gpu, &gpu.upload(&a).unwrap(), &gpu.upload(&b).unwrap());
        let on_gpu = on_gpu.unwrap();
        for (x, y) in [
            (cpu.product(), on_gpu.product()),
            (cpu.magnitude(), on_gpu.magnitude()),
        ] {
            assert_eq!(x.len(), y.len());
            for ((x, y), size) in x.iter().zip(y).zip(cpu.magnitude()) {
                assert!(
                    (x - y).abs() <= 1e-15 * (k as f64).sqrt() * 8.0 * size,
                    "{x} {y}"
                );
            }
        }
    }
}

/// A kernel's plan with more shared memory than a block gets without asking.
static GREEDY: Variant = Variant {
    name: "greedy",
    summary: "tiled_16 with dynamic shared memory that it does not use",
    plan: |shape, limits| {
        let tiled = gemm::find("tiled_16").unwrap().plan(shape, limits)?;
        let launches = tiled
            .launches
            .into_iter()
            .map(|launch| launch.dynamic_shared(GREEDY_BYTES.get()))
            .collect();
        Ok(Plan {
            workspace_bytes: 0,
            launches,
        })
    },
    source: file!(),
    input: gemm::ElementType::F32,
    accumulator: gemm::ElementType::F32,
    output: gemm::ElementType::F32,
    min_compute_capability: kernels::launch::ComputeCapability::new(7, 5),
    needs: kernels::launch::Target::BASELINE,
    entries: &[],
    overlapping_writes: false,
};

thread_local! {
    static GREEDY_BYTES: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[test]
fn shared_memory_beyond_48_kib_is_opted_in() {
    let Some(gpu) = common::gpu() else { return };
    let limit = gpu.info().limits.max_shared_bytes_per_block;
    let (a, b) = (Matrix::random(40, 50, 1), Matrix::random(50, 60, 2));
    let mut problem = Problem::new(&gpu, &a, &b).unwrap();
    let static_bytes = 2 * 16 * 16 * 4;
    for bytes in [49_152 - static_bytes, 49_152, 49_156, limit - static_bytes] {
        GREEDY_BYTES.set(bytes);
        let verdict = problem.verify(&GREEDY).unwrap();
        assert!(verdict.passed(), "{bytes} bytes: {verdict}");
    }
    GREEDY_BYTES.set(limit);
    let error = problem.verify(&GREEDY).unwrap_err();
    assert!(matches!(error, Error::Plan(_)), "{error}");
    assert!(error.to_string().contains("shared memory"), "{error}");
}

#[test]
fn too_little_memory_says_how_much() {
    let Some(gpu) = common::gpu() else { return };
    let rows = usize::try_from(gpu.info().memory_bytes / 4 / 50_000).unwrap() + 1;
    let Err(error) = gpu.poisoned(rows, 50_000) else {
        panic!("a matrix as large as the device's memory was allocated");
    };
    let Error::OutOfMemory { needed, free, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(needed, rows as u64 * 50_000 * 4);
    assert!(free > 0 && free < needed);
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let Some(gpu) = common::gpu() else { return };
    let Err(Error::NoSuchDevice { asked, devices }) = Gpu::new(1000) else {
        panic!("device 1000 was opened");
    };
    assert_eq!(asked, 1000);
    assert!(devices.contains(&gpu.info().name));
}

#[test]
fn a_matrix_of_another_shape_is_refused() {
    let Some(gpu) = common::gpu() else { return };
    let prepared = gpu
        .prepare("tiled_16", Shape::new(4, 5, 6).unwrap())
        .unwrap();
    let a = gpu.upload(&Matrix::zeros(4, 6)).unwrap();
    let b = gpu.upload(&Matrix::zeros(5, 6)).unwrap();
    let mut c = gpu.poisoned(4, 5).unwrap();
    let error = prepared.launch(gpu.stream(), &a, &b, &mut c).unwrap_err();
    assert!(error.to_string().starts_with("B is 5×6"), "{error}");
    let error = gpu
        .multiply("tiled_16", &Matrix::zeros(4, 6), &Matrix::zeros(5, 6))
        .unwrap_err();
    assert!(matches!(error, Error::InnerDimensions { .. }), "{error}");
}

#[test]
fn buffers_and_streams_may_be_the_callers() {
    let Some(gpu) = common::gpu() else { return };
    let (a, b) = (Matrix::random(30, 40, 1), Matrix::random(40, 50, 2));
    let own = |matrix: &Matrix| {
        let buffer = DeviceBuffer::from_slice(matrix.data()).unwrap();
        gpu.adopt(buffer, matrix.rows(), matrix.columns()).unwrap()
    };
    let (device_a, device_b) = (own(&a), own(&b));
    let mut c = own(&Matrix::zeros(30, 50));
    assert!(gpu.adopt(own(&a).into_buffer(), 30, 41).is_err());
    let stream = gpu.new_stream().unwrap();
    let reference = Reference::on_cpu(&a, &b).unwrap();
    for variant in gpu.variants() {
        let prepared = gpu
            .prepare(variant.name, Shape::new(30, 50, 40).unwrap())
            .unwrap();
        for _ in 0..2 {
            gpu.poison(&mut c).unwrap();
            prepared
                .launch(&stream, &device_a, &device_b, &mut c)
                .unwrap();
            let verdict = reference.check(&gpu.download(&c).unwrap()).unwrap();
            assert!(verdict.passed(), "{}: {verdict}", variant.name);
        }
    }
}

#[test]
fn copies_and_kernel_in_one_queue_give_the_product() {
    let Some(gpu) = common::gpu() else { return };
    for (m, n, k) in [(30, 50, 40), (7, 5, 0), (0, 5, 7)] {
        let (a, b) = (Matrix::random(m, k, 1), Matrix::random(k, n, 2));
        let reference = Reference::on_cpu(&a, &b).unwrap();
        let mut problem = Problem::new(&gpu, &a, &b).unwrap();
        for variant in gpu.variants() {
            let prepared = gpu.prepare_variant(variant, problem.shape()).unwrap();
            for memory in HostMemory::ALL {
                let mut product = problem.end_to_end(&prepared, memory, (&a, &b)).unwrap();
                product.run().unwrap();
                let verdict = reference.check(&product.result().unwrap()).unwrap();
                assert!(
                    verdict.passed(),
                    "{} from {memory}: {verdict}",
                    variant.name
                );
            }
        }
    }
}

#[test]
fn vectors_are_added() {
    let Some(gpu) = common::gpu() else { return };
    for n in [0, 1, 255, 256, 257, 100_000] {
        let (a, b) = (Matrix::random(1, n, 1), Matrix::random(1, n, 2));
        let sum = gpu.add(a.data(), b.data()).unwrap();
        let expected: Vec<_> = a.data().iter().zip(b.data()).map(|(x, y)| x + y).collect();
        assert_eq!(sum, expected, "{n}");
    }
    assert!(gpu.add(&[1.0], &[1.0, 2.0]).is_err());
}

#[test]
fn a_batch_takes_as_long_as_its_launches() {
    let Some(gpu) = common::gpu() else { return };
    let shape = Shape::new(1024, 1024, 1024).unwrap();
    let mut problem = Problem::random(&gpu, shape, 1).unwrap();
    let prepared = gpu.prepare("tiled_16", shape).unwrap();
    let mut repeated = problem.repeated(&prepared).unwrap();
    repeated.warm_up().unwrap();
    // Ten times the work takes about ten times as long: the kernels are timed,
    // not their launches.
    let few = repeated.batch(10).unwrap().as_secs_f64();
    let many = repeated.batch(100).unwrap().as_secs_f64();
    assert!((5.0..20.0).contains(&(many / few)), "{few} {many}");
}

#[test]
fn a_graph_of_launches_gives_the_product() {
    let Some(gpu) = common::gpu() else { return };
    for (m, n, k) in [(130, 260, 70), (1, 300, 200)] {
        let shape = Shape::new(m, n, k).unwrap();
        let mut problem = Problem::random(&gpu, shape, 3).unwrap();
        for variant in gpu.variants() {
            let prepared = gpu.prepare_variant(variant, shape).unwrap();
            let [_, _, c] = problem.operands();
            gpu.poison(c).unwrap();
            let mut repeated = problem.repeated(&prepared).unwrap();
            // Nothing has run yet: what is in C below, the graph put there.
            assert_eq!(repeated.choose(Graphs::On).unwrap(), Batching::Graph);
            assert!(repeated.batch(3).unwrap() > Duration::ZERO);
            let ([_, _, c], reference) = problem.parts();
            let verdict = reference.check(&gpu.download(c).unwrap()).unwrap();
            assert!(verdict.passed(), "{} at {shape}: {verdict}", variant.name);
        }
    }
}
