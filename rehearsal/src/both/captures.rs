//! Captures of streams.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint};

use crate::answer::Answer;
use crate::argument::{In, Out};
use crate::exports::exports;
use crate::work::{capture, work};
use crate::{context, wheel};

/// Pointers for the known facts about a capture.
#[derive(Clone, Copy)]
struct InfoRoom {
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
}

impl InfoRoom {
    fn new(status: Out<c_int>, id: Out<u64>, graph: Out<usize>) -> Self {
        let none = Out::at(0);
        Self { status, id, graph, nodes: none, edges: none, count: none }
    }
}

thread_local! {
    /// Nodes of the last answer. Callers may read them until the next question.
    static LENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Writes the known facts about a stream's capture.
fn inform(stream: usize, room: InfoRoom) -> Answer {
    let info = work().capture_info(stream)?;
    room.status.set(info.status)?;
    if info.status == capture::STATUS_NONE {
        return Ok(());
    }
    room.id.offer(info.id);
    room.graph.offer(info.graph);
    room.count.offer(info.tail.len());
    room.edges.offer(0);
    if !room.nodes.is_null() {
        LENT.with_borrow_mut(|lent| {
            *lent = info.tail;
            room.nodes.offer(lent.as_ptr() as usize);
        });
    }
    Ok(())
}

fn all(nodes: In<usize>, count: usize) -> Answer<Vec<usize>> {
    (0..count).map(|index| nodes.get_at(index)).collect()
}

/// Changes the dependencies of a captured stream's next node. The flag says whether the new ones replace the current
/// ones.
fn update(stream: usize, nodes: In<usize>, count: usize, flags: c_uint) -> Answer {
    const REPLACE: c_uint = 1;
    let nodes = all(nodes, count)?;
    work().set_tail(stream, nodes, flags & REPLACE == 0)
}

exports! {
    driver cuThreadExchangeStreamCaptureMode, runtime cudaThreadExchangeStreamCaptureMode(mode: Out<c_int>) {
        mode.set(capture::exchange_mode(mode.get()?)?)
    }

    driver cuStreamBeginCapture_v2(stream: usize, mode: c_int) {
        work().begin_capture(stream, mode, None)
    }

    runtime cudaStreamBeginCapture(stream: usize, mode: c_int) {
        context::used()?;
        work().begin_capture(stream, mode, None)
    }

    runtime cudaStreamBeginCaptureToGraph(
        stream: usize, graph: usize, nodes: In<usize>, _edges: usize, count: usize, mode: c_int,
    ) {
        let nodes = all(nodes, count)?;
        work().begin_capture(stream, mode, Some((graph, nodes)))
    }

    driver cuStreamEndCapture(stream: usize, graph: Out<usize>) {
        let ended = work().end_capture(stream)?;
        graph.set(ended)
    }

    runtime cudaStreamEndCapture(stream: usize, graph: Out<usize>) {
        let ended = work().end_capture(stream).inspect_err(|_| graph.offer(0))?;
        graph.set(ended)
    }

    driver cuStreamIsCapturing, runtime cudaStreamIsCapturing(stream: usize, status: Out<c_int>) {
        let found = work().capture_info(stream)?.status;
        status.set(found)
    }

    driver cuStreamGetCaptureInfo(stream: usize, status: Out<c_int>, id: Out<u64>) {
        inform(stream, InfoRoom::new(status, id, Out::at(0)))
    }

    /// Does not return the nodes; only the runtime's function does.
    driver cuStreamGetCaptureInfo_v2(
        stream: usize, status: Out<c_int>, id: Out<u64>, graph: Out<usize>, nodes: Out<usize>, count: Out<usize>,
    ) {
        nodes.offer(0);
        count.offer(0);
        inform(stream, InfoRoom::new(status, id, graph))
    }

    driver cuStreamGetCaptureInfo_v3(
        stream: usize, status: Out<c_int>, id: Out<u64>, graph: Out<usize>,
        nodes: Out<usize>, edges: Out<usize>, count: Out<usize>,
    ) {
        edges.offer(0);
        nodes.offer(0);
        count.offer(0);
        inform(stream, InfoRoom::new(status, id, graph))
    }

    /// Under this name CUDA 12 has three arguments, and CUDA 13 seven.
    runtime cudaStreamGetCaptureInfo(
        stream: usize, status: Out<c_int>, id: Out<u64>, graph: Out<usize>,
        nodes: Out<usize>, edges: Out<usize>, count: Out<usize>,
    ) {
        if wheel::is_cuda_12() {
            return inform(stream, InfoRoom::new(status, id, Out::at(0)));
        }
        inform(stream, InfoRoom { status, id, graph, nodes, edges, count })
    }

    runtime cudaStreamGetCaptureInfo_v2(
        stream: usize, status: Out<c_int>, id: Out<u64>, graph: Out<usize>, nodes: Out<usize>, count: Out<usize>,
    ) {
        inform(stream, InfoRoom { nodes, count, ..InfoRoom::new(status, id, graph) })
    }

    runtime cudaStreamGetCaptureInfo_v3(
        stream: usize, status: Out<c_int>, id: Out<u64>, graph: Out<usize>,
        nodes: Out<usize>, edges: Out<usize>, count: Out<usize>,
    ) {
        inform(stream, InfoRoom { status, id, graph, nodes, edges, count })
    }

    /// CUDA 13 has the data of edges as third argument.
    runtime cudaStreamUpdateCaptureDependencies(
        stream: usize, nodes: In<usize>, third: usize, fourth: usize, fifth: usize,
    ) {
        let (count, flags) = if wheel::is_cuda_12() { (third, fourth) } else { (fourth, fifth) };
        update(stream, nodes, count, flags as c_uint)
    }

    runtime cudaStreamUpdateCaptureDependencies_v2(
        stream: usize, nodes: In<usize>, _edges: usize, count: usize, flags: c_uint,
    ) {
        update(stream, nodes, count, flags)
    }
}
