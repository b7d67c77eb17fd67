//! Timing: CUDA events around batches of launches.
//!
//! Launches are asynchronous, so a host clock around them measures nothing, and
//! a synchronisation inside the timed loop measures the launch latency of small
//! sizes. Here two events enclose a batch, and the only wait comes after it. Where
//! products are shorter than their launches, the batch is of [graphs](crate::graph).
//! Programs and benchmarks all time through this module.

use crate::error::{During, Error};
use crate::graph::{Batching, Graph, Graphs, of_graphs};
use crate::{DeviceMatrix, Gpu, Prepared};
use cust::event::{Event, EventFlags};
use cust::memory::DeviceBuffer;
use std::time::{Duration, Instant};

/// Two events on a GPU's own stream, and the time between them.
///
/// What is timed is a closure that queues one product on that stream: a kernel
/// of ours, or a library's.
pub struct Stopwatch<'gpu> {
    gpu: &'gpu Gpu,
    start: Event,
    stop: Event,
}

/// Queues one product on a GPU's own stream, and returns at once.
pub type Queue<'a> = &'a mut dyn FnMut() -> Result<(), Error>;

impl<'gpu> Stopwatch<'gpu> {
    /// A stopwatch for what is queued on `gpu`'s own stream.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn new(gpu: &'gpu Gpu) -> Result<Self, Error> {
        gpu.enter()?;
        let event = || Event::new(EventFlags::DEFAULT).during("making an event");
        Ok(Self {
            gpu,
            start: event()?,
            stop: event()?,
        })
    }

    /// The time that `launches` calls of `queue` take back to back: from an
    /// event before the first to an event after the last.
    ///
    /// The L2 cache is warm: what fits stays there from one to the next.
    ///
    /// # Errors
    ///
    /// Those of the launches and of the kernel.
    pub fn batch(&self, launches: u64, queue: Queue) -> Result<Duration, Error> {
        self.batch_while(0, launches, queue, || ())
    }

    /// As [`batch`](Self::batch), after `lead_in` products that are queued
    /// before and not timed; `meanwhile` runs on the host once all is queued and
    /// before the wait, while the GPU works.
    ///
    /// # Errors
    ///
    /// Those of the launches and of the kernel.
    pub fn batch_while(
        &self,
        lead_in: u64,
        launches: u64,
        queue: Queue,
        meanwhile: impl FnOnce(),
    ) -> Result<Duration, Error> {
        for _ in 0..lead_in {
            queue()?;
        }
        self.record(&self.start)?;
        for _ in 0..launches {
            queue()?;
        }
        self.record(&self.stop)?;
        meanwhile();
        // Waits through the GPU, so that a failed kernel is named.
        self.gpu.synchronize()?;
        let milliseconds = self
            .stop
            .elapsed_time_f32(&self.start)
            .during("reading the time between two events")?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds) / 1e3))
    }

    /// As [`batch_while`](Self::batch_while), with the products in graphs, which
    /// are captured first and not timed. A batch is whole graphs, at least one of
    /// them before it; the time is that of `launches` products in proportion.
    ///
    /// # Errors
    ///
    /// As there; also where the driver makes no graph of them.
    pub fn graph_while(
        &self,
        lead_in: u64,
        launches: u64,
        queue: Queue,
        meanwhile: impl FnOnce(),
    ) -> Result<Duration, Error> {
        let [graphs, each] = of_graphs(launches);
        let graph = Graph::capture(self.gpu, each, queue)?;
        let mut queue = || {
            // SAFETY: `queue` borrows what the launches use until this function
            // returns, which it does after waiting; where it fails before, freeing
            // device memory waits.
            unsafe { graph.launch() }
        };
        let lead_in = lead_in.div_ceil(each).max(1);
        let time = self.batch_while(lead_in, graphs, &mut queue, meanwhile)?;
        Ok(time.mul_f64(launches as f64 / (graphs * each) as f64))
    }

    /// As [`batch_while`](Self::batch_while) or
    /// [`graph_while`](Self::graph_while).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn batch_by(
        &self,
        batching: Batching,
        [lead_in, launches]: [u64; 2],
        queue: Queue,
        meanwhile: impl FnOnce(),
    ) -> Result<Duration, Error> {
        match batching {
            Batching::Launches => self.batch_while(lead_in, launches, queue, meanwhile),
            Batching::Graph => self.graph_while(lead_in, launches, queue, meanwhile),
        }
    }

    /// The time of one product in a batch, roughly, and of its launch on the host,
    /// where that was looked at: not where a product takes a millisecond or more.
    ///
    /// # Errors
    ///
    /// Those of the launches and of the kernel.
    pub fn estimate(&self, queue: Queue) -> Result<(Duration, Option<Duration>), Error> {
        const SEVERAL: u32 = 20;
        let one = self.batch(1, queue)?;
        if one >= Duration::from_millis(1) {
            return Ok((one, None));
        }
        let begun = Instant::now();
        let mut queued = Duration::ZERO;
        let several = self.batch_while(0, SEVERAL.into(), queue, || {
            queued = begun.elapsed();
        })?;
        Ok((several / SEVERAL, Some(queued / SEVERAL)))
    }

    /// Why no graph can be made of what `queue` launches; none where one can.
    ///
    /// # Errors
    ///
    /// [`Error::Execution`] where a kernel failed before.
    pub fn refuses_graphs(&self, queue: Queue) -> Result<Option<String>, Error> {
        match Graph::capture(self.gpu, 1, queue) {
            Ok(_) => Ok(None),
            Err(error @ Error::Execution { .. }) => Err(error),
            Err(error) => Ok(Some(error.to_string())),
        }
    }

    /// The time of a batch that was queued while the GPU was busy, so that no
    /// launch is waited for however short the products are: first `eviction` is
    /// overwritten as often as it takes to queue the rest, at `launch` a
    /// product.
    ///
    /// Without a `lead_in` the products find nothing of their operands in the L2
    /// cache; with one, what fits. Batches of up to some hundred fit the
    /// driver's queue.
    ///
    /// # Errors
    ///
    /// Those of the launches and of the kernel.
    pub fn queued_ahead(
        &self,
        eviction: &mut Eviction,
        launch: Duration,
        [lead_in, launches]: [u64; 2],
        queue: Queue,
    ) -> Result<Duration, Error> {
        const MOST_OVERWRITES: u32 = 200;
        // The first launch after a rest was seen to take 100 µs on an H200's host.
        const FIRST: f64 = 150e-6;
        // Twice what is expected of the others.
        let needed = FIRST + 2.0 * launch.as_secs_f64() * (lead_in + launches) as f64;
        let overwrites = (needed / eviction.seconds).min(f64::from(MOST_OVERWRITES)) as u32 + 1;
        for _ in 0..overwrites {
            eviction.overwrite(self.gpu)?;
        }
        self.batch_while(lead_in, launches, queue, || ())
    }

    fn record(&self, event: &Event) -> Result<(), Error> {
        event.record(self.gpu.stream()).during("recording an event")
    }
}

/// A product that is launched again and again.
pub struct Repeated<'a, 'gpu> {
    gpu: &'gpu Gpu,
    prepared: &'a Prepared<'gpu>,
    a: &'a DeviceMatrix<'gpu>,
    b: &'a DeviceMatrix<'gpu>,
    c: &'a mut DeviceMatrix<'gpu>,
    stopwatch: Stopwatch<'gpu>,
    batching: Batching,
}

impl<'a, 'gpu> Repeated<'a, 'gpu> {
    /// The product to be timed.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn new(
        gpu: &'gpu Gpu,
        prepared: &'a Prepared<'gpu>,
        a: &'a DeviceMatrix<'gpu>,
        b: &'a DeviceMatrix<'gpu>,
        c: &'a mut DeviceMatrix<'gpu>,
    ) -> Result<Self, Error> {
        Ok(Self {
            gpu,
            prepared,
            a,
            b,
            c,
            stopwatch: Stopwatch::new(gpu)?,
            batching: Batching::Launches,
        })
    }

    /// The same, its batches made in this way. Unless this or
    /// [`choose`](Self::choose) says otherwise, products are launched one by one.
    #[must_use]
    pub fn batched_by(mut self, batching: Batching) -> Self {
        self.batching = batching;
        self
    }

    /// Makes the batches in the way that `graphs` asks for, which a few products
    /// tell; one by one where the driver makes no graph of them.
    ///
    /// # Errors
    ///
    /// Those of the launches and of the kernel.
    pub fn choose(&mut self, graphs: Graphs) -> Result<Batching, Error> {
        let stream = self.gpu.stream();
        let mut queue = || self.prepared.launch(stream, self.a, self.b, self.c);
        let short = match graphs {
            Graphs::On => true,
            Graphs::Off => false,
            Graphs::Auto => graphs.wanted(self.stopwatch.estimate(&mut queue)?.0),
        };
        self.batching = if short && self.stopwatch.refuses_graphs(&mut queue)?.is_none() {
            Batching::Graph
        } else {
            Batching::Launches
        };
        Ok(self.batching)
    }

    /// Launches once and waits, so that nothing that happens only once falls
    /// into the timed batch.
    ///
    /// # Errors
    ///
    /// Those of the launch and of the kernel.
    pub fn warm_up(&mut self) -> Result<(), Error> {
        self.prepared
            .launch(self.gpu.stream(), self.a, self.b, self.c)?;
        self.gpu.synchronize()
    }

    /// The time that `launches` launches take back to back: from an event
    /// before the first to an event after the last.
    ///
    /// The L2 cache is warm: what fits stays there from one launch to the next.
    ///
    /// # Errors
    ///
    /// Those of the launches and of the kernel.
    pub fn batch(&mut self, launches: u64) -> Result<Duration, Error> {
        let stream = self.gpu.stream();
        let mut queue = || self.prepared.launch(stream, self.a, self.b, self.c);
        self.stopwatch
            .batch_by(self.batching, [0, launches], &mut queue, || ())
    }

    /// The time of one launch that finds nothing of its operands in the L2
    /// cache: `eviction` is overwritten first.
    ///
    /// # Errors
    ///
    /// Those of the launch and of the kernel.
    pub fn cold(&mut self, eviction: &mut Eviction) -> Result<Duration, Error> {
        let stream = self.gpu.stream();
        let mut queue = || self.prepared.launch(stream, self.a, self.b, self.c);
        self.stopwatch
            .queued_ahead(eviction, LAUNCH, [0, 1], &mut queue)
    }
}

/// A kernel's launch on the host, generously.
const LAUNCH: Duration = Duration::from_micros(10);

/// Memory larger than the L2 cache, whose overwriting evicts everything else.
pub struct Eviction {
    buffer: DeviceBuffer<u8>,
    /// What overwriting it takes at least.
    seconds: f64,
}

impl Eviction {
    /// Memory for a GPU's cache: twice its size.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] where it does not fit, or the driver's.
    pub fn new(gpu: &Gpu) -> Result<Self, Error> {
        let bytes = 2 * gpu.info().l2_bytes;
        Ok(Self {
            buffer: gpu.allocate("a buffer to evict the L2 cache", bytes)?,
            // A device that tells no bandwidth or cache has it short.
            seconds: (bytes as f64 / gpu.info().peak_bandwidth().max(1.0)).max(1e-6),
        })
    }

    /// Queues its overwriting on the GPU's own stream.
    fn overwrite(&mut self, gpu: &Gpu) -> Result<(), Error> {
        // SAFETY: the buffer is used by nothing else, and dropping it waits.
        unsafe { self.buffer.set_8_async(0, gpu.stream()) }.during("overwriting the L2 cache")
    }
}

/// The middle value; of an even number, the mean of the middle two. Zero of
/// none.
pub fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// The spread of samples relative to their median: (p75 − p25) / median. Zero
/// of fewer than two.
///
/// The quartiles, not the standard deviation: one sample that something else on
/// the machine disturbed shall not make a figure look unsteady that is not.
/// For normally distributed samples it is 1.35 relative standard deviations.
pub fn noise(samples: &[f64]) -> f64 {
    let middle = median(samples);
    if middle > 0.0 {
        (quantile(samples, 0.75) - quantile(samples, 0.25)) / middle
    } else {
        0.0
    }
}

/// The value below which a share `q` of the samples lies, interpolated between
/// neighbours (R's type 7, numpy's default).
fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let position = q * last as f64;
    let below = position as usize;
    let above = sorted[(below + 1).min(last)];
    sorted[below] + (above - sorted[below]) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::{median, noise};

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn noise_is_the_spread_of_the_middle_half() {
        assert_eq!(noise(&[]), 0.0);
        assert_eq!(noise(&[3.0]), 0.0);
        assert_eq!(noise(&[0.0, 0.0]), 0.0);
        assert_eq!(noise(&[10.0, 10.0, 10.0, 10.0, 99.0]), 0.0);
        assert_eq!(noise(&[9.0, 10.0, 11.0, 8.0, 12.0]), 0.2);
        assert!(noise(&[1.0, 3.0]) > 0.0);
    }
}
