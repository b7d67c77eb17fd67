//! What the driver returned: kept as it is, and made safe for the bindings.
//!
//! `cust_raw` declares the result of each function as a Rust enum with the codes
//! of CUDA 11. A newer driver returns others, and a value that an enum does not
//! have is undefined behaviour. So a code that the enum lacks reaches the caller
//! as `CUDA_ERROR_UNKNOWN` (999), and [`last_error`] says what it was.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr;

use crate::entry::{cuGetErrorName, cuGetErrorString};

pub(crate) const CUDA_SUCCESS: c_int = 0;
pub(crate) const CUDA_ERROR_INVALID_VALUE: c_int = 1;
pub(crate) const CUDA_ERROR_NOT_INITIALIZED: c_int = 3;
pub(crate) const CUDA_ERROR_STUB_LIBRARY: c_int = 34;
pub(crate) const CUDA_ERROR_NOT_FOUND: c_int = 500;
pub(crate) const CUDA_ERROR_UNKNOWN: c_int = 999;

/// The codes of `cust_raw`'s `cudaError_enum`, ascending. A unit test compares
/// them with the bindings where cargo can find those.
const DECLARED: &[c_int] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 34, 100, 101, 102, 200, 201, 202, 205, 206, 207, 208, 209, 210, 211,
    212, 213, 214, 215, 216, 217, 218, 219, 220, 221, 222, 223, 224, 300, 301, 302, 303, 304, 400,
    401, 500, 600, 700, 701, 702, 703, 704, 705, 708, 709, 710, 711, 712, 713, 714, 715, 716, 717,
    718, 719, 720, 800, 801, 802, 803, 804, 805, 806, 807, 808, 809, 900, 901, 902, 903, 904, 905,
    906, 907, 908, 909, 910, 911, 999,
];

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(CUDA_SUCCESS) };
}

/// Remembers a code and gives the one that the bindings can hold.
///
/// Called for failures alone, so that a successful call costs nothing here.
pub(crate) extern "C" fn settle(code: c_int) -> c_int {
    // A thread that is ending has no such variable any more.
    let _ = LAST.try_with(|last| last.set(code));
    if DECLARED.binary_search(&code).is_ok() {
        code
    } else {
        CUDA_ERROR_UNKNOWN
    }
}

/// The code of this thread's last driver call that failed, as the driver gave
/// it.
///
/// Successful calls leave it alone, so ask right after a failure. `cust` names
/// the codes of CUDA 10 and reports all others as `UnknownError`.
pub fn last_error() -> Option<Code> {
    let code = LAST.try_with(Cell::get).unwrap_or(CUDA_SUCCESS);
    (code != CUDA_SUCCESS).then_some(Code(code))
}

/// A result code of the driver.
///
/// Shows as its name, number and text, such as `CUDA_ERROR_NO_DEVICE (100): no
/// CUDA-capable device is detected`. The names and texts are the driver's own;
/// a code that it does not know shows as its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub i32);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ask(cuGetErrorName) {
            Some(name) => write!(f, "{} ({})", name.to_string_lossy(), self.0)?,
            None => write!(f, "CUDA error {}", self.0)?,
        }
        match self.ask(cuGetErrorString) {
            // Some of the driver's texts end in a full stop, most do not.
            Some(text) => write!(f, ": {}", text.to_string_lossy().trim_end_matches('.')),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Code {}

impl Code {
    fn ask(
        self,
        of: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
    ) -> Option<&'static CStr> {
        // Formatting an error must not change what the last error was.
        let last = LAST.try_with(Cell::get);
        let mut text = ptr::null();
        // SAFETY: the pointer is valid for the write.
        let result = unsafe { of(self.0, &mut text) };
        if let Ok(last) = last {
            LAST.set(last);
        }
        if result != CUDA_SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: the driver's texts are constants, and it is never unloaded.
        Some(unsafe { CStr::from_ptr(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{bindings, skipped};
    use std::fs;

    #[test]
    fn the_codes_are_those_of_the_bindings() {
        assert!(DECLARED.is_sorted());
        let Some(path) = bindings() else {
            return skipped("cargo metadata does not list cust_raw here: its codes");
        };
        let bindings = fs::read_to_string(path).unwrap();
        let (_, rest) = bindings.split_once("pub enum cudaError_enum {").unwrap();
        let (body, _) = rest.split_once('}').unwrap();
        let declared: Vec<c_int> = body
            .lines()
            .filter_map(|line| line.trim().trim_end_matches(',').split_once(" = "))
            .map(|(_, code)| code.parse().unwrap())
            .collect();
        assert_eq!(declared, DECLARED);
    }

    #[test]
    fn an_unknown_code_is_kept_and_replaced() {
        assert_eq!(settle(719), 719);
        assert_eq!(last_error(), Some(Code(719)));
        assert_eq!(settle(46), CUDA_ERROR_UNKNOWN);
        assert_eq!(last_error(), Some(Code(46)));
        assert_eq!(settle(-1), CUDA_ERROR_UNKNOWN);
        assert_eq!(last_error(), Some(Code(-1)));
    }
}
