//! NCCL without other ranks: sizes are theirs, contents are not known.
//!
//! A gather or a broadcast gives a rank what it has itself; that is said once in the log. Sums are not known.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::answer::Answer;
use crate::argument::Out;
use crate::work::{kind, work};
use crate::{context, device_memory, handles, log, values, wheel};

/// `ncclSuccess` and others.
const SUCCESS: c_int = 0;
const UNHANDLED_CUDA_ERROR: c_int = 1;
const INVALID_ARGUMENT: c_int = 4;

/// A communicator.
#[derive(Clone, Copy, Debug)]
struct Communicator {
    ranks: c_int,
    rank: c_int,
    card: c_int,
}

static COMMUNICATORS: LazyLock<Mutex<HashMap<usize, Communicator>>> = LazyLock::new(Mutex::default);

fn communicators() -> MutexGuard<'static, HashMap<usize, Communicator>> {
    COMMUNICATORS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn found(handle: usize) -> Option<Communicator> {
    communicators().get(&handle).copied()
}

fn status(answer: Answer) -> c_int {
    answer.map_or(UNHANDLED_CUDA_ERROR, |()| SUCCESS)
}

fn create(handle: Out<usize>, ranks: c_int, rank: c_int, card: c_int) -> c_int {
    if ranks < 1 || !(0..ranks).contains(&rank) {
        return INVALID_ARGUMENT;
    }
    let made = handles::new();
    communicators().insert(made, Communicator { ranks, rank, card });
    handle.set(made).map_or(INVALID_ARGUMENT, |()| SUCCESS)
}

/// The size of an element, by `ncclDataType_t`.
fn element(kind: c_int) -> usize {
    match kind {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        4 | 5 | 8 => 8,
        _ => 4,
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(version: Out<c_int>) -> c_int {
    status(version.set(wheel::written("libnccl.so.", c"ncclGetVersion").unwrap_or(22800)))
}

/// 128 bytes by which ranks find each other, as `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Id([u8; 128]);

#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(id: Out<Id>) -> c_int {
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&(handles::new() as u64).to_ne_bytes());
    status(id.set(Id(bytes)))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRank(handle: Out<usize>, ranks: c_int, _id: Id, rank: c_int) -> c_int {
    create(handle, ranks, rank, context::current() as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRankConfig(
    handle: Out<usize>,
    ranks: c_int,
    _id: Id,
    rank: c_int,
    _configuration: usize,
) -> c_int {
    create(handle, ranks, rank, context::current() as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRankScalable(
    handle: Out<usize>,
    ranks: c_int,
    rank: c_int,
    _id_count: c_int,
    _ids: usize,
    _configuration: usize,
) -> c_int {
    create(handle, ranks, rank, context::current() as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitAll(room: usize, count: c_int, _cards: usize) -> c_int {
    let each = |rank| create(Out::at(room + rank as usize * size_of::<usize>()), count, rank, rank);
    (0..count).map(each).find(|status| *status != SUCCESS).unwrap_or(SUCCESS)
}

/// Which ranks choose which color is not known: the part is taken to be as large as the whole.
#[unsafe(no_mangle)]
extern "C" fn ncclCommSplit(whole: usize, color: c_int, _key: c_int, part: Out<usize>, _configuration: usize) -> c_int {
    const NO_COLOR: c_int = -1;
    log::once("not_exact", "ncclCommSplit");
    match found(whole) {
        None => INVALID_ARGUMENT,
        Some(_) if color == NO_COLOR => status(part.set(0)),
        Some(whole) => create(part, whole.ranks, whole.rank, whole.card),
    }
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
    let Some(whole) = found(whole) else { return INVALID_ARGUMENT };
    let ranks = whole.ranks.saturating_sub(count);
    create(part, ranks, whole.rank.min(ranks - 1), whole.card)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(handle: usize) -> c_int {
    communicators().remove(&handle);
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

/// Registered buffers are handles of themselves.
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

/// Groups begin and end at once.
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
    // The first number after the operations that NCCL has.
    status(operation.set(5))
}

#[unsafe(no_mangle)]
extern "C" fn ncclRedOpDestroy(_operation: c_int, _handle: usize) -> c_int {
    SUCCESS
}

/// A collective: what it writes is what this rank has, in as many copies, or not known.
fn collective(stream: usize, name: &str, writes: impl FnOnce()) -> c_int {
    status(work().capture_node(stream, kind::KERNEL, None).map(|is_captured| {
        if !is_captured {
            log::once("collective", name);
            writes();
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllReduce(
    _from: usize,
    to: usize,
    count: usize,
    kind: c_int,
    _operation: c_int,
    _handle: usize,
    stream: usize,
) -> c_int {
    collective(stream, "ncclAllReduce", || values::overwritten(to, count.saturating_mul(element(kind))))
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduce(
    _from: usize,
    to: usize,
    count: usize,
    kind: c_int,
    _operation: c_int,
    _root: c_int,
    _handle: usize,
    stream: usize,
) -> c_int {
    collective(stream, "ncclReduce", || values::overwritten(to, count.saturating_mul(element(kind))))
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduceScatter(
    _from: usize,
    to: usize,
    count: usize,
    kind: c_int,
    _operation: c_int,
    _handle: usize,
    stream: usize,
) -> c_int {
    collective(stream, "ncclReduceScatter", || values::overwritten(to, count.saturating_mul(element(kind))))
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllGather(from: usize, to: usize, count: usize, kind: c_int, handle: usize, stream: usize) -> c_int {
    let bytes = count.saturating_mul(element(kind));
    let ranks = found(handle).map_or(1, |communicator| communicator.ranks);
    collective(stream, "ncclAllGather", || {
        for rank in 0..ranks as usize {
            values::copy(to.wrapping_add(rank.wrapping_mul(bytes)), from, bytes);
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclBroadcast(
    from: usize,
    to: usize,
    count: usize,
    kind: c_int,
    _root: c_int,
    _handle: usize,
    stream: usize,
) -> c_int {
    collective(stream, "ncclBroadcast", || values::copy(to, from, count.saturating_mul(element(kind))))
}

/// The buffer keeps what this rank has.
#[unsafe(no_mangle)]
extern "C" fn ncclBcast(
    _buffer: usize,
    _count: usize,
    _kind: c_int,
    _root: c_int,
    _handle: usize,
    stream: usize,
) -> c_int {
    collective(stream, "ncclBcast", || ())
}

#[unsafe(no_mangle)]
extern "C" fn ncclSend(
    _from: usize,
    _count: usize,
    _kind: c_int,
    _peer: c_int,
    _handle: usize,
    stream: usize,
) -> c_int {
    collective(stream, "ncclSend", || ())
}

#[unsafe(no_mangle)]
extern "C" fn ncclRecv(to: usize, count: usize, kind: c_int, _peer: c_int, _handle: usize, stream: usize) -> c_int {
    collective(stream, "ncclRecv", || values::overwritten(to, count.saturating_mul(element(kind))))
}
