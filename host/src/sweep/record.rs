//! What is kept of a sweep: the contents of its JSON.

use crate::Error;
use crate::graph::Batching;
use crate::resources::Resources;
use crate::timing::{median, noise};
use kernels::gemm::Shape;
use kernels::launch::Backend;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The version of the JSON. Readers refuse a newer one.
pub const FORMAT: u32 = 1;

/// A sweep: where and how it was measured, and the figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sweep {
    /// The version of this structure: [`FORMAT`].
    pub format: u32,
    /// The command line that made it.
    pub command: String,
    /// When it began, in seconds since 1970 (UTC).
    pub started: u64,
    /// What the caller noted.
    pub tags: BTreeMap<String, String>,
    /// The machine around the devices.
    pub host: HostRecord,
    /// The devices, in the order they were measured.
    pub devices: Vec<DeviceRecord>,
    /// How it was measured.
    pub method: Method,
    /// A row for each kernel, shape and device.
    pub rows: Vec<Row>,
    /// What was asked for and not measured.
    pub skipped: Vec<Skipped>,
    /// What may make the figures worse than the kernels are.
    pub warnings: Vec<String>,
}

/// The machine around the devices.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostRecord {
    /// Cores of the CPU.
    pub cores: usize,
    /// This program's version.
    pub program: String,
    /// What compiled the kernels.
    pub compiler: String,
}

/// A device and its state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Its number.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its identifier, as `nvidia-smi -L` shows it.
    pub uuid: String,
    /// Its compute capability, such as `9.0`.
    pub compute_capability: String,
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// The highest clock of its multiprocessors, in MHz.
    pub clock_mhz: u32,
    /// The highest clock of its memory, in MHz.
    pub memory_clock_mhz: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// L2 cache, in bytes.
    pub l2_bytes: u64,
    /// Whether memory is protected by ECC.
    pub ecc: bool,
    /// Float32 FLOP/s at the highest clock.
    pub peak_f32_flops: f64,
    /// Bytes per second at the highest memory clock.
    pub peak_bandwidth: f64,
    /// The driver's version, where NVML tells it.
    pub driver: Option<String>,
    /// The CUDA version that the driver is for.
    pub cuda: String,
    /// The targets that the kernels were compiled for, separated by commas.
    pub ptx: String,
    /// The power that it may draw, in watts.
    pub power_limit_watts: Option<f64>,
    /// Why clocks and power were not read; none where they were.
    pub nvml_absent: Option<String>,
    /// The cuBLAS that was compared with.
    pub cublas: Option<String>,
    /// Why there was none.
    pub cublas_absent: Option<String>,
}

/// How a sweep was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Method {
    /// Rounds: samples of each figure.
    pub rounds: u32,
    /// Seconds that a sustained batch lasts.
    pub sustained_seconds: f64,
    /// Seconds that a burst lasts.
    pub burst_seconds: f64,
    /// Seconds of rest before a burst.
    pub pause_seconds: f64,
    /// What the operands and the order of the kernels were made from.
    pub seed: u64,
}

/// The figures of one kernel at one shape on one device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The variant, `cublas_f32` and the like, or `cpu` and the like.
    pub kernel: String,
    /// What compiled it: `nvptx`, `rust-cuda`, `cublas`, or `cpu`.
    pub backend: String,
    /// The target it was compiled for, such as `sm_80`, where that is not the
    /// best that the device takes.
    #[serde(default)]
    pub code: Option<String>,
    /// What its products are made of: `f32`, `tf32`, `bf16`, `f16`.
    pub precision: String,
    /// The device's number; none on the CPU.
    pub device: Option<u32>,
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B and C.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// 2·M·N·K.
    pub flops: f64,
    /// A and B read once, C written once, in bytes.
    pub bytes: f64,
    /// The rate that the device's clock and multiprocessors allow for this
    /// precision, in FLOP/s; none where it is not known.
    pub peak_flops: Option<f64>,
    /// The memory bandwidth of its device, in bytes per second.
    pub peak_bandwidth: Option<f64>,
    /// What its main kernel takes of a multiprocessor; none of cuBLAS's and on
    /// the CPU.
    #[serde(default)]
    pub resources: Option<Resources>,
    /// Seconds that the host takes to launch one product; none where a product
    /// takes a millisecond or more, which hides it.
    pub launch_seconds: Option<f64>,
    /// How the products of a sustained batch were launched; none on the CPU, and
    /// where nothing was timed.
    #[serde(default)]
    pub batched_by: Option<Batching>,
    /// Why they were not launched as a graph, where they should have been: the
    /// kernel at that shape of which no graph could be made, and the reason.
    #[serde(default)]
    pub no_graph: Option<String>,
    /// Back to back, L2 warm. On the CPU, the only figure.
    pub sustained: Option<Samples>,
    /// After a pause, L2 warm.
    pub burst: Option<Samples>,
    /// One at a time, L2 cold.
    pub cold: Option<Samples>,
    /// With the copies from and to ordinary host memory.
    pub pageable: Option<Samples>,
    /// With the copies from and to page-locked host memory.
    pub pinned: Option<Samples>,
    /// Whether every element was right. A wrong result is not timed.
    pub passed: bool,
    /// How the result compares with the reference, in words.
    pub verdict: String,
    /// The median clock during the sustained batches, in MHz.
    pub sm_mhz: Option<f64>,
    /// The highest power seen during them, in watts.
    pub watts: Option<f64>,
    /// The highest temperature seen during them, in degrees Celsius.
    pub celsius: Option<u32>,
    /// What held the clocks down during them.
    pub throttling: Vec<String>,
    /// The command that measures this row again.
    pub again: String,
}

/// Times of one product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Seconds for one product, a figure for each sample.
    pub seconds: Vec<f64>,
    /// Products in a sample.
    pub launches: u64,
}

impl Samples {
    /// The median, in seconds.
    pub fn median(&self) -> f64 {
        median(&self.seconds)
    }

    /// The spread; see [`noise`].
    pub fn noise(&self) -> f64 {
        noise(&self.seconds)
    }
}

/// What was asked for and not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The kernel.
    pub kernel: String,
    /// M×N×K.
    pub shape: String,
    /// Why.
    pub reason: String,
}

/// One of a row's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// [`Row::sustained`], or [`Row::burst`] where the row is
    /// [launch-bound](Row::launch_bound).
    Time,
    /// [`Row::sustained`].
    Sustained,
    /// [`Row::burst`].
    Burst,
    /// [`Row::cold`].
    Cold,
}

impl Figure {
    /// All.
    pub const ALL: [Self; 4] = [Self::Time, Self::Sustained, Self::Burst, Self::Cold];

    /// Its name in JSON and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Sustained => "sustained",
            Self::Burst => "burst",
            Self::Cold => "cold",
        }
    }
}

impl Row {
    /// The samples of a figure.
    pub fn samples(&self, figure: Figure) -> Option<&Samples> {
        match figure {
            Figure::Time if self.launch_bound() => self.burst.as_ref(),
            Figure::Time | Figure::Sustained => self.sustained.as_ref(),
            Figure::Burst => self.burst.as_ref(),
            Figure::Cold => self.cold.as_ref(),
        }
        .filter(|samples| !samples.seconds.is_empty())
    }

    /// Whether a sustained batch is measured by its launches rather than by its
    /// products: they were launched one by one, and the host takes 70 % of a
    /// product's time, or more, to launch it.
    pub fn launch_bound(&self) -> bool {
        const SHARE: f64 = 0.7;
        let sustained = self.sustained.as_ref().map(Samples::median);
        self.burst.is_some()
            && self.batched_by != Some(Batching::Graph)
            && self
                .launch_seconds
                .zip(sustained)
                .is_some_and(|(launch, sustained)| launch >= SHARE * sustained)
    }

    /// Seconds for one product: [`Figure::Time`].
    pub fn seconds(&self) -> Option<f64> {
        self.samples(Figure::Time).map(Samples::median)
    }

    /// FLOP/s in that time.
    pub fn flops_per_second(&self) -> Option<f64> {
        self.rate(self.flops, Figure::Time)
    }

    /// FLOP/s as a share of the device's peak.
    pub fn share_of_peak(&self) -> Option<f64> {
        Some(self.flops_per_second()? / self.peak_flops.filter(|&peak| peak > 0.0)?)
    }

    /// Bytes that must move, over the time with a cold L2, as a share of the
    /// memory's bandwidth. With a warm L2 a product may need none of it.
    pub fn share_of_bandwidth(&self) -> Option<f64> {
        let peak = self.peak_bandwidth.filter(|&peak| peak > 0.0)?;
        Some(self.rate(self.bytes, Figure::Cold)? / peak)
    }

    fn rate(&self, amount: f64, figure: Figure) -> Option<f64> {
        let seconds = self.samples(figure)?.median();
        (seconds > 0.0).then(|| amount / seconds)
    }

    /// M×N×K.
    pub fn shape(&self) -> String {
        format!("{}×{}×{}", self.m, self.n, self.k)
    }

    /// The kernel's name, with its backend and its code where these are not the
    /// usual ones.
    pub fn name(&self) -> String {
        let mut name = self.kernel.clone();
        if self.backend == Backend::RustCuda.name() {
            name += "/";
            name += &self.backend;
        }
        if let Some(code) = &self.code {
            name += "/";
            name += code;
        }
        name
    }

    /// Whether it is a square product.
    pub fn is_square(&self) -> bool {
        self.m == self.n && self.n == self.k
    }

    /// What tells it from other rows of a sweep.
    pub fn key(&self) -> (&str, &str, Option<&str>, Option<u32>, [u32; 3]) {
        let sizes = [self.m, self.n, self.k];
        let code = self.code.as_deref();
        (&self.kernel, &self.backend, code, self.device, sizes)
    }
}

impl Sweep {
    /// Reads a sweep that `matmul bench --json` wrote.
    ///
    /// # Errors
    ///
    /// [`Error::File`] where it cannot be read, is no sweep, or is of a later
    /// version.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = |reason: String| Error::File {
            path: path.to_owned(),
            reason,
        };
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let text = std::fs::read_to_string(path).map_err(|error| file(error.to_string()))?;
        let no_sweep = |error| {
            file(format!(
                "it is no sweep of `matmul bench --json FILE`: {error}"
            ))
        };
        let head: Head = serde_json::from_str(&text).map_err(no_sweep)?;
        if head.format > FORMAT {
            return Err(file(format!(
                "it has format {}, and this program knows up to {FORMAT}: take a newer one",
                head.format
            )));
        }
        serde_json::from_str(&text).map_err(no_sweep)
    }

    /// Leaves the rows of kernels that match one of some patterns, at some
    /// shapes, or at all where none is named, and notes what concerns these in
    /// [`Sweep::warnings`].
    ///
    /// # Errors
    ///
    /// [`Error::Request`] where a pattern is malformed or no row is left.
    pub fn choose(
        &mut self,
        kernels: &[String],
        shapes: &[Shape],
        noise_limit: f64,
    ) -> Result<(), Error> {
        let kernels = super::patterns(kernels)?;
        self.rows.retain(|row| {
            let of = |shape: &Shape| [shape.m(), shape.n(), shape.k()] == [row.m, row.n, row.k];
            kernels.iter().any(|pattern| pattern.matches(&row.kernel))
                && (shapes.is_empty() || shapes.iter().any(of))
        });
        if self.rows.is_empty() {
            return Err(Error::Request {
                reason: "the sweep has no row of the kernels and shapes that were asked for".into(),
            });
        }
        let named: Vec<_> = shapes.iter().map(ToString::to_string).collect();
        self.skipped.retain(|skipped| {
            // A reason may concern every kernel, or every shape.
            let kernel = skipped.kernel.contains([' ', '*'])
                || kernels.iter().any(|it| it.matches(&skipped.kernel));
            let shape = skipped.shape.contains(' ') || named.contains(&skipped.shape);
            kernel && (shapes.is_empty() || shape)
        });
        self.warn(noise_limit);
        Ok(())
    }

    /// The row of another kernel at the same shape on the same device; a CPU's
    /// row belongs to every device.
    pub fn beside(&self, row: &Row, kernel: &str) -> Option<&Row> {
        self.rows.iter().find(|other| {
            other.kernel == kernel
                && [other.m, other.n, other.k] == [row.m, row.n, row.k]
                && (other.device == row.device || other.device.is_none())
        })
    }

    /// How many times as fast a row is as another kernel.
    pub fn speed_up(&self, row: &Row, kernel: &str) -> Option<f64> {
        let seconds = row.seconds().filter(|&seconds| seconds > 0.0)?;
        Some(self.beside(row, kernel)?.seconds()? / seconds)
    }

    /// How many times as fast a row is as cuBLAS at the same precision.
    pub fn speed_up_over_cublas(&self, row: &Row) -> Option<f64> {
        self.speed_up(row, &format!("cublas_{}", row.precision))
            .filter(|_| row.device.is_some())
    }

    /// The shapes, in order, each once.
    pub fn shapes(&self) -> Vec<[u32; 3]> {
        distinct(self.rows.iter().map(|row| [row.m, row.n, row.k]))
    }

    /// The kernels, in order, each once.
    pub fn kernels(&self) -> Vec<String> {
        distinct(self.rows.iter().map(Row::name))
    }

    /// Whether no result was wrong.
    pub fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.passed)
    }
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for item in items {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::sweep;

    #[test]
    fn a_launch_bound_row_takes_the_time_of_a_burst() {
        let mut row = sweep(&[("tiled_16", &[10e-6])]).rows.remove(0);
        row.burst = Some(Samples {
            seconds: vec![4e-6],
            launches: 100,
        });
        for (launch, bound) in [(None, false), (Some(6e-6), false), (Some(7.1e-6), true)] {
            row.launch_seconds = launch;
            assert_eq!(row.launch_bound(), bound);
            assert_eq!(row.seconds(), Some(if bound { 4e-6 } else { 10e-6 }));
            assert_eq!(row.samples(Figure::Sustained).unwrap().median(), 10e-6);
        }
        // In graphs, the host launches many at once.
        row.batched_by = Some(Batching::Graph);
        assert_eq!(row.seconds(), Some(10e-6));
        row.batched_by = Some(Batching::Launches);
        assert_eq!(row.seconds(), Some(4e-6));
        // Without a burst there is nothing to take instead.
        row.burst = None;
        assert_eq!(row.seconds(), Some(10e-6));
    }
}
