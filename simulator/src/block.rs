//! Runs blocks: their threads as coroutines, and the machine that they call.
//!
//! | module | its part |
//! |---|---|
//! | `schedule` | which thread runs, and when all wait or one has gone wrong |
//! | `machine` | the device API's calls |
//! | `access` | loads and stores |
//! | `asynchronous` | asynchronous copies, barriers in shared memory and of warps |
//! | `state` | what is known of the running block, and its faults |
//! | `panics` | panics in kernels |

mod access;
mod asynchronous;
mod machine;
mod panics;
mod schedule;
mod state;

use crate::counters::Counters;
use crate::fault::FaultList;
use crate::memory::{GlobalMemory, Ledger, Writable};
use crate::sites::Sites;
use corosensei::stack::DefaultStack;
use kernels::gpu::host::{self, Position};
use kernels::launch::{Dim3, Launch};
use machine::BlockMachine;
use schedule::BlockRun;
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

/// Runs blocks, one after the other.
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

    /// Runs a block to its end, or until it cannot go on.
    ///
    /// # Errors
    ///
    /// There is no memory for a thread's stack.
    pub(crate) fn run_block(&mut self, block: u64) -> io::Result<()> {
        let machine = &*self.machine;
        let grid = machine.context.launch.grid();
        let extent = machine.context.launch.block();
        machine.state.borrow_mut().begin_block(block);
        machine.position.set(Position {
            thread_idx: [0; 3],
            block_idx: unravel(block, grid),
            block_dim: [extent.x, extent.y, extent.z],
            grid_dim: [grid.x, grid.y, grid.z],
        });
        let mut run = BlockRun::new(machine, &mut self.stacks);
        let outcome = host::with_machine(machine, || {
            let outcome = run.run_to_end();
            run.cancel();
            outcome
        });
        let state = &mut *machine.state.borrow_mut();
        if !state.accesses.is_empty() {
            machine
                .context
                .ledger
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .commit(block, &mut state.accesses);
        }
        if !outcome? {
            state.abandoned_blocks += 1;
        }
        Ok(())
    }

    pub(crate) fn into_findings(self) -> Findings {
        self.machine.state.into_inner().into_findings()
    }
}
