//! The binary buddy system.
//!
//! - Every block's size is a power of two of at least 512 bytes; its offset in the segment is a multiple of its size.
//! - A block is halved until it has the request's size, rounded up to a power of two. Of the smallest blocks that fit,
//!   the one at the lowest address serves.
//! - A freed block merges only with its buddy, the other half of the block that both were split from.
//! - Segments have 64 MiB, or the request's size rounded up to a power of two.
//!
//! Fast and without external fragmentation inside a segment, at the cost of up to half of every block.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::arena::{Arena, Fit, FreeBlock, Room};
use super::stream::Stream;
use crate::backend::DeviceMemory;

const BLOCK_BYTES: u64 = 512;
const SEGMENT_BYTES: u64 = 64 << 20;

/// The binary buddy system.
pub type Buddy = Arena<Buddies>;

/// The rules of [`Buddy`].
#[derive(Clone, Debug, Default)]
pub struct Buddies {
    /// Free blocks by stream, size and address.
    free: BTreeSet<(Stream, u64, u64, u32)>,
}

impl Buddy {
    /// Creates the allocator on this device.
    pub fn new(memory: Arc<dyn DeviceMemory>) -> Self {
        Self::with_rules(memory, Buddies::default())
    }
}

impl Fit for Buddies {
    fn name(&self) -> &'static str {
        "buddy"
    }

    fn round(&self, bytes: u64) -> u64 {
        bytes.next_power_of_two().max(BLOCK_BYTES)
    }

    fn find(&self, stream: Stream, bytes: u64) -> Option<u32> {
        let &(owner, _, _, index) = self.free.range((stream, bytes, 0, 0)..).next()?;
        (owner == stream).then_some(index)
    }

    fn insert(&mut self, block: FreeBlock) {
        self.free.insert((block.stream, block.bytes, block.address, block.index));
    }

    fn remove(&mut self, block: FreeBlock) {
        self.free.remove(&(block.stream, block.bytes, block.address, block.index));
    }

    fn cut(&self, block_bytes: u64, bytes: u64) -> Option<u64> {
        (block_bytes > bytes).then_some(block_bytes / 2)
    }

    fn merges(&self, left_offset: u64, left_bytes: u64, right_bytes: u64) -> bool {
        left_bytes == right_bytes && left_offset.is_multiple_of(2 * left_bytes)
    }

    fn segment(&mut self, bytes: u64, refused: Option<u64>, _room: Room) -> Option<u64> {
        match refused {
            None => Some(bytes.max(SEGMENT_BYTES)),
            Some(refused) => (refused / 2 >= bytes).then_some(refused / 2),
        }
    }

    fn largest(&self, free_bytes: u64) -> u64 {
        if free_bytes < BLOCK_BYTES { 0 } else { 1 << free_bytes.ilog2() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Meta;
    use crate::memory::Allocator;

    #[test]
    fn only_buddies_merge() {
        let mut buddy = Buddy::new(Arc::new(Meta::default()));
        let mut log = |_| {};
        let quarter = SEGMENT_BYTES / 4;
        let blocks: Vec<_> = (0..4).map(|_| buddy.allocate(quarter - 1, Stream::DEFAULT, &mut log).unwrap()).collect();
        assert!(blocks.iter().all(|block| block.bytes == quarter && block.region.offset % quarter == 0));
        buddy.free(blocks[1].id, &mut log);
        buddy.free(blocks[2].id, &mut log);
        // The two are neighbours, but halves of different blocks.
        assert_eq!(buddy.snapshot().largest_inactive_bytes(), quarter);
        buddy.free(blocks[3].id, &mut log);
        assert_eq!(buddy.snapshot().largest_inactive_bytes(), 2 * quarter);
        buddy.free(blocks[0].id, &mut log);
        assert_eq!(buddy.snapshot().largest_inactive_bytes(), SEGMENT_BYTES);
    }
}
