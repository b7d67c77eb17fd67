//! The shapes that every variant is tried on.
//!
//! One list serves the tests, the simulator and `matmul verify`, so that no
//! variant misses one. Each stands for a kind of mistake that GEMM programs
//! have made.

use crate::Matrix;
use kernels::gemm::Shape;

/// What the factors hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Uniform in [−1, 1).
    Random,
    /// Small integers that depend on the index: the result is exact.
    IndexCoded,
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// M.
    pub m: u32,
    /// N.
    pub n: u32,
    /// K.
    pub k: u32,
    /// What A and B hold.
    pub data: Data,
    /// The mistake it stands for.
    pub catches: &'static str,
}

impl Case {
    /// Its shape.
    ///
    /// # Panics
    ///
    /// Where a dimension is too large; none in the lists is.
    pub fn shape(&self) -> Shape {
        match Shape::new(self.m.into(), self.n.into(), self.k.into()) {
            Ok(shape) => shape,
            Err(error) => panic!("a case of the list: {error}"),
        }
    }

    /// Its factors, A and B. The same seed gives the same factors.
    pub fn factors(&self, seed: u64) -> (Matrix, Matrix) {
        let (m, n, k) = (self.m as usize, self.n as usize, self.k as usize);
        match self.data {
            Data::Random => (
                Matrix::random(m, k, seed),
                Matrix::random(k, n, seed.wrapping_add(1)),
            ),
            Data::IndexCoded => (
                Matrix::index_coded(m, k, seed),
                Matrix::index_coded(k, n, seed.wrapping_add(1)),
            ),
        }
    }
}

const fn case(m: u32, n: u32, k: u32, data: Data, catches: &'static str) -> Case {
    Case {
        m,
        n,
        k,
        data,
        catches,
    }
}

/// Cases that run anywhere, the simulator included.
pub const SMALL: &[Case] = {
    use Data::{IndexCoded, Random};
    &[
        case(1, 1, 1, Random, "input rounded to a shorter type"),
        case(2, 3, 4, IndexCoded, "row-major and column-major mixed up"),
        case(5, 7, 3, Random, "an edge guard with `or` for `and`"),
        case(16, 16, 16, IndexCoded, "exactly one tile"),
        case(16, 16, 17, IndexCoded, "the tail of K dropped"),
        case(16, 16, 15, IndexCoded, "K shorter than a tile"),
        case(17, 17, 17, Random, "old contents of C leaking in"),
        case(17, 33, 19, Random, "unguarded loads at the edges"),
        case(35, 79, 19, Random, "odd sizes"),
        case(64, 64, 64, IndexCoded, "whole tiles of every size"),
        case(33, 65, 129, IndexCoded, "one past a tile in each dimension"),
        case(16, 16, 0, Random, "K = 0 must write zeros"),
        case(0, 5, 7, Random, "an empty grid"),
        case(5, 0, 7, Random, "an empty grid"),
        case(0, 0, 0, Random, "an empty grid"),
        case(1, 100, 50, IndexCoded, "a single row"),
        case(100, 1, 50, IndexCoded, "a single column"),
        case(100, 100, 1, IndexCoded, "a single product"),
        case(64, 96, 256, Random, "tolerance as K grows"),
    ]
};

/// Cases that want a GPU.
pub const LARGE: &[Case] = {
    use Data::{IndexCoded, Random};
    &[
        case(
            256,
            128,
            256,
            IndexCoded,
            "strides swapped where not square",
        ),
        case(128, 256, 64, IndexCoded, "grid swapped where not square"),
        case(128, 128, 131, Random, "an odd row pitch of A"),
        case(128, 131, 128, Random, "an odd row pitch of B"),
        case(64, 64, 2048, Random, "tolerance as K grows"),
        case(1000, 1000, 1000, Random, "a grid by floor division"),
        case(
            1_048_561,
            1,
            1,
            IndexCoded,
            "more than 65,535 rows of blocks",
        ),
        case(1, 1_048_561, 1, IndexCoded, "a very wide grid"),
        case(127, 255, 1023, IndexCoded, "one short of a tile"),
        case(129, 257, 1025, IndexCoded, "one past a tile"),
        case(3, 3, 100_000, IndexCoded, "a very long K"),
    ]
};

/// `count` random cases with dimensions up to `largest`.
pub fn random(count: usize, largest: u32, seed: u64) -> Vec<Case> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut dimension = || random.u32(1..=largest);
    (0..count)
        .map(|i| Case {
            m: dimension(),
            n: dimension(),
            k: dimension(),
            data: if i % 2 == 0 {
                Data::Random
            } else {
                Data::IndexCoded
            },
            catches: "anything else",
        })
        .collect()
}
