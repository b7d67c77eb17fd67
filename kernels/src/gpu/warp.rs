//! The 32 threads of a warp.

#[cfg(not(feature = "rust-cuda"))]
use super::backend;
use super::thread;

/// Threads in a warp.
pub const SIZE: u32 = 32;

/// The index of this thread's warp in its block, for blocks along x.
#[inline(always)]
pub fn index() -> u32 {
    thread::thread_idx_x() / SIZE
}

/// This thread's index in its warp, for blocks along x.
#[inline(always)]
pub fn lane() -> u32 {
    thread::thread_idx_x() % SIZE
}

/// Waits until every thread of the warp has come here, and orders what they
/// did before it before what they do after it. All 32 must come.
#[cfg(not(feature = "rust-cuda"))]
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sync() {
    backend::sync_warp();
}
