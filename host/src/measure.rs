//! Verify, then time: what the program and the benchmarks share.

use crate::graph::{Batching, Graphs};
use crate::timing::{Repeated, median};
use crate::transfer::{EndToEnd, HostMemory};
use crate::verify::{self, Reference, Verdict};
use crate::{DeviceMatrix, Error, Gpu, Matrix, Prepared, cpu, memory};
use kernels::gemm::{Shape, Variant};
use kernels::launch::Dim3;
use std::time::{Duration, Instant};

/// The factors of a product on a GPU, with the reference for its result.
pub struct Problem<'gpu> {
    gpu: &'gpu Gpu,
    shape: Shape,
    a: DeviceMatrix<'gpu>,
    b: DeviceMatrix<'gpu>,
    c: DeviceMatrix<'gpu>,
    reference: Reference,
}

impl<'gpu> Problem<'gpu> {
    /// Copies two factors to a GPU and computes the reference.
    ///
    /// # Errors
    ///
    /// [`Error::InnerDimensions`] where the factors do not fit together,
    /// [`Error::OutOfMemory`] where the device cannot hold them, or the
    /// driver's.
    pub fn new(gpu: &'gpu Gpu, a: &Matrix, b: &Matrix) -> Result<Self, Error> {
        let shape = crate::matrix::product_shape((a.rows(), a.columns()), (b.rows(), b.columns()))?;
        check_device_memory(gpu, shape)?;
        let (device_a, device_b) = (gpu.upload(a)?, gpu.upload(b)?);
        let c = gpu.poisoned(a.rows(), b.columns())?;
        let reference = Reference::new(gpu, (a, &device_a), (b, &device_b))?;
        Ok(Self {
            gpu,
            shape,
            a: device_a,
            b: device_b,
            c,
            reference,
        })
    }

    /// The product of random factors. The same seed gives the same factors.
    ///
    /// # Errors
    ///
    /// As [`Problem::new`] and [`random_factors`].
    pub fn random(gpu: &'gpu Gpu, shape: Shape, seed: u64) -> Result<Self, Error> {
        // Before the host spends minutes on matrices that the device can't hold.
        check_device_memory(gpu, shape)?;
        let (a, b) = random_factors(shape, seed)?;
        Self::new(gpu, &a, &b)
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// What results are compared with.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// A, B and C on the device, for a product that is queued by other means.
    pub fn operands(&mut self) -> [&mut DeviceMatrix<'gpu>; 3] {
        [&mut self.a, &mut self.b, &mut self.c]
    }

    /// The [operands](Self::operands), with what the result is compared with.
    pub fn parts(&mut self) -> ([&mut DeviceMatrix<'gpu>; 3], &Reference) {
        let operands = [&mut self.a, &mut self.b, &mut self.c];
        (operands, &self.reference)
    }

    /// Runs a variant once, into a C full of NaN, and compares the result.
    ///
    /// # Errors
    ///
    /// Those of the plan, the launch and the kernel. A wrong result is no
    /// error here; the verdict says it.
    pub fn verify(&mut self, variant: &Variant) -> Result<Verdict, Error> {
        let prepared = self.gpu.prepare_variant(variant, self.shape)?;
        self.verify_prepared(&prepared)
    }

    /// As [`verify`](Self::verify), with a variant that is ready.
    ///
    /// # Errors
    ///
    /// Those of the launch and the kernel.
    pub fn verify_prepared(&mut self, prepared: &Prepared<'gpu>) -> Result<Verdict, Error> {
        self.gpu.poison(&mut self.c)?;
        prepared.launch(self.gpu.stream(), &self.a, &self.b, &mut self.c)?;
        self.reference.check(&self.gpu.download(&self.c)?)
    }

    /// The product as something to time.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn repeated<'a>(
        &'a mut self,
        prepared: &'a Prepared<'gpu>,
    ) -> Result<Repeated<'a, 'gpu>, Error> {
        Repeated::new(self.gpu, prepared, &self.a, &self.b, &mut self.c)
    }

    /// The product of `factors` with its copies, through this problem's device
    /// memory.
    ///
    /// # Errors
    ///
    /// [`Error::MatrixShape`] where the factors have other shapes, or the
    /// driver's.
    pub fn end_to_end<'a>(
        &'a mut self,
        prepared: &'a Prepared<'gpu>,
        memory: HostMemory,
        factors: (&Matrix, &Matrix),
    ) -> Result<EndToEnd<'a, 'gpu>, Error> {
        let device = [&mut self.a, &mut self.b, &mut self.c];
        EndToEnd::new(self.gpu, prepared, memory, factors, device)
    }

    /// The error that NVIDIA's matrixMul sample computes, on its own constant
    /// factors; see [`verify::sample_error`]. They take the place of
    /// this problem's factors.
    ///
    /// # Errors
    ///
    /// Those of the launch and the kernel, or the driver's.
    pub fn sample_error(&mut self, prepared: &Prepared<'gpu>) -> Result<f64, Error> {
        let (a, b) = verify::SAMPLE_VALUES;
        self.gpu.fill(&mut self.a, a)?;
        self.gpu.fill(&mut self.b, b)?;
        self.gpu.poison(&mut self.c)?;
        prepared.launch(self.gpu.stream(), &self.a, &self.b, &mut self.c)?;
        let c = self.gpu.download(&self.c)?;
        Ok(verify::sample_error(&c, self.shape.k()))
    }

    /// Verifies a variant, then times it.
    ///
    /// # Errors
    ///
    /// Those of the plan, the launches and the kernel.
    pub fn measure(&mut self, variant: &Variant, effort: Effort) -> Result<Measurement, Error> {
        let prepared = self.gpu.prepare_variant(variant, self.shape)?;
        self.measure_prepared(variant.name, &prepared, effort)
    }

    /// As [`measure`](Self::measure), with a variant that is ready.
    ///
    /// # Errors
    ///
    /// Those of the launches and the kernel.
    pub fn measure_prepared(
        &mut self,
        name: &str,
        prepared: &Prepared<'gpu>,
        effort: Effort,
    ) -> Result<Measurement, Error> {
        let verdict = self.verify_prepared(prepared)?;
        let block = prepared.plan().launches.last().map(|launch| launch.block());
        let mut repeated = self.repeated(prepared)?;
        repeated.warm_up()?;
        let batching = repeated.choose(effort.graphs)?;
        let launches = effort.launches(repeated.batch(1)?);
        let samples = (0..effort.batches)
            .map(|_| Ok(repeated.batch(launches)?.as_secs_f64() / launches as f64))
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(Measurement {
            name: name.into(),
            shape: self.shape,
            seconds: median(&samples),
            samples,
            launches,
            batches: effort.batches,
            batching: Some(batching),
            block,
            verdict,
        })
    }
}

/// Checks that a device has room for A, B, C and, while it is computed there,
/// the reference. A variant's workspace is checked when it is prepared.
///
/// # Errors
///
/// [`Error::OutOfMemory`] where it has not, or the driver's.
pub fn check_device_memory(gpu: &Gpu, shape: Shape) -> Result<(), Error> {
    let elements = shape
        .a_elements()
        .saturating_add(shape.b_elements())
        .saturating_add(shape.c_elements());
    let needed = elements
        .saturating_mul(size_of::<f32>() as u64)
        .saturating_add(Reference::device_bytes(shape));
    gpu.check_free(&format!("a product of {shape}"), needed)
}

/// Random factors of a shape. The same seed gives the same factors.
///
/// # Errors
///
/// [`Error::HostMemory`] where the machine has too little memory for them, the
/// result and its check.
pub fn random_factors(shape: Shape, seed: u64) -> Result<(Matrix, Matrix), Error> {
    memory::check(shape)?;
    let (m, n, k) = (shape.m() as usize, shape.n() as usize, shape.k() as usize);
    Ok((
        Matrix::random(m, k, seed),
        Matrix::random(k, n, seed.wrapping_add(1)),
    ))
}

/// How much to run for one figure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Launches in a batch, or none to fit the batch into
    /// [`batch_time`](Self::batch_time).
    pub launches: Option<u64>,
    /// The longest that a batch shall take, where the launches are not given.
    pub batch_time: Duration,
    /// Batches. The figure is their median.
    pub batches: u32,
    /// Whether a GPU's batches are graphs.
    pub graphs: Graphs,
}

/// Launches between two events in NVIDIA's matrixMul sample, and here.
pub const SAMPLE_LAUNCHES: u64 = 300;

impl Effort {
    /// One batch of a given number of launches, or of 300, fewer where they
    /// would take more than a second.
    pub fn one_batch(launches: Option<u64>) -> Self {
        Self {
            launches,
            batch_time: Duration::from_secs(1),
            batches: 1,
            graphs: Graphs::Auto,
        }
    }

    fn launches(&self, one: Duration) -> u64 {
        self.launches.unwrap_or_else(|| {
            let fitting = self.batch_time.as_secs_f64() / one.as_secs_f64().max(1e-9);
            (fitting as u64).clamp(1, SAMPLE_LAUNCHES)
        })
    }
}

/// One figure.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The variant, or `cpu` and the like.
    pub name: String,
    /// The shape.
    pub shape: Shape,
    /// Seconds for one product: the median over the batches.
    pub seconds: f64,
    /// Seconds for one product, of each batch.
    pub samples: Vec<f64>,
    /// Launches in a batch.
    pub launches: u64,
    /// Batches.
    pub batches: u32,
    /// How a batch was launched; none on the CPU.
    pub batching: Option<Batching>,
    /// Threads in a block of the last launch; none on the CPU and where nothing
    /// was launched.
    pub block: Option<Dim3>,
    /// Whether the result was right.
    pub verdict: Verdict,
}

impl Measurement {
    /// Floating-point operations in a second: 2·M·N·K over the time.
    pub fn flops_per_second(&self) -> f64 {
        if self.shape.flops() == 0.0 {
            0.0
        } else {
            self.shape.flops() / self.seconds
        }
    }
}

/// A product on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cpu {
    /// [`cpu::triple_loop`].
    TripleLoop,
    /// [`cpu::gemm`].
    Gemm,
}

impl Cpu {
    /// Both.
    pub const ALL: [Self; 2] = [Self::TripleLoop, Self::Gemm];

    /// Its name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::TripleLoop => "cpu",
            Self::Gemm => "cpu_gemm",
        }
    }

    /// What it is, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::TripleLoop => "three nested loops on one core: the baseline",
            Self::Gemm => "the `gemm` crate on all cores: what a CPU can do",
        }
    }

    /// Computes A·B.
    ///
    /// # Errors
    ///
    /// [`Error::InnerDimensions`] where A's columns are not as many as B's
    /// rows.
    pub fn multiply(self, a: &Matrix, b: &Matrix) -> Result<Matrix, Error> {
        match self {
            Self::TripleLoop => cpu::triple_loop(a, b),
            Self::Gemm => cpu::gemm(a, b),
        }
    }

    /// Verifies and times it.
    ///
    /// # Errors
    ///
    /// [`Error::InnerDimensions`] where A's columns are not as many as B's
    /// rows.
    pub fn measure(
        self,
        a: &Matrix,
        b: &Matrix,
        reference: &Reference,
        effort: Effort,
    ) -> Result<Measurement, Error> {
        let timed = || -> Result<(Matrix, Duration), Error> {
            let start = Instant::now();
            let c = self.multiply(a, b)?;
            Ok((c, start.elapsed()))
        };
        // The first run warms the caches and the thread pool.
        let (c, first) = timed()?;
        let verdict = reference.check(&c)?;
        let launches = effort.launches(first);
        let mut samples = Vec::new();
        for _ in 0..effort.batches {
            let start = Instant::now();
            for _ in 0..launches {
                std::hint::black_box(self.multiply(a, b)?);
            }
            samples.push(start.elapsed().as_secs_f64() / launches as f64);
        }
        Ok(Measurement {
            name: self.name().into(),
            shape: crate::matrix::product_shape((a.rows(), a.columns()), (b.rows(), b.columns()))?,
            seconds: median(&samples),
            samples,
            launches,
            batches: effort.batches,
            batching: None,
            block: None,
            verdict,
        })
    }
}
