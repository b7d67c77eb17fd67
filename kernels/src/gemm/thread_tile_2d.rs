//! Two-dimensional thread tiles: a thread computes TM×TN elements.
//!
//! A block of 256 threads computes a 128×128 tile of C in steps of BK = 8 along
//! K. The threads stand in 16 rows of 16; thread t owns the 8×8 elements of C
//! whose first is in row t / 16 · 8 and column t % 16 · 8 of the tile.
//!
//! What changed since [`thread_tile_1d`](super::thread_tile_1d): at each k a
//! thread reads a fragment of TM elements of A and one of TN of B into
//! registers and multiplies each with each. 16 loads now serve 64 products,
//! where 9 served 8.
//!
//! ```text
//!             fragment of B: 8
//!             ┌─┬─┬─┬─┬─┬─┬─┬─┐
//!             └─┴─┴─┴─┴─┴─┴─┴─┘
//!  fragment ┌─┐ ┌───────────────┐
//!  of A: 8  │ │ │ 8×8 sums, in  │
//!           │ │ │ registers     │
//!           └─┘ └───────────────┘
//! ```

use crate::gpu::{Global, GlobalMut, Matrix, MatrixMut, Shared, math, thread};

/// Rows of a block's tile of C.
pub const BM: u32 = 128;
/// Columns of a block's tile of C.
pub const BN: u32 = 128;
/// Depth of a step along K.
pub const BK: u32 = 8;
/// Rows of a thread's tile.
pub const TM: u32 = 8;
/// Columns of a thread's tile.
pub const TN: u32 = 8;
/// Threads in a block.
pub const THREADS: u32 = BM / TM * (BN / TN);

const TILE_A: usize = (BM * BK) as usize;
const TILE_B: usize = (BK * BN) as usize;

/// Computes this block's tile of C.
///
/// `a` is M×K, `b` K×N and `c` M×N; `tile_a` is BM×BK, `tile_b` BK×BN, both
/// row-major.
#[inline(always)]
fn thread_tile_2d(
    tile_a: Shared<f32, TILE_A>,
    tile_b: Shared<f32, TILE_B>,
    a: Matrix<f32>,
    b: Matrix<f32>,
    mut c: MatrixMut<f32>,
) {
    const {
        assert!(
            BM.is_multiple_of(TM) && BN.is_multiple_of(TN),
            "a tile is a whole number of thread tiles"
        );
        assert!(
            (BM * BK).is_multiple_of(THREADS) && (BK * BN).is_multiple_of(THREADS),
            "each thread copies equally much of A, and of B"
        );
    }
    // The grid may have a few rows of blocks too many.
    if thread::block_row() >= a.rows().div_ceil(BM) {
        return;
    }
    let t = thread::thread_idx_x();
    let (row0, column0) = (thread::block_row() * BM, thread::block_idx_x() * BN);
    let (own_row, own_column) = (t / (BN / TN) * TM, t % (BN / TN) * TN);

    let mut sums = [[0.0; TN as usize]; TM as usize]; // [TM][TN]
    for step in 0..a.columns().div_ceil(BK) {
        let k0 = step * BK;
        // Each round of copies takes THREADS elements of a tile, row by row.
        for round in 0..BM * BK / THREADS {
            let i = round * THREADS + t;
            let element = a.load_or_zero(row0 + i / BK, k0 + i % BK);
            // SAFETY: i is below the tile's length. Each thread writes its own
            // elements, and no thread reads any more: the barrier at the loop's
            // end.
            unsafe { tile_a.store(i, element) };
        }
        for round in 0..BK * BN / THREADS {
            let i = round * THREADS + t;
            let element = b.load_or_zero(k0 + i / BN, column0 + i % BN);
            // SAFETY: as for A.
            unsafe { tile_b.store(i, element) };
        }
        // Closes write-before-read: the tiles are complete after it.
        thread::sync_threads();

        for i in 0..BK {
            let mut a_fragment = [0.0; TM as usize]; // [TM], column i of tile_a
            let mut b_fragment = [0.0; TN as usize]; // [TN], row i of tile_b
            for (r, element) in a_fragment.iter_mut().enumerate() {
                // SAFETY: the row is below BM, i below BK, and the barrier above
                // stands after the writes.
                *element = unsafe { tile_a.load((own_row + r as u32) * BK + i) };
            }
            for (s, element) in b_fragment.iter_mut().enumerate() {
                // SAFETY: as above, and the column is below BN.
                *element = unsafe { tile_b.load(i * BN + own_column + s as u32) };
            }
            for (row, a_element) in sums.iter_mut().zip(&a_fragment) {
                for (sum, b_element) in row.iter_mut().zip(&b_fragment) {
                    *sum = math::fma(*a_element, *b_element, *sum);
                }
            }
        }
        // Closes read-before-write: the next step overwrites the tiles.
        thread::sync_threads();
    }
    for (r, row) in sums.into_iter().enumerate() {
        for (s, sum) in row.into_iter().enumerate() {
            let (row, column) = (own_row + r as u32, own_column + s as u32);
            // SAFETY: thread tiles do not overlap, nor do blocks.
            unsafe { c.put(row0 + row, column0 + column, sum) };
        }
    }
}

kernel! {
    /// C (m×n) = A (m×k) · B (k×n), 8×8 elements a thread.
    ///
    /// # Safety
    ///
    /// - `a` and `b` point at m·k and k·n elements that nothing writes
    ///   meanwhile.
    /// - `c` points at m·n elements that nothing else touches meanwhile.
    /// - Blocks have [`THREADS`] threads along x.
    pub unsafe fn gemm_thread_tile_2d(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(THREADS)
    shared { tile_a: [f32; TILE_A], tile_b: [f32; TILE_B] }
    {
        // SAFETY: the caller promises matrices of these sizes.
        let (a, b, c) = unsafe { (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n)) };
        thread_tile_2d(tile_a, tile_b, a, b, c);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::{BM, BN, THREADS, gemm_thread_tile_2d};
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{Buffer::*, ComputeCapability, Dim3, Plan, Target};

    pub const VARIANTS: &[Variant] = &[Variant {
        name: "thread_tile_2d",
        summary: "8×8 elements a thread, tiles of 128×128",
        source: file!(),
        input: F32,
        accumulator: F32,
        output: F32,
        min_compute_capability: ComputeCapability::new(7, 5),
        needs: Target::BASELINE,
        overlapping_writes: false,
        entries: &[&gemm_thread_tile_2d::ENTRY],
        plan: |shape, _| {
            let (m, n, k) = (shape.m(), shape.n(), shape.k());
            Ok(Plan::single(gemm_thread_tile_2d::launch(
                Dim3::covering(n.div_ceil(BN), m.div_ceil(BM)),
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
