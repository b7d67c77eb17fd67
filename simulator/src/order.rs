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
//! A thread that reads or writes another block's memory brings what it knows
//! ([`Present`]). So the rule is the same whose memory it is: clocks tell where
//! both threads are of one block, also where both visit another, and the phase
//! where they are of two. A word keeps of which block its last writer and its
//! readers are.
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
    /// Of the writer's block in the cluster.
    rank: u8,
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

/// A thread, and what it knows now.
#[derive(Clone, Copy)]
pub(crate) struct Present<'a> {
    /// Of its block in the cluster.
    rank: u8,
    thread: u16,
    clock: &'a [u32],
    /// The same in all blocks of the cluster.
    published: &'a [Published; 2],
}

/// An access to the block's memory by a thread of another.
#[derive(Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) rank: u8,
    pub(crate) thread: u16,
    pub(crate) wrote: bool,
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

fn present<'a>(
    rank: u8,
    thread: u16,
    clocks: &'a [Vec<u32>],
    published: &'a [Published; 2],
) -> Present<'a> {
    Present {
        rank,
        thread,
        clock: &clocks[usize::from(thread)],
        published,
    }
}

fn entry(words: &mut Vec<Word>, word: usize) -> &mut Word {
    if word >= words.len() {
        words.resize(word + 1, Word::default());
    }
    &mut words[word]
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

    /// Notes a read, and gives the write that it is not ordered after.
    pub(crate) fn read(&mut self, word: usize, thread: u16, site: SiteId) -> Option<Clash> {
        let by = present(self.rank, thread, &self.clocks, &self.published);
        entry(&mut self.words, word).read(by, site, self.threads)
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
        let by = present(self.rank, thread, &self.clocks, &self.published);
        entry(&mut self.words, word).write(by, agent, clock, site, self.threads)
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

    /// A thread as it visits another block of the cluster.
    pub(crate) fn present(&self, thread: u16) -> Present<'_> {
        present(self.rank, thread, &self.clocks, &self.published)
    }

    /// Notes a read by a thread of another block, and gives the write that it is
    /// not ordered after.
    pub(crate) fn read_by_visitor(
        &mut self,
        word: usize,
        by: Present<'_>,
        site: SiteId,
    ) -> Option<Clash> {
        self.visit(by, false, site);
        entry(&mut self.words, word).read(by, site, self.threads)
    }

    /// Notes a write by a thread of another block, and gives an access that it is
    /// not ordered after.
    pub(crate) fn write_by_visitor(
        &mut self,
        word: usize,
        by: Present<'_>,
        site: SiteId,
    ) -> Option<Clash> {
        self.visit(by, true, site);
        let agent = usize::from(by.thread);
        entry(&mut self.words, word).write(by, agent, by.own(), site, self.threads)
    }

    fn visit(&mut self, by: Present<'_>, wrote: bool, site: SiteId) {
        let visit = usize::from(by.rank) * self.threads + usize::from(by.thread);
        if visit >= self.visits.len() {
            self.visits.resize(visit + 1, None);
        }
        self.visits[visit] = Some(Visit {
            rank: by.rank,
            thread: by.thread,
            wrote,
            site,
            clock: by.own(),
        });
    }

    /// A thread arrives at the cluster's barrier, and with `release` makes known
    /// what it did before.
    pub(crate) fn arrive_at_cluster(
        &mut self,
        thread: u16,
        release: bool,
        site: SiteId,
    ) -> Result<(), Misuse> {
        let thread = usize::from(thread);
        let at = &mut self.at_cluster[thread];
        if at.arrivals != at.waits {
            return Err("the thread has arrived at the cluster's barrier and not waited since");
        }
        at.arrivals += 1;
        at.site = site;
        if release {
            join(&mut self.gathered, &self.clocks[thread]);
        }
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

    /// Visits by other blocks' threads before which this block may have ended.
    pub(crate) fn late_visits(&self) -> impl Iterator<Item = Visit> {
        let cluster = self.cluster();
        let last = (0..self.threads).max_by_key(|&thread| self.clocks[thread][cluster]);
        let last = self.present(last.unwrap_or(0) as u16);
        let late = move |visit: &Visit| !last.knows(visit.rank, visit.thread.into(), visit.clock);
        self.visits.iter().flatten().copied().filter(late)
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

impl Present<'_> {
    fn own(&self) -> u32 {
        self.clock[usize::from(self.thread)]
    }

    /// The last phase of the cluster's barrier that it knows to have ended: the
    /// last component of its clock.
    fn phase(&self) -> u32 {
        self.clock.last().copied().unwrap_or(0)
    }

    /// Whether it knows that all blocks of the cluster have begun.
    pub(crate) fn knows_that_all_have_begun(&self) -> bool {
        self.phase() > 0
    }

    /// Whether what an agent of a block did at a clock is ordered before it.
    fn knows(&self, rank: u8, agent: usize, clock: u32) -> bool {
        if rank == self.rank {
            return self.clock[agent] >= clock;
        }
        self.published[self.phase() as usize & 1]
            .get(usize::from(rank))
            .is_some_and(|known| known[agent] >= clock)
    }
}

impl Word {
    /// The last write, where it is not ordered before a thread's present.
    fn written_beside(&self, by: Present<'_>, threads: usize) -> Option<Clash> {
        let ordered = self.clock == 0 || by.knows(self.rank, self.writer, self.clock);
        (!ordered).then_some(Clash {
            wrote: true,
            copy: self.writer >= threads,
            rank: self.rank,
            thread: self.thread,
            site: self.site,
        })
    }

    /// A read since then that is not ordered before a thread's present.
    fn read_beside(&self, by: Present<'_>) -> Option<Clash> {
        let mut readers = self.readers.iter();
        readers
            .find(|reader| !by.knows(reader.rank, reader.thread.into(), reader.clock))
            .map(|reader| Clash {
                wrote: false,
                copy: false,
                rank: reader.rank,
                thread: reader.thread,
                site: reader.site,
            })
    }

    fn read(&mut self, by: Present<'_>, site: SiteId, threads: usize) -> Option<Clash> {
        let new = Reader {
            rank: by.rank,
            thread: by.thread,
            clock: by.own(),
            site,
        };
        let known = self
            .readers
            .iter_mut()
            .find(|reader| (reader.rank, reader.thread) == (new.rank, new.thread));
        match known {
            Some(reader) => *reader = new,
            None => self.readers.push(new),
        }
        self.written_beside(by, threads)
    }

    fn write(
        &mut self,
        by: Present<'_>,
        agent: usize,
        clock: u32,
        site: SiteId,
        threads: usize,
    ) -> Option<Clash> {
        let clash = self.written_beside(by, threads);
        let clash = clash.or_else(|| self.read_beside(by));
        self.readers.clear();
        (self.writer, self.clock, self.rank) = (agent, clock, by.rank);
        (self.thread, self.site) = (by.thread, site);
        clash
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

    /// Two blocks of 64 threads each.
    fn two_blocks() -> [Order; 2] {
        [Order::new(64, 0), Order::new(64, 1)]
    }

    /// All threads of the blocks arrive at their barrier.
    fn arrive(blocks: &mut [Order]) {
        for block in blocks {
            for thread in 0..64 {
                block.arrive_at_cluster(thread, true, 0).unwrap();
            }
        }
    }

    fn wait(blocks: &mut [Order], phase: u32) {
        let published = blocks.iter().map(|block| block.gathered().to_vec());
        let published = Rc::new(published.collect());
        for block in blocks {
            block.end_cluster_phase(phase, Rc::clone(&published));
            for thread in 0..64 {
                assert_eq!(block.phase_of_cluster(thread), Ok(phase));
                block.leave_cluster(thread, phase);
            }
        }
    }

    #[test]
    fn a_block_knows_what_others_wrote_there_from_the_barrier_of_the_cluster() {
        let [mut own, other] = two_blocks();
        assert!(!other.present(3).knows_that_all_have_begun());
        own.write(0, 5, 1);
        own.read(1, 6, 1);
        own.copy(2, 7, 1);
        let first = |clash: Option<Clash>| clash.map(|c| (c.wrote, c.copy, c.rank, c.thread));
        for (word, clash) in [
            (0, (true, false, 0, 5)),
            (1, (false, false, 0, 6)),
            (2, (true, true, 0, 7)),
        ] {
            let found = own.write_by_visitor(word, other.present(3), 2);
            assert_eq!(first(found), Some(clash));
        }
        let mut blocks = [own, other];
        arrive(&mut blocks);
        wait(&mut blocks, 1);
        let [own, other] = &mut blocks;
        assert!(other.present(3).knows_that_all_have_begun());
        // The other's writes were ordered after none of these, but they are the
        // last.
        for word in 0..3 {
            assert!(own.read(word, 9, 3).is_none());
        }
        assert!(own.write_by_visitor(0, other.present(3), 4).is_some());
        // A barrier of either block changes nothing.
        own.pass_block();
        other.pass_block();
        let found = own.read(0, 9, 3);
        assert_eq!(first(found), Some((true, false, 1, 3)));
        assert!(own.copy(0, 9, 3).is_some_and(|clash| clash.rank == 1));
        own.write_by_visitor(1, other.present(3), 4);
        assert!(
            own.write(1, 3, 3).is_some(),
            "its own thread of that number"
        );
        let late: Vec<_> = own.late_visits().collect();
        assert_eq!(late.len(), 1);
        assert!(late[0].wrote && late[0].rank == 1 && late[0].thread == 3 && late[0].site == 4);
        arrive(&mut blocks);
        // After its arrival.
        let [own, other] = &mut blocks;
        own.write_by_visitor(3, other.present(3), 4);
        wait(&mut blocks, 2);
        let [own, _] = &mut blocks;
        assert!(own.read(1, 9, 3).is_none());
        assert!(own.read(3, 9, 3).is_some());
    }

    #[test]
    fn threads_of_one_block_are_ordered_by_it_also_where_they_visit() {
        let mut blocks = two_blocks();
        let [own, other] = &mut blocks;
        other.make_barrier(16, 1);
        assert!(own.write_by_visitor(0, other.present(3), 1).is_none());
        assert!(own.write_by_visitor(0, other.present(3), 1).is_none());
        assert!(own.read_by_visitor(0, other.present(3), 1).is_none());
        assert!(own.read_by_visitor(0, other.present(4), 1).is_some());
        // By a barrier in their shared memory, for the thread that waits for it.
        own.write_by_visitor(1, other.present(3), 1);
        other.arrive(16, 3, 0, false).unwrap();
        other.acquire(16, 4);
        assert!(own.read_by_visitor(1, other.present(4), 1).is_none());
        assert!(own.read_by_visitor(1, other.present(5), 1).is_some());
        // The reads are not ordered before this.
        let clash = own.write_by_visitor(1, other.present(3), 1);
        assert!(clash.is_some_and(|clash| !clash.wrote && clash.rank == 1));
        // By the block's. The other block knows nothing of it.
        other.pass_block();
        assert!(own.read_by_visitor(1, other.present(6), 1).is_none());
        own.pass_block();
        assert!(own.write(1, 6, 1).is_some());
        // By the cluster's.
        own.write_by_visitor(2, other.present(3), 1);
        arrive(&mut blocks);
        wait(&mut blocks, 1);
        let [own, other] = &mut blocks;
        assert!(own.write_by_visitor(2, other.present(9), 1).is_none());
        // And by what two of them pass on, there and back.
        arrive(&mut blocks);
        wait(&mut blocks, 2);
        let [own, other] = &mut blocks;
        assert!(own.write(2, 9, 1).is_none());
        assert!(own.write_by_visitor(2, other.present(9), 1).is_some());
        arrive(&mut blocks);
        wait(&mut blocks, 3);
        let [own, other] = &mut blocks;
        assert!(own.write_by_visitor(2, other.present(1), 1).is_none());
    }

    #[test]
    fn two_visitors_are_ordered_by_the_barrier_of_the_cluster() {
        let mut blocks = [Order::new(64, 0), Order::new(64, 1), Order::new(64, 2)];
        let [own, one, two] = &mut blocks;
        own.write_by_visitor(0, one.present(3), 1);
        let clash = own.write_by_visitor(0, two.present(3), 2);
        assert!(clash.is_some_and(|clash| clash.wrote && clash.rank == 1));
        let clash = own.read_by_visitor(0, one.present(3), 1);
        assert!(clash.is_some_and(|clash| clash.wrote && clash.rank == 2));
        arrive(&mut blocks);
        wait(&mut blocks, 1);
        let [own, one, two] = &mut blocks;
        assert!(own.read_by_visitor(0, one.present(4), 1).is_none());
        let clash = own.write_by_visitor(0, two.present(4), 2);
        assert!(clash.is_some_and(|clash| !clash.wrote && clash.rank == 1));
        arrive(&mut blocks);
        wait(&mut blocks, 2);
        let [own, one, _] = &mut blocks;
        assert!(own.write_by_visitor(0, one.present(5), 1).is_none());
        assert_eq!(own.late_visits().count(), 1, "the last of each thread");
    }
}
