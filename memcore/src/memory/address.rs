//! Virtual addresses for segments.

use crate::error::{Error, Result};

/// Every base is a multiple of this: the granularity of CUDA's own allocations.
const ALIGNMENT: u64 = 2 << 20;

/// Hands out address ranges. Addresses only grow; no range is given out twice.
///
/// Ties between equal free blocks are broken by address. A driver's own pointers would make that order depend on the
/// driver (and WebGPU has no pointers to give). With these bases it is the order of creation, on every backend.
#[derive(Clone, Debug)]
pub(super) struct AddressSpace {
    next: u64,
}

impl AddressSpace {
    /// Starts above 4 GiB, so that no address looks like a small number or a null pointer.
    pub(super) fn new() -> Self {
        Self { next: 1 << 32 }
    }

    /// Returns a range of `bytes` that overlaps no earlier one.
    pub(super) fn take(&mut self, bytes: u64) -> Result<u64> {
        let base = self.next;
        let end = bytes.checked_next_multiple_of(ALIGNMENT).and_then(|bytes| base.checked_add(bytes));
        self.next = end.ok_or_else(|| Error::invalid("virtual addresses", "all 2^64 have been given out"))?;
        Ok(base)
    }
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
}
