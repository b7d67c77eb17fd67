//! `matmul list`.

use super::Outcome;
use host::measure::Cpu;
use host::{Error, ptx};
use kernels::launch::Backend;
use serde::Serialize;

#[derive(clap::Args)]
pub struct Arguments {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    summary: &'static str,
    input: String,
    accumulator: String,
    output: String,
    /// None on the CPU.
    min_compute_capability: Option<String>,
    /// The compilers that can build it; none on the CPU.
    backends: Vec<&'static str>,
    /// The kernels that it launches; none on the CPU.
    kernels: Vec<&'static str>,
}

fn rows() -> Vec<Row> {
    let f32 = kernels::gemm::ElementType::F32.to_string();
    let cpu = Cpu::ALL.iter().map(|cpu| Row {
        name: cpu.name(),
        summary: cpu.summary(),
        input: f32.clone(),
        accumulator: f32.clone(),
        output: f32.clone(),
        min_compute_capability: None,
        backends: Vec::new(),
        kernels: Vec::new(),
    });
    let gpu = kernels::gemm::all().map(|variant| Row {
        name: variant.name,
        summary: variant.summary,
        input: variant.input.to_string(),
        accumulator: variant.accumulator.to_string(),
        output: variant.output.to_string(),
        min_compute_capability: Some(variant.min_compute_capability.to_string()),
        backends: variant.backends().map(Backend::name).collect(),
        kernels: variant.entries.iter().map(|entry| entry.name).collect(),
    });
    cpu.chain(gpu).collect()
}

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let rows = rows();
    if arguments.json {
        super::print_json(&rows);
        return Ok(Outcome::Passed);
    }
    let cells: Vec<_> = rows
        .into_iter()
        .map(|row| {
            [
                row.name.to_owned(),
                row.input,
                row.min_compute_capability.unwrap_or("CPU".into()),
                row.backends.join(", "),
                row.summary.to_owned(),
            ]
        })
        .collect();
    let heading = ["kernel", "type", "needs", "built by", "what it is"];
    print!("{}", host::report::table(&heading, &cells));
    println!();
    for &backend in Backend::ALL {
        println!("{}", embedded(backend));
    }
    Ok(Outcome::Passed)
}

/// What this program holds of a backend.
fn embedded(backend: Backend) -> String {
    let architectures: Vec<_> = ptx::of(backend).map(|ptx| ptx.architecture).collect();
    if architectures.is_empty() {
        format!("{backend}: not in this program; docs/rust-cuda.md says how to build it in")
    } else {
        format!(
            "{backend}: in this program for {}",
            architectures.join(", ")
        )
    }
}
