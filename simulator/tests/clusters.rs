//! Clusters: blocks that read and write each other's shared memory. Each mistake
//! is caught at its line, and the same kernel without it is clean.

mod common;

use common::{clean, element, faulty, first_at, index_coded, launch, line_of};
use common::{same_on_any_number_of_cores, the_fault};
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
    first_at(report, kind, line(marker))
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
    assert_eq!(counters.cluster_store.requests, 0);
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
    assert_eq!(element(fault), ("tile", 64, 64));
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
    same_on_any_number_of_cores("reads", || faulty(sums(WRITE_WHILE_READ, 2)).table(true));
}

kernel! {
    /// Element i of C is element 63 − i of A in the block and in the cluster's
    /// other. `late`: warp 0 writes after it has arrived (1), and before the other
    /// warp arrives (2); all write before, and arrive without ordering it (3).
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
            if late == 0 || late == 3 || t >= 32 {
                tile.store(t, a.load(i));
            }
            if late == 3 {
                cluster::arrive_relaxed();
            } else if late != 2 || t < 32 {
                cluster::arrive();
            }
            if (late == 1 || late == 2) && t < 32 {
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
fn a_relaxed_arrival_orders_nothing() {
    let report = faulty(halves(3));
    fault_at(&report, FaultKind::SharedRace, "reads its own");
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

const NO_PUSH_MISTAKE: u32 = 100;
const NO_SYNC_BEFORE_PUSHES: u32 = 101;
const NO_SYNC_AFTER_PUSHES: u32 = 102;
const BARRIER_OF_BLOCK_AFTER_PUSHES: u32 = 103;
const READ_AFTER_ARRIVAL: u32 = 104;
const OWNER_OVERWRITES: u32 = 105;
const TWO_BLOCKS_WRITE: u32 = 106;
const READ_BACK: u32 = 107;
const READ_BACK_IN_ORDER: u32 = 108;
const WRITTEN_AGAIN: u32 = 109;
const WRITTEN_AGAIN_IN_ORDER: u32 = 110;
const PUSH_OUTSIDE: u32 = 111;
const PUSH_TO_NO_SUCH_RANK: u32 = 112;
const PUSH_MISALIGNED: u32 = 113;
const BLOCK_ENDS: u32 = 114;
const PUSH_UNDER_A_COPY: u32 = 115;
const PUSH_AFTER_A_COPY: u32 = 116;
const COPY_UNORDERED: u32 = 117;
const WRITE_AFTER_ARRIVAL: u32 = 118;

/// Threads of a block that push, four elements each.
const PUSHING: u32 = THREADS / 4;

kernel! {
    /// What [`adds_up`] does: each block pushes what it has of a share into the
    /// shared memory of the block that adds the share up.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn pushes(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, mistake: u32,
    )
    needs("sm_90")
    launch_bounds(THREADS)
    clusters(8)
    shared { before: [f32; 4], parts: [f32; THREADS as usize] }
    {
        let t = thread::thread_idx_x();
        let first = u64::from(thread::block_idx_x() * THREADS);
        let (rank, size) = (cluster::rank(), cluster::size());
        let share = THREADS / size;
        // The block that has the four elements of a thread, and where.
        let place = |thread: u32| {
            let element = thread * 4;
            match mistake {
                TWO_BLOCKS_WRITE => (element / share, element % share),
                PUSH_OUTSIDE => (element / share, rank * share + element % share + THREADS),
                PUSH_TO_NO_SUCH_RANK => (element / share + 1, rank * share + element % share),
                PUSH_MISALIGNED => (element / share, rank * share + element % share + 1),
                _ => (element / share, rank * share + element % share),
            }
        };
        // SAFETY: for the simulator.
        unsafe {
            let zero = b.load(first + u64::from(t)) * 0.0;
            if t < 4 {
                before.store(t, zero);
            }
            // What the block does with its array before it says that it has
            // begun is ordered before all pushes.
            if mistake == NO_PUSH_MISTAKE {
                parts.store(t, zero);
                let _ = parts.load(t);
            }
            if mistake == PUSH_UNDER_A_COPY || mistake == PUSH_AFTER_A_COPY {
                async_copy::copy(parts, t, b.offset(first), true);
                async_copy::commit();
            }
            if mistake == PUSH_AFTER_A_COPY {
                async_copy::wait::<0>();
            }
            if mistake == READ_AFTER_ARRIVAL {
                parts.store(t, zero);
            }
            if mistake != NO_SYNC_BEFORE_PUSHES {
                cluster::arrive();
                if mistake == READ_AFTER_ARRIVAL {
                    let _ = parts.load(t); // FAULT: reads late
                }
                if mistake == WRITE_AFTER_ARRIVAL {
                    parts.store(t, zero); // FAULT: writes late
                }
                cluster::wait();
                if mistake == READ_AFTER_ARRIVAL || mistake == WRITE_AFTER_ARRIVAL {
                    // For the block's own pushes.
                    thread::sync_threads();
                }
            }
            if t < PUSHING {
                let mut four = [0.0; 4];
                for (k, value) in (0..).zip(&mut four) {
                    *value = a.load(first + u64::from(t) * 4 + k);
                }
                let (owner, i) = place(t);
                parts.of_block(owner).store_4(i, four); // FAULT: pushes
            }
            if mistake == READ_BACK_IN_ORDER || mistake == WRITTEN_AGAIN_IN_ORDER {
                thread::sync_threads();
            }
            if (PUSHING..2 * PUSHING).contains(&t) {
                let (owner, i) = place(t - PUSHING);
                if mistake == READ_BACK || mistake == READ_BACK_IN_ORDER {
                    let four = parts.of_block(owner).load_4(i); // FAULT: reads back
                    assert_eq!(four[0], a.load(first + u64::from(t - PUSHING) * 4));
                }
                if mistake == WRITTEN_AGAIN || mistake == WRITTEN_AGAIN_IN_ORDER {
                    parts.of_block(owner).store_4(i, [1.0; 4]); // FAULT: writes again
                }
            }
            if mistake == OWNER_OVERWRITES {
                thread::sync_threads();
                parts.store(t, 0.0); // FAULT: the owner overwrites
            }
            if mistake == COPY_UNORDERED {
                thread::sync_threads();
                async_copy::copy(parts, t, b.offset(first), true); // FAULT: copies over it
                async_copy::commit();
                async_copy::wait::<0>();
            }
            match mistake {
                NO_SYNC_AFTER_PUSHES => {}
                BARRIER_OF_BLOCK_AFTER_PUSHES => thread::sync_threads(),
                BLOCK_ENDS => {
                    let i = u64::from(thread::block_idx_x() / size * THREADS + t);
                    if rank == 0 {
                        c.store(i, zero);
                    }
                    return;
                }
                _ => cluster::sync(),
            }
            if t < share {
                let mut sum = 0.0;
                for other in 0..size {
                    sum = math::add(sum, parts.load(other * share + t)); // FAULT: adds up
                }
                let i = thread::block_idx_x() / size * THREADS + rank * share + t;
                c.store(u64::from(i), sum);
            }
        }
    }
}

fn pushed(mistake: u32, size: u32) -> Result<Report, SimulationError> {
    let one = pushes::launch(Dim3::x(BLOCKS), Dim3::x(THREADS), A, B, C, mistake);
    in_clusters(one, size)
}

/// Who is on the other side of a fault, and at which line.
#[track_caller]
fn other_side(fault: &Fault) -> (&'static str, [u32; 3], Option<u32>) {
    let other = fault.other.as_ref().expect("another side");
    (other.what, other.block, other.place.map(|place| place.line))
}

/// What another did, of which block, at the marked line.
#[track_caller]
fn assert_other_side(fault: &Fault, what: &str, block: [u32; 3], marker: &str) {
    assert_eq!(other_side(fault), (what, block, Some(line(marker))));
}

#[test]
fn blocks_write_to_one_another() {
    let a = input().0;
    for size in [1, 2, SIZE, 8] {
        let report = clean(pushed(NO_PUSH_MISTAKE, size));
        let expected = clean(sums(NO_MISTAKE, size)).c;
        assert_eq!(report.c, expected, "clusters of {size}");
    }
    // Without what they do before, and alone.
    for mistake in [PUSH_AFTER_A_COPY, READ_BACK_IN_ORDER] {
        let report = clean(pushed(mistake, SIZE));
        let sum: f32 = (0..SIZE).map(|block| a[(block * THREADS) as usize]).sum();
        assert_eq!(report.c[0], sum);
    }
    let report = clean(pushed(WRITTEN_AGAIN_IN_ORDER, SIZE));
    assert!(report.c.iter().all(|&sum| sum == SIZE as f32));
}

#[test]
fn stores_of_a_cluster_are_counted() {
    let report = clean(pushed(NO_PUSH_MISTAKE, SIZE));
    let counters = report.counters();
    // One of half a warp in each block, to whichever blocks.
    let store = counters.cluster_store;
    assert_eq!(store.requests, u64::from(BLOCKS));
    assert_eq!(store.accesses, u64::from(BLOCKS * PUSHING));
    assert_eq!(store.bytes_requested, 16 * store.accesses);
    assert_eq!(counters.cluster_load.requests, 0);
    // `before`, and `parts` by each of the two warps.
    assert_eq!(counters.shared_store.requests, u64::from(BLOCKS * (1 + 2)));
    let table = report.table(true);
    for part in ["shared memory of the cluster", "store parts"] {
        assert!(table.contains(part), "{part:?} in\n{table}");
    }
}

#[test]
fn a_write_before_all_blocks_have_begun() {
    let report = faulty(pushed(NO_SYNC_BEFORE_PUSHES, SIZE));
    let fault = the_fault(&report, FaultKind::UnbegunBlock);
    assert_at(fault, "pushes");
    assert!(
        fault.detail.starts_with("write to block 1 of the cluster"),
        "{fault}"
    );
    let element = fault.element.as_ref().expect("an element");
    assert_eq!((element.array.as_str(), element.index), ("parts", 0));
    // To three others each.
    let expected = BLOCKS * PUSHING * (SIZE - 1) / SIZE;
    assert_eq!(fault.occurrences, u64::from(expected));
    // The writes land all the same, so nothing follows from it.
    assert_eq!(report.faults.len(), 1, "{report}");
    // A block by itself writes to itself only.
    clean(pushed(NO_SYNC_BEFORE_PUSHES, 1));
}

#[test]
fn a_missing_barrier_after_the_writes() {
    let report = faulty(pushed(NO_SYNC_AFTER_PUSHES, SIZE));
    // The first block runs before the others have written, and may have ended
    // before they do.
    let early = fault_at(&report, FaultKind::UninitializedShared, "adds up");
    assert_eq!(early.block, Some([0, 0, 0]));
    let late = fault_at(&report, FaultKind::EndedBlock, "pushes");
    assert!(late.detail.starts_with("write to block"), "{late}");

    // All have written, which no barrier of the cluster has brought about.
    let report = faulty(pushed(BARRIER_OF_BLOCK_AFTER_PUSHES, SIZE));
    let race = fault_at(&report, FaultKind::SharedRace, "adds up");
    assert_eq!(race.block, Some([0, 0, 0]));
    assert_other_side(race, "written", [1, 0, 0], "pushes");
    // What the block wrote itself is ordered by its own barrier.
    let others = BLOCKS * THREADS * (SIZE - 1) / SIZE;
    assert_eq!(race.occurrences, u64::from(others), "{race}");
    fault_at(&report, FaultKind::EndedBlock, "pushes");
}

#[test]
fn what_the_owner_does_that_is_not_ordered_before_the_writes() {
    for (mistake, what, marker) in [
        (READ_AFTER_ARRIVAL, "read", "reads late"),
        (WRITE_AFTER_ARRIVAL, "written", "writes late"),
    ] {
        let report = faulty(pushed(mistake, SIZE));
        let race = the_fault(&report, FaultKind::SharedRace);
        assert_at(race, "pushes");
        assert_eq!(race.block, Some([0, 0, 0]));
        assert!(race.detail.contains("write to block 1"), "{race}");
        assert_other_side(race, what, [1, 0, 0], marker);
        let expected = BLOCKS * PUSHING * (SIZE - 1) / SIZE;
        assert_eq!(race.occurrences, u64::from(expected), "{race}");
    }
}

#[test]
fn two_that_write_one_word() {
    let report = faulty(pushed(OWNER_OVERWRITES, SIZE));
    let race = the_fault(&report, FaultKind::SharedRace);
    assert_at(race, "the owner overwrites");
    assert_other_side(race, "written", [1, 0, 0], "pushes");
    let others = BLOCKS * THREADS * (SIZE - 1) / SIZE;
    assert_eq!(race.occurrences, u64::from(others), "{race}");

    let report = faulty(pushed(TWO_BLOCKS_WRITE, SIZE));
    let race = the_fault(&report, FaultKind::SharedRace);
    assert_at(race, "pushes");
    assert_eq!(race.block, Some([1, 0, 0]));
    assert_other_side(race, "written", [0, 0, 0], "pushes");
}

/// Threads of one block that meet in the memory of another are ordered by their
/// own block's barriers, and by nothing less.
#[test]
fn threads_of_one_block_in_another() {
    for (mistake, marker) in [(READ_BACK, "reads back"), (WRITTEN_AGAIN, "writes again")] {
        let report = faulty(pushed(mistake, SIZE));
        let race = the_fault(&report, FaultKind::SharedRace);
        assert_at(race, marker);
        // Of the four words of an access, one is told of.
        assert_eq!(race.occurrences, u64::from(BLOCKS * PUSHING), "{race}");
        assert_other_side(race, "written", race.block.expect("a block"), "pushes");
    }
}

#[test]
fn writes_and_asynchronous_copies() {
    let report = faulty(pushed(PUSH_UNDER_A_COPY, SIZE));
    let copy = fault_at(&report, FaultKind::CopyUnderWay, "pushes");
    // Its own, first of all.
    assert_eq!(other_side(copy).1, [0, 0, 0]);
    let report = faulty(pushed(COPY_UNORDERED, SIZE));
    let race = fault_at(&report, FaultKind::SharedRace, "copies over it");
    let (what, block, place) = other_side(race);
    assert_ne!(Some(block), race.block, "{race}");
    assert_eq!((what, place), ("written", Some(line("pushes"))));
}

#[test]
fn writes_outside_are_found_and_dropped() {
    let report = faulty(pushed(PUSH_OUTSIDE, SIZE));
    let fault = the_fault(&report, FaultKind::OutOfBounds);
    assert_at(fault, "pushes");
    assert_eq!(element(fault), ("parts", 64, 64));
    assert_eq!(fault.occurrences, u64::from(BLOCKS * PUSHING));
    fault_at(&report, FaultKind::UninitializedShared, "adds up");

    let report = faulty(pushed(PUSH_TO_NO_SUCH_RANK, SIZE));
    let fault = the_fault(&report, FaultKind::OutOfBounds);
    assert_at(fault, "pushes");
    assert_eq!(fault.detail, "store to block 4 of a cluster of 4");
    assert_eq!(fault.occurrences, u64::from(BLOCKS * PUSHING / SIZE));

    let report = faulty(pushed(PUSH_MISALIGNED, SIZE));
    let fault = the_fault(&report, FaultKind::Misaligned);
    assert_at(fault, "pushes");
    assert!(fault.detail.starts_with("store of 16 bytes"), "{fault}");
    assert_eq!(report.counters().cluster_store.requests, 0);
}

#[test]
fn a_block_that_ends_while_it_is_written_to() {
    let report = faulty(pushed(BLOCK_ENDS, SIZE));
    let fault = the_fault(&report, FaultKind::EndedBlock);
    assert_at(fault, "pushes");
    assert!(fault.detail.starts_with("write to block 1"), "{fault}");
    let expected = BLOCKS * PUSHING * (SIZE - 1) / SIZE;
    assert_eq!(fault.occurrences, u64::from(expected));
    assert_eq!(report.faults.len(), 1, "{report}");
    clean(pushed(BLOCK_ENDS, 1));
}

kernel! {
    /// Blocks push to each other and read what they got, in each of `rounds`.
    /// `mistake`: 1 goes on without waiting until the other has read.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn pushes_in_rounds(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, rounds: u32, mistake: u32,
    )
    needs("sm_90")
    launch_bounds(THREADS)
    clusters(2)
    shared { tile: [f32; 4 * THREADS as usize] }
    {
        let t = thread::thread_idx_x();
        let i = u64::from(thread::block_idx_x() * THREADS + t);
        // SAFETY: for the simulator.
        unsafe {
            let other = tile.of_block(1 - cluster::rank());
            let mut sum = a.load(i) + b.load(i);
            cluster::arrive();
            for round in 0..rounds {
                if round == 0 || mistake == 0 {
                    cluster::wait();
                }
                other.store_4(4 * t, [sum; 4]); // FAULT: pushes in rounds
                cluster::sync();
                sum = math::add(sum, tile.load_4(4 * (t ^ 1))[0]); // FAULT: reads in rounds
                if mistake == 0 {
                    cluster::arrive();
                }
            }
            if mistake == 0 {
                cluster::wait();
            }
            c.store(i, sum);
        }
    }
}

#[test]
fn writes_in_rounds() {
    let (a, b) = input();
    let (a, b) = (&a[..128], &b[..128]);
    let run = |rounds, mistake| {
        let one = pushes_in_rounds::launch(Dim3::x(2), Dim3::x(THREADS), A, B, C, rounds, mistake);
        launch(one.cluster(2), a, b, 128, 0)
    };
    let mut expected: Vec<f32> = a.iter().zip(b).map(|(a, b)| a + b).collect();
    for rounds in 1..6 {
        let before = expected.clone();
        for (i, sum) in expected.iter_mut().enumerate() {
            *sum += before[((i + 64) % 128) ^ 1];
        }
        let report = clean(run(rounds, 0));
        assert_eq!(report.c, expected, "{rounds} rounds");
        let counters = report.counters();
        assert_eq!(counters.cluster_store.requests, u64::from(2 * 2 * rounds));
        assert_eq!(counters.shared_load.requests, u64::from(2 * 2 * rounds));
    }
    let report = faulty(run(4, 1));
    let race = fault_at(&report, FaultKind::SharedRace, "pushes in rounds");
    assert_eq!(race.block, Some([1, 0, 0]));
    assert_other_side(race, "read", [0, 0, 0], "reads in rounds");
    let race = fault_at(&report, FaultKind::SharedRace, "reads in rounds");
    assert_eq!(race.block, Some([1, 0, 0]));
    assert_other_side(race, "written", [0, 0, 0], "pushes in rounds");
}

#[test]
fn a_report_of_writes_is_the_same_on_any_number_of_cores() {
    same_on_any_number_of_cores("writes", || {
        faulty(pushed(NO_SYNC_AFTER_PUSHES, 2)).table(true)
    });
}
