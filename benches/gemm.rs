//! Benchmarks: the kernels on the GPU beside the CPU.
//!
//! Groups are `cpu/N` and `kernel/N`, for square products of size N. Throughput
//! is in FLOPs: criterion's "Gelem/s" reads as GFLOP/s.
//!
//! Kernels are timed by CUDA events around batches of launches, with nothing in
//! between. Each is verified before it is timed; a wrong one ends the run.

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use host::measure::{Cpu, Problem, random_factors};
use host::verify::Reference;
use host::{Error, Gpu};
use kernels::gemm::Shape;
use std::process::ExitCode;
use std::time::Duration;

/// Sizes that the triple loop does in well under a second.
const CPU_SIZES: [u64; 3] = [128, 256, 512];
const GPU_SIZES: [u64; 5] = [256, 512, 1024, 2048, 4096];
const SEED: u64 = 1;

fn main() -> ExitCode {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let result = cpu(&mut criterion).and_then(|()| kernels(&mut criterion));
    criterion.final_summary();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Why a benchmark run ends early.
enum Failure {
    Host(Error),
    Wrong(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(error) => error.fmt(f),
            Self::Wrong(text) => f.write_str(text),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Host(error)
    }
}

fn square(size: u64) -> Result<Shape, Error> {
    Ok(Shape::new(size, size, size)?)
}

/// The error for a result that is not right.
fn require(name: &str, shape: Shape, verdict: &host::verify::Verdict) -> Result<(), Failure> {
    if verdict.passed() {
        Ok(())
    } else {
        Err(Failure::Wrong(format!("{name} at {shape}: {verdict}")))
    }
}

fn cpu(criterion: &mut Criterion) -> Result<(), Failure> {
    for size in CPU_SIZES {
        let shape = square(size)?;
        let (a, b) = random_factors(shape, SEED)?;
        let reference = Reference::on_cpu(&a, &b)?;
        let mut group = criterion.benchmark_group(format!("cpu/{size}"));
        group.throughput(Throughput::Elements(shape.flops() as u64));
        for cpu in Cpu::ALL {
            require(cpu.name(), shape, &reference.check(&cpu.multiply(&a, &b)?)?)?;
            group.bench_function(BenchmarkId::from_parameter(cpu.name()), |bencher| {
                bencher.iter(|| cpu.multiply(&a, &b));
            });
        }
        group.finish();
    }
    Ok(())
}

fn kernels(criterion: &mut Criterion) -> Result<(), Failure> {
    let gpu = match Gpu::new(0) {
        Ok(gpu) => gpu,
        Err(error) if error.is_no_gpu() => {
            println!("skipped: the groups kernel/*, since there is {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    for size in GPU_SIZES {
        let shape = square(size)?;
        let mut problem = Problem::random(&gpu, shape, SEED)?;
        let mut group = criterion.benchmark_group(format!("kernel/{size}"));
        group.throughput(Throughput::Elements(shape.flops() as u64));
        // The same number of launches in every sample: a batch's fixed cost
        // then falls on each alike.
        group.sampling_mode(SamplingMode::Flat);
        for variant in kernels::gemm::all() {
            let prepared = gpu.prepare_variant(variant, shape)?;
            require(variant.name, shape, &problem.verify_prepared(&prepared)?)?;
            let mut repeated = problem.repeated(&prepared)?;
            let mut failure = None;
            group.bench_function(BenchmarkId::from_parameter(variant.name), |bencher| {
                bencher.iter_custom(|launches| match repeated.batch(launches) {
                    Ok(time) => time,
                    Err(error) => {
                        failure.get_or_insert(error);
                        // Criterion wants a time; the run fails below.
                        Duration::from_secs(1)
                    }
                });
            });
            if let Some(error) = failure {
                return Err(error.into());
            }
        }
        group.finish();
    }
    Ok(())
}
