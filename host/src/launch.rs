//! A variant made ready for one shape, and the one place that launches.

use crate::device::{DeviceMatrix, Gpu};
use crate::error::{During, Error};
use cust::device::Device;
use cust::error::{CudaError, CudaResult};
use cust::function::Function;
use cust::memory::DeviceBuffer;
use cust::stream::Stream;
use kernels::gemm::Shape;
use kernels::launch::{Argument, Buffer, Launch, Plan};
use std::ffi::c_void;

/// A plan whose kernels are found, configured and given their workspace, so
/// that launching it costs no more than the launches.
pub struct Prepared<'gpu> {
    gpu: &'gpu Gpu,
    shape: Shape,
    plan: Plan,
    functions: Vec<Function<'gpu>>,
    workspace: DeviceBuffer<u8>,
}

/// Where the buffers of a launch lie.
#[derive(Clone, Copy)]
struct Addresses {
    a: u64,
    b: u64,
    c: u64,
    workspace: u64,
}

impl Addresses {
    fn of(&self, buffer: Buffer) -> u64 {
        match buffer {
            Buffer::A => self.a,
            Buffer::B => self.b,
            Buffer::C => self.c,
            Buffer::Workspace(offset) => self.workspace + offset,
        }
    }
}

impl<'gpu> Prepared<'gpu> {
    pub(crate) fn new(gpu: &'gpu Gpu, shape: Shape, plan: Plan) -> Result<Self, Error> {
        gpu.enter()?;
        let functions = plan
            .launches
            .iter()
            .map(|launch| {
                let name = launch.entry().name;
                let function = gpu
                    .module()
                    .get_function(name)
                    .during(format!("looking up the kernel {name}"))?;
                opt_in_to_shared_memory(&function, launch)
                    .during(format!("giving {name} its shared memory"))?;
                Ok(function)
            })
            .collect::<Result<_, Error>>()?;
        let workspace = gpu.allocate("the workspace", plan.workspace_bytes)?;
        Ok(Self {
            gpu,
            shape,
            plan,
            functions,
            workspace,
        })
    }

    /// What will be launched.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The shape it was made for.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Launches C = A·B on `stream` and returns at once.
    ///
    /// # Errors
    ///
    /// [`Error::MatrixShape`] where a matrix does not have the shape this was
    /// prepared for, or the driver's. A kernel that fails while it runs shows
    /// at the next [`Gpu::synchronize`] or [`Gpu::download`].
    pub fn launch(
        &self,
        stream: &Stream,
        a: &DeviceMatrix<'gpu>,
        b: &DeviceMatrix<'gpu>,
        c: &mut DeviceMatrix<'gpu>,
    ) -> Result<(), Error> {
        let (m, n, k) = self.extents();
        check("A", a, (m, k))?;
        check("B", b, (k, n))?;
        check("C", c, (m, n))?;
        let addresses = Addresses {
            a: a.address(),
            b: b.address(),
            c: c.address(),
            workspace: self.workspace.as_device_ptr().as_raw(),
        };
        // SAFETY: the shapes were checked just now. All three matrices and the
        // workspace belong to this GPU and live at least as long as it, and
        // freeing device memory waits for the kernels that use it.
        unsafe { self.launch_at(stream, addresses) }
    }

    /// Runs a plan that leaves its result in the workspace, and copies it to
    /// `result`.
    pub(crate) fn launch_into_workspace(
        &self,
        stream: &Stream,
        a: &DeviceMatrix<'_>,
        b: &DeviceMatrix<'_>,
        result: &mut [f64],
    ) -> Result<(), Error> {
        let (m, n, k) = self.extents();
        check("A", a, (m, k))?;
        check("B", b, (k, n))?;
        let addresses = Addresses {
            a: a.address(),
            b: b.address(),
            c: 0,
            workspace: self.workspace.as_device_ptr().as_raw(),
        };
        // SAFETY: as in `launch`; C is not among the arguments of such plans.
        unsafe { self.launch_at(stream, addresses)? };
        // SAFETY: any bytes are valid float64 numbers, and the view covers the
        // destination's bytes exactly.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(result.as_mut_ptr().cast::<u8>(), size_of_val(result))
        };
        if bytes.len() != self.workspace.len() {
            return Err(Error::DataLength {
                rows: m,
                columns: n,
                found: result.len(),
            });
        }
        self.gpu.download_buffer(&self.workspace, bytes)
    }

    fn extents(&self) -> (usize, usize, usize) {
        let shape = self.shape;
        (shape.m() as usize, shape.n() as usize, shape.k() as usize)
    }

    /// # Safety
    ///
    /// - The addresses point at device memory of this GPU that holds A, B, C
    ///   and the workspace of the plan for `self.shape`.
    /// - They stay valid until the stream has passed the launches.
    unsafe fn launch_at(&self, stream: &Stream, addresses: Addresses) -> Result<(), Error> {
        self.gpu.enter()?;
        for (launch, function) in self.plan.launches.iter().zip(&self.functions) {
            // SAFETY: the caller's promise, for each launch of the plan.
            unsafe { launch_one(stream, function, launch, addresses) }
                .during(format!("launching {}", launch.entry().name))?;
            self.gpu.launched(launch.entry().name)?;
        }
        Ok(())
    }
}

fn check(name: &'static str, matrix: &DeviceMatrix, expected: (usize, usize)) -> Result<(), Error> {
    let found = (matrix.rows(), matrix.columns());
    if found == expected {
        Ok(())
    } else {
        Err(Error::MatrixShape {
            name,
            expected,
            found,
        })
    }
}

/// # Safety
///
/// - `function` is the launch's kernel.
/// - The addresses fit the launch's arguments and stay valid until the stream
///   has passed it.
unsafe fn launch_one(
    stream: &Stream,
    function: &Function,
    launch: &Launch,
    addresses: Addresses,
) -> CudaResult<()> {
    // The driver reads as many bytes of each value as the parameter has. All
    // are 4 or 8 bytes long, and the machine is little-endian.
    let mut values: Vec<u64> = launch
        .arguments()
        .iter()
        .map(|argument| match *argument {
            Argument::Pointer(buffer) => addresses.of(buffer),
            Argument::U32(value) => value.into(),
            Argument::F32(value) => value.to_bits().into(),
            // A kind of argument that this host does not know cannot come from
            // this workspace's kernels.
            _ => unreachable!("an argument of an unknown kind"),
        })
        .collect();
    let pointers: Vec<*mut c_void> = values
        .iter_mut()
        .map(|value| std::ptr::from_mut(value).cast())
        .collect();
    let (grid, block) = (launch.grid(), launch.block());
    // SAFETY: the arguments were made by the kernel's own `launch` function, so
    // they are as many and of the types the kernel takes; the caller promises
    // the rest.
    unsafe {
        stream.launch(
            function,
            (grid.x, grid.y, grid.z),
            (block.x, block.y, block.z),
            launch.dynamic_shared_bytes(),
            &pointers,
        )
    }
}

/// Lets a launch have more than the 48 KiB of shared memory that a block gets
/// without asking.
fn opt_in_to_shared_memory(function: &Function, launch: &Launch) -> CudaResult<()> {
    use cust::sys::{CUfunction_attribute, cuFuncSetAttribute};

    let bytes = launch.dynamic_shared_bytes();
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the function is loaded, and the attribute takes a number.
    let result = unsafe {
        cuFuncSetAttribute(
            function.to_raw(),
            CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            i32::try_from(bytes).unwrap_or(i32::MAX),
        )
    };
    success(result)
}

/// The most shared memory that a block of the device may have, in bytes.
pub(crate) fn max_shared_bytes(device: Device) -> CudaResult<u32> {
    use cust::sys::{CUdevice_attribute, cuDeviceGetAttribute};

    let mut bytes = 0;
    // SAFETY: writes one number to the address it is given. cust's own enum of
    // attributes lacks this one.
    let result = unsafe {
        cuDeviceGetAttribute(
            &mut bytes,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            device.as_raw(),
        )
    };
    success(result)?;
    Ok(u32::try_from(bytes).unwrap_or(0))
}

fn success(result: cust::sys::CUresult) -> CudaResult<()> {
    if result == cust::sys::CUresult::CUDA_SUCCESS {
        Ok(())
    } else {
        // cust's conversion is private. With this one, the code comes from the
        // driver's symbols.
        Err(CudaError::UnknownError)
    }
}
