//! How a product's tiles are given out to blocks, and which way is the fastest.
//! Not part of the device code.
//!
//! [`persistent`](super::persistent)'s kernels come in several sizes, and each
//! gives out its tiles in one of three ways ([`Way`]). A [`Schedule`] is one
//! kernel and one way for one shape. [`candidates`] are all that a device can
//! run; the variants of this family take the one that [`Costs`] says is the
//! fastest.
//!
//! # The model
//!
//! A multiprocessor runs b blocks of a kernel at one time, up to as many as fit.
//! A step along K of all b takes so many microseconds, and that is nearly all
//! there is: the rest is a constant for each launch, one for each tile after a
//! block's first, and what adding up shared tiles costs. `matmul tune` measures
//! these on a device and writes them to a file in `kernels/tuned`, one for each
//! architecture; that of the nearest architecture before it serves a device
//! that has none.
//!
//! The microseconds are those of one product of many, launched one after the
//! other. They are good for comparing schedules, not for promises: caches,
//! clocks and memory are not in the model.

use super::persistent::CopyB;
use super::{Shape, split_k, stream_k};
use crate::launch::{Buffer, DeviceLimits, Dim3, Entry, Launch, Plan, PlanError, Target};
use crate::launch::{MAX_GRID_X, MAX_GRID_Y};
use core::fmt;
use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

/// The copy engine counts rows and columns in signed numbers.
const MAX_COORDINATE: u32 = i32::MAX as u32;

/// A kernel of the family, as schedules see it.
#[derive(Debug)]
pub struct Kernel {
    /// What is launched.
    pub entry: &'static Entry,
    /// Rows of a block's tile.
    pub bm: u32,
    /// Columns of a block's tile.
    pub bn: u32,
    /// Depth of a step along K.
    pub bk: u32,
    /// Blocks that fit on a multiprocessor.
    pub blocks: u32,
    /// How it copies B, which says what shapes it takes.
    pub copy_b: CopyB,
    /// A launch: grid, the parts' buffer, shape, whole tiles, share.
    pub launch: fn(Dim3, Buffer, Shape, u32, u32) -> Launch,
}

impl Kernel {
    /// Whether it computes products of this shape on this device, with the code
    /// that is loaded there.
    pub fn takes(&self, shape: Shape, limits: &DeviceLimits) -> bool {
        limits.code.has(self.entry.needs)
            && self.entry.dynamic_shared_bytes <= limits.max_shared_bytes_per_block
            && (self.copy_b.any_width() || shape.n().is_multiple_of(4))
            && match self.copy_b {
                CopyB::Engine => shape.k() > 0 && shape.n().max(shape.k()) <= MAX_COORDINATE,
                CopyB::Shifted => shape.n() >= self.bn,
                CopyB::Wide | CopyB::Any => true,
            }
    }

    /// Whether its blocks share tiles in clusters.
    pub fn clusters(&self) -> bool {
        self.entry.max_cluster > 1
    }

    /// Tiles of C.
    ///
    /// # Errors
    ///
    /// [`PlanError::Limit`] where they are more than can be numbered.
    pub fn tiles(&self, shape: Shape) -> Result<u32, PlanError> {
        let tiles = u64::from(shape.m().div_ceil(self.bm)) * u64::from(shape.n().div_ceil(self.bn));
        u32::try_from(tiles)
            .ok()
            .filter(|tiles| *tiles <= MAX_GRID_X / self.entry.max_cluster)
            .ok_or(PlanError::Limit {
                kernel: self.entry.name,
                what: "tiles of C",
                needed: tiles,
                limit: (MAX_GRID_X / self.entry.max_cluster).into(),
            })
    }

    /// Steps along K.
    pub fn steps(&self, shape: Shape) -> u32 {
        shape.k().div_ceil(self.bk).max(1)
    }

    /// Blocks that run at one time.
    pub fn slots(&self, limits: &DeviceLimits) -> u32 {
        self.resident(limits) * limits.multiprocessors.max(1)
    }

    /// Blocks that a multiprocessor holds. Each takes 1 KiB beside its own shared
    /// memory, and one block may have all the rest.
    pub fn resident(&self, limits: &DeviceLimits) -> u32 {
        let all = limits.max_shared_bytes_per_block.saturating_add(1024);
        self.blocks
            .min(all / (self.entry.dynamic_shared_bytes + 1024))
            .max(1)
    }

    /// Clusters of so many blocks that run at one time.
    ///
    /// Those of a cluster lie in one group of the device's multiprocessors, and
    /// how these are made up differs from device to device. Where the driver was
    /// not asked, ten of eleven multiprocessors are taken to find room.
    pub fn clusters_held(&self, size: u32, limits: &DeviceLimits) -> u32 {
        let known = limits
            .active_clusters
            .iter()
            .find(|known| known.kernel == self.entry.name)
            .and_then(|known| known.by_size.get(size.saturating_sub(1) as usize));
        let guess = limits.multiprocessors * 10 / 11 * self.resident(limits) / size.max(1);
        known.copied().unwrap_or(guess).max(1)
    }

    /// The plan that computes every tile as a whole.
    ///
    /// # Errors
    ///
    /// As [`tiles`](Self::tiles).
    pub fn whole(&self, shape: Shape, limits: &DeviceLimits) -> Result<Plan, PlanError> {
        let tiles = self.tiles(shape)?;
        let grid = Dim3::x(tiles.min(self.slots(limits)));
        Ok(Plan::single((self.launch)(
            grid,
            Buffer::C,
            shape,
            tiles,
            0,
        )))
    }
}

/// How tiles are given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Each to one block; see [`persistent`](super::persistent).
    Whole,
    /// Those of the last round in equal shares of so many steps, the others
    /// whole; see [`stream_k`].
    Streamed {
        /// Tiles that are computed as a whole.
        whole: u32,
        /// Steps of a share.
        share: u32,
        /// Blocks that have one.
        blocks: u32,
    },
    /// Each to a cluster of so many blocks; see [`split_k`].
    Clusters(u32),
}

/// One way to compute a product.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// How its tiles are given out.
    pub way: Way,
    tiles: u32,
    steps: u32,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kernel.entry.name)?;
        match self.way {
            Way::Whole => f.write_str(", whole tiles"),
            Way::Streamed { whole: 0, .. } => f.write_str(", streamed"),
            Way::Streamed { .. } => f.write_str(", last round streamed"),
            Way::Clusters(blocks) => write!(f, ", clusters of {blocks}"),
        }
    }
}

/// The least share of a block, in steps. Less than that is all start-up.
const LEAST_SHARE: u32 = 4;

impl Schedule {
    /// Every way that a kernel has for a shape on a device. Empty where it takes
    /// it not at all, or there are more tiles than can be numbered.
    pub fn all(
        kernel: &'static Kernel,
        shape: Shape,
        limits: &DeviceLimits,
    ) -> impl Iterator<Item = Self> {
        let mut all = Vec::new();
        if let (true, Ok(tiles)) = (kernel.takes(shape, limits), kernel.tiles(shape)) {
            let steps = kernel.steps(shape);
            let mut add = |way| {
                all.push(Self {
                    kernel,
                    way,
                    tiles,
                    steps,
                })
            };
            if kernel.clusters() {
                (1..=kernel.entry.max_cluster.min(steps))
                    .for_each(|blocks| add(Way::Clusters(blocks)));
            } else {
                add(Way::Whole);
                if let Some(streamed) = streamed(kernel, tiles, steps, limits) {
                    add(streamed);
                }
            }
        }
        all.into_iter()
    }

    /// What it takes by the model, in microseconds.
    pub fn microseconds(&self, shape: Shape, limits: &DeviceLimits, costs: &Costs) -> f64 {
        let kernel = self.kernel;
        let cost = costs.of(kernel);
        let multiprocessors = limits.multiprocessors.max(1);
        let resident = kernel.resident(limits);
        // Of so many blocks, spread over the multiprocessors.
        let each = |blocks: u32| blocks.div_ceil(multiprocessors).clamp(1, resident);
        let step = |blocks: u32| at(&cost.steps, each(blocks));
        let rounds = |blocks: u32, slots: u32, steps: f64| {
            let slots = slots.max(1);
            let (full, rest) = (blocks / slots, blocks % slots);
            let mut time = f64::from(full) * (steps * step(slots) + cost.tile);
            if rest > 0 {
                time += steps * step(rest) + cost.tile;
            }
            // The first tile of a block is in the cost of the launch.
            time - cost.tile
        };
        let slots = kernel.slots(limits);
        match self.way {
            Way::Whole | Way::Clusters(1) => {
                at(&cost.launches, each(self.tiles)) + rounds(self.tiles, slots, self.steps.into())
            }
            Way::Streamed {
                whole,
                share,
                blocks,
            } => {
                let full = f64::from(whole / slots.max(1));
                let running = if whole == 0 { blocks } else { slots };
                let part = f64::from(kernel.bm.min(shape.m())) * f64::from(kernel.bn) * 4e-6;
                let pieces = pieces(self.tiles - whole, self.steps, share);
                at(&cost.launches, each(running))
                    + full * (f64::from(self.steps) * step(slots) + cost.tile)
                    + f64::from(share) * step(running)
                    + costs.parts
                    + costs.parts_megabyte * f64::from(pieces) * part
            }
            Way::Clusters(size) => {
                let held = kernel.clusters_held(size, limits) * size;
                let steps = f64::from(self.steps.div_ceil(size));
                let blocks = self.tiles * size;
                let rounds = f64::from(blocks.div_ceil(held.max(1)));
                at(&cost.clusters, size - 1)
                    + rounds * steps * step(blocks)
                    + (rounds - 1.0) * cost.tile
            }
        }
    }

    /// The launches.
    ///
    /// # Errors
    ///
    /// As [`Kernel::tiles`].
    pub fn plan(&self, shape: Shape, limits: &DeviceLimits) -> Result<Plan, PlanError> {
        let kernel = self.kernel;
        match self.way {
            Way::Whole => kernel.whole(shape, limits),
            Way::Streamed {
                whole,
                share,
                blocks,
            } => {
                let threads = limits.multiprocessors.saturating_mul(1024);
                Ok(stream_k::plan(
                    kernel, shape, self.tiles, whole, share, blocks, threads,
                ))
            }
            Way::Clusters(size) => {
                let grid = Dim3::x(self.tiles * size);
                let launch = (kernel.launch)(grid, Buffer::C, shape, self.tiles, 0);
                Ok(Plan::single(launch.cluster(size)))
            }
        }
    }
}

/// Parts that blocks leave of so many tiles, if each takes `share` steps.
pub fn pieces(tiles: u32, steps: u32, share: u32) -> u32 {
    let (steps, share) = (u64::from(steps), u64::from(share.max(1)));
    let of_tile = |tile: u64| {
        let (first, last) = (tile * steps / share, ((tile + 1) * steps - 1) / share);
        if first == last { 0 } else { last - first + 1 }
    };
    (0..u64::from(tiles)).map(of_tile).sum::<u64>() as u32
}

/// The last round's tiles in equal shares, where that is possible.
fn streamed(kernel: &Kernel, tiles: u32, steps: u32, limits: &DeviceLimits) -> Option<Way> {
    let slots = kernel.slots(limits);
    let rounds = tiles / slots;
    let streamed = tiles % slots;
    // Steps are counted in 32 bits, and the tiles lie along y in the second
    // launch.
    let total = streamed.checked_mul(steps)?;
    if total == 0 || streamed > MAX_GRID_Y {
        return None;
    }
    let share = total.div_ceil(slots).max(LEAST_SHARE.min(steps));
    let blocks = if rounds == 0 {
        total.div_ceil(share)
    } else {
        slots
    };
    Some(Way::Streamed {
        whole: rounds * slots,
        share,
        blocks,
    })
}

/// The entries of kernels.
///
/// # Panics
///
/// Where they are not `N`: at compile time.
pub(super) const fn entries<const N: usize>(kernels: &[&Kernel]) -> [&'static Entry; N] {
    assert!(kernels.len() == N, "an entry for each kernel");
    let mut entries = [kernels[0].entry; N];
    let mut i = 0;
    while i < N {
        entries[i] = kernels[i].entry;
        i += 1;
    }
    entries
}

/// Lists of entries, one after the other.
///
/// # Panics
///
/// Where these are not `N` entries: at compile time.
pub(super) const fn joined<const N: usize>(lists: &[&[&'static Entry]]) -> [&'static Entry; N] {
    let mut all = [lists[0][0]; N];
    let (mut count, mut list) = (0, 0);
    while list < lists.len() {
        let mut i = 0;
        while i < lists[list].len() {
            all[count] = lists[list][i];
            count += 1;
            i += 1;
        }
        list += 1;
    }
    assert!(count == N, "as many as were said");
    all
}

/// The plan of the first kernel that takes a shape, every tile as a whole. Where
/// none does, the last one's, which says why in its errors.
///
/// # Errors
///
/// As [`Kernel::tiles`].
pub(super) fn first_whole(
    kernels: &[&Kernel],
    shape: Shape,
    limits: &DeviceLimits,
) -> Result<Plan, PlanError> {
    let first = kernels.iter().find(|kernel| kernel.takes(shape, limits));
    first
        .unwrap_or(&kernels[kernels.len() - 1])
        .whole(shape, limits)
}

/// Every schedule of the first so many of the kernels that take a shape.
pub(super) fn of_first(
    count: usize,
    kernels: &[&'static Kernel],
    shape: Shape,
    limits: &DeviceLimits,
) -> impl Iterator<Item = Schedule> {
    kernels
        .iter()
        .filter(move |kernel| kernel.takes(shape, limits))
        .take(count)
        .flat_map(move |kernel| Schedule::all(kernel, shape, limits))
}

/// Every kernel of the family.
pub fn kernels() -> impl Iterator<Item = &'static Kernel> {
    stream_k::KERNELS.iter().chain(split_k::KERNELS).copied()
}

/// Every schedule of a shape on a device.
pub fn candidates(shape: Shape, limits: &DeviceLimits) -> Vec<Schedule> {
    kernels()
        .flat_map(|kernel| Schedule::all(kernel, shape, limits))
        .collect()
}

/// The plan of the fastest of some schedules, by the costs of the device's
/// architecture.
///
/// # Errors
///
/// [`PlanError::Limit`] where there are none: the shape has too many tiles for
/// `last`, the kernel that is named then.
pub fn fastest(
    schedules: impl IntoIterator<Item = Schedule>,
    last: &Kernel,
    shape: Shape,
    limits: &DeviceLimits,
) -> Result<Plan, PlanError> {
    let costs = Costs::of_device(limits);
    schedules
        .into_iter()
        .map(|schedule| (schedule.microseconds(shape, limits, costs), schedule))
        .min_by(|(a, _), (b, _)| a.total_cmp(b))
        .map_or_else(
            || last.whole(shape, limits),
            |(_, schedule)| schedule.plan(shape, limits),
        )
}

/// What a kernel takes on a device, in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cost {
    /// A launch of one block for each multiprocessor, of two, and so on, with the
    /// first tile's start and end.
    pub launches: Vec<f64>,
    /// A step along K of one block on each multiprocessor, of two, and so on.
    pub steps: Vec<f64>,
    /// Each further tile of a block.
    pub tile: f64,
    /// A launch in clusters of two, of three, and so on.
    pub clusters: Vec<f64>,
}

/// The i-th number, counted from one, or the last. Infinity of none.
fn at(numbers: &[f64], i: u32) -> f64 {
    let i = (i.max(1) as usize).min(numbers.len());
    numbers
        .get(i.wrapping_sub(1))
        .copied()
        .unwrap_or(f64::INFINITY)
}

/// What the kernels take on the devices of an architecture.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Leaving parts of tiles and launching what adds them up, in microseconds.
    pub parts: f64,
    /// And for each megabyte of parts.
    pub parts_megabyte: f64,
    /// Each kernel's, by its name.
    pub kernels: Vec<(String, Cost)>,
}

/// The files, oldest architecture first.
const TUNED: &[(&str, &str)] = &[
    ("sm_80", include_str!("../../tuned/sm_80.txt")),
    ("sm_90", include_str!("../../tuned/sm_90.txt")),
];

impl Costs {
    /// Those of the device's architecture, or of the nearest before it.
    pub fn of_device(limits: &DeviceLimits) -> &'static Self {
        use std::sync::OnceLock;
        static PARSED: OnceLock<Vec<(Target, Costs)>> = OnceLock::new();
        let parsed = PARSED.get_or_init(|| {
            TUNED
                .iter()
                .map(|(name, text)| {
                    let costs = Costs::parse(text);
                    (Target::parse(name), costs.expect("a test parses each file"))
                })
                .collect()
        });
        // The code decides which kernels there are; a file has all of those.
        let code = limits.code.capability;
        let fitting = parsed.iter().rev().find(|(t, _)| t.capability <= code);
        &fitting.unwrap_or(&parsed[0]).1
    }

    /// A kernel's costs. One that was not measured is never the fastest.
    fn of(&self, kernel: &Kernel) -> &Cost {
        static UNKNOWN: Cost = Cost {
            launches: Vec::new(),
            steps: Vec::new(),
            tile: 0.0,
            clusters: Vec::new(),
        };
        self.kernels
            .iter()
            .find(|(name, _)| name == kernel.entry.name)
            .map_or(&UNKNOWN, |(_, cost)| cost)
    }

    /// Reads what [`Display`](fmt::Display) writes: a line for each kernel, of its
    /// name and lists of numbers, each behind what it is. Comments begin with `#`.
    ///
    /// # Errors
    ///
    /// The first line that is none, with its number.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut costs = Self {
            parts: 0.0,
            parts_megabyte: 0.0,
            kernels: Vec::new(),
        };
        for (number, line) in text.lines().enumerate() {
            let wrong = |what| std::format!("line {}: {what}: {line}", number + 1);
            let code = line.split('#').next().unwrap_or_default();
            let mut words = code.split_whitespace();
            let Some(name) = words.next() else { continue };
            let (mut lists, mut key) = (BTreeMap::<_, Vec<f64>>::new(), "");
            for word in words {
                match word.parse() {
                    Ok(value) => lists.entry(key).or_default().push(value),
                    Err(_) => key = word,
                }
            }
            let mut take = |key| lists.remove(key).unwrap_or_default();
            let one = |list: Vec<f64>| match list[..] {
                [value] => Ok(value),
                _ => Err(wrong("expected one number")),
            };
            if name == "parts" {
                costs.parts = one(take("launch"))?;
                costs.parts_megabyte = one(take("megabyte"))?;
            } else {
                let cost = Cost {
                    launches: take("launch"),
                    steps: take("step"),
                    tile: one(take("tile"))?,
                    clusters: take("clusters"),
                };
                if cost.launches.is_empty() || cost.launches.len() != cost.steps.len() {
                    return Err(wrong("expected as many launches as steps, and some"));
                }
                costs.kernels.push((name.into(), cost));
            }
            if let Some(unknown) = lists.keys().next() {
                return Err(wrong(&std::format!("unknown: `{unknown}`")));
            }
        }
        Ok(costs)
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "# Microseconds. launch: with one block on each multiprocessor, with two, and so on,\n\
             # and a tile's start and end. step: along K, of as many blocks. tile: each further\n\
             # tile of a block. clusters: a launch in clusters of 2, 3, and so on.\n\
             # parts: launching what adds up parts of tiles, and each megabyte of them.\n",
        )?;
        let list = |f: &mut fmt::Formatter<'_>, key, numbers: &[f64]| {
            if numbers.is_empty() {
                return Ok(());
            }
            write!(f, " {key}")?;
            numbers
                .iter()
                .try_for_each(|number| write!(f, " {number:.3}"))
        };
        f.write_str("parts")?;
        list(f, "launch", &[self.parts])?;
        list(f, "megabyte", &[self.parts_megabyte])?;
        f.write_str("\n")?;
        for (name, cost) in &self.kernels {
            f.write_str(name)?;
            list(f, "launch", &cost.launches)?;
            list(f, "step", &cost.steps)?;
            list(f, "tile", &[cost.tile])?;
            list(f, "clusters", &cost.clusters)?;
            f.write_str("\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Costs, MAX_COORDINATE, TUNED, candidates, kernels};
    use crate::gemm::Shape;
    use crate::gemm::persistent::CopyB;
    use crate::launch::{ComputeCapability, DeviceLimits, Target};
    use std::string::ToString;

    #[test]
    fn the_files_hold_every_kernel_of_their_architecture() {
        for (name, text) in TUNED {
            let costs = Costs::parse(text).unwrap();
            assert_eq!(Costs::parse(&costs.to_string()).unwrap(), costs, "{name}");
            let capability = Target::parse(name).capability;
            for kernel in kernels().filter(|kernel| kernel.entry.needs.capability <= capability) {
                let cost = costs.of(kernel);
                assert_eq!(
                    cost.steps.len(),
                    kernel.blocks as usize,
                    "{}",
                    kernel.entry.name
                );
                let sizes = kernel.entry.max_cluster as usize - 1;
                assert_eq!(cost.clusters.len(), sizes, "{}", kernel.entry.name);
            }
        }
    }

    #[test]
    fn the_engine_counts_in_signed_numbers() {
        let limits = DeviceLimits {
            compute_capability: ComputeCapability::new(9, 0),
            code: Target::parse("sm_90a"),
            multiprocessors: 132,
            max_threads_per_block: 1024,
            max_shared_bytes_per_block: 232_448,
            active_clusters: std::vec::Vec::new(),
        };
        let by_engine = |n: u64, k: u64| {
            let shape = Shape::new(2, n, k).unwrap();
            let all = candidates(shape, &limits);
            assert!(!all.is_empty());
            all.iter().any(|s| s.kernel.copy_b == CopyB::Engine)
        };
        let most = u64::from(MAX_COORDINATE);
        assert!(by_engine(most / 4 * 4, 4) && by_engine(4, most));
        assert!(!by_engine(most / 4 * 4 + 4, 4) && !by_engine(4, most + 1));
    }

    /// The variants' entries are those that the builder gives their launch bounds.
    #[test]
    fn auto_names_every_kernel() {
        let auto = &crate::gemm::auto::VARIANTS[0];
        for kernel in kernels() {
            let named = auto.entries.iter().filter(|e| e.name == kernel.entry.name);
            assert_eq!(named.count(), 1, "{}", kernel.entry.name);
        }
    }

    #[test]
    fn what_is_no_cost_is_named() {
        for (text, said) in [
            ("gemm launch 1 step 2", "line 1: expected one number"),
            (
                "# nothing\ngemm launch 1 tile 1 step 1 2",
                "line 2: expected as many",
            ),
            ("gemm launch 1 step 2 tile 3 color 4", "unknown: `color`"),
        ] {
            let error = Costs::parse(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
