//! NCCL. Sizes are as on cards. Contents are those of the other ranks if they are small and known, and ranks can meet.

mod collectives;
mod communicators;
mod members;

use std::ffi::{c_char, c_int};

use crate::answer::Answer;
use crate::argument::{In, Out};
use crate::{context, device_memory, handles, log, wheel};

use communicators::{Communicator, found};
use members::Id;

/// `ncclSuccess` and others.
const SUCCESS: c_int = 0;
const UNHANDLED_CUDA_ERROR: c_int = 1;
const INVALID_ARGUMENT: c_int = 4;

fn status(answer: Answer) -> c_int {
    answer.map_or(UNHANDLED_CUDA_ERROR, |()| SUCCESS)
}

fn create(handle: Out<usize>, name: String, ranks: c_int, rank: c_int, card: c_int) -> c_int {
    let made = communicators::create(name, ranks, rank, card);
    made.map_or(INVALID_ARGUMENT, |made| handle.set(made).map_or(INVALID_ARGUMENT, |()| SUCCESS))
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(version: Out<c_int>) -> c_int {
    status(version.set(wheel::written("libnccl.so.", c"ncclGetVersion").unwrap_or(22800)))
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(id: Out<Id>) -> c_int {
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&(handles::new() as u64).to_ne_bytes());
    bytes[8..12].copy_from_slice(&std::process::id().to_ne_bytes());
    status(id.set(Id(bytes)))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRank(handle: Out<usize>, ranks: c_int, id: Id, rank: c_int) -> c_int {
    create(handle, id.name(), ranks, rank, context::current() as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRankConfig(
    handle: Out<usize>,
    ranks: c_int,
    id: Id,
    rank: c_int,
    _configuration: usize,
) -> c_int {
    create(handle, id.name(), ranks, rank, context::current() as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRankScalable(
    handle: Out<usize>,
    ranks: c_int,
    rank: c_int,
    _id_count: c_int,
    ids: In<Id>,
    _configuration: usize,
) -> c_int {
    let Ok(first) = ids.get() else { return INVALID_ARGUMENT };
    create(handle, first.name(), ranks, rank, context::current() as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitAll(room: usize, count: c_int, _cards: usize) -> c_int {
    let name = format!("{:x}-{}", handles::new(), std::process::id());
    let each = |rank| create(Out::at(room + rank as usize * size_of::<usize>()), name.clone(), count, rank, rank);
    (0..count).map(each).find(|status| *status != SUCCESS).unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommSplit(whole: usize, color: c_int, key: c_int, part: Out<usize>, _configuration: usize) -> c_int {
    const NO_COLOR: c_int = -1;
    let Some((whole, child)) = communicators::next_child(whole) else { return INVALID_ARGUMENT };
    if color == NO_COLOR {
        // The other ranks wait for this rank's choice.
        let _chosen = whole.chosen(child, color, key);
        members::take_part();
        return status(part.set(0));
    }
    let (name, ranks, rank) = whole.part(child, color, key);
    create(part, name, ranks, rank, whole.card)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommShrink(
    whole: usize,
    _excluded: usize,
    count: c_int,
    part: Out<usize>,
    _configuration: usize,
    _flags: c_int,
) -> c_int {
    log::once("not_exact", "ncclCommShrink");
    let Some((whole, child)) = communicators::next_child(whole) else { return INVALID_ARGUMENT };
    let ranks = whole.ranks.saturating_sub(count);
    create(part, format!("{}.{child}", whole.name), ranks, whole.rank.min(ranks - 1), whole.card)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(handle: usize) -> c_int {
    communicators::destroy(handle);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(handle: usize) -> c_int {
    ncclCommDestroy(handle)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommFinalize(_handle: usize) -> c_int {
    SUCCESS
}

fn tell(handle: usize, room: Out<c_int>, figure: impl Fn(Communicator) -> c_int) -> c_int {
    found(handle).map_or(INVALID_ARGUMENT, |communicator| status(room.set(figure(communicator))))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommCount(handle: usize, count: Out<c_int>) -> c_int {
    tell(handle, count, |communicator| communicator.ranks)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommUserRank(handle: usize, rank: Out<c_int>) -> c_int {
    tell(handle, rank, |communicator| communicator.rank)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommCuDevice(handle: usize, card: Out<c_int>) -> c_int {
    tell(handle, card, |communicator| communicator.card)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommGetAsyncError(handle: usize, error: Out<c_int>) -> c_int {
    tell(handle, error, |_| SUCCESS)
}

/// A registered buffer is its own handle.
#[unsafe(no_mangle)]
extern "C" fn ncclCommRegister(_handle: usize, buffer: usize, _bytes: usize, registered: Out<usize>) -> c_int {
    status(registered.set(buffer))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommWindowRegister(
    _handle: usize,
    buffer: usize,
    _bytes: usize,
    window: Out<usize>,
    _flags: c_int,
) -> c_int {
    status(window.set(buffer))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDeregister(_handle: usize, _registered: usize) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommWindowDeregister(_handle: usize, _window: usize) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclMemAlloc(address: Out<usize>, bytes: usize) -> c_int {
    status(device_memory::allocate(address, bytes))
}

#[unsafe(no_mangle)]
extern "C" fn ncclMemFree(address: usize) -> c_int {
    status(device_memory::free(address))
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        SUCCESS => c"no error",
        UNHANDLED_CUDA_ERROR => c"unhandled cuda error",
        INVALID_ARGUMENT => c"invalid argument",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_handle: usize) -> *const c_char {
    c"".as_ptr()
}

/// Groups have no effect.
#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclRedOpCreatePreMulSum(
    operation: Out<c_int>,
    _scalar: usize,
    _kind: c_int,
    _residence: c_int,
    _handle: usize,
) -> c_int {
    // The first number after NCCL's own operations.
    status(operation.set(5))
}

#[unsafe(no_mangle)]
extern "C" fn ncclRedOpDestroy(_operation: c_int, _handle: usize) -> c_int {
    SUCCESS
}
