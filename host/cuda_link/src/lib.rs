//! Lets `cust` build with no CUDA toolkit and start with no CUDA driver.
//!
//! # Why it exists
//!
//! `cust` 0.3.2 and `cust_raw` 0.11.3 build-depend on `find_cuda_helper` 0.2.
//! The published one looks for a CUDA toolkit, panics where there is none, and
//! links `libcuda`, so a program built with it does not start on a machine
//! without a driver. This crate takes its place:
//!
//! ```toml
//! [patch.crates-io]
//! find_cuda_helper = { path = "host/cuda_link" }
//! ```
//!
//! # Two roles
//!
//! 1. *Build-dependency of `cust` and `cust_raw`.* Their build scripts call
//!    [`include_cuda`], and nothing else. Here it asks cargo to link nothing.
//! 2. *Normal dependency of the program.* It defines every function that the
//!    bindings of `cust_raw` declare, under the same symbol, so the link needs
//!    no `libcuda`. The real driver is opened at run time.
//!
//! `cust_raw` does not depend on this crate in its second role, so the program
//! (or a library it uses) must name it: `use find_cuda_helper as _;`. Without
//! that line rustc leaves the crate out, and the link fails with undefined
//! `cu…` symbols. With it, rustc itself keeps the `no_mangle` symbols of a
//! linked rlib alive, whatever the order of the libraries.
//!
//! # How a call travels
//!
//! There is a table with one slot a function. Each symbol is a naked function
//! that calls what its slot holds. It touches no argument register and copies
//! the words on the stack, so any signature passes through unchanged, and this
//! crate needs none.
//!
//! The call, in place of a jump, is for the result. `cust_raw` declares it as a
//! Rust enum of CUDA 11's codes, and a code of a newer driver would be undefined
//! behaviour there. It becomes `CUDA_ERROR_UNKNOWN` (999), and [`last_error`]
//! has it as it was. A call that succeeds costs some ten instructions more.
//!
//! A slot holds one of four things:
//!
//! | When | The slot holds | A call returns |
//! |---|---|---|
//! | before the driver was looked for | a stub | `CUDA_ERROR_NOT_INITIALIZED` (3) |
//! | after it was loaded | the driver's function | what the driver returns |
//! | after it was loaded, and lacks the function | a stub | `CUDA_ERROR_NOT_FOUND` (500) |
//! | after it could not be loaded | a stub | `CUDA_ERROR_STUB_LIBRARY` (34) |
//!
//! Code 3 is what a driver says of a call before `cuInit`. Code 34 is what
//! the stub `libcuda` of NVIDIA's toolkit returns. Code 500 is what
//! `cuGetProcAddress` returns for a name it does not know. `cust` has no name
//! for code 34 and reports it as `UnknownError`; [`driver`] gives the reason.
//!
//! # What loads the driver
//!
//! `cuInit`, `cuDriverGetVersion`, `cuGetErrorName`, `cuGetErrorString` and
//! [`driver`] do, once a process, whichever comes first. They are the calls
//! that a program may make before `cuInit`. The library is never closed: its
//! functions stay in the table, and the driver runs threads of its own.
//!
//! Where no driver was loaded, `cuGetErrorName` and `cuGetErrorString` answer
//! from this crate. `cust` formats its errors with `cuGetErrorString` and fails
//! to format where that fails, which makes `to_string` panic.
//!
//! # Limits
//!
//! Linux on x86-64 and on aarch64. The aarch64 symbols were assembled, never run.
//! The symbols stay inside an executable. A `cdylib` or a program linked with
//! `-rdynamic` would export them, and could then stand before the driver's own.

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "find_cuda_helper (host/cuda_link) supports Linux on x86-64 and aarch64 only: \
     each driver function is called from a few lines of assembly for the ELF relocations of \
     one architecture (src/table.rs), and the library names are those of Linux \
     (src/load.rs)"
);

mod entry;
mod functions;
mod load;
mod result;
mod table;

pub use load::{Attempt, Driver, LoadError, driver};
pub use result::{Code, last_error};

/// Tells cargo to link nothing, in the place of the published crate's search
/// for a CUDA toolkit.
///
/// The build scripts of `cust` and `cust_raw` call it. It prints the one
/// instruction that keeps cargo from running them again at every change.
pub fn include_cuda() {
    println!("cargo:rerun-if-changed=build.rs");
}
