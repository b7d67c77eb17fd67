//! Writes the PTX that the build script had rust-cuda make: to the file that the
//! argument names, or to standard output.

use std::{env, fs, io::Write, process::ExitCode};

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let (written, whereto) = match arguments.as_slice() {
        [] => (
            std::io::stdout().write_all(PTX.as_bytes()),
            "standard output".to_owned(),
        ),
        [path] => (fs::write(path, PTX), path.display().to_string()),
        _ => {
            eprintln!("usage: rust_cuda_ptx [FILE]");
            return ExitCode::from(2);
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot write to {whereto}: {error}");
            ExitCode::FAILURE
        }
    }
}
