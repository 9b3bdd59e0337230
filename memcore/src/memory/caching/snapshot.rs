//! The allocator's memory as data.

use super::Caching;
use super::block::{NONE, Node};
use super::pool::Pool;
use crate::memory::snapshot::LayoutHash;
use crate::memory::{BlockSnapshot, BlockState, SegmentSnapshot, Snapshot};

fn state(node: &Node) -> BlockState {
    if node.allocated {
        BlockState::ActiveAllocated
    } else if node.is_free() {
        BlockState::Inactive
    } else {
        BlockState::ActivePendingFree
    }
}

impl Caching {
    /// Returns one entry per ordinary segment and per run of mapped pages, by address. Completed events are not
    /// processed first.
    pub(super) fn take_snapshot(&self) -> Snapshot {
        let mut segments: Vec<SegmentSnapshot> = Vec::new();
        for (_, segment) in self.segments.iter() {
            let (mut index, mut run_open) = (segment.first, false);
            while index != NONE {
                let node = &self.nodes[index];
                if node.mapped {
                    if !run_open {
                        segments.push(self.empty_entry(node));
                    }
                    if let Some(entry) = segments.last_mut() {
                        entry.total_bytes += node.bytes;
                        entry.blocks.push(BlockSnapshot {
                            address: node.address,
                            bytes: node.bytes,
                            requested_bytes: node.requested_bytes,
                            state: state(node),
                        });
                    }
                }
                run_open = node.mapped;
                index = node.next;
            }
        }
        segments.sort_unstable_by_key(|segment| segment.address);
        Snapshot { segments }
    }

    /// The layout of [`take_snapshot`](Self::take_snapshot) without the snapshot: searches ask for it after each step.
    pub(super) fn hash_layout(&self) -> u64 {
        let mut firsts: Vec<(u64, u32)> =
            self.segments.iter().map(|(_, segment)| (segment.base, segment.first)).collect();
        firsts.sort_unstable();
        let mut layout = LayoutHash::default();
        for (_, mut index) in firsts {
            let mut run_open = false;
            while index != NONE {
                let node = &self.nodes[index];
                if node.mapped {
                    if !run_open {
                        let pool = &self.pools[node.pool as usize];
                        layout.begin_segment(node.stream, self.pool_id(pool), (pool.small, node.expandable));
                    }
                    layout.add(node.bytes, state(node), node.requested_bytes);
                }
                run_open = node.mapped;
                index = node.next;
            }
        }
        layout.finish()
    }

    fn empty_entry(&self, first: &Node) -> SegmentSnapshot {
        let pool = &self.pools[first.pool as usize];
        SegmentSnapshot {
            address: first.address,
            total_bytes: 0,
            stream: first.stream,
            small: pool.small,
            expandable: first.expandable,
            pool_id: self.pool_id(pool),
            blocks: Vec::new(),
        }
    }

    /// Id of the private pool that owns this one; (0, 0): none.
    fn pool_id(&self, pool: &Pool) -> (u64, u64) {
        pool.owner.map_or((0, 0), |owner| self.private.id(owner).0)
    }
}
