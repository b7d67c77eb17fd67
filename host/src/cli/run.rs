//! `matmul run`.

use super::Outcome;
use host::measure::{Cpu, Effort, Measurement, Problem, random_factors};
use host::verify::Reference;
use host::{Error, Gpu, report};
use kernels::gemm::{Shape, Variant};

#[derive(clap::Args)]
pub struct Arguments {
    /// The kernel: a name that `matmul list` shows, or `all`
    #[arg(long, default_value = "tiled_32", value_name = "NAME")]
    kernel: String,
    /// Rows of A and C
    #[arg(long, default_value_t = 320)]
    m: u64,
    /// Columns of B and C
    #[arg(long, default_value_t = 640)]
    n: u64,
    /// Columns of A, rows of B
    #[arg(long, default_value_t = 320)]
    k: u64,
    /// Number of the device to run on
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    device: u32,
    /// What the random elements are made from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Timed launches [default: 300, fewer where they would take over a second]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
}

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let shape = Shape::new(arguments.m, arguments.n, arguments.k)?;
    let effort = Effort::one_batch(arguments.iterations);
    let cpu = Cpu::ALL
        .into_iter()
        .find(|cpu| cpu.name() == arguments.kernel);

    let measurements = if let Some(cpu) = cpu {
        let (a, b) = random_factors(shape, arguments.seed)?;
        let reference = Reference::on_cpu(&a, &b)?;
        vec![cpu.measure(&a, &b, &reference, effort)?]
    } else {
        let variants: Vec<&Variant> = if arguments.kernel == "all" {
            kernels::gemm::all().collect()
        } else {
            vec![host::device::find(&arguments.kernel)?]
        };
        let gpu = Gpu::new(arguments.device)?;
        println!("{}", describe(&gpu));
        let mut problem = Problem::random(&gpu, shape, arguments.seed)?;
        variants
            .into_iter()
            .map(|variant| problem.measure(variant, effort))
            .collect::<Result<_, _>>()?
    };

    let rows: Vec<_> = measurements.iter().map(row).collect();
    print!(
        "{}",
        report::table(
            &["kernel", "M×N×K", "launches", "time", "GFLOP/s", "result"],
            &rows
        )
    );
    Ok(if measurements.iter().all(|m| m.verdict.passed()) {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

fn row(measurement: &Measurement) -> [String; 6] {
    [
        measurement.name.clone(),
        measurement.shape.to_string(),
        measurement.launches.to_string(),
        report::time(measurement.seconds),
        report::gflops(measurement.flops_per_second()),
        measurement.verdict.to_string(),
    ]
}

/// The device, its state, and what it was given to run.
pub fn describe(gpu: &Gpu) -> String {
    let info = gpu.info();
    let driver = host::device::driver_version().map_or("unknown".into(), |v| v.to_string());
    format!(
        "{} (device {}, compute capability {}, {} multiprocessors at up to {} MHz, ECC {}), \
         driver for CUDA {driver}, kernels for {}",
        info.name,
        info.ordinal,
        info.limits.compute_capability,
        info.limits.multiprocessors,
        info.clock_khz / 1000,
        if info.ecc { "on" } else { "off" },
        gpu.ptx().architecture,
    )
}
