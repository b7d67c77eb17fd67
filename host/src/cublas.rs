//! cuBLAS, the library that figures are compared with, opened where the machine
//! has it.
//!
//! # Where it is looked for
//!
//! The file that the caller or [`PATH_VARIABLE`] names, and nothing else where
//! one does. Else, newest first, what the loader finds under the names in
//! [`NAMES`]; then those names in the folders of CUDA toolkits and of the Python
//! packages `nvidia-cublas`, which PyTorch brings.
//!
//! # What is called
//!
//! cuBLAS takes column-major matrices. A row-major matrix is its own transpose
//! read by columns, so C = A·B is asked for as Cᵀ = Bᵀ·Aᵀ: the operands swapped,
//! M and N swapped, nothing transposed.
//!
//! | mode | call | A and B | sums | C |
//! |---|---|---|---|---|
//! | [`Mode::F32`] | `cublasSgemm_v2` | float32 | float32 | float32 |
//! | [`Mode::Tf32`] | `cublasGemmEx`, `CUBLAS_COMPUTE_32F_FAST_TF32` | float32, rounded to TF32 inside | float32 | float32 |
//! | [`Mode::Bf16`] | `cublasGemmEx`, `CUBLAS_COMPUTE_32F` | bfloat16 | float32 | bfloat16 |
//! | [`Mode::F16`] | `cublasGemmEx`, `CUBLAS_COMPUTE_32F` | float16 | float32 | float16 |
//!
//! The 16-bit modes write 16-bit results, as PyTorch's products do. Their
//! operands are converted before anything is timed.
//!
//! # What counts as right
//!
//! A result is checked like any kernel's, so that a wrong call cannot pass for a
//! fast one: float32 by [`verify::bound`](crate::verify::bound), the others by
//! [`Mode::allowed`].

use crate::error::{During, Error};
use crate::matrix::Matrix;
use crate::verify::{Reference, Verdict, bound};
use crate::{DeviceMatrix, Gpu};
use cust::memory::{CopyDestination, DeviceBuffer};
use half::{bf16, f16};
use kernels::gemm::Shape;
use libloading::Library;
use std::cell::OnceCell;
use std::ffi::{OsString, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

/// Names the library's file, in place of a search.
pub const PATH_VARIABLE: &str = "MATMUL_CUBLAS";

/// The library's names, newest first.
pub const NAMES: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so.11"];

/// The precision that cuBLAS is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Float32 throughout.
    F32,
    /// TF32 products of float32 operands.
    Tf32,
    /// Bfloat16 operands and result, float32 sums.
    Bf16,
    /// Float16 operands and result, float32 sums.
    F16,
}

impl Mode {
    /// All.
    pub const ALL: [Self; 4] = [Self::F32, Self::Tf32, Self::Bf16, Self::F16];

    /// Its name in tables and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "cublas_f32",
            Self::Tf32 => "cublas_tf32",
            Self::Bf16 => "cublas_bf16",
            Self::F16 => "cublas_f16",
        }
    }

    /// What its products are made of: `f32`, `tf32`, `bf16` or `f16`.
    pub fn precision(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// Bytes of an element of A, B or C.
    pub fn element_bytes(self) -> u64 {
        match self {
            Self::F32 | Self::Tf32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// Half the spacing at 1 of what an operand is rounded to, and of the
    /// result's format. TF32's is doubled, since hardware may cut off instead
    /// of rounding.
    fn roundoffs(self) -> (f64, f64) {
        let power = |exponent: i32| 2f64.powi(exponent);
        match self {
            Self::F32 => (0.0, power(-24)),
            Self::Tf32 => (power(-10), power(-24)),
            Self::Bf16 => (power(-8), power(-8)),
            Self::F16 => (power(-11), power(-11)),
        }
    }

    /// The largest error of an element that counts as right, where ref = A·B
    /// and magnitude = |A|·|B| in float64, and `largest` = max|A| · max|B|.
    ///
    /// The sum of
    ///
    /// - the rounding of operands: K products, each with two independent
    ///   relative errors of at most u, deviate by at most
    ///   λ·u·√(2·Σ(ab)²) with probability 1 − 2·exp(−λ²/2) (Hoeffding's
    ///   inequality, as in Higham and Mary, 2019), and Σ(ab)² ≤ largest ·
    ///   magnitude. λ = 8, as in [`verify`](crate::verify). Where operands are
    ///   cut off instead, all errors point the same way: 2·u·|ref| more. Float16
    ///   subnormals lose 2^−25 of each operand: K · 2^−24 · √largest.
    /// - the float32 sums: twice [`bound`], since tensor cores cut off where
    ///   they add (Fasi and others, *Numerical behavior of NVIDIA tensor cores*,
    ///   PeerJ Computer Science, 2021).
    /// - the rounding of the result: u of its format, times |ref|, and again as
    ///   much for the error that it already has.
    ///
    /// [`Mode::F32`] has no other term than [`bound`].
    pub fn allowed(self, k: u32, reference: f64, magnitude: f64, largest: f64) -> f64 {
        const LAMBDA: f64 = 8.0;
        let subnormal = f64::from(k) * f64::from(f32::from_bits(1));
        if self == Self::F32 {
            return bound(k) * magnitude + subnormal;
        }
        let (operand, result) = self.roundoffs();
        let operands = LAMBDA * operand * (2.0 * largest * magnitude).sqrt()
            + 2.0 * operand * reference.abs()
            + f64::from(k) * 2f64.powi(-24) * largest.sqrt();
        let sums = 2.0 * bound(k) * magnitude;
        operands + sums + result * (2.0 * reference.abs() + operands + sums) + subnormal
    }
}

/// Why cuBLAS cannot be used.
#[derive(Clone, Debug)]
pub enum Absent {
    /// It was found nowhere.
    Missing {
        /// What was looked for, and where.
        tried: String,
    },
    /// It is there and cannot be used.
    Failed {
        /// The file's name or path.
        name: String,
        /// What went wrong.
        reason: String,
    },
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { tried } => write!(f, "cuBLAS was not found: {tried}"),
            Self::Failed { name, reason } => write!(f, "cuBLAS cannot be used: {name}: {reason}"),
        }
    }
}

/// The library, open.
pub(crate) struct Found {
    /// Never closed: it holds state in the GPU's context and runs threads of
    /// its own, and the process ends soon after its last use.
    library: &'static Library,
    pub name: String,
    /// Major, minor, patch.
    pub version: [c_int; 3],
}

/// Looks for the library; `path` names it.
pub(crate) fn find(path: Option<&Path>) -> Result<Found, Absent> {
    let named = path
        .map(Path::to_owned)
        .or_else(|| variable(PATH_VARIABLE).map(PathBuf::from));
    if let Some(path) = named {
        let name = path.display().to_string();
        return match open(&path) {
            Ok(Some(library)) => found(library, name),
            Ok(None) => Err(Absent::Failed {
                name,
                reason: "there is no such library".into(),
            }),
            Err(reason) => Err(Absent::Failed { name, reason }),
        };
    }
    let folders = folders();
    let by_loader = NAMES.iter().map(PathBuf::from);
    let in_folders = NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .filter(|path| path.exists());
    for path in by_loader.chain(in_folders) {
        let name = path.display().to_string();
        match open(&path) {
            Ok(Some(library)) => return found(library, name),
            Ok(None) => {}
            Err(reason) => return Err(Absent::Failed { name, reason }),
        }
    }
    Err(Absent::Missing {
        tried: format!(
            "the loader finds none of {}, and no CUDA toolkit or Python package has one",
            NAMES.join(", ")
        ),
    })
}

/// Opens a library: none where there is no such file.
fn open(path: &Path) -> Result<Option<Library>, String> {
    // SAFETY: opening runs the library's initialisers. The file is NVIDIA's
    // library, made to be opened by any program, or one that the user named.
    match unsafe { Library::new(path) } {
        Ok(library) => Ok(Some(library)),
        Err(error) => {
            let said = std::error::Error::source(&error)
                .map_or_else(|| error.to_string(), ToString::to_string);
            // Where the library itself is absent, not one that it needs, the
            // text begins with it.
            if said.starts_with(&path.display().to_string()) && said.contains("No such file") {
                Ok(None)
            } else {
                Err(said)
            }
        }
    }
}

fn found(library: Library, name: String) -> Result<Found, Absent> {
    let library = Box::leak(Box::new(library));
    match version(library) {
        Some(version) => Ok(Found {
            library,
            name,
            version,
        }),
        None => Err(Absent::Failed {
            name,
            reason: "it does not tell its version".into(),
        }),
    }
}

/// The properties 0, 1 and 2 of `libraryPropertyType`. Asking needs no device.
fn version(library: &Library) -> Option<[c_int; 3]> {
    type GetProperty = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
    // SAFETY: the function has this signature in every cuBLAS with the names
    // above.
    let get = unsafe { library.get::<GetProperty>("cublasGetProperty") }.ok()?;
    let mut version = [0; 3];
    for (property, value) in (0..).zip(&mut version) {
        // SAFETY: it writes one number to the address.
        if unsafe { get(property, value) } != 0 {
            return None;
        }
    }
    Some(version)
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Folders outside the loader's search that may hold it.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"]
        .iter()
        .filter_map(|name| variable(name))
        .map(|root| PathBuf::from(root).join("lib64"))
        .collect();
    folders.push("/usr/local/cuda/lib64".into());

    // A virtual environment's programs stand in its `bin`.
    let mut roots: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .iter()
        .filter_map(|name| variable(name))
        .map(PathBuf::from)
        .collect();
    for folder in std::env::split_paths(&variable("PATH").unwrap_or_default()) {
        if folder.join("python3").exists() {
            roots.extend(folder.parent().map(Path::to_owned));
        }
    }
    roots.push("/usr/local".into());
    roots.extend(variable("HOME").map(|home| PathBuf::from(home).join(".local")));
    for root in roots {
        for python in subfolders(&root.join("lib"), "python3") {
            for packages in ["site-packages", "dist-packages"] {
                let nvidia = python.join(packages).join("nvidia");
                // The packages for CUDA 13 share one folder.
                folders.push(nvidia.join("cu13/lib"));
                folders.push(nvidia.join("cublas/lib"));
            }
        }
    }
    folders
}

fn subfolders(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(prefix))
        })
        .collect();
    found.sort();
    found.reverse();
    found
}

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle) -> c_int;
type Destroy = unsafe extern "C" fn(Handle) -> c_int;
type SetStream = unsafe extern "C" fn(Handle, *mut c_void) -> c_int;
type SetWorkspace = unsafe extern "C" fn(Handle, *mut c_void, usize) -> c_int;
type Sgemm = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    u64,
    c_int,
    u64,
    c_int,
    *const f32,
    u64,
    c_int,
) -> c_int;
type GemmEx = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    u64,
    c_int,
    c_int,
    u64,
    c_int,
    c_int,
    *const c_void,
    u64,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;

/// cuBLAS on a GPU, in the context and on the stream of that [`Gpu`].
pub struct Cublas<'gpu> {
    gpu: &'gpu Gpu,
    handle: Handle,
    destroy: Destroy,
    /// Since version 11.2.
    set_workspace: Option<SetWorkspace>,
    sgemm: Sgemm,
    gemm_ex: GemmEx,
    name: String,
    version: [c_int; 3],
    /// What it computes in, where it was given that; freed after the handle.
    workspace: OnceCell<DeviceBuffer<u8>>,
}

// The constants of cublas_api.h and library_types.h.
const OP_N: c_int = 0;
const CUDA_R_32F: c_int = 0;
const CUDA_R_16F: c_int = 2;
const CUDA_R_16BF: c_int = 14;
const COMPUTE_32F: c_int = 68;
const COMPUTE_32F_FAST_TF32: c_int = 77;
const GEMM_DEFAULT: c_int = -1;

impl<'gpu> Cublas<'gpu> {
    /// Opens the library for a GPU; `path` names its file.
    ///
    /// # Errors
    ///
    /// Why there is none to use.
    pub fn open(gpu: &'gpu Gpu, path: Option<&Path>) -> Result<Self, Absent> {
        let Found {
            library,
            name,
            version,
        } = find(path)?;
        let failed = |reason: String| Absent::Failed {
            name: name.clone(),
            reason,
        };
        /// # Safety
        ///
        /// - The function has the type `T`.
        unsafe fn function<T: Copy>(library: &'static Library, name: &str) -> Result<T, String> {
            // SAFETY: the caller's promise.
            unsafe { library.get::<T>(name) }
                .map(|function| *function)
                .map_err(|_| format!("it has no function {name}"))
        }
        // SAFETY: the types are those of cublas_api.h, since version 11: a
        // handle is a pointer, an enumeration an int, a device pointer 64 bits.
        let functions = unsafe {
            let functions = || -> Result<_, String> {
                Ok((
                    function::<Create>(library, "cublasCreate_v2")?,
                    function::<Destroy>(library, "cublasDestroy_v2")?,
                    function::<SetStream>(library, "cublasSetStream_v2")?,
                    function::<Sgemm>(library, "cublasSgemm_v2")?,
                    function::<GemmEx>(library, "cublasGemmEx")?,
                ))
            };
            functions()
        };
        let (create, destroy, set_stream, sgemm, gemm_ex) = functions.map_err(&failed)?;
        // SAFETY: as above.
        let set_workspace = unsafe { function(library, "cublasSetWorkspace_v2") }.ok();
        // The handle takes the context that is current: this GPU's, which
        // cuBLAS knows as the primary one of its device.
        gpu.enter().map_err(|error| failed(error.to_string()))?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes a handle to the address.
        let status = unsafe { create(&mut handle) };
        if status != 0 {
            return Err(failed(format!("cublasCreate_v2 said {}", Status(status))));
        }
        let cublas = Self {
            gpu,
            handle,
            destroy,
            set_workspace,
            sgemm,
            gemm_ex,
            name: name.clone(),
            version,
            workspace: OnceCell::new(),
        };
        // SAFETY: the handle is the one just made, the stream the GPU's own,
        // which outlives it.
        let status = unsafe { set_stream(handle, gpu.stream().as_inner().cast()) };
        if status != 0 {
            return Err(failed(format!(
                "cublasSetStream_v2 said {}",
                Status(status)
            )));
        }
        Ok(cublas)
    }

    /// Its version and the file it came from.
    pub fn describe(&self) -> String {
        let [major, minor, patch] = self.version;
        format!("cuBLAS {major}.{minor}.{patch} ({})", self.name)
    }

    /// Gives it a workspace of its own, or says why that cannot be. In a graph, it
    /// would otherwise allocate and free one in each product.
    ///
    /// # Errors
    ///
    /// The driver's.
    fn prepare_for_graphs(&self) -> Result<Option<String>, Error> {
        if self.workspace.get().is_some() {
            return Ok(None);
        }
        let Some(set_workspace) = self.set_workspace else {
            return Ok(Some(format!(
                "{} has no function cublasSetWorkspace_v2",
                self.name
            )));
        };
        // What its manual recommends.
        let capability = self.gpu.info().limits.compute_capability;
        let bytes: u64 = if capability.major < 9 {
            4 << 20
        } else {
            32 << 20
        };
        let buffer = match self.gpu.allocate("cuBLAS's workspace", bytes) {
            Ok(buffer) => buffer,
            Err(error @ Error::OutOfMemory { .. }) => return Ok(Some(error.to_string())),
            Err(error) => return Err(error),
        };
        self.gpu.enter()?;
        let address = buffer.as_device_ptr().as_raw() as usize as *mut c_void;
        // SAFETY: the handle is open; the buffer has as many bytes, and lives longer
        // than the handle: dropping this destroys the handle first.
        let status = unsafe { set_workspace(self.handle, address, buffer.len()) };
        if status != 0 {
            let status = Status(status);
            return Ok(Some(format!("cublasSetWorkspace_v2 said {status}")));
        }
        // Nothing was there, as was seen above.
        let _ = self.workspace.set(buffer);
        Ok(None)
    }

    /// A product made ready: operands in the mode's format, on the device.
    ///
    /// # Errors
    ///
    /// [`Error::Cublas`] where a dimension passes the 31 bits of its interface,
    /// [`Error::OutOfMemory`] where the converted operands do not fit, or the
    /// driver's.
    pub fn prepare(
        &self,
        mode: Mode,
        shape: Shape,
        factors: (&Matrix, &Matrix),
    ) -> Result<Product<'_, 'gpu>, Error> {
        let narrow = |value: u32| {
            c_int::try_from(value).map_err(|_| Error::Cublas {
                operation: format!("a product of {shape}"),
                status: "its interface takes dimensions below 2147483648".into(),
            })
        };
        let sizes = [narrow(shape.m())?, narrow(shape.n())?, narrow(shape.k())?];
        let largest = |matrix: &Matrix| {
            let values = matrix.data().iter().map(|x| f64::from(x.abs()));
            values.fold(0.0, f64::max)
        };
        let halves = match mode {
            Mode::F32 | Mode::Tf32 => None,
            Mode::Bf16 => Some(self.halves(shape, factors, |x| bf16::from_f32(x).to_bits())?),
            Mode::F16 => Some(self.halves(shape, factors, |x| f16::from_f32(x).to_bits())?),
        };
        Ok(Product {
            cublas: self,
            mode,
            shape,
            sizes,
            largest: largest(factors.0) * largest(factors.1),
            halves,
        })
    }

    fn halves(
        &self,
        shape: Shape,
        (a, b): (&Matrix, &Matrix),
        convert: impl Fn(f32) -> u16,
    ) -> Result<[DeviceBuffer<u16>; 3], Error> {
        let upload = |matrix: &Matrix| -> Result<DeviceBuffer<u16>, Error> {
            let data: Vec<u16> = matrix.data().iter().map(|&x| convert(x)).collect();
            let mut buffer = self
                .gpu
                .allocate("a 16-bit operand for cuBLAS", data.len() as u64)?;
            if !data.is_empty() {
                buffer
                    .copy_from(&data)
                    .during("copying a 16-bit operand to the device")?;
                self.gpu.synchronize()?;
            }
            Ok(buffer)
        };
        let c = self
            .gpu
            .allocate("a 16-bit result of cuBLAS", shape.c_elements())?;
        Ok([upload(a)?, upload(b)?, c])
    }
}

impl Drop for Cublas<'_> {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: the handle is used by nothing after this, and its context
            // lives as long as the GPU that is borrowed. A failure here leaves
            // nothing to be done.
            unsafe { (self.destroy)(self.handle) };
        }
    }
}

/// A product that cuBLAS is ready to compute.
pub struct Product<'a, 'gpu> {
    cublas: &'a Cublas<'gpu>,
    mode: Mode,
    shape: Shape,
    /// M, N, K.
    sizes: [c_int; 3],
    /// max|A| · max|B|.
    largest: f64,
    /// A, B and C in a 16-bit format.
    halves: Option<[DeviceBuffer<u16>; 3]>,
}

impl<'gpu> Product<'_, 'gpu> {
    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Makes cuBLAS ready for products that are captured in graphs, or says why it
    /// cannot be.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub(crate) fn prepare_for_graphs(&self) -> Result<Option<String>, Error> {
        self.cublas.prepare_for_graphs()
    }

    /// Queues the product on the GPU's own stream and returns at once. The
    /// 16-bit modes read and write their own copies; the others these matrices.
    ///
    /// # Errors
    ///
    /// [`Error::MatrixShape`] where a matrix has not the shape this was prepared
    /// for, [`Error::Cublas`], or the driver's.
    pub fn launch(
        &self,
        a: &DeviceMatrix<'gpu>,
        b: &DeviceMatrix<'gpu>,
        c: &mut DeviceMatrix<'gpu>,
    ) -> Result<(), Error> {
        let [m, n, k] = self.sizes;
        for (name, matrix, (rows, columns)) in
            [("A", a, (m, k)), ("B", b, (k, n)), ("C", &*c, (m, n))]
        {
            let expected = (rows as usize, columns as usize);
            let found = (matrix.rows(), matrix.columns());
            if expected != found {
                return Err(Error::MatrixShape {
                    name,
                    expected,
                    found,
                });
            }
        }
        if self.shape.is_empty() {
            return Ok(());
        }
        let gpu = self.cublas.gpu;
        gpu.enter()?;
        let (one, zero) = (1.0f32, 0.0f32);
        let addresses = match &self.halves {
            Some(halves) => halves.each_ref().map(|half| half.as_device_ptr().as_raw()),
            None => [a.address(), b.address(), c.address()],
        };
        let [a, b, c] = addresses;
        let (data, compute) = match self.mode {
            Mode::F32 | Mode::Tf32 => (CUDA_R_32F, COMPUTE_32F_FAST_TF32),
            Mode::Bf16 => (CUDA_R_16BF, COMPUTE_32F),
            Mode::F16 => (CUDA_R_16F, COMPUTE_32F),
        };
        // A leading dimension is at least 1, also where K is 0.
        let (width_a, width_b) = (k.max(1), n);
        let handle = self.cublas.handle;
        // SAFETY: the addresses hold M·K, K·N and M·N elements of `data`, by
        // the checks above and by `halves`; they stay valid until the stream has
        // passed the call, since freeing device memory waits for it. The
        // operands are swapped: see the module's documentation.
        let status = unsafe {
            if self.mode == Mode::F32 {
                (self.cublas.sgemm)(
                    handle, OP_N, OP_N, n, m, k, &one, b, width_b, a, width_a, &zero, c, n,
                )
            } else {
                (self.cublas.gemm_ex)(
                    handle,
                    OP_N,
                    OP_N,
                    n,
                    m,
                    k,
                    (&raw const one).cast(),
                    b,
                    data,
                    width_b,
                    a,
                    data,
                    width_a,
                    (&raw const zero).cast(),
                    c,
                    data,
                    n,
                    compute,
                    GEMM_DEFAULT,
                )
            }
        };
        if status != 0 {
            return Err(Error::Cublas {
                operation: format!("{} at {}", self.mode.name(), self.shape),
                status: Status(status).to_string(),
            });
        }
        gpu.launched(self.mode.name())
    }

    /// Runs it once, into a C full of NaN, and compares the result; see
    /// [`Mode::allowed`].
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch).
    pub fn verify(
        &mut self,
        [a, b, c]: [&mut DeviceMatrix<'gpu>; 3],
        reference: &Reference,
    ) -> Result<Verdict, Error> {
        let gpu = self.cublas.gpu;
        gpu.poison(c)?;
        if let Some([_, _, half]) = &mut self.halves
            && !half.is_empty()
        {
            // All bits set is NaN in both formats.
            // SAFETY: nothing else uses the buffer before the wait below.
            unsafe { half.set_8_async(u8::MAX, gpu.stream()) }
                .during("filling a matrix with NaN")?;
            gpu.synchronize()?;
        }
        self.launch(a, b, c)?;
        let result = match &self.halves {
            None => gpu.download(c)?,
            Some([_, _, half]) => {
                let mut bits = vec![0u16; half.len()];
                gpu.download_buffer(half, &mut bits)?;
                let widen = |bits: u16| match self.mode {
                    Mode::Bf16 => bf16::from_bits(bits).to_f32(),
                    _ => f16::from_bits(bits).to_f32(),
                };
                let data = bits.into_iter().map(widen).collect();
                Matrix::new(c.rows(), c.columns(), data)?
            }
        };
        let k = self.shape.k();
        reference.check_by(&result, |reference, magnitude| {
            self.mode.allowed(k, reference, magnitude, self.largest)
        })
    }
}

/// A `cublasStatus_t`.
struct Status(c_int);

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            1 => "CUBLAS_STATUS_NOT_INITIALIZED",
            3 => "CUBLAS_STATUS_ALLOC_FAILED",
            7 => "CUBLAS_STATUS_INVALID_VALUE",
            8 => "CUBLAS_STATUS_ARCH_MISMATCH",
            11 => "CUBLAS_STATUS_MAPPING_ERROR",
            13 => "CUBLAS_STATUS_EXECUTION_FAILED",
            14 => "CUBLAS_STATUS_INTERNAL_ERROR",
            15 => "CUBLAS_STATUS_NOT_SUPPORTED",
            16 => "CUBLAS_STATUS_LICENSE_ERROR",
            _ => "an unknown status",
        };
        write!(f, "{name} ({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Products of rounded operands, summed in float32, lie within the bound; a
    /// product with one operand's rows swapped does not.
    #[test]
    fn rounded_operands_pass_and_wrong_ones_do_not() {
        for k in [1, 17, 300, 4096] {
            let (a, b) = (Matrix::random(6, k, 1), Matrix::random(k, 5, 2));
            let reference = Reference::on_cpu(&a, &b).unwrap();
            for mode in [Mode::Tf32, Mode::Bf16, Mode::F16] {
                let round = |x: f32| match mode {
                    // Cut off after 10 bits, the worst that hardware does.
                    Mode::Tf32 => f32::from_bits(x.to_bits() & !0x1fff),
                    Mode::Bf16 => bf16::from_f32(x).to_f32(),
                    _ => f16::from_f32(x).to_f32(),
                };
                let rounded =
                    |x: &Matrix| Matrix::from_fn(x.rows(), x.columns(), |i, j| round(x.get(i, j)));
                let mut c = crate::cpu::triple_loop(&rounded(&a), &rounded(&b)).unwrap();
                for x in c.data_mut() {
                    *x = round(*x);
                }
                let allowed = |reference: f64, magnitude: f64| {
                    mode.allowed(k as u32, reference, magnitude, 1.0)
                };
                let verdict = reference.check_by(&c, allowed).unwrap();
                assert!(verdict.passed(), "{mode:?}, K = {k}: {verdict}");
                if k > 1 {
                    let turned = Matrix::from_fn(k, 5, |i, j| b.get(k - 1 - i, j));
                    let wrong = crate::cpu::triple_loop(&a, &turned).unwrap();
                    let verdict = reference.check_by(&wrong, allowed).unwrap();
                    assert!(!verdict.passed(), "{mode:?}, K = {k}");
                }
            }
        }
    }

    #[test]
    fn float32_has_the_kernels_bound() {
        let (reference, magnitude) = (3.0, 100.0);
        let allowed = Mode::F32.allowed(64, reference, magnitude, 1.0);
        let kernels = bound(64) * magnitude;
        assert!((allowed - kernels).abs() < 1e-12 * kernels);
        for mode in [Mode::Tf32, Mode::Bf16, Mode::F16] {
            assert!(mode.allowed(64, reference, magnitude, 1.0) > kernels);
        }
    }
}
