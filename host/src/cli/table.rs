//! `matmul table`.

use super::Outcome;
use host::measure::{Cpu, Effort, Measurement, Problem, random_factors};
use host::{Error, Gpu, report};
use kernels::gemm::Shape;
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Arguments {
    /// Sizes of the square products
    #[arg(long, value_delimiter = ',', default_values_t = [1024, 2048, 4096], value_name = "N,…")]
    sizes: Vec<u64>,
    /// The largest size that the triple loop is tried at
    #[arg(long, default_value_t = 1024, value_name = "N")]
    largest_on_cpu: u64,
    /// Number of the device to run on
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    device: u32,
    /// A file in which to replace what stands between the table's markers
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// A file for a bar chart (SVG) of the last of the sizes
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

/// What the table's place in a file begins and ends with.
const MARKERS: [&str; 2] = ["<!-- begin: matmul table -->", "<!-- end: matmul table -->"];
const SEED: u64 = 1;

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let shapes = arguments
        .sizes
        .iter()
        .map(|&size| Ok(Shape::new(size, size, size)?))
        .collect::<Result<Vec<_>, Error>>()?;
    // Before minutes of measuring, not after.
    if let Some(path) = &arguments.write {
        report::between_markers(path, MARKERS, "")?;
    }

    let gpu = Gpu::new(arguments.device)?;
    let effort = Effort {
        launches: None,
        batch_time: Duration::from_millis(300),
        batches: 7,
    };
    let mut rows: Vec<(String, Vec<Option<Measurement>>)> = Cpu::ALL
        .iter()
        .map(|cpu| cpu.name().to_owned())
        .chain(kernels::gemm::all_on(&gpu.info().limits).map(|variant| variant.name.to_owned()))
        .map(|name| (name, Vec::new()))
        .collect();
    for &shape in &shapes {
        let mut column = Vec::new();
        let (a, b) = random_factors(shape, SEED)?;
        let mut problem = Problem::new(&gpu, &a, &b)?;
        for cpu in Cpu::ALL {
            let wanted = u64::from(shape.n()) <= arguments.largest_on_cpu || cpu == Cpu::Gemm;
            column.push(if wanted {
                // Three are enough where one takes a second.
                let effort = Effort {
                    batches: 3,
                    ..effort
                };
                Some(cpu.measure(&a, &b, problem.reference(), effort)?)
            } else {
                None
            });
        }
        for variant in kernels::gemm::all_on(&gpu.info().limits) {
            column.push(Some(problem.measure(variant, effort)?));
        }
        for ((_, row), measurement) in rows.iter_mut().zip(column) {
            row.push(measurement);
        }
    }

    let wrong: Vec<_> = rows
        .iter()
        .flat_map(|(_, row)| row.iter().flatten())
        .filter(|measurement| !measurement.verdict.passed())
        .map(|m| format!("{} at {}: {}", m.name, m.shape, m.verdict))
        .collect();
    if !wrong.is_empty() {
        eprintln!("{}", wrong.join("\n"));
        return Ok(Outcome::Failed);
    }
    let text = markdown(&gpu, &shapes, &rows);
    print!("{text}");
    if let Some(path) = &arguments.write {
        report::replace_file(path, &report::between_markers(path, MARKERS, &text)?)?;
        eprintln!("wrote the table to {}", path.display());
    }
    if let Some(path) = &arguments.chart {
        let bars: Vec<_> = rows
            .iter()
            .filter_map(|(name, row)| {
                let flops = row.last()?.as_ref()?.flops_per_second();
                Some((name.as_str(), flops))
            })
            .collect();
        let title = match shapes.last() {
            Some(shape) => format!("{shape}, TFLOP/s, {}", gpu.info().name),
            None => String::new(),
        };
        report::replace_file(path, report::bar_chart(&title, &bars))?;
        eprintln!("wrote the chart to {}", path.display());
    }
    Ok(Outcome::Passed)
}

fn markdown(gpu: &Gpu, shapes: &[Shape], rows: &[(String, Vec<Option<Measurement>>)]) -> String {
    let mut text = String::from("| kernel |");
    for shape in shapes {
        text += &format!(" {shape} |");
    }
    text += "\n|---|";
    text += &"--:|".repeat(shapes.len());
    for (name, measurements) in rows {
        text += &format!("\n| `{name}` |");
        for measurement in measurements {
            let cell = measurement
                .as_ref()
                .map_or("–".into(), |m| report::gflops(m.flops_per_second()));
            text += &format!(" {cell} |");
        }
    }
    let batches = "medians of batches between two events, L2 warm, random data";
    text += &format!(
        "\n\nGFLOP/s, {batches}. {}. CPU: {} cores. Kernels compiled by {}.\n",
        super::run::describe(gpu),
        host::cpu::cores(),
        host::ptx::COMPILER,
    );
    text
}
