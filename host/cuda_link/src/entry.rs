//! The functions that a program may call first. They load the driver, then call
//! it through the table like the other symbols do.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::sync::atomic::Ordering;

use crate::functions::{Index, SLOTS};
use crate::load::driver;
use crate::result::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_INITIALIZED,
    CUDA_ERROR_STUB_LIBRARY, CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, settle,
};

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
type GetErrorText = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

fn slot(index: Index) -> *mut c_void {
    SLOTS[index as usize].load(Ordering::Acquire)
}

/// What the symbols of `table.rs` do with a result.
fn settled(code: c_int) -> c_int {
    if code == CUDA_SUCCESS {
        code
    } else {
        settle(code)
    }
}

/// Loads the driver on the first call, then initialises CUDA.
///
/// # Safety
///
/// As for the driver's `cuInit`: `flags` must be 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: c_uint) -> c_int {
    // The outcome is in the slot: the driver's function or a stub.
    let _ = driver();
    // SAFETY: the slot holds the driver's `cuInit`, whose signature this is, or
    // a stub, which takes the arguments of any function.
    let real = unsafe { transmute::<*mut c_void, Init>(slot(Index::cuInit)) };
    // SAFETY: the caller upholds the driver's conditions.
    settled(unsafe { real(flags) })
}

/// Loads the driver on the first call, then asks it for its CUDA version.
///
/// # Safety
///
/// As for the driver's `cuDriverGetVersion`: `version` must be null or valid
/// for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    let _ = driver();
    // SAFETY: the slot holds the driver's `cuDriverGetVersion`, whose signature
    // this is, or a stub, which takes the arguments of any function.
    let real = unsafe { transmute::<*mut c_void, GetVersion>(slot(Index::cuDriverGetVersion)) };
    // SAFETY: the caller upholds the driver's conditions.
    settled(unsafe { real(version) })
}

/// Loads the driver on the first call, then asks it for the name of an error.
/// Without a driver the name comes from this crate.
///
/// # Safety
///
/// As for the driver's `cuGetErrorName`: `text` must be null or valid for a
/// write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the index is that of a function of this signature, and the caller
    // upholds its conditions.
    unsafe { error_text(Index::cuGetErrorName, error, text, name_without_driver) }
}

/// Loads the driver on the first call, then asks it to describe an error.
/// Without a driver the text comes from this crate.
///
/// # Safety
///
/// As for the driver's `cuGetErrorString`: `text` must be null or valid for a
/// write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the index is that of a function of this signature, and the caller
    // upholds its conditions.
    unsafe { error_text(Index::cuGetErrorString, error, text, text_without_driver) }
}

/// # Safety
///
/// `index` must be that of a function of the type [`GetErrorText`], and `text`
/// must be null or valid for a write.
unsafe fn error_text(
    index: Index,
    error: c_int,
    text: *mut *const c_char,
    without_driver: fn(c_int) -> &'static CStr,
) -> c_int {
    if driver().is_ok() {
        // SAFETY: the slot holds the driver's function, whose signature this is
        // by the caller's word, or a stub, which takes any arguments.
        let real = unsafe { transmute::<*mut c_void, GetErrorText>(slot(index)) };
        // SAFETY: the caller upholds the driver's conditions.
        return settled(unsafe { real(error, text) });
    }
    if text.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: it is not null, so the caller says that it is valid for a write.
    unsafe { text.write(without_driver(error).as_ptr()) };
    CUDA_SUCCESS
}

/// The names of the codes that can arise without a driver. Any other code gets
/// a name too: a caller that formats it must not fail.
fn name_without_driver(error: c_int) -> &'static CStr {
    match error {
        CUDA_SUCCESS => c"CUDA_SUCCESS",
        CUDA_ERROR_INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        CUDA_ERROR_NOT_INITIALIZED => c"CUDA_ERROR_NOT_INITIALIZED",
        CUDA_ERROR_STUB_LIBRARY => c"CUDA_ERROR_STUB_LIBRARY",
        CUDA_ERROR_NOT_FOUND => c"CUDA_ERROR_NOT_FOUND",
        CUDA_ERROR_UNKNOWN => c"CUDA_ERROR_UNKNOWN",
        _ => c"unnamed CUDA error: no CUDA driver is loaded",
    }
}

fn text_without_driver(error: c_int) -> &'static CStr {
    match error {
        CUDA_SUCCESS => c"no error",
        // cust reports STUB_LIBRARY as UNKNOWN, which no call without a driver
        // returns by itself.
        CUDA_ERROR_STUB_LIBRARY | CUDA_ERROR_UNKNOWN => {
            c"no CUDA driver library could be loaded (libcuda.so.1)"
        }
        CUDA_ERROR_NOT_INITIALIZED => c"CUDA was not initialised",
        _ => c"CUDA error without a text: no CUDA driver is loaded",
    }
}
