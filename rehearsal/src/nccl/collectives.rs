//! Collectives. Each rank sends its contribution if that is small, and promises its buffers the result.
//!
//! If ranks cannot meet (no `VRAMLAB_REHEARSAL_SHARED`), a gather or a broadcast gives a rank its own contribution.
//! Contents that are too large are not known. A rank that was not started is assumed to send the same as this one, and
//! that is reported.

use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;

use super::communicators::{Communicator, connect, found};
use crate::exchange::{self, MAX_BYTES};
use crate::promise::{How, Promise};
use crate::work::{kind, work};
use crate::{log, values};

/// `ncclSuccess` and another.
const SUCCESS: c_int = 0;
const UNHANDLED_CUDA_ERROR: c_int = 1;

/// Size of an element in bytes, by `ncclDataType_t`.
fn element(kind: c_int) -> usize {
    match kind {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        4 | 5 | 8 => 8,
        _ => 4,
    }
}

/// Runs a collective on a stream, unless it becomes a node of a graph.
fn on_stream(stream: usize, name: &str, run: impl FnOnce()) -> c_int {
    let node = work().capture_node(stream, kind::KERNEL, None);
    match node {
        Ok(false) => {
            log::once("collective", name);
            run();
            SUCCESS
        }
        Ok(true) => SUCCESS,
        Err(_) => UNHANDLED_CUDA_ERROR,
    }
}

/// Sends this rank's contribution, and returns the number of this collective in its communicator. `None` if contents
/// are not exchanged.
fn contribute(communicator: &Communicator, from: usize, bytes: usize) -> Option<u64> {
    if !exchange::is_possible() || bytes > MAX_BYTES {
        return None;
    }
    let contents = values::contents(from, bytes);
    exchange::send(&communicator.channel(communicator.rank), contents.as_deref())
}

/// Promises a buffer the contributions of all ranks, combined as `how` says.
fn promised(communicator: &Communicator, number: u64, how: How) -> Arc<Promise> {
    promised_of(communicator, 0..communicator.ranks, number, how)
}

/// As [`promised`], for some of the ranks.
fn promised_of(communicator: &Communicator, ranks: Range<c_int>, number: u64, how: How) -> Arc<Promise> {
    let assumed = ranks.clone().any(|rank| communicator.is_absent(rank));
    let sender = |rank| if communicator.is_absent(rank) { communicator.rank } else { rank };
    let parts = ranks.map(|rank| (communicator.channel(sender(rank)), number)).collect();
    Arc::new(Promise::new(parts, how, assumed))
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllReduce(
    from: usize,
    to: usize,
    count: usize,
    kind: c_int,
    operation: c_int,
    handle: usize,
    stream: usize,
) -> c_int {
    let bytes = count.saturating_mul(element(kind));
    on_stream(stream, "ncclAllReduce", || reduce(handle, from, to, bytes, How::Reduced { kind, operation }, 0, bytes))
}

/// Promises a buffer a part of the reduced contents.
fn reduce(handle: usize, from: usize, to: usize, bytes: usize, how: How, start: usize, part: usize) {
    let Some(communicator) = found(handle) else { return values::overwritten(to, part) };
    match contribute(&communicator, from, bytes) {
        Some(number) => values::promise(to, part, &promised(&communicator, number, how), start),
        None => values::overwritten(to, part),
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduce(
    from: usize,
    to: usize,
    count: usize,
    kind: c_int,
    operation: c_int,
    root: c_int,
    handle: usize,
    stream: usize,
) -> c_int {
    let bytes = count.saturating_mul(element(kind));
    on_stream(stream, "ncclReduce", || match found(handle) {
        // Only the root has a buffer for the result.
        Some(communicator) if communicator.rank != root => drop(contribute(&communicator, from, bytes)),
        _ => reduce(handle, from, to, bytes, How::Reduced { kind, operation }, 0, bytes),
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduceScatter(
    from: usize,
    to: usize,
    count: usize,
    kind: c_int,
    operation: c_int,
    handle: usize,
    stream: usize,
) -> c_int {
    let part = count.saturating_mul(element(kind));
    on_stream(stream, "ncclReduceScatter", || {
        let (ranks, rank) = found(handle).map_or((1, 0), |communicator| (communicator.ranks, communicator.rank));
        let all = part.saturating_mul(ranks as usize);
        reduce(handle, from, to, all, How::Reduced { kind, operation }, part.wrapping_mul(rank as usize), part);
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllGather(from: usize, to: usize, count: usize, kind: c_int, handle: usize, stream: usize) -> c_int {
    let bytes = count.saturating_mul(element(kind));
    on_stream(stream, "ncclAllGather", || {
        let Some(communicator) = found(handle) else { return values::overwritten(to, bytes) };
        let at = |rank: usize| to.wrapping_add(rank.wrapping_mul(bytes));
        match contribute(&communicator, from, bytes) {
            Some(number) => {
                for rank in 0..communicator.ranks {
                    let part = promised_of(&communicator, rank..rank + 1, number, How::Joined);
                    values::promise(at(rank as usize), bytes, &part, 0);
                }
            }
            None if exchange::is_possible() => {
                values::overwritten(to, bytes.saturating_mul(communicator.ranks as usize));
            }
            None => (0..communicator.ranks as usize).for_each(|rank| values::copy(at(rank), from, bytes)),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclBroadcast(
    from: usize,
    to: usize,
    count: usize,
    kind: c_int,
    root: c_int,
    handle: usize,
    stream: usize,
) -> c_int {
    let bytes = count.saturating_mul(element(kind));
    on_stream(stream, "ncclBroadcast", || broadcast(handle, from, to, bytes, root))
}

#[unsafe(no_mangle)]
extern "C" fn ncclBcast(buffer: usize, count: usize, kind: c_int, root: c_int, handle: usize, stream: usize) -> c_int {
    let bytes = count.saturating_mul(element(kind));
    on_stream(stream, "ncclBcast", || broadcast(handle, buffer, buffer, bytes, root))
}

fn broadcast(handle: usize, from: usize, to: usize, bytes: usize, root: c_int) {
    let Some(communicator) = found(handle) else { return values::overwritten(to, bytes) };
    match contribute(&communicator, from, bytes) {
        // The root keeps its own contents.
        Some(_) if communicator.rank == root => values::copy(to, from, bytes),
        Some(number) => {
            let sent = promised_of(&communicator, root..root + 1, number, How::Joined);
            values::promise(to, bytes, &sent, 0);
        }
        None if exchange::is_possible() && communicator.rank != root => values::overwritten(to, bytes),
        None => values::copy(to, from, bytes),
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclSend(from: usize, count: usize, kind: c_int, peer: c_int, handle: usize, stream: usize) -> c_int {
    connect(handle, peer);
    let bytes = count.saturating_mul(element(kind));
    on_stream(stream, "ncclSend", || {
        let Some(communicator) = found(handle).filter(|_| exchange::is_possible() && bytes <= MAX_BYTES) else {
            return;
        };
        let contents = values::contents(from, bytes);
        exchange::send(&communicator.channel_between(communicator.rank, peer), contents.as_deref());
    })
}

#[unsafe(no_mangle)]
extern "C" fn ncclRecv(to: usize, count: usize, kind: c_int, peer: c_int, handle: usize, stream: usize) -> c_int {
    connect(handle, peer);
    let bytes = count.saturating_mul(element(kind));
    on_stream(stream, "ncclRecv", || match found(handle).filter(|_| exchange::is_possible() && bytes <= MAX_BYTES) {
        // The contents would be that rank's own: an activation, a gradient, an object.
        Some(communicator) if communicator.is_absent(peer) => {
            log::once(
                "absent_rank",
                "what a rank that was not started would send is not known: start it as well if the script needs it",
            );
            values::overwritten(to, bytes);
        }
        Some(communicator) => {
            let channel = communicator.channel_between(peer, communicator.rank);
            let number = exchange::expect(&channel);
            values::promise(to, bytes, &Arc::new(Promise::new(vec![(channel, number)], How::Joined, false)), 0);
        }
        None => values::overwritten(to, bytes),
    })
}
