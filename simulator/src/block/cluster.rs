//! Clusters: the barrier of their blocks, and reads of one another's shared
//! memory.
//!
//! A wait at the barrier is the scheduler's. What the barrier orders, each
//! block's [`Order`](crate::order::Order) knows.

use super::access::{describe, misaligned, poison};
use super::asynchronous::clashed;
use super::machine::BlockMachine;
use super::schedule::Pause;
use super::state::{SHARED_BIT, State};
use crate::fault::{FaultKind, RawFault, ThreadId};
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
}

impl State {
    fn arrive_at_cluster(&mut self, site: Site) {
        let (id, thread) = (self.site(site), self.thread);
        if let Err(misuse) = self.order().arrive_at_cluster(thread, id) {
            return self.misuse(Some(misuse), site);
        }
        self.barrier.arrived += 1;
        if self.barrier.arrived == self.context.cluster_threads() {
            self.end_phase(id);
        }
    }

    /// All threads of the cluster have arrived, the last of them at `site`.
    fn end_phase(&mut self, site: SiteId) {
        self.barrier.arrived = 0;
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
            block.epoch += 1;
            if let Some(order) = &mut block.order {
                order.end_cluster_phase(phase, Rc::clone(&published));
            }
        }
        let warps = self.context.launch.block().count().div_ceil(LANES as u64);
        let counters = self.counters(site);
        counters.barriers += blocks as u64;
        counters.barrier_instructions += blocks as u64 * warps;
    }

    fn load_of_cluster(&mut self, rank: u32, access: &Access, value: &mut [u8]) {
        let site = self.site(access.site);
        let blocks = self.context.cluster_blocks();
        let rank = rank as usize;
        if rank >= blocks {
            let detail = format!("load from block {rank} of a cluster of {blocks}");
            self.report_shared(FaultKind::OutOfBounds, site, access, None, None, detail);
            return poison(value);
        }
        if misaligned(access.address, value.len()) {
            self.misaligned(site, access, value.len(), "load");
            return poison(value);
        }
        let what = || format!("read of block {rank} of the cluster");
        let shared = &self.block_mut(rank).shared;
        let (array, first) = match shared.locate(access.address, value.len()) {
            Ok(found) => found,
            Err(outside) => {
                let array = outside.array;
                self.report_shared(FaultKind::OutOfBounds, site, access, array, None, what());
                return poison(value);
            }
        };
        let lane = usize::from(self.thread) % LANES;
        let kind = AccessKind::of_cluster(value.len());
        self.log.record(site, kind, lane, access.address);
        if rank == self.rank {
            return self.read_shared(site, access, array, first, value);
        }
        self.touch(site, SHARED_BIT + array as u32);
        let thread = self.thread;
        let visitor = self.order().visitor(thread);
        let block = self.block_mut(rank);
        let mut finding = None;
        for (i, bytes) in value.chunks_exact_mut(4).enumerate() {
            let (word, mut found) = block.shared.peek(first + i);
            if let Some(order) = &mut block.order {
                let clash = order.read_by_visitor(first + i, visitor, site);
                found = found.or(clash.map(clashed));
            }
            bytes.copy_from_slice(&word.to_ne_bytes());
            finding = finding.or(found.map(|found| (first + i, found)));
        }
        if let Some((word, finding)) = finding {
            let place = block.shared.array(array);
            let offset = word as i64 * 4 - i64::from(place.start);
            let detail = describe(&what(), finding.detail.text());
            let other = self.other(&finding);
            let array = Some((place, offset));
            self.report_shared(finding.kind, site, access, array, other, detail);
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
                    "read of block {rank} of the cluster, no barrier of the cluster between this \
                     and its end"
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

impl Clusters for BlockMachine {
    fn cluster_position(&self) -> (u32, u32) {
        let rank = self.state.borrow().rank;
        (rank as u32, self.context.cluster_blocks() as u32)
    }

    fn arrive_at_cluster(&self, site: Site) {
        self.state.borrow_mut().arrive_at_cluster(site);
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
}
