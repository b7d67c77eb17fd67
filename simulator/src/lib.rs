//! Runs the GPU kernels on the CPU, thread by thread, checks every access and
//! counts what a profiler would count. No GPU is needed.
//!
//! It is the kernels' own source that runs: the device API's `host` backend
//! hands each call to the machine in this crate, with the place in the source
//! that made it. [`simulate`] takes a variant and a shape, [`run()`] any plan.
//! Both give a [`Report`]: the result, the [`Counters`] of each launch and of
//! each place in its source, and the [occupancy](Occupancy) it can reach. A
//! simulation that finds a fault is an error, [`SimulationError::Faults`], that
//! holds the report all the same.
//!
//! # How it is built
//!
//! | module | its part |
//! |---|---|
//! | `block` | the threads of a cluster's blocks as coroutines, their scheduler, the machine they call |
//! | `warp` | from lanes' accesses to warps' requests: sectors, banks |
//! | `memory` | global memory, and what blocks of one launch do to one another |
//! | `shared` | a block's shared memory |
//! | `history` | who touched a word since the last barrier: races |
//! | `order` | what is ordered after what, where copies run beside threads or blocks in clusters |
//! | `sites` | call sites as numbers |
//! | `counters`, `occupancy`, `arch` | the counters' names and formulas, and the limits of each architecture |
//! | `fault`, `report`, `explain` | what is told, in structures and as text |
//!
//! Blocks of a launch run in parallel, on the rayon pool of the caller; those of
//! one cluster run together. No block sees what another writes to global memory
//! during a launch, threads run in a fixed order, and what blocks found is merged
//! in a way that does not depend on who came first. So a report is the same on
//! any number of cores.
//!
//! # What is not modelled
//!
//! - Time. Nothing here says how fast a kernel is.
//! - Caches. Sectors are what warps request of L1; how many reach L2 or DRAM
//!   depends on what the caches hold.
//! - Compilers. A counter says what the source asks for. ptxas joins neighbouring
//!   shared loads, LLVM hoists and removes loads; see
//!   [`SharedCounters::vectorized_requests`].
//! - Registers, spills and local memory; occupancy takes the number of registers
//!   from the caller, who has it from ptxas.
//! - What blocks of a launch tell each other through global memory: any of it is
//!   a race.
//! - Order within a warp beyond barriers: lanes of one warp race like any other
//!   threads.
//! - Which of several values a race would leave: the report names the race.
//! - Offsets between parts of the workspace: it is one array, so an access past
//!   the end of one part that lands in another is not seen.

mod arch;
mod block;
mod counters;
mod explain;
mod fault;
mod history;
mod memory;
mod occupancy;
mod order;
mod report;
mod run;
mod shared;
mod sites;
mod warp;

pub use arch::{Architecture, UnknownArchitecture};
pub use counters::{
    ClusterCounters, Counters, FlopCounters, GlobalCounters, Metric, SECTOR_BYTES, SharedCounters,
    profiler_metrics,
};
pub use explain::{Explanation, ExplanationRow, explain};
pub use fault::{Element, Fault, FaultKind, Other};
pub use occupancy::{Occupancy, Resource, occupancy};
pub use report::{LaunchReport, LineReport, Report};
pub use run::{BufferOffsets, Operands, Options, SimulationError, run, simulate};
pub use sites::Place;
