//! Compiles the kernels to PTX and embeds it; see [`ptx_builder`].

use kernels::launch::{ParameterKind, Target};
use ptx_builder::{Architecture, Builder, Directives, Toolchain};
use std::{env, path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let architecture = |name: &str| match Architecture::parse(name) {
        Ok(architecture) => Some(architecture),
        Err(error) => {
            eprintln!("error: {error}");
            None
        }
    };
    let mut directives = Vec::new();
    for entry in kernels::entries() {
        let needs = match entry.needs {
            Target::BASELINE => None,
            target => match architecture(&target.to_string()) {
                None => return ExitCode::FAILURE,
                known => known,
            },
        };
        let own = Directives {
            max_threads: Some(entry.launch_bounds.max_threads),
            min_blocks: entry.launch_bounds.min_blocks,
            tensor_maps: entry
                .parameters
                .iter()
                .any(|parameter| parameter.kind == ParameterKind::TensorMap),
            needs,
            ..Directives::default()
        };
        directives.push((entry.name.to_owned(), own));
    }
    let Some(ampere) = architecture("sm_80") else {
        return ExitCode::FAILURE;
    };
    let builder = Builder::new("../kernels")
        .architectures(&["sm_75"])
        // Copies that a predicate skips came with PTX 7.5, CUDA 11.5.
        .architecture(ampere.with_ptx(7, 5))
        .architectures(&["sm_90a"])
        // Register tiles are arrays, and every loop over one must unroll
        // whole: an index at run time would put the array into memory.
        .rustc_argument("-Cllvm-args=-unroll-threshold=20000")
        // Sinking would take multiply-adds past a branch, and hold all their
        // operands in registers until there.
        .rustc_argument("-Cllvm-args=-disable-machine-sink")
        .directives(directives)
        .line_tables(true)
        .target_folder(ptx_builder::target_folder(&out));
    if let Err(code) = builder.run_build_script(&out) {
        return code;
    }
    // Published figures name the compiler.
    if let Ok(toolchain) = Toolchain::find() {
        println!("cargo::rustc-env=DEVICE_COMPILER={}", toolchain.version());
    }
    ExitCode::SUCCESS
}
