//! Asynchronous copies into a ring of stages.
//!
//! Threads and accesses of the products are those of
//! [`double_buffered`](super::double_buffered). What changed is how tiles come
//! to shared memory: by `cp.async`, which needs no registers on the way and no
//! store, so that STAGES − 1 steps can be under way at once, not one.
//!
//! ```text
//! step s      copy s+3 to stage (s+3) % 4 │ multiply from stage s % 4
//! step s+1    copy s+4 to stage s % 4     │ multiply from stage (s+1) % 4
//! ```
//!
//! A copy can't transpose. But one of four bytes can go anywhere, so A is copied
//! element by element to its transposed place: lane l of a warp copies row
//! l % 16, so that the 32 copies of an instruction fill 32 banks, as the stores
//! of [`vectorized`](super::vectorized) did. B goes 16 bytes at a time where the
//! rows of B allow it, and 4 where not.

#![cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_80"))]

use crate::gpu::{Global, GlobalMut, Matrix, MatrixMut, Shared, async_copy, math, thread, warp};

/// Rows of a block's tile of C.
pub const BM: u32 = 128;
/// Columns of a block's tile of C.
pub const BN: u32 = 128;
/// Depth of a step along K.
pub const BK: u32 = 16;
/// Rows of a thread's tile.
pub const TM: u32 = 8;
/// Columns of a thread's tile.
pub const TN: u32 = 8;
/// Threads in a block.
pub const THREADS: u32 = BM / TM * (BN / TN);
/// Steps of which tiles fit in shared memory at once.
pub const STAGES: u32 = 4;
/// Elements from one row of the transposed tile of A to the next.
pub const PITCH: u32 = BM + 4;

/// One stage of each tile.
const TILE_A: u32 = BK * PITCH;
const TILE_B: u32 = BK * BN;
const TILES_A: usize = (STAGES * TILE_A) as usize;
const TILES_B: usize = (STAGES * TILE_B) as usize;

/// Computes this block's tile of C.
///
/// `a` is M×K, `b` K×N and `c` M×N; `tiles_a` is STAGES×BK×PITCH, the tiles of A
/// transposed, and `tiles_b` STAGES×BK×BN.
#[inline(always)]
fn async_copy(
    tiles_a: Shared<f32, TILES_A>,
    tiles_b: Shared<f32, TILES_B>,
    a: Matrix<f32>,
    b: Matrix<f32>,
    mut c: MatrixMut<f32>,
) {
    const {
        assert!(
            TM == 8 && TN == 8 && BM == 128 && BN == 128,
            "a thread's pieces lie half a tile apart"
        );
        assert!(BK == 16, "a warp copies 16 rows of A, four k a lane, twice");
        assert!(STAGES >= 3, "with two stages nothing is left to copy ahead");
        assert!(
            4 * PITCH % 32 == 16,
            "rows of a tile of A four apart must start 16 banks apart"
        );
    }
    // The grid may have a few rows of blocks too many.
    if thread::block_row() >= a.rows().div_ceil(BM) {
        return;
    }
    let t = thread::thread_idx_x();
    let (row0, column0) = (thread::block_row() * BM, thread::block_idx_x() * BN);
    let (own_row, own_column) = (t / 16 * 4, t % 16 * 4);

    // Of A this thread copies one row: four k from `a_k` on, and the four that
    // lie 8 further. Of B, columns from `b_column` on of two rows 8 apart.
    let (a_row, a_k) = (
        warp::index() * 16 + warp::lane() % 16,
        warp::lane() / 16 * 4,
    );
    let (b_k, b_lane) = (warp::index(), warp::lane());
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
            let k = half * 8 + b_k;
            let b0 = stage * TILE_B + k * BN;
            let row = b.pointer_to(k0 + k, column0);
            let row_inside = k0 + k < b.rows();
            if wide {
                let column = b_lane * 4;
                let inside = row_inside && column0 + column < b.columns();
                // SAFETY: as for A; and rows start at multiples of 16 bytes, so
                // that four columns are inside or none is.
                unsafe {
                    async_copy::copy_4(tiles_b, b0 + column, row.offset(column.into()), inside);
                }
            } else {
                for i in 0..4 {
                    let column = i * 32 + b_lane;
                    let inside = row_inside && column0 + column < b.columns();
                    // SAFETY: as for A.
                    unsafe {
                        async_copy::copy(tiles_b, b0 + column, row.offset(column.into()), inside);
                    }
                }
            }
        }
    };

    // A group of copies for each step, also past the last, where nothing is
    // valid: so the newest STAGES − 2 are always those that may be under way.
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
        for i in 0..BK {
            let mut a_fragment = [0.0; TM as usize]; // [TM], of row i of A's tile
            let mut b_fragment = [0.0; TN as usize]; // [TN], of row i of B's tile
            for half in 0..2 {
                let at = 4 * half as usize;
                // SAFETY: rows are below BM, columns below BN, i below BK, and
                // the barrier above stands after the copies.
                let (four_a, four_b) = unsafe {
                    (
                        tiles_a.load_4(a0 + i * PITCH + half * (BM / 2) + own_row),
                        tiles_b.load_4(b0 + i * BN + half * (BN / 2) + own_column),
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
    }
    // A block must not end with copies under way into its shared memory.
    async_copy::wait::<0>();
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
    /// C (m×n) = A (m×k) · B (k×n), tiles copied asynchronously, three steps
    /// ahead.
    ///
    /// # Safety
    ///
    /// - `a` and `b` point at m·k and k·n elements that nothing writes
    ///   meanwhile.
    /// - `c` points at m·n elements that nothing else touches meanwhile.
    /// - Blocks have [`THREADS`] threads along x.
    pub unsafe fn gemm_async_copy(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    needs("sm_80")
    launch_bounds(THREADS)
    backends(Nvptx)
    dynamic_shared { tiles_a: [f32; TILES_A], tiles_b: [f32; TILES_B] }
    {
        // SAFETY: the caller promises matrices of these sizes.
        let (a, b, c) = unsafe { (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n)) };
        async_copy(tiles_a, tiles_b, a, b, c);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::{BM, BN, THREADS, gemm_async_copy};
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{Buffer::*, ComputeCapability, Dim3, Plan, Target};

    pub const VARIANTS: &[Variant] = &[Variant {
        name: "async_copy",
        summary: "tiles copied by cp.async, three steps ahead",
        source: file!(),
        input: F32,
        accumulator: F32,
        output: F32,
        min_compute_capability: ComputeCapability::new(8, 0),
        needs: Target::parse("sm_80"),
        overlapping_writes: false,
        entries: &[&gemm_async_copy::ENTRY],
        plan: |shape, _| {
            let (m, n, k) = (shape.m(), shape.n(), shape.k());
            Ok(Plan::single(gemm_async_copy::launch(
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
