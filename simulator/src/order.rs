//! What is ordered after what, in blocks that copy asynchronously or are of a
//! cluster.
//!
//! Barriers of the whole block cut its time into epochs, and
//! [`History`](crate::history) compares those. Barriers in shared memory and
//! asynchronous copies order some threads and not others, so here each agent has
//! a vector clock: for each other agent, up to where it knows its doings.
//!
//! Agents are the threads, the copies of each thread, and the copy engine. A
//! copy is an agent of its own because it runs beside the thread that started
//! it: not even that thread may touch what it copies before it has waited. In
//! the simulator's memory a copy lands as soon as it is started. What makes an
//! early read a fault is that nothing orders it after the copy.
//!
//! An access at clock c of agent x is ordered before thread t's present where
//! t's clock of x is at least c (Lamport; Mattern, *Virtual Time and Global
//! States of Distributed Systems*, 1989).
//!
//! # Clusters
//!
//! Only the cluster's barrier orders what different blocks do. So a thread does
//! not have clocks of other blocks' agents: one component of its clock is the
//! last phase of the cluster's barrier that it knows to have ended, from its own
//! wait or from a thread of its block. When a phase ends, what all blocks knew
//! of their own agents by then is [`Published`]. An access at clock c of agent x
//! of another block is ordered before the thread's present where c is at most
//! what was published for x in that phase.
//!
//! Nothing before the last phase but one is needed: every thread has waited for
//! a phase before it arrives in the next.

use crate::sites::SiteId;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The last write of a word, and the reads since.
#[derive(Clone, Default)]
struct Word {
    writer: usize,
    /// 0: not written since the clocks run.
    clock: u32,
    /// The thread that wrote, or started the copy.
    thread: u16,
    site: SiteId,
    readers: Vec<Reader>,
}

/// The last read of a word by a thread.
#[derive(Clone, Copy)]
struct Reader {
    /// Of its block in the cluster.
    rank: u8,
    thread: u16,
    clock: u32,
    site: SiteId,
}

/// A barrier in shared memory.
struct Barrier {
    arrivals: u32,
    /// Arrivals that the phase still waits for.
    left: u32,
    /// Bytes that it still waits for. Below zero where they came first.
    bytes: i64,
    /// Phases that have ended.
    phase: u32,
    /// What those know that arrived in this phase, and in all that ended.
    gathered: Vec<u32>,
    published: Vec<u32>,
}

/// A warp's own barrier.
#[derive(Clone, Default)]
struct Warp {
    arrived: u32,
    passed: u64,
    gathered: Vec<u32>,
    published: Vec<u32>,
}

/// The other side of a conflict.
pub(crate) struct Clash {
    pub(crate) wrote: bool,
    /// A copy wrote, and the thread is the one that started it.
    pub(crate) copy: bool,
    /// Of its block in the cluster.
    pub(crate) rank: u8,
    pub(crate) thread: u16,
    pub(crate) site: SiteId,
}

/// What the blocks of a cluster knew of their own agents when a phase of its
/// barrier ended: by rank, then by agent.
pub(crate) type Published = Rc<Vec<Vec<u32>>>;

/// A thread of another block of the cluster, now.
#[derive(Clone, Copy)]
pub(crate) struct Visitor {
    pub(crate) rank: u8,
    pub(crate) thread: u16,
    clock: u32,
    /// The last phase of the cluster's barrier that it knows to have ended.
    phase: u32,
}

/// A read of the block's memory by a thread of another.
#[derive(Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) rank: u8,
    pub(crate) thread: u16,
    pub(crate) site: SiteId,
    clock: u32,
}

/// What one thread did at the cluster's barrier.
#[derive(Clone, Copy, Default)]
struct AtCluster {
    arrivals: u32,
    waits: u32,
    /// Of its last arrival.
    site: SiteId,
}

/// The order of one block's doings.
pub(crate) struct Order {
    threads: usize,
    /// Of the block in its cluster.
    rank: u8,
    /// Clocks of each thread, for all agents.
    clocks: Vec<Vec<u32>>,
    /// The present of each thread's copies.
    copies: Vec<u32>,
    /// The present of the engine.
    engine: u32,
    /// Groups that each thread has closed: the clocks of their copies.
    groups: Vec<Vec<u32>>,
    warps: Vec<Warp>,
    barriers: BTreeMap<u64, Barrier>,
    words: Vec<Word>,
    at_cluster: Vec<AtCluster>,
    /// What those know that arrived at the cluster's barrier.
    gathered: Vec<u32>,
    /// Of the last two phases of the cluster's barrier, even and odd.
    published: [Published; 2],
    /// The last visit of each thread of the cluster, by rank and thread.
    visits: Vec<Option<Visit>>,
}

fn join(into: &mut [u32], from: &[u32]) {
    for (a, b) in into.iter_mut().zip(from) {
        *a = (*a).max(*b);
    }
}

/// What a barrier was used for that it can't be.
pub(crate) type Misuse = &'static str;

const NOT_MADE: Misuse = "no barrier was made there";

impl Order {
    /// The order of a block of so many threads, with its rank in the cluster.
    pub(crate) fn new(threads: usize, rank: u8) -> Self {
        // Threads, their copies, the engine, and the cluster's barrier.
        let agents = 2 * threads + 2;
        let mut clocks = vec![vec![0; agents]; threads];
        for (thread, clock) in clocks.iter_mut().enumerate() {
            clock[thread] = 1;
        }
        Self {
            threads,
            rank,
            clocks,
            copies: vec![1; threads],
            engine: 1,
            groups: vec![Vec::new(); threads],
            warps: vec![Warp::default(); threads.div_ceil(32)],
            barriers: BTreeMap::new(),
            words: Vec::new(),
            at_cluster: vec![AtCluster::default(); threads],
            gathered: vec![0; agents],
            published: Default::default(),
            visits: Vec::new(),
        }
    }

    fn agents(&self) -> usize {
        2 * self.threads + 2
    }

    /// The place in a clock of the last phase of the cluster's barrier.
    fn cluster(&self) -> usize {
        2 * self.threads + 1
    }

    /// Whether a thread knows of another block's agent up to a clock, from a
    /// phase of the cluster's barrier.
    fn was_published(&self, phase: u32, rank: u8, agent: usize, clock: u32) -> bool {
        self.published[phase as usize & 1]
            .get(usize::from(rank))
            .is_some_and(|known| known[agent] >= clock)
    }

    fn word(&mut self, word: usize) -> &mut Word {
        if word >= self.words.len() {
            self.words.resize(word + 1, Word::default());
        }
        &mut self.words[word]
    }

    /// Notes a read, and gives the write that it is not ordered after.
    pub(crate) fn read(&mut self, word: usize, thread: u16, site: SiteId) -> Option<Clash> {
        let (threads, rank) = (self.threads, self.rank);
        let own = self.clocks[usize::from(thread)][usize::from(thread)];
        let known = self.word(word);
        let (writer, clock) = (known.writer, known.clock);
        let clash = known.written(threads, rank);
        known.read_by(Reader {
            rank,
            thread,
            clock: own,
            site,
        });
        (self.clocks[usize::from(thread)][writer] < clock).then_some(clash)
    }

    /// Notes a write by `agent`, started by a thread, and gives an access that
    /// it is not ordered after.
    fn write_by(
        &mut self,
        word: usize,
        agent: usize,
        clock: u32,
        thread: u16,
        site: SiteId,
    ) -> Option<Clash> {
        self.word(word);
        let now = &self.clocks[usize::from(thread)];
        let known = &self.words[word];
        let mut clash = None;
        if now[known.writer] < known.clock {
            clash = Some(known.written(self.threads, self.rank));
        }
        let phase = now[self.cluster()];
        for reader in &known.readers {
            let agent = usize::from(reader.thread);
            let ordered = if reader.rank == self.rank {
                reader.thread == thread || now[agent] >= reader.clock
            } else {
                self.was_published(phase, reader.rank, agent, reader.clock)
            };
            if !ordered {
                clash.get_or_insert(Clash {
                    wrote: false,
                    copy: false,
                    rank: reader.rank,
                    thread: reader.thread,
                    site: reader.site,
                });
            }
        }
        let known = &mut self.words[word];
        known.readers.clear();
        (known.writer, known.clock, known.thread, known.site) = (agent, clock, thread, site);
        clash
    }

    pub(crate) fn write(&mut self, word: usize, thread: u16, site: SiteId) -> Option<Clash> {
        let agent = usize::from(thread);
        let clock = self.clocks[agent][agent];
        self.write_by(word, agent, clock, thread, site)
    }

    pub(crate) fn copy(&mut self, word: usize, thread: u16, site: SiteId) -> Option<Clash> {
        let clock = self.copies[usize::from(thread)];
        let agent = self.threads + usize::from(thread);
        self.write_by(word, agent, clock, thread, site)
    }

    pub(crate) fn engine_copy(&mut self, word: usize, thread: u16, site: SiteId) -> Option<Clash> {
        let (agent, clock) = (2 * self.threads, self.engine);
        self.write_by(word, agent, clock, thread, site)
    }

    pub(crate) fn commit(&mut self, thread: u16) {
        let thread = usize::from(thread);
        self.groups[thread].push(self.copies[thread]);
        self.copies[thread] += 1;
    }

    pub(crate) fn wait_for_copies(&mut self, thread: u16, newest: u32) {
        let (thread, agent) = (usize::from(thread), self.threads + usize::from(thread));
        let landed = self.groups[thread].len().saturating_sub(newest as usize);
        if let Some(&clock) = self.groups[thread][..landed].last() {
            let known = &mut self.clocks[thread][agent];
            *known = (*known).max(clock);
        }
    }

    pub(crate) fn make_barrier(&mut self, at: u64, arrivals: u32) {
        let none = vec![0; self.agents()];
        self.barriers.insert(
            at,
            Barrier {
                arrivals,
                left: arrivals,
                bytes: 0,
                phase: 0,
                gathered: none.clone(),
                published: none,
            },
        );
    }

    /// An arrival, by the thread itself or by its copies.
    pub(crate) fn arrive(
        &mut self,
        at: u64,
        thread: u16,
        bytes: u32,
        after_copies: bool,
    ) -> Result<(), Misuse> {
        let thread = usize::from(thread);
        let barrier = self.barriers.get_mut(&at).ok_or(NOT_MADE)?;
        if barrier.left == 0 {
            return Err("more arrivals than the barrier was made for");
        }
        if after_copies {
            // The thread's own accesses are not ordered by it.
            let known = &mut barrier.gathered[self.threads + thread];
            *known = (*known).max(self.copies[thread]);
            self.copies[thread] += 1;
        } else {
            join(&mut barrier.gathered, &self.clocks[thread]);
            self.clocks[thread][thread] += 1;
        }
        barrier.left -= 1;
        barrier.bytes += i64::from(bytes);
        barrier.end_phase();
        Ok(())
    }

    /// The engine's copy of so many bytes is done.
    pub(crate) fn engine_done(&mut self, at: u64, bytes: u32) -> Result<(), Misuse> {
        let barrier = self.barriers.get_mut(&at).ok_or(NOT_MADE)?;
        barrier.gathered[2 * self.threads] = self.engine;
        self.engine += 1;
        barrier.bytes -= i64::from(bytes);
        barrier.end_phase();
        Ok(())
    }

    /// Whether the phase of that parity has ended.
    pub(crate) fn ended(&self, at: u64, parity: u32) -> Result<bool, Misuse> {
        let barrier = self.barriers.get(&at).ok_or(NOT_MADE)?;
        Ok(barrier.phase & 1 != parity & 1)
    }

    /// A thread has waited for a barrier.
    pub(crate) fn acquire(&mut self, at: u64, thread: u16) {
        if let Some(barrier) = self.barriers.get(&at) {
            join(&mut self.clocks[usize::from(thread)], &barrier.published);
        }
    }

    /// A thread comes to its warp's barrier: how many times the warp has passed
    /// it when this time is over.
    pub(crate) fn enter_warp(&mut self, thread: u16) -> u64 {
        let thread = usize::from(thread);
        let lanes = (self.threads - thread / 32 * 32).min(32) as u32;
        let agents = self.agents();
        let warp = &mut self.warps[thread / 32];
        warp.gathered.resize(agents, 0);
        join(&mut warp.gathered, &self.clocks[thread]);
        self.clocks[thread][thread] += 1;
        let over = warp.passed + 1;
        warp.arrived += 1;
        if warp.arrived == lanes {
            warp.arrived = 0;
            warp.passed = over;
            warp.published.clone_from(&warp.gathered);
        }
        over
    }

    pub(crate) fn warp_passed(&self, thread: u16, over: u64) -> bool {
        self.warps[usize::from(thread) / 32].passed >= over
    }

    pub(crate) fn leave_warp(&mut self, thread: u16) {
        let warp = &self.warps[usize::from(thread) / 32];
        join(&mut self.clocks[usize::from(thread)], &warp.published);
    }

    /// A thread as other blocks of the cluster see it.
    pub(crate) fn visitor(&self, thread: u16) -> Visitor {
        let clock = &self.clocks[usize::from(thread)];
        Visitor {
            rank: self.rank,
            thread,
            clock: clock[usize::from(thread)],
            phase: clock[self.cluster()],
        }
    }

    /// Notes a read by a thread of another block, and gives the write that it is
    /// not ordered after.
    pub(crate) fn read_by_visitor(
        &mut self,
        word: usize,
        visitor: Visitor,
        site: SiteId,
    ) -> Option<Clash> {
        let Visitor {
            rank,
            thread,
            clock,
            phase,
        } = visitor;
        let visit = usize::from(rank) * self.threads + usize::from(thread);
        if visit >= self.visits.len() {
            self.visits.resize(visit + 1, None);
        }
        self.visits[visit] = Some(Visit {
            rank,
            thread,
            site,
            clock,
        });
        let (threads, own) = (self.threads, self.rank);
        let known = self.word(word);
        known.read_by(Reader {
            rank,
            thread,
            clock,
            site,
        });
        let (writer, written) = (known.writer, known.clock);
        let clash = known.written(threads, own);
        let ordered = written == 0 || self.was_published(phase, own, writer, written);
        (!ordered).then_some(clash)
    }

    /// A thread arrives at the cluster's barrier.
    pub(crate) fn arrive_at_cluster(&mut self, thread: u16, site: SiteId) -> Result<(), Misuse> {
        let thread = usize::from(thread);
        let at = &mut self.at_cluster[thread];
        if at.arrivals != at.waits {
            return Err("the thread has arrived at the cluster's barrier and not waited since");
        }
        at.arrivals += 1;
        at.site = site;
        join(&mut self.gathered, &self.clocks[thread]);
        self.clocks[thread][thread] += 1;
        Ok(())
    }

    /// The phase of the cluster's barrier that a thread waits for.
    pub(crate) fn phase_of_cluster(&self, thread: u16) -> Result<u32, Misuse> {
        let at = &self.at_cluster[usize::from(thread)];
        if at.arrivals == at.waits {
            return Err("the thread waits for the cluster's barrier and has not arrived");
        }
        Ok(at.arrivals)
    }

    /// Whether a thread has arrived at the cluster's barrier and not waited since.
    pub(crate) fn has_arrived(&self, thread: u16) -> bool {
        self.left_arrived(thread).is_some()
    }

    /// What the threads of this block knew when they arrived at the cluster's
    /// barrier.
    pub(crate) fn gathered(&self) -> &[u32] {
        &self.gathered
    }

    /// A phase of the cluster's barrier has ended.
    pub(crate) fn end_cluster_phase(&mut self, phase: u32, published: Published) {
        self.published[phase as usize & 1] = published;
    }

    /// A thread has waited for a phase of the cluster's barrier.
    pub(crate) fn leave_cluster(&mut self, thread: u16, phase: u32) {
        let (thread, cluster) = (usize::from(thread), self.cluster());
        self.at_cluster[thread].waits = phase;
        let clock = &mut self.clocks[thread];
        if let Some(known) = self.published[phase as usize & 1].get(usize::from(self.rank)) {
            join(clock, known);
        }
        clock[cluster] = clock[cluster].max(phase);
    }

    /// The place of an arrival at the cluster's barrier that the thread has not
    /// waited after.
    pub(crate) fn left_arrived(&self, thread: u16) -> Option<SiteId> {
        let at = &self.at_cluster[usize::from(thread)];
        (at.arrivals != at.waits).then_some(at.site)
    }

    /// Reads by other blocks' threads before which this block may have ended.
    pub(crate) fn late_visits(&self) -> impl Iterator<Item = Visit> {
        let cluster = self.cluster();
        let phase = self.clocks.iter().map(|clock| clock[cluster]).max();
        let phase = phase.unwrap_or(0);
        self.visits.iter().flatten().copied().filter(move |visit| {
            !self.was_published(phase, visit.rank, usize::from(visit.thread), visit.clock)
        })
    }

    /// All threads have passed a barrier of the block.
    pub(crate) fn pass_block(&mut self) {
        let mut all = vec![0; self.agents()];
        for clock in &self.clocks {
            join(&mut all, clock);
        }
        for (thread, clock) in self.clocks.iter_mut().enumerate() {
            clock.copy_from_slice(&all);
            clock[thread] += 1;
        }
    }
}

impl Word {
    /// The last write, as one side of a conflict.
    fn written(&self, threads: usize, rank: u8) -> Clash {
        Clash {
            wrote: true,
            copy: self.writer >= threads,
            rank,
            thread: self.thread,
            site: self.site,
        }
    }

    fn read_by(&mut self, new: Reader) {
        let known = self
            .readers
            .iter_mut()
            .find(|reader| (reader.rank, reader.thread) == (new.rank, new.thread));
        match known {
            Some(reader) => *reader = new,
            None => self.readers.push(new),
        }
    }
}

impl Barrier {
    fn end_phase(&mut self) {
        if self.left == 0 && self.bytes == 0 {
            self.phase += 1;
            self.left = self.arrivals;
            self.published.clone_from(&self.gathered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_read_after_it_has_landed() {
        let mut order = Order::new(64, 0);
        assert!(order.copy(0, 3, 7).is_none());
        assert!(
            order.read(0, 3, 8).is_some_and(|clash| clash.copy),
            "its own thread"
        );
        order.commit(3);
        order.wait_for_copies(3, 1);
        assert!(
            order.read(0, 3, 8).is_some(),
            "the group may still be under way"
        );
        order.wait_for_copies(3, 0);
        assert!(order.read(0, 3, 8).is_none());
        assert!(
            order.read(0, 4, 8).is_some(),
            "another thread has not waited"
        );
        order.pass_block();
        assert!(order.read(0, 4, 8).is_none());
    }

    #[test]
    fn a_barrier_orders_those_that_wait_for_it() {
        let mut order = Order::new(64, 0);
        order.make_barrier(16, 2);
        order.copy(0, 1, 7);
        order.arrive(16, 1, 0, true).unwrap();
        assert!(!order.ended(16, 0).unwrap());
        assert!(order.ended(16, 1).unwrap(), "the phase before the first");
        order.arrive(16, 2, 4, false).unwrap();
        assert!(!order.ended(16, 0).unwrap(), "four bytes are missing");
        order.engine_copy(1, 2, 7);
        order.engine_done(16, 4).unwrap();
        assert!(order.ended(16, 0).unwrap());
        order.acquire(16, 5);
        assert!(order.read(0, 5, 8).is_none() && order.read(1, 5, 8).is_none());
        assert!(order.read(1, 6, 8).is_some(), "it has not waited");
        // Its own copy has landed for all that thread 1 knows only once it has
        // waited, and the reader has not said that it is done.
        assert!(order.copy(0, 1, 7).is_some_and(|clash| clash.copy));
        order.arrive(16, 1, 0, true).unwrap();
        order.arrive(16, 2, 0, false).unwrap();
        order.acquire(16, 1);
        order.acquire(16, 5);
        assert!(order.read(0, 5, 8).is_none());
        assert!(order.copy(0, 1, 7).is_some_and(|clash| !clash.wrote));
    }

    #[test]
    fn too_many_arrivals_and_none_made_are_misuse() {
        let mut order = Order::new(32, 0);
        assert!(order.arrive(0, 0, 0, false).is_err());
        order.make_barrier(0, 1);
        order.arrive(0, 0, 4, false).unwrap();
        assert!(
            order.arrive(0, 0, 0, false).is_err(),
            "the bytes are missing yet"
        );
    }

    #[test]
    fn a_warp_passes_together() {
        let mut order = Order::new(40, 0);
        order.write(0, 32, 1);
        let over = order.enter_warp(32);
        for thread in 33..40 {
            assert!(!order.warp_passed(32, over));
            order.enter_warp(thread);
        }
        assert!(order.warp_passed(32, over));
        order.leave_warp(39);
        assert!(order.read(0, 39, 2).is_none());
        assert!(order.read(0, 0, 2).is_some());
    }
}
