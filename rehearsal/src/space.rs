//! Addresses of device memory: ranges of the process's own address space without memory.
//!
//! Every card has a range. Addresses in it only grow, so that no address is given twice until the range is used up. The
//! ranges are reserved without access: dereferencing a device pointer on the host fails as with a card.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::settings::{MAX_CARDS, settings};

/// Reserved ranges are multiples of this, as on the card.
pub(crate) const GRANULARITY: usize = 2 << 20;

/// Addresses of all cards, and the most of one card. With expandable segments PyTorch reserves more than the whole memory for each stream.
const ADDRESSES: usize = 64 << 40;
const MOST_OF_A_CARD: usize = 16 << 40;

/// Start of the first card's range, far from where Linux places programs and libraries.
const BASE: usize = 0x1000_0000_0000;

/// Addresses of one card.
struct Range {
    base: usize,
    next: usize,
    /// Freed ranges: address and size. They are used only when all addresses have been given.
    holes: BTreeMap<usize, usize>,
}

/// Size of a card's range.
static RANGE: LazyLock<usize> = LazyLock::new(|| range_of(settings().cards));

fn range_of(cards: usize) -> usize {
    (ADDRESSES / cards.next_power_of_two()).min(MOST_OF_A_CARD)
}

static BASES: LazyLock<Vec<usize>> = LazyLock::new(|| (0..settings().cards).map(reserve).collect());

static RANGES: LazyLock<Mutex<Vec<Range>>> = LazyLock::new(|| {
    let range = |base: &usize| Range { base: *base, next: *base, holes: BTreeMap::new() };
    Mutex::new(BASES.iter().map(range).collect())
});

fn reserve(card: usize) -> usize {
    debug_assert!(card < MAX_CARDS);
    let wanted = BASE + card * *RANGE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    for (address, fixed) in [(wanted, libc::MAP_FIXED_NOREPLACE), (0, 0)] {
        // SAFETY: replaces no mapping (`MAP_FIXED_NOREPLACE`, or an address of the kernel's choice).
        let got = unsafe { libc::mmap(address as *mut _, *RANGE, libc::PROT_NONE, flags | fixed, -1, 0) };
        if got != libc::MAP_FAILED && (fixed == 0 || got as usize == wanted) {
            return got as usize;
        }
    }
    // The process may not have so many addresses. Nothing is ever read or written there, so that they need not be its
    // own.
    crate::log::once("addresses_not_reserved", "device memory");
    wanted
}

/// Returns the card to which an address belongs.
pub(crate) fn card_of(address: usize) -> Option<usize> {
    BASES.iter().position(|base| (*base..*base + *RANGE).contains(&address))
}

/// Reserves addresses of a card. The size is a multiple of [`GRANULARITY`].
pub(crate) fn take(card: usize, bytes: usize) -> Option<usize> {
    let mut ranges = RANGES.lock().unwrap_or_else(PoisonError::into_inner);
    let range = ranges.get_mut(card)?;
    if bytes <= range.base + *RANGE - range.next {
        let address = range.next;
        range.next += bytes;
        return Some(address);
    }
    let (address, size) = range.holes.iter().find(|(_, size)| **size >= bytes).map(|(at, size)| (*at, *size))?;
    range.holes.remove(&address);
    if size > bytes {
        range.holes.insert(address + bytes, size - bytes);
    }
    Some(address)
}

/// Frees addresses.
pub(crate) fn give(address: usize, bytes: usize) {
    let Some(card) = card_of(address) else { return };
    let mut ranges = RANGES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(range) = ranges.get_mut(card) else { return };
    let (mut start, mut end) = (address, address + bytes);
    if let Some((&before, &size)) = range.holes.range(..start).next_back()
        && before + size == start
    {
        range.holes.remove(&before);
        start = before;
    }
    if let Some(size) = range.holes.remove(&end) {
        end += size;
    }
    range.holes.insert(start, end - start);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_alone_has_room_for_the_largest_networks_and_many_have_each_their_own() {
        for cards in 1..=MAX_CARDS {
            let range = range_of(cards);
            assert!(cards * range <= ADDRESSES && range >= 4 << 40, "{cards}");
        }
        assert_eq!(range_of(1), MOST_OF_A_CARD);
    }
}
