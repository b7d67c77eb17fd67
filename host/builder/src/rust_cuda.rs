//! PTX made by [rust-cuda](https://github.com/Rust-GPU/rust-cuda), beside that of rustc.
//!
//! rust-cuda needs a compiler, an LLVM and a CUDA toolkit of its own, so nothing here runs unless a
//! build asks for it. [`parts`] says what a machine has of them, [`compile`] runs the package
//! `rust-cuda/ptx` with them, and [`run_build_script`] is what a build script calls.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use crate::{BuildError, Directives, Ptx, absolute, embed_under, environment, foreign, replace};

/// Names a PTX file to embed instead of compiling one: relative paths start at the repository's
/// root.
pub const PTX_VARIABLE: &str = "MATMUL_RUST_CUDA_PTX";

/// Variables that decide what rust-cuda makes.
const WATCHED: [&str; 4] = [
    "MATMUL_RUST_CUDA_ARCH",
    "CUDA_PATH",
    "LLVM_CONFIG",
    "LD_LIBRARY_PATH",
];

/// Where cuda_builder and nvvm look for the CUDA toolkit, in their order, and then its usual place.
const CUDA_VARIABLES: [&str; 4] = [
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_ROOT",
    "CUDA_TOOLKIT_ROOT_DIR",
];

/// A part of rust-cuda's toolchain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub name: &'static str,
    /// What was found, or what is wrong.
    pub found: Result<String, String>,
    /// What to do where something is wrong.
    pub remedy: String,
}

impl Part {
    fn new(name: &'static str, found: Result<String, String>, remedy: impl Into<String>) -> Self {
        Self {
            name,
            found,
            remedy: remedy.into(),
        }
    }
}

/// Each part of the toolchain, in the order in which to set them up.
///
/// `folder` is the repository's `rust-cuda`. Changes nothing on the machine and fetches nothing.
#[must_use]
pub fn parts(folder: &Path) -> Vec<Part> {
    Machine::this().parts(folder)
}

/// Has rust-cuda compile the kernels and writes their PTX to `to`.
///
/// `folder` is the repository's `rust-cuda`.
///
/// # Errors
///
/// [`BuildError::RustCudaToolchain`] names each part that is not there, with its remedy.
/// [`BuildError::RustCuda`] where the kernels do not compile.
pub fn compile(folder: &Path, to: &Path) -> Result<(), BuildError> {
    compile_with(&parts(folder), Path::new("rustup"), folder, to)
}

/// All that a build script does for this backend: tells cargo what to watch, takes the file that
/// [`PTX_VARIABLE`] names or, where `compile_it` says so, has rust-cuda compile the kernels, puts
/// the directives in, and writes `out/rust_cuda.rs`, an expression of type `&[(&str, &str)]`:
/// architecture and text. The list is empty where there is nothing to embed.
///
/// `root` is the repository. `target` is where [`Builder::target_folder`](crate::Builder) puts its
/// PTX; this backend's lies in `rust-cuda` there.
///
/// # Errors
///
/// A failing exit code, after the error has been written to stderr, where cargo shows it.
pub fn run_build_script(
    root: &Path,
    compile_it: bool,
    directives: impl IntoIterator<Item = (String, Directives)>,
    target: &Path,
    out: &Path,
) -> Result<Vec<Ptx>, ExitCode> {
    println!("cargo::rerun-if-env-changed={PTX_VARIABLE}");
    let named = env::var_os(PTX_VARIABLE).filter(|value| !value.is_empty());
    let built = match &named {
        Some(file) => {
            // Errors then name the whole path, also of a file that is not there.
            let path = root
                .canonicalize()
                .unwrap_or_else(|_| root.to_owned())
                .join(file);
            println!("cargo::rerun-if-changed={}", path.display());
            foreign::read(&path, directives).map(|ptx| vec![ptx])
        }
        None if compile_it => {
            for name in WATCHED {
                println!("cargo::rerun-if-env-changed={name}");
            }
            let folder = root.join("rust-cuda");
            for watched in ["Cargo.toml", "rust-toolchain.toml", "kernels", "ptx"] {
                println!("cargo::rerun-if-changed={}", folder.join(watched).display());
            }
            let raw = out.join("rust_cuda.raw");
            compile(&folder, &raw)
                .and_then(|()| foreign::read(&raw, directives))
                .map(|ptx| vec![ptx])
        }
        None => Ok(Vec::new()),
    };
    built
        .and_then(|built| {
            publish(&built, target)?;
            embed_under(&built, out, "rust_cuda.rs", "rust_cuda.")?;
            Ok(built)
        })
        .map_err(|error| {
            match named {
                Some(_) => eprintln!("error: {PTX_VARIABLE}: {error}"),
                None => eprintln!("error: {error}"),
            }
            ExitCode::FAILURE
        })
}

/// Puts the files where tools look for them, and nothing else there.
fn publish(built: &[Ptx], target: &Path) -> Result<(), BuildError> {
    let folder = target.join("rust-cuda");
    if folder.is_dir() {
        fs::remove_dir_all(&folder).map_err(BuildError::io("remove", &folder))?;
    }
    for ptx in built {
        fs::create_dir_all(&folder).map_err(BuildError::io("create", &folder))?;
        replace(&folder.join(format!("{}.ptx", ptx.architecture)), &ptx.text)?;
    }
    Ok(())
}

fn compile_with(parts: &[Part], rustup: &Path, folder: &Path, to: &Path) -> Result<(), BuildError> {
    let lacking: Vec<_> = parts
        .iter()
        .filter_map(|part| {
            let wrong = part.found.as_ref().err()?;
            Some(format!("{}: {wrong}. Remedy: {}", part.name, part.remedy))
        })
        .collect();
    if !lacking.is_empty() {
        return Err(BuildError::RustCudaToolchain { lacking });
    }
    let folder = absolute(folder)?;
    let mut command = environment::clean(rustup, environment::names());
    // rustup's cargo, because a cargo without rustup would ignore rust-toolchain.toml. Release,
    // because the code generator crashes on the dev profile.
    let output = command
        .current_dir(&folder)
        .args(["run", &channel(&folder)?, "cargo", "run", "--release"])
        .args(["--package", "rust_cuda_ptx", "--"])
        .arg(to)
        .output()
        .map_err(BuildError::io("run", rustup))?;
    if output.status.success() {
        Ok(())
    } else {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(BuildError::RustCuda { stderr })
    }
}

/// The toolchain that `rust-cuda/rust-toolchain.toml` names.
fn channel(folder: &Path) -> Result<String, BuildError> {
    let path = folder.join("rust-toolchain.toml");
    let text = fs::read_to_string(&path).map_err(BuildError::io("read", &path))?;
    crate::manifest::value(&text, "toolchain", "channel").ok_or_else(|| BuildError::Manifest {
        path,
        reason: "names no channel".to_owned(),
    })
}

/// Gives the value of an environment variable.
type Variable = dyn Fn(&str) -> Option<OsString>;

/// What the checks look at, so that tests can give them another machine.
struct Machine {
    variable: Box<Variable>,
    rustup: PathBuf,
    llvm_config: PathBuf,
    /// The toolkit's usual place.
    cuda: PathBuf,
    /// Folders that may hold libclang.
    libraries: Vec<PathBuf>,
}

impl Machine {
    fn this() -> Self {
        let mut libraries: Vec<PathBuf> = [
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib64",
            "/usr/lib",
            "/usr/local/lib",
        ]
        .map(PathBuf::from)
        .into();
        // Debian has each version of LLVM in a folder of its own.
        if let Ok(entries) = fs::read_dir("/usr/lib") {
            libraries.extend(
                entries
                    .flatten()
                    .filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm"))
                    .map(|entry| entry.path().join("lib")),
            );
        }
        Self {
            variable: Box::new(|name| env::var_os(name).filter(|value| !value.is_empty())),
            rustup: "rustup".into(),
            llvm_config: "llvm-config".into(),
            cuda: "/usr/local/cuda".into(),
            libraries,
        }
    }

    fn parts(&self, folder: &Path) -> Vec<Part> {
        let mut parts = self.rust(folder);
        parts.extend(self.cuda());
        parts.push(self.llvm());
        parts.push(self.libclang());
        parts
    }

    fn rust(&self, folder: &Path) -> Vec<Part> {
        let channel = match channel(folder) {
            Ok(channel) => channel,
            Err(error) => {
                let remedy = "take it from the repository";
                return vec![Part::new("rust-cuda/", Err(error.to_string()), remedy)];
            }
        };
        let install = format!(
            "rustup toolchain install {channel} --profile minimal -c rust-src -c rustc-dev \
             -c llvm-tools-preview"
        );
        let rustup = ask(&self.rustup, &["--version"]).map(|text| first_line(&text));
        let mut parts = vec![Part::new(
            "rustup",
            rustup,
            "install it from https://rustup.rs: only it can fetch the nightly compiler",
        )];
        // The two below would say the same once more.
        if parts[0].found.is_err() {
            return parts;
        }
        let toolchain = ask(&self.rustup, &["toolchain", "list"]).and_then(|list| {
            list.lines()
                .find(|line| line.starts_with(&channel))
                .map(|line| line.trim().to_owned())
                .ok_or_else(|| format!("{channel} is not installed"))
        });
        let has_toolchain = toolchain.is_ok();
        parts.push(Part::new("nightly", toolchain, &install));
        if has_toolchain {
            let arguments = ["component", "list", "--installed", "--toolchain", &channel];
            let components = ask(&self.rustup, &arguments).and_then(|list| {
                let lacks: Vec<_> = ["rust-src", "rustc-dev", "llvm-tools"]
                    .into_iter()
                    .filter(|wanted| !list.lines().any(|line| line.starts_with(wanted)))
                    .collect();
                if lacks.is_empty() {
                    Ok("rust-src, rustc-dev, llvm-tools".to_owned())
                } else {
                    Err(format!("{channel} lacks {}", lacks.join(", ")))
                }
            });
            parts.push(Part::new("components", components, install));
        }
        parts
    }

    fn cuda(&self) -> Vec<Part> {
        let named = CUDA_VARIABLES
            .iter()
            .find_map(|name| Some((*name, PathBuf::from((self.variable)(name)?))));
        let (whence, root) = match named {
            Some((name, root)) => (name, root),
            None => ("the usual place", self.cuda.clone()),
        };
        let library = root.join("nvvm/lib64/libnvvm.so");
        let toolkit = if !library.is_file() {
            Err(format!("there is no {} (from {whence})", library.display()))
        } else {
            match cuda_version(&root) {
                Some((major, _)) if major < 12 => Err(format!(
                    "{} is CUDA {major}, and 12 is the oldest that serves",
                    root.display()
                )),
                Some((major, minor)) => Ok(format!("CUDA {major}.{minor}, {}", root.display())),
                None => Ok(root.display().to_string()),
            }
        };
        let mut parts = vec![Part::new(
            "CUDA toolkit",
            toolkit,
            "install the CUDA toolkit, 12 or later, with its folder nvvm, and set CUDA_PATH to it",
        )];
        let folder = root.join("nvvm/lib64");
        if parts[0].found.is_ok() {
            let paths = (self.variable)("LD_LIBRARY_PATH").unwrap_or_default();
            let found = if env::split_paths(&paths).any(|path| path.join("libnvvm.so").is_file()) {
                Ok("libnvvm.so is found through LD_LIBRARY_PATH".to_owned())
            } else {
                Err("no folder in LD_LIBRARY_PATH holds libnvvm.so".to_owned())
            };
            let remedy = format!("add {} to LD_LIBRARY_PATH", folder.display());
            parts.push(Part::new("libnvvm", found, remedy));
        }
        parts
    }

    fn llvm(&self) -> Part {
        let program = (self.variable)("LLVM_CONFIG").map_or(self.llvm_config.clone(), Into::into);
        let found = ask(&program, &["--version"]).and_then(|text| {
            let version = first_line(&text);
            if version.starts_with("7.") {
                Ok(format!("LLVM {version}, {}", program.display()))
            } else {
                Err(format!("{} is LLVM {version}, not 7", program.display()))
            }
        });
        Part::new(
            "LLVM 7",
            found,
            "build LLVM 7.1 (rust-cuda's containers have it) and set LLVM_CONFIG to its llvm-config",
        )
    }

    fn libclang(&self) -> Part {
        let named = (self.variable)("LIBCLANG_PATH").map(PathBuf::from);
        let is_libclang = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // libclang-cpp is another library.
            name.starts_with("libclang.so")
                || (name.starts_with("libclang-") && !name.starts_with("libclang-cpp"))
        };
        let holds = |folder: &PathBuf| {
            let entries = fs::read_dir(folder).ok()?;
            entries
                .flatten()
                .map(|entry| entry.path())
                .find(|path| is_libclang(path))
        };
        let found = match &named {
            // It may name the file itself.
            Some(path) if path.is_file() && is_libclang(path) => Ok(path.clone()),
            Some(path) => holds(path)
                .ok_or_else(|| format!("LIBCLANG_PATH is {}, which holds none", path.display())),
            None => self
                .libraries
                .iter()
                .find_map(holds)
                .ok_or_else(|| "not in the folders of the system's libraries".to_owned()),
        };
        Part::new(
            "libclang",
            found.map(|path| path.display().to_string()),
            "install it (Debian and Ubuntu: libclang-dev), or set LIBCLANG_PATH to its folder",
        )
    }
}

/// What a program writes, or why it does not.
fn ask(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{} does not run: {error}", program.display()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!(
            "{} fails: {}",
            program.display(),
            first_line(&said)
        ))
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Major and minor version, from the toolkit's own `version.json`.
fn cuda_version(root: &Path) -> Option<(u32, u32)> {
    let text = fs::read_to_string(root.join("version.json")).ok()?;
    // "cuda" : { "name" : "CUDA SDK", "version" : "12.8.20250303" }
    let rest = text.split_once("\"cuda\"")?.1;
    let rest = rest.split_once("\"version\"")?.1;
    let mut numbers = rest.split('"').nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Folder, script};
    use std::collections::HashMap;

    const CHANNEL: &str = "nightly-2026-04-02";

    /// A machine that has all of it, in a folder.
    struct Fake {
        folder: Folder,
        variables: HashMap<&'static str, OsString>,
    }

    impl Fake {
        fn new(name: &str) -> Self {
            let folder = Folder::new(&format!("rust-cuda-{name}"));
            let root = folder.path();
            let write = |path: &str, text: &str| {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write(
                "repository/rust-cuda/rust-toolchain.toml",
                &format!("[toolchain]\nchannel = \"{CHANNEL}\"\n"),
            );
            write("cuda/nvvm/lib64/libnvvm.so", "");
            write(
                "cuda/version.json",
                "{ \"cuda\" : {\n \"name\" : \"CUDA SDK\",\n \"version\" : \"12.8.1\" } }",
            );
            write("lib/libclang-18.so.1", "");
            script(&root.join("llvm-config"), "echo 7.1.0");
            let fake = Self {
                variables: HashMap::from([(
                    "LD_LIBRARY_PATH",
                    root.join("cuda/nvvm/lib64").into_os_string(),
                )]),
                folder,
            };
            fake.rustup("rust-src\nrustc-dev-x86_64\nllvm-tools-x86_64");
            fake
        }

        fn path(&self, path: &str) -> PathBuf {
            self.folder.path().join(path)
        }

        /// A rustup with these components, which runs no compiler but writes PTX.
        fn rustup(&self, components: &str) {
            script(
                &self.path("rustup"),
                &format!(
                    "case \"$1 $2\" in\n\
                     '--version ') echo 'rustup 1.28.2'; echo noise >&2;;\n\
                     'toolchain list') echo 'stable-x86_64 (default)'; echo '{CHANNEL}-x86_64';;\n\
                     'component list') printf '{}\\n';;\n\
                     'run {CHANNEL}') [ \"$3\" = cargo ] || exit 1; shift 8\n\
                        [ -z \"$CARGO_PKG_NAME$RUSTC\" ] || exit 1\n\
                        [ -f fails ] && {{ echo 'error: libnvvm says no' >&2; exit 1; }}\n\
                        echo made > \"$1\";;\n\
                     *) exit 1;;\n\
                     esac",
                    components.replace('\n', "\\n")
                ),
            );
        }

        fn parts(&self) -> Vec<Part> {
            let variables = self.variables.clone();
            let machine = Machine {
                variable: Box::new(move |name| variables.get(name).cloned()),
                rustup: self.path("rustup"),
                llvm_config: self.path("llvm-config"),
                cuda: self.path("cuda"),
                libraries: vec![self.path("none"), self.path("lib")],
            };
            machine.parts(&self.path("repository/rust-cuda"))
        }

        /// The only part that is wrong, and why.
        fn wrong(&self) -> (&'static str, String) {
            let parts = self.parts();
            let mut wrong = parts
                .iter()
                .filter_map(|part| Some((part.name, part.found.clone().err()?)));
            let first = wrong.next().expect("a part is wrong");
            assert_eq!(wrong.next(), None);
            first
        }

        fn compile(&self) -> Result<String, BuildError> {
            let to = self.path("kernels.ptx");
            compile_with(
                &self.parts(),
                &self.path("rustup"),
                &self.path("repository/rust-cuda"),
                &to,
            )?;
            Ok(fs::read_to_string(to).unwrap())
        }
    }

    #[test]
    fn a_complete_toolchain_is_found_and_run() {
        let fake = Fake::new("complete");
        let parts = fake.parts();
        assert!(parts.iter().all(|part| part.found.is_ok()), "{parts:#?}");
        let names: Vec<_> = parts.iter().map(|part| part.name).collect();
        assert_eq!(
            names,
            [
                "rustup",
                "nightly",
                "components",
                "CUDA toolkit",
                "libnvvm",
                "LLVM 7",
                "libclang"
            ]
        );
        assert!(parts[3].found.as_ref().unwrap().starts_with("CUDA 12.8, "));
        assert_eq!(fake.compile().unwrap(), "made\n");
    }

    #[test]
    fn a_failing_build_shows_what_was_written() {
        let fake = Fake::new("fails");
        fs::write(fake.path("repository/rust-cuda/fails"), "").unwrap();
        let said = fake.compile().unwrap_err().to_string();
        assert!(said.contains("libnvvm says no"), "{said}");
    }

    #[test]
    fn each_part_is_missed_with_its_remedy() {
        let fake = Fake::new("rustup");
        fs::remove_file(fake.path("rustup")).unwrap();
        assert_eq!(fake.wrong().0, "rustup");
        let said = fake.compile().unwrap_err().to_string();
        assert!(said.contains("https://rustup.rs"), "{said}");
        assert!(said.contains("MATMUL_RUST_CUDA_PTX"), "{said}");

        let fake = Fake::new("components");
        fake.rustup("rust-src\nllvm-tools-x86_64");
        let (part, reason) = fake.wrong();
        assert_eq!(part, "components");
        assert!(reason.ends_with("lacks rustc-dev"), "{reason}");

        let fake = Fake::new("nightly");
        let toolchain = fake.path("repository/rust-cuda/rust-toolchain.toml");
        fs::write(toolchain, "[toolchain]\nchannel = \"nightly-2030-01-01\"\n").unwrap();
        assert_eq!(fake.wrong().0, "nightly");

        let fake = Fake::new("libnvvm");
        fs::remove_file(fake.path("cuda/nvvm/lib64/libnvvm.so")).unwrap();
        let (part, reason) = fake.wrong();
        assert_eq!(part, "CUDA toolkit");
        assert!(reason.contains("the usual place"), "{reason}");

        let fake = Fake::new("old-cuda");
        fs::write(
            fake.path("cuda/version.json"),
            "\"cuda\": {\"version\": \"11.8.0\"}",
        )
        .unwrap();
        let (part, reason) = fake.wrong();
        assert_eq!(part, "CUDA toolkit");
        assert!(reason.contains("CUDA 11"), "{reason}");

        let fake = Fake::new("llvm");
        script(&fake.path("llvm-config"), "echo 19.1.7");
        let (part, reason) = fake.wrong();
        assert_eq!(part, "LLVM 7");
        assert!(reason.ends_with("is LLVM 19.1.7, not 7"), "{reason}");

        let fake = Fake::new("libclang");
        fs::remove_file(fake.path("lib/libclang-18.so.1")).unwrap();
        fs::write(fake.path("lib/libclang-cpp.so.18"), "").unwrap();
        assert_eq!(fake.wrong().0, "libclang");
    }

    #[test]
    fn variables_come_before_the_usual_places() {
        let mut fake = Fake::new("variables");
        fake.variables.insert("CUDA_PATH", "/no/cuda".into());
        let (part, reason) = fake.wrong();
        assert_eq!(part, "CUDA toolkit");
        assert!(reason.contains("CUDA_PATH"), "{reason}");

        let mut fake = Fake::new("path");
        fake.variables.remove("LD_LIBRARY_PATH");
        assert_eq!(fake.wrong().0, "libnvvm");

        let mut fake = Fake::new("llvm-variable");
        fake.variables
            .insert("LLVM_CONFIG", "/no/llvm-config".into());
        assert_eq!(fake.wrong().0, "LLVM 7");

        let mut fake = Fake::new("libclang-variable");
        fake.variables.insert("LIBCLANG_PATH", "/no".into());
        assert_eq!(fake.wrong().0, "libclang");
        let file = fake.path("lib/libclang-18.so.1");
        fake.variables.insert("LIBCLANG_PATH", file.into());
        assert!(fake.parts().iter().all(|part| part.found.is_ok()));
    }

    #[test]
    fn only_the_present_files_are_published() {
        let folder = Folder::new("rust-cuda-publish");
        let one = |name: &str| Ptx {
            architecture: crate::Architecture::parse(name).unwrap(),
            path: PathBuf::new(),
            text: "text".to_owned(),
            version: (7, 0),
            entries: Vec::new(),
            warnings: String::new(),
        };
        let there = |name: &str| folder.path().join("rust-cuda").join(name).is_file();
        publish(&[one("sm_80")], folder.path()).unwrap();
        assert!(there("sm_80.ptx"));
        publish(&[one("sm_90")], folder.path()).unwrap();
        assert!(there("sm_90.ptx") && !there("sm_80.ptx"));
        publish(&[], folder.path()).unwrap();
        assert!(!folder.path().join("rust-cuda").exists());
    }
}
