//! Global memory: its arrays, and what a launch does to them.
//!
//! Each array has a range of 2^44 addresses to itself and starts in the middle
//! of it, so an address a whole matrix too far still tells which array it was
//! meant for. Array starts are multiples of 256, as `cudaMalloc` gives them,
//! unless an offset is asked for.
//!
//! Blocks of one launch are not ordered, so no block may see what another
//! writes. The simulator takes that literally: during a launch the arrays do
//! not change. What a block writes goes to a map of its own, and its own reads
//! ask that first. At its end the map is committed to the launch's ledger,
//! which keeps, for each word, the first and the last block that wrote it and
//! that read it. From these alone the races between blocks follow, and the
//! value: the last block's. First and last are by number, not by time, so the
//! outcome is the same whatever ran first, and no memory is ever shared between
//! two writers.
//!
//! What later kernels need here: atomic operations make words on which blocks
//! may meet, which want an entry in the ledger that excuses them; flags that
//! one block waits for while another sets them want memory that changes during
//! the launch.

use crate::fault::{ArrayId, FaultKind, FaultList, RawFault, ThreadId};
use crate::history::{Actor, Conflict, Did, History};
use crate::sites::SiteId;
use kernels::launch::Buffer;
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// The arrays' names in reports.
pub(crate) const NAMES: [&str; ARRAYS] = ["A", "B", "C", "workspace"];
const ARRAYS: usize = 4;
/// C's index.
pub(crate) const C: usize = 2;
const WORKSPACE: usize = 3;

const RANGE_BITS: u32 = 44;
const MIDDLE: u64 = 1 << (RANGE_BITS - 1);

/// A quiet NaN as float32, twice one as float64, and far outside as an index.
pub(crate) const POISON: u32 = 0x7ff8_dead;

/// One bit for each word.
struct Bits(Vec<u64>);

impl Bits {
    fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    #[inline]
    fn get(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 != 0
    }

    fn set(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }
}

struct Array {
    words: Vec<u32>,
    /// Address of the first byte.
    base: u64,
    /// Words that were written before this launch, or nothing where the host
    /// filled them all.
    initialised: Option<Bits>,
    /// Words that a thread has read; kept for A and B alone. Setting a bit twice
    /// is setting it once, so the order of the threads leaves no trace.
    read: Vec<AtomicU64>,
}

impl Array {
    fn bytes(&self) -> u64 {
        self.words.len() as u64 * 4
    }

    fn initialised(&self, word: usize) -> bool {
        self.initialised.as_ref().is_none_or(|bits| bits.get(word))
    }

    #[inline]
    fn note_read(&self, word: usize) {
        if let Some(bits) = self.read.get(word / 64) {
            let bit = 1 << (word % 64);
            if bits.load(Ordering::Relaxed) & bit == 0 {
                bits.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }
}

/// All arrays of global memory.
pub(crate) struct GlobalMemory {
    arrays: [Array; ARRAYS],
}

fn index_of(buffer: Buffer) -> usize {
    match buffer {
        Buffer::A => 0,
        Buffer::B => 1,
        Buffer::C => C,
        Buffer::Workspace(_) => WORKSPACE,
    }
}

/// Words of an array from a word on.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) array: usize,
    pub(crate) word: usize,
}

/// An address outside: the array it was meant for, and the offset in bytes.
pub(crate) struct Outside {
    pub(crate) array: Option<(usize, i64)>,
}

impl GlobalMemory {
    /// Memory that holds the operands, and C and the workspace unwritten.
    ///
    /// `offsets` move the starts of A, B, C and the workspace, in 4-byte words.
    pub(crate) fn new(
        a: &[f32],
        b: &[f32],
        c_elements: usize,
        workspace_bytes: u64,
        offsets: [u32; ARRAYS],
    ) -> Self {
        let array = |i: usize, words: Vec<u32>, filled: bool| Array {
            base: ((i as u64 + 1) << RANGE_BITS) + MIDDLE + u64::from(offsets[i]) * 4,
            initialised: (!filled).then(|| Bits::new(words.len())),
            read: if filled {
                (0..words.len().div_ceil(64))
                    .map(|_| AtomicU64::new(0))
                    .collect()
            } else {
                Vec::new()
            },
            words,
        };
        let operand = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
        let workspace_words = workspace_bytes.div_ceil(4) as usize;
        Self {
            arrays: [
                array(0, operand(a), true),
                array(1, operand(b), true),
                array(C, vec![POISON; c_elements], false),
                array(WORKSPACE, vec![POISON; workspace_words], false),
            ],
        }
    }

    /// The address of a buffer.
    pub(crate) fn address(&self, buffer: Buffer) -> u64 {
        let base = self.arrays[index_of(buffer)].base;
        match buffer {
            Buffer::Workspace(bytes) => base.wrapping_add(bytes),
            Buffer::A | Buffer::B | Buffer::C => base,
        }
    }

    /// The index of a buffer's array.
    pub(crate) fn array(buffer: Buffer) -> usize {
        index_of(buffer)
    }

    /// The words that an access of `bytes` bytes at `address` moves.
    #[inline]
    pub(crate) fn locate(&self, address: u64, bytes: usize) -> Result<Span, Outside> {
        let range = (address >> RANGE_BITS).wrapping_sub(1);
        let Some(array) = self.arrays.get(range as usize) else {
            return Err(Outside { array: None });
        };
        let offset = address.wrapping_sub(array.base) as i64;
        if offset < 0 || offset as u64 + bytes as u64 > array.bytes() {
            return Err(Outside {
                array: Some((range as usize, offset)),
            });
        }
        Ok(Span {
            array: range as usize,
            word: offset as usize / 4,
        })
    }

    pub(crate) fn array_bytes(&self, array: usize) -> u64 {
        self.arrays[array].bytes()
    }

    pub(crate) fn base(&self, array: usize) -> u64 {
        self.arrays[array].base
    }

    /// Reads a word that this launch does not write. The flag says whether it
    /// was ever written.
    #[inline]
    pub(crate) fn read(&self, span: Span) -> (u32, bool) {
        let array = &self.arrays[span.array];
        array.note_read(span.word);
        (array.words[span.word], array.initialised(span.word))
    }

    /// The content of C.
    pub(crate) fn c(&self) -> Vec<f32> {
        self.arrays[C]
            .words
            .iter()
            .map(|&bits| f32::from_bits(bits))
            .collect()
    }

    /// The content of the workspace.
    pub(crate) fn workspace(&self) -> Vec<u32> {
        self.arrays[WORKSPACE].words.clone()
    }

    /// Words of C that nothing wrote: the first, and how many.
    pub(crate) fn never_written(&self) -> Option<(usize, u64)> {
        let array = &self.arrays[C];
        first_and_count((0..array.words.len()).filter(|&word| !array.initialised(word)))
    }

    /// Words of A (0) or B (1) that no thread read: the first, and how many.
    pub(crate) fn never_read(&self, array: usize) -> Option<(usize, u64)> {
        let array = &self.arrays[array];
        let read =
            |word: usize| array.read[word / 64].load(Ordering::Relaxed) >> (word % 64) & 1 != 0;
        first_and_count((0..array.words.len()).filter(|&word| !read(word)))
    }

    /// Takes over what a launch wrote, and reports what its blocks did to one
    /// another.
    ///
    /// `overlap`: several threads may write the same bits to an element of C.
    pub(crate) fn settle(&mut self, ledger: Ledger, overlap: bool, faults: &mut FaultList) {
        for (id, (array, log)) in self.arrays.iter_mut().zip(ledger.arrays).enumerate() {
            let Some(log) = log else { continue };
            for word in 0..log.words.len() {
                let Some(first_write) = Mark::unpack(log.first_writer[word]) else {
                    continue;
                };
                let last_write = Mark::unpack(log.last_writer[word]).unwrap_or(first_write);
                array.words[word] = log.words[word];
                if let Some(bits) = &mut array.initialised {
                    bits.set(word);
                }
                let mut report = |kind, by: Mark, other: Mark, what, detail| {
                    let mut fault = RawFault::new(kind);
                    fault.by = Some(by.thread);
                    fault.site = Some(by.site);
                    fault.array = ArrayId::Global(id as u8);
                    fault.offset = word as i64 * 4;
                    fault.address = Some(array.base + word as u64 * 4);
                    fault.array_bytes = log.words.len() as u64 * 4;
                    fault.element_bytes = log.element_bytes;
                    fault.other = Some((what, other.thread, Some(other.site)));
                    fault.detail = Cow::Borrowed(detail);
                    // After all that the block itself found, by address.
                    faults.add(fault, (1 << 63) + ((id as u64) << 56) + word as u64);
                };
                if first_write.thread.block != last_write.thread.block {
                    let differ = log.differ.get(word);
                    if id != C {
                        report(
                            FaultKind::GlobalRace,
                            last_write,
                            first_write,
                            "written",
                            "two blocks of one launch write it",
                        );
                    } else if differ || !overlap {
                        report(
                            FaultKind::WrittenTwice,
                            last_write,
                            first_write,
                            "written",
                            Detail::of_second_write(differ).text(),
                        );
                    }
                }
                // A reader of another block than some writer's: the outermost
                // of both are enough to tell.
                let readers = [log.first_reader[word], log.last_reader[word]];
                let race = readers
                    .into_iter()
                    .filter_map(Mark::unpack)
                    .find_map(|read| {
                        [first_write, last_write]
                            .into_iter()
                            .find(|write| write.thread.block != read.thread.block)
                            .map(|write| (read, write))
                    });
                if let Some((read, write)) = race {
                    report(
                        FaultKind::GlobalRace,
                        read,
                        write,
                        "written",
                        "a block reads what another writes in the same launch",
                    );
                }
            }
        }
    }
}

fn first_and_count(mut words: impl Iterator<Item = usize>) -> Option<(usize, u64)> {
    let first = words.next()?;
    Some((first, 1 + words.count() as u64))
}

/// A thread at a site, in 64 bits that sort by block, then thread. 0 is nobody.
#[derive(Clone, Copy)]
struct Mark {
    thread: ThreadId,
    site: SiteId,
}

/// The most blocks that a mark can tell apart.
pub(crate) const MAX_BLOCKS: u64 = 1 << 38;

impl Mark {
    fn pack(block: u64, (thread, site): (u16, SiteId)) -> u64 {
        (block << 26) | (u64::from(thread) << 16) | (u64::from(site) + 1)
    }

    fn unpack(bits: u64) -> Option<Self> {
        let site = ((bits & 0xffff) as u16).checked_sub(1)?;
        Some(Self {
            thread: ThreadId {
                block: bits >> 26,
                thread: (bits >> 16) as u16 & 0x3ff,
            },
            site,
        })
    }
}

/// What the blocks of one launch did to the arrays that it may write.
pub(crate) struct Ledger {
    arrays: [Option<ArrayLog>; ARRAYS],
}

/// A column for each fact, so that memory of words that nothing touches is
/// never mapped.
struct ArrayLog {
    words: Vec<u32>,
    differ: Bits,
    first_writer: Vec<u64>,
    last_writer: Vec<u64>,
    first_reader: Vec<u64>,
    last_reader: Vec<u64>,
    /// Of the widest element that was accessed, to name indices by.
    element_bytes: u32,
}

impl Ledger {
    pub(crate) fn new(memory: &GlobalMemory, writable: [bool; ARRAYS]) -> Self {
        let mut arrays = [const { None }; ARRAYS];
        for (i, log) in arrays.iter_mut().enumerate() {
            let words = memory.arrays[i].words.len();
            if writable[i] {
                *log = Some(ArrayLog {
                    words: vec![0; words],
                    differ: Bits::new(words),
                    first_writer: vec![0; words],
                    last_writer: vec![0; words],
                    first_reader: vec![0; words],
                    last_reader: vec![0; words],
                    element_bytes: 4,
                });
            }
        }
        Self { arrays }
    }

    /// Adds what a block did, and empties its record.
    pub(crate) fn commit(&mut self, block: u64, accesses: &mut BlockAccesses) {
        for (span, word) in accesses.words.drain() {
            let (array, i) = ((span >> 56) as usize, (span << 8 >> 8) as usize);
            let Some(log) = &mut self.arrays[array] else {
                continue;
            };
            log.element_bytes = log.element_bytes.max(word.element_bytes);
            if let Some(first) = word.first_writer {
                let first = Mark::pack(block, first);
                let last = Mark::pack(block, word.history.last_write());
                let other_bits = log.first_writer[i] != 0 && log.words[i] != word.value;
                if other_bits || word.differ {
                    log.differ.set(i);
                }
                if log.first_writer[i] == 0 || first < log.first_writer[i] {
                    log.first_writer[i] = first;
                }
                if last > log.last_writer[i] {
                    log.last_writer[i] = last;
                    log.words[i] = word.value;
                }
            }
            if let Some(reader) = word.first_reader {
                let reader = Mark::pack(block, reader);
                if log.first_reader[i] == 0 || reader < log.first_reader[i] {
                    log.first_reader[i] = reader;
                }
                log.last_reader[i] = log.last_reader[i].max(reader);
            }
        }
    }
}

pub(crate) type Writable = [bool; ARRAYS];

/// What the running block did to words that the launch may write.
#[derive(Default)]
pub(crate) struct BlockAccesses {
    words: FxHashMap<u64, Word>,
}

#[derive(Clone, Copy, Default)]
struct Word {
    value: u32,
    history: History,
    first_writer: Option<(u16, SiteId)>,
    first_reader: Option<(u16, SiteId)>,
    differ: bool,
    element_bytes: u32,
}

/// What is wrong with an access.
#[derive(Clone, Copy)]
pub(crate) struct Finding {
    pub(crate) kind: FaultKind,
    pub(crate) other: Option<Conflict>,
    /// The other's block in the cluster, where it is not the accessing thread's.
    pub(crate) rank: Option<u8>,
    pub(crate) detail: Detail,
}

/// A word about a finding.
#[derive(Clone, Copy)]
pub(crate) enum Detail {
    None,
    NoBarrier,
    NoBarrierBefore,
    SameBits,
    OtherBits,
}

impl Detail {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::None => "",
            Self::NoBarrier => "no barrier between",
            Self::NoBarrierBefore => "no barrier of the cluster before",
            Self::SameBits => "a second thread writes the same bits",
            Self::OtherBits => "a second thread writes other bits",
        }
    }

    fn of_second_write(differ: bool) -> Self {
        if differ {
            Self::OtherBits
        } else {
            Self::SameBits
        }
    }
}

impl Finding {
    /// A write to a block of the cluster that may not have begun.
    pub(crate) const UNBEGUN: Self = Self {
        kind: FaultKind::UnbegunBlock,
        other: None,
        rank: None,
        detail: Detail::NoBarrierBefore,
    };

    pub(crate) fn race(kind: FaultKind, other: Conflict) -> Self {
        Self {
            kind,
            other: Some(other),
            rank: None,
            detail: Detail::NoBarrier,
        }
    }

    pub(crate) fn uninitialized(kind: FaultKind) -> Self {
        Self {
            kind,
            other: None,
            rank: None,
            detail: Detail::None,
        }
    }
}

fn key(span: Span) -> u64 {
    ((span.array as u64) << 56) | span.word as u64
}

impl BlockAccesses {
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Reads a word of an array that the launch may write.
    pub(crate) fn read(
        &mut self,
        memory: &GlobalMemory,
        span: Span,
        element_bytes: u32,
        by: Actor,
    ) -> (u32, Option<Finding>) {
        let (before, initialised) = memory.read(span);
        let word = self.words.entry(key(span)).or_default();
        word.element_bytes = word.element_bytes.max(element_bytes);
        word.first_reader.get_or_insert((by.thread, by.site));
        let conflict = word.history.read(by);
        if word.first_writer.is_none() {
            let finding =
                (!initialised).then_some(Finding::uninitialized(FaultKind::UninitializedGlobal));
            return (before, finding);
        }
        let finding = conflict.map(|other| Finding::race(FaultKind::GlobalRace, other));
        (word.value, finding)
    }

    /// Writes a word of an array that the launch may write.
    pub(crate) fn write(
        &mut self,
        span: Span,
        value: u32,
        element_bytes: u32,
        by: Actor,
        overlap: bool,
    ) -> Option<Finding> {
        let word = self.words.entry(key(span)).or_default();
        word.element_bytes = word.element_bytes.max(element_bytes);
        let before = word
            .first_writer
            .map(|_| (word.value, word.history.last_write()));
        let conflict = word.history.write(by);
        word.first_writer.get_or_insert((by.thread, by.site));
        word.value = value;

        let race = conflict.map(|other| Finding::race(FaultKind::GlobalRace, other));
        let Some((old, (thread, site))) = before else {
            return race;
        };
        let differ = old != value;
        word.differ |= differ && thread != by.thread;
        if span.array != C || thread == by.thread {
            return race;
        }
        // For C it is one fault, with a barrier or without.
        (differ || !overlap).then_some(Finding {
            kind: FaultKind::WrittenTwice,
            other: Some((Did::Wrote, thread, site)),
            rank: None,
            detail: Detail::of_second_write(differ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> GlobalMemory {
        GlobalMemory::new(&[1.0; 10], &[2.0; 6], 4, 16, [0, 1, 0, 0])
    }

    #[test]
    fn an_address_names_its_array_however_far_outside() {
        let memory = memory();
        let a = memory.address(Buffer::A);
        assert_eq!(a % 256, 0);
        assert_eq!(memory.address(Buffer::B) % 256, 4);
        assert!(memory.locate(a + 36, 4).is_ok());
        for (address, offset) in [
            (a + 40, 40),
            (a - 4, -4),
            (a + (4 << 32), 4 << 32),
            (a - (4 << 32), -(4 << 32)),
        ] {
            let outside = memory.locate(address, 4).err().and_then(|o| o.array);
            assert_eq!(outside, Some((0, offset)));
        }
        assert!(memory.locate(a + 32, 16).is_err(), "the second half");
        assert!(memory.locate(0, 4).err().is_some_and(|o| o.array.is_none()));
    }

    #[test]
    fn marks_keep_what_they_were_given() {
        for (block, thread, site) in [(0, 0, 0), (MAX_BLOCKS - 1, 1023, 65_534), (7, 31, 2)] {
            let mark = Mark::unpack(Mark::pack(block, (thread, site))).expect("somebody");
            assert_eq!(
                (mark.thread.block, mark.thread.thread, mark.site),
                (block, thread, site)
            );
        }
        assert!(Mark::unpack(0).is_none());
    }

    #[test]
    fn blocks_meet_in_the_ledger_in_any_order() {
        let act = |thread| Actor {
            thread,
            site: 1,
            epoch: 1,
        };
        let span = Span { array: C, word: 2 };
        let mut outcomes = Vec::new();
        for order in [[3, 5, 4], [5, 4, 3], [4, 3, 5]] {
            let mut memory = memory();
            let mut ledger = Ledger::new(&memory, [false, false, true, false]);
            for block in order {
                let mut accesses = BlockAccesses::default();
                assert!(
                    accesses
                        .write(span, block as u32, 4, act(block as u16), false)
                        .is_none()
                );
                ledger.commit(block, &mut accesses);
            }
            let mut faults = FaultList::default();
            memory.settle(ledger, false, &mut faults);
            let faults = faults.into_sorted(&[]);
            assert_eq!(faults.len(), 1);
            assert_eq!(faults[0].fault.kind, FaultKind::WrittenTwice);
            assert_eq!(memory.never_written(), Some((0, 3)));
            outcomes.push((
                memory.c()[2].to_bits(),
                faults[0].fault.by,
                faults[0].fault.other.map(|other| other.1),
            ));
        }
        assert_eq!(outcomes[0].0, 5);
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]));
    }
}
