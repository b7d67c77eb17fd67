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

/// A value that is the same in all threads of the warp, which come here together.
///
/// ptxas knows the result to be the same: it can hold it in uniform registers, and
/// a branch on it takes the whole warp.
#[cfg(not(feature = "rust-cuda"))]
#[inline(always)]
pub fn uniform(value: u32) -> u32 {
    backend::uniform(value)
}

/// Whether this thread is the one that the hardware chooses of its warp. All threads
/// of the warp come here together.
///
/// Needs code for `sm_90` or later. In PTX: `elect.sync`.
#[cfg(not(feature = "rust-cuda"))]
#[inline(always)]
pub fn elect() -> bool {
    backend::elect()
}
