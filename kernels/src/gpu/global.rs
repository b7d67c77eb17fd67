//! Pointers to global memory.

use super::{Element, Matrix, MatrixMut, Slice, SliceMut, backend};

/// A pointer to elements in global memory that the kernel reads.
///
/// Passed to a kernel as it is. Arithmetic on it is always allowed; reading
/// through it is unsafe.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Global<T>(*const T);

/// A pointer to elements in global memory that the kernel reads or writes.
///
/// Passed to a kernel as it is. Arithmetic on it is always allowed; access
/// through it is unsafe.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct GlobalMut<T>(*mut T);

impl<T: Element> Global<T> {
    /// A pointer from its address.
    #[inline(always)]
    pub fn from_address(address: u64) -> Self {
        Self(core::ptr::without_provenance(address as usize))
    }

    /// Its address.
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.0.addr() as u64
    }

    /// The address that lies `elements` elements further.
    #[inline(always)]
    pub fn offset(self, elements: u64) -> Self {
        Self(self.0.wrapping_add(elements as usize))
    }

    /// Reads element `i`.
    ///
    /// # Safety
    ///
    /// - Element `i` from this pointer lies inside the buffer.
    /// - No thread writes it while the kernel runs.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn load(self, i: u64) -> T {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::global_load(self.offset(i).0) }
    }

    /// Reads the four elements from `i` on in one access.
    ///
    /// # Safety
    ///
    /// - Elements `i` to `i + 3` from this pointer lie inside the buffer.
    /// - The address of element `i` is a multiple of the four elements' size.
    /// - No thread writes them while the kernel runs.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn load_4(self, i: u64) -> [T; 4] {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::global_load_4(self.offset(i).0) }
    }

    /// A view of the first `len` elements that checks every index.
    ///
    /// # Safety
    ///
    /// - The pointer is good for reads of `len` elements.
    /// - No thread writes them while the kernel runs.
    #[inline(always)]
    pub unsafe fn slice(self, len: u32) -> Slice<T> {
        Slice::new(self, len)
    }

    /// A view of a row-major matrix of `rows` × `columns` that checks every
    /// index.
    ///
    /// # Safety
    ///
    /// - The pointer is good for reads of `rows` · `columns` elements.
    /// - No thread writes them while the kernel runs.
    #[inline(always)]
    pub unsafe fn matrix(self, rows: u32, columns: u32) -> Matrix<T> {
        Matrix::new(self, rows, columns)
    }
}

impl<T: Element> GlobalMut<T> {
    /// A pointer from its address.
    #[inline(always)]
    pub fn from_address(address: u64) -> Self {
        Self(core::ptr::without_provenance_mut(address as usize))
    }

    /// Its address.
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.0.addr() as u64
    }

    /// The address that lies `elements` elements further.
    #[inline(always)]
    pub fn offset(self, elements: u64) -> Self {
        Self(self.0.wrapping_add(elements as usize))
    }

    /// Reads element `i`.
    ///
    /// # Safety
    ///
    /// - Element `i` from this pointer lies inside the buffer and was written.
    /// - A barrier or the launch itself orders this read after every write of
    ///   the element by another thread.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn load(self, i: u64) -> T {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::global_load(self.offset(i).0) }
    }

    /// Writes `value` to element `i`.
    ///
    /// # Safety
    ///
    /// - Element `i` from this pointer lies inside the buffer.
    /// - No other thread reads or writes it without a barrier in between.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store(self, i: u64, value: T) {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::global_store(self.offset(i).0, value) }
    }

    /// Writes four elements from `i` on in one access.
    ///
    /// # Safety
    ///
    /// - Elements `i` to `i + 3` from this pointer lie inside the buffer.
    /// - The address of element `i` is a multiple of the four elements' size.
    /// - No other thread reads or writes them without a barrier in between.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn store_4(self, i: u64, values: [T; 4]) {
        // SAFETY: the caller's promise is this function's own.
        unsafe { backend::global_store_4(self.offset(i).0, values) }
    }

    /// A view of the first `len` elements that checks every index.
    ///
    /// # Safety
    ///
    /// - The pointer is good for writes of `len` elements.
    /// - While the kernel runs, they are touched through such views alone, all
    ///   of the same pointer and length.
    #[inline(always)]
    pub unsafe fn slice(self, len: u32) -> SliceMut<T> {
        SliceMut::new(self, len)
    }

    /// A view of a row-major matrix of `rows` × `columns` that checks every
    /// index.
    ///
    /// # Safety
    ///
    /// - The pointer is good for writes of `rows` · `columns` elements.
    /// - While the kernel runs, they are touched through such views alone, all
    ///   of the same pointer, `rows` and `columns`.
    /// - All threads index them by the same of
    ///   [`index_2d`](super::thread::index_2d) and
    ///   [`index_2d_transposed`](super::thread::index_2d_transposed).
    #[inline(always)]
    pub unsafe fn matrix(self, rows: u32, columns: u32) -> MatrixMut<T> {
        MatrixMut::new(self, rows, columns)
    }
}
