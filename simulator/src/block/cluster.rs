//! Clusters: the barrier of their blocks, and loads from and stores to one
//! another's shared memory.
//!
//! A wait at the barrier is the scheduler's. What the barrier orders, each
//! block's [`Order`](crate::order::Order) knows.

use super::access::{misaligned, poison, words};
use super::asynchronous::clashed;
use super::machine::BlockMachine;
use super::schedule::Pause;
use super::state::{Block, SHARED_BIT, State};
use crate::fault::{FaultKind, RawFault, ThreadId};
use crate::memory::Finding;
use crate::order::Present;
use crate::sites::SiteId;
use crate::warp::{AccessKind, LANES};
use kernels::gpu::host::{Access, Clusters, Site};
use std::borrow::Cow;
use std::rc::Rc;

/// The barrier of the running cluster.
#[derive(Default)]
pub(super) struct ClusterBarrier {
    /// Threads that have arrived in the phase that runs.
    pub(super) arrived: u64,
    /// Phases that have ended.
    pub(super) phase: u32,
    /// Whether a thread has arrived in the phase that runs without ordering what
    /// it did before.
    relaxed: bool,
}

impl State {
    fn arrive_at_cluster(&mut self, release: bool, site: Site) {
        let (id, thread) = (self.site(site), self.thread);
        if let Err(misuse) = self.order().arrive_at_cluster(thread, release, id) {
            return self.misuse(Some(misuse), site);
        }
        self.barrier.arrived += 1;
        self.barrier.relaxed |= !release;
        if self.barrier.arrived == self.context.cluster_threads() {
            self.end_phase(id);
        }
    }

    /// All threads of the cluster have arrived, the last of them at `site`.
    fn end_phase(&mut self, site: SiteId) {
        self.barrier.arrived = 0;
        let relaxed = std::mem::take(&mut self.barrier.relaxed);
        self.barrier.phase += 1;
        let phase = self.barrier.phase;
        let blocks = self.context.cluster_blocks();
        let mut published = Vec::with_capacity(blocks);
        for rank in 0..blocks {
            let order = self.block_mut(rank).order.as_deref();
            published.push(order.map_or_else(Vec::new, |order| order.gathered().to_vec()));
        }
        let published = Rc::new(published);
        for rank in 0..blocks {
            let block = self.block_mut(rank);
            // For global memory, whose races epochs tell.
            block.epoch += u32::from(!relaxed);
            if let Some(order) = &mut block.order {
                order.end_cluster_phase(phase, Rc::clone(&published));
            }
        }
        let warps = self.context.launch.block().count().div_ceil(LANES as u64);
        let counters = self.counters(site);
        counters.barriers += blocks as u64;
        counters.barrier_instructions += blocks as u64 * warps;
    }

    /// Array and first word of an access to a block's shared memory, which is
    /// noted. Nothing where it goes nowhere: that is a fault.
    ///
    /// The running block's arrays tell the place: the other may not have begun.
    fn locate_in_cluster(
        &mut self,
        rank: usize,
        site: SiteId,
        access: &Access,
        bytes: usize,
        store: bool,
    ) -> Option<(usize, usize)> {
        let blocks = self.context.cluster_blocks();
        if rank >= blocks {
            let what = if store { "store to" } else { "load from" };
            let detail = format!("{what} block {rank} of a cluster of {blocks}");
            self.report_shared(FaultKind::OutOfBounds, site, access, None, None, detail);
            return None;
        }
        if misaligned(access.address, bytes) {
            let what = if store { "store" } else { "load" };
            self.misaligned(site, access, bytes, what);
            return None;
        }
        match self.block.shared.locate(access.address, bytes) {
            Ok(found) => {
                let lane = usize::from(self.thread) % LANES;
                let kind = AccessKind::of_cluster(store, bytes);
                self.log.record(site, kind, lane, access.address);
                Some(found)
            }
            Err(outside) => {
                let (array, detail) = (outside.array, visit(store, rank));
                self.report_shared(FaultKind::OutOfBounds, site, access, array, None, detail);
                None
            }
        }
    }

    /// The running thread, and the other block of the cluster that it visits.
    fn visited(&mut self, rank: usize) -> (Present<'_>, &mut Block) {
        let threads = self.context.launch.block().count() as usize;
        let order = self.block.order(threads, self.rank);
        (order.present(self.thread), &mut self.others[rank])
    }

    fn load_of_cluster(&mut self, rank: u32, access: &Access, value: &mut [u8]) {
        let (site, rank) = (self.site(access.site), rank as usize);
        let found = self.locate_in_cluster(rank, site, access, value.len(), false);
        let Some((array, first)) = found else {
            return poison(value);
        };
        if rank == self.rank {
            return self.read_shared(site, access, array, first, value);
        }
        self.touch(site, SHARED_BIT + array as u32);
        let (thread, block) = self.visited(rank);
        let mut finding = None;
        for (i, bytes) in value.chunks_exact_mut(4).enumerate() {
            let (word, mut found) = block.shared.peek(first + i);
            if let Some(order) = &mut block.order {
                let clash = order.read_by_visitor(first + i, thread, site);
                found = found.or(clash.map(clashed));
            }
            bytes.copy_from_slice(&word.to_ne_bytes());
            finding = finding.or(found.map(|found| (first + i, found)));
        }
        if let Some((word, finding)) = finding {
            let what = visit(false, rank);
            self.shared_finding(site, access, array, word, finding, &what);
        }
    }

    fn store_to_cluster(&mut self, rank: u32, access: &Access, value: &[u8]) {
        let (site, rank) = (self.site(access.site), rank as usize);
        let found = self.locate_in_cluster(rank, site, access, value.len(), true);
        let Some((array, first)) = found else { return };
        if rank == self.rank {
            return self.write_shared(site, access, array, first, value);
        }
        self.touch(site, SHARED_BIT + array as u32);
        let mut by = self.actor(site);
        let (thread, block) = self.visited(rank);
        by.epoch = block.epoch;
        let early = (!thread.knows_that_all_have_begun()).then_some((first, Finding::UNBEGUN));
        let mut finding = None;
        for (i, word) in words(value).enumerate() {
            block.shared.poke(first + i, word, by);
            if let Some(order) = &mut block.order {
                let clash = order.write_by_visitor(first + i, thread, site);
                finding = finding.or(clash.map(|clash| (first + i, clashed(clash))));
            }
        }
        for (word, finding) in early.into_iter().chain(finding) {
            let what = visit(true, rank);
            self.shared_finding(site, access, array, word, finding, &what);
        }
    }

    /// All threads of the cluster have returned: looks for what they left open.
    pub(super) fn end_cluster(&mut self) {
        let threads = self.context.launch.block().count() as u16;
        for rank in 0..self.context.cluster_blocks() {
            let block = self.block_mut(rank);
            let Some(order) = &block.order else { continue };
            let visits: Vec<_> = order.late_visits().collect();
            let arrived: Vec<_> = (0..threads)
                .filter_map(|thread| Some((thread, order.left_arrived(thread)?)))
                .collect();
            for visit in visits {
                let mut fault = RawFault::new(FaultKind::EndedBlock);
                fault.by = Some(ThreadId {
                    block: self.number_of(usize::from(visit.rank)),
                    thread: visit.thread,
                });
                fault.site = Some(visit.site);
                fault.detail = Cow::Owned(format!(
                    "{}, no barrier of the cluster between this and its end",
                    self::visit(visit.wrote, rank)
                ));
                self.report(fault);
            }
            for (thread, site) in arrived {
                let mut fault = RawFault::new(FaultKind::BarrierMisuse);
                fault.by = Some(ThreadId {
                    block: self.number_of(rank),
                    thread,
                });
                fault.site = Some(site);
                fault.detail = Cow::Borrowed(
                    "the thread arrived at the cluster's barrier and ended without waiting",
                );
                self.report(fault);
            }
        }
    }
}

/// An access to a block of the cluster, as faults name it.
#[cold]
fn visit(store: bool, rank: usize) -> String {
    let what = if store { "write to" } else { "read of" };
    format!("{what} block {rank} of the cluster")
}

impl Clusters for BlockMachine {
    fn cluster_position(&self) -> (u32, u32) {
        let rank = self.state.borrow().rank;
        (rank as u32, self.context.cluster_blocks() as u32)
    }

    fn arrive_at_cluster(&self, release: bool, site: Site) {
        self.state.borrow_mut().arrive_at_cluster(release, site);
        self.happened();
    }

    fn wait_for_cluster(&self, site: Site) {
        let (thread, id, phase) = {
            let state = &mut *self.state.borrow_mut();
            let (thread, id) = (state.thread, state.site(site));
            match state.order().phase_of_cluster(thread) {
                Ok(phase) => (thread, id, phase),
                Err(misuse) => return state.misuse(Some(misuse), site),
            }
        };
        // The last to arrive pauses too: the lanes of its warp go on together.
        self.suspend(Pause::Cluster(id, phase));
        self.state.borrow_mut().order().leave_cluster(thread, phase);
    }

    fn load_of_cluster(&self, rank: u32, access: Access, value: &mut [u8]) {
        self.state
            .borrow_mut()
            .load_of_cluster(rank, &access, value);
        self.step(access.site);
    }

    fn store_to_cluster(&self, rank: u32, access: Access, value: &[u8]) {
        self.state
            .borrow_mut()
            .store_to_cluster(rank, &access, value);
        self.happened();
        self.step(access.site);
    }
}
