//! A pool: the free blocks of one kind, in search order.

use std::collections::BTreeMap;

use super::block::Node;
use super::free_list::{FreeList, Key};
use crate::memory::Stream;
use crate::memory::slab::Slab;

/// The free blocks of one kind.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) small: bool,
    /// Index of the private pool that this belongs to.
    pub(super) owner: Option<u32>,
    /// Free mapped blocks.
    pub(super) free: FreeList,
    /// Unmapped ranges of expandable segments.
    pub(super) unmapped: BTreeMap<(Stream, u64), u32>,
    /// Searches so far, counted while garbage collection is on.
    pub(super) searches: u64,
}

impl Pool {
    pub(super) fn new(small: bool, owner: Option<u32>) -> Self {
        Self { small, owner, free: FreeList::default(), unmapped: BTreeMap::new(), searches: 0 }
    }

    /// Files a block under its current stream, size and address, and resets its age.
    #[inline]
    pub(super) fn insert(&mut self, nodes: &mut Slab<Node>, index: u32) {
        let node = &mut nodes[index];
        if node.mapped {
            node.freed_at = self.searches;
            self.free.insert(Key::from_node(node), index);
        } else {
            self.unmapped.insert((node.stream, node.address), index);
        }
    }

    /// Removes a block from the free list, before its size or address changes.
    #[inline]
    pub(super) fn remove(&mut self, nodes: &Slab<Node>, index: u32) {
        let node = &nodes[index];
        let filed = if node.mapped {
            self.free.remove(&Key::from_node(node))
        } else {
            self.unmapped.remove(&(node.stream, node.address))
        };
        debug_assert_eq!(filed, Some(index), "a free block is filed under its key");
    }

    /// Number of searches since the block was freed.
    pub(super) fn age(&self, node: &Node) -> u64 {
        self.searches - node.freed_at
    }
}
