//! Measures what a simulation costs: `cargo run --release -p simulator --example cost`.
//!
//! Prints, for each variant and size, the seconds and the nanoseconds for each
//! call of the device API that is checked or counted.

use kernels::gemm::{self, Shape};
use simulator::{Options, simulate};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    println!("| variant | M×N×K | s | million calls | ns a call |");
    println!("|---|---|---|---|---|");
    let squares = [64, 128, 256, 512].map(|n| [n, n, n]);
    let cases = [
        ("naive_16", &squares[..]),
        ("tiled_16", &squares[..]),
        ("tiled_32", &squares[..]),
        ("naive_16", &[[16, 16, 65_536], [1_048_561, 1, 1]]),
    ];
    for (name, shapes) in cases {
        let variant = gemm::find(name).ok_or("no such variant")?;
        for &[m, n, k] in shapes {
            let shape = Shape::new(m, n, k)?;
            let operand = |len: u64| vec![1.0; len as usize];
            let (a, b) = (operand(shape.a_elements()), operand(shape.b_elements()));
            let start = Instant::now();
            let report = simulate(variant, shape, &a, &b, &Options::default())?;
            let seconds = start.elapsed().as_secs_f64();
            let counters = report.counters();
            let flops = counters.flops;
            let calls = counters.global_load.accesses
                + counters.global_store.accesses
                + counters.shared_load.accesses
                + counters.shared_store.accesses
                + flops.fma_f32
                + flops.add_f32;
            println!(
                "| {name} | {shape} | {seconds:.2} | {:.2} | {:.0} |",
                calls as f64 / 1e6,
                seconds * 1e9 / calls as f64,
            );
        }
    }
    Ok(())
}
