//! Matrix multiplication: the contract of every variant, and the table of them.
//!
//! # The contract
//!
//! C (M×N) = A (M×K) · B (K×N), all row-major with contiguous rows.
//!
//! - M, N and K are anything from 0 to [`MAX_DIMENSION`]. Nothing is asked of
//!   the caller in the way of padding or alignment beyond the element's own.
//! - Every element of C is written, and none is read. K = 0 writes zeros. M = 0
//!   or N = 0 launches nothing and succeeds.
//! - NaN, infinities and subnormals behave as IEEE arithmetic says.
//! - Addresses are computed in 64 bits: a matrix may have more than 2^32
//!   elements.
//! - The same inputs on the same device give the same bits each time.
//!
//! A variant that needs an architecture says so in its [`Variant`], and a plan
//! for another device is an error, never a wrong answer. So does a kernel that
//! not every compiler can build: `backends(Nvptx)` in its
//! [`kernel!`](crate::kernel), and its file's `mod` line and its line in `ALL`
//! are under `#[cfg(not(feature = "rust-cuda"))]`.
//!
//! # Adding a variant
//!
//! Write a file beside this one with its kernel and its `VARIANTS`, add a `mod`
//! line, and add the `VARIANTS` to `ALL`. Programs, tests and benchmarks go
//! through the table and name no variant.
//!
//! The device code is compiled in two parts, which differ in LLVM's options: a
//! `mod` line that is `not(register_tiles)` belongs to the plain part alone, one
//! that is `not(plain)` to that of the kernels whose sums fill the registers.

#[cfg(not(any(feature = "rust-cuda", plain)))]
pub mod async_copy;
#[cfg(not(any(feature = "rust-cuda", plain)))]
pub mod auto;
#[cfg(not(plain))]
pub mod double_buffered;
#[cfg(not(any(feature = "rust-cuda", plain)))]
pub mod matrix_vector;
#[cfg(not(register_tiles))]
pub mod naive;
#[cfg(not(register_tiles))]
pub mod naive_uncoalesced;
#[cfg(not(any(feature = "rust-cuda", plain)))]
pub mod persistent;
#[cfg(not(any(target_arch = "nvptx64", feature = "rust-cuda")))]
pub mod schedule;
#[cfg(not(any(feature = "rust-cuda", plain)))]
pub mod split_k;
#[cfg(not(any(feature = "rust-cuda", plain)))]
pub mod stream_k;
#[cfg(not(plain))]
pub mod thread_tile_1d;
#[cfg(not(plain))]
pub mod thread_tile_2d;
#[cfg(not(register_tiles))]
pub mod tiled;
#[cfg(not(any(feature = "rust-cuda", plain)))]
pub mod tma;
#[cfg(not(plain))]
pub mod vectorized;
#[cfg(not(any(feature = "rust-cuda", plain)))]
pub mod warp_tile;

#[cfg(not(target_arch = "nvptx64"))]
pub use table::*;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use crate::launch::{Backend, ComputeCapability, DeviceLimits, Entry, Plan, PlanError, Target};
    use core::fmt;

    /// Every variant, slowest idea first. One line for each file.
    const ALL: &[&[Variant]] = &[
        super::naive_uncoalesced::VARIANTS,
        super::naive::VARIANTS,
        super::tiled::VARIANTS,
        super::thread_tile_1d::VARIANTS,
        super::thread_tile_2d::VARIANTS,
        super::vectorized::VARIANTS,
        super::double_buffered::VARIANTS,
        #[cfg(not(feature = "rust-cuda"))]
        super::async_copy::VARIANTS,
        #[cfg(not(feature = "rust-cuda"))]
        super::warp_tile::VARIANTS,
        #[cfg(not(feature = "rust-cuda"))]
        super::persistent::VARIANTS,
        #[cfg(not(feature = "rust-cuda"))]
        super::tma::VARIANTS,
        #[cfg(not(feature = "rust-cuda"))]
        super::stream_k::VARIANTS,
        #[cfg(not(feature = "rust-cuda"))]
        super::split_k::VARIANTS,
        #[cfg(not(feature = "rust-cuda"))]
        super::matrix_vector::VARIANTS,
        #[cfg(not(feature = "rust-cuda"))]
        super::auto::VARIANTS,
    ];

    /// Every variant, in the table's order.
    pub fn all() -> impl Iterator<Item = &'static Variant> {
        ALL.iter().copied().flatten()
    }

    /// Every variant that a device, with the code that is loaded on it, runs, in
    /// the table's order. A shape may still be beyond one.
    pub fn all_on(limits: &DeviceLimits) -> impl Iterator<Item = &'static Variant> {
        all().filter(|variant| variant.runs_on(limits))
    }

    /// The variant of that name.
    pub fn find(name: &str) -> Option<&'static Variant> {
        all().find(|variant| variant.name == name)
    }

    /// The largest M, N or K.
    ///
    /// A little below 2^32, so that an index rounded up to the next tile still
    /// fits in 32 bits.
    pub const MAX_DIMENSION: u32 = u32::MAX - 4095;

    /// The sizes of a product: C (M×N) = A (M×K) · B (K×N).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Shape {
        m: u32,
        n: u32,
        k: u32,
    }

    /// A dimension is larger than [`MAX_DIMENSION`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ShapeError {
        /// "M", "N" or "K".
        pub dimension: &'static str,
        /// Its value.
        pub value: u64,
    }

    impl fmt::Display for ShapeError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(
                f,
                "{} = {} is too large: a dimension is at most {MAX_DIMENSION}",
                self.dimension, self.value
            )
        }
    }

    impl core::error::Error for ShapeError {}

    impl Shape {
        /// M × N × K.
        ///
        /// # Errors
        ///
        /// Names the first dimension that is larger than [`MAX_DIMENSION`].
        pub const fn new(m: u64, n: u64, k: u64) -> Result<Self, ShapeError> {
            const fn dimension(dimension: &'static str, value: u64) -> Result<u32, ShapeError> {
                if value > MAX_DIMENSION as u64 {
                    Err(ShapeError { dimension, value })
                } else {
                    Ok(value as u32)
                }
            }
            // `?` is not const.
            match (dimension("M", m), dimension("N", n), dimension("K", k)) {
                (Ok(m), Ok(n), Ok(k)) => Ok(Self { m, n, k }),
                (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => Err(error),
            }
        }

        /// Rows of A and C.
        pub const fn m(self) -> u32 {
            self.m
        }

        /// Columns of B and C.
        pub const fn n(self) -> u32 {
            self.n
        }

        /// Columns of A, rows of B.
        pub const fn k(self) -> u32 {
            self.k
        }

        /// Whether C has no element.
        pub const fn is_empty(self) -> bool {
            self.m == 0 || self.n == 0
        }

        /// Elements of A. Each dimension is below 2^32, so it fits.
        pub const fn a_elements(self) -> u64 {
            self.m as u64 * self.k as u64
        }

        /// Elements of B.
        pub const fn b_elements(self) -> u64 {
            self.k as u64 * self.n as u64
        }

        /// Elements of C.
        pub const fn c_elements(self) -> u64 {
            self.m as u64 * self.n as u64
        }

        /// Floating-point operations: 2·M·N·K, a multiplication and an addition
        /// for each product.
        pub fn flops(self) -> f64 {
            2.0 * f64::from(self.m) * f64::from(self.n) * f64::from(self.k)
        }
    }

    /// M×N×K.
    impl fmt::Display for Shape {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}×{}×{}", self.m, self.n, self.k)
        }
    }

    /// The type of a matrix's elements, or of the sums.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum ElementType {
        /// IEEE binary32.
        F32,
    }

    impl ElementType {
        /// Bytes of one element.
        pub const fn size(self) -> u64 {
            match self {
                Self::F32 => 4,
            }
        }
    }

    impl fmt::Display for ElementType {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(match self {
                Self::F32 => "f32",
            })
        }
    }

    /// One way to multiply matrices: what the host must know of it.
    #[derive(Debug)]
    pub struct Variant {
        /// Its name, in the table and on the command line.
        pub name: &'static str,
        /// What it is, in one line.
        pub summary: &'static str,
        /// The file that holds it: `file!()`.
        pub source: &'static str,
        /// Elements of A and B.
        pub input: ElementType,
        /// The sums, while they are made.
        pub accumulator: ElementType,
        /// Elements of C.
        pub output: ElementType,
        /// The oldest device it runs on.
        pub min_compute_capability: ComputeCapability,
        /// The target without whose features it can't be. A variant with
        /// kernels for several takes those that the loaded code has.
        pub needs: Target,
        /// Whether several threads may write one element of C, all with the
        /// same bits. The simulator reports it otherwise.
        pub overlapping_writes: bool,
        /// The kernels that its plans launch.
        pub entries: &'static [&'static Entry],
        /// The plan for a shape that is not empty; see [`Variant::plan`].
        pub plan: fn(Shape, &DeviceLimits) -> Result<Plan, PlanError>,
    }

    impl Variant {
        /// Whether a device, with the code that is loaded on it, runs this
        /// variant. A shape may still be beyond it.
        pub fn runs_on(&self, limits: &DeviceLimits) -> bool {
            limits.compute_capability >= self.min_compute_capability && limits.code.has(self.needs)
        }

        /// Whether a compiler can build every kernel that its plans launch.
        pub fn is_built_by(&self, backend: Backend) -> bool {
            self.entries
                .iter()
                .all(|entry| entry.backends.contains(&backend))
        }

        /// The compilers that can.
        pub fn backends(&self) -> impl Iterator<Item = Backend> {
            Backend::ALL
                .iter()
                .copied()
                .filter(|&backend| self.is_built_by(backend))
        }

        /// The launches that compute a product on a device, checked against the
        /// device's limits.
        ///
        /// # Errors
        ///
        /// [`PlanError`] where the device is too old for the variant, or a
        /// launch would break one of its limits.
        pub fn plan(&self, shape: Shape, limits: &DeviceLimits) -> Result<Plan, PlanError> {
            if limits.compute_capability < self.min_compute_capability {
                return Err(PlanError::ComputeCapability {
                    variant: self.name,
                    needed: self.min_compute_capability,
                    found: limits.compute_capability,
                });
            }
            if !limits.code.has(self.needs) {
                return Err(PlanError::Code {
                    what: self.name,
                    needed: self.needs,
                    found: limits.code,
                });
            }
            if shape.is_empty() {
                return Ok(Plan::nothing());
            }
            let plan = (self.plan)(shape, limits)?;
            limits.check(&plan)?;
            Ok(plan)
        }
    }
}
