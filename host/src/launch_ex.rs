//! Launches with attributes: clusters, and starts before the launch before ends.
//!
//! The driver's function for them came with CUDA 11.8, later than the bindings of
//! `cust`, so it is looked up in the loaded driver.

use crate::device::driver_function;
use crate::error::Error;
use crate::launch::success;
use cust::error::CudaResult;
use cust::function::Function;
use cust::stream::Stream;
use cust::sys::{CUfunction, CUresult, CUstream};
use kernels::launch::{ActiveClusters, Entry, Launch};
use std::ffi::{c_int, c_void};

/// `CUlaunchConfig` of the driver's `cuda.h`.
#[repr(C)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared_bytes: u32,
    stream: CUstream,
    attributes: *const Attribute,
    count: u32,
}

/// `CUlaunchAttribute`: which it is, and up to 64 bytes of its value.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Attribute {
    id: u32,
    padding: u32,
    value: [u32; 16],
}

/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`: blocks along x, y and z.
const CLUSTER_DIMENSION: u32 = 4;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: 1 where the launch
/// may start before the one before it ends.
const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;

impl Attribute {
    fn new(id: u32, values: &[u32]) -> Self {
        let mut value = [0; 16];
        value[..values.len()].copy_from_slice(values);
        Self {
            id,
            padding: 0,
            value,
        }
    }
}

/// `cuLaunchKernelEx` of the driver's `cuda.h`.
type LaunchKernelEx = unsafe extern "C" fn(
    config: *const Config,
    function: CUfunction,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult;

/// `cuOccupancyMaxActiveClusters` of the driver's `cuda.h`.
type MaxActiveClusters = unsafe extern "C" fn(
    clusters: *mut c_int,
    function: CUfunction,
    config: *const Config,
) -> CUresult;

/// `cuLaunchKernelEx` of the loaded driver.
pub(crate) struct LaunchEx(LaunchKernelEx);

/// How many clusters of each size run at one time of a kernel, whose shared
/// memory was asked for. None where the driver or the device knows no clusters.
///
/// # Errors
///
/// [`Error::NoDriver`] where no driver is loaded.
pub(crate) fn active_clusters(
    function: &Function,
    entry: &'static Entry,
) -> Result<Option<ActiveClusters>, Error> {
    let Some(query) = driver_function("cuOccupancyMaxActiveClusters")? else {
        return Ok(None);
    };
    // SAFETY: the driver exports the function under this name with the type that
    // its headers give, which is the one above.
    let query: MaxActiveClusters = unsafe { std::mem::transmute(query.as_ptr()) };
    let by_size = (1..=entry.max_cluster)
        .map(|size| {
            let attribute = Attribute::new(CLUSTER_DIMENSION, &[size, 1, 1]);
            let config = Config {
                grid: [size, 1, 1],
                block: [entry.launch_bounds.max_threads, 1, 1],
                dynamic_shared_bytes: entry.dynamic_shared_bytes,
                stream: std::ptr::null_mut(),
                attributes: &attribute,
                count: 1,
            };
            let mut clusters = 0;
            // SAFETY: writes one number; the configuration and its attribute live
            // until the call returns.
            let result = unsafe { query(&mut clusters, function.to_raw(), &config) };
            success(result).ok()?;
            u32::try_from(clusters).ok()
        })
        .collect::<Option<Vec<_>>>();
    Ok(by_size.map(|by_size| ActiveClusters {
        kernel: entry.name,
        by_size,
    }))
}

impl LaunchEx {
    /// The loaded driver's, or none where the driver is too old for it.
    ///
    /// # Errors
    ///
    /// [`Error::NoDriver`] where none is loaded.
    pub(crate) fn of_driver() -> Result<Option<Self>, Error> {
        Ok(driver_function("cuLaunchKernelEx")?.map(|function| {
            // SAFETY: the driver exports the function under this name with the
            // type that its headers give, which is the one above.
            let function: LaunchKernelEx = unsafe { std::mem::transmute(function.as_ptr()) };
            Self(function)
        }))
    }

    /// Launches a kernel in its clusters. Where it may start `early`, it need not
    /// wait for the launch before it.
    ///
    /// # Safety
    ///
    /// - `function` is the launch's kernel, and `arguments` point at its arguments.
    /// - The addresses among them stay valid until the stream has passed the
    ///   launch.
    /// - A kernel that starts early waits by itself for the launch before it.
    pub(crate) unsafe fn launch(
        &self,
        stream: &Stream,
        function: &Function,
        launch: &Launch,
        early: bool,
        arguments: &mut [*mut c_void],
    ) -> CudaResult<()> {
        let mut attributes = Vec::with_capacity(2);
        if launch.cluster_blocks() > 1 {
            let cluster = [launch.cluster_blocks(), 1, 1];
            attributes.push(Attribute::new(CLUSTER_DIMENSION, &cluster));
        }
        if early {
            attributes.push(Attribute::new(PROGRAMMATIC_STREAM_SERIALIZATION, &[1]));
        }
        let (grid, block) = (launch.grid(), launch.block());
        let config = Config {
            grid: [grid.x, grid.y, grid.z],
            block: [block.x, block.y, block.z],
            dynamic_shared_bytes: launch.dynamic_shared_bytes(),
            stream: stream.as_inner(),
            attributes: attributes.as_ptr(),
            count: attributes.len() as u32,
        };
        // SAFETY: the caller's promise; the configuration and its attributes live
        // until the call returns.
        success(unsafe {
            (self.0)(
                &config,
                function.to_raw(),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        })
    }
}
