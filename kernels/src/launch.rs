//! What the host knows of a kernel and of a launch. Not part of the device code.

use crate::gpu::host::TensorMap;
use crate::gpu::{Element, Global, GlobalMut};
use core::fmt;
use std::vec::Vec;

/// Three extents: of a grid in blocks, or of a block in threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim3 {
    /// Along x.
    pub x: u32,
    /// Along y.
    pub y: u32,
    /// Along z.
    pub z: u32,
}

/// The most blocks a grid may have along y, and along z, on every device.
pub const MAX_GRID_Y: u32 = 65_535;

/// The most blocks a grid may have along x, on every device.
pub const MAX_GRID_X: u32 = i32::MAX as u32;

impl Dim3 {
    /// `x` along x, one along y and z.
    pub const fn x(x: u32) -> Self {
        Self { x, y: 1, z: 1 }
    }

    /// `x` along x, `y` along y, one along z.
    pub const fn xy(x: u32, y: u32) -> Self {
        Self { x, y, z: 1 }
    }

    /// A grid of at least `columns` × `rows` blocks, columns along x.
    ///
    /// Rows of blocks that y cannot hold continue along z, as
    /// [`block_row`](crate::gpu::thread::block_row) reads them. There may be a
    /// few rows more than asked for: fewer than there are blocks along z.
    pub const fn covering(columns: u32, rows: u32) -> Self {
        let z = rows.div_ceil(MAX_GRID_Y);
        let z = if z == 0 { 1 } else { z };
        Self {
            x: columns,
            y: rows.div_ceil(z),
            z,
        }
    }

    /// x · y · z.
    pub const fn count(self) -> u64 {
        // z is at most 65,535 in a grid that can be launched, and x · y is below
        // 2^47 there; saturation covers those that cannot.
        (self.x as u64 * self.y as u64).saturating_mul(self.z as u64)
    }
}

impl fmt::Display for Dim3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}×{}", self.x, self.y, self.z)
    }
}

/// A buffer that a launch names instead of an address: the host, or the
/// simulator, puts the address in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// The left factor.
    A,
    /// The right factor.
    B,
    /// The result.
    C,
    /// The [workspace](Plan::workspace_bytes), from this byte on.
    Workspace(u64),
}

/// A row-major matrix that the copy engine cuts boxes out of.
///
/// The host makes a hardware descriptor of it, the tensor map that
/// [`TensorMap`] names in a kernel. The hardware asks
/// for rows of a multiple of 16 bytes, at an address that is one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMapSpec {
    /// Where the matrix starts. Its elements are `f32`.
    pub buffer: Buffer,
    /// Rows of the matrix.
    pub rows: u32,
    /// Columns of the matrix.
    pub columns: u32,
    /// Rows of a box, at most 256.
    pub box_rows: u32,
    /// Columns of a box, at most 256 and a multiple of four.
    pub box_columns: u32,
}

/// One argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Argument {
    /// The address of a buffer.
    Pointer(Buffer),
    /// A matrix for the copy engine.
    TensorMap(TensorMapSpec),
    /// A number.
    U32(u32),
    /// A number.
    F32(f32),
}

/// The type of a kernel's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParameterKind {
    /// A pointer to elements of the named size that the kernel reads.
    Pointer,
    /// A pointer to elements that the kernel writes.
    PointerMut,
    /// A tensor map of 128 bytes, passed by value.
    TensorMap,
    /// A `u32`.
    U32,
    /// An `f32`.
    F32,
}

/// Name and type of a kernel's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Its name in the source.
    pub name: &'static str,
    /// Its type.
    pub kind: ParameterKind,
}

/// A type that a kernel can take as a parameter.
pub trait Parameter: Sized {
    /// What the host passes for it.
    type Argument;
    /// The type, as data.
    const KIND: ParameterKind;
    /// What the host passes, as data.
    fn argument(argument: Self::Argument) -> Argument;
    /// The parameter's value, for a run on the CPU.
    ///
    /// # Panics
    ///
    /// Where the argument is missing or of another kind. [`Launch::new`] rules
    /// both out.
    fn from_argument(argument: Option<&Argument>, address: &dyn Fn(Buffer) -> u64) -> Self;
}

macro_rules! pointer_parameter {
    ($($pointer:ident, $kind:ident;)*) => {$(
        impl<T: Element> Parameter for $pointer<T> {
            type Argument = Buffer;
            const KIND: ParameterKind = ParameterKind::$kind;
            fn argument(argument: Buffer) -> Argument {
                Argument::Pointer(argument)
            }
            fn from_argument(argument: Option<&Argument>, address: &dyn Fn(Buffer) -> u64) -> Self {
                let Some(&Argument::Pointer(buffer)) = argument else {
                    panic!("expected a pointer, found {argument:?}");
                };
                Self::from_address(address(buffer))
            }
        }
    )*};
}

pointer_parameter! {
    Global, Pointer;
    GlobalMut, PointerMut;
}

impl Parameter for TensorMap {
    type Argument = TensorMapSpec;
    const KIND: ParameterKind = ParameterKind::TensorMap;
    fn argument(argument: TensorMapSpec) -> Argument {
        Argument::TensorMap(argument)
    }
    fn from_argument(argument: Option<&Argument>, address: &dyn Fn(Buffer) -> u64) -> Self {
        let Some(&Argument::TensorMap(spec)) = argument else {
            panic!("expected a tensor map, found {argument:?}");
        };
        Self::new(spec, address(spec.buffer))
    }
}

macro_rules! number_parameter {
    ($($ty:ty, $kind:ident;)*) => {$(
        impl Parameter for $ty {
            type Argument = $ty;
            const KIND: ParameterKind = ParameterKind::$kind;
            fn argument(argument: $ty) -> Argument {
                Argument::$kind(argument)
            }
            fn from_argument(argument: Option<&Argument>, _: &dyn Fn(Buffer) -> u64) -> Self {
                let Some(&Argument::$kind(value)) = argument else {
                    panic!("expected {}, found {argument:?}", stringify!($ty));
                };
                value
            }
        }
    )*};
}

number_parameter! {
    u32, U32;
    f32, F32;
}

/// What the PTX says of the blocks that a kernel is launched with.
///
/// It lets ptxas give each thread as many registers as such blocks leave room
/// for. Written as `launch_bounds` in [`kernel!`](crate::kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchBounds {
    /// The most threads a block may have: PTX `.maxntid`.
    pub max_threads: u32,
    /// The least number of blocks that shall fit on a multiprocessor: PTX
    /// `.minnctapersm`.
    pub min_blocks: Option<u32>,
}

impl LaunchBounds {
    /// Blocks of at most `max_threads` threads.
    ///
    /// A constant outside 1 to 1,024 fails at compile time, since no device
    /// launches such a block.
    ///
    /// # Panics
    ///
    /// At run time, likewise.
    pub const fn new(max_threads: u32) -> Self {
        assert!(
            max_threads >= 1 && max_threads <= 1024,
            "a block has 1 to 1,024 threads"
        );
        Self {
            max_threads,
            min_blocks: None,
        }
    }

    /// At least `blocks` of them on a multiprocessor.
    pub const fn min_blocks(mut self, blocks: u32) -> Self {
        self.min_blocks = Some(blocks);
        self
    }
}

/// What device code is compiled for, such as `sm_80` or `sm_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The architecture's compute capability.
    pub capability: ComputeCapability,
    /// Whether it uses features that no other architecture has: the `a` of
    /// `sm_90a`. Such code runs on that architecture alone.
    pub specific: bool,
}

impl Target {
    /// The oldest target that the kernels are compiled for. Every other has its
    /// features.
    pub const BASELINE: Self = Self::parse("sm_75");

    /// Reads a name such as `sm_80` or `sm_90a`.
    ///
    /// # Panics
    ///
    /// Where the name is none, at compile time for a constant.
    pub const fn parse(name: &str) -> Self {
        let name = name.as_bytes();
        assert!(
            name.len() > 4 && name[0] == b's' && name[1] == b'm' && name[2] == b'_',
            "the name of a target starts with `sm_`"
        );
        let specific = name[name.len() - 1] == b'a';
        let end = if specific { name.len() - 1 } else { name.len() };
        let mut number = 0;
        let mut i = 3;
        while i < end {
            assert!(name[i].is_ascii_digit(), "a target has a number");
            number = number * 10 + (name[i] - b'0') as u32;
            i += 1;
        }
        Self {
            capability: ComputeCapability::new(number / 10, number % 10),
            specific,
        }
    }

    /// Whether code for this target has the features of `needed`.
    ///
    /// Those of a plain architecture stay in every later one; those of `sm_90a`
    /// exist there alone.
    pub fn has(self, needed: Self) -> bool {
        if needed.specific {
            self == needed
        } else {
            self.capability >= needed.capability
        }
    }

    /// Whether a device runs code for this target.
    pub fn runs_on(self, device: ComputeCapability) -> bool {
        if self.specific {
            device == self.capability
        } else {
            device >= self.capability
        }
    }
}

/// A compiler that makes PTX of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// rustc's own NVPTX code generator: the default.
    Nvptx,
    /// rust-cuda: `cuda_std` and `cuda_builder`, with NVIDIA's libnvvm.
    RustCuda,
}

impl Backend {
    /// Both.
    pub const ALL: &'static [Self] = &[Self::Nvptx, Self::RustCuda];

    /// Its name in tables and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvptx => "nvptx",
            Self::RustCuda => "rust-cuda",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.specific { "a" } else { "" };
        let ComputeCapability { major, minor } = self.capability;
        write!(f, "sm_{major}{minor}{suffix}")
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What `start(…)` of [`kernel!`](crate::kernel) may name, as the host sees it.
#[doc(hidden)]
pub mod start {
    /// The kernel [starts early](super::Entry::starts_early).
    pub const fn early() -> bool {
        true
    }
    /// The kernel starts early, and says itself when it must wait.
    pub const fn itself() -> bool {
        true
    }
}

/// A kernel as the host sees it.
pub struct Entry {
    /// The name of its entry in the PTX.
    pub name: &'static str,
    /// Its parameters, in order.
    pub parameters: &'static [ParameterInfo],
    /// The blocks it may be launched with.
    pub launch_bounds: LaunchBounds,
    /// The compilers that can build it.
    pub backends: &'static [Backend],
    /// Shared memory that a block declares, in bytes.
    pub static_shared_bytes: u32,
    /// Shared memory that every launch gives a block beside that, in bytes.
    pub dynamic_shared_bytes: u32,
    /// The target whose features it uses. Code for a target without them lacks
    /// the kernel.
    pub needs: Target,
    /// The most blocks of a cluster; 1 for a kernel that knows no clusters.
    pub max_cluster: u32,
    /// Whether it waits by itself for the launch before it, where the code is for
    /// `sm_90` or later. A host may then start it while that one still runs.
    pub starts_early: bool,
    /// Runs one thread of it on the CPU; see [`Entry::run_thread`].
    #[doc(hidden)]
    pub run: unsafe fn(&[Argument], &dyn Fn(Buffer) -> u64),
}

impl Entry {
    /// Runs the kernel's body once, as the thread that the installed
    /// [`Machine`](crate::gpu::host::Machine) says it is.
    ///
    /// `address` gives the address, in the machine's terms, of a buffer.
    ///
    /// # Safety
    ///
    /// - The machine checks every access. The kernel's own conditions then need
    ///   not hold: a fault becomes the machine's to report.
    ///
    /// # Panics
    ///
    /// Where the arguments are not the kernel's ([`Launch::new`] makes none
    /// such), or no machine is installed.
    pub unsafe fn run_thread(&self, arguments: &[Argument], address: &dyn Fn(Buffer) -> u64) {
        // SAFETY: the caller promises a machine that checks every access.
        unsafe { (self.run)(arguments, address) }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .field("parameters", &self.parameters)
            .field("launch_bounds", &self.launch_bounds)
            .field("backends", &self.backends)
            .field("static_shared_bytes", &self.static_shared_bytes)
            .field("dynamic_shared_bytes", &self.dynamic_shared_bytes)
            .field("needs", &self.needs)
            .field("max_cluster", &self.max_cluster)
            .field("starts_early", &self.starts_early)
            .finish_non_exhaustive()
    }
}

/// One launch of a kernel: what to run, on which grid, with which arguments.
#[derive(Clone, Debug)]
pub struct Launch {
    entry: &'static Entry,
    grid: Dim3,
    block: Dim3,
    cluster: u32,
    dynamic_shared_bytes: u32,
    arguments: Vec<Argument>,
}

impl Launch {
    /// Used by [`kernel!`](crate::kernel), which makes the arguments fit the
    /// kernel's parameters by type.
    #[doc(hidden)]
    pub fn new(entry: &'static Entry, grid: Dim3, block: Dim3, arguments: Vec<Argument>) -> Self {
        debug_assert_eq!(arguments.len(), entry.parameters.len());
        Self {
            entry,
            grid,
            block,
            cluster: 1,
            dynamic_shared_bytes: entry.dynamic_shared_bytes,
            arguments,
        }
    }

    /// The same launch with `bytes` of dynamic shared memory for each block, or
    /// with what the kernel declares, where that is more.
    #[must_use]
    pub fn dynamic_shared(mut self, bytes: u32) -> Self {
        self.dynamic_shared_bytes = bytes.max(self.entry.dynamic_shared_bytes);
        self
    }

    /// The same launch with the grid's blocks in clusters of `blocks` neighbours
    /// along x, which run at the same time and see each other's
    /// [shared memory](crate::gpu::cluster).
    #[must_use]
    pub fn cluster(mut self, blocks: u32) -> Self {
        self.cluster = blocks;
        self
    }

    /// The kernel.
    pub fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// Blocks in the grid.
    pub fn grid(&self) -> Dim3 {
        self.grid
    }

    /// Threads in a block.
    pub fn block(&self) -> Dim3 {
        self.block
    }

    /// Blocks in a cluster; 1 where there are none.
    pub fn cluster_blocks(&self) -> u32 {
        self.cluster
    }

    /// Shared memory of a block that the launch gives it, in bytes.
    pub fn dynamic_shared_bytes(&self) -> u32 {
        self.dynamic_shared_bytes
    }

    /// All shared memory of a block, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.entry.static_shared_bytes + self.dynamic_shared_bytes
    }

    /// The arguments, in the order of the kernel's parameters.
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }
}

/// Everything that computes one result: launches, in order, and the memory they
/// need beside their operands.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Device memory that the launches share, in bytes. Its content before the
    /// first launch is undefined.
    pub workspace_bytes: u64,
    /// The launches. Each sees all that those before it wrote.
    pub launches: Vec<Launch>,
}

impl Plan {
    /// The plan for an empty result: launch nothing and succeed.
    pub fn nothing() -> Self {
        Self {
            workspace_bytes: 0,
            launches: Vec::new(),
        }
    }

    /// The plan of one launch and no workspace.
    pub fn single(launch: Launch) -> Self {
        Self {
            workspace_bytes: 0,
            launches: std::vec![launch],
        }
    }
}

/// What a device can do, as far as a plan depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Compute capability, such as 9.0.
    pub compute_capability: ComputeCapability,
    /// The target of the code that is loaded on it. Older than the device where
    /// there is no code for its own architecture.
    pub code: Target,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// The most threads a block may have.
    pub max_threads_per_block: u32,
    /// The most shared memory a block may have when it opts in, in bytes.
    pub max_shared_bytes_per_block: u32,
    /// Clusters that run at one time, of each kernel that knows clusters. Empty
    /// where no driver was asked.
    pub active_clusters: Vec<ActiveClusters>,
}

/// How many clusters of a kernel run at one time on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveClusters {
    /// The kernel.
    pub kernel: &'static str,
    /// Clusters of one block, of two, and so on.
    pub by_size: Vec<u32>,
}

/// A device's compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// 9 of 9.0.
    pub major: u32,
    /// 0 of 9.0.
    pub minor: u32,
}

impl ComputeCapability {
    /// Compute capability `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why a variant cannot compute a product on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// The device is too old.
    ComputeCapability {
        /// The variant.
        variant: &'static str,
        /// The least it runs on.
        needed: ComputeCapability,
        /// The device's.
        found: ComputeCapability,
    },
    /// The code that is loaded on the device lacks a variant or a kernel.
    Code {
        /// Its name.
        what: &'static str,
        /// The target that the kernel needs.
        needed: Target,
        /// The target of the code.
        found: Target,
    },
    /// A launch breaks one of the device's limits.
    Limit {
        /// The kernel.
        kernel: &'static str,
        /// What there is too much of.
        what: &'static str,
        /// How much the launch asks for.
        needed: u64,
        /// How much the device gives.
        limit: u64,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ComputeCapability {
                variant,
                needed,
                found,
            } => write!(
                f,
                "{variant} needs compute capability {needed} or newer, and the device has {found}; \
                 choose another variant (`matmul list` shows what each needs)"
            ),
            Self::Code {
                what,
                needed,
                found,
            } => write!(
                f,
                "{what} needs the features of {needed}, and the device runs code for {found}; \
                 choose another variant (`matmul list` shows what each needs)"
            ),
            Self::Limit {
                kernel,
                what,
                needed,
                limit,
            } => write!(
                f,
                "{kernel} would be launched with {needed} {what}, and the device takes {limit}; \
                 choose another variant or a smaller problem"
            ),
        }
    }
}

impl core::error::Error for PlanError {}

impl DeviceLimits {
    /// Checks every launch of a plan against the device.
    ///
    /// # Errors
    ///
    /// [`PlanError::Code`] names the first kernel that the loaded code lacks,
    /// [`PlanError::Limit`] the first limit that a launch breaks.
    pub fn check(&self, plan: &Plan) -> Result<(), PlanError> {
        for launch in &plan.launches {
            let entry = launch.entry;
            if !self.code.has(entry.needs) {
                return Err(PlanError::Code {
                    what: entry.name,
                    needed: entry.needs,
                    found: self.code,
                });
            }
            let limits = [
                (
                    "blocks along x",
                    u64::from(launch.grid.x),
                    u64::from(MAX_GRID_X),
                ),
                (
                    "blocks along y",
                    u64::from(launch.grid.y),
                    u64::from(MAX_GRID_Y),
                ),
                (
                    "blocks along z",
                    u64::from(launch.grid.z),
                    u64::from(MAX_GRID_Y),
                ),
                (
                    "threads in a block",
                    launch.block.count(),
                    u64::from(
                        self.max_threads_per_block
                            .min(entry.launch_bounds.max_threads),
                    ),
                ),
                (
                    "blocks in a cluster",
                    u64::from(launch.cluster),
                    u64::from(entry.max_cluster),
                ),
                (
                    "blocks along x outside whole clusters",
                    u64::from(launch.grid.x % launch.cluster.max(1)),
                    0,
                ),
                (
                    "bytes of shared memory in a block",
                    u64::from(launch.shared_bytes()),
                    u64::from(self.max_shared_bytes_per_block),
                ),
            ];
            for (what, needed, limit) in limits {
                if needed > limit {
                    return Err(PlanError::Limit {
                        kernel: entry.name,
                        what,
                        needed,
                        limit,
                    });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn targets_are_read_and_compared() {
        let [turing, ampere, hopper, blackwell] =
            ["sm_75", "sm_80", "sm_90a", "sm_100"].map(Target::parse);
        assert_eq!(ampere.capability, ComputeCapability::new(8, 0));
        assert_eq!(hopper.to_string(), "sm_90a");
        assert_eq!(blackwell.to_string(), "sm_100");
        assert!(hopper.has(ampere) && hopper.has(hopper) && blackwell.has(ampere));
        assert!(!ampere.has(hopper) && !blackwell.has(hopper) && !turing.has(ampere));
        let device = ComputeCapability::new;
        assert!(hopper.runs_on(device(9, 0)) && !hopper.runs_on(device(10, 0)));
        assert!(ampere.runs_on(device(10, 0)) && !ampere.runs_on(device(7, 5)));
    }

    #[test]
    fn a_tall_grid_continues_along_z() {
        assert_eq!(
            Dim3::covering(3, 65_535),
            Dim3 {
                x: 3,
                y: 65_535,
                z: 1
            }
        );
        let tall = Dim3::covering(1, 65_536);
        assert_eq!(tall.z, 2);
        for rows in [1, 16, 65_534, 65_536, 65_537, 131_071, 1 << 28] {
            let grid = Dim3::covering(1, rows);
            let covered = u64::from(grid.y) * u64::from(grid.z);
            assert!(
                grid.y <= MAX_GRID_Y && grid.z <= MAX_GRID_Y,
                "{rows}: {grid}"
            );
            assert!(covered >= u64::from(rows), "{rows}: {grid}");
            assert!(
                covered < u64::from(rows) + u64::from(grid.z),
                "{rows}: {grid}"
            );
        }
    }
}
