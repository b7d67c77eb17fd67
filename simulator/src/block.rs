//! Runs a block: its threads as coroutines, and the machine that they call.
//!
//! # Scheduling
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
//!
//! Barriers in shared memory and those of a warp are waits. What they order,
//! [`Order`] knows.

use crate::counters::Counters;
use crate::fault::{ArrayId, FaultKind, FaultList, RawFault, ThreadId};
use crate::history::{Actor, Conflict, Did};
use crate::memory::{BlockAccesses, Finding, GlobalMemory, Ledger, POISON, Span, Writable};
use crate::order::{Clash, Misuse, Order};
use crate::shared::SharedMemory;
use crate::sites::{Place, SiteCache, SiteId, Sites};
use crate::warp::{AccessKind, LANES, WarpLog};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use kernels::gpu::host::{
    self, Access, Asynchronous, Machine, Operation, Position, Site, Space, TensorMap,
};
use kernels::launch::{Dim3, Launch};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::{io, ptr};

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

/// Calls that a thread makes before the warp's other lanes get their turn. Keeps
/// what a warp writes down within a core's cache.
const QUANTUM: u32 = 1024;

/// Epochs start again before they would overflow.
const LAST_EPOCH: u32 = 1 << 31;

/// Why a thread stopped for now.
#[derive(Clone, Copy)]
enum Pause {
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
struct Cancelled;

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

/// The machine behind the device API while a block runs.
struct BlockMachine {
    context: Arc<Context>,
    position: Cell<Position>,
    /// Of the running thread.
    yielder: Cell<*const Yielder<(), Pause>>,
    /// Calls left in the running thread's quantum.
    left: Cell<u32>,
    /// Threads unwind instead of going on.
    cancelled: Cell<bool>,
    /// Grows whenever a thread does what another may be waiting for.
    progress: Cell<u64>,
    state: RefCell<State>,
}

struct State {
    context: Arc<Context>,
    cache: SiteCache,
    log: WarpLog,
    shared: SharedMemory,
    /// In blocks that copy asynchronously, from their first such call on.
    order: Option<Box<Order>>,
    accesses: BlockAccesses,
    counters: Vec<Counters>,
    touched: Vec<u32>,
    shared_arrays: Vec<&'static str>,
    shared_bytes: u32,
    abandoned_blocks: u64,
    faults: FaultList,
    /// Faults found in the running block, to order them.
    found: u64,
    block: u64,
    thread: u16,
    epoch: u32,
}

impl State {
    fn actor(&self, site: SiteId) -> Actor {
        Actor {
            thread: self.thread,
            site,
            epoch: self.epoch,
        }
    }

    fn site(&mut self, site: Site) -> SiteId {
        self.cache.id(&self.context.sites, site)
    }

    #[inline]
    fn touch(&mut self, site: SiteId, array: u32) {
        let site = usize::from(site);
        if site >= self.touched.len() {
            self.touched.resize(site + 1, 0);
        }
        self.touched[site] |= 1 << array.min(31);
    }

    fn me(&self) -> ThreadId {
        ThreadId {
            block: self.block,
            thread: self.thread,
        }
    }

    fn report(&mut self, fault: RawFault) {
        self.faults.add(fault, self.found);
        self.found += 1;
    }

    fn access_fault(&self, kind: FaultKind, site: SiteId, access: &Access) -> RawFault {
        let mut fault = RawFault::new(kind);
        fault.by = Some(self.me());
        fault.site = Some(site);
        fault.address = Some(access.address);
        fault.element_bytes = access.element_bytes;
        fault
    }

    #[cold]
    fn report_global(
        &mut self,
        kind: FaultKind,
        site: SiteId,
        access: &Access,
        array: Option<(usize, i64)>,
        other: Option<Conflict>,
        detail: impl Into<Cow<'static, str>>,
    ) {
        let mut fault = self.access_fault(kind, site, access);
        if let Some((array, offset)) = array {
            fault.array = ArrayId::Global(array as u8);
            fault.offset = offset;
            fault.array_bytes = self.context.memory.array_bytes(array);
        }
        self.finish_report(fault, other, detail.into());
    }

    #[cold]
    fn report_shared(
        &mut self,
        kind: FaultKind,
        site: SiteId,
        access: &Access,
        array: Option<(crate::shared::SharedArray, i64)>,
        other: Option<Conflict>,
        detail: impl Into<Cow<'static, str>>,
    ) {
        let mut fault = self.access_fault(kind, site, access);
        if let Some((array, offset)) = array {
            fault.array = ArrayId::Shared(array.name);
            fault.offset = offset;
            fault.array_bytes = u64::from(array.bytes);
        }
        self.finish_report(fault, other, detail.into());
    }

    fn finish_report(
        &mut self,
        mut fault: RawFault,
        other: Option<Conflict>,
        detail: Cow<'static, str>,
    ) {
        fault.detail = detail;
        fault.other = other.map(|(what, thread, site)| {
            let block = self.block;
            (what.name(), ThreadId { block, thread }, Some(site))
        });
        self.report(fault);
    }

    /// Notes the requests that an access is part of. One of more than 16 bytes
    /// is several, as no instruction moves more for a thread.
    #[inline]
    fn record(&mut self, site: SiteId, access: &Access, store: bool, bytes: usize) {
        let lane = usize::from(self.thread) % LANES;
        let kind = AccessKind::new(access.space, store, bytes.min(16));
        self.log.record(site, kind, lane, access.address);
        for part in 1..bytes >> 4 {
            let address = access.address + 16 * part as u64;
            self.log.record(site, kind, lane, address);
        }
    }

    #[inline]
    fn load(&mut self, access: Access, value: &mut [u8]) {
        let site = self.site(access.site);
        if misaligned(access.address, value.len()) {
            self.misaligned(site, &access, value.len(), "load");
            return poison(value);
        }
        match access.space {
            Space::Shared => self.load_shared(site, access, value),
            Space::Global => self.load_global(site, access, value),
        }
    }

    #[inline]
    fn load_shared(&mut self, site: SiteId, access: Access, value: &mut [u8]) {
        match self.shared.locate(access.address, value.len()) {
            Err(outside) => {
                let detail = format!("load of {} bytes", value.len());
                self.report_shared(
                    FaultKind::OutOfBounds,
                    site,
                    &access,
                    outside.array,
                    None,
                    detail,
                );
                poison(value);
            }
            Ok((array, first)) => {
                self.touch(site, SHARED_BIT + array as u32);
                self.record(site, &access, false, value.len());
                let by = self.actor(site);
                let mut finding = None;
                for (i, bytes) in value.chunks_exact_mut(4).enumerate() {
                    let (word, mut found) = self.shared.read(first + i, by);
                    if let Some(order) = &mut self.order {
                        // Epochs know too little here; what they find beside
                        // races still holds.
                        let clash = order.read(first + i, by.thread, site);
                        found = found
                            .filter(|found| found.kind != FaultKind::SharedRace)
                            .or(clash.map(clashed));
                    }
                    bytes.copy_from_slice(&word.to_ne_bytes());
                    finding = finding.or(found.map(|found| (first + i, found)));
                }
                if let Some((word, finding)) = finding {
                    self.shared_finding(site, &access, array, word, finding, "read");
                }
            }
        }
    }

    #[cold]
    fn shared_finding(
        &mut self,
        site: SiteId,
        access: &Access,
        array: usize,
        word: usize,
        finding: Finding,
        what: &str,
    ) {
        let array = self.shared.array(array);
        let offset = word as i64 * 4 - i64::from(array.start);
        let detail = describe(what, finding.detail.text());
        let array = Some((array, offset));
        self.report_shared(finding.kind, site, access, array, finding.other, detail);
    }

    #[cold]
    fn global_finding(
        &mut self,
        site: SiteId,
        access: &Access,
        span: Span,
        finding: Finding,
        what: &str,
    ) {
        let detail = describe(what, finding.detail.text());
        let array = Some((span.array, span.word as i64 * 4));
        self.report_global(finding.kind, site, access, array, finding.other, detail);
    }

    #[inline]
    fn load_global(&mut self, site: SiteId, access: Access, value: &mut [u8]) {
        match self.context.memory.locate(access.address, value.len()) {
            Err(outside) => {
                let detail = format!("load of {} bytes", value.len());
                let array = outside.array;
                self.report_global(FaultKind::OutOfBounds, site, &access, array, None, detail);
                poison(value);
            }
            Ok(span) => {
                self.touch(site, span.array as u32);
                self.record(site, &access, false, value.len());
                let tracked = self.context.writable[span.array];
                let by = self.actor(site);
                let mut finding = None;
                for (i, bytes) in value.chunks_exact_mut(4).enumerate() {
                    let mut span = span;
                    span.word += i;
                    let memory = &self.context.memory;
                    let (word, found) = if tracked {
                        let element = access.element_bytes;
                        self.accesses.read(memory, span, element, by)
                    } else {
                        let (word, initialised) = memory.read(span);
                        let found = Finding::uninitialized(FaultKind::UninitializedGlobal);
                        (word, (!initialised).then_some(found))
                    };
                    bytes.copy_from_slice(&word.to_ne_bytes());
                    finding = finding.or(found.map(|found| (span, found)));
                }
                if let Some((span, finding)) = finding {
                    self.global_finding(site, &access, span, finding, "read");
                }
            }
        }
    }

    #[inline]
    fn store(&mut self, access: Access, value: &[u8]) {
        let site = self.site(access.site);
        if misaligned(access.address, value.len()) {
            return self.misaligned(site, &access, value.len(), "store");
        }
        match access.space {
            Space::Shared => self.store_shared(site, access, value),
            Space::Global => self.store_global(site, access, value),
        }
    }

    #[inline]
    fn store_shared(&mut self, site: SiteId, access: Access, value: &[u8]) {
        match self.shared.locate(access.address, value.len()) {
            Err(outside) => {
                let detail = format!("store of {} bytes", value.len());
                self.report_shared(
                    FaultKind::OutOfBounds,
                    site,
                    &access,
                    outside.array,
                    None,
                    detail,
                );
            }
            Ok((array, first)) => {
                self.touch(site, SHARED_BIT + array as u32);
                self.record(site, &access, true, value.len());
                let by = self.actor(site);
                let mut finding = None;
                for (i, word) in words(value).enumerate() {
                    let mut found = self.shared.write(first + i, word, by);
                    if let Some(order) = &mut self.order {
                        found = order.write(first + i, by.thread, site).map(clashed);
                    }
                    finding = finding.or(found.map(|found| (first + i, found)));
                }
                if let Some((word, finding)) = finding {
                    self.shared_finding(site, &access, array, word, finding, "write");
                }
            }
        }
    }

    #[inline]
    fn store_global(&mut self, site: SiteId, access: Access, value: &[u8]) {
        match self.context.memory.locate(access.address, value.len()) {
            Err(outside) => {
                let detail = format!("store of {} bytes", value.len());
                let array = outside.array;
                self.report_global(FaultKind::OutOfBounds, site, &access, array, None, detail);
            }
            Ok(span) => {
                self.touch(site, span.array as u32);
                self.record(site, &access, true, value.len());
                let by = self.actor(site);
                let overlap = self.context.overlap;
                let mut finding = None;
                for (i, word) in words(value).enumerate() {
                    let mut span = span;
                    span.word += i;
                    let found = self
                        .accesses
                        .write(span, word, access.element_bytes, by, overlap);
                    finding = finding.or(found.map(|found| (span, found)));
                }
                if let Some((span, finding)) = finding {
                    self.global_finding(site, &access, span, finding, "write");
                }
            }
        }
    }

    #[cold]
    fn misaligned(&mut self, site: SiteId, access: &Access, bytes: usize, what: &str) {
        let detail = format!(
            "{what} of {bytes} bytes at an address that is no multiple of {}",
            bytes.min(16)
        );
        let kind = FaultKind::Misaligned;
        match access.space {
            Space::Global => {
                let array = match self.context.memory.locate(access.address, bytes) {
                    Ok(span) => {
                        let offset = access.address - self.context.memory.base(span.array);
                        Some((span.array, offset as i64))
                    }
                    Err(outside) => outside.array,
                };
                self.report_global(kind, site, access, array, None, detail);
            }
            Space::Shared => {
                let array = match self.shared.locate(access.address, bytes) {
                    Ok((array, word)) => {
                        let array = self.shared.array(array);
                        Some((array, word as i64 * 4 - i64::from(array.start)))
                    }
                    Err(outside) => outside.array,
                };
                self.report_shared(kind, site, access, array, None, detail);
            }
        }
    }

    /// The order of the block's doings, which begins with the first call.
    fn order(&mut self) -> &mut Order {
        let threads = self.context.launch.block().count() as usize;
        self.order
            .get_or_insert_with(|| Box::new(Order::new(threads)))
    }

    /// Copies `value` to shared memory, by the running thread's copies or by the
    /// engine.
    fn copy_to_shared(&mut self, access: Access, value: &[u8], engine: bool) {
        let site = self.site(access.site);
        self.order();
        if misaligned(access.address, value.len()) {
            return self.misaligned(site, &access, value.len(), "copy");
        }
        match self.shared.locate(access.address, value.len()) {
            Err(outside) => {
                let detail = format!("copy of {} bytes", value.len());
                let array = outside.array;
                self.report_shared(FaultKind::OutOfBounds, site, &access, array, None, detail);
            }
            Ok((array, first)) => {
                self.touch(site, SHARED_BIT + array as u32);
                // The engine's writes are no thread's.
                if !engine {
                    self.record(site, &access, true, value.len());
                }
                let by = self.actor(site);
                let mut finding = None;
                for (i, word) in words(value).enumerate() {
                    let _ = self.shared.write(first + i, word, by);
                    let thread = self.thread;
                    let order = self.order();
                    let clash = if engine {
                        order.engine_copy(first + i, thread, site)
                    } else {
                        order.copy(first + i, thread, site)
                    };
                    finding = finding.or(clash.map(|clash| (first + i, clashed(clash))));
                }
                if let Some((word, finding)) = finding {
                    self.shared_finding(site, &access, array, word, finding, "copied to");
                }
            }
        }
    }

    /// Copies a box of a matrix to shared memory, zeros for what lies outside.
    fn copy_box(
        &mut self,
        to: u64,
        map: TensorMap,
        row: u32,
        column: u32,
        barrier: u64,
        site: Site,
    ) {
        let spec = map.spec;
        let row_bytes = u64::from(spec.columns) * 4;
        if !row_bytes.is_multiple_of(16) || !map.address.is_multiple_of(16) {
            let id = self.site(site);
            let access = Access {
                space: Space::Global,
                address: map.address,
                element_bytes: 4,
                site,
            };
            self.misaligned(id, &access, 16, "the engine's rows");
        }
        let mut line = vec![0u8; spec.box_columns as usize * 4];
        for r in 0..spec.box_rows {
            line.fill(0);
            let matrix_row = u64::from(row) + u64::from(r);
            if matrix_row < u64::from(spec.rows) {
                let inside = spec.columns.saturating_sub(column).min(spec.box_columns);
                let start = matrix_row * row_bytes + u64::from(column) * 4;
                for c in 0..inside as usize {
                    let address = map.address + start + 4 * c as u64;
                    self.read_for_engine(address, &mut line[4 * c..4 * c + 4], site);
                }
            }
            let access = Access {
                space: Space::Shared,
                address: to + u64::from(r) * line.len() as u64,
                element_bytes: 4,
                site,
            };
            self.copy_to_shared(access, &line, true);
        }
        let bytes = spec.box_rows * spec.box_columns * 4;
        let done = self.order().engine_done(barrier, bytes);
        self.misuse(done.err(), site);
    }

    /// Reads a word of a matrix that no launch writes meanwhile.
    fn read_for_engine(&mut self, address: u64, value: &mut [u8], site: Site) {
        let id = self.site(site);
        match self.context.memory.locate(address, value.len()) {
            Ok(span) => {
                self.touch(id, span.array as u32);
                let (word, _) = self.context.memory.read(span);
                value.copy_from_slice(&word.to_ne_bytes());
            }
            Err(outside) => {
                let access = Access {
                    space: Space::Global,
                    address,
                    element_bytes: 4,
                    site,
                };
                let (kind, detail) = (FaultKind::OutOfBounds, "the engine's load");
                self.report_global(kind, id, &access, outside.array, None, detail);
            }
        }
    }

    fn misuse(&mut self, misuse: Option<Misuse>, site: Site) {
        if let Some(detail) = misuse {
            let mut fault = RawFault::new(FaultKind::BarrierMisuse);
            fault.by = Some(self.me());
            fault.site = Some(self.site(site));
            fault.detail = Cow::Borrowed(detail);
            self.report(fault);
        }
    }

    fn declare_shared(&mut self, name: &'static str, bytes: u32, site: Site) -> u64 {
        let limit = self.context.shared_limit;
        let (address, fits) = self.shared.declare(name, bytes, limit);
        if !self.shared_arrays.contains(&name) {
            self.shared_arrays.push(name);
        }
        self.shared_bytes = self.shared_bytes.max(self.shared.used());
        if !fits {
            let mut fault = RawFault::new(FaultKind::SharedMemoryLimit);
            fault.by = Some(self.me());
            fault.site = Some(self.site(site));
            fault.array = ArrayId::Shared(name);
            fault.array_bytes = u64::from(bytes);
            fault.detail = Cow::Owned(format!(
                "the block's arrays take {} bytes, and {limit} may be declared",
                self.shared.used()
            ));
            self.report(fault);
        }
        address
    }
}

/// What vector clocks found, as a fault.
#[cold]
fn clashed(clash: Clash) -> Finding {
    let kind = if clash.copy {
        FaultKind::CopyUnderWay
    } else {
        FaultKind::SharedRace
    };
    let did = if clash.wrote { Did::Wrote } else { Did::Read };
    Finding::race(kind, (did, clash.thread, clash.site))
}

/// Bit of the first shared array in [`Findings::touched`].
pub(crate) const SHARED_BIT: u32 = 4;

/// Sizes are powers of two: a mask, since a division would cost as much as the
/// rest of an access.
#[inline]
fn misaligned(address: u64, bytes: usize) -> bool {
    address & (bytes.min(16) as u64 - 1) != 0
}

fn poison(value: &mut [u8]) {
    for bytes in value.chunks_exact_mut(4) {
        bytes.copy_from_slice(&POISON.to_ne_bytes());
    }
}

fn words(value: &[u8]) -> impl Iterator<Item = u32> {
    value
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| u32::from_ne_bytes(*bytes))
}

fn describe(what: &str, detail: &str) -> String {
    if detail.is_empty() {
        what.to_owned()
    } else {
        format!("{what}, {detail}")
    }
}

impl BlockMachine {
    /// Suspends the running thread until the scheduler resumes it.
    fn suspend(&self, pause: Pause) {
        let yielder = self.yielder.get();
        // SAFETY: `yielder` is the running coroutine's own: its body sets it
        // before it calls the kernel, and the scheduler sets it again before
        // each resumption. It lives on that coroutine's stack, below this frame.
        unsafe { &*yielder }.suspend(pause);
        if self.cancelled.get() {
            panic::resume_unwind(Box::new(Cancelled));
        }
    }

    fn site(&self, site: Site) -> SiteId {
        self.state.borrow_mut().site(site)
    }

    #[inline]
    fn step(&self, site: Site) {
        let left = self.left.get();
        if left == 0 {
            let site = self.site(site);
            self.suspend(Pause::Quantum(site));
        } else {
            self.left.set(left - 1);
        }
    }

    fn happened(&self) {
        self.progress.set(self.progress.get() + 1);
    }
}

impl Machine for BlockMachine {
    fn position(&self) -> Position {
        self.position.get()
    }

    fn load(&self, access: Access, value: &mut [u8]) {
        self.state.borrow_mut().load(access, value);
        self.step(access.site);
    }

    fn store(&self, access: Access, value: &[u8]) {
        self.state.borrow_mut().store(access, value);
        self.happened();
        self.step(access.site);
    }

    fn sync_threads(&self, site: Site) {
        let site = self.site(site);
        self.happened();
        self.suspend(Pause::Barrier(site));
    }

    fn wait_until(&self, ready: &mut dyn FnMut() -> bool, site: Site) {
        while !ready() {
            let site = self.site(site);
            self.suspend(Pause::Wait(site));
        }
        self.happened();
    }

    fn declare_shared(&self, name: &'static str, bytes: u32, site: Site) -> u64 {
        self.state.borrow_mut().declare_shared(name, bytes, site)
    }

    fn count(&self, operation: Operation, site: Site) {
        {
            let state = &mut *self.state.borrow_mut();
            let id = usize::from(state.site(site));
            if id >= state.counters.len() {
                state.counters.resize(id + 1, Counters::default());
            }
            state.counters[id].flops.count(operation);
        }
        self.step(site);
    }

    fn asynchronous(&self) -> Option<&dyn Asynchronous> {
        Some(self)
    }
}

impl Asynchronous for BlockMachine {
    fn copy(&self, to: u64, from: u64, bytes: u32, valid: bool, site: Site) {
        let mut value = [0; 16];
        let value = &mut value[..bytes.min(16) as usize];
        let access = |space, address| Access {
            space,
            address,
            element_bytes: bytes.min(4),
            site,
        };
        {
            let state = &mut *self.state.borrow_mut();
            if valid {
                state.load(access(Space::Global, from), value);
            }
            state.copy_to_shared(access(Space::Shared, to), value, false);
        }
        self.happened();
        self.step(site);
    }

    fn commit_copies(&self, _: Site) {
        let state = &mut *self.state.borrow_mut();
        let thread = state.thread;
        state.order().commit(thread);
    }

    fn wait_for_copies(&self, newest: u32, _: Site) {
        let state = &mut *self.state.borrow_mut();
        let thread = state.thread;
        state.order().wait_for_copies(thread, newest);
    }

    fn init_barrier(&self, barrier: u64, arrivals: u32, _: Site) {
        self.state
            .borrow_mut()
            .order()
            .make_barrier(barrier, arrivals);
    }

    fn arrive(&self, barrier: u64, bytes: u32, site: Site) {
        {
            let state = &mut *self.state.borrow_mut();
            let thread = state.thread;
            let done = state.order().arrive(barrier, thread, bytes, false);
            state.misuse(done.err(), site);
        }
        self.happened();
    }

    fn arrive_after_copies(&self, barrier: u64, site: Site) {
        {
            let state = &mut *self.state.borrow_mut();
            let thread = state.thread;
            let done = state.order().arrive(barrier, thread, 0, true);
            state.misuse(done.err(), site);
        }
        self.happened();
    }

    fn wait_for_phase(&self, barrier: u64, parity: u32, site: Site) {
        let thread = self.state.borrow().thread;
        let mut misuse = None;
        self.wait_until(
            &mut || match self.state.borrow_mut().order().ended(barrier, parity) {
                Ok(ended) => ended,
                Err(error) => {
                    misuse = Some(error);
                    true
                }
            },
            site,
        );
        let state = &mut *self.state.borrow_mut();
        state.misuse(misuse, site);
        state.order().acquire(barrier, thread);
    }

    fn copy_box(&self, to: u64, map: TensorMap, row: u32, column: u32, barrier: u64, site: Site) {
        self.state
            .borrow_mut()
            .copy_box(to, map, row, column, barrier, site);
        self.happened();
        self.step(site);
    }

    fn sync_warp(&self, site: Site) {
        let (thread, over) = {
            let state = &mut *self.state.borrow_mut();
            let thread = state.thread;
            (thread, state.order().enter_warp(thread))
        };
        self.happened();
        self.wait_until(
            &mut || self.state.borrow_mut().order().warp_passed(thread, over),
            site,
        );
        self.state.borrow_mut().order().leave_warp(thread);
    }
}

/// x, y, z of the linear index `i`.
pub(crate) fn unravel(i: u64, extent: Dim3) -> [u32; 3] {
    let (x, y) = (u64::from(extent.x), u64::from(extent.y));
    [(i % x) as u32, (i / x % y) as u32, (i / x / y) as u32]
}

impl Worker {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let state = State {
            context: Arc::clone(&context),
            cache: SiteCache::new(),
            log: WarpLog::default(),
            shared: SharedMemory::default(),
            order: None,
            accesses: BlockAccesses::default(),
            counters: Vec::new(),
            touched: Vec::new(),
            shared_arrays: Vec::new(),
            shared_bytes: 0,
            abandoned_blocks: 0,
            faults: FaultList::default(),
            found: 0,
            block: 0,
            thread: 0,
            epoch: 0,
        };
        Self {
            machine: Box::new(BlockMachine {
                context,
                position: Cell::default(),
                yielder: Cell::new(ptr::null()),
                left: Cell::new(0),
                cancelled: Cell::new(false),
                progress: Cell::new(0),
                state: RefCell::new(state),
            }),
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
        {
            let state = &mut *machine.state.borrow_mut();
            if state.epoch >= LAST_EPOCH {
                state.epoch = 0;
                state.shared.forget();
            }
            state.epoch += 1;
            state.block = block;
            state.found = 0;
            state.order = None;
            state.shared.begin_block(state.epoch);
        }
        machine.position.set(Position {
            thread_idx: [0; 3],
            block_idx: unravel(block, grid),
            block_dim: [extent.x, extent.y, extent.z],
            grid_dim: [grid.x, grid.y, grid.z],
        });
        let mut run = BlockRun {
            machine,
            stacks: &mut self.stacks,
            threads: (0..extent.count())
                .map(|_| Thread {
                    coroutine: None,
                    yielder: ptr::null(),
                    status: Status::Ready,
                    steps: 0,
                })
                .collect(),
            extent,
        };
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
        let state = self.machine.state.into_inner();
        Findings {
            faults: state.faults,
            counters: state.counters,
            touched: state.touched,
            shared_arrays: state.shared_arrays,
            shared_bytes: state.shared_bytes,
            abandoned: state.abandoned_blocks,
        }
    }
}

/// One block, while it runs.
struct BlockRun<'a> {
    machine: &'a BlockMachine,
    stacks: &'a mut Vec<DefaultStack>,
    threads: Vec<Thread>,
    extent: Dim3,
}

impl BlockRun<'_> {
    /// Whether all threads came to their end.
    fn run_to_end(&mut self) -> io::Result<bool> {
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
        let site = usize::from(site);
        if site >= state.counters.len() {
            state.counters.resize(site + 1, Counters::default());
        }
        state.counters[site].barriers += 1;
        state.counters[site].barrier_instructions += self.threads.len().div_ceil(LANES) as u64;
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
    fn cancel(&mut self) {
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

/// What a kernel's panic said, and where.
#[derive(Default)]
struct KernelPanic {
    message: String,
    place: Option<Place>,
}

thread_local! {
    static IN_KERNEL: Cell<bool> = const { Cell::new(false) };
    static LAST_PANIC: Cell<Option<KernelPanic>> = const { Cell::new(None) };
}

/// Runs `body`, in which a panic is noted instead of printed.
fn in_kernel<R>(body: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IN_KERNEL.set(self.0);
        }
    }
    let _restore = Restore(IN_KERNEL.replace(true));
    body()
}

/// Has panics in kernels noted, with their place, instead of printed.
///
/// The place is known to the panic hook alone. The hook is the process's, so
/// this one hands every other panic on to the one before it.
pub(crate) fn note_kernel_panics() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IN_KERNEL.get() {
                return before(info);
            }
            let message = info.payload_as_str().unwrap_or("a panic without a message");
            LAST_PANIC.set(Some(KernelPanic {
                message: message.to_owned(),
                place: info.location().map(|location| Place {
                    // The hook lends the name for its own duration. Panics are
                    // few, and each distinct place is kept once.
                    file: leak(location.file()),
                    line: location.line(),
                    column: location.column(),
                }),
            }));
        }));
    });
}

/// A name that lives as long as the program, stored once.
fn leak(name: &str) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    let name: &'static str = Box::leak(name.into());
    names.push(name);
    name
}
