//! A variant made ready for one shape, and the one place that launches.

use crate::device::{DeviceMatrix, Gpu};
use crate::error::{During, Error};
use crate::launch_ex::{self, LaunchEx};
use crate::tensor_map::TensorMap;
use cust::device::Device;
use cust::error::{CudaError, CudaResult};
use cust::function::Function;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::Stream;
use cust::sys::CUresult;
use kernels::gemm::{Shape, schedule};
use kernels::launch::{ActiveClusters, Argument, Buffer, ComputeCapability, Launch, Plan, Target};
use std::ffi::c_void;

/// The first architecture whose code waits for the launch before it.
const HOPPER: ComputeCapability = ComputeCapability::new(9, 0);

/// A plan whose kernels are found, configured and given their workspace, so
/// that launching it costs no more than the launches.
pub(crate) struct Loaded<'gpu> {
    gpu: &'gpu Gpu,
    plan: Plan,
    functions: Vec<Function<'gpu>>,
    /// The driver's function for launches with attributes, where it has one.
    launch_ex: Option<LaunchEx>,
    workspace: DeviceBuffer<u8>,
}

/// Where the operands of a launch lie.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    pub a: u64,
    pub b: u64,
    pub c: u64,
}

impl<'gpu> Loaded<'gpu> {
    pub(crate) fn new(gpu: &'gpu Gpu, plan: Plan) -> Result<Self, Error> {
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
                opt_in_to_shared_memory(&function, launch.dynamic_shared_bytes())
                    .during(format!("giving {name} its shared memory"))?;
                Ok(function)
            })
            .collect::<Result<_, Error>>()?;
        let launch_ex = LaunchEx::of_driver()?;
        if launch_ex.is_none() {
            let clusters = |launch: &&Launch| launch.cluster_blocks() > 1;
            if let Some(launch) = plan.launches.iter().find(clusters) {
                return Err(Error::Driver {
                    operation: format!(
                        "launching {} in clusters, which needs a driver for CUDA 11.8 \
                         (cuLaunchKernelEx)",
                        launch.entry().name
                    ),
                    source: find_cuda_helper::Code(CUresult::CUDA_ERROR_NOT_FOUND as i32),
                });
            }
        }
        let workspace = gpu.allocate("the workspace", plan.workspace_bytes)?;
        Ok(Self {
            gpu,
            plan,
            functions,
            launch_ex,
            workspace,
        })
    }

    pub(crate) fn workspace(&self) -> &DeviceBuffer<u8> {
        &self.workspace
    }

    /// Launches the plan on `stream` and returns at once.
    ///
    /// # Safety
    ///
    /// - The addresses point at device memory of this GPU that holds the
    ///   operands that the plan was made for.
    /// - They stay valid until the stream has passed the launches.
    pub(crate) unsafe fn launch(&self, stream: &Stream, addresses: Addresses) -> Result<(), Error> {
        self.gpu.enter()?;
        let workspace = self.workspace.as_device_ptr().as_raw();
        let address = |buffer| match buffer {
            Buffer::A => addresses.a,
            Buffer::B => addresses.b,
            Buffer::C => addresses.c,
            Buffer::Workspace(offset) => workspace + offset,
        };
        for (launch, function) in self.plan.launches.iter().zip(&self.functions) {
            let values = values(launch, address)?;
            // SAFETY: the caller's promise, for each launch of the plan.
            unsafe { self.launch_one(stream, function, launch, values) }
                .during(format!("launching {}", launch.entry().name))?;
            self.gpu.launched(launch.entry().name)?;
        }
        Ok(())
    }

    /// # Safety
    ///
    /// - `function` is the launch's kernel, and `values` are its arguments.
    /// - The addresses among them stay valid until the stream has passed the
    ///   launch.
    unsafe fn launch_one(
        &self,
        stream: &Stream,
        function: &Function,
        launch: &Launch,
        mut values: Vec<Value>,
    ) -> CudaResult<()> {
        let mut pointers: Vec<*mut c_void> = values
            .iter_mut()
            .map(|value| match value {
                Value::Plain(value) => std::ptr::from_mut(value).cast(),
                Value::TensorMap(map) => std::ptr::from_mut(map).cast(),
            })
            .collect();
        // Older code doesn't wait for the launch before it, whatever the device.
        let early = launch.entry().starts_early && self.gpu.info().limits.code.capability >= HOPPER;
        if let Some(launch_ex) = &self.launch_ex
            && (early || launch.cluster_blocks() > 1)
        {
            // SAFETY: as below; the kernel waits by itself where it starts early.
            return unsafe { launch_ex.launch(stream, function, launch, early, &mut pointers) };
        }
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
}

/// A variant made ready for products of one shape.
///
/// Made by [`Gpu::prepare`]. It can be launched any number of times, on any
/// matrices of its shape and any stream.
pub struct Prepared<'gpu> {
    loaded: Loaded<'gpu>,
    shape: Shape,
}

impl<'gpu> Prepared<'gpu> {
    pub(crate) fn new(gpu: &'gpu Gpu, shape: Shape, plan: Plan) -> Result<Self, Error> {
        Ok(Self {
            loaded: Loaded::new(gpu, plan)?,
            shape,
        })
    }

    /// As [`new`](Self::new), for a plan that was not checked against the GPU.
    pub(crate) fn checked(gpu: &'gpu Gpu, shape: Shape, plan: Plan) -> Result<Self, Error> {
        gpu.info().limits.check(&plan)?;
        Self::new(gpu, shape, plan)
    }

    /// What will be launched.
    pub fn plan(&self) -> &Plan {
        &self.loaded.plan
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
        let (m, n, k) = extents(self.shape);
        check("A", a, (m, k))?;
        check("B", b, (k, n))?;
        check("C", c, (m, n))?;
        let addresses = Addresses {
            a: a.address(),
            b: b.address(),
            c: c.address(),
        };
        // SAFETY: the shapes were checked just now. The matrices live in this
        // GPU's memory, and freeing that waits for the kernels that use it.
        unsafe { self.loaded.launch(stream, addresses) }
    }
}

/// Computes A·B and |A|·|B| in float64: the product first, then the magnitude,
/// both row-major.
pub(crate) fn reference(
    gpu: &Gpu,
    shape: Shape,
    a: &DeviceMatrix<'_>,
    b: &DeviceMatrix<'_>,
) -> Result<(Vec<f64>, Vec<f64>), Error> {
    let (m, n, k) = extents(shape);
    check("A", a, (m, k))?;
    check("B", b, (k, n))?;
    let plan = kernels::reference::plan(shape);
    gpu.info().limits.check(&plan)?;
    let loaded = Loaded::new(gpu, plan)?;
    let addresses = Addresses {
        a: a.address(),
        b: b.address(),
        c: 0,
    };
    // SAFETY: the shapes were checked just now; the plan does not use C.
    unsafe { loaded.launch(gpu.stream(), addresses)? };

    // M = 0 or N = 0 has no workspace, and nothing to copy.
    let elements = loaded.workspace().len() / size_of::<f64>();
    let mut product = vec![0.0f64; elements];
    // SAFETY: any bytes are float64 numbers, and the view covers those of the
    // destination, which are as many as the workspace's.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(
            product.as_mut_ptr().cast::<u8>(),
            elements * size_of::<f64>(),
        )
    };
    gpu.download_buffer(loaded.workspace(), bytes)?;
    let magnitude = product.split_off(elements / 2);
    Ok((product, magnitude))
}

fn extents(shape: Shape) -> (usize, usize, usize) {
    (shape.m() as usize, shape.n() as usize, shape.k() as usize)
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

/// The value of a kernel's parameter, where the driver can read it.
enum Value {
    /// A pointer or a number. The driver reads as many bytes as the parameter
    /// has, 4 or 8, and the machine is little-endian.
    Plain(u64),
    TensorMap(TensorMap),
}

fn values(launch: &Launch, address: impl Fn(Buffer) -> u64) -> Result<Vec<Value>, Error> {
    launch
        .arguments()
        .iter()
        .map(|argument| {
            Ok(match argument {
                Argument::Pointer(buffer) => Value::Plain(address(*buffer)),
                Argument::U32(value) => Value::Plain((*value).into()),
                Argument::F32(value) => Value::Plain(value.to_bits().into()),
                Argument::TensorMap(spec) => {
                    Value::TensorMap(TensorMap::encode(spec, address(spec.buffer))?)
                }
                // A kind of argument that this host does not know cannot come
                // from this workspace's kernels.
                _ => unreachable!("an argument of an unknown kind"),
            })
        })
        .collect()
}

/// Lets a launch have more than the 48 KiB of shared memory that a block gets
/// without asking.
fn opt_in_to_shared_memory(function: &Function, bytes: u32) -> CudaResult<()> {
    use cust::sys::{CUfunction_attribute, cuFuncSetAttribute};

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

/// How many clusters run at one time on the current device, of each kernel that
/// knows clusters. Empty where the driver doesn't say.
pub(crate) fn active_clusters(module: &Module, code: Target) -> Result<Vec<ActiveClusters>, Error> {
    schedule::kernels()
        .filter(|kernel| kernel.clusters() && code.has(kernel.entry.needs))
        .filter_map(|kernel| {
            // A module without the kernel has another compiler's.
            let function = module.get_function(kernel.entry.name).ok()?;
            opt_in_to_shared_memory(&function, kernel.entry.dynamic_shared_bytes).ok()?;
            launch_ex::active_clusters(&function, kernel.entry).transpose()
        })
        .collect()
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

pub(crate) fn success(result: CUresult) -> CudaResult<()> {
    if result == CUresult::CUDA_SUCCESS {
        Ok(())
    } else {
        // cust's conversion is private. With this one, the code comes from the
        // driver's symbols.
        Err(CudaError::UnknownError)
    }
}
