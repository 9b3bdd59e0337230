//! Streams, events, and captures of streams.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint};

use crate::answer::{Answer, runtime};
use crate::argument::{In, Out};
use crate::work::{HostFunction, capture, work};
use crate::{context, kernels, pools, wheel};

fn create(stream: Out<usize>, flags: c_uint, priority: c_int) -> c_int {
    let created = context::used().map(|card| work().create_stream(card, flags, priority));
    runtime(created.and_then(|created| stream.set(created)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamCreate(stream: Out<usize>) -> c_int {
    create(stream, 0, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamCreateWithFlags(stream: Out<usize>, flags: c_uint) -> c_int {
    create(stream, flags, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamCreateWithPriority(stream: Out<usize>, flags: c_uint, priority: c_int) -> c_int {
    create(stream, flags, priority)
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamDestroy(stream: usize) -> c_int {
    runtime(work().destroy_stream(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetPriority(stream: usize, priority: Out<c_int>) -> c_int {
    let found = work().stream(stream).map(|stream| stream.priority);
    runtime(found.and_then(|found| priority.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetFlags(stream: usize, flags: Out<c_uint>) -> c_int {
    let found = work().stream(stream).map(|stream| stream.flags);
    runtime(found.and_then(|found| flags.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetDevice(stream: usize, card: Out<c_int>) -> c_int {
    let found = work().stream(stream).map(|stream| stream.card as c_int);
    runtime(found.and_then(|found| card.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetId(stream: usize, id: Out<u64>) -> c_int {
    let found = work().stream(stream).map(|_| stream as u64);
    runtime(found.and_then(|found| id.set(found)))
}

/// Work takes no time, so that a stream is always done.
#[unsafe(no_mangle)]
extern "C" fn cudaStreamQuery(stream: usize) -> c_int {
    runtime(work().forbid_on_stream(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamSynchronize(stream: usize) -> c_int {
    let wait = || -> Answer {
        context::used()?;
        let mut work = work();
        work.forbid_on_stream(stream)?;
        work.complete_all();
        drop(work);
        pools::synchronized();
        Ok(())
    };
    runtime(wait())
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) -> c_int {
    runtime(work().wait_on_stream(stream, event))
}

#[unsafe(no_mangle)]
extern "C" fn cudaLaunchHostFunc(stream: usize, function: Option<extern "C" fn(usize)>, argument: usize) -> c_int {
    let function = function.ok_or(crate::answer::Code::INVALID_VALUE);
    runtime(function.and_then(|function| kernels::call(stream, HostFunction { function, argument })))
}

/// A callback that receives the stream and its status.
type Callback = extern "C" fn(usize, c_int, usize);

#[unsafe(no_mangle)]
extern "C" fn cudaStreamAddCallback(
    stream: usize,
    callback: Option<Callback>,
    argument: usize,
    _flags: c_uint,
) -> c_int {
    let callback = callback.ok_or(crate::answer::Code::INVALID_VALUE);
    runtime(callback.and_then(|callback| {
        work().forbid_on_stream(stream)?;
        callback(stream, 0, argument);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventCreate(event: Out<usize>) -> c_int {
    cudaEventCreateWithFlags(event, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventCreateWithFlags(event: Out<usize>, flags: c_uint) -> c_int {
    let created = context::used().map(|_| work().create_event(flags));
    runtime(created.and_then(|created| event.set(created)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventDestroy(event: usize) -> c_int {
    runtime(work().destroy_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventRecord(event: usize, stream: usize) -> c_int {
    runtime(work().record(event, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventRecordWithFlags(event: usize, stream: usize, flags: c_uint) -> c_int {
    const EXTERNAL: c_uint = 1;
    let record = || -> Answer {
        let mut work = work();
        // The graph records an external event, and no stream joins a capture through it.
        let is_node = flags & EXTERNAL != 0 && work.capture_node(stream, crate::work::kind::RECORD_EVENT, None)?;
        if is_node { Ok(()) } else { work.record(event, stream) }
    };
    runtime(record())
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventQuery(event: usize) -> c_int {
    runtime(work().query_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventSynchronize(event: usize) -> c_int {
    runtime(work().wait_for_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventElapsedTime(milliseconds: Out<f32>, start: usize, end: usize) -> c_int {
    let elapsed = work().elapsed(start, end);
    runtime(elapsed.and_then(|elapsed| milliseconds.set(elapsed)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaEventElapsedTime_v2(milliseconds: Out<f32>, start: usize, end: usize) -> c_int {
    cudaEventElapsedTime(milliseconds, start, end)
}

#[unsafe(no_mangle)]
extern "C" fn cudaThreadExchangeStreamCaptureMode(mode: Out<c_int>) -> c_int {
    runtime(mode.get().and_then(capture::exchange_mode).and_then(|before| mode.set(before)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamBeginCapture(stream: usize, mode: c_int) -> c_int {
    runtime(context::used().and_then(|_| work().begin_capture(stream, mode, None)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamBeginCaptureToGraph(
    stream: usize,
    graph: usize,
    nodes: In<usize>,
    _edges: usize,
    count: usize,
    mode: c_int,
) -> c_int {
    let nodes: Answer<Vec<usize>> = (0..count).map(|index| nodes.get_at(index)).collect();
    runtime(nodes.and_then(|nodes| work().begin_capture(stream, mode, Some((graph, nodes)))))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamEndCapture(stream: usize, graph: Out<usize>) -> c_int {
    let ended = work().end_capture(stream);
    if ended.is_err() {
        graph.offer(0);
    }
    runtime(ended.and_then(|ended| graph.set(ended)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamIsCapturing(stream: usize, status: Out<c_int>) -> c_int {
    let info = work().capture_info(stream);
    runtime(info.and_then(|info| status.set(info.status)))
}

/// Pointers for the known facts about a capture.
#[derive(Clone, Copy)]
pub(crate) struct InfoRoom {
    pub(crate) status: Out<c_int>,
    pub(crate) id: Out<u64>,
    pub(crate) graph: Out<usize>,
    pub(crate) nodes: Out<usize>,
    pub(crate) edges: Out<usize>,
    pub(crate) count: Out<usize>,
}

thread_local! {
    /// Nodes of the last answer. Callers may read them until the next question.
    static LENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Writes the known facts about a stream's capture.
pub(crate) fn inform(stream: usize, room: InfoRoom) -> Answer {
    let info = work().capture_info(stream)?;
    room.status.set(info.status)?;
    if info.status == capture::STATUS_NONE {
        return Ok(());
    }
    room.id.offer(info.id);
    room.graph.offer(info.graph);
    room.count.offer(info.tail.len());
    room.edges.offer(0);
    LENT.with_borrow_mut(|lent| {
        *lent = info.tail;
        room.nodes.offer(lent.as_ptr() as usize);
    });
    Ok(())
}

/// Under this name CUDA 12 has three arguments, and CUDA 13 seven.
#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetCaptureInfo(
    stream: usize,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
) -> c_int {
    let none = Out::at(0);
    if wheel::is_cuda_12() {
        return runtime(inform(stream, InfoRoom { status, id, graph: none, nodes: none, edges: none, count: none }));
    }
    runtime(inform(stream, InfoRoom { status, id, graph, nodes, edges, count }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetCaptureInfo_v2(
    stream: usize,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<usize>,
    count: Out<usize>,
) -> c_int {
    runtime(inform(stream, InfoRoom { status, id, graph, nodes, edges: Out::at(0), count }))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamGetCaptureInfo_v3(
    stream: usize,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
) -> c_int {
    runtime(inform(stream, InfoRoom { status, id, graph, nodes, edges, count }))
}

/// Changes the dependencies of a captured stream's next node. The flag says whether the new ones replace the current
/// ones.
pub(crate) fn update(stream: usize, nodes: In<usize>, count: usize, flags: c_uint) -> Answer {
    const REPLACE: c_uint = 1;
    let nodes: Vec<usize> = (0..count).map(|index| nodes.get_at(index)).collect::<Answer<_>>()?;
    work().set_tail(stream, nodes, flags & REPLACE == 0)
}

/// CUDA 13 has the data of edges as third argument.
#[unsafe(no_mangle)]
extern "C" fn cudaStreamUpdateCaptureDependencies(
    stream: usize,
    nodes: In<usize>,
    third: usize,
    fourth: usize,
    fifth: usize,
) -> c_int {
    let (count, flags) = if wheel::is_cuda_12() { (third, fourth) } else { (fourth, fifth) };
    runtime(update(stream, nodes, count, flags as c_uint))
}

#[unsafe(no_mangle)]
extern "C" fn cudaStreamUpdateCaptureDependencies_v2(
    stream: usize,
    nodes: In<usize>,
    _edges: usize,
    count: usize,
    flags: c_uint,
) -> c_int {
    runtime(update(stream, nodes, count, flags))
}
