//! From lanes' accesses to warps' requests.
//!
//! The lanes of a warp run one after the other here, and together on a GPU. So
//! the accesses of a warp are written down until all its lanes have come to a
//! barrier, a wait or their end, and then paired: the n-th execution of a call
//! site by one lane belongs to the same request as the n-th by every other. An
//! access that only some lanes make is a request with the other lanes masked
//! off, as on a GPU.
//!
//! What this gets wrong: a loop whose lanes skip an access in different
//! iterations. The second access of a lane that skipped the first iteration is
//! its first execution, and is paired with the others' first. The count of
//! requests is then too low. Kernels that skip the same iterations in all lanes,
//! or only the last ones, are counted exactly.
//!
//! A lane that makes many accesses between two barriers is paused now and then
//! so that the warp's other lanes catch up; what all of them have passed is
//! counted and forgotten. Memory is therefore bounded whatever the loop's
//! length.
//!
//! What later kernels need here: a shuffle or a matrix instruction is an
//! exchange among the lanes of one request, so its lanes must be paused until
//! the last has come, like at a barrier of the warp alone.
//!
//! # Sources
//!
//! - Sectors of 32 bytes and requests: Nsight Compute, Profiling Guide, chapter
//!   Memory Tables.
//! - 32 banks, 4 bytes wide; lanes that read one word share it: CUDA C++
//!   Programming Guide, Shared Memory, compute capability 5.x and later.
//! - Wide accesses: at most 128 bytes a pass, so 8-byte accesses take a half
//!   warp a pass and 16-byte ones a quarter. Twice as many lanes where all
//!   active pairs of lanes n and n^1, or all n and n^2, have equal addresses:
//!   NVIDIA's developer forum, "Unexpected shared memory bank conflict" (77228),
//!   said there of compute capability 7.x.

use crate::counters::{Counters, GlobalCounters, SharedCounters};
use crate::sites::SiteId;
use kernels::gpu::host::Space;

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// Rows of one site that are kept, at most, when lanes diverge.
const MAX_ROWS: usize = 1 << 14;

type Row = [u64; LANES];

/// What kind of access a site makes: to global, shared or the cluster's shared
/// memory, load or store, 3 widths.
#[derive(Clone, Copy)]
pub(crate) struct AccessKind(u8);

const KINDS: usize = 18;

impl AccessKind {
    /// `bytes` is 4, 8 or 16.
    #[inline]
    pub(crate) fn new(space: Space, store: bool, bytes: usize) -> Self {
        let space = match space {
            Space::Global => 0,
            Space::Shared => 6,
        };
        Self::at(space, store, bytes)
    }

    /// Of the shared memory of a block of the cluster.
    #[inline]
    pub(crate) fn of_cluster(store: bool, bytes: usize) -> Self {
        Self::at(12, store, bytes)
    }

    #[inline]
    fn at(space: u8, store: bool, bytes: usize) -> Self {
        let width = bytes.trailing_zeros() as u8 - 2;
        Self(space + u8::from(store) * 3 + width)
    }

    fn cluster(self) -> bool {
        self.0 >= 12
    }

    fn shared(self) -> bool {
        (6..12).contains(&self.0)
    }

    fn store(self) -> bool {
        self.0 % 6 >= 3
    }

    fn bytes(self) -> u64 {
        4 << (self.0 % 3)
    }
}

/// Four-byte requests in a row that could be one of 16 bytes.
#[derive(Clone, Copy)]
struct Run {
    /// Requests in it: 0 to 3.
    len: u32,
    wavefronts: u64,
    mask: u32,
    first: Row,
    last: Row,
}

struct SiteLog {
    site: SiteId,
    kind: AccessKind,
    open: bool,
    /// Executions by each lane in this interval.
    counts: [u32; LANES],
    /// Executions that are counted already.
    folded: u32,
    rows: Vec<Row>,
    masks: Vec<u32>,
    run: Run,
}

/// The accesses of one warp since it last waited.
#[derive(Default)]
pub(crate) struct WarpLog {
    /// Index in `logs` plus one, by site and kind.
    index: Vec<u16>,
    logs: Vec<SiteLog>,
    open: Vec<u16>,
}

impl WarpLog {
    /// Writes an access down.
    #[inline]
    pub(crate) fn record(&mut self, site: SiteId, kind: AccessKind, lane: usize, address: u64) {
        let key = usize::from(site) * KINDS + usize::from(kind.0);
        let found = self.index.get(key).copied().unwrap_or(0);
        let slot = if found != 0 {
            usize::from(found) - 1
        } else {
            self.add(key, site, kind)
        };
        let log = &mut self.logs[slot];
        if !log.open {
            log.open = true;
            self.open.push(slot as u16);
        }
        // A lane that fell behind what was folded joins the present.
        let count = log.counts[lane].max(log.folded);
        log.counts[lane] = count + 1;
        let row = (count - log.folded) as usize;
        if row == log.rows.len() {
            log.rows.push([0; LANES]);
            log.masks.push(0);
        }
        log.rows[row][lane] = address;
        log.masks[row] |= 1 << lane;
    }

    #[cold]
    fn add(&mut self, key: usize, site: SiteId, kind: AccessKind) -> usize {
        if key >= self.index.len() {
            self.index.resize(key + 1, 0);
        }
        self.logs.push(SiteLog {
            site,
            kind,
            open: false,
            counts: [0; LANES],
            folded: 0,
            rows: Vec::new(),
            masks: Vec::new(),
            run: Run {
                len: 0,
                wavefronts: 0,
                mask: 0,
                first: [0; LANES],
                last: [0; LANES],
            },
        });
        self.index[key] = self.logs.len() as u16;
        self.logs.len() - 1
    }

    /// Counts what all of `running` lanes have passed, and forgets it.
    pub(crate) fn fold_passed(&mut self, running: u32, counters: &mut Vec<Counters>) {
        for &slot in &self.open {
            let log = &mut self.logs[usize::from(slot)];
            let passed = (0..LANES)
                .filter(|lane| running >> lane & 1 != 0)
                .map(|lane| log.counts[lane].saturating_sub(log.folded))
                .min()
                .unwrap_or(0) as usize;
            let rows = if log.rows.len() > MAX_ROWS {
                log.rows.len()
            } else {
                passed.min(log.rows.len())
            };
            log.fold(rows, counters);
        }
    }

    /// Counts everything: all lanes have come to a barrier, a wait or their end.
    pub(crate) fn fold_all(&mut self, counters: &mut Vec<Counters>) {
        for slot in self.open.drain(..) {
            let log = &mut self.logs[usize::from(slot)];
            log.fold(log.rows.len(), counters);
            if log.kind.shared() {
                log.run.end(shared(log.kind, log.site, counters));
            }
            log.open = false;
            log.counts = [0; LANES];
            log.folded = 0;
        }
    }
}

fn at(site: SiteId, counters: &mut Vec<Counters>) -> &mut Counters {
    let site = usize::from(site);
    if site >= counters.len() {
        counters.resize(site + 1, Counters::default());
    }
    &mut counters[site]
}

fn shared(kind: AccessKind, site: SiteId, counters: &mut Vec<Counters>) -> &mut SharedCounters {
    let counters = at(site, counters);
    if kind.store() {
        &mut counters.shared_store
    } else {
        &mut counters.shared_load
    }
}

impl SiteLog {
    fn fold(&mut self, rows: usize, counters: &mut Vec<Counters>) {
        if rows == 0 {
            return;
        }
        let (kind, site) = (self.kind, self.site);
        if kind.shared() {
            let counters = shared(kind, site, counters);
            for i in 0..rows {
                self.count_shared(i, counters);
            }
        } else if kind.cluster() {
            let counters = at(site, counters);
            let counters = if kind.store() {
                &mut counters.cluster_store
            } else {
                &mut counters.cluster_load
            };
            for mask in &self.masks[..rows] {
                let lanes = u64::from(mask.count_ones());
                counters.requests += 1;
                counters.accesses += lanes;
                counters.bytes_requested += lanes * kind.bytes();
            }
        } else {
            let counters = at(site, counters);
            let counters = if kind.store() {
                &mut counters.global_store
            } else {
                &mut counters.global_load
            };
            for (row, &mask) in self.rows[..rows].iter().zip(&self.masks) {
                count_global(row, mask, kind.bytes(), counters);
            }
        }
        self.rows.drain(..rows);
        self.masks.drain(..rows);
        self.folded += rows as u32;
    }

    fn count_shared(&mut self, i: usize, counters: &mut SharedCounters) {
        let (row, mask) = (&self.rows[i], self.masks[i]);
        let bytes = self.kind.bytes();
        let cost = shared_cost(row, mask, bytes);
        let lanes = u64::from(mask.count_ones());
        counters.requests += 1;
        counters.accesses += lanes;
        counters.bytes_requested += lanes * bytes;
        counters.wavefronts += cost.wavefronts;
        counters.bank_conflicts += cost.wavefronts - cost.passes;
        counters.max_degree = counters.max_degree.max(cost.degree);

        if bytes != 4 {
            counters.vectorized_requests += 1;
            counters.vectorized_wavefronts += cost.wavefronts;
            return;
        }
        let run = &mut self.run;
        let goes_on = run.len > 0
            && run.mask == mask
            && lanes_of(mask).all(|lane| row[lane] == run.last[lane] + 4);
        if goes_on && run.len == 3 {
            counters.vectorized_requests += 1;
            counters.vectorized_wavefronts += shared_cost(&run.first, mask, 16).wavefronts;
            run.len = 0;
        } else if goes_on {
            run.len += 1;
            run.wavefronts += cost.wavefronts;
            run.last = *row;
        } else {
            run.end(counters);
            if lanes_of(mask).all(|lane| row[lane].is_multiple_of(16)) {
                *run = Run {
                    len: 1,
                    wavefronts: cost.wavefronts,
                    mask,
                    first: *row,
                    last: *row,
                };
            } else {
                counters.vectorized_requests += 1;
                counters.vectorized_wavefronts += cost.wavefronts;
            }
        }
    }
}

impl Run {
    /// Counts a run that came to less than four as what it is.
    fn end(&mut self, counters: &mut SharedCounters) {
        if self.len > 0 {
            counters.vectorized_requests += u64::from(self.len);
            counters.vectorized_wavefronts += self.wavefronts;
            self.len = 0;
        }
    }
}

fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 != 0)
}

fn count_global(row: &Row, mask: u32, bytes: u64, counters: &mut GlobalCounters) {
    let lanes = u64::from(mask.count_ones());
    let mut sorted = [0; LANES];
    let mut len = 0;
    let mut ascending = true;
    for lane in lanes_of(mask) {
        ascending &= len == 0 || sorted[len - 1] <= row[lane];
        sorted[len] = row[lane];
        len += 1;
    }
    let sorted = &mut sorted[..len];
    if !ascending {
        sorted.sort_unstable();
    }
    // Accesses are aligned to their own size, so none crosses a sector, and two
    // either share all their bytes or none.
    let (mut sectors, mut distinct) = (0, 0);
    let mut last = None;
    for &address in sorted.iter() {
        distinct += u64::from(last != Some(address));
        sectors += u64::from(last.map(|last| last / 32) != Some(address / 32));
        last = Some(address);
    }
    counters.requests += 1;
    counters.accesses += lanes;
    counters.bytes_requested += lanes * bytes;
    counters.bytes_distinct += distinct * bytes;
    counters.sectors += sectors;
}

struct SharedCost {
    wavefronts: u64,
    /// Passes: wavefronts without conflicts.
    passes: u64,
    /// The most words of one bank in one pass.
    degree: u32,
}

fn shared_cost(row: &Row, mask: u32, bytes: u64) -> SharedCost {
    let mut lanes = 128 / bytes as usize;
    if lanes < LANES && (pairs_agree(row, mask, 1) || pairs_agree(row, mask, 2)) {
        lanes *= 2;
    }
    let mut cost = SharedCost {
        wavefronts: 0,
        passes: 0,
        degree: 0,
    };
    for first in (0..LANES).step_by(lanes) {
        let part = mask & (((1u64 << lanes) - 1) << first) as u32;
        if part != 0 {
            let degree = bank_degree(row, part, bytes);
            cost.wavefronts += u64::from(degree);
            cost.passes += 1;
            cost.degree = cost.degree.max(degree);
        }
    }
    cost
}

/// Whether every active lane has the address of its partner, if that is active.
fn pairs_agree(row: &Row, mask: u32, distance: usize) -> bool {
    lanes_of(mask).all(|lane| {
        let partner = lane ^ distance;
        mask >> partner & 1 == 0 || row[partner] == row[lane]
    })
}

/// The most distinct words that the lanes want of one bank.
fn bank_degree(row: &Row, mask: u32, bytes: u64) -> u32 {
    let mut first = [0u64; 32];
    let mut taken = 0u32;
    let words = bytes / 4;
    for lane in lanes_of(mask) {
        for word in row[lane] / 4..row[lane] / 4 + words {
            let bank = word as usize % 32;
            if taken >> bank & 1 == 0 {
                taken |= 1 << bank;
                first[bank] = word;
            } else if first[bank] != word {
                return bank_degree_sorted(row, mask, words);
            }
        }
    }
    1
}

#[cold]
fn bank_degree_sorted(row: &Row, mask: u32, words: u64) -> u32 {
    // At most 128 bytes a pass, or twice that with all shared by two.
    let mut wanted: Vec<u64> = lanes_of(mask)
        .flat_map(|lane| row[lane] / 4..row[lane] / 4 + words)
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut banks = [0u32; 32];
    for word in wanted {
        banks[word as usize % 32] += 1;
    }
    banks.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(address: impl Fn(usize) -> u64) -> Row {
        std::array::from_fn(address)
    }

    fn global(address: impl Fn(usize) -> u64, mask: u32, bytes: u64) -> (u64, u64) {
        let mut counters = GlobalCounters::default();
        count_global(&row(address), mask, bytes, &mut counters);
        assert_eq!(counters.requests, 1);
        (counters.sectors, counters.bytes_distinct)
    }

    #[test]
    fn sectors_of_known_patterns() {
        const ALL: u32 = u32::MAX;
        assert_eq!(global(|l| l as u64 * 4, ALL, 4), (4, 128), "coalesced");
        assert_eq!(global(|l| l as u64 * 4 + 4, ALL, 4), (5, 128), "one off");
        assert_eq!(global(|_| 64, ALL, 4), (1, 4), "broadcast");
        assert_eq!(global(|l| l as u64 * 1024, ALL, 4), (32, 128), "a column");
        assert_eq!(global(|l| l as u64 * 16, ALL, 16), (16, 512), "four-wide");
        assert_eq!(
            global(|l| (31 - l) as u64 * 4, ALL, 4),
            (4, 128),
            "reversed"
        );
        assert_eq!(global(|l| l as u64 * 4, 0x8000_0001, 4), (2, 8), "masked");
        assert_eq!(
            global(|l| (l as u64 % 16) * 4 + (l as u64 / 16) * 1000 * 4, ALL, 4),
            (4, 128),
            "two rows of 16"
        );
    }

    #[test]
    fn banks_of_known_patterns() {
        let cost = |address: &dyn Fn(u64) -> u64, bytes| {
            let cost = shared_cost(&row(|lane| address(lane as u64)), u32::MAX, bytes);
            (cost.wavefronts, cost.passes, cost.degree)
        };
        assert_eq!(cost(&|l| l * 4, 4), (1, 1, 1), "a row");
        assert_eq!(cost(&|_| 12, 4), (1, 1, 1), "a broadcast");
        assert_eq!(cost(&|l| l * 8, 4), (2, 1, 2), "stride 2");
        assert_eq!(cost(&|l| l * 128, 4), (32, 1, 32), "a column of 32");
        assert_eq!(cost(&|l| l * 132, 4), (1, 1, 1), "a column of 33");
        assert_eq!(cost(&|l| l * 64, 4), (16, 1, 16), "a column of 16");
        assert_eq!(cost(&|l| l * 8, 8), (2, 2, 1), "8 bytes: two half warps");
        assert_eq!(cost(&|l| l * 16, 16), (4, 4, 1), "16 bytes: four quarters");
        assert_eq!(cost(&|_| 0, 16), (2, 2, 1), "16 bytes, one address");
        assert_eq!(cost(&|l| l * 32, 16), (8, 4, 2), "16 of every 32 bytes");
    }

    fn shared_run(address: impl Fn(usize, usize) -> u64, times: usize) -> SharedCounters {
        let kind = AccessKind::new(Space::Shared, false, 4);
        let mut log = WarpLog::default();
        for lane in 0..LANES {
            for n in 0..times {
                log.record(3, kind, lane, address(lane, n));
            }
        }
        let mut counters = Vec::new();
        log.fold_all(&mut counters);
        counters[3].shared_load
    }

    #[test]
    fn neighbouring_words_join_to_wide_loads() {
        let along = shared_run(|_, n| n as u64 * 4, 10);
        assert_eq!(along.requests, 10);
        assert_eq!(
            along.vectorized_requests,
            2 + 2,
            "two of 16 bytes, two left"
        );
        assert_eq!(along.vectorized_wavefronts, 2 * 2 + 2);
        let across = shared_run(|lane, n| (n * 32 + lane) as u64 * 4, 10);
        assert_eq!((across.requests, across.vectorized_requests), (10, 10));
        let unaligned = shared_run(|_, n| 4 + n as u64 * 4, 6);
        assert_eq!(
            unaligned.vectorized_requests,
            3 + 3,
            "starts at 16, has three"
        );
    }

    #[test]
    fn lanes_pair_by_execution_and_memory_stays_small() {
        let kind = AccessKind::new(Space::Global, false, 4);
        let mut log = WarpLog::default();
        let mut counters = Vec::new();
        let mut most = 0;
        for chunk in 0..100 {
            for lane in 0..LANES {
                for n in 0..50 {
                    let n = chunk * 50 + n;
                    log.record(0, kind, lane, (n * 1000 + lane) as u64 * 4);
                }
            }
            log.fold_passed(u32::MAX, &mut counters);
            most = most.max(log.logs[0].rows.capacity());
        }
        log.fold_all(&mut counters);
        let load = counters[0].global_load;
        assert_eq!((load.requests, load.accesses), (5000, 5000 * 32));
        assert!(most < 200, "{most} rows kept");
    }

    #[test]
    fn a_lane_that_stays_behind_is_counted_apart() {
        let kind = AccessKind::new(Space::Global, false, 4);
        let mut log = WarpLog::default();
        let mut counters = Vec::new();
        for n in 0..MAX_ROWS as u64 + 1 {
            log.record(0, kind, 0, n * 4);
        }
        log.fold_passed(3, &mut counters);
        assert_eq!(counters[0].global_load.requests, MAX_ROWS as u64 + 1);
        log.record(0, kind, 1, 0);
        log.fold_all(&mut counters);
        assert_eq!(counters[0].global_load.requests, MAX_ROWS as u64 + 2);
    }
}
