//! Prints the checks and counters of variants, or of `vecadd` on vectors of N:
//! `cargo run --release -p simulator --example simulate -- tiled_16 --m 250 --n 250 --k 250 --by-line`

mod arguments;

use arguments::Arguments;
use kernels::vecadd;
use simulator::{Operands, Options, Report, SimulationError, run, simulate};
use std::error::Error;

fn operand(len: u64) -> Vec<f32> {
    (0..len).map(|i| (i % 97) as f32 - 48.0).collect()
}

fn print(
    result: Result<Report, SimulationError>,
    arguments: &Arguments,
) -> Result<(), Box<dyn Error>> {
    let (report, failed) = match result {
        Ok(report) => (report, false),
        Err(SimulationError::Faults(report)) => (*report, true),
        Err(error) => return Err(error.into()),
    };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", report.table(arguments.by_line));
    }
    if failed {
        return Err("the checks failed".into());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::read()?;
    let options = Options {
        architecture: arguments.architecture,
        ..Options::default()
    };
    if arguments.names == ["vecadd"] {
        let n = u32::try_from(arguments.sizes[1])?;
        let (a, b) = (operand(n.into()), operand(n.into()));
        let operands = Operands {
            a: &a,
            b: &b,
            c_elements: n as usize,
            shape: None,
        };
        return print(run(&vecadd::plan(n), operands, &options), &arguments);
    }
    let shape = arguments.shape()?;
    let (a, b) = (operand(shape.a_elements()), operand(shape.b_elements()));
    for variant in arguments.variants()? {
        arguments.names = vec![variant.name.to_owned()];
        print(simulate(variant, shape, &a, &b, &options), &arguments)?;
    }
    Ok(())
}
