//! The naive kernel with its thread axes swapped: what coalescing is worth.
//!
//! Thread (x, y) of the grid owns row x and column y of C. What changed since
//! [`naive`](super::naive) is that alone: x, along which the 32 threads of a
//! warp are neighbours, counts rows instead of columns.
//!
//! At each step a warp now reads 32 elements of A that lie a whole row apart,
//! and its stores to C do too. Each costs a memory transaction of its own, of 32
//! bytes for 4 that are used, where the naive kernel's warp moves 128
//! neighbouring bytes in four. The arithmetic is the same.

use crate::gpu::{Global, GlobalMut, math, thread};

/// Threads of a block along each axis.
pub const BLOCK: u32 = 16;

kernel! {
    /// C (m×n) = A (m×k) · B (k×n), a warp's threads one below the other.
    ///
    /// # Safety
    ///
    /// - `a` and `b` point at m·k and k·n elements that nothing writes
    ///   meanwhile.
    /// - `c` points at m·n elements that nothing else touches meanwhile.
    pub unsafe fn gemm_naive_uncoalesced(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(BLOCK * BLOCK)
    {
        // SAFETY: the caller promises matrices of these sizes.
        let (a, b, mut c) = unsafe { (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n)) };
        let at = thread::index_2d_transposed();
        // Threads past the right or the lower edge of C have nothing to do.
        if !c.contains(at) {
            return;
        }
        let mut a_next = a.pointer_to(at.row(), 0);
        let mut b_next = b.pointer_to(0, at.column());
        let b_row = u64::from(n);
        let mut sum = 0.0;
        for _ in 0..k {
            // SAFETY: row and column are inside C, so they are inside A and B,
            // and the loop makes one step for each of A's columns and B's rows.
            let (x, y) = unsafe { (a_next.load(0), b_next.load(0)) };
            sum = math::fma(x, y, sum);
            a_next = a_next.offset(1);
            b_next = b_next.offset(b_row);
        }
        c.set(at, sum);
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::{BLOCK, gemm_naive_uncoalesced};
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{Buffer::*, ComputeCapability, Dim3, Plan, Target};

    pub const VARIANTS: &[Variant] = &[Variant {
        name: "naive_uncoalesced",
        summary: "the naive kernel with a warp's threads one below the other",
        source: file!(),
        input: F32,
        accumulator: F32,
        output: F32,
        min_compute_capability: ComputeCapability::new(7, 5),
        needs: Target::BASELINE,
        overlapping_writes: false,
        entries: &[&gemm_naive_uncoalesced::ENTRY],
        plan: |shape, _| {
            let (m, n, k) = (shape.m(), shape.n(), shape.k());
            Ok(Plan::single(gemm_naive_uncoalesced::launch(
                // Rows run along x here.
                Dim3::covering(m.div_ceil(BLOCK), n.div_ceil(BLOCK)),
                Dim3::xy(BLOCK, BLOCK),
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
