//! What can go wrong, and what to do about it.

use crate::ptx::{CudaVersion, PtxVersion};
use cust::error::CudaError;
use find_cuda_helper::{Code, last_error};
use kernels::gemm::{Shape, ShapeError};
use kernels::launch::{Backend, PlanError};
use std::fmt;

/// An error of this crate. Its text names the thing and the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A matrix was given the wrong number of elements.
    DataLength {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
        /// Elements given.
        found: usize,
    },
    /// A's columns are not as many as B's rows.
    InnerDimensions {
        /// Rows and columns of A.
        a: (usize, usize),
        /// Rows and columns of B.
        b: (usize, usize),
    },
    /// A matrix does not have the shape that the operation was made for.
    MatrixShape {
        /// Which matrix.
        name: &'static str,
        /// Rows and columns wanted.
        expected: (usize, usize),
        /// Rows and columns found.
        found: (usize, usize),
    },
    /// A dimension is too large.
    Shape(ShapeError),
    /// No variant has this name.
    UnknownVariant {
        /// The name.
        name: String,
    },
    /// The machine has no CUDA driver that could be loaded.
    NoDriver {
        /// What was tried.
        reason: String,
    },
    /// The driver sees no device.
    NoDevice {
        /// What the driver said, or what hides the devices.
        reason: String,
    },
    /// There is no device of this number.
    NoSuchDevice {
        /// The number asked for.
        asked: u32,
        /// The devices there are, by name.
        devices: Vec<String>,
    },
    /// The device is older than all PTX that the build embedded.
    DeviceTooOld {
        /// Its name.
        device: String,
        /// Its compute capability.
        found: kernels::launch::ComputeCapability,
        /// The oldest that the PTX is for.
        needed: kernels::launch::ComputeCapability,
    },
    /// The build embedded no PTX of a backend.
    NoPtx {
        /// The backend.
        backend: Backend,
    },
    /// A backend cannot build a variant's kernels.
    NotBuiltBy {
        /// The variant.
        variant: &'static str,
        /// The backend.
        backend: Backend,
    },
    /// The driver is too old for the embedded PTX.
    PtxTooNew {
        /// The variant that needs this PTX; none where all kernels do.
        variant: Option<&'static str>,
        /// Version of the PTX.
        ptx: PtxVersion,
        /// CUDA version of the driver.
        driver: CudaVersion,
    },
    /// A variant cannot compute the product on the device.
    Plan(PlanError),
    /// A product that was to be timed is wrong.
    WrongResult {
        /// The kernel.
        kernel: String,
        /// The product.
        shape: Shape,
    },
    /// The device has too little free memory.
    OutOfMemory {
        /// What the memory is for.
        what: String,
        /// Bytes it needs.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A simulation could not be run, or found faults.
    Simulation(simulator::SimulationError),
    /// A file cannot be read or written, or does not hold what it should.
    File {
        /// Its path.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The machine has too little memory for a product's matrices.
    HostMemory {
        /// The product.
        shape: Shape,
        /// Bytes it needs.
        needed: u64,
        /// Bytes that can be had.
        available: u64,
    },
    /// A request cannot be met as it was put.
    Request {
        /// What is wrong with it, and what to ask instead.
        reason: String,
    },
    /// A profiler did not run, or read nothing.
    Profiler {
        /// The program.
        program: String,
        /// What it said.
        reason: String,
    },
    /// cuBLAS refused an operation.
    Cublas {
        /// What was being done.
        operation: String,
        /// What it said.
        status: String,
    },
    /// The driver refused an operation.
    Driver {
        /// What was being done.
        operation: String,
        /// What the driver said.
        source: Code,
    },
    /// A kernel failed while it ran. After this the GPU's context is lost.
    Execution {
        /// The kernels launched since the last synchronisation, in order.
        kernels: Vec<&'static str>,
        /// What the driver said.
        source: Code,
    },
}

impl Error {
    /// Whether the request itself was wrong, as opposed to the machine failing
    /// it.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::DataLength { .. }
                | Self::InnerDimensions { .. }
                | Self::MatrixShape { .. }
                | Self::Shape(_)
                | Self::UnknownVariant { .. }
                | Self::NoSuchDevice { .. }
                | Self::Request { .. }
                | Self::NoPtx { .. }
                | Self::NotBuiltBy { .. }
        )
    }

    /// Whether the machine has no GPU to use: no driver or no device.
    pub fn is_no_gpu(&self) -> bool {
        matches!(self, Self::NoDriver { .. } | Self::NoDevice { .. })
    }
}

/// A number of bytes, in the unit that suits it.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = count as f64;
    let mut unit = "bytes";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "bytes" {
        format!("{count} bytes")
    } else {
        format!("{value:.1} {unit}")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DataLength {
                rows,
                columns,
                found,
            } => match rows.checked_mul(*columns) {
                Some(needed) => write!(
                    f,
                    "a matrix of {rows}×{columns} has {needed} elements, and {found} were given"
                ),
                None => write!(
                    f,
                    "a matrix of {rows}×{columns} is too large for any memory"
                ),
            },
            Self::InnerDimensions { a, b } => write!(
                f,
                "A is {}×{} and B is {}×{} (rows×columns): A must have as many columns as B has \
                 rows, and {} is not {}",
                a.0, a.1, b.0, b.1, a.1, b.0
            ),
            Self::MatrixShape {
                name,
                expected,
                found,
            } => write!(
                f,
                "{name} is {}×{}, and this product was prepared for {}×{}: prepare the variant for \
                 the new shape",
                found.0, found.1, expected.0, expected.1
            ),
            Self::Shape(error) => error.fmt(f),
            Self::UnknownVariant { name } => {
                write!(f, "no variant is named '{name}'; there are")?;
                for (i, variant) in kernels::gemm::all().enumerate() {
                    write!(f, "{} {}", if i == 0 { "" } else { "," }, variant.name)?;
                }
                Ok(())
            }
            Self::NoDriver { reason } => write!(
                f,
                "no CUDA driver: {reason}. Install NVIDIA's driver, or use what works without a GPU"
            ),
            Self::NoDevice { reason } => write!(
                f,
                "no CUDA device: {reason}. `matmul doctor` says what to do"
            ),
            Self::NoSuchDevice { asked, devices } => {
                write!(f, "there is no device {asked}; there are")?;
                for (i, name) in devices.iter().enumerate() {
                    write!(f, "{} {i} ({name})", if i == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Self::DeviceTooOld {
                device,
                found,
                needed,
            } => write!(
                f,
                "{device} has compute capability {found}, and the kernels were built for {needed} \
                 and newer: take a newer device, or a kernel that runs on the CPU"
            ),
            Self::NoPtx { backend } => write!(
                f,
                "this program holds no kernels from {backend}: build it with the feature {backend}, \
                 or with a PTX file named in MATMUL_RUST_CUDA_PTX (docs/rust-cuda.md)"
            ),
            Self::NotBuiltBy { variant, backend } => write!(
                f,
                "{backend} cannot build {variant}; `matmul list` shows what each backend builds"
            ),
            Self::PtxTooNew {
                variant,
                ptx,
                driver,
            } => {
                match variant {
                    None => f.write_str("the kernels are"),
                    Some(variant) => write!(f, "the kernels of {variant} are"),
                }?;
                write!(
                    f,
                    " PTX {ptx}, which needs a driver for CUDA {}, and this driver is for CUDA \
                     {driver}: update the driver",
                    ptx.needs()
                )
            }
            Self::Plan(error) => error.fmt(f),
            Self::WrongResult { kernel, shape } => write!(
                f,
                "{kernel}: the product {shape} is wrong, so its time means nothing; \
                 `matmul verify` tries other shapes"
            ),
            Self::OutOfMemory { what, needed, free } => write!(
                f,
                "{what} needs {} ({needed} bytes) of device memory, and {} ({free} bytes) are free: \
                 free some or take a smaller problem",
                bytes(*needed),
                bytes(*free)
            ),
            Self::Simulation(error) => error.fmt(f),
            Self::File { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::HostMemory {
                shape,
                needed,
                available,
            } => write!(
                f,
                "a product of {shape} needs {} ({needed} bytes) of the machine's memory for its \
                 matrices and their check, and {} ({available} bytes) can be had: free some or \
                 take a smaller problem",
                bytes(*needed),
                bytes(*available)
            ),
            Self::Request { reason } => f.write_str(reason),
            Self::Profiler { program, reason } => {
                write!(f, "{program}: {reason}")?;
                if reason.contains("ERR_NVGPUCTRPERM") {
                    f.write_str(
                        ". The driver keeps counters for root: run as root, or load the kernel \
                         module with NVreg_RestrictProfilingToAdminUsers=0",
                    )?;
                }
                Ok(())
            }
            Self::Cublas { operation, status } => {
                write!(f, "{operation}: cuBLAS said {status}")
            }
            Self::Driver { operation, source } => {
                write!(f, "{operation}: the driver said {source}")?;
                match remedy(*source) {
                    Some(remedy) => write!(f, ". {remedy}"),
                    None => Ok(()),
                }
            }
            Self::Execution { kernels, source } if kernels.is_empty() => write!(
                f,
                "the device failed: the driver said {source}. Nothing was launched since the last \
                 synchronisation; `nvidia-smi` and the system's log may say more"
            ),
            Self::Execution { kernels, source } => write!(
                f,
                "a kernel failed: the driver said {source}. Launched since the last \
                 synchronisation: {}. Set {}=1 to synchronise after each launch and see which",
                kernels.join(", "),
                crate::device::SYNC_VARIABLE
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Shape(error) => Some(error),
            Self::Plan(error) => Some(error),
            Self::Simulation(error) => Some(error),
            Self::Driver { source, .. } | Self::Execution { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<ShapeError> for Error {
    fn from(error: ShapeError) -> Self {
        Self::Shape(error)
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}

/// The driver's code behind an error that cust returned just now.
///
/// cust has one name for all the codes that it does not know.
pub(crate) fn code(error: CudaError) -> Code {
    match error {
        CudaError::UnknownError => last_error().unwrap_or(Code(error as i32)),
        known => Code(known as i32),
    }
}

/// What to do about a code, for those that a machine's state causes. The
/// numbers are those of `CUresult` in NVIDIA's `cuda.h`.
pub(crate) fn remedy(code: Code) -> Option<&'static str> {
    Some(match code.0 {
        46 => "Another process may hold the device for itself: `nvidia-smi` lists processes",
        209 | 218 => "Build the program anew, and report it where that does not help",
        221 => {
            "The driver's compiler for PTX, libnvidia-ptxjitcompiler.so.1, is missing: install it, \
             or give the container the driver's whole \"compute\" capability"
        }
        222 => "The driver is older than the PTX: update the driver",
        223 => "Unset CUDA_DISABLE_PTX_JIT",
        500 => "The driver may be too old to have it: update the driver",
        802 => "On machines with NVSwitch, start the service nvidia-fabricmanager",
        803 => {
            "The driver's library and its kernel module are of different versions: restart after \
             an update, and in a container use the library of the machine outside"
        }
        804 => {
            "The CUDA compatibility package does not suit the device: take it off the search path"
        }
        805..=809 => "See the state of CUDA's multi-process service (MPS)",
        // What a driver library says where its kernel module does not answer.
        100 | 304 | 999 => {
            "See whether `nvidia-smi` works, and in a container whether it was given the device"
        }
        _ => return None,
    })
}

/// Says what was being done when the driver failed.
pub(crate) trait During<T> {
    fn during(self, operation: impl Into<String>) -> Result<T, Error>;
}

impl<T> During<T> for Result<T, CudaError> {
    fn during(self, operation: impl Into<String>) -> Result<T, Error> {
        self.map_err(|error| Error::Driver {
            operation: operation.into(),
            source: code(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_readable() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(30_000_000_000), "27.9 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn an_unknown_variant_lists_the_known() {
        let text = Error::UnknownVariant {
            name: "tilde_16".into(),
        }
        .to_string();
        for variant in kernels::gemm::all() {
            assert!(text.contains(variant.name), "{text}");
        }
    }
}
