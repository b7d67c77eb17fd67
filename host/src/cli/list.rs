//! `matmul list`.

use super::Outcome;
use host::Error;
use host::measure::Cpu;

#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_: &Arguments) -> Result<Outcome, Error> {
    let rows: Vec<_> = Cpu::ALL
        .iter()
        .map(|cpu| {
            [
                cpu.name().to_owned(),
                "f32".into(),
                "CPU".into(),
                cpu.summary().into(),
            ]
        })
        .chain(kernels::gemm::all().map(|variant| {
            [
                variant.name.to_owned(),
                variant.input.to_string(),
                variant.min_compute_capability.to_string(),
                variant.summary.to_owned(),
            ]
        }))
        .collect();
    print!(
        "{}",
        host::report::table(&["kernel", "type", "needs", "what it is"], &rows)
    );
    Ok(Outcome::Passed)
}
