//! Measures what a simulation costs: `cargo run --release -p simulator --example cost`.
//!
//! Prints, for each variant and size, the seconds (the least of five runs, since
//! other programs can only add to them), the seconds of all cores together as
//! Linux counts them, and from these the nanoseconds for each call of the device
//! API that is checked or counted.

use kernels::gemm::{self, Shape};
use simulator::{Counters, Options, simulate};
use std::error::Error;
use std::time::Instant;

/// Seconds of processor time that this process has used, from /proc/self/stat,
/// whose fields 14 and 15 are ticks of a hundredth of a second.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<u64>)
        .sum::<Result<u64, _>>()?;
    Ok(ticks as f64 / 100.0)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("| variant | M×N×K | s | core s | million calls | core ns a call |");
    println!("|---|---|---|---|---|---|");
    let squares = [64, 128, 256, 512].map(|n| [n, n, n]);
    let cases = [
        ("naive_16", &squares[..]),
        ("tiled_16", &squares[..]),
        ("tiled_32", &squares[..]),
        ("naive_16", &[[16, 16, 65_536], [1_048_561, 1, 1]]),
    ];
    const RUNS: u32 = 5;
    for (name, shapes) in cases {
        let variant = gemm::find(name).ok_or("no such variant")?;
        for &[m, n, k] in shapes {
            let shape = Shape::new(m, n, k)?;
            let operand = |len: u64| vec![1.0; len as usize];
            let (a, b) = (operand(shape.a_elements()), operand(shape.b_elements()));
            let mut seconds = f64::INFINITY;
            let mut counters = Counters::default();
            let before = processor_seconds()?;
            for _ in 0..RUNS {
                let start = Instant::now();
                let report = simulate(variant, shape, &a, &b, &Options::default())?;
                seconds = seconds.min(start.elapsed().as_secs_f64());
                counters = report.counters();
            }
            let core_seconds = (processor_seconds()? - before) / f64::from(RUNS);
            let flops = counters.flops;
            let calls = counters.global_load.accesses
                + counters.global_store.accesses
                + counters.shared_load.accesses
                + counters.shared_store.accesses
                + flops.fma_f32
                + flops.add_f32;
            println!(
                "| {name} | {shape} | {seconds:.2} | {core_seconds:.2} | {:.2} | {:.0} |",
                calls as f64 / 1e6,
                core_seconds * 1e9 / calls as f64,
            );
        }
    }
    Ok(())
}
