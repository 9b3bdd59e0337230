//! Captures: the work of streams becomes nodes of a graph.
//!
//! A stream joins a capture when it waits for an event that was recorded in it. The capture must wait for the stream
//! before it ends. During a capture, calls that a graph cannot hold are errors, by the rules of
//! `cudaStreamBeginCapture`.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Capture, Graph, HostFunction, LEGACY, Node, Work};
use crate::answer::{Answer, Code};

/// Capture modes, as `cudaStreamCaptureMode` numbers them.
const GLOBAL: c_int = 0;
const RELAXED: c_int = 2;

/// States of a stream, as `cudaStreamCaptureStatus` numbers them.
pub(crate) const STATUS_NONE: c_int = 0;
const STATUS_ACTIVE: c_int = 1;
const STATUS_INVALIDATED: c_int = 2;

thread_local! {
    static MODE: Cell<c_int> = const { Cell::new(GLOBAL) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

static THREADS: AtomicU64 = AtomicU64::new(1);

fn thread() -> u64 {
    if THREAD.get() == 0 {
        THREAD.set(THREADS.fetch_add(1, Ordering::Relaxed));
    }
    THREAD.get()
}

/// Sets how strict this thread is with calls that a capture cannot hold, and returns the former mode.
pub(crate) fn exchange_mode(mode: c_int) -> Answer<c_int> {
    if !(GLOBAL..=RELAXED).contains(&mode) {
        return Err(Code::INVALID_VALUE);
    }
    Ok(MODE.replace(mode))
}

/// Known facts about a stream's capture.
pub(crate) struct Info {
    pub(crate) status: c_int,
    pub(crate) id: u64,
    pub(crate) graph: usize,
    pub(crate) tail: Vec<usize>,
}

impl Work {
    /// Begins a capture on a stream, into an existing graph or a new one.
    pub(crate) fn begin_capture(&mut self, stream: usize, mode: c_int, into: Option<(usize, Vec<usize>)>) -> Answer {
        if LEGACY.contains(&stream) {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        if !(GLOBAL..=RELAXED).contains(&mode) {
            return Err(Code::INVALID_VALUE);
        }
        if self.stream(stream)?.capture.is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        let (graph, tail) = match into {
            Some((graph, tail)) => {
                self.graph(graph)?;
                (graph, tail)
            }
            None => (self.create_graph(Graph::default()), Vec::new()),
        };
        self.captures_begun += 1;
        let id = self.captures_begun;
        self.captures.insert(id, Capture { graph, origin: stream, mode, thread: thread(), is_broken: false });
        let stream = self.stream(stream)?;
        stream.capture = Some(id);
        stream.tail = tail;
        Ok(())
    }

    /// Ends the capture that was begun on a stream, and returns its graph.
    pub(crate) fn end_capture(&mut self, stream: usize) -> Answer<usize> {
        let id = self.stream(stream)?.capture.ok_or(Code::ILLEGAL_STATE)?;
        let capture = self.captures.get(&id).cloned().ok_or(Code::ILLEGAL_STATE)?;
        if capture.origin != stream {
            return Err(Code::CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != thread() {
            return Err(Code::CAPTURE_WRONG_THREAD);
        }
        let is_joined = self.is_joined(id, &capture);
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(id)) {
            stream.capture = None;
            stream.tail.clear();
        }
        self.captures.remove(&id);
        if capture.is_broken {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        if is_joined { Ok(capture.graph) } else { Err(Code::CAPTURE_UNJOINED) }
    }

    /// True if the origin waits for all work of the capture's other streams.
    fn is_joined(&self, id: u64, capture: &Capture) -> bool {
        let (Some(graph), Some(origin)) = (self.graphs.get(&capture.graph), self.streams.get(&capture.origin)) else {
            return false;
        };
        let mut waited: HashSet<usize> = origin.tail.iter().copied().collect();
        // A node waits only for nodes that were made before it.
        for (handle, node) in graph.nodes.iter().rev() {
            if waited.contains(handle) {
                waited.extend(&node.after);
            }
        }
        let mut members = self.streams.values().filter(|stream| stream.capture == Some(id));
        members.all(|stream| stream.tail.iter().all(|node| waited.contains(node)))
    }

    /// Returns the known facts about a stream's capture.
    pub(crate) fn capture_info(&mut self, stream: usize) -> Answer<Info> {
        let stream = self.stream(stream)?.clone();
        let Some((id, capture)) = stream.capture.and_then(|id| Some((id, self.captures.get(&id)?))) else {
            return Ok(Info { status: STATUS_NONE, id: 0, graph: 0, tail: Vec::new() });
        };
        let status = if capture.is_broken { STATUS_INVALIDATED } else { STATUS_ACTIVE };
        Ok(Info { status, id, graph: capture.graph, tail: stream.tail })
    }

    /// Captures an operation of a stream. Returns `true` if it was captured, and so does not run now.
    pub(crate) fn capture_node(&mut self, stream: usize, kind: c_int, host: Option<HostFunction>) -> Answer<bool> {
        let member = self.stream(stream)?.clone();
        let Some(capture) = member.capture.and_then(|id| self.captures.get(&id)) else {
            return Ok(false);
        };
        if capture.is_broken {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        let node = self.add_node(capture.graph, Node { kind, after: member.tail, host })?;
        self.stream(stream)?.tail = vec![node];
        Ok(true)
    }

    /// Captures an operation that a library runs on a stream without naming it: the stream whose capture this thread
    /// began.
    pub(crate) fn capture_library_call(&mut self) {
        let own = self.captures.values().find(|capture| capture.thread == thread());
        if let Some(origin) = own.map(|capture| capture.origin) {
            let _not_captured = self.capture_node(origin, super::kind::KERNEL, None);
        }
    }

    /// Makes a stream wait for an event: the stream may join the event's capture.
    pub(crate) fn wait_on_stream(&mut self, stream: usize, event: usize) -> Answer {
        let captured = self.event(event)?.captured.clone();
        let member = self.stream(stream)?;
        match (member.capture, captured) {
            (None, None) => Ok(()),
            // A captured stream cannot wait for an event outside its capture.
            (Some(id), None) => {
                self.break_capture(id);
                Err(Code::CAPTURE_ISOLATION)
            }
            (Some(own), Some((other, _))) if own != other => {
                self.break_capture(own);
                self.break_capture(other);
                Err(Code::CAPTURE_MERGE)
            }
            (_, Some((id, nodes))) => {
                if !self.captures.contains_key(&id) {
                    return Err(Code::CAPTURED_EVENT);
                }
                let member = self.stream(stream)?;
                member.capture = Some(id);
                let more = nodes.into_iter().filter(|node| !member.tail.contains(node)).collect::<Vec<_>>();
                member.tail.extend(more);
                Ok(())
            }
        }
    }

    fn break_capture(&mut self, id: u64) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.is_broken = true;
        }
    }

    /// Forbids a call that a graph cannot hold, such as an allocation: fails and ends the captures that it concerns, if any.
    pub(crate) fn forbid_in_capture(&mut self) -> Answer {
        let mode = MODE.get();
        let concerns = |capture: &Capture| match mode {
            RELAXED => false,
            GLOBAL if capture.mode == GLOBAL => true,
            _ => capture.mode != RELAXED && capture.thread == thread(),
        };
        let concerned: Vec<u64> =
            self.captures.iter().filter(|(_, capture)| concerns(capture)).map(|(id, _)| *id).collect();
        if concerned.is_empty() {
            return Ok(());
        }
        concerned.into_iter().for_each(|id| self.break_capture(id));
        Err(Code::CAPTURE_UNSUPPORTED)
    }

    /// Forbids waiting for a captured stream: fails and ends its capture, if it has one.
    pub(crate) fn forbid_on_stream(&mut self, stream: usize) -> Answer {
        let Some(id) = self.stream(stream)?.capture else { return Ok(()) };
        self.break_capture(id);
        Err(Code::CAPTURE_UNSUPPORTED)
    }

    /// Replaces the dependencies of a captured stream's next node, or adds to them.
    pub(crate) fn set_tail(&mut self, stream: usize, nodes: Vec<usize>, add: bool) -> Answer {
        let graph = self.capture_info(stream)?;
        if graph.status != STATUS_ACTIVE {
            return Err(Code::ILLEGAL_STATE);
        }
        if nodes.iter().any(|node| self.graph_of.get(node) != Some(&graph.graph)) {
            return Err(Code::INVALID_VALUE);
        }
        let member = self.stream(stream)?;
        if add {
            member.tail.extend(nodes);
        } else {
            member.tail = nodes;
        }
        Ok(())
    }
}
