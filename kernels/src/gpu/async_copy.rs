//! Copies from global to shared memory that run beside the thread's own work.
//!
//! Needs code for `sm_80` or later.
//!
//! A copy neither passes through registers nor makes the thread wait. The
//! thread learns in one of two ways that its copies have landed:
//!
//! - in groups: [`commit`] closes a group, and [`wait`] waits until no more
//!   than so many of the newest groups are under way; or
//! - through a [`Barrier`](super::Barrier), on which the copies themselves
//!   [arrive](super::BarrierAt::arrive_after_copies).
//!
//! Both speak of the copies of one thread. Other threads may read what it
//! copied after a barrier that follows its wait.

use super::{Element, Global, Shared, backend};

/// Starts copying the element at `from` to element `i` of `to`. Where
/// `valid` is false, nothing is read and element `i` becomes zero.
///
/// # Safety
///
/// - `i` is below `N`.
/// - `from` points at a readable element that nothing writes while the kernel
///   runs, unless `valid` is false.
/// - No thread touches element `i` until the copy has landed, and a barrier
///   stands between earlier accesses by other threads and this call.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn copy<T: Element, const N: usize>(
    to: Shared<T, N>,
    i: u32,
    from: Global<T>,
    valid: bool,
) {
    const { assert!(size_of::<T>() == 4 || size_of::<T>() == 8) }
    // SAFETY: the caller's promise is this function's own.
    unsafe {
        backend::copy_async(
            to.address_of(i),
            from.address(),
            size_of::<T>() as u32,
            valid,
        )
    }
}

/// Starts copying the four elements at `from` to the four from `i` on.
/// Where `valid` is false, nothing is read and they become zero.
///
/// # Safety
///
/// - As [`copy`], for each of the four elements.
/// - `i` is a multiple of four, and the address of `from` one of 16 bytes.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn copy_4<T: Element, const N: usize>(
    to: Shared<T, N>,
    i: u32,
    from: Global<T>,
    valid: bool,
) {
    const { assert!(size_of::<T>() == 4, "one copy moves 16 bytes at most") }
    // SAFETY: the caller's promise is this function's own.
    unsafe { backend::copy_async(to.address_of(i), from.address(), 16, valid) }
}

/// Closes a group: all copies that this thread has started since the last one.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn commit() {
    backend::commit_copies();
}

/// Waits until all of this thread's groups but the `NEWEST` last closed ones
/// have landed.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn wait<const NEWEST: u32>() {
    backend::wait_for_copies::<NEWEST>();
}
