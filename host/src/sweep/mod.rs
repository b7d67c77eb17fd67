//! Sweeps: many kernels over many shapes, with cuBLAS and the CPU beside them.
//!
//! # How a figure is made
//!
//! Every result is verified before it is timed. Then come rounds. In each round
//! every kernel gives one sample of each of its figures, in an order shuffled
//! anew, so that a drift of clocks or temperature hits all alike:
//!
//! | figure | a sample |
//! |---|---|
//! | burst | a rest, then as many products as fit a millisecond, L2 warm: what the chip does before power or heat limits it |
//! | sustained | products back to back for 50 ms, after half of that untimed, while clocks still follow what ran before: what a long computation gets |
//! | cold | one product, after the L2 cache was overwritten |
//! | pageable, pinned | one product with its copies, by the host's clock |
//!
//! All but the last are times between CUDA events. A figure is the median of its
//! samples, its noise their middle half; see [`noise`](crate::timing::noise).
//!
//! Bursts and cold products are queued while the GPU is still busy with
//! something else, so that no launch is waited for. A sustained batch of products
//! that are shorter than their launches is measured by its launches: such a row
//! is [launch-bound](Row::launch_bound), and its time is that of a burst.

mod page;
mod record;
mod shapes;
mod table;

pub use record::{DeviceRecord, FORMAT, Figure, HostRecord, Method, Row, Samples, Skipped, Sweep};
pub use shapes::{PRESETS, Preset, preset, shape, values};

use crate::cublas::{self, Cublas, Mode};
use crate::measure::{Cpu, Effort, Measurement, Problem, check_device_memory, random_factors};
use crate::nvml::{Monitor, State};
use crate::ptx::{self, Code};
use crate::resources::Resources;
use crate::timing::{Eviction, Stopwatch, median};
use crate::transfer::{HostMemory, Staging};
use crate::verify::{Reference, Verdict};
use crate::{DeviceMatrix, Error, Gpu, Matrix, Prepared, nvtx};
use kernels::gemm::{Shape, Variant};
use kernels::launch::{Backend, DeviceLimits};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What takes part in a sweep.
#[derive(Clone, Copy, Debug)]
pub enum Contender {
    /// A product on the CPU.
    Cpu(Cpu),
    /// A kernel.
    Variant(&'static Variant),
    /// cuBLAS.
    Cublas(Mode),
}

impl Contender {
    /// All: the CPU, the kernels in the order of their table, cuBLAS.
    pub fn all() -> impl Iterator<Item = Self> {
        let cpus = Cpu::ALL.into_iter().map(Self::Cpu);
        let variants = kernels::gemm::all().map(Self::Variant);
        let modes = Mode::ALL.into_iter().map(Self::Cublas);
        cpus.chain(variants).chain(modes)
    }

    /// Those whose names match one of the patterns, in their own order. `*`
    /// stands for any text, `?` for any letter, `[ab]` for one of several.
    ///
    /// # Errors
    ///
    /// [`Error::Request`] where a pattern is malformed or matches none.
    pub fn matching(patterns: &[String]) -> Result<Vec<Self>, Error> {
        let mut chosen: Vec<Self> = Vec::new();
        for (pattern, text) in self::patterns(patterns)?.iter().zip(patterns) {
            let before = chosen.len();
            let mut matched = false;
            for contender in Self::all().filter(|it| pattern.matches(it.name())) {
                matched = true;
                if !chosen[..before]
                    .iter()
                    .any(|it| it.name() == contender.name())
                {
                    chosen.push(contender);
                }
            }
            if !matched {
                let names: Vec<_> = Self::all().map(Self::name).collect();
                return Err(Error::Request {
                    reason: format!("no kernel matches '{text}'; there are {}", names.join(", ")),
                });
            }
        }
        let order: Vec<_> = Self::all().map(Self::name).collect();
        chosen.sort_by_key(|it| order.iter().position(|name| *name == it.name()));
        Ok(chosen)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu(cpu) => cpu.name(),
            Self::Variant(variant) => variant.name,
            Self::Cublas(mode) => mode.name(),
        }
    }

    /// What compiled it, for a GPU with the kernels of `backend`.
    fn backend(self, backend: Backend) -> &'static str {
        match self {
            Self::Cpu(_) => "cpu",
            Self::Variant(_) => backend.name(),
            Self::Cublas(_) => "cublas",
        }
    }

    fn precision(self) -> String {
        match self {
            Self::Cpu(_) => "f32".into(),
            Self::Variant(variant) => variant.input.to_string(),
            Self::Cublas(mode) => mode.precision().into(),
        }
    }

    /// A and B read once, C written once, in bytes.
    pub fn bytes(self, shape: Shape) -> f64 {
        let (input, output) = match self {
            Self::Cpu(_) => (4, 4),
            Self::Variant(variant) => (variant.input.size(), variant.output.size()),
            Self::Cublas(mode) => (mode.element_bytes(), mode.element_bytes()),
        };
        let factors = shape.a_elements() as f64 + shape.b_elements() as f64;
        factors * input as f64 + shape.c_elements() as f64 * output as f64
    }

    fn on_gpu(self) -> bool {
        !matches!(self, Self::Cpu(_))
    }
}

/// Patterns of kernels' names; see [`Contender::matching`].
///
/// # Errors
///
/// [`Error::Request`] where one is malformed.
pub fn patterns(texts: &[String]) -> Result<Vec<glob::Pattern>, Error> {
    let pattern = |text: &String| {
        glob::Pattern::new(text).map_err(|error| Error::Request {
            reason: format!("'{text}' is no pattern for kernels: {error}"),
        })
    };
    texts.iter().map(pattern).collect()
}

/// The rate of a precision's products at a clock in Hz, in FLOP/s; none where
/// it is not known.
///
/// Float32 is [`peak_f32_flops`](crate::devices::peak_f32_flops). The tensor
/// cores' rates, of dense products with float32 sums, follow from NVIDIA's A100,
/// H100 and B200 datasheets; other chips halve them from one product line to the
/// next. At its boost clock of 1,830 MHz an H100 has the datasheet's 989 TFLOP/s
/// of BF16.
pub fn peak_flops(limits: &DeviceLimits, clock: f64, precision: &str) -> Option<f64> {
    if precision == "f32" {
        return Some(crate::devices::peak_f32_flops(limits, clock));
    }
    let capability = limits.compute_capability;
    let half = match (capability.major, capability.minor) {
        (8, 0) => 2048.0,
        (9, 0) => 4096.0,
        (10, 0) => 8192.0,
        _ => return None,
    };
    let per_cycle = match precision {
        "f16" | "bf16" => half,
        "tf32" => half / 2.0,
        _ => return None,
    };
    Some(per_cycle * f64::from(limits.multiprocessors) * clock)
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Samples of each figure.
    pub rounds: u32,
    /// How long a sustained batch lasts.
    pub sustained: Duration,
    /// How long a burst lasts.
    pub burst: Duration,
    /// The rest before a burst.
    pub pause: Duration,
    /// What operands and orders are made from.
    pub seed: u64,
    /// Whether products are also timed with their copies.
    pub copies: bool,
    /// FLOPs of the largest product that the CPU's triple loop is given.
    pub triple_loop_flops: f64,
    /// FLOPs of the largest product that the CPU's fast one is given.
    pub cpu_flops: f64,
    /// The noise above which a row is warned of.
    pub noise_limit: f64,
    /// The file of cuBLAS, in place of a search.
    pub cublas: Option<PathBuf>,
    /// The devices, by number.
    pub devices: Vec<u32>,
    /// Whose kernels to measure.
    pub backends: Vec<Backend>,
    /// For which targets they are compiled. What two of them choose alike is
    /// measured once.
    pub codes: Vec<Code>,
    /// What the caller notes.
    pub tags: BTreeMap<String, String>,
    /// The command line, for the record.
    pub command: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rounds: 7,
            sustained: Duration::from_millis(50),
            burst: Duration::from_millis(1),
            pause: Duration::from_millis(10),
            seed: 1,
            copies: true,
            // Half a second, and a tenth of one, of an ordinary CPU.
            triple_loop_flops: 2.0 * 512.0 * 512.0 * 512.0,
            cpu_flops: 2.0 * 4096.0 * 4096.0 * 4096.0,
            noise_limit: 0.05,
            cublas: None,
            devices: vec![0],
            backends: vec![Backend::Nvptx],
            codes: vec![Code::Best],
            tags: BTreeMap::new(),
            command: String::new(),
        }
    }
}

/// Is told how far a sweep has come.
pub trait Progress {
    /// What is measured next.
    fn at(&mut self, what: &str);
    /// One of [`steps`] is done.
    fn advance(&mut self, steps: u64);
}

/// Steps that a sweep tells its [`Progress`] of.
pub fn steps(settings: &Settings, contenders: &[Contender], shapes: &[Shape]) -> u64 {
    let devices = settings.devices.len() as u64;
    let kernels = settings.backends.len() as u64 * settings.codes.len() as u64;
    let of = |it: &Contender| match it {
        Contender::Cpu(_) => 1,
        Contender::Cublas(_) => devices,
        Contender::Variant(_) => devices * kernels,
    };
    shapes.len() as u64 * contenders.iter().map(of).sum::<u64>()
}

/// Products in a batch at most.
const MOST_LAUNCHES: u64 = 20_000;
/// Products in a burst at most: what the driver's queue holds.
const MOST_IN_A_BURST: u64 = 200;
/// Samples with the L2 cache cold in a round; of a product that takes as long as
/// a sustained batch, one.
const COLD_IN_A_ROUND: u32 = 3;
/// Samples on the CPU, where one may take seconds.
const CPU_SAMPLES: u32 = 3;
/// Rounds that time copies. They vary little, and take long.
const ROUNDS_WITH_COPIES: u32 = 3;

/// Measures every contender at every shape on every device.
///
/// Without a GPU the CPU's figures are measured, and the rest is noted as
/// skipped.
///
/// # Errors
///
/// [`Error::NoSuchDevice`]; those of [`Code::open`]; those of a kernel that
/// fails while it runs; the driver's. A variant that does not suit a device or a shape that does not fit
/// is no error, and noted as skipped; so is a device that is too old, where there
/// are others.
pub fn run(
    settings: &Settings,
    contenders: &[Contender],
    shapes: &[Shape],
    progress: &mut dyn Progress,
) -> Result<Sweep, Error> {
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let mut sweep = Sweep {
        format: FORMAT,
        command: settings.command.clone(),
        started,
        tags: settings.tags.clone(),
        host: HostRecord {
            cores: crate::cpu::cores(),
            program: env!("CARGO_PKG_VERSION").into(),
            compiler: ptx::COMPILER.into(),
        },
        devices: Vec::new(),
        method: Method {
            rounds: settings.rounds,
            sustained_seconds: settings.sustained.as_secs_f64(),
            burst_seconds: settings.burst.as_secs_f64(),
            pause_seconds: settings.pause.as_secs_f64(),
            seed: settings.seed,
        },
        rows: Vec::new(),
        skipped: Vec::new(),
        warnings: Vec::new(),
    };
    let mut runner = Runner {
        settings,
        contenders,
        sweep: &mut sweep,
        progress,
        random: fastrand::Rng::with_seed(settings.seed),
    };
    let any_on_gpu = contenders.iter().any(|contender| contender.on_gpu());
    let mut with_cpu = true;
    if any_on_gpu {
        for &ordinal in &settings.devices {
            match ptx::open(ordinal, &settings.backends, &settings.codes) {
                Ok(gpus) => runner.device(&gpus, shapes, std::mem::take(&mut with_cpu))?,
                Err(error @ Error::DeviceTooOld { .. }) if settings.devices.len() > 1 => {
                    let shapes = format!("every shape on device {ordinal}");
                    runner.skip("every kernel", &shapes, error);
                }
                Err(error @ (Error::NoDriver { .. } | Error::NoDevice { .. })) => {
                    runner.without_gpu(&error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    if with_cpu {
        for &shape in shapes {
            runner.cpu_alone(shape)?;
        }
    }
    sweep.warn(settings.noise_limit);
    Ok(sweep)
}

struct Runner<'a> {
    settings: &'a Settings,
    contenders: &'a [Contender],
    sweep: &'a mut Sweep,
    progress: &'a mut dyn Progress,
    random: fastrand::Rng,
}

/// A contender that is ready on the GPU, with what was measured of it so far.
struct Entrant<'a, 'gpu> {
    row: Row,
    engine: Engine<'a, 'gpu>,
    /// Products in a sustained batch and in a burst.
    launches: [u64; 2],
    /// The host's time for one launch.
    launch: Duration,
    sustained: Vec<f64>,
    burst: Vec<f64>,
    cold: Vec<f64>,
    copies: [Vec<f64>; 2],
    states: Vec<State>,
}

enum Engine<'a, 'gpu> {
    /// With the GPU whose code it is of. All of a device share its memory, and
    /// are launched on the stream of the first.
    Variant(&'gpu Gpu, Prepared<'gpu>),
    Cublas(cublas::Product<'a, 'gpu>),
}

impl<'gpu> Engine<'_, 'gpu> {
    fn queue(
        &self,
        gpu: &'gpu Gpu,
        a: &DeviceMatrix<'gpu>,
        b: &DeviceMatrix<'gpu>,
        c: &mut DeviceMatrix<'gpu>,
    ) -> Result<(), Error> {
        match self {
            Self::Variant(_, prepared) => prepared.launch(gpu.stream(), a, b, c),
            Self::Cublas(product) => product.launch(a, b, c),
        }
    }

    fn verify(&mut self, problem: &mut Problem<'gpu>) -> Result<Verdict, Error> {
        match self {
            Self::Variant(_, prepared) => problem.verify_prepared(prepared),
            Self::Cublas(product) => {
                let (operands, reference) = problem.parts();
                product.verify(operands, reference)
            }
        }
    }

    /// What was done with it on the stream of `gpu`. A failure names its
    /// kernels, which that GPU does not know where they are of other code.
    fn done<T>(&self, gpu: &Gpu, result: Result<T, Error>) -> Result<T, Error> {
        let Self::Variant(own, prepared) = self else {
            return result;
        };
        match result {
            Err(Error::Execution { kernels, source }) if kernels.is_empty() => {
                let launches = prepared.plan().launches.iter();
                let kernels = launches.map(|launch| launch.entry().name).collect();
                Err(Error::Execution { kernels, source })
            }
            Ok(done) if !std::ptr::eq(*own, gpu) => {
                // It noted the launches, and nothing else would have it forget.
                own.synchronize()?;
                Ok(done)
            }
            result => result,
        }
    }

    /// Whether it reads and writes the problem's own matrices.
    fn uses_operands(&self) -> bool {
        match self {
            Self::Variant(..) => true,
            Self::Cublas(product) => matches!(product.mode(), Mode::F32 | Mode::Tf32),
        }
    }
}

/// Whether an error concerns one contender or shape alone, and the rest can go
/// on.
fn concerns_one(error: &Error) -> bool {
    matches!(
        error,
        Error::Plan(_)
            | Error::NotBuiltBy { .. }
            | Error::OutOfMemory { .. }
            | Error::HostMemory { .. }
            | Error::Cublas { .. }
    )
}

impl Runner<'_> {
    fn skip(&mut self, kernel: &str, shape: &str, reason: impl ToString) {
        self.sweep.skipped.push(Skipped {
            kernel: kernel.into(),
            shape: shape.into(),
            reason: reason.to_string(),
        });
    }

    fn without_gpu(&mut self, error: &Error) {
        self.skip("every kernel on the GPU", "every shape", error);
    }

    /// `gpus` are one device with different code.
    fn device(&mut self, gpus: &[Gpu], shapes: &[Shape], with_cpu: bool) -> Result<(), Error> {
        let Some(gpu) = gpus.first() else {
            return Ok(());
        };
        let monitor = Monitor::open(gpu.info());
        let wanted = |it: &Contender| matches!(it, Contender::Cublas(_));
        let cublas = if self.contenders.iter().any(wanted) {
            Cublas::open(gpu, self.settings.cublas.as_deref()).map_err(|absent| absent.to_string())
        } else {
            Err("not asked for".into())
        };
        if let Err(reason) = &cublas
            && self.contenders.iter().any(wanted)
        {
            self.skip("cublas_*", "every shape", reason);
        }
        let record = device_record(gpus, gpu, &monitor, &cublas);
        self.sweep.devices.push(record);
        let mut eviction = Eviction::new(gpu)?;
        for &shape in shapes {
            let done = self.shape(
                (gpus, gpu),
                cublas.as_ref().ok(),
                monitor.as_ref().ok(),
                &mut eviction,
                shape,
                with_cpu,
            );
            match done {
                Ok(()) => {}
                Err(error) if concerns_one(&error) => {
                    self.skip("every kernel", &shape.to_string(), error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn shape<'gpu>(
        &mut self,
        (gpus, gpu): (&'gpu [Gpu], &'gpu Gpu),
        cublas: Option<&Cublas<'gpu>>,
        monitor: Option<&Monitor>,
        eviction: &mut Eviction,
        shape: Shape,
        with_cpu: bool,
    ) -> Result<(), Error> {
        self.progress.at(&format!("{shape}, reference"));
        check_device_memory(gpu, shape)?;
        let (a, b) = random_factors(shape, self.settings.seed)?;
        let mut problem = Problem::new(gpu, &a, &b)?;
        if with_cpu {
            self.cpu(shape, (&a, &b), Some(problem.reference()))?;
        }

        let mut entrants = Vec::new();
        for &contender in self.contenders {
            let engines: Vec<Result<Engine, Error>> = match (contender, cublas) {
                (Contender::Variant(variant), _) => gpus
                    .iter()
                    .map(|gpu| Ok(Engine::Variant(gpu, gpu.prepare_variant(variant, shape)?)))
                    .collect(),
                (Contender::Cublas(mode), Some(cublas)) => {
                    vec![cublas.prepare(mode, shape, (&a, &b)).map(Engine::Cublas)]
                }
                (Contender::Cublas(_) | Contender::Cpu(_), _) => continue,
            };
            for engine in engines {
                self.progress
                    .at(&format!("{} at {shape}", contender.name()));
                let entrant =
                    engine.and_then(|engine| self.enter(gpu, contender, engine, &mut problem));
                match entrant {
                    Ok(entrant) if entrant.row.passed => entrants.push(entrant),
                    Ok(wrong) => {
                        self.sweep.rows.push(wrong.row);
                        self.progress.advance(1);
                    }
                    Err(error) if concerns_one(&error) => {
                        self.skip(contender.name(), &shape.to_string(), error);
                        self.progress.advance(1);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        // C has no element: there is nothing to time.
        if !shape.is_empty() {
            let host = Hosted::new(gpu, self.settings, (&a, &b))?;
            self.rounds(gpu, monitor, eviction, &mut problem, &mut entrants, host)?;
        }
        for entrant in entrants {
            self.sweep.rows.push(entrant.finish());
            self.progress.advance(1);
        }
        Ok(())
    }

    /// Verifies a contender, and finds how many products fit its batches.
    fn enter<'a, 'gpu>(
        &self,
        gpu: &'gpu Gpu,
        contender: Contender,
        mut engine: Engine<'a, 'gpu>,
        problem: &mut Problem<'gpu>,
    ) -> Result<Entrant<'a, 'gpu>, Error> {
        let shape = problem.shape();
        let _range = nvtx::range(&format!("verify {} {shape}", contender.name()));
        let verdict = engine.verify(problem);
        let verdict = engine.done(gpu, verdict)?;
        let own = match &engine {
            Engine::Variant(own, _) => own,
            Engine::Cublas(_) => gpu,
        };
        let mut row = self.row(contender, shape, &verdict, Some(own));
        row.device = Some(gpu.info().ordinal);
        if let Engine::Variant(own, prepared) = &engine {
            row.resources = Resources::of(own, prepared)?;
        }
        let mut launches = [1; 2];
        let mut launch = Duration::ZERO;
        if row.passed && !shape.is_empty() {
            let stopwatch = Stopwatch::new(gpu)?;
            let [a, b, c] = problem.operands();
            let mut queue = || engine.queue(gpu, a, b, c);
            // The second time, of several where one is short, tells: the first
            // holds what happens once.
            let mut one = stopwatch.batch(1, &mut queue)?;
            if one < Duration::from_millis(1) {
                const SEVERAL: u32 = 20;
                let begun = Instant::now();
                let mut queued = Duration::ZERO;
                one = stopwatch.batch_while(0, SEVERAL.into(), &mut queue, || {
                    queued = begun.elapsed();
                })? / SEVERAL;
                launch = queued / SEVERAL;
                row.launch_seconds = Some(launch.as_secs_f64());
            }
            let fitting = |duration: Duration, most: u64| {
                let fitting = duration.as_secs_f64() / one.as_secs_f64().max(1e-9);
                (fitting as u64).clamp(1, most)
            };
            launches = [
                fitting(self.settings.sustained, MOST_LAUNCHES),
                fitting(self.settings.burst, MOST_IN_A_BURST),
            ];
        }
        Ok(Entrant {
            row,
            engine,
            launches,
            launch,
            sustained: Vec::new(),
            burst: Vec::new(),
            cold: Vec::new(),
            copies: [Vec::new(), Vec::new()],
            states: Vec::new(),
        })
    }

    fn rounds<'gpu>(
        &mut self,
        gpu: &'gpu Gpu,
        monitor: Option<&Monitor>,
        eviction: &mut Eviction,
        problem: &mut Problem<'gpu>,
        entrants: &mut [Entrant<'_, 'gpu>],
        mut host: Option<Hosted>,
    ) -> Result<(), Error> {
        let shape = problem.shape();
        let mut bench = Bench {
            gpu,
            stopwatch: Stopwatch::new(gpu)?,
            monitor,
            eviction,
            problem,
        };
        for round in 0..self.settings.rounds {
            let mut order: Vec<_> = (0..entrants.len()).collect();
            self.random.shuffle(&mut order);
            for at in order {
                let entrant = &mut entrants[at];
                self.progress.at(&format!(
                    "{} at {shape}, round {} of {}",
                    entrant.row.name(),
                    round + 1,
                    self.settings.rounds
                ));
                let host = host.as_mut().filter(|_| round < ROUNDS_WITH_COPIES);
                let sampled = bench.sample(self.settings, entrant, host);
                entrant.engine.done(gpu, sampled)?;
            }
        }
        Ok(())
    }

    /// The CPU's figures, where a device's are measured too or not.
    fn cpu(
        &mut self,
        shape: Shape,
        (a, b): (&Matrix, &Matrix),
        reference: Option<&Reference>,
    ) -> Result<(), Error> {
        let mut own = None;
        for &contender in self.contenders {
            let Contender::Cpu(cpu) = contender else {
                continue;
            };
            if let Some(reason) = self.too_long(cpu, shape) {
                self.skip(cpu.name(), &shape.to_string(), reason);
            } else {
                self.progress.at(&format!("{} at {shape}", cpu.name()));
                let reference = match (reference, &mut own) {
                    (Some(reference), _) => reference,
                    (None, Some(own)) => own,
                    (None, none) => none.insert(Reference::on_cpu(a, b)?),
                };
                let effort = Effort {
                    launches: None,
                    batch_time: Duration::from_millis(100),
                    batches: self.settings.rounds.min(CPU_SAMPLES),
                };
                let measurement = cpu.measure(a, b, reference, effort)?;
                let row = self.cpu_row(contender, measurement);
                self.sweep.rows.push(row);
            }
            self.progress.advance(1);
        }
        Ok(())
    }

    fn cpu_alone(&mut self, shape: Shape) -> Result<(), Error> {
        let wanted = |it: &Contender| match it {
            Contender::Cpu(cpu) => self.too_long(*cpu, shape).is_none(),
            _ => false,
        };
        let done = if self.contenders.iter().any(wanted) {
            random_factors(shape, self.settings.seed)
                .and_then(|(a, b)| self.cpu(shape, (&a, &b), None))
        } else {
            // Nothing is measured, so the operands are of no use.
            let none = Matrix::zeros(0, 0);
            self.cpu(shape, (&none, &none), None)
        };
        match done {
            Err(error) if concerns_one(&error) => {
                self.skip("every kernel", &shape.to_string(), error);
                Ok(())
            }
            done => done,
        }
    }

    fn too_long(&self, cpu: Cpu, shape: Shape) -> Option<String> {
        let most = match cpu {
            Cpu::TripleLoop => self.settings.triple_loop_flops,
            Cpu::Gemm => self.settings.cpu_flops,
        };
        (shape.flops() > most).then(|| format!("it would take the CPU long: over {most:.1e} FLOPs"))
    }

    fn cpu_row(&self, contender: Contender, measurement: Measurement) -> Row {
        let mut row = self.row(contender, measurement.shape, &measurement.verdict, None);
        if row.passed && !measurement.shape.is_empty() {
            row.sustained = Some(Samples {
                seconds: measurement.samples,
                launches: measurement.launches,
            });
        }
        row
    }

    fn row(&self, contender: Contender, shape: Shape, verdict: &Verdict, gpu: Option<&Gpu>) -> Row {
        let precision = contender.precision();
        let info = gpu.map(Gpu::info);
        let backend = gpu.map_or(Backend::Nvptx, |gpu| gpu.ptx().backend);
        let is_variant = matches!(contender, Contender::Variant(_));
        let code = gpu.filter(|_| is_variant).and_then(other_code);
        Row {
            kernel: contender.name().into(),
            backend: contender.backend(backend).into(),
            code: code.map(Into::into),
            device: None,
            m: shape.m(),
            n: shape.n(),
            k: shape.k(),
            flops: shape.flops(),
            bytes: contender.bytes(shape),
            peak_flops: info.and_then(|info| {
                peak_flops(&info.limits, f64::from(info.clock_khz) * 1e3, &precision)
            }),
            peak_bandwidth: info.map(|info| info.peak_bandwidth()),
            precision,
            resources: None,
            launch_seconds: None,
            sustained: None,
            burst: None,
            cold: None,
            pageable: None,
            pinned: None,
            passed: verdict.passed(),
            verdict: verdict.to_string(),
            sm_mhz: None,
            watts: None,
            celsius: None,
            throttling: Vec::new(),
            again: self.again(contender, shape, gpu),
        }
    }

    /// The command that measures one row again.
    fn again(&self, contender: Contender, shape: Shape, gpu: Option<&Gpu>) -> String {
        let Settings {
            rounds,
            sustained,
            burst,
            pause,
            seed,
            copies,
            triple_loop_flops: _,
            cpu_flops: _,
            noise_limit: _,
            cublas,
            devices: _,
            backends: _,
            codes: _,
            tags: _,
            command: _,
        } = self.settings;
        let mut text = format!(
            "matmul bench --kernel {} --shape {}x{}x{} --rounds {rounds} --sustained {} --burst {} \
             --pause {} --seed {seed}",
            contender.name(),
            shape.m(),
            shape.n(),
            shape.k(),
            milliseconds(*sustained),
            milliseconds(*burst),
            milliseconds(*pause),
        );
        if let Contender::Cpu(_) = contender {
            text += " --all-on-cpu";
        }
        if let Some(gpu) = gpu {
            text += &format!(" --device {}", gpu.info().ordinal);
            if !copies {
                text += " --no-copies";
            }
        }
        if let (Contender::Variant(_), Some(gpu)) = (contender, gpu) {
            if gpu.ptx().backend != Backend::Nvptx {
                text += &format!(" --backend {}", gpu.ptx().backend.name());
            }
            if let Some(code) = other_code(gpu) {
                text += &format!(" --code {code}");
            }
        }
        if let (Contender::Cublas(_), Some(path)) = (contender, cublas) {
            text += &format!(" --cublas '{}'", path.display());
        }
        text
    }
}

impl Sweep {
    /// Notes in [`Sweep::warnings`] what may make the figures of its rows worse
    /// than the kernels are: throttling, noise above a limit, and the like.
    pub fn warn(&mut self, noise_limit: f64) {
        let sweep = self;
        let mut warnings = Vec::new();
        for device in &sweep.devices {
            if let Some(reason) = &device.nvml_absent {
                warnings.push(format!(
                    "clocks, power and throttling of device {} were not read: {reason}",
                    device.ordinal
                ));
            }
        }
        let several = sweep.devices.len() > 1;
        let named = |row: &&Row| {
            let device = row.device.filter(|_| several);
            let device = device.map_or_else(String::new, |it| format!(" on device {it}"));
            format!("{} at {}{device}", row.name(), row.shape())
        };
        let mut reasons: Vec<&str> = Vec::new();
        for reason in sweep.rows.iter().flat_map(|row| &row.throttling) {
            if !reasons.contains(&reason.as_str()) {
                reasons.push(reason);
            }
        }
        for reason in reasons {
            let held = |row: &&Row| row.throttling.iter().any(|it| it == reason);
            let rows: Vec<_> = sweep
                .rows
                .iter()
                .filter(held)
                .map(|row| named(&row))
                .collect();
            warnings.push(format!("throttled by {reason}: {}", some_of(&rows)));
        }
        let bound: Vec<_> = sweep
            .rows
            .iter()
            .filter(|row| row.launch_bound())
            .map(|row| named(&row))
            .collect();
        if !bound.is_empty() {
            warnings.push(format!(
                "launches take as long as the products, whose time is that of a burst: {}",
                some_of(&bound)
            ));
        }
        let limit = noise_limit;
        let noisy: Vec<_> = sweep
            .rows
            .iter()
            .filter(|row| row.samples(Figure::Time).is_some_and(|s| s.noise() > limit))
            .map(|row| named(&row))
            .collect();
        if !noisy.is_empty() {
            let percent = limit * 100.0;
            warnings.push(format!("noise over {percent} %: {}", some_of(&noisy)));
        }
        sweep.warnings = warnings;
    }
}

fn milliseconds(duration: Duration) -> String {
    (duration.as_secs_f64() * 1e3).to_string()
}

/// The first few, and how many more there are.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Operands in both kinds of host memory.
struct Hosted {
    stagings: [Staging; 2],
}

impl Hosted {
    fn new(
        gpu: &Gpu,
        settings: &Settings,
        factors: (&Matrix, &Matrix),
    ) -> Result<Option<Self>, Error> {
        if !settings.copies {
            return Ok(None);
        }
        let [pageable, pinned] = HostMemory::ALL;
        Ok(Some(Self {
            stagings: [
                Staging::new(gpu, pageable, factors)?,
                Staging::new(gpu, pinned, factors)?,
            ],
        }))
    }
}

/// What entrants are measured with at one shape.
struct Bench<'a, 'gpu> {
    gpu: &'gpu Gpu,
    stopwatch: Stopwatch<'gpu>,
    monitor: Option<&'a Monitor>,
    eviction: &'a mut Eviction,
    problem: &'a mut Problem<'gpu>,
}

impl<'gpu> Bench<'_, 'gpu> {
    /// A sample of each of an entrant's figures; those with copies through
    /// `host`, where there is one.
    fn sample(
        &mut self,
        settings: &Settings,
        entrant: &mut Entrant<'_, 'gpu>,
        host: Option<&mut Hosted>,
    ) -> Result<(), Error> {
        let Self {
            gpu,
            stopwatch,
            monitor,
            eviction,
            problem,
        } = self;
        let gpu = *gpu;
        let what = format!("{} {}", entrant.row.name(), problem.shape());
        let engine = &entrant.engine;
        let [a, b, c] = problem.operands();
        let mut queue = || engine.queue(gpu, a, b, c);
        let [sustained, burst] = entrant.launches;
        let launch = entrant.launch;
        let each = |time: Duration, launches: u64| time.as_secs_f64() / launches as f64;
        {
            let _range = nvtx::range(&format!("burst {what}"));
            std::thread::sleep(settings.pause);
            let time = stopwatch.queued_ahead(eviction, launch, [1, burst], &mut queue)?;
            entrant.burst.push(each(time, burst));
        }
        {
            let _range = nvtx::range(&format!("sustained {what}"));
            let mut state = None;
            let begun = Instant::now();
            let lead_in = sustained / 2;
            let time = stopwatch.batch_while(lead_in, sustained, &mut queue, || {
                if let Some(monitor) = monitor {
                    // The middle of what is timed. Short products take as long
                    // to queue as to run.
                    let middle = settings.sustained;
                    std::thread::sleep(middle.saturating_sub(begun.elapsed()));
                    state = Some(monitor.read());
                }
            })?;
            entrant.sustained.push(each(time, sustained));
            entrant.states.extend(state);
        }
        {
            let _range = nvtx::range(&format!("cold {what}"));
            let times = if sustained > 1 { COLD_IN_A_ROUND } else { 1 };
            for _ in 0..times {
                let time = stopwatch.queued_ahead(eviction, launch, [0, 1], &mut queue)?;
                entrant.cold.push(time.as_secs_f64());
            }
        }
        if let Some(host) = host
            && engine.uses_operands()
        {
            let _range = nvtx::range(&format!("copies {what}"));
            for (staging, samples) in host.stagings.iter_mut().zip(&mut entrant.copies) {
                let time = staging.run(gpu, problem.operands(), &mut |a, b, c| {
                    engine.queue(gpu, a, b, c)
                })?;
                samples.push(time.as_secs_f64());
            }
        }
        Ok(())
    }
}

impl Entrant<'_, '_> {
    fn finish(mut self) -> Row {
        let samples = |seconds: Vec<f64>, launches| {
            (!seconds.is_empty()).then_some(Samples { seconds, launches })
        };
        let [sustained, burst] = self.launches;
        self.row.sustained = samples(self.sustained, sustained);
        self.row.burst = samples(self.burst, burst);
        self.row.cold = samples(self.cold, 1);
        let [pageable, pinned] = self.copies;
        self.row.pageable = samples(pageable, 1);
        self.row.pinned = samples(pinned, 1);

        let clocks: Vec<_> = self
            .states
            .iter()
            .filter_map(|state| state.sm_mhz.map(f64::from))
            .collect();
        self.row.sm_mhz = (!clocks.is_empty()).then(|| median(&clocks));
        let powers = self.states.iter().filter_map(|state| state.milliwatts);
        self.row.watts = powers.max().map(|milliwatts| f64::from(milliwatts) / 1e3);
        self.row.celsius = self.states.iter().filter_map(|state| state.celsius).max();
        for reason in self.states.iter().flat_map(|state| &state.throttling) {
            if !self.row.throttling.iter().any(|it| it == reason) {
                self.row.throttling.push((*reason).to_owned());
            }
        }
        self.row
    }
}

/// The target of a GPU's code, where that is not the best for the device.
fn other_code(gpu: &Gpu) -> Option<&'static str> {
    let ptx = gpu.ptx();
    let best = ptx::best_for(gpu.info().limits.compute_capability, ptx.backend);
    let is_best = best.is_some_and(|best| best.architecture == ptx.architecture);
    (!is_best).then_some(ptx.architecture)
}

/// `gpu` is the first of `gpus`, which are one device with different code.
fn device_record(
    gpus: &[Gpu],
    gpu: &Gpu,
    monitor: &Result<Monitor, String>,
    cublas: &Result<Cublas, String>,
) -> DeviceRecord {
    let info = gpu.info();
    let driver = crate::device::driver_version();
    let mut targets: Vec<&str> = Vec::new();
    for gpu in gpus {
        if !targets.contains(&gpu.ptx().architecture) {
            targets.push(gpu.ptx().architecture);
        }
    }
    DeviceRecord {
        ordinal: info.ordinal,
        name: info.name.clone(),
        uuid: info.uuid.clone(),
        compute_capability: info.limits.compute_capability.to_string(),
        multiprocessors: info.limits.multiprocessors,
        clock_mhz: info.clock_khz / 1000,
        memory_clock_mhz: info.memory_clock_khz / 1000,
        memory_bytes: info.memory_bytes,
        l2_bytes: info.l2_bytes,
        ecc: info.ecc,
        peak_f32_flops: info.peak_f32_flops(),
        peak_bandwidth: info.peak_bandwidth(),
        driver: monitor.as_ref().ok().and_then(Monitor::driver),
        cuda: driver.map_or_else(|_| "unknown".into(), |version| version.to_string()),
        ptx: targets.join(", "),
        power_limit_watts: monitor
            .as_ref()
            .ok()
            .and_then(Monitor::power_limit)
            .map(|milliwatts| f64::from(milliwatts) / 1e3),
        nvml_absent: monitor.as_ref().err().cloned(),
        cublas: cublas.as_ref().ok().map(Cublas::describe),
        cublas_absent: cublas.as_ref().err().cloned(),
    }
}

/// Launches every contender once at every shape, on the first of the devices,
/// with the first of the backends and of the codes: what a profiler is to see,
/// and nothing else. Nothing is verified or timed.
///
/// `each` is told of every contender and shape that ran.
///
/// # Errors
///
/// Those of opening the device, of the plans and launches, of the kernels.
pub fn run_once(
    settings: &Settings,
    contenders: &[Contender],
    shapes: &[Shape],
    mut each: impl FnMut(Contender, Shape),
) -> Result<(), Error> {
    let backend = settings.backends.first().copied().unwrap_or(Backend::Nvptx);
    let code = settings.codes.first().copied().unwrap_or(Code::Best);
    let gpu = code.open(settings.devices.first().copied().unwrap_or(0), backend)?;
    let wanted = |it: &Contender| matches!(it, Contender::Cublas(_));
    let cublas = if contenders.iter().any(wanted) {
        let opened = Cublas::open(&gpu, settings.cublas.as_deref());
        Some(opened.map_err(|absent| Error::Cublas {
            operation: "opening cuBLAS".into(),
            status: absent.to_string(),
        })?)
    } else {
        None
    };
    for &shape in shapes {
        check_device_memory(&gpu, shape)?;
        let (a, b) = random_factors(shape, settings.seed)?;
        let (device_a, device_b) = (gpu.upload(&a)?, gpu.upload(&b)?);
        let mut c = gpu.poisoned(a.rows(), b.columns())?;
        for &contender in contenders {
            let engine = match (contender, &cublas) {
                (Contender::Variant(variant), _) => {
                    Engine::Variant(&gpu, gpu.prepare_variant(variant, shape)?)
                }
                (Contender::Cublas(mode), Some(cublas)) => {
                    Engine::Cublas(cublas.prepare(mode, shape, (&a, &b))?)
                }
                _ => continue,
            };
            let _range = nvtx::range(&format!("{} {shape}", contender.name()));
            engine.queue(&gpu, &device_a, &device_b, &mut c)?;
            gpu.synchronize()?;
            each(contender, shape);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::launch::ComputeCapability;

    #[test]
    fn patterns_choose_by_name() {
        let names = |patterns: &[&str]| -> Vec<_> {
            let patterns: Vec<_> = patterns.iter().map(ToString::to_string).collect();
            let chosen = Contender::matching(&patterns).unwrap();
            chosen.into_iter().map(Contender::name).collect()
        };
        assert_eq!(names(&["cublas_*"]).len(), 4);
        assert_eq!(names(&["*"]).len(), Contender::all().count());
        assert_eq!(names(&["tiled_[13]*", "naive_16", "naive_[13]*"]).len(), 4);
        // In the table's order, each once.
        assert_eq!(names(&["tiled_16", "cpu", "tiled_16"]), ["cpu", "tiled_16"]);
        for wrong in ["nosuch*", "[", "", "cublas"] {
            let error = Contender::matching(&[wrong.to_owned()]).err().unwrap();
            assert!(
                error.is_usage() && error.to_string().contains(wrong),
                "{error}"
            );
        }
    }

    #[test]
    fn peaks_are_those_of_the_datasheets() {
        let limits = |name| crate::devices::find(name).unwrap().limits;
        for (name, clock, precision, datasheet) in [
            ("h100", 1830e6, "bf16", 989.4e12),
            ("h100", 1830e6, "tf32", 494.7e12),
            ("a100", 1410e6, "f16", 312e12),
            ("a100", 1410e6, "tf32", 156e12),
            ("h200", 1980e6, "f32", 66.9e12),
        ] {
            let peak = peak_flops(&limits(name), clock, precision).unwrap();
            assert!(
                (peak / datasheet - 1.0).abs() < 0.005,
                "{name} {precision}: {peak}"
            );
        }
        assert_eq!(
            limits("l4").compute_capability,
            ComputeCapability::new(8, 9)
        );
        assert_eq!(peak_flops(&limits("l4"), 2e9, "bf16"), None);
        assert_eq!(peak_flops(&limits("h200"), 2e9, "f64"), None);
    }
}
