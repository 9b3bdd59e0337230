//! Invariants that hold after every call. Only tests check them.

use super::Caching;
use super::block::NONE;
use super::free_list::Key;
use crate::memory::{BlockState, Stat};

impl Caching {
    /// Checks every invariant against the whole state. The error says which one is broken.
    ///
    /// 1. The blocks of a segment tile it; sizes and offsets are multiples of 512.
    /// 2. No two neighbours are both free (and mapped alike).
    /// 3. A block is filed in its pool if and only if it is free.
    /// 4. Every counter's current value equals the sum that it stands for, and `all` = small + large.
    /// 5. Peak ≥ current; requested ≤ active; allocated ≤ active ≤ reserved.
    /// 6. Unmapped ranges begin and end on page boundaries.
    ///
    /// # Errors
    /// A description of the broken invariant.
    #[doc(hidden)]
    pub fn check_invariants(&self) -> Result<(), String> {
        self.check_segments()?;
        self.check_filing()?;
        self.check_sums()
    }

    fn check_segments(&self) -> Result<(), String> {
        let mut visited = 0;
        for (_, segment) in self.segments.iter() {
            let (mut index, mut prev, mut end) = (segment.first, NONE, segment.base);
            while index != NONE {
                let node = self.nodes.get(index).ok_or("a link leads nowhere")?;
                ensure(node.address == end && node.prev == prev, || format!("blocks do not tile at {end:#x}"))?;
                ensure(node.bytes > 0 && node.bytes % 512 == 0, || format!("a block of {} bytes", node.bytes))?;
                if let Some(before) = self.nodes.get(prev) {
                    let mergeable = before.is_free() && node.is_free() && before.mapped == node.mapped;
                    ensure(!mergeable, || format!("two free neighbours at {end:#x}"))?;
                }
                if !node.mapped {
                    let (from, to) = (node.address - segment.base, node.address - segment.base + node.bytes);
                    let whole = from % segment.page_bytes == 0 && to % segment.page_bytes == 0;
                    ensure(whole, || format!("a part of a page is unmapped at {end:#x}"))?;
                }
                (prev, end, index, visited) = (index, node.address + node.bytes, node.next, visited + 1);
            }
            ensure(end == segment.base + segment.bytes, || format!("a segment ends at {end:#x}"))?;
        }
        ensure(visited == self.nodes.iter().count(), || "a block belongs to no segment".into())
    }

    fn check_filing(&self) -> Result<(), String> {
        let mut filed = 0;
        for pool in &self.pools {
            for (key, index) in pool.free.iter() {
                let node = self.nodes.get(index).ok_or("a dead block is filed")?;
                ensure(node.is_free() && node.mapped && key == Key::from_node(node), || format!("misfiled: {key:?}"))?;
            }
            for (&key, &index) in &pool.unmapped {
                let node = self.nodes.get(index).ok_or("a dead range is filed")?;
                let right = !node.mapped && key == (node.stream, node.address);
                ensure(right, || format!("misfiled range: {key:?}"))?;
            }
            filed += pool.free.len() + pool.unmapped.len();
        }
        let free = self.nodes.iter().filter(|(_, node)| node.is_free()).count();
        ensure(filed == free, || format!("{free} blocks are free, {filed} are filed"))
    }

    fn check_sums(&self) -> Result<(), String> {
        // Order: allocation, active, split (counts, then bytes); requested, reserved, segments.
        let mut sums = [[0u64; 9]; 2];
        for (_, node) in self.nodes.iter() {
            let sums = &mut sums[usize::from(self.pools[node.pool as usize].small)];
            let split = node.is_free() && node.is_split() && !node.expandable;
            let active = !node.is_free();
            let requested = if active { node.requested_bytes } else { 0 };
            let reserved = if node.mapped { node.bytes } else { 0 };
            for (at, counts, bytes) in
                [(0, node.allocated, node.bytes), (2, active, node.bytes), (4, split, node.bytes)]
            {
                sums[at] += u64::from(counts);
                sums[at + 1] += if counts { bytes } else { 0 };
            }
            sums[6] += requested;
            sums[7] += reserved;
            sums[8] += u64::from(node.prev == NONE && !node.expandable);
        }
        let stats = &self.stats;
        let arrays = [
            ("allocation", &stats.allocation),
            ("allocated_bytes", &stats.allocated_bytes),
            ("active", &stats.active),
            ("active_bytes", &stats.active_bytes),
            ("inactive_split", &stats.inactive_split),
            ("inactive_split_bytes", &stats.inactive_split_bytes),
            ("requested_bytes", &stats.requested_bytes),
            ("reserved_bytes", &stats.reserved_bytes),
            ("segment", &stats.segment),
        ];
        for (at, (name, array)) in arrays.into_iter().enumerate() {
            for (stat, sum) in [(&array.large, sums[0][at]), (&array.small, sums[1][at])] {
                ensure(stat.current == sum, || format!("{name} is {}, its sum {sum}", stat.current))?;
            }
            let both = |of: fn(&Stat) -> u64| of(&array.all) == of(&array.small) + of(&array.large);
            let adds = both(|stat| stat.current) && both(|stat| stat.allocated) && both(|stat| stat.freed());
            ensure(adds, || format!("{name}: all is not small + large"))?;
            let peaks = [&array.all, &array.small, &array.large].iter().all(|stat| stat.peak >= stat.current);
            ensure(peaks, || format!("{name}: a peak below its current value"))?;
        }
        ensure(stats.reserved_bytes.all.current == self.taken_bytes, || "reserved is not what was taken".into())?;
        let snapshot = self.take_snapshot();
        ensure(snapshot.reserved_bytes() == self.taken_bytes, || "the snapshot is not what was taken".into())?;
        ensure(snapshot.layout() == self.hash_layout(), || "its layout is not the snapshot's".into())?;
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let held = blocks.filter(|block| block.state == BlockState::ActiveAllocated).count() as u64;
        ensure(held == stats.allocation.all.current, || "the snapshot has other blocks".into())?;
        let rings = crate::memory::Rings::now(stats, None);
        ensure(rings.nested(), || format!("not nested: {rings:?}"))
    }
}

fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}
