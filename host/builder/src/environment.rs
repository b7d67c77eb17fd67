//! What a compiler started by a build script must not inherit.

use std::{
    ffi::{OsStr, OsString},
    process::Command,
};

/// Starts of names that cargo, clippy and their users set for the host's compiler.
///
/// `RUSTC_WORKSPACE_WRAPPER` is clippy's; `CARGO_PKG_NAME` would be the caller's, seen by `env!`
/// in a kernel; `RUSTC_LOG` would fill the error text.
const PREFIXES: [&str; 6] = ["CARGO", "RUSTC", "RUSTDOC", "CLIPPY", "__CARGO", "DEP_"];

/// Whole names of the same kind.
const NAMES: [&str; 8] = [
    "RUSTFLAGS",
    "MAKEFLAGS",
    "MFLAGS",
    "OUT_DIR",
    "TARGET",
    "HOST",
    "PROFILE",
    "RUST_TARGET_PATH",
];

/// Whether the device compiler may see the variable.
pub(crate) fn keeps(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    // rustup's proxy needs it where cargo's home is not in the usual place.
    name == "CARGO_HOME"
        || !(NAMES.contains(&&*name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}

/// A command without the variables above, of those in `inherited`.
pub(crate) fn clean(
    program: impl AsRef<OsStr>,
    inherited: impl IntoIterator<Item = OsString>,
) -> Command {
    let mut command = Command::new(program);
    for name in inherited {
        if !keeps(&name) {
            command.env_remove(name);
        }
    }
    // A crashing compiler otherwise drops a file into the working folder.
    command.env("RUSTC_ICE", "0");
    command
}

/// The names of this process's variables.
pub(crate) fn names() -> Vec<OsString> {
    std::env::vars_os().map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_build_is_not_inherited() {
        for name in [
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTC_BOOTSTRAP",
            "RUSTFLAGS",
            "CARGO",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_MAKEFLAGS",
            "CARGO_PKG_NAME",
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_RUSTFLAGS",
            "CLIPPY_ARGS",
            "CLIPPY_CONF_DIR",
            "OUT_DIR",
            "DEP_CUDA_ROOT",
        ] {
            assert!(!keeps(OsStr::new(name)), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "CARGO_HOME",
            "RUSTUP_HOME",
            "RUSTUP_TOOLCHAIN",
            "RUST_MIN_STACK",
            "TMPDIR",
            "http_proxy",
            "DEVICE_RUSTC",
        ] {
            assert!(keeps(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn removal_reaches_the_command() {
        let command = clean("true", ["RUSTFLAGS", "PATH"].map(OsString::from));
        let removed: Vec<_> = command
            .get_envs()
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| name)
            .collect();
        assert_eq!(removed, ["RUSTFLAGS"]);
    }
}
