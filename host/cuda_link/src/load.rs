//! Finds the driver's library and fills the table from it.

use std::error::Error;
use std::ffi::c_void;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use libloading::Library;

use crate::functions::{Index, NAMES, SLOTS};
use crate::table::{Stub, not_found, stub_library};

/// What to open, in order. The versioned name is the one every driver package
/// installs; the plain one belongs to development packages. WSL keeps its
/// driver in a folder that the linker's search does not always cover.
const CANDIDATES: [&str; 3] = [
    "libcuda.so.1",
    "libcuda.so",
    "/usr/lib/wsl/lib/libcuda.so.1",
];

static DRIVER: OnceLock<Result<Driver, LoadError>> = OnceLock::new();

/// A CUDA driver library that was opened. It stays open until the process ends.
#[derive(Debug)]
pub struct Driver {
    library: &'static Library,
    name: &'static str,
    path: Option<PathBuf>,
    missing: Vec<&'static str>,
}

impl Driver {
    /// The name that it was opened by, such as `libcuda.so.1`.
    pub fn name(&self) -> &str {
        self.name
    }

    /// The file behind the name, links followed. Its name usually ends in the
    /// driver's version. `None` where `/proc/self/maps` does not tell.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The functions that `cust_raw` declares and this driver lacks. A call of
    /// one returns `CUDA_ERROR_NOT_FOUND` (500).
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// The address of a function that `cust_raw` does not declare, under the
    /// exact name that the library exports, such as `cuTensorMapEncodeTiled`.
    /// `None` where this driver lacks it. It stays valid until the process ends.
    ///
    /// Calling it is the caller's to justify: with the type that the driver's
    /// headers give it.
    pub fn function(&self, symbol: &str) -> Option<NonNull<c_void>> {
        find(self.library, symbol).and_then(NonNull::new)
    }
}

/// No CUDA driver library could be opened.
#[derive(Debug)]
pub struct LoadError {
    attempts: Vec<Attempt>,
}

impl LoadError {
    /// Each name that was tried, in order, with what went wrong.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no CUDA driver library could be loaded")?;
        for (i, attempt) in self.attempts.iter().enumerate() {
            write!(f, "{} {attempt}", if i == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl Error for LoadError {}

/// One failed try at opening the driver's library.
#[derive(Debug)]
pub struct Attempt {
    name: &'static str,
    error: String,
}

impl Attempt {
    /// The name or path that was tried.
    pub fn name(&self) -> &str {
        self.name
    }

    /// What went wrong, in the dynamic linker's words.
    pub fn error(&self) -> &str {
        &self.error
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The linker's text most often begins with the name already.
        if self.error.starts_with(self.name) {
            f.write_str(&self.error)
        } else {
            write!(f, "{}: {}", self.name, self.error)
        }
    }
}

/// Opens the driver's library, on the first call of the process, and says which
/// one it is. It does not initialise CUDA.
///
/// # Errors
///
/// [`LoadError`] where none of the known names gives a driver. The answer is
/// kept: later calls do not look again.
pub fn driver() -> Result<&'static Driver, &'static LoadError> {
    DRIVER.get_or_init(load).as_ref()
}

fn load() -> Result<Driver, LoadError> {
    let mut attempts = Vec::with_capacity(CANDIDATES.len());
    for name in CANDIDATES {
        match open(name) {
            Ok(driver) => return Ok(driver),
            Err(error) => attempts.push(Attempt { name, error }),
        }
    }
    for slot in &SLOTS {
        slot.store(address(stub_library), Ordering::Release);
    }
    Err(LoadError { attempts })
}

fn open(name: &'static str) -> Result<Driver, String> {
    // SAFETY: opening runs the library's initialisers. These are the names of
    // NVIDIA's driver, made to be opened by any program, and linking it, as the
    // published crate does, would run the same ones before `main`.
    let library = unsafe { Library::new(name) }.map_err(|error| text(&error))?;
    // It is kept before it is judged: closing would run its finalisers, and the
    // driver is not made to be unloaded.
    let library: &'static Library = Box::leak(Box::new(library));

    let init = find(library, NAMES[Index::cuInit as usize])
        .ok_or_else(|| format!("{name} was opened but has no function cuInit"))?;
    let mut missing = Vec::new();
    for (slot, symbol) in SLOTS.iter().zip(NAMES.iter().copied()) {
        let function = find(library, symbol).unwrap_or_else(|| {
            missing.push(symbol);
            address(not_found)
        });
        slot.store(function, Ordering::Release);
    }
    Ok(Driver {
        library,
        name,
        path: mapped_file(init as usize),
        missing,
    })
}

fn find(library: &'static Library, symbol: &str) -> Option<*mut c_void> {
    // SAFETY: the symbol's address is taken as a plain pointer, whatever its
    // type; nothing is called or read through it here.
    let found = unsafe { library.get::<*mut c_void>(symbol) }.ok()?;
    Some(*found).filter(|function| !function.is_null())
}

fn address(stub: Stub) -> *mut c_void {
    stub as *mut c_void
}

/// libloading keeps the linker's own text as the source of its error.
fn text(error: &libloading::Error) -> String {
    match error.source() {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

/// The file that is mapped at `address`, by the kernel's account. The linker
/// would give the name it was asked for; this is the file itself.
fn mapped_file(address: usize) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let path = &rest[rest.find('/')?..];
        (start..end).contains(&address).then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_each_attempt_once() {
        let error = LoadError {
            attempts: vec![
                Attempt {
                    name: "libcuda.so.1",
                    error: "libcuda.so.1: cannot open".to_string(),
                },
                Attempt {
                    name: "libcuda.so",
                    error: "not a library".to_string(),
                },
            ],
        };
        assert_eq!(
            error.to_string(),
            "no CUDA driver library could be loaded: libcuda.so.1: cannot open; \
             libcuda.so: not a library"
        );
    }

    #[test]
    fn the_mapped_file_of_this_program_is_itself() {
        let here = the_mapped_file_of_this_program_is_itself as fn() as usize;
        assert_eq!(mapped_file(here), std::env::current_exe().ok());
        assert_eq!(mapped_file(0), None);
    }
}
