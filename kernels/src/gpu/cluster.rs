//! Clusters: blocks that run at the same time and access each other's shared
//! memory.
//!
//! Needs code for `sm_90` or later, a kernel that says
//! [`clusters`](crate::kernel), and a launch that
//! [asks for them](crate::launch::Launch::cluster).
//!
//! The blocks of a cluster are neighbours along x. Each has a rank, and all have
//! the same arrays at the same places. What a block has written in its own
//! shared memory, the others may read after a [`sync`] of the cluster:
//!
//! ```text
//!  block 0         block 1
//!  writes          writes
//!  ─── sync ────────── sync ───   closes write-before-read
//!  reads 1's       reads 0's
//!  ─── sync ────────── sync ───   no block ends, nor writes again, while it is read
//! ```
//!
//! Or a block writes in another's. Its writes need not come back, as what is read
//! must, so this is the faster way where it can be had:
//!
//! ```text
//!  block 0         block 1
//!  ─── sync ────────── sync ───   both have begun
//!  writes in 1's   writes in 0's
//!  ─── sync ────────── sync ───   closes write-before-read; no block ends before
//!  reads its own   reads its own
//! ```

use super::{Shared, backend};

/// This block's number in its cluster, from 0 on.
#[inline(always)]
pub fn rank() -> u32 {
    backend::cluster_rank()
}

/// Blocks in this block's cluster; 1 where the launch asked for none.
#[inline(always)]
pub fn size() -> u32 {
    backend::cluster_size()
}

/// Waits until all threads of the cluster's blocks have come here. What they
/// did before is ordered before what they do after.
///
/// Every thread of every block of the cluster must come here.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sync() {
    arrive();
    wait();
}

/// The first half of [`sync`]: says that this thread has come, and goes on.
///
/// Every thread that arrives must [`wait`] before it arrives again or ends, and
/// all threads of a warp arrive together.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn arrive() {
    backend::arrive_at_cluster();
}

/// As [`arrive`], but what this thread did before is not ordered before what
/// others do after their [`wait`]: for telling them no more than that this block
/// has begun. It costs less, since no write need have come to its place.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn arrive_relaxed() {
    backend::arrive_at_cluster_relaxed();
}

/// The second half of [`sync`]: waits until all threads have [arrived](arrive).
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn wait() {
    backend::wait_for_cluster();
}

/// An array in the shared memory of a block of the cluster.
#[derive(Clone, Copy)]
pub struct RemoteShared<const N: usize>(backend::ClusterAddress);

impl<const N: usize> Shared<f32, N> {
    /// The same array in the shared memory of the cluster's block `rank`, which
    /// may be this one.
    ///
    /// # Safety
    ///
    /// - `rank` is below the cluster's [`size`].
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn of_block(self, rank: u32) -> RemoteShared<N> {
        RemoteShared(backend::address_in_cluster(self.address_of(0), rank))
    }
}

impl<const N: usize> RemoteShared<N> {
    /// Reads the four elements from `i` on in one access.
    ///
    /// # Safety
    ///
    /// - The four are below `N`, and `i` is a multiple of four.
    /// - That block's threads have written them, and a [`sync`] of the cluster
    ///   stands between those writes and this read.
    /// - Another stands between this read and the next write there, and the
    ///   block's end.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn load_4(self, i: u32) -> [f32; 4] {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::cluster_load_4(backend::cluster_element(self.0, i)) }
    }

    /// Writes the four elements from `i` on in one access.
    ///
    /// # Safety
    ///
    /// - The four are below `N`, and `i` is a multiple of four.
    /// - That block has begun, and accesses of the four before are ordered before
    ///   this write: a [`sync`] of the cluster stands between.
    /// - Another stands between this write and the next access there, and the
    ///   block's end.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store_4(self, i: u32, values: [f32; 4]) {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::cluster_store_4(backend::cluster_element(self.0, i), values) }
    }
}
