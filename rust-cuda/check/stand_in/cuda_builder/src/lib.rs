//! The part of cuda_builder's interface that `rust-cuda/ptx` uses.
//!
//! Where cuda_builder compiles, this copies the file that `STAND_IN_PTX` names.
//! So what surrounds cuda_builder can be tried without it; what it does can't.

use std::{
    env, fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

/// As cuda_builder's.
#[derive(Debug)]
pub enum CudaBuilderError {
    /// The folder of the kernels is not there.
    CratePathDoesntExist(PathBuf),
    /// The PTX could not be copied to where it was asked for.
    FailedToCopyPtxFile(io::Error),
    /// `STAND_IN_PTX` is not set.
    BuildFailed,
}

impl fmt::Display for CudaBuilderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CratePathDoesntExist(path) => write!(f, "there is no {}", path.display()),
            Self::FailedToCopyPtxFile(error) => write!(f, "the PTX was not copied: {error}"),
            Self::BuildFailed => f.write_str("STAND_IN_PTX names no file"),
        }
    }
}

/// As nvvm's, which cuda_builder exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvvmArch {
    /// sm_75.
    Compute75,
    /// sm_80.
    Compute80,
    /// sm_90.
    Compute90,
}

/// As nvvm's, which cuda_builder exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvvmOption {
    /// Line numbers.
    GenLineInfo,
    /// The architecture.
    Arch(NvvmArch),
}

impl FromStr for NvvmOption {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "-generate-line-info" => Ok(Self::GenLineInfo),
            "-arch=compute_75" => Ok(Self::Arch(NvvmArch::Compute75)),
            "-arch=compute_80" => Ok(Self::Arch(NvvmArch::Compute80)),
            "-arch=compute_90" => Ok(Self::Arch(NvvmArch::Compute90)),
            _ => Err("unknown arch"),
        }
    }
}

/// As cuda_builder's.
pub struct CudaBuilder {
    kernels: PathBuf,
    copy_to: Option<PathBuf>,
}

impl CudaBuilder {
    /// A builder for the crate in this folder.
    pub fn new(kernels: impl AsRef<Path>) -> Self {
        Self {
            kernels: kernels.as_ref().to_owned(),
            copy_to: None,
        }
    }

    /// Takes the architecture and does nothing with it.
    #[must_use]
    pub fn arch(self, _: NvvmArch) -> Self {
        self
    }

    /// Where to copy the PTX.
    #[must_use]
    pub fn copy_to(mut self, path: impl AsRef<Path>) -> Self {
        self.copy_to = Some(path.as_ref().to_owned());
        self
    }

    /// Copies `STAND_IN_PTX`.
    ///
    /// # Errors
    ///
    /// Every [`CudaBuilderError`].
    pub fn build(self) -> Result<PathBuf, CudaBuilderError> {
        println!("cargo::rerun-if-env-changed=STAND_IN_PTX");
        if !self.kernels.join("Cargo.toml").is_file() {
            return Err(CudaBuilderError::CratePathDoesntExist(self.kernels));
        }
        let ptx = env::var_os("STAND_IN_PTX").ok_or(CudaBuilderError::BuildFailed)?;
        let ptx = PathBuf::from(ptx);
        match self.copy_to {
            None => Ok(ptx),
            Some(copy) => fs::copy(ptx, &copy)
                .map(|_| copy)
                .map_err(CudaBuilderError::FailedToCopyPtxFile),
        }
    }
}
