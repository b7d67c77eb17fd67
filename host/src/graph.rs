//! Short products in CUDA graphs, so that a batch takes as long as the products and
//! not as long as the host takes to launch them.
//!
//! The host needs two microseconds and more for a launch. A kernel that runs
//! shorter waits for the next, and a batch measures the host. A graph is captured
//! from launches once and then launched whole: the device goes from one product to
//! the next by itself. Kernels and cuBLAS are captured alike.
//!
//! While one thread captures, no other may synchronise or copy on the same device:
//! the driver fails both. Measure from one thread at a time.

use crate::Gpu;
use crate::device::SYNC_VARIABLE;
use crate::error::{During, Error};
use crate::launch::success;
use crate::timing::Queue;
use cust::sys::{
    CUgraph, CUgraphExec, CUstreamCaptureMode, cuGraphDestroy, cuGraphExecDestroy,
    cuGraphInstantiateWithFlags, cuGraphLaunch, cuStreamBeginCapture_v2, cuStreamEndCapture,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Whether batches are to be graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Graphs {
    /// Where a product is shorter than [`SHORT`].
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Graphs {
    /// All.
    pub const ALL: [Self; 3] = [Self::Auto, Self::On, Self::Off];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }

    /// Whether products of this duration are to be in graphs.
    pub fn wanted(self, product: Duration) -> bool {
        match self {
            Self::Auto => product < SHORT,
            Self::On => true,
            Self::Off => false,
        }
    }
}

/// A product that is shorter may wait for its launch: about ten times what the
/// host needs for one.
pub const SHORT: Duration = Duration::from_micros(20);

/// How the products of a batch are launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Batching {
    /// One by one.
    #[default]
    Launches,
    /// Many at once, as a graph.
    Graph,
}

impl fmt::Display for Batching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Launches => "launches",
            Self::Graph => "graph",
        })
    }
}

/// Products in a graph at most. Each is a node or two, which take time to capture.
const MOST_PRODUCTS: u64 = 200;

/// Graphs, and products in each, that a batch of at least so many products is made
/// of.
pub fn of_graphs(products: u64) -> [u64; 2] {
    let graphs = products.div_ceil(MOST_PRODUCTS).max(1);
    [graphs, products.div_ceil(graphs).max(1)]
}

/// Products that the device can run again and again without being told of each.
pub(crate) struct Graph<'gpu> {
    gpu: &'gpu Gpu,
    graph: CUgraphExec,
}

impl<'gpu> Graph<'gpu> {
    /// Captures what `products` calls of `queue` launch on the GPU's own stream.
    /// None of it runs.
    ///
    /// # Errors
    ///
    /// Those of the launches; the driver's, which may be too old for it, or
    /// refuse what is launched. The stream is as it was.
    pub(crate) fn capture(gpu: &'gpu Gpu, products: u64, queue: Queue) -> Result<Self, Error> {
        if gpu.syncs_each_launch() {
            return Err(Error::Request {
                reason: format!("{SYNC_VARIABLE}=1 waits for each launch"),
            });
        }
        gpu.enter()?;
        let stream = gpu.stream().as_inner();
        // What this thread does meanwhile is allowed: it looks up and makes ready,
        // but waits for nothing and moves nothing.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream lives as long as the GPU.
        success(unsafe { cuStreamBeginCapture_v2(stream, mode) })
            .during("capturing launches in a graph")?;
        let queued = (0..products).try_for_each(|_| queue());
        let mut captured: CUgraph = std::ptr::null_mut();
        // Also after a failure: the stream would capture for ever.
        // SAFETY: ends what was begun above, and writes a handle to the address.
        let ended = success(unsafe { cuStreamEndCapture(stream, &mut captured) })
            .during("capturing launches in a graph");
        let made = queued.and(ended).and_then(|()| {
            let mut graph: CUgraphExec = std::ptr::null_mut();
            // SAFETY: the handle is the one just made; writes another to the
            // address.
            success(unsafe { cuGraphInstantiateWithFlags(&mut graph, captured, 0) })
                .during("making a graph of launches")?;
            Ok(Self { gpu, graph })
        });
        if !captured.is_null() {
            // SAFETY: nothing uses it any more; what was made of it is on its own.
            unsafe { cuGraphDestroy(captured) };
        }
        made
    }

    /// Queues the products on the GPU's own stream and returns at once.
    ///
    /// # Safety
    ///
    /// - What the launches were given addresses of stays valid until the stream
    ///   has passed them.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub(crate) unsafe fn launch(&self) -> Result<(), Error> {
        // SAFETY: the graph and the stream live; the caller promises the rest.
        success(unsafe { cuGraphLaunch(self.graph, self.gpu.stream().as_inner()) })
            .during("launching a graph")
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: the handle is used by nothing after this. The driver keeps
            // what still runs. A failure here leaves nothing to be done.
            unsafe { cuGraphExecDestroy(self.graph) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_few_graphs() {
        assert_eq!(of_graphs(0), [1, 1]);
        assert_eq!(of_graphs(1), [1, 1]);
        assert_eq!(of_graphs(200), [1, 200]);
        assert_eq!(of_graphs(300), [2, 150]);
        assert_eq!(of_graphs(20_000), [100, 200]);
        for products in [7, 201, 999, 12_345] {
            let [graphs, each] = of_graphs(products);
            assert!(each <= MOST_PRODUCTS);
            assert!((products..products + graphs).contains(&(graphs * each)));
        }
    }

    #[test]
    fn short_products_are_in_graphs() {
        let [short, long] = [SHORT / 2, SHORT];
        assert_eq!(
            [short, long].map(|it| Graphs::Auto.wanted(it)),
            [true, false]
        );
        assert_eq!([short, long].map(|it| Graphs::On.wanted(it)), [true, true]);
        assert_eq!(
            [short, long].map(|it| Graphs::Off.wanted(it)),
            [false, false]
        );
    }
}
