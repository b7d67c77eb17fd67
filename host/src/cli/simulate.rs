//! `matmul simulate` and `matmul explain`: kernels on the CPU.

use super::Outcome;
use host::measure::random_factors;
use host::{Error, Matrix};
use kernels::gemm::{Shape, Variant};
use kernels::launch::{Backend, Plan};
use simulator::{Architecture, Operands, Options, Report, SimulationError};
use std::collections::BTreeSet;

#[derive(clap::Args)]
pub struct Arguments {
    /// The kernels: names that `matmul list` shows, `all`, or `vecadd` for vectors of N elements
    #[arg(
        long,
        default_value = "tiled_16",
        value_delimiter = ',',
        value_name = "NAME,…"
    )]
    kernel: Vec<String>,
    #[command(flatten)]
    common: Common,
    /// Count each place in the kernel's source by itself too
    #[arg(long)]
    by_line: bool,
    /// What the random elements are made from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
pub struct ExplainArguments {
    /// The kernels to compare: names that `matmul list` shows
    #[arg(required = true, value_name = "NAME")]
    kernels: Vec<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Common {
    /// Rows of A and C
    #[arg(long, default_value_t = 256)]
    m: u64,
    /// Columns of B and C
    #[arg(long, default_value_t = 256)]
    n: u64,
    /// Columns of A, rows of B
    #[arg(long, default_value_t = 256)]
    k: u64,
    /// The architecture to simulate
    #[arg(long, default_value = "sm_90", value_name = "NAME")]
    arch: Architecture,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl Common {
    fn shape(&self) -> Result<Shape, Error> {
        Ok(Shape::new(self.m, self.n, self.k)?)
    }

    /// The options to simulate these plans' launches with.
    fn options<'a>(&self, plans: impl IntoIterator<Item = &'a Plan>) -> Options {
        let kernels: BTreeSet<&str> = plans
            .into_iter()
            .flat_map(|plan| &plan.launches)
            .map(|launch| launch.entry().name)
            .collect();
        // The PTX that a device of this architecture would get; its registers
        // are known where a ptxas is at hand.
        let capability = self.arch.limits().compute_capability;
        let registers = host::ptx::best_for(capability, Backend::Nvptx)
            .and_then(|ptx| {
                // PTX with features of one architecture assembles for it alone.
                let target = if ptx.architecture.ends_with('a') {
                    ptx.architecture
                } else {
                    self.arch.name()
                };
                host::registers::of(&ptx, target, &kernels)
            })
            .unwrap_or_default();
        Options {
            architecture: self.arch,
            registers,
            ..Options::default()
        }
    }

    /// The plans of those of the variants that have one for this shape. The
    /// simulator says what the others lack.
    fn plans(&self, variants: &[&Variant], shape: Shape) -> Vec<Plan> {
        let limits = self.arch.limits();
        variants
            .iter()
            .filter_map(|variant| variant.plan(shape, &limits).ok())
            .collect()
    }
}

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let common = &arguments.common;
    let shape = common.shape()?;
    let mut variants: Vec<&Variant> = Vec::new();
    let mut sums = Vec::new();
    for name in &arguments.kernel {
        match name.as_str() {
            "vecadd" => sums.push(kernels::vecadd::plan(shape.n())),
            "all" => variants.extend(kernels::gemm::all_on(&common.arch.limits())),
            name => variants.push(host::device::find(name)?),
        }
    }
    let products = common.plans(&variants, shape);
    let options = common.options(products.iter().chain(&sums));
    let mut reports = Vec::new();
    for plan in &sums {
        reports.push(vecadd(plan, shape.n(), arguments.seed, &options)?);
    }
    if !variants.is_empty() {
        warn_if_long(shape, variants.len());
        let (a, b) = random_factors(shape, arguments.seed)?;
        for variant in variants {
            let result = simulator::simulate(variant, shape, a.data(), b.data(), &options);
            reports.push(report(result)?);
        }
    }

    if arguments.common.json {
        super::print_json(&reports);
    } else {
        for (i, report) in reports.iter().enumerate() {
            print!(
                "{}{}",
                if i == 0 { "" } else { "\n" },
                report.table(arguments.by_line)
            );
        }
    }
    Ok(if reports.iter().all(|report| report.faults.is_empty()) {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

/// Says that a simulation will take a while, where it will: a product costs
/// about 50 ns of a core (docs/simulator.md).
fn warn_if_long(shape: Shape, variants: usize) {
    let seconds = shape.flops() / 2.0 * variants as f64 * 50e-9 / host::cpu::cores() as f64;
    if seconds > 20.0 {
        eprintln!(
            "this may take {:.0} minutes or so; smaller sizes show the same ratios",
            (seconds / 60.0).ceil()
        );
    }
}

fn vecadd(plan: &Plan, n: u32, seed: u64, options: &Options) -> Result<Report, Error> {
    let length = n as usize;
    let a = Matrix::random(1, length, seed);
    let b = Matrix::random(1, length, seed.wrapping_add(1));
    let operands = Operands {
        a: a.data(),
        b: b.data(),
        c_elements: length,
        shape: None,
    };
    report(simulator::run(plan, operands, options))
}

/// A report with faults is shown like any other; what could not be run at all
/// is an error.
fn report(result: Result<Report, SimulationError>) -> Result<Report, Error> {
    match result {
        Ok(report) => Ok(report),
        Err(SimulationError::Faults(report)) => Ok(*report),
        Err(SimulationError::Plan(error)) => Err(error.into()),
        Err(error) => Err(Error::Simulation(error)),
    }
}

pub fn explain(arguments: &ExplainArguments) -> Result<Outcome, Error> {
    let shape = arguments.common.shape()?;
    let variants = arguments
        .kernels
        .iter()
        .map(|name| host::device::find(name))
        .collect::<Result<Vec<_>, _>>()?;
    warn_if_long(shape, variants.len());
    let options = arguments
        .common
        .options(&arguments.common.plans(&variants, shape));
    let explanation = simulator::explain(&variants, shape, &options).map_err(Error::Simulation)?;
    if arguments.common.json {
        super::print_json(&explanation);
    } else {
        print!("{explanation}");
    }
    Ok(Outcome::Passed)
}
