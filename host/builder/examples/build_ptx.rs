//! Compiles a crate of kernels without directives: `build_ptx KERNELS TARGET_FOLDER sm_80 …`.

use std::process::ExitCode;

use ptx_builder::Builder;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kernels, folder, architectures @ ..] = arguments.as_slice() else {
        eprintln!("usage: build_ptx KERNELS TARGET_FOLDER ARCHITECTURE...");
        return ExitCode::from(2);
    };
    let names: Vec<&str> = architectures.iter().map(String::as_str).collect();
    let built = Builder::new(kernels)
        .target_folder(folder)
        .architectures(&names)
        .line_tables(std::env::var_os("LINE_TABLES").is_some())
        .build();
    match built {
        Ok(files) => {
            for ptx in files {
                let (major, minor) = ptx.version;
                println!(
                    "{} (PTX {major}.{minor}): {}",
                    ptx.path.display(),
                    ptx.entries.join(" ")
                );
                eprint!("{}", ptx.warnings);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
