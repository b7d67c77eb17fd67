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
    use crate::gemm::persistent::SmallAny;
    use crate::gemm::{ElementType::F32, Shape, Variant, schedule};
    use crate::gemm::{double_buffered, matrix_vector, split_k, stream_k};
    use crate::launch::{ComputeCapability, DeviceLimits, Entry, Plan, PlanError, Target};

    const VECTOR: &Variant = &matrix_vector::VARIANTS[0];
    const STREAMED: &Variant = &stream_k::VARIANTS[0];
    const PLAIN: &Variant = &double_buffered::VARIANTS[0];
    const COUNT: usize = VECTOR.entries.len()
        + STREAMED.entries.len()
        + split_k::ENTRIES.len()
        + PLAIN.entries.len();
    /// Kernels that this variant launches. All of `stream_k` name the same.
    const ENTRIES: [&Entry; COUNT] = schedule::joined(&[
        VECTOR.entries,
        STREAMED.entries,
        &split_k::ENTRIES,
        PLAIN.entries,
    ]);

    fn plan(shape: Shape, limits: &DeviceLimits) -> Result<Plan, PlanError> {
        if shape.m() == 1 || shape.n() == 1 {
            VECTOR.plan(shape, limits)
        } else if STREAMED.runs_on(limits) {
            let candidates = schedule::candidates(shape, limits);
            schedule::fastest(candidates, &SmallAny::KERNEL, shape, limits)
        } else {
            PLAIN.plan(shape, limits)
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
        entries: &ENTRIES,
        plan,
    }];
}
