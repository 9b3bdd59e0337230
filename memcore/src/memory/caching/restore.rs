//! An allocator in a state that was recorded, for a replay from there on.

use std::sync::Arc;

use super::block::{LARGE, NONE, Node, PoolIndex, SMALL, Segment};
use super::private::PoolId;
use super::{AllocatorConfig, Caching};
use crate::backend::{DeviceMemory, Region};
use crate::error::{Error, Result};
use crate::memory::address::AddressSpace;
use crate::memory::{Block, BlockId, BlockSnapshot, BlockState, SegmentSnapshot, Snapshot};

impl Caching {
    /// Creates an allocator that holds the segments and blocks of `start`, at their addresses. `later` are the segments
    /// that the driver gave after that, as addresses and bytes, in order: a segment of such a size lies at the next of
    /// these addresses. Returns also the blocks that are in use, in order of address; no driver event tells of them.
    ///
    /// Peaks begin with the state; accumulated counts begin at 0.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); [`Error::Invalid`] for a state that no such allocator has: segments that overlap,
    /// blocks that do not tile them, parts of pages. [`Error::DeviceFull`] if the device has no room for the segments.
    pub fn restored(
        memory: Arc<dyn DeviceMemory>,
        config: AllocatorConfig,
        start: &Snapshot,
        later: &[(u64, u64)],
    ) -> Result<(Self, Vec<Block>)> {
        let mut caching = Self::new(memory, config)?;
        let groups = caching.reservations(&start.segments);
        let mut used = Vec::with_capacity(groups.len());
        for (index, group) in groups.iter().enumerate() {
            group.iter().try_for_each(check)?;
            let limit = groups.get(index + 1).map_or(u64::MAX, |next| next[0].address);
            used.push((group[0].address, caching.recorded_bytes(group, limit)?));
        }
        caching.addresses = AddressSpace::recorded(&used, later)?;
        let mut held = Vec::new();
        for (group, (_, bytes)) in groups.into_iter().zip(used) {
            match group {
                [segment] if !segment.expandable => caching.restore_segment(segment, &mut held)?,
                runs => caching.restore_reservation(runs, bytes, &mut held)?,
            }
        }
        held.sort_unstable_by_key(|block| block.address);
        caching.stats.reset_accumulated();
        caching.stats.reset_peak();
        Ok((caching, held))
    }

    fn restore_segment(&mut self, found: &SegmentSnapshot, held: &mut Vec<Block>) -> Result<()> {
        let &SegmentSnapshot { address: base, total_bytes: bytes, stream, small, .. } = found;
        let pool = self.restored_pool(found);
        let id = self.memory.alloc_segment(bytes)?;
        let owner = self.pools[pool as usize].owner;
        self.private.reserve(&mut self.stats, owner, bytes);
        self.taken_bytes += bytes;
        self.stats.segment_taken(small, bytes);
        if bytes >= self.config.max_split_size_bytes {
            self.stats.oversize_segments.increase(1);
        }
        let segment = self.segments.insert(Segment { id, base, bytes, first: NONE, page_bytes: 0 });
        let whole = found.blocks.len() == 1;
        let mut prev = NONE;
        for block in &found.blocks {
            prev = self.restore_block(block, Node::new(stream, block.bytes, pool, block.address, segment), prev, held);
            if block.state != BlockState::ActiveAllocated && !whole {
                self.stats.inactive_split.increase(small, 1);
                self.stats.inactive_split_bytes.increase(small, block.bytes);
            }
        }
        Ok(())
    }

    /// Appends a block to its segment, behind `prev`: to `held` if it is in use, else to its pool. Returns its index.
    pub(super) fn restore_block(&mut self, block: &BlockSnapshot, node: Node, prev: u32, held: &mut Vec<Block>) -> u32 {
        let allocated = block.state == BlockState::ActiveAllocated;
        let (pool, segment) = (node.pool, node.segment);
        let requested_bytes = block.requested_bytes;
        let node = Node { made: self.made(), prev, requested_bytes, allocated, ..node };
        let index = self.nodes.insert(node);
        match prev {
            NONE => self.segments[segment].first = index,
            prev => self.nodes[prev].next = index,
        }
        if allocated {
            held.push(self.restored_block(index, block));
        } else {
            self.pools[pool as usize].insert(&mut self.nodes, index);
        }
        index
    }

    pub(super) fn restored_pool(&mut self, found: &SegmentSnapshot) -> PoolIndex {
        let id = PoolId(found.pool_id);
        if id.0 == (0, 0) {
            return if found.small { SMALL } else { LARGE };
        }
        let owner = self.private.find(id).unwrap_or_else(|| {
            self.create_or_incref_pool(id);
            self.private.find(id).expect("it was just created")
        });
        let [large, small] = self.private.pools(owner);
        if found.small { small } else { large }
    }

    fn restored_block(&mut self, index: u32, block: &BlockSnapshot) -> Block {
        let node = &self.nodes[index];
        let small = self.pools[node.pool as usize].small;
        let segment = &self.segments[node.segment];
        let region = Region { segment: segment.id, offset: node.address - segment.base, len: block.requested_bytes };
        self.stats.served(small, block.bytes, block.requested_bytes);
        if block.bytes >= self.config.max_split_size_bytes {
            self.stats.oversize_allocations.increase(1);
        }
        let &BlockSnapshot { address, bytes, requested_bytes, .. } = block;
        Block { id: BlockId(index), region, address, requested_bytes, bytes }
    }
}

/// Checks that blocks tile their segment, and that no two free ones are neighbours. Only a segment that grows may be
/// empty: its reservation reaches down to it.
fn check(found: &SegmentSnapshot) -> Result<()> {
    let wrong = |problem: &str| Err(Error::invalid("recorded state", problem));
    let (mut end, mut free) = (found.address, false);
    for block in &found.blocks {
        let inactive = block.state != BlockState::ActiveAllocated;
        if block.address != end || block.bytes == 0 || block.requested_bytes > block.bytes {
            return wrong("blocks do not tile their segment");
        }
        if free && inactive {
            return wrong("two free blocks are neighbours");
        }
        free = inactive;
        end = end.saturating_add(block.bytes);
    }
    let empty = found.blocks.is_empty() && !found.expandable;
    if empty || end - found.address != found.total_bytes {
        return wrong("blocks do not tile their segment");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Meta;
    use crate::memory::{Allocator, Stream};

    fn block(address: u64, bytes: u64, state: BlockState) -> BlockSnapshot {
        BlockSnapshot { address, bytes, requested_bytes: bytes, state }
    }

    fn segment(address: u64, blocks: Vec<BlockSnapshot>) -> SegmentSnapshot {
        let total_bytes = blocks.iter().map(|block| block.bytes).sum();
        let (stream, pool_id) = (Stream(0), (0, 0));
        SegmentSnapshot { address, total_bytes, stream, small: false, expandable: false, pool_id, blocks }
    }

    fn restored(segments: Vec<SegmentSnapshot>, later: &[(u64, u64)]) -> Result<(Caching, Vec<Block>)> {
        Caching::restored(Arc::new(Meta::default()), AllocatorConfig::default(), &Snapshot { segments }, later)
    }

    #[test]
    fn a_state_goes_on_where_it_was() {
        const MIB: u64 = 1 << 20;
        let (high, low) = (0x7f00_0000_0000, 0x7e00_0000_0000);
        let segments = vec![
            segment(low, vec![block(low, 40 * MIB, BlockState::Inactive)]),
            segment(
                high,
                vec![
                    block(high, 20 * MIB, BlockState::ActiveAllocated),
                    block(high + 20 * MIB, 40 * MIB, BlockState::Inactive),
                ],
            ),
        ];
        let later = [(low - 64 * MIB, 64 * MIB)];
        let (mut caching, held) = restored(segments.clone(), &later).unwrap();
        caching.check_invariants().unwrap();
        assert_eq!(caching.snapshot().segments, segments);
        assert_eq!(held.iter().map(|block| block.address).collect::<Vec<_>>(), [high]);
        assert_eq!(caching.stats().reserved_bytes.all.peak, 100 * MIB);
        let mut quiet = |_| {};
        // Two free blocks of one size: the lower address, whichever was made first.
        let first = caching.allocate(40 * MIB, Stream(0), &mut quiet).unwrap();
        assert_eq!(first.address, low);
        let grown = caching.allocate(64 * MIB, Stream(0), &mut quiet).unwrap();
        assert_eq!(grown.address, low - 64 * MIB);
        caching.free(held[0].id, &mut quiet);
        caching.check_invariants().unwrap();
        caching.free(first.id, &mut quiet);
        caching.free(grown.id, &mut quiet);
        assert_eq!(caching.empty_cache(&mut quiet), 164 * MIB);
    }

    #[test]
    fn a_state_that_no_allocator_has_is_refused() {
        let free = |at| block(at, 512, BlockState::Inactive);
        // A part of a page.
        let grows = SegmentSnapshot { expandable: true, ..segment(4096, vec![free(4096)]) };
        for segments in [
            vec![segment(4096, vec![free(4096), free(4608)])],
            vec![segment(4096, vec![free(8192)])],
            vec![segment(4096, vec![])],
            vec![segment(4096, vec![free(4096)]), segment(4096, vec![free(4096)])],
            vec![grows],
        ] {
            assert!(restored(segments.clone(), &[]).is_err(), "{segments:?}");
        }
    }
}
