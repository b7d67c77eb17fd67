//! Tiles of A and B in shared memory.
//!
//! A block computes a T×T tile of C, one thread for each element. It walks along
//! K in steps of T. In each step its threads copy one T×T tile of A and one of B
//! into shared memory, one element of each a thread, and then every thread
//! multiplies a row of the one by a column of the other.
//!
//! What changed since [`naive`](super::naive): an element that reaches the
//! multiprocessor is used by T threads, so global memory is read T times less.
//!
//! ```text
//!              B (K×N)
//!              ┌───┬───┬───┐
//!              │   │ ▒ │   │  step 0      ▒ tiles that the block at █ reads
//!              ├───┼───┼───┤
//!              │   │ ▒ │   │  step 1
//!  A (M×K)     └───┴───┴───┘
//!  ┌───┬───┐   ┌───┬───┬───┐
//!  │ ▒ │ ▒ │   │   │ █ │   │  C (M×N)
//!  ├───┼───┤   ├───┼───┼───┤
//!  │   │   │   │   │   │   │
//!  └───┴───┘   └───┴───┴───┘
//! ```

use crate::gpu::{Global, GlobalMut, Matrix, MatrixMut, Shared, math, thread};

/// Computes this block's tile of C.
///
/// `a` is M×K, `b` K×N and `c` M×N; `tile_a` and `tile_b` are T×T, row-major.
/// Blocks have T×T threads.
#[inline(always)]
fn tiled<const T: u32, const TT: usize>(
    tile_a: Shared<f32, TT>,
    tile_b: Shared<f32, TT>,
    a: Matrix<f32>,
    b: Matrix<f32>,
    mut c: MatrixMut<f32>,
) {
    const {
        assert!(
            T * T <= 1024,
            "a block has at most 1,024 threads, so a tile is at most 32×32"
        );
        assert!((T * T) as usize == TT, "a tile has T×T elements");
    }
    let (x, y) = (thread::thread_idx_x(), thread::thread_idx_y());
    let at = thread::index_2d();

    let mut sum = 0.0;
    for step in 0..a.columns().div_ceil(T) {
        let k0 = step * T;
        // A tile that reaches past an edge is filled up with zeros, which add
        // nothing. So threads outside C take part too: the barriers need them.
        let a_element = a.load_or_zero(at.row(), k0 + x);
        let b_element = b.load_or_zero(k0 + y, at.column());
        // SAFETY: x and y are below T. Each thread writes its own element, and
        // the barrier at the loop's end stands before: no thread still reads.
        unsafe {
            tile_a.store(y * T + x, a_element);
            tile_b.store(y * T + x, b_element);
        }
        // Closes write-before-read: the tiles are complete after it.
        thread::sync_threads();

        for i in 0..T {
            // SAFETY: x, y and i are below T, and the barrier above stands after
            // the writes.
            let (a_element, b_element) =
                unsafe { (tile_a.load(y * T + i), tile_b.load(i * T + x)) };
            sum = math::fma(a_element, b_element, sum);
        }
        // Closes read-before-write: the next step overwrites the tiles.
        thread::sync_threads();
    }
    c.set(at, sum);
}

macro_rules! tiled_kernel {
    ($name:ident, $tile:literal) => {
        kernel! {
            #[doc = concat!(
                "C (m×n) = A (m×k) · B (k×n), in tiles and blocks of ", $tile, "×", $tile, ".",
            )]
            ///
            /// # Safety
            ///
            /// - `a` and `b` point at m·k and k·n elements that nothing writes
            ///   meanwhile.
            /// - `c` points at m·n elements that nothing else touches
            ///   meanwhile.
            #[doc = concat!("- Blocks have ", $tile, "×", $tile, " threads.")]
            pub unsafe fn $name(
                a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
            )
            launch_bounds($tile * $tile)
            shared { tile_a: [f32; $tile * $tile], tile_b: [f32; $tile * $tile] }
            {
                // SAFETY: the caller promises matrices of these sizes.
                let (a, b, c) = unsafe { (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n)) };
                tiled::<$tile, { $tile * $tile }>(tile_a, tile_b, a, b, c);
            }
        }
    };
}

tiled_kernel!(gemm_tiled_16, 16);
tiled_kernel!(gemm_tiled_32, 32);

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::{gemm_tiled_16, gemm_tiled_32};
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{Buffer::*, ComputeCapability, Dim3, Plan, Target};

    macro_rules! variant {
        ($name:literal, $kernel:ident, $tile:literal) => {
            Variant {
                name: $name,
                summary: concat!("tiles of ", $tile, "×", $tile, " in shared memory"),
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
                        Dim3::covering(n.div_ceil($tile), m.div_ceil($tile)),
                        Dim3::xy($tile, $tile),
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
        variant!("tiled_16", gemm_tiled_16, 16),
        variant!("tiled_32", gemm_tiled_32, 32),
    ];
}
