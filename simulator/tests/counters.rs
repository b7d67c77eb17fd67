//! Counters against values that follow from the kernels by hand.

mod common;

use common::{clean, index_coded, launch, line_of};
use kernels::gemm::{self, Shape};
use kernels::gpu::{Global, GlobalMut, thread};
use kernels::kernel;
use kernels::launch::Buffer::{A, B, C};
use kernels::launch::Dim3;
use kernels::vecadd;
use simulator::{BufferOffsets, Counters, Operands, Options, Report, explain, run, simulate};

fn of_variant(name: &str, n: u64, options: &Options) -> Report {
    let shape = Shape::new(n, n, n).expect("a small shape");
    let a = index_coded(n * n, 1);
    let variant = gemm::find(name).expect("in the table");
    clean(simulate(variant, shape, &a, &a, options))
}

fn counters(name: &str, n: u64) -> Counters {
    of_variant(name, n, &Options::default()).counters()
}

#[test]
fn vecadd_is_coalesced() {
    let n = 1000;
    let a = index_coded(n, 1);
    let with = |offsets| {
        let operands = Operands {
            a: &a,
            b: &a,
            c_elements: n as usize,
            shape: None,
        };
        let options = Options {
            offsets,
            ..Options::default()
        };
        clean(run(&vecadd::plan(n as u32), operands, &options)).counters()
    };
    let counters = with(BufferOffsets::default());
    // 1,000 elements are 31 whole warps and one of 8 lanes; 125 sectors of 8.
    assert_eq!(counters.global_load.requests, 2 * 32);
    assert_eq!(counters.global_load.sectors, 2 * 125);
    assert_eq!(counters.global_load.bytes_requested, 8000);
    assert_eq!(counters.global_load.efficiency(), Some(100.0));
    assert_eq!(counters.global_store.requests, 32);
    assert_eq!(counters.global_store.sectors, 125);
    assert_eq!(counters.flops.add_f32, 1000);
    // 1,000 FLOPs, 12,000 bytes.
    assert_eq!(counters.arithmetic_intensity(), Some(1.0 / 12.0));

    // A that starts one element off: every warp touches a fifth sector, and the
    // last, of 8 lanes, a second.
    let shifted = with(BufferOffsets {
        a: 1,
        ..BufferOffsets::default()
    });
    assert_eq!(shifted.global_load.sectors, 125 + 31 * 5 + 2);
    assert_eq!(shifted.global_load.requests, 64);
}

#[test]
fn naive_16_shares_sectors() {
    let counters = counters("naive_16", 64);
    // 64·64 threads are 128 warps, each with 64 steps of two loads. A warp is
    // two rows of 16: two elements of A, and 64 bytes of B that both rows share.
    let (warps, k) = (128, 64);
    assert_eq!(counters.global_load.requests, warps * k * 2);
    assert_eq!(counters.global_load.sectors, warps * k * (2 + 2));
    assert_eq!(counters.global_load.sectors_per_request(), Some(2.0));
    // 128 bytes asked for by each, of 64 moved.
    assert_eq!(counters.global_load.efficiency(), Some(200.0));
    // Of A's two sectors 4 bytes each are of use, of B's all.
    assert_eq!(
        counters.global_load.sector_use(),
        Some(100.0 * 72.0 / 128.0)
    );
    assert_eq!(counters.global_store.sectors, 64 * 64 / 8);
    assert_eq!(counters.global_store.efficiency(), Some(100.0));
    assert_eq!(counters.flops.single(), 2 * 64 * 64 * 64);
    assert_eq!(counters.barriers, 0);
    assert_eq!(counters.shared_load.requests, 0);
}

#[test]
fn naive_32_broadcasts_a_and_coalesces_b() {
    let counters = counters("naive_32", 64);
    let (warps, k) = (128, 64);
    assert_eq!(counters.global_load.sectors, warps * k * (1 + 4));
    assert_eq!(counters.global_load.sectors_per_request(), Some(2.5));
}

#[test]
fn tiles_divide_the_loads_by_their_width() {
    for (name, tile) in [("tiled_16", 16), ("tiled_32", 32)] {
        let n = 64;
        let counters = counters(name, n);
        let (blocks, steps) = ((n / tile) * (n / tile), n / tile);
        let warps = tile * tile / 32;
        assert_eq!(counters.global_load.accesses, 2 * n * n * steps);
        assert_eq!(counters.global_load.requests, blocks * steps * warps * 2);
        assert_eq!(counters.global_load.sectors_per_request(), Some(4.0));
        assert_eq!(counters.global_load.efficiency(), Some(100.0));
        assert_eq!(counters.barriers, blocks * steps * 2);
        assert_eq!(counters.barrier_instructions, blocks * steps * 2 * warps);
        let loads = blocks * steps * warps * tile * 2;
        assert_eq!(counters.shared_load.requests, loads);
        assert_eq!(counters.shared_load.wavefronts, loads);
        assert_eq!(counters.shared_load.bank_conflicts, 0);
        assert_eq!(counters.shared_load.max_degree, 1);
        // A row of A's tile is read along, four at a time; a column of B's is
        // not. A half warp reads one address of A's, so 16 bytes take two
        // passes.
        assert_eq!(
            counters.shared_load.vectorized_requests,
            loads / 2 + loads / 8
        );
        assert_eq!(
            counters.shared_load.vectorized_wavefronts,
            loads / 2 + loads / 4
        );
        assert_eq!(counters.shared_store.requests, blocks * steps * warps * 2);
        assert_eq!(counters.shared_store.bank_conflicts, 0);
    }
}

#[test]
fn an_edge_masks_lanes_off() {
    // 17 columns in blocks of 16: the second block's warps have one column each
    // of two rows.
    let shape = Shape::new(16, 17, 1).expect("a small shape");
    let variant = gemm::find("naive_16").expect("in the table");
    let report = clean(simulate(
        variant,
        shape,
        &index_coded(16, 1),
        &index_coded(17, 1),
        &Options::default(),
    ));
    let counters = report.counters();
    assert_eq!(counters.global_load.requests, 2 * (8 + 8));
    assert_eq!(counters.global_load.accesses, 2 * 16 * 17);
    // Elements of A lie in one sector for each of 8 warps, in both blocks. B's
    // are 16 in two sectors, and one.
    assert_eq!(counters.global_load.sectors, 16 + 8 * 2 + 8);
}

kernel! {
    /// Writes a tile by rows and reads it by columns.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn transposes(a: Global<f32>, c: GlobalMut<f32>, pitch: u32)
    launch_bounds(1024)
    shared { tile: [f32; 33 * 33] }
    {
        let (x, y) = (thread::thread_idx_x(), thread::thread_idx_y());
        // SAFETY: for the simulator.
        unsafe {
            tile.store(y * pitch + x, a.load(u64::from(y * 32 + x)));
            thread::sync_threads();
            c.store(u64::from(y * 32 + x), tile.load(x * pitch + y)); // COUNT: column
        }
    }
}

#[test]
fn a_column_has_bank_conflicts_and_padding_removes_them() {
    let a = index_coded(1024, 1);
    let with = |pitch| {
        clean(launch(
            transposes::launch(Dim3::x(1), Dim3::xy(32, 32), A, C, pitch),
            &a,
            &[],
            1024,
            0,
        ))
    };
    let straight = with(32);
    assert_eq!(straight.c[1], a[32]);
    let load = straight.counters().shared_load;
    assert_eq!((load.requests, load.wavefronts), (32, 32 * 32));
    assert_eq!((load.bank_conflicts, load.max_degree), (32 * 31, 32));
    assert_eq!(load.degree(), Some(32.0));
    assert_eq!(straight.counters().shared_store.bank_conflicts, 0);
    let padded = with(33).counters().shared_load;
    assert_eq!((padded.wavefronts, padded.bank_conflicts), (32, 0));

    // The conflicts are at their line.
    let source = include_str!("counters.rs").replace("// COUNT:", "// FAULT:");
    let line = line_of(&source, "column");
    let lines = straight.lines();
    let (_, at_line) = lines
        .iter()
        .find(|((file, number), _)| file.ends_with("counters.rs") && *number == line)
        .expect("the line is counted");
    assert_eq!(at_line.shared_load.bank_conflicts, 32 * 31);
    assert_eq!(at_line.global_store.requests, 32);
    assert_eq!(at_line.global_load.requests, 0);
}

kernel! {
    /// Reads a column of a row-major matrix in each warp: what uncoalesced
    /// means.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn reads_a_column(b: Global<f32>, c: GlobalMut<f32>, pitch: u32)
    launch_bounds(32)
    {
        let x = thread::thread_idx_x();
        // SAFETY: for the simulator.
        unsafe { c.store(u64::from(x), b.load(u64::from(x * pitch))) };
    }
}

#[test]
fn a_column_of_global_memory_is_uncoalesced() {
    let plan =
        kernels::launch::Plan::single(reads_a_column::launch(Dim3::x(1), Dim3::x(32), B, C, 100));
    let operands = Operands {
        a: &[],
        b: &index_coded(3200, 1),
        c_elements: 32,
        shape: None,
    };
    let options = Options {
        check_inputs_read: false,
        ..Options::default()
    };
    let load = clean(run(&plan, operands, &options)).counters().global_load;
    assert_eq!((load.requests, load.sectors), (1, 32));
    assert_eq!(load.efficiency(), Some(12.5));
}

#[test]
fn a_report_has_profilers_names_and_serialises() {
    let mut options = Options::default();
    options.registers.insert("gemm_tiled_32".to_owned(), 40);
    let report = of_variant("tiled_32", 64, &options);
    let json: serde_json::Value =
        serde_json::from_str(&serde_json::to_string(&report).expect("serialises")).expect("JSON");
    let launch = &json["launches"][0];
    assert_eq!(json["variant"], "tiled_32");
    assert_eq!(launch["counters"]["global_load"]["sectors"], 2048);
    let metric = |name: &str| {
        launch["metrics"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|metric| metric["name"] == name)
            .map(|metric| metric["value"].as_f64().expect("a number"))
    };
    assert_eq!(
        metric("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
        Some(2048.0)
    );
    assert_eq!(
        metric("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"),
        Some(4.0)
    );
    assert_eq!(metric("gld_efficiency"), Some(100.0));
    assert_eq!(
        metric("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"),
        Some(0.0)
    );
    // 1,024 threads of 40 registers: 48 warps fit, one block of 32.
    assert_eq!(launch["occupancy"]["percent"], 50.0);
    assert_eq!(launch["occupancy"]["limited_by"][0], "Registers");

    let table = report.table(true);
    for part in [
        "checks: no fault",
        "sectors/request",
        "tiled.rs",
        "load tile_a",
        "by line",
    ] {
        assert!(table.contains(part), "{part:?} in\n{table}");
    }
}

/// Those of what a launch gives too, which the arrays that lie in it are part of.
#[test]
fn bytes_of_shared_memory_are_those_of_the_launch() {
    let options = Options::default();
    let limits = options.architecture.limits();
    let shape = Shape::new(64, 64, 64).expect("a small shape");
    for variant in gemm::all_on(&limits) {
        let plan = variant.plan(shape, &limits).expect("it runs on it");
        let report = of_variant(variant.name, 64, &options);
        for (launch, planned) in report.launches.iter().zip(&plan.launches) {
            let name = planned.entry().name;
            assert_eq!(launch.shared_bytes, planned.shared_bytes(), "{name}");
            assert!(launch.occupancy.blocks > 0, "{name}: {}", launch.occupancy);
        }
    }
}

#[test]
fn variants_are_explained_side_by_side() {
    let variants: Vec<_> = ["naive_16", "tiled_16"]
        .into_iter()
        .map(|name| gemm::find(name).expect("in the table"))
        .collect();
    let shape = Shape::new(64, 64, 64).expect("a small shape");
    let explanation = explain(&variants, shape, &Options::default()).expect("no fault");
    let row = |name: &str| {
        explanation
            .rows
            .iter()
            .find(|row| row.name == name)
            .map(|row| row.values.clone())
    };
    assert_eq!(
        row("sectors per load request"),
        Some(vec![Some(2.0), Some(4.0)])
    );
    assert_eq!(
        row("shared load conflict degree"),
        Some(vec![None, Some(1.0)])
    );
    let text = explanation.to_string();
    assert!(text.contains("a factor of 8.00"), "{text}");
    assert!(
        explanation
            .rows
            .iter()
            .all(|row| row.meaning.ends_with('.'))
    );
    assert!(serde_json::to_string(&explanation).is_ok());
}
