//! What the checks report.

use crate::sites::{Place, SiteId};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside every array, or past the end or before the start of
    /// one. A load gets NaN bits, a store is dropped, and the thread goes on.
    OutOfBounds,
    /// The address is not a multiple of the access's size (of 16 for wider
    /// ones). The access is dropped likewise.
    Misaligned,
    /// A read of shared memory that no thread of the memory's block, nor of its
    /// cluster, has written. The thread gets NaN bits and goes on.
    UninitializedShared,
    /// A read of C or of the workspace that nothing has written before: by an
    /// earlier launch, or by the reading block.
    UninitializedGlobal,
    /// Two threads access one word of shared memory, at least one writes, and no
    /// barrier stands between: of the block, or of the cluster where they are of
    /// different blocks.
    SharedRace,
    /// A read or a write of shared memory to which an asynchronous copy is under
    /// way, for all that the thread has waited for.
    CopyUnderWay,
    /// A barrier in shared memory that was used before it was made, or at which
    /// more arrived than it was made for; a cluster's barrier at which a thread
    /// does not arrive and wait by turns.
    BarrierMisuse,
    /// A write to the shared memory of another block of the cluster, which may
    /// not have begun by then: the thread has passed no barrier of the cluster. (A
    /// read so early is one of what nobody has written, or a race.)
    UnbegunBlock,
    /// A read of the shared memory of another block of the cluster, or a write to
    /// it, which may have ended by then: no barrier of the cluster stands between
    /// the access and its end.
    EndedBlock,
    /// Two threads access one word of global memory, at least one writes, and
    /// nothing orders them: they are of different blocks of one launch, or no
    /// barrier stands between.
    GlobalRace,
    /// A barrier that not all threads of the block, or of the cluster, reached:
    /// some returned, or wait at another. The block is abandoned, and with it its
    /// cluster.
    BarrierDivergence,
    /// Every thread that still runs waits for something that none of them can
    /// bring about. The block is abandoned.
    Deadlock,
    /// A thread made more calls than [`Options::max_steps`](crate::Options)
    /// without coming to a barrier or its end. The block is abandoned.
    NoProgress,
    /// The kernel's own code panicked. The block is abandoned.
    Panic,
    /// A block asks for more shared memory than it can have. The launch is not
    /// run.
    SharedMemoryLimit,
    /// An element of C was written by two threads in one launch, and the
    /// variant does not declare that, or the bits differ.
    WrittenTwice,
    /// An element of C that no launch wrote. Not checked where a block was
    /// abandoned, since this would follow from that.
    NeverWritten,
    /// An element of A or B that no thread read. A product depends on each of
    /// them, so a loop ends too early or a grid is too small. Not checked where
    /// a block was abandoned.
    NeverRead,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OutOfBounds => "out of bounds",
            Self::Misaligned => "misaligned access",
            Self::UninitializedShared => "read of uninitialised shared memory",
            Self::UninitializedGlobal => "read of uninitialised global memory",
            Self::SharedRace => "race on shared memory",
            Self::CopyUnderWay => "copy still under way",
            Self::BarrierMisuse => "misuse of a barrier",
            Self::UnbegunBlock => "write to a block that may not have begun",
            Self::EndedBlock => "access to a block that may have ended",
            Self::GlobalRace => "race on global memory",
            Self::BarrierDivergence => "barrier not reached by all threads",
            Self::Deadlock => "deadlock",
            Self::NoProgress => "no progress",
            Self::Panic => "panic in the kernel",
            Self::SharedMemoryLimit => "too much shared memory",
            Self::WrittenTwice => "element written twice",
            Self::NeverWritten => "element never written",
            Self::NeverRead => "element never read",
        })
    }
}

/// An element of an array in global or shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Element {
    /// "A", "B", "C", "workspace", or a shared array's name in the kernel.
    pub array: String,
    /// Its index; outside 0..len for an access out of bounds.
    pub index: i64,
    /// Elements that the array has.
    pub len: u64,
    /// Row and column, where the array is a matrix of known shape.
    pub row_column: Option<(u64, u64)>,
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.array, self.index)?;
        if self.index < 0 {
            write!(f, ", before its start")?;
        } else if self.index as u64 >= self.len {
            write!(f, ", past its {} elements", self.len)?;
        } else if let Some((row, column)) = self.row_column {
            write!(f, " (row {row}, column {column})")?;
        }
        Ok(())
    }
}

/// The other thread of a race, of an element written twice or of a barrier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Other {
    /// What it did, such as "write" or "returned".
    pub what: &'static str,
    /// Its block: x, y, z.
    pub block: [u32; 3],
    /// Its index in the block: x, y, z.
    pub thread: [u32; 3],
    /// Where, if at a call.
    pub place: Option<Place>,
}

/// One fault: its first occurrence, and how many there were of its like.
///
/// Faults of one kind at one place on one array are counted as one; the one
/// shown is of the first block, and in it the first that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// What is wrong.
    pub kind: FaultKind,
    /// The kernel.
    pub kernel: &'static str,
    /// The launch's index in the plan.
    pub launch: usize,
    /// The block: x, y, z.
    pub block: Option<[u32; 3]>,
    /// The thread's index in the block: x, y, z.
    pub thread: Option<[u32; 3]>,
    /// Where in the kernel's source. For an element never written or read, a
    /// place that writes or reads its array.
    pub place: Option<Place>,
    /// The address, in the simulator's terms.
    pub address: Option<u64>,
    /// The address as array and index.
    pub element: Option<Element>,
    /// The other thread, where two are to blame.
    pub other: Option<Other>,
    /// More about it, such as sizes or a panic's message.
    pub detail: String,
    /// How many occurrences this entry stands for, in 4-byte words, accesses or
    /// blocks.
    pub occurrences: u64,
}

struct Triple([u32; 3]);

impl fmt::Display for Triple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(f, "({x}, {y}, {z})")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.kernel)?;
        if let Some(block) = self.block {
            write!(f, ", block {}", Triple(block))?;
        }
        if let Some(thread) = self.thread {
            write!(f, ", thread {}", Triple(thread))?;
        }
        if let Some(place) = self.place {
            write!(f, ", at {place}")?;
        }
        if let Some(element) = &self.element {
            write!(f, ": {element}")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        if let Some(other) = &self.other {
            write!(
                f,
                "; {} by block {}, thread {}",
                other.what,
                Triple(other.block),
                Triple(other.thread)
            )?;
            if let Some(place) = other.place {
                write!(f, ", at {place}")?;
            }
        }
        if self.occurrences > 1 {
            write!(f, " [{} times]", self.occurrences)?;
        }
        Ok(())
    }
}

/// An array, before it has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ArrayId {
    /// Not in any array.
    None,
    /// An index of `memory::NAMES`.
    Global(u8),
    /// A shared array.
    Shared(&'static str),
}

/// A thread of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ThreadId {
    /// Linear index of the block.
    pub(crate) block: u64,
    /// Linear index in the block.
    pub(crate) thread: u16,
}

/// A fault as it is found: with numbers instead of names.
#[derive(Clone, Debug)]
pub(crate) struct RawFault {
    pub(crate) kind: FaultKind,
    pub(crate) by: Option<ThreadId>,
    pub(crate) site: Option<SiteId>,
    pub(crate) address: Option<u64>,
    pub(crate) array: ArrayId,
    /// Byte offset in the array.
    pub(crate) offset: i64,
    /// Bytes of the array.
    pub(crate) array_bytes: u64,
    pub(crate) element_bytes: u32,
    pub(crate) other: Option<(&'static str, ThreadId, Option<SiteId>)>,
    pub(crate) detail: Cow<'static, str>,
}

impl RawFault {
    pub(crate) fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            by: None,
            site: None,
            address: None,
            array: ArrayId::None,
            offset: 0,
            array_bytes: 0,
            element_bytes: 4,
            other: None,
            detail: Cow::Borrowed(""),
        }
    }
}

/// Faults, with like ones counted as one.
#[derive(Debug, Default)]
pub(crate) struct FaultList {
    entries: Vec<Entry>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) fault: RawFault,
    pub(crate) occurrences: u64,
    /// Orders the faults of one block as they were found.
    pub(crate) order: u64,
}

impl Entry {
    fn alike(&self, other: &RawFault) -> bool {
        self.fault.kind == other.kind
            && self.fault.site == other.site
            && self.fault.array == other.array
    }

    fn rank(&self) -> (u64, u64) {
        (self.fault.by.map_or(u64::MAX, |by| by.block), self.order)
    }
}

impl FaultList {
    pub(crate) fn add(&mut self, fault: RawFault, order: u64) {
        self.add_entry(Entry {
            fault,
            occurrences: 1,
            order,
        });
    }

    /// Whichever worker ran which block, and in whichever order: the entry of
    /// the first block stays.
    pub(crate) fn add_entry(&mut self, entry: Entry) {
        match self
            .entries
            .iter_mut()
            .find(|known| known.alike(&entry.fault))
        {
            Some(known) => {
                let occurrences = known.occurrences + entry.occurrences;
                if entry.rank() < known.rank() {
                    *known = entry;
                }
                known.occurrences = occurrences;
            }
            None => self.entries.push(entry),
        }
    }

    pub(crate) fn extend(&mut self, other: Self) {
        for entry in other.entries {
            self.add_entry(entry);
        }
    }

    /// The entries: by block, then as found.
    pub(crate) fn into_sorted(mut self, places: &[Place]) -> Vec<Entry> {
        // Sites are numbered in the order in which workers meet them, which
        // varies from run to run: they must not decide.
        self.entries.sort_by_key(|entry| {
            let place = entry
                .fault
                .site
                .and_then(|site| places.get(usize::from(site)));
            (entry.rank(), entry.fault.kind, place.copied())
        });
        self.entries
    }
}
