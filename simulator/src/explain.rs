//! Counters of several variants side by side, with what they mean.

use crate::counters::Counters;
use crate::report::{Report, align, count, number};
use crate::run::{Options, SimulationError, simulate};
use kernels::gemm::{Shape, Variant};
use serde::Serialize;
use std::fmt;

/// One counter of every variant.
#[derive(Clone, Debug, Serialize)]
pub struct ExplanationRow {
    /// What is counted.
    pub name: &'static str,
    /// Its value in each variant, in their order. Nothing where it is a ratio
    /// to zero.
    pub values: Vec<Option<f64>>,
    /// Decimals to show.
    pub decimals: usize,
    /// What it means, in one sentence.
    pub meaning: &'static str,
}

/// The counters of several variants on one shape.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// M, N and K.
    pub shape: [u32; 3],
    /// The architecture's name.
    pub architecture: &'static str,
    /// The variants' names.
    pub variants: Vec<&'static str>,
    /// One row a counter.
    pub rows: Vec<ExplanationRow>,
    /// What the numbers say of these variants, a sentence each.
    pub findings: Vec<String>,
}

/// Simulates the variants on small index-coded operands and sets their counters
/// side by side.
///
/// # Errors
///
/// As [`simulate`], for the first variant that fails.
pub fn explain(
    variants: &[&Variant],
    shape: Shape,
    options: &Options,
) -> Result<Explanation, SimulationError> {
    let operand = |len: u64| -> Result<Vec<f32>, SimulationError> {
        // Checked before it is filled: a shape may be larger than memory.
        let mut values = Vec::new();
        usize::try_from(len)
            .ok()
            .and_then(|len| values.try_reserve_exact(len).ok())
            .ok_or(SimulationError::Memory {
                bytes: len.saturating_mul(4),
            })?;
        values.extend((0..len).map(|i| (i % 97) as f32 - 48.0));
        Ok(values)
    };
    let (a, b) = (operand(shape.a_elements())?, operand(shape.b_elements())?);
    let reports = variants
        .iter()
        .map(|variant| simulate(variant, shape, &a, &b, options))
        .collect::<Result<Vec<_>, _>>()?;
    let counters: Vec<Counters> = reports.iter().map(Report::counters).collect();
    let row = |name, decimals, meaning, value: &dyn Fn(&Counters) -> Option<f64>| ExplanationRow {
        name,
        values: counters.iter().map(value).collect(),
        decimals,
        meaning,
    };
    let whole = |n: u64| Some(n as f64);
    let mut rows = vec![
        row(
            "global load requests",
            0,
            "How often a warp asks global memory for something; each takes a slot of the load unit.",
            &|c| whole(c.global_load.requests),
        ),
        row(
            "sectors per load request",
            2,
            "32-byte pieces that one request touches: 4 is a full warp reading 128 bytes in a row, \
             1 is all lanes reading one element, 32 is every lane elsewhere (uncoalesced).",
            &|c| c.global_load.sectors_per_request(),
        ),
        row(
            "global load bytes moved",
            0,
            "Sectors times 32: what L1 hands to warps, from its own content or from L2.",
            &|c| whole(c.global_load.bytes_moved()),
        ),
        row(
            "gld_efficiency %",
            1,
            "Bytes that threads asked for over bytes moved: above 100 where lanes of a warp share \
             an element.",
            &|c| c.global_load.efficiency(),
        ),
        row(
            "load sector use %",
            1,
            "How much of the moved sectors some lane wanted: 100 wastes nothing.",
            &|c| c.global_load.sector_use(),
        ),
        row(
            "gst_efficiency %",
            1,
            "The same as gld_efficiency for stores: 100 writes whole sectors.",
            &|c| c.global_store.efficiency(),
        ),
        row(
            "shared load requests",
            0,
            "How often a warp reads the block's shared memory, which has taken over from global \
             memory what a tile is reused for.",
            &|c| whole(c.shared_load.requests),
        ),
        row(
            "shared load conflict degree",
            2,
            "Passes through the 32 banks over those needed: 1 has no bank conflicts, 32 reads one \
             word at a time.",
            &|c| c.shared_load.degree(),
        ),
        row(
            "shared store conflict degree",
            2,
            "The same for stores.",
            &|c| c.shared_store.degree(),
        ),
        row(
            "barriers",
            0,
            "How often a block's threads wait for one another: the price of sharing.",
            &|c| whole(c.barriers),
        ),
        row(
            "FLOPs",
            0,
            "Floating-point operations, a fused multiply-add counted as two: the work itself, which \
             no tiling changes (only threads past the edge add to it).",
            &|c| whole(c.flops.total()),
        ),
        row(
            "FLOPs per byte moved",
            3,
            "Arithmetic intensity at L1: the higher, the less the kernel leans on memory.",
            &Counters::arithmetic_intensity,
        ),
    ];
    rows.push(ExplanationRow {
        name: "occupancy %",
        values: reports
            .iter()
            .map(|report| {
                let launches = report.launches.iter();
                launches
                    .map(|launch| launch.occupancy.percent)
                    .reduce(f64::min)
            })
            .collect(),
        decimals: 1,
        meaning: "Warps that a multiprocessor can hold over those it has room for; they hide one \
                  another's waiting.",
    });
    Ok(Explanation {
        shape: [shape.m(), shape.n(), shape.k()],
        architecture: options.architecture.name(),
        variants: variants.iter().map(|variant| variant.name).collect(),
        findings: findings(&reports, &counters),
        rows,
    })
}

/// In words. Eight float32 lanes a sector are 100 %, one is 12.5 %: below a
/// quarter, nearly each lane costs a sector of its own.
fn coalescing(efficiency: f64) -> &'static str {
    if efficiency > 100.0 {
        "coalesced, lanes share elements"
    } else if efficiency >= 75.0 {
        "coalesced"
    } else if efficiency > 25.0 {
        "partly coalesced"
    } else {
        "uncoalesced"
    }
}

fn findings(reports: &[Report], counters: &[Counters]) -> Vec<String> {
    let mut findings = Vec::new();
    for report in reports {
        let name = report.variant.unwrap_or("the plan");
        for line in report.launches.iter().flat_map(|launch| &launch.lines) {
            for (what, accesses) in [
                ("load", &line.counters.global_load),
                ("store", &line.counters.global_store),
            ] {
                if let (Some(sectors), Some(efficiency)) =
                    (accesses.sectors_per_request(), accesses.efficiency())
                {
                    findings.push(format!(
                        "{name}: the {what} of {} at {} takes {sectors:.2} sectors a request, \
                         efficiency {efficiency:.0} %: {}.",
                        line.arrays.join(", "),
                        line.place,
                        coalescing(efficiency),
                    ));
                }
            }
            for (what, accesses) in [
                ("load", &line.counters.shared_load),
                ("store", &line.counters.shared_store),
            ] {
                if accesses.bank_conflicts > 0 {
                    findings.push(format!(
                        "{name}: the {what} of {} at {} has bank conflicts of degree {}.",
                        line.arrays.join(", "),
                        line.place,
                        number(accesses.degree(), 2),
                    ));
                }
            }
        }
    }
    if let Some((first, others)) = counters.split_first() {
        for (report, counters) in reports[1..].iter().zip(others) {
            let (before, after) = (
                first.global_load.bytes_moved(),
                counters.global_load.bytes_moved(),
            );
            if before > 0 && after > 0 {
                findings.push(format!(
                    "{} moves {} bytes from global memory where {} moves {}: a factor of {:.2}.",
                    report.variant.unwrap_or("the plan"),
                    count(after),
                    reports[0].variant.unwrap_or("the plan"),
                    count(before),
                    before as f64 / after as f64,
                ));
            }
        }
    }
    findings
}

/// The table, what each counter means, and what the numbers say.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [m, n, k] = self.shape;
        writeln!(f, "M×N×K = {m}×{n}×{k}, {}\n", self.architecture)?;
        let mut head = vec![String::new()];
        head.extend(self.variants.iter().map(|&name| name.to_owned()));
        let mut rows = vec![head];
        for row in &self.rows {
            let mut cells = vec![row.name.to_owned()];
            cells.extend(row.values.iter().map(|&value| match (value, row.decimals) {
                (Some(value), 0) => count(value as u64),
                (value, decimals) => number(value, decimals),
            }));
            rows.push(cells);
        }
        writeln!(f, "{}", align(&rows, ""))?;
        for row in &self.rows {
            writeln!(f, "{}: {}", row.name, row.meaning)?;
        }
        writeln!(f)?;
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        Ok(())
    }
}
