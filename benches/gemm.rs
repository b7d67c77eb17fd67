//! Benchmarks: the kernels on the GPU beside the CPU.
//!
//! | group | times |
//! |---|---|
//! | `cpu/N` | the triple loop, and the `gemm` crate on all cores |
//! | `kernel/N` | each variant: CUDA events around a batch of launches, nothing in between; as CUDA graphs where a product is short |
//! | `end_to_end/N` | one variant with its copies, from pageable and from pinned memory |
//!
//! Where kernels of several backends are embedded, `kernel/N` has each variant once
//! for each, as `tiled_32/rust-cuda`. N is the size of a square product. Throughput is in FLOPs: criterion's
//! "Gelem/s" reads as GFLOP/s. Each result is verified before it is timed; a
//! wrong one ends the run. What a filter leaves out is not even prepared.
//!
//! The run ends with a table of what it measured.

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use host::graph::Graphs;
use host::measure::{Cpu, Problem, random_factors};
use host::timing::median;
use host::transfer::HostMemory;
use host::verify::{Reference, Verdict};
use host::{Error, Gpu, Matrix, report};
use kernels::gemm::Shape;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const SIZES_WITHOUT_GPU: [u64; 3] = [128, 256, 512];
const SIZES_WITH_GPU: [u64; 5] = [256, 512, 1024, 2048, 4096];
/// The triple loop takes a second here, and eight times that at the next.
const LARGEST_TRIPLE_LOOP: u64 = 1024;
/// The copies of every variant are the same.
const END_TO_END: &str = "tiled_32";
const SEED: u64 = 1;

fn main() -> ExitCode {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let mut figures = Figures::default();
    let result = run(&mut criterion, &mut figures);
    criterion.final_summary();
    match result {
        Ok(()) => {
            print!("{}", figures.table());
            ExitCode::SUCCESS
        }
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

fn run(criterion: &mut Criterion, figures: &mut Figures) -> Result<(), Failure> {
    let backends = host::ptx::backends();
    let gpus: Vec<Gpu> = match backends.map(|b| Gpu::with_backend(0, b)).collect() {
        Ok(gpus) => gpus,
        Err(error @ (Error::NoDriver { .. } | Error::NoDevice { .. })) => {
            println!("skipped: the groups kernel/* and end_to_end/*, since there is {error}");
            Vec::new()
        }
        Err(error) => return Err(error.into()),
    };
    let sizes: &[u64] = if gpus.is_empty() {
        &SIZES_WITHOUT_GPU
    } else {
        &SIZES_WITH_GPU
    };
    for &size in sizes {
        let shape = Shape::new(size, size, size).map_err(Error::from)?;
        cpu(criterion, figures, shape)?;
        kernels(criterion, figures, &gpus, shape)?;
        if let Some(gpu) = gpus.first() {
            end_to_end(criterion, figures, gpu, shape)?;
        }
    }
    Ok(())
}

type Group<'a> = criterion::BenchmarkGroup<'a, criterion::measurement::WallTime>;

/// What a benchmark is: its kind, its name in the group, its shape.
type Label<'a> = (&'static str, &'a str, Shape);

/// Adds a benchmark to a group.
///
/// `time` gives the time of a number of products. Its first call also prepares
/// and verifies, untimed: where a filter leaves a benchmark out, nothing is.
fn bench(
    group: &mut Group,
    figures: &mut Figures,
    (kind, name, shape): Label,
    mut time: impl FnMut(u64) -> Result<Duration, Failure>,
) -> Result<(), Failure> {
    let mut failure = None;
    let mut samples = Vec::new();
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Elements(shape.flops() as u64));
    group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
        bencher.iter_custom(|products| match time(products) {
            Ok(time) => {
                samples.push(time.as_secs_f64() / products as f64);
                time
            }
            Err(error) => {
                failure.get_or_insert(error);
                // Criterion wants a time; the run fails below.
                Duration::from_secs(1)
            }
        });
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    figures.add((kind, name, shape), &samples);
    Ok(())
}

fn require(name: &str, shape: Shape, verdict: &Verdict) -> Result<(), Failure> {
    if verdict.passed() {
        Ok(())
    } else {
        Err(Failure::Wrong(format!("{name} at {shape}: {verdict}")))
    }
}

fn cpu(criterion: &mut Criterion, figures: &mut Figures, shape: Shape) -> Result<(), Failure> {
    let size = u64::from(shape.n());
    let mut group = criterion.benchmark_group(format!("cpu/{size}"));
    let mut factors: Option<(Matrix, Matrix)> = None;
    for cpu in Cpu::ALL {
        if cpu == Cpu::TripleLoop && size > LARGEST_TRIPLE_LOOP {
            continue;
        }
        let mut verified = false;
        let label = ("cpu", cpu.name(), shape);
        bench(&mut group, figures, label, |products| {
            let (a, b) = match &mut factors {
                Some(factors) => factors,
                none => none.insert(random_factors(shape, SEED)?),
            };
            // The float64 reference of a larger product would take longer than
            // everything else here.
            if !verified && size <= LARGEST_TRIPLE_LOOP {
                let reference = Reference::on_cpu(a, b)?;
                let c = cpu.multiply(a, b)?;
                require(cpu.name(), shape, &reference.check(&c)?)?;
                verified = true;
            }
            let start = Instant::now();
            for _ in 0..products {
                std::hint::black_box(cpu.multiply(a, b)?);
            }
            Ok(start.elapsed())
        })?;
    }
    group.finish();
    Ok(())
}

/// `gpus` are one device with the kernels of each backend.
fn kernels(
    criterion: &mut Criterion,
    figures: &mut Figures,
    gpus: &[Gpu],
    shape: Shape,
) -> Result<(), Failure> {
    if gpus.is_empty() {
        return Ok(());
    }
    let mut group = criterion.benchmark_group(format!("kernel/{}", shape.n()));
    let mut problems: Vec<_> = gpus.iter().map(|gpu| (gpu, None)).collect();
    for variant in kernels::gemm::all() {
        for (gpu, problem) in &mut problems {
            let backend = gpu.ptx().backend;
            if !variant.is_built_by(backend) || !variant.runs_on(&gpu.info().limits) {
                continue;
            }
            let name = match gpus.len() {
                1 => variant.name.to_owned(),
                _ => format!("{}/{backend}", variant.name),
            };
            let mut prepared = None;
            let label = ("kernel", name.as_str(), shape);
            bench(&mut group, figures, label, |products| {
                let problem = match &mut *problem {
                    Some(problem) => problem,
                    none => none.insert(Problem::random(gpu, shape, SEED)?),
                };
                let (prepared, batching) = match &mut prepared {
                    Some(prepared) => prepared,
                    none => {
                        let new = gpu.prepare_variant(variant, shape)?;
                        require(&name, shape, &problem.verify_prepared(&new)?)?;
                        let batching = problem.repeated(&new)?.choose(Graphs::Auto)?;
                        none.insert((new, batching))
                    }
                };
                let mut repeated = problem.repeated(prepared)?.batched_by(*batching);
                Ok(repeated.batch(products)?)
            })?;
        }
    }
    group.finish();
    Ok(())
}

fn end_to_end(
    criterion: &mut Criterion,
    figures: &mut Figures,
    gpu: &Gpu,
    shape: Shape,
) -> Result<(), Failure> {
    let mut group = criterion.benchmark_group(format!("end_to_end/{}", shape.n()));
    for memory in HostMemory::ALL {
        let name = format!("{END_TO_END}_{memory}");
        let mut prepared = None;
        bench(
            &mut group,
            figures,
            ("end_to_end", &name, shape),
            |products| {
                let (factors, problem, prepared) = match &mut prepared {
                    Some(prepared) => prepared,
                    none => {
                        let factors = random_factors(shape, SEED)?;
                        let mut problem = Problem::new(gpu, &factors.0, &factors.1)?;
                        let new = gpu.prepare(END_TO_END, shape)?;
                        require(&name, shape, &problem.verify_prepared(&new)?)?;
                        none.insert((factors, problem, new))
                    }
                };
                let mut product = problem.end_to_end(prepared, memory, (&factors.0, &factors.1))?;
                let mut total = Duration::ZERO;
                for _ in 0..products {
                    total += product.run()?;
                }
                Ok(total)
            },
        )?;
    }
    group.finish();
    Ok(())
}

/// What was measured, for the closing table.
#[derive(Default)]
struct Figures {
    rows: Vec<(&'static str, String, Shape, f64)>,
}

impl Figures {
    fn add(&mut self, (kind, name, shape): Label, samples: &[f64]) {
        // A filter, or `--list`, leaves a benchmark without samples.
        if !samples.is_empty() {
            self.rows
                .push((kind, name.to_owned(), shape, median(samples)));
        }
    }

    /// Seconds of a CPU product of that shape.
    fn cpu(&self, cpu: Cpu, shape: Shape) -> Option<f64> {
        let mut rows = self.rows.iter();
        rows.find(|(kind, name, of, _)| *kind == "cpu" && name == cpu.name() && *of == shape)
            .map(|row| row.3)
    }

    fn table(&self) -> String {
        let ratio = |other: Option<f64>, seconds: f64| {
            other.map_or(String::new(), |other| format!("{:.2}", other / seconds))
        };
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|(kind, name, shape, seconds)| {
                [
                    format!("{kind}/{}", shape.n()),
                    name.clone(),
                    report::time(*seconds),
                    report::gflops(shape.flops() / seconds),
                    ratio(self.cpu(Cpu::TripleLoop, *shape), *seconds),
                    ratio(self.cpu(Cpu::Gemm, *shape), *seconds),
                ]
            })
            .collect();
        if rows.is_empty() {
            return String::new();
        }
        let heading = [
            "group",
            "what",
            "time",
            "GFLOP/s",
            "× triple loop",
            "× gemm crate",
        ];
        report::table(&heading, &rows)
    }
}
