//! The commands of the `matmul` program.
//!
//! Exit codes: 0 where all went well, 1 where a check failed or the machine
//! cannot do what was asked, 2 where the request itself was wrong.

mod bench;
mod compare;
mod doctor;
mod list;
mod plan;
mod profile;
mod run;
mod simulate;
mod table;
mod tune;
mod vecadd;
mod verify;

use clap::{Parser, Subcommand};
use host::graph::Graphs;
use host::matrix::product_shape;
use host::ptx::{self, Code};
use host::{Error, Gpu};
use kernels::gemm::{Shape, Variant};
use kernels::launch::Backend;
use serde::Serialize;
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
    /// Show what would be launched and how long it takes at least; needs no GPU
    Plan(plan::Arguments),
    /// List the kernels
    List(list::Arguments),
    /// Run every kernel over the shapes that have broken GEMM programs
    Verify(verify::Arguments),
    /// Measure kernels over shapes, with cuBLAS and the CPU beside them
    Bench(Box<bench::Arguments>),
    /// Compare two sweeps of `bench`: what got faster or slower beyond noise
    Compare(compare::Arguments),
    /// Print the profilers' commands for a kernel, and read its counters where that is allowed
    Profile(profile::Arguments),
    /// Run a kernel on the CPU: find its faults, count its memory accesses
    Simulate(simulate::Arguments),
    /// Compare what kernels ask of memory, with what it means
    Explain(simulate::ExplainArguments),
    /// Add two vectors: the first kernel
    Vecadd(vecadd::Arguments),
    /// Measure every kernel and print the table of the README
    Table(table::Arguments),
    /// Measure what kernels cost on a GPU, from which `auto` chooses
    Tune(tune::Arguments),
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
    let arguments = std::env::args_os().map(|argument| match argument.into_string() {
        Ok(text) => sample_flag(&text).unwrap_or(text).into(),
        // clap says what is wrong with it.
        Err(argument) => argument,
    });
    let result = match Arguments::parse_from(arguments).command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::List(arguments) => list::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Explain(arguments) => simulate::explain(&arguments),
        Command::Vecadd(arguments) => vecadd::run(&arguments),
        Command::Table(arguments) => table::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
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

/// A flag of NVIDIA's samples, which begin with one dash, as one of ours.
fn sample_flag(argument: &str) -> Option<String> {
    const FLAGS: [&str; 5] = ["-wA=", "-hA=", "-wB=", "-hB=", "-device="];
    FLAGS
        .iter()
        .any(|flag| argument.starts_with(flag))
        .then(|| format!("-{argument}"))
}

/// Whether batches are CUDA graphs.
#[derive(clap::Args)]
struct GraphsArgument {
    /// Whether batches are launched as CUDA graphs: `on`, `off`, or `auto` where a product is
    /// shorter than 20 µs
    #[arg(long, default_value = "auto", value_name = "WHEN", value_parser = graphs)]
    graphs: Graphs,
}

fn graphs(name: &str) -> Result<Graphs, String> {
    Graphs::ALL
        .into_iter()
        .find(|graphs| graphs.name() == name)
        .ok_or_else(|| "graphs are on, off or auto".into())
}

/// Whose kernels to take, compiled for what.
#[derive(clap::Args)]
struct CodeArguments {
    /// The compiler whose kernels to take: rustc's own NVPTX target, or rust-cuda, where the
    /// program was built with it
    #[arg(long, value_enum, default_value_t = BackendChoice::Nvptx, value_name = "NAME")]
    backend: BackendChoice,
    /// The targets whose code to run, such as `sm_80`; `best` is the best that the device takes
    #[arg(long, value_delimiter = ',', default_value = "best", value_name = "TARGET,…", value_parser = code)]
    code: Vec<Code>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BackendChoice {
    Nvptx,
    RustCuda,
    Both,
}

fn code(name: &str) -> Result<Code, String> {
    Code::named(name).ok_or_else(|| {
        let targets = ptx::targets().join(", ");
        format!("this program has code for {targets}; `best` is the best that the device takes")
    })
}

impl CodeArguments {
    fn backends(&self) -> &'static [Backend] {
        match self.backend {
            BackendChoice::Nvptx => &[Backend::Nvptx],
            BackendChoice::RustCuda => &[Backend::RustCuda],
            BackendChoice::Both => Backend::ALL,
        }
    }

    /// Checks that the program has the kernels of each backend.
    ///
    /// # Errors
    ///
    /// [`Error::NoPtx`].
    fn check(&self) -> Result<(), Error> {
        for &backend in self.backends() {
            if ptx::of(backend).next().is_none() {
                return Err(Error::NoPtx { backend });
            }
        }
        Ok(())
    }

    /// The GPU, once for each backend and target.
    ///
    /// # Errors
    ///
    /// What the program lacks, before what the machine lacks:
    /// [`Error::NotBuiltBy`] where `named` is a variant that none of the
    /// backends builds, [`Error::NoPtx`], those of [`Code::open`], and those of
    /// [`Gpu::check_variant`] where none of the GPUs runs `named`.
    fn gpus(&self, ordinal: u32, named: Option<&Variant>) -> Result<Vec<Gpu>, Error> {
        self.check()?;
        let backends = self.backends();
        if let Some(variant) = named
            && !backends.iter().any(|&backend| variant.is_built_by(backend))
        {
            return Err(Error::NotBuiltBy {
                variant: variant.name,
                backend: backends[0],
            });
        }
        let gpus = ptx::open(ordinal, backends, &self.code)?;
        if let Some(variant) = named
            && gpus.iter().all(|gpu| gpu.check_variant(variant).is_err())
        {
            // Of those that could have it, where there is one.
            gpus.iter()
                .filter(|gpu| variant.is_built_by(gpu.ptx().backend))
                .try_for_each(|gpu| gpu.check_variant(variant))?;
        }
        Ok(gpus)
    }
}

/// The variants to run on a GPU: the named one or all, of those that it has the
/// kernels of.
fn variants_of(gpu: &Gpu, named: Option<&Variant>) -> Vec<&'static Variant> {
    gpu.variants()
        .filter(|variant| named.is_none_or(|named| named.name == variant.name))
        .collect()
}

/// The sizes of a product, our way or the sample's.
#[derive(clap::Args)]
struct ShapeArguments {
    /// Rows of A and C [default: 320]
    #[arg(long, conflicts_with_all = SAMPLE_SIZES)]
    m: Option<u64>,
    /// Columns of B and C [default: 640]
    #[arg(long, conflicts_with_all = SAMPLE_SIZES)]
    n: Option<u64>,
    /// Columns of A, rows of B [default: 320]
    #[arg(long, conflicts_with_all = SAMPLE_SIZES)]
    k: Option<u64>,
    #[arg(long = "wA", hide = true)]
    width_a: Option<usize>,
    #[arg(long = "hA", hide = true)]
    height_a: Option<usize>,
    #[arg(long = "wB", hide = true)]
    width_b: Option<usize>,
    #[arg(long = "hB", hide = true)]
    height_b: Option<usize>,
}

const SAMPLE_SIZES: [&str; 4] = ["width_a", "height_a", "width_b", "height_b"];

impl ShapeArguments {
    /// The shape that was asked for. Defaults are the sample's: A 320×320 and B
    /// 640×320, as width × height.
    fn shape(&self) -> Result<Shape, Error> {
        let sample = [self.width_a, self.height_a, self.width_b, self.height_b];
        if sample.iter().any(Option::is_some) {
            return product_shape(
                (self.height_a.unwrap_or(320), self.width_a.unwrap_or(320)),
                (self.height_b.unwrap_or(320), self.width_b.unwrap_or(640)),
            );
        }
        Ok(Shape::new(
            self.m.unwrap_or(320),
            self.n.unwrap_or(640),
            self.k.unwrap_or(320),
        )?)
    }
}

/// Prints a value as indented JSON.
fn print_json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => println!("{text}"),
        // Only a map with odd keys or a failing `Serialize` could get here, and
        // our types have neither.
        Err(error) => eprintln!("error: {error}"),
    }
}
