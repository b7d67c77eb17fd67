//! What a simulation found, in structures and as tables.

use crate::counters::{ClusterCounters, Counters, GlobalCounters, Metric, SharedCounters};
use crate::fault::{Fault, FaultKind};
use crate::occupancy::Occupancy;
use crate::sites::Place;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What a simulation found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The variant's name, where one was simulated.
    pub variant: Option<&'static str>,
    /// The architecture's name, such as `sm_90`.
    pub architecture: &'static str,
    /// M, N and K, where they are known.
    pub shape: Option<[u32; 3]>,
    /// The launches that ran, in order.
    pub launches: Vec<LaunchReport>,
    /// How often each kind of fault occurred. Empty where nothing is wrong.
    pub fault_totals: BTreeMap<FaultKind, u64>,
    /// The faults: by launch, block and order of discovery; up to
    /// [`Options::max_faults`](crate::Options).
    pub faults: Vec<Fault>,
    /// C, row-major. Elements that nothing wrote are NaN.
    #[serde(skip)]
    pub c: Vec<f32>,
    /// The workspace, as 4-byte words.
    #[serde(skip)]
    pub workspace: Vec<u32>,
}

/// What was counted in one launch.
#[derive(Clone, Debug, Serialize)]
pub struct LaunchReport {
    /// The kernel.
    pub kernel: &'static str,
    /// Blocks in the grid: x, y, z.
    pub grid: [u32; 3],
    /// Blocks in a cluster, along x; 1 where there are none.
    pub cluster: u32,
    /// Threads in a block: x, y, z.
    pub block: [u32; 3],
    /// Shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// The whole launch.
    pub counters: Counters,
    /// FLOPs for each byte of global memory moved; see
    /// [`Counters::arithmetic_intensity`].
    pub arithmetic_intensity: Option<f64>,
    /// The counters under the names of profilers.
    pub metrics: Vec<Metric>,
    /// Theoretical occupancy.
    pub occupancy: Occupancy,
    /// Each place in the source that was counted, in the source's order.
    pub lines: Vec<LineReport>,
}

/// What was counted at one place in the source.
#[derive(Clone, Debug, Serialize)]
pub struct LineReport {
    /// The call.
    pub place: Place,
    /// The arrays that it accessed.
    pub arrays: Vec<&'static str>,
    /// Its counters.
    pub counters: Counters,
}

impl Report {
    /// The workspace as float64.
    pub fn workspace_f64(&self) -> Vec<f64> {
        let (pairs, _) = self.workspace.as_chunks::<2>();
        pairs
            .iter()
            .map(|pair| {
                let mut bytes = [0; 8];
                bytes[..4].copy_from_slice(&pair[0].to_ne_bytes());
                bytes[4..].copy_from_slice(&pair[1].to_ne_bytes());
                f64::from_ne_bytes(bytes)
            })
            .collect()
    }

    /// The counters of all launches together.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for launch in &self.launches {
            sum += &launch.counters;
        }
        sum
    }

    /// The counters by source line: places on one line together, launches
    /// together.
    pub fn lines(&self) -> BTreeMap<(&'static str, u32), Counters> {
        let mut lines = BTreeMap::new();
        for line in self.launches.iter().flat_map(|launch| &launch.lines) {
            *lines
                .entry((line.place.file, line.place.line))
                .or_insert_with(Counters::default) += &line.counters;
        }
        lines
    }

    pub(crate) fn write_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u64 = self.fault_totals.values().sum();
        write!(f, "the simulation found {total} faults")?;
        for (i, (kind, count)) in self.fault_totals.iter().enumerate() {
            write!(f, "{} {kind}: {count}", if i == 0 { ":" } else { "," })?;
        }
        for fault in &self.faults {
            write!(f, "\n  {fault}")?;
        }
        Ok(())
    }

    /// The report as a table; with `by_line`, each place in the source too.
    pub fn table(&self, by_line: bool) -> String {
        let mut text = String::new();
        text.push_str(self.variant.unwrap_or("plan"));
        if let Some([m, n, k]) = self.shape {
            text.push_str(&format!(", M×N×K = {m}×{n}×{k}"));
        }
        text.push_str(&format!(", {}\n", self.architecture));
        if self.fault_totals.is_empty() {
            text.push_str("checks: no fault\n");
        } else {
            text.push_str("checks: FAILED\n");
            for (kind, count) in &self.fault_totals {
                text.push_str(&format!("  {kind}: {count}\n"));
            }
            for fault in &self.faults {
                text.push_str(&format!("  {fault}\n"));
            }
        }
        if self.launches.is_empty() {
            text.push_str("nothing was launched\n");
        }
        for launch in &self.launches {
            launch.write_table(by_line, &mut text);
        }
        text
    }
}

/// The table without lines.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table(false))
    }
}

fn extent([x, y, z]: [u32; 3]) -> String {
    format!("{x}×{y}×{z}")
}

/// Multiplications that are not part of a fused operation; few kernels have any.
fn multiplications(of: &str, number: u64) -> String {
    match number {
        0 => String::new(),
        number => format!(", mul {of} {}", count(number)),
    }
}

/// With commas between thousands.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn number(value: Option<f64>, decimals: usize) -> String {
    match value {
        Some(value) => format!("{value:.decimals$}"),
        None => "-".to_owned(),
    }
}

/// Columns as wide as their widest cell: the first to the left, others to the
/// right.
pub(crate) fn align(rows: &[Vec<String>], indent: &str) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::from(indent);
        for (i, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            if i == 0 {
                line.push_str(&format!("{cell:<width$}"));
            } else {
                line.push_str(&format!("  {cell:>width$}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn cells(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn global_row(name: String, counters: &GlobalCounters) -> Vec<String> {
    vec![
        name,
        count(counters.requests),
        count(counters.sectors),
        number(counters.sectors_per_request(), 2),
        count(counters.bytes_requested),
        count(counters.bytes_moved()),
        number(counters.efficiency(), 1),
        number(counters.sector_use(), 1),
    ]
}

const GLOBAL: [&str; 8] = [
    "global memory",
    "requests",
    "sectors",
    "sectors/request",
    "bytes requested",
    "bytes moved",
    "efficiency %",
    "sector use %",
];

fn shared_row(name: String, counters: &SharedCounters) -> Vec<String> {
    vec![
        name,
        count(counters.requests),
        count(counters.wavefronts),
        count(counters.bank_conflicts),
        number(counters.degree(), 2),
        counters.max_degree.to_string(),
        count(counters.vectorized_requests),
        count(counters.vectorized_wavefronts),
    ]
}

const SHARED: [&str; 8] = [
    "shared memory",
    "requests",
    "wavefronts",
    "bank conflicts",
    "degree",
    "max degree",
    "requests if joined",
    "wavefronts if joined",
];

fn cluster_row(name: String, counters: &ClusterCounters) -> Vec<String> {
    vec![
        name,
        count(counters.requests),
        count(counters.bytes_requested),
    ]
}

const CLUSTER: [&str; 3] = [
    "shared memory of the cluster",
    "requests",
    "bytes requested",
];

impl LaunchReport {
    fn write_table(&self, by_line: bool, text: &mut String) {
        let Counters {
            global_load,
            global_store,
            shared_load,
            shared_store,
            cluster_load,
            cluster_store,
            flops,
            barriers,
            barrier_instructions,
        } = &self.counters;
        text.push_str(&format!(
            "\n{}: grid {}{}, block {}, {} bytes of shared memory a block\n",
            self.kernel,
            extent(self.grid),
            match self.cluster {
                1 => String::new(),
                blocks => format!(" in clusters of {blocks}"),
            },
            extent(self.block),
            count(u64::from(self.shared_bytes)),
        ));
        text.push_str(&format!("  occupancy: {}\n", self.occupancy));
        text.push_str(&format!(
            "  FLOPs: {} (fma f32 {}, add f32 {}{}, fma f64 {}, add f64 {}{}), {} for each byte moved\n",
            count(flops.total()),
            count(flops.fma_f32),
            count(flops.add_f32),
            multiplications("f32", flops.mul_f32),
            count(flops.fma_f64),
            count(flops.add_f64),
            multiplications("f64", flops.mul_f64),
            number(self.arithmetic_intensity, 3),
        ));
        text.push_str(&format!(
            "  barriers: {} ({} instructions of warps)\n",
            count(*barriers),
            count(*barrier_instructions),
        ));
        let mut rows = vec![
            cells(&GLOBAL),
            global_row("  load (gld)".to_owned(), global_load),
            global_row("  store (gst)".to_owned(), global_store),
        ];
        text.push_str(&align(&rows, "  "));
        let uses_shared = shared_load.requests + shared_store.requests > 0;
        if uses_shared {
            rows = vec![
                cells(&SHARED),
                shared_row("  load".to_owned(), shared_load),
                shared_row("  store".to_owned(), shared_store),
            ];
            text.push_str(&align(&rows, "  "));
        }
        if cluster_load.requests + cluster_store.requests > 0 {
            rows = vec![
                cells(&CLUSTER),
                cluster_row("  load".to_owned(), cluster_load),
                cluster_row("  store".to_owned(), cluster_store),
            ];
            text.push_str(&align(&rows, "  "));
        }
        if by_line {
            self.write_lines(text);
        }
    }

    fn write_lines(&self, text: &mut String) {
        let mut global = vec![cells(&GLOBAL)];
        let mut shared = vec![cells(&SHARED)];
        let mut cluster = vec![cells(&CLUSTER)];
        let mut other = vec![cells(&["elsewhere", "FLOPs", "barriers"])];
        for line in &self.lines {
            let counters = &line.counters;
            let name = |what: &str| {
                let arrays = line.arrays.join(", ");
                format!("  {} {what} {arrays}", line.place)
            };
            for (what, accesses) in [
                ("load", &counters.global_load),
                ("store", &counters.global_store),
            ] {
                if accesses.requests > 0 {
                    global.push(global_row(name(what), accesses));
                }
            }
            for (what, accesses) in [
                ("load", &counters.shared_load),
                ("store", &counters.shared_store),
            ] {
                if accesses.requests > 0 {
                    shared.push(shared_row(name(what), accesses));
                }
            }
            for (what, accesses) in [
                ("load", &counters.cluster_load),
                ("store", &counters.cluster_store),
            ] {
                if accesses.requests > 0 {
                    cluster.push(cluster_row(name(what), accesses));
                }
            }
            if counters.flops.total() > 0 || counters.barriers > 0 {
                other.push(vec![
                    format!("  {}", line.place),
                    count(counters.flops.total()),
                    count(counters.barriers),
                ]);
            }
        }
        text.push_str("  by line\n");
        for rows in [global, shared, cluster, other] {
            if rows.len() > 1 {
                text.push_str(&align(&rows, "  "));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_048_576), "1,048,576");
        assert_eq!(number(None, 2), "-");
        assert_eq!(number(Some(2.0 / 3.0), 2), "0.67");
    }

    #[test]
    fn columns_line_up() {
        let rows = [cells(&["a", "10"]), cells(&["bcd", "5"])];
        assert_eq!(align(&rows, " "), " a    10\n bcd   5\n");
    }
}
