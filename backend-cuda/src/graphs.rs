//! CUDA graphs: the launches between two points where the host waits are launched as one graph when the sequence
//! repeats.
//!
//! The host's part of a step (tape, allocator, ledger) runs as always; only the queue differs. Launches are collected,
//! and launched when the host needs the device: for a copy, a free of memory, the end of the queue. A new sequence is
//! launched kernel by kernel. The second time it is captured into a graph. From then on the arguments that changed are
//! written into the graph's nodes, and one driver call launches everything.
//!
//! The cost: the device idles while a step is collected, and a graph takes device memory. The libraries' products and
//! convolutions are captured with the rest, but only a library can write the arguments of its kernels: if one of its
//! operands has another address than the last time, the graph is captured again. A sequence that keeps changing in this way, or of
//! which the driver makes no graph (perhaps for lack of memory), is launched kernel by kernel for good.

use std::collections::HashMap;
use std::ffi::c_void;

use cudarc::driver::sys;
use memcore::{Error, Result};

use crate::blaslt::{BlasLt, Product, Shape};
use crate::call::{Function, Grid, Launch};
use crate::cudnn::{self, Cudnn};
use crate::driver::{Driven, NAME, driven, has_symbol};
use crate::figures;
use crate::queue::Queue;

/// Every driver symbol that is called here, besides those of a launch.
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

/// Number of collected launches after which they are launched without a request.
const MAX_COLLECTED: usize = 4096;

/// Maximum number of known sequences; beyond it all are dropped.
const MAX_KNOWN: usize = 64;

/// Number of captures in a row after which a sequence is launched kernel by kernel.
const MAX_RENEWED: u32 = 8;

/// The libraries that are used.
#[derive(Clone, Copy)]
pub(crate) struct Libraries<'a> {
    /// cuBLASLt, for products.
    pub(crate) blas: Option<&'a BlasLt>,
    /// cuDNN, for convolutions and attention.
    pub(crate) dnn: Option<&'a Cudnn>,
}

/// One piece of work for the queue.
#[expect(clippy::large_enum_variant, reason = "a box would allocate for each launch")]
pub(crate) enum Work {
    /// A kernel of this backend.
    Kernel(Launch),
    /// A product of cuBLASLt.
    Product(Product),
    /// A convolution or an attention of cuDNN.
    Dnn(cudnn::Call),
}

/// The part of a work item that must be equal for a graph to be reused.
#[derive(PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "a box would allocate for each launch")]
enum Step {
    Kernel(Function, Grid),
    Product(Shape),
    Dnn(cudnn::Task),
}

/// A sequence that was seen before.
enum Known {
    Once,
    Ready(Graph),
    /// The sequence is launched kernel by kernel.
    Plain,
}

/// The collected work, and the sequences that were seen.
#[derive(Default)]
pub(crate) struct Graphs {
    collected: Vec<Work>,
    known: HashMap<Vec<Step>, Known>,
    /// Memory that the driver gave for the graphs.
    held_bytes: u64,
    /// An error from a call that could not return one.
    failed: Option<Error>,
}

impl Graphs {
    /// Starts with nothing collected, if the driver has all functions.
    ///
    /// # Errors
    /// [`Error::Backend`] with the function that the driver lacks.
    pub(crate) fn new() -> Result<Self> {
        match SYMBOLS.iter().find(|symbol| !has_symbol(symbol)) {
            None => Ok(Self::default()),
            Some(symbol) => {
                let text = format!("the NVIDIA driver is too old for graphs: it has no {symbol}; CUDA 12 has it");
                Err(Error::backend(NAME, text))
            }
        }
    }

    /// Memory that the driver gave for the graphs so far.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Collects work for a later launch.
    ///
    /// # Errors
    /// A failure since the last call, or one of the launch when the collection is full.
    pub(crate) fn collect(&mut self, work: Work, queue: &Queue, libraries: Libraries<'_>) -> Result<()> {
        self.collected.push(work);
        if self.collected.len() < MAX_COLLECTED { Ok(()) } else { self.flush(queue, libraries) }
    }

    /// Like [`Graphs::flush`]; a failure is reported at the next call.
    pub(crate) fn flush_quietly(&mut self, queue: &Queue, libraries: Libraries<'_>) {
        if let Err(error) = self.flush(queue, libraries) {
            self.failed.get_or_insert(error);
        }
    }

    /// Launches the collected work.
    ///
    /// # Errors
    /// Errors of the driver and of the library. The collected work is then dropped.
    pub(crate) fn flush(&mut self, queue: &Queue, libraries: Libraries<'_>) -> Result<()> {
        if let Some(error) = self.failed.take() {
            self.collected.clear();
            return Err(error);
        }
        let work = std::mem::take(&mut self.collected);
        if work.is_empty() {
            return Ok(());
        }
        queue.bind()?;
        let steps: Vec<Step> = work.iter().map(Step::from_work).collect();
        let Some(known) = self.known.get_mut(&steps) else {
            if self.known.len() >= MAX_KNOWN {
                self.known.clear();
                self.held_bytes = 0;
            }
            self.known.insert(steps, Known::Once);
            return start_all(queue, libraries, &work);
        };
        // One launch alone is not faster as a graph.
        if work.len() > 1 && !matches!(known, Known::Plain) {
            match known.prepare(queue, libraries, &work) {
                Ok(taken_bytes) => self.held_bytes += taken_bytes,
                // None of it ran. A lost device reports itself below.
                Err(_) => *known = Known::Plain,
            }
        }
        match known {
            Known::Ready(graph) => {
                graph.work = work;
                graph.launch(queue)
            }
            Known::Once | Known::Plain => start_all(queue, libraries, &work),
        }
    }
}

impl Known {
    /// Makes a graph of the work, or updates the existing one for it; returns the memory that the driver gave for that.
    fn prepare(&mut self, queue: &Queue, libraries: Libraries<'_>, work: &[Work]) -> Result<u64> {
        let renewed = match self {
            Self::Ready(graph) if graph.has_calls_of(work) => {
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
            *self = Self::Ready(Graph::new(queue, libraries, work, renewed)?);
            Ok(())
        };
        figures::measured(queue, make).map(|((), taken_bytes)| taken_bytes)
    }
}

fn start_all(queue: &Queue, libraries: Libraries<'_>, work: &[Work]) -> Result<()> {
    work.iter().try_for_each(|work| work.start(queue, libraries))
}

impl Step {
    fn from_work(work: &Work) -> Self {
        match work {
            Work::Kernel(launch) => Self::Kernel(launch.function, launch.grid),
            Work::Product(product) => Self::Product(product.shape),
            Work::Dnn(call) => Self::Dnn(call.task),
        }
    }
}

impl Work {
    /// Passes the work to the driver, which runs it, or records it during a capture.
    fn start(&self, queue: &Queue, libraries: Libraries<'_>) -> Result<()> {
        match self {
            Self::Kernel(launch) => launch.start(queue),
            Self::Product(product) => libraries.blas.ok_or_else(not_open)?.run(queue, product),
            Self::Dnn(call) => libraries.dnn.ok_or_else(not_open)?.run(call),
        }
    }
}

fn not_open() -> Error {
    Error::backend(NAME, "work of a library that is not open")
}

/// A captured sequence: a chain of nodes.
struct Captured {
    graph: sys::CUgraph,
    /// The node of each of this backend's kernels, in order of the work.
    nodes: Vec<Option<sys::CUgraphNode>>,
}

impl Captured {
    /// Captures the work; nothing runs.
    fn new(queue: &Queue, libraries: Libraries<'_>, work: &[Work]) -> Result<Self> {
        // Streams of others, and other work of this thread, are not captured.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        driven!(cuStreamBeginCapture_v2(queue.stream(), mode))?;
        let written: Result<Vec<_>> = work.iter().map(|work| write_down(queue, libraries, work)).collect();
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

/// A sequence that the driver launches as one graph.
struct Graph {
    ready: sys::CUgraphExec,
    /// The captured graph from which `ready` was made: its nodes identify the nodes to update.
    captured: Captured,
    /// The work that `ready` currently does; empty if that is not set yet.
    work: Vec<Work>,
    /// Number of captures in a row since its arguments could last be updated.
    renewed: u32,
}

// SAFETY: handles of the driver's, which any thread may use that has the context; they are behind a lock.
unsafe impl Send for Graph {}

impl Graph {
    fn new(queue: &Queue, libraries: Libraries<'_>, work: &[Work], renewed: u32) -> Result<Self> {
        let captured = Captured::new(queue, libraries, work)?;
        let mut ready = std::ptr::null_mut();
        driven!(cuGraphInstantiateWithFlags(&mut ready, captured.graph, 0))?;
        Ok(Self { ready, captured, work: Vec::new(), renewed })
    }

    /// True if the libraries' calls, whose arguments only the libraries can write, are equal to those of this work.
    fn has_calls_of(&self, work: &[Work]) -> bool {
        self.work.iter().zip(work).all(|(old, new)| match (old, new) {
            (Work::Product(old), Work::Product(new)) => old == new,
            (Work::Dnn(old), Work::Dnn(new)) => old == new,
            _ => true,
        })
    }

    /// Writes this work's arguments into the nodes of our kernels. A launch in progress keeps its own.
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
        // The driver waits for a launch in progress. Nothing can be done about a failure.
        let _ = driven!(cuGraphExecDestroy(self.ready));
    }
}

/// Passes the work to the capturing stream; returns the node that a kernel of this backend became.
fn write_down(queue: &Queue, libraries: Libraries<'_>, work: &Work) -> Result<Option<sys::CUgraphNode>> {
    work.start(queue, libraries)?;
    match work {
        Work::Kernel(_) => newest_node(queue).map(Some),
        Work::Product(_) | Work::Dnn(_) => Ok(None),
    }
}

/// The node that the capture's next node would wait for: in one queue, the last one recorded.
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
