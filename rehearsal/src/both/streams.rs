//! Streams and events. The rules are in `work/`.

use std::ffi::{c_int, c_uint};

use crate::answer::{Answer, Code};
use crate::argument::Out;
use crate::exports::exports;
use crate::work::{HostFunction, kind, work};
use crate::{context, kernels, pools};

fn create(stream: Out<usize>, flags: c_uint, priority: c_int) -> Answer {
    let card = context::used()?;
    let created = work().create_stream(card, flags, priority);
    stream.set(created)
}

fn create_event(event: Out<usize>, flags: c_uint) -> Answer {
    context::used()?;
    let created = work().create_event(flags);
    event.set(created)
}

fn wait(stream: usize) -> Answer {
    let mut work = work();
    work.forbid_on_stream(stream)?;
    work.complete_all();
    drop(work);
    pools::synchronized();
    Ok(())
}

/// A callback that receives the stream and its status.
type Callback = extern "C" fn(usize, c_int, usize);

exports! {
    runtime cudaStreamCreate(stream: Out<usize>) {
        create(stream, 0, 0)
    }

    driver cuStreamCreate, runtime cudaStreamCreateWithFlags(stream: Out<usize>, flags: c_uint) {
        create(stream, flags, 0)
    }

    driver cuStreamCreateWithPriority, runtime cudaStreamCreateWithPriority(
        stream: Out<usize>, flags: c_uint, priority: c_int,
    ) {
        create(stream, flags, priority)
    }

    driver cuStreamDestroy_v2, runtime cudaStreamDestroy(stream: usize) {
        work().destroy_stream(stream)
    }

    driver cuStreamGetPriority, runtime cudaStreamGetPriority(stream: usize, priority: Out<c_int>) {
        let found = work().stream(stream)?.priority;
        priority.set(found)
    }

    driver cuStreamGetFlags, runtime cudaStreamGetFlags(stream: usize, flags: Out<c_uint>) {
        let found = work().stream(stream)?.flags;
        flags.set(found)
    }

    driver cuStreamGetCtx(stream: usize, found: Out<usize>) {
        let card = work().stream(stream)?.card;
        found.set(context::handle(card))
    }

    runtime cudaStreamGetDevice(stream: usize, card: Out<c_int>) {
        let found = work().stream(stream)?.card;
        card.set(found as c_int)
    }

    runtime cudaStreamGetId(stream: usize, id: Out<u64>) {
        work().stream(stream)?;
        id.set(stream as u64)
    }

    /// Work takes no time, so that a stream is always done.
    driver cuStreamQuery, runtime cudaStreamQuery(stream: usize) {
        work().forbid_on_stream(stream)
    }

    driver cuStreamSynchronize(stream: usize) {
        wait(stream)
    }

    runtime cudaStreamSynchronize(stream: usize) {
        context::used()?;
        wait(stream)
    }

    driver cuStreamWaitEvent, runtime cudaStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) {
        work().wait_on_stream(stream, event)
    }

    driver cuLaunchHostFunc, runtime cudaLaunchHostFunc(
        stream: usize, function: Option<extern "C" fn(usize)>, argument: usize,
    ) {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        kernels::call(stream, HostFunction { function, argument })
    }

    runtime cudaStreamAddCallback(stream: usize, callback: Option<Callback>, argument: usize, _flags: c_uint) {
        let callback = callback.ok_or(Code::INVALID_VALUE)?;
        work().forbid_on_stream(stream)?;
        callback(stream, 0, argument);
        Ok(())
    }

    runtime cudaEventCreate(event: Out<usize>) {
        create_event(event, 0)
    }

    driver cuEventCreate, runtime cudaEventCreateWithFlags(event: Out<usize>, flags: c_uint) {
        create_event(event, flags)
    }

    driver cuEventDestroy_v2, runtime cudaEventDestroy(event: usize) {
        work().destroy_event(event)
    }

    driver cuEventRecord, runtime cudaEventRecord(event: usize, stream: usize) {
        work().record(event, stream)
    }

    runtime cudaEventRecordWithFlags(event: usize, stream: usize, flags: c_uint) {
        const EXTERNAL: c_uint = 1;
        let mut work = work();
        // The graph records an external event, and no stream joins a capture through it.
        let is_node = flags & EXTERNAL != 0 && work.capture_node(stream, kind::RECORD_EVENT, None)?;
        if is_node { Ok(()) } else { work.record(event, stream) }
    }

    driver cuEventQuery, runtime cudaEventQuery(event: usize) {
        work().query_event(event)
    }

    driver cuEventSynchronize, runtime cudaEventSynchronize(event: usize) {
        work().wait_for_event(event)
    }

    driver cuEventElapsedTime, driver cuEventElapsedTime_v2,
    runtime cudaEventElapsedTime, runtime cudaEventElapsedTime_v2(milliseconds: Out<f32>, start: usize, end: usize) {
        let elapsed = work().elapsed(start, end)?;
        milliseconds.set(elapsed)
    }
}
