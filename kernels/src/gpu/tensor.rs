//! The copy engine (TMA): boxes of a matrix, by one thread's one instruction.
//!
//! Needs code for `sm_90` or later.

use super::{BarrierAt, Element, Shared, backend};

pub use backend::TensorMap;

impl TensorMap {
    /// Has the engine fetch the map, so that the first copy finds it at hand.
    #[inline(always)]
    pub fn prefetch(self) {
        backend::prefetch_tensor_map(self);
    }

    /// Starts copying the box whose first element is in `row` and `column` to
    /// the elements of `to` from `i` on, row after row. It completes on
    /// `barrier`, for which its bytes count. What lies outside the matrix
    /// arrives as zeros, and counts.
    ///
    /// One thread calls this for the whole block.
    ///
    /// # Safety
    ///
    /// - As many elements as a box has lie in `to` from `i` on, and their
    ///   address is a multiple of 128 bytes.
    /// - No thread touches them until it has waited for the phase, and earlier
    ///   accesses are ordered before this call by a barrier.
    /// - Nothing writes the matrix while the kernel runs.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn copy_box<T: Element, const N: usize>(
        self,
        to: Shared<T, N>,
        i: u32,
        row: u32,
        column: u32,
        barrier: BarrierAt,
    ) {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::copy_box(to.address_of(i), self, row, column, barrier.address()) }
    }
}
