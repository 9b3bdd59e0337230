//! Virtual memory: reserved addresses, memory, and the mappings between them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::answer::{Answer, Code};
use crate::space::{self, GRANULARITY};
use crate::{handles, shared, values};

/// Physical memory. It has no address until it is mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Physical {
    pub(crate) bytes: usize,
    /// Bytes charged to the card. `None` for memory of the host or of another process, which takes no memory of a card
    /// here.
    pub(crate) charged: Option<usize>,
    pub(crate) card: usize,
    /// Number of references: its handle, and each mapping.
    references: usize,
}

#[derive(Clone, Copy)]
struct Mapping {
    bytes: usize,
    memory: usize,
    access: u64,
}

#[derive(Default)]
struct Virtual {
    reserved: BTreeMap<usize, usize>,
    memory: HashMap<usize, Physical>,
    mapped: BTreeMap<usize, Mapping>,
}

static VIRTUAL: LazyLock<Mutex<Virtual>> = LazyLock::new(Mutex::default);

fn lock() -> MutexGuard<'static, Virtual> {
    VIRTUAL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_whole(bytes: usize) -> bool {
    bytes > 0 && bytes.is_multiple_of(GRANULARITY)
}

/// Reserves addresses. Takes no memory.
pub(crate) fn reserve(card: usize, bytes: usize, alignment: usize) -> Answer<usize> {
    if !is_whole(bytes) || !(alignment == 0 || alignment.is_power_of_two()) {
        return Err(Code::INVALID_VALUE);
    }
    let extra = alignment.saturating_sub(GRANULARITY);
    let padded = bytes.checked_add(extra).ok_or(Code::OUT_OF_MEMORY)?;
    let taken = space::take(card, padded).ok_or(Code::OUT_OF_MEMORY)?;
    let address = taken.next_multiple_of(alignment.max(GRANULARITY));
    // Frees the addresses that alignment leaves over on either side.
    for (start, end) in [(taken, address), (address + bytes, taken + padded)] {
        if end > start {
            space::give(start, end - start);
        }
    }
    lock().reserved.insert(address, bytes);
    Ok(address)
}

/// Frees reserved addresses.
pub(crate) fn unreserve(address: usize, bytes: usize) -> Answer {
    let mut state = lock();
    let is_used = state.mapped.range(address..address.saturating_add(bytes)).next().is_some();
    if state.reserved.get(&address) != Some(&bytes) || is_used {
        return Err(Code::INVALID_VALUE);
    }
    state.reserved.remove(&address);
    space::give(address, bytes);
    Ok(())
}

/// Makes memory of a card, or of the host or another process (`charged` is false).
pub(crate) fn create(card: usize, bytes: usize, charged: bool) -> Answer<usize> {
    if !is_whole(bytes) {
        return Err(Code::INVALID_VALUE);
    }
    if charged && !shared::charge(card, bytes as u64) {
        return Err(Code::OUT_OF_MEMORY);
    }
    let handle = handles::new();
    let memory = Physical { bytes, charged: charged.then_some(card), card, references: 1 };
    lock().memory.insert(handle, memory);
    Ok(handle)
}

/// Returns the memory of a handle.
pub(crate) fn memory(handle: usize) -> Answer<Physical> {
    lock().memory.get(&handle).copied().ok_or(Code::INVALID_VALUE)
}

/// Releases a handle. The memory lives as long as it is mapped.
pub(crate) fn release(handle: usize) -> Answer {
    lock().drop_reference(handle)
}

/// Adds an owner to a handle.
pub(crate) fn retain(handle: usize) -> Answer {
    lock().memory.get_mut(&handle).ok_or(Code::INVALID_VALUE)?.references += 1;
    Ok(())
}

/// Maps memory at reserved addresses.
pub(crate) fn map(address: usize, bytes: usize, offset: usize, handle: usize) -> Answer {
    let mut state = lock();
    let memory = state.memory.get(&handle).copied().ok_or(Code::INVALID_VALUE)?;
    let end = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
    let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= memory.bytes);
    let reserved = state.reserved.range(..=address).next_back();
    let is_reserved = reserved.is_some_and(|(start, size)| end <= start + size);
    let before = state.mapped.range(..end).next_back();
    let is_taken = before.is_some_and(|(start, mapping)| start + mapping.bytes > address);
    if !is_whole(bytes) || !is_inside || !is_reserved || is_taken || !address.is_multiple_of(GRANULARITY) {
        return Err(Code::INVALID_VALUE);
    }
    state.mapped.insert(address, Mapping { bytes, memory: handle, access: 0 });
    if let Some(memory) = state.memory.get_mut(&handle) {
        memory.references += 1;
    }
    Ok(())
}

/// Removes all mappings of a range, which may not cut one.
pub(crate) fn unmap(address: usize, bytes: usize) -> Answer {
    let mut state = lock();
    let end = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
    let inside: Vec<(usize, Mapping)> = state.mapped.range(address..end).map(|(at, mapping)| (*at, *mapping)).collect();
    let covered: usize = inside.iter().map(|(_, mapping)| mapping.bytes).sum();
    if inside.is_empty() || covered != bytes {
        return Err(Code::INVALID_VALUE);
    }
    for (at, mapping) in inside {
        state.mapped.remove(&at);
        state.drop_reference(mapping.memory)?;
    }
    values::forget(address, bytes);
    Ok(())
}

/// Sets the access to mapped addresses.
pub(crate) fn set_access(address: usize, bytes: usize, access: u64) -> Answer {
    let mut state = lock();
    let end = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
    let mut covered = 0;
    for (_, mapping) in state.mapped.range_mut(address..end) {
        mapping.access = access;
        covered += mapping.bytes;
    }
    if covered == bytes { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Returns the access to a mapped address.
pub(crate) fn access(address: usize) -> Answer<u64> {
    find(address).map(|(_, mapping)| mapping.access).ok_or(Code::INVALID_VALUE)
}

/// Returns the handle of the memory that is mapped at an address.
pub(crate) fn handle_at(address: usize) -> Answer<usize> {
    find(address).map(|(_, mapping)| mapping.memory).ok_or(Code::INVALID_VALUE)
}

/// Returns the start of the mapping that contains an address, its size, and its card.
pub(crate) fn range_at(address: usize) -> Option<(usize, usize, usize)> {
    let (start, mapping) = find(address)?;
    Some((start, mapping.bytes, memory(mapping.memory).ok()?.card))
}

fn find(address: usize) -> Option<(usize, Mapping)> {
    let state = lock();
    let (start, mapping) = state.mapped.range(..=address).next_back()?;
    (address - start < mapping.bytes).then_some((*start, *mapping))
}

impl Virtual {
    fn drop_reference(&mut self, handle: usize) -> Answer {
        let memory = self.memory.get_mut(&handle).ok_or(Code::INVALID_VALUE)?;
        memory.references -= 1;
        if memory.references == 0 {
            if let Some(card) = memory.charged {
                shared::release(card, memory.bytes as u64);
            }
            self.memory.remove(&handle);
        }
        Ok(())
    }
}
