//! A sweep as a row of figures for each of its rows: for terminals and
//! spreadsheets.

use super::record::{Figure, Row, Samples, Sweep};
use crate::{Error, report};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

const HEADING: [&str; 19] = [
    "kernel",
    "device",
    "shape",
    "samples",
    "time",
    "noise",
    "TFLOP/s",
    "of peak",
    "of bandwidth",
    "× cuBLAS",
    "× cpu_gemm",
    "sustained",
    "burst",
    "L2 cold",
    "pageable",
    "pinned",
    "MHz",
    "W",
    "result",
];

fn cells(sweep: &Sweep, row: &Row) -> [String; 19] {
    let or_empty = |text: Option<String>| text.unwrap_or_default();
    let percent =
        |share: Option<f64>| or_empty(share.map(|share| format!("{:.1} %", 100.0 * share)));
    let time = |samples: Option<&Samples>| or_empty(samples.map(|s| report::time(s.median())));
    let main = row.samples(Figure::Time);
    [
        row.name(),
        // One device needs no number.
        or_empty(
            row.device
                .filter(|_| sweep.devices.len() > 1)
                .map(|it| it.to_string()),
        ),
        row.shape(),
        or_empty(main.map(|samples| samples.seconds.len().to_string())),
        time(main),
        percent(main.map(Samples::noise)),
        or_empty(row.flops_per_second().map(teraflops)),
        percent(row.share_of_peak()),
        percent(row.share_of_bandwidth()),
        or_empty(sweep.speed_up_over_cublas(row).map(ratio)),
        or_empty(sweep.speed_up(row, "cpu_gemm").map(ratio)),
        time(row.sustained.as_ref()),
        time(row.samples(Figure::Burst)),
        time(row.samples(Figure::Cold)),
        time(row.pageable.as_ref()),
        time(row.pinned.as_ref()),
        or_empty(row.sm_mhz.map(|mhz| format!("{mhz:.0}"))),
        or_empty(row.watts.map(|watts| format!("{watts:.0}"))),
        if row.passed {
            "PASS".into()
        } else {
            row.verdict.clone()
        },
    ]
}

/// TFLOP/s of FLOP/s, with three figures.
pub(super) fn teraflops(flops_per_second: f64) -> String {
    let value = flops_per_second / 1e12;
    let digits = (2 - value.max(1e-4).log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.digits$}")
}

/// A ratio of times or rates, with two decimals.
pub(super) fn ratio(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

impl Sweep {
    /// Every row with its figures, for a terminal.
    pub fn table(&self) -> String {
        let rows: Vec<_> = self.rows.iter().map(|row| cells(self, row)).collect();
        report::table_of_filled(&HEADING, &rows)
    }

    /// The same as Markdown.
    pub fn markdown(&self) -> String {
        let rows: Vec<_> = self.rows.iter().map(|row| cells(self, row)).collect();
        report::markdown(&HEADING, &rows)
    }

    /// Appends a line for each row to a CSV file, with a heading where the file
    /// is new.
    ///
    /// # Errors
    ///
    /// [`Error::File`] where it cannot be written, or has other columns.
    pub fn append_csv(&self, path: &Path) -> Result<(), Error> {
        let file = |reason: String| Error::File {
            path: path.to_owned(),
            reason,
        };
        let text = self.csv().map_err(|error| file(error.to_string()))?;
        let (heading, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let there = match std::fs::read_to_string(path) {
            Ok(there) => there,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(file(error.to_string())),
        };
        let new = match there.lines().next() {
            None => text.as_str(),
            Some(found) if found == heading => rest,
            Some(_) => {
                return Err(file(
                    "it has other columns than this program writes: name another file".into(),
                ));
            }
        };
        // One write: no reader sees half a line.
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .and_then(|mut file| file.write_all(new.as_bytes()))
            .map_err(|error| file(error.to_string()))
    }

    /// A heading, and a line for each row.
    fn csv(&self) -> Result<String, csv::Error> {
        let tags: Vec<_> = self
            .tags
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let tags = tags.join(";");
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in &self.rows {
            let device = self
                .devices
                .iter()
                .find(|device| Some(device.ordinal) == row.device);
            let main = row.samples(Figure::Time);
            let seconds = |samples: Option<&Samples>| samples.map(Samples::median);
            writer.serialize(Record {
                started: self.started,
                tags: &tags,
                device: row.device,
                gpu: device.map(|device| device.name.as_str()),
                driver: device.and_then(|device| device.driver.as_deref()),
                compiler: &self.host.compiler,
                kernel: &row.kernel,
                backend: &row.backend,
                precision: &row.precision,
                m: row.m,
                n: row.n,
                k: row.k,
                samples: main.map(|samples| samples.seconds.len()),
                seconds: seconds(main),
                noise: main.map(Samples::noise),
                tflops: row.flops_per_second().map(|rate| rate / 1e12),
                share_of_peak: row.share_of_peak(),
                share_of_bandwidth: row.share_of_bandwidth(),
                times_cublas: self.speed_up_over_cublas(row),
                times_cpu_gemm: self.speed_up(row, "cpu_gemm"),
                sustained_seconds: seconds(row.sustained.as_ref()),
                burst_seconds: seconds(row.samples(Figure::Burst)),
                cold_seconds: seconds(row.samples(Figure::Cold)),
                pageable_seconds: seconds(row.pageable.as_ref()),
                pinned_seconds: seconds(row.pinned.as_ref()),
                sm_mhz: row.sm_mhz,
                watts: row.watts,
                throttling: row.throttling.join(";"),
                passed: row.passed,
                again: &row.again,
            })?;
        }
        let bytes = writer.into_inner().map_err(|error| error.into_error())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[derive(Serialize)]
struct Record<'a> {
    started: u64,
    tags: &'a str,
    device: Option<u32>,
    gpu: Option<&'a str>,
    driver: Option<&'a str>,
    compiler: &'a str,
    kernel: &'a str,
    backend: &'a str,
    precision: &'a str,
    m: u32,
    n: u32,
    k: u32,
    samples: Option<usize>,
    seconds: Option<f64>,
    noise: Option<f64>,
    tflops: Option<f64>,
    share_of_peak: Option<f64>,
    share_of_bandwidth: Option<f64>,
    times_cublas: Option<f64>,
    times_cpu_gemm: Option<f64>,
    sustained_seconds: Option<f64>,
    burst_seconds: Option<f64>,
    cold_seconds: Option<f64>,
    pageable_seconds: Option<f64>,
    pinned_seconds: Option<f64>,
    sm_mhz: Option<f64>,
    watts: Option<f64>,
    throttling: String,
    passed: bool,
    again: &'a str,
}

#[cfg(test)]
mod tests {
    use crate::compare::tests::sweep;

    #[test]
    fn csv_grows_and_keeps_its_columns() {
        let path = std::env::temp_dir().join(format!("sweep-{}.csv", std::process::id()));
        let mut sweep = sweep(&[("tiled_16", &[1e-6]), ("naive_16", &[2e-6])]);
        sweep.tags.insert("note".into(), "a, \"b\"".into());
        sweep.append_csv(&path).unwrap();
        sweep.append_csv(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1 + 2 * 2, "{text}");
        assert!(text.contains("\"note=a, \"\"b\"\"\""), "{text}");
        std::fs::write(&path, "other,columns\n1,2\n").unwrap();
        let error = sweep.append_csv(&path).unwrap_err();
        assert!(error.to_string().contains("other columns"), "{error}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn figures_follow_from_the_samples() {
        let mut sweep = sweep(&[("tiled_16", &[1e-6]), ("cublas_f32", &[5e-7])]);
        sweep.rows[1].backend = "cublas".into();
        // 2·64³ FLOPs in a microsecond.
        let table = sweep.table();
        let line = table.lines().nth(1).unwrap();
        assert!(line.contains("0.524") && line.contains("0.50"), "{table}");
        assert!(
            sweep
                .markdown()
                .contains("| tiled_16 | 64×64×64 | 1 | 1.000 µs | 0.0 % |")
        );
        sweep.rows[0].passed = false;
        sweep.rows[0].verdict = "FAIL, 3 wrong".into();
        assert!(sweep.table().contains("FAIL, 3 wrong"));
    }
}
