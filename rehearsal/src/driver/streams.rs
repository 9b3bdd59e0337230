//! Streams, events, captures, graphs. The rules are in `work/`.

use std::ffi::{c_int, c_uint};

use crate::answer::{Answer, driver};
use crate::argument::Out;
use crate::work::{capture, work};
use crate::{context, pools, told, values};

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(stream: Out<usize>, flags: c_uint) -> c_int {
    cuStreamCreateWithPriority(stream, flags, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(stream: Out<usize>, flags: c_uint, priority: c_int) -> c_int {
    let created = context::used().map(|card| work().create_stream(card, flags, priority));
    driver(created.and_then(|created| stream.set(created)))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: usize) -> c_int {
    driver(work().destroy_stream(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetPriority(stream: usize, priority: Out<c_int>) -> c_int {
    let found = work().stream(stream).map(|stream| stream.priority);
    driver(found.and_then(|found| priority.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetFlags(stream: usize, flags: Out<c_uint>) -> c_int {
    let found = work().stream(stream).map(|stream| stream.flags);
    driver(found.and_then(|found| flags.set(found)))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx(stream: usize, found: Out<usize>) -> c_int {
    let card = work().stream(stream).map(|stream| stream.card);
    driver(card.and_then(|card| found.set(context::handle(card))))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: usize) -> c_int {
    driver(work().forbid_on_stream(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: usize) -> c_int {
    let wait = || -> Answer {
        let mut work = work();
        work.forbid_on_stream(stream)?;
        work.complete_all();
        drop(work);
        pools::synchronized();
        Ok(())
    };
    driver(wait())
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) -> c_int {
    driver(work().wait_on_stream(stream, event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(event: Out<usize>, flags: c_uint) -> c_int {
    let created = context::used().map(|_| work().create_event(flags));
    driver(created.and_then(|created| event.set(created)))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: usize) -> c_int {
    driver(work().destroy_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: usize, stream: usize) -> c_int {
    driver(work().record(event, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: usize) -> c_int {
    driver(work().query_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: usize) -> c_int {
    driver(work().wait_for_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(milliseconds: Out<f32>, start: usize, end: usize) -> c_int {
    let elapsed = work().elapsed(start, end);
    driver(elapsed.and_then(|elapsed| milliseconds.set(elapsed)))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: usize, end: usize) -> c_int {
    cuEventElapsedTime(milliseconds, start, end)
}

#[unsafe(no_mangle)]
extern "C" fn cuThreadExchangeStreamCaptureMode(mode: Out<c_int>) -> c_int {
    driver(mode.get().and_then(capture::exchange_mode).and_then(|before| mode.set(before)))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: usize, mode: c_int) -> c_int {
    driver(work().begin_capture(stream, mode, None))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamEndCapture(stream: usize, graph: Out<usize>) -> c_int {
    let ended = work().end_capture(stream);
    driver(ended.and_then(|ended| graph.set(ended)))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: usize, status: Out<c_int>) -> c_int {
    let info = work().capture_info(stream);
    driver(info.and_then(|info| status.set(info.status)))
}

fn inform(stream: usize, status: Out<c_int>, id: Out<u64>, graph: Out<usize>, count: Out<usize>) -> c_int {
    let info = work().capture_info(stream);
    driver(info.and_then(|info| {
        status.set(info.status)?;
        if info.status != capture::STATUS_NONE {
            id.offer(info.id);
            graph.offer(info.graph);
            count.offer(info.tail.len());
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCaptureInfo(stream: usize, status: Out<c_int>, id: Out<u64>) -> c_int {
    inform(stream, status, id, Out::at(0), Out::at(0))
}

/// Does not return the nodes; only the runtime's function does.
#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: usize,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<usize>,
    count: Out<usize>,
) -> c_int {
    nodes.offer(0);
    count.offer(0);
    inform(stream, status, id, graph, Out::at(0))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCaptureInfo_v3(
    stream: usize,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
) -> c_int {
    edges.offer(0);
    cuStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count)
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiateWithFlags(executable: Out<usize>, graph: usize, _flags: u64) -> c_int {
    let made = work().instantiate(graph);
    driver(made.and_then(|made| executable.set(made)))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(executable: usize, stream: usize) -> c_int {
    let hosts = work().launch_graph(executable, stream);
    driver(hosts.map(|hosts| {
        values::launched();
        told::anything_written();
        hosts.iter().for_each(|host| (host.function)(host.argument));
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(executable: usize) -> c_int {
    driver(work().destroy_executable(executable))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: usize) -> c_int {
    driver(work().destroy_graph(graph))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphGetNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) -> c_int {
    let found = work().nodes(graph, false);
    driver(found.and_then(|found| {
        if !nodes.is_null() {
            let capacity = count.get()?;
            found.iter().take(capacity).enumerate().try_for_each(|(index, node)| nodes.set_at(index, *node))?;
        }
        count.set(found.len())
    }))
}
