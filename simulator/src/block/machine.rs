//! The machine behind the device API.

use super::Context;
use super::schedule::{Cancelled, Pause};
use super::state::State;
use crate::sites::SiteId;
use corosensei::Yielder;
use kernels::gpu::host::{Access, Asynchronous, Clusters, Machine, Operation, Position, Site};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::{panic, ptr};

/// The machine behind the device API while a cluster's blocks run.
pub(super) struct BlockMachine {
    pub(super) context: Arc<Context>,
    pub(super) position: Cell<Position>,
    /// Of the running thread.
    pub(super) yielder: Cell<*const Yielder<(), Pause>>,
    /// Calls left in the running thread's quantum.
    pub(super) left: Cell<u32>,
    /// Threads unwind instead of going on.
    pub(super) cancelled: Cell<bool>,
    /// Grows whenever a thread does what another may be waiting for.
    pub(super) progress: Cell<u64>,
    pub(super) state: RefCell<State>,
}

impl BlockMachine {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self {
            state: RefCell::new(State::new(Arc::clone(&context))),
            context,
            position: Cell::default(),
            yielder: Cell::new(ptr::null()),
            left: Cell::new(0),
            cancelled: Cell::new(false),
            progress: Cell::new(0),
        }
    }

    /// Suspends the running thread until the scheduler resumes it.
    pub(super) fn suspend(&self, pause: Pause) {
        let yielder = self.yielder.get();
        // SAFETY: `yielder` is the running coroutine's own: its body sets it
        // before it calls the kernel, and the scheduler sets it again before
        // each resumption. It lives on that coroutine's stack, below this frame.
        unsafe { &*yielder }.suspend(pause);
        if self.cancelled.get() {
            panic::resume_unwind(Box::new(Cancelled));
        }
    }

    #[inline]
    fn site(&self, site: Site) -> SiteId {
        self.state.borrow_mut().site(site)
    }

    #[inline]
    pub(super) fn step(&self, site: Site) {
        let left = self.left.get();
        if left == 0 {
            let site = self.site(site);
            self.suspend(Pause::Quantum(site));
        } else {
            self.left.set(left - 1);
        }
    }

    #[inline]
    pub(super) fn happened(&self) {
        self.progress.set(self.progress.get() + 1);
    }
}

impl Machine for BlockMachine {
    fn position(&self) -> Position {
        self.position.get()
    }

    fn load(&self, access: Access, value: &mut [u8]) {
        self.state.borrow_mut().load(&access, value);
        self.step(access.site);
    }

    fn store(&self, access: Access, value: &[u8]) {
        self.state.borrow_mut().store(&access, value);
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
            let site = state.site(site);
            state.counters(site).flops.count(operation);
        }
        self.step(site);
    }

    fn asynchronous(&self) -> Option<&dyn Asynchronous> {
        Some(self)
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        Some(self)
    }
}
