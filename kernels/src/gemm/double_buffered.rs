//! Two buffers for each tile: loads of the next step run beside this one.
//!
//! Tiles, threads and accesses are those of [`vectorized`](super::vectorized).
//! What changed: while a block multiplies the tiles of one step, its threads
//! already have the loads of the next under way, into registers. When the
//! products are done, they store what came into the other buffer.
//!
//! The latency of global memory, some 600 cycles, then hides behind the 512
//! multiply-adds that each thread makes in a step. And one barrier a step is
//! enough, where the single buffer took two:
//!
//! ```text
//! step s     load s+1 to registers │ multiply from buffer s % 2 │ store to the other │ barrier
//! step s+1   load s+2 to registers │ multiply from the other    │ store to buffer s % 2 │ barrier
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
/// Elements from one row of the transposed tile of A to the next.
pub const PITCH: u32 = BM + 4;

/// One buffer of each tile.
const TILE_A: u32 = BK * PITCH;
const TILE_B: u32 = BK * BN;
const TILES_A: usize = 2 * TILE_A as usize;
const TILES_B: usize = 2 * TILE_B as usize;

/// Computes this block's tile of C.
///
/// `a` is M×K, `b` K×N and `c` M×N; `tiles_a` is 2×BK×PITCH, the tiles of A
/// transposed, and `tiles_b` 2×BK×BN.
#[inline(always)]
fn double_buffered(
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
        assert!(
            BM * BK == 4 * THREADS && BK * BN == 4 * THREADS,
            "each thread copies four elements of A and four of B a step"
        );
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
    let (a_row, a_k) = (t / 2, t % 2 * 4);
    let (b_k, b_column) = (t / 32, t % 32 * 4);
    let (own_row, own_column) = (t / 16 * 4, t % 16 * 4);

    let load = |step: u32| {
        (
            a.load_4_or_zero(row0 + a_row, step * BK + a_k),
            b.load_4_or_zero(step * BK + b_k, column0 + b_column),
        )
    };
    // Stores what `load` brought to a buffer: 0 or 1.
    let store = |buffer: u32, (a_elements, b_elements): ([f32; 4], [f32; 4])| {
        let (a0, b0) = (buffer * TILE_A, buffer * TILE_B);
        // SAFETY: rows of A are below BM, columns of B below BN, k below BK, the
        // buffer below 2. Each thread writes its own elements. Whoever read this
        // buffer did so before the last barrier.
        unsafe {
            for (i, element) in a_elements.into_iter().enumerate() {
                tiles_a.store(a0 + (a_k + i as u32) * PITCH + a_row, element);
            }
            tiles_b.store_4(b0 + b_k * BN + b_column, b_elements);
        }
    };

    let steps = a.columns().div_ceil(BK);
    store(0, load(0));
    // Closes write-before-read: buffer 0 is complete after it.
    thread::sync_threads();

    let mut sums = [[0.0; TN as usize]; TM as usize]; // [TM][TN]
    for step in 0..steps {
        // Nothing waits for these loads before the stores below. Past the last
        // step they give zeros, which nobody reads.
        let next = load(step + 1);
        let (a0, b0) = (step % 2 * TILE_A, step % 2 * TILE_B);
        for i in 0..BK {
            let mut a_fragment = [0.0; TM as usize]; // [TM], of row i of A's tile
            let mut b_fragment = [0.0; TN as usize]; // [TN], of row i of B's tile
            for half in 0..2 {
                let at = 4 * half as usize;
                // SAFETY: rows are below BM, columns below BN, i below BK, and a
                // barrier stands after the writes.
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
        store((step + 1) % 2, next);
        // Closes write-before-read for the buffer just filled, and
        // read-before-write for the one just read, which the next step fills.
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
    /// C (m×n) = A (m×k) · B (k×n), the next step's loads beside this one.
    ///
    /// # Safety
    ///
    /// - `a` and `b` point at m·k and k·n elements that nothing writes
    ///   meanwhile.
    /// - `c` points at m·n elements that nothing else touches meanwhile.
    /// - Blocks have [`THREADS`] threads along x.
    pub unsafe fn gemm_double_buffered(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(THREADS)
    shared { tiles_a: [f32; TILES_A], tiles_b: [f32; TILES_B] }
    {
        // SAFETY: the caller promises matrices of these sizes.
        let (a, b, c) = unsafe { (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n)) };
        double_buffered(tiles_a, tiles_b, a, b, c);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::{BM, BN, THREADS, gemm_double_buffered};
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{Buffer::*, ComputeCapability, Dim3, Plan, Target};

    pub const VARIANTS: &[Variant] = &[Variant {
        name: "double_buffered",
        summary: "the next tiles load while these multiply, one barrier a step",
        source: file!(),
        input: F32,
        accumulator: F32,
        output: F32,
        min_compute_capability: ComputeCapability::new(7, 5),
        needs: Target::BASELINE,
        overlapping_writes: false,
        entries: &[&gemm_double_buffered::ENTRY],
        plan: |shape, _| {
            let (m, n, k) = (shape.m(), shape.n(), shape.k());
            Ok(Plan::single(gemm_double_buffered::launch(
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
