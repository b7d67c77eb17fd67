//! A contender that is ready on a GPU, and the samples that are taken of it.

use super::Settings;
use super::record::{Row, Samples};
use crate::cublas::{self, Mode};
use crate::graph::Batching;
use crate::measure::Problem;
use crate::nvml::{Monitor, State};
use crate::timing::{Eviction, Stopwatch, median};
use crate::transfer::{HostMemory, Staging};
use crate::verify::Verdict;
use crate::{DeviceMatrix, Error, Gpu, Matrix, Prepared, nvtx};
use std::time::{Duration, Instant};

/// Samples with the L2 cache cold in a round; of a product that takes as long as
/// a sustained batch, one.
const COLD_IN_A_ROUND: u32 = 3;

/// A contender that is ready on the GPU, with what was measured of it so far.
pub(super) struct Entrant<'a, 'gpu> {
    pub(super) row: Row,
    pub(super) engine: Engine<'a, 'gpu>,
    /// Roughly what a product takes.
    pub(super) one: Duration,
    /// Products in a sustained batch and in a burst.
    pub(super) launches: [u64; 2],
    /// The host's time for one launch.
    pub(super) launch: Duration,
    pub(super) sustained: Vec<f64>,
    pub(super) burst: Vec<f64>,
    pub(super) cold: Vec<f64>,
    pub(super) copies: [Vec<f64>; 2],
    pub(super) states: Vec<State>,
}

/// A product that is ready on a GPU: of a kernel or of cuBLAS.
pub(crate) enum Engine<'a, 'gpu> {
    /// With the GPU whose code it is of. All of a device share its memory, and
    /// are launched on the stream of the first.
    Variant(&'gpu Gpu, Prepared<'gpu>),
    Cublas(cublas::Product<'a, 'gpu>),
}

impl<'gpu> Engine<'_, 'gpu> {
    pub(crate) fn queue(
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

    pub(crate) fn verify(&mut self, problem: &mut Problem<'gpu>) -> Result<Verdict, Error> {
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
    pub(super) fn done<T>(&self, gpu: &Gpu, result: Result<T, Error>) -> Result<T, Error> {
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

    /// Makes it ready to be captured in a graph, or says why it cannot be.
    pub(super) fn prepare_for_graphs(&self) -> Result<Option<String>, Error> {
        match self {
            Self::Variant(..) => Ok(None),
            Self::Cublas(product) => product.prepare_for_graphs(),
        }
    }

    /// Whether it reads and writes the problem's own matrices.
    pub(super) fn uses_operands(&self) -> bool {
        match self {
            Self::Variant(..) => true,
            Self::Cublas(product) => matches!(product.mode(), Mode::F32 | Mode::Tf32),
        }
    }
}

/// Operands in both kinds of host memory.
pub(super) struct Hosted {
    stagings: [Staging; 2],
}

impl Hosted {
    pub(super) fn new(
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
pub(super) struct Bench<'a, 'gpu> {
    pub(super) gpu: &'gpu Gpu,
    pub(super) stopwatch: Stopwatch<'gpu>,
    pub(super) monitor: Option<&'a Monitor>,
    pub(super) eviction: &'a mut Eviction,
    pub(super) problem: &'a mut Problem<'gpu>,
}

impl<'gpu> Bench<'_, 'gpu> {
    /// A sample of each of an entrant's figures; those with copies through
    /// `host`, where there is one.
    pub(super) fn sample(
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
            let batching = entrant.row.batched_by.unwrap_or_default();
            let time = stopwatch.batch_by(batching, [lead_in, sustained], &mut queue, || {
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
    pub(super) fn finish(mut self) -> Row {
        let samples = |seconds: Vec<f64>, launches| {
            (!seconds.is_empty()).then_some(Samples { seconds, launches })
        };
        if let Some(batching) = self.row.batched_by {
            // By itself, it might be launched in another way than beside others.
            self.row.again += match batching {
                Batching::Graph => " --graphs on",
                Batching::Launches => " --graphs off",
            };
        }
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
