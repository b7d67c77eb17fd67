//! A kernel of your own, tried on the CPU before it sees a GPU.
//!
//! `cargo run --release --example own_kernel`
//!
//! Moved to a file of `kernels/src/gemm`, with a line in the table there, the
//! kernel and its variant run on the GPU as well.

use host::cases;
use host::verify::Reference;
use host::{Error, Matrix};
use kernels::gemm::{ElementType::F32, Variant};
use kernels::gpu::{Global, GlobalMut, math, thread};
use kernels::kernel;
use kernels::launch::{Buffer, ComputeCapability, Dim3, Plan};
use simulator::Options;

kernel! {
    /// C (m×n) = A (m×k) · B (k×n), each element as the sum of two sums: the
    /// additions of one need not wait for those of the other.
    ///
    /// # Safety
    ///
    /// - `a` and `b` point at m·k and k·n elements that nothing writes
    ///   meanwhile.
    /// - `c` points at m·n elements that nothing else touches meanwhile.
    pub unsafe fn gemm_two_sums(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(256)
    {
        // SAFETY: the caller promises matrices of these sizes.
        let (a, b, mut c) = unsafe { (a.matrix(m, k), b.matrix(k, n), c.matrix(m, n)) };
        let at = thread::index_2d();
        let product = |i, sum| {
            math::fma(a.load_or_zero(at.row(), i), b.load_or_zero(i, at.column()), sum)
        };
        let (mut even, mut odd) = (0.0, 0.0);
        for i in (0..k).step_by(2) {
            even = product(i, even);
            // Past the last column of A this adds zero.
            odd = product(i + 1, odd);
        }
        c.set(at, math::add(even, odd));
    }
}

static TWO_SUMS: Variant = Variant {
    name: "two_sums",
    summary: "one thread for each element of C, as the sum of two sums",
    source: file!(),
    input: F32,
    accumulator: F32,
    output: F32,
    min_compute_capability: ComputeCapability::new(7, 5),
    entries: &[&gemm_two_sums::ENTRY],
    overlapping_writes: false,
    plan: |shape, _| {
        let (m, n, k) = (shape.m(), shape.n(), shape.k());
        Ok(Plan::single(gemm_two_sums::launch(
            Dim3::covering(n.div_ceil(16), m.div_ceil(16)),
            Dim3::xy(16, 16),
            Buffer::A,
            Buffer::B,
            Buffer::C,
            m,
            n,
            k,
        )))
    },
};

/// Runs the example.
pub fn main() -> Result<(), Error> {
    let options = Options::default();
    for case in cases::SMALL {
        let (a, b) = case.factors(1);
        let report = simulator::simulate(&TWO_SUMS, case.shape(), a.data(), b.data(), &options)
            .map_err(Error::Simulation)?;
        let c = Matrix::new(a.rows(), b.columns(), report.c)?;
        let verdict = Reference::on_cpu(&a, &b)?.check(&c)?;
        println!("{:<12} {verdict}", case.shape().to_string());
        assert!(verdict.passed(), "{} at {}", TWO_SUMS.name, case.shape());
    }
    Ok(())
}
