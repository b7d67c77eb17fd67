//! `matmul run`: what NVIDIA's matrixMul sample does, for any kernel.

use super::{CodeArguments, GraphsArgument, Outcome, ShapeArguments, variants_of};
use host::graph::Batching;
use host::measure::{Cpu, Effort, Measurement, Problem, check_device_memory, random_factors};
use host::timing::median;
use host::transfer::HostMemory;
use host::verify::{self, Reference};
use host::{Error, Gpu, Matrix, report};
use kernels::gemm::{Shape, Variant};
use serde::Serialize;

#[derive(clap::Args)]
#[command(after_help = SAMPLE_HELP)]
pub struct Arguments {
    /// The kernel: a name that `matmul list` shows, or `all`
    #[arg(long, default_value = "tiled_32", value_name = "NAME")]
    kernel: String,
    #[command(flatten)]
    shape: ShapeArguments,
    /// Number of the device to run on
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    device: u32,
    #[command(flatten)]
    code: CodeArguments,
    #[command(flatten)]
    graphs: GraphsArgument,
    /// What the random elements are made from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Timed launches [default: 300, fewer where they would take over a second]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

const SAMPLE_HELP: &str = "\
Sizes may also be given as NVIDIA's matrixMul sample takes them, as width and height:
-wA=320 -hA=320 -wB=640 -hB=320, and the device as -device=0.";

/// What is printed of one kernel.
#[derive(Serialize)]
struct Figures {
    kernel: String,
    /// The compiler that made the kernel; none on the CPU.
    backend: Option<&'static str>,
    /// The target that the kernel was compiled for; none on the CPU.
    code: Option<&'static str>,
    m: u32,
    n: u32,
    k: u32,
    /// Seconds for one product.
    seconds: f64,
    gflops: f64,
    launches: u64,
    /// How they were launched; none on the CPU.
    batched_by: Option<Batching>,
    threads_per_block: u64,
    /// Seconds with the copies from and to pinned memory.
    seconds_with_copies: Option<f64>,
    passed: bool,
    /// The largest error as a share of what is allowed; none where an element
    /// is wrong.
    worst_error: Option<f64>,
    verdict: String,
    /// The error that NVIDIA's sample computes, on its own constant factors;
    /// none where an element is not a number.
    sample_error: Option<f64>,
}

#[derive(Serialize)]
struct Json<'a> {
    device: Option<&'a str>,
    compute_capability: Option<String>,
    ptx: Option<&'a str>,
    results: &'a [Figures],
}

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let shape = arguments.shape.shape()?;
    let effort = Effort {
        graphs: arguments.graphs.graphs,
        ..Effort::one_batch(arguments.iterations)
    };
    let cpu = Cpu::ALL
        .into_iter()
        .find(|cpu| cpu.name() == arguments.kernel);
    if let Some(cpu) = cpu {
        let (a, b) = random_factors(shape, arguments.seed)?;
        let reference = Reference::on_cpu(&a, &b)?;
        let figures = figures(cpu.measure(&a, &b, &reference, effort)?);
        return Ok(print(arguments, None, shape, &[figures]));
    }

    let name = Some(arguments.kernel.as_str()).filter(|name| *name != "all");
    let named = name.map(host::device::find).transpose()?;
    let gpus = arguments.code.gpus(arguments.device, named)?;
    let mut figures = Vec::new();
    for gpu in &gpus {
        if !arguments.json {
            println!("{}", describe(gpu));
        }
        // Before the host spends minutes on matrices that the device can't hold.
        check_device_memory(gpu, shape)?;
        let (a, b) = random_factors(shape, arguments.seed)?;
        let mut problem = Problem::new(gpu, &a, &b)?;
        for variant in variants_of(gpu, named) {
            figures.push(one(gpu, &mut problem, variant, (&a, &b), effort)?);
        }
    }
    Ok(print(arguments, gpus.first(), shape, &figures))
}

/// The sample's own steps: copy in, warm up, time a batch, copy out, check.
fn one<'gpu>(
    gpu: &'gpu Gpu,
    problem: &mut Problem<'gpu>,
    variant: &Variant,
    factors: (&Matrix, &Matrix),
    effort: Effort,
) -> Result<Figures, Error> {
    let prepared = gpu.prepare_variant(variant, problem.shape())?;
    let mut with_copies = problem.end_to_end(&prepared, HostMemory::Pinned, factors)?;
    // The first copy to fresh memory is slower.
    with_copies.run()?;
    let samples = (0..5)
        .map(|_| Ok(with_copies.run()?.as_secs_f64()))
        .collect::<Result<Vec<_>, Error>>()?;
    let measurement = problem.measure_prepared(variant.name, &prepared, effort)?;
    let sample_error = problem.sample_error(&prepared)?;
    let mut figures = figures(measurement);
    figures.backend = Some(gpu.ptx().backend.name());
    figures.code = Some(gpu.ptx().architecture);
    figures.seconds_with_copies = Some(median(&samples));
    figures.sample_error = sample_error.is_finite().then_some(sample_error);
    figures.passed &= sample_error <= verify::SAMPLE_LIMIT;
    Ok(figures)
}

fn figures(measurement: Measurement) -> Figures {
    let shape = measurement.shape;
    Figures {
        backend: None,
        code: None,
        m: shape.m(),
        n: shape.n(),
        k: shape.k(),
        seconds: measurement.seconds,
        gflops: measurement.flops_per_second() / 1e9,
        launches: measurement.launches,
        batched_by: measurement.batching,
        threads_per_block: measurement.block.map_or(0, |block| block.count()),
        seconds_with_copies: None,
        passed: measurement.verdict.passed(),
        worst_error: Some(measurement.verdict.worst).filter(|worst| worst.is_finite()),
        verdict: measurement.verdict.to_string(),
        sample_error: None,
        kernel: measurement.name,
    }
}

fn print(arguments: &Arguments, gpu: Option<&Gpu>, shape: Shape, figures: &[Figures]) -> Outcome {
    if arguments.json {
        super::print_json(&Json {
            device: gpu.map(|gpu| gpu.info().name.as_str()),
            compute_capability: gpu.map(|gpu| gpu.info().limits.compute_capability.to_string()),
            ptx: gpu.map(|gpu| gpu.ptx().architecture),
            results: figures,
        });
    } else {
        println!(
            "A {}×{}, B {}×{}, C {}×{} (rows×columns), random elements from seed {}",
            shape.m(),
            shape.k(),
            shape.k(),
            shape.n(),
            shape.m(),
            shape.n(),
            arguments.seed
        );
        match figures {
            [one] => print_one(one, shape),
            many => print_many(many),
        }
    }
    if figures.iter().all(|figures| figures.passed) {
        Outcome::Passed
    } else {
        Outcome::Failed
    }
}

fn result(passed: bool) -> &'static str {
    if passed { "PASS" } else { "FAIL" }
}

fn print_one(figures: &Figures, shape: Shape) {
    let on_gpu = figures.threads_per_block > 0;
    print!(
        "{}: Performance= {:.2} GFlop/s, Time= {:.3} msec, Size= {:.0} Ops",
        figures.kernel,
        figures.gflops,
        figures.seconds * 1e3,
        shape.flops(),
    );
    if on_gpu {
        print!(
            ", WorkgroupSize= {} threads/block",
            figures.threads_per_block
        );
    }
    println!();
    let time = report::time(figures.seconds);
    match (figures.launches, on_gpu) {
        (1, _) => println!("{time}, once"),
        (n, true) if figures.batched_by == Some(Batching::Graph) => {
            println!("{time}, mean of {n} launches in a CUDA graph between two events");
        }
        (n, true) => println!("{time}, mean of {n} launches between two events"),
        (n, false) => println!("{time}, mean of {n} runs"),
    }
    if let Some(seconds) = figures.seconds_with_copies {
        println!(
            "{} with the copies from and to pinned memory",
            report::time(seconds)
        );
    }
    println!("Against float64: {}", figures.verdict);
    if on_gpu {
        let error = figures
            .sample_error
            .map_or("not a number".into(), |error| format!("{error:.2e}"));
        println!(
            "As NVIDIA's sample checks (A = 1, B = 0.01): relative error {error}, limit {:e}",
            verify::SAMPLE_LIMIT
        );
    }
    println!("Result = {}", result(figures.passed));
}

fn print_many(figures: &[Figures]) {
    let backends = figures.iter().any(|f| f.backend != figures[0].backend);
    let codes = figures.iter().any(|f| f.code != figures[0].code);
    let name = |figures: &Figures| {
        let backend = figures.backend.filter(|_| backends);
        let code = figures.code.filter(|_| codes);
        let parts = [Some(figures.kernel.as_str()), backend, code];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    };
    let rows: Vec<_> = figures
        .iter()
        .map(|figures| {
            [
                name(figures),
                figures.launches.to_string(),
                report::time(figures.seconds),
                report::gflops(figures.gflops * 1e9),
                figures
                    .seconds_with_copies
                    .map_or(String::new(), report::time),
                format!("{}, sample's check {}", figures.verdict, {
                    let passed = figures
                        .sample_error
                        .is_some_and(|e| e <= verify::SAMPLE_LIMIT);
                    result(passed)
                }),
            ]
        })
        .collect();
    let heading = [
        "kernel",
        "launches",
        "time",
        "GFLOP/s",
        "with copies",
        "result",
    ];
    print!("{}", report::table(&heading, &rows));
    println!("Result = {}", result(figures.iter().all(|f| f.passed)));
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
        gpu.choice(),
    )
}
