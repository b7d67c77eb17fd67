//! Persistent blocks: a ring of stages that never runs dry.
//!
//! As many blocks as fit on the device, each of which computes many tiles of C.
//! What changed since [`warp_tile`](super::warp_tile), whose warp tiles these
//! are:
//!
//! - Copies run ahead across tiles. While a block multiplies the last steps of
//!   one tile, the first of the next are under way, so that only its first tile
//!   waits for memory.
//! - No barrier of the whole block is left in the loop. Each stage has a barrier
//!   in shared memory that says when it is full, on which the copies themselves
//!   arrive, and one that says when it is empty, on which each warp arrives. A
//!   warp that is ahead goes on.
//! - Copies are spread over the products: a thread starts those of eight k, then
//!   multiplies eight k, in a loop body of 1,024 multiply-adds.
//! - The loop is left where a tile ends, or what is copied of it. What is done there
//!   lies outside, so that the end of a stage is sixty instructions in a line, which
//!   three loop bodies of four jump over.
//! - Rows of any length. Those of a multiple of four elements are copied 16 bytes at
//!   a time; others 4 bytes at a time, by a kernel whose last tile of each row of
//!   tiles is moved to the left until all of its columns are inside, so that no
//!   copy must look. It leaves out what its neighbour writes.
//! - C is scaled by a number that is only known at run time. It is 1, and yet
//!   worth 5 %: without a multiplication before the store, ptxas holds the sums
//!   in groups of four registers, as the wide store wants them, and has no
//!   freedom left to spread the operands of multiply-adds over the two register
//!   banks.
//!
//! ```text
//!  stage      0        1        2        3        0        1
//!  copies     ·        ·     step s+2 ···  filled while step s is multiplied
//!  products  step s   step s+1
//! ```
//!
//! # The order of the multiply-adds
//!
//! The register file delivers one register a cycle from each of its two banks, the
//! even and the odd. A multiply-add reads three: two where one was kept from the
//! instruction before. Down a column of a thread's sums and up the next, each shares
//! one with its neighbour. But ptxas moves multiply-adds and loads about and chooses
//! the registers, and how many read three in the end, 40 to 160 of 1,024, hangs on
//! the order of the rows and columns in ways that nobody can foresee. So each
//! [`Tiling`] names an order: of some hundred, twenty were measured that do well by
//! what `tools/operands.awk` counts in the machine code.
//!
//! # Work
//!
//! Tiles are numbered in groups of [`GROUP`] rows. Block b computes tiles b,
//! b + blocks, b + 2 · blocks and so on, each as a whole. [`Work`] can also have
//! the blocks share the steps of the last tiles evenly, which
//! [`stream_k`](super::stream_k) uses and explains. A [`Tiling`] can have the
//! blocks of a cluster share each tile's, which [`split_k`](super::split_k) does.

#![cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_80"))]

use crate::gpu::{
    self, Barrier, Global, GlobalMut, Shared, TensorMap, async_copy, barrier, cluster, math,
    thread, warp,
};

/// Rows of a warp's tile.
pub const WM: u32 = 32;
/// Columns of a warp's tile.
pub const WN: u32 = 128;
/// Rows of a thread's tile.
pub const TM: u32 = 8;
/// Columns of a thread's tile.
pub const TN: u32 = 16;
/// Rows of tiles that neighbouring numbers cover.
pub const GROUP: u32 = 8;

/// Rows and columns of lanes in a warp; see [`warp_tile`](super::warp_tile).
const LANE_ROWS: u32 = 4;
const LANE_COLUMNS: u32 = 8;
/// k of a loop body.
const SLICE: u32 = 8;
/// Groups of four neighbouring sums that a thread has.
const FOURS: u32 = TM * TN / 4;

/// The sizes of a block's tile, and how B is copied.
pub trait Tiling {
    /// Rows of warp tiles.
    const WARP_ROWS: u32;
    /// Columns of warp tiles.
    const WARP_COLUMNS: u32;
    /// Depth of a step along K.
    const BK: u32;
    /// Stages of the ring.
    const STAGES: u32;
    /// How tiles of B are copied.
    const COPY_B: CopyB;
    /// The order in which a thread's columns are multiplied, one down its rows and
    /// the next one up; see the [module](self).
    const COLUMNS: [usize; TN as usize];
    /// The order of the rows on the way down.
    const ROWS: [usize; TM as usize];
    /// The most blocks of a cluster that share the steps of one tile, and add up
    /// their sums through their shared memory; 0 for a kernel without. With it,
    /// each block computes for one tile, and [`Work::whole`] and [`Work::share`]
    /// mean nothing.
    const MAX_CLUSTER: u32 = 0;
    /// Groups of warps, each of which has the whole tile and multiplies its own
    /// part of each stage; see [`split_k`](super::split_k). More than one only
    /// with clusters, where what blocks have is added up, and then what groups
    /// have, too.
    const GROUPS: u32 = 1;

    /// Whether the kernel is one for clusters.
    const CLUSTERS: bool = Self::MAX_CLUSTER > 0;
    /// Fours of a thread's sums that each group adds up over all groups.
    const SHARE: u32 = FOURS / Self::GROUPS;

    /// Stages that copies are ahead of products: one is read, and one is on its
    /// way by the engine.
    const AHEAD: u32 = Self::STAGES - 2;
    /// Warps in a group.
    const GROUP_WARPS: u32 = Self::WARP_ROWS * Self::WARP_COLUMNS;
    /// Warps in a block.
    const WARPS: u32 = Self::GROUP_WARPS * Self::GROUPS;
    /// Eights of k that the block's warps copy at once.
    const COPY_EIGHTS: u32 = if Self::WARPS * 16 > Self::BM {
        Self::WARPS * 16 / Self::BM
    } else {
        1
    };
    /// k that they copy at once.
    const COPY_K: u32 = 8 * Self::COPY_EIGHTS;
    /// k of a stage that a group multiplies.
    const GROUP_K: u32 = Self::BK / Self::GROUPS;
    /// Threads in a group.
    const GROUP_THREADS: u32 = Self::GROUP_WARPS * warp::SIZE;
    /// Threads in a block.
    const THREADS: u32 = Self::WARPS * warp::SIZE;
    /// Rows of a block's tile of C.
    const BM: u32 = Self::WARP_ROWS * WM;
    /// Columns of a block's tile of C.
    const BN: u32 = Self::WARP_COLUMNS * WN;
    /// Elements from one row of the transposed tile of A to the next.
    const PITCH: u32 = Self::BM + 8;
    /// Elements of one stage of A's tiles.
    const TILE_A: u32 = Self::BK * Self::PITCH;
    /// Elements of one stage of B's tiles.
    const TILE_B: u32 = Self::BK * Self::BN;
    /// Elements through which C is written: an area of its own for each warp,
    /// where its columns are not written by fours. They lie behind the stages of
    /// B's tiles, or where these were, with clusters.
    const STAGING: u32 = if Self::COPY_B.any_width() && !Self::CLUSTERS {
        Self::WARPS * WARP_STAGING
    } else {
        0
    };
    /// The first of them.
    const STAGING_AT: u32 = if Self::CLUSTERS {
        0
    } else {
        Self::STAGES * Self::TILE_B
    };
    /// Elements behind the stages of B's tiles in which sums of a cluster's other
    /// blocks land.
    const LANDING: u32 = {
        let (mut most, mut size) = (0, 2);
        while size <= Self::MAX_CLUSTER {
            let fours = (size - 1) * FOURS.div_ceil(size);
            most = if fours > most { fours } else { most };
            size += 1;
        }
        most * 4 * Self::GROUP_THREADS
    };
    /// Elements of the array for A's tiles.
    const RING_A: usize = (Self::STAGES * Self::TILE_A) as usize;
    /// Elements of the array for B's tiles.
    const RING_B: usize = (Self::STAGES * Self::TILE_B + Self::STAGING + Self::LANDING) as usize;
}

/// How tiles of B come to shared memory.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "nvptx64"), derive(Debug))]
pub enum CopyB {
    /// By the copy engine: one thread's one instruction. Rows of B must be a
    /// multiple of four elements long.
    Engine,
    /// 16 bytes a copy. Rows of B must be a multiple of four elements long.
    Wide,
    /// 4 bytes a copy. The last tile of each row of tiles lies further left than
    /// its number says, so that all of its columns are inside, which saves a
    /// compare for each copy. C must be at least as wide as a tile.
    Shifted,
    /// 4 bytes a copy.
    Any,
}

impl CopyB {
    /// Whether rows of B, and so of C, may have any length.
    pub const fn any_width(self) -> bool {
        matches!(self, Self::Any | Self::Shifted)
    }

    /// The last column in which a tile may begin, of C's `n` columns and a tile's
    /// `bn`.
    pub const fn last_column(self, n: u32, bn: u32) -> u32 {
        if matches!(self, Self::Shifted) {
            n - bn
        } else {
            u32::MAX
        }
    }
}

/// What a launch computes and how it is shared out.
#[derive(Clone, Copy)]
pub struct Work {
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B and C.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// Tiles that blocks compute as a whole. The rest is streamed.
    pub whole: u32,
    /// Steps of the streamed tiles that each block takes.
    pub share: u32,
}

/// Consecutive steps of one tile.
#[derive(Clone, Copy)]
struct Segment {
    /// The tile's number; [`Segment::NONE`] where there is none.
    tile: u32,
    /// The first step.
    first: u32,
    /// One past the last step.
    end: u32,
}

impl Segment {
    const NONE: u32 = u32::MAX;
    const NOTHING: Self = Self {
        tile: Self::NONE,
        first: 0,
        end: 0,
    };
}

/// Where a tile lies.
pub(super) struct Place {
    /// Its first row.
    pub row0: u32,
    /// Its first column.
    pub column0: u32,
    /// Columns from there that the tile before it has, too, and writes.
    pub skip: u32,
}

/// Where a tile lies: tiles are numbered in groups of [`GROUP`] rows, column by
/// column. None begins right of the column `last`.
#[inline(always)]
pub(super) fn place(tile: u32, m: u32, n: u32, bm: u32, bn: u32, last: u32) -> Place {
    let (rows, columns) = (m.div_ceil(bm), n.div_ceil(bn));
    let in_group = GROUP * columns;
    let first_row = tile / in_group * GROUP;
    let left = rows - first_row;
    let height = if left < GROUP { left } else { GROUP };
    let i = tile % in_group;
    let column = i / height * bn;
    let column0 = if column < last { column } else { last };
    Place {
        row0: (first_row + i % height) * bm,
        column0,
        skip: column - column0,
    }
}

impl Work {
    /// The same, for code that runs once a tile. Without this LLVM computes what
    /// it can of it before the loop, and holds the results in registers that the
    /// products need.
    #[inline(always)]
    fn anew(self) -> Self {
        Self {
            m: gpu::opaque(self.m),
            n: gpu::opaque(self.n),
            k: gpu::opaque(self.k),
            whole: gpu::opaque(self.whole),
            share: gpu::opaque(self.share),
        }
    }

    /// Steps along K. With K = 0 there is one, whose copies bring zeros.
    #[inline(always)]
    fn steps<T: Tiling>(self) -> u32 {
        let steps = self.k.div_ceil(T::BK);
        if steps == 0 { 1 } else { steps }
    }

    #[inline(always)]
    fn tile_rows<T: Tiling>(self) -> u32 {
        self.m.div_ceil(T::BM)
    }

    #[inline(always)]
    fn tile_columns<T: Tiling>(self) -> u32 {
        self.n.div_ceil(T::BN)
    }

    /// Where a tile lies.
    #[inline(always)]
    fn place<T: Tiling>(self, tile: u32) -> Place {
        let last = T::COPY_B.last_column(self.n, T::BN);
        place(tile, self.m, self.n, T::BM, T::BN, last)
    }

    /// The steps of the streamed tiles, counted through all of them, that this
    /// block takes: the first, and one past the last.
    #[inline(always)]
    fn range<T: Tiling>(self) -> (u32, u32) {
        let streamed = self.tile_rows::<T>() * self.tile_columns::<T>() - self.whole;
        let total = streamed * self.steps::<T>();
        let first = thread::block_idx_x() * self.share;
        let end = first + self.share;
        (first, if end < total { end } else { total })
    }

    /// This block's first segment.
    #[inline(always)]
    fn start<T: Tiling>(self) -> Segment {
        if T::CLUSTERS {
            let (rank, size) = (cluster::rank(), cluster::size());
            let steps = self.steps::<T>();
            return Segment {
                tile: thread::block_idx_x() / size,
                first: steps * rank / size,
                end: steps * (rank + 1) / size,
            };
        }
        let tile = thread::block_idx_x();
        if tile < self.whole {
            Segment {
                tile,
                first: 0,
                end: self.steps::<T>(),
            }
        } else {
            self.start_streaming::<T>()
        }
    }

    #[inline(always)]
    fn start_streaming<T: Tiling>(self) -> Segment {
        let (first, end) = self.range::<T>();
        if first >= end {
            return Segment::NOTHING;
        }
        let steps = self.steps::<T>();
        let (tile, first_step) = (first / steps, first % steps);
        let left = first_step + (end - first);
        Segment {
            tile: self.whole + tile,
            first: first_step,
            end: if left < steps { left } else { steps },
        }
    }

    /// The segment after the one of `tile`.
    #[inline(always)]
    fn next<T: Tiling>(self, tile: u32) -> Segment {
        if T::CLUSTERS {
            return Segment::NOTHING;
        }
        let steps = self.steps::<T>();
        if tile < self.whole {
            let tile = tile + thread::grid_dim_x();
            if tile < self.whole {
                return Segment {
                    tile,
                    first: 0,
                    end: steps,
                };
            }
            return self.start_streaming::<T>();
        }
        let first = (tile + 1 - self.whole) * steps;
        let (_, end) = self.range::<T>();
        if first >= end {
            return Segment::NOTHING;
        }
        let left = end - first;
        Segment {
            tile: tile + 1,
            first: 0,
            end: if left < steps { left } else { steps },
        }
    }

    /// Where this block leaves its part of a streamed tile: the number of a
    /// tile-sized piece of the workspace, or none where the part is the whole.
    ///
    /// A block has at most two parts of tiles, one where its range begins and
    /// one where it ends.
    #[inline(always)]
    fn piece<T: Tiling>(self, tile: u32) -> Option<u32> {
        if tile < self.whole {
            return None;
        }
        let steps = self.steps::<T>();
        let (first, end) = self.range::<T>();
        let tile_first = (tile - self.whole) * steps;
        if first <= tile_first && tile_first + steps <= end {
            return None;
        }
        let begins_here = first >= tile_first;
        Some(2 * thread::block_idx_x() + u32::from(!begins_here))
    }
}

/// Elements of a line of a warp's staging area, padded so that four lines start
/// eight banks apart.
const LINE: u32 = 4 * LANE_COLUMNS + 8;
/// Elements of one of its slots: a line for each row of lanes.
const SLOT: u32 = LANE_ROWS * LINE;
/// Its slots.
const SLOTS: u32 = 4;
const WARP_STAGING: u32 = SLOTS * SLOT;

/// Where the factors are.
#[derive(Clone, Copy)]
pub struct Factors {
    /// A.
    pub a: Global<f32>,
    /// B.
    pub b: Global<f32>,
    /// B, for [`CopyB::Engine`].
    pub b_map: Option<TensorMap>,
}

/// The shared arrays of a block: tiles of A, STAGES×BK×PITCH, each transposed;
/// tiles of B, STAGES×BK×BN, and the areas behind them; and the stages'
/// barriers.
pub struct Ring<const A: usize, const B: usize, const STAGES: usize> {
    /// Tiles of A.
    pub a: Shared<f32, A>,
    /// Tiles of B.
    pub b: Shared<f32, B>,
    /// A stage's copies have landed.
    pub full: Shared<Barrier, STAGES>,
    /// All warps have read a stage.
    pub empty: Shared<Barrier, STAGES>,
}

impl<const A: usize, const B: usize, const STAGES: usize> Clone for Ring<A, B, STAGES> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<const A: usize, const B: usize, const STAGES: usize> Copy for Ring<A, B, STAGES> {}

/// A stage of the ring, and the parity of the phase to wait for there.
#[derive(Clone, Copy)]
struct Turn {
    stage: u32,
    parity: u32,
}

impl Turn {
    /// The turn after this one, in a ring of `stages`.
    #[inline(always)]
    fn next(self, stages: u32) -> Self {
        let last = self.stage + 1 == stages;
        Self {
            stage: if last { 0 } else { self.stage + 1 },
            parity: self.parity ^ u32::from(last),
        }
    }
}

/// The most rows of A that a thread copies from in a slice: two of each 16 that a
/// warp covers at once, once or twice.
const MAX_A_ROWS: usize = 4;

/// A thread's part in copying, some stages ahead of the products.
struct Producer<T, const A: usize, const B: usize, const STAGES: usize> {
    work: Work,
    factors: Factors,
    ring: Ring<A, B, STAGES>,
    /// The segment that is being copied, from the step that comes next on.
    segment: Segment,
    /// Whether the block has a segment after it.
    more: bool,
    /// The stage that is being filled, and the phase that says that it is empty.
    turn: Turn,
    /// The first row and column of the segment's tile. Nobody reads the row; but
    /// without it ptxas makes other code, which no GPU has measured.
    row0: u32,
    column0: u32,
    /// k that are left from the thread's first of the slice on, for its copies of A
    /// and of B: none or fewer past the end. At most what a stage has, so that they
    /// fit in 32 bits whatever K.
    a_left: i32,
    b_left: i32,
    /// Where the thread's last elements of A came from, by row. A copy reads its
    /// registers late, and whoever writes them must wait until it has; so
    /// addresses move on just before the next copies, a loop body later.
    a_from: [Global<f32>; MAX_A_ROWS],
    /// Where those of B came from.
    b_from: Global<f32>,
    /// Where they went.
    a_to: Shared<f32, A>,
    b_to: Shared<f32, B>,
    /// Whether the thread is of the warp that has the engine copy.
    leads: bool,
    tiling: core::marker::PhantomData<T>,
}

/// Columns that a lane copies at once.
#[inline(always)]
const fn b_width(copy: CopyB) -> u32 {
    if copy.any_width() { 1 } else { 4 }
}

impl<T: Tiling, const A: usize, const B: usize, const STAGES: usize> Producer<T, A, B, STAGES> {
    /// Rows of A that a thread copies from.
    const A_ROWS: u32 = T::BM * T::COPY_EIGHTS / (8 * T::WARPS);
    /// Warps that lie along the rows of A in a copy.
    const WARP_ROWS: u32 = T::WARPS / T::COPY_EIGHTS;

    #[inline(always)]
    fn new(work: Work, factors: Factors, ring: Ring<A, B, STAGES>) -> Self {
        let mut producer = Self {
            work,
            factors,
            ring,
            segment: work.start::<T>(),
            more: false,
            // The stages are empty from the start: as if a phase of parity 1
            // had ended.
            turn: Turn {
                stage: 0,
                parity: 1,
            },
            row0: 0,
            column0: 0,
            a_left: 0,
            b_left: 0,
            a_from: [factors.a; MAX_A_ROWS],
            b_from: factors.b,
            a_to: ring.a,
            b_to: ring.b,
            leads: matches!(T::COPY_B, CopyB::Engine) && warp::uniform(warp::index()) == 0,
            tiling: core::marker::PhantomData,
        };
        producer.enter_segment();
        producer.enter_stage();
        producer
    }

    /// A copy of a warp covers four k and eight rows of A: a lane's first row and
    /// k. It reads 16 bytes of each of the eight rows, and its places in the
    /// transposed tile lie in all 32 banks.
    #[inline(always)]
    fn a_place() -> (u32, u32) {
        let (warp, lane) = (warp::index(), warp::lane());
        // A warp's first row, and its eight of the k that are copied at once.
        let (row, eight) = if T::COPY_EIGHTS == 1 {
            (warp * 16, 0)
        } else {
            (warp % Self::WARP_ROWS * 16, warp / Self::WARP_ROWS)
        };
        (row + lane % 8, eight * 8 + lane / 8)
    }

    /// Rows from a thread's first to its i-th.
    #[inline(always)]
    const fn a_row(i: u32) -> u32 {
        i / 2 * (16 * Self::WARP_ROWS) + i % 2 * 8
    }

    /// Whether there is something left to copy.
    #[inline(always)]
    fn active(&self) -> bool {
        self.segment.first < self.segment.end
    }

    /// Points at the first elements of a new segment.
    #[inline(always)]
    fn enter_segment(&mut self) {
        if !self.active() {
            return;
        }
        let work = self.work.anew();
        self.more = work.next::<T>(self.segment.tile).tile != Segment::NONE;
        let Work { m, n, k, .. } = work;
        let Place { row0, column0, .. } = work.place::<T>(self.segment.tile);
        let k0 = self.segment.first * T::BK;
        (self.row0, self.column0) = (row0, column0);
        let (a_row, a_k) = Self::a_place();
        for i in 0..Self::A_ROWS {
            let row = row0 + a_row + Self::a_row(i);
            // A row past the edge copies the last one again. What comes of it
            // lies outside C.
            let row = if row < m { row } else { m - 1 };
            self.a_from[i as usize] = self
                .factors
                .a
                .offset(u64::from(row) * u64::from(k) + u64::from(k0 + a_k))
                .offset(u64::from(T::COPY_K).wrapping_neg());
        }
        if !matches!(T::COPY_B, CopyB::Engine) {
            let column = column0 + warp::lane() * b_width(T::COPY_B);
            self.b_from = self
                .factors
                .b
                .offset(u64::from(k0 + warp::index()) * u64::from(n) + u64::from(column))
                .offset((u64::from(T::COPY_K) * u64::from(n)).wrapping_neg());
        }
    }

    /// Sets what changes from stage to stage.
    #[inline(always)]
    fn enter_stage(&mut self) {
        let (a_row, a_k) = Self::a_place();
        let to = self.turn.stage * T::TILE_A + a_k * T::PITCH + a_row;
        self.a_to = self.ring.a.moved(to as i32 - (T::COPY_K * T::PITCH) as i32);
        let to =
            self.turn.stage * T::TILE_B + warp::index() * T::BN + warp::lane() * b_width(T::COPY_B);
        self.b_to = self.ring.b.moved(to as i32 - (T::COPY_K * T::BN) as i32);
        let mut k_left = 0;
        if self.active() {
            let left = self.work.k - self.segment.first * T::BK;
            k_left = if left < T::BK { left } else { T::BK };
        }
        self.a_left = k_left as i32 - a_k as i32;
        self.b_left = k_left as i32 - warp::index() as i32;
    }

    /// Has the copy engine bring the stage's tile of B.
    ///
    /// # Safety
    ///
    /// - All warps have read what the stage held.
    #[inline(always)]
    unsafe fn copy_by_engine(&self) {
        if let (CopyB::Engine, Some(map)) = (T::COPY_B, self.factors.b_map)
            && self.leads
            && self.active()
            && warp::elect()
        {
            // SAFETY: the stage is below the number of stages; its tile of B has as many
            // elements as a box, and starts at a multiple of 128 bytes. The
            // caller says that nobody reads it any more.
            unsafe {
                let full = self.ring.full.at(self.turn.stage);
                full.arrive_expecting(T::TILE_B * 4);
                map.copy_box(
                    self.ring.b,
                    self.turn.stage * T::TILE_B,
                    self.segment.first * T::BK,
                    self.column0,
                    full,
                );
            }
        }
    }

    /// Starts the thread's copies of the next [`COPY_K`](Tiling::COPY_K) k.
    ///
    /// # Safety
    ///
    /// - All warps have read what the stage held.
    #[inline(always)]
    unsafe fn copy_slice(&mut self) {
        self.a_to = self.a_to.moved((T::COPY_K * T::PITCH) as i32);
        for i in 0..Self::A_ROWS {
            self.a_from[i as usize] = self.a_from[i as usize].offset(T::COPY_K.into());
            for k in (0..8).step_by(4) {
                // SAFETY: the place is inside the stage. The element is inside A
                // where the copy is valid: its row is, and k is below those that
                // are left.
                unsafe {
                    async_copy::copy(
                        self.a_to,
                        k * T::PITCH + Self::a_row(i),
                        self.a_from[i as usize].offset(k.into()),
                        self.a_left > k as i32,
                    );
                }
            }
        }
        if !matches!(T::COPY_B, CopyB::Engine) {
            let width = b_width(T::COPY_B);
            let n = self.work.n;
            let column = self.column0 + warp::lane() * width;
            self.b_from = self.b_from.offset(u64::from(T::COPY_K) * u64::from(n));
            self.b_to = self.b_to.moved((T::COPY_K * T::BN) as i32);
            for line in 0..T::COPY_K / T::WARPS {
                // Rows of B: every warp takes its own.
                let k = line * T::WARPS;
                let inside = self.b_left > k as i32;
                // Columns that are left; none where the row is outside.
                let left = if matches!(T::COPY_B, CopyB::Shifted) {
                    if inside { T::BN } else { 0 }
                } else if inside && column < n {
                    n - column
                } else {
                    0
                };
                let from = self.b_from.offset(u64::from(k) * u64::from(n));
                for i in 0..T::BN / (32 * width) {
                    let at = i * 32 * width;
                    let to = k * T::BN + at;
                    // SAFETY: the place is inside the stage. The elements are
                    // inside B where the copy is valid; with four at once, all
                    // are or none is, since rows are a multiple of four long.
                    unsafe {
                        if width == 4 {
                            async_copy::copy_4(self.b_to, to, from.offset(at.into()), left > at);
                        } else {
                            async_copy::copy(self.b_to, to, from.offset(at.into()), left > at);
                        }
                    }
                }
            }
        }
        self.a_left -= T::COPY_K as i32;
        self.b_left -= T::COPY_K as i32;
    }

    /// Closes the stage. [`go_on`](Self::go_on) begins the next, and
    /// [`enter_stage`](Self::enter_stage) is enough where [no segment
    /// ends](Self::segment_ends).
    ///
    /// # Safety
    ///
    /// - The thread has started all of its copies of this stage.
    #[inline(always)]
    unsafe fn finish_stage(&mut self) {
        // SAFETY: the stage is below the number of stages, and every thread arrives once a
        // phase.
        unsafe { self.ring.full.at(self.turn.stage).arrive_after_copies() };
        self.turn = self.turn.next(T::STAGES);
        self.segment.first += 1;
    }

    /// Whether the next stage is one of another segment.
    #[inline(always)]
    fn segment_ends(&self) -> bool {
        self.more && self.segment.first == self.segment.end
    }

    /// Begins the next stage, of the next segment where this one has ended.
    #[inline(always)]
    fn go_on(&mut self) {
        if self.segment_ends() {
            self.segment = self.work.anew().next::<T>(self.segment.tile);
            self.enter_segment();
        }
        self.enter_stage();
    }
}

/// Computes this block's tiles of C, and its parts of streamed tiles.
///
/// Where a part is not a whole tile, its sums go to a BM×BN piece of `parts`.
///
/// # Safety
///
/// - `factors` hold matrices of `work`'s sizes that nothing writes meanwhile.
///   With [`CopyB::Engine`] there is a `b_map`, of boxes of BK×BN, and K is not
///   0. With [`CopyB::Shifted`] N is BN or more. Unless rows of B have
///   [any length](CopyB::any_width), N is a multiple of four and `b` and `c`
///   start at multiples of 16 bytes.
/// - `c` holds M·N elements that nothing else touches meanwhile.
/// - `parts` holds 2·BM·BN elements for each block, unless `work.share` is 0 or
///   the tiling is one for [clusters](Tiling::CLUSTERS).
/// - The block has THREADS threads along x, and the grid lies along x.
/// - With a tiling for clusters, these have MAX_CLUSTER blocks or fewer,
///   and no more than K has steps. There is one for each tile.
#[inline(always)]
pub unsafe fn multiply<T: Tiling, const A: usize, const B: usize, const STAGES: usize>(
    ring: Ring<A, B, STAGES>,
    factors: Factors,
    c: GlobalMut<f32>,
    parts: GlobalMut<f32>,
    scale: f32,
    work: Work,
) {
    const {
        assert!(
            WM == LANE_ROWS * TM && WN == LANE_COLUMNS * TN && LANE_ROWS * LANE_COLUMNS == 32,
            "a warp's tile is its lanes' tiles"
        );
        assert!(
            STAGES == T::STAGES as usize && A == T::RING_A && B == T::RING_B,
            "the ring has STAGES tiles of A and of B"
        );
        assert!(
            T::WARPS % T::COPY_EIGHTS == 0
                && T::BM * T::COPY_EIGHTS % (16 * T::WARPS) == 0
                && T::BM * T::COPY_EIGHTS / (8 * T::WARPS) <= MAX_A_ROWS as u32,
            "warps copy 16 rows of A each, once or twice"
        );
        assert!(
            T::COPY_K.is_multiple_of(T::WARPS),
            "warps copy equally many rows of B"
        );
        assert!(
            T::GROUP_K % SLICE == 0 && T::BK.is_power_of_two(),
            "a stage is a whole number of loop bodies, and steps are counted by shifts"
        );
        assert!(
            T::GROUPS % T::COPY_EIGHTS == 0,
            "a loop body starts a whole number of copies"
        );
        assert!(
            T::GROUPS == 1 || T::CLUSTERS,
            "what groups have is added up with what blocks have"
        );
        assert!(
            T::MAX_CLUSTER <= FOURS,
            "each block of a cluster adds up some"
        );
        assert!(
            T::PITCH % 32 == 8,
            "rows of a tile of A must start eight banks apart"
        );
        assert!(
            T::BN <= 256 && T::BK <= 256,
            "a box of the copy engine is at most 256 wide and high"
        );
        assert!(
            T::STAGES >= 3,
            "one stage is read, at least one is full, and one is on its way"
        );
        assert!(
            !T::CLUSTERS
                || (T::GROUPS * FOURS - fours_in_b::<T>()) * 4 * T::GROUP_THREADS <= A as u32,
            "the ring has room for all sums"
        );
    }
    let (warp, lane) = (warp::index(), warp::lane());
    if thread::thread_idx_x() == 0 {
        let engine = u32::from(matches!(T::COPY_B, CopyB::Engine));
        for stage in 0..T::STAGES {
            // SAFETY: this one thread makes each barrier once, and the others
            // wait below.
            unsafe {
                ring.full.at(stage).init(T::THREADS + engine);
                ring.empty.at(stage).init(T::WARPS);
            }
        }
        barrier::publish();
        if let (CopyB::Engine, Some(map)) = (T::COPY_B, factors.b_map) {
            map.prefetch();
        }
    }
    // Closes write-before-read of the barriers.
    thread::sync_threads();
    if T::CLUSTERS && cluster::size() > 1 {
        // For `add_up`, which waits.
        cluster::arrive_relaxed();
    }
    // All that is above touches this block's own memory alone.
    gpu::wait_for_launch_before();

    let start = work.start::<T>();
    // Not with clusters: each of their blocks has steps, and has arrived above.
    if start.tile == Segment::NONE {
        return;
    }
    let mut producer = Producer::<T, A, B, STAGES>::new(work, factors, ring);
    for _ in 0..T::AHEAD {
        // SAFETY: nobody has read or filled these stages yet.
        unsafe {
            producer.copy_by_engine();
            for _ in 0..T::BK / T::COPY_K {
                producer.copy_slice();
            }
            producer.finish_stage();
            producer.go_on();
        }
    }
    // SAFETY: as above.
    unsafe { producer.copy_by_engine() };

    // The first element of this thread's first piece; see `warp_tile`.
    let (group, in_group) = if T::GROUPS == 1 {
        (0, warp)
    } else {
        (warp / T::GROUP_WARPS, warp % T::GROUP_WARPS)
    };
    let own_row = in_group / T::WARP_COLUMNS * WM + lane / 2 % 4 * 4;
    let own_column = in_group % T::WARP_COLUMNS * WN + (lane % 2 + lane / 8 * 2) * 4;
    // The first elements of a stage that the thread multiplies.
    let own_a = group * (T::GROUP_K * T::PITCH) + own_row;
    let own_b = group * (T::GROUP_K * T::BN) + own_column;

    // Row i of the tiles from these places on, as this thread's fragments.
    let fragments = |a: Shared<f32, A>, b: Shared<f32, B>, i: u32| {
        // SAFETY: zero bits are the number zero.
        let (mut a_fragment, mut b_fragment): ([f32; TM as usize], [f32; TN as usize]) =
            unsafe { core::mem::zeroed() };
        for piece in 0..TM / 4 {
            let at = 4 * piece as usize;
            // SAFETY: the row is below BK and inside the stage, whose full
            // barrier this thread has waited for.
            let four = unsafe { a.load_4(i * T::PITCH + piece * (4 * LANE_ROWS)) };
            a_fragment[at..at + 4].copy_from_slice(&four);
        }
        for piece in 0..TN / 4 {
            let at = 4 * piece as usize;
            // SAFETY: as above.
            let four = unsafe { b.load_4(i * T::BN + piece * (4 * LANE_COLUMNS)) };
            b_fragment[at..at + 4].copy_from_slice(&four);
        }
        (a_fragment, b_fragment)
    };
    // The thread's first elements of a stage.
    let first_of = |stage: u32| {
        (
            ring.a.moved((stage * T::TILE_A + own_a) as i32),
            ring.b.moved((stage * T::TILE_B + own_b) as i32),
        )
    };
    // SAFETY: zero bits are the number zero.
    let mut sums: [[f32; TN as usize]; TM as usize] = unsafe { core::mem::zeroed() };
    // Down one column of sums and up the next, so that neighbouring multiply-adds
    // share an operand.
    let add_products = |sums: &mut [[f32; TN as usize]; TM as usize],
                        (a, b): &([f32; TM as usize], [f32; TN as usize])| {
        for i in 0..TN as usize {
            let s = T::COLUMNS[i];
            for j in 0..TM as usize {
                let r = T::ROWS[if i % 2 == 1 { TM as usize - 1 - j } else { j }];
                sums[r][s] = math::fma(a[r], b[s], sums[r][s]);
            }
        }
    };

    let mut tile = start.tile;
    let mut steps_left = start.end - start.first;
    let mut turn = Turn {
        stage: 0,
        parity: 0,
    };
    // SAFETY: the barrier was made above. Closes write-before-read for stage 0.
    unsafe { ring.full.at(turn.stage).wait(turn.parity) };
    let (mut a_from, mut b_from) = first_of(turn.stage);
    let mut now = fragments(a_from, b_from, 0);
    let mut slice = 0;
    let never = gpu::opaque(0) != 0;
    loop {
        // LLVM would otherwise unroll by the slices of a stage, past what the
        // instruction cache holds.
        slice = gpu::opaque(slice);
        // SAFETY: `empty` was waited for when this stage was entered.
        unsafe {
            for _ in 0..T::GROUPS / T::COPY_EIGHTS {
                producer.copy_slice();
            }
        }
        for i in 0..SLICE - 1 {
            let next = fragments(a_from, b_from, i + 1);
            add_products(&mut sums, &now);
            now = next;
        }
        a_from = a_from.moved((SLICE * T::PITCH) as i32);
        b_from = b_from.moved((SLICE * T::BN) as i32);
        slice += 1;
        let mut leaves = false;
        if slice == T::GROUP_K / SLICE {
            slice = 0;
            steps_left -= 1;
            // SAFETY: the barriers were made above, and each warp arrives once
            // a phase.
            unsafe {
                // Asked before they are needed, since an answer takes a while, and
                // both have long ended as a rule.
                let (filled, read) = (producer.turn.next(T::STAGES), turn.next(T::STAGES));
                let ended = ring.empty.at(filled.stage).has_ended(filled.parity)
                    & ring.full.at(read.stage).has_ended(read.parity);
                // Every lane has issued its loads of this stage.
                warp::sync();
                if lane == 0 {
                    ring.empty.at(turn.stage).arrive();
                }
                producer.finish_stage();
                leaves = steps_left == 0 || producer.segment_ends();
                if !leaves {
                    producer.enter_stage();
                    turn = read;
                    if !ended {
                        // Closes read-before-write for the stage that is filled next,
                        // and write-before-read for the one that is read next.
                        ring.empty.at(filled.stage).wait(filled.parity);
                        ring.full.at(read.stage).wait(read.parity);
                    }
                    producer.copy_by_engine();
                    (a_from, b_from) = first_of(turn.stage);
                }
            }
        }
        if !leaves {
            let next = fragments(a_from, b_from, 0);
            // Without a branch ptxas puts these loads last, and the next body waits for
            // them. It finds out that this one is never taken, but only later.
            if never {
                break;
            }
            add_products(&mut sums, &now);
            now = next;
            continue;
        }

        // Keeps LLVM from joining the two copies of the products.
        gpu::opaque(0);
        // SAFETY: as above.
        unsafe {
            producer.go_on();
            ring.empty
                .at(producer.turn.stage)
                .wait(producer.turn.parity);
            producer.copy_by_engine();
        }
        add_products(&mut sums, &now);
        if steps_left == 0 {
            let work = work.anew();
            if T::CLUSTERS {
                // No copy may land in the ring any more, and every warp has read it.
                async_copy::commit();
                async_copy::wait::<0>();
                // Closes read-before-write.
                thread::sync_threads();
                // SAFETY: the caller promises room for C; the ring is free.
                unsafe {
                    add_up::<T, A, B, STAGES>(
                        ring, &sums, own_row, own_column, c, scale, work, tile,
                    )
                };
                return;
            }
            // SAFETY: the caller promises room for C and for the parts.
            unsafe {
                store::<T, A, B, STAGES>(
                    ring, &sums, own_row, own_column, c, parts, scale, work, tile,
                )
            };
            let segment = work.next::<T>(tile);
            if segment.tile == Segment::NONE {
                break;
            }
            tile = segment.tile;
            steps_left = segment.end - segment.first;
            // SAFETY: zero bits are the number zero.
            sums = unsafe { core::mem::zeroed() };
        }
        turn = turn.next(T::STAGES);
        // SAFETY: as above. Closes write-before-read for the stage that is read next.
        unsafe { ring.full.at(turn.stage).wait(turn.parity) };
        (a_from, b_from) = first_of(turn.stage);
        now = fragments(a_from, b_from, 0);
    }
    // A block must not end with copies under way into its shared memory.
    async_copy::commit();
    async_copy::wait::<0>();
}

/// Writes a thread's sums to C, or to the block's part of a streamed tile.
///
/// # Safety
///
/// - As [`multiply`], for `c` and `parts`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "all of it is a thread's state")]
unsafe fn store<T: Tiling, const A: usize, const B: usize, const STAGES: usize>(
    ring: Ring<A, B, STAGES>,
    sums: &[[f32; TN as usize]; TM as usize],
    own_row: u32,
    own_column: u32,
    c: GlobalMut<f32>,
    parts: GlobalMut<f32>,
    scale: f32,
    work: Work,
    tile: u32,
) {
    let place = work.place::<T>(tile);
    // What adds up the parts reads four columns at a time, so a part has all of
    // its columns.
    let area = match work.piece::<T>(tile) {
        Some(piece) => Area {
            start: parts.offset(u64::from(piece) * u64::from(T::BM * T::BN)),
            pitch: T::BN,
            rows: work.m - place.row0,
            columns: T::BN,
            skip: 0,
        },
        None => Area::of_c(c, work, place),
    };
    let by_fours = area.by_fours::<T>();
    each_four(sums, scale, |number, four| {
        // SAFETY: the caller promises room, and the place is this thread's.
        unsafe { area.put::<T, B>(ring.b, by_fours, own_row, own_column, number, four) };
    });
}

/// Calls `take` with the number of each four of a thread's sums, and with the four
/// times `scale`.
#[inline(always)]
fn each_four(
    sums: &[[f32; TN as usize]; TM as usize],
    scale: f32,
    mut take: impl FnMut(u32, [f32; 4]),
) {
    for (r, row) in sums.iter().enumerate() {
        for piece in 0..TN / 4 {
            let at = 4 * piece as usize;
            let number = r as u32 * (TN / 4) + piece;
            take(
                number,
                core::array::from_fn(|i| math::mul(scale, row[at + i])),
            );
        }
    }
}

/// The rows from a thread's first to that of its four of this number.
#[inline(always)]
const fn row_of(number: u32) -> u32 {
    let r = number / (TN / 4);
    r / 4 * (4 * LANE_ROWS) + r % 4
}

/// The columns from a thread's first to that of its four of this number.
#[inline(always)]
const fn column_of(number: u32) -> u32 {
    number % (TN / 4) * (4 * LANE_COLUMNS)
}

/// Where a tile's sums go.
#[derive(Clone, Copy)]
struct Area {
    /// The tile's first element.
    start: GlobalMut<f32>,
    /// Elements from one row to the next.
    pitch: u32,
    /// Rows from the first that are inside.
    rows: u32,
    /// Columns likewise.
    columns: u32,
    /// Columns of those that are not written.
    skip: u32,
}

impl Area {
    /// A tile's place in C.
    #[inline(always)]
    fn of_c(c: GlobalMut<f32>, work: Work, place: Place) -> Self {
        let Place {
            row0,
            column0,
            skip,
        } = place;
        Self {
            start: c.offset(u64::from(row0) * u64::from(work.n) + u64::from(column0)),
            pitch: work.n,
            rows: work.m - row0,
            columns: work.n - column0,
            skip,
        }
    }

    /// Whether rows begin at multiples of 16 bytes, and are whole fours long.
    #[inline(always)]
    fn by_fours<T: Tiling>(self) -> bool {
        !T::COPY_B.any_width()
            || (self.pitch.is_multiple_of(4) && self.start.address().is_multiple_of(16))
    }

    /// Writes a thread's four of this number, those of it that are inside. All
    /// threads of a warp write the same number, each its own four.
    ///
    /// Single elements go through the warp's staging area, so that the lanes
    /// write neighbouring ones: the memory is written in sectors of 32 bytes, and
    /// four times where a store has only every fourth element.
    ///
    /// # Safety
    ///
    /// - The elements that are inside may be written, and are this thread's alone.
    /// - `own_row` and `own_column` are those of the thread's first element.
    #[inline(always)]
    unsafe fn put<T: Tiling, const B: usize>(
        self,
        ring_b: Shared<f32, B>,
        by_fours: bool,
        own_row: u32,
        own_column: u32,
        number: u32,
        four: [f32; 4],
    ) {
        let (r, column) = (row_of(number), column_of(number));
        if by_fours {
            let column = own_column + column;
            if own_row + r < self.rows && column >= self.skip && column < self.columns {
                let at = u64::from(own_row + r) * u64::from(self.pitch) + u64::from(column);
                // SAFETY: the four are inside, since rows are a multiple of four
                // long, and aligned, since they begin at one of 16 bytes.
                unsafe { self.start.store_4(at, four) };
            }
            return;
        }
        let lane = warp::lane();
        let slot = T::STAGING_AT + warp::index() * WARP_STAGING + number % SLOTS * SLOT;
        let (lane_row, lane_column) = (
            own_row % (4 * LANE_ROWS) / 4,
            own_column % (4 * LANE_COLUMNS),
        );
        // SAFETY: the slot is this warp's, and its lanes write each a four of it.
        // They have read what it held: a slot comes again after as many syncs as
        // there are slots.
        unsafe { ring_b.store_4(slot + lane_row * LINE + lane_column, four) };
        // Closes write-before-read within the warp.
        warp::sync();
        // The first row of the warp's four, and the lane's column.
        let first = own_row - lane_row * 4 + r;
        let column = own_column - lane_column + column + lane;
        for line in 0..LANE_ROWS {
            // SAFETY: as above; the warp has written the slot.
            let value = unsafe { ring_b.load(slot + line * LINE + lane) };
            let row = first + line * 4;
            if row < self.rows && column >= self.skip && column < self.columns {
                let at = u64::from(row) * u64::from(self.pitch) + u64::from(column);
                // SAFETY: the element is inside, and one of the warp's.
                unsafe { self.start.store(at, value) };
            }
        }
    }
}

/// How many fours of each thread of a group, of all groups, lie in the ring's
/// stages for B. The others lie in those for A.
const fn fours_in_b<T: Tiling>() -> u32 {
    let fit = T::STAGES * T::TILE_B / (4 * T::GROUP_THREADS);
    let all = T::GROUPS * FOURS;
    if fit < all { fit } else { all }
}

/// Adds up the sums that the blocks of the cluster, and their groups of warps,
/// have for a tile, and writes them to C.
///
/// Each thread puts its sums where the ring was, four of thread t of a group
/// beside four of thread t + 1. Each group then adds up its share of the fours
/// over all groups. Of those, each block of the cluster owns some: the others
/// write theirs into its shared memory, and it adds them up in the order of their
/// ranks, so that the same inputs give the same bits each time.
///
/// # Safety
///
/// - As [`multiply`], for `c`.
/// - Nobody uses the ring, and no copy into it is under way.
/// - Where the cluster has more than one block, the thread has arrived at its
///   barrier, and not waited.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "all of it is a thread's state")]
unsafe fn add_up<T: Tiling, const A: usize, const B: usize, const STAGES: usize>(
    ring: Ring<A, B, STAGES>,
    sums: &[[f32; TN as usize]; TM as usize],
    own_row: u32,
    own_column: u32,
    c: GlobalMut<f32>,
    scale: f32,
    work: Work,
    tile: u32,
) {
    let in_b = const { fours_in_b::<T>() };
    let (group, thread) = if T::GROUPS == 1 {
        (0, thread::thread_idx_x())
    } else {
        let thread = thread::thread_idx_x();
        (thread / T::GROUP_THREADS, thread % T::GROUP_THREADS)
    };
    let place = |four: u32| (four * T::GROUP_THREADS + thread) * 4;
    each_four(sums, scale, |number, four| {
        let number = group * FOURS + number;
        // SAFETY: the arrays have room for all fours, and the place is this
        // thread's.
        unsafe {
            if number < in_b {
                ring.b.store_4(place(number), four);
            } else {
                ring.a.store_4(place(number - in_b), four);
            }
        }
    });
    // Closes write-before-read.
    thread::sync_threads();

    // The four of a group of the block's, by its number in the share.
    let of_group = |source: u32, i: u32| {
        let number = source * FOURS + group * T::SHARE + i;
        // SAFETY: the group's thread of this number has written the four.
        unsafe {
            if number < in_b {
                ring.b.load_4(place(number))
            } else {
                ring.a.load_4(place(number - in_b))
            }
        }
    };
    let mut totals = [[0.0; 4]; FOURS as usize];
    for i in 0..T::SHARE {
        let mut total = of_group(0, i);
        for source in 1..T::GROUPS {
            add(&mut total, of_group(source, i));
        }
        totals[i as usize] = total;
    }

    let (rank, size) = (cluster::rank(), cluster::size());
    // The fours of all shares are given out to the blocks, the first of each share
    // first, so that every group has some of its block's.
    let turn = |i: u32| i * T::GROUPS + group;
    let owner = |i: u32| turn(i) * size / FOURS;
    // Quotients by the cluster's size, rounded up, of numbers that are small: exact
    // where number · size is less than 2^16. One division for all.
    let reciprocal = 0x10000 / size + 1;
    let by_size = |number: u32| ((number + size - 1) * reciprocal) >> 16;
    let most = by_size(FOURS);
    // Where the i-th four of the block that is the owner's so-many-th other lands.
    let landing = |other: u32, i: u32, owner: u32| {
        let number = other * most + (turn(i) - by_size(owner * FOURS));
        T::STAGES * T::TILE_B + (number * T::GROUP_THREADS + thread) * 4
    };
    if size > 1 {
        // Every block has begun.
        cluster::wait();
        for i in 0..T::SHARE {
            let owner = owner(i);
            if owner != rank {
                let other = if rank < owner { rank } else { rank - 1 };
                // SAFETY: the owner is below the cluster's size. The place is there
                // for this thread's four alone.
                unsafe {
                    let to = ring.b.of_block(owner);
                    to.store_4(landing(other, i, owner), totals[i as usize]);
                }
            }
        }
        // Closes write-before-read. No block ends while it is written to.
        cluster::sync();
    } else if T::COPY_B.any_width() {
        // Closes read-before-write: C goes through the ring.
        thread::sync_threads();
    }

    let area = Area::of_c(c, work, work.place::<T>(tile));
    let by_fours = area.by_fours::<T>();
    for i in 0..T::SHARE {
        if owner(i) != rank {
            continue;
        }
        let mut total = totals[i as usize];
        for other in 0..T::MAX_CLUSTER - 1 {
            if other < size - 1 {
                // SAFETY: that block has written the four.
                add(&mut total, unsafe {
                    ring.b.load_4(landing(other, i, rank))
                });
            }
        }
        let number = group * T::SHARE + i;
        // SAFETY: the caller promises C, and no other thread of the cluster has
        // these elements.
        unsafe {
            area.put::<T, B>(ring.b, by_fours, own_row, own_column, number, total);
        }
    }
}

#[inline(always)]
fn add(total: &mut [f32; 4], four: [f32; 4]) {
    // By reference: an array's own iterator would be memory.
    for (sum, value) in total.iter_mut().zip(&four) {
        *sum = math::add(*sum, *value);
    }
}

/// Declares a tiling, a kernel of it, and on the host what
/// [`schedule`](super::schedule) must know of it, as the tiling's `KERNEL`.
///
/// `by` names the tensor map of B that [`CopyB::Engine`] wants.
macro_rules! persistent_kernel {
    (
        $(#[$meta:meta])*
        $tiling:ident: $rows:literal by $columns:literal warps, BK $bk:literal, $stages:literal stages,
        $(groups $groups:literal,)?
        copy $copy:ident $(by $map:ident)?, clusters of $clusters:literal,
        rows $rows_order:tt, columns $columns_order:tt,
        $kernel:ident for $needs:literal, $blocks:literal resident
    ) => {
        $(#[$meta])*
        pub struct $tiling;

        impl $crate::gemm::persistent::Tiling for $tiling {
            const WARP_ROWS: u32 = $rows;
            const WARP_COLUMNS: u32 = $columns;
            const BK: u32 = $bk;
            const STAGES: u32 = $stages;
            const COPY_B: $crate::gemm::persistent::CopyB = $crate::gemm::persistent::CopyB::$copy;
            const ROWS: [usize; $crate::gemm::persistent::TM as usize] = $rows_order;
            const COLUMNS: [usize; $crate::gemm::persistent::TN as usize] = $columns_order;
            const MAX_CLUSTER: u32 = $clusters;
            $(const GROUPS: u32 = $groups;)?
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl $tiling {
            /// The kernel, as schedules see it.
            pub const KERNEL: $crate::gemm::schedule::Kernel = $crate::gemm::schedule::Kernel {
                entry: &$kernel::ENTRY,
                bm: <Self as $crate::gemm::persistent::Tiling>::BM,
                bn: <Self as $crate::gemm::persistent::Tiling>::BN,
                bk: $bk,
                blocks: $blocks,
                copy_b: $crate::gemm::persistent::CopyB::$copy,
                launch: |grid, parts, shape, whole, share| {
                    $(
                        let $map = $crate::launch::TensorMapSpec {
                            buffer: $crate::launch::Buffer::B,
                            rows: shape.k(),
                            columns: shape.n(),
                            box_rows: $bk,
                            box_columns: <Self as $crate::gemm::persistent::Tiling>::BN,
                        };
                    )?
                    $kernel::launch(
                        grid,
                        $crate::launch::Dim3::x(<Self as $crate::gemm::persistent::Tiling>::THREADS),
                        $($map,)?
                        $crate::launch::Buffer::A,
                        $crate::launch::Buffer::B,
                        $crate::launch::Buffer::C,
                        parts,
                        shape.m(),
                        shape.n(),
                        shape.k(),
                        1.0,
                        whole,
                        share,
                    )
                },
            };
        }

        kernel! {
            /// C (m×n) = `scale` · A (m×k) · B (k×n).
            ///
            /// # Safety
            ///
            /// - As [`multiply`], for this tiling, whose parameters these are.
            pub unsafe fn $kernel(
                a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, parts: GlobalMut<f32>,
                m: u32, n: u32, k: u32, scale: f32, whole: u32, share: u32,
            )
            needs($needs)
            $(tensor_maps($map))?
            launch_bounds($tiling::THREADS, $blocks)
            clusters(if $clusters > 1 { $clusters } else { 1 })
            start(itself)
            backends(Nvptx)
            dynamic_shared {
                tiles_a: [f32; $tiling::RING_A],
                tiles_b: [f32; $tiling::RING_B],
                full: [Barrier; $tiling::STAGES as usize],
                empty: [Barrier; $tiling::STAGES as usize],
            }
            {
                let ring = Ring { a: tiles_a, b: tiles_b, full, empty };
                let b_map = None$(.or(Some($map)))?;
                let factors = Factors { a, b, b_map };
                let work = Work { m, n, k, whole, share };
                // SAFETY: the caller's promise.
                unsafe { multiply::<$tiling, _, _, _>(ring, factors, c, parts, scale, work) };
            }
        }
    };
}
pub(super) use persistent_kernel;

persistent_kernel! {
    /// Tiles of 128×256 for N of 256 or more.
    LargeAny: 4 by 2 warps, BK 32, 4 stages, copy Shifted, clusters of 0,
    rows [0, 1, 2, 3, 4, 5, 6, 7],
    columns [3, 0, 2, 1, 7, 4, 6, 5, 15, 12, 13, 14, 11, 8, 10, 9],
    gemm_persistent_128x256_any for "sm_80", 1 resident
}
persistent_kernel! {
    /// Tiles of 128×256 for N a multiple of four.
    LargeWide: 4 by 2 warps, BK 32, 4 stages, copy Wide, clusters of 0,
    rows [4, 5, 6, 7, 1, 0, 2, 3],
    columns [7, 6, 5, 4, 3, 2, 1, 0, 9, 10, 8, 11, 15, 14, 13, 12],
    gemm_persistent_128x256_wide for "sm_80", 1 resident
}
persistent_kernel! {
    /// Tiles of 128×128 for any N, two blocks on a multiprocessor.
    MediumAny: 4 by 1 warps, BK 16, 4 stages, copy Any, clusters of 0,
    rows [0, 2, 1, 3, 4, 6, 5, 7],
    columns [3, 1, 0, 2, 7, 5, 4, 6, 15, 13, 12, 14, 11, 9, 8, 10],
    gemm_persistent_128x128_any for "sm_80", 2 resident
}
persistent_kernel! {
    /// Tiles of 64×128 for any N, four blocks on a multiprocessor.
    SmallAny: 2 by 1 warps, BK 16, 4 stages, copy Any, clusters of 0,
    rows [0, 1, 2, 3, 4, 5, 6, 7],
    columns [0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11],
    gemm_persistent_64x128_any for "sm_80", 4 resident
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::*;
    use crate::gemm::{ElementType::F32, Variant, schedule};
    use crate::launch::{ComputeCapability, Target};

    const KERNELS: &[&schedule::Kernel] =
        &[&LargeWide::KERNEL, &LargeAny::KERNEL, &MediumAny::KERNEL];

    pub const VARIANTS: &[Variant] = &[Variant {
        name: "persistent",
        summary: "blocks that compute many tiles, copies that run ahead across them",
        source: file!(),
        input: F32,
        accumulator: F32,
        output: F32,
        min_compute_capability: ComputeCapability::new(8, 0),
        needs: Target::parse("sm_80"),
        overlapping_writes: false,
        entries: &[
            LargeAny::KERNEL.entry,
            LargeWide::KERNEL.entry,
            MediumAny::KERNEL.entry,
        ],
        plan: |shape, limits| schedule::first_whole(KERNELS, shape, limits),
    }];
}
