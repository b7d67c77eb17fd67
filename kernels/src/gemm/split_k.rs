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
//!  block 0  ├─────────┤ stages: groups 0 1 2 3 │ 0 1 2 3 │ … → groups added up ─┬→ left half of the
//!                                                                      ╲╱       tile: 0 adds what
//!                                                                      ╱╲       1 wrote there
//!  block 1            ├─────────┤         0 1 2 3 │ 0 1 2 3 │ … → groups added up ─┴→ right half: 1
//! ```
//!
//! In the end the groups' sums lie in shared memory, where the ring was, and each
//! group adds up a share of the tile. Of a cluster, each block owns a part of the
//! tile: the others write theirs into its shared memory, and it adds them to its
//! own in the order of their ranks. So the same inputs give the same bits each
//! time. (Reading what the others have took 1.3 µs longer: what is written need not
//! come back, and one barrier does in the end where there were two.)
//!
//! A block has a multiprocessor for itself: of several, the hardware would put some
//! on one multiprocessor and leave others empty, since blocks of the next launch
//! start as soon as there is room. It computes for one tile, so what is copied
//! ahead stays within it.

#![cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90"))]

use super::persistent::{Factors, Ring, Tiling, Work, multiply, persistent_kernel};
use crate::gpu::{Barrier, Global, GlobalMut};

persistent_kernel! {
    /// Tiles of 128×128, two groups.
    Medium: 4 by 1 warps, BK 32, 4 stages, groups 2, copy Engine by b_map, clusters of 4,
    rows [0, 1, 2, 3, 4, 5, 6, 7],
    columns [0, 3, 1, 2, 4, 7, 5, 6, 12, 15, 13, 14, 8, 11, 9, 10],
    gemm_split_k_128x128 for "sm_90", 1 resident
}
persistent_kernel! {
    /// Tiles of 64×128, four groups.
    Small: 2 by 1 warps, BK 64, 4 stages, groups 4, copy Engine by b_map, clusters of 2,
    rows [4, 5, 6, 7, 0, 1, 2, 3],
    columns [5, 7, 6, 4, 11, 10, 9, 8, 13, 14, 12, 15, 3, 2, 1, 0],
    gemm_split_k_64x128 for "sm_90", 1 resident
}
persistent_kernel! {
    /// Tiles of 32×128, eight groups.
    Tiny: 1 by 1 warps, BK 64, 4 stages, groups 8, copy Engine by b_map, clusters of 8,
    rows [4, 5, 6, 7, 0, 1, 2, 3],
    columns [0, 3, 1, 2, 8, 11, 9, 10, 12, 15, 13, 14, 4, 7, 5, 6],
    gemm_split_k_32x128 for "sm_90", 1 resident
}
persistent_kernel! {
    /// Tiles of 128×128, two groups, for N of 128 or more.
    MediumAny: 4 by 1 warps, BK 32, 4 stages, groups 2, copy Shifted, clusters of 4,
    rows [5, 7, 6, 4, 1, 3, 2, 0],
    columns [13, 12, 15, 14, 9, 8, 11, 10, 1, 0, 3, 2, 5, 4, 7, 6],
    gemm_split_k_128x128_any for "sm_90", 1 resident
}
persistent_kernel! {
    /// Tiles of 64×128, four groups, for N of 128 or more.
    SmallAny: 2 by 1 warps, BK 64, 4 stages, groups 4, copy Shifted, clusters of 2,
    rows [0, 2, 3, 1, 4, 6, 7, 5],
    columns [8, 9, 10, 11, 0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7],
    gemm_split_k_64x128_any for "sm_90", 1 resident
}
persistent_kernel! {
    /// Tiles of 32×128, eight groups, for N of 128 or more.
    TinyAny: 1 by 1 warps, BK 64, 4 stages, groups 8, copy Shifted, clusters of 8,
    rows [6, 1, 2, 3, 4, 5, 0, 7],
    columns [7, 6, 4, 5, 0, 2, 3, 1, 15, 14, 12, 13, 11, 10, 8, 9],
    gemm_split_k_32x128_any for "sm_90", 1 resident
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::{ENTRIES, KERNELS, VARIANTS};

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::*;
    use crate::gemm::persistent::MediumAny as Anything;
    use crate::gemm::schedule::{self, Kernel};
    use crate::gemm::{ElementType::F32, Variant};
    use crate::launch::{ComputeCapability, Entry, Target};

    /// Every kernel.
    pub const KERNELS: &[&Kernel] = &[
        &Medium::KERNEL,
        &Small::KERNEL,
        &Tiny::KERNEL,
        &MediumAny::KERNEL,
        &SmallAny::KERNEL,
        &TinyAny::KERNEL,
    ];
    /// And their entries.
    pub const ENTRIES: [&Entry; KERNELS.len()] = schedule::entries(KERNELS);

    /// What serves where N is less than a tile.
    const LAST: &Kernel = &Anything::KERNEL;

    /// A variant of two kernels whose blocks share tiles in clusters: one for N a
    /// multiple of four, and one for N as wide as a tile.
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
                    let [four, any] = $kernels;
                    [four.entry, any.entry, LAST.entry]
                },
                plan: |shape, limits| {
                    let schedules = schedule::of_first(1, &$kernels, shape, limits);
                    schedule::fastest(schedules, LAST, shape, limits)
                },
            }
        };
    }

    pub const VARIANTS: &[Variant] = &[
        variant!(
            "split_k_medium",
            "tiles of 128×128, K shared by two groups of warps and the blocks of a cluster",
            [&Medium::KERNEL, &MediumAny::KERNEL]
        ),
        variant!(
            "split_k_small",
            "tiles of 64×128, K shared by four groups of warps and the blocks of a cluster",
            [&Small::KERNEL, &SmallAny::KERNEL]
        ),
        variant!(
            "split_k_tiny",
            "tiles of 32×128, K shared by eight groups of warps and the blocks of a cluster",
            [&Tiny::KERNEL, &TinyAny::KERNEL]
        ),
    ];
}
