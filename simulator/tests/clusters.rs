//! Clusters: blocks that read each other's shared memory. Each mistake is caught
//! at its line, and the same kernel without it is clean.

mod common;

use common::{clean, faulty, index_coded, launch, line_of, the_fault};
use kernels::gpu::{Barrier, Global, GlobalMut, async_copy, cluster, math, thread};
use kernels::kernel;
use kernels::launch::Buffer::{A, B, C};
use kernels::launch::{Dim3, Launch};
use simulator::{Fault, FaultKind, Report, SimulationError};

const THREADS: u32 = 64;
/// Blocks of a cluster.
const SIZE: u32 = 4;
/// Blocks of the grid.
const BLOCKS: u32 = 2 * SIZE;

fn line(marker: &str) -> u32 {
    line_of(include_str!("clusters.rs"), marker)
}

fn assert_at(fault: &Fault, marker: &str) {
    let place = fault.place.expect("a place");
    assert!(place.file.ends_with("clusters.rs"), "{fault}");
    assert_eq!(place.line, line(marker), "{fault}");
}

/// The first fault of that kind, at the marked line.
#[track_caller]
fn fault_at<'a>(report: &'a Report, kind: FaultKind, marker: &str) -> &'a Fault {
    let line = line(marker);
    report
        .faults
        .iter()
        .find(|fault| fault.kind == kind && fault.place.is_some_and(|place| place.line == line))
        .unwrap_or_else(|| panic!("no {kind} at {marker:?}:\n{report}"))
}

fn input() -> (Vec<f32>, Vec<f32>) {
    let elements = u64::from(BLOCKS * THREADS);
    (index_coded(elements, 1), index_coded(elements, 2))
}

/// Runs a launch in clusters of so many blocks. C has an element for each thread
/// of the first block of each.
fn in_clusters(one: Launch, size: u32) -> Result<Report, SimulationError> {
    let (a, b) = input();
    launch(
        one.cluster(size),
        &a,
        &b,
        (BLOCKS / size * THREADS) as usize,
        0,
    )
}

const NO_MISTAKE: u32 = 0;
const NO_FIRST_SYNC: u32 = 1;
const NO_LAST_SYNC: u32 = 2;
const BARRIER_OF_BLOCK: u32 = 3;
const WRITE_WHILE_READ: u32 = 4;
const OUTSIDE: u32 = 5;
const NO_SUCH_RANK: u32 = 6;
const BLOCK_RETURNS: u32 = 7;
const THREAD_RETURNS: u32 = 8;
const OTHER_BARRIER: u32 = 9;
const NO_WAIT: u32 = 10;
const NO_ARRIVAL: u32 = 11;
const TWO_ARRIVALS: u32 = 12;
const MISALIGNED: u32 = 13;

kernel! {
    /// Element i of C is the sum of element i of A in each block of a cluster.
    /// Each block adds up a share of the elements, four by each of its first
    /// threads.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn adds_up(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, mistake: u32,
    )
    needs("sm_90")
    launch_bounds(THREADS)
    clusters(8)
    shared { before: [f32; 4], tile: [f32; THREADS as usize] }
    {
        let t = thread::thread_idx_x();
        let i = u64::from(thread::block_idx_x() * THREADS + t);
        let (rank, size) = (cluster::rank(), cluster::size());
        // SAFETY: for the simulator.
        unsafe {
            let zero = b.load(i) * 0.0;
            if t < 4 {
                before.store(t, zero);
            }
            if mistake == BLOCK_RETURNS && rank == 2 {
                return;
            }
            if mistake == THREAD_RETURNS && rank == 2 && t == 33 {
                return;
            }
            tile.store(t, a.load(i)); // FAULT: writes
            match mistake {
                NO_FIRST_SYNC => {}
                BARRIER_OF_BLOCK => thread::sync_threads(),
                OTHER_BARRIER if rank == 1 && t >= 32 => thread::sync_threads(), // FAULT: another barrier
                NO_ARRIVAL => cluster::wait(), // FAULT: waits only
                _ => cluster::sync(), // FAULT: first sync
            }
            if mistake == TWO_ARRIVALS && t == 7 && rank == 3 {
                cluster::arrive();
                cluster::arrive(); // FAULT: arrives twice
                cluster::wait();
            } else if mistake == TWO_ARRIVALS {
                cluster::sync();
            }
            let share = THREADS / size;
            if t * 4 < share {
                let first = rank * share + t * 4;
                let mut sums = [0.0; 4];
                for other in 0..size {
                    let (other, first) = match mistake {
                        NO_SUCH_RANK => (other + 1, first),
                        OUTSIDE => (other, first + THREADS / 2),
                        MISALIGNED => (other, first + 1),
                        _ => (other, first),
                    };
                    let four = tile.of_block(other).load_4(first); // FAULT: reads
                    for (sum, value) in sums.iter_mut().zip(four) {
                        *sum = math::add(*sum, value);
                    }
                }
                let cluster = thread::block_idx_x() / size;
                for (k, sum) in (0..).zip(sums) {
                    c.store(u64::from(cluster * THREADS + first + k), sum);
                }
            }
            if mistake == WRITE_WHILE_READ {
                tile.store(t, 0.0); // FAULT: overwrites
            }
            match mistake {
                NO_LAST_SYNC => {}
                NO_WAIT if t == 5 => cluster::arrive(), // FAULT: ends without waiting
                _ => cluster::sync(),
            }
        }
    }
}

fn sums(mistake: u32, size: u32) -> Result<Report, SimulationError> {
    let one = adds_up::launch(Dim3::x(BLOCKS), Dim3::x(THREADS), A, B, C, mistake);
    in_clusters(one, size)
}

#[test]
fn blocks_read_one_another() {
    let a = input().0;
    for size in [1, 2, SIZE, 8] {
        let report = clean(sums(NO_MISTAKE, size));
        let blocks: Vec<&[f32]> = a.chunks(THREADS as usize).collect();
        let expected: Vec<f32> = blocks
            .chunks(size as usize)
            .flat_map(|cluster| {
                (0..THREADS as usize).map(|i| cluster.iter().map(|block| block[i]).sum::<f32>())
            })
            .collect();
        assert_eq!(report.c, expected, "clusters of {size}");
        assert_eq!(report.launches[0].cluster, size);
    }
}

#[test]
fn loads_and_barriers_of_a_cluster_are_counted() {
    let report = clean(sums(NO_MISTAKE, SIZE));
    let counters = report.counters();
    // One warp of each block, of which four threads read once in each block.
    let load = counters.cluster_load;
    assert_eq!(load.requests, u64::from(BLOCKS * SIZE));
    assert_eq!(load.accesses, u64::from(BLOCKS * SIZE * 4));
    assert_eq!(load.bytes_requested, 16 * load.accesses);
    assert_eq!(counters.shared_load.requests, 0);
    assert_eq!(counters.barriers, u64::from(2 * BLOCKS));
    assert_eq!(counters.barrier_instructions, u64::from(2 * 2 * BLOCKS));
    let table = report.table(true);
    for part in [
        "grid 8×1×1 in clusters of 4",
        "shared memory of the cluster",
        "load tile",
    ] {
        assert!(table.contains(part), "{part:?} in\n{table}");
    }
}

#[test]
fn a_missing_barrier_before_the_reads() {
    let report = faulty(sums(NO_FIRST_SYNC, SIZE));
    // The first block runs before the others have written.
    let early = fault_at(&report, FaultKind::UninitializedShared, "reads");
    assert_eq!(early.block, Some([0, 0, 0]));
    // The last one runs after, which no barrier has brought about.
    let race = fault_at(&report, FaultKind::SharedRace, "reads");
    assert!(race.detail.contains("of the cluster"), "{race}");
    let other = race.other.as_ref().expect("who wrote");
    assert_ne!(Some(other.block), race.block, "{race}");
    assert_eq!(other.place.map(|place| place.line), Some(line("writes")));
}

/// One of the block is none of the cluster.
#[test]
fn a_barrier_of_the_block_does_not_order_blocks() {
    let report = faulty(sums(BARRIER_OF_BLOCK, SIZE));
    fault_at(&report, FaultKind::SharedRace, "reads");
}

#[test]
fn a_missing_barrier_after_the_reads() {
    let report = faulty(sums(WRITE_WHILE_READ, SIZE));
    let read = fault_at(&report, FaultKind::SharedRace, "reads");
    let other = read.other.as_ref().expect("who wrote");
    assert_eq!(
        other.place.map(|place| place.line),
        Some(line("overwrites"))
    );
    let written = fault_at(&report, FaultKind::SharedRace, "overwrites");
    let other = written.other.as_ref().expect("who read");
    assert_eq!(
        (other.what, other.place.map(|place| place.line)),
        ("read", Some(line("reads")))
    );
}

#[test]
fn a_block_that_ends_while_it_is_read() {
    let report = faulty(sums(NO_LAST_SYNC, SIZE));
    let fault = the_fault(&report, FaultKind::EndedBlock);
    assert_at(fault, "reads");
    // Four threads of each block read in three others.
    assert_eq!(fault.occurrences, u64::from(BLOCKS * 4 * (SIZE - 1)));
    // Nobody else can read a block that is a cluster by itself.
    clean(sums(NO_LAST_SYNC, 1));
}

#[test]
fn reads_outside_are_found() {
    let report = faulty(sums(OUTSIDE, SIZE));
    let fault = the_fault(&report, FaultKind::OutOfBounds);
    assert_at(fault, "reads");
    let element = fault.element.as_ref().expect("an element");
    assert_eq!(
        (element.array.as_str(), element.index, element.len),
        ("tile", 64, 64)
    );
    assert_eq!(fault.block, Some([2, 0, 0]));

    let report = faulty(sums(NO_SUCH_RANK, SIZE));
    let fault = the_fault(&report, FaultKind::OutOfBounds);
    assert_at(fault, "reads");
    assert!(
        fault.detail.contains("block 4 of a cluster of 4"),
        "{fault}"
    );

    let report = faulty(sums(MISALIGNED, SIZE));
    assert_at(the_fault(&report, FaultKind::Misaligned), "reads");
}

#[test]
fn a_barrier_that_not_all_reach() {
    for (mistake, missing, thread) in [(BLOCK_RETURNS, 64, 0), (THREAD_RETURNS, 1, 33)] {
        let report = faulty(sums(mistake, SIZE));
        let fault = the_fault(&report, FaultKind::BarrierDivergence);
        assert_at(fault, "first sync");
        let said = format!(
            "{} of the cluster's 256 threads have arrived",
            256 - missing
        );
        assert!(fault.detail.contains(&said), "{fault}");
        let other = fault.other.as_ref().expect("who did not come");
        assert_eq!(
            (other.what, other.block, other.thread),
            ("missed", [2, 0, 0], [thread, 0, 0])
        );
        assert_eq!(fault.occurrences, 2, "once a cluster: {fault}");
    }
    let report = faulty(sums(OTHER_BARRIER, SIZE));
    let fault = the_fault(&report, FaultKind::BarrierDivergence);
    assert_at(fault, "first sync");
    let other = fault.other.as_ref().expect("who stands elsewhere");
    assert_eq!((other.block, other.thread), ([1, 0, 0], [32, 0, 0]));
    assert_eq!(
        other.place.map(|place| place.line),
        Some(line("another barrier"))
    );
}

#[test]
fn arrivals_and_waits_go_by_turns() {
    for (mistake, marker) in [
        (NO_WAIT, "ends without waiting"),
        (NO_ARRIVAL, "waits only"),
        (TWO_ARRIVALS, "arrives twice"),
    ] {
        fault_at(
            &faulty(sums(mistake, SIZE)),
            FaultKind::BarrierMisuse,
            marker,
        );
    }
}

#[test]
fn clusters_that_cannot_be_launched() {
    for size in [3, 16] {
        let error = sums(NO_MISTAKE, size).expect_err("no such clusters");
        assert!(matches!(error, SimulationError::Plan(_)), "{error}");
    }
}

#[test]
fn a_report_is_the_same_on_any_number_of_cores() {
    let texts: Vec<String> = [1, 2, 5]
        .into_iter()
        .map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let report = pool.expect("threads").install(|| sums(WRITE_WHILE_READ, 2));
            faulty(report).table(true)
        })
        .collect();
    assert!(texts.iter().all(|text| *text == texts[0]));
}

kernel! {
    /// Element i of C is element 63 − i of A in the block and in the cluster's
    /// other. `late`: warp 0 writes after it has arrived (1), and before the other
    /// warp arrives (2).
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn in_halves(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, late: u32,
    )
    needs("sm_90")
    launch_bounds(THREADS)
    clusters(2)
    shared { tile: [f32; THREADS as usize] }
    {
        let t = thread::thread_idx_x();
        let i = u64::from(thread::block_idx_x() * THREADS + t);
        // SAFETY: for the simulator.
        unsafe {
            let _ = b.load(i);
            if late == 0 || t >= 32 {
                tile.store(t, a.load(i));
            }
            if late != 2 || t < 32 {
                cluster::arrive();
            }
            if late != 0 && t < 32 {
                tile.store(t, a.load(i));
            }
            if late == 2 {
                thread::sync_threads();
                if t >= 32 {
                    cluster::arrive();
                }
            }
            cluster::wait();
            let other = tile.of_block(1 - cluster::rank());
            let mine = tile.load(THREADS - 1 - t); // FAULT: reads its own
            let from = THREADS - 1 - t;
            let theirs = other.load_4(from / 4 * 4)[(from % 4) as usize]; // FAULT: reads the other's
            c.store(i, math::add(mine, theirs));
            cluster::sync();
            // The cluster's barrier orders threads of one block too.
            let _ = c.load(i - u64::from(t) + u64::from(from));
        }
    }
}

fn halves(late: u32) -> Result<Report, SimulationError> {
    let one = in_halves::launch(Dim3::x(2), Dim3::x(THREADS), A, B, C, late);
    let (a, b) = input();
    let elements = 2 * THREADS as usize;
    launch(one.cluster(2), &a[..elements], &b[..elements], elements, 0)
}

#[test]
fn what_is_written_after_the_arrival_is_not_ordered() {
    let report = faulty(halves(1));
    let fault = fault_at(&report, FaultKind::SharedRace, "reads its own");
    assert_eq!(fault.block, Some([0, 0, 0]));
    fault_at(&report, FaultKind::SharedRace, "reads the other's");
}

#[test]
fn what_a_later_arrival_knows_is_ordered() {
    let a = input().0;
    let turned = |i: usize| a[i / 64 * 64 + 63 - i % 64];
    let expected: Vec<f32> = (0..128)
        .map(|i| turned(i) + turned((i + 64) % 128))
        .collect();
    for late in [0, 2] {
        assert_eq!(clean(halves(late)).c, expected);
    }
}

kernel! {
    /// C is A, each half copied asynchronously by one block and read by the other.
    /// `mistake`: 1 does not wait for the copy, 2 waits for a barrier in
    /// shared memory at which nobody arrives, 3 writes while the other may read.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn by_copies(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, mistake: u32,
    )
    needs("sm_90")
    launch_bounds(THREADS)
    clusters(2)
    dynamic_shared { tile: [f32; THREADS as usize], full: [Barrier; 1] }
    {
        let t = thread::thread_idx_x();
        let i = u64::from(thread::block_idx_x() * THREADS + t);
        let rank = cluster::rank();
        // SAFETY: for the simulator.
        unsafe {
            let _ = b.load(i);
            async_copy::copy(tile, t, a.offset(i), true);
            async_copy::commit();
            if mistake != 1 {
                async_copy::wait::<0>();
            }
            if mistake == 2 && rank == 1 && t == 0 {
                full.at(0).init(1);
                full.at(0).wait(0); // FAULT: nobody arrives
            }
            cluster::sync();
            let four = tile.of_block(1 - rank).load_4(t / 4 * 4); // FAULT: copied
            let there = u64::from((1 - rank) * THREADS + t);
            c.store(there, four[(t % 4) as usize]);
            if mistake == 3 {
                tile.store(t, 0.0); // FAULT: overwrites what the other reads
            }
            cluster::sync();
        }
    }
}

fn copies(mistake: u32) -> Result<Report, SimulationError> {
    let one = by_copies::launch(Dim3::x(2), Dim3::x(THREADS), A, B, C, mistake);
    let (a, b) = input();
    let elements = 2 * THREADS as usize;
    launch(one.cluster(2), &a[..elements], &b[..elements], elements, 0)
}

#[test]
fn a_copy_is_waited_for_before_the_cluster_reads_it() {
    assert_eq!(clean(copies(0)).c, input().0[..128]);
    let report = faulty(copies(1));
    let fault = the_fault(&report, FaultKind::CopyUnderWay);
    assert_at(fault, "copied");
    let other = fault.other.as_ref().expect("who copies");
    assert_ne!(Some(other.block), fault.block, "{fault}");
}

#[test]
fn a_write_that_only_another_block_reads() {
    let report = faulty(copies(3));
    let fault = fault_at(
        &report,
        FaultKind::SharedRace,
        "overwrites what the other reads",
    );
    assert_eq!(fault.block, Some([1, 0, 0]));
    let other = fault.other.as_ref().expect("who reads");
    assert_eq!((other.what, other.block), ("read", [0, 0, 0]));
}

kernel! {
    /// Each thread reads what the other block's wrote, in each of three rounds.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn in_rounds(a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>)
    needs("sm_90")
    launch_bounds(THREADS)
    clusters(2)
    shared { tile: [f32; 4 * THREADS as usize] }
    {
        let t = thread::thread_idx_x();
        let i = u64::from(thread::block_idx_x() * THREADS + t);
        // SAFETY: for the simulator.
        unsafe {
            let mut sum = a.load(i) + b.load(i);
            for _ in 0..3 {
                tile.store_4(4 * t, [sum; 4]);
                cluster::sync();
                sum = math::add(sum, tile.of_block(1 - cluster::rank()).load_4(4 * t)[0]);
                cluster::sync();
            }
            c.store(i, sum);
        }
    }
}

/// The lanes of a warp pass the barrier together, also where one of them is the
/// last to arrive: their next accesses are one request.
#[test]
fn requests_are_of_whole_warps_after_a_barrier_of_the_cluster() {
    let one = in_rounds::launch(Dim3::x(2), Dim3::x(THREADS), A, B, C);
    let (a, b) = input();
    let elements = 2 * THREADS as usize;
    let result = launch(one.cluster(2), &a[..elements], &b[..elements], elements, 0);
    let counters = clean(result).counters();
    assert_eq!(counters.cluster_load.requests, 2 * 2 * 3);
    assert_eq!(counters.shared_store.requests, 2 * 2 * 3);
}

#[test]
fn a_cluster_that_waits_for_nothing_is_a_deadlock() {
    let report = faulty(copies(2));
    let fault = the_fault(&report, FaultKind::Deadlock);
    assert_at(fault, "nobody arrives");
    assert_eq!(fault.block, Some([1, 0, 0]));
    assert!(fault.detail.contains("127 stand at a barrier"), "{fault}");
}
