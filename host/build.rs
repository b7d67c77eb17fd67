//! Compiles the kernels to PTX and embeds it; see [`ptx_builder`].

use kernels::launch::{Backend, Entry, ParameterKind, Target};
use ptx_builder::{Architecture, BuildError, Builder, Directives, Toolchain, rust_cuda};
use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

fn main() -> ExitCode {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let target = ptx_builder::target_folder(&out);
    let (nvptx, ampere) = match (directives(Backend::Nvptx), Architecture::parse("sm_80")) {
        (Ok(nvptx), Ok(ampere)) => (nvptx, ampere),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let builder = Builder::new("../kernels")
        .architectures(&["sm_75"])
        // Copies that a predicate skips came with PTX 7.5, CUDA 11.5.
        .architecture(ampere.with_ptx(7, 5))
        .architectures(&["sm_90a"])
        // LLVM as it is.
        .part(&["--cfg=plain"])
        // Register tiles are arrays, and every loop over one must unroll
        // whole: an index at run time would put the array into memory.
        // Sinking would take multiply-adds past a branch, and hold all their
        // operands in registers until there.
        .part(&[
            "--cfg=register_tiles",
            "-Cllvm-args=-unroll-threshold=20000",
            "-Cllvm-args=-disable-machine-sink",
        ])
        .directives(nvptx)
        .line_tables(true)
        .target_folder(&target);
    if let Err(code) = builder.run_build_script(&out) {
        return code;
    }
    let wanted = env::var_os("CARGO_FEATURE_RUST_CUDA").is_some();
    let root = Path::new("..");
    let second = match directives(Backend::RustCuda) {
        Ok(second) => second,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(code) = rust_cuda::run_build_script(root, wanted, second, &target, &out) {
        return code;
    }
    // Published figures name the compiler.
    if let Ok(toolchain) = Toolchain::find() {
        println!("cargo::rustc-env=DEVICE_COMPILER={}", toolchain.version());
    }
    ExitCode::SUCCESS
}

/// The launch bounds of the kernels that a backend builds.
fn directives(backend: Backend) -> Result<Vec<(String, Directives)>, BuildError> {
    let has = move |entry: &&'static Entry| entry.backends.contains(&backend);
    let directives = |entry: &'static Entry| {
        let tensor_map =
            |parameter: &kernels::launch::ParameterInfo| parameter.kind == ParameterKind::TensorMap;
        let needs = match entry.needs {
            Target::BASELINE => None,
            target => Some(Architecture::parse(&target.to_string())?),
        };
        let own = Directives {
            max_threads: Some(entry.launch_bounds.max_threads),
            min_blocks: entry.launch_bounds.min_blocks,
            tensor_maps: entry.parameters.iter().any(tensor_map),
            needs,
            ..Directives::default()
        };
        Ok((entry.name.to_owned(), own))
    };
    kernels::entries()
        .into_iter()
        .filter(has)
        .map(directives)
        .collect()
}
