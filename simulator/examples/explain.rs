//! Sets the counters of variants side by side:
//! `cargo run --release -p simulator --example explain -- naive_16 tiled_16 --m 256 --n 256 --k 256`

mod arguments;

use arguments::Arguments;
use simulator::{Options, explain};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read()?;
    let variants = arguments.variants()?;
    let options = Options {
        architecture: arguments.architecture,
        ..Options::default()
    };
    let explanation = explain(&variants, arguments.shape()?, &options)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&explanation)?);
    } else {
        print!("{explanation}");
    }
    Ok(())
}
