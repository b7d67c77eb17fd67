//! Whole products: operands to the device, kernel, result back.
//!
//! Copies from page-locked (pinned) memory run at the bus's full speed and
//! without the CPU. Copies from ordinary, pageable memory pass through a pinned
//! buffer of the driver's, a piece at a time.

use crate::error::{During, Error};
use crate::{DeviceMatrix, Gpu, Matrix, Prepared};
use cust::memory::{AsyncCopyDestination, LockedBuffer};
use std::fmt;
use std::time::{Duration, Instant};

/// Which kind of host memory the operands lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMemory {
    /// Ordinary memory.
    Pageable,
    /// Page-locked memory.
    Pinned,
}

impl HostMemory {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Pageable, Self::Pinned];
}

impl fmt::Display for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pageable => "pageable",
            Self::Pinned => "pinned",
        })
    }
}

enum HostBuffer {
    Pageable(Vec<f32>),
    Pinned(LockedBuffer<f32>),
}

impl HostBuffer {
    fn new(gpu: &Gpu, memory: HostMemory, data: &[f32]) -> Result<Self, Error> {
        // The driver locks no empty buffer.
        Ok(if memory == HostMemory::Pinned && !data.is_empty() {
            Self::Pinned(gpu.pinned(data)?)
        } else {
            Self::Pageable(data.to_vec())
        })
    }

    fn data(&self) -> &[f32] {
        match self {
            Self::Pageable(data) => data,
            Self::Pinned(data) => data,
        }
    }

    fn data_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Pageable(data) => data,
            Self::Pinned(data) => data,
        }
    }
}

/// A product's operands in host memory, to be copied to a device and back.
pub struct Staging {
    a: HostBuffer,
    b: HostBuffer,
    c: HostBuffer,
}

impl Staging {
    /// Copies of `factors`, and room for their product.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn new(gpu: &Gpu, memory: HostMemory, factors: (&Matrix, &Matrix)) -> Result<Self, Error> {
        let c = vec![f32::NAN; factors.0.rows() * factors.1.columns()];
        Ok(Self {
            a: HostBuffer::new(gpu, memory, factors.0.data())?,
            b: HostBuffer::new(gpu, memory, factors.1.data())?,
            c: HostBuffer::new(gpu, memory, &c)?,
        })
    }

    /// Copies both factors in, queues the product and copies the result out,
    /// all on the GPU's own stream. The time is the host's, from before the
    /// first copy until the result is there.
    ///
    /// # Errors
    ///
    /// [`Error::MatrixShape`] where a device matrix has another size than its
    /// copy here; those of the product; the driver's.
    pub fn run<'gpu>(
        &mut self,
        gpu: &'gpu Gpu,
        device: [&mut DeviceMatrix<'gpu>; 3],
        product: Product<'_, 'gpu>,
    ) -> Result<Duration, Error> {
        let [a, b, c] = device;
        for (name, host, device) in [
            ("A", &self.a, &*a),
            ("B", &self.b, &*b),
            ("C", &self.c, &*c),
        ] {
            let found = host.data().len();
            if found != device.buffer().len() {
                return Err(Error::MatrixShape {
                    name,
                    expected: (device.rows(), device.columns()),
                    found: (1, found),
                });
            }
        }
        gpu.enter()?;
        let queued = Instant::now();
        let result = self.queue(gpu, [a, b, c], product);
        // Also after an error: no copy may outlive the borrow of its buffers.
        let waited = gpu.synchronize();
        result.and(waited)?;
        Ok(queued.elapsed())
    }

    fn queue<'gpu>(
        &mut self,
        gpu: &'gpu Gpu,
        [a, b, c]: [&mut DeviceMatrix<'gpu>; 3],
        product: Product<'_, 'gpu>,
    ) -> Result<(), Error> {
        let stream = gpu.stream();
        // SAFETY: `run` waits for the stream before it returns, and until then
        // the buffers are borrowed. `run` has compared the lengths.
        unsafe {
            a.buffer_mut()
                .async_copy_from(self.a.data_mut(), stream)
                .during("copying A to the device")?;
            b.buffer_mut()
                .async_copy_from(self.b.data_mut(), stream)
                .during("copying B to the device")?;
        }
        product(a, b, c)?;
        // SAFETY: as above.
        unsafe {
            c.buffer()
                .async_copy_to(self.c.data_mut(), stream)
                .during("copying C from the device")
        }
    }
}

/// Queues C = A·B on the GPU's own stream.
pub type Product<'a, 'gpu> = &'a mut dyn FnMut(
    &DeviceMatrix<'gpu>,
    &DeviceMatrix<'gpu>,
    &mut DeviceMatrix<'gpu>,
) -> Result<(), Error>;

/// A product with its copies.
pub struct EndToEnd<'a, 'gpu> {
    gpu: &'gpu Gpu,
    prepared: &'a Prepared<'gpu>,
    staging: Staging,
    a: &'a mut DeviceMatrix<'gpu>,
    b: &'a mut DeviceMatrix<'gpu>,
    c: &'a mut DeviceMatrix<'gpu>,
}

impl<'a, 'gpu> EndToEnd<'a, 'gpu> {
    /// A product of `factors` that passes through the `device` matrices A, B
    /// and C.
    ///
    /// # Errors
    ///
    /// [`Error::MatrixShape`] where a factor and its device matrix differ in
    /// shape, or the driver's.
    pub fn new(
        gpu: &'gpu Gpu,
        prepared: &'a Prepared<'gpu>,
        memory: HostMemory,
        factors: (&Matrix, &Matrix),
        device: [&'a mut DeviceMatrix<'gpu>; 3],
    ) -> Result<Self, Error> {
        let [a, b, c] = device;
        for (name, host, device) in [("A", factors.0, &*a), ("B", factors.1, &*b)] {
            let (expected, found) = (
                (device.rows(), device.columns()),
                (host.rows(), host.columns()),
            );
            if expected != found {
                return Err(Error::MatrixShape {
                    name,
                    expected,
                    found,
                });
            }
        }
        Ok(Self {
            gpu,
            prepared,
            staging: Staging::new(gpu, memory, factors)?,
            a,
            b,
            c,
        })
    }

    /// Copies both factors in, multiplies and copies the result out, all queued
    /// on one stream. The time is the host's, from before the first copy until
    /// the result is there.
    ///
    /// # Errors
    ///
    /// Those of the launch and the kernel, or the driver's.
    pub fn run(&mut self) -> Result<Duration, Error> {
        let (gpu, prepared) = (self.gpu, self.prepared);
        let device = [&mut *self.a, &mut *self.b, &mut *self.c];
        self.staging.run(gpu, device, &mut |a, b, c| {
            prepared.launch(gpu.stream(), a, b, c)
        })
    }

    /// The result of the last run; NaN before the first.
    ///
    /// # Errors
    ///
    /// None that can occur: C has as many elements as its shape says.
    pub fn result(&self) -> Result<Matrix, Error> {
        let c = self.staging.c.data().to_vec();
        Matrix::new(self.c.rows(), self.c.columns(), c)
    }
}
