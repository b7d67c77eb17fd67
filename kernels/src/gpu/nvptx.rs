//! Backend: rustc's own NVPTX code generator.
//!
//! Global memory is read and written by plain dereferences: LLVM infers the
//! address space from the kernel's parameters. It cannot infer that of shared
//! memory, since rustc has no pointer type for it, and a generic access costs a
//! fifth of a tiled kernel's speed. So shared memory is a 32-bit address, and
//! `ld.shared` and `st.shared` are written out; ptxas joins neighbouring ones
//! into wider accesses.

use core::arch::asm;
use core::arch::nvptx;

macro_rules! positions {
    ($($name:ident = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        pub fn $name() -> u32 {
            // SAFETY: reads a special register that every thread has.
            (unsafe { nvptx::$intrinsic() }) as u32
        }
    )*};
}

positions! {
    thread_idx_x = _thread_idx_x;
    thread_idx_y = _thread_idx_y;
    thread_idx_z = _thread_idx_z;
    block_idx_x = _block_idx_x;
    block_idx_y = _block_idx_y;
    block_idx_z = _block_idx_z;
    block_dim_x = _block_dim_x;
    block_dim_y = _block_dim_y;
    block_dim_z = _block_dim_z;
    grid_dim_x = _grid_dim_x;
    grid_dim_y = _grid_dim_y;
    grid_dim_z = _grid_dim_z;
}

#[inline(always)]
pub fn sync_threads() {
    // SAFETY: a barrier has no precondition on memory; one that not all threads
    // reach ends in a hang or an error, never in a wrong access.
    unsafe { nvptx::_syncthreads() }
}

/// The address of an array in the shared state space.
pub type SharedAddress = u32;

/// What this backend asks of an element type: its own shared-memory accesses.
pub trait ElementBackend: Sized {
    /// # Safety
    ///
    /// `address` is inside shared memory and aligned for the type.
    unsafe fn shared_load(address: u32) -> Self;
    /// # Safety
    ///
    /// As [`shared_load`](Self::shared_load).
    unsafe fn shared_store(address: u32, value: Self);
    /// # Safety
    ///
    /// As [`shared_load`](Self::shared_load), aligned for four elements.
    unsafe fn shared_load_4(address: u32) -> [Self; 4];
    /// # Safety
    ///
    /// As [`shared_load_4`](Self::shared_load_4).
    unsafe fn shared_store_4(address: u32, values: [Self; 4]);
}

macro_rules! shared_accesses {
    // The options leave out `pure` and `nomem`: the compiler must not move an
    // access across a barrier, nor merge two reads with a barrier between.
    ($($ty:ty, $reg:ident, $suffix:literal, $half:literal;)*) => {$(
        impl ElementBackend for $ty {
            #[inline(always)]
            unsafe fn shared_load(address: u32) -> Self {
                let value;
                // SAFETY: the caller promises a valid shared address.
                unsafe {
                    asm!(
                        concat!("ld.shared.", $suffix, " {value}, [{address}];"),
                        value = out($reg) value,
                        address = in(reg32) address,
                        options(nostack, readonly, preserves_flags),
                    );
                }
                value
            }

            #[inline(always)]
            unsafe fn shared_store(address: u32, value: Self) {
                // SAFETY: the caller promises a valid shared address.
                unsafe {
                    asm!(
                        concat!("st.shared.", $suffix, " [{address}], {value};"),
                        address = in(reg32) address,
                        value = in($reg) value,
                        options(nostack, preserves_flags),
                    );
                }
            }

            #[inline(always)]
            unsafe fn shared_load_4(address: u32) -> [Self; 4] {
                // A vector access moves 16 bytes at most: four elements of 4
                // bytes, or twice two of 8.
                let (a, b, c, d);
                // SAFETY: the caller promises a valid, aligned shared address.
                unsafe {
                    if $half == 0 {
                        asm!(
                            concat!("ld.shared.v4.b32 {{{a}, {b}, {c}, {d}}}, [{address}];"),
                            a = out($reg) a, b = out($reg) b, c = out($reg) c, d = out($reg) d,
                            address = in(reg32) address,
                            options(nostack, readonly, preserves_flags),
                        );
                    } else {
                        asm!(
                            concat!("ld.shared.v2.b64 {{{a}, {b}}}, [{address}];"),
                            concat!("ld.shared.v2.b64 {{{c}, {d}}}, [{address}+16];"),
                            a = out($reg) a, b = out($reg) b, c = out($reg) c, d = out($reg) d,
                            address = in(reg32) address,
                            options(nostack, readonly, preserves_flags),
                        );
                    }
                }
                [a, b, c, d]
            }

            #[inline(always)]
            unsafe fn shared_store_4(address: u32, [a, b, c, d]: [Self; 4]) {
                // SAFETY: the caller promises a valid, aligned shared address.
                unsafe {
                    if $half == 0 {
                        asm!(
                            concat!("st.shared.v4.b32 [{address}], {{{a}, {b}, {c}, {d}}};"),
                            a = in($reg) a, b = in($reg) b, c = in($reg) c, d = in($reg) d,
                            address = in(reg32) address,
                            options(nostack, preserves_flags),
                        );
                    } else {
                        asm!(
                            concat!("st.shared.v2.b64 [{address}], {{{a}, {b}}};"),
                            concat!("st.shared.v2.b64 [{address}+16], {{{c}, {d}}};"),
                            a = in($reg) a, b = in($reg) b, c = in($reg) c, d = in($reg) d,
                            address = in(reg32) address,
                            options(nostack, preserves_flags),
                        );
                    }
                }
            }
        }
    )*};
}

shared_accesses! {
    f32, reg32, "b32", 0;
    u32, reg32, "b32", 0;
    f64, reg64, "b64", 1;
}

/// # Safety
///
/// As [`Shared::load`](super::Shared::load).
#[inline(always)]
pub unsafe fn shared_load<T: ElementBackend>(base: SharedAddress, i: u32) -> T {
    // SAFETY: the caller promises that element i is inside the array.
    unsafe { T::shared_load(base + i * size_of::<T>() as u32) }
}

/// # Safety
///
/// As [`Shared::store`](super::Shared::store).
#[inline(always)]
pub unsafe fn shared_store<T: ElementBackend>(base: SharedAddress, i: u32, value: T) {
    // SAFETY: the caller promises that element i is inside the array.
    unsafe { T::shared_store(base + i * size_of::<T>() as u32, value) }
}

/// # Safety
///
/// As [`Shared::load_4`](super::Shared::load_4).
#[inline(always)]
pub unsafe fn shared_load_4<T: ElementBackend>(base: SharedAddress, i: u32) -> [T; 4] {
    // SAFETY: the caller promises that the elements are inside and aligned.
    unsafe { T::shared_load_4(base + i * size_of::<T>() as u32) }
}

/// # Safety
///
/// As [`Shared::store_4`](super::Shared::store_4).
#[inline(always)]
pub unsafe fn shared_store_4<T: ElementBackend>(base: SharedAddress, i: u32, values: [T; 4]) {
    // SAFETY: the caller promises that the elements are inside and aligned.
    unsafe { T::shared_store_4(base + i * size_of::<T>() as u32, values) }
}

/// # Safety
///
/// `pointer` is good for a read.
#[inline(always)]
pub unsafe fn global_load<T: Copy>(pointer: *const T) -> T {
    // SAFETY: the caller promises a readable element.
    unsafe { *pointer }
}

/// Four elements with the alignment that one wide access needs.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Four<T>([T; 4]);

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
    unsafe { *pointer = value }
}

/// # Safety
///
/// `pointer` is good for a write of four elements and aligned for them.
#[inline(always)]
pub unsafe fn global_store_4<T>(pointer: *mut T, values: [T; 4]) {
    // SAFETY: the caller promises four writable elements, aligned as `Four` is.
    unsafe { *pointer.cast::<Four<T>>() = Four(values) }
}

/// What this backend asks of a number.
pub trait FloatBackend: Sized {
    fn fma(a: Self, b: Self, c: Self) -> Self;
    fn add(a: Self, b: Self) -> Self;
}

impl FloatBackend for f32 {
    #[inline(always)]
    fn fma(a: Self, b: Self, c: Self) -> Self {
        core::intrinsics::fmaf32(a, b, c)
    }
    #[inline(always)]
    fn add(a: Self, b: Self) -> Self {
        a + b
    }
}

impl FloatBackend for f64 {
    #[inline(always)]
    fn fma(a: Self, b: Self, c: Self) -> Self {
        core::intrinsics::fmaf64(a, b, c)
    }
    #[inline(always)]
    fn add(a: Self, b: Self) -> Self {
        a + b
    }
}

#[inline(always)]
pub fn fma<T: FloatBackend>(a: T, b: T, c: T) -> T {
    T::fma(a, b, c)
}

#[inline(always)]
pub fn add<T: FloatBackend>(a: T, b: T) -> T {
    T::add(a, b)
}

/// Declares a shared array in the kernel that expands it and gives its
/// [`Shared`](super::Shared).
///
/// The array's name is made of the kernel's and its own, so two arrays never
/// share one; without `pure`, two arrays of one size never share an address.
#[doc(hidden)]
#[macro_export]
macro_rules! declare_shared {
    ($kernel:ident, $array:ident, $element:ty, $len:expr) => {{
        let address: u32;
        // SAFETY: declares an array that belongs to this kernel alone, 16-byte
        // aligned, and takes its address.
        unsafe {
            core::arch::asm!(
                concat!(".shared .align 16 .b8 ", stringify!($kernel), "_", stringify!($array), "[{bytes}];"),
                concat!("mov.u32 {address}, ", stringify!($kernel), "_", stringify!($array), ";"),
                bytes = const { $len * size_of::<$element>() },
                address = out(reg32) address,
                options(nomem, nostack, preserves_flags),
            );
            $crate::gpu::Shared::<$element, { $len }>::from_address(address)
        }
    }};
}
pub use crate::declare_shared;
