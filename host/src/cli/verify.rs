//! `matmul verify`.

use super::{CodeArguments, Outcome, variants_of};
use host::cases::{self, Case};
use host::measure::Problem;
use host::{Error, Gpu};
use kernels::gemm::Variant;

#[derive(clap::Args)]
pub struct Arguments {
    /// Number of the device to run on
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    device: u32,
    #[command(flatten)]
    code: CodeArguments,
    /// One kernel instead of all
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// How many random shapes to add
    #[arg(long, default_value_t = 20, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    random: u32,
    /// What the random shapes and elements are made from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let name = arguments.kernel.as_deref();
    let named = name.map(host::device::find).transpose()?;
    let mut outcome = Outcome::Passed;
    for gpu in &arguments.code.gpus(arguments.device, named)? {
        if verify(gpu, &variants_of(gpu, named), arguments)? == Outcome::Failed {
            outcome = Outcome::Failed;
        }
    }
    Ok(outcome)
}

fn verify(gpu: &Gpu, variants: &[&Variant], arguments: &Arguments) -> Result<Outcome, Error> {
    println!("{}", super::run::describe(gpu));
    let random = cases::random(arguments.random as usize, 600, arguments.seed);
    let mut failures = 0;
    let mut checked = 0;
    for case in cases::SMALL.iter().chain(cases::LARGE).chain(&random) {
        let line = check(gpu, variants, case, arguments.seed)?;
        checked += variants.len();
        failures += line.failures;
        println!("{}", line.text);
    }
    println!(
        "{checked} products of {} kernels, {failures} wrong: {}",
        variants.len(),
        if failures == 0 { "PASS" } else { "FAIL" }
    );
    Ok(if failures == 0 {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

struct Line {
    text: String,
    failures: usize,
}

fn check(gpu: &Gpu, variants: &[&Variant], case: &Case, seed: u64) -> Result<Line, Error> {
    let (a, b) = case.factors(seed);
    let mut problem = Problem::new(gpu, &a, &b)?;
    let mut text = format!("{:<24} {:<38}", case.shape().to_string(), case.catches);
    let mut failures = 0;
    for variant in variants {
        let verdict = problem.verify(variant)?;
        if !verdict.passed() {
            failures += 1;
            text += &format!("\n  {}: {verdict}", variant.name);
        }
    }
    if failures == 0 {
        text += " PASS";
    }
    Ok(Line { text, failures })
}
