//! Virtual addresses for segments.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};

/// Every base is a multiple of this: the granularity of CUDA's own allocations.
const ALIGNMENT: u64 = 2 << 20;

/// Hands out address ranges. Own addresses only grow, and no such range is given out twice.
///
/// Ties between equal free blocks are broken by address. A driver's own pointers would make that order depend on the
/// driver (and WebGPU has no pointers to give). With these bases it is the order of creation, on every backend.
///
/// A replay of another program's recording is different: there the driver's pointers did order the blocks, so segments
/// lie where that driver put them ([`recorded`](Self::recorded)).
#[derive(Clone, Debug)]
pub(super) struct AddressSpace {
    next: u64,
    /// Only for the replay of a recording with addresses.
    recorded: Option<Box<Recorded>>,
}

/// Addresses that a driver gave in a recording.
#[derive(Clone, Debug, Default)]
struct Recorded {
    /// Bases of the segments that it gave later, by size, in order.
    later: FxHashMap<u64, VecDeque<u64>>,
    /// Ranges in use: the end of each, by its base.
    used: BTreeMap<u64, u64>,
}

impl Recorded {
    fn overlaps(&self, base: u64, end: u64) -> bool {
        self.used.range(..end).next_back().is_some_and(|(_, used)| *used > base)
    }

    /// The next recorded base for a segment of this size, unless another segment is still there.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let base = self.later.get_mut(&bytes)?.pop_front()?;
        let end = base.checked_add(bytes).filter(|&end| !self.overlaps(base, end))?;
        self.used.insert(base, end);
        Some(base)
    }
}

impl AddressSpace {
    /// Starts above 4 GiB, so that no address looks like a small number or a null pointer.
    pub(super) fn new() -> Self {
        Self { next: 1 << 32, recorded: None }
    }

    /// Makes an address space in which the ranges `used` (base and bytes) are taken, and whose next ranges are those of
    /// `later`, the first one of the wanted size each time. Where no recorded range is left, or its place is taken, an
    /// own one follows, above all recorded ones.
    ///
    /// # Errors
    /// [`Error::Invalid`] for used ranges that overlap, and for ranges beyond 2^64.
    pub(super) fn recorded(used: &[(u64, u64)], later: &[(u64, u64)]) -> Result<Self> {
        let mut space = Self::new();
        let mut recorded = Recorded::default();
        for &(base, bytes) in used {
            let end = end_of(base, bytes)?;
            if recorded.overlaps(base, end) {
                return Err(Error::invalid("recorded addresses", "two segments overlap"));
            }
            recorded.used.insert(base, end);
            space.next = space.next.max(end);
        }
        for &(base, bytes) in later {
            space.next = space.next.max(end_of(base, bytes)?);
            recorded.later.entry(bytes).or_default().push_back(base);
        }
        let next = space.next.checked_next_multiple_of(ALIGNMENT);
        space.next = next.ok_or_else(exhausted)?;
        space.recorded = Some(Box::new(recorded));
        Ok(space)
    }

    /// Returns a range of `bytes` that overlaps no other one in use.
    pub(super) fn take(&mut self, bytes: u64) -> Result<u64> {
        if let Some(base) = self.recorded.as_mut().and_then(|recorded| recorded.take(bytes)) {
            return Ok(base);
        }
        let base = self.next;
        let end = bytes.checked_next_multiple_of(ALIGNMENT).and_then(|bytes| base.checked_add(bytes));
        self.next = end.ok_or_else(exhausted)?;
        Ok(base)
    }

    /// Takes a range back. Only recorded ranges are given out again.
    pub(super) fn give_back(&mut self, base: u64) {
        if let Some(recorded) = &mut self.recorded {
            recorded.used.remove(&base);
        }
    }
}

fn end_of(base: u64, bytes: u64) -> Result<u64> {
    base.checked_add(bytes).ok_or_else(exhausted)
}

fn exhausted() -> Error {
    Error::invalid("virtual addresses", "all 2^64 have been given out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_disjoint_aligned_and_end_with_an_error() {
        let mut space = AddressSpace::new();
        let a = space.take(1).unwrap();
        let b = space.take(ALIGNMENT + 1).unwrap();
        let c = space.take(5).unwrap();
        assert_eq!((b - a, c - b), (ALIGNMENT, 2 * ALIGNMENT));
        assert!(space.take(u64::MAX).is_err());
        assert!(space.take(u64::MAX - (1 << 30)).is_err());
        assert_eq!(space.take(1).unwrap() - c, ALIGNMENT);
    }

    #[test]
    fn recorded_ranges_come_in_order_and_never_twice_at_one_time() {
        let (high, low, size) = (0x7f00_0000_0000, 0x7e00_0000_0000, 20 << 20);
        let later = [(low, size), (high + size, 2 << 20), (low, size), (low, size)];
        let mut space = AddressSpace::recorded(&[(high, size)], &later).unwrap();
        assert_eq!(space.take(size).unwrap(), low);
        assert_eq!(space.take(2 << 20).unwrap(), high + size);
        // The place is still in use: an own range above all others.
        let own = space.take(size).unwrap();
        assert!(own >= high + size + (2 << 20));
        space.give_back(low);
        assert_eq!(space.take(size).unwrap(), low);
        assert!(space.take(size).unwrap() > own);
        assert!(AddressSpace::recorded(&[(high, size), (high + 512, 512)], &[]).is_err());
        assert!(AddressSpace::recorded(&[(u64::MAX, 2)], &[]).is_err());
    }
}
