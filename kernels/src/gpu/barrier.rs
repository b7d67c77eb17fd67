//! Barriers in shared memory, which count arrivals and bytes.
//!
//! Needs code for `sm_80` or later; counting bytes needs `sm_90`.
//!
//! A barrier goes through phases. A phase ends when as many arrivals have come
//! as it was made for, and all bytes that were announced have landed; the next
//! begins at once. Threads wait for the end of a phase by its parity: 0 for the
//! first, 1 for the second, 0 for the third. Waiting for parity 1 on a new
//! barrier returns at once, as if a phase before the first had ended.
//!
//! Unlike [`sync_threads`](super::thread::sync_threads), arriving does not make
//! a thread wait, so a producer and its consumers each run ahead as far as the
//! data allows.

use super::{Shared, backend};

/// A barrier. It lives in a shared array: `full: [Barrier; STAGES]`.
#[repr(transparent)]
pub struct Barrier(#[allow(dead_code, reason = "the hardware's")] u64);

/// One barrier of a shared array.
#[derive(Clone, Copy)]
pub struct BarrierAt(backend::SharedAddress);

impl<const N: usize> Shared<Barrier, N> {
    /// Barrier `i`.
    ///
    /// # Safety
    ///
    /// - `i` is below `N`.
    #[inline(always)]
    pub unsafe fn at(self, i: u32) -> BarrierAt {
        BarrierAt(self.address_of(i))
    }
}

impl BarrierAt {
    /// Makes it a barrier for `arrivals` arrivals a phase.
    ///
    /// # Safety
    ///
    /// - One thread of the block calls this once, and [`publish`] after it.
    /// - No other thread uses the barrier before a
    ///   [`sync_threads`](super::thread::sync_threads) that follows.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn init(self, arrivals: u32) {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::init_barrier(self.0, arrivals) }
    }

    /// Arrives. What this thread did before is ordered before what a thread
    /// does after it has waited for the phase.
    ///
    /// # Safety
    ///
    /// - The barrier was [initialised](Self::init).
    /// - No more arrivals come in a phase than it was made for.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn arrive(self) {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::arrive(self.0) }
    }

    /// Arrives, and makes the phase wait for `bytes` bytes that the copy engine
    /// brings.
    ///
    /// # Safety
    ///
    /// - As [`arrive`](Self::arrive).
    /// - Copies of as many bytes in all [complete](super::TensorMap::copy_box)
    ///   on the barrier in this phase.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn arrive_expecting(self, bytes: u32) {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::arrive_expecting(self.0, bytes) }
    }

    /// Has the thread's [asynchronous copies](super::async_copy) arrive, once
    /// all that it has started so far have landed. The thread goes on.
    ///
    /// # Safety
    ///
    /// - As [`arrive`](Self::arrive).
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn arrive_after_copies(self) {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::arrive_after_copies(self.0) }
    }

    /// Waits for the end of the phase of parity `parity`: 0 or 1.
    ///
    /// # Safety
    ///
    /// - The barrier was [initialised](Self::init).
    /// - At most one phase that this thread has not waited for has ended.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn wait(self, parity: u32) {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::wait_for_phase(self.0, parity) }
    }

    /// Whether the phase of parity `parity` has ended. Where it has, that is as good
    /// as having [waited](Self::wait) for it.
    ///
    /// # Safety
    ///
    /// - As [`wait`](Self::wait).
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn has_ended(self, parity: u32) -> bool {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::phase_has_ended(self.0, parity) }
    }

    #[inline(always)]
    pub(super) fn address(self) -> backend::SharedAddress {
        self.0
    }
}

/// Makes barriers that this thread has initialised known to the copy engine.
#[inline(always)]
pub fn publish() {
    backend::publish_barriers();
}
