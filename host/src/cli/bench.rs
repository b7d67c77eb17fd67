//! `matmul bench`.

use super::plan::{Floor, known_device};
use super::{CodeArguments, GraphsArgument, Outcome, compare::percent};
use host::devices::KnownDevice;
use host::sweep::{self, Contender, PRESETS, Progress, Settings, Sweep};
use host::{Error, plot, report};
use indicatif::{ProgressBar, ProgressStyle};
use kernels::gemm::Shape;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(clap::Args)]
#[command(after_help = after_help())]
pub struct Arguments {
    /// The kernels, cuBLAS's modes and the CPU's: names or patterns, such as `tiled_*,cublas_*`
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "*",
        value_name = "PATTERN,…"
    )]
    kernel: Vec<String>,
    /// Shapes, M×N×K, or one number for a square
    #[arg(long, value_delimiter = ',', value_name = "MxNxK,…", value_parser = sweep::shape)]
    shape: Vec<Shape>,
    /// Sets of shapes
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", value_parser = preset)]
    preset: Vec<Shapes>,
    /// Rows of A and C: numbers or ranges; alone, squares
    #[arg(long, value_delimiter = ',', value_name = "RANGE,…", value_parser = values)]
    m: Vec<Values>,
    /// Columns of B and C, for every M
    #[arg(long, value_delimiter = ',', value_name = "RANGE,…", value_parser = values, requires_all = ["m", "k"])]
    n: Vec<Values>,
    /// Columns of A, rows of B, for every M and N
    #[arg(long, value_delimiter = ',', value_name = "RANGE,…", value_parser = values, requires_all = ["m", "n"])]
    k: Vec<Values>,
    /// Numbers of the devices to run on, or `all`
    #[arg(long, default_value = "0", value_name = "NUMBER,…", value_parser = devices)]
    device: Devices,
    #[command(flatten)]
    code: CodeArguments,
    #[command(flatten)]
    graphs: GraphsArgument,
    /// Samples of each figure
    #[arg(long, default_value_t = 7, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// How long a sustained batch lasts
    #[arg(long, default_value = "50", value_name = "MILLISECONDS", value_parser = milliseconds)]
    sustained: Duration,
    /// How long a burst lasts
    #[arg(long, default_value = "1", value_name = "MILLISECONDS", value_parser = milliseconds)]
    burst: Duration,
    /// How long the device rests before a burst
    #[arg(long, default_value = "10", value_name = "MILLISECONDS", value_parser = milliseconds)]
    pause: Duration,
    /// What the random elements and the order of the kernels are made from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave out the products with their copies
    #[arg(long)]
    no_copies: bool,
    /// Give the CPU every product, however long it takes
    #[arg(long)]
    all_on_cpu: bool,
    /// The noise, in percent, above which a row is warned of
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT", value_parser = percent)]
    noise_limit: f64,
    /// The file of cuBLAS, in place of a search [env: MATMUL_CUBLAS]
    #[arg(long, value_name = "FILE")]
    cublas: Option<PathBuf>,
    /// A note to keep with the figures; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = tag)]
    tag: Vec<(String, String)>,
    /// Write everything that was measured to a file, or to the output where it is `-`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Append a line for each row to a file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print the table as Markdown
    #[arg(long)]
    markdown: bool,
    /// Print Markdown with a row for each shape, where the kernels stand beside cuBLAS; `--write`
    /// writes this too, between markers of its own
    #[arg(long)]
    by_shape: bool,
    /// A file in which to replace what stands between the summary's markers
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Draw pictures into a folder, as SVG and PNG, for light and for dark pages
    #[arg(long, value_name = "FOLDER")]
    plot: Option<PathBuf>,
    /// Show a sweep that `--json` wrote, or what the kernels and shapes that are named choose of
    /// it, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = MEASURING)]
    from: Option<PathBuf>,
    /// Launch everything once, for profilers: nothing is verified or timed
    #[arg(long, conflicts_with_all = ["from", "dry_run", "json", "csv", "markdown", "by_shape", "write", "plot"])]
    run_once: bool,
    /// Show what would be measured, with the least time it takes; needs no GPU
    #[arg(long, conflicts_with_all = ["from", "json", "csv", "markdown", "by_shape", "write", "plot"])]
    dry_run: bool,
    /// The device that `--dry-run` computes for
    #[arg(long, default_value = "h200", value_name = "NAME", value_parser = known_device)]
    gpu: KnownDevice,
}

const MEASURING: [&str; 13] = [
    "device",
    "backend",
    "code",
    "graphs",
    "rounds",
    "sustained",
    "burst",
    "pause",
    "seed",
    "no_copies",
    "all_on_cpu",
    "cublas",
    "tag",
];

/// What the place of the summary, and of the table by shape, begins and ends
/// with in a file.
const SUMMARY: [&str; 2] = ["<!-- begin: matmul bench -->", "<!-- end: matmul bench -->"];
const BY_SHAPE: [&str; 2] = [
    "<!-- begin: matmul bench --by-shape -->",
    "<!-- end: matmul bench --by-shape -->",
];

impl Arguments {
    /// The noise above which a row is warned of, as a share.
    fn noise(&self) -> f64 {
        self.noise_limit / 100.0
    }

    fn markers(&self) -> [&'static str; 2] {
        if self.by_shape { BY_SHAPE } else { SUMMARY }
    }
}

fn after_help() -> String {
    let mut text = String::from(
        "A RANGE is a number, START:STOP:STEP or START:STOP:*FACTOR.\n\nSets of shapes:\n",
    );
    for preset in PRESETS {
        text += &format!("  {:<10} {}\n", preset.name, preset.summary);
    }
    text.trim_end().into()
}

// Clap takes a `Vec` that a parser returns for an option given many times.
#[derive(Clone)]
struct Shapes(Vec<Shape>);

#[derive(Clone)]
struct Values(Vec<u64>);

fn preset(name: &str) -> Result<Shapes, String> {
    match sweep::preset(name) {
        Ok(Some(shapes)) => Ok(Shapes(shapes)),
        Ok(None) => {
            let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
            Err(format!("sets of shapes are {}", names.join(", ")))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn values(text: &str) -> Result<Values, String> {
    sweep::values(text).map(Values)
}

#[derive(Clone)]
enum Devices {
    All,
    These(Vec<u32>),
}

fn devices(text: &str) -> Result<Devices, String> {
    if text == "all" {
        return Ok(Devices::All);
    }
    let numbers = text
        .split(',')
        .map(|number| {
            number
                .parse()
                .map_err(|_| format!("'{number}' is neither a device's number nor 'all'"))
        })
        .collect::<Result<Vec<u32>, _>>()?;
    let mut once = Vec::new();
    for number in numbers {
        if !once.contains(&number) {
            once.push(number);
        }
    }
    Ok(Devices::These(once))
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|milliseconds| (0.0..=60_000.0).contains(milliseconds))
        .map(|milliseconds| Duration::from_secs_f64(milliseconds / 1e3))
        .ok_or_else(|| "a time is a number of milliseconds from 0 to 60000".into())
}

fn tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err(format!("'{text}' is not KEY=VALUE")),
    }
}

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    // Before minutes of measuring, not after.
    if let Some(path) = &arguments.write {
        report::between_markers(path, arguments.markers(), "")?;
    }
    if let Some(path) = &arguments.from {
        let mut sweep = Sweep::read(path)?;
        sweep.choose(&arguments.kernel, &wanted(arguments)?, arguments.noise())?;
        return show(arguments, &sweep);
    }
    let contenders = Contender::matching(&arguments.kernel)?;
    let shapes = shapes(arguments)?;
    if arguments.dry_run {
        dry_run(arguments, &contenders, &shapes);
        return Ok(Outcome::Passed);
    }
    arguments.code.check()?;
    let settings = settings(arguments)?;
    if arguments.run_once {
        sweep::run_once(&settings, &contenders, &shapes, |contender, shape| {
            println!("{} at {shape}", contender.name());
        })?;
        return Ok(Outcome::Passed);
    }
    let mut bar = Bar::new(sweep::steps(&settings, &contenders, &shapes));
    let sweep = sweep::run(&settings, &contenders, &shapes, &mut bar);
    drop(bar);
    show(arguments, &sweep?)
}

/// A progress bar on standard error, where that is a terminal.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self(bar)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn at(&mut self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    fn advance(&mut self, steps: u64) {
        self.0.inc(steps);
    }
}

fn settings(arguments: &Arguments) -> Result<Settings, Error> {
    let default = Settings::default();
    let devices = match &arguments.device {
        Devices::These(numbers) => numbers.clone(),
        Devices::All => match host::device::devices() {
            Ok(devices) => devices.iter().map(|device| device.ordinal).collect(),
            // The sweep says so, and measures the CPU.
            Err(error) if error.is_no_gpu() => vec![0],
            Err(error) => return Err(error),
        },
    };
    let unless_all = |limit: f64| {
        if arguments.all_on_cpu {
            f64::INFINITY
        } else {
            limit
        }
    };
    Ok(Settings {
        rounds: arguments.rounds,
        sustained: arguments.sustained,
        burst: arguments.burst,
        pause: arguments.pause,
        seed: arguments.seed,
        copies: !arguments.no_copies,
        triple_loop_flops: unless_all(default.triple_loop_flops),
        cpu_flops: unless_all(default.cpu_flops),
        noise_limit: arguments.noise(),
        cublas: arguments.cublas.clone(),
        devices,
        backends: arguments.code.backends().to_vec(),
        codes: arguments.code.code.clone(),
        graphs: arguments.graphs.graphs,
        tags: arguments.tag.iter().cloned().collect::<BTreeMap<_, _>>(),
        command: command_line(),
    })
}

/// The command line, for the record.
pub(super) fn command_line() -> String {
    let words = std::env::args_os().skip(1);
    let words: Vec<_> = words.map(|word| word.display().to_string()).collect();
    format!("matmul {}", words.join(" "))
}

/// The shapes to measure. Without a wish: squares, small ones where only a CPU
/// is there to measure.
fn shapes(arguments: &Arguments) -> Result<Vec<Shape>, Error> {
    let shapes = wanted(arguments)?;
    if !shapes.is_empty() {
        return Ok(shapes);
    }
    let none = host::device::devices().is_err_and(|error| error.is_no_gpu());
    let sizes: &[u64] = if none && !arguments.dry_run {
        &[128, 256, 512]
    } else {
        &[256, 512, 1024, 2048, 4096, 8192]
    };
    sizes
        .iter()
        .map(|&size| Ok(Shape::new(size, size, size)?))
        .collect()
}

/// The shapes that were asked for, each once.
fn wanted(arguments: &Arguments) -> Result<Vec<Shape>, Error> {
    let mut shapes = Vec::new();
    let mut add = |shape: Shape| {
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    };
    let sizes = |values: &[Values]| -> Vec<u64> {
        values.iter().flat_map(|values| values.0.clone()).collect()
    };
    arguments.shape.iter().copied().for_each(&mut add);
    for preset in &arguments.preset {
        preset.0.iter().copied().for_each(&mut add);
    }
    let (m, n, k) = (
        sizes(&arguments.m),
        sizes(&arguments.n),
        sizes(&arguments.k),
    );
    if n.is_empty() {
        for &size in &m {
            add(Shape::new(size, size, size)?);
        }
    } else {
        for &m in &m {
            for &n in &n {
                for &k in &k {
                    add(Shape::new(m, n, k)?);
                }
            }
        }
    }
    Ok(shapes)
}

fn show(arguments: &Arguments, sweep: &Sweep) -> Result<Outcome, Error> {
    let to_output = arguments.json.as_deref() == Some(Path::new("-"));
    if to_output {
        super::print_json(sweep);
    } else if arguments.by_shape {
        print!("{}", sweep.by_shape());
    } else if arguments.markdown {
        print!("{}", sweep.markdown());
    } else {
        for line in sweep.environment() {
            println!("{line}");
        }
        if !sweep.rows.is_empty() {
            print!("{}", sweep.table());
        }
    }
    say(sweep);
    if let Some(path) = arguments.json.as_ref().filter(|_| !to_output) {
        save(sweep, path)?;
    }
    if let Some(path) = &arguments.csv {
        sweep.append_csv(path)?;
    }
    if let Some(path) = &arguments.write {
        let page = if arguments.by_shape {
            sweep.by_shape()
        } else {
            sweep.summary()
        };
        let text = report::between_markers(path, arguments.markers(), &page)?;
        report::replace_file(path, text)?;
    }
    if let Some(folder) = &arguments.plot {
        for path in plot::write(sweep, folder)? {
            eprintln!("drew {}", path.display());
        }
    }
    if sweep.rows.is_empty() {
        eprintln!("nothing was measured");
    }
    Ok(if sweep.passed() && !sweep.rows.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

/// Says what was left out and what to be wary of.
pub(super) fn say(sweep: &Sweep) {
    for skipped in &sweep.skipped {
        eprintln!(
            "skipped: {} at {}: {}",
            skipped.kernel, skipped.shape, skipped.reason
        );
    }
    for warning in &sweep.warnings {
        eprintln!("warning: {warning}");
    }
}

/// Writes a sweep to a file as JSON.
pub(super) fn save(sweep: &Sweep, path: &Path) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(sweep).map_err(|error| Error::File {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    report::replace_file(path, text + "\n")
}

fn dry_run(arguments: &Arguments, contenders: &[Contender], shapes: &[Shape]) {
    let device = &arguments.gpu;
    let mut rows = Vec::new();
    let mut total = 0.0;
    for &shape in shapes {
        let floor = Floor::new(shape, device);
        for contender in contenders {
            let on_cpu = matches!(contender, Contender::Cpu(_));
            let plan = match contender {
                Contender::Variant(variant) => match variant.plan(shape, &device.limits) {
                    Ok(plan) => match plan.launches.len() {
                        1 => "1 launch".into(),
                        count => format!("{count} launches"),
                    },
                    Err(error) => error.to_string(),
                },
                Contender::Cublas(_) => "cuBLAS chooses".into(),
                Contender::Cpu(_) => "on the CPU".into(),
            };
            // The float32 floor says nothing of tensor cores or a CPU.
            let float32 = matches!(contender, Contender::Variant(_))
                || contender.name() == host::cublas::Mode::F32.name();
            rows.push([
                contender.name().to_owned(),
                shape.to_string(),
                format!("{:.3e}", shape.flops()),
                format!("{:.3e}", contender.bytes(shape)),
                if float32 {
                    report::time(floor.seconds())
                } else {
                    String::new()
                },
                plan,
            ]);
            if !on_cpu {
                let rest = arguments.sustained + arguments.burst + arguments.pause;
                let longest = rest.as_secs_f64().max(2.0 * floor.seconds());
                total += f64::from(arguments.rounds) * longest;
            }
        }
    }
    let heading = ["kernel", "shape", "FLOPs", "bytes", "floor", "would run"];
    print!("{}", report::table(&heading, &rows));
    println!(
        "{} figures on {}, {} rounds: at least {}, and the checks",
        rows.len(),
        device.name,
        arguments.rounds,
        report::time(total)
    );
}
