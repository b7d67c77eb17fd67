//! Warp tiles, fragments read ahead, and blocks in an order that suits the L2.
//!
//! A block of 256 threads computes a 128×256 tile of C. What changed since
//! [`async_copy`](super::async_copy):
//!
//! - Each of the 8 warps owns a compact part of it, WM×WN = 32×128, and each
//!   thread 8×16 elements. A warp then reads 32 elements of A and 128 of B for
//!   its 4,096 products, where 8 warps across the tile read more of both. Shared
//!   memory was what bound the 8×8 tiles: four four-wide loads for 64
//!   multiply-adds keep it busy all the time. Six for 128 leave it a quarter.
//! - While a thread multiplies the fragments of one k, the loads of the next are
//!   under way into a second set of registers.
//! - Blocks run in groups of [`GROUP`] rows of tiles, column by column. Those
//!   that run at one time then read fewer different rows of A and columns of B,
//!   which stay in the L2.
//!
//! ```text
//!  lanes of a warp: 4 down, 8 across         pieces of a thread: 4×4
//!  ┌─────────────────────────┐
//!  │ 0  1  8  9 16 17 24 25  │   32 rows: 4 lanes · 4, twice
//!  │ 2  3 10 11 …            │   128 columns: 8 lanes · 4, four times
//!  │ 4  5 12 13 …            │
//!  │ 6  7 14 15 …            │   row of lanes l / 2 % 4, column l % 2 + l / 8 · 2
//!  └─────────────────────────┘
//! ```
//!
//! A four-wide load is served for 8 lanes at a time: 4 rows and 2 columns of
//! lanes here, so that loads of A and of B each touch few different addresses,
//! all in different banks.

#![cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_80"))]

use crate::gpu::{Global, GlobalMut, Matrix, MatrixMut, Shared, async_copy, math, thread, warp};

/// Rows of a block's tile of C.
pub const BM: u32 = 128;
/// Columns of a block's tile of C.
pub const BN: u32 = 256;
/// Depth of a step along K.
pub const BK: u32 = 16;
/// Rows of a warp's tile.
pub const WM: u32 = 32;
/// Columns of a warp's tile.
pub const WN: u32 = 128;
/// Rows of a thread's tile.
pub const TM: u32 = 8;
/// Columns of a thread's tile.
pub const TN: u32 = 16;
/// Warps in a block.
pub const WARPS: u32 = BM / WM * (BN / WN);
/// Threads in a block.
pub const THREADS: u32 = WARPS * warp::SIZE;
/// Steps of which tiles fit in shared memory at once.
pub const STAGES: u32 = 4;
/// Rows of tiles that a group of blocks covers.
pub const GROUP: u32 = 8;
/// Elements from one row of the transposed tile of A to the next.
pub const PITCH: u32 = BM + 4;

/// Rows and columns of lanes in a warp.
const LANE_ROWS: u32 = 4;
const LANE_COLUMNS: u32 = 8;
/// One stage of each tile.
const TILE_A: u32 = BK * PITCH;
const TILE_B: u32 = BK * BN;
const TILES_A: usize = (STAGES * TILE_A) as usize;
const TILES_B: usize = (STAGES * TILE_B) as usize;

/// The row and the column of tiles of block `block`, in groups of [`GROUP`]
/// rows.
#[inline(always)]
fn tile_of(block: u32, rows: u32, columns: u32) -> (u32, u32) {
    // The product may pass 2^32 only where there are more columns of tiles than
    // blocks fit in a grid.
    let in_group = GROUP * columns;
    let first_row = block / in_group * GROUP;
    let height = if rows - first_row < GROUP {
        rows - first_row
    } else {
        GROUP
    };
    let i = block % in_group;
    (first_row + i % height, i / height)
}

/// Computes this block's tile of C.
///
/// `a` is M×K, `b` K×N and `c` M×N; `tiles_a` is STAGES×BK×PITCH, the tiles of A
/// transposed, and `tiles_b` STAGES×BK×BN.
#[inline(always)]
fn warp_tile(
    tiles_a: Shared<f32, TILES_A>,
    tiles_b: Shared<f32, TILES_B>,
    a: Matrix<f32>,
    b: Matrix<f32>,
    mut c: MatrixMut<f32>,
) {
    const {
        assert!(
            WM == LANE_ROWS * TM && WN == LANE_COLUMNS * TN && LANE_ROWS * LANE_COLUMNS == 32,
            "a warp's tile is its lanes' tiles"
        );
        assert!(
            BM.is_multiple_of(WM) && BN.is_multiple_of(WN),
            "a block's tile is a whole number of warp tiles"
        );
        assert!(
            BM == 16 * WARPS && BK == 16 && WARPS == 8,
            "a warp copies 16 rows of A, four k a lane, twice, and two rows of B"
        );
        assert!(STAGES >= 3, "with two stages nothing is left to copy ahead");
        assert!(
            4 * PITCH % 32 == 16,
            "rows of a tile of A four apart must start 16 banks apart"
        );
    }
    let (tile_row, tile_column) = tile_of(
        thread::block_idx_x(),
        a.rows().div_ceil(BM),
        b.columns().div_ceil(BN),
    );
    let (row0, column0) = (tile_row * BM, tile_column * BN);
    let (warp, lane) = (warp::index(), warp::lane());
    // The first element of this thread's first piece.
    let own_row = warp / (BN / WN) * WM + lane / 2 % 4 * 4;
    let own_column = warp % (BN / WN) * WN + (lane % 2 + lane / 8 * 2) * 4;

    let (a_row, a_k) = (warp * 16 + lane % 16, lane / 16 * 4);
    let a_inside = row0 + a_row < a.rows();
    let wide = b.columns().is_multiple_of(4) && b.pointer_to(0, 0).address().is_multiple_of(16);

    let copy = |step: u32| {
        let (stage, k0) = (step % STAGES, step * BK);
        let a0 = stage * TILE_A + a_row;
        let a_from = a.pointer_to(row0 + a_row, k0 + a_k);
        for i in 0..8 {
            let k = i / 4 * 8 + i % 4;
            // SAFETY: k is below BK and the row below BM. The element is inside
            // A where the copy is valid. Whoever read this stage did so before
            // the last barrier.
            unsafe {
                async_copy::copy(
                    tiles_a,
                    a0 + (a_k + k) * PITCH,
                    a_from.offset(k.into()),
                    a_inside && k0 + a_k + k < a.columns(),
                );
            }
        }
        for half in 0..2 {
            let k = half * 8 + warp;
            let b0 = stage * TILE_B + k * BN;
            let row = b.pointer_to(k0 + k, column0);
            let row_inside = k0 + k < b.rows();
            if wide {
                for i in 0..BN / 128 {
                    let column = i * 128 + lane * 4;
                    let inside = row_inside && column0 + column < b.columns();
                    // SAFETY: as for A; and rows start at multiples of 16 bytes,
                    // so that four columns are inside or none is.
                    unsafe {
                        async_copy::copy_4(tiles_b, b0 + column, row.offset(column.into()), inside);
                    }
                }
            } else {
                for i in 0..BN / 32 {
                    let column = i * 32 + lane;
                    let inside = row_inside && column0 + column < b.columns();
                    // SAFETY: as for A.
                    unsafe {
                        async_copy::copy(tiles_b, b0 + column, row.offset(column.into()), inside);
                    }
                }
            }
        }
    };

    // Row i of the tiles at a0 and b0, as this thread's fragments.
    let fragments = |a0: u32, b0: u32, i: u32| {
        let mut a_fragment = [0.0; TM as usize];
        let mut b_fragment = [0.0; TN as usize];
        for piece in 0..TM / 4 {
            let at = 4 * piece as usize;
            // SAFETY: rows are below BM and i below BK; a barrier stands after
            // the copies.
            let four =
                unsafe { tiles_a.load_4(a0 + i * PITCH + own_row + piece * (4 * LANE_ROWS)) };
            a_fragment[at..at + 4].copy_from_slice(&four);
        }
        for piece in 0..TN / 4 {
            let at = 4 * piece as usize;
            // SAFETY: as above, and columns are below BN.
            let four =
                unsafe { tiles_b.load_4(b0 + i * BN + own_column + piece * (4 * LANE_COLUMNS)) };
            b_fragment[at..at + 4].copy_from_slice(&four);
        }
        (a_fragment, b_fragment)
    };

    for step in 0..STAGES - 1 {
        copy(step);
        async_copy::commit();
    }
    let mut sums = [[0.0; TN as usize]; TM as usize]; // [TM][TN]
    for step in 0..a.columns().div_ceil(BK) {
        async_copy::wait::<{ STAGES - 2 }>();
        // Closes write-before-read: every thread's copies for this step have
        // landed. And read-before-write: the stage that the copies below fill
        // was read in the step before.
        thread::sync_threads();
        copy(step + STAGES - 1);
        async_copy::commit();

        let (a0, b0) = (step % STAGES * TILE_A, step % STAGES * TILE_B);
        let mut now = fragments(a0, b0, 0);
        for i in 0..BK {
            // Past the tile's last row the same again, which nobody uses.
            let next = fragments(a0, b0, if i + 1 < BK { i + 1 } else { i });
            for (row, a_element) in sums.iter_mut().zip(&now.0) {
                for (sum, b_element) in row.iter_mut().zip(&now.1) {
                    *sum = math::fma(*a_element, *b_element, *sum);
                }
            }
            now = next;
        }
    }
    // A block must not end with copies under way into its shared memory.
    async_copy::wait::<0>();
    for (r, row) in sums.into_iter().enumerate() {
        let r = r as u32;
        let row_of_c = row0 + own_row + r / 4 * (4 * LANE_ROWS) + r % 4;
        for piece in 0..TN / 4 {
            let at = 4 * piece as usize;
            let four = [row[at], row[at + 1], row[at + 2], row[at + 3]];
            let column = column0 + own_column + piece * (4 * LANE_COLUMNS);
            // SAFETY: thread tiles do not overlap, nor do blocks.
            unsafe { c.put_4(row_of_c, column, four) };
        }
    }
}

kernel! {
    /// C (m×n) = A (m×k) · B (k×n), warp tiles of 32×128.
    ///
    /// # Safety
    ///
    /// - `a` and `b` point at m·k and k·n elements that nothing writes
    ///   meanwhile.
    /// - `c` points at m·n elements that nothing else touches meanwhile.
    /// - Blocks have [`THREADS`] threads along x, and the grid one block for
    ///   each tile of C, along x.
    pub unsafe fn gemm_warp_tile(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    needs("sm_80")
    launch_bounds(THREADS, 1)
    backends(Nvptx)
    dynamic_shared { tiles_a: [f32; TILES_A], tiles_b: [f32; TILES_B] }
    {
        // SAFETY: the caller promises matrices of these sizes.
        let (a, b, c) = unsafe { (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n)) };
        warp_tile(tiles_a, tiles_b, a, b, c);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::{BM, BN, THREADS, gemm_warp_tile};
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{Buffer::*, ComputeCapability, Dim3, Plan, Target};

    pub const VARIANTS: &[Variant] = &[Variant {
        name: "warp_tile",
        summary: "warp tiles of 32×128, 8×16 elements a thread, tiles of 128×256",
        source: file!(),
        input: F32,
        accumulator: F32,
        output: F32,
        min_compute_capability: ComputeCapability::new(8, 0),
        needs: Target::parse("sm_80"),
        overlapping_writes: false,
        entries: &[&gemm_warp_tile::ENTRY],
        plan: |shape, _| {
            let (m, n, k) = (shape.m(), shape.n(), shape.k());
            let tiles = m.div_ceil(BM).saturating_mul(n.div_ceil(BN));
            Ok(Plan::single(gemm_warp_tile::launch(
                Dim3::x(tiles),
                Dim3::x(THREADS),
                A,
                B,
                C,
                m,
                n,
                k,
            )))
        },
    }];
}
