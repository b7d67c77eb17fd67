//! A GPU: its properties, its memory, its kernels.

use crate::error::{During, Error, code, remedy};
use crate::launch::{self, Addresses, Loaded, Prepared};
use crate::matrix::{Matrix, product_shape};
use crate::ptx::{self, Choice, CudaVersion, Ptx};
use cust::context::{Context, CurrentContext};
use cust::device::{Device, DeviceAttribute};
use cust::error::CudaError;
use cust::memory::{CopyDestination, DeviceBuffer, DeviceCopy, LockedBuffer};
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use kernels::gemm::{Shape, Variant};
use kernels::launch::{Backend, ComputeCapability, DeviceLimits, Target};
use std::cell::RefCell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Set to 1, this environment variable makes every launch wait for its kernel,
/// so that a failure names the kernel that failed.
pub const SYNC_VARIABLE: &str = "MATMUL_SYNC";

/// What the driver says of a device.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its number.
    pub ordinal: u32,
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// What plans depend on.
    pub limits: DeviceLimits,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// L2 cache, in bytes.
    pub l2_bytes: u64,
    /// The highest clock of its multiprocessors, in kHz.
    pub clock_khz: u32,
    /// The highest clock of its memory, in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus, in bits.
    pub memory_bus_bits: u32,
    /// Whether memory is protected by ECC.
    pub ecc: bool,
    /// Its identifier, as NVIDIA's tools write it: `GPU-` and a UUID.
    pub uuid: String,
}

impl DeviceInfo {
    fn read(ordinal: u32, device: Device, driver: CudaVersion) -> Result<Self, Error> {
        let mut info = Self::read_properties(ordinal, device)?;
        let capability = info.limits.compute_capability;
        if let Some(choice) = ptx::choose(capability, driver, Backend::Nvptx) {
            info.limits.code = choice.ptx.target();
        }
        Ok(info)
    }

    fn read_properties(ordinal: u32, device: Device) -> Result<Self, Error> {
        let name = device.name().during("reading a device's name")?;
        let attribute = |attribute| -> Result<u32, Error> {
            let value = device
                .get_attribute(attribute)
                .during(format!("reading a property of {name}"))?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        Ok(Self {
            ordinal,
            limits: DeviceLimits {
                compute_capability: ComputeCapability::new(
                    attribute(DeviceAttribute::ComputeCapabilityMajor)?,
                    attribute(DeviceAttribute::ComputeCapabilityMinor)?,
                ),
                code: Target::BASELINE,
                multiprocessors: attribute(DeviceAttribute::MultiprocessorCount)?,
                max_threads_per_block: attribute(DeviceAttribute::MaxThreadsPerBlock)?,
                max_shared_bytes_per_block: launch::max_shared_bytes(device)
                    .during(format!("reading a property of {name}"))?,
                active_clusters: Vec::new(),
            },
            memory_bytes: device.total_memory().during("reading a device's memory")? as u64,
            l2_bytes: attribute(DeviceAttribute::L2CacheSize)?.into(),
            clock_khz: attribute(DeviceAttribute::ClockRate)?,
            memory_clock_khz: attribute(DeviceAttribute::MemoryClockRate)?,
            memory_bus_bits: attribute(DeviceAttribute::GlobalMemoryBusWidth)?,
            ecc: attribute(DeviceAttribute::EccEnabled)? != 0,
            uuid: uuid(device).during(format!("reading a property of {name}"))?,
            name,
        })
    }

    /// The rate of float32 fused multiply-adds at the highest clock, in FLOP/s.
    pub fn peak_f32_flops(&self) -> f64 {
        crate::devices::peak_f32_flops(&self.limits, f64::from(self.clock_khz) * 1e3)
    }

    /// Bytes that memory moves in a second at its highest clock: two transfers a
    /// cycle, over the whole bus.
    pub fn peak_bandwidth(&self) -> f64 {
        2.0 * f64::from(self.memory_clock_khz) * 1e3 * f64::from(self.memory_bus_bits) / 8.0
    }
}

fn uuid(device: Device) -> Result<String, CudaError> {
    let mut uuid = cust::sys::CUuuid { bytes: [0; 16] };
    // SAFETY: writes 16 bytes to the address it is given.
    let result = unsafe { cust::sys::cuDeviceGetUuid(&mut uuid, device.as_raw()) };
    launch::success(result)?;
    let hex: String = uuid
        .bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let groups = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    Ok(format!("GPU-{}", groups.join("-")))
}

/// The CUDA version that the driver is for.
///
/// # Errors
///
/// [`Error::NoDriver`] where none could be loaded.
pub fn driver_version() -> Result<CudaVersion, Error> {
    load_driver()?;
    let mut version = 0;
    // SAFETY: writes one number to the address it is given.
    unsafe { cust::sys::cuDriverGetVersion(&mut version) };
    Ok(CudaVersion::from_driver(version))
}

/// The devices that the driver sees.
///
/// # Errors
///
/// [`Error::NoDriver`] where no driver could be loaded, [`Error::NoDevice`]
/// where it sees none.
pub fn devices() -> Result<Vec<DeviceInfo>, Error> {
    initialise()?;
    let driver = driver_version()?;
    let count = Device::num_devices().during("counting the devices")?;
    (0..count)
        .map(|ordinal| {
            let device = Device::get_device(ordinal).during("opening a device")?;
            DeviceInfo::read(ordinal, device, driver)
        })
        .collect()
}

fn load_driver() -> Result<&'static find_cuda_helper::Driver, Error> {
    // The first name tried says it; `matmul doctor` shows them all.
    find_cuda_helper::driver().map_err(|error| Error::NoDriver {
        reason: error
            .attempts()
            .first()
            .map_or_else(|| error.to_string(), ToString::to_string),
    })
}

/// A function of the loaded driver that cust's bindings lack, or none where the
/// driver lacks it too.
///
/// # Errors
///
/// [`Error::NoDriver`] where none is loaded.
pub(crate) fn driver_function(name: &str) -> Result<Option<NonNull<c_void>>, Error> {
    Ok(load_driver()?.function(name))
}

fn initialise() -> Result<(), Error> {
    load_driver()?;
    let no_device = |reason: String| {
        let reason = match std::env::var_os("CUDA_VISIBLE_DEVICES") {
            Some(value) => format!(
                "{reason} (CUDA_VISIBLE_DEVICES is set to '{}')",
                value.display()
            ),
            None => reason,
        };
        Err(Error::NoDevice { reason })
    };
    match cust::init(cust::CudaFlags::empty()) {
        Ok(()) => {}
        Err(CudaError::NoDevice) => return no_device("the driver sees none".into()),
        // A driver library without its kernel module, or with another version
        // of it, fails here, in ways that depend on its version.
        Err(error) => {
            let code = code(error);
            let remedy = remedy(code).map_or_else(String::new, |remedy| format!(". {remedy}"));
            return no_device(format!("the driver does not start: {code}{remedy}"));
        }
    }
    match Device::num_devices().during("counting the devices")? {
        0 => no_device("the driver sees none".into()),
        _ => Ok(()),
    }
}

/// A GPU with the kernels loaded on it.
///
/// Stays on the thread that made it.
pub struct Gpu {
    // Dropped in this order: what lives in the context before the context.
    stream: Stream,
    module: Module,
    context: Context,
    info: DeviceInfo,
    choice: Choice,
    sync_each_launch: bool,
    /// Kernels launched since the last synchronisation, for error messages.
    pending: RefCell<Vec<&'static str>>,
}

impl Gpu {
    /// Opens device `ordinal` and loads the best PTX that it and its driver
    /// take.
    ///
    /// # Errors
    ///
    /// - [`Error::NoDriver`], [`Error::NoDevice`], [`Error::NoSuchDevice`].
    /// - [`Error::DeviceTooOld`] or [`Error::PtxTooNew`] where the device or
    ///   the driver takes none.
    pub fn new(ordinal: u32) -> Result<Self, Error> {
        Self::with_backend(ordinal, Backend::Nvptx)
    }

    /// Opens device `ordinal` and loads the best PTX of a backend that it and
    /// its driver take.
    ///
    /// # Errors
    ///
    /// As [`Gpu::new`]; [`Error::NoPtx`] where the build embedded none of that
    /// backend.
    pub fn with_backend(ordinal: u32, backend: Backend) -> Result<Self, Error> {
        if ptx::of(backend).next().is_none() {
            return Err(Error::NoPtx { backend });
        }
        Self::open(ordinal, backend, |device, driver| {
            ptx::choose(device, driver, backend)
        })
    }

    /// Opens device `ordinal` and loads the PTX that `choose` picks for its
    /// compute capability.
    ///
    /// # Errors
    ///
    /// As [`Gpu::new`]; [`Error::DeviceTooOld`] where `choose` picks none,
    /// [`Error::PtxTooNew`] where the driver does not take what it picks.
    pub fn with_ptx(
        ordinal: u32,
        choose: impl FnOnce(ComputeCapability) -> Option<Ptx>,
    ) -> Result<Self, Error> {
        Self::open(ordinal, Backend::Nvptx, |device, _| {
            let ptx = choose(device)?;
            Some(Choice { ptx, too_new: None })
        })
    }

    /// `backend` is the one whose PTX was looked at, for the message where
    /// `choose` picks none.
    fn open(
        ordinal: u32,
        backend: Backend,
        choose: impl FnOnce(ComputeCapability, CudaVersion) -> Option<Choice>,
    ) -> Result<Self, Error> {
        let mut devices = devices()?;
        if ordinal as usize >= devices.len() {
            return Err(Error::NoSuchDevice {
                asked: ordinal,
                devices: devices.into_iter().map(|device| device.name).collect(),
            });
        }
        let mut info = devices.swap_remove(ordinal as usize);
        let capability = info.limits.compute_capability;
        let driver = driver_version()?;
        let too_new = |ptx: Ptx| Error::PtxTooNew {
            variant: None,
            ptx: ptx.version(),
            driver,
        };
        let Some(choice) = choose(capability, driver) else {
            // What a driver would have to take at least.
            let oldest = ptx::of(backend)
                .filter(|ptx| ptx.runs_on(capability) && !ptx.is_taken_by(driver))
                .min_by_key(Ptx::version);
            return Err(match oldest {
                Some(ptx) => too_new(ptx),
                None => Error::DeviceTooOld {
                    device: info.name,
                    found: capability,
                    needed: ptx::oldest(backend),
                },
            });
        };
        let ptx = choice.ptx;
        info.limits.code = ptx.target();
        if !ptx.is_taken_by(driver) {
            return Err(too_new(ptx));
        }
        let opening = format!("opening {}", info.name);
        let device = Device::get_device(ordinal).during(opening.clone())?;
        let context = Context::new(device).during(opening.clone())?;
        let module = Module::from_ptx(ptx.text, &[]).during(format!(
            "loading {} {} kernels, PTX {}, with a driver for CUDA {driver}",
            match ptx.backend {
                Backend::Nvptx => "the",
                Backend::RustCuda => "rust-cuda's",
            },
            ptx.architecture,
            ptx.version()
        ))?;
        info.limits.active_clusters = launch::active_clusters(&module, info.limits.code)?;
        let stream = Stream::new(StreamFlags::NON_BLOCKING, None).during(opening)?;
        Ok(Self {
            stream,
            module,
            context,
            info,
            choice,
            sync_each_launch: std::env::var(SYNC_VARIABLE).is_ok_and(|value| value == "1"),
            pending: RefCell::new(Vec::new()),
        })
    }

    /// What the driver says of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The PTX that was loaded.
    pub fn ptx(&self) -> Ptx {
        self.choice.ptx
    }

    /// The PTX that was loaded, and why no better one was.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// The variants that the device runs, and whose kernels are among those
    /// loaded, in the table's order.
    pub fn variants(&self) -> impl Iterator<Item = &'static Variant> {
        let backend = self.choice.ptx.backend;
        kernels::gemm::all_on(&self.info.limits).filter(move |variant| variant.is_built_by(backend))
    }

    /// Checks that the device runs a variant, and that its kernels are among
    /// those loaded. A shape may still be beyond it.
    ///
    /// # Errors
    ///
    /// [`Error::NotBuiltBy`], [`Error::PtxTooNew`] where a newer driver would
    /// help, [`Error::Plan`] where none would.
    pub fn check_variant(&self, variant: &Variant) -> Result<(), Error> {
        let backend = self.choice.ptx.backend;
        if !variant.is_built_by(backend) {
            return Err(Error::NotBuiltBy {
                variant: variant.name,
                backend,
            });
        }
        let limits = &self.info.limits;
        if variant.runs_on(limits) {
            return Ok(());
        }
        if let Some(ptx) = self.choice.too_new
            && limits.compute_capability >= variant.min_compute_capability
            && ptx.target().has(variant.needs)
        {
            return Err(Error::PtxTooNew {
                variant: Some(variant.name),
                ptx: ptx.version(),
                driver: driver_version()?,
            });
        }
        // Says which of the two it is.
        variant.plan(Shape::new(1, 1, 1)?, limits)?;
        Ok(())
    }

    /// The stream that this GPU's own operations use.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// A stream of the caller's own: what is launched on it runs beside what
    /// other streams hold.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn new_stream(&self) -> Result<Stream, Error> {
        self.enter()?;
        Stream::new(StreamFlags::NON_BLOCKING, None).during("making a stream")
    }

    pub(crate) fn module(&self) -> &Module {
        &self.module
    }

    /// Makes this GPU the one that the thread's driver calls go to.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        CurrentContext::set_current(&self.context)
            .during(format!("switching to {}", self.info.name))
    }

    /// Free device memory, in bytes.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn free_bytes(&self) -> Result<u64, Error> {
        self.enter()?;
        let (free, _) = cust::memory::mem_get_info().during("asking for free memory")?;
        Ok(free as u64)
    }

    /// Checks that `needed` bytes of device memory are free.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] for `what` where they are not, or the driver's.
    pub(crate) fn check_free(&self, what: &str, needed: u64) -> Result<(), Error> {
        let free = self.free_bytes()?;
        if needed > free {
            return Err(Error::OutOfMemory {
                what: what.into(),
                needed,
                free,
            });
        }
        Ok(())
    }

    /// Device memory for `elements` elements, its content undefined.
    pub(crate) fn allocate<T: DeviceCopy>(
        &self,
        what: &str,
        elements: u64,
    ) -> Result<DeviceBuffer<T>, Error> {
        self.enter()?;
        let needed = elements.saturating_mul(size_of::<T>() as u64);
        let out_of_memory = || -> Result<Error, Error> {
            Ok(Error::OutOfMemory {
                what: what.into(),
                needed,
                free: self.free_bytes()?,
            })
        };
        let Ok(count) = usize::try_from(elements) else {
            return Err(out_of_memory()?);
        };
        // SAFETY: an element type is plain data, and every caller writes the
        // buffer, or has a kernel write it, before reading it.
        match unsafe { DeviceBuffer::uninitialized(count) } {
            Ok(buffer) => Ok(buffer),
            Err(CudaError::OutOfMemory | CudaError::InvalidMemoryAllocation) => {
                Err(out_of_memory()?)
            }
            Err(error) => Err(error).during(format!("allocating {what}")),
        }
    }

    /// A matrix in device memory, its elements NaN until something writes them.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] where it does not fit, or the driver's.
    pub fn poisoned(&self, rows: usize, columns: usize) -> Result<DeviceMatrix<'_>, Error> {
        let elements = (rows as u64).saturating_mul(columns as u64);
        let buffer = self.allocate(&format!("a matrix of {rows}×{columns}"), elements)?;
        let mut matrix = DeviceMatrix {
            buffer,
            rows,
            columns,
            gpu: PhantomData,
        };
        self.poison(&mut matrix)?;
        Ok(matrix)
    }

    /// Overwrites a matrix with NaN, so that an element that a kernel fails to
    /// write shows.
    ///
    /// # Errors
    ///
    /// The driver's, or a pending kernel's.
    pub fn poison(&self, matrix: &mut DeviceMatrix) -> Result<(), Error> {
        self.fill(matrix, f32::NAN)
    }

    /// Overwrites every element of a matrix with `value`.
    ///
    /// # Errors
    ///
    /// The driver's, or a pending kernel's.
    pub fn fill(&self, matrix: &mut DeviceMatrix, value: f32) -> Result<(), Error> {
        self.synchronize()?;
        if !matrix.buffer.is_empty() {
            matrix
                .buffer
                .set_32(value.to_bits())
                .during(format!("filling a matrix with {value}"))?;
        }
        self.synchronize()
    }

    /// Copies a matrix to the device.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] where it does not fit, or the driver's.
    pub fn upload(&self, matrix: &Matrix) -> Result<DeviceMatrix<'_>, Error> {
        let (rows, columns) = (matrix.rows(), matrix.columns());
        let what = format!("a matrix of {rows}×{columns}");
        let mut buffer = self.allocate(&what, matrix.data().len() as u64)?;
        if !buffer.is_empty() {
            buffer
                .copy_from(matrix.data())
                .during(format!("copying {what} to the device"))?;
            // The driver may return once it has staged pageable memory, and
            // streams of our kind do not wait for its copy by themselves.
            self.synchronize()?;
        }
        Ok(DeviceMatrix {
            buffer,
            rows,
            columns,
            gpu: PhantomData,
        })
    }

    /// A matrix in a buffer of the caller's own, which [`DeviceMatrix::into_buffer`]
    /// gives back.
    ///
    /// # Errors
    ///
    /// [`Error::DataLength`] where the buffer does not have `rows` · `columns`
    /// elements.
    pub fn adopt(
        &self,
        buffer: DeviceBuffer<f32>,
        rows: usize,
        columns: usize,
    ) -> Result<DeviceMatrix<'_>, Error> {
        if rows.checked_mul(columns) != Some(buffer.len()) {
            return Err(Error::DataLength {
                rows,
                columns,
                found: buffer.len(),
            });
        }
        Ok(DeviceMatrix {
            buffer,
            rows,
            columns,
            gpu: PhantomData,
        })
    }

    /// Copies a matrix from the device, after all launches so far.
    ///
    /// # Errors
    ///
    /// A pending kernel's failure, or the driver's.
    pub fn download(&self, matrix: &DeviceMatrix) -> Result<Matrix, Error> {
        let mut data = vec![0.0; matrix.buffer.len()];
        self.download_buffer(&matrix.buffer, &mut data)?;
        Matrix::new(matrix.rows, matrix.columns, data)
    }

    pub(crate) fn download_buffer<T: DeviceCopy>(
        &self,
        buffer: &DeviceBuffer<T>,
        data: &mut [T],
    ) -> Result<(), Error> {
        self.synchronize()?;
        if !data.is_empty() {
            buffer
                .copy_to(data)
                .during("copying a result from the device")?;
        }
        Ok(())
    }

    /// Page-locked host memory for `elements` elements: copies to and from it
    /// run at the bus's full speed and beside other work.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn pinned(&self, data: &[f32]) -> Result<LockedBuffer<f32>, Error> {
        self.enter()?;
        LockedBuffer::from_slice(data).during(format!(
            "locking {} of host memory",
            crate::error::bytes(size_of_val(data) as u64)
        ))
    }

    /// Waits for everything launched so far, on all streams.
    ///
    /// # Errors
    ///
    /// [`Error::Execution`] where a kernel failed; it names those launched
    /// since the last synchronisation.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.enter()?;
        let result = CurrentContext::synchronize();
        let kernels = self.pending.take();
        result.map_err(|error| Error::Execution {
            kernels,
            source: code(error),
        })
    }

    /// Whether [`SYNC_VARIABLE`] asked for a wait after each launch.
    pub(crate) fn syncs_each_launch(&self) -> bool {
        self.sync_each_launch
    }

    /// Remembers a kernel for the message of a later failure.
    pub(crate) fn launched(&self, kernel: &'static str) -> Result<(), Error> {
        // A batch launches the same kernel hundreds of times.
        let mut pending = self.pending.borrow_mut();
        if pending.last() != Some(&kernel) {
            pending.push(kernel);
        }
        drop(pending);
        if self.sync_each_launch {
            self.synchronize()?;
        }
        Ok(())
    }

    /// Makes a variant ready for products of one shape.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownVariant`], or as [`Gpu::prepare_variant`].
    pub fn prepare(&self, variant: &str, shape: Shape) -> Result<Prepared<'_>, Error> {
        self.prepare_variant(find(variant)?, shape)
    }

    /// Makes a variant ready for products of one shape.
    ///
    /// # Errors
    ///
    /// [`Error::NotBuiltBy`] where the variant's kernels are not among those
    /// loaded, [`Error::Plan`] where the variant cannot compute it on this
    /// device, [`Error::OutOfMemory`] where its workspace does not fit.
    pub fn prepare_variant(&self, variant: &Variant, shape: Shape) -> Result<Prepared<'_>, Error> {
        let backend = self.choice.ptx.backend;
        if !variant.is_built_by(backend) {
            return Err(Error::NotBuiltBy {
                variant: variant.name,
                backend,
            });
        }
        Prepared::new(self, shape, variant.plan(shape, &self.info.limits)?)
    }

    /// Multiplies two matrices: copies them to the device, runs a variant, and
    /// copies the result back.
    ///
    /// # Errors
    ///
    /// - [`Error::UnknownVariant`], [`Error::InnerDimensions`],
    ///   [`Error::Shape`] where the request is wrong.
    /// - [`Error::Plan`], [`Error::OutOfMemory`] where the device cannot do it.
    /// - The driver's.
    pub fn multiply(&self, variant: &str, a: &Matrix, b: &Matrix) -> Result<Matrix, Error> {
        let shape = product_shape((a.rows(), a.columns()), (b.rows(), b.columns()))?;
        let prepared = self.prepare(variant, shape)?;
        let (a, b) = (self.upload(a)?, self.upload(b)?);
        let mut c = self.poisoned(a.rows(), b.columns())?;
        prepared.launch(&self.stream, &a, &b, &mut c)?;
        self.download(&c)
    }

    /// The sum of two vectors, by the kernel that everyone reads first.
    ///
    /// # Errors
    ///
    /// [`Error::MatrixShape`] where the vectors are not equally long,
    /// [`Error::OutOfMemory`] where they do not fit, or the driver's.
    pub fn add(&self, a: &[f32], b: &[f32]) -> Result<Vec<f32>, Error> {
        if a.len() != b.len() {
            return Err(Error::MatrixShape {
                name: "B",
                expected: (1, a.len()),
                found: (1, b.len()),
            });
        }
        let shape = Shape::new(1, a.len() as u64, 1)?;
        let plan = kernels::vecadd::plan(shape.n());
        self.info.limits.check(&plan)?;
        let loaded = Loaded::new(self, plan)?;
        let row = |data: &[f32]| Matrix::new(1, data.len(), data.to_vec());
        let (a, b) = (self.upload(&row(a)?)?, self.upload(&row(b)?)?);
        let c = self.poisoned(1, a.columns())?;
        let addresses = Addresses {
            a: a.address(),
            b: b.address(),
            c: c.address(),
        };
        // SAFETY: all three have as many elements as the plan was made for, and
        // live until the download below has waited for the kernel.
        unsafe { loaded.launch(&self.stream, addresses)? };
        Ok(self.download(&c)?.into_data())
    }
}

/// The variant of that name.
///
/// # Errors
///
/// [`Error::UnknownVariant`], which lists the names.
pub fn find(variant: &str) -> Result<&'static Variant, Error> {
    kernels::gemm::find(variant).ok_or_else(|| Error::UnknownVariant {
        name: variant.into(),
    })
}

/// A row-major matrix of `f32` in device memory.
///
/// It belongs to the [`Gpu`] that made it and cannot outlive it.
pub struct DeviceMatrix<'gpu> {
    buffer: DeviceBuffer<f32>,
    rows: usize,
    columns: usize,
    gpu: PhantomData<&'gpu Gpu>,
}

impl DeviceMatrix<'_> {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The elements, row after row.
    pub fn buffer(&self) -> &DeviceBuffer<f32> {
        &self.buffer
    }

    /// The elements, row after row.
    pub fn buffer_mut(&mut self) -> &mut DeviceBuffer<f32> {
        &mut self.buffer
    }

    /// The buffer, without the matrix.
    pub fn into_buffer(self) -> DeviceBuffer<f32> {
        self.buffer
    }

    /// The address of the first element.
    pub(crate) fn address(&self) -> u64 {
        self.buffer.as_device_ptr().as_raw()
    }
}
