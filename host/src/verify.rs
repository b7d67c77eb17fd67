//! Verification: the float64 reference and the error bound.
//!
//! A computed element c is right when
//!
//! |c − ref| ≤ bound(K) · (|A|·|B|) + K · 2^−149
//!
//! where ref = A·B and |A|·|B| are computed in float64. Rounding errors of any
//! order of summation scale with |A|·|B|, not with the result, which may cancel.
//! The last term covers rounding among subnormals. NaN never passes unless the
//! reference is NaN.
//!
//! # The bound
//!
//! With u = 2^−24, half the spacing of float32 at 1, the error of a sum of K
//! products is at most γ(K) = K·u / (1 − K·u) relative to |A|·|B| (Higham,
//! *Accuracy and Stability of Numerical Algorithms*, section 3.1). That is sound
//! for all inputs, but so wide at large K that a missing product passes. For
//! data whose rounding errors are independent, it is at most λ·√K·u with
//! probability 1 − 2·exp(−λ²/2) for each element (Higham and Mary, *A New
//! Approach to Probabilistic Rounding Error Analysis*, SIAM J. Sci. Comput.,
//! 2019). [`bound`] takes the smaller of the two, with λ = 8: two chances in
//! 10^14 for each element.

use crate::matrix::{Matrix, product_shape};
use crate::{DeviceMatrix, Error, Gpu};
use kernels::gemm::Shape;
use std::fmt;

/// Half the spacing of float32 numbers at 1: 2^−24.
const UNIT_ROUNDOFF: f64 = 1.0 / (1u64 << 24) as f64;

/// The least subnormal float32: 2^−149.
const LEAST_SUBNORMAL: f64 = 1.401298464324817e-45;

/// The largest error of a float32 sum of `k` products that counts as right,
/// relative to the sum of their magnitudes. See the [module](self).
pub fn bound(k: u32) -> f64 {
    const LAMBDA: f64 = 8.0;
    let k = f64::from(k);
    let always = if k * UNIT_ROUNDOFF < 1.0 {
        k * UNIT_ROUNDOFF / (1.0 - k * UNIT_ROUNDOFF)
    } else {
        f64::INFINITY
    };
    always.min(LAMBDA * k.sqrt() * UNIT_ROUNDOFF)
}

/// What an element is compared with.
#[derive(Clone, Debug)]
pub struct Reference {
    rows: usize,
    columns: usize,
    k: u32,
    /// A·B in float64, row-major.
    product: Vec<f64>,
    /// |A|·|B| in float64, row-major.
    magnitude: Vec<f64>,
}

/// Products beyond which [`Reference::new`] takes the GPU: about a second of
/// the CPU's time.
const CPU_PRODUCTS: f64 = 2e9;

impl Reference {
    /// The reference computed on the CPU, on all cores.
    ///
    /// # Errors
    ///
    /// [`Error::InnerDimensions`] where A's columns are not as many as B's
    /// rows.
    pub fn on_cpu(a: &Matrix, b: &Matrix) -> Result<Self, Error> {
        let shape = product_shape((a.rows(), a.columns()), (b.rows(), b.columns()))?;
        let (m, n) = (a.rows(), b.columns());
        let mut product = vec![0.0; m * n];
        let mut magnitude = vec![0.0; m * n];
        if !shape.is_empty() {
            let rows_each = m.div_ceil(crate::cpu::cores());
            std::thread::scope(|scope| {
                let chunks = product
                    .chunks_mut(rows_each * n)
                    .zip(magnitude.chunks_mut(rows_each * n));
                for (chunk, (product, magnitude)) in chunks.enumerate() {
                    scope.spawn(move || {
                        let rows = product.chunks_mut(n).zip(magnitude.chunks_mut(n));
                        for (i, (product, magnitude)) in rows.enumerate() {
                            reference_row(a.row(chunk * rows_each + i), b, product, magnitude);
                        }
                    });
                }
            });
        }
        Ok(Self {
            rows: m,
            columns: n,
            k: shape.k(),
            product,
            magnitude,
        })
    }

    /// The reference computed on the GPU, for products too large for the CPU.
    ///
    /// # Errors
    ///
    /// Those of a launch: too little memory, or the driver's.
    pub fn on_gpu(gpu: &Gpu, a: &DeviceMatrix, b: &DeviceMatrix) -> Result<Self, Error> {
        let shape = product_shape((a.rows(), a.columns()), (b.rows(), b.columns()))?;
        let (product, magnitude) = crate::launch::reference(gpu, shape, a, b)?;
        Ok(Self {
            rows: a.rows(),
            columns: b.columns(),
            k: shape.k(),
            product,
            magnitude,
        })
    }

    /// The reference, on the CPU for small products and else on the GPU.
    ///
    /// # Errors
    ///
    /// As [`on_cpu`](Self::on_cpu) and [`on_gpu`](Self::on_gpu).
    pub fn new(
        gpu: &Gpu,
        (a, device_a): (&Matrix, &DeviceMatrix),
        (b, device_b): (&Matrix, &DeviceMatrix),
    ) -> Result<Self, Error> {
        let shape = product_shape((a.rows(), a.columns()), (b.rows(), b.columns()))?;
        if Self::suits_cpu(shape) {
            Self::on_cpu(a, b)
        } else {
            Self::on_gpu(gpu, device_a, device_b)
        }
    }

    fn suits_cpu(shape: Shape) -> bool {
        shape.flops() / 2.0 <= CPU_PRODUCTS
    }

    /// Device memory that [`Reference::new`] takes for itself, in bytes.
    pub(crate) fn device_bytes(shape: Shape) -> u64 {
        if Self::suits_cpu(shape) {
            0
        } else {
            kernels::reference::plan(shape).workspace_bytes
        }
    }

    /// A·B in float64, row-major.
    pub fn product(&self) -> &[f64] {
        &self.product
    }

    /// |A|·|B| in float64, row-major.
    pub fn magnitude(&self) -> &[f64] {
        &self.magnitude
    }

    /// Compares a float32 result with the reference, element by element.
    ///
    /// # Errors
    ///
    /// [`Error::MatrixShape`] where `c` has another shape.
    pub fn check(&self, c: &Matrix) -> Result<Verdict, Error> {
        let relative = bound(self.k);
        let absolute = f64::from(self.k) * LEAST_SUBNORMAL;
        self.check_by(c, |_, magnitude| relative * magnitude + absolute)
    }

    /// Compares a result of another precision with the reference: `allowed`
    /// gives the largest right error of an element from its A·B and |A|·|B|.
    ///
    /// # Errors
    ///
    /// [`Error::MatrixShape`] where `c` has another shape.
    pub fn check_by(
        &self,
        c: &Matrix,
        allowed: impl Fn(f64, f64) -> f64,
    ) -> Result<Verdict, Error> {
        let expected = (self.rows, self.columns);
        let found = (c.rows(), c.columns());
        if expected != found {
            return Err(Error::MatrixShape {
                name: "C",
                expected,
                found,
            });
        }
        let mut verdict = Verdict {
            worst: 0.0,
            wrong: 0,
            first_wrong: None,
        };
        let elements = c.data().iter().zip(&self.product).zip(&self.magnitude);
        for (at, ((&found, &reference), &magnitude)) in elements.enumerate() {
            let allowed = allowed(reference, magnitude);
            let error = (f64::from(found) - reference).abs();
            if is_right(found, reference, allowed) {
                if allowed > 0.0 && error.is_finite() && allowed.is_finite() {
                    verdict.worst = verdict.worst.max(error / allowed);
                }
            } else {
                verdict.wrong += 1;
                verdict.worst = f64::INFINITY;
                verdict.first_wrong.get_or_insert(WrongElement {
                    row: at / self.columns,
                    column: at % self.columns,
                    found,
                    reference,
                    allowed,
                });
            }
        }
        Ok(verdict)
    }
}

/// Adds up one row of the reference.
fn reference_row(a: &[f32], b: &Matrix, product: &mut [f64], magnitude: &mut [f64]) {
    for (l, &x) in a.iter().enumerate() {
        let x = f64::from(x);
        let outputs = product.iter_mut().zip(magnitude.iter_mut());
        for (&y, (product, magnitude)) in b.row(l).iter().zip(outputs) {
            let term = x * f64::from(y);
            *product += term;
            *magnitude += term.abs();
        }
    }
}

fn is_right(found: f32, reference: f64, allowed: f64) -> bool {
    if reference.is_nan() {
        return found.is_nan();
    }
    if reference.is_infinite() {
        return f64::from(found) == reference;
    }
    // A finite sum whose magnitude passes float32's range may overflow there.
    let may_overflow = reference.abs() + allowed > f64::from(f32::MAX);
    if may_overflow && found.is_infinite() {
        return f64::from(found).is_sign_positive() == reference.is_sign_positive();
    }
    // False for NaN, as it must be.
    (f64::from(found) - reference).abs() <= allowed
}

/// How a result compares with the reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The largest error as a share of what is allowed; infinite where an
    /// element is wrong.
    pub worst: f64,
    /// How many elements are wrong.
    pub wrong: u64,
    /// The first of them.
    pub first_wrong: Option<WrongElement>,
}

impl Verdict {
    /// Whether every element is right.
    pub fn passed(&self) -> bool {
        self.wrong == 0
    }
}

/// What NVIDIA's matrixMul sample fills A and B with.
pub const SAMPLE_VALUES: (f32, f32) = (1.0, 0.01);

/// What [`sample_error`] may be, according to NVIDIA's matrixMul sample.
pub const SAMPLE_LIMIT: f64 = 1e-6;

/// The error as NVIDIA's matrixMul sample computes it: the largest
/// |c − ref| / |c| / K with ref = K · 0.01, where A is full of 1 and B of 0.01.
///
/// Constant factors hide every mistake of indexing, so this says little; it is
/// for those who compare with the sample. Not a number where an element is not.
pub fn sample_error(c: &Matrix, k: u32) -> f64 {
    let reference = f64::from(k) * f64::from(SAMPLE_VALUES.1);
    let errors = c.data().iter().map(|&found| {
        let found = f64::from(found);
        let error = (found - reference).abs();
        if error == 0.0 {
            0.0
        } else {
            error / found.abs() / f64::from(k.max(1))
        }
    });
    errors.fold(0.0, |largest, error| {
        // `f64::max` would drop a NaN.
        if error.is_nan() || error > largest {
            error
        } else {
            largest
        }
    })
}

/// An element that is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WrongElement {
    /// Its row.
    pub row: usize,
    /// Its column.
    pub column: usize,
    /// What was computed.
    pub found: f32,
    /// What is right, in float64.
    pub reference: f64,
    /// How far from it a right result may lie.
    pub allowed: f64,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.first_wrong {
            None => write!(
                f,
                "PASS, largest error {:.3} of what is allowed",
                self.worst
            ),
            Some(wrong) => write!(
                f,
                "FAIL, {} wrong element{}, the first C[{}, {}] = {} where {} ± {:e} is right",
                self.wrong,
                if self.wrong == 1 { "" } else { "s" },
                wrong.row,
                wrong.column,
                wrong.found,
                wrong.reference,
                wrong.allowed
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(m: usize, n: usize, k: usize) -> (Matrix, Reference) {
        let (a, b) = (Matrix::random(m, k, 1), Matrix::random(k, n, 2));
        let c = crate::cpu::triple_loop(&a, &b).unwrap();
        (c, Reference::on_cpu(&a, &b).unwrap())
    }

    #[test]
    fn the_reference_equals_the_definition() {
        let (a, b) = (Matrix::index_coded(7, 5, 1), Matrix::index_coded(5, 9, 2));
        let reference = Reference::on_cpu(&a, &b).unwrap();
        for i in 0..7 {
            for j in 0..9 {
                let terms = (0..5).map(|l| f64::from(a.get(i, l)) * f64::from(b.get(l, j)));
                assert_eq!(reference.product()[i * 9 + j], terms.clone().sum::<f64>());
                assert_eq!(
                    reference.magnitude()[i * 9 + j],
                    terms.map(f64::abs).sum::<f64>()
                );
            }
        }
    }

    #[test]
    fn a_right_product_passes_at_every_k() {
        for k in [0, 1, 2, 17, 256, 2048] {
            let (c, reference) = product(16, 16, k);
            let verdict = reference.check(&c).unwrap();
            assert!(verdict.passed(), "K = {k}: {verdict}");
        }
    }

    #[test]
    fn nan_fails_and_is_named() {
        let (mut c, reference) = product(4, 5, 6);
        c.data_mut()[2 * 5 + 3] = f32::NAN;
        let verdict = reference.check(&c).unwrap();
        assert!(!verdict.passed());
        let first = verdict.first_wrong.unwrap();
        assert_eq!((first.row, first.column), (2, 3));
        assert!(verdict.to_string().contains("C[2, 3] = NaN"), "{verdict}");
    }

    #[test]
    fn one_missing_product_fails_also_at_large_k() {
        for k in [1, 17, 300, 4096] {
            let (a, b) = (Matrix::random(8, k, 1), Matrix::random(k, 8, 2));
            let reference = Reference::on_cpu(&a, &b).unwrap();
            let mut c = crate::cpu::triple_loop(&a, &b).unwrap();
            for i in 0..8 {
                for j in 0..8 {
                    c.data_mut()[i * 8 + j] -= a.get(i, k - 1) * b.get(k - 1, j);
                }
            }
            let verdict = reference.check(&c).unwrap();
            // A single product may be near zero by chance; most are not.
            assert!(verdict.wrong > 48, "K = {k}: {} of 64", verdict.wrong);
        }
    }

    #[test]
    fn special_values_are_compared_as_such() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        assert!(is_right(f32::NAN, nan, nan));
        assert!(!is_right(0.0, nan, nan));
        assert!(is_right(f32::INFINITY, inf, inf));
        assert!(!is_right(f32::NEG_INFINITY, inf, inf));
        assert!(!is_right(1.0, inf, inf));
        assert!(!is_right(f32::INFINITY, 1.0, 0.1));
        // 2·f32::MAX overflows to infinity, as IEEE says.
        assert!(is_right(f32::INFINITY, 2.0 * f64::from(f32::MAX), 1e32));
        assert!(!is_right(
            f32::NEG_INFINITY,
            2.0 * f64::from(f32::MAX),
            1e32
        ));
        assert!(!is_right(f32::NAN, 1.0, inf));
    }

    #[test]
    fn the_samples_check_is_the_samples() {
        let (a, b) = (
            Matrix::from_fn(5, 320, |_, _| SAMPLE_VALUES.0),
            Matrix::from_fn(320, 7, |_, _| SAMPLE_VALUES.1),
        );
        let mut c = crate::cpu::triple_loop(&a, &b).unwrap();
        assert!(sample_error(&c, 320) < SAMPLE_LIMIT);
        c.data_mut()[3] *= 1.01;
        assert!(sample_error(&c, 320) > SAMPLE_LIMIT);
        c.data_mut()[3] = f32::NAN;
        assert!(sample_error(&c, 320).is_nan());
        c.data_mut()[3] = 0.0;
        assert_eq!(sample_error(&c, 320), f64::INFINITY);
    }

    #[test]
    fn the_bound_grows_as_the_analysis_says() {
        assert_eq!(bound(0), 0.0);
        assert!(bound(1) >= UNIT_ROUNDOFF && bound(1) < 1.001 * UNIT_ROUNDOFF);
        assert_eq!(bound(4096), 8.0 * 64.0 * UNIT_ROUNDOFF);
        assert!(bound(u32::MAX).is_finite());
    }
}
