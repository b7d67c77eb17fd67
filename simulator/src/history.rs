//! Who touched a word of memory since the block's last barrier.
//!
//! An epoch is the time between two barriers of a block. Two accesses of one
//! word in one epoch, by different threads, at least one a write, are a race:
//! nothing orders them. Epochs only grow, also from block to block, so an old
//! entry never needs clearing.

use crate::sites::SiteId;

/// A thread at a call site, in an epoch.
#[derive(Clone, Copy)]
pub(crate) struct Actor {
    /// Linear index in the block.
    pub(crate) thread: u16,
    pub(crate) site: SiteId,
    pub(crate) epoch: u32,
}

/// What the other side of a race did. Small, like all that an access returns:
/// it is made tens of millions of times and looked at once in a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Read,
    Wrote,
}

impl Did {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Wrote => "written",
        }
    }
}

/// The other side of a race: what it did, who it is, and where.
pub(crate) type Conflict = (Did, u16, SiteId);

/// The last write and the first two readers of the latest epoch of each.
///
/// Two readers are enough to find a race with any writer: one of them is not
/// the writer.
#[derive(Clone, Copy, Default)]
pub(crate) struct History {
    /// 0: never written.
    write_epoch: u32,
    read_epoch: u32,
    writer: u16,
    write_site: SiteId,
    readers: [u16; 2],
    read_sites: [SiteId; 2],
}

impl History {
    /// Whether a write stands in the record from this epoch on.
    #[inline]
    pub(crate) fn written_since(&self, epoch: u32) -> bool {
        self.write_epoch >= epoch
    }

    /// The last writer and its site.
    pub(crate) fn last_write(&self) -> (u16, SiteId) {
        (self.writer, self.write_site)
    }

    #[inline]
    pub(crate) fn read(&mut self, by: Actor) -> Option<Conflict> {
        if self.read_epoch != by.epoch {
            self.read_epoch = by.epoch;
            self.readers = [by.thread; 2];
            self.read_sites = [by.site; 2];
        } else if self.readers[0] != by.thread && self.readers[0] == self.readers[1] {
            self.readers[1] = by.thread;
            self.read_sites[1] = by.site;
        }
        (self.write_epoch == by.epoch && self.writer != by.thread).then_some((
            Did::Wrote,
            self.writer,
            self.write_site,
        ))
    }

    #[inline]
    pub(crate) fn write(&mut self, by: Actor) -> Option<Conflict> {
        let mut conflict = None;
        if self.write_epoch == by.epoch && self.writer != by.thread {
            conflict = Some((Did::Wrote, self.writer, self.write_site));
        } else if self.read_epoch == by.epoch {
            for (reader, site) in self.readers.into_iter().zip(self.read_sites) {
                if reader != by.thread {
                    conflict = Some((Did::Read, reader, site));
                    break;
                }
            }
        }
        self.write_epoch = by.epoch;
        self.writer = by.thread;
        self.write_site = by.site;
        conflict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(thread: u16, epoch: u32) -> Actor {
        Actor {
            thread,
            site: thread,
            epoch,
        }
    }

    #[test]
    fn a_barrier_orders_and_a_thread_orders_itself() {
        let mut history = History::default();
        assert!(!history.written_since(1));
        assert_eq!(history.write(actor(3, 1)), None);
        assert_eq!(history.write(actor(3, 1)), None);
        assert_eq!(history.read(actor(3, 1)), None);
        assert_eq!(history.read(actor(4, 2)), None);
        assert_eq!(history.write(actor(5, 3)), None);
        assert!(history.written_since(3) && !history.written_since(4));
    }

    #[test]
    fn each_kind_of_race_names_the_other() {
        let mut history = History::default();
        history.write(actor(3, 1));
        assert_eq!(history.read(actor(4, 1)), Some((Did::Wrote, 3, 3)));
        assert_eq!(history.write(actor(5, 1)), Some((Did::Wrote, 3, 3)));
        let mut history = History::default();
        history.read(actor(3, 1));
        assert_eq!(history.write(actor(3, 1)), None, "its own read");
        let mut history = History::default();
        history.read(actor(3, 1));
        history.read(actor(4, 1));
        history.read(actor(3, 1));
        assert_eq!(history.write(actor(3, 1)), Some((Did::Read, 4, 4)));
        let mut history = History::default();
        history.read(actor(3, 1));
        history.read(actor(4, 1));
        assert_eq!(history.write(actor(9, 1)), Some((Did::Read, 3, 3)));
    }
}
