//! Kernels that are wrong in one way each, compiled for the host only. Each must
//! be caught, at the right line.

mod common;

use common::{clean, element, faulty, first_at, first_of_kind, index_coded, launch, line_of};
use common::{same_on_any_number_of_cores, the_fault};
use kernels::gpu::{Global, GlobalMut, host, math, thread};
use kernels::kernel;
use kernels::launch::Buffer::{A, B, C, Workspace};
use kernels::launch::{Dim3, Plan};
use simulator::{
    Architecture, BufferOffsets, Fault, FaultKind, Operands, Options, Report, SimulationError, run,
};
use std::sync::atomic::{AtomicU32, Ordering};

const T: u32 = 16;
const TT: usize = (T * T) as usize;

fn line(name: &str) -> u32 {
    line_of(include_str!("broken_kernels.rs"), name)
}

/// The fault stands at the marked line of this file.
fn assert_at(fault: &Fault, marker: &str) {
    let place = fault.place.expect("a place");
    assert!(place.file.ends_with("broken_kernels.rs"), "{fault}");
    assert_eq!(place.line, line(marker), "{fault}");
}

/// Runs a kernel that takes A, B, C, m, n, k on index-coded operands.
macro_rules! gemm {
    ($kernel:ident, $grid:expr, $m:expr, $n:expr, $k:expr) => {{
        let (m, n, k): (u32, u32, u32) = ($m, $n, $k);
        launch(
            $kernel::launch($grid, Dim3::xy(T, T), A, B, C, m, n, k),
            &index_coded(u64::from(m * k), 1),
            &index_coded(u64::from(k * n), 2),
            (m * n) as usize,
            0,
        )
    }};
}

fn grid(m: u32, n: u32) -> Dim3 {
    Dim3::covering(n.div_ceil(T), m.div_ceil(T))
}

kernel! {
    /// No barrier between the writes of a tile and its reads.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn missing_first_barrier(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(T * T)
    shared { tile_a: [f32; TT], tile_b: [f32; TT] }
    {
        // SAFETY: for the simulator.
        unsafe {
            let (a, b, mut c) = (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n));
            let (x, y) = (thread::thread_idx_x(), thread::thread_idx_y());
            let at = thread::index_2d();
            let mut sum = 0.0;
            for step in 0..k.div_ceil(T) {
                tile_a.store(y * T + x, a.load_or_zero(at.row(), step * T + x));
                tile_b.store(y * T + x, b.load_or_zero(step * T + y, at.column()));
                for i in 0..T {
                    let p = tile_a.load(y * T + i); // FAULT: missing first barrier
                    let q = tile_b.load(i * T + x);
                    sum = math::fma(p, q, sum);
                }
                thread::sync_threads();
            }
            c.set(at, sum);
        }
    }
}

#[test]
fn a_missing_barrier_before_the_reads() {
    let report = faulty(gemm!(missing_first_barrier, grid(32, 32), 32, 32, 32));
    let at = line("missing first barrier");
    let race = first_at(&report, FaultKind::SharedRace, at);
    let (array, _, len) = element(race);
    assert_eq!((array, len), ("tile_a", 256));
    assert_eq!(race.other.as_ref().map(|other| other.what), Some("written"));
    // The first thread reads what nobody has written yet.
    let early = first_of_kind(&report, FaultKind::UninitializedShared);
    assert_at(early, "missing first barrier");
    assert_eq!((early.block, early.thread), (Some([0; 3]), Some([0; 3])));
}

kernel! {
    /// No barrier between the reads of a tile and the next step's writes.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn missing_second_barrier(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(T * T)
    shared { tile_a: [f32; TT], tile_b: [f32; TT] }
    {
        // SAFETY: for the simulator.
        unsafe {
            let (a, b, mut c) = (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n));
            let (x, y) = (thread::thread_idx_x(), thread::thread_idx_y());
            let at = thread::index_2d();
            let mut sum = 0.0;
            for step in 0..k.div_ceil(T) {
                tile_a.store(y * T + x, a.load_or_zero(at.row(), step * T + x)); // FAULT: overwrites a
                tile_b.store(y * T + x, b.load_or_zero(step * T + y, at.column())); // FAULT: overwrites b
                thread::sync_threads();
                for i in 0..T {
                    sum = math::fma(tile_a.load(y * T + i), tile_b.load(i * T + x), sum); // FAULT: still reads
                }
            }
            c.set(at, sum);
        }
    }
}

#[test]
fn a_missing_barrier_after_the_reads() {
    let report = faulty(gemm!(missing_second_barrier, grid(32, 32), 32, 32, 32));
    // Threads that run first overwrite what later ones have yet to read, and
    // the other way round: both sides of both races.
    assert_eq!(report.faults.len(), 4, "{report}");
    for marker in ["overwrites a", "overwrites b"] {
        let at = line(marker);
        let fault = report
            .faults
            .iter()
            .find(|fault| fault.place.is_some_and(|place| place.line == at))
            .expect("a race at the store");
        assert_eq!(fault.kind, FaultKind::SharedRace);
        let other = fault.other.as_ref().expect("another thread");
        assert_eq!(other.what, "read");
        assert_ne!(Some(other.thread), fault.thread);
        assert_eq!(
            other.place.map(|place| place.line),
            Some(line("still reads"))
        );
    }
    // One step has nothing to overwrite.
    clean(gemm!(missing_second_barrier, grid(32, 32), 32, 32, 16));
}

kernel! {
    /// Loads its element of B without asking whether it is inside.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn unguarded_edge(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(T * T)
    {
        // SAFETY: for the simulator.
        unsafe {
            let at = thread::index_2d();
            let (a, mut c) = (a.matrix(m, k), c.matrix(m, n));
            let mut sum = 0.0;
            for i in 0..k {
                let p = a.load_or_zero(at.row(), i);
                let q = b.load(u64::from(i) * u64::from(n) + u64::from(at.column())); // FAULT: unguarded edge
                sum = math::fma(p, q, sum);
            }
            c.set(at, sum);
        }
    }
}

#[test]
fn an_unguarded_edge() {
    let report = faulty(gemm!(unguarded_edge, grid(16, 17), 16, 17, 3));
    assert_eq!(report.faults.len(), 1, "{report}");
    let fault = the_fault(&report, FaultKind::OutOfBounds);
    assert_at(fault, "unguarded edge");
    // Row 2 of B ends at 51; block 1 starts at column 16.
    assert_eq!(element(fault), ("B", 51, 51));
    assert_eq!(
        (fault.block, fault.thread),
        (Some([1, 0, 0]), Some([1, 0, 0]))
    );
    assert_eq!(
        fault.occurrences,
        15 * 16,
        "15 columns, 16 rows, the last of 3 steps"
    );
    assert!(
        fault.to_string().contains("B[51], past its 51 elements"),
        "{fault}"
    );
    // Where the tile divides N, there is no edge.
    clean(gemm!(unguarded_edge, grid(16, 16), 16, 16, 3));
}

kernel! {
    /// Right; it is launched on a grid whose rows and columns are swapped.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn right_kernel(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(T * T)
    {
        // SAFETY: for the simulator.
        unsafe {
            let at = thread::index_2d();
            let (a, b, mut c) = (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n));
            let mut sum = 0.0;
            for i in 0..k {
                sum = math::fma(a.load_or_zero(at.row(), i), b.load_or_zero(i, at.column()), sum);
            }
            c.set(at, sum); // FAULT: swapped grid
        }
    }
}

#[test]
fn a_swapped_grid() {
    let (m, n, k) = (64, 16, 4);
    let swapped = Dim3::covering(m / T, n / T);
    let report = faulty(gemm!(right_kernel, swapped, m, n, k));
    let fault = the_fault(&report, FaultKind::NeverWritten);
    assert_at(fault, "swapped grid");
    assert_eq!(fault.occurrences, u64::from((m - T) * n));
    let element = fault.element.as_ref().expect("an element");
    assert_eq!(
        (element.array.as_str(), element.index),
        ("C", i64::from(T * n))
    );
    assert!(report.c[element.index as usize].is_nan(), "poisoned");
    clean(gemm!(right_kernel, grid(m, n), m, n, k));
}

kernel! {
    /// Half of the threads meet at one barrier, half at another.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn divergent_barrier(c: GlobalMut<f32>, n: u32)
    launch_bounds(64)
    {
        // SAFETY: for the simulator.
        let mut c = unsafe { c.slice(n) };
        if thread::thread_idx_x() < 32 {
            thread::sync_threads(); // FAULT: divergent barrier
        } else {
            thread::sync_threads(); // FAULT: the other barrier
        }
        c.set(thread::index_1d(), 1.0);
    }
}

kernel! {
    /// Threads past the end return before the barrier.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn early_return(c: GlobalMut<f32>, n: u32)
    launch_bounds(64)
    {
        let i = thread::index_1d();
        if i.get() >= u64::from(n) {
            return;
        }
        thread::sync_threads(); // FAULT: early return
        // SAFETY: for the simulator.
        unsafe { c.slice(n) }.set(i, 1.0);
    }
}

#[test]
fn a_divergent_barrier() {
    let result = launch(
        divergent_barrier::launch(Dim3::x(3), Dim3::x(64), C, 192),
        &[],
        &[],
        192,
        0,
    );
    let report = faulty(result);
    assert_eq!(
        report.faults.len(),
        1,
        "nothing that would follow from it: {report}"
    );
    let fault = the_fault(&report, FaultKind::BarrierDivergence);
    assert_at(fault, "divergent barrier");
    assert_eq!(fault.occurrences, 3, "once a block");
    let other = fault.other.as_ref().expect("another thread");
    assert_eq!(other.thread, [32, 0, 0]);
    assert_eq!(
        other.place.map(|place| place.line),
        Some(line("the other barrier"))
    );
}

#[test]
fn a_return_before_a_barrier() {
    let on = |n: u32| {
        launch(
            early_return::launch(Dim3::x(2), Dim3::x(64), C, n),
            &[],
            &[],
            n as usize,
            0,
        )
    };
    let report = faulty(on(100));
    let fault = the_fault(&report, FaultKind::BarrierDivergence);
    assert_at(fault, "early return");
    assert_eq!(fault.block, Some([1, 0, 0]));
    assert!(
        fault
            .detail
            .contains("36 of 64 threads wait here, 28 have returned"),
        "{fault}"
    );
    assert_eq!(
        fault.other.as_ref().map(|other| other.thread),
        Some([36, 0, 0])
    );
    clean(on(128));
}

kernel! {
    /// Walks along K in whole tiles only.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn dropped_tail(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(T * T)
    shared { tile_a: [f32; TT], tile_b: [f32; TT] }
    {
        // SAFETY: for the simulator.
        unsafe {
            let (a, b, mut c) = (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n));
            let (x, y) = (thread::thread_idx_x(), thread::thread_idx_y());
            let at = thread::index_2d();
            let mut sum = 0.0;
            for step in 0..k / T {
                let p = a.load_or_zero(at.row(), step * T + x); // FAULT: dropped tail of a
                let q = b.load_or_zero(step * T + y, at.column()); // FAULT: dropped tail of b
                tile_a.store(y * T + x, p);
                tile_b.store(y * T + x, q);
                thread::sync_threads();
                for i in 0..T {
                    sum = math::fma(tile_a.load(y * T + i), tile_b.load(i * T + x), sum);
                }
                thread::sync_threads();
            }
            c.set(at, sum);
        }
    }
}

kernel! {
    /// Walks one step too far along K.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn one_step_too_far(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(T * T)
    {
        // SAFETY: for the simulator.
        unsafe {
            let at = thread::index_2d();
            let mut c = c.matrix(m, n);
            if !c.contains(at) {
                return;
            }
            let (mut a, mut b) = (a.matrix(m, k).pointer_to(at.row(), 0), b.offset(u64::from(at.column())));
            let mut sum = 0.0;
            for _ in 0..=k {
                let p = a.load(0); // FAULT: too far in a
                let q = b.load(0); // FAULT: too far in b
                sum = math::fma(p, q, sum);
                (a, b) = (a.offset(1), b.offset(u64::from(n)));
            }
            c.set(at, sum);
        }
    }
}

#[test]
fn an_off_by_one_tail() {
    let report = faulty(gemm!(dropped_tail, grid(16, 16), 16, 16, 17));
    assert_eq!(report.faults.len(), 2, "{report}");
    for (fault, (marker, array, index)) in report.faults.iter().zip([
        ("dropped tail of a", "A", 16),
        ("dropped tail of b", "B", 256),
    ]) {
        assert_eq!(fault.kind, FaultKind::NeverRead);
        assert_at(fault, marker);
        let element = fault.element.as_ref().expect("an element");
        assert_eq!((element.array.as_str(), element.index), (array, index));
        assert_eq!(fault.occurrences, 16);
    }
    clean(gemm!(dropped_tail, grid(16, 16), 16, 16, 32));

    let report = faulty(gemm!(one_step_too_far, grid(5, 7), 5, 7, 3));
    assert_eq!(report.faults.len(), 2, "{report}");
    // Past a row of A lies the next row: only the last row's thread leaves A.
    let [b, a] = &report.faults[..] else {
        panic!("two faults: {report}");
    };
    assert_at(a, "too far in a");
    assert_eq!((a.occurrences, a.thread), (7, Some([0, 4, 0])));
    assert_at(b, "too far in b");
    assert_eq!((b.occurrences, b.thread), (35, Some([0, 0, 0])));
}

kernel! {
    /// Leaves the part of a tile that lies outside A as it was.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn uninitialised_tile(a: Global<f32>, c: GlobalMut<f32>, n: u32)
    launch_bounds(64)
    shared { tile: [f32; 64] }
    {
        let i = thread::index_1d();
        let x = thread::thread_idx_x();
        // SAFETY: for the simulator.
        unsafe {
            if let Some(value) = a.slice(n).get(i) {
                tile.store(x, value);
            }
            thread::sync_threads();
            let mut sum = 0.0;
            for j in 0..64 {
                sum = math::add(sum, tile.load(j)); // FAULT: uninitialised tile
            }
            c.slice(n).set(i, sum);
        }
    }
}

#[test]
fn an_uninitialised_tile() {
    let on = |n: u32| {
        launch(
            uninitialised_tile::launch(Dim3::x(2), Dim3::x(64), A, C, n),
            &index_coded(u64::from(n), 0),
            &[],
            n as usize,
            0,
        )
    };
    let report = faulty(on(100));
    assert_eq!(report.faults.len(), 1, "{report}");
    let fault = the_fault(&report, FaultKind::UninitializedShared);
    assert_at(fault, "uninitialised tile");
    assert_eq!(
        fault.block,
        Some([1, 0, 0]),
        "the first block's tile is not the second's"
    );
    assert_eq!(element(fault), ("tile", 36, 64));
    assert_eq!(fault.occurrences, 64 * 28);
    assert!(report.c[99].is_nan(), "the poison shows in the result");
    clean(on(128));
}

kernel! {
    /// Every element is written by two threads, of one block or of two.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn writes_twice(c: GlobalMut<f32>, n: u32, stride: u32, differ: u32)
    launch_bounds(32)
    {
        let i = thread::index_1d().get() as u32;
        let value = if differ != 0 { i as f32 } else { 1.0 };
        // SAFETY: for the simulator.
        unsafe { c.store(u64::from(i / stride % n), value) }; // FAULT: writes twice
    }
}

fn twice(stride: u32, differ: bool, overlapping_writes: bool) -> Result<Report, SimulationError> {
    let n = 64;
    let plan = Plan::single(writes_twice::launch(
        Dim3::x(4),
        Dim3::x(32),
        C,
        n,
        stride,
        u32::from(differ),
    ));
    let options = Options {
        overlapping_writes,
        ..Options::default()
    };
    let operands = Operands {
        a: &[],
        b: &[],
        c_elements: n as usize,
        shape: None,
    };
    run(&plan, operands, &options)
}

#[test]
fn an_element_written_twice() {
    // Stride 2: neighbouring threads. Stride 1: threads of blocks 0 and 2.
    for (stride, other) in [(2, ([0; 3], [0; 3])), (1, ([0; 3], [0; 3]))] {
        for differ in [false, true] {
            let report = faulty(twice(stride, differ, false));
            assert_eq!(report.faults.len(), 1, "{report}");
            let fault = the_fault(&report, FaultKind::WrittenTwice);
            assert_at(fault, "writes twice");
            assert_eq!(fault.occurrences, 64);
            assert_eq!(fault.detail.contains("other bits"), differ, "{fault}");
            let found = fault.other.as_ref().expect("another thread");
            assert_eq!((found.block, found.thread), other, "{fault}");
            // A declared overlap is fine as long as the bits agree.
            let declared = twice(stride, differ, true);
            if differ {
                the_fault(&faulty(declared), FaultKind::WrittenTwice);
            } else {
                clean(declared);
            }
        }
    }
}

kernel! {
    /// Loads and stores four elements at once.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn copies_by_four(a: Global<f32>, c: GlobalMut<f32>, first: u32)
    launch_bounds(32)
    shared { tile: [f32; 132] }
    {
        let i = thread::thread_idx_x() * 4;
        // SAFETY: for the simulator.
        unsafe {
            let four = a.load_4(u64::from(i + first)); // FAULT: misaligned load
            tile.store_4(i + first, four); // FAULT: misaligned shared store
            let four = tile.load_4(i + first); // FAULT: misaligned shared load
            c.store_4(u64::from(i), four); // FAULT: misaligned store
        }
    }
}

fn copy(first: u32, offsets: BufferOffsets) -> Result<Report, SimulationError> {
    let plan = Plan::single(copies_by_four::launch(Dim3::x(1), Dim3::x(32), A, C, first));
    let operands = Operands {
        a: &index_coded(128 + u64::from(first), 3),
        b: &[],
        c_elements: 128,
        shape: None,
    };
    let options = Options {
        offsets,
        check_inputs_read: false,
        ..Options::default()
    };
    run(&plan, operands, &options)
}

#[test]
fn a_misaligned_wide_access() {
    let report = clean(copy(0, BufferOffsets::default()));
    assert_eq!(report.c, index_coded(128, 3));
    let report = clean(copy(4, BufferOffsets::default()));
    assert_eq!(report.c, index_coded(132, 3)[4..]);

    let report = faulty(copy(1, BufferOffsets::default()));
    assert_eq!(report.faults.len(), 3, "{report}");
    for (fault, (marker, array)) in report.faults.iter().zip([
        ("misaligned load", "A"),
        ("misaligned shared store", "tile"),
        ("misaligned shared load", "tile"),
    ]) {
        assert_eq!(fault.kind, FaultKind::Misaligned);
        assert_at(fault, marker);
        let element = fault.element.as_ref().expect("an element");
        assert_eq!((element.array.as_str(), element.index), (array, 1));
        assert_eq!(fault.occurrences, 32);
    }
    // The same kernel, with buffers that start one element off.
    let c = BufferOffsets {
        c: 1,
        ..BufferOffsets::default()
    };
    let report = faulty(copy(0, c));
    assert_at(
        the_fault(&report, FaultKind::Misaligned),
        "misaligned store",
    );
}

kernel! {
    /// Thread i of the grid writes element i of the workspace, then reads
    /// element i + distance, after a barrier if asked.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn neighbours(w: GlobalMut<u32>, n: u32, distance: u32, barrier: u32)
    launch_bounds(32)
    {
        let i = thread::index_1d().get();
        // SAFETY: for the simulator.
        unsafe {
            w.store(i, 7); // FAULT: writes the neighbour's
            if barrier != 0 {
                thread::sync_threads();
            }
            w.load((i + u64::from(distance)) % u64::from(n)); // FAULT: reads the neighbour's
        }
    }
}

#[test]
fn races_on_global_memory() {
    let on = |blocks: u32, distance: u32, barrier: u32| {
        let n = blocks * 32;
        let launched = neighbours::launch(
            Dim3::x(blocks),
            Dim3::x(32),
            Workspace(0),
            n,
            distance,
            barrier,
        );
        launch(launched, &[], &[], 0, u64::from(n) * 4)
    };
    clean(on(1, 1, 1));
    clean(on(3, 0, 0));
    // Without a barrier, threads that run first read what is not there yet.
    let report = faulty(on(1, 1, 0));
    let early = the_fault(&report, FaultKind::UninitializedGlobal);
    assert_at(early, "reads the neighbour's");
    // They read it first and it is written then; the last thread's neighbour is
    // the first, which has written already.
    let races: Vec<&Fault> = report
        .faults
        .iter()
        .filter(|fault| fault.kind == FaultKind::GlobalRace)
        .collect();
    let [race, last] = races[..] else {
        panic!("two races: {report}");
    };
    assert_at(last, "reads the neighbour's");
    assert_at(race, "writes the neighbour's");
    assert_eq!(race.other.as_ref().map(|other| other.what), Some("read"));
    // A barrier orders no other block.
    let report = faulty(on(3, 1, 1));
    let race = the_fault(&report, FaultKind::GlobalRace);
    assert_at(race, "reads the neighbour's");
    assert_eq!(race.occurrences, 3, "one word at each end of a block");
    let other = race.other.as_ref().expect("another thread");
    assert_ne!(Some(other.block), race.block);
    assert_eq!(
        race.element.as_ref().map(|element| element.array.as_str()),
        Some("workspace")
    );
}

kernel! {
    /// Adds to what C holds.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn accumulates(c: GlobalMut<f32>, n: u32)
    launch_bounds(32)
    {
        let i = thread::index_1d().get();
        if i < u64::from(n) {
            // SAFETY: for the simulator.
            unsafe { c.store(i, math::add(c.load(i), 1.0)) }; // FAULT: reads c
        }
    }
}

#[test]
fn a_read_of_c_before_it_is_written() {
    let once = || accumulates::launch(Dim3::x(1), Dim3::x(32), C, 20);
    let report = faulty(launch(once(), &[], &[], 20, 0));
    let fault = the_fault(&report, FaultKind::UninitializedGlobal);
    assert_at(fault, "reads c");
    assert_eq!(fault.occurrences, 20);
    assert!(report.c[0].is_nan());
    // A second launch sees what the first wrote: still 20, all of the first.
    let plan = Plan {
        workspace_bytes: 0,
        launches: vec![once(), once()],
    };
    let operands = Operands {
        a: &[],
        b: &[],
        c_elements: 20,
        shape: None,
    };
    let report = faulty(run(&plan, operands, &Options::default()));
    assert_eq!(the_fault(&report, FaultKind::UninitializedGlobal).launch, 0);
}

kernel! {
    /// Writes past the end of one shared array, where another lies.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn past_the_tile(c: GlobalMut<f32>, n: u32)
    launch_bounds(32)
    shared { first: [f32; 32], second: [f32; 32] }
    {
        let x = thread::thread_idx_x();
        // SAFETY: for the simulator.
        unsafe {
            second.store(x, 5.0);
            first.store(x + 1, 6.0); // FAULT: past the tile
            c.slice(n).set(thread::index_1d(), second.load(x));
        }
    }
}

#[test]
fn an_index_past_a_shared_array() {
    let report = faulty(launch(
        past_the_tile::launch(Dim3::x(1), Dim3::x(32), C, 32),
        &[],
        &[],
        32,
        0,
    ));
    assert_eq!(report.faults.len(), 1, "{report}");
    let fault = the_fault(&report, FaultKind::OutOfBounds);
    assert_at(fault, "past the tile");
    assert_eq!(element(fault), ("first", 32, 32));
    assert_eq!(report.c, [5.0; 32], "the other array is untouched");
}

const TOO_MUCH: usize = (48 << 10) / 4 + 1;

kernel! {
    /// Declares more shared memory than a kernel may.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn too_much_shared(c: GlobalMut<f32>, n: u32)
    launch_bounds(32)
    shared { tile: [f32; TOO_MUCH] }
    {
        // SAFETY: for the simulator.
        unsafe {
            tile.store(0, 1.0);
            c.slice(n).set(thread::index_1d(), 1.0);
        }
    }
}

kernel! {
    /// Two arrays that fit only without the padding that aligns the second.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn too_much_padding(c: GlobalMut<f32>, n: u32)
    launch_bounds(32)
    shared { small: [f32; 1], large: [f32; TOO_MUCH - 2] } // FAULT: padding
    {
        // SAFETY: for the simulator.
        unsafe {
            small.store(0, 1.0);
            large.store(0, 1.0);
            c.slice(n).set(thread::index_1d(), 1.0);
        }
    }
}

#[test]
fn shared_memory_beyond_the_limit() {
    let on = |launched| launch(launched, &[], &[], 1, 0);
    let one = Dim3::x(1);
    let report = faulty(on(too_much_shared::launch(one, one, C, 1)));
    assert_eq!(report.faults.len(), 1, "{report}");
    let fault = the_fault(&report, FaultKind::SharedMemoryLimit);
    assert!(fault.detail.contains("49156 bytes"), "{fault}");

    let report = faulty(on(too_much_padding::launch(one, one, C, 1)));
    let fault = the_fault(&report, FaultKind::SharedMemoryLimit);
    assert!(fault.detail.contains("49164 bytes"), "{fault}");

    // Dynamic memory may go further, up to what the architecture gives.
    let with = |bytes, architecture| {
        let plan = Plan::single(early_return::launch(one, one, C, 1).dynamic_shared(bytes));
        let operands = Operands {
            a: &[],
            b: &[],
            c_elements: 1,
            shape: None,
        };
        let options = Options {
            architecture,
            ..Options::default()
        };
        run(&plan, operands, &options)
    };
    clean(with(227 << 10, Architecture::SM_90));
    clean(with(99 << 10, Architecture::SM_86));
    for (bytes, architecture) in [
        ((227 << 10) + 1, Architecture::SM_90),
        (227 << 10, Architecture::SM_86),
    ] {
        the_fault(
            &faulty(with(bytes, architecture)),
            FaultKind::SharedMemoryLimit,
        );
    }
}

kernel! {
    /// Indexes a table with what it reads.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn panics(a: Global<f32>, c: GlobalMut<f32>, n: u32)
    launch_bounds(32)
    {
        let table = [1.0, 2.0, 3.0];
        let i = thread::index_1d();
        // SAFETY: for the simulator.
        unsafe {
            if let Some(value) = a.slice(n).get(i) {
                let entry = table[value as usize]; // FAULT: panics
                thread::sync_threads();
                c.slice(n).set(i, entry);
            }
        }
    }
}

#[test]
fn a_panic_in_the_kernel() {
    let mut a = vec![2.0; 32];
    let on = |a: &[f32]| {
        launch(
            panics::launch(Dim3::x(1), Dim3::x(32), A, C, 32),
            a,
            &[],
            32,
            0,
        )
    };
    assert_eq!(clean(on(&a)).c, [3.0; 32]);
    a[5] = 3.0;
    let report = faulty(on(&a));
    assert_eq!(report.faults.len(), 1, "{report}");
    let fault = the_fault(&report, FaultKind::Panic);
    assert_at(fault, "panics");
    assert_eq!(fault.thread, Some([5, 0, 0]));
    assert!(fault.detail.contains("index is 3"), "{fault}");
}

/// Stands for a barrier in shared memory: one counter a block.
static ARRIVED: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

kernel! {
    /// Every thread but those of the last warp arrives; all wait for `needed`.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn waits(c: GlobalMut<f32>, n: u32, which: u32, needed: u32)
    launch_bounds(96)
    {
        let arrived = &ARRIVED[which as usize];
        if thread::thread_idx_x() < 64 {
            host::wait_until(|| true);
            arrived.fetch_add(1, Ordering::Relaxed);
        }
        host::wait_until(|| arrived.load(Ordering::Relaxed) >= needed); // FAULT: waits
        thread::sync_threads();
        // SAFETY: for the simulator.
        unsafe { c.slice(n) }.set(thread::index_1d(), 1.0);
    }
}

#[test]
fn a_wait_ends_or_is_a_deadlock() {
    let on = |which, needed| {
        launch(
            waits::launch(Dim3::x(1), Dim3::x(96), C, 96, which, needed),
            &[],
            &[],
            96,
            0,
        )
    };
    assert_eq!(clean(on(0, 64)).c, [1.0; 96]);
    assert_eq!(clean(on(1, 1)).counters().barriers, 1);
    let report = faulty(on(2, 65));
    assert_eq!(report.faults.len(), 1, "{report}");
    let fault = the_fault(&report, FaultKind::Deadlock);
    assert_at(fault, "waits");
    assert_eq!(fault.thread, Some([0; 3]));
    assert!(fault.detail.starts_with("96 threads wait"), "{fault}");
}

kernel! {
    /// The first thread waits for what the second would do after the barrier.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn waits_before_the_barrier(c: GlobalMut<f32>, n: u32)
    launch_bounds(32)
    {
        if thread::thread_idx_x() == 0 {
            host::wait_until(|| false); // FAULT: waits before the barrier
        }
        thread::sync_threads();
        // SAFETY: for the simulator.
        unsafe { c.slice(n) }.set(thread::index_1d(), 1.0);
    }
}

#[test]
fn a_wait_that_holds_up_a_barrier_is_a_deadlock() {
    let report = faulty(launch(
        waits_before_the_barrier::launch(Dim3::x(2), Dim3::x(32), C, 64),
        &[],
        &[],
        64,
        0,
    ));
    let fault = the_fault(&report, FaultKind::Deadlock);
    assert_at(fault, "waits before the barrier");
    assert!(
        fault
            .detail
            .contains("1 threads wait here or elsewhere, 31 stand at a barrier")
    );
    assert_eq!(fault.occurrences, 2, "once a block");
}

kernel! {
    /// Reads one element for ever.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn spins(a: Global<f32>)
    launch_bounds(32)
    {
        // SAFETY: for the simulator.
        while unsafe { a.load(0) } == 0.0 {} // FAULT: spins
    }
}

#[test]
fn a_loop_without_end() {
    let plan = Plan::single(spins::launch(Dim3::x(1), Dim3::x(32), A));
    let operands = Operands {
        a: &[0.0],
        b: &[],
        c_elements: 0,
        shape: None,
    };
    let options = Options {
        max_steps: 100_000,
        ..Options::default()
    };
    let report = faulty(run(&plan, operands, &options));
    assert_at(the_fault(&report, FaultKind::NoProgress), "spins");
}

#[test]
fn a_launch_that_no_device_takes_is_an_error() {
    for (grid, block) in [(0, 32), (1, 0)] {
        let result = launch(
            accumulates::launch(Dim3::x(grid), Dim3::x(block), C, 1),
            &[],
            &[],
            1,
            0,
        );
        assert!(matches!(result, Err(SimulationError::Grid { .. })));
    }
    let result = launch(
        accumulates::launch(Dim3::x(1), Dim3::x(33), C, 1),
        &[],
        &[],
        1,
        0,
    );
    let error = result.expect_err("launch bounds are 32");
    assert!(matches!(error, SimulationError::Plan(_)), "{error}");
    let result = launch(
        accumulates::launch(Dim3::xy(1, 65_536), Dim3::x(32), C, 1),
        &[],
        &[],
        1,
        0,
    );
    assert!(matches!(result, Err(SimulationError::Plan(_))));
}

#[test]
fn faults_do_not_depend_on_the_number_of_cores() {
    same_on_any_number_of_cores("faults", || {
        let reports = [
            faulty(gemm!(missing_first_barrier, grid(64, 80), 64, 80, 32)),
            faulty(gemm!(unguarded_edge, grid(40, 90), 40, 90, 5)),
            faulty(twice(1, true, false)),
            faulty(launch(
                neighbours::launch(Dim3::x(40), Dim3::x(32), Workspace(0), 1280, 5, 1),
                &[],
                &[],
                0,
                5120,
            )),
        ];
        reports
            .map(|report| {
                let c: Vec<u32> = report.c.iter().map(|value| value.to_bits()).collect();
                let json = serde_json::to_string(&report).expect("a report serialises");
                format!("{json} {c:?} {:?}", report.workspace)
            })
            .concat()
    });
}
