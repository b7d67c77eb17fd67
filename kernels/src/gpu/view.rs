//! Views of global memory that check every index.
//!
//! Reading through a view is safe: an index outside gives nothing, or zero.
//! Writing through one is safe too, since it takes an index that no other
//! thread has ([`Index1d`], [`Index2d`]): two threads cannot write one element.

use super::thread::{Index1d, Index2d};
use super::{Element, Global, GlobalMut};

/// A vector in global memory.
#[derive(Clone, Copy)]
pub struct Slice<T> {
    data: Global<T>,
    len: u32,
}

impl<T: Element> Slice<T> {
    #[inline(always)]
    pub(super) fn new(data: Global<T>, len: u32) -> Self {
        Self { data, len }
    }

    /// Element `i`, or nothing where `i` lies outside.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn get(self, i: Index1d) -> Option<T> {
        if i.get() < u64::from(self.len) {
            // SAFETY: i is below the length that `Global::slice` promised.
            Some(unsafe { self.data.load(i.get()) })
        } else {
            None
        }
    }
}

/// A vector in global memory that each thread writes at its own index.
pub struct SliceMut<T> {
    data: GlobalMut<T>,
    len: u32,
}

impl<T: Element> SliceMut<T> {
    #[inline(always)]
    pub(super) fn new(data: GlobalMut<T>, len: u32) -> Self {
        Self { data, len }
    }

    /// Writes element `i`. Does nothing where `i` lies outside.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn set(&mut self, i: Index1d, value: T) {
        if i.get() < u64::from(self.len) {
            // SAFETY: i is below the length that `GlobalMut::slice` promised,
            // and no other thread holds the same index.
            unsafe { self.data.store(i.get(), value) }
        }
    }
}

/// A row-major matrix in global memory.
#[derive(Clone, Copy)]
pub struct Matrix<T> {
    data: Global<T>,
    rows: u32,
    columns: u32,
}

impl<T: Element> Matrix<T> {
    #[inline(always)]
    pub(super) fn new(data: Global<T>, rows: u32, columns: u32) -> Self {
        Self {
            data,
            rows,
            columns,
        }
    }

    /// The number of rows.
    #[inline(always)]
    pub fn rows(self) -> u32 {
        self.rows
    }

    /// The number of columns.
    #[inline(always)]
    pub fn columns(self) -> u32 {
        self.columns
    }

    /// The element there, or zero where the row or the column lies outside.
    ///
    /// Zero adds nothing to a sum of products, so a kernel may multiply what it
    /// gets here without asking whether it was inside.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn load_or_zero(self, row: u32, column: u32) -> T {
        if row < self.rows && column < self.columns {
            // SAFETY: both indices are inside, which `Global::matrix` promised
            // to be readable.
            unsafe { self.pointer_to(row, column).load(0) }
        } else {
            T::default()
        }
    }

    /// The four elements of a row from `column` on, zeros for those outside. One
    /// wide access where they all are inside and their address allows it.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn load_4_or_zero(self, row: u32, column: u32) -> [T; 4] {
        let mut values = [T::default(); 4];
        if row < self.rows && column < self.columns {
            let pointer = self.pointer_to(row, column);
            let inside = self.columns - column;
            if inside >= 4 && pointer.address().is_multiple_of(4 * size_of::<T>() as u64) {
                // SAFETY: all four are inside, and the address was looked at.
                values = unsafe { pointer.load_4(0) };
            } else {
                for (i, value) in values.iter_mut().enumerate() {
                    if (i as u32) < inside {
                        // SAFETY: this element is inside.
                        *value = unsafe { pointer.load(i as u64) };
                    }
                }
            }
        }
        values
    }

    /// A pointer to the element there, for kernels that walk a row or a column.
    ///
    /// The address is computed in 64 bits, since a matrix may have more than
    /// 2^32 elements.
    #[inline(always)]
    pub fn pointer_to(self, row: u32, column: u32) -> Global<T> {
        self.data
            .offset(u64::from(row) * u64::from(self.columns) + u64::from(column))
    }
}

/// A row-major matrix in global memory that each thread writes at its own
/// index.
pub struct MatrixMut<T> {
    data: GlobalMut<T>,
    rows: u32,
    columns: u32,
}

impl<T: Element> MatrixMut<T> {
    #[inline(always)]
    pub(super) fn new(data: GlobalMut<T>, rows: u32, columns: u32) -> Self {
        Self {
            data,
            rows,
            columns,
        }
    }

    /// Whether the index lies inside.
    #[inline(always)]
    pub fn contains(&self, at: Index2d) -> bool {
        at.row() < self.rows && at.column() < self.columns
    }

    /// Writes the element at `at`. Does nothing where it lies outside.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub fn set(&mut self, at: Index2d, value: T) {
        if self.contains(at) {
            let i = u64::from(at.row()) * u64::from(self.columns) + u64::from(at.column());
            // SAFETY: the index is inside, which `GlobalMut::matrix` promised
            // to be writable, and no other thread holds the same index.
            unsafe { self.data.store(i, value) }
        }
    }

    /// Writes the element there. Does nothing where it lies outside.
    ///
    /// # Safety
    ///
    /// - No other thread of the grid touches this element.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn put(&mut self, row: u32, column: u32, value: T) {
        if row < self.rows && column < self.columns {
            let i = u64::from(row) * u64::from(self.columns) + u64::from(column);
            // SAFETY: the element is inside, and the caller promises that it is
            // this thread's.
            unsafe { self.data.store(i, value) }
        }
    }

    /// Writes the four elements of a row from `column` on, but for those
    /// outside. One wide access where they all are inside and their address
    /// allows it.
    ///
    /// # Safety
    ///
    /// - No other thread of the grid touches these elements.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
    pub unsafe fn put_4(&mut self, row: u32, column: u32, values: [T; 4]) {
        if row < self.rows && column < self.columns {
            let i = u64::from(row) * u64::from(self.columns) + u64::from(column);
            let pointer = self.data.offset(i);
            let inside = self.columns - column;
            if inside >= 4 && pointer.address().is_multiple_of(4 * size_of::<T>() as u64) {
                // SAFETY: all four are inside and this thread's, and the address
                // was looked at.
                unsafe { pointer.store_4(0, values) }
            } else {
                for (i, value) in values.into_iter().enumerate() {
                    if (i as u32) < inside {
                        // SAFETY: this element is inside and this thread's.
                        unsafe { pointer.store(i as u64, value) }
                    }
                }
            }
        }
    }
}
