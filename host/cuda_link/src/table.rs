//! The table of slots and the symbols that jump through it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicPtr;

pub(crate) const CUDA_SUCCESS: c_int = 0;
pub(crate) const CUDA_ERROR_INVALID_VALUE: c_int = 1;
pub(crate) const CUDA_ERROR_NOT_INITIALIZED: c_int = 3;
pub(crate) const CUDA_ERROR_STUB_LIBRARY: c_int = 34;
pub(crate) const CUDA_ERROR_NOT_FOUND: c_int = 500;
pub(crate) const CUDA_ERROR_UNKNOWN: c_int = 999;

/// A function that only returns an error code.
///
/// It is called with the arguments of any driver function. That is sound with
/// the C calling conventions of both architectures: the caller removes the
/// arguments, and the code comes back in the register of a 32-bit integer.
pub(crate) type Stub = extern "C" fn() -> c_int;

pub(crate) extern "C" fn not_initialized() -> c_int {
    CUDA_ERROR_NOT_INITIALIZED
}

pub(crate) extern "C" fn stub_library() -> c_int {
    CUDA_ERROR_STUB_LIBRARY
}

pub(crate) extern "C" fn not_found() -> c_int {
    CUDA_ERROR_NOT_FOUND
}

/// What a slot holds: the address of a function.
pub(crate) type Slot = AtomicPtr<c_void>;

/// Makes, from the list of functions, their indices, names, slots and symbols.
macro_rules! define {
    ($($name:ident,)*) => {
        /// The index of each function in [`NAMES`] and [`SLOTS`].
        // The variants carry the driver's names, which are not Rust's style.
        // Most are only ever used as numbers inside assembly operands.
        #[allow(non_camel_case_types, clippy::enum_variant_names)]
        #[derive(Clone, Copy)]
        pub(crate) enum Index { $($name,)* }

        /// The symbols, in the order of the table.
        pub(crate) static NAMES: &[&str] = &[$(stringify!($name),)*];

        /// The address that each symbol jumps to.
        pub(crate) static SLOTS: [$crate::table::Slot; [$(Index::$name,)*].len()] =
            [const {
                $crate::table::Slot::new(
                    $crate::table::not_initialized as *mut ::std::ffi::c_void,
                )
            }; [$(Index::$name,)*].len()];

        $($crate::table::symbol! { $name })*
    };
}
pub(crate) use define;

/// Makes one symbol. The functions of `entry.rs` are written there instead,
/// since they load the driver first.
macro_rules! symbol {
    (cuInit) => {};
    (cuDriverGetVersion) => {};
    (cuGetErrorName) => {};
    (cuGetErrorString) => {};
    ($name:ident) => {
        /// Jumps to the function of the same name in the driver.
        ///
        /// # Safety
        ///
        /// Call it with the signature that the driver's headers give the
        /// function, and under that function's own conditions. The signature
        /// here is not that one: the jump leaves every argument in its place.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> ::std::ffi::c_int {
            // A jump through memory needs no register, so none is lost.
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!(
                "jmp qword ptr [rip + {slots} + {offset}]",
                slots = sym SLOTS,
                offset = const Index::$name as usize * size_of::<$crate::table::Slot>(),
            );
            // Assembled, never run: no aarch64 machine was at hand. x16 is free between a
            // call and its target (AAPCS64, IP0), and BTI lets `br x16` land on
            // a function's entry. `ldar` pairs with the store that fills the
            // slot; x86-64 orders its plain load the same way.
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!(
                "adrp x16, {slots} + {offset}",
                "add x16, x16, :lo12:{slots} + {offset}",
                "ldar x16, [x16]",
                "br x16",
                slots = sym SLOTS,
                offset = const Index::$name as usize * size_of::<$crate::table::Slot>(),
            );
        }
    };
}
pub(crate) use symbol;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::env;
    use std::fs;
    use std::io::{self, Write};
    use std::path::PathBuf;
    use std::process::Command;

    use crate::functions::NAMES;

    /// The bindings that cargo would build `cust_raw` from. This crate does not
    /// depend on them, so only a workspace that does can tell.
    fn bindings() -> Option<PathBuf> {
        // Without a platform, cargo asks for packages that only Windows needs,
        // and fails where nobody downloaded them.
        let platform = format!("{}-unknown-linux-gnu", env::consts::ARCH);
        let output = Command::new(env::var_os("CARGO")?)
            .args(["metadata", "--offline", "--format-version", "1"])
            .args(["--filter-platform", &platform])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .ok()?;
        let metadata = String::from_utf8(output.stdout).ok()?;
        let manifest = metadata
            .split('"')
            .find(|text| text.contains("/cust_raw-") && text.ends_with("/Cargo.toml"))?;
        Some(PathBuf::from(manifest).parent()?.join("src/cuda.rs"))
    }

    #[test]
    fn the_list_is_that_of_the_bindings() {
        let Some(path) = bindings() else {
            // Written past the harness, which hides what a passing test prints.
            let _ = writeln!(
                io::stderr(),
                "skipped: cargo metadata does not list cust_raw here, so the list is not compared"
            );
            return;
        };
        let bindings = fs::read_to_string(path).unwrap();
        let declared: BTreeSet<_> = bindings
            .lines()
            .filter_map(|line| line.strip_prefix("    pub fn cu")?.split_once('('))
            .map(|(rest, _)| format!("cu{rest}"))
            .collect();
        let ours: BTreeSet<_> = NAMES.iter().map(|name| name.to_string()).collect();
        assert_eq!(declared, ours);
        assert_eq!(ours.len(), NAMES.len(), "a name is listed twice");
    }
}
