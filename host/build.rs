//! Compiles the kernels to PTX and embeds it; see [`ptx_builder`].

use ptx_builder::{Builder, Directives, Toolchain};
use std::{env, path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let directives = kernels::entries().into_iter().map(|entry| {
        let bounds = Directives {
            max_threads: Some(entry.launch_bounds.max_threads),
            min_blocks: entry.launch_bounds.min_blocks,
            ..Directives::default()
        };
        (entry.name.to_owned(), bounds)
    });
    let builder = Builder::new("../kernels")
        .architectures(&["sm_75", "sm_80", "sm_90a"])
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
