//! The commands of the `matmul` program.
//!
//! Exit codes: 0 where all went well, 1 where a check failed or the machine
//! cannot do what was asked, 2 where the request itself was wrong.

mod doctor;
mod list;
mod run;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Matrix multiplication on NVIDIA GPUs, with kernels written in Rust.
#[derive(Parser)]
#[command(name = "matmul", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Multiply two random matrices: verify the result, then time it
    Run(run::Arguments),
    /// List the kernels
    List(list::Arguments),
    /// Run every kernel over the shapes that have broken GEMM programs
    Verify(verify::Arguments),
    /// Check what this machine has for building and running, and say what it lacks
    ///
    /// Each line is a check that came out ok, missing or failed. The exit code is 1 where one fails
    /// that is needed: in a checkout, all that builds; anywhere, a driver and a device that runs the
    /// kernels. On a machine without a GPU it is 1, though the CPU parts work.
    Doctor(doctor::Arguments),
}

/// How a command ended, where it did not end in an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
}

pub fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::List(arguments) => list::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
    };
    match result {
        Ok(Outcome::Passed) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if error.is_usage() { 2 } else { 1 })
        }
    }
}
