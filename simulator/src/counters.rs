//! What is counted, under the names that profilers use.
//!
//! | here | Nsight Compute | nvprof |
//! |---|---|---|
//! | [`GlobalCounters::requests`] | `l1tex__t_requests_pipe_lsu_mem_global_op_{ld,st}.sum` | |
//! | [`GlobalCounters::sectors`] | `l1tex__t_sectors_pipe_lsu_mem_global_op_{ld,st}.sum` | `gld_transactions`, `gst_transactions` |
//! | [`GlobalCounters::sectors_per_request`] | `l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{ld,st}.ratio` | `gld_transactions_per_request`, … |
//! | [`GlobalCounters::efficiency`] | `smsp__sass_average_data_bytes_per_sector_mem_global_op_{ld,st}.pct` | `gld_efficiency`, `gst_efficiency` |
//! | [`SharedCounters::requests`] | `smsp__inst_executed_op_shared_{ld,st}.sum` | `shared_load`, `shared_store` |
//! | [`SharedCounters::wavefronts`] | `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{ld,st}.sum` | `shared_load_transactions`, … |
//! | [`SharedCounters::bank_conflicts`] | `l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{ld,st}.sum` | `shared_ld_bank_conflict`, … |
//! | [`FlopCounters`] | `smsp__sass_thread_inst_executed_op_{ffma,fadd,dfma,dadd}_pred_on.sum` | `flop_count_sp`, `flop_count_dp` |
//!
//! A request is one warp's execution of one access, if at least one of its
//! lanes takes part. The source decides what an access is; a compiler may join
//! several ([`SharedCounters::vectorized_requests`]).

use kernels::gpu::host::Operation;
use serde::Serialize;
use std::ops::AddAssign;

/// Bytes of a sector: the unit in which L1 asks L2, and L2 DRAM.
pub const SECTOR_BYTES: u64 = 32;

fn ratio(numerator: u64, denominator: u64) -> Option<f64> {
    (denominator != 0).then(|| numerator as f64 / denominator as f64)
}

/// Loads from, or stores to, global memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GlobalCounters {
    /// Requests of warps.
    pub requests: u64,
    /// Accesses of threads.
    pub accesses: u64,
    /// Bytes that threads asked for: each access counts in full.
    pub bytes_requested: u64,
    /// Bytes that requests asked for: what several lanes of one request share
    /// counts once.
    pub bytes_distinct: u64,
    /// Distinct sectors of 32 bytes, summed over requests.
    pub sectors: u64,
}

impl GlobalCounters {
    /// Bytes that move between L1 and the warps' requests: 32 for each sector.
    pub fn bytes_moved(&self) -> u64 {
        self.sectors * SECTOR_BYTES
    }

    /// Sectors for each request. 4 for 32 neighbouring float32 on a sector's
    /// boundary, 1 where all lanes read one element, 32 where each is alone.
    pub fn sectors_per_request(&self) -> Option<f64> {
        ratio(self.sectors, self.requests)
    }

    /// nvprof's `gld_efficiency` and `gst_efficiency`: bytes requested, over
    /// bytes moved, in percent. Above 100 where lanes share an element.
    pub fn efficiency(&self) -> Option<f64> {
        ratio(100 * self.bytes_requested, self.bytes_moved())
    }

    /// Distinct bytes requested, over bytes moved, in percent: how much of the
    /// moved sectors is of use. At most 100.
    pub fn sector_use(&self) -> Option<f64> {
        ratio(100 * self.bytes_distinct, self.bytes_moved())
    }
}

impl AddAssign<&Self> for GlobalCounters {
    fn add_assign(&mut self, other: &Self) {
        self.requests += other.requests;
        self.accesses += other.accesses;
        self.bytes_requested += other.bytes_requested;
        self.bytes_distinct += other.bytes_distinct;
        self.sectors += other.sectors;
    }
}

/// Loads from, or stores to, shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SharedCounters {
    /// Requests of warps.
    pub requests: u64,
    /// Accesses of threads.
    pub accesses: u64,
    /// Bytes that threads asked for.
    pub bytes_requested: u64,
    /// Passes through the banks that the requests took.
    pub wavefronts: u64,
    /// Wavefronts beyond what the same requests take without conflicts.
    pub bank_conflicts: u64,
    /// The most lanes' words that one bank had to give one after the other in
    /// one pass: 1 without conflict.
    pub max_degree: u32,
    /// The requests that would be left if four in a row, at one place, whose
    /// lanes each read four neighbouring words on a 16-byte boundary, were
    /// joined to one of 16 bytes, as ptxas does where it unrolls.
    pub vectorized_requests: u64,
    /// The wavefronts of those.
    pub vectorized_wavefronts: u64,
}

impl SharedCounters {
    /// Wavefronts over those without conflicts: the mean degree of conflict. 1
    /// without conflict.
    pub fn degree(&self) -> Option<f64> {
        ratio(self.wavefronts, self.wavefronts - self.bank_conflicts)
    }

    /// Wavefronts for each request.
    pub fn wavefronts_per_request(&self) -> Option<f64> {
        ratio(self.wavefronts, self.requests)
    }
}

impl AddAssign<&Self> for SharedCounters {
    fn add_assign(&mut self, other: &Self) {
        self.requests += other.requests;
        self.accesses += other.accesses;
        self.bytes_requested += other.bytes_requested;
        self.wavefronts += other.wavefronts;
        self.bank_conflicts += other.bank_conflicts;
        self.max_degree = self.max_degree.max(other.max_degree);
        self.vectorized_requests += other.vectorized_requests;
        self.vectorized_wavefronts += other.vectorized_wavefronts;
    }
}

/// Loads from, or stores to, the shared memory of a block of the cluster, of
/// whichever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterCounters {
    /// Requests of warps.
    pub requests: u64,
    /// Accesses of threads.
    pub accesses: u64,
    /// Bytes that threads asked for.
    pub bytes_requested: u64,
}

impl AddAssign<&Self> for ClusterCounters {
    fn add_assign(&mut self, other: &Self) {
        self.requests += other.requests;
        self.accesses += other.accesses;
        self.bytes_requested += other.bytes_requested;
    }
}

/// Floating-point operations of threads, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlopCounters {
    /// Fused multiply-adds on float32.
    pub fma_f32: u64,
    /// Additions on float32.
    pub add_f32: u64,
    /// Multiplications on float32.
    pub mul_f32: u64,
    /// Fused multiply-adds on float64.
    pub fma_f64: u64,
    /// Additions on float64.
    pub add_f64: u64,
    /// Multiplications on float64.
    pub mul_f64: u64,
}

impl FlopCounters {
    /// nvprof's `flop_count_sp`: float32 operations, a fused one counted twice.
    pub fn single(&self) -> u64 {
        2 * self.fma_f32 + self.add_f32 + self.mul_f32
    }

    /// nvprof's `flop_count_dp`: likewise, float64.
    pub fn double(&self) -> u64 {
        2 * self.fma_f64 + self.add_f64 + self.mul_f64
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.single() + self.double()
    }

    #[inline]
    pub(crate) fn count(&mut self, operation: Operation) {
        match operation {
            Operation::FmaF32 => self.fma_f32 += 1,
            Operation::AddF32 => self.add_f32 += 1,
            Operation::MulF32 => self.mul_f32 += 1,
            Operation::FmaF64 => self.fma_f64 += 1,
            Operation::AddF64 => self.add_f64 += 1,
            Operation::MulF64 => self.mul_f64 += 1,
        }
    }
}

impl AddAssign<&Self> for FlopCounters {
    fn add_assign(&mut self, other: &Self) {
        self.fma_f32 += other.fma_f32;
        self.add_f32 += other.add_f32;
        self.mul_f32 += other.mul_f32;
        self.fma_f64 += other.fma_f64;
        self.add_f64 += other.add_f64;
        self.mul_f64 += other.mul_f64;
    }
}

/// Everything that is counted, of a launch or of one place in its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Loads from global memory.
    pub global_load: GlobalCounters,
    /// Stores to global memory.
    pub global_store: GlobalCounters,
    /// Loads from shared memory.
    pub shared_load: SharedCounters,
    /// Stores to shared memory.
    pub shared_store: SharedCounters,
    /// Loads from the shared memory of a block of the cluster.
    pub cluster_load: ClusterCounters,
    /// Stores to the shared memory of a block of the cluster.
    pub cluster_store: ClusterCounters,
    /// Floating-point operations.
    pub flops: FlopCounters,
    /// Barriers that blocks passed, each counted once a block; of the block, or
    /// of its cluster.
    pub barriers: u64,
    /// The same, counted once for each warp of the block: executed barrier
    /// instructions.
    pub barrier_instructions: u64,
}

impl Counters {
    /// Bytes of global memory moved, by loads and stores: 32 for each sector.
    pub fn global_bytes_moved(&self) -> u64 {
        self.global_load.bytes_moved() + self.global_store.bytes_moved()
    }

    /// FLOPs for each byte of global memory moved to and from L1. Caches lower
    /// what reaches DRAM, so the intensity that a roofline of DRAM wants is this
    /// or higher.
    pub fn arithmetic_intensity(&self) -> Option<f64> {
        ratio(self.flops.total(), self.global_bytes_moved())
    }
}

impl AddAssign<&Self> for Counters {
    fn add_assign(&mut self, other: &Self) {
        self.global_load += &other.global_load;
        self.global_store += &other.global_store;
        self.shared_load += &other.shared_load;
        self.shared_store += &other.shared_store;
        self.cluster_load += &other.cluster_load;
        self.cluster_store += &other.cluster_store;
        self.flops += &other.flops;
        self.barriers += other.barriers;
        self.barrier_instructions += other.barrier_instructions;
    }
}

/// A counter under a profiler's name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// The name, as `ncu --metrics` or `nvprof --metrics` takes it.
    pub name: &'static str,
    /// "ncu" or "nvprof".
    pub profiler: &'static str,
    /// The simulator's value. Nothing where it divides by zero.
    pub value: Option<f64>,
    /// "" for a count, "%", "sectors/request" and the like.
    pub unit: &'static str,
}

/// The counters that Nsight Compute and nvprof have too, under their names.
///
/// Those of shared memory count what the source asks for. To compare them with
/// a kernel whose loads ptxas has joined to 128 bits, take the `vectorized`
/// ones of [`SharedCounters`].
pub fn profiler_metrics(counters: &Counters) -> Vec<Metric> {
    let metric = |profiler, name, value, unit| Metric {
        name,
        profiler,
        value,
        unit,
    };
    let ncu = |name, value: u64| metric("ncu", name, Some(value as f64), "");
    let Counters {
        global_load: gld,
        global_store: gst,
        shared_load: sld,
        shared_store: sst,
        flops,
        ..
    } = counters;
    vec![
        ncu(
            "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
            gld.requests,
        ),
        ncu(
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
            gld.sectors,
        ),
        metric(
            "ncu",
            "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
            gld.sectors_per_request(),
            "sectors/request",
        ),
        ncu(
            "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum",
            gld.bytes_moved(),
        ),
        ncu(
            "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
            gst.requests,
        ),
        ncu(
            "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
            gst.sectors,
        ),
        metric(
            "ncu",
            "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
            gst.sectors_per_request(),
            "sectors/request",
        ),
        ncu(
            "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum",
            gst.bytes_moved(),
        ),
        ncu("smsp__inst_executed_op_shared_ld.sum", sld.requests),
        ncu(
            "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
            sld.wavefronts,
        ),
        ncu(
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
            sld.bank_conflicts,
        ),
        ncu("smsp__inst_executed_op_shared_st.sum", sst.requests),
        ncu(
            "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
            sst.wavefronts,
        ),
        ncu(
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
            sst.bank_conflicts,
        ),
        ncu(
            "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
            flops.fma_f32,
        ),
        ncu(
            "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
            flops.add_f32,
        ),
        ncu(
            "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum",
            flops.fma_f64,
        ),
        ncu(
            "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum",
            flops.add_f64,
        ),
        metric("nvprof", "gld_efficiency", gld.efficiency(), "%"),
        metric("nvprof", "gst_efficiency", gst.efficiency(), "%"),
        metric(
            "nvprof",
            "gld_transactions_per_request",
            gld.sectors_per_request(),
            "sectors/request",
        ),
        metric(
            "nvprof",
            "gst_transactions_per_request",
            gst.sectors_per_request(),
            "sectors/request",
        ),
        metric(
            "nvprof",
            "shared_load_transactions_per_request",
            sld.wavefronts_per_request(),
            "wavefronts/request",
        ),
        metric(
            "nvprof",
            "shared_store_transactions_per_request",
            sst.wavefronts_per_request(),
            "wavefronts/request",
        ),
        metric("nvprof", "flop_count_sp", Some(flops.single() as f64), ""),
        metric("nvprof", "flop_count_dp", Some(flops.double() as f64), ""),
    ]
}
