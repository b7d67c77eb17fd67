//! Timing: CUDA events around batches of launches.
//!
//! Launches are asynchronous, so a host clock around them measures nothing, and
//! a synchronisation inside the timed loop measures the launch latency of small
//! sizes. Here two events enclose a batch, and the only wait comes after it.
//! Programs and benchmarks all time through this module.

use crate::error::{During, Error};
use crate::{DeviceMatrix, Gpu, Prepared};
use cust::event::{Event, EventFlags};
use cust::memory::DeviceBuffer;
use std::time::Duration;

/// A product that is launched again and again.
pub struct Repeated<'a, 'gpu> {
    gpu: &'gpu Gpu,
    prepared: &'a Prepared<'gpu>,
    a: &'a DeviceMatrix<'gpu>,
    b: &'a DeviceMatrix<'gpu>,
    c: &'a mut DeviceMatrix<'gpu>,
    start: Event,
    stop: Event,
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
        gpu.enter()?;
        let event = || Event::new(EventFlags::DEFAULT).during("making an event");
        Ok(Self {
            gpu,
            prepared,
            a,
            b,
            c,
            start: event()?,
            stop: event()?,
        })
    }

    /// Launches once and waits, so that nothing that happens only once falls
    /// into the timed batch.
    ///
    /// # Errors
    ///
    /// Those of the launch and of the kernel.
    pub fn warm_up(&mut self) -> Result<(), Error> {
        self.launch()?;
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
        self.record_start()?;
        for _ in 0..launches {
            self.launch()?;
        }
        self.elapsed()
    }

    /// The time of one launch that finds nothing of its operands in the L2
    /// cache: `eviction` is overwritten first.
    ///
    /// # Errors
    ///
    /// Those of the launch and of the kernel.
    pub fn cold(&mut self, eviction: &mut Eviction) -> Result<Duration, Error> {
        // SAFETY: the buffer is used by nothing else, and dropping it waits.
        unsafe { eviction.buffer.set_8_async(0, self.gpu.stream()) }
            .during("overwriting the L2 cache")?;
        self.batch(1)
    }

    fn launch(&mut self) -> Result<(), Error> {
        self.prepared
            .launch(self.gpu.stream(), self.a, self.b, self.c)
    }

    fn record_start(&self) -> Result<(), Error> {
        self.start
            .record(self.gpu.stream())
            .during("recording an event")
    }

    fn elapsed(&self) -> Result<Duration, Error> {
        self.stop
            .record(self.gpu.stream())
            .during("recording an event")?;
        // Waits through the GPU, so that a failed kernel is named.
        self.gpu.synchronize()?;
        let milliseconds = self
            .stop
            .elapsed_time_f32(&self.start)
            .during("reading the time between two events")?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds) / 1e3))
    }
}

/// Memory larger than the L2 cache, whose overwriting evicts everything else.
pub struct Eviction {
    buffer: DeviceBuffer<u8>,
}

impl Eviction {
    /// Memory for a GPU's cache: twice its size.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] where it does not fit, or the driver's.
    pub fn new(gpu: &Gpu) -> Result<Self, Error> {
        Ok(Self {
            buffer: gpu.allocate("a buffer to evict the L2 cache", 2 * gpu.info().l2_bytes)?,
        })
    }
}

/// The middle value; of an even number, the mean of the middle two. Zero of
/// none.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
