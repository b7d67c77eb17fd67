//! Stream-K: blocks share the steps of the last tiles evenly.
//!
//! A device runs so many blocks at a time. Tiles that are no multiple of that
//! leave some of it idle in the last round: 512 tiles on 132 multiprocessors
//! take four rounds, and 3.88 would do. And a product of few tiles uses few
//! multiprocessors, however long its K.
//!
//! What changed since [`persistent`](super::persistent), whose kernels these
//! are: the tiles of the last round are not given out whole. Their steps along K
//! are counted through, tile after tile, and each block takes an equal share of
//! them, wherever that begins and ends.
//!
//! ```text
//!           tile 0            tile 1            tile 2
//!  steps   ├─────────────────┼─────────────────┼─────────────────┤
//!  blocks  ├───── 0 ────┼──── 1 ─────┼──── 2 ─────┼───── 3 ──────┤
//!  parts    0 begins here 1   1 ends  2  2 ends     3
//! ```
//!
//! A block whose share is less than a tile leaves its sums, its part, in the
//! workspace: in one piece for the tile in which its share begins, in a second
//! for the tile in which it ends. A second launch adds up each tile's parts, in
//! the order of the blocks: the same inputs give the same bits each time, which
//! atomic additions would not.
//!
//! Splitting K for a product of few tiles is the same thing, with all tiles in
//! the last round.

#![cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_80"))]

use super::persistent::{Place, place};
use crate::gpu::{Global, GlobalMut, Shared, math, thread};

/// Threads in a block that adds up parts.
pub const THREADS: u32 = 128;
/// Numbers that such a block holds: four a thread.
const HELD: usize = 4 * THREADS as usize;

/// What adds up parts must know of the launch that made them.
#[derive(Clone, Copy)]
struct Parts {
    /// Rows and columns of C.
    m: u32,
    n: u32,
    /// Rows and columns of a tile.
    bm: u32,
    bn: u32,
    /// Steps of a tile.
    steps: u32,
    /// The last column in which a tile may begin.
    last: u32,
    /// The first tile that was streamed.
    whole: u32,
    /// Steps that each block took.
    share: u32,
    /// Teams of threads that split a tile's parts among themselves.
    teams: u32,
}

/// Adds up the parts of THREADS / teams · 4 neighbouring elements of a tile.
///
/// Threads stand in `teams` teams. Thread t of a team adds four elements of
/// every part that is the team's, and the first team adds up what all have.
///
/// # Safety
///
/// - `from` holds the parts that blocks left.
/// - `c` holds M·N elements that nothing else touches meanwhile.
#[inline(always)]
unsafe fn add_parts(held: Shared<f32, HELD>, from: Global<f32>, c: GlobalMut<f32>, parts: Parts) {
    let Parts {
        bm,
        bn,
        steps,
        share,
        teams,
        ..
    } = parts;
    let width = THREADS / teams;
    let streamed = thread::block_idx_y();
    let t = thread::thread_idx_x();
    let (team, lane) = (t / width, t % width);
    // The thread's first element, of a tile row by row.
    let element = (thread::block_idx_x() * width + lane) * 4;

    let tile_first = streamed * steps;
    let (first, last) = (tile_first / share, (tile_first + steps - 1) / share);
    // One block computed the tile as a whole, and wrote it to C.
    if first == last {
        return;
    }
    let tile = parts.whole + streamed;
    let Place {
        row0,
        column0,
        skip,
    } = place(tile, parts.m, parts.n, bm, bn, parts.last);
    let (row, column) = (row0 + element / bn, column0 + element % bn);
    // Blocks whose parts this team adds up: none where the elements lie outside
    // C, which has no parts there.
    let count = (last - first + 1).div_ceil(teams);
    let mut block = first + team * count;
    let mut end = block;
    if row < parts.m && column < parts.n {
        end = if block + count < last + 1 {
            block + count
        } else {
            last + 1
        };
    }
    let part = |block: u32| {
        // The tile's first block may have begun before it. It is the only one.
        let piece = 2 * block + u32::from(block * share < tile_first);
        let at = u64::from(piece) * u64::from(bm * bn) + u64::from(element);
        // SAFETY: the caller of this closure sees to `block` being one that left
        // this piece. Elements of a piece are a multiple of four, in memory that
        // starts at a multiple of 16 bytes.
        unsafe { from.load_4(at) }
    };
    let mut sums = [0.0; 4];
    let mut add = |four: [f32; 4]| {
        for (sum, value) in sums.iter_mut().zip(&four) {
            *sum = math::add(*sum, *value);
        }
    };
    // Four loads under way at a time.
    while block + 4 <= end {
        let fours = [
            part(block),
            part(block + 1),
            part(block + 2),
            part(block + 3),
        ];
        add(fours[0]);
        add(fours[1]);
        add(fours[2]);
        add(fours[3]);
        block += 4;
    }
    while block < end {
        add(part(block));
        block += 1;
    }
    if teams > 1 {
        // SAFETY: each thread writes its own four, and reads others' after the
        // barrier.
        unsafe { held.store_4(4 * t, sums) };
        // Closes write-before-read.
        thread::sync_threads();
        if team != 0 {
            return;
        }
        for other in 1..teams {
            // SAFETY: as above.
            let four = unsafe { held.load_4(4 * (other * width + lane)) };
            for (sum, value) in sums.iter_mut().zip(&four) {
                *sum = math::add(*sum, *value);
            }
        }
    }
    // SAFETY: the caller promises C, and no other thread has these elements.
    unsafe {
        let mut c = c.matrix(parts.m, parts.n);
        if element % bn >= skip {
            c.put_4(row, column, sums);
        } else {
            // The tile before this one writes the first columns.
            for (i, sum) in (0..).zip(&sums) {
                if element % bn + i >= skip {
                    c.put(row, column + i, *sum);
                }
            }
        }
    }
}

kernel! {
    /// Adds up the parts of streamed tiles of `bm`×`bn`, and writes C (m×n).
    ///
    /// # Safety
    ///
    /// - `parts` holds what a launch with these `whole` and `share` left there,
    ///   of tiles of `bm`×`bn` and `steps` steps, none of which begins right of
    ///   column `last`. It starts at a multiple of 16 bytes.
    /// - `c` points at m·n elements that nothing else touches meanwhile.
    /// - `bn` is a multiple of four, and `bm`·`bn` of 512. `teams` is 1, 2, 4
    ///   or 8. None of them is zero, nor are `steps` and `share`.
    /// - Blocks have [`THREADS`] threads along x. There are `bm`·`bn`·`teams` / 512
    ///   along x, for each streamed tile along y.
    pub unsafe fn gemm_add_parts(
        parts: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, bm: u32, bn: u32, last: u32,
        steps: u32, whole: u32, share: u32, teams: u32,
    )
    needs("sm_80")
    launch_bounds(THREADS)
    start(early)
    backends(Nvptx)
    shared { held: [f32; HELD] }
    {
        let made = Parts { m, n, bm, bn, last, steps, whole, share, teams };
        // SAFETY: the caller's promise.
        unsafe { add_parts(held, parts, c, made) };
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) use table::{KERNELS, VARIANTS, plan};

#[cfg(not(target_arch = "nvptx64"))]
mod table {
    use super::{THREADS, gemm_add_parts};
    use crate::gemm::persistent::{LargeAny, LargeWide, MediumAny, SmallAny};
    use crate::gemm::schedule::{self, Kernel};
    use crate::gemm::tma::{LargeTma, MediumTma};
    use crate::gemm::{ElementType::F32, Shape, Variant};
    use crate::launch::{Buffer, ComputeCapability, Dim3, Entry, Plan, Target};

    /// The launches that compute `whole` of `tiles` tiles as a whole, and share
    /// the steps of the others among `blocks` blocks, `share` each. Parts are added
    /// up by about so many `threads`.
    pub fn plan(
        kernel: &Kernel,
        shape: Shape,
        tiles: u32,
        whole: u32,
        share: u32,
        blocks: u32,
        threads: u32,
    ) -> Plan {
        let piece = u64::from(kernel.bm) * u64::from(kernel.bn);
        let steps = kernel.steps(shape);
        let streamed = tiles - whole;
        // One team of threads for each element, or several that split its parts,
        // where these are many and the threads few.
        let each = streamed.saturating_mul(kernel.bm * kernel.bn / 4).max(1);
        let parts = steps.div_ceil(share) + 1;
        let teams = [8, 4, 2]
            .into_iter()
            .find(|teams| parts > *teams && each.saturating_mul(*teams) <= threads);
        let teams = teams.unwrap_or(1);
        let per_tile = kernel.bm * kernel.bn / (4 * THREADS) * teams;
        Plan {
            workspace_bytes: 2 * u64::from(blocks) * piece * size_of::<f32>() as u64,
            launches: std::vec![
                (kernel.launch)(Dim3::x(blocks), Buffer::Workspace(0), shape, whole, share,),
                gemm_add_parts::launch(
                    Dim3::xy(per_tile, streamed),
                    Dim3::x(THREADS),
                    Buffer::Workspace(0),
                    Buffer::C,
                    shape.m(),
                    shape.n(),
                    kernel.bm,
                    kernel.bn,
                    kernel.copy_b.last_column(shape.n(), kernel.bn),
                    steps,
                    whole,
                    share,
                    teams,
                ),
            ],
        }
    }

    const LARGE: &[&Kernel] = &[
        &LargeTma::KERNEL,
        &LargeWide::KERNEL,
        &LargeAny::KERNEL,
        &MediumAny::KERNEL,
    ];
    const MEDIUM: &[&Kernel] = &[&MediumTma::KERNEL, &MediumAny::KERNEL];
    const SMALL: &[&Kernel] = &[&SmallAny::KERNEL];
    /// Every kernel whose last round can be streamed.
    pub const KERNELS: &[&Kernel] = &[
        &LargeTma::KERNEL,
        &LargeWide::KERNEL,
        &LargeAny::KERNEL,
        &MediumTma::KERNEL,
        &MediumAny::KERNEL,
        &SmallAny::KERNEL,
    ];

    const ENTRIES: [&Entry; KERNELS.len() + 1] = schedule::joined(&[
        &schedule::entries::<{ KERNELS.len() }>(KERNELS),
        &[&gemm_add_parts::ENTRY],
    ]);

    macro_rules! variant {
        ($name:literal, $summary:literal, $kernels:expr, first $first:expr) => {
            Variant {
                name: $name,
                summary: $summary,
                source: file!(),
                input: F32,
                accumulator: F32,
                output: F32,
                min_compute_capability: ComputeCapability::new(8, 0),
                needs: Target::parse("sm_80"),
                overlapping_writes: false,
                entries: &ENTRIES,
                // The large tiles want the shared memory of Hopper, and some
                // kernels a feature or a width: the first that takes the shape
                // is used, or the fastest of all.
                plan: |shape, limits| {
                    let schedules = schedule::of_first($first, $kernels, shape, limits);
                    schedule::fastest(schedules, &SmallAny::KERNEL, shape, limits)
                },
            }
        };
    }

    pub const VARIANTS: &[Variant] = &[
        variant!(
            "stream_k_large",
            "tiles of 128×256, the last round's shared evenly",
            LARGE,
            first 1
        ),
        variant!(
            "stream_k_medium",
            "tiles of 128×128, the last round's shared evenly",
            MEDIUM,
            first 1
        ),
        variant!(
            "stream_k_small",
            "tiles of 64×128, the last round's shared evenly",
            SMALL,
            first 1
        ),
        variant!(
            "stream_k",
            "tiles of the size that suits the shape, the last round's shared evenly",
            KERNELS,
            first KERNELS.len()
        ),
    ];
}
