//! The shared memory of a block.
//!
//! Arrays lie one after the other, aligned to 16 bytes, as ptxas lays them out,
//! so that an address has the bank it would have. In addresses that kernels
//! see, each array has a range of 2^40 to itself besides, so that an index past
//! its end names no other array.
//!
//! Arrays of the dynamic shared memory lie here like any other. Epochs order what
//! barriers of the whole block order; in blocks that copy asynchronously or are
//! of a cluster, [`Order`](crate::order::Order) says what is a race.

use crate::fault::FaultKind;
use crate::history::{Actor, History};
use crate::memory::{Finding, POISON};

const RANGE_BITS: u32 = 40;
const OFFSET: u64 = (1 << RANGE_BITS) - 1;
const ALIGNMENT: u32 = 16;

/// An array that the running block has declared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedArray {
    pub(crate) name: &'static str,
    /// Of its first byte, in the block's shared memory.
    pub(crate) start: u32,
    pub(crate) bytes: u32,
}

/// Kept from block to block; see [`History`] for why nothing is cleared.
#[derive(Default)]
pub(crate) struct SharedMemory {
    arrays: Vec<SharedArray>,
    words: Vec<u32>,
    shadow: Vec<History>,
    used: u32,
    /// The running block's first epoch: older writes are another block's.
    since: u32,
}

/// An address outside: the array it was meant for, and the offset in bytes.
pub(crate) struct Outside {
    pub(crate) array: Option<(SharedArray, i64)>,
}

impl SharedMemory {
    pub(crate) fn begin_block(&mut self, epoch: u32) {
        self.arrays.clear();
        self.used = 0;
        self.since = epoch;
    }

    /// Forgets every epoch, so that they may start again from 1.
    pub(crate) fn forget(&mut self) {
        self.shadow.fill(History::default());
    }

    /// The address of the array of that name, declared if it is new.
    ///
    /// `false` where it would take the block's arrays beyond `limit` bytes. It
    /// is declared all the same, so that the kernel can go on.
    pub(crate) fn declare(&mut self, name: &'static str, bytes: u32, limit: u32) -> (u64, bool) {
        let known = self.arrays.iter().position(|array| array.name == name);
        if let Some(i) = known {
            return (self.address(i), true);
        }
        let start = self.used.next_multiple_of(ALIGNMENT);
        let end = start.saturating_add(bytes);
        self.used = end;
        self.arrays.push(SharedArray { name, start, bytes });
        self.reach(end.div_ceil(4) as usize);
        (self.address(self.arrays.len() - 1), end <= limit)
    }

    /// Has room for so many words.
    fn reach(&mut self, words: usize) {
        if words > self.words.len() {
            self.words.resize(words, POISON);
            self.shadow.resize(words, History::default());
        }
    }

    fn address(&self, array: usize) -> u64 {
        ((array as u64 + 1) << RANGE_BITS) + u64::from(self.arrays[array].start)
    }

    /// Index and first word of the array that holds `bytes` bytes at `address`.
    #[inline]
    pub(crate) fn locate(&self, address: u64, bytes: usize) -> Result<(usize, usize), Outside> {
        let range = (address >> RANGE_BITS).wrapping_sub(1);
        let Some(&array) = self.arrays.get(range as usize) else {
            return Err(Outside { array: None });
        };
        let offset = (address & OFFSET) as i64 - i64::from(array.start);
        if offset < 0 || offset as u64 + bytes as u64 > u64::from(array.bytes) {
            return Err(Outside {
                array: Some((array, offset)),
            });
        }
        Ok((range as usize, (address & OFFSET) as usize / 4))
    }

    pub(crate) fn array(&self, index: usize) -> SharedArray {
        self.arrays[index]
    }

    /// Bytes that the running block has declared.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    #[inline]
    pub(crate) fn read(&mut self, word: usize, by: Actor) -> (u32, Option<Finding>) {
        let shadow = &mut self.shadow[word];
        let conflict = shadow.read(by);
        if !shadow.written_since(self.since) {
            return (
                POISON,
                Some(Finding::uninitialized(FaultKind::UninitializedShared)),
            );
        }
        let finding = conflict.map(|other| Finding::race(FaultKind::SharedRace, other));
        (self.words[word], finding)
    }

    /// Reads a word for another block of the cluster. What it is ordered after,
    /// [`Order`](crate::order::Order) knows.
    ///
    /// This block may not have declared its arrays yet.
    pub(crate) fn peek(&self, word: usize) -> (u32, Option<Finding>) {
        let shadow = self.shadow.get(word);
        if !shadow.is_some_and(|shadow| shadow.written_since(self.since)) {
            let finding = Finding::uninitialized(FaultKind::UninitializedShared);
            return (POISON, Some(finding));
        }
        (self.words[word], None)
    }

    /// Writes a word likewise, in an epoch of this block.
    pub(crate) fn poke(&mut self, word: usize, value: u32, by: Actor) {
        self.reach(word + 1);
        self.words[word] = value;
        // A race with it is not for epochs to tell.
        let _ = self.shadow[word].write(by);
    }

    #[inline]
    pub(crate) fn write(&mut self, word: usize, value: u32, by: Actor) -> Option<Finding> {
        self.words[word] = value;
        self.shadow[word]
            .write(by)
            .map(|other| Finding::race(FaultKind::SharedRace, other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_keep_their_banks_and_their_distance() {
        let mut memory = SharedMemory::default();
        memory.begin_block(1);
        let (a, fits) = memory.declare("a", 12, 64);
        assert!(fits);
        let (b, fits) = memory.declare("b", 48, 64);
        assert!(fits, "16 + 48 bytes");
        assert_eq!(memory.declare("a", 12, 64), (a, true));
        assert!(!memory.declare("c", 4, 64).1);
        assert_eq!(b & OFFSET, 16, "aligned after the 12 bytes of a");
        assert!(memory.locate(a + 8, 4).is_ok());
        let outside = memory.locate(a + 16, 4).err().and_then(|o| o.array);
        assert_eq!(
            outside.map(|(array, offset)| (array.name, offset)),
            Some(("a", 16))
        );
        let far = memory.locate(a + (4 << 32), 4).err().and_then(|o| o.array);
        assert_eq!(far.map(|(array, _)| array.name), Some("a"));
    }

    #[test]
    fn a_block_may_be_visited_before_it_has_declared_its_arrays() {
        let mut memory = SharedMemory::default();
        memory.begin_block(3);
        assert_eq!(memory.peek(1).0, POISON);
        let by = Actor {
            thread: 0,
            site: 0,
            epoch: 3,
        };
        memory.poke(1, 7, by);
        memory.declare("a", 16, 64);
        assert!(memory.peek(0).1.is_some() && memory.peek(2).1.is_some());
        assert!(memory.peek(1).1.is_none());
        assert_eq!(memory.read(1, by).0, 7);
        memory.begin_block(4);
        assert_eq!(memory.peek(1).0, POISON);
    }

    #[test]
    fn a_block_does_not_see_the_one_before() {
        let mut memory = SharedMemory::default();
        let by = |epoch| Actor {
            thread: 0,
            site: 0,
            epoch,
        };
        memory.begin_block(1);
        memory.declare("a", 4, 64);
        assert!(memory.write(0, 7, by(1)).is_none());
        assert_eq!(memory.read(0, by(1)).0, 7);
        memory.begin_block(2);
        memory.declare("a", 4, 64);
        let (value, finding) = memory.read(0, by(2));
        assert_eq!(value, POISON);
        assert!(finding.is_some_and(|finding| finding.kind == FaultKind::UninitializedShared));
    }
}
