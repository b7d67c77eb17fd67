//! Runs blocks: their threads as coroutines, and the machine that they call.
//!
//! The blocks of a cluster run together, on one core. A block without a cluster
//! is a cluster by itself.
//!
//! | module | its part |
//! |---|---|
//! | `schedule` | which thread runs, and when all wait or one has gone wrong |
//! | `machine` | the device API's calls |
//! | `access` | loads and stores |
//! | `asynchronous` | asynchronous copies, barriers in shared memory and of warps |
//! | `cluster` | the barrier of a cluster's blocks, and their accesses to one another |
//! | `state` | what is known of the running cluster, and its faults |
//! | `panics` | panics in kernels |

mod access;
mod asynchronous;
mod cluster;
mod machine;
mod panics;
mod schedule;
mod state;

use crate::counters::Counters;
use crate::fault::FaultList;
use crate::memory::{GlobalMemory, Ledger, Writable};
use crate::sites::Sites;
use corosensei::stack::DefaultStack;
use kernels::gpu::host;
use kernels::launch::{Dim3, Launch};
use machine::BlockMachine;
use schedule::ClusterRun;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use panics::note_kernel_panics;
pub(crate) use state::SHARED_BIT;

/// What a launch's blocks have in common.
pub(crate) struct Context {
    pub(crate) launch: Launch,
    pub(crate) memory: GlobalMemory,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) writable: Writable,
    pub(crate) sites: Sites,
    /// The most shared memory that a block's arrays may take, in bytes.
    pub(crate) shared_limit: u32,
    /// Several threads may write the same bits to an element of C.
    pub(crate) overlap: bool,
    pub(crate) max_steps: u64,
    pub(crate) stack_bytes: usize,
}

impl Context {
    /// Blocks in a cluster.
    pub(crate) fn cluster_blocks(&self) -> usize {
        self.launch.cluster_blocks().max(1) as usize
    }

    /// Threads in a cluster.
    fn cluster_threads(&self) -> u64 {
        self.launch.block().count() * self.cluster_blocks() as u64
    }
}

/// What a worker found in the blocks that it ran.
pub(crate) struct Findings {
    pub(crate) faults: FaultList,
    /// By site.
    pub(crate) counters: Vec<Counters>,
    /// By site: a bit for each array of global memory, then for each shared one.
    pub(crate) touched: Vec<u32>,
    pub(crate) shared_arrays: Vec<&'static str>,
    /// Bytes of shared memory that the arrays of one block take.
    pub(crate) shared_bytes: u32,
    /// Blocks that did not come to their end.
    pub(crate) abandoned: u64,
}

/// Runs clusters, one after the other.
pub(crate) struct Worker {
    machine: Box<BlockMachine>,
    stacks: Vec<DefaultStack>,
}

/// x, y, z of the linear index `i`.
pub(crate) fn unravel(i: u64, extent: Dim3) -> [u32; 3] {
    let (x, y) = (u64::from(extent.x), u64::from(extent.y));
    [(i % x) as u32, (i / x % y) as u32, (i / x / y) as u32]
}

impl Worker {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self {
            machine: Box::new(BlockMachine::new(context)),
            stacks: Vec::new(),
        }
    }

    /// Runs the blocks of a cluster to their end, or until they cannot go on.
    /// Clusters have numbers like blocks: the blocks of one are neighbours.
    ///
    /// # Errors
    ///
    /// There is no memory for a thread's stack.
    pub(crate) fn run_cluster(&mut self, cluster: u64) -> io::Result<()> {
        let machine = &*self.machine;
        let blocks = machine.context.cluster_blocks();
        machine
            .state
            .borrow_mut()
            .begin_cluster(cluster * blocks as u64);
        let mut run = ClusterRun::new(machine, &mut self.stacks);
        let outcome = host::with_machine(machine, || {
            let outcome = run.run_to_end();
            run.cancel();
            outcome
        });
        let state = &mut *machine.state.borrow_mut();
        for rank in 0..blocks {
            let block = state.block_mut(rank);
            if !block.accesses.is_empty() {
                machine
                    .context
                    .ledger
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .commit(block.number, &mut block.accesses);
            }
        }
        if !outcome? {
            state.abandoned_blocks += blocks as u64;
        }
        Ok(())
    }

    pub(crate) fn into_findings(self) -> Findings {
        self.machine.state.into_inner().into_findings()
    }
}
