//! What is known of the running block, and how its faults are written down.

use super::cluster::ClusterBarrier;
use super::{Context, Findings};
use crate::counters::Counters;
use crate::fault::{ArrayId, FaultKind, FaultList, RawFault, ThreadId};
use crate::history::Actor;
use crate::memory::{BlockAccesses, Finding};
use crate::order::Order;
use crate::shared::{SharedArray, SharedMemory};
use crate::sites::{SiteCache, SiteId};
use crate::warp::WarpLog;
use kernels::gpu::host::{Access, Site};
use std::borrow::Cow;
use std::mem;
use std::sync::Arc;

/// Epochs start again before they would overflow.
const LAST_EPOCH: u32 = 1 << 31;

/// Bit of the first shared array in [`Findings::touched`].
pub(crate) const SHARED_BIT: u32 = 4;

/// The other side of a conflict: what it did, who it is, and where.
type Other = (&'static str, ThreadId, Option<SiteId>);

/// A block, while its cluster runs. Kept from cluster to cluster.
#[derive(Default)]
pub(super) struct Block {
    /// Its linear index in the grid.
    pub(super) number: u64,
    pub(super) epoch: u32,
    pub(super) shared: SharedMemory,
    /// In blocks that copy asynchronously, from their first such call on, and in
    /// kernels that know clusters.
    pub(super) order: Option<Box<Order>>,
    pub(super) accesses: BlockAccesses,
}

/// What a worker knows of the cluster that it runs, and has found so far. A
/// block without a cluster is one by itself.
pub(super) struct State {
    pub(super) context: Arc<Context>,
    pub(super) cache: SiteCache,
    pub(super) log: WarpLog,
    /// The block of the running thread.
    pub(super) block: Block,
    /// Its rank in the cluster.
    pub(super) rank: usize,
    /// The cluster's blocks by rank. The running one is not in its place.
    pub(super) others: Vec<Block>,
    pub(super) barrier: ClusterBarrier,
    pub(super) counters: Vec<Counters>,
    pub(super) touched: Vec<u32>,
    pub(super) shared_arrays: Vec<&'static str>,
    pub(super) shared_bytes: u32,
    pub(super) abandoned_blocks: u64,
    pub(super) faults: FaultList,
    /// Faults found in the running cluster, to order them.
    pub(super) found: u64,
    pub(super) thread: u16,
}

impl Block {
    fn begin(&mut self, number: u64, order: Option<Order>) {
        if self.epoch >= LAST_EPOCH {
            self.epoch = 0;
            self.shared.forget();
        }
        self.epoch += 1;
        self.number = number;
        self.order = order.map(Box::new);
        self.shared.begin_block(self.epoch);
    }

    /// The order of its doings, which begins with the first call.
    pub(super) fn order(&mut self, threads: usize, rank: usize) -> &mut Order {
        self.order
            .get_or_insert_with(|| Box::new(Order::new(threads, rank as u8)))
    }
}

impl State {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            cache: SiteCache::new(),
            log: WarpLog::default(),
            block: Block::default(),
            rank: 0,
            others: Vec::new(),
            barrier: ClusterBarrier::default(),
            counters: Vec::new(),
            touched: Vec::new(),
            shared_arrays: Vec::new(),
            shared_bytes: 0,
            abandoned_blocks: 0,
            faults: FaultList::default(),
            found: 0,
            thread: 0,
        }
    }

    /// Begins with the blocks of a cluster, the first of them given.
    pub(super) fn begin_cluster(&mut self, first: u64) {
        let size = self.context.cluster_blocks();
        let knows_clusters = self.context.launch.entry().max_cluster > 1;
        let threads = self.context.launch.block().count() as usize;
        self.enter(0);
        self.others.resize_with(size, Block::default);
        for rank in 0..size {
            let order = knows_clusters.then(|| Order::new(threads, rank as u8));
            self.block_mut(rank).begin(first + rank as u64, order);
        }
        self.barrier = ClusterBarrier::default();
        self.found = 0;
    }

    /// Makes a block of the cluster the one whose threads run.
    pub(super) fn enter(&mut self, rank: usize) {
        if rank != self.rank {
            mem::swap(&mut self.block, &mut self.others[self.rank]);
            mem::swap(&mut self.block, &mut self.others[rank]);
            self.rank = rank;
        }
    }

    /// A block of the cluster.
    pub(super) fn block_mut(&mut self, rank: usize) -> &mut Block {
        if rank == self.rank {
            &mut self.block
        } else {
            &mut self.others[rank]
        }
    }

    /// The linear index in the grid of a block of the cluster.
    pub(super) fn number_of(&self, rank: usize) -> u64 {
        if rank == self.rank {
            self.block.number
        } else {
            self.others[rank].number
        }
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
            epoch: self.block.epoch,
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
            block: self.block.number,
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
        other: Option<Other>,
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
        other: Option<Other>,
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

    /// The other side of a conflict.
    #[cold]
    pub(super) fn other(&self, finding: &Finding) -> Option<Other> {
        let (did, thread, site) = finding.other?;
        let rank = finding.rank.map_or(self.rank, usize::from);
        let block = self.number_of(rank);
        Some((did.name(), ThreadId { block, thread }, Some(site)))
    }

    fn finish_report(
        &mut self,
        mut fault: RawFault,
        other: Option<Other>,
        detail: Cow<'static, str>,
    ) {
        fault.detail = detail;
        fault.other = other;
        self.report(fault);
    }
}
