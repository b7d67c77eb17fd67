//! The table of slots and the symbols that call through it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicPtr;

use crate::result::{CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_STUB_LIBRARY};

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

/// Calls the function in the slot that r11 (x9) points at, with the arguments
/// that the caller of the symbol gave, and settles its result.
///
/// The call needs a frame of its own between the caller's arguments and the
/// driver, so those on the stack are copied: eight of
/// them, as many as any function has (`cuIpcOpenMemHandle`, whose handle of 64
/// bytes x86-64 passes there). Where it has fewer, the rest are words of the
/// caller's frame, which are copied and not looked at.
///
/// # Safety
///
/// Jumped to by the symbols alone.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn forward() -> c_int {
    #[cfg(target_arch = "x86_64")]
    ::core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        // Above rbp lie the caller's rbp, the return address, the arguments.
        // The stack stays a multiple of 16 bytes at the call.
        "push qword ptr [rbp + 72]",
        "push qword ptr [rbp + 64]",
        "push qword ptr [rbp + 56]",
        "push qword ptr [rbp + 48]",
        "push qword ptr [rbp + 40]",
        "push qword ptr [rbp + 32]",
        "push qword ptr [rbp + 24]",
        "push qword ptr [rbp + 16]",
        "call qword ptr [r11]",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "test eax, eax",
        "jnz 2f",
        "ret",
        "2:",
        "mov edi, eax",
        "jmp {settle}",
        ".cfi_endproc",
        settle = sym crate::result::settle,
    );
    // `ldar` pairs with the store that fills the slot; x86-64 orders its plain
    // load the same way. BTI lets `blr` land on a function's entry.
    #[cfg(target_arch = "aarch64")]
    ::core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa x29, 16",
        "sub sp, sp, #64",
        "ldp x10, x11, [x29, #16]",
        "stp x10, x11, [sp]",
        "ldp x10, x11, [x29, #32]",
        "stp x10, x11, [sp, #16]",
        "ldp x10, x11, [x29, #48]",
        "stp x10, x11, [sp, #32]",
        "ldp x10, x11, [x29, #64]",
        "stp x10, x11, [sp, #48]",
        "ldar x9, [x9]",
        "blr x9",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "cbnz w0, 2f",
        "ret",
        "2:",
        "b {settle}",
        ".cfi_endproc",
        settle = sym crate::result::settle,
    );
}

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

        /// The address that each symbol calls.
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
        /// Calls the function of the same name in the driver, and passes its
        /// result through [`settle`](crate::result::settle).
        ///
        /// # Safety
        ///
        /// Call it with the signature that the driver's headers give the
        /// function, and under that function's own conditions. The signature
        /// here is not that one: every argument is left in its place or copied.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> ::std::ffi::c_int {
            // Neither r11 nor x9 carries an argument or outlives a call.
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!(
                "lea r11, [rip + {slots} + {offset}]",
                "jmp {forward}",
                slots = sym SLOTS,
                offset = const Index::$name as usize * size_of::<$crate::table::Slot>(),
                forward = sym $crate::table::forward,
            );
            // Assembled, never run: no aarch64 machine was at hand.
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!(
                "adrp x9, {slots} + {offset}",
                "add x9, x9, :lo12:{slots} + {offset}",
                "b {forward}",
                slots = sym SLOTS,
                offset = const Index::$name as usize * size_of::<$crate::table::Slot>(),
                forward = sym $crate::table::forward,
            );
        }
    };
}
pub(crate) use symbol;

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::env;
    use std::fs;
    use std::io::{self, Write};
    use std::path::PathBuf;
    use std::process::Command;

    use crate::functions::NAMES;

    /// Written past the harness, which hides what a passing test prints.
    pub(crate) fn skipped(why: &str) {
        let _ = writeln!(io::stderr(), "skipped: {why} are not compared");
    }

    /// The bindings that cargo would build `cust_raw` from. This crate does not
    /// depend on them, so only a workspace that does can tell.
    pub(crate) fn bindings() -> Option<PathBuf> {
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
            return skipped("cargo metadata does not list cust_raw here: its functions");
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
