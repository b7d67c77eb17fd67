//! What can go wrong, each with its remedy.

use std::{fmt, io, path::PathBuf};

/// Why there is no PTX. `Display` says what to do about it.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// No compiler was found that has the source of `core` beside it.
    NoDeviceToolchain {
        /// Each compiler that was tried, and what it lacks.
        looked_at: Vec<String>,
    },
    /// The device compiler is older than the flags used here.
    CompilerTooOld {
        /// The compiler.
        rustc: PathBuf,
        /// Its release.
        release: String,
    },
    /// rustc did not compile `core` for the GPU.
    Core {
        /// The compiler.
        rustc: PathBuf,
        /// What it wrote.
        stderr: String,
    },
    /// rustc did not compile the kernels.
    Kernels {
        /// The target it was compiled for.
        architecture: String,
        /// What it wrote.
        stderr: String,
    },
    /// The kernels' `Cargo.toml` lacks something the build needs.
    Manifest {
        /// The file.
        path: PathBuf,
        /// What it lacks.
        reason: String,
    },
    /// An architecture that is not in the table of PTX versions, or named twice, or none at all.
    UnknownArchitecture {
        /// The name as given.
        name: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// The PTX holds no kernel.
    NoEntries {
        /// The target.
        architecture: String,
    },
    /// Directives name a kernel that the PTX lacks.
    UnknownEntry {
        /// The target.
        architecture: String,
        /// The name in the directives.
        entry: String,
        /// The kernels in the PTX.
        known: Vec<String>,
    },
    /// Directives that no assembler takes, or that match nothing in the kernel.
    Directive {
        /// The kernel.
        entry: String,
        /// What is wrong.
        reason: String,
    },
    /// The PTX calls functions that nobody defines, so no driver would load it.
    Unresolved {
        /// The target.
        architecture: String,
        /// The mangled names.
        functions: Vec<String>,
    },
    /// The text is not PTX as rustc writes it.
    Malformed {
        /// The target.
        architecture: String,
        /// What was missing.
        reason: String,
    },
    /// A PTX file from elsewhere cannot be used.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Parts of rust-cuda's toolchain are not there.
    RustCudaToolchain {
        /// Each part, what is wrong with it, and the remedy.
        lacking: Vec<String>,
    },
    /// rust-cuda did not compile the kernels.
    RustCuda {
        /// What it wrote.
        stderr: String,
    },
    /// A file or a process failed.
    Io {
        /// What was attempted, as "read", "write", "run".
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl BuildError {
    /// Names the operation and the file in an error of `std::io`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDeviceToolchain { looked_at } => {
                writeln!(
                    f,
                    "no Rust compiler with the source of `core` was found; the kernels need one to become PTX."
                )?;
                writeln!(f, "Looked at:")?;
                for one in looked_at {
                    writeln!(f, "  {one}")?;
                }
                write!(
                    f,
                    "Run `make setup`, or by hand one of\n  \
                     rustup component add rust-src\n  \
                     apt-get install --no-install-recommends rustc-web rust-web-src\n\
                     or name a compiler in DEVICE_RUSTC."
                )
            }
            Self::CompilerTooOld { rustc, release } => {
                let (major, minor) = crate::toolchain::OLDEST;
                write!(
                    f,
                    "{} is rustc {release}, and the kernels need {major}.{minor} or later; \
                     name another in DEVICE_RUSTC or run `make setup`",
                    rustc.display()
                )
            }
            Self::Core { rustc, stderr } => write!(
                f,
                "{} could not compile `core` for nvptx64-nvidia-cuda:\n{stderr}",
                rustc.display()
            ),
            Self::Kernels {
                architecture,
                stderr,
            } => write!(
                f,
                "the kernels do not compile for {architecture}:\n{stderr}"
            ),
            Self::Manifest { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::UnknownArchitecture { name, known } => write!(
                f,
                "architecture \"{name}\" is unknown or given twice; known are {}",
                known.join(", ")
            ),
            Self::NoEntries { architecture } => write!(
                f,
                "the PTX for {architecture} holds no kernel: is there a `pub` function with \
                 `extern \"ptx-kernel\"` and `#[unsafe(no_mangle)]`?"
            ),
            Self::UnknownEntry {
                architecture,
                entry,
                known,
            } => write!(
                f,
                "directives name the kernel `{entry}`, which the PTX for {architecture} lacks; \
                 it has {}",
                known.join(", ")
            ),
            Self::Directive { entry, reason } => write!(f, "kernel `{entry}`: {reason}"),
            Self::Unresolved {
                architecture,
                functions,
            } => write!(
                f,
                "the PTX for {architecture} calls functions that it does not hold: {}. \
                 There is no libm and no linker on the device: use `kernels::gpu` or `asm!` instead",
                functions.join(", ")
            ),
            Self::Malformed {
                architecture,
                reason,
            } => write!(
                f,
                "the text that rustc wrote for {architecture} is not PTX as expected: {reason}"
            ),
            Self::Foreign { path, reason } => {
                write!(f, "cannot use {}: {reason}", path.display())
            }
            Self::RustCudaToolchain { lacking } => {
                writeln!(f, "rust-cuda cannot compile the kernels here:")?;
                for part in lacking {
                    writeln!(f, "  {part}")?;
                }
                write!(
                    f,
                    "docs/rust-cuda.md sets it up. Or build without the feature `rust-cuda`, or name \
                     PTX that was built elsewhere in MATMUL_RUST_CUDA_PTX"
                )
            }
            Self::RustCuda { stderr } => {
                write!(f, "rust-cuda did not compile the kernels:\n{stderr}")
            }
            Self::Io {
                action,
                path,
                source,
            } => write!(f, "cannot {action} {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
