//! Runs a sweep on a device: verifies each contender, then takes samples of all in
//! rounds.

use super::contender::Contender;
use super::entrant::{Bench, Engine, Entrant, Hosted};
use super::record::{Skipped, Sweep};
use super::rows::device_record;
use super::{Progress, Settings};
use crate::cublas::Cublas;
use crate::graph::{Batching, SHORT, of_graphs};
use crate::measure::{Problem, check_device_memory, random_factors};
use crate::nvml::Monitor;
use crate::resources::Resources;
use crate::timing::{Eviction, Stopwatch};
use crate::{Error, Gpu, nvtx};
use kernels::gemm::Shape;
use std::time::Duration;

/// Products in a batch at most.
const MOST_LAUNCHES: u64 = 20_000;
/// Products in a burst at most: what the driver's queue holds.
const MOST_IN_A_BURST: u64 = 200;
/// Rounds that time copies. They vary little, and take long.
const ROUNDS_WITH_COPIES: u32 = 3;

/// Products in the graph whose time tells how many fit a batch.
const SEVERAL: u32 = 20;

/// Products of a duration that fit another, at least one and at most so many.
pub(crate) fn fitting(duration: Duration, product: Duration, most: u64) -> u64 {
    let fitting = duration.as_secs_f64() / product.as_secs_f64().max(1e-9);
    (fitting as u64).clamp(1, most)
}

/// A sweep that is under way.
pub(super) struct Runner<'a> {
    pub(super) settings: &'a Settings,
    pub(super) contenders: &'a [Contender],
    pub(super) sweep: &'a mut Sweep,
    pub(super) progress: &'a mut dyn Progress,
    pub(super) random: fastrand::Rng,
}

/// Whether an error concerns one contender or shape alone, and the rest can go
/// on.
pub(super) fn concerns_one(error: &Error) -> bool {
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
    pub(super) fn skip(&mut self, kernel: &str, shape: &str, reason: impl ToString) {
        self.sweep.skipped.push(Skipped {
            kernel: kernel.into(),
            shape: shape.into(),
            reason: reason.to_string(),
        });
    }

    pub(super) fn without_gpu(&mut self, error: &Error) {
        self.skip("every kernel on the GPU", "every shape", error);
    }

    /// `gpus` are one device with different code.
    pub(super) fn device(
        &mut self,
        gpus: &[Gpu],
        shapes: &[Shape],
        with_cpu: bool,
    ) -> Result<(), Error> {
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
            self.choose_batching(gpu, &mut problem, &mut entrants)?;
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
        let mut one = Duration::ZERO;
        let mut launches = [1; 2];
        let mut launch = Duration::ZERO;
        if row.passed && !shape.is_empty() {
            let stopwatch = Stopwatch::new(gpu)?;
            let [a, b, c] = problem.operands();
            let mut queue = || engine.queue(gpu, a, b, c);
            // What happens once did so above.
            let (time, launching) = stopwatch.estimate(&mut queue)?;
            row.batched_by = Some(Batching::Launches);
            row.launch_seconds = launching.map(|it| it.as_secs_f64());
            launch = launching.unwrap_or_default();
            one = time;
            launches = [
                fitting(self.settings.sustained, one, MOST_LAUNCHES),
                fitting(self.settings.burst, one, MOST_IN_A_BURST),
            ];
        }
        Ok(Entrant {
            row,
            engine,
            one,
            launches,
            launch,
            sustained: Vec::new(),
            burst: Vec::new(),
            cold: Vec::new(),
            copies: [Vec::new(), Vec::new()],
            states: Vec::new(),
        })
    }

    /// Finds whether a shape's sustained batches are graphs, and how many products
    /// they have then.
    fn choose_batching<'gpu>(
        &self,
        gpu: &'gpu Gpu,
        problem: &mut Problem<'gpu>,
        entrants: &mut [Entrant<'_, 'gpu>],
    ) -> Result<(), Error> {
        let shortest = entrants.iter().map(|entrant| entrant.one).min();
        if !shortest.is_some_and(|it| self.settings.graphs.wanted(it)) {
            return Ok(());
        }
        let stopwatch = Stopwatch::new(gpu)?;
        let mut refusal = None;
        for entrant in &*entrants {
            let engine = &entrant.engine;
            let [a, b, c] = problem.operands();
            let mut queue = || engine.queue(gpu, a, b, c);
            let refused = match engine.prepare_for_graphs()? {
                Some(refused) => Some(refused),
                None => engine.done(gpu, stopwatch.refuses_graphs(&mut queue))?,
            };
            if let Some(reason) = refused {
                refusal = Some(format!("{}: {reason}", entrant.row.name()));
                break;
            }
        }
        if refusal.is_some() {
            // All or none, so that they stay comparable.
            for entrant in entrants {
                entrant.row.no_graph.clone_from(&refusal);
            }
            return Ok(());
        }
        for entrant in entrants {
            let _range = nvtx::range(&format!("graph {} {}", entrant.row.name(), problem.shape()));
            let engine = &entrant.engine;
            let [a, b, c] = problem.operands();
            let mut queue = || engine.queue(gpu, a, b, c);
            // Without waiting for launches, a batch may hold more.
            let several = fitting(SHORT * SEVERAL, entrant.one, SEVERAL.into());
            let time = stopwatch.graph_while(0, several, &mut queue, || ());
            let one = engine.done(gpu, time)?.div_f64(several as f64);
            let [graphs, each] = of_graphs(fitting(self.settings.sustained, one, MOST_LAUNCHES));
            entrant.launches[0] = graphs * each;
            entrant.row.batched_by = Some(Batching::Graph);
        }
        Ok(())
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
}
