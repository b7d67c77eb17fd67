//! Runs a block's threads as coroutines.
//!
//! Threads of a block run one at a time, in order, each until it comes to a
//! barrier, to a wait or to its end. When all have, the block decides:
//!
//! - all threads stand at one barrier: they pass it, and a new epoch starts;
//! - some wait for a condition: all those look again, unless nothing has
//!   happened since they last did, which is a deadlock;
//! - some have returned, or stand at another barrier: a barrier divergence.
//!
//! A kernel can behave differently under another order of its threads only if
//! it has a race, and races are found whatever the order: they follow from who
//! touched what between which barriers.
//!
//! A block that cannot go on is abandoned: its suspended threads are resumed
//! once more and unwind, so that their stacks can be used again. Unwinding
//! starts by `resume_unwind`, which calls no panic hook.

use super::machine::BlockMachine;
use super::panics::{KernelPanic, LAST_PANIC, in_kernel};
use super::unravel;
use crate::fault::{FaultKind, RawFault, ThreadId};
use crate::sites::SiteId;
use crate::warp::LANES;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use kernels::launch::Dim3;
use std::borrow::Cow;
use std::panic::{self, AssertUnwindSafe};
use std::{io, ptr};

/// Calls that a thread makes before the warp's other lanes get their turn. Keeps
/// what a warp writes down within a core's cache.
const QUANTUM: u32 = 1024;

/// Why a thread stopped for now.
#[derive(Clone, Copy)]
pub(super) enum Pause {
    Barrier(SiteId),
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

/// One block, while it runs.
pub(super) struct BlockRun<'a> {
    machine: &'a BlockMachine,
    stacks: &'a mut Vec<DefaultStack>,
    threads: Vec<Thread>,
    extent: Dim3,
}

impl<'a> BlockRun<'a> {
    pub(super) fn new(machine: &'a BlockMachine, stacks: &'a mut Vec<DefaultStack>) -> Self {
        let extent = machine.context.launch.block();
        let threads = (0..extent.count())
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
        }
    }

    /// Whether all threads came to their end.
    pub(super) fn run_to_end(&mut self) -> io::Result<bool> {
        let mut progress_before = None;
        loop {
            for first in (0..self.threads.len()).step_by(LANES) {
                if !self.run_warp(first)? {
                    return Ok(false);
                }
            }
            let mut returned = 0;
            let mut waiting = 0;
            let mut barrier = None;
            let mut elsewhere = None;
            for (i, thread) in self.threads.iter().enumerate() {
                match thread.status {
                    Status::Returned => returned += 1,
                    Status::Wait(_) => waiting += 1,
                    Status::Barrier(site) => match barrier {
                        None => barrier = Some((i, site)),
                        Some((_, known)) if known != site => {
                            elsewhere.get_or_insert((i, site));
                        }
                        Some(_) => {}
                    },
                    // A panic ends the block: what follows would follow from it.
                    Status::Panicked => return Ok(false),
                    Status::Ready | Status::Running => {}
                }
            }
            if returned == self.threads.len() {
                return Ok(true);
            }
            if waiting > 0 {
                let progress = self.machine.progress.get();
                if progress_before == Some(progress) {
                    self.report_deadlock(returned, waiting);
                    return Ok(false);
                }
                progress_before = Some(progress);
                for thread in &mut self.threads {
                    if matches!(thread.status, Status::Wait(_)) {
                        thread.status = Status::Ready;
                    }
                }
                continue;
            }
            let Some((first, site)) = barrier else {
                return Ok(false);
            };
            if returned > 0 || elsewhere.is_some() {
                self.report_divergence(first, site, elsewhere, returned);
                return Ok(false);
            }
            self.pass_barrier(site);
        }
    }

    fn pass_barrier(&mut self, site: SiteId) {
        let state = &mut *self.machine.state.borrow_mut();
        state.epoch += 1;
        if let Some(order) = &mut state.order {
            order.pass_block();
        }
        let counters = state.counters(site);
        counters.barriers += 1;
        counters.barrier_instructions += self.threads.len().div_ceil(LANES) as u64;
        for thread in &mut self.threads {
            thread.status = Status::Ready;
        }
    }

    /// Runs a warp's ready lanes until none is. `false`: the block cannot go on.
    fn run_warp(&mut self, first: usize) -> io::Result<bool> {
        let lanes = first..(first + LANES).min(self.threads.len());
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
        machine.state.borrow_mut().thread = i as u16;
        let mut position = machine.position.get();
        position.thread_idx = unravel(i as u64, self.extent);
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

    fn report_thread(
        &self,
        kind: FaultKind,
        thread: usize,
        site: Option<SiteId>,
        detail: impl Into<Cow<'static, str>>,
    ) {
        let state = &mut *self.machine.state.borrow_mut();
        let mut fault = RawFault::new(kind);
        fault.by = Some(ThreadId {
            block: state.block,
            thread: thread as u16,
        });
        fault.site = site;
        fault.detail = detail.into();
        state.report(fault);
    }

    fn report_deadlock(&self, returned: usize, waiting: usize) {
        let first = self
            .threads
            .iter()
            .enumerate()
            .find_map(|(i, thread)| match thread.status {
                Status::Wait(site) => Some((i, site)),
                _ => None,
            });
        if let Some((first, site)) = first {
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

    fn report_divergence(
        &self,
        first: usize,
        site: SiteId,
        elsewhere: Option<(usize, SiteId)>,
        returned: usize,
    ) {
        let state = &mut *self.machine.state.borrow_mut();
        let id = |thread: usize| ThreadId {
            block: state.block,
            thread: thread as u16,
        };
        let threads = self.threads.len();
        let here = self
            .threads
            .iter()
            .filter(|thread| thread.status == Status::Barrier(site))
            .count();
        let mut fault = RawFault::new(FaultKind::BarrierDivergence);
        fault.by = Some(id(first));
        fault.site = Some(site);
        fault.detail = Cow::Owned(format!(
            "{here} of {threads} threads wait here, {returned} have returned"
        ));
        let gone = self
            .threads
            .iter()
            .position(|thread| thread.status == Status::Returned);
        fault.other = match (elsewhere, gone) {
            (Some((other, site)), _) => {
                Some(("waited for at another barrier", id(other), Some(site)))
            }
            (None, Some(other)) => Some(("missed", id(other), None)),
            (None, None) => None,
        };
        state.report(fault);
    }
}

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
    // `BlockRun` borrows it too, and `cancel` ends every coroutine before
    // `run_block` returns.
    unsafe { Coroutine::with_stack_unchecked(stack, body) }
}
