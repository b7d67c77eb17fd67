//! One thread for each element of C.
//!
//! Thread (x, y) of the grid owns column x and row y of C. It walks along a row
//! of A and down a column of B and adds up the products.
//!
//! The 32 threads of a warp are neighbours along x. At each step they read one
//! element of A, the same for all, and 32 neighbouring elements of B: both
//! accesses are coalesced. What holds this kernel back is that every product
//! costs two loads: each element of A is read N times and each of B M times.
//! [`tiled`](super::tiled) cuts that by the width of its tile.

use crate::gpu::{Global, GlobalMut, Matrix, MatrixMut, math, thread};

/// Computes this thread's element of C.
///
/// `a` is M×K, `b` K×N and `c` M×N.
#[inline(always)]
fn naive(a: Matrix<f32>, b: Matrix<f32>, mut c: MatrixMut<f32>) {
    let at = thread::index_2d();
    // Threads past the right or the lower edge of C have nothing to do.
    if !c.contains(at) {
        return;
    }

    // Pointers that move, not indices: the loop then has one addition a load,
    // where an index would cost a multiplication too.
    let mut a_next = a.pointer_to(at.row(), 0);
    let mut b_next = b.pointer_to(0, at.column());
    let b_row = u64::from(b.columns());

    let mut sum = 0.0;
    for _ in 0..a.columns() {
        // SAFETY: row and column are inside C, so they are inside A and B, and
        // the loop makes one step for each of A's columns and B's rows.
        let (x, y) = unsafe { (a_next.load(0), b_next.load(0)) };
        sum = math::fma(x, y, sum);
        a_next = a_next.offset(1);
        b_next = b_next.offset(b_row);
    }
    c.set(at, sum);
}

macro_rules! naive_kernel {
    ($name:ident, $block:literal) => {
        kernel! {
            #[doc = concat!(
                "C (m×n) = A (m×k) · B (k×n), in blocks of ", $block, "×", $block, " threads.",
            )]
            ///
            /// # Safety
            ///
            /// - `a` and `b` point at m·k and k·n elements that nothing writes
            ///   meanwhile.
            /// - `c` points at m·n elements that nothing else touches
            ///   meanwhile.
            pub unsafe fn $name(
                a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
            )
            launch_bounds($block * $block)
            {
                // SAFETY: the caller promises matrices of these sizes.
                let (a, b, c) = unsafe { (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n)) };
                naive(a, b, c);
            }
        }
    };
}

naive_kernel!(gemm_naive_16, 16);
naive_kernel!(gemm_naive_32, 32);

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::{gemm_naive_16, gemm_naive_32};
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{Buffer::*, ComputeCapability, Dim3, Plan, Target};

    macro_rules! variant {
        ($name:literal, $kernel:ident, $block:literal) => {
            Variant {
                name: $name,
                summary: concat!(
                    "one thread for each element of C, blocks of ",
                    $block,
                    "×",
                    $block
                ),
                source: file!(),
                input: F32,
                accumulator: F32,
                output: F32,
                min_compute_capability: ComputeCapability::new(7, 5),
                needs: Target::BASELINE,
                overlapping_writes: false,
                entries: &[&$kernel::ENTRY],
                plan: |shape, _| {
                    let (m, n, k) = (shape.m(), shape.n(), shape.k());
                    Ok(Plan::single($kernel::launch(
                        Dim3::covering(n.div_ceil($block), m.div_ceil($block)),
                        Dim3::xy($block, $block),
                        A,
                        B,
                        C,
                        m,
                        n,
                        k,
                    )))
                },
            }
        };
    }

    pub const VARIANTS: &[Variant] = &[
        variant!("naive_16", gemm_naive_16, 16),
        variant!("naive_32", gemm_naive_32, 32),
    ];
}
