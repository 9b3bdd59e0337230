//! Two-level segregated fit: a good fit in constant time.
//!
//! - Free blocks are in lists by size class: 32 classes between two powers of two. Two bitmaps tell which lists have
//!   blocks, so that finding one takes two bit scans, whatever the number of blocks.
//! - The first list in which every block is large enough serves a request, with the block freed last. That block may be
//!   larger than the best one by a class, 1/32 of its size.
//! - A block is split whenever 512 bytes or more would be left; freed neighbours merge at once.
//! - Segments are as in the Vulkan memory allocator, which uses this policy: 256 MiB (an eighth of a device of up to
//!   1 GiB), at first an eighth of that; a request above half of it gets a segment of its own.
//!
//! Written here because existing crates manage one range of fixed size and do not let their blocks be listed.

use std::sync::Arc;

use super::arena::{Arena, Fit, FreeBlock, Room};
use super::stream::Stream;
use crate::backend::DeviceMemory;

const BLOCK_BYTES: u64 = 512;
/// Binary logarithm of the number of classes between two powers of two.
const CLASS_BITS: u32 = 5;
const CLASSES: usize = 1 << CLASS_BITS;
/// Number of powers of two, for sizes in units of `BLOCK_BYTES`; sizes are below 2^60.
const LEVELS: usize = 52;
const NONE: u32 = u32::MAX;
const SEGMENT_BYTES: u64 = 256 << 20;

/// The two-level segregated fit policy.
pub type Tlsf = Arena<TwoLevels>;

/// The rules of [`Tlsf`].
#[derive(Clone, Debug, Default)]
pub struct TwoLevels {
    /// One index per stream that has free blocks.
    streams: Vec<(Stream, Index)>,
    /// Neighbours in the lists of free blocks, by block.
    links: Vec<Link>,
    largest_segment_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

/// The lists of one stream.
#[derive(Clone, Debug)]
struct Index {
    /// Bit set of the levels that have a block.
    levels: u64,
    /// Bit set of the classes that have a block, for each level.
    classes: [u32; LEVELS],
    /// First block of each list.
    heads: Vec<[u32; CLASSES]>,
}

impl Default for Index {
    fn default() -> Self {
        Self { levels: 0, classes: [0; LEVELS], heads: vec![[NONE; CLASSES]; LEVELS] }
    }
}

/// The list of a block: level (power of two) and class. Small sizes have a list each.
fn class(bytes: u64) -> (usize, usize) {
    let units = bytes / BLOCK_BYTES;
    if units < CLASSES as u64 {
        return (0, units as usize);
    }
    let power = units.ilog2();
    let class = (units >> (power - CLASS_BITS)) as usize - CLASSES;
    ((power - CLASS_BITS) as usize + 1, class)
}

/// Rounds `bytes` up so that the list of the result has only blocks of at least `bytes`.
fn round_to_class(bytes: u64) -> u64 {
    let units = bytes / BLOCK_BYTES;
    if units < CLASSES as u64 {
        return bytes;
    }
    let step = 1u64 << (units.ilog2() - CLASS_BITS);
    units.next_multiple_of(step) * BLOCK_BYTES
}

impl Index {
    /// Returns the first block of the first non-empty list from this one on.
    fn first_from(&self, level: usize, class: usize) -> Option<u32> {
        let classes = self.classes[level] & (u32::MAX << class);
        if classes != 0 {
            return Some(self.heads[level][classes.trailing_zeros() as usize]);
        }
        let levels = self.levels & u64::MAX.checked_shl(level as u32 + 1).unwrap_or(0);
        if levels == 0 {
            return None;
        }
        let level = levels.trailing_zeros() as usize;
        Some(self.heads[level][self.classes[level].trailing_zeros() as usize])
    }
}

impl Tlsf {
    /// Creates the allocator on this device.
    pub fn new(memory: Arc<dyn DeviceMemory>) -> Self {
        Self::with_rules(memory, TwoLevels::default())
    }
}

impl TwoLevels {
    fn index_for(&mut self, stream: Stream) -> usize {
        if let Some(at) = self.streams.iter().position(|(owner, _)| *owner == stream) {
            return at;
        }
        self.streams.push((stream, Index::default()));
        self.streams.len() - 1
    }
}

impl Fit for TwoLevels {
    fn name(&self) -> &'static str {
        "tlsf"
    }

    fn round(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(BLOCK_BYTES)
    }

    fn find(&self, stream: Stream, bytes: u64) -> Option<u32> {
        let (_, index) = self.streams.iter().find(|(owner, _)| *owner == stream)?;
        let (level, class) = class(round_to_class(bytes));
        index.first_from(level, class)
    }

    fn insert(&mut self, block: FreeBlock) {
        let (level, class) = class(block.bytes);
        let at = self.index_for(block.stream);
        let index = &mut self.streams[at].1;
        let head = std::mem::replace(&mut index.heads[level][class], block.index);
        index.levels |= 1 << level;
        index.classes[level] |= 1 << class;
        if self.links.len() <= block.index as usize {
            self.links.resize(block.index as usize + 1, Link { prev: NONE, next: NONE });
        }
        self.links[block.index as usize] = Link { prev: NONE, next: head };
        if head != NONE {
            self.links[head as usize].prev = block.index;
        }
    }

    fn remove(&mut self, block: FreeBlock) {
        let (level, class) = class(block.bytes);
        let Link { prev, next } = self.links[block.index as usize];
        if next != NONE {
            self.links[next as usize].prev = prev;
        }
        if prev != NONE {
            self.links[prev as usize].next = next;
            return;
        }
        let at = self.index_for(block.stream);
        let index = &mut self.streams[at].1;
        index.heads[level][class] = next;
        if next == NONE {
            index.classes[level] &= !(1 << class);
            if index.classes[level] == 0 {
                index.levels &= !(1 << level);
            }
        }
    }

    fn cut(&self, block_bytes: u64, bytes: u64) -> Option<u64> {
        (block_bytes - bytes >= BLOCK_BYTES).then_some(bytes)
    }

    fn segment(&mut self, bytes: u64, refused: Option<u64>, room: Room) -> Option<u64> {
        if let Some(refused) = refused {
            let less = (refused / 2).next_multiple_of(BLOCK_BYTES);
            return match less {
                less if less >= bytes && less < refused => Some(less),
                _ if refused > bytes => Some(bytes),
                _ => None,
            };
        }
        let small_device = room.total_bytes <= 1 << 30;
        let preferred = if small_device { (room.total_bytes / 8).next_multiple_of(BLOCK_BYTES) } else { SEGMENT_BYTES };
        if bytes > preferred / 2 {
            return Some(bytes);
        }
        let mut size = preferred;
        for _ in 0..3 {
            let smaller = (size / 2).next_multiple_of(BLOCK_BYTES);
            if smaller <= self.largest_segment_bytes || smaller < 2 * bytes {
                break;
            }
            size = smaller;
        }
        Some(size)
    }

    fn grown(&mut self, bytes: u64) {
        self.largest_segment_bytes = self.largest_segment_bytes.max(bytes);
    }

    fn largest(&self, free_bytes: u64) -> u64 {
        free_bytes / BLOCK_BYTES * BLOCK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::Meta;
    use crate::memory::Allocator;

    proptest! {
        #[test]
        fn every_block_from_the_rounded_class_on_is_big_enough(units in 1u64..1 << 40, more in 0u64..1 << 40) {
            let bytes = units * BLOCK_BYTES;
            let rounded = round_to_class(bytes);
            prop_assert!(rounded >= bytes && rounded - bytes <= bytes / CLASSES as u64);
            let block = (units + more) * BLOCK_BYTES;
            // Lists are in order of size; a list from that of the rounded request on has no smaller block.
            prop_assert!(class(bytes) <= class(block));
            if class(block) >= class(rounded) {
                prop_assert!(block >= bytes);
            } else {
                prop_assert!(block < rounded);
            }
        }
    }

    #[test]
    fn segments_start_small_and_large_requests_have_their_own() {
        let mut tlsf = Tlsf::new(Arc::new(Meta::default()));
        let sizes = |tlsf: &mut Tlsf, bytes| {
            tlsf.allocate(bytes, Stream::DEFAULT, &mut |_| {}).unwrap();
            tlsf.stats().reserved_bytes.all.current >> 20
        };
        assert_eq!(sizes(&mut tlsf, 1), 32);
        assert_eq!(sizes(&mut tlsf, 200 << 20), 232);
        assert_eq!(sizes(&mut tlsf, 31 << 20), 232);
    }
}
