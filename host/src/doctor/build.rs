//! What building takes.

use super::tools::{self, Lack};
use super::{Check, Section, Status};
use ptx_builder::{BuildError, Toolchain};
use std::path::Path;

/// The oldest Rust that builds the project.
const OLDEST_RUST: &str = env!("CARGO_PKG_RUST_VERSION");

pub(super) fn checks(checkout: Option<&Path>) -> Vec<Check> {
    let mut checks = vec![rust("rustc", checkout), rust("cargo", checkout)];
    checks.extend(device_toolchain());
    checks.push(linker());
    for check in &mut checks {
        check.needed = checkout.is_some();
    }
    checks
}

fn check(name: &str, status: Status, found: String) -> Check {
    Check::new(Section::Build, name, status, found)
}

/// The toolchain of the host.
fn rust(program: &str, checkout: Option<&Path>) -> Check {
    let install = format!("install Rust {OLDEST_RUST} or later from https://rustup.rs");
    let status = match tools::version(Path::new(program), checkout) {
        Ok(version) if is_old(&version) => {
            check(program, Status::Failed, format!("{version} is too old"))
        }
        Ok(version) => check(program, Status::Ok, version),
        Err(Lack::Missing) => check(program, Status::Missing, "not on the PATH".into()),
        Err(Lack::Fails(reason)) => check(program, Status::Failed, reason),
    };
    status.remedy(install)
}

/// Whether the text, such as `rustc 1.95.0 (…)`, names an older version than
/// the oldest that will do. A text without a version does not.
fn is_old(text: &str) -> bool {
    let numbers = |version: &str| -> Option<(u32, u32)> {
        let mut parts = version.split(['.', '-']);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let found = text.split_whitespace().nth(1).and_then(numbers);
    found.is_some_and(|found| Some(found) < numbers(OLDEST_RUST))
}

/// The compiler for the kernels, and the source of `core` beside it.
fn device_toolchain() -> Vec<Check> {
    const NAME: &str = "device rustc";
    match Toolchain::find() {
        Ok(toolchain) => {
            let version = toolchain.identity.lines().next().unwrap_or("rustc");
            vec![
                check(
                    NAME,
                    Status::Ok,
                    format!("{version}, {}", toolchain.rustc.display()),
                ),
                check(
                    "rust-src",
                    Status::Ok,
                    toolchain.library.display().to_string(),
                ),
            ]
        }
        Err(BuildError::NoDeviceToolchain { looked_at }) => vec![
            check(NAME, Status::Missing, looked_at.join("; "))
                .remedy("run `make setup`, or name a compiler in DEVICE_RUSTC"),
            check(
                "rust-src",
                Status::Missing,
                "no compiler has the source of core".into(),
            )
            .remedy(
                "run `rustup component add rust-src`, or \
                 `apt-get install --no-install-recommends rustc-web rust-web-src`",
            ),
        ],
        // Its text says what to do.
        Err(error) => vec![check(NAME, Status::Failed, error.to_string())],
    }
}

/// rustc links through `cc`.
fn linker() -> Check {
    let found = match tools::version(Path::new("cc"), None) {
        Ok(version) => check("cc", Status::Ok, version),
        Err(Lack::Missing) => check("cc", Status::Missing, "not on the PATH".into()),
        Err(Lack::Fails(reason)) => check("cc", Status::Failed, reason),
    };
    found.remedy("install a C compiler, such as Debian's package gcc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_told() {
        assert!(is_old("rustc 1.85.0 (4d91de4e4 2025-02-17)"));
        assert!(is_old("cargo 0.99.0"));
        assert!(!is_old(&format!("rustc {OLDEST_RUST}.0 (x 2026-01-01)")));
        assert!(!is_old("rustc 1.100.0-nightly"));
        assert!(!is_old("rustc"));
    }
}
