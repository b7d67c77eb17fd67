//! The `matmul` program.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    end_quietly_where_nobody_reads();
    cli::main()
}

/// `println!` panics where the output cannot be written. `matmul list | head -1`
/// is no fault, and a full disk is not the program's.
fn end_quietly_where_nobody_reads() {
    // SAFETY: no other thread runs yet, and the default action has no handler
    // that could run at a bad moment.
    unsafe {
        // Rust ignores the signal at start; by default it ends the process, as
        // it does other programs in a pipe.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
    let panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let unwritten = info
            .payload_as_str()
            .filter(|text| text.starts_with("failed printing to "));
        if let Some(text) = unwritten {
            use std::io::Write;
            // Where stderr is what cannot be written, there is no one to tell.
            let _ = writeln!(std::io::stderr(), "error: {text}");
            std::process::exit(1);
        }
        panic(info);
    }));
}
