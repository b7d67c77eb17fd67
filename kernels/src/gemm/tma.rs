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
//! multiple of four the variant uses the kernels of `persistent`.

#![cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]

use super::persistent::{CopyB, Factors, Ring, Tiling, Work, multiply};
use crate::gpu::{Barrier, Global, GlobalMut};

/// Declares a tiling and a kernel of it that copies B by the engine.
macro_rules! tma_kernel {
    (
        $(#[$meta:meta])*
        $tiling:ident: $rows:literal by $columns:literal warps, BK $bk:literal, $stages:literal stages,
        $(groups $groups:literal,)?
        split $split:literal, clusters of $clusters:literal, $kernel:ident, $blocks:literal resident
    ) => {
        $(#[$meta])*
        pub struct $tiling;

        impl Tiling for $tiling {
            const WARP_ROWS: u32 = $rows;
            const WARP_COLUMNS: u32 = $columns;
            const BK: u32 = $bk;
            const STAGES: u32 = $stages;
            const COPY_B: CopyB = CopyB::Engine;
            const SPLIT: bool = $split;
            const MAX_CLUSTER: u32 = $clusters;
            $(const GROUPS: u32 = $groups;)?
        }

        kernel! {
            /// C (m×n) = `scale` · A (m×k) · B (k×n).
            ///
            /// # Safety
            ///
            /// - As [`multiply`], for this tiling, whose parameters these are.
            pub unsafe fn $kernel(
                a: Global<f32>, c: GlobalMut<f32>, parts: GlobalMut<f32>,
                m: u32, n: u32, k: u32, scale: f32, whole: u32, share: u32,
            )
            needs("sm_90a")
            tensor_maps(b)
            launch_bounds($tiling::THREADS, $blocks)
            clusters(if $clusters > 1 { $clusters } else { 1 })
            start(itself)
            backends(Nvptx)
            dynamic_shared {
                tiles_a: [f32; $tiling::RING_A],
                tiles_b: [f32; $tiling::RING_B],
                full: [Barrier; $tiling::STAGES as usize],
                empty: [Barrier; $tiling::STAGES as usize],
            }
            {
                let ring = Ring { a: tiles_a, b: tiles_b, full, empty };
                // The pointer to B is not used; A's stands in for it.
                let factors = Factors { a, b: a, b_map: Some(b) };
                let work = Work { m, n, k, whole, share };
                // SAFETY: the caller's promise.
                unsafe { multiply::<$tiling, _, _, _>(ring, factors, c, parts, scale, work) };
            }
        }
    };
}
pub(super) use tma_kernel;

tma_kernel! {
    /// Tiles of 128×256.
    LargeTma: 4 by 2 warps, BK 32, 4 stages, split false, clusters of 0,
    gemm_tma_128x256, 1 resident
}
tma_kernel! {
    /// Tiles of 128×128, two blocks on a multiprocessor.
    MediumTma: 4 by 1 warps, BK 16, 4 stages, split true, clusters of 0,
    gemm_tma_128x128, 2 resident
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;
#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::{LARGE_TMA, MEDIUM_TMA, tma_kernel_of};

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::*;
    use crate::gemm::persistent::LARGE_ANY;
    use crate::gemm::schedule::Kernel;
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{Buffer, ComputeCapability, Dim3, Target, TensorMapSpec};

    /// The [`Kernel`] of a tiling.
    macro_rules! tma_kernel_of {
        ($tiling:ident, $kernel:ident, $blocks:literal) => {
            Kernel {
                entry: &$kernel::ENTRY,
                bm: $tiling::BM,
                bn: $tiling::BN,
                bk: $tiling::BK,
                blocks: $blocks,
                columns: 4,
                empty_k: false,
                launch: |grid, parts, shape, whole, share| {
                    $kernel::launch(
                        grid,
                        Dim3::x($tiling::THREADS),
                        TensorMapSpec {
                            buffer: Buffer::B,
                            rows: shape.k(),
                            columns: shape.n(),
                            box_rows: $tiling::BK,
                            box_columns: $tiling::BN,
                        },
                        Buffer::A,
                        Buffer::C,
                        parts,
                        shape.m(),
                        shape.n(),
                        shape.k(),
                        1.0,
                        whole,
                        share,
                    )
                },
            }
        };
    }
    pub(in crate::gemm) use tma_kernel_of;

    pub const LARGE_TMA: Kernel = tma_kernel_of!(LargeTma, gemm_tma_128x256, 1);
    pub const MEDIUM_TMA: Kernel = tma_kernel_of!(MediumTma, gemm_tma_128x128, 2);

    pub const VARIANTS: &[Variant] = &[Variant {
        name: "tma",
        summary: "tiles of B by Hopper's copy engine",
        source: file!(),
        input: F32,
        accumulator: F32,
        output: F32,
        min_compute_capability: ComputeCapability::new(9, 0),
        needs: Target::parse("sm_90a"),
        overlapping_writes: false,
        entries: &[LARGE_TMA.entry, LARGE_ANY.entry],
        plan: |shape, limits| {
            let kernel = if LARGE_TMA.takes(shape, limits) {
                LARGE_TMA
            } else {
                LARGE_ANY
            };
            kernel.whole(shape, limits)
        },
    }];
}
