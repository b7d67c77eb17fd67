//! Four elements an access, and no bank conflicts.
//!
//! Tiles and threads are those of [`thread_tile_2d`](super::thread_tile_2d).
//! What changed is how data moves:
//!
//! - Global memory is read and written four elements at a time, where rows allow
//!   it: an address must be a multiple of 16 bytes. Elsewhere, and at the edges,
//!   the view falls back to single elements.
//! - The tile of A is stored transposed, k by k, so that a thread's fragment of A
//!   is contiguous, as that of B is. Four loads of four replace 16 of one.
//! - A thread's 8×8 elements are four pieces of 4×4, 64 rows and 64 columns
//!   apart:
//!
//! ```text
//!      4·x      64 + 4·x         thread t: x = t % 16, y = t / 16
//!     ┌───┐      ┌───┐
//! 4·y │4×4│      │4×4│
//!     └───┘      └───┘
//!     ┌───┐      ┌───┐
//! 64+ │4×4│      │4×4│
//! 4·y └───┘      └───┘
//! ```
//!
//! # Banks
//!
//! Shared memory has 32 banks of 4 bytes, and a four-wide access is served for 8
//! threads at a time. Eight neighbours in x read 32 neighbouring elements of B:
//! one a bank. With 8 contiguous columns a thread they would read every second
//! group of four, two to a bank.
//!
//! Storing A transposed, the 32 threads of a warp write 16 rows of two groups of
//! k, 4 apart. The pitch of 132 puts these 4 · 132 = 16 banks apart (mod 32), so
//! that the 32 stores hit 32 banks. A pitch of 128 would put both on the same.

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
/// Elements from one row of the transposed tile of A to the next.
pub const PITCH: u32 = BM + 4;

const TILE_A: usize = (BK * PITCH) as usize;
const TILE_B: usize = (BK * BN) as usize;

/// Computes this block's tile of C.
///
/// `a` is M×K, `b` K×N and `c` M×N; `tile_a` is BK×PITCH, the tile of A
/// transposed, and `tile_b` BK×BN.
#[inline(always)]
fn vectorized(
    tile_a: Shared<f32, TILE_A>,
    tile_b: Shared<f32, TILE_B>,
    a: Matrix<f32>,
    b: Matrix<f32>,
    mut c: MatrixMut<f32>,
) {
    const {
        assert!(
            TM == 8 && TN == 8 && BM == 128 && BN == 128,
            "a thread's pieces lie half a tile apart"
        );
        assert!(
            BM * BK == 4 * THREADS && BK * BN == 4 * THREADS,
            "each thread copies four elements of A and four of B a step"
        );
        assert!(
            4 * PITCH % 32 == 16,
            "rows of tile_a four apart must start 16 banks apart"
        );
    }
    // The grid may have a few rows of blocks too many.
    if thread::block_row() >= a.rows().div_ceil(BM) {
        return;
    }
    let t = thread::thread_idx_x();
    let (row0, column0) = (thread::block_row() * BM, thread::block_idx_x() * BN);
    // What this thread copies: four elements of a row of A, four of a row of B.
    let (a_row, a_k) = (t / 2, t % 2 * 4);
    let (b_k, b_column) = (t / 32, t % 32 * 4);
    // What it computes; see above.
    let (own_row, own_column) = (t / 16 * 4, t % 16 * 4);

    let mut sums = [[0.0; TN as usize]; TM as usize]; // [TM][TN]
    for step in 0..a.columns().div_ceil(BK) {
        let k0 = step * BK;
        let a_elements = a.load_4_or_zero(row0 + a_row, k0 + a_k);
        let b_elements = b.load_4_or_zero(k0 + b_k, column0 + b_column);
        // SAFETY: rows of A are below BM, columns of B below BN, k below BK. Each
        // thread writes its own elements, and no thread reads any more: the
        // barrier at the loop's end.
        unsafe {
            for (i, element) in a_elements.into_iter().enumerate() {
                tile_a.store((a_k + i as u32) * PITCH + a_row, element);
            }
            tile_b.store_4(b_k * BN + b_column, b_elements);
        }
        // Closes write-before-read: the tiles are complete after it.
        thread::sync_threads();

        for i in 0..BK {
            let mut a_fragment = [0.0; TM as usize]; // [TM], of row i of tile_a
            let mut b_fragment = [0.0; TN as usize]; // [TN], of row i of tile_b
            for half in 0..2 {
                let at = 4 * half as usize;
                // SAFETY: rows are below BM, columns below BN, i below BK, and
                // the barrier above stands after the writes.
                let (four_a, four_b) = unsafe {
                    (
                        tile_a.load_4(i * PITCH + half * (BM / 2) + own_row),
                        tile_b.load_4(i * BN + half * (BN / 2) + own_column),
                    )
                };
                a_fragment[at..at + 4].copy_from_slice(&four_a);
                b_fragment[at..at + 4].copy_from_slice(&four_b);
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
        let r = r as u32;
        let row_of_c = row0 + r / 4 * (BM / 2) + own_row + r % 4;
        for half in 0..2 {
            let at = 4 * half as usize;
            let four = [row[at], row[at + 1], row[at + 2], row[at + 3]];
            // SAFETY: thread tiles do not overlap, nor do blocks.
            unsafe { c.put_4(row_of_c, column0 + half * (BN / 2) + own_column, four) };
        }
    }
}

kernel! {
    /// C (m×n) = A (m×k) · B (k×n), 8×8 elements a thread, four an access.
    ///
    /// # Safety
    ///
    /// - `a` and `b` point at m·k and k·n elements that nothing writes
    ///   meanwhile.
    /// - `c` points at m·n elements that nothing else touches meanwhile.
    /// - Blocks have [`THREADS`] threads along x.
    pub unsafe fn gemm_vectorized(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(THREADS)
    shared { tile_a: [f32; TILE_A], tile_b: [f32; TILE_B] }
    {
        // SAFETY: the caller promises matrices of these sizes.
        let (a, b, c) = unsafe { (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n)) };
        vectorized(tile_a, tile_b, a, b, c);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::{BM, BN, THREADS, gemm_vectorized};
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{Buffer::*, ComputeCapability, Dim3, Plan, Target};

    pub const VARIANTS: &[Variant] = &[Variant {
        name: "vectorized",
        summary: "four elements an access, tile of A transposed, no bank conflicts",
        source: file!(),
        input: F32,
        accumulator: F32,
        output: F32,
        min_compute_capability: ComputeCapability::new(7, 5),
        needs: Target::BASELINE,
        overlapping_writes: false,
        entries: &[&gemm_vectorized::ENTRY],
        plan: |shape, _| {
            let (m, n, k) = (shape.m(), shape.n(), shape.k());
            Ok(Plan::single(gemm_vectorized::launch(
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
