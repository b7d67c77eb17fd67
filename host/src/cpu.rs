//! Products on the CPU: the baseline, and a fast one beside it.

use crate::Error;
use crate::matrix::{Matrix, product_shape};

/// C = A·B by three nested loops on one core: the baseline that speed-ups over
/// "the CPU" are usually quoted against.
///
/// It is a fair picture of what the loops cost, not of what a CPU can do:
/// compare with [`gemm()`] too.
///
/// # Errors
///
/// [`Error::InnerDimensions`] where A's columns are not as many as B's rows.
pub fn triple_loop(a: &Matrix, b: &Matrix) -> Result<Matrix, Error> {
    product_shape((a.rows(), a.columns()), (b.rows(), b.columns()))?;
    let n = b.columns();
    let mut c = Matrix::zeros(a.rows(), n);
    for i in 0..a.rows() {
        for j in 0..n {
            let mut sum = 0.0;
            for (l, x) in a.row(i).iter().enumerate() {
                sum += x * b.data()[l * n + j];
            }
            c.data_mut()[i * n + j] = sum;
        }
    }
    Ok(c)
}

/// C = A·B by the `gemm` crate on all cores: what a CPU can do.
///
/// # Errors
///
/// [`Error::InnerDimensions`] where A's columns are not as many as B's rows.
pub fn gemm(a: &Matrix, b: &Matrix) -> Result<Matrix, Error> {
    product_shape((a.rows(), a.columns()), (b.rows(), b.columns()))?;
    let mut c = Matrix::zeros(a.rows(), b.columns());
    let (m, n, k) = (a.rows(), b.columns(), a.columns());
    // SAFETY: the pointers cover m·k, k·n and m·n elements with the row-major
    // strides given, and C overlaps neither factor.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.data_mut().as_mut_ptr(),
            1,
            n as isize,
            false,
            a.data().as_ptr(),
            1,
            k as isize,
            b.data().as_ptr(),
            1,
            n as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::Rayon(0),
        );
    }
    Ok(c)
}

/// Cores that [`gemm()`] uses.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_equal_the_definition() {
        for (m, n, k) in [
            (2, 3, 4),
            (1, 1, 1),
            (5, 7, 3),
            (33, 17, 65),
            (4, 4, 0),
            (0, 3, 2),
        ] {
            let a = Matrix::index_coded(m, k, 1);
            let b = Matrix::index_coded(k, n, 2);
            let c = Matrix::from_fn(m, n, |i, j| (0..k).map(|l| a.get(i, l) * b.get(l, j)).sum());
            assert_eq!(triple_loop(&a, &b).unwrap(), c, "triple loop {m}×{n}×{k}");
            assert_eq!(gemm(&a, &b).unwrap(), c, "gemm {m}×{n}×{k}");
        }
    }

    #[test]
    fn a_mismatch_is_an_error() {
        let (a, b) = (Matrix::zeros(3, 4), Matrix::zeros(3, 4));
        assert!(triple_loop(&a, &b).is_err());
        assert!(gemm(&a, &b).is_err());
    }
}
