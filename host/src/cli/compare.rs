//! `matmul compare`.

use super::Outcome;
use host::compare::{Change, Comparison, Limits};
use host::sweep::{Figure, Sweep};
use host::{Error, report};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Arguments {
    /// The sweep to compare with: a file of `matmul bench --json`
    #[arg(value_name = "BASE.json")]
    base: PathBuf,
    /// The sweep that is compared
    #[arg(value_name = "NEW.json")]
    new: PathBuf,
    /// The figure to compare: `time` (sustained, but a burst's where launches take as long),
    /// `sustained`, `burst` or `cold`
    #[arg(long, default_value = "time", value_name = "NAME", value_parser = figure)]
    figure: Figure,
    /// The least change that counts, in percent; noise may raise it
    #[arg(long, default_value_t = 2.0, value_name = "PERCENT", value_parser = percent)]
    least: f64,
    /// How much slower a row may get, in percent, before the exit code is 1
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT", value_parser = percent)]
    limit: f64,
    /// Show the rows without a change too
    #[arg(long)]
    all: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

fn figure(name: &str) -> Result<Figure, String> {
    Figure::ALL
        .into_iter()
        .find(|figure| figure.name() == name)
        .ok_or_else(|| "figures are time, sustained, burst and cold".into())
}

pub(super) fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("a percentage is a number of 0 or more".into()),
    }
}

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let base = Sweep::read(&arguments.base)?;
    let new = Sweep::read(&arguments.new)?;
    let limits = Limits {
        figure: arguments.figure,
        least: arguments.least / 100.0,
        regression: arguments.limit / 100.0,
    };
    let comparison = Comparison::new(&base, &new, limits);
    let both = |change| !matches!(change, Change::Gone | Change::New);
    if !comparison.lines.iter().any(|line| both(line.change)) {
        return Err(Error::File {
            path: arguments.new.clone(),
            reason: format!("it has no row in common with {}", arguments.base.display()),
        });
    }
    if arguments.json {
        super::print_json(&comparison);
    } else {
        print(&comparison, arguments);
    }
    Ok(if comparison.passed() {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

fn print(comparison: &Comparison, arguments: &Arguments) {
    for warning in &comparison.warnings {
        println!("differs: {warning}");
    }
    let time = |seconds: Option<f64>| seconds.map_or_else(String::new, report::time);
    let percent =
        |share: Option<f64>| share.map_or_else(String::new, |x| format!("{:+.1} %", 100.0 * x));
    let rows: Vec<_> = comparison
        .lines
        .iter()
        .filter(|line| arguments.all || line.change != Change::Same)
        .map(|line| {
            [
                line.kernel.clone(),
                line.shape.clone(),
                line.device
                    .map_or_else(|| "cpu".into(), |number| number.to_string()),
                time(line.base),
                time(line.new),
                percent(line.difference),
                line.threshold
                    .map_or_else(String::new, |x| format!("{:.1} %", 100.0 * x)),
                match (line.change, line.regression) {
                    (Change::Slower, true) => "slower, past the limit".into(),
                    (change, _) => word(change).into(),
                },
            ]
        })
        .collect();
    if !rows.is_empty() {
        let heading = [
            "kernel",
            "shape",
            "device",
            "base",
            "new",
            "time",
            "counts from",
            "result",
        ];
        print!("{}", report::table(&heading, &rows));
    }
    let count = |change| comparison.of(change).count();
    println!(
        "{}: {} the same, {} faster, {} slower, {} wrong now, {} gone, {} new: {}",
        comparison.figure,
        count(Change::Same),
        count(Change::Faster),
        count(Change::Slower),
        count(Change::Broken),
        count(Change::Gone),
        count(Change::New),
        if comparison.passed() {
            "PASS".into()
        } else {
            format!("FAIL, slower by more than {} %", arguments.limit)
        }
    );
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Same => "same",
        Change::Faster => "faster",
        Change::Slower => "slower",
        Change::Broken => "wrong now",
        Change::Gone => "gone",
        Change::New => "new",
    }
}
