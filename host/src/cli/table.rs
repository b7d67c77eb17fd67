//! `matmul table`.

use super::bench::{Bar, command_line, save, say};
use super::{CodeArguments, GraphsArgument, Outcome};
use host::cublas::Mode;
use host::sweep::{self, Contender, Settings, Sweep};
use host::{Error, plot, report};
use kernels::gemm::Shape;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Arguments {
    /// Sizes of the square products; the columns beside the rates are of the last
    #[arg(long, value_delimiter = ',', default_values_t = [1024, 2048, 4096], value_name = "N,…")]
    sizes: Vec<u64>,
    /// The largest size that the triple loop is tried at
    #[arg(long, default_value_t = 1024, value_name = "N")]
    largest_on_cpu: u64,
    /// Number of the device to run on
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    device: u32,
    #[command(flatten)]
    code: CodeArguments,
    /// The file of cuBLAS, in place of a search [env: MATMUL_CUBLAS]
    #[arg(long, value_name = "FILE")]
    cublas: Option<PathBuf>,
    #[command(flatten)]
    graphs: GraphsArgument,
    /// Samples of each figure
    #[arg(long, default_value_t = 7, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Write everything that was measured to a file, as `bench` does
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Take the figures from a file that `--json` wrote, here or of `bench`, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "largest_on_cpu", "device", "backend", "code", "graphs", "cublas", "rounds", "json",
    ])]
    from: Option<PathBuf>,
    /// A file in which to replace what stands between the table's markers; may be repeated
    #[arg(long, value_name = "FILE")]
    write: Vec<PathBuf>,
    /// A file for a bar chart (SVG) of the last of the sizes; the same for dark pages gets a name
    /// that ends in `-dark`
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

/// What the table's place in a file begins and ends with.
const MARKERS: [&str; 2] = ["<!-- begin: matmul table -->", "<!-- end: matmul table -->"];

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let shapes = arguments
        .sizes
        .iter()
        .map(|&size| Ok(Shape::new(size, size, size)?))
        .collect::<Result<Vec<_>, Error>>()?;
    // Before minutes of measuring, not after.
    for path in &arguments.write {
        report::between_markers(path, MARKERS, "")?;
    }
    let sweep = match &arguments.from {
        Some(path) => {
            let mut sweep = Sweep::read(path)?;
            let names: Vec<_> = contenders().map(|it| it.name().to_owned()).collect();
            sweep.choose(&names, &shapes, Settings::default().noise_limit)?;
            let there = sweep.shapes();
            if let Some(shape) = shapes
                .iter()
                .find(|it| !there.contains(&[it.m(), it.n(), it.k()]))
            {
                return Err(Error::Request {
                    reason: format!(
                        "{} has no figure at {shape}; name its sizes with --sizes",
                        path.display()
                    ),
                });
            }
            sweep
        }
        None => measure(arguments, &shapes)?,
    };
    say(&sweep);
    if let Some(path) = &arguments.json {
        save(&sweep, path)?;
    }
    if !sweep.passed() {
        for row in sweep.rows.iter().filter(|row| !row.passed) {
            eprintln!("{} at {}: {}", row.name(), row.shape(), row.verdict);
        }
        return Ok(Outcome::Failed);
    }
    let text = sweep.ladder(&shapes);
    print!("{text}");
    for path in &arguments.write {
        report::replace_file(path, &report::between_markers(path, MARKERS, &text)?)?;
        eprintln!("wrote the table to {}", path.display());
    }
    if let (Some(path), Some(&shape)) = (&arguments.chart, shapes.last()) {
        for path in plot::write_bars(&sweep, shape, path)? {
            eprintln!("drew {}", path.display());
        }
    }
    Ok(Outcome::Passed)
}

/// What has a row: cuBLAS at the kernels' own precision.
fn contenders() -> impl Iterator<Item = Contender> {
    Contender::all().filter(|it| !matches!(it, Contender::Cublas(mode) if *mode != Mode::F32))
}

fn measure(arguments: &Arguments, shapes: &[Shape]) -> Result<Sweep, Error> {
    arguments.code.check()?;
    // A table of the CPU alone would take the place of one of kernels.
    let devices = host::device::devices()?;
    let limits = devices.get(arguments.device as usize).map(|it| &it.limits);
    let contenders: Vec<_> = contenders()
        .filter(|it| match it {
            Contender::Variant(variant) => limits.is_none_or(|limits| variant.runs_on(limits)),
            Contender::Cpu(_) | Contender::Cublas(_) => true,
        })
        .collect();
    let size = arguments.largest_on_cpu as f64;
    let settings = Settings {
        rounds: arguments.rounds,
        copies: false,
        triple_loop_flops: 2.0 * size * size * size,
        cpu_flops: f64::INFINITY,
        cublas: arguments.cublas.clone(),
        devices: vec![arguments.device],
        backends: arguments.code.backends().to_vec(),
        codes: arguments.code.code.clone(),
        graphs: arguments.graphs.graphs,
        command: command_line(),
        ..Settings::default()
    };
    let mut bar = Bar::new(sweep::steps(&settings, &contenders, shapes));
    sweep::run(&settings, &contenders, shapes, &mut bar)
}
