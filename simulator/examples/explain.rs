//! Sets the counters of variants side by side:
//! `cargo run --release -p simulator --example explain -- naive_16 tiled_16 --m 256 --n 256 --k 256`

mod commands;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = commands::Arguments::read(std::env::args().skip(1))?;
    println!("{}", arguments.explain()?);
    Ok(())
}
