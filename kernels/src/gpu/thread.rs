//! Where a thread stands in the grid, and barriers among a block's threads.
//!
//! The functions are named as `cuda_std::thread` names them.

use super::backend;

macro_rules! position {
    ($($name:ident: $what:literal;)*) => {$(
        #[doc = concat!($what, ".")]
        #[inline(always)]
        pub fn $name() -> u32 {
            backend::$name()
        }
    )*};
}

position! {
    thread_idx_x: "This thread's index in its block, along x";
    thread_idx_y: "This thread's index in its block, along y";
    thread_idx_z: "This thread's index in its block, along z";
    block_idx_x: "This block's index in the grid, along x";
    block_idx_y: "This block's index in the grid, along y";
    block_idx_z: "This block's index in the grid, along z";
    block_dim_x: "Threads in a block along x";
    block_dim_y: "Threads in a block along y";
    block_dim_z: "Threads in a block along z";
    grid_dim_x: "Blocks in the grid along x";
    grid_dim_y: "Blocks in the grid along y";
    grid_dim_z: "Blocks in the grid along z";
}

/// Waits until every thread of the block has come here.
///
/// What a thread wrote to shared or global memory before the barrier is visible
/// to the block's other threads after it. Every thread of the block must reach
/// the same barrier: one that returned early or took another branch leaves the
/// others waiting.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn sync_threads() {
    backend::sync_threads();
}

/// An index that no other thread of the grid has.
///
/// It comes from [`index_1d`] alone, so holding one proves that an element at
/// this index belongs to this thread.
#[derive(Clone, Copy)]
pub struct Index1d(u64);

impl Index1d {
    /// The index as a number.
    #[inline(always)]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// This thread's index among all threads of a one-dimensional grid.
///
/// A thread that stands off the x axis, in a grid or block with more than one
/// dimension, gets an index past the end of everything, so that no two threads
/// share one.
#[inline(always)]
pub fn index_1d() -> Index1d {
    let off_axis = thread_idx_y() | thread_idx_z() | block_idx_y() | block_idx_z();
    if off_axis != 0 {
        return Index1d(u64::MAX);
    }
    Index1d(u64::from(block_idx_x()) * u64::from(block_dim_x()) + u64::from(thread_idx_x()))
}

/// A row and a column that no other thread of the grid has.
///
/// It comes from [`index_2d`] or [`index_2d_transposed`] alone, so holding one
/// proves that the element there belongs to this thread, as long as all threads
/// take theirs from the same of the two. Who makes a
/// [`MatrixMut`](super::MatrixMut) promises that.
#[derive(Clone, Copy)]
pub struct Index2d {
    row: u32,
    column: u32,
}

impl Index2d {
    /// The row: y in the grid.
    #[inline(always)]
    pub fn row(self) -> u32 {
        self.row
    }

    /// The column: x in the grid.
    #[inline(always)]
    pub fn column(self) -> u32 {
        self.column
    }
}

/// The index of this block's row of blocks.
///
/// A grid has at most 65,535 blocks along y, too few for a tall matrix. The
/// grid continues along z: row of blocks r is block (r % grid_dim_y) along y
/// and (r / grid_dim_y) along z. `launch::Dim3::covering` makes such grids.
#[inline(always)]
pub fn block_row() -> u32 {
    block_idx_z() * grid_dim_y() + block_idx_y()
}

/// This thread's row and column in a grid that gives each thread one element.
///
/// Columns run along x and rows along y, so that the 32 threads of a warp,
/// neighbours along x, touch neighbouring elements of a row-major matrix. Rows
/// continue along z as [`block_row`] says.
///
/// Where the row would not fit in 32 bits, or the block has a third dimension,
/// the row is past the end of every matrix, so that no two threads share an
/// element.
#[inline(always)]
pub fn index_2d() -> Index2d {
    let row = u64::from(block_row()) * u64::from(block_dim_y()) + u64::from(thread_idx_y());
    let column = u64::from(block_idx_x()) * u64::from(block_dim_x()) + u64::from(thread_idx_x());
    let outside = thread_idx_z() != 0 || row > u64::from(u32::MAX) || column > u64::from(u32::MAX);
    Index2d {
        row: if outside { u32::MAX } else { row as u32 },
        column: column as u32,
    }
}

/// This thread's row and column in a grid that gives each thread one element,
/// rows along x and columns along y: the other way round than [`index_2d`].
///
/// The threads of a warp then touch elements that lie a whole row apart. That
/// is what no kernel wants, and what one shows.
#[inline(always)]
pub fn index_2d_transposed() -> Index2d {
    let Index2d { row, column } = index_2d();
    // `index_2d` puts what lies outside at the largest row. A column there is
    // outside just as well.
    Index2d {
        row: column,
        column: row,
    }
}
