//! Work in its order: streams, events, captures and graphs. They are in one place because they refer to each other.
//!
//! Work takes no time, so that a stream has no queue. Only facts that programs ask for are kept: whether an event is
//! complete, which streams are captured and by whom, which nodes a graph has and what they wait for.

pub(crate) mod capture;
pub(crate) mod graphs;
pub(crate) mod streams;

use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::answer::{Answer, Code};

/// The legacy default stream of a card, for which others wait: null, and its name.
pub(crate) const LEGACY: [usize; 2] = [0, 1];
/// The default stream of each thread, by its name.
pub(crate) const PER_THREAD: usize = 2;

#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub(crate) card: usize,
    pub(crate) flags: c_uint,
    pub(crate) priority: c_int,
    /// The capture to which the stream belongs.
    pub(crate) capture: Option<u64>,
    /// Dependencies of its next node: nodes of the capture's graph.
    pub(crate) tail: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Event {
    pub(crate) flags: c_uint,
    /// Number of its last recording, if it was recorded.
    pub(crate) recorded: Option<u64>,
    /// The capture in which it was recorded, and the nodes to wait for.
    pub(crate) captured: Option<(u64, Vec<usize>)>,
}

/// A capture in progress.
#[derive(Clone, Debug)]
pub(crate) struct Capture {
    pub(crate) graph: usize,
    /// Stream on which it was begun.
    pub(crate) origin: usize,
    pub(crate) mode: c_int,
    /// Thread that began it.
    pub(crate) thread: u64,
    /// True if something happened that a graph cannot hold.
    pub(crate) is_broken: bool,
}

/// A function of the program that runs when a graph is launched, with its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    pub(crate) function: extern "C" fn(usize),
    pub(crate) argument: usize,
}

/// A node of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Kind, as `cudaGraphNodeType` numbers it.
    pub(crate) kind: c_int,
    /// Handles of the nodes for which it waits.
    pub(crate) after: Vec<usize>,
    pub(crate) host: Option<HostFunction>,
}

/// Kinds of nodes that are distinguished here, as `cudaGraphNodeType` numbers them.
pub(crate) mod kind {
    use std::ffi::c_int;

    pub(crate) const KERNEL: c_int = 0;
    pub(crate) const MEMCPY: c_int = 1;
    pub(crate) const MEMSET: c_int = 2;
    pub(crate) const HOST: c_int = 3;
    pub(crate) const GRAPH: c_int = 4;
    pub(crate) const EMPTY: c_int = 5;
    pub(crate) const WAIT_EVENT: c_int = 6;
    pub(crate) const RECORD_EVENT: c_int = 7;
    pub(crate) const ALLOCATE: c_int = 10;
    pub(crate) const FREE: c_int = 11;
}

/// A graph: its nodes in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<(usize, Node)>,
}

#[derive(Default)]
pub(crate) struct Work {
    pub(crate) streams: HashMap<usize, Stream>,
    pub(crate) events: HashMap<usize, Event>,
    pub(crate) captures: HashMap<u64, Capture>,
    pub(crate) graphs: HashMap<usize, Graph>,
    /// Graph of each node.
    pub(crate) graph_of: HashMap<usize, usize>,
    /// Functions of the host nodes of each executable graph.
    pub(crate) executables: HashMap<usize, Vec<HostFunction>>,
    /// Number of recordings of events. Below it, the number of complete ones.
    pub(crate) recordings: u64,
    pub(crate) complete: u64,
    /// The complete ones if events were late: up to here something waited.
    pub(crate) waited: u64,
    pub(crate) captures_begun: u64,
}

static WORK: LazyLock<Mutex<Work>> = LazyLock::new(Mutex::default);

/// Locks the work for this thread.
pub(crate) fn work() -> MutexGuard<'static, Work> {
    WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    /// Returns a stream by its handle. The default streams always exist.
    pub(crate) fn stream(&mut self, handle: usize) -> Answer<&mut Stream> {
        let handle = if LEGACY.contains(&handle) { 0 } else { handle };
        if matches!(handle, 0 | PER_THREAD) {
            let card = crate::context::current();
            let stream = self.streams.entry(handle).or_default();
            stream.card = card;
            return Ok(stream);
        }
        self.streams.get_mut(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// Returns an event by its handle.
    pub(crate) fn event(&mut self, handle: usize) -> Answer<&mut Event> {
        self.events.get_mut(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// Returns a graph by its handle.
    pub(crate) fn graph(&mut self, handle: usize) -> Answer<&mut Graph> {
        self.graphs.get_mut(&handle).ok_or(Code::INVALID_VALUE)
    }

    /// Adds a node to a graph.
    pub(crate) fn add_node(&mut self, graph: usize, node: Node) -> Answer<usize> {
        let known = node.after.iter().all(|before| self.graph_of.get(before) == Some(&graph));
        if !known {
            return Err(Code::INVALID_VALUE);
        }
        let handle = crate::handles::new();
        self.graph(graph)?.nodes.push((handle, node));
        self.graph_of.insert(handle, graph);
        Ok(handle)
    }
}
