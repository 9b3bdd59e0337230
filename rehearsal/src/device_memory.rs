//! Allocations and frees by programs: the rules that runtime and driver share.

use crate::answer::{Answer, Code};
use crate::argument::Out;
use crate::host_memory::{self, Kind};
use crate::memory::{self, Origin};
use crate::work::{kind, work};
use crate::{context, pools};

/// Allocates memory of this thread's card.
pub(crate) fn allocate(address: Out<usize>, bytes: usize) -> Answer {
    if address.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let card = context::used()?;
    work().forbid_in_capture()?;
    // Before an allocation fails, the driver releases memory that pools keep.
    let taken = memory::allocate(card, bytes).or_else(|_| {
        pools::synchronized();
        memory::allocate(card, bytes)
    });
    address.offer(0);
    address.set(taken?)
}

/// Allocates managed memory.
pub(crate) fn allocate_managed(address: Out<usize>, bytes: usize, flags: u32) -> Answer {
    let card = context::used()?;
    crate::log::once("managed_memory", "what kernels do to it is not known");
    address.set(host_memory::allocate(bytes, Kind::Managed, flags, card)?)
}

/// Frees memory from [`allocate`] or from a pool, or managed memory. Waits for the card.
pub(crate) fn free(address: usize) -> Answer {
    context::used()?;
    if address == 0 {
        return Ok(());
    }
    {
        let mut work = work();
        work.forbid_in_capture()?;
        work.complete_all();
    }
    if host_memory::free(address, Kind::Managed).is_ok() {
        return Ok(());
    }
    free_in_order(address)
}

/// Allocates in the order of a stream, from the given pool or the card's current one.
pub(crate) fn allocate_in_order(address: Out<usize>, bytes: usize, pool: Option<usize>, stream: usize) -> Answer {
    let card = context::used()?;
    work().capture_node(stream, kind::ALLOCATE, None)?;
    address.set(pools::allocate(pool.unwrap_or_else(|| pools::current_of(card)), bytes)?)
}

/// Frees in the order of a stream.
pub(crate) fn free_in_order(address: usize) -> Answer {
    if address == 0 {
        return Ok(());
    }
    if matches!(memory::find(address), Some((_, block)) if block.origin == Origin::Imported) {
        return Err(Code::INVALID_VALUE);
    }
    let block = memory::free(address)?;
    if let Origin::Pool(pool) = block.origin {
        pools::freed(pool, block.requested);
    }
    Ok(())
}
