//! What running on a GPU takes.

use super::{Check, Section, Status};
use crate::Gpu;
use crate::device::{self, DeviceInfo};
use crate::error::{self, Error};
use crate::measure::Problem;
use crate::ptx::{self, CudaVersion};
use kernels::launch::{Backend, PlanError};
use std::fs;

/// The driver's functions that this crate and its tests call, through cust or
/// by themselves. Drivers drop old functions and lack new ones; only these
/// matter.
pub const CALLED: &[&str] = &[
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuMemAllocHost_v2",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD32_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuOccupancyMaxActiveClusters",
    "cuStreamBeginCapture_v2",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuTensorMapEncodeTiled",
];

/// Those of them that drivers from before CUDA 11.4 lack, and without which short
/// products are launched one by one.
pub const DISPENSABLE: &[&str] = &["cuGraphInstantiateWithFlags"];

pub(super) fn checks() -> Vec<Check> {
    let version = device::driver_version().ok();
    let mut checks: Vec<_> = ptx::all().map(|ptx| embedded(ptx, version)).collect();
    checks.push(driver(version));
    // Without a driver there is nothing to say of devices.
    if version.is_some() {
        checks.extend(devices());
    }
    checks
}

fn check(name: impl Into<String>, status: Status, found: String) -> Check {
    Check::new(Section::Gpu, name, status, found)
}

/// The PTX for one architecture, against what the build knows and the driver
/// takes.
fn embedded(ptx: ptx::Ptx, driver: Option<CudaVersion>) -> Check {
    let name = match ptx.backend {
        Backend::Nvptx => format!("PTX {}", ptx.architecture),
        Backend::RustCuda => format!("PTX {} by {}", ptx.architecture, ptx.backend),
    };
    let entries = ptx.entries().count();
    let lacking: Vec<_> = ptx::kernels_of(ptx.backend)
        .filter(|kernel| ptx.target().has(kernel.needs))
        .map(|kernel| kernel.name)
        .filter(|name| ptx.entries().all(|entry| entry != *name))
        .collect();
    if !lacking.is_empty() {
        let found = format!("lacks {}", lacking.join(", "));
        return check(name, Status::Failed, found).remedy("build the program anew");
    }
    let needs = ptx.version().needs();
    let found = format!(
        "PTX {}, {entries} kernels, for a driver of CUDA {needs} or later",
        ptx.version()
    );
    match driver {
        Some(driver) if !ptx.is_taken_by(driver) => Check {
            // Whether a device is here that would get it, its own check says.
            needed: false,
            ..check(
                name,
                Status::Failed,
                format!("{found}; the driver's is {driver}"),
            )
            .remedy("update the driver")
        },
        _ => check(name, Status::Ok, found),
    }
}

fn driver(version: Option<CudaVersion>) -> Check {
    let driver = match find_cuda_helper::driver() {
        Ok(driver) => driver,
        Err(error) => {
            let attempts: Vec<_> = error.attempts().iter().map(ToString::to_string).collect();
            return check("driver", Status::Missing, attempts.join("; ")).remedy(
                "install NVIDIA's driver; on WSL, Windows's own; in a container, start it with \
                 the GPUs (`--gpus all`)",
            );
        }
    };
    let mut found = driver.path().map_or_else(
        || driver.name().to_owned(),
        |path| path.display().to_string(),
    );
    if let Some(version) = version {
        found += &format!(", CUDA {version}");
    }
    if let Some(module) = kernel_module() {
        found += &format!(", kernel module {module}");
    }
    let lacking: Vec<_> = CALLED
        .iter()
        .filter(|name| !DISPENSABLE.contains(name) && driver.function(name).is_none())
        .filter(|name| !version.is_some_and(|version| is_newer(name, version)))
        .copied()
        .collect();
    if lacking.is_empty() {
        let missing = driver.missing();
        let graphs = DISPENSABLE.iter().filter(|name| missing.contains(name));
        let graphs: Vec<_> = graphs.copied().collect();
        let unused = missing.len() - graphs.len();
        if !graphs.is_empty() {
            found += &format!(
                "; lacks {}, so short products are launched one by one",
                graphs.join(", ")
            );
        }
        if unused > 0 {
            found += &format!("; lacks {unused} functions, none that this program calls");
        }
        check("driver", Status::Ok, found)
    } else {
        let found = format!("{found}; lacks {}", lacking.join(", "));
        check("driver", Status::Failed, found).remedy("update the driver")
    }
}

/// Whether a function came with a later driver than this, and is called for
/// kernels alone whose PTX this one does not take either.
fn is_newer(function: &str, driver: CudaVersion) -> bool {
    let came_with = match function {
        // The copy engine of compute capability 9.0.
        "cuTensorMapEncodeTiled" => (12, 0),
        // Its clusters, and launches that start early.
        "cuLaunchKernelEx" | "cuOccupancyMaxActiveClusters" => (11, 8),
        _ => return false,
    };
    (driver.major, driver.minor) < came_with
}

/// The version of the driver's kernel module, where one is loaded.
fn kernel_module() -> Option<String> {
    let text = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    module_version(&text).map(str::to_owned)
}

fn module_version(text: &str) -> Option<&str> {
    text.lines()
        .next()?
        .split_whitespace()
        .find(|word| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

fn devices() -> Vec<Check> {
    let devices = match device::devices() {
        Ok(devices) => devices,
        Err(Error::NoDevice { reason }) => {
            let remedy = if std::env::var_os("CUDA_VISIBLE_DEVICES").is_some() {
                "unset CUDA_VISIBLE_DEVICES, or see which devices `nvidia-smi` lists"
            } else {
                "see which devices `nvidia-smi` lists; start a container with the GPUs \
                 (`--gpus all`)"
            };
            return vec![check("devices", Status::Missing, reason).remedy(remedy)];
        }
        // Its text says what to do, as do those below.
        Err(error) => return vec![check("devices", Status::Failed, error.to_string())],
    };
    let mut checks: Vec<_> = devices.iter().map(device).collect();
    if checks.iter().any(|check| check.status == Status::Ok) {
        for check in &mut checks {
            check.needed = check.status == Status::Ok;
        }
    }
    checks
}

/// One device: what it is, and whether the kernels give right results on it.
fn device(info: &DeviceInfo) -> Check {
    let what = format!(
        "{}, compute capability {}, ECC {}",
        info.name,
        info.limits.compute_capability,
        if info.ecc { "on" } else { "off" },
    );
    let total = error::bytes(info.memory_bytes);
    let name = format!("device {}", info.ordinal);
    let opened = Gpu::new(info.ordinal).and_then(|gpu| Ok((gpu.free_bytes()?, gpu)));
    let (free, gpu) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            return check(
                name,
                Status::Failed,
                format!("{what}, {total} of memory: {error}"),
            );
        }
    };
    let what = format!(
        "{what}, {total} of memory, {} free, gets {}",
        error::bytes(free),
        gpu.choice()
    );
    match products(&gpu) {
        Ok(Products { right, wrong, .. }) if wrong.is_empty() && right > 0 => check(
            name,
            Status::Ok,
            format!("{what}; {right} kernels give right products"),
        ),
        Ok(Products { wrong, refused, .. }) => {
            let reasons = [wrong, refused].concat().join("; ");
            check(name, Status::Failed, format!("{what}; {reasons}"))
                .remedy("run `matmul verify`, and report what it says")
        }
        Err(error) => check(name, Status::Failed, format!("{what}; {error}")),
    }
}

struct Products {
    right: usize,
    wrong: Vec<String>,
    /// Variants that the device is too old or too small for.
    refused: Vec<String>,
}

fn products(gpu: &Gpu) -> Result<Products, Error> {
    let mut problem = Problem::random(gpu, super::small()?, 1)?;
    let mut products = Products {
        right: 0,
        wrong: Vec::new(),
        refused: Vec::new(),
    };
    for variant in kernels::gemm::all() {
        match problem.verify(variant) {
            Ok(verdict) if verdict.passed() => products.right += 1,
            Ok(verdict) => products.wrong.push(format!("{}: {verdict}", variant.name)),
            Err(Error::Plan(
                error @ (PlanError::ComputeCapability { .. }
                | PlanError::Code { .. }
                | PlanError::Limit { .. }),
            )) => products.refused.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Ok(products)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_modules_version_is_found() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19\nGCC";
        assert_eq!(module_version(closed), Some("535.129.03"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release";
        assert_eq!(module_version(open), Some("580.95.05"));
        assert_eq!(module_version(""), None);
    }

    #[test]
    fn ptx_is_compared_with_the_driver() {
        for ptx in ptx::all() {
            assert_eq!(embedded(ptx, None).status, Status::Ok);
            let needs = ptx.version().needs();
            assert_eq!(embedded(ptx, Some(needs)).status, Status::Ok);
            let old = embedded(ptx, Some(CudaVersion { major: 9, minor: 0 }));
            assert_eq!(old.status, Status::Failed);
            assert!(old.found.contains(&needs.to_string()), "{}", old.found);
            assert!(old.found.contains("9.0"), "{}", old.found);
            assert!(old.remedy.is_some() && !old.needed);
        }
    }

    #[test]
    fn called_functions_are_declared_ones() {
        assert!(CALLED.is_sorted());
        let unused = CALLED.iter().filter(|name| !name.starts_with("cu")).count();
        assert_eq!(unused, 0);
    }
}
