//! `matmul tune`.

use super::Outcome;
use host::cublas::Cublas;
use host::ptx::Code;
use host::tune::{self, Entrant};
use host::{Error, report, sweep};
use kernels::gemm::Shape;
use kernels::gemm::schedule::{self, Costs};
use kernels::launch::Backend;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Arguments {
    /// Number of the device to run on
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    device: u32,
    /// The target whose code to measure, such as `sm_80`; `best` is the best that the device takes
    #[arg(long, default_value = "best", value_name = "TARGET", value_parser = super::code)]
    code: Code,
    /// A file for the costs; `kernels/tuned` holds one for each architecture
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Instead of the costs, measure every schedule of these shapes, M×N×K, beside what the costs
    /// that are built in say of it
    #[arg(long, value_delimiter = ',', value_name = "MxNxK,…", value_parser = sweep::shape,
          conflicts_with = "write")]
    shape: Vec<Shape>,
    /// How many schedules of a shape to show, fastest first
    #[arg(long, default_value_t = 6, value_name = "COUNT")]
    best: usize,
    /// cuBLAS's file; without it, where the loader or a toolkit has it
    #[arg(long, value_name = "FILE")]
    cublas: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    if !arguments.shape.is_empty() {
        return contest(arguments);
    }
    let gpu = arguments.code.open(arguments.device, Backend::Nvptx)?;
    let costs = tune::costs(&gpu, |kernel| eprintln!("{kernel}"))?;
    let text = format!(
        "# Written by `matmul tune` on: {}.\n{costs}",
        super::run::describe(&gpu)
    );
    print!("{text}");
    if let Some(path) = &arguments.write {
        report::replace_file(path, &text)?;
        eprintln!("wrote the costs to {}", path.display());
    }
    Ok(Outcome::Passed)
}

fn contest(arguments: &Arguments) -> Result<Outcome, Error> {
    let gpu = arguments.code.open(arguments.device, Backend::Nvptx)?;
    println!("{}", super::run::describe(&gpu));
    let cublas = match Cublas::open(&gpu, arguments.cublas.as_deref()) {
        Ok(cublas) => {
            println!("{}", cublas.describe());
            Some(cublas)
        }
        Err(absent) => {
            println!("{absent}");
            None
        }
    };
    let limits = &gpu.info().limits;
    let costs = Costs::of_device(limits);
    let mut outcome = Outcome::Passed;
    for &shape in &arguments.shape {
        let mut schedules = schedule::candidates(shape, limits);
        let model = |schedule: &schedule::Schedule| schedule.microseconds(shape, limits, costs);
        schedules.sort_by(|a, b| model(a).total_cmp(&model(b)));
        let mut entrants = tune::contest(&gpu, shape, &schedules, cublas.as_ref())?;
        let chosen = entrants.first().map_or(f64::NAN, |entrant| entrant.seconds);
        let library = entrants.iter().find(|entrant| entrant.schedule.is_none());
        let library = library.map(|entrant| entrant.seconds);
        // The choice stays first.
        if let Some(others) = entrants.get_mut(1..) {
            others.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        }
        println!("\n{shape}: measured, by the model, against cuBLAS");
        for (
            i,
            Entrant {
                schedule,
                seconds,
                passed,
            },
        ) in entrants.iter().enumerate()
        {
            if !passed {
                outcome = Outcome::Failed;
            }
            if i >= arguments.best && *passed && schedule.is_some() {
                continue;
            }
            let name = schedule.map_or("cuBLAS".into(), |schedule| schedule.to_string());
            let model =
                schedule.map_or(String::new(), |schedule| format!("{:.2}", model(&schedule)));
            let ratio =
                library.map_or(String::new(), |library| format!("{:.3}", library / seconds));
            println!(
                "  {name:<46} {:>9.2} µs {model:>9} {ratio:>7}{}{}",
                seconds * 1e6,
                if i == 0 { "  chosen" } else { "" },
                if *passed { "" } else { "  WRONG" },
            );
        }
        let best = entrants.iter().filter(|entrant| entrant.schedule.is_some());
        let best = best
            .map(|entrant| entrant.seconds)
            .fold(f64::INFINITY, f64::min);
        println!(
            "  the choice takes {:.3} of the fastest's time",
            chosen / best
        );
    }
    Ok(outcome)
}
