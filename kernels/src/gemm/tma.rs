//! B by the copy engine: one thread's one instruction for a whole tile.
//!
//! Tiles, blocks and products are those of [`persistent`](super::persistent).
//! What changed is that the tile of B comes through Hopper's copy engine (TMA):
//! the host describes B in a tensor map, and one thread of the block names the
//! row and the column of the box of 32×256 that it wants. The other 255 threads
//! start no copies of B any more, nor do they compute addresses for them. The
//! engine fills what lies outside B with zeros by itself.
//!
//! A tile of A must be transposed on its way, which the engine can't do, so A
//! still comes by `cp.async`.
//!
//! The engine wants rows that are a multiple of 16 bytes long. Where N is no
//! multiple of four the variant uses the kernels of `persistent`. (Every fourth row
//! would begin where the engine wants it, but it also wants each box to begin at a
//! multiple of 16 bytes, which the columns of the rows between do not.)

#![cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90"))]

use super::persistent::{Factors, Ring, Tiling, Work, multiply, persistent_kernel};
use crate::gpu::{Barrier, Global, GlobalMut};

persistent_kernel! {
    /// Tiles of 128×256.
    LargeTma: 4 by 2 warps, BK 32, 4 stages, copy Engine by b_map, clusters of 0,
    rows [2, 4, 1, 5, 6, 7, 3, 0],
    columns [0, 3, 2, 1, 6, 5, 4, 7, 10, 9, 8, 11, 12, 14, 13, 15],
    gemm_tma_128x256 for "sm_90", 1 resident
}
persistent_kernel! {
    /// Tiles of 128×128, two blocks on a multiprocessor.
    MediumTma: 4 by 1 warps, BK 16, 4 stages, copy Engine by b_map, clusters of 0,
    rows [2, 3, 0, 1, 6, 7, 4, 5],
    columns [9, 11, 10, 8, 13, 15, 14, 12, 1, 3, 2, 0, 5, 7, 6, 4],
    gemm_tma_128x128 for "sm_90", 2 resident
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::*;
    use crate::gemm::persistent::{LargeAny, MediumAny};
    use crate::gemm::{ElementType::F32, Variant, schedule};
    use crate::launch::{ComputeCapability, Target};

    const KERNELS: &[&schedule::Kernel] =
        &[&LargeTma::KERNEL, &LargeAny::KERNEL, &MediumAny::KERNEL];

    pub const VARIANTS: &[Variant] = &[Variant {
        name: "tma",
        summary: "tiles of B by Hopper's copy engine",
        source: file!(),
        input: F32,
        accumulator: F32,
        output: F32,
        min_compute_capability: ComputeCapability::new(9, 0),
        needs: Target::parse("sm_90"),
        overlapping_writes: false,
        entries: &[
            LargeTma::KERNEL.entry,
            LargeAny::KERNEL.entry,
            MediumAny::KERNEL.entry,
        ],
        plan: |shape, limits| schedule::first_whole(KERNELS, shape, limits),
    }];
}
