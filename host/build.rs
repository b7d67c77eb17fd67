//! Compiles the kernels to PTX and embeds it; see [`ptx_builder`].

use kernels::launch::{Backend, Entry};
use ptx_builder::{Builder, Directives, Toolchain, rust_cuda};
use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

fn main() -> ExitCode {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let target = ptx_builder::target_folder(&out);
    let builder = Builder::new("../kernels")
        .architectures(&["sm_75", "sm_80", "sm_90a"])
        .directives(directives(Backend::Nvptx))
        .line_tables(true)
        .target_folder(&target);
    if let Err(code) = builder.run_build_script(&out) {
        return code;
    }
    let wanted = env::var_os("CARGO_FEATURE_RUST_CUDA").is_some();
    let root = Path::new("..");
    let second = directives(Backend::RustCuda);
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
fn directives(backend: Backend) -> impl Iterator<Item = (String, Directives)> {
    let has = move |entry: &&'static Entry| entry.backends.contains(&backend);
    kernels::entries().into_iter().filter(has).map(|entry| {
        let bounds = Directives {
            max_threads: Some(entry.launch_bounds.max_threads),
            min_blocks: entry.launch_bounds.min_blocks,
            ..Directives::default()
        };
        (entry.name.to_owned(), bounds)
    })
}
