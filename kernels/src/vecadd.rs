//! Vector addition: the first kernel to read.
//!
//! A kernel is a function that many threads run at once. They are launched in
//! blocks of equal size, and the blocks form a grid. Thread `i` of the whole
//! grid computes element `i` of the result.
//!
//! The grid is a whole number of blocks, so the last block may have threads
//! that lie past the end of the vectors. `get` and `set` check the bounds, so
//! such a thread reads nothing and writes nothing.

use crate::gpu::{Global, GlobalMut, math, thread};

/// Threads in a block. A multiple of 32, the number of threads in a warp.
pub const BLOCK: u32 = 256;

kernel! {
    /// c\[i\] = a\[i\] + b\[i\] for every i below n.
    ///
    /// # Safety
    ///
    /// - `a` and `b` point at `n` elements each that nothing writes meanwhile.
    /// - `c` points at `n` elements that nothing else reads or writes meanwhile.
    pub unsafe fn vecadd(a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, n: u32)
    launch_bounds(BLOCK)
    {
        // SAFETY: the caller promises n elements behind each pointer, and that
        // no one else touches them.
        let (a, b, mut c) = unsafe { (a.slice(n), b.slice(n), c.slice(n)) };
        let i = thread::index_1d();
        if let (Some(x), Some(y)) = (a.get(i), b.get(i)) {
            c.set(i, math::add(x, y));
        }
    }
}

/// The launch that adds two vectors of `n` elements, or none where n is 0.
///
/// Buffers: [`A`](crate::launch::Buffer::A) and
/// [`B`](crate::launch::Buffer::B) hold the terms,
/// [`C`](crate::launch::Buffer::C) the sum.
#[cfg(not(target_arch = "nvptx64"))]
pub fn plan(n: u32) -> crate::launch::Plan {
    use crate::launch::{Buffer, Dim3, Plan};

    if n == 0 {
        return Plan::nothing();
    }
    Plan::single(vecadd::launch(
        Dim3::x(n.div_ceil(BLOCK)),
        Dim3::x(BLOCK),
        Buffer::A,
        Buffer::B,
        Buffer::C,
        n,
    ))
}
