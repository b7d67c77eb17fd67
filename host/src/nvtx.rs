//! Named ranges on the timelines of Nsight Systems and Nsight Compute.
//!
//! NVTX's library is opened where the machine has it; elsewhere a range does
//! nothing. The `nvtx` crate would do more, and needs libclang to build.

use libloading::Library;
use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

struct Functions {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
}

fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    FUNCTIONS
        .get_or_init(|| {
            // CUDA toolkits up to 12 and from 13 on.
            let names = ["libnvToolsExt.so.1", "libnvtx3interop.so.1"];
            // SAFETY: opening runs the library's initialisers. These are
            // NVIDIA's, made to be opened by any program.
            let library = names
                .iter()
                .find_map(|name| unsafe { Library::new(*name) }.ok())?;
            // The functions are called until the process ends.
            let library = Box::leak(Box::new(library));
            // SAFETY: the signatures are those of nvToolsExt.h.
            let functions = unsafe {
                Functions {
                    push: *library.get("nvtxRangePushA").ok()?,
                    pop: *library.get("nvtxRangePop").ok()?,
                }
            };
            Some(functions)
        })
        .as_ref()
}

/// A range of the thread that made it; it ends where this is dropped.
#[must_use = "the range ends where this is dropped"]
pub struct Range {
    functions: Option<&'static Functions>,
    // Ranges nest by thread.
    _stays_on_its_thread: std::marker::PhantomData<*const ()>,
}

/// Begins a range.
pub fn range(name: &str) -> Range {
    let functions = functions();
    if let (Some(functions), Ok(name)) = (functions, CString::new(name)) {
        // SAFETY: the text ends with a zero, and the function copies it.
        unsafe { (functions.push)(name.as_ptr()) };
        return Range {
            functions: Some(functions),
            _stays_on_its_thread: std::marker::PhantomData,
        };
    }
    Range {
        functions: None,
        _stays_on_its_thread: std::marker::PhantomData,
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(functions) = self.functions {
            // SAFETY: ends the range that this thread began last.
            unsafe { (functions.pop)() };
        }
    }
}
