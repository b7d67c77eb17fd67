//! Arrays that the threads of one block share.

use super::{Element, backend};
use core::marker::PhantomData;

/// An array of `N` elements in the block's shared memory.
///
/// Declared in the signature of a kernel (see [`kernel!`](crate::kernel)) and
/// handed down from there. Its elements hold nothing until a thread has written
/// them.
///
/// All threads of the block see the same array, so a write and another thread's
/// read or write of the same element need a
/// [barrier](super::thread::sync_threads) between them. No type can prove that
/// here, so the accesses are unsafe; the simulator checks them.
pub struct Shared<T, const N: usize> {
    base: backend::SharedAddress,
    element: PhantomData<T>,
}

impl<T, const N: usize> Clone for Shared<T, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const N: usize> Copy for Shared<T, N> {}

impl<T, const N: usize> Shared<T, N> {
    /// The array that starts at `base`.
    ///
    /// # Safety
    ///
    /// - `base` is the start of `N` elements of the running block's shared
    ///   memory, aligned for four-wide access, that nothing else uses.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn from_address(base: backend::SharedAddress) -> Self {
        Self {
            base,
            element: PhantomData,
        }
    }

    /// The address of element `i`.
    #[cfg(not(feature = "rust-cuda"))]
    #[inline(always)]
    pub(super) fn address_of(self, i: u32) -> backend::SharedAddress {
        backend::shared_element::<T>(self.base, i)
    }

    /// The array's elements counted from element `elements` on, which may lie
    /// outside: only what is accessed must be inside.
    #[cfg(not(feature = "rust-cuda"))]
    #[inline(always)]
    pub(crate) fn moved(self, elements: i32) -> Self {
        let bytes = elements * size_of::<T>() as i32;
        Self {
            base: self.base.wrapping_add_signed(bytes.into()),
            element: PhantomData,
        }
    }
}

impl<T: Element, const N: usize> Shared<T, N> {
    /// Reads element `i`.
    ///
    /// # Safety
    ///
    /// - `i` is below `N`, and a thread of this block has written element `i`.
    /// - A barrier stands between that write and this read, unless this thread
    ///   wrote it.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn load(self, i: u32) -> T {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::shared_load(self.base, i) }
    }

    /// Writes `value` to element `i`.
    ///
    /// # Safety
    ///
    /// - `i` is below `N`.
    /// - A barrier stands between this write and every access of the element by
    ///   another thread.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store(self, i: u32, value: T) {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::shared_store(self.base, i, value) }
    }

    /// Reads the four elements from `i` on in one access.
    ///
    /// # Safety
    ///
    /// - As [`load`](Self::load), for each of the four elements.
    /// - `i` is a multiple of four.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn load_4(self, i: u32) -> [T; 4] {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::shared_load_4(self.base, i) }
    }

    /// Writes the four elements from `i` on in one access.
    ///
    /// # Safety
    ///
    /// - As [`store`](Self::store), for each of the four elements.
    /// - `i` is a multiple of four.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store_4(self, i: u32, values: [T; 4]) {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::shared_store_4(self.base, i, values) }
    }
}

/// An array in the dynamic shared memory, at an address that the copy engine
/// takes.
#[doc(hidden)]
#[repr(C, align(128))]
pub struct Aligned<T>(T);
