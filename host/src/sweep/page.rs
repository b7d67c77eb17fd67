//! A sweep as Markdown for the pages of a documentation.
//!
//! | table | rows | columns |
//! |---|---|---|
//! | [`summary`](Sweep::summary) | kernels | shapes |
//! | [`by_shape`](Sweep::by_shape) | shapes | cuBLAS, and the kernels beside it |
//! | [`ladder`](Sweep::ladder) | kernels | a few shapes, what a kernel takes of a multiprocessor, what it is |

use super::record::{Figure, Row, Sweep};
use super::table::{ratio, teraflops};
use crate::cublas::Mode;
use crate::error::bytes;
use crate::measure::Cpu;
use crate::report;
use kernels::gemm::Shape;

/// What stands where there is no figure.
const NONE: &str = "–";

impl Sweep {
    /// TFLOP/s of each kernel at each shape, with the share of cuBLAS at the
    /// same precision in brackets; beneath it, where it was measured. Several
    /// devices have a table each.
    pub fn summary(&self) -> String {
        /// Columns that a page has room for.
        const COLUMNS: usize = 7;
        let mut text = String::new();
        for device in self.ordinals() {
            text += &self.heading(device);
            for shapes in self.shapes().chunks(COLUMNS) {
                let mut heading = vec!["kernel".to_owned()];
                heading.extend(shapes.iter().map(|[m, n, k]| format!("{m}×{n}×{k}")));
                let mut rows = Vec::new();
                for kernel in self.kernels() {
                    let cell = |shape: &[u32; 3]| {
                        let row = self.row_of(device, &kernel, *shape)?;
                        let rate = teraflops(row.flops_per_second()?);
                        let share = self.speed_up_over_cublas(row);
                        Some(match share.filter(|_| row.backend != "cublas") {
                            Some(share) => format!("{rate} ({:.0} %)", 100.0 * share),
                            None => rate,
                        })
                    };
                    let cells: Vec<_> = shapes.iter().map(cell).collect();
                    if cells.iter().any(Option::is_some) {
                        let mut row = vec![format!("`{kernel}`")];
                        row.extend(cells.into_iter().map(|cell| cell.unwrap_or(NONE.into())));
                        rows.push(row);
                    }
                }
                text += &report::markdown(&heading, &rows);
                text.push('\n');
            }
        }
        text += "TFLOP/s; in brackets the share of cuBLAS at the same precision. ";
        text += &self.footer();
        text
    }

    /// The kernels on the GPU beside cuBLAS: a row for each shape, with TFLOP/s,
    /// the ratio of the rates, and where the shape is bound by memory, the rate
    /// of the bytes that must move, with the L2 cache cold; beneath it, where it
    /// was measured. Several devices have a table each.
    ///
    /// Without cuBLAS its columns are left out, and a sentence says so.
    pub fn by_shape(&self) -> String {
        let mut text = String::new();
        for device in self.ordinals() {
            let on_gpu = |row: &&Row| row.device.is_some() && row.device == device;
            let mut kernels: Vec<String> = Vec::new();
            for row in self.rows.iter().filter(on_gpu) {
                if row.backend != "cublas" && !kernels.contains(&row.name()) {
                    kernels.push(row.name());
                }
            }
            let precision = |row: &&Row| kernels.contains(&row.name());
            let mode = self.rows.iter().find(precision).map_or_else(
                || Mode::F32.name().to_owned(),
                |row| format!("cublas_{}", row.precision),
            );
            let mut heading = vec!["M×N×K".to_owned(), "cuBLAS, TFLOP/s".into()];
            for kernel in &kernels {
                heading.extend([
                    format!("`{kernel}`, TFLOP/s"),
                    "ratio".into(),
                    "memory".into(),
                ]);
            }
            let mut rows = Vec::new();
            for shape in self.shapes() {
                let [m, n, k] = shape;
                let rate = |kernel: &str| {
                    let row = self.row_of(device, kernel, shape)?;
                    Some(teraflops(row.flops_per_second()?))
                };
                let mut row = vec![format!("{m}×{n}×{k}"), rate(&mode).unwrap_or_default()];
                for kernel in &kernels {
                    let own = self.row_of(device, kernel, shape);
                    let over_cublas = own.and_then(|own| self.speed_up_over_cublas(own));
                    row.extend([
                        rate(kernel).unwrap_or(NONE.into()),
                        over_cublas.map(ratio).unwrap_or_default(),
                        own.and_then(of_bandwidth).unwrap_or_default(),
                    ]);
                }
                rows.push(row);
            }
            text += &self.heading(device);
            text += &report::markdown(&heading, &rows);
            text.push('\n');
        }
        text += &self.how();
        text += " Ratio: the kernel's rate over cuBLAS's. Memory, where that bounds a \
                 product: A and B read once and C written once, over the time with the L2 cold. ";
        text += &self.without_cublas();
        text += &self.footer();
        text
    }

    /// The kernels in order, each with its rates at some shapes and, at the last
    /// of them, how many times as fast as cuBLAS it is, the registers of a
    /// thread, the shared memory of a block, the occupancy, and what it is;
    /// beneath it, where it was measured. Of several devices, the first.
    ///
    /// Without cuBLAS its column is left out, and a sentence says so.
    pub fn ladder(&self, shapes: &[Shape]) -> String {
        let device = self.ordinals()[0];
        let shapes: Vec<_> = shapes.iter().map(|it| [it.m(), it.n(), it.k()]).collect();
        let mut heading = vec!["kernel".to_owned()];
        heading.extend(shapes.iter().map(|[m, n, k]| format!("{m}×{n}×{k}")));
        let rest = [
            "× cuBLAS",
            "registers",
            "shared memory",
            "occupancy",
            "what changed",
        ];
        heading.extend(rest.map(Into::into));
        let mut rows = Vec::new();
        for kernel in self.kernels() {
            let at = |shape: &[u32; 3]| self.row_of(device, &kernel, *shape);
            let rates: Vec<_> = shapes
                .iter()
                .map(|shape| at(shape)?.flops_per_second().map(report::gflops))
                .collect();
            if rates.iter().all(Option::is_none) {
                continue;
            }
            let last = shapes.last().and_then(at);
            let over_cublas = last
                .filter(|row| row.backend != "cublas")
                .and_then(|row| self.speed_up_over_cublas(row));
            let resources = last.and_then(|row| row.resources.as_ref());
            let mut row = vec![format!("`{kernel}`")];
            row.extend(rates.into_iter().map(|rate| rate.unwrap_or(NONE.into())));
            row.extend([
                over_cublas.map(ratio).unwrap_or_default(),
                resources
                    .map(|it| it.registers.to_string())
                    .unwrap_or_default(),
                resources
                    .map(|it| bytes(it.shared_bytes.into()))
                    .unwrap_or_default(),
                resources.map(ToString::to_string).unwrap_or_default(),
                shapes
                    .iter()
                    .find_map(at)
                    .map(summary_of)
                    .unwrap_or_default(),
            ]);
            rows.push(row);
        }
        let filled = |column: usize| {
            rows.iter()
                .any(|row| !row[1 + shapes.len() + column].is_empty())
        };
        let mut text = report::markdown(&heading, &rows);
        text += "\nGFLOP/s. ";
        text += &self.how();
        text.push(' ');
        if let Some([m, n, k]) = shapes.last() {
            if filled(0) {
                text += &format!("× cuBLAS: the rate over cuBLAS's at {m}×{n}×{k}. ");
            }
            if filled(1) {
                text += &format!(
                    "Registers of a thread, shared memory of a block, and the share of a \
                     multiprocessor's warps that fit (blocks × warps of a block): of the main \
                     kernel at {m}×{n}×{k}. "
                );
            }
        }
        text += &self.without_cublas();
        text += &self.footer();
        text
    }

    /// The devices' numbers; one `None` where there are none.
    fn ordinals(&self) -> Vec<Option<u32>> {
        let mut ordinals: Vec<_> = self.devices.iter().map(|it| Some(it.ordinal)).collect();
        if ordinals.is_empty() {
            ordinals.push(None);
        }
        ordinals
    }

    /// What stands above a device's table where there are several.
    fn heading(&self, device: Option<u32>) -> String {
        let several = self.devices.len() > 1;
        let named = self.devices.iter().find(|it| Some(it.ordinal) == device);
        named.filter(|_| several).map_or_else(String::new, |it| {
            format!("Device {}, {}:\n\n", it.ordinal, it.name)
        })
    }

    /// The row of a kernel at a shape, on a device or on the CPU.
    fn row_of(&self, device: Option<u32>, kernel: &str, [m, n, k]: [u32; 3]) -> Option<&Row> {
        self.rows.iter().find(|row| {
            row.name() == kernel
                && [row.m, row.n, row.k] == [m, n, k]
                && (row.device == device || row.device.is_none())
        })
    }

    fn how(&self) -> String {
        format!(
            "Medians of {} batches of {} ms between two events, kernels in shuffled order, L2 \
             warm, random data.",
            self.method.rounds,
            self.method.sustained_seconds * 1e3
        )
    }

    fn without_cublas(&self) -> String {
        if self.rows.iter().any(|row| row.backend == "cublas") {
            String::new()
        } else {
            "cuBLAS was not there to compare with. ".into()
        }
    }

    /// Where it was measured, and what the figures suffer from.
    fn footer(&self) -> String {
        let mut text = self.where_measured(false).join(". ");
        text += ".\n";
        for warning in &self.warnings {
            text += &format!("\nWarning: {warning}.\n");
        }
        text
    }

    /// Where it was measured, a line for each part.
    pub fn environment(&self) -> Vec<String> {
        self.where_measured(true)
    }

    /// `paths`: also where files of this machine lie, which a page's readers do
    /// not have.
    fn where_measured(&self, paths: bool) -> Vec<String> {
        let mut lines = Vec::new();
        for device in &self.devices {
            let driver = device.driver.as_ref().map_or_else(
                || format!("driver for CUDA {}", device.cuda),
                |version| format!("driver {version} for CUDA {}", device.cuda),
            );
            let power = device
                .power_limit_watts
                .map_or_else(String::new, |watts| format!(", {watts:.0} W at most"));
            lines.push(format!(
                "{} (device {}, compute capability {}, {} multiprocessors at up to {} MHz{power}, \
                 {} at up to {} MHz, ECC {}, L2 {}), {driver}, kernels for {}",
                device.name,
                device.ordinal,
                device.compute_capability,
                device.multiprocessors,
                device.clock_mhz,
                bytes(device.memory_bytes),
                device.memory_clock_mhz,
                if device.ecc { "on" } else { "off" },
                bytes(device.l2_bytes),
                device.ptx,
            ));
            lines.push(format!(
                "Peaks of device {}: {:.1} TFLOP/s in float32, {:.2} TB/s",
                device.ordinal,
                device.peak_f32_flops / 1e12,
                device.peak_bandwidth / 1e12
            ));
            lines.extend(device.cublas.as_ref().map(|cublas| {
                let version = cublas.split(" (").next().unwrap_or(cublas);
                if paths { cublas.as_str() } else { version }.to_owned()
            }));
        }
        lines.push(format!(
            "CPU: {} cores. Kernels compiled by {}",
            self.host.cores, self.host.compiler
        ));
        lines
    }
}

/// The rate of the bytes that must move, and its share of the memory's
/// bandwidth, where memory bounds the product.
fn of_bandwidth(row: &Row) -> Option<String> {
    let (peak_flops, peak_bandwidth) = (row.peak_flops?, row.peak_bandwidth?);
    if row.flops * peak_bandwidth >= row.bytes * peak_flops {
        return None;
    }
    let seconds = row.samples(Figure::Cold)?.median();
    let share = row.share_of_bandwidth()?;
    let gigabytes = row.bytes / seconds / 1e9;
    Some(format!("{gigabytes:.0} GB/s ({:.0} %)", 100.0 * share))
}

/// What a kernel is, in one line.
fn summary_of(row: &Row) -> String {
    let cpu = Cpu::ALL.into_iter().find(|cpu| cpu.name() == row.kernel);
    let variant = kernels::gemm::find(&row.kernel);
    match (cpu, variant) {
        (Some(cpu), _) => cpu.summary().into(),
        (_, Some(variant)) => variant.summary.into(),
        _ if row.kernel == Mode::F32.name() => "cuBLAS SGEMM, NVIDIA's library".into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::sweep;
    use crate::resources::Resources;
    use crate::sweep::Samples;

    /// A kernel, the same with other code, and cuBLAS.
    fn measured() -> Sweep {
        let mut sweep = sweep(&[
            ("tiled_16", &[1e-6]),
            ("tiled_16", &[4e-6]),
            ("cublas_f32", &[5e-7]),
        ]);
        sweep.rows[0].resources = Some(Resources {
            kernel: "gemm_tiled_16".into(),
            threads: 256,
            registers: 40,
            shared_bytes: 2048,
            local_bytes: 0,
            blocks: 4,
            warps: 8,
            max_warps: 64,
        });
        sweep.rows[1].code = Some("sm_80".into());
        sweep.rows[2].backend = "cublas".into();
        sweep.devices.push(crate::plot::tests::device());
        sweep
    }

    fn lines(text: &str) -> Vec<&str> {
        text.lines().filter(|line| line.starts_with('|')).collect()
    }

    #[test]
    fn a_summary_has_a_row_for_each_kernel() {
        let mut sweep = measured();
        let text = sweep.summary();
        let expected = [
            "| kernel | 64×64×64 |",
            "|---|--:|",
            "| `tiled_16` | 0.524 (50 %) |",
            "| `tiled_16/sm_80` | 0.131 (12 %) |",
            "| `cublas_f32` | 1.05 |",
        ];
        assert_eq!(lines(&text), expected, "{text}");
        // A second device has a table of its own.
        let mut second = sweep.devices[0].clone();
        second.ordinal = 1;
        sweep.devices.push(second);
        let mut row = sweep.rows[0].clone();
        row.device = Some(1);
        sweep.rows.push(row);
        let text = sweep.summary();
        assert!(
            text.starts_with("Device 0, Test GPU:\n\n| kernel |"),
            "{text}"
        );
        let (_, second) = text.split_once("Device 1, Test GPU:").unwrap();
        assert_eq!(lines(second)[2..], ["| `tiled_16` | 0.524 |"], "{text}");
    }

    #[test]
    fn kernels_stand_beside_cublas() {
        let mut sweep = measured();
        let text = sweep.by_shape();
        let expected = [
            "| M×N×K | cuBLAS, TFLOP/s | `tiled_16`, TFLOP/s | ratio | `tiled_16/sm_80`, TFLOP/s | \
             ratio |",
            "|---|--:|--:|--:|--:|--:|",
            "| 64×64×64 | 1.05 | 0.524 | 0.50 | 0.131 | 0.12 |",
        ];
        assert_eq!(lines(&text), expected, "{text}");
        // A thin shape, which memory bounds: 4 B read or written in 1 ns is 4 GB/s.
        let row = &mut sweep.rows[0];
        (row.m, row.n, row.k) = (1, 64, 64);
        (row.flops, row.bytes) = (8192.0, 4.0 * 4224.0);
        row.cold = Some(Samples {
            seconds: vec![4224e-9],
            launches: 1,
        });
        let text = sweep.by_shape();
        assert!(
            text.contains("| 1×64×64 |  | 0.00819 | 4 GB/s (0 %) | – |  |"),
            "{text}"
        );
        sweep.rows.retain(|row| row.backend != "cublas");
        let text = sweep.by_shape();
        assert!(
            lines(&text)[0].starts_with("| M×N×K | `tiled_16`, TFLOP/s |"),
            "{text}"
        );
        assert!(
            text.contains("cuBLAS was not there to compare with"),
            "{text}"
        );
    }

    #[test]
    fn a_ladder_says_what_changed() {
        let mut sweep = measured();
        let shape = Shape::new(64, 64, 64).unwrap();
        let summary = kernels::gemm::find("tiled_16").unwrap().summary;
        let text = sweep.ladder(&[shape]);
        let first =
            format!("| `tiled_16` | 524.3 | 0.50 | 40 | 2.0 KiB | 50 % (4×8 warps) | {summary} |");
        let expected = [
            "| kernel | 64×64×64 | × cuBLAS | registers | shared memory | occupancy | what changed |",
            "|---|--:|--:|--:|--:|--:|---|",
            &first,
            &format!("| `tiled_16/sm_80` | 131.1 | 0.12 |  |  |  | {summary} |"),
            "| `cublas_f32` | 1049 |  |  |  |  | cuBLAS SGEMM, NVIDIA's library |",
        ];
        assert_eq!(lines(&text), expected, "{text}");
        assert!(text.contains("rate over cuBLAS's at 64×64×64"), "{text}");
        sweep.rows.truncate(2);
        sweep.rows[0].resources = None;
        let text = sweep.ladder(&[shape]);
        assert_eq!(
            lines(&text)[0],
            "| kernel | 64×64×64 | what changed |",
            "{text}"
        );
        assert!(
            !text.contains("Registers") && !text.contains("× cuBLAS:"),
            "{text}"
        );
        assert!(
            text.contains("cuBLAS was not there to compare with"),
            "{text}"
        );
    }
}
