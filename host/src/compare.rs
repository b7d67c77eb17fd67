//! Two sweeps: what got faster or slower beyond noise.
//!
//! A figure has changed where its medians differ by more than the larger of
//!
//! - a least change that is worth a word, and
//! - [`NOISE_FACTOR`] times the larger noise of the two.
//!
//! Noise is the spread of the middle half of the samples, 1.35 standard
//! deviations where they are normally distributed. A median of seven has a
//! standard deviation of about half a sample's, and so the difference of two
//! about 0.7: twice the noise is some four of them. The least change stands
//! for what the samples of one run cannot show: another temperature, other pages
//! of memory.

use crate::sweep::{DeviceRecord, Figure, Row, Sweep};
use serde::Serialize;

/// Times the noise that a change must pass.
pub const NOISE_FACTOR: f64 = 2.0;

/// How two sweeps are compared.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The figure that is compared.
    pub figure: Figure,
    /// The least change that counts, as a share of the old time.
    pub least: f64,
    /// The growth of a time that counts as a regression, as a share of the old.
    pub regression: f64,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It differs by no more than it may.
    Same,
    /// It takes less time.
    Faster,
    /// It takes more time.
    Slower,
    /// Its result was right, and is wrong now.
    Broken,
    /// Only the old sweep has it.
    Gone,
    /// Only the new sweep has it.
    New,
}

/// One row of both sweeps.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The kernel.
    pub kernel: String,
    /// What compiled it.
    pub backend: String,
    /// The device's number; none on the CPU.
    pub device: Option<u32>,
    /// M×N×K.
    pub shape: String,
    /// Seconds in the old sweep.
    pub base: Option<f64>,
    /// Seconds in the new sweep.
    pub new: Option<f64>,
    /// The new time over the old, less 1.
    pub difference: Option<f64>,
    /// What the difference must pass to count.
    pub threshold: Option<f64>,
    /// What became of it.
    pub change: Change,
    /// Whether it is a regression past the limit.
    pub regression: bool,
}

/// The comparison of two sweeps.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The figure that was compared.
    pub figure: &'static str,
    /// The rows of the old sweep in its order, then those that are new.
    pub lines: Vec<Line>,
    /// What makes the comparison doubtful.
    pub warnings: Vec<String>,
}

impl Comparison {
    /// Compares two sweeps.
    pub fn new(base: &Sweep, new: &Sweep, limits: Limits) -> Self {
        let mut lines: Vec<_> = base
            .rows
            .iter()
            .map(|old| {
                let now = new.rows.iter().find(|row| row.key() == old.key());
                line(old, Some(old), now, limits)
            })
            .collect();
        for row in &new.rows {
            if !base.rows.iter().any(|old| old.key() == row.key()) {
                lines.push(line(row, None, Some(row), limits));
            }
        }
        Self {
            figure: limits.figure.name(),
            lines,
            warnings: warnings(base, new),
        }
    }

    /// The lines of a kind.
    pub fn of(&self, change: Change) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.change == change)
    }

    /// Whether nothing got worse past the limit.
    pub fn passed(&self) -> bool {
        !self.lines.iter().any(|line| line.regression)
    }
}

fn line(named: &Row, old: Option<&Row>, now: Option<&Row>, limits: Limits) -> Line {
    let samples = |row: Option<&Row>| row.and_then(|row| row.samples(limits.figure)).cloned();
    let (base, new) = (samples(old), samples(now));
    let seconds = |samples: &Option<crate::sweep::Samples>| {
        let median = samples.as_ref()?.median();
        (median > 0.0).then_some(median)
    };
    let both = seconds(&base).zip(seconds(&new));
    let difference = both.map(|(base, new)| new / base - 1.0);
    let threshold = base.as_ref().zip(new.as_ref()).map(|(base, new)| {
        let noise = base.noise().max(new.noise());
        limits.least.max(NOISE_FACTOR * noise)
    });
    let broken = old.is_some_and(|row| row.passed) && now.is_some_and(|row| !row.passed);
    let change = if broken {
        Change::Broken
    } else if old.is_none() {
        Change::New
    } else if now.is_none() {
        Change::Gone
    } else {
        match difference.zip(threshold) {
            Some((difference, threshold)) if difference > threshold => Change::Slower,
            Some((difference, threshold)) if difference < -threshold => Change::Faster,
            _ => Change::Same,
        }
    };
    Line {
        kernel: named.name(),
        backend: named.backend.clone(),
        device: named.device,
        shape: named.shape(),
        base: seconds(&base),
        new: seconds(&new),
        difference,
        threshold,
        regression: broken
            || change == Change::Slower
                && difference.is_some_and(|difference| difference > limits.regression),
        change,
    }
}

fn warnings(base: &Sweep, new: &Sweep) -> Vec<String> {
    type Text = fn(&DeviceRecord) -> String;
    let mut warnings = Vec::new();
    let mut differ = |what: &str, old: String, now: String| {
        if old != now {
            warnings.push(format!("{what}: {old} before, {now} now"));
        }
    };
    let devices = |sweep: &Sweep, text: Text| {
        let texts: Vec<_> = sweep.devices.iter().map(text).collect();
        if texts.is_empty() {
            "none".into()
        } else {
            texts.join(", ")
        }
    };
    let pairs: [(&str, Text); 3] = [
        ("device", |device| device.name.clone()),
        ("driver", |device| {
            device.driver.clone().unwrap_or_else(|| device.cuda.clone())
        }),
        ("cuBLAS", |device| {
            device.cublas.clone().unwrap_or_else(|| "none".into())
        }),
    ];
    for (what, text) in pairs {
        differ(what, devices(base, text), devices(new, text));
    }
    let otherwise = base.rows.iter().filter(|old| {
        let new = new.rows.iter().find(|new| new.key() == old.key());
        let by = new.and_then(|new| new.batched_by);
        old.batched_by.zip(by).is_some_and(|(old, new)| old != new)
    });
    let otherwise = otherwise.count();
    differ(
        "kernels' compiler",
        base.host.compiler.clone(),
        new.host.compiler.clone(),
    );
    differ(
        "cores of the CPU",
        base.host.cores.to_string(),
        new.host.cores.to_string(),
    );
    if otherwise > 0 {
        warnings.push(format!(
            "sustained batches of {otherwise} rows are graphs in one sweep and single launches in \
             the other: `--graphs on` or `off` has both alike"
        ));
    }
    warnings
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::graph::Batching;
    use crate::sweep::{FORMAT, HostRecord, Method, Samples};

    /// A sweep with one row for each name and its samples.
    pub(crate) fn sweep(rows: &[(&str, &[f64])]) -> Sweep {
        Sweep {
            format: FORMAT,
            command: "matmul bench".into(),
            started: 0,
            tags: [].into(),
            host: HostRecord {
                cores: 2,
                program: "0".into(),
                compiler: "rustc".into(),
            },
            devices: Vec::new(),
            method: Method {
                rounds: 3,
                sustained_seconds: 0.05,
                burst_seconds: 0.001,
                pause_seconds: 0.01,
                seed: 1,
            },
            rows: rows
                .iter()
                .map(|(kernel, seconds)| Row {
                    kernel: (*kernel).into(),
                    backend: "nvptx".into(),
                    code: None,
                    precision: "f32".into(),
                    device: Some(0),
                    m: 64,
                    n: 64,
                    k: 64,
                    flops: 2.0 * 64.0 * 64.0 * 64.0,
                    bytes: 3.0 * 4.0 * 64.0 * 64.0,
                    peak_flops: Some(60e12),
                    peak_bandwidth: Some(4e12),
                    resources: None,
                    launch_seconds: None,
                    batched_by: None,
                    no_graph: None,
                    sustained: Some(Samples {
                        seconds: seconds.to_vec(),
                        launches: 1,
                    }),
                    burst: None,
                    cold: None,
                    pageable: None,
                    pinned: None,
                    passed: true,
                    verdict: "PASS".into(),
                    sm_mhz: None,
                    watts: None,
                    celsius: None,
                    throttling: Vec::new(),
                    again: String::new(),
                })
                .collect(),
            skipped: Vec::new(),
            warnings: Vec::new(),
        }
    }

    const LIMITS: Limits = Limits {
        figure: Figure::Time,
        least: 0.02,
        regression: 0.05,
    };

    fn change(base: &[f64], new: &[f64]) -> (Change, bool) {
        let comparison = Comparison::new(&sweep(&[("x", base)]), &sweep(&[("x", new)]), LIMITS);
        (comparison.lines[0].change, !comparison.passed())
    }

    #[test]
    fn a_change_must_pass_the_noise() {
        let steady: &[f64] = &[1.0, 1.0, 1.0];
        assert_eq!(change(steady, steady), (Change::Same, false));
        assert_eq!(change(steady, &[1.019; 3]), (Change::Same, false));
        assert_eq!(change(steady, &[1.03; 3]), (Change::Slower, false));
        assert_eq!(change(steady, &[1.06; 3]), (Change::Slower, true));
        assert_eq!(change(steady, &[0.97; 3]), (Change::Faster, false));
        // The same medians, with a noise of 10 % on either side.
        let noisy: &[f64] = &[0.96, 1.06, 1.16];
        assert_eq!(change(steady, noisy), (Change::Same, false));
        assert_eq!(change(noisy, &[1.2; 3]), (Change::Same, false));
        assert_eq!(change(noisy, &[1.4; 3]), (Change::Slower, true));
    }

    #[test]
    fn another_way_of_launching_is_warned_of() {
        let mut base = sweep(&[("a", &[1.0]), ("b", &[1.0])]);
        let mut new = base.clone();
        new.rows[0].batched_by = Some(Batching::Graph);
        // An old sweep does not say.
        assert!(Comparison::new(&base, &new, LIMITS).warnings.is_empty());
        base.rows[0].batched_by = Some(Batching::Launches);
        let warnings = Comparison::new(&base, &new, LIMITS).warnings;
        assert!(
            warnings[0].starts_with("sustained batches of 1 rows"),
            "{warnings:?}"
        );
    }

    #[test]
    fn rows_come_and_go_and_break() {
        let base = sweep(&[("a", &[1.0]), ("b", &[1.0])]);
        let mut new = sweep(&[("b", &[1.0]), ("c", &[1.0])]);
        let comparison = Comparison::new(&base, &new, LIMITS);
        let changes: Vec<_> = comparison.lines.iter().map(|line| line.change).collect();
        assert_eq!(changes, [Change::Gone, Change::Same, Change::New]);
        assert!(comparison.passed() && comparison.warnings.is_empty());

        new.rows[0].passed = false;
        new.rows[0].sustained = None;
        new.host.compiler = "another".into();
        let comparison = Comparison::new(&base, &new, LIMITS);
        assert_eq!(comparison.of(Change::Broken).count(), 1);
        assert!(!comparison.passed());
        assert_eq!(
            comparison.warnings,
            ["kernels' compiler: rustc before, another now"]
        );
    }
}
