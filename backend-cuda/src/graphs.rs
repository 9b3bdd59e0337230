//! CUDA graphs: what is launched between two points where the host waits is launched as one, when it comes again.
//!
//! The host's part of a step — tape, allocator, ledger — runs as ever; only the queue differs. Launches are collected and
//! handed over when the host wants something of the device: a copy, memory given back, the end of the queue. A sequence
//! that is new is launched kernel by kernel. The second time it is captured into a graph; from then on the arguments that
//! changed are written into the graph's nodes, and one call of the driver launches it all.
//!
//! What it costs: the device idles while a step is collected, and a graph takes device memory. The library's products
//! are captured with the rest, but only the library can write the arguments of its kernels: where one of its matrices
//! lies elsewhere than the last time, the graph is made anew. A sequence for which that does not end, or of which the
//! driver makes no graph (there may be no memory for one), is launched kernel by kernel for good.

use std::collections::HashMap;
use std::ffi::c_void;

use cudarc::driver::sys;
use memcore::{Error, Result};

use crate::blaslt::{BlasLt, Product, Shape};
use crate::call::{Function, Grid, Launch};
use crate::driver::{Driven, NAME, driven, has_symbol};
use crate::figures;
use crate::queue::Queue;

/// Every symbol that is called here beside those of a launch.
const SYMBOLS: &[&str] = &[
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
];

/// So much is handed over without being asked for.
const MAX_COLLECTED: usize = 4096;

/// So many sequences are known at once; then all are forgotten.
const MAX_KNOWN: usize = 64;

/// So often in a row a graph is made anew.
const MAX_RENEWED: u32 = 8;

/// One thing that the queue does.
pub(crate) enum Work {
    /// A kernel of ours.
    Kernel(Launch),
    /// A product of the library's.
    Product(Product),
}

/// What has to be the same for a graph to do.
#[derive(PartialEq, Eq, Hash)]
enum Step {
    Kernel(Function, Grid),
    Product(Shape),
}

/// A sequence that was seen.
enum Known {
    Once,
    Ready(Graph),
    /// It is launched kernel by kernel.
    Plain,
}

/// The collected work, and the sequences that were seen.
#[derive(Default)]
pub(crate) struct Graphs {
    collected: Vec<Work>,
    known: HashMap<Vec<Step>, Known>,
    /// What the driver gave for the graphs.
    held_bytes: u64,
    /// What failed where nobody could be told.
    failed: Option<Error>,
}

impl Graphs {
    /// Nothing collected, if the driver has what it takes.
    ///
    /// # Errors
    /// [`Error::Backend`] naming what the driver lacks.
    pub(crate) fn new() -> Result<Self> {
        match SYMBOLS.iter().find(|symbol| !has_symbol(symbol)) {
            None => Ok(Self::default()),
            Some(symbol) => {
                let text = format!("the NVIDIA driver is too old for graphs: it has no {symbol}; CUDA 12 has it");
                Err(Error::backend(NAME, text))
            }
        }
    }

    /// What the driver gave for the graphs so far.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Adds to what will be launched.
    ///
    /// # Errors
    /// What failed since the last call, or fails when so much is collected that it is handed over.
    pub(crate) fn collect(&mut self, work: Work, queue: &Queue, blas: Option<&BlasLt>) -> Result<()> {
        self.collected.push(work);
        if self.collected.len() < MAX_COLLECTED { Ok(()) } else { self.flush(queue, blas) }
    }

    /// As [`Graphs::flush`]; a failure is told at the next call.
    pub(crate) fn flush_quietly(&mut self, queue: &Queue, blas: Option<&BlasLt>) {
        if let Err(error) = self.flush(queue, blas) {
            self.failed.get_or_insert(error);
        }
    }

    /// Hands over what was collected.
    ///
    /// # Errors
    /// The driver's and the library's. What was collected is gone then.
    pub(crate) fn flush(&mut self, queue: &Queue, blas: Option<&BlasLt>) -> Result<()> {
        if let Some(error) = self.failed.take() {
            self.collected.clear();
            return Err(error);
        }
        let work = std::mem::take(&mut self.collected);
        if work.is_empty() {
            return Ok(());
        }
        queue.bind()?;
        let steps: Vec<Step> = work.iter().map(Step::of).collect();
        let Some(known) = self.known.get_mut(&steps) else {
            if self.known.len() >= MAX_KNOWN {
                self.known.clear();
                self.held_bytes = 0;
            }
            self.known.insert(steps, Known::Once);
            return start_all(queue, blas, &work);
        };
        // One launch is no shorter as a graph.
        if work.len() > 1 && !matches!(known, Known::Plain) {
            match known.prepare(queue, blas, &work) {
                Ok(taken_bytes) => self.held_bytes += taken_bytes,
                // Nothing of it ran. A device that is lost says so below.
                Err(_) => *known = Known::Plain,
            }
        }
        match known {
            Known::Ready(graph) => {
                graph.work = work;
                graph.launch(queue)
            }
            Known::Once | Known::Plain => start_all(queue, blas, &work),
        }
    }
}

impl Known {
    /// Makes a graph of the work, or makes the one that there is do it; what the driver gave for that.
    fn prepare(&mut self, queue: &Queue, blas: Option<&BlasLt>, work: &[Work]) -> Result<u64> {
        let renewed = match self {
            Self::Ready(graph) if graph.has_products_of(work) => {
                graph.set_arguments(work)?;
                return Ok(0);
            }
            Self::Ready(graph) if graph.renewed >= MAX_RENEWED => {
                return Err(Error::backend(NAME, "its products never lie where they did"));
            }
            Self::Ready(graph) => graph.renewed + 1,
            Self::Once | Self::Plain => 0,
        };
        let make = || {
            *self = Self::Ready(Graph::new(queue, blas, work, renewed)?);
            Ok(())
        };
        figures::measured(queue, make).map(|((), taken_bytes)| taken_bytes)
    }
}

fn start_all(queue: &Queue, blas: Option<&BlasLt>, work: &[Work]) -> Result<()> {
    work.iter().try_for_each(|work| work.start(queue, blas))
}

impl Step {
    fn of(work: &Work) -> Self {
        match work {
            Work::Kernel(launch) => Self::Kernel(launch.function, launch.grid),
            Work::Product(product) => Self::Product(product.shape),
        }
    }
}

impl Work {
    /// Gives it to the driver, which runs it or, while it captures, writes it down.
    fn start(&self, queue: &Queue, blas: Option<&BlasLt>) -> Result<()> {
        match self {
            Self::Kernel(launch) => launch.start(queue),
            Self::Product(product) => {
                let blas = blas.ok_or_else(|| Error::backend(NAME, "a product of a library that is not open"))?;
                blas.run(queue, product)
            }
        }
    }
}

/// What the driver wrote down: a chain of nodes.
struct Captured {
    graph: sys::CUgraph,
    /// The node of each kernel of ours, in order of the work.
    nodes: Vec<Option<sys::CUgraphNode>>,
}

impl Captured {
    /// Lets the driver write the work down; nothing runs.
    fn new(queue: &Queue, blas: Option<&BlasLt>, work: &[Work]) -> Result<Self> {
        // Others' streams, and what this thread does besides, are of no concern.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        driven!(cuStreamBeginCapture_v2(queue.stream(), mode))?;
        let written: Result<Vec<_>> = work.iter().map(|work| write_down(queue, blas, work)).collect();
        // The capture ends whatever happened in it.
        let mut captured = Self { graph: std::ptr::null_mut(), nodes: Vec::new() };
        let ended = driven!(cuStreamEndCapture(queue.stream(), &mut captured.graph));
        captured.nodes = written?;
        ended?;
        Ok(captured)
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        if !self.graph.is_null() {
            // Nothing can be done about a failure.
            let _ = driven!(cuGraphDestroy(self.graph));
        }
    }
}

/// A sequence that the driver launches as one.
struct Graph {
    ready: sys::CUgraphExec,
    /// What `ready` was made of: its nodes name what is changed there.
    captured: Captured,
    /// What `ready` does as it is; nothing where that is not written yet.
    work: Vec<Work>,
    /// How often it was made anew since it last could be changed.
    renewed: u32,
}

// SAFETY: handles of the driver's, which any thread may use that has the context; they are behind a lock.
unsafe impl Send for Graph {}

impl Graph {
    fn new(queue: &Queue, blas: Option<&BlasLt>, work: &[Work], renewed: u32) -> Result<Self> {
        let captured = Captured::new(queue, blas, work)?;
        let mut ready = std::ptr::null_mut();
        driven!(cuGraphInstantiateWithFlags(&mut ready, captured.graph, 0))?;
        Ok(Self { ready, captured, work: Vec::new(), renewed })
    }

    /// Whether the library's products, whose arguments only the library can write, are those of this work.
    fn has_products_of(&self, work: &[Work]) -> bool {
        self.work.iter().zip(work).all(|(old, new)| match (old, new) {
            (Work::Product(old), Work::Product(new)) => old == new,
            _ => true,
        })
    }

    /// Makes our kernels take the arguments of this work; a launch that is under way keeps its own.
    fn set_arguments(&mut self, work: &[Work]) -> Result<()> {
        self.renewed = 0;
        for ((old, new), node) in self.work.iter().zip(work).zip(&self.captured.nodes) {
            let (Work::Kernel(kept), Work::Kernel(changed), Some(node)) = (old, new, *node) else { continue };
            if !kept.has_arguments_of(changed) {
                set_arguments(self.ready, node, changed)?;
            }
        }
        Ok(())
    }

    fn launch(&self, queue: &Queue) -> Result<()> {
        Ok(driven!(cuGraphLaunch(self.ready, queue.stream()))?)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // The driver waits for a launch that is under way; about a failure nothing can be done.
        let _ = driven!(cuGraphExecDestroy(self.ready));
    }
}

/// Gives the work to the capturing stream, and asks which node a kernel of ours became.
fn write_down(queue: &Queue, blas: Option<&BlasLt>, work: &Work) -> Result<Option<sys::CUgraphNode>> {
    work.start(queue, blas)?;
    match work {
        Work::Kernel(_) => newest_node(queue).map(Some),
        Work::Product(_) => Ok(None),
    }
}

/// What the next node of a capture would wait for: in one queue that is the node that was written last.
fn newest_node(queue: &Queue) -> Result<sys::CUgraphNode> {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut id, mut graph) = (0, std::ptr::null_mut());
    let (mut nodes, mut count): (*const sys::CUgraphNode, usize) = (std::ptr::null(), 0);
    driven!(cuStreamGetCaptureInfo_v2(queue.stream(), &mut status, &mut id, &mut graph, &mut nodes, &mut count))?;
    if count != 1 || nodes.is_null() {
        return Err(Error::backend(NAME, format!("a launch was captured as {count} nodes")));
    }
    // SAFETY: the driver wrote the address of `count` nodes, which it keeps until the next call for this stream.
    Ok(unsafe { *nodes })
}

fn set_arguments(ready: sys::CUgraphExec, node: sys::CUgraphNode, launch: &Launch) -> Driven<()> {
    let Grid { blocks: [x, y, z], threads, shared_bytes } = launch.grid;
    let mut parameters: [*mut c_void; 1] = [launch.arguments()];
    let new = sys::CUDA_KERNEL_NODE_PARAMS {
        func: launch.function.handle(),
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: shared_bytes,
        kernelParams: parameters.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    };
    // The node is one of the graph that `ready` was made of; the driver copies the argument before it returns.
    driven!(cuGraphExecKernelNodeSetParams_v2(ready, node, &new))
}
