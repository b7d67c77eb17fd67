//! What kernels cost on a device, for the choice among their schedules.
//!
//! [`costs`] measures what the [model](kernels::gemm::schedule) is made of, each
//! part by shapes that differ in it alone:
//!
//! | part | shapes |
//! |---|---|
//! | a step, by blocks on a multiprocessor | as many tiles as make each hold b blocks, once with few steps along K and once with many: the difference |
//! | a launch | the same, with the steps taken off |
//! | a further tile | twice as many tiles as there is room for, against once |
//! | a launch in clusters | one block for each multiprocessor, with the steps taken off |
//! | parts | tiles for a half and a quarter of the blocks, streamed: a line through all kernels' parts |
//!
//! [`contest`] measures every schedule of one shape, beside what the model says,
//! so that a choice can be checked.

use crate::cublas::{Cublas, Mode};
use crate::measure::{Problem, random_factors};
use crate::sweep::{Engine, fitting};
use crate::timing::{Stopwatch, median};
use crate::{Error, Gpu, Prepared};
use kernels::gemm::Shape;
use kernels::gemm::schedule::{self, Cost, Costs, Kernel, Schedule, Way};
use std::time::Duration;

/// Samples of a figure, which is their median.
const ROUNDS: usize = 5;
/// How long the launches of one sample take.
const BATCH: Duration = Duration::from_millis(4);
/// Launches of a sample at most.
const MOST_LAUNCHES: u64 = 400;
/// What random elements and orders are made from.
const SEED: u64 = 1;

/// One schedule's time for a shape.
pub struct Entrant {
    /// The schedule, or none for cuBLAS.
    pub schedule: Option<Schedule>,
    /// Seconds for one product.
    pub seconds: f64,
    /// Whether the result was right.
    pub passed: bool,
}

/// Measures schedules of a shape, and cuBLAS SGEMM where it is given: in every
/// round each gives one sample, in an order shuffled anew.
///
/// # Errors
///
/// [`Error::Request`] where C has no element; those of the operands' memory, the
/// plans and the launches.
pub fn contest<'gpu>(
    gpu: &'gpu Gpu,
    shape: Shape,
    schedules: &[Schedule],
    cublas: Option<&Cublas<'gpu>>,
) -> Result<Vec<Entrant>, Error> {
    if shape.is_empty() {
        return Err(Error::Request {
            reason: format!("{shape}: C has no element, and there is nothing to measure"),
        });
    }
    let (a, b) = random_factors(shape, SEED)?;
    let mut problem = Problem::new(gpu, &a, &b)?;
    let mut engines = Vec::new();
    for schedule in schedules {
        let plan = schedule.plan(shape, &gpu.info().limits)?;
        let prepared = Prepared::checked(gpu, shape, plan)?;
        engines.push((Some(*schedule), Engine::Variant(gpu, prepared)));
    }
    if let Some(cublas) = cublas {
        let product = cublas.prepare(Mode::F32, shape, (&a, &b))?;
        engines.push((None, Engine::Cublas(product)));
    }
    let mut entrants = Vec::new();
    for (schedule, engine) in &mut engines {
        entrants.push(Entrant {
            schedule: *schedule,
            seconds: 0.0,
            passed: engine.verify(&mut problem)?.passed(),
        });
    }

    let stopwatch = Stopwatch::new(gpu)?;
    let [a, b, c] = problem.operands();
    let mut launches = Vec::new();
    for (_, engine) in &engines {
        let (one, _) = stopwatch.estimate(&mut || engine.queue(gpu, a, b, c))?;
        launches.push(fitting(BATCH, one, MOST_LAUNCHES));
    }
    let mut order: Vec<usize> = (0..engines.len()).collect();
    let mut samples = vec![Vec::new(); engines.len()];
    let mut random = fastrand::Rng::with_seed(SEED);
    for _ in 0..ROUNDS {
        random.shuffle(&mut order);
        for &i in &order {
            let (_, engine) = &engines[i];
            let time = stopwatch.batch(launches[i], &mut || engine.queue(gpu, a, b, c))?;
            samples[i].push(time.as_secs_f64() / launches[i] as f64);
        }
    }
    for (entrant, samples) in entrants.iter_mut().zip(&samples) {
        entrant.seconds = median(samples);
    }
    Ok(entrants)
}

/// Steps along K of the short and the long products.
const STEPS: [u32; 2] = [16, 80];
/// Steps of each block of a cluster.
const CLUSTER_STEPS: u32 = 8;

/// Measures what the kernels cost on a GPU. `progress` hears of each kernel
/// before it is measured.
///
/// # Errors
///
/// [`Error::WrongResult`] where a product is wrong, and as [`contest`].
pub fn costs(gpu: &Gpu, mut progress: impl FnMut(&str)) -> Result<Costs, Error> {
    let limits = &gpu.info().limits;
    let mut costs = Costs {
        parts: 0.0,
        parts_megabyte: 0.0,
        kernels: Vec::new(),
    };
    // Megabytes of parts, and the microseconds that they cost.
    let mut parts = Vec::new();
    let usable = Shape::new(4096, 4096, 4096)?;
    for kernel in schedule::kernels().filter(|kernel| kernel.takes(usable, limits)) {
        progress(kernel.entry.name);
        let cost = if kernel.clusters() {
            clustered(gpu, kernel)?
        } else {
            let cost = whole(gpu, kernel)?;
            parts.extend(streamed(gpu, kernel, &cost)?);
            cost
        };
        costs.kernels.push((kernel.entry.name.into(), cost));
    }
    (costs.parts, costs.parts_megabyte) = line(&parts);
    Ok(costs)
}

/// The shape of so many tiles, arranged as squarely as they divide, and so many
/// steps.
fn shape_of(kernel: &Kernel, tiles: u32, steps: u32) -> Result<Shape, Error> {
    let sides = (1..=tiles).filter(|rows| tiles.is_multiple_of(*rows));
    let square = |rows: &u32| (rows * kernel.bm).abs_diff(tiles / rows * kernel.bn);
    let rows = sides.min_by_key(square).unwrap_or(1);
    let wide = |count: u32, size: u32| u64::from(count) * u64::from(size);
    Ok(Shape::new(
        wide(rows, kernel.bm),
        wide(tiles / rows, kernel.bn),
        wide(steps, kernel.bk),
    )?)
}

/// Microseconds of a kernel's schedule for so many tiles and steps; none where
/// the device has no such schedule.
fn time(
    gpu: &Gpu,
    kernel: &'static Kernel,
    [tiles, steps]: [u32; 2],
    way: impl Fn(Way) -> bool,
) -> Result<Option<(f64, Way)>, Error> {
    let shape = shape_of(kernel, tiles, steps)?;
    let limits = &gpu.info().limits;
    let schedule = Schedule::all(kernel, shape, limits).find(|schedule| way(schedule.way));
    let Some(schedule) = schedule else {
        return Ok(None);
    };
    let entrants = contest(gpu, shape, &[schedule], None)?;
    if !entrants[0].passed {
        return Err(Error::WrongResult {
            kernel: schedule.to_string(),
            shape,
        });
    }
    Ok(Some((entrants[0].seconds * 1e6, schedule.way)))
}

/// What whole tiles cost, or those of clusters of one block, which are no
/// clusters.
fn whole(gpu: &Gpu, kernel: &'static Kernel) -> Result<Cost, Error> {
    let limits = &gpu.info().limits;
    let multiprocessors = limits.multiprocessors;
    let resident = kernel.resident(limits);
    let is_whole = |way| matches!(way, Way::Whole | Way::Clusters(1));
    let [few, many] = STEPS;
    let mut cost = Cost::default();
    for blocks in 1..=resident {
        let tiles = blocks * multiprocessors;
        let short = time(gpu, kernel, [tiles, few], is_whole)?;
        let long = time(gpu, kernel, [tiles, many], is_whole)?;
        let (Some((short, _)), Some((long, _))) = (short, long) else {
            continue;
        };
        let step = (long - short) / f64::from(many - few);
        cost.steps.push(step);
        cost.launches.push((short - step * f64::from(few)).max(0.0));
    }
    let (Some(&step), Some(&launch)) = (cost.steps.last(), cost.launches.last()) else {
        return Ok(cost);
    };
    let twice = [2 * resident * multiprocessors, few];
    if let Some((twice, _)) = time(gpu, kernel, twice, is_whole)? {
        cost.tile = (twice - launch - 2.0 * step * f64::from(few)).max(0.0);
    }
    Ok(cost)
}

/// What tiles of clusters cost.
fn clustered(gpu: &Gpu, kernel: &'static Kernel) -> Result<Cost, Error> {
    let mut cost = whole(gpu, kernel)?;
    let limits = &gpu.info().limits;
    for size in 2..=kernel.entry.max_cluster {
        // One block for each multiprocessor, where as many find room.
        let tiles = (limits.multiprocessors / size).min(kernel.clusters_held(size, limits));
        let step = cost.steps.first();
        let of_size = |way| way == Way::Clusters(size);
        let found = time(gpu, kernel, [tiles.max(1), CLUSTER_STEPS * size], of_size)?;
        if let (Some((time, _)), Some(step)) = (found, step) {
            let launch = time - step * f64::from(CLUSTER_STEPS);
            cost.clusters.push(launch.max(0.0));
        }
    }
    Ok(cost)
}

/// Megabytes of parts, and what they cost in microseconds, of some shapes.
fn streamed(gpu: &Gpu, kernel: &'static Kernel, cost: &Cost) -> Result<Vec<(f64, f64)>, Error> {
    let limits = &gpu.info().limits;
    let (Some(&step), Some(&launch)) = (cost.steps.last(), cost.launches.last()) else {
        return Ok(Vec::new());
    };
    let mut points = Vec::new();
    for part in [4, 2] {
        // Tiles for a quarter and a half of the blocks, in shares of whole tiles'
        // quarters and halves, so that the pieces are as many as the blocks; and
        // one tile fewer, so that shares cross tiles.
        for fewer in [0, 1] {
            let tiles = (kernel.slots(limits) / part).saturating_sub(fewer).max(1);
            let is_streamed = |way| matches!(way, Way::Streamed { .. });
            let found = time(gpu, kernel, [tiles, STEPS[1]], is_streamed)?;
            if let Some((time, Way::Streamed { share, .. })) = found {
                let pieces = f64::from(schedule::pieces(tiles, STEPS[1], share));
                let megabytes = pieces * f64::from(kernel.bm) * f64::from(kernel.bn) * 4e-6;
                points.push((megabytes, time - launch - step * f64::from(share)));
            }
        }
    }
    Ok(points)
}

/// The least-squares line through points: its value at zero, and its slope.
/// Neither is below zero.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let along: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let slope = if spread > 0.0 { along / spread } else { 0.0 };
    let slope = slope.clamp(0.0, (y / x.max(1e-9)).max(0.0));
    ((y - slope * x).max(0.0), slope)
}

#[cfg(test)]
mod tests {
    use super::{line, shape_of};
    use kernels::gemm::schedule;

    #[test]
    fn a_line_goes_through_its_points() {
        let near = |(a, b): (f64, f64), (c, d): (f64, f64)| (a - c).abs() + (b - d).abs() < 1e-9;
        assert!(near(line(&[(1.0, 5.0), (3.0, 9.0)]), (3.0, 2.0)));
        assert!(near(line(&[(1.0, 9.0), (3.0, 5.0)]), (7.0, 0.0)));
        assert!(near(line(&[(2.0, 4.0)]), (4.0, 0.0)));
        assert!(near(line(&[]), (0.0, 0.0)));
    }

    #[test]
    fn shapes_have_as_many_tiles_as_asked_for() {
        for kernel in schedule::kernels() {
            for tiles in [1, 2, 66, 132, 528] {
                let shape = shape_of(kernel, tiles, 3).unwrap();
                assert_eq!(kernel.tiles(shape), Ok(tiles));
                assert_eq!(kernel.steps(shape), 3);
            }
        }
    }
}
