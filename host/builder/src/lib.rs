//! Compiles a `no_std` crate of GPU kernels to PTX, one file per architecture, with rustc's own
//! NVPTX target: no CUDA toolkit, no nightly, no network.
//!
//! # Use in a build script
//!
//! ```no_run
//! use std::{env, path::Path, process::ExitCode};
//! use ptx_builder::{Builder, Directives};
//!
//! fn main() -> ExitCode {
//!     let out = env::var_os("OUT_DIR").unwrap_or_default();
//!     let builder = Builder::new("../kernels")
//!         .architectures(&["sm_75", "sm_80", "sm_90a"])
//!         .directives([(
//!             "gemm_tiled_16".to_owned(),
//!             Directives { max_threads: Some(256), ..Directives::default() },
//!         )])
//!         .target_folder(ptx_builder::target_folder(Path::new(&out)));
//!     match builder.run_build_script(Path::new(&out)) {
//!         Ok(_) => ExitCode::SUCCESS,
//!         Err(code) => code,
//!     }
//! }
//! ```
//!
//! The library then takes the files in with
//! `include!(concat!(env!("OUT_DIR"), "/ptx.rs"))`, an expression of type
//! `&[(&str, &str)]`: architecture and text.
//!
//! # How
//!
//! rustc is called directly, not through a nested cargo. `cargo -Zbuild-std` resolves the
//! dependencies of `std` (`cfg-if`, `hashbrown` and two dozen more) although only `core` is built,
//! so with an empty `CARGO_HOME` it needs the network; it would also take the profiles, wrappers,
//! flags and `.cargo/config.toml` meant for the host. `core` needs nothing but a compiler call.
//! The price: on the device the kernels' crate can have no dependencies and no build script.
//!
//! `core` is compiled once per compiler, for all architectures: only its metadata, no machine code.
//! `-Zalways-encode-mir` and `-Zcross-crate-inline-threshold=always` let every function of `core`
//! that a kernel calls be compiled with the kernel, for the kernel's architecture.
//!
//! `-Cpanic=immediate-abort` turns each panic into a `trap`, in `core` too. Otherwise an index
//! check or a division leaves a call of `core::panicking`, which nobody defines on the device.
//!
//! # The compiler
//!
//! It needs the source of `core` in its sysroot. The first that has it is taken:
//!
//! 1. `DEVICE_RUSTC`, a path. Where it is set, nothing else is tried.
//! 2. The compiler that runs the build: `RUSTC`, else the one beside `CARGO`, else `rustc`.
//! 3. `/usr/bin/rustc`, which is Debian's with `rustc-web` and `rust-web-src`.
//!
//! The second has it under rustup after `rustup component add rust-src`. rustup fetches by itself
//! what `rust-toolchain.toml` lists, but not where `RUSTUP_AUTO_INSTALL` is 0: there cargo runs
//! without the component and says nothing, and the third is taken.
//!
//! # PTX versions
//!
//! A driver refuses PTX newer than itself, so each architecture gets the lowest version that has
//! it. [`Architecture::with_ptx`] raises it for kernels that need a later instruction.
//!
//! | architecture | PTX | first CUDA and Linux driver that take it | why not lower |
//! |---|---|---|---|
//! | sm_70, sm_72, sm_75, sm_80 | 7.0 | 11.0, 450 | rustc 1.97 writes 7.0 at least |
//! | sm_86 | 7.1 | 11.1, 455 | the architecture's first |
//! | sm_87 | 7.4 | 11.4, 470 | the architecture's first |
//! | sm_89, sm_90 | 7.8 | 11.8, 520 | the architecture's first |
//! | sm_90a | 8.0 | 12.0, 525 | the architecture's first |
//! | sm_100, sm_100a | 8.6 | 12.7, 565 | the architecture's first |
//! | sm_120, sm_120a | 8.7 | 12.8, 570 | the architecture's first |
//!
//! Device code can ask what it is compiled for: `cfg(target_feature = "sm_80")` holds for sm_80
//! and later, `cfg(target_feature = "sm_90a")` for sm_90a alone.
//!
//! # Freshness
//!
//! Beside each file lies a fingerprint of the compiler, the flags, the directives and the content
//! of the kernels' crate. Where it still fits, nothing is compiled. So sources that device code
//! includes must lie in `src`.

mod architecture;
mod environment;
mod error;
pub mod foreign;
mod manifest;
pub mod rust_cuda;
mod text;
mod toolchain;

use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
};

pub use crate::{
    architecture::Architecture, error::BuildError, text::Directives, toolchain::Toolchain,
};

/// rustc's name of the target.
const TARGET: &str = "nvptx64-nvidia-cuda";

/// `core` names this crate and calls it for nothing that reaches the PTX.
const COMPILER_BUILTINS: &str =
    "#![feature(compiler_builtins)]\n#![compiler_builtins]\n#![no_std]\n";

/// This crate's own code, a part of every fingerprint: other code may make other files.
const SELF: [&str; 2] = [include_str!("lib.rs"), include_str!("text.rs")];

/// One PTX file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptx {
    /// What it is for.
    pub architecture: Architecture,
    /// Where it is: `<target folder>/<architecture>.ptx`. Another build may replace the file.
    pub path: PathBuf,
    /// What it holds.
    pub text: String,
    /// The PTX version it asks of the driver, `(major, minor)`.
    pub version: (u32, u32),
    /// Its kernels, in the order of the file.
    pub entries: Vec<String>,
    /// What the compiler warned of, as it wrote it. Empty where it did not.
    pub warnings: String,
}

/// Compiles one crate of kernels. Made by [`Builder::new`], run by [`Builder::build`].
#[derive(Clone, Debug)]
pub struct Builder {
    kernels: PathBuf,
    target_folder: PathBuf,
    architectures: Vec<Result<Architecture, String>>,
    directives: BTreeMap<String, Directives>,
    features: Vec<String>,
    rustc_arguments: Vec<String>,
    parts: Vec<Vec<String>>,
    line_tables: bool,
}

impl Builder {
    /// A builder for the crate whose `Cargo.toml` is in the folder `kernels`.
    ///
    /// It writes to `target/ptx` and has no architecture yet.
    pub fn new(kernels: impl Into<PathBuf>) -> Self {
        Self {
            kernels: kernels.into(),
            target_folder: PathBuf::from("target/ptx"),
            architectures: Vec::new(),
            directives: BTreeMap::new(),
            features: Vec::new(),
            rustc_arguments: Vec::new(),
            parts: Vec::new(),
            line_tables: false,
        }
    }

    /// Adds architectures by name. A wrong name is an error of [`Builder::build`].
    #[must_use]
    pub fn architectures(mut self, names: &[&str]) -> Self {
        self.architectures.extend(
            names
                .iter()
                .map(|name| Architecture::parse(name).map_err(|_| (*name).to_owned())),
        );
        self
    }

    /// Adds one architecture, with the PTX version that it holds.
    #[must_use]
    pub fn architecture(mut self, architecture: Architecture) -> Self {
        self.architectures.push(Ok(architecture));
        self
    }

    /// Adds directives by kernel. Of two for the same kernel the later counts.
    #[must_use]
    pub fn directives(mut self, all: impl IntoIterator<Item = (String, Directives)>) -> Self {
        self.directives.extend(all);
        self
    }

    /// The folder for the PTX and for `core`, best outside `OUT_DIR`: cargo makes an `OUT_DIR` for
    /// each profile and set of features, and compiling `core` takes 15 s.
    #[must_use]
    pub fn target_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.target_folder = folder.into();
        self
    }

    /// Turns on a feature of the kernels' crate. Its default features are off on the device.
    #[must_use]
    pub fn feature(mut self, name: impl Into<String>) -> Self {
        self.features.push(name.into());
        self
    }

    /// Passes one more argument to rustc, such as `-Cllvm-args=-unroll-threshold=2000`.
    #[must_use]
    pub fn rustc_argument(mut self, argument: impl Into<String>) -> Self {
        self.rustc_arguments.push(argument.into());
        self
    }

    /// Compiles the crate once for each part, with these arguments beside all others, and puts the
    /// parts' kernels into one file.
    ///
    /// Options of LLVM hold for a whole crate. Where kernels want different ones, each part takes
    /// its own kernels by `--cfg`; two parts must not hold one kernel.
    #[must_use]
    pub fn part(mut self, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        self.parts.push(arguments.collect());
        self
    }

    /// Writes `.loc` lines, by which a profiler or compute-sanitizer names the line of a kernel.
    ///
    /// They do not change the code, but put the paths of the sources into the PTX.
    #[must_use]
    pub fn line_tables(mut self, on: bool) -> Self {
        self.line_tables = on;
        self
    }

    /// Compiles what is not up to date, and returns the files in the order of the architectures.
    ///
    /// Safe to run from several processes at once: the target folder is locked, and files are
    /// replaced whole.
    ///
    /// # Errors
    ///
    /// Every [`BuildError`]; each says what to do.
    pub fn build(&self) -> Result<Vec<Ptx>, BuildError> {
        self.build_with(&Toolchain::find()?)
    }

    /// [`Builder::build`] with a compiler already found.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::build`].
    pub fn build_with(&self, toolchain: &Toolchain) -> Result<Vec<Ptx>, BuildError> {
        let architectures = self.checked_architectures()?;
        let sources = fingerprint_of(&self.kernels)?;
        fs::create_dir_all(&self.target_folder)
            .map_err(BuildError::io("create", &self.target_folder))?;
        // rustc runs in another folder, so relative paths would miss.
        let folder = absolute(&self.target_folder)?;
        let lock = folder.join("lock");
        let lock_file = fs::File::create(&lock).map_err(BuildError::io("create", &lock))?;
        lock_file.lock().map_err(BuildError::io("lock", &lock))?;

        let core = OnceCore::new(toolchain, &folder);
        let build = |architecture| self.one(toolchain, &core, &folder, architecture, sources);
        thread::scope(|scope| {
            let running: Vec<_> = architectures
                .iter()
                .map(|architecture| scope.spawn(|| build(architecture)))
                .collect();
            running
                .into_iter()
                .map(|handle| match handle.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        })
    }

    /// All that a build script does: compiles, tells cargo what to watch, passes warnings on,
    /// copies the files to `out` and writes `out/ptx.rs`.
    ///
    /// # Errors
    ///
    /// A failing exit code, after the error has been written to stderr, where cargo shows it.
    pub fn run_build_script(&self, out: &Path) -> Result<Vec<Ptx>, ExitCode> {
        let built = Toolchain::find().and_then(|toolchain| {
            let built = self.build_with(&toolchain)?;
            embed(&built, out)?;
            // Only now: cargo repeats a script that failed anyway, and would show these lines
            // before the error.
            for line in self.cargo_lines(&toolchain) {
                println!("{line}");
            }
            Ok(built)
        });
        let built = built.map_err(|error| {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        })?;
        // The same source warns once for each architecture.
        let mut warned = Vec::new();
        for ptx in &built {
            if !ptx.warnings.is_empty() && !warned.contains(&&ptx.warnings) {
                for line in ptx.warnings.lines() {
                    println!("cargo::warning={line}");
                }
                warned.push(&ptx.warnings);
            }
        }
        Ok(built)
    }

    /// What cargo must watch: the kernels, the pinned toolchain, the device compiler.
    ///
    /// Only files that exist are named, since cargo runs a build script that names a missing one
    /// every time.
    #[must_use]
    pub fn cargo_lines(&self, toolchain: &Toolchain) -> Vec<String> {
        let root = self.kernels.parent().unwrap_or(Path::new(""));
        let mut watched = vec![
            PathBuf::from("build.rs"),
            self.kernels.join("src"),
            self.kernels.join("Cargo.toml"),
            root.join("rust-toolchain.toml"),
        ];
        watched.extend(toolchain.watched());
        let mut lines = vec!["cargo::rerun-if-env-changed=DEVICE_RUSTC".to_owned()];
        lines.extend(
            watched
                .iter()
                .filter(|path| path.exists())
                .map(|path| format!("cargo::rerun-if-changed={}", path.display())),
        );
        lines
    }

    fn checked_architectures(&self) -> Result<Vec<Architecture>, BuildError> {
        let mut all: Vec<Architecture> = Vec::new();
        for architecture in &self.architectures {
            let one = match architecture {
                Ok(one) => one.clone(),
                Err(name) => Architecture::parse(name)?,
            };
            if all.iter().any(|other| other.to_string() == one.to_string()) {
                // Both would write the same file.
                return unknown(one.to_string());
            }
            all.push(one);
        }
        if all.is_empty() {
            return unknown(String::new());
        }
        Ok(all)
    }

    /// rustc's arguments for the kernels, without paths that differ from machine to machine.
    fn arguments(&self, architecture: &Architecture, manifest: &manifest::Manifest) -> Vec<String> {
        let mut all = vec![
            "--crate-name".to_owned(),
            manifest.crate_name.clone(),
            "--edition".to_owned(),
            manifest.edition.clone(),
            format!("-Ctarget-cpu={architecture}"),
            format!("-Ctarget-feature={}", architecture.ptx_feature()),
        ];
        all.extend(common_arguments());
        // Anything fuller writes DWARF sections that ptxas does not parse.
        if self.line_tables {
            all.push("-Cdebuginfo=line-directives-only".to_owned());
        }
        for feature in &self.features {
            all.extend(["--cfg".to_owned(), format!("feature=\"{feature}\"")]);
        }
        all.extend(self.rustc_arguments.iter().cloned());
        all
    }

    fn one(
        &self,
        toolchain: &Toolchain,
        core: &OnceCore<'_>,
        folder: &Path,
        architecture: &Architecture,
        sources: u64,
    ) -> Result<Ptx, BuildError> {
        let manifest = manifest::read(&self.kernels)?;
        let arguments = self.arguments(architecture, &manifest);
        let wanted = fingerprint(&(
            SELF,
            core.fingerprint(),
            sources,
            &arguments,
            &self.parts,
            format!("{:?}", self.directives),
        ));
        let path = folder.join(format!("{architecture}.ptx"));
        // First line: the fingerprint; the rest: the warnings, to be shown again.
        let state = folder.join(format!("{architecture}.state"));
        if let (Ok(text), Ok(known)) = (fs::read_to_string(&path), fs::read_to_string(&state))
            && let Some((first, warnings)) = known.split_once('\n')
            && first == format!("{wanted} {}", fingerprint(&text))
        {
            return described(architecture, path, text, warnings.to_owned());
        }

        let core = core.build()?;
        let source = absolute(&self.kernels)?;
        // Errors then name `kernels/src/...`, wherever the build was started.
        let (root, name) = match (source.parent(), source.file_name()) {
            (Some(root), Some(name)) => (root, PathBuf::from(name)),
            _ => (source.as_path(), PathBuf::from(".")),
        };
        let raw = folder.join(format!("{architecture}.raw"));
        let compile = |part: &[String]| -> Result<(String, String), BuildError> {
            let mut command = rustc(toolchain);
            command
                .current_dir(root)
                .args(&arguments)
                .args(part)
                .args(["--crate-type=rlib", "--emit=asm", "-o"])
                .arg(&raw)
                .arg("--extern")
                .arg(assignment("core", &core.join("libcore.rmeta")))
                .arg("-L")
                .arg(&core)
                .arg(name.join("src/lib.rs"));
            let stderr = run(&mut command, toolchain)?.map_err(|stderr| BuildError::Kernels {
                architecture: architecture.to_string(),
                stderr,
            })?;
            let text = fs::read_to_string(&raw).map_err(BuildError::io("read", &raw))?;
            Ok((text, warnings(&stderr)))
        };
        let (text, warnings) = match self.parts.split_first() {
            None => compile(&[])?,
            Some((first, rest)) => {
                let (mut text, mut warnings) = compile(first)?;
                for part in rest {
                    let (more, warned) = compile(part)?;
                    text = text::joined(&text, &more);
                    // The parts share the sources that both compile.
                    if !warnings.contains(&warned) {
                        warnings += &warned;
                    }
                }
                (text, warnings)
            }
        };
        let name = architecture.to_string();
        let header = text::header(&text, &name)?;
        if header.target != name {
            return Err(BuildError::Malformed {
                architecture: name,
                reason: format!("its target is {}", header.target),
            });
        }
        text::check_resolved(&text, &name)?;
        let text = text::insert(&text, architecture, &self.directives)?;
        replace(&path, &text)?;
        let print = fingerprint(&text);
        replace(&state, &format!("{wanted} {print}\n{warnings}"))?;
        // A leftover does no harm.
        let _ = fs::remove_file(&raw);
        described(architecture, path, text, warnings)
    }
}

/// `<cargo's target folder>/ptx`, found from a build script's `OUT_DIR`.
///
/// cargo marks a target folder that it makes with `CACHEDIR.TAG`. One that was there before it has
/// none, and is found by its place above `PROFILE/build/PACKAGE/out`. Elsewhere `out` itself serves.
#[must_use]
pub fn target_folder(out: &Path) -> PathBuf {
    let by_place = || {
        let build = out.ancestors().nth(2)?;
        build.ends_with("build").then(|| build.ancestors().nth(2))?
    };
    out.ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").is_file())
        .or_else(by_place)
        .unwrap_or(out)
        .join("ptx")
}

/// Writes the files to `out`, and `out/ptx.rs`, an expression of type `&[(&str, &str)]`:
/// architecture and text.
///
/// Copies, because cargo knows when its `OUT_DIR` is gone and does not know the target folder.
///
/// # Errors
///
/// [`BuildError::Io`].
pub fn embed(files: &[Ptx], out: &Path) -> Result<PathBuf, BuildError> {
    embed_under(files, out, "ptx.rs", "")
}

/// Writes the files to `out` under names that begin with `prefix`, and their list under `name`.
fn embed_under(
    files: &[Ptx],
    out: &Path,
    list_name: &str,
    prefix: &str,
) -> Result<PathBuf, BuildError> {
    let mut list = String::from("&[\n");
    for ptx in files {
        let name = format!("{prefix}{}.ptx", ptx.architecture);
        replace(&out.join(&name), &ptx.text)?;
        list += &format!(
            "    (\"{}\", include_str!(concat!(env!(\"OUT_DIR\"), \"/{name}\"))),\n",
            ptx.architecture
        );
    }
    list += "]\n";
    let path = out.join(list_name);
    replace(&path, &list)?;
    Ok(path)
}

/// `core`, compiled when the first architecture asks for it.
struct OnceCore<'a> {
    toolchain: &'a Toolchain,
    folder: &'a Path,
    done: std::sync::Mutex<bool>,
}

impl<'a> OnceCore<'a> {
    fn new(toolchain: &'a Toolchain, folder: &'a Path) -> Self {
        Self {
            toolchain,
            folder,
            done: std::sync::Mutex::new(false),
        }
    }

    fn fingerprint(&self) -> String {
        fingerprint(&(
            &self.toolchain.identity,
            &self.toolchain.library,
            core_arguments(),
        ))
    }

    /// The folder with the metadata of `core`.
    fn build(&self) -> Result<PathBuf, BuildError> {
        let name = format!("core-{}", self.fingerprint());
        let finished = self.folder.join(&name);
        // Nothing panics while it is held; if something did, the folder's own state still decides.
        let mut done = match self.done.lock() {
            Ok(done) => done,
            Err(poisoned) => poisoned.into_inner(),
        };
        if *done || finished.is_dir() {
            *done = true;
            return Ok(finished);
        }
        // 30 MB for each compiler that was ever used: keep the present one's alone.
        for old in fs::read_dir(self.folder)
            .map_err(BuildError::io("list", self.folder))?
            .flatten()
            .filter(|old| old.file_name().to_string_lossy().starts_with("core-"))
        {
            fs::remove_dir_all(old.path()).map_err(BuildError::io("remove", old.path()))?;
        }
        // The name appears only when all is written, so a killed build leaves nothing half done.
        let unfinished = self.folder.join(format!("{name}.tmp"));
        fs::create_dir_all(&unfinished).map_err(BuildError::io("create", &unfinished))?;
        let builtins = unfinished.join("compiler_builtins.rs");
        fs::write(&builtins, COMPILER_BUILTINS).map_err(BuildError::io("write", &builtins))?;
        let core = self.toolchain.library.join("core/src/lib.rs");
        let edition = self.toolchain.core_edition()?;
        for (name, source) in [("core", &core), ("compiler_builtins", &builtins)] {
            let mut command = rustc(self.toolchain);
            command
                .args(["--crate-name", name, "--edition", &edition])
                .args(core_arguments())
                .arg("--out-dir")
                .arg(&unfinished)
                .arg("-L")
                .arg(&unfinished)
                .arg(source);
            run(&mut command, self.toolchain)?.map_err(|stderr| BuildError::Core {
                rustc: self.toolchain.rustc.clone(),
                stderr,
            })?;
        }
        fs::rename(&unfinished, &finished).map_err(BuildError::io("rename", &unfinished))?;
        *done = true;
        Ok(finished)
    }
}

/// Arguments that decide what device code is, pinned here and never a profile's.
fn common_arguments() -> Vec<String> {
    [
        "--target",
        TARGET,
        "-Copt-level=3",
        "-Ccodegen-units=1",
        "-Zunstable-options",
        "-Cpanic=immediate-abort",
    ]
    .map(str::to_owned)
    .into()
}

fn core_arguments() -> Vec<String> {
    let mut all = common_arguments();
    all.extend(
        [
            "--crate-type=rlib",
            "--emit=metadata",
            "--cap-lints=allow",
            "-Zalways-encode-mir",
            "-Zcross-crate-inline-threshold=always",
            "-Zforce-unstable-if-unmarked",
        ]
        .map(str::to_owned),
    );
    all
}

fn rustc(toolchain: &Toolchain) -> Command {
    let mut command = environment::clean(&toolchain.rustc, environment::names());
    // The NVPTX target's features are unstable; the host stays on the stable language.
    command.env("RUSTC_BOOTSTRAP", "1");
    command
}

/// Runs the compiler. Inside: what it wrote to stderr, as an error where it failed.
fn run(command: &mut Command, toolchain: &Toolchain) -> Result<Result<String, String>, BuildError> {
    let output = command
        .output()
        .map_err(BuildError::io("run", &toolchain.rustc))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(if output.status.success() {
        Ok(stderr)
    } else if stderr.trim().is_empty() {
        Err(format!("it ended with {}", output.status))
    } else {
        Err(without_noise(&stderr))
    })
}

/// Drops what the flags used here make rustc say on every run.
fn without_noise(stderr: &str) -> String {
    let noise = |paragraph: &str| {
        paragraph.starts_with("warning: unstable feature specified for `-Ctarget-feature`")
    };
    let kept: Vec<_> = stderr.split("\n\n").filter(|p| !noise(p)).collect();
    kept.join("\n\n")
}

/// The warnings in what rustc wrote, without their count.
fn warnings(stderr: &str) -> String {
    let text = without_noise(stderr);
    let count = |line: &&str| line.starts_with("warning: ") && line.ends_with(" emitted");
    let lines: Vec<_> = text.lines().filter(|line| !count(line)).collect();
    lines.join("\n").trim().to_owned()
}

fn unknown<T>(name: String) -> Result<T, BuildError> {
    Err(match Architecture::parse("") {
        Err(BuildError::UnknownArchitecture { known, .. }) => {
            BuildError::UnknownArchitecture { name, known }
        }
        _ => BuildError::UnknownArchitecture {
            name,
            known: Vec::new(),
        },
    })
}

fn described(
    architecture: &Architecture,
    path: PathBuf,
    text: String,
    warnings: String,
) -> Result<Ptx, BuildError> {
    let header = text::header(&text, &architecture.to_string())?;
    Ok(Ptx {
        architecture: architecture.clone(),
        path,
        text,
        version: header.version,
        entries: header.entries,
        warnings,
    })
}

fn absolute(path: &Path) -> Result<PathBuf, BuildError> {
    path.canonicalize().map_err(BuildError::io("find", path))
}

fn assignment(name: &str, path: &Path) -> std::ffi::OsString {
    let mut all = std::ffi::OsString::from(name);
    all.push("=");
    all.push(path);
    all
}

fn fingerprint(value: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// A hash of every file in the kernels' `src`, and of its manifest.
fn fingerprint_of(kernels: &Path) -> Result<u64, BuildError> {
    let mut hasher = DefaultHasher::new();
    let manifest = kernels.join("Cargo.toml");
    fs::read(&manifest)
        .map_err(BuildError::io("read", &manifest))?
        .hash(&mut hasher);
    let source = kernels.join("src");
    let mut files = Vec::new();
    list(&source, &mut files)?;
    files.sort();
    for file in files {
        let name = file.strip_prefix(&source).unwrap_or(&file);
        name.hash(&mut hasher);
        fs::read(&file)
            .map_err(BuildError::io("read", &file))?
            .hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), BuildError> {
    let failed = || BuildError::io("list", folder);
    for entry in fs::read_dir(folder).map_err(failed())? {
        let path = entry.map_err(failed())?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Writes beside the file and renames, so that no reader sees half of it; leaves an equal file, so
/// that its time does not change.
fn replace(path: &Path, text: &str) -> Result<(), BuildError> {
    match fs::read(path) {
        Ok(old) if old == text.as_bytes() => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(BuildError::io("read", path)(error));
        }
        _ => {}
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    fs::write(&beside, text).map_err(BuildError::io("write", &beside))?;
    fs::rename(&beside, path).map_err(BuildError::io("replace", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of one test, removed after it.
    pub(crate) struct Folder(PathBuf);

    impl Folder {
        pub(crate) fn new(name: &str) -> Self {
            let name = format!("ptx_builder-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path.canonicalize().unwrap())
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// An executable shell script.
    pub(crate) fn script(path: &Path, body: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Written by a child, because a file this process holds open for writing while another
        // thread forks can't be executed ("text file busy").
        let status = Command::new("sh")
            .args(["-c", "printf '%s\\n' \"$2\" > \"$1\"", "sh"])
            .arg(path)
            .arg(format!("#!/bin/sh\n{body}"))
            .status()
            .unwrap();
        assert!(status.success());
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_owned()
    }

    #[test]
    fn warnings_are_told_from_noise() {
        let noise = "warning: unstable feature specified for `-Ctarget-feature`: `ptx70`\n  |\n  \
                     = note: this feature is not stably supported; its behavior can change\n\n";
        assert_eq!(
            warnings(&format!("{noise}warning: 1 warning emitted\n\n")),
            ""
        );
        let real = "warning: unused variable: `x`\n --> kernels/src/lib.rs:1:1\n";
        let all = format!("{noise}{real}\nwarning: 2 warnings emitted\n\n");
        assert_eq!(warnings(&all), real.trim());
        assert_eq!(
            without_noise("error: a\n\nerror: b\n"),
            "error: a\n\nerror: b\n"
        );
    }

    #[test]
    fn architectures_are_checked() {
        let error = |builder: Builder| builder.checked_architectures().unwrap_err().to_string();
        let new = || Builder::new("kernels");
        assert!(error(new()).contains("sm_75"));
        assert!(error(new().architectures(&["sm_76"])).contains("\"sm_76\""));
        assert!(error(new().architectures(&["sm_80", "sm_80"])).contains("twice"));
        let both = new().architectures(&["sm_90", "sm_90a"]);
        assert_eq!(both.checked_architectures().unwrap().len(), 2);
    }

    #[test]
    fn the_target_folder_is_cargos() {
        let folder = Folder::new("target");
        // With a target's name between, as `--target` has it.
        let out = folder.path().join("target/triple/debug/build/host-1/out");
        fs::create_dir_all(&out).unwrap();
        assert_eq!(target_folder(&out), folder.path().join("target/triple/ptx"));
        let elsewhere = folder.path().join("target/out");
        assert_eq!(target_folder(&elsewhere), elsewhere.join("ptx"));
        let tag = folder.path().join("target/CACHEDIR.TAG");
        fs::write(tag, "").unwrap();
        assert_eq!(target_folder(&out), folder.path().join("target/ptx"));
    }

    #[test]
    fn the_fingerprint_follows_the_sources() {
        let folder = Folder::new("fingerprint");
        let source = folder.path().join("src/gemm");
        fs::create_dir_all(&source).unwrap();
        fs::write(folder.path().join("Cargo.toml"), "[package]").unwrap();
        fs::write(source.join("naive.rs"), "a").unwrap();
        let mut seen = vec![fingerprint_of(folder.path()).unwrap()];
        assert_eq!(fingerprint_of(folder.path()).unwrap(), seen[0]);
        for (name, text) in [
            ("src/gemm/naive.rs", "b"),
            ("src/gemm/tiled.rs", ""),
            ("Cargo.toml", "[package]\n"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
            let now = fingerprint_of(folder.path()).unwrap();
            assert!(!seen.contains(&now), "{name}");
            seen.push(now);
        }
        fs::rename(source.join("tiled.rs"), source.join("wide.rs")).unwrap();
        assert!(!seen.contains(&fingerprint_of(folder.path()).unwrap()));
    }

    #[test]
    fn an_equal_file_keeps_its_time() {
        let folder = Folder::new("replace");
        let path = folder.path().join("x");
        replace(&path, "1").unwrap();
        let old = fs::metadata(&path).unwrap().modified().unwrap();
        replace(&path, "1").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), old);
        replace(&path, "2").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "2");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn cargo_watches_only_what_exists() {
        let folder = Folder::new("watch");
        let kernels = folder.path().join("kernels");
        fs::create_dir_all(kernels.join("src")).unwrap();
        let lines = Builder::new(&kernels).cargo_lines(&Toolchain {
            rustc: folder.path().join("no-such-rustc"),
            library: folder.path().to_owned(),
            identity: String::new(),
        });
        assert!(lines.contains(&"cargo::rerun-if-env-changed=DEVICE_RUSTC".to_owned()));
        let source = format!("cargo::rerun-if-changed={}", kernels.join("src").display());
        assert!(lines.contains(&source));
        assert!(lines.iter().all(|line| !line.contains("rust-toolchain")));
        assert!(lines.iter().all(|line| !line.contains("no-such-rustc")));
    }

    #[test]
    fn embedding_lists_the_files() {
        let folder = Folder::new("embed");
        let ptx = Ptx {
            architecture: Architecture::parse("sm_80").unwrap(),
            path: PathBuf::new(),
            text: "text".to_owned(),
            version: (7, 0),
            entries: vec!["a".to_owned()],
            warnings: String::new(),
        };
        let list = fs::read_to_string(embed(&[ptx], folder.path()).unwrap()).unwrap();
        assert!(
            list.contains("(\"sm_80\", include_str!(concat!(env!(\"OUT_DIR\"), \"/sm_80.ptx\")))")
        );
        let copied = fs::read_to_string(folder.path().join("sm_80.ptx")).unwrap();
        assert_eq!(copied, "text");
    }
}
