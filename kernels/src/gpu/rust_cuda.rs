//! Backend: `cuda_std`, for code that rust-cuda's `cuda_builder` compiles.
//!
//! libnvvm infers the state space of an access from the static that the pointer
//! comes from, so shared memory is read and written by plain dereferences and
//! still becomes `ld.shared` and `st.shared`.
//!
//! On the CPU this compiles but does not run: that is how `rust-cuda/check`
//! type-checks it without rust-cuda's toolchain.

use core::mem::MaybeUninit;
use cuda_std::GpuFloat;

pub use cuda_std::thread::{
    block_dim_x, block_dim_y, block_dim_z, block_idx_x, block_idx_y, block_idx_z, grid_dim_x,
    grid_dim_y, grid_dim_z, sync_threads, thread_idx_x, thread_idx_y, thread_idx_z,
};

/// The first byte of an array in shared memory, as a generic pointer.
pub type SharedAddress = *mut u8;

/// What this backend asks of an element type: nothing beyond being plain data.
pub trait ElementBackend {}
impl ElementBackend for f32 {}
impl ElementBackend for f64 {}
impl ElementBackend for u32 {}

/// Four elements with the alignment that one wide access needs.
#[doc(hidden)]
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Four<T>([T; 4]);

/// What a shared array of `$len` elements is declared as.
///
/// In fours, for their alignment. A shared static must be an array of
/// `MaybeUninit`, and nothing else: the code generator refuses an initial value.
#[doc(hidden)]
pub type Uninitialised<T> = MaybeUninit<Four<T>>;

/// # Safety
///
/// Element `i` is inside the array at `base`.
#[inline(always)]
unsafe fn element<T>(base: SharedAddress, i: u32) -> *mut T {
    // SAFETY: the caller promises that the element is inside.
    unsafe { base.cast::<T>().add(i as usize) }
}

/// # Safety
///
/// As [`Shared::load`](super::Shared::load).
#[inline(always)]
pub unsafe fn shared_load<T: Copy>(base: SharedAddress, i: u32) -> T {
    // SAFETY: the caller promises that element i is inside and was written.
    unsafe { *element::<T>(base, i) }
}

/// # Safety
///
/// As [`Shared::store`](super::Shared::store).
#[inline(always)]
pub unsafe fn shared_store<T>(base: SharedAddress, i: u32, value: T) {
    // SAFETY: the caller promises that element i is inside the array.
    unsafe { element::<T>(base, i).write(value) }
}

/// # Safety
///
/// As [`Shared::load_4`](super::Shared::load_4).
#[inline(always)]
pub unsafe fn shared_load_4<T: Copy>(base: SharedAddress, i: u32) -> [T; 4] {
    // SAFETY: the caller promises that the elements are inside, written and
    // aligned.
    unsafe { (*element::<T>(base, i).cast::<Four<T>>()).0 }
}

/// # Safety
///
/// As [`Shared::store_4`](super::Shared::store_4).
#[inline(always)]
pub unsafe fn shared_store_4<T>(base: SharedAddress, i: u32, values: [T; 4]) {
    // SAFETY: the caller promises that the elements are inside and aligned.
    unsafe { element::<T>(base, i).cast::<Four<T>>().write(Four(values)) }
}

/// # Safety
///
/// `pointer` is good for a read.
#[inline(always)]
pub unsafe fn global_load<T: Copy>(pointer: *const T) -> T {
    // SAFETY: the caller promises a readable element.
    unsafe { *pointer }
}

/// # Safety
///
/// `pointer` is good for a read of four elements and aligned for them.
#[inline(always)]
pub unsafe fn global_load_4<T: Copy>(pointer: *const T) -> [T; 4] {
    // SAFETY: the caller promises four readable elements, aligned as `Four` is.
    unsafe { (*pointer.cast::<Four<T>>()).0 }
}

/// # Safety
///
/// `pointer` is good for a write.
#[inline(always)]
pub unsafe fn global_store<T>(pointer: *mut T, value: T) {
    // SAFETY: the caller promises a writable element.
    unsafe { pointer.write(value) }
}

/// # Safety
///
/// `pointer` is good for a write of four elements and aligned for them.
#[inline(always)]
pub unsafe fn global_store_4<T>(pointer: *mut T, values: [T; 4]) {
    // SAFETY: the caller promises four writable elements, aligned as `Four` is.
    unsafe { pointer.cast::<Four<T>>().write(Four(values)) }
}

/// What this backend asks of a number.
pub trait FloatBackend: GpuFloat + core::ops::Add<Output = Self> {}
impl FloatBackend for f32 {}
impl FloatBackend for f64 {}

#[inline(always)]
pub fn fma<T: FloatBackend>(a: T, b: T, c: T) -> T {
    GpuFloat::mul_add(a, b, c)
}

#[inline(always)]
pub fn add<T: FloatBackend>(a: T, b: T) -> T {
    a + b
}

/// Declares a shared array in the kernel that expands it and gives its
/// [`Shared`](super::Shared).
///
/// Each expansion is a static of its own, so two arrays of one size never share
/// an address.
#[doc(hidden)]
#[macro_export]
macro_rules! declare_shared_static {
    ($kernel:ident, $array:ident, $element:ty, $len:expr) => {{
        #[cuda_std::address_space(shared)]
        static mut ARRAY: [$crate::gpu::Uninitialised<$element>; ($len as usize).div_ceil(4)] =
            [const { core::mem::MaybeUninit::uninit() }; ($len as usize).div_ceil(4)];
        // SAFETY: the array belongs to this kernel alone, and its elements are
        // aligned to 16 bytes.
        unsafe {
            $crate::gpu::Shared::<$element, { $len }>::from_address((&raw mut ARRAY).cast::<u8>())
        }
    }};
}
pub use crate::declare_shared_static as declare_shared;
