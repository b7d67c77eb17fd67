//! The counters agree with hardware.
//!
//! `READINGS` holds what Nsight Compute 2025.3.1 read on an NVIDIA H200 (driver
//! 580.159.04) of the kernels that rustc 1.96 (LLVM 22.1) compiled for sm_90a,
//! with
//!
//! ```text
//! ncu --clock-control none --csv --metrics … -k regex:gemm_ \
//!     matmul run --kernel all --m 256 --n 256 --k 256 --iterations 1
//! ```
//!
//! Every launch of a kernel read the same, but for up to 6 bank conflicts of
//! tiled_16 at 250×250×250. `UPDATE_DOCS=1 cargo test -p simulator --test
//! hardware` writes the comparison into docs/simulator.md.

use kernels::gemm::{self, Shape};
use simulator::{Options, Report, simulate};
use std::fmt::Write;
use std::path::Path;

/// One kernel at one size.
struct Reading {
    variant: &'static str,
    size: u64,
    /// In the order of `METRICS`.
    values: [u64; 8],
}

/// A metric's name, and the same from a report.
type Metric = (&'static str, fn(&Report) -> u64);

/// What was read.
///
/// Shared loads are those that are left when neighbours are joined: the SASS of
/// both tiled kernels reads tile_a by LDS.128.
const METRICS: [Metric; 8] = [
    ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", |r| {
        r.counters().global_load.requests
    }),
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", |r| {
        r.counters().global_load.sectors
    }),
    ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", |r| {
        r.counters().global_store.requests
    }),
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", |r| {
        r.counters().global_store.sectors
    }),
    ("smsp__inst_executed_op_shared_ld.sum", |r| {
        r.counters().shared_load.vectorized_requests
    }),
    (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        |r| r.counters().shared_load.vectorized_wavefronts,
    ),
    (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
        |r| r.counters().shared_store.wavefronts,
    ),
    (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{ld,st}.sum",
        |r| r.counters().shared_load.bank_conflicts + r.counters().shared_store.bank_conflicts,
    ),
];

const READINGS: [Reading; 8] = [
    Reading {
        variant: "naive_16",
        size: 256,
        values: [1_048_576, 2_097_152, 2_048, 8_192, 0, 0, 0, 0],
    },
    Reading {
        variant: "naive_32",
        size: 256,
        values: [1_048_576, 2_621_440, 2_048, 8_192, 0, 0, 0, 0],
    },
    Reading {
        variant: "tiled_16",
        size: 256,
        values: [65_536, 262_144, 2_048, 8_192, 655_360, 786_432, 65_536, 0],
    },
    Reading {
        variant: "tiled_32",
        size: 256,
        values: [32_768, 131_072, 2_048, 8_192, 655_360, 786_432, 32_768, 0],
    },
    Reading {
        variant: "naive_16",
        size: 250,
        values: [1_000_000, 2_350_625, 2_000, 10_805, 0, 0, 0, 0],
    },
    Reading {
        variant: "naive_32",
        size: 250,
        values: [1_000_000, 2_827_250, 2_000, 9_309, 0, 0, 0, 0],
    },
    Reading {
        variant: "tiled_16",
        size: 250,
        values: [64_000, 345_760, 2_000, 10_805, 655_360, 786_432, 65_536, 0],
    },
    Reading {
        variant: "tiled_32",
        size: 250,
        values: [32_000, 148_944, 2_000, 9_309, 655_360, 786_432, 32_768, 0],
    },
];

const MARKERS: [&str; 2] = [
    "<!-- hardware comparison: begin -->",
    "<!-- hardware comparison: end -->",
];

#[test]
fn the_counters_agree_with_nsight_compute() {
    let mut table = String::from("| metric |");
    let mut rule = String::from("|---|");
    let mut rows: Vec<String> = METRICS
        .iter()
        .map(|(name, _)| format!("| `{name}` |"))
        .collect();
    for reading in &READINGS {
        let shape = Shape::new(reading.size, reading.size, reading.size).unwrap();
        let elements = shape.a_elements() as usize;
        let operand: Vec<f32> = (0..elements).map(|i| (i % 97) as f32 - 48.0).collect();
        let variant = gemm::find(reading.variant).unwrap();
        let report = simulate(variant, shape, &operand, &operand, &Options::default()).unwrap();
        write!(table, " {}, {}³ |", reading.variant, reading.size).unwrap();
        rule.push_str("--:|");
        for (((name, simulated), row), &read) in METRICS.iter().zip(&mut rows).zip(&reading.values)
        {
            let simulated = simulated(&report);
            assert!(
                simulated.abs_diff(read) as f64 <= 0.01 * read as f64,
                "{} at {}³, {name}: simulated {simulated}, read {read}",
                reading.variant,
                reading.size
            );
            // Equal figures are shown once.
            if simulated == read {
                write!(row, " {read} |").unwrap();
            } else {
                write!(row, " {read}, simulated {simulated} |").unwrap();
            }
        }
    }
    table = format!("{table}\n{rule}\n{}", rows.join("\n"));

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/simulator.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(MARKERS[0]).unwrap();
    let (shown, after) = rest.split_once(MARKERS[1]).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let new = format!("{before}{}\n{table}\n{}{after}", MARKERS[0], MARKERS[1]);
        std::fs::write(&path, new).unwrap();
    } else {
        assert_eq!(shown.trim(), table, "run again with UPDATE_DOCS=1");
    }
}
