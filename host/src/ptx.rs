//! The PTX that the build embedded, and which of it a device takes.

use crate::{Error, Gpu};
use kernels::launch::{Backend, ComputeCapability, Entry, Target};
use std::fmt;

/// The kernels, compiled for one architecture by one compiler.
#[derive(Clone, Copy, Debug)]
pub struct Ptx {
    /// The compiler.
    pub backend: Backend,
    /// Its target, such as `sm_90a`.
    pub architecture: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// Architecture and text of each file that the build script made.
// Static, so that the text is in the program once.
static NVPTX: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/ptx.rs"));
static RUST_CUDA: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/rust_cuda.rs"));

/// The compiler that made the embedded PTX of the default backend.
pub const COMPILER: &str = env!("DEVICE_COMPILER");

/// All embedded PTX: backend after backend, and oldest architecture first.
pub fn all() -> impl Iterator<Item = Ptx> {
    Backend::ALL.iter().copied().flat_map(of)
}

/// The embedded PTX of one backend, oldest architecture first.
pub fn of(backend: Backend) -> impl Iterator<Item = Ptx> {
    let embedded = match backend {
        Backend::Nvptx => NVPTX,
        Backend::RustCuda => RUST_CUDA,
    };
    embedded.iter().map(move |&(architecture, text)| Ptx {
        backend,
        architecture,
        text,
    })
}

/// The backends that this build has embedded PTX of, the default one first.
pub fn backends() -> impl Iterator<Item = Backend> {
    Backend::ALL
        .iter()
        .copied()
        .filter(|&backend| of(backend).next().is_some())
}

/// The kernels that a backend builds.
pub fn kernels_of(backend: Backend) -> impl Iterator<Item = &'static Entry> {
    kernels::entries()
        .into_iter()
        .filter(move |entry| entry.backends.contains(&backend))
}

/// The oldest compute capability that some embedded PTX of a backend runs on.
pub(crate) fn oldest(backend: Backend) -> ComputeCapability {
    of(backend)
        .map(|ptx| ptx.target().capability)
        .min()
        .unwrap_or(ComputeCapability::new(u32::MAX, 0))
}

/// The best embedded PTX of a backend that a device takes, with a driver that
/// is new enough.
///
/// Plain PTX runs on its own architecture and every later one. PTX for an
/// architecture's own features (`sm_90a`) runs on that one alone.
pub fn best_for(device: ComputeCapability, backend: Backend) -> Option<Ptx> {
    of(backend)
        .filter(|ptx| ptx.runs_on(device))
        .max_by_key(|ptx| ptx.target())
}

/// The PTX that a device is given.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// What it is given.
    pub ptx: Ptx,
    /// What would be better, and the driver is too old for.
    pub too_new: Option<Ptx>,
}

/// The best embedded PTX of a backend that both a device and its driver take.
/// Nothing where there is none.
pub fn choose(device: ComputeCapability, driver: CudaVersion, backend: Backend) -> Option<Choice> {
    let ptx = of(backend)
        .filter(|ptx| ptx.runs_on(device) && ptx.is_taken_by(driver))
        .max_by_key(|ptx| ptx.target())?;
    let too_new = best_for(device, backend).filter(|best| best.target() != ptx.target());
    Some(Choice { ptx, too_new })
}

/// Which of a backend's embedded PTX a device is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The best that the device takes: [`best_for`].
    Best,
    /// That for a target, such as `sm_80`.
    For(&'static str),
}

impl Code {
    /// `best`, or one of the [`targets`].
    pub fn named(name: &str) -> Option<Self> {
        if name == "best" {
            return Some(Self::Best);
        }
        let target = targets().into_iter().find(|target| *target == name);
        target.map(Self::For)
    }

    /// Opens a device with this code, compiled by `backend`.
    ///
    /// # Errors
    ///
    /// As [`Gpu::with_backend`]; [`Error::Request`] where there is no such code
    /// by that backend, or the device does not run it.
    pub fn open(self, ordinal: u32, backend: Backend) -> Result<Gpu, Error> {
        let Self::For(target) = self else {
            return Gpu::with_backend(ordinal, backend);
        };
        if of(backend).next().is_none() {
            return Err(Error::NoPtx { backend });
        }
        let listed = |ptx: &mut dyn Iterator<Item = Ptx>| {
            let targets: Vec<_> = ptx.map(|ptx| ptx.architecture).collect();
            targets.join(", ")
        };
        let Some(ptx) = of(backend).find(|ptx| ptx.architecture == target) else {
            return Err(Error::Request {
                reason: format!(
                    "no code for {target} by {backend} is in this program; there is code for {}",
                    listed(&mut of(backend))
                ),
            });
        };
        // A device that is not there is named by the call below.
        if let Some(device) = crate::device::devices()?.get(ordinal as usize) {
            let capability = device.limits.compute_capability;
            if !ptx.runs_on(capability) {
                return Err(Error::Request {
                    reason: format!(
                        "{} (device {ordinal}, compute capability {capability}) does not run code \
                         for {target}; of what is in this program it runs {}",
                        device.name,
                        listed(&mut of(backend).filter(|ptx| ptx.runs_on(capability)))
                    ),
                });
            }
        }
        Gpu::with_ptx(ordinal, |_| Some(ptx))
    }
}

/// Opens a device with each of some codes by each of some backends. What two of
/// them choose alike is opened once.
///
/// # Errors
///
/// Those of [`Code::open`].
pub fn open(ordinal: u32, backends: &[Backend], codes: &[Code]) -> Result<Vec<Gpu>, Error> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for &backend in backends {
        for code in codes {
            let gpu = code.open(ordinal, backend)?;
            let of = |gpu: &Gpu| (gpu.ptx().backend, gpu.ptx().architecture);
            if !gpus.iter().any(|it| of(it) == of(&gpu)) {
                gpus.push(gpu);
            }
        }
    }
    Ok(gpus)
}

/// The targets that some backend's embedded PTX is for, each once.
pub fn targets() -> Vec<&'static str> {
    let mut targets = Vec::new();
    for ptx in all() {
        if !targets.contains(&ptx.architecture) {
            targets.push(ptx.architecture);
        }
    }
    targets
}

impl Ptx {
    /// Its target.
    pub fn target(&self) -> Target {
        Target::parse(self.architecture)
    }

    /// Whether a device takes it.
    pub fn runs_on(&self, device: ComputeCapability) -> bool {
        self.target().runs_on(device)
    }

    /// Whether a driver takes it, for a device that it runs on.
    pub fn is_taken_by(&self, driver: CudaVersion) -> bool {
        self.version().needs() <= driver
    }

    /// The PTX version in its header.
    pub fn version(&self) -> PtxVersion {
        let version = self.text.lines().find_map(|line| {
            let (major, minor) = line.strip_prefix(".version")?.trim().split_once('.')?;
            Some(PtxVersion {
                major: major.parse().ok()?,
                minor: minor.parse().ok()?,
            })
        });
        // The build parses the same line and refuses PTX without one.
        version.unwrap_or(PtxVersion { major: 0, minor: 0 })
    }

    /// The names of its kernels.
    pub fn entries(&self) -> impl Iterator<Item = &'static str> {
        self.text
            .lines()
            .filter_map(|line| line.split_once(".entry "))
            .map(|(_, rest)| rest.trim_end_matches('(').trim())
    }
}

/// A version of the PTX language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PtxVersion {
    /// 8 of 8.0.
    pub major: u32,
    /// 0 of 8.0.
    pub minor: u32,
}

/// A version of CUDA, as a driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion {
    /// 12 of 12.4.
    pub major: u32,
    /// 4 of 12.4.
    pub minor: u32,
}

/// PTX version, and the first CUDA version that takes it: major and minor of
/// each. From the release history in NVIDIA's PTX ISA manual.
const RELEASES: &[[u32; 4]] = &[
    [6, 3, 10, 0],
    [6, 4, 10, 1],
    [6, 5, 10, 2],
    [7, 0, 11, 0],
    [7, 1, 11, 1],
    [7, 2, 11, 2],
    [7, 3, 11, 3],
    [7, 4, 11, 4],
    [7, 5, 11, 5],
    [7, 6, 11, 6],
    [7, 7, 11, 7],
    [7, 8, 11, 8],
    [8, 0, 12, 0],
    [8, 1, 12, 1],
    [8, 2, 12, 2],
    [8, 3, 12, 3],
    [8, 4, 12, 4],
    [8, 5, 12, 5],
    [8, 6, 12, 7],
    [8, 7, 12, 8],
    [8, 8, 12, 9],
    [9, 0, 13, 0],
];

impl PtxVersion {
    /// The first CUDA version whose driver takes it.
    pub fn needs(self) -> CudaVersion {
        // A version newer than the table asks for more than its last row.
        let needs = RELEASES
            .iter()
            .find(|row| (row[0], row[1]) >= (self.major, self.minor))
            .map_or((13, 1), |row| (row[2], row[3]));
        CudaVersion {
            major: needs.0,
            minor: needs.1,
        }
    }
}

impl CudaVersion {
    /// From the number that `cuDriverGetVersion` gives: 1000·major + 10·minor.
    pub fn from_driver(number: i32) -> Self {
        let number = u32::try_from(number).unwrap_or(0);
        Self {
            major: number / 1000,
            minor: number % 1000 / 10,
        }
    }
}

/// The architecture and the compiler, where it is not the default one; and why
/// it is not a better one.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.ptx.architecture)?;
        if self.ptx.backend != Backend::Nvptx {
            write!(f, " from {}", self.ptx.backend)?;
        }
        match self.too_new {
            None => Ok(()),
            Some(better) => write!(
                f,
                ", since {} needs a driver for CUDA {}",
                better.architecture,
                better.version().needs()
            ),
        }
    }
}

impl fmt::Display for PtxVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(major: u32, minor: u32) -> Option<&'static str> {
        let device = ComputeCapability::new(major, minor);
        best_for(device, Backend::Nvptx).map(|ptx| ptx.architecture)
    }

    #[test]
    fn each_device_gets_the_best_ptx_it_takes() {
        assert_eq!(best(7, 0), None);
        assert_eq!(best(7, 5), Some("sm_75"));
        assert_eq!(best(8, 0), Some("sm_80"));
        assert_eq!(best(8, 9), Some("sm_80"));
        assert_eq!(best(9, 0), Some("sm_90a"));
        assert_eq!(best(10, 0), Some("sm_80"));
        assert_eq!(best(12, 0), Some("sm_80"));
    }

    #[test]
    fn an_old_driver_gets_older_ptx() {
        let choice = |(major, minor), driver| {
            let device = ComputeCapability::new(major, minor);
            let choice = choose(device, CudaVersion::from_driver(driver), Backend::Nvptx);
            choice.map(|choice| choice.to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(choice((9, 0), 12000), some("sm_90a"));
        assert_eq!(
            choice((9, 0), 11080),
            some("sm_80, since sm_90a needs a driver for CUDA 12.0")
        );
        assert_eq!(
            choice((9, 0), 11040),
            some("sm_75, since sm_90a needs a driver for CUDA 12.0")
        );
        assert_eq!(choice((8, 6), 11050), some("sm_80"));
        assert_eq!(
            choice((8, 6), 11040),
            some("sm_75, since sm_80 needs a driver for CUDA 11.5")
        );
        assert_eq!(choice((7, 5), 11000), some("sm_75"));
        // Too old a driver, too old a device.
        assert_eq!(choice((7, 5), 10020), None);
        assert_eq!(choice((7, 0), 13000), None);
    }

    #[test]
    fn code_goes_by_its_target() {
        assert_eq!(Code::named("best"), Some(Code::Best));
        for target in targets() {
            assert_eq!(Code::named(target), Some(Code::For(target)));
        }
        assert_eq!(Code::named("sm_12"), None);
        assert_eq!(Code::named(""), None);
    }

    #[test]
    fn versions_are_known() {
        for ptx in all() {
            assert!(ptx.version().major >= 6, "{}", ptx.architecture);
        }
        let needs = |major, minor| PtxVersion { major, minor }.needs().to_string();
        assert_eq!(needs(6, 3), "10.0");
        assert_eq!(needs(8, 0), "12.0");
        assert_eq!(CudaVersion::from_driver(12040).to_string(), "12.4");
        assert!(CudaVersion::from_driver(13000) > CudaVersion::from_driver(12090));
    }
}
