//! The variant that suits a shape and a device, without asking.
//!
//! - M = 1 or N = 1: [`matrix_vector`](super::matrix_vector), since nothing can
//!   be shared.
//! - Otherwise, where the device has asynchronous copies, whichever
//!   [schedule](super::schedule) of all is the fastest by what `matmul tune`
//!   measured: a kernel's size, and how its tiles are given out.
//! - Otherwise, on compute capability 7.5, the fastest that does without them:
//!   [`double_buffered`](super::double_buffered).
//!
//! This file has no kernel. It is a step of its own because the choice is one.

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::VARIANTS;

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use crate::gemm::persistent::SMALL_ANY;
    use crate::gemm::{ElementType::F32, Shape, Variant, schedule};
    use crate::gemm::{double_buffered, matrix_vector, split_k, stream_k};
    use crate::launch::{ComputeCapability, DeviceLimits, Entry, Plan, PlanError, Target};

    /// Variants whose kernels this one launches.
    const FROM: [&[Variant]; 4] = [
        matrix_vector::VARIANTS,
        stream_k::VARIANTS,
        split_k::VARIANTS,
        double_buffered::VARIANTS,
    ];

    /// Their kernels, each once.
    const ENTRIES: ([&Entry; 32], usize) = {
        let mut all = [FROM[0][0].entries[0]; 32];
        let (mut count, mut from) = (0, 0);
        while from < FROM.len() {
            let mut variant = 0;
            while variant < FROM[from].len() {
                let entries = FROM[from][variant].entries;
                let mut i = 0;
                while i < entries.len() {
                    let (mut other, mut new) = (0, true);
                    while other < count {
                        new &= !same(all[other].name, entries[i].name);
                        other += 1;
                    }
                    if new {
                        all[count] = entries[i];
                        count += 1;
                    }
                    i += 1;
                }
                variant += 1;
            }
            from += 1;
        }
        (all, count)
    };

    /// `a == b`, for constants.
    const fn same(a: &str, b: &str) -> bool {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let mut i = 0;
        while i < a.len() && i < b.len() && a[i] == b[i] {
            i += 1;
        }
        i == a.len() && i == b.len()
    }

    fn plan(shape: Shape, limits: &DeviceLimits) -> Result<Plan, PlanError> {
        let [vector, streamed, _, plain] = FROM.map(|variants| &variants[0]);
        if shape.m() == 1 || shape.n() == 1 {
            vector.plan(shape, limits)
        } else if streamed.runs_on(limits) {
            let candidates = schedule::candidates(shape, limits);
            schedule::fastest(candidates, &SMALL_ANY, shape, limits)
        } else {
            plain.plan(shape, limits)
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
        entries: ENTRIES.0.split_at(ENTRIES.1).0,
        plan,
    }];
}
