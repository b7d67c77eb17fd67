//! Nsight Compute and Nsight Systems: their commands for a kernel at a shape,
//! and the hardware's counters beside the simulator's.

use crate::Error;
use kernels::gemm::{Shape, Variant};
use kernels::launch::DeviceLimits;
use serde::Serialize;
use simulator::{Architecture, Options, profiler_metrics};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program with its arguments.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl std::fmt::Display for Invocation {
    /// As a shell takes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&quoted(&self.program))?;
        for argument in &self.arguments {
            write!(f, " {}", quoted(argument))?;
        }
        Ok(())
    }
}

/// A word that a shell reads as it stands.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// What is profiled.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The kernel.
    pub variant: &'static Variant,
    /// The shape.
    pub shape: Shape,
    /// The device's number.
    pub device: u32,
    /// This program.
    pub program: &'a str,
}

impl Subject<'_> {
    fn file(&self) -> String {
        let shape = self.shape;
        format!(
            "{}-{}x{}x{}",
            self.variant.name,
            shape.m(),
            shape.n(),
            shape.k()
        )
    }

    fn bench(&self, rest: &[&str]) -> Vec<String> {
        let shape = self.shape;
        let mut arguments: Vec<String> = [self.program, "bench", "--kernel", self.variant.name]
            .map(str::to_owned)
            .into();
        arguments.push("--shape".into());
        arguments.push(format!("{}x{}x{}", shape.m(), shape.n(), shape.k()));
        arguments.extend(["--device".into(), self.device.to_string()]);
        arguments.extend(rest.iter().map(ToString::to_string));
        arguments
    }

    /// Matches the names of the variant's kernels and no others.
    fn pattern(&self) -> String {
        let names: Vec<_> = self
            .variant
            .entries
            .iter()
            .map(|entry| entry.name)
            .collect();
        format!("regex:^({})$", names.join("|"))
    }

    /// Every section of Nsight Compute, into a report for its window. The clocks
    /// are left alone.
    pub fn compute_report(&self) -> Invocation {
        let mut arguments: Vec<String> = [
            "--clock-control",
            "none",
            "--set",
            "full",
            "--force-overwrite",
        ]
        .map(str::to_owned)
        .into();
        arguments.extend(["--kernel-name".into(), self.pattern()]);
        arguments.extend(["--export".into(), self.file()]);
        arguments.extend(self.bench(&["--run-once"]));
        Invocation {
            program: "ncu".into(),
            arguments,
        }
    }

    /// The counters that the simulator has too, as CSV.
    pub fn compute_counters(&self, ncu: &Path) -> Invocation {
        let mut arguments: Vec<String> = ["--clock-control", "none", "--csv"]
            .map(str::to_owned)
            .into();
        arguments.extend(["--kernel-name".into(), self.pattern()]);
        arguments.extend(["--metrics".into(), counters().join(",")]);
        arguments.extend(self.bench(&["--run-once"]));
        Invocation {
            program: ncu.display().to_string(),
            arguments,
        }
    }

    /// The timeline of a benchmark, with its phases as ranges.
    pub fn systems_report(&self) -> Invocation {
        let mut arguments: Vec<String> = [
            "profile",
            "--trace",
            "cuda,nvtx",
            "--force-overwrite",
            "true",
        ]
        .map(str::to_owned)
        .into();
        arguments.extend(["--output".into(), self.file()]);
        arguments.extend(self.bench(&["--rounds", "3"]));
        Invocation {
            program: "nsys".into(),
            arguments,
        }
    }
}

/// Nsight Compute's counters that the simulator has too: those that add up.
pub fn counters() -> Vec<&'static str> {
    profiler_metrics(&simulator::Counters::default())
        .into_iter()
        .filter(|metric| metric.profiler == "ncu" && metric.name.ends_with(".sum"))
        .map(|metric| metric.name)
        .collect()
}

/// A counter, added up over a variant's launches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counter {
    /// Nsight Compute's name.
    pub name: &'static str,
    /// What the hardware counted.
    pub read: Option<f64>,
    /// What the simulator counted.
    pub simulated: Option<f64>,
}

/// FLOPs of the largest product that is simulated: some seconds.
pub const MOST_SIMULATED_FLOPS: f64 = 2.0 * 512.0 * 512.0 * 512.0;

/// Runs Nsight Compute on a subject and sets its counters beside the
/// simulator's, which are left out for products over [`MOST_SIMULATED_FLOPS`].
///
/// # Errors
///
/// [`Error::Profiler`] where Nsight Compute does not run or may not read
/// counters, with what it says; those of a simulation.
pub fn compare(
    subject: &Subject,
    ncu: &Path,
    limits: &DeviceLimits,
) -> Result<Vec<Counter>, Error> {
    let read = read(&subject.compute_counters(ncu))?;
    let simulated = if subject.shape.flops() <= MOST_SIMULATED_FLOPS {
        simulate(subject, limits)?
    } else {
        BTreeMap::new()
    };
    Ok(counters()
        .into_iter()
        .map(|name| Counter {
            name,
            read: read.get(name).copied(),
            simulated: simulated.get(name).copied(),
        })
        .collect())
}

fn read(invocation: &Invocation) -> Result<BTreeMap<String, f64>, Error> {
    let failed = |reason: String| Error::Profiler {
        program: invocation.program.clone(),
        reason,
    };
    let output = Command::new(&invocation.program)
        .args(&invocation.arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let counters = parse(&text).map_err(&failed)?;
    if !output.status.success() || counters.is_empty() {
        // It marks what went wrong, on either stream.
        let marked = said.lines().chain(text.lines());
        let marked: Vec<_> = marked
            .filter_map(|line| line.strip_prefix("==ERROR== "))
            .collect();
        return Err(failed(if marked.is_empty() {
            format!("{}, and it read no counter", output.status)
        } else {
            marked.join(" ")
        }));
    }
    Ok(counters)
}

/// The counters in the CSV that follows what else was printed, each added up
/// over the launches.
fn parse(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let mut counters = BTreeMap::new();
    let Some(start) = text.find("\"ID\"") else {
        return Ok(counters);
    };
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(&text.as_bytes()[start..]);
    let headers = reader.headers().map_err(|error| error.to_string())?;
    let column = |name: &str| {
        headers
            .iter()
            .position(|header| header == name)
            .ok_or_else(|| format!("its CSV has no column '{name}'"))
    };
    let (name, value) = (column("Metric Name")?, column("Metric Value")?);
    for record in reader.records() {
        let record = record.map_err(|error| error.to_string())?;
        let (Some(name), Some(value)) = (record.get(name), record.get(value)) else {
            continue;
        };
        // Thousands are set apart in some locales; "n/a" is no number.
        if let Ok(value) = value.replace(',', "").parse::<f64>() {
            *counters.entry(name.to_owned()).or_insert(0.0) += value;
        }
    }
    Ok(counters)
}

fn simulate(
    subject: &Subject,
    limits: &DeviceLimits,
) -> Result<BTreeMap<&'static str, f64>, Error> {
    let capability = limits.compute_capability;
    let name = format!("sm_{}{}", capability.major, capability.minor);
    // Counters differ little between the architectures that are known.
    let architecture = name.parse().unwrap_or(Architecture::SM_90);
    let options = Options {
        architecture,
        ..Options::default()
    };
    let (a, b) = crate::measure::random_factors(subject.shape, 1)?;
    let report = simulator::simulate(subject.variant, subject.shape, a.data(), b.data(), &options)
        .map_err(Error::Simulation)?;
    let mut sums = BTreeMap::new();
    for metric in report.launches.iter().flat_map(|launch| &launch.metrics) {
        if let Some(value) = metric.value {
            *sums.entry(metric.name).or_insert(0.0) += value;
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject<'static> {
        Subject {
            variant: kernels::gemm::find("tiled_16").unwrap(),
            shape: Shape::new(256, 128, 64).unwrap(),
            device: 0,
            program: "/a b/matmul",
        }
    }

    #[test]
    fn commands_are_as_a_shell_takes_them() {
        let text = subject().compute_report().to_string();
        assert!(
            text.starts_with("ncu --clock-control none --set full "),
            "{text}"
        );
        assert!(
            text.contains("--kernel-name 'regex:^(gemm_tiled_16)$' "),
            "{text}"
        );
        assert!(
            text.ends_with(
                "'/a b/matmul' bench --kernel tiled_16 --shape 256x128x64 --device 0 --run-once"
            ),
            "{text}"
        );
        let text = subject().systems_report().to_string();
        assert!(
            text.starts_with("nsys profile --trace cuda,nvtx "),
            "{text}"
        );
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn counters_are_added_up_over_launches() {
        let text = "tiled_16 at 256\n==PROF== Connected\n\
                    \"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
                    \"0\",\"k\",\"x.sum\",\"\",\"1,024\"\n\"1\",\"k\",\"x.sum\",\"\",\"6\"\n\
                    \"1\",\"k\",\"y.sum\",\"\",\"n/a\"\n";
        let counters = parse(text).unwrap();
        assert_eq!(counters.get("x.sum"), Some(&1030.0));
        assert_eq!(counters.get("y.sum"), None);
        assert!(parse("nothing here").unwrap().is_empty());
        assert!(parse("\"ID\",\"a\"\n1,2\n").is_err());
    }

    #[test]
    fn the_simulator_has_every_counter() {
        let limits = crate::devices::find("h200").unwrap().limits;
        let simulated = simulate(&subject(), &limits).unwrap();
        assert!(counters().len() > 10);
        for name in counters() {
            assert!(simulated.contains_key(name), "{name}");
        }
        // Two loads of a tile's step for each of 16 × 8 blocks of 8 warps.
        let loads = simulated["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"];
        assert_eq!(loads, (16 * 8 * 8 * 4 * 2) as f64);
    }
}
