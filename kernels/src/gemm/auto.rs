//! The variant that suits a shape and a device, without asking.
//!
//! A rule picks the variant, and that picks the tile's size and how tiles are
//! given out:
//!
//! - M = 1 or N = 1: [`matrix_vector`](super::matrix_vector), since nothing can
//!   be shared.
//! - Otherwise [`stream_k`](super::stream_k), where the device has asynchronous
//!   copies.
//! - Otherwise, on compute capability 7.5, the fastest that does without them:
//!   [`double_buffered`](super::double_buffered).
//!
//! This file has no kernel. It is a step of its own because the choice is one.

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use crate::gemm::{ElementType::F32, Shape, Variant, double_buffered, matrix_vector, stream_k};
    use crate::launch::{ComputeCapability, DeviceLimits, Entry, Target};

    /// Several variants' kernels, one after the other.
    const fn joined<const N: usize>(parts: [&[&'static Entry]; 3]) -> [&'static Entry; N] {
        let mut all = [parts[0][0]; N];
        let (mut part, mut to) = (0, 0);
        while part < parts.len() {
            let mut i = 0;
            while i < parts[part].len() {
                all[to] = parts[part][i];
                to += 1;
                i += 1;
            }
            part += 1;
        }
        assert!(to == N, "as many as there are");
        all
    }

    const PARTS: [&[&Entry]; 3] = [CHOICES[0].entries, CHOICES[1].entries, CHOICES[2].entries];

    const CHOICES: [&Variant; 3] = [matrix_vector::BEST, stream_k::BEST, double_buffered::BEST];

    /// The variant for a shape on a device.
    fn choose(shape: Shape, limits: &DeviceLimits) -> &'static Variant {
        let [vector, streamed, plain] = CHOICES;
        if shape.m() == 1 || shape.n() == 1 {
            vector
        } else if streamed.runs_on(limits) {
            streamed
        } else {
            plain
        }
    }

    pub const VARIANTS: &[Variant] = &[Variant {
        name: "auto",
        summary: "the variant that suits the shape and the device",
        source: file!(),
        input: F32,
        accumulator: F32,
        output: F32,
        min_compute_capability: ComputeCapability::new(7, 5),
        needs: Target::BASELINE,
        overlapping_writes: false,
        entries: &joined::<{ PARTS[0].len() + PARTS[1].len() + PARTS[2].len() }>(PARTS),
        plan: |shape, limits| (choose(shape, limits).plan)(shape, limits),
    }];
}
