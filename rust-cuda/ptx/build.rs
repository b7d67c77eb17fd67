//! Has rust-cuda's `cuda_builder` compile the kernels.

use cuda_builder::{CudaBuilder, NvvmArch, NvvmOption};
use std::{env, path::PathBuf, process::ExitCode};

/// The virtual architecture to compile for, such as `compute_80`.
const ARCHITECTURE: &str = "MATMUL_RUST_CUDA_ARCH";

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-env-changed={ARCHITECTURE}");
    // cuda_builder has cargo watch the folder with the manifest. The sources are
    // those of the default build.
    println!("cargo::rerun-if-changed=../../kernels/src");
    let out = env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: cargo runs build scripts")?;
    CudaBuilder::new("../kernels")
        .arch(architecture()?)
        .copy_to(PathBuf::from(out).join("kernels.ptx"))
        .build()
        .map_err(|error| format!("cuda_builder: {error}"))?;
    Ok(())
}

fn architecture() -> Result<NvvmArch, String> {
    // The oldest that has every instruction a kernel here may use.
    let name = env::var(ARCHITECTURE).unwrap_or_else(|_| "compute_80".to_owned());
    // An architecture alone cannot be parsed; libnvvm's option can. It slices the
    // text without looking, so the start is checked here.
    let option = if name.starts_with("compute_") {
        format!("-arch={name}").parse()
    } else {
        Err("it does not start with compute_")
    };
    match option {
        Ok(NvvmOption::Arch(architecture)) => Ok(architecture),
        Ok(_) => Err(format!("{ARCHITECTURE}={name} is no architecture")),
        Err(reason) => Err(format!("{ARCHITECTURE}={name}: {reason}")),
    }
}
