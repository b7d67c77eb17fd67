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
//! something else, so that no launch is waited for. Where the shortest of a
//! shape's products is shorter than [`SHORT`](crate::graph::SHORT), the sustained
//! batches of all of them, cuBLAS's as well, are CUDA graphs, so that they do not
//! wait for launches either. Without graphs, a batch of products that are shorter
//! than their launches is measured by its launches: such a row is
//! [launch-bound](Row::launch_bound), and its time is that of a burst.

mod baselines;
mod contender;
mod entrant;
mod once;
mod page;
mod record;
mod rows;
mod runner;
mod shapes;
mod table;
mod warnings;

pub use contender::{Contender, patterns, peak_flops};
pub(crate) use entrant::Engine;
pub use once::run_once;
pub use record::{DeviceRecord, FORMAT, Figure, HostRecord, Method, Row, Samples, Skipped, Sweep};
pub(crate) use runner::fitting;
pub use shapes::{PRESETS, Preset, preset, shape, values};

use crate::Error;
use crate::graph::Graphs;
use crate::ptx::{self, Code};
use kernels::gemm::Shape;
use kernels::launch::Backend;
use runner::Runner;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    /// Whether sustained batches are graphs. A shape's kernels and cuBLAS have
    /// them alike: by [`Graphs::Auto`] where the shortest of them is short.
    pub graphs: Graphs,
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
            graphs: Graphs::Auto,
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
