//! The float64 reference for products that are too large for the CPU.
//!
//! It computes what verification compares with: every element of A·B, and of
//! |A|·|B|, which bounds the rounding error of any order of summation. Tests
//! check it against the CPU's.

use crate::gpu::{Global, GlobalMut, math, thread};

/// Width of a tile, and of a block in threads.
pub const TILE: u32 = 16;
const TILE_ELEMENTS: usize = (TILE * TILE) as usize;

kernel! {
    /// `product` (m×n) = A (m×k) · B (k×n) and `magnitude` (m×n) = |A| · |B|,
    /// in float64, from float32 inputs.
    ///
    /// # Safety
    ///
    /// - `a` and `b` point at m·k and k·n elements that nothing writes
    ///   meanwhile.
    /// - `product` and `magnitude` point at m·n elements each, apart from one
    ///   another, that nothing else touches meanwhile.
    /// - Blocks have 16×16 threads.
    pub unsafe fn reference_f64(
        a: Global<f32>, b: Global<f32>, product: GlobalMut<f64>, magnitude: GlobalMut<f64>,
        m: u32, n: u32, k: u32,
    )
    launch_bounds(TILE * TILE)
    shared { tile_a: [f32; TILE_ELEMENTS], tile_b: [f32; TILE_ELEMENTS] }
    {
        // SAFETY: the caller promises matrices of these sizes.
        let (a, b, mut product, mut magnitude) = unsafe {
            (a.matrix(m, k), b.matrix(k, n), product.matrix(m, n), magnitude.matrix(m, n))
        };
        let (x, y) = (thread::thread_idx_x(), thread::thread_idx_y());
        let at = thread::index_2d();
        let (mut sum, mut size) = (0.0, 0.0);
        for step in 0..k.div_ceil(TILE) {
            let k0 = step * TILE;
            let a_element = a.load_or_zero(at.row(), k0 + x);
            let b_element = b.load_or_zero(k0 + y, at.column());
            // SAFETY: x and y are below TILE, each thread writes its own
            // element, and the barrier at the loop's end stands before.
            unsafe {
                tile_a.store(y * TILE + x, a_element);
                tile_b.store(y * TILE + x, b_element);
            }
            // Closes write-before-read.
            thread::sync_threads();
            for i in 0..TILE {
                // SAFETY: x, y and i are below TILE, and the barrier above
                // stands after the writes.
                let (p, q) = unsafe { (tile_a.load(y * TILE + i), tile_b.load(i * TILE + x)) };
                let (p, q) = (f64::from(p), f64::from(q));
                sum = math::fma(p, q, sum);
                size = math::fma(p.abs(), q.abs(), size);
            }
            // Closes read-before-write.
            thread::sync_threads();
        }
        product.set(at, sum);
        magnitude.set(at, size);
    }
}

/// The launch that computes the reference, or none where C is empty.
///
/// Buffers: [`A`](crate::launch::Buffer::A) and
/// [`B`](crate::launch::Buffer::B) hold the factors. The
/// [workspace](crate::launch::Buffer::Workspace) receives M·N elements of the
/// product, then M·N of the magnitude, all float64.
#[cfg(not(target_arch = "nvptx64"))]
pub fn plan(shape: crate::gemm::Shape) -> crate::launch::Plan {
    use crate::launch::{Buffer, Dim3, Plan};

    if shape.is_empty() {
        return Plan::nothing();
    }
    let (m, n, k) = (shape.m(), shape.n(), shape.k());
    // A product too large to count is refused for its memory.
    let bytes = shape.c_elements().saturating_mul(size_of::<f64>() as u64);
    let mut plan = Plan::single(reference_f64::launch(
        Dim3::covering(n.div_ceil(TILE), m.div_ceil(TILE)),
        Dim3::xy(TILE, TILE),
        Buffer::A,
        Buffer::B,
        Buffer::Workspace(0),
        Buffer::Workspace(bytes),
        m,
        n,
        k,
    ));
    plan.workspace_bytes = bytes.saturating_mul(2);
    plan
}
