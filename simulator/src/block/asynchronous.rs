//! What a block copies asynchronously, and its barriers in shared memory.
//!
//! Waits are waits of the scheduler. What copies and barriers order,
//! [`Order`] knows.

use super::access::{misaligned, words};
use super::machine::BlockMachine;
use super::state::{SHARED_BIT, State};
use crate::fault::{FaultKind, RawFault};
use crate::history::Did;
use crate::memory::Finding;
use crate::order::{Clash, Misuse, Order};
use kernels::gpu::host::{Access, Asynchronous, Machine, Site, Space, TensorMap};
use std::borrow::Cow;

impl State {
    /// The order of the block's doings, which begins with the first call.
    pub(super) fn order(&mut self) -> &mut Order {
        let threads = self.context.launch.block().count() as usize;
        self.block.order(threads, self.rank)
    }

    /// Copies `value` to shared memory, by the running thread's copies or by the
    /// engine.
    fn copy_to_shared(&mut self, access: &Access, value: &[u8], engine: bool) {
        let site = self.site(access.site);
        self.order();
        if misaligned(access.address, value.len()) {
            return self.misaligned(site, access, value.len(), "copy");
        }
        match self.block.shared.locate(access.address, value.len()) {
            Err(outside) => {
                let detail = format!("copy of {} bytes", value.len());
                let array = outside.array;
                self.report_shared(FaultKind::OutOfBounds, site, access, array, None, detail);
            }
            Ok((array, first)) => {
                self.touch(site, SHARED_BIT + array as u32);
                // The engine's writes are no thread's.
                if !engine {
                    self.record(site, access, true, value.len());
                }
                let by = self.actor(site);
                let mut finding = None;
                for (i, word) in words(value).enumerate() {
                    let _ = self.block.shared.write(first + i, word, by);
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
                    self.shared_finding(site, access, array, word, finding, "copied to");
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
            self.copy_to_shared(&access, &line, true);
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

    /// Whether the phase of that parity has ended; what came before its end then comes
    /// before what the running thread does next. Where no barrier was made, that is a
    /// fault, and the thread goes on.
    fn pass_phase(&mut self, barrier: u64, parity: u32, site: Site) -> bool {
        let thread = self.thread;
        let order = self.order();
        let ended = order.ended(barrier, parity);
        if ended == Ok(true) {
            order.acquire(barrier, thread);
        }
        self.misuse(ended.err(), site);
        ended != Ok(false)
    }

    pub(super) fn misuse(&mut self, misuse: Option<Misuse>, site: Site) {
        if let Some(detail) = misuse {
            let mut fault = RawFault::new(FaultKind::BarrierMisuse);
            fault.by = Some(self.me());
            fault.site = Some(self.site(site));
            fault.detail = Cow::Borrowed(detail);
            self.report(fault);
        }
    }
}

/// What vector clocks found, as a fault.
#[cold]
pub(super) fn clashed(clash: Clash) -> Finding {
    let kind = if clash.copy {
        FaultKind::CopyUnderWay
    } else {
        FaultKind::SharedRace
    };
    let did = if clash.wrote { Did::Wrote } else { Did::Read };
    Finding {
        rank: Some(clash.rank),
        ..Finding::race(kind, (did, clash.thread, clash.site))
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
                state.load(&access(Space::Global, from), value);
            }
            state.copy_to_shared(&access(Space::Shared, to), value, false);
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
        self.wait_until(
            &mut || self.state.borrow_mut().order().ended(barrier, parity) != Ok(false),
            site,
        );
        self.state.borrow_mut().pass_phase(barrier, parity, site);
    }

    fn phase_has_ended(&self, barrier: u64, parity: u32, site: Site) -> bool {
        // Others may run first, so that a kernel meets both answers.
        self.step(site);
        self.state.borrow_mut().pass_phase(barrier, parity, site)
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
