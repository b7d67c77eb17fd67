//! Arithmetic with a fixed rounding, which the simulator counts.
//!
//! Rust never contracts `a * b + c` into one rounding, and a GPU's multiply and
//! add cost as much as its fused multiply-add. Kernels therefore ask for the
//! fused operation by name.

use super::backend;

/// Numbers that the functions of this module take: `f32` and `f64`.
pub trait Float: super::Element + backend::FloatBackend {}

impl Float for f32 {}
impl Float for f64 {}

/// a·b + c, rounded once.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn fma<T: Float>(a: T, b: T, c: T) -> T {
    backend::fma(a, b, c)
}

/// a + b.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn add<T: Float>(a: T, b: T) -> T {
    backend::add(a, b)
}

/// a·b.
#[cfg(not(feature = "rust-cuda"))]
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn mul<T: Float>(a: T, b: T) -> T {
    backend::mul(a, b)
}
