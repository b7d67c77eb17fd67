//! Asynchronous copies and barriers in shared memory: each mistake is caught at
//! its line, and the same kernel without it is clean.

mod common;

use common::{clean, faulty, first_of_kind, index_coded, launch, line_of, the_fault};
use kernels::gpu::{Barrier, Global, GlobalMut, async_copy, barrier, thread, warp};
use kernels::kernel;
use kernels::launch::Buffer::{A, B, C};
use kernels::launch::Dim3;
use simulator::{Fault, FaultKind, Report, SimulationError};

const THREADS: u32 = 64;
/// For `by_barriers`.
const ASKS: u32 = 5;

fn assert_at(fault: &Fault, marker: &str) {
    let place = fault.place.expect("a place");
    assert!(place.file.ends_with("asynchronous.rs"), "{fault}");
    let line = line_of(include_str!("asynchronous.rs"), marker);
    assert_eq!(place.line, line, "{fault}");
}

kernel! {
    /// C is A turned round, through a group of copies. `wait`: waits for it.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn by_groups(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, wait: u32,
    )
    needs("sm_80")
    launch_bounds(THREADS)
    dynamic_shared { tile: [f32; THREADS as usize] }
    {
        let t = thread::thread_idx_x();
        // SAFETY: for the simulator.
        unsafe {
            let _ = b.load(t.into());
            async_copy::copy(tile, t, a.offset(t.into()), true);
            async_copy::commit();
            if wait != 0 {
                async_copy::wait::<0>();
            }
            thread::sync_threads();
            c.store(t.into(), tile.load(THREADS - 1 - t)); // FAULT: group not waited for
        }
    }
}

kernel! {
    /// C is A turned round, through copies that arrive on a barrier, twice over
    /// the same stage. `mistake`: 1 does not wait for the stage to be full, 2
    /// not for it to be empty, 3 arrives once too often, 4 asks whether the stage is
    /// full and does not heed the answer. [`ASKS`] is none: it waits where it must.
    ///
    /// # Safety
    ///
    /// For the simulator.
    pub unsafe fn by_barriers(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, mistake: u32,
    )
    needs("sm_80")
    launch_bounds(THREADS)
    dynamic_shared { tile: [f32; THREADS as usize], full: [Barrier; 1], empty: [Barrier; 1] }
    {
        let t = thread::thread_idx_x();
        // SAFETY: for the simulator.
        unsafe {
            let _ = b.load(t.into());
            let (full, empty) = (full.at(0), empty.at(0));
            if t == 0 {
                full.init(THREADS);
                empty.init(THREADS / warp::SIZE);
                barrier::publish();
            }
            thread::sync_threads();
            for round in 0..2 {
                if round > 0 && mistake != 2 {
                    empty.wait(0);
                }
                async_copy::copy(tile, t, a.offset(t.into()), true); // FAULT: not empty
                full.arrive_after_copies();
                match mistake {
                    1 => {}
                    4 => {
                        let _ = full.has_ended(round);
                    }
                    ASKS if full.has_ended(round) => {}
                    _ => full.wait(round),
                }
                let value = tile.load(THREADS - 1 - t); // FAULT: not full
                if round > 0 {
                    c.store(t.into(), value);
                }
                warp::sync();
                if warp::lane() == 0 {
                    empty.arrive();
                    if mistake == 3 && round == 0 && t == 0 {
                        empty.arrive();
                        empty.arrive();
                    }
                }
            }
        }
    }
}

fn input() -> (Vec<f32>, Vec<f32>) {
    let elements = u64::from(THREADS);
    (index_coded(elements, 1), index_coded(elements, 2))
}

fn groups(wait: u32) -> Result<Report, SimulationError> {
    let (a, b) = input();
    let one = by_groups::launch(Dim3::x(1), Dim3::x(THREADS), A, B, C, wait);
    launch(one, &a, &b, THREADS as usize, 0)
}

fn barriers(mistake: u32) -> Result<Report, SimulationError> {
    let (a, b) = input();
    let one = by_barriers::launch(Dim3::x(1), Dim3::x(THREADS), A, B, C, mistake);
    launch(one, &a, &b, THREADS as usize, 0)
}

fn assert_turned_round(report: &Report) {
    let mut expected = input().0;
    expected.reverse();
    assert_eq!(report.c, expected);
}

#[test]
fn a_group_is_waited_for() {
    assert_turned_round(&clean(groups(1)));
    let report = faulty(groups(0));
    let fault = the_fault(&report, FaultKind::CopyUnderWay);
    assert_at(fault, "group not waited for");
}

#[test]
fn a_stage_is_read_when_it_is_full() {
    assert_turned_round(&clean(barriers(0)));
    assert_turned_round(&clean(barriers(ASKS)));
    for mistake in [1, 4] {
        let report = faulty(barriers(mistake));
        assert_at(first_of_kind(&report, FaultKind::CopyUnderWay), "not full");
    }
}

#[test]
fn a_stage_is_filled_when_it_is_empty() {
    let report = faulty(barriers(2));
    assert_at(first_of_kind(&report, FaultKind::SharedRace), "not empty");
}

#[test]
fn arrivals_are_counted() {
    let report = faulty(barriers(3));
    let misused = |fault: &Fault| {
        matches!(
            fault.kind,
            FaultKind::BarrierMisuse | FaultKind::SharedRace | FaultKind::CopyUnderWay
        )
    };
    assert!(report.faults.iter().any(misused), "{report}");
}
