//! What several tests need.

#![allow(dead_code, reason = "each test binary uses a part")]

use kernels::launch::{Launch, Plan};
use simulator::{Fault, FaultKind, Operands, Options, Report, SimulationError, run};

/// The line of `source` that ends in `// FAULT: name`.
pub fn line_of(source: &str, name: &str) -> u32 {
    let marker = format!("// FAULT: {name}");
    let found: Vec<usize> = source
        .lines()
        .enumerate()
        .filter(|(_, line)| line.trim_end().ends_with(&marker))
        .map(|(i, _)| i + 1)
        .collect();
    assert_eq!(found.len(), 1, "one line is marked {marker:?}");
    found[0] as u32
}

/// Runs one launch.
pub fn launch(
    launch: Launch,
    a: &[f32],
    b: &[f32],
    c_elements: usize,
    workspace_bytes: u64,
) -> Result<Report, SimulationError> {
    let mut plan = Plan::single(launch);
    plan.workspace_bytes = workspace_bytes;
    let operands = Operands {
        a,
        b,
        c_elements,
        shape: None,
    };
    run(&plan, operands, &Options::default())
}

/// That a text, made of a simulation of `what`, is the same on any number of cores.
pub fn same_on_any_number_of_cores(what: &str, text: impl Fn() -> String + Sync) {
    let texts: Vec<String> = [1, 2, 2, 5]
        .into_iter()
        .map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .expect("a pool");
            pool.install(&text)
        })
        .collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{what}");
}

/// The report of a simulation that found faults.
pub fn faulty(result: Result<Report, SimulationError>) -> Report {
    match result {
        Err(SimulationError::Faults(report)) => {
            assert!(!report.faults.is_empty());
            *report
        }
        Err(error) => panic!("another error: {error}"),
        Ok(report) => panic!("no fault was found:\n{report}"),
    }
}

/// The report of a simulation that found none.
pub fn clean(result: Result<Report, SimulationError>) -> Report {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// The first fault of that kind.
#[track_caller]
pub fn first_of_kind(report: &Report, kind: FaultKind) -> &Fault {
    let mut faults = report.faults.iter();
    faults
        .find(|fault| fault.kind == kind)
        .unwrap_or_else(|| panic!("no fault of kind {kind:?}:\n{report}"))
}

/// The first fault of that kind at that line.
#[track_caller]
pub fn first_at(report: &Report, kind: FaultKind, line: u32) -> &Fault {
    let mut faults = report.faults.iter();
    faults
        .find(|fault| fault.kind == kind && fault.place.is_some_and(|place| place.line == line))
        .unwrap_or_else(|| panic!("no {kind} at line {line}:\n{report}"))
}

/// The only fault of that kind.
#[track_caller]
pub fn the_fault(report: &Report, kind: FaultKind) -> &Fault {
    let of_kind = report.faults.iter().filter(|fault| fault.kind == kind);
    assert!(of_kind.count() < 2, "several of kind {kind:?}:\n{report}");
    first_of_kind(report, kind)
}

/// The array that a fault is about, the element, and how many there are.
pub fn element(fault: &Fault) -> (&str, i64, u64) {
    let element = fault.element.as_ref().expect("an element");
    (&element.array, element.index, element.len)
}

/// Small integers that differ from row to row and column to column, so that any
/// sum of a few thousand products is exact and no two indices look alike.
pub fn index_coded(elements: u64, salt: u64) -> Vec<f32> {
    (0..elements)
        .map(|i| ((i * 31 + (i / 7) * 17 + salt) % 23) as f32 - 11.0)
        .collect()
}

/// Uniform in [−1, 1), from a seed.
pub fn random(elements: u64, seed: u64) -> Vec<f32> {
    // SplitMix64.
    let mut state = seed;
    (0..elements)
        .map(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            (z >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}
