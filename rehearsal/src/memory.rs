//! Device memory: allocations, their cards and their addresses.
//!
//! Allocations up to 1 MiB are cut from slabs of 2 MiB. Larger ones are multiples of 2 MiB, as from the driver.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::answer::{Answer, Code};
use crate::space::{self, GRANULARITY};
use crate::{shared, values};

/// Allocations in a slab are multiples of this.
const SMALL_STEP: usize = 512;
/// Smaller allocations come from a slab.
const SMALL: usize = 1 << 20;

/// Origin of an address in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Addresses and memory of its own.
    Own,
    /// Cut from the slab at this address.
    Slab(usize),
    /// From a pool, whose memory was taken before.
    Pool(usize),
    /// Memory of another process, or of a host: only the addresses belong to this process.
    Imported,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) card: usize,
    pub(crate) bytes: usize,
    pub(crate) requested: usize,
    pub(crate) origin: Origin,
}

#[derive(Default)]
struct Memory {
    blocks: BTreeMap<usize, Block>,
    /// Each slab: its card, and the offsets in use with their sizes.
    slabs: BTreeMap<usize, (usize, BTreeMap<usize, usize>)>,
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory { blocks: BTreeMap::new(), slabs: BTreeMap::new() });

fn memory() -> MutexGuard<'static, Memory> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rounds up to the driver's granularity. A size that overflows is out of memory.
pub(crate) fn rounded(bytes: usize, step: usize) -> Answer<usize> {
    bytes.checked_next_multiple_of(step).ok_or(Code::OUT_OF_MEMORY)
}

/// Allocates memory of a card; 0 bytes give null.
pub(crate) fn allocate(card: usize, bytes: usize) -> Answer<usize> {
    if bytes == 0 {
        return Ok(0);
    }
    let mut memory = memory();
    if bytes < SMALL {
        return memory.cut(card, bytes);
    }
    let size = rounded(bytes, GRANULARITY)?;
    let address = take(card, size)?;
    memory.blocks.insert(address, Block { card, bytes: size, requested: bytes, origin: Origin::Own });
    Ok(address)
}

fn take(card: usize, size: usize) -> Answer<usize> {
    if !shared::charge(card, size as u64) {
        return Err(Code::OUT_OF_MEMORY);
    }
    space::take(card, size).ok_or_else(|| {
        shared::release(card, size as u64);
        Code::OUT_OF_MEMORY
    })
}

/// Reserves addresses for memory that is counted elsewhere.
pub(crate) fn place(card: usize, bytes: usize, origin: Origin) -> Answer<usize> {
    let size = rounded(bytes, GRANULARITY)?;
    let address = space::take(card, size).ok_or(Code::OUT_OF_MEMORY)?;
    memory().blocks.insert(address, Block { card, bytes: size, requested: bytes, origin });
    Ok(address)
}

/// Frees an allocation, and returns its description.
pub(crate) fn free(address: usize) -> Answer<Block> {
    let mut memory = memory();
    let block = memory.blocks.remove(&address).ok_or(Code::INVALID_VALUE)?;
    values::forget(address, block.bytes);
    match block.origin {
        Origin::Slab(slab) => memory.give(slab, address),
        Origin::Own => {
            shared::release(block.card, block.bytes as u64);
            space::give(address, block.bytes);
        }
        Origin::Pool(_) | Origin::Imported => space::give(address, block.bytes),
    }
    Ok(block)
}

/// Returns the allocation that contains an address, and its start.
pub(crate) fn find(address: usize) -> Option<(usize, Block)> {
    let memory = memory();
    let (start, block) = memory.blocks.range(..=address).next_back()?;
    (address - start < block.bytes).then_some((*start, *block))
}

impl Memory {
    /// Cuts a piece from the first slab that has room, else from a new one.
    fn cut(&mut self, card: usize, bytes: usize) -> Answer<usize> {
        let size = rounded(bytes, SMALL_STEP)?;
        let of_card = self.slabs.iter().filter(|(_, (owner, _))| *owner == card);
        let mut with_room = of_card.filter_map(|(slab, (_, used))| Some((*slab, gap(used, size)?)));
        let (slab, offset) = match with_room.next() {
            Some(found) => found,
            None => (take(card, GRANULARITY)?, 0),
        };
        self.slabs.entry(slab).or_insert_with(|| (card, BTreeMap::new())).1.insert(offset, size);
        let block = Block { card, bytes: size, requested: bytes, origin: Origin::Slab(slab) };
        self.blocks.insert(slab + offset, block);
        Ok(slab + offset)
    }

    fn give(&mut self, slab: usize, address: usize) {
        let Some((card, used)) = self.slabs.get_mut(&slab) else { return };
        used.remove(&(address - slab));
        if used.is_empty() {
            shared::release(*card, GRANULARITY as u64);
            space::give(slab, GRANULARITY);
            self.slabs.remove(&slab);
        }
    }
}

/// Returns the offset of a free piece of this size in a slab.
fn gap(used: &BTreeMap<usize, usize>, size: usize) -> Option<usize> {
    let mut start = 0;
    for (offset, length) in used {
        if offset - start >= size {
            return Some(start);
        }
        start = offset + length;
    }
    (GRANULARITY - start >= size).then_some(start)
}
