//! Matrices on the host.

use crate::Error;
use kernels::gemm::Shape;
use std::fmt;

/// A row-major matrix of `f32` in ordinary host memory.
#[derive(Clone, PartialEq)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    data: Vec<f32>,
}

impl Matrix {
    /// A matrix of `rows` × `columns` whose rows follow one another in `data`.
    ///
    /// # Errors
    ///
    /// [`Error::DataLength`] where `data` does not have `rows` · `columns`
    /// elements.
    pub fn new(rows: usize, columns: usize, data: Vec<f32>) -> Result<Self, Error> {
        if rows.checked_mul(columns) != Some(data.len()) {
            return Err(Error::DataLength {
                rows,
                columns,
                found: data.len(),
            });
        }
        Ok(Self {
            rows,
            columns,
            data,
        })
    }

    /// The matrix whose element in row i and column j is `element(i, j)`.
    pub fn from_fn(
        rows: usize,
        columns: usize,
        mut element: impl FnMut(usize, usize) -> f32,
    ) -> Self {
        let data = (0..rows)
            .flat_map(|i| (0..columns).map(move |j| (i, j)))
            .map(|(i, j)| element(i, j))
            .collect();
        Self {
            rows,
            columns,
            data,
        }
    }

    /// A matrix of zeros.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self::from_fn(rows, columns, |_, _| 0.0)
    }

    /// Uniform random numbers in [−1, 1). The same seed gives the same matrix.
    pub fn random(rows: usize, columns: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self::from_fn(rows, columns, |_, _| random.f32() * 2.0 - 1.0)
    }

    /// Small integers that depend on the row, the column and `code`.
    ///
    /// A product of two such matrices has exact sums in float32 as long as
    /// 36·K < 2^24, whatever the order of summation. A correct kernel then gives
    /// exactly the right result, and one that drops, repeats or swaps an index
    /// does not: neighbours differ, and so do rows and columns.
    pub fn index_coded(rows: usize, columns: usize, code: u64) -> Self {
        Self::from_fn(rows, columns, |i, j| {
            // A hash, so that no two rows or columns are shifted copies of each
            // other. The constants are those of SplitMix64.
            let mut hash = (i as u64) << 32 ^ j as u64 ^ code << 17;
            hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((hash ^ hash >> 31) % 13) as f32 - 6.0
        })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The elements, row after row.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// The elements, row after row.
    pub fn data_mut(&mut self) -> &mut [f32] {
        &mut self.data
    }

    /// The elements, row after row, without the matrix.
    pub fn into_data(self) -> Vec<f32> {
        self.data
    }

    /// The element in row `i` and column `j`.
    ///
    /// # Panics
    ///
    /// Where there is no such element.
    pub fn get(&self, i: usize, j: usize) -> f32 {
        assert!(
            i < self.rows && j < self.columns,
            "({i}, {j}) lies outside a matrix of {}×{}",
            self.rows,
            self.columns
        );
        self.data[i * self.columns + j]
    }

    /// Row `i`.
    ///
    /// # Panics
    ///
    /// Where there is no such row.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.columns..(i + 1) * self.columns]
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({}×{})", self.rows, self.columns)
    }
}

/// The shape of the product of two matrices, each given as (rows, columns).
///
/// # Errors
///
/// [`Error::InnerDimensions`] where A's columns are not as many as B's rows,
/// [`Error::Shape`] where a dimension is too large.
pub fn product_shape(a: (usize, usize), b: (usize, usize)) -> Result<Shape, Error> {
    if a.1 != b.0 {
        return Err(Error::InnerDimensions { a, b });
    }
    Ok(Shape::new(a.0 as u64, b.1 as u64, a.1 as u64)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_must_fill_the_matrix() {
        assert!(Matrix::new(2, 3, vec![0.0; 6]).is_ok());
        let error = Matrix::new(2, 3, vec![0.0; 5]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a matrix of 2×3 has 6 elements, and 5 were given"
        );
        assert!(Matrix::new(usize::MAX, 2, vec![]).is_err());
    }

    #[test]
    fn rows_are_contiguous() {
        let matrix = Matrix::from_fn(2, 3, |i, j| (10 * i + j) as f32);
        assert_eq!(matrix.data(), [0.0, 1.0, 2.0, 10.0, 11.0, 12.0]);
        assert_eq!(matrix.row(1), [10.0, 11.0, 12.0]);
        assert_eq!(matrix.get(1, 2), 12.0);
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(Matrix::random(5, 7, 3), Matrix::random(5, 7, 3));
        assert_ne!(Matrix::random(5, 7, 3), Matrix::random(5, 7, 4));
        let matrix = Matrix::random(50, 50, 1);
        assert!(matrix.data().iter().all(|x| (-1.0..1.0).contains(x)));
    }

    #[test]
    fn index_coded_rows_and_columns_all_differ() {
        let matrix = Matrix::index_coded(64, 64, 1);
        let column = |j| (0..64).map(|i| matrix.get(i, j)).collect::<Vec<_>>();
        for i in 0..64 {
            for j in 0..i {
                assert_ne!(matrix.row(i), matrix.row(j));
                assert_ne!(column(i), column(j));
            }
            assert_ne!(matrix.row(i), column(i));
        }
        assert!(
            matrix
                .data()
                .iter()
                .all(|x| x.fract() == 0.0 && x.abs() <= 6.0)
        );
    }

    #[test]
    fn a_mismatch_names_both_shapes() {
        let error = product_shape((320, 320), (640, 320)).unwrap_err();
        assert!(error.to_string().contains("320×320"), "{error}");
        assert!(error.to_string().contains("640×320"), "{error}");
    }
}
