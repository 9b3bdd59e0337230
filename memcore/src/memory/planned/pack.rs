//! Packing known lifetimes into one range of bytes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::plan::{Bound, Lifetime, Packing, Plan};

/// With more lifetimes than this, only packings that take less than quadratic time are tried.
const MAX_FOR_QUADRATIC: usize = 20_000;

/// Returns the smallest plan of all packings; stops at the lower bound.
pub fn pack(lifetimes: &[Lifetime]) -> Plan {
    let bound = Bound::from_lifetimes(lifetimes).bytes;
    let mut best = pack_with(lifetimes, Packing::BestFitInTime);
    if lifetimes.len() > MAX_FOR_QUADRATIC {
        return best;
    }
    for packing in Packing::ALL {
        if best.bytes == bound {
            break;
        }
        let plan = pack_with(lifetimes, packing);
        if plan.bytes < best.bytes {
            best = plan;
        }
    }
    best
}

/// Returns the plan of one packing.
pub(crate) fn pack_with(lifetimes: &[Lifetime], packing: Packing) -> Plan {
    let length = |lifetime: &Lifetime| lifetime.to - lifetime.from;
    // A lifetime without a free has no length of its own: it ends after the last event.
    let end = lifetimes.iter().flat_map(|lifetime| [lifetime.from, lifetime.to]).filter(|&t| t < u64::MAX).max();
    let ends = |lifetime: &Lifetime| Lifetime { to: lifetime.to.min(end.unwrap_or(0) + 1), ..*lifetime };
    let lives: Vec<Lifetime> = lifetimes.iter().map(ends).collect();
    let key = |index: usize| -> u128 {
        let lifetime = &lives[index];
        match packing {
            Packing::LargestFirst | Packing::BestFitInTime => u128::from(lifetime.bytes),
            Packing::LargestAreaFirst => u128::from(lifetime.bytes) * u128::from(length(lifetime)),
            Packing::LongestFirst => u128::from(length(lifetime)),
        }
    };
    let offsets = if packing == Packing::BestFitInTime {
        best_fit_in_time(&lives)
    } else {
        let mut order: Vec<usize> = (0..lives.len()).collect();
        order.sort_by_key(|&index| (Reverse(key(index)), index));
        lowest_fit(&lives, &order)
    };
    let tops = offsets.iter().zip(&lives).map(|(offset, lifetime)| offset + lifetime.rounded_bytes());
    let bytes = tops.max().unwrap_or(0);
    Plan { offsets, bytes, packing }
}

/// Places the lifetimes in this order, each into the smallest gap between the earlier ones that live at the same time,
/// or above them.
fn lowest_fit(lives: &[Lifetime], order: &[usize]) -> Vec<u64> {
    let mut offsets = vec![0; lives.len()];
    // Placed so far, by offset.
    let mut placed: Vec<(u64, usize)> = Vec::with_capacity(lives.len());
    for &index in order {
        let bytes = lives[index].rounded_bytes();
        let (mut bottom, mut best) = (0, None);
        for &(offset, other) in &placed {
            if !lives[index].overlaps(&lives[other]) {
                continue;
            }
            if offset >= bottom + bytes && best.is_none_or(|(gap, _)| offset - bottom < gap) {
                best = Some((offset - bottom, bottom));
            }
            bottom = bottom.max(offset + lives[other].rounded_bytes());
        }
        let offset = best.map_or(bottom, |(_, offset)| offset);
        offsets[index] = offset;
        let at = placed.partition_point(|&(other, _)| other <= offset);
        placed.insert(at, (offset, index));
    }
    offsets
}

/// Goes through time and places each lifetime into the smallest free gap that fits, or at the end.
fn best_fit_in_time(lives: &[Lifetime]) -> Vec<u64> {
    let mut changes: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * lives.len());
    for (index, lifetime) in lives.iter().enumerate() {
        changes.push((lifetime.from, true, index));
        changes.push((lifetime.to, false, index));
    }
    changes.sort_unstable();
    let mut offsets = vec![0; lives.len()];
    let mut gaps = Gaps::default();
    for (_, birth, index) in changes {
        let bytes = lives[index].rounded_bytes();
        if birth {
            offsets[index] = gaps.take(bytes);
        } else {
            gaps.give(offsets[index], bytes);
        }
    }
    offsets
}

/// The free gaps below the highest byte in use.
#[derive(Default)]
struct Gaps {
    by_offset: BTreeMap<u64, u64>,
    by_size: std::collections::BTreeSet<(u64, u64)>,
    top: u64,
}

impl Gaps {
    fn take(&mut self, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let Some(&(size, offset)) = self.by_size.range((bytes, 0)..).next() else {
            // A gap that ends at the top grows.
            let last = self.by_offset.last_key_value().map(|(&offset, &size)| (offset, size));
            let start = match last.filter(|(offset, size)| offset + size == self.top) {
                Some((offset, size)) => {
                    self.remove(offset, size);
                    offset
                }
                None => self.top,
            };
            self.top = start + bytes;
            return start;
        };
        self.remove(offset, size);
        if size > bytes {
            self.insert(offset + bytes, size - bytes);
        }
        offset
    }

    fn give(&mut self, mut offset: u64, mut bytes: u64) {
        if bytes == 0 {
            return;
        }
        if let Some((&before, &size)) = self.by_offset.range(..offset).next_back()
            && before + size == offset
        {
            self.remove(before, size);
            (offset, bytes) = (before, size + bytes);
        }
        if let Some(&size) = self.by_offset.get(&(offset + bytes)) {
            self.remove(offset + bytes, size);
            bytes += size;
        }
        self.insert(offset, bytes);
    }

    fn insert(&mut self, offset: u64, size: u64) {
        self.by_offset.insert(offset, size);
        self.by_size.insert((size, offset));
    }

    fn remove(&mut self, offset: u64, size: u64) {
        self.by_offset.remove(&offset);
        self.by_size.remove(&(size, offset));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lifetimes() -> BoxedStrategy<Vec<Lifetime>> {
        let rows = proptest::collection::vec((0u64..5000, 0u64..100, 1u64..40), 0..80);
        let life = |(bytes, from, length): (u64, u64, u64)| Lifetime {
            bytes,
            from,
            to: if length == 39 { u64::MAX } else { from + length },
        };
        rows.prop_map(move |rows| rows.into_iter().map(life).collect()).boxed()
    }

    /// Checks a plan by comparing every pair.
    fn right(plan: &Plan, lifetimes: &[Lifetime]) -> bool {
        let span = |index: usize| (plan.offsets[index], plan.offsets[index] + lifetimes[index].rounded_bytes());
        (0..lifetimes.len()).all(|a| {
            span(a).1 <= plan.bytes
                && (0..a).all(|b| {
                    // A block of 0 bytes overlaps nothing.
                    let empty = span(a).0 == span(a).1 || span(b).0 == span(b).1;
                    let apart = empty || span(a).1 <= span(b).0 || span(b).1 <= span(a).0;
                    apart || !lifetimes[a].overlaps(&lifetimes[b])
                })
        })
    }

    proptest! {
        #[test]
        fn plans_are_right_and_not_below_the_bound(lifetimes in lifetimes()) {
            let bound = Bound::from_lifetimes(&lifetimes);
            prop_assert!(bound.check(&lifetimes));
            let best = pack(&lifetimes);
            for packing in Packing::ALL {
                let plan = pack_with(&lifetimes, packing);
                prop_assert!(right(&plan, &lifetimes));
                prop_assert_eq!(plan.check(&lifetimes), Ok(()));
                prop_assert!(bound.bytes <= best.bytes && best.bytes <= plan.bytes);
            }
        }

        #[test]
        fn the_check_finds_every_fault(lifetimes in lifetimes(), which in any::<usize>(), to in 0u64..20) {
            let mut plan = pack(&lifetimes);
            if !lifetimes.is_empty() {
                let which = which % lifetimes.len();
                plan.offsets[which] = 512 * to;
            }
            prop_assert_eq!(plan.check(&lifetimes).is_ok(), right(&plan, &lifetimes));
        }
    }

    #[test]
    fn a_plan_that_needs_the_future_is_found() {
        // Two small blocks; the first is freed; a large one follows that fits only if the two left room for it.
        let life = |kib: u64, from, to| Lifetime { bytes: kib << 10, from, to };
        let run = [life(1, 0, 4), life(2, 1, 3), life(1, 2, 6), life(3, 5, 7)];
        let bound = Bound::from_lifetimes(&run);
        assert_eq!((bound.bytes, bound.live.len()), (4 << 10, 3));
        assert_eq!(pack(&run).bytes, 4 << 10);
    }
}
