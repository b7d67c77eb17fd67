//! Runs the threads of a cluster's blocks as coroutines.
//!
//! Threads run one at a time, block after block in order, each until it comes to
//! a barrier, to a wait or to its end. When all have, it is decided who goes on:
//!
//! - all threads of a block stand at one barrier: they pass it, and a new epoch
//!   starts;
//! - none of them waits, and some have returned or stand at another barrier: a
//!   barrier divergence;
//! - all threads of the cluster have arrived at its barrier: those that wait there
//!   go on;
//! - some wait for a condition: all those look again, unless nothing has happened
//!   since they last did, which is a deadlock.
//!
//! Where nobody goes on, the cluster's barrier is one that not all reached.
//!
//! A kernel can behave differently under another order of its threads only if
//! it has a race, and races are found whatever the order: they follow from who
//! touched what between which barriers.
//!
//! A block that cannot go on is abandoned, and with it its cluster: the suspended
//! threads are resumed once more and unwind, so that their stacks can be used
//! again. Unwinding starts by `resume_unwind`, which calls no panic hook.

use super::machine::BlockMachine;
use super::panics::{KernelPanic, LAST_PANIC, in_kernel};
use super::state::State;
use super::unravel;
use crate::fault::{FaultKind, RawFault, ThreadId};
use crate::sites::SiteId;
use crate::warp::LANES;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use kernels::gpu::host::Position;
use kernels::launch::Dim3;
use std::borrow::Cow;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::{io, ptr};

/// Calls that a thread makes before the warp's other lanes get their turn. Keeps
/// what a warp writes down within a core's cache.
const QUANTUM: u32 = 1024;

/// Why a thread stopped for now.
#[derive(Clone, Copy)]
pub(super) enum Pause {
    Barrier(SiteId),
    /// For that phase of the cluster's barrier to end.
    Cluster(SiteId, u32),
    Wait(SiteId),
    Quantum(SiteId),
}

/// How a thread ended.
enum End {
    Returned,
    Cancelled,
    Panicked(KernelPanic),
}

/// The payload that unwinds a thread of an abandoned block.
pub(super) struct Cancelled;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Ready,
    Running,
    Barrier(SiteId),
    Cluster(SiteId, u32),
    Wait(SiteId),
    Returned,
    Panicked,
}

type Threads = Coroutine<(), Pause, End, DefaultStack>;

struct Thread {
    coroutine: Option<Threads>,
    yielder: *const Yielder<(), Pause>,
    status: Status,
    /// Calls since the last barrier or wait, in whole quanta.
    steps: u64,
}

/// Where the threads of a block stand.
#[derive(Default)]
struct Standing {
    returned: usize,
    /// For a condition.
    waiting: usize,
    /// For the cluster's barrier.
    at_cluster: usize,
    /// The first thread at a barrier of the block, and the first at another.
    barrier: Option<(usize, SiteId)>,
    elsewhere: Option<(usize, SiteId)>,
    panicked: bool,
}

/// The blocks of a cluster, while they run.
pub(super) struct ClusterRun<'a> {
    machine: &'a BlockMachine,
    stacks: &'a mut Vec<DefaultStack>,
    /// Block after block.
    threads: Vec<Thread>,
    extent: Dim3,
    /// Threads of a block.
    of_block: usize,
}

impl<'a> ClusterRun<'a> {
    pub(super) fn new(machine: &'a BlockMachine, stacks: &'a mut Vec<DefaultStack>) -> Self {
        let extent = machine.context.launch.block();
        let threads = (0..machine.context.cluster_threads())
            .map(|_| Thread {
                coroutine: None,
                yielder: ptr::null(),
                status: Status::Ready,
                steps: 0,
            })
            .collect();
        Self {
            machine,
            stacks,
            threads,
            extent,
            of_block: extent.count() as usize,
        }
    }

    fn blocks(&self) -> usize {
        self.threads.len() / self.of_block
    }

    /// The threads of a block.
    fn threads_of(&self, rank: usize) -> Range<usize> {
        rank * self.of_block..(rank + 1) * self.of_block
    }

    /// Whether all threads came to their end.
    pub(super) fn run_to_end(&mut self) -> io::Result<bool> {
        let mut progress_before = None;
        loop {
            for rank in 0..self.blocks() {
                self.enter(rank);
                for first in self.threads_of(rank).step_by(LANES) {
                    if !self.run_warp(first)? {
                        return Ok(false);
                    }
                }
            }
            let mut moving = false;
            let mut total = Standing::default();
            for rank in 0..self.blocks() {
                let standing = self.standing(rank);
                // A panic ends the block: what follows would follow from it.
                if standing.panicked {
                    return Ok(false);
                }
                if standing.waiting + standing.at_cluster == 0
                    && let Some((first, site)) = standing.barrier
                {
                    if standing.returned > 0 || standing.elsewhere.is_some() {
                        self.report_divergence(rank, first, site, &standing);
                        return Ok(false);
                    }
                    self.pass_barrier(rank, site);
                    moving = true;
                }
                total.returned += standing.returned;
                total.waiting += standing.waiting;
                total.at_cluster += standing.at_cluster;
            }
            if total.returned == self.threads.len() {
                self.machine.state.borrow_mut().end_cluster();
                return Ok(true);
            }
            if total.at_cluster > 0 {
                moving |= self.pass_cluster();
            }
            if total.waiting > 0 {
                let progress = self.machine.progress.get();
                if moving || progress_before != Some(progress) {
                    progress_before = Some(progress);
                    for thread in &mut self.threads {
                        if matches!(thread.status, Status::Wait(_)) {
                            thread.status = Status::Ready;
                        }
                    }
                    moving = true;
                }
            }
            if !moving {
                if total.waiting > 0 {
                    self.report_deadlock(&total);
                } else {
                    self.report_cluster_divergence(&total);
                }
                return Ok(false);
            }
        }
    }

    /// Makes a block the one whose threads run.
    fn enter(&self, rank: usize) {
        let state = &mut *self.machine.state.borrow_mut();
        state.enter(rank);
        let (grid, block) = (self.machine.context.launch.grid(), self.extent);
        self.machine.position.set(Position {
            thread_idx: [0; 3],
            block_idx: unravel(state.block.number, grid),
            block_dim: [block.x, block.y, block.z],
            grid_dim: [grid.x, grid.y, grid.z],
        });
    }

    fn standing(&self, rank: usize) -> Standing {
        let mut standing = Standing::default();
        for i in self.threads_of(rank) {
            match self.threads[i].status {
                Status::Returned => standing.returned += 1,
                Status::Wait(_) => standing.waiting += 1,
                Status::Cluster(..) => standing.at_cluster += 1,
                Status::Barrier(site) => match standing.barrier {
                    None => standing.barrier = Some((i, site)),
                    Some((_, known)) if known != site => {
                        standing.elsewhere.get_or_insert((i, site));
                    }
                    Some(_) => {}
                },
                Status::Panicked => standing.panicked = true,
                Status::Ready | Status::Running => {}
            }
        }
        standing
    }

    fn pass_barrier(&mut self, rank: usize, site: SiteId) {
        let state = &mut *self.machine.state.borrow_mut();
        let block = state.block_mut(rank);
        block.epoch += 1;
        if let Some(order) = &mut block.order {
            order.pass_block();
        }
        let counters = state.counters(site);
        counters.barriers += 1;
        counters.barrier_instructions += self.of_block.div_ceil(LANES) as u64;
        let own = self.threads_of(rank);
        for thread in &mut self.threads[own] {
            thread.status = Status::Ready;
        }
    }

    /// Lets those go on that wait for a phase of the cluster's barrier which has
    /// ended. Whether there are any.
    fn pass_cluster(&mut self) -> bool {
        let ended = self.machine.state.borrow().barrier.phase;
        let mut any = false;
        for thread in &mut self.threads {
            if matches!(thread.status, Status::Cluster(_, phase) if phase <= ended) {
                thread.status = Status::Ready;
                any = true;
            }
        }
        any
    }

    /// Runs a warp's ready lanes until none is. `false`: the block cannot go on.
    fn run_warp(&mut self, first: usize) -> io::Result<bool> {
        let end = first / self.of_block * self.of_block + self.of_block;
        let lanes = first..(first + LANES).min(end);
        loop {
            let mut running = 0;
            for i in lanes.clone() {
                if matches!(self.threads[i].status, Status::Ready | Status::Running) {
                    self.resume(i)?;
                    if self.threads[i].status == Status::Running {
                        running |= 1 << (i - first);
                        if self.threads[i].steps > self.machine.context.max_steps {
                            return Ok(false);
                        }
                    }
                }
            }
            let state = &mut *self.machine.state.borrow_mut();
            if running == 0 {
                state.log.fold_all(&mut state.counters);
                return Ok(true);
            }
            state.log.fold_passed(running, &mut state.counters);
        }
    }

    /// Runs a thread until it pauses or ends.
    fn resume(&mut self, i: usize) -> io::Result<()> {
        let machine = self.machine;
        let thread = &mut self.threads[i];
        let in_block = i % self.of_block;
        machine.state.borrow_mut().thread = in_block as u16;
        let mut position = machine.position.get();
        position.thread_idx = unravel(in_block as u64, self.extent);
        machine.position.set(position);
        machine.left.set(QUANTUM);

        let coroutine = match &mut thread.coroutine {
            Some(coroutine) => {
                machine.yielder.set(thread.yielder);
                coroutine
            }
            None => {
                let stack = match self.stacks.pop() {
                    Some(stack) => stack,
                    None => DefaultStack::new(machine.context.stack_bytes)?,
                };
                thread.coroutine.insert(start(stack, machine))
            }
        };
        let result = in_kernel(|| coroutine.resume(()));
        thread.yielder = machine.yielder.get();
        match result {
            CoroutineResult::Yield(Pause::Barrier(site)) => {
                thread.status = Status::Barrier(site);
                thread.steps = 0;
            }
            CoroutineResult::Yield(Pause::Cluster(site, phase)) => {
                thread.status = Status::Cluster(site, phase);
                thread.steps = 0;
            }
            CoroutineResult::Yield(Pause::Wait(site)) => {
                thread.status = Status::Wait(site);
                thread.steps = 0;
            }
            CoroutineResult::Yield(Pause::Quantum(site)) => {
                thread.status = Status::Running;
                thread.steps += u64::from(QUANTUM);
                if thread.steps > machine.context.max_steps {
                    let steps = thread.steps;
                    self.report_thread(
                        FaultKind::NoProgress,
                        i,
                        Some(site),
                        format!("more than {steps} calls since its last barrier"),
                    );
                }
            }
            CoroutineResult::Return(end) => {
                machine.happened();
                thread.status = Status::Returned;
                self.stacks
                    .extend(thread.coroutine.take().map(Coroutine::into_stack));
                if let End::Panicked(panic) = end {
                    thread.status = Status::Panicked;
                    let site = panic.place.map(|place| machine.context.sites.intern(place));
                    self.report_thread(FaultKind::Panic, i, site, panic.message);
                }
            }
        }
        Ok(())
    }

    /// Unwinds what is still suspended, and takes the stacks back.
    pub(super) fn cancel(&mut self) {
        self.machine.cancelled.set(true);
        for thread in &mut self.threads {
            if let Some(mut coroutine) = thread.coroutine.take() {
                self.machine.yielder.set(thread.yielder);
                // Its next instruction after the suspension is the unwinding.
                let end = coroutine.resume(());
                debug_assert!(matches!(end, CoroutineResult::Return(End::Cancelled)));
                if coroutine.done() {
                    self.stacks.push(coroutine.into_stack());
                }
            }
        }
        self.machine.cancelled.set(false);
        let state = &mut *self.machine.state.borrow_mut();
        state.log.fold_all(&mut state.counters);
    }

    /// A thread of the cluster as faults name it.
    fn id(&self, state: &State, thread: usize) -> ThreadId {
        ThreadId {
            block: state.number_of(thread / self.of_block),
            thread: (thread % self.of_block) as u16,
        }
    }

    fn report_thread(
        &self,
        kind: FaultKind,
        thread: usize,
        site: Option<SiteId>,
        detail: impl Into<Cow<'static, str>>,
    ) {
        let state = &mut *self.machine.state.borrow_mut();
        let mut fault = RawFault::new(kind);
        fault.by = Some(self.id(state, thread));
        fault.site = site;
        fault.detail = detail.into();
        state.report(fault);
    }

    fn report_deadlock(&self, total: &Standing) {
        let first = self
            .threads
            .iter()
            .enumerate()
            .find_map(|(i, thread)| match thread.status {
                Status::Wait(site) => Some((i, site)),
                _ => None,
            });
        if let Some((first, site)) = first {
            let &Standing {
                returned, waiting, ..
            } = total;
            let at_barrier = self.threads.len() - returned - waiting;
            self.report_thread(
                FaultKind::Deadlock,
                first,
                Some(site),
                format!(
                    "{waiting} threads wait here or elsewhere, {at_barrier} stand at a barrier, \
                     {returned} have returned"
                ),
            );
        }
    }

    /// Not all threads of a block came to the barrier where the first stands.
    fn report_divergence(&self, rank: usize, first: usize, site: SiteId, standing: &Standing) {
        let state = &mut *self.machine.state.borrow_mut();
        let of = |status: Status| {
            let threads = self.threads_of(rank);
            threads.filter(move |&i| self.threads[i].status == status)
        };
        let (threads, returned) = (self.of_block, standing.returned);
        let here = of(Status::Barrier(site)).count();
        let mut fault = RawFault::new(FaultKind::BarrierDivergence);
        fault.by = Some(self.id(state, first));
        fault.site = Some(site);
        fault.detail = Cow::Owned(format!(
            "{here} of {threads} threads wait here, {returned} have returned"
        ));
        fault.other = match (standing.elsewhere, of(Status::Returned).next()) {
            (Some((other, site)), _) => Some((ELSEWHERE, self.id(state, other), Some(site))),
            (None, Some(other)) => Some((MISSED, self.id(state, other), None)),
            (None, None) => None,
        };
        state.report(fault);
    }

    /// Some threads wait at the cluster's barrier, and no other can still come
    /// there.
    fn report_cluster_divergence(&self, total: &Standing) {
        let state = &mut *self.machine.state.borrow_mut();
        let first = self
            .threads
            .iter()
            .enumerate()
            .find_map(|(i, thread)| match thread.status {
                Status::Cluster(site, _) => Some((i, site)),
                _ => None,
            });
        let Some((first, site)) = first else { return };
        let mut fault = RawFault::new(FaultKind::BarrierDivergence);
        fault.by = Some(self.id(state, first));
        fault.site = Some(site);
        fault.detail = Cow::Owned(format!(
            "{} of the cluster's {} threads have arrived, {} have returned",
            state.barrier.arrived,
            self.threads.len(),
            total.returned
        ));
        fault.other = self.threads.iter().enumerate().find_map(|(i, thread)| {
            let id = self.id(state, i);
            let order = state.block_mut(i / self.of_block).order.as_ref();
            if order.is_some_and(|order| order.has_arrived(id.thread)) {
                return None;
            }
            match thread.status {
                Status::Barrier(site) => Some((ELSEWHERE, id, Some(site))),
                Status::Returned => Some((MISSED, id, None)),
                _ => None,
            }
        });
        state.report(fault);
    }
}

/// What a thread did that does not come to a barrier.
const ELSEWHERE: &str = "waited for at another barrier";
const MISSED: &str = "missed";

/// A coroutine that runs the kernel once.
///
/// The position and the rest of the machine's state are the scheduler's to set
/// before each resumption.
fn start(stack: DefaultStack, machine: &BlockMachine) -> Threads {
    let body = |yielder: &Yielder<(), Pause>, ()| {
        machine.yielder.set(yielder);
        let launch = &machine.context.launch;
        let address = |buffer| machine.context.memory.address(buffer);
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: this machine checks every access: it looks each address
            // up in its own tables and dereferences none.
            unsafe { launch.entry().run_thread(launch.arguments(), &address) }
        }));
        match result {
            Ok(()) => End::Returned,
            Err(payload) if payload.is::<Cancelled>() => End::Cancelled,
            Err(_) => End::Panicked(LAST_PANIC.take().unwrap_or_default()),
        }
    };
    // SAFETY: the closure borrows the machine, which outlives the coroutine:
    // `ClusterRun` borrows it too, and `cancel` ends every coroutine before
    // `run_cluster` returns.
    unsafe { Coroutine::with_stack_unchecked(stack, body) }
}
