//! From a plan to a report.

use crate::arch::Architecture;
use crate::block::{Context, Findings, SHARED_BIT, Worker, note_kernel_panics, unravel};
use crate::counters::{Counters, profiler_metrics};
use crate::fault::{ArrayId, Element, Entry, Fault, FaultKind, Other, RawFault, ThreadId};
use crate::memory::{C, GlobalMemory, Ledger, MAX_BLOCKS, NAMES};
use crate::occupancy::occupancy;
use crate::report::{LaunchReport, LineReport, Report};
use crate::sites::{Place, Sites};
use kernels::gemm::{Shape, Variant};
use kernels::launch::{Argument, DeviceLimits, Launch, ParameterKind, Plan, PlanError};
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io, mem};

/// How to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// The architecture whose limits hold, and for which occupancy is told.
    pub architecture: Architecture,
    /// Registers of a thread by kernel name, as `ptxas -v` tells them. Occupancy
    /// leaves registers out for a kernel that is not here.
    pub registers: BTreeMap<String, u32>,
    /// Moves the starts of the buffers off their boundary of 256 bytes.
    pub offsets: BufferOffsets,
    /// Several threads may write an element of C, if the bits agree.
    pub overlapping_writes: bool,
    /// Report elements of A and B that no thread reads.
    pub check_inputs_read: bool,
    /// Faults that the report lists, at most. All are counted.
    pub max_faults: usize,
    /// Device API calls that a thread may make between two barriers or waits.
    /// One that makes more is taken for one that never ends.
    pub max_steps: u64,
    /// Bytes of each thread's stack, rounded up to pages. A guard page lies
    /// below: a kernel that needs more ends the process.
    pub stack_bytes: usize,
}

impl Default for Options {
    /// sm_90, no registers known, aligned buffers, every check on, 20 faults,
    /// 2^26 steps, stacks of 64 KiB.
    fn default() -> Self {
        Self {
            architecture: Architecture::SM_90,
            registers: BTreeMap::new(),
            offsets: BufferOffsets::default(),
            overlapping_writes: false,
            check_inputs_read: true,
            max_faults: 20,
            max_steps: 1 << 26,
            stack_bytes: 64 << 10,
        }
    }
}

/// How far buffers start behind a boundary of 256 bytes, in 4-byte words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferOffsets {
    /// Of A.
    pub a: u32,
    /// Of B.
    pub b: u32,
    /// Of C.
    pub c: u32,
    /// Of the workspace.
    pub workspace: u32,
}

/// The content of A and B, and the size of C.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// The content of A.
    pub a: &'a [f32],
    /// The content of B.
    pub b: &'a [f32],
    /// Elements of C. It holds NaN before the first launch.
    pub c_elements: usize,
    /// The matrices' shape, by which faults name rows and columns.
    pub shape: Option<Shape>,
}

/// Why there is no clean report.
#[derive(Debug)]
#[non_exhaustive]
pub enum SimulationError {
    /// The variant has no plan for this shape on this architecture, or a launch
    /// breaks one of its limits.
    Plan(PlanError),
    /// A launch without blocks or threads, or with more than can be numbered.
    Grid {
        /// The kernel.
        kernel: &'static str,
        /// Blocks in the grid.
        blocks: u64,
        /// Threads in a block.
        threads: u64,
    },
    /// An operand's length is not that of its shape.
    OperandLength {
        /// "A" or "B".
        operand: &'static str,
        /// Elements that the shape has.
        expected: u64,
        /// Elements given.
        found: u64,
    },
    /// C or the workspace does not fit in this machine's memory.
    Memory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// There was no memory for the threads' stacks.
    Stack(io::Error),
    /// The checks found faults. The report has them, and all else.
    Faults(Box<Report>),
}

impl fmt::Display for SimulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::Grid {
                kernel,
                blocks,
                threads,
            } => write!(
                f,
                "{kernel} would be launched with {blocks} blocks of {threads} threads; a launch \
                 has 1 to {MAX_BLOCKS} blocks of 1 to 1024 threads here"
            ),
            Self::OperandLength {
                operand,
                expected,
                found,
            } => write!(
                f,
                "{operand} has {found} elements, and its shape asks for {expected}"
            ),
            Self::Memory { bytes } => write!(
                f,
                "the simulated memory takes {bytes} bytes, more than this machine gives; choose a \
                 smaller problem"
            ),
            Self::Stack(error) => write!(
                f,
                "no memory for the simulated threads' stacks ({error}); use fewer cores \
                 (RAYON_NUM_THREADS)"
            ),
            Self::Faults(report) => report.write_faults(f),
        }
    }
}

impl std::error::Error for SimulationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Plan(error) => Some(error),
            Self::Stack(error) => Some(error),
            _ => None,
        }
    }
}

impl From<PlanError> for SimulationError {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}

/// Simulates a variant's product of A (M×K) and B (K×N), both row-major.
///
/// # Errors
///
/// [`SimulationError::Faults`] where a check fails, with the report in it; the
/// others where nothing could be run.
pub fn simulate(
    variant: &Variant,
    shape: Shape,
    a: &[f32],
    b: &[f32],
    options: &Options,
) -> Result<Report, SimulationError> {
    for (operand, expected, found) in [
        ("A", shape.a_elements(), a.len() as u64),
        ("B", shape.b_elements(), b.len() as u64),
    ] {
        if expected != found {
            return Err(SimulationError::OperandLength {
                operand,
                expected,
                found,
            });
        }
    }
    let plan = variant.plan(shape, &options.architecture.limits())?;
    let c_elements = usize::try_from(shape.c_elements()).map_err(|_| SimulationError::Memory {
        bytes: shape.c_elements().saturating_mul(4),
    })?;
    let operands = Operands {
        a,
        b,
        c_elements,
        shape: Some(shape),
    };
    let options = Options {
        overlapping_writes: options.overlapping_writes || variant.overlapping_writes,
        ..options.clone()
    };
    let named = |mut report: Report| {
        report.variant = Some(variant.name);
        report
    };
    match run(&plan, operands, &options) {
        Ok(report) => Ok(named(report)),
        Err(SimulationError::Faults(report)) => {
            Err(SimulationError::Faults(Box::new(named(*report))))
        }
        Err(error) => Err(error),
    }
}

/// Simulates a plan's launches, in order.
///
/// # Errors
///
/// As [`simulate`].
pub fn run(
    plan: &Plan,
    operands: Operands<'_>,
    options: &Options,
) -> Result<Report, SimulationError> {
    note_kernel_panics();
    let limits = options.architecture.limits();
    check_launches(plan, &limits)?;
    let mut memory = new_memory(plan, operands, options)?;

    let mut faults = Vec::new();
    let mut launches = Vec::new();
    let mut abandoned = 0;
    // Places that write C, and that read A and B.
    let mut users = [None; 3];
    for (index, launch) in plan.launches.iter().enumerate() {
        if let Some(fault) = shared_limit_fault(launch, index, &limits) {
            faults.push(fault);
            abandoned += 1;
            continue;
        }
        let (context, mut findings) = run_launch(launch, memory, options)?;
        let places = context.sites.places();
        memory = context.memory;
        let mut list = mem::take(&mut findings.faults);
        let ledger = context
            .ledger
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        memory.settle(ledger, options.overlapping_writes, &mut list);
        abandoned += findings.abandoned;
        let naming = Naming {
            launch,
            index,
            places: &places,
            shape: operands.shape,
        };
        faults.extend(
            list.into_sorted(&places)
                .into_iter()
                .map(|entry| naming.fault(entry)),
        );
        let report = launch_report(launch, &findings, &places, options);
        for line in &report.lines {
            for (array, user) in users.iter_mut().enumerate() {
                let uses = if array == C {
                    line.counters.global_store.requests > 0
                } else {
                    line.counters.global_load.requests > 0
                };
                if uses && line.arrays.contains(&NAMES[array]) && user.is_none() {
                    *user = Some((index, line.place));
                }
            }
        }
        launches.push(report);
    }
    if abandoned == 0 && !plan.launches.is_empty() {
        let never = |kind, array: usize, missing: Option<(usize, u64)>, detail| {
            let (first, count) = missing?;
            let (launch, place) = match users[array] {
                Some((launch, place)) => (launch, Some(place)),
                None => (plan.launches.len() - 1, None),
            };
            let mut fault = RawFault::new(kind);
            fault.array = ArrayId::Global(array as u8);
            fault.offset = first as i64 * 4;
            fault.address = Some(memory.base(array) + first as u64 * 4);
            fault.array_bytes = memory.array_bytes(array);
            fault.detail = Cow::Borrowed(detail);
            let naming = Naming {
                launch: &plan.launches[launch],
                index: launch,
                places: &[],
                shape: operands.shape,
            };
            let entry = Entry {
                fault,
                occurrences: count,
                order: 0,
            };
            Some(Fault {
                place,
                ..naming.fault(entry)
            })
        };
        if options.check_inputs_read {
            for array in [0, 1] {
                let missing = memory.never_read(array);
                faults.extend(never(
                    FaultKind::NeverRead,
                    array,
                    missing,
                    "this is a place that reads the array",
                ));
            }
        }
        let missing = memory.never_written();
        faults.extend(never(
            FaultKind::NeverWritten,
            C,
            missing,
            "this is a place that writes the array",
        ));
    }

    let mut report = Report {
        variant: None,
        architecture: options.architecture.name(),
        shape: operands
            .shape
            .map(|shape| [shape.m(), shape.n(), shape.k()]),
        launches,
        fault_totals: BTreeMap::new(),
        faults,
        c: memory.c(),
        workspace: memory.workspace(),
    };
    for fault in &report.faults {
        *report.fault_totals.entry(fault.kind).or_default() += fault.occurrences;
    }
    report.faults.truncate(options.max_faults);
    if report.fault_totals.is_empty() {
        Ok(report)
    } else {
        Err(SimulationError::Faults(Box::new(report)))
    }
}

fn check_launches(plan: &Plan, limits: &DeviceLimits) -> Result<(), SimulationError> {
    for launch in &plan.launches {
        let (blocks, threads) = (launch.grid().count(), launch.block().count());
        if blocks == 0 || blocks > MAX_BLOCKS || threads == 0 || threads > 1024 {
            return Err(SimulationError::Grid {
                kernel: launch.entry().name,
                blocks,
                threads,
            });
        }
    }
    // Too much shared memory is one of the faults, not a reason to run nothing.
    let any_shared = DeviceLimits {
        max_shared_bytes_per_block: u32::MAX,
        ..limits.clone()
    };
    any_shared.check(plan)?;
    Ok(())
}

fn new_memory(
    plan: &Plan,
    operands: Operands<'_>,
    options: &Options,
) -> Result<GlobalMemory, SimulationError> {
    // Asked for once, so that a problem far too large is an error here and not
    // an abort in an allocation. Five columns of the ledger per word of 4 bytes.
    let words = (operands.c_elements as u64).saturating_add(plan.workspace_bytes / 4);
    let bytes = words.saturating_mul(4 + 4 + 4 * 8);
    let mut probe = Vec::<u8>::new();
    usize::try_from(bytes)
        .ok()
        .and_then(|bytes| probe.try_reserve_exact(bytes).ok())
        .ok_or(SimulationError::Memory { bytes })?;
    drop(probe);
    let BufferOffsets { a, b, c, workspace } = options.offsets;
    Ok(GlobalMemory::new(
        operands.a,
        operands.b,
        operands.c_elements,
        plan.workspace_bytes,
        [a, b, c, workspace],
    ))
}

/// The most that a kernel may declare; beyond it, memory must be dynamic. CUDA
/// C++ Programming Guide, Technical Specifications per Compute Capability.
const MAX_STATIC_SHARED: u32 = 48 << 10;

fn shared_limit_fault(launch: &Launch, index: usize, limits: &DeviceLimits) -> Option<Fault> {
    let declared = launch.entry().static_shared_bytes;
    let all = launch
        .entry()
        .static_shared_bytes
        .saturating_add(launch.dynamic_shared_bytes());
    let detail = if declared > MAX_STATIC_SHARED {
        format!("it declares {declared} bytes, and a kernel may declare {MAX_STATIC_SHARED}")
    } else if all > limits.max_shared_bytes_per_block {
        format!(
            "a block takes {all} bytes, and compute capability {} gives it {}",
            limits.compute_capability, limits.max_shared_bytes_per_block
        )
    } else {
        return None;
    };
    let mut fault = RawFault::new(FaultKind::SharedMemoryLimit);
    fault.detail = Cow::Owned(detail);
    let naming = Naming {
        launch,
        index,
        places: &[],
        shape: None,
    };
    Some(naming.fault(Entry {
        fault,
        occurrences: 1,
        order: 0,
    }))
}

/// Most coroutines that are suspended at once. Each stack is two mappings, its
/// guard page and the rest, and Linux gives a process 65,530.
const MAX_STACKS: u64 = 24_000;

fn run_launch(
    launch: &Launch,
    memory: GlobalMemory,
    options: &Options,
) -> Result<(Context, Findings), SimulationError> {
    let mut writable = [false; 4];
    for (argument, parameter) in launch.arguments().iter().zip(launch.entry().parameters) {
        if let (&Argument::Pointer(buffer), ParameterKind::PointerMut) = (argument, parameter.kind)
        {
            writable[GlobalMemory::array(buffer)] = true;
        }
    }
    let context = Arc::new(Context {
        launch: launch.clone(),
        ledger: Mutex::new(Ledger::new(&memory, writable)),
        memory,
        writable,
        sites: Sites::default(),
        // What the launch gives counts as the kernel's own arrays do.
        shared_limit: MAX_STATIC_SHARED.max(launch.shared_bytes()),
        overlap: options.overlapping_writes,
        max_steps: options.max_steps,
        stack_bytes: options.stack_bytes.max(16 << 10),
    });
    let together = context.cluster_blocks() as u64;
    let clusters = launch.grid().count() / together;
    let threads = launch.block().count() * together;
    let workers = (rayon::current_num_threads() as u64)
        .min(MAX_STACKS / threads)
        .min(clusters)
        .max(1);
    // Chunks, so that tiny blocks don't fight over the counter.
    let chunk = (clusters / (workers * 64)).clamp(1, 64);
    let next = AtomicU64::new(0);
    let findings = (0..workers)
        .into_par_iter()
        .map(|_| {
            let mut worker = Worker::new(Arc::clone(&context));
            loop {
                let first = next.fetch_add(chunk, Ordering::Relaxed);
                if first >= clusters {
                    return Ok(worker.into_findings());
                }
                for cluster in first..(first + chunk).min(clusters) {
                    worker.run_cluster(cluster)?;
                }
            }
        })
        .collect::<io::Result<Vec<Findings>>>()
        .map_err(SimulationError::Stack)?;
    let merged = findings
        .into_iter()
        .reduce(merge)
        .unwrap_or_else(|| Worker::new(Arc::clone(&context)).into_findings());
    match Arc::try_unwrap(context) {
        Ok(context) => Ok((context, merged)),
        // Every worker is gone, and with it its share.
        Err(_) => unreachable!("a worker outlived its launch"),
    }
}

fn merge(mut into: Findings, from: Findings) -> Findings {
    into.faults.extend(from.faults);
    if from.counters.len() > into.counters.len() {
        into.counters
            .resize(from.counters.len(), Counters::default());
    }
    for (sum, counters) in into.counters.iter_mut().zip(&from.counters) {
        *sum += counters;
    }
    if from.touched.len() > into.touched.len() {
        into.touched.resize(from.touched.len(), 0);
    }
    for (all, touched) in into.touched.iter_mut().zip(&from.touched) {
        *all |= touched;
    }
    if from.shared_arrays.len() > into.shared_arrays.len() {
        into.shared_arrays = from.shared_arrays;
    }
    into.shared_bytes = into.shared_bytes.max(from.shared_bytes);
    into.abandoned += from.abandoned;
    into
}

fn launch_report(
    launch: &Launch,
    findings: &Findings,
    places: &[Place],
    options: &Options,
) -> LaunchReport {
    let mut total = Counters::default();
    let mut lines = Vec::new();
    for (site, counters) in findings.counters.iter().enumerate() {
        total += counters;
        let touched = findings.touched.get(site).copied().unwrap_or(0);
        let shared = findings.shared_arrays.iter().enumerate();
        let arrays = NAMES
            .into_iter()
            .enumerate()
            .chain(shared.map(|(i, name)| (i + SHARED_BIT as usize, *name)))
            .filter(|&(bit, _)| bit < 32 && touched >> bit & 1 != 0)
            .map(|(_, name)| name)
            .collect();
        if *counters != Counters::default() {
            lines.push(LineReport {
                place: places[site],
                arrays,
                counters: *counters,
            });
        }
    }
    lines.sort_by_key(|line| line.place);
    let threads = launch.block().count() as u32;
    // What the launch gives is the kernel's dynamic arrays, which were declared
    // like any other, and maybe more.
    let shared_bytes = findings.shared_bytes.max(launch.shared_bytes());
    let registers = options.registers.get(launch.entry().name).copied();
    let extent = |dim: kernels::launch::Dim3| [dim.x, dim.y, dim.z];
    LaunchReport {
        kernel: launch.entry().name,
        grid: extent(launch.grid()),
        cluster: launch.cluster_blocks().max(1),
        block: extent(launch.block()),
        shared_bytes,
        arithmetic_intensity: total.arithmetic_intensity(),
        metrics: profiler_metrics(&total),
        occupancy: occupancy(options.architecture, threads, registers, shared_bytes),
        counters: total,
        lines,
    }
}

/// Gives faults their names.
struct Naming<'a> {
    launch: &'a Launch,
    index: usize,
    places: &'a [Place],
    shape: Option<Shape>,
}

impl Naming<'_> {
    fn fault(&self, entry: Entry) -> Fault {
        let Entry {
            fault, occurrences, ..
        } = entry;
        let block = |id: ThreadId| unravel(id.block, self.launch.grid());
        let thread = |id: ThreadId| unravel(u64::from(id.thread), self.launch.block());
        let place = |site: u16| self.places.get(usize::from(site)).copied();
        Fault {
            kind: fault.kind,
            kernel: self.launch.entry().name,
            launch: self.index,
            block: fault.by.map(block),
            thread: fault.by.map(thread),
            place: fault.site.and_then(place),
            address: fault.address,
            element: self.element(&fault),
            other: fault.other.map(|(what, id, site)| Other {
                what,
                block: block(id),
                thread: thread(id),
                place: site.and_then(place),
            }),
            detail: fault.detail.into_owned(),
            occurrences,
        }
    }

    fn element(&self, fault: &RawFault) -> Option<Element> {
        let (array, columns) = match fault.array {
            ArrayId::None => return None,
            ArrayId::Shared(name) => (name, None),
            ArrayId::Global(id) => {
                let columns = self.shape.and_then(|shape| match usize::from(id) {
                    0 => Some(shape.k()),
                    1 | C => Some(shape.n()),
                    _ => None,
                });
                (NAMES[usize::from(id)], columns)
            }
        };
        let bytes = fault.element_bytes.max(1);
        let index = fault.offset.div_euclid(i64::from(bytes));
        let row_column = match (u64::try_from(index), columns) {
            (Ok(index), Some(columns)) if columns > 0 => {
                let columns = u64::from(columns);
                Some((index / columns, index % columns))
            }
            _ => None,
        };
        Some(Element {
            array: array.to_owned(),
            index,
            len: fault.array_bytes / u64::from(bytes),
            row_column,
        })
    }
}
