//! Split K: groups of warps, and the blocks of a cluster, share one tile's steps.
//!
//! A product of few tiles leaves most multiprocessors without one, and a small
//! tile has work for two warps where a multiprocessor issues from four
//! schedulers. [`stream_k`](super::stream_k) shares out the steps among blocks,
//! but its parts go through global memory, and a second launch adds them up: at
//! 1024³ that is a fifth of the time.
//!
//! What changed since it: a tile's steps are shared twice over, and one launch
//! does it all.
//!
//! - A block has several groups of warps. Each has the whole tile, and multiplies
//!   its own part of every stage along K. (CUTLASS calls this sliced K.) Smaller
//!   tiles for each warp would keep as many busy, but read shared memory more
//!   often than it can answer.
//! - Several blocks form a cluster, where a tile for each block is not enough.
//!   They run at the same time, and each takes its part of the steps.
//!
//! ```text
//!            K →
//!  block 0  ├─────────┤ stages: groups 0 1 2 3 │ 0 1 2 3 │ …  → shared memory ─┐ each group of
//!  block 1            ├─────────┤         0 1 2 3 │ 0 1 2 3 │ … → shared memory ─┘ each block adds up
//!                                                                               its share of the tile
//! ```
//!
//! In the end all sums lie in shared memory, where the ring was. Each group of
//! each block adds up its share of the tile: it reads what all have, also those of
//! the other blocks, in a fixed order. So the same inputs give the same bits each
//! time. A block has a multiprocessor for itself: of several, the hardware would
//! put some on one multiprocessor and leave others empty, since blocks of the next
//! launch start as soon as there is room. It computes for one tile, so what is copied ahead stays within it.

#![cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90"))]

#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
use super::persistent::CopyB;
use super::persistent::{Factors, Ring, Tiling, Work, multiply, persistent_kernel};
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
use super::tma::tma_kernel;
use crate::gpu::{Barrier, Global, GlobalMut};

#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
tma_kernel! {
    /// Tiles of 128×128, two groups, B by the copy engine.
    MediumTma: 4 by 1 warps, BK 32, 4 stages, groups 2, split false, clusters of 4,
    gemm_split_k_128x128, 1 resident
}
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
tma_kernel! {
    /// Tiles of 64×128, four groups, B by the copy engine.
    SmallTma: 2 by 1 warps, BK 64, 4 stages, groups 4, split false, clusters of 2,
    gemm_split_k_64x128, 1 resident
}
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]
tma_kernel! {
    /// Tiles of 32×128, four groups, B by the copy engine.
    TinyTma: 1 by 1 warps, BK 64, 4 stages, groups 4, split false, clusters of 4,
    gemm_split_k_32x128, 1 resident
}
persistent_kernel! {
    /// Tiles of 128×128, two groups, for any N.
    MediumAny: 4 by 1 warps, BK 32, 4 stages, groups 2, copy Any, split false, clusters of 4,
    gemm_split_k_128x128_any for "sm_90", 1 resident
}
persistent_kernel! {
    /// Tiles of 64×128, four groups, for any N.
    SmallAny: 2 by 1 warps, BK 64, 4 stages, groups 4, copy Any, split false, clusters of 2,
    gemm_split_k_64x128_any for "sm_90", 1 resident
}
persistent_kernel! {
    /// Tiles of 32×128, four groups, for any N.
    TinyAny: 1 by 1 warps, BK 64, 4 stages, groups 4, copy Any, split false, clusters of 4,
    gemm_split_k_32x128_any for "sm_90", 1 resident
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::{KERNELS, VARIANTS};

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::*;
    use crate::gemm::persistent::kernel_of;
    use crate::gemm::schedule::{self, Kernel, Schedule};
    use crate::gemm::tma::tma_kernel_of;
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{Buffer, ComputeCapability, Dim3, Target, TensorMapSpec};

    const MEDIUM_TMA: Kernel = tma_kernel_of!(MediumTma, gemm_split_k_128x128, 1);
    const SMALL_TMA: Kernel = tma_kernel_of!(SmallTma, gemm_split_k_64x128, 1);
    const TINY_TMA: Kernel = tma_kernel_of!(TinyTma, gemm_split_k_32x128, 1);
    const MEDIUM_ANY: Kernel = kernel_of!(MediumAny, gemm_split_k_128x128_any, 1);
    const SMALL_ANY: Kernel = kernel_of!(SmallAny, gemm_split_k_64x128_any, 1);
    const TINY_ANY: Kernel = kernel_of!(TinyAny, gemm_split_k_32x128_any, 1);

    /// Every kernel.
    pub const KERNELS: &[&Kernel] = &[
        &MEDIUM_TMA,
        &SMALL_TMA,
        &TINY_TMA,
        &MEDIUM_ANY,
        &SMALL_ANY,
        &TINY_ANY,
    ];

    /// A variant of two kernels whose blocks share tiles in clusters: one that
    /// copies B by the engine, and one for any N.
    macro_rules! variant {
        ($name:literal, $summary:literal, $kernels:expr) => {
            Variant {
                name: $name,
                summary: $summary,
                source: file!(),
                input: F32,
                accumulator: F32,
                output: F32,
                min_compute_capability: ComputeCapability::new(9, 0),
                needs: Target::parse("sm_90"),
                overlapping_writes: false,
                entries: &{
                    let [tma, any] = $kernels;
                    [tma.entry, any.entry]
                },
                // The copy engine wants whole groups of four columns.
                plan: |shape, limits| {
                    let [tma, any] = $kernels;
                    let kernel = if tma.takes(shape, limits) { tma } else { any };
                    let schedules = Schedule::all(kernel, shape, limits);
                    schedule::fastest(schedules, kernel, shape, limits)
                },
            }
        };
    }

    pub const VARIANTS: &[Variant] = &[
        variant!(
            "split_k_medium",
            "tiles of 128×128, K shared by two groups of warps and the blocks of a cluster",
            [&MEDIUM_TMA, &MEDIUM_ANY]
        ),
        variant!(
            "split_k_small",
            "tiles of 64×128, K shared by four groups of warps and the blocks of a cluster",
            [&SMALL_TMA, &SMALL_ANY]
        ),
        variant!(
            "split_k_tiny",
            "tiles of 32×128, K shared by four groups of warps and the blocks of a cluster",
            [&TINY_TMA, &TINY_ANY]
        ),
    ];
}
