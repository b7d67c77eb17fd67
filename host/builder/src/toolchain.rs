//! Finding a compiler that can make code for the GPU.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use crate::{BuildError, environment};

/// The first release with every flag used here; the repository's own toolchain.
pub(crate) const OLDEST: (u32, u32) = (1, 95);

/// A compiler with the source of its `core`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// The compiler itself, never rustup's proxy.
    pub rustc: PathBuf,
    /// The folder that holds `core/src/lib.rs`.
    pub library: PathBuf,
    /// What `rustc -vV` says.
    pub identity: String,
}

impl Toolchain {
    /// Looks for a compiler, in the order that the [crate's documentation](crate) gives.
    ///
    /// # Errors
    ///
    /// [`BuildError::NoDeviceToolchain`] where none has the source of `core`, and
    /// [`BuildError::CompilerTooOld`].
    pub fn find() -> Result<Self, BuildError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self::find_among(
            variable("DEVICE_RUSTC"),
            &building_compiler(variable("RUSTC"), variable("CARGO")),
            Path::new("/usr/bin/rustc"),
        )
    }

    fn find_among(
        named: Option<OsString>,
        building: &Path,
        system: &Path,
    ) -> Result<Self, BuildError> {
        let candidates = match named {
            // Who names a compiler wants that one and no other.
            Some(named) => vec![("DEVICE_RUSTC", PathBuf::from(named))],
            None => vec![
                ("the compiler of this build", building.to_owned()),
                ("the system's compiler", system.to_owned()),
            ],
        };
        let mut looked_at = Vec::new();
        let mut too_old = None;
        for (what, rustc) in candidates {
            match Self::examine(&rustc) {
                Ok(found) => match release(&found.identity) {
                    Some((release, numbers)) if numbers < OLDEST => {
                        looked_at.push(format!("{what}, {}: is {release}", rustc.display()));
                        too_old.get_or_insert(BuildError::CompilerTooOld {
                            rustc: found.rustc,
                            release: release.to_owned(),
                        });
                    }
                    _ => return Ok(found),
                },
                Err(lacks) => looked_at.push(format!("{what}, {}: {lacks}", rustc.display())),
            }
        }
        if std::env::var_os("RUSTUP_AUTO_INSTALL").is_some_and(|value| value == "0") {
            looked_at.push(
                "RUSTUP_AUTO_INSTALL is 0, so rustup has not fetched the rust-src \
                 that rust-toolchain.toml asks for"
                    .to_owned(),
            );
        }
        Err(too_old.unwrap_or(BuildError::NoDeviceToolchain { looked_at }))
    }

    /// The toolchain that `rustc` belongs to, or what it lacks.
    fn examine(rustc: &Path) -> Result<Self, String> {
        // rustc answers only one of these in a call.
        let sysroot = PathBuf::from(ask(rustc, &["--print", "sysroot"])?.trim());
        let library = sysroot.join("lib/rustlib/src/rust/library");
        if !library.join("core/src/lib.rs").is_file() {
            return Err(format!("has no {}", library.display()));
        }
        let own = sysroot.join("bin/rustc");
        let rustc = if own.is_file() { own } else { rustc.to_owned() };
        let identity = ask(&rustc, &["-vV"])?;
        Ok(Self {
            rustc,
            library,
            identity,
        })
    }

    /// Its name and release, and those of the LLVM in it: `rustc 1.96.0, LLVM 22.1.8`.
    #[must_use]
    pub fn version(&self) -> String {
        let field = |name: &str| {
            let mut lines = self.identity.lines();
            lines
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or("unknown")
        };
        format!(
            "rustc {}, LLVM {}",
            field("release: "),
            field("LLVM version: ")
        )
    }

    /// The edition of `core`, which changes with the compiler.
    pub(crate) fn core_edition(&self) -> Result<String, BuildError> {
        let path = self.library.join("core/Cargo.toml");
        let manifest = fs::read_to_string(&path).map_err(BuildError::io("read", &path))?;
        crate::manifest::value(&manifest, "package", "edition").ok_or_else(|| {
            BuildError::Manifest {
                path,
                reason: "has no edition".to_owned(),
            }
        })
    }

    /// Files that change when the compiler or its sources do.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        vec![self.rustc.clone(), self.library.join("core/src/lib.rs")]
    }
}

/// What a compiler answers, or why it does not.
fn ask(rustc: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = environment::clean(rustc, environment::names())
        .args(arguments)
        // rustup's proxy would fetch a toolchain that is not there. Who only asks must not.
        .env("RUSTUP_AUTO_INSTALL", "0")
        .output()
        .map_err(|error| format!("does not run: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("does not run: {}", said.trim()))
    }
}

/// The compiler that runs this build: cargo's variable in a build script, else the one beside
/// cargo, else the first on the path.
fn building_compiler(rustc: Option<OsString>, cargo: Option<OsString>) -> PathBuf {
    if let Some(rustc) = rustc {
        return rustc.into();
    }
    let beside = cargo.map(|cargo| Path::new(&cargo).with_file_name("rustc"));
    match beside {
        Some(rustc) if rustc.is_file() => rustc,
        _ => "rustc".into(),
    }
}

/// The release in the text of `rustc -vV`, whole and as numbers.
fn release(identity: &str) -> Option<(&str, (u32, u32))> {
    let release = identity
        .lines()
        .find_map(|line| line.strip_prefix("release: "))?;
    let mut parts = release.split(['.', '-']);
    let mut number = || parts.next()?.parse().ok();
    Some((release, (number()?, number()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Folder, script};

    /// A folder that looks like a toolchain of the given release.
    fn fake(folder: &Folder, name: &str, version: &str, with_source: bool) -> PathBuf {
        let root = folder.path().join(name);
        if with_source {
            let core = root.join("lib/rustlib/src/rust/library/core");
            fs::create_dir_all(core.join("src")).unwrap();
            fs::write(core.join("src/lib.rs"), "").unwrap();
            fs::write(core.join("Cargo.toml"), "[package]\nedition = \"2024\"\n").unwrap();
        }
        script(
            &root.join("bin/rustc"),
            &format!(
                "[ -z \"$RUSTFLAGS$RUSTC_WRAPPER\" ] || exit 1\n\
                 case $1 in --print) echo {}; exit; esac\n\
                 echo 'rustc {version} (0 2026-01-01)'\necho 'release: {version}'\n\
                 echo 'LLVM version: 22.1.2'",
                root.display()
            ),
        )
    }

    #[test]
    fn the_building_compiler_comes_first() {
        let folder = Folder::new("first");
        let building = fake(&folder, "building", "1.95.0", true);
        let system = fake(&folder, "system", "1.96.0", true);
        let found = Toolchain::find_among(None, &building, &system).unwrap();
        assert_eq!(found.rustc, building);
        assert!(found.identity.contains("release: 1.95.0"));
        assert!(!found.identity.contains(folder.path().to_str().unwrap()));
        assert_eq!(found.core_edition().unwrap(), "2024");
    }

    #[test]
    fn without_source_the_next_is_taken() {
        let folder = Folder::new("next");
        let building = fake(&folder, "building", "1.95.0", false);
        let system = fake(&folder, "system", "1.96.0-nightly", true);
        let found = Toolchain::find_among(None, &building, &system).unwrap();
        assert_eq!(found.rustc, system);
    }

    #[test]
    fn a_named_compiler_is_the_only_candidate() {
        let folder = Folder::new("named");
        let bare = fake(&folder, "bare", "1.95.0", false);
        let system = fake(&folder, "system", "1.96.0", true);
        let error = Toolchain::find_among(Some(bare.clone().into()), &system, &system).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("DEVICE_RUSTC") && said.contains(bare.to_str().unwrap()),
            "{said}"
        );
        let found = Toolchain::find_among(Some(system.clone().into()), &bare, &bare).unwrap();
        assert_eq!(found.rustc, system);
    }

    #[test]
    fn none_says_what_to_run() {
        let folder = Folder::new("none");
        let broken = script(&folder.path().join("broken"), "echo no such >&2; exit 1");
        let missing = folder.path().join("missing");
        let said = Toolchain::find_among(None, &broken, &missing)
            .unwrap_err()
            .to_string();
        for part in [
            "no such",
            "missing",
            "make setup",
            "rustup component add rust-src",
        ] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
    }

    #[test]
    fn an_old_compiler_is_named() {
        let folder = Folder::new("old");
        let old = fake(&folder, "old", "1.85.0", true);
        let error = Toolchain::find_among(None, &old, &old).unwrap_err();
        assert!(
            matches!(error, BuildError::CompilerTooOld { .. }),
            "{error}"
        );
        let new = fake(&folder, "new", "1.100.0", true);
        assert_eq!(Toolchain::find_among(None, &old, &new).unwrap().rustc, new);
    }

    #[test]
    fn releases_are_numbers() {
        assert_eq!(release("release: 1.96.0\n"), Some(("1.96.0", (1, 96))));
        assert_eq!(
            release("x\nrelease: 1.97.0-nightly"),
            Some(("1.97.0-nightly", (1, 97)))
        );
        assert_eq!(release("release: new"), None);
        assert_eq!(release(""), None);
    }

    #[test]
    fn the_compiler_beside_cargo_is_the_building_one() {
        let folder = Folder::new("beside");
        let rustc = script(&folder.path().join("rustc"), "");
        let cargo = folder.path().join("cargo");
        assert_eq!(building_compiler(None, Some(cargo.clone().into())), rustc);
        let named = building_compiler(Some("/x/rustc".into()), Some(cargo.into()));
        assert_eq!(named, Path::new("/x/rustc"));
        assert_eq!(building_compiler(None, None), Path::new("rustc"));
    }
}
