//! Call sites in kernel source, as small numbers.
//!
//! `Location` pointers may differ for one place (generic code is compiled more
//! than once), so a place is known by file, line and column.

use kernels::gpu::host::Site;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The number of a call site, the same on every worker of a launch.
pub(crate) type SiteId = u16;

/// A place in a kernel's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// The file, as the compiler names it.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1: two calls on one line differ by it.
    pub column: u32,
}

impl Place {
    pub(crate) fn of(site: Site) -> Self {
        Self {
            file: site.file(),
            line: site.line(),
            column: site.column(),
        }
    }
}

/// file:line:column, as compilers print it.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// The sites of one launch, shared by its workers.
#[derive(Default)]
pub(crate) struct Sites {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_place: FxHashMap<Place, SiteId>,
    places: Vec<Place>,
}

impl Sites {
    /// The number of a place.
    pub(crate) fn intern(&self, place: Place) -> SiteId {
        // Another worker's panic leaves the tables whole: each is one insertion.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = known.by_place.get(&place) {
            return id;
        }
        // A kernel has some tens of sites. Past the limit they share the last
        // number, which mixes their counters up and harms nothing else.
        let id = known.places.len().min(usize::from(SiteId::MAX - 1)) as SiteId;
        if usize::from(id) == known.places.len() {
            known.places.push(place);
        }
        known.by_place.insert(place, id);
        id
    }

    /// The places, in the order of their numbers.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .places
            .clone()
    }
}

/// A worker's own view of [`Sites`]: one comparison for a site that it has met.
pub(crate) struct SiteCache {
    slots: [(usize, SiteId); SLOTS],
}

const SLOTS: usize = 256;

impl SiteCache {
    pub(crate) fn new() -> Self {
        Self {
            slots: [(0, 0); SLOTS],
        }
    }

    #[inline]
    pub(crate) fn id(&mut self, sites: &Sites, site: Site) -> SiteId {
        let pointer = std::ptr::from_ref(site).addr();
        // Locations are 24 bytes long and lie next to one another.
        let slot = &mut self.slots[(pointer >> 3) % SLOTS];
        if slot.0 != pointer {
            *slot = (pointer, sites.intern(Place::of(site)));
        }
        slot.1
    }
}
