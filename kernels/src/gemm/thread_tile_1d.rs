//! One-dimensional thread tiles: a thread computes TM elements of a column.
//!
//! A block of 512 threads computes a 64×64 tile of C in steps of BK = 8 along K.
//! Thread t owns column t % 64 of the tile and the 8 rows from t / 64 · 8 on.
//! The 32 threads of a warp own neighbouring columns of the same rows.
//!
//! What changed since [`tiled`](super::tiled): an element of B that a thread has
//! read from shared memory is used for TM = 8 products, not one. Of the shared
//! loads for 8 products, 16 before, 9 are left: 8 of A, which are the same for
//! the whole warp, and one of B.
//!
//! ```text
//!             BN = 64                  one thread
//!          ┌─────────────┐          ┌─┐
//!  BM = 64 │ 8 rows of   │          │ │ TM = 8 sums, in registers
//!          │ 64 threads, │          │ │
//!          │ one below   │          │ │
//!          │ the other   │          └─┘
//!          └─────────────┘
//! ```

use crate::gpu::{Global, GlobalMut, Matrix, MatrixMut, Shared, math, thread};

/// Rows of a block's tile of C.
pub const BM: u32 = 64;
/// Columns of a block's tile of C.
pub const BN: u32 = 64;
/// Depth of a step along K.
pub const BK: u32 = 8;
/// Rows of a thread's tile.
pub const TM: u32 = 8;
/// Threads in a block.
pub const THREADS: u32 = BM / TM * BN;

const TILE_A: usize = (BM * BK) as usize;
const TILE_B: usize = (BK * BN) as usize;

/// Computes this block's tile of C.
///
/// `a` is M×K, `b` K×N and `c` M×N; `tile_a` is BM×BK, `tile_b` BK×BN, both
/// row-major.
#[inline(always)]
fn thread_tile_1d(
    tile_a: Shared<f32, TILE_A>,
    tile_b: Shared<f32, TILE_B>,
    a: Matrix<f32>,
    b: Matrix<f32>,
    mut c: MatrixMut<f32>,
) {
    const {
        assert!(
            BM.is_multiple_of(TM),
            "a tile is a whole number of thread tiles"
        );
        assert!(
            TILE_A as u32 == THREADS && TILE_B as u32 == THREADS,
            "each thread copies one element of A and one of B a step"
        );
    }
    // The grid may have a few rows of blocks too many.
    if thread::block_row() >= a.rows().div_ceil(BM) {
        return;
    }
    let t = thread::thread_idx_x();
    let (row0, column0) = (thread::block_row() * BM, thread::block_idx_x() * BN);
    // What this thread copies: t counts both tiles row by row, so that a warp
    // reads runs of 8 of A and of 32 of B.
    let (a_row, a_k) = (t / BK, t % BK);
    let (b_k, b_column) = (t / BN, t % BN);
    // What it computes: rows from `own_row` on, in column `own_column`.
    let (own_row, own_column) = (t / BN * TM, t % BN);

    let mut sums = [0.0; TM as usize];
    for step in 0..a.columns().div_ceil(BK) {
        let k0 = step * BK;
        // Past an edge there are zeros, which add nothing.
        let a_element = a.load_or_zero(row0 + a_row, k0 + a_k);
        let b_element = b.load_or_zero(k0 + b_k, column0 + b_column);
        // SAFETY: t is below the tiles' length. Each thread writes its own
        // elements, and no thread reads any more: the barrier at the loop's end.
        unsafe {
            tile_a.store(t, a_element);
            tile_b.store(t, b_element);
        }
        // Closes write-before-read: the tiles are complete after it.
        thread::sync_threads();

        for i in 0..BK {
            // SAFETY: i is below BK, the column below BN, and the barrier above
            // stands after the writes.
            let b_element = unsafe { tile_b.load(i * BN + own_column) };
            for (r, sum) in sums.iter_mut().enumerate() {
                // SAFETY: as above, and the row is below BM.
                let a_element = unsafe { tile_a.load((own_row + r as u32) * BK + i) };
                *sum = math::fma(a_element, b_element, *sum);
            }
        }
        // Closes read-before-write: the next step overwrites the tiles.
        thread::sync_threads();
    }
    for (r, sum) in sums.into_iter().enumerate() {
        // SAFETY: thread tiles do not overlap, nor do blocks.
        unsafe { c.put(row0 + own_row + r as u32, column0 + own_column, sum) };
    }
}

kernel! {
    /// C (m×n) = A (m×k) · B (k×n), eight elements of a column a thread.
    ///
    /// # Safety
    ///
    /// - `a` and `b` point at m·k and k·n elements that nothing writes
    ///   meanwhile.
    /// - `c` points at m·n elements that nothing else touches meanwhile.
    /// - Blocks have [`THREADS`] threads along x.
    pub unsafe fn gemm_thread_tile_1d(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(THREADS)
    shared { tile_a: [f32; TILE_A], tile_b: [f32; TILE_B] }
    {
        // SAFETY: the caller promises matrices of these sizes.
        let (a, b, c) = unsafe { (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n)) };
        thread_tile_1d(tile_a, tile_b, a, b, c);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::{BM, BN, THREADS, gemm_thread_tile_1d};
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{Buffer::*, ComputeCapability, Dim3, Plan, Target};

    pub const VARIANTS: &[Variant] = &[Variant {
        name: "thread_tile_1d",
        summary: "8×1 elements a thread, tiles of 64×64",
        source: file!(),
        input: F32,
        accumulator: F32,
        output: F32,
        min_compute_capability: ComputeCapability::new(7, 5),
        needs: Target::BASELINE,
        overlapping_writes: false,
        entries: &[&gemm_thread_tile_1d::ENTRY],
        plan: |shape, _| {
            let (m, n, k) = (shape.m(), shape.n(), shape.k());
            Ok(Plan::single(gemm_thread_tile_1d::launch(
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
