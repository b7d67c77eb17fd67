//! Prints the checks and counters of variants, or of `vecadd` on vectors of N:
//! `cargo run --release -p simulator --example simulate -- tiled_16 --m 250 --n 250 --k 250 --by-line`

mod commands;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = commands::Arguments::read(std::env::args().skip(1))?;
    println!("{}", arguments.simulate()?);
    Ok(())
}
