//! The device API: all that a kernel may call.
//!
//! Kernel bodies are written once against this module. Three backends provide
//! it, and the build picks one:
//!
//! - `nvptx`: rustc's own NVPTX code generator. The default.
//! - `rust_cuda`: `cuda_std`, for code compiled by `cuda_builder`. The crate's
//!   manifest in `rust-cuda/kernels` picks it, with the feature `rust-cuda`; the
//!   default workspace has neither the feature nor `cuda_std`.
//! - `host`: the kernel runs on the CPU, and every access goes through a hook
//!   that a simulator provides. Chosen for every target that is not a GPU.
//!
//! # What it holds
//!
//! | module | for |
//! |---|---|
//! | [`thread`] | where a thread stands in the grid; barriers |
//! | [`Global`], [`GlobalMut`] | pointers to global memory, unchecked |
//! | [`Slice`], [`SliceMut`], [`Matrix`], [`MatrixMut`] | views of global memory that check every index |
//! | [`Shared`] | an array that the threads of one block share |
//! | [`warp`] | the 32 threads of a warp |
//! | [`async_copy`] | copies from global to shared memory beside other work (`sm_80`) |
//! | [`Barrier`] | barriers in shared memory that count arrivals and bytes (`sm_80`) |
//! | [`cluster`] | blocks that run together and access each other's shared memory (`sm_90`) |
//! | [`TensorMap`] | the copy engine: boxes of a matrix (`sm_90`) |
//! | [`math`] | arithmetic with a fixed rounding |
//! | [`kernel!`](crate::kernel) | declares a kernel and the shared arrays of its blocks |
//!
//! Names follow `cuda_std` wherever it has one.
//!
//! # Safety as a ladder
//!
//! A view's constructor is unsafe: it is where a kernel promises that a pointer
//! is good for so many elements. After that, loads through the view are safe,
//! and so are stores at an index that belongs to this thread alone
//! ([`thread::Index1d`], [`thread::Index2d`]). A kernel that has already checked
//! its indices steps down to the unchecked calls and says why it may.
//!
//! # Room for later kernels
//!
//! Matrix instructions become a module beside [`thread`], with one function per
//! instruction in every backend that has it.

#[cfg(not(target_arch = "nvptx64"))]
#[cfg_attr(
    feature = "rust-cuda",
    allow(
        dead_code,
        reason = "its types are the table's, its functions are not called"
    )
)]
pub mod host;
#[cfg(not(any(target_arch = "nvptx64", feature = "rust-cuda")))]
use host as backend;
#[cfg(all(target_arch = "nvptx64", not(feature = "rust-cuda")))]
mod nvptx;
#[cfg(all(target_arch = "nvptx64", not(feature = "rust-cuda")))]
use nvptx as backend;
#[cfg(feature = "rust-cuda")]
mod rust_cuda;
#[cfg(feature = "rust-cuda")]
use rust_cuda as backend;

#[cfg(not(feature = "rust-cuda"))]
pub mod async_copy;
#[cfg(not(feature = "rust-cuda"))]
pub mod barrier;
#[cfg(not(feature = "rust-cuda"))]
pub mod cluster;
mod global;
#[macro_use]
mod kernel_macro;
pub mod math;
mod shared;
#[cfg(all(target_arch = "nvptx64", not(feature = "rust-cuda")))]
#[doc(hidden)]
pub use backend::start;
#[cfg(not(feature = "rust-cuda"))]
mod tensor;
pub mod thread;
mod view;
pub mod warp;

#[cfg(not(feature = "rust-cuda"))]
pub use barrier::{Barrier, BarrierAt};
pub use global::{Global, GlobalMut};
pub use shared::Shared;
#[cfg(not(feature = "rust-cuda"))]
pub use tensor::TensorMap;
pub use view::{Matrix, MatrixMut, Slice, SliceMut};

#[cfg(feature = "rust-cuda")]
#[doc(hidden)]
pub use backend::Uninitialised;
#[cfg(not(feature = "rust-cuda"))]
#[doc(hidden)]
pub use backend::declare_dynamic_shared;
#[doc(hidden)]
pub use backend::declare_shared;
#[cfg(all(target_arch = "nvptx64", not(feature = "rust-cuda")))]
#[doc(hidden)]
pub use backend::{TensorMapParameter, tensor_map_parameter};
#[doc(hidden)]
pub use shared::Aligned;

/// The same value, unknown to the optimiser.
///
/// A loop that counts to such a value is not unrolled, and what depends on it
/// is not computed beforehand.
#[cfg(not(feature = "rust-cuda"))]
#[inline(always)]
pub fn opaque(value: u32) -> u32 {
    backend::opaque(value)
}

/// Waits for the launch before this one and all that it wrote, in a kernel that
/// says [`start(itself)`](crate::kernel). Every thread must come here before it
/// touches global memory.
#[cfg(not(feature = "rust-cuda"))]
#[inline(always)]
pub fn wait_for_launch_before() {
    backend::wait_for_launch_before();
}

/// A type that device memory can hold: `f32`, `f64` or `u32`.
///
/// Any bit pattern of the right size is a value of the type, which is what lets
/// a kernel read memory that the host filled.
pub trait Element: backend::ElementBackend + Copy + Default + 'static {}

impl Element for f32 {}
impl Element for f64 {}
impl Element for u32 {}
