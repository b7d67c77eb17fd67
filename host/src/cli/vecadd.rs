//! `matmul vecadd`: the first kernel, run and checked.

use super::Outcome;
use host::{Error, Gpu, Matrix};

#[derive(clap::Args)]
pub struct Arguments {
    /// Elements of each vector
    #[arg(long, default_value_t = 50_000, value_name = "COUNT")]
    n: u32,
    /// Number of the device to run on
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    device: u32,
    /// What the random elements are made from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let gpu = Gpu::new(arguments.device)?;
    println!("{}", super::run::describe(&gpu));
    let n = arguments.n as usize;
    let a = Matrix::random(1, n, arguments.seed);
    let b = Matrix::random(1, n, arguments.seed.wrapping_add(1));

    let plan = kernels::vecadd::plan(arguments.n);
    match plan.launches.first() {
        Some(launch) => println!(
            "{n} elements: {} blocks of {} threads",
            launch.grid().count(),
            launch.block().count()
        ),
        None => println!("0 elements: nothing to launch"),
    }
    let c = gpu.add(a.data(), b.data())?;

    // One addition, rounded once, is the same on both sides.
    let terms = a.data().iter().zip(b.data());
    let wrong = terms
        .zip(&c)
        .enumerate()
        .find(|(_, ((x, y), sum))| **x + **y != **sum);
    if let Some((i, ((x, y), sum))) = wrong {
        println!("Result = FAIL, c[{i}] = {sum} where {x} + {y} is right");
        return Ok(Outcome::Failed);
    }
    println!("Result = PASS");
    Ok(Outcome::Passed)
}
