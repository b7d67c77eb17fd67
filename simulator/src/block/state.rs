//! What is known of the running block, and how its faults are written down.

use super::{Context, Findings};
use crate::counters::Counters;
use crate::fault::{ArrayId, FaultKind, FaultList, RawFault, ThreadId};
use crate::history::{Actor, Conflict};
use crate::memory::BlockAccesses;
use crate::order::Order;
use crate::shared::{SharedArray, SharedMemory};
use crate::sites::{SiteCache, SiteId};
use crate::warp::WarpLog;
use kernels::gpu::host::{Access, Site};
use std::borrow::Cow;
use std::sync::Arc;

/// Epochs start again before they would overflow.
const LAST_EPOCH: u32 = 1 << 31;

/// Bit of the first shared array in [`Findings::touched`].
pub(crate) const SHARED_BIT: u32 = 4;

/// What a worker knows of the block that it runs, and has found so far.
pub(super) struct State {
    pub(super) context: Arc<Context>,
    pub(super) cache: SiteCache,
    pub(super) log: WarpLog,
    pub(super) shared: SharedMemory,
    /// In blocks that copy asynchronously, from their first such call on.
    pub(super) order: Option<Box<Order>>,
    pub(super) accesses: BlockAccesses,
    pub(super) counters: Vec<Counters>,
    pub(super) touched: Vec<u32>,
    pub(super) shared_arrays: Vec<&'static str>,
    pub(super) shared_bytes: u32,
    pub(super) abandoned_blocks: u64,
    pub(super) faults: FaultList,
    /// Faults found in the running block, to order them.
    pub(super) found: u64,
    pub(super) block: u64,
    pub(super) thread: u16,
    pub(super) epoch: u32,
}

impl State {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self {
            context,
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
        }
    }

    pub(super) fn begin_block(&mut self, block: u64) {
        if self.epoch >= LAST_EPOCH {
            self.epoch = 0;
            self.shared.forget();
        }
        self.epoch += 1;
        self.block = block;
        self.found = 0;
        self.order = None;
        self.shared.begin_block(self.epoch);
    }

    pub(super) fn into_findings(self) -> Findings {
        Findings {
            faults: self.faults,
            counters: self.counters,
            touched: self.touched,
            shared_arrays: self.shared_arrays,
            shared_bytes: self.shared_bytes,
            abandoned: self.abandoned_blocks,
        }
    }

    /// The counters of a site.
    #[inline]
    pub(super) fn counters(&mut self, site: SiteId) -> &mut Counters {
        let site = usize::from(site);
        if site >= self.counters.len() {
            self.counters.resize(site + 1, Counters::default());
        }
        &mut self.counters[site]
    }

    #[inline]
    pub(super) fn actor(&self, site: SiteId) -> Actor {
        Actor {
            thread: self.thread,
            site,
            epoch: self.epoch,
        }
    }

    #[inline]
    pub(super) fn site(&mut self, site: Site) -> SiteId {
        self.cache.id(&self.context.sites, site)
    }

    #[inline]
    pub(super) fn touch(&mut self, site: SiteId, array: u32) {
        let site = usize::from(site);
        if site >= self.touched.len() {
            self.touched.resize(site + 1, 0);
        }
        self.touched[site] |= 1 << array.min(31);
    }

    pub(super) fn me(&self) -> ThreadId {
        ThreadId {
            block: self.block,
            thread: self.thread,
        }
    }

    pub(super) fn report(&mut self, fault: RawFault) {
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
    pub(super) fn report_global(
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
    pub(super) fn report_shared(
        &mut self,
        kind: FaultKind,
        site: SiteId,
        access: &Access,
        array: Option<(SharedArray, i64)>,
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
}
