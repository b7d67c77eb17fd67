//! Products with a vector: as fast as memory is read.
//!
//! Where N = 1 or M = 1, each element of the matrix is used once. Tiles have
//! nothing to share, and most of their threads nothing to do. What counts is that
//! the matrix is read once, 16 bytes a thread, with many loads under way. There
//! are two kernels, one for each side that the vector may stand on.
//!
//! `gemm_dot`, for a column: a warp computes one element of C, the product of a
//! row of A and a column of B. Its lanes take four neighbouring k each, and walk
//! along the row in steps of 128.
//!
//! `gemm_row`, for a row: a block computes 32 elements of a row of C. Eight
//! threads side by side take four columns each, and 128 such teams every 128th
//! row of B. What the teams have is added up in shared memory.
//!
//! ```text
//!  gemm_dot                          gemm_row
//!
//!  A  lanes 0 … 31, 0 … 31, …        B   8 threads · 4 columns
//!     ├───────────────────────►          ┌──────────┐ team 0
//!     one row, one warp                  │          │ team 1
//!                                        │    ⋮     │
//!                                        └──────────┘ team 127, then 0 again
//! ```
//!
//! Both take any shape, with a row of blocks for each further column or row of
//! C, which reads the matrix again for each.

use crate::gpu::{Global, GlobalMut, math, thread, warp};

/// Threads in a block of `gemm_dot`.
pub const DOT_THREADS: u32 = 256;
/// Elements of C that such a block computes.
pub const DOT_ROWS: u32 = DOT_THREADS / warp::SIZE;
/// Threads in a block of `gemm_row`.
pub const ROW_THREADS: u32 = 1024;
/// Elements of C that such a block computes.
pub const ROW_COLUMNS: u32 = 32;
/// Threads of a team, four columns each.
const TEAM: u32 = ROW_COLUMNS / 4;
/// Teams, each of which takes its own rows of B.
const TEAMS: u32 = ROW_THREADS / TEAM;
/// Teams whose sums one of them adds up.
const FAN: u32 = 16;
/// Loads that a thread has under way.
const AT_ONCE: u32 = 8;

/// Adds the products of this lane's part of a row of A and a column of B.
///
/// `WIDE`: both are read four at a time, which asks for B to be one column.
///
/// # Safety
///
/// - `a` points at `k` elements, `b` at as many that lie `pitch` apart, all of
///   which nothing writes meanwhile.
/// - With `WIDE`, both are multiples of 16 bytes and `pitch` is 1.
#[inline(always)]
unsafe fn dot<const WIDE: bool>(a: Global<f32>, b: Global<f32>, pitch: u32, k: u32) -> f32 {
    let width = if WIDE { 4 } else { 1 };
    let step = warp::SIZE * width;
    let mut sums = [0.0; AT_ONCE as usize];
    let mut at = warp::lane() * width;
    let add = |at: u32, sum: &mut f32| {
        // SAFETY: the caller of this closure sees to `at` being below k, and
        // with `WIDE` so are the three after it.
        unsafe {
            if WIDE {
                let (x, y) = (a.load_4(at.into()), b.load_4(at.into()));
                for i in 0..4 {
                    *sum = math::fma(x[i], y[i], *sum);
                }
            } else {
                let y = b.load(u64::from(at) * u64::from(pitch));
                *sum = math::fma(a.load(at.into()), y, *sum);
            }
        }
    };
    // All the lanes' elements of AT_ONCE steps are inside.
    while k >= AT_ONCE * step && at + width <= k - (AT_ONCE - 1) * step {
        for (i, sum) in sums.iter_mut().enumerate() {
            add(at + i as u32 * step, sum);
        }
        at += AT_ONCE * step;
    }
    while at < k {
        if WIDE && k - at < 4 {
            for i in 0..k - at {
                // SAFETY: at + i is below k.
                let (x, y) = unsafe { (a.load((at + i).into()), b.load((at + i).into())) };
                sums[0] = math::fma(x, y, sums[0]);
            }
        } else {
            add(at, &mut sums[0]);
        }
        at += step;
    }
    let mut total = 0.0;
    for sum in sums {
        total = math::add(total, sum);
    }
    total
}

/// Adds up the products of this team's rows of B, from row `team` on, with the
/// elements of A's row.
///
/// # Safety
///
/// - `a` points at `k` elements, `b` at the thread's first column of a matrix of
///   `k` rows, `n` apart, all of which nothing writes meanwhile.
/// - The thread's `columns` columns lie inside. With `WIDE` they are four, and
///   each row's are at a multiple of 16 bytes.
#[inline(always)]
unsafe fn walk<const WIDE: bool>(
    a: Global<f32>,
    b: Global<f32>,
    n: u32,
    k: u32,
    team: u32,
    columns: u32,
) -> [f32; 4] {
    let mut sums = [0.0; 4];
    let row = |at: u32| {
        let from = b.offset(u64::from(at) * u64::from(n));
        // SAFETY: the caller of this closure sees to `at` being below k.
        unsafe {
            let four = if WIDE {
                from.load_4(0)
            } else {
                core::array::from_fn(|i| {
                    if (i as u32) < columns {
                        from.load(i as u64)
                    } else {
                        0.0
                    }
                })
            };
            (a.load(at.into()), four)
        }
    };
    let mut at = team;
    while k >= AT_ONCE * TEAMS && at < k - (AT_ONCE - 1) * TEAMS {
        let rows: [_; AT_ONCE as usize] = core::array::from_fn(|i| row(at + i as u32 * TEAMS));
        for (x, four) in rows {
            for i in 0..4 {
                sums[i] = math::fma(x, four[i], sums[i]);
            }
        }
        at += AT_ONCE * TEAMS;
    }
    while at < k {
        let (x, four) = row(at);
        for i in 0..4 {
            sums[i] = math::fma(x, four[i], sums[i]);
        }
        at += TEAMS;
    }
    sums
}

kernel! {
    /// C (m×n) = A (m×k) · B (k×n), a warp for each element.
    ///
    /// # Safety
    ///
    /// - `a` and `b` point at m·k and k·n elements that nothing writes
    ///   meanwhile.
    /// - `c` points at m·n elements that nothing else touches meanwhile.
    /// - Blocks have [`DOT_THREADS`] threads along x. The grid has a block for
    ///   each [`DOT_ROWS`] rows along x, and covers the columns along y and z.
    pub unsafe fn gemm_dot(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(DOT_THREADS)
    start(early)
    backends(Nvptx)
    shared { held: [f32; DOT_THREADS as usize] }
    {
        let (row, column) = (thread::block_idx_x() * DOT_ROWS + warp::index(), thread::block_row());
        let t = thread::thread_idx_x();
        let mut sum = 0.0;
        if row < m && column < n {
            let a = a.offset(u64::from(row) * u64::from(k));
            let b = b.offset(column.into());
            let wide = n == 1 && (a.address() | b.address()).is_multiple_of(16);
            // SAFETY: row and column are inside, and the addresses were looked
            // at.
            sum = unsafe {
                if wide { dot::<true>(a, b, 1, k) } else { dot::<false>(a, b, n, k) }
            };
        }
        // Halves the lanes that have something to add, down to lane 0.
        // SAFETY: every index is below the threads', and barriers stand between
        // one thread's write and another's read.
        unsafe {
            held.store(t, sum);
            let mut width = warp::SIZE / 2;
            while width > 0 {
                // Closes write-before-read.
                thread::sync_threads();
                if warp::lane() < width {
                    sum = math::add(sum, held.load(t + width));
                    held.store(t, sum);
                }
                width /= 2;
            }
            if warp::lane() == 0 {
                let mut c = c.matrix(m, n);
                c.put(row, column, sum);
            }
        }
    }
}

kernel! {
    /// C (m×n) = A (m×k) · B (k×n), a block for 32 elements of a row.
    ///
    /// # Safety
    ///
    /// - `a` and `b` point at m·k and k·n elements that nothing writes
    ///   meanwhile.
    /// - `c` points at m·n elements that nothing else touches meanwhile.
    /// - Blocks have [`ROW_THREADS`] threads along x. The grid has a block for
    ///   each [`ROW_COLUMNS`] columns along x, and covers the rows along y and z.
    pub unsafe fn gemm_row(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(ROW_THREADS, 1)
    start(early)
    backends(Nvptx)
    shared { held: [f32; (4 * ROW_THREADS) as usize] }
    {
        let t = thread::thread_idx_x();
        let (team, place) = (t / TEAM, t % TEAM);
        let (row, column) = (thread::block_row(), thread::block_idx_x() * ROW_COLUMNS + place * 4);
        let mut sums = [0.0; 4];
        if row < m && column < n {
            let a = a.offset(u64::from(row) * u64::from(k));
            let b = b.offset(column.into());
            let columns = if n - column < 4 { n - column } else { 4 };
            let wide = n.is_multiple_of(4) && b.address().is_multiple_of(16);
            // SAFETY: row and columns are inside, and the addresses were looked
            // at.
            sums = unsafe {
                if wide {
                    walk::<true>(a, b, n, k, team, 4)
                } else {
                    walk::<false>(a, b, n, k, team, columns)
                }
            };
        }
        // Every FAN-th team adds up its own sums and those of the FAN − 1 teams
        // after it, twice.
        const { assert!(TEAMS == FAN * FAN / 2, "the second time there are half as many") }
        // SAFETY: every index is below four a thread, and barriers stand between
        // one thread's write and another's read.
        unsafe {
            held.store_4(4 * t, sums);
            // Closes write-before-read.
            thread::sync_threads();
            if team % FAN == 0 {
                for other in 1..FAN {
                    let theirs = held.load_4(4 * (t + other * TEAM));
                    for (sum, other) in sums.iter_mut().zip(&theirs) {
                        *sum = math::add(*sum, *other);
                    }
                }
                held.store_4(4 * t, sums);
            }
            // Closes write-before-read.
            thread::sync_threads();
            if team == 0 {
                for other in 1..TEAMS / FAN {
                    let theirs = held.load_4(4 * (t + other * FAN * TEAM));
                    for (sum, other) in sums.iter_mut().zip(&theirs) {
                        *sum = math::add(*sum, *other);
                    }
                }
            }
            if team == 0 {
                let mut c = c.matrix(m, n);
                c.put_4(row, column, sums);
            }
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::{DOT_ROWS, DOT_THREADS, ROW_COLUMNS, ROW_THREADS, gemm_dot, gemm_row};
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{Buffer::*, ComputeCapability, Dim3, Plan, Target};

    pub const VARIANTS: &[Variant] = &[Variant {
        name: "matrix_vector",
        summary: "for M = 1 or N = 1: the matrix is read once, as fast as memory gives it",
        source: file!(),
        input: F32,
        accumulator: F32,
        output: F32,
        min_compute_capability: ComputeCapability::new(7, 5),
        needs: Target::BASELINE,
        overlapping_writes: false,
        entries: &[&gemm_dot::ENTRY, &gemm_row::ENTRY],
        plan: |shape, _| {
            let (m, n, k) = (shape.m(), shape.n(), shape.k());
            // The longer side of C lies along x, where the matrix is read in
            // whole rows.
            let launch = if m >= n {
                gemm_dot::launch(
                    Dim3::covering(m.div_ceil(DOT_ROWS), n),
                    Dim3::x(DOT_THREADS),
                    A,
                    B,
                    C,
                    m,
                    n,
                    k,
                )
            } else {
                gemm_row::launch(
                    Dim3::covering(n.div_ceil(ROW_COLUMNS), m),
                    Dim3::x(ROW_THREADS),
                    A,
                    B,
                    C,
                    m,
                    n,
                    k,
                )
            };
            Ok(Plan::single(launch))
        },
    }];
}
