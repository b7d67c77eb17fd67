//! Programs and libraries that help to look closer.

use super::{Check, Section, Status};
use crate::cublas::{self, Absent};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

pub(super) fn checks(checkout: Option<&Path>) -> Vec<Check> {
    let fetch = "run tools/ptxas.sh in a checkout, which fetches it, or install the CUDA toolkit";
    let fetch_sass = "run tools/ptxas.sh --sass in a checkout, or install the CUDA toolkit";
    let from_nvidia = |name: &str, named: &str, remedy: &str| {
        program(name, nvidia_program(name, named, checkout)).remedy(remedy)
    };
    vec![
        from_nvidia("ptxas", "PTXAS", fetch),
        from_nvidia("nvdisasm", "NVDISASM", fetch_sass),
        cublas(),
        program("ncu", nvidia_program("ncu", "NCU", None))
            .remedy("install Nsight Compute, and put its folder on the PATH"),
    ]
}

/// A program of NVIDIA's that tools/ptxas.sh may have fetched; `named` is the
/// variable that may name it.
pub(super) fn nvidia_program(name: &str, named: &str, checkout: Option<&Path>) -> Option<PathBuf> {
    let cache = cache(
        checkout,
        variable("PTX_TOOLS"),
        variable("CARGO_TARGET_DIR"),
    );
    locate(name, variable(named), &cache, variable("PATH"))
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn check(name: &str, status: Status, found: String) -> Check {
    Check::new(Section::Optional, name, status, found)
}

fn program(name: &str, path: Option<PathBuf>) -> Check {
    let Some(path) = path else {
        return check(name, Status::Missing, "not found".into());
    };
    match version(&path, None) {
        Ok(version) => check(name, Status::Ok, format!("{version}, {}", path.display())),
        Err(Lack::Missing) => check(
            name,
            Status::Missing,
            format!("{} is not there", path.display()),
        ),
        Err(Lack::Fails(reason)) => check(name, Status::Failed, reason),
    }
}

/// Where tools/ptxas.sh keeps what it fetched.
fn cache(
    checkout: Option<&Path>,
    tools: Option<OsString>,
    target: Option<OsString>,
) -> Option<PathBuf> {
    let folder = tools.map(PathBuf::from).unwrap_or_else(|| {
        target
            .map_or_else(|| "target".into(), PathBuf::from)
            .join("tools")
    });
    // Relative paths are the checkout's.
    if folder.is_absolute() {
        Some(folder)
    } else {
        Some(checkout?.join(folder))
    }
}

/// The program that tools/ptxas.sh would take, in its order: the one that a
/// variable names, the one in the cache, the one on the PATH.
fn locate(
    name: &str,
    named: Option<OsString>,
    cache: &Option<PathBuf>,
    path: Option<OsString>,
) -> Option<PathBuf> {
    let on_path = |name: &Path| {
        std::env::split_paths(path.as_deref().unwrap_or_default())
            .map(|folder| folder.join(name))
            .find(|program| is_program(program))
    };
    if let Some(named) = named.map(PathBuf::from) {
        // A bare name is looked up; a path is taken, also where it is wrong.
        return if named.components().count() == 1 {
            on_path(&named).or(Some(named))
        } else {
            Some(named)
        };
    }
    let cached = cache.as_ref().and_then(|folder| {
        let mut copies: Vec<_> = fs::read_dir(folder)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let rest = path
                    .file_name()
                    .and_then(|file| file.to_str()?.strip_prefix(name)?.strip_prefix('-'));
                rest.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
            })
            .filter(|path| is_program(path))
            .collect();
        copies.sort();
        copies.pop()
    });
    cached.or_else(|| on_path(Path::new(name)))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Why a program has no version.
pub(super) enum Lack {
    /// There is no such program.
    Missing,
    /// It does not run, or says that it failed.
    Fails(String),
}

/// The line of `program --version` that names the version.
pub(super) fn version(program: &Path, folder: Option<&Path>) -> Result<String, Lack> {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdin(Stdio::null())
        // rustup's proxies would fetch a toolchain that is not there; a check
        // shall only look.
        .env("RUSTUP_AUTO_INSTALL", "0");
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    let fails = |reason: &str| {
        let reason = reason.trim().lines().collect::<Vec<_>>().join(" ");
        Lack::Fails(format!("{} does not run: {reason}", program.display()))
    };
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Lack::Missing,
        _ => fails(&error.to_string()),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(fails(&format!("{} {said}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    version_line(&text)
        .map(str::to_owned)
        .ok_or_else(|| fails("it names no version"))
}

/// NVIDIA's tools open with their name and a copyright; others with the version.
fn version_line(text: &str) -> Option<&str> {
    let mut lines = text.lines().map(str::trim);
    lines
        .clone()
        .find(|line| line.contains(", release ") || line.starts_with("Version "))
        .or_else(|| lines.find(|line| line.contains(|c: char| c.is_ascii_digit())))
}

/// cuBLAS, which the kernels are compared with, as `matmul bench` finds it.
fn cublas() -> Check {
    let remedy = "install the CUDA toolkit's library cuBLAS, or name its file in MATMUL_CUBLAS";
    match cublas::find(None) {
        Ok(found) => {
            let [major, minor, patch] = found.version;
            let text = format!("{major}.{minor}.{patch}, {}", found.name);
            check("cuBLAS", Status::Ok, text)
        }
        Err(Absent::Missing { tried }) => check("cuBLAS", Status::Missing, tried).remedy(remedy),
        Err(Absent::Failed { name, reason }) => {
            check("cuBLAS", Status::Failed, format!("{name}: {reason}")).remedy(remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_with_the_version_is_taken() {
        let ptxas = "ptxas: NVIDIA (R) Ptx optimizing assembler\nCopyright (c) 2005-2024\n\
                     Cuda compilation tools, release 12.4, V12.4.131\nBuild cuda_12.4\n";
        assert_eq!(
            version_line(ptxas),
            Some("Cuda compilation tools, release 12.4, V12.4.131")
        );
        let ncu = "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2024\n\
                   Version 2024.1.1.0 (build 33998838)\n";
        assert_eq!(
            version_line(ncu),
            Some("Version 2024.1.1.0 (build 33998838)")
        );
        assert_eq!(
            version_line("cc (Debian) 12.2.0\nx"),
            Some("cc (Debian) 12.2.0")
        );
        assert_eq!(version_line("no number"), None);
    }

    #[test]
    fn the_cache_is_where_the_script_has_it() {
        let root = Path::new("/checkout");
        let some = |text: &str| Some(OsString::from(text));
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(
            cache(Some(root), None, None),
            path("/checkout/target/tools")
        );
        assert_eq!(cache(Some(root), None, some("/t")), path("/t/tools"));
        assert_eq!(
            cache(Some(root), None, some("t")),
            path("/checkout/t/tools")
        );
        assert_eq!(cache(Some(root), some("/p"), some("/t")), path("/p"));
        assert_eq!(cache(None, None, None), None);
        assert_eq!(cache(None, some("/p"), None), path("/p"));
    }
}
