//! Free blocks in search order: by stream, then size, then address.
//!
//! Every request searches here and every free inserts here, so this determines the cost of both. The sizes of one
//! stream are divided into 32 classes per power of two, with one bit for each class that has blocks. The class of a
//! size is found by arithmetic, the next larger class with blocks by a few instructions. Within a class the blocks are
//! sorted (`class.rs`).

use std::num::NonZeroU64;

use super::block::Node;
use super::chunk::{Entry, packed};
use super::class::Class;
use super::sizes::BLOCK_BYTES;
use crate::memory::Stream;

/// The sort key of a free block. In each stream the first key at or after `(bytes, 0)` is the best fit, at the lowest
/// address among equals. In one release it is the block created first among equals; its number then replaces the
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) stream: Stream,
    pub(super) bytes: u64,
    pub(super) address: u64,
}

impl Key {
    #[inline]
    pub(super) fn from_node(node: &Node) -> Self {
        let address = node.made.map_or(node.address, NonZeroU64::get);
        Self { stream: node.stream, bytes: node.bytes, address }
    }

    #[inline]
    fn packed(&self) -> u128 {
        packed(self.bytes, self.address)
    }

    #[inline]
    fn unpacked(stream: Stream, entry: &Entry) -> Self {
        Self { stream, bytes: entry.bytes, address: entry.address }
    }
}

/// Number of classes per power of two. Smaller sizes have a class for each multiple of 512 bytes.
const PER_POWER: u64 = 32;
/// Words of the bit set: enough for the classes of all 64-bit sizes.
const WORDS: usize = 26;

/// The class of a size. Sizes up to 32 blocks of 512 bytes have a class each; larger ones share. Classes never decrease
/// with size.
#[inline]
fn class_of(bytes: u64) -> usize {
    let blocks = bytes / BLOCK_BYTES;
    if blocks < PER_POWER {
        return blocks as usize;
    }
    let power = u64::from(blocks.ilog2()) - u64::from(PER_POWER.ilog2());
    (power * PER_POWER + (blocks >> power)) as usize
}

/// The free blocks of one stream.
#[derive(Clone, Debug)]
struct Shelf {
    stream: Stream,
    /// As many as were ever used.
    classes: Vec<Class>,
    /// A bit for each class with blocks.
    filled: [u64; WORDS],
    /// A bit for each word that is not 0.
    words: u64,
}

impl Shelf {
    fn new(stream: Stream) -> Self {
        Self { stream, classes: Vec::new(), filled: [0; WORDS], words: 0 }
    }

    #[inline]
    fn mark(&mut self, class: usize) {
        self.filled[class / 64] |= 1 << (class % 64);
        self.words |= 1 << (class / 64);
    }

    #[inline]
    fn unmark(&mut self, class: usize) {
        self.filled[class / 64] &= !(1 << (class % 64));
        if self.filled[class / 64] == 0 {
            self.words &= !(1 << (class / 64));
        }
    }

    #[inline]
    fn is_marked(&self, class: usize) -> bool {
        self.filled[class / 64] >> (class % 64) & 1 == 1
    }

    /// Returns the first class above `class` that has blocks.
    #[inline]
    fn above(&self, class: usize) -> Option<usize> {
        let (word, bit) = (class / 64, class % 64);
        let here = self.filled[word] & (!1u64 << bit);
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let word = (self.words & (!1u64 << word)).trailing_zeros() as usize;
        (word < WORDS).then(|| word * 64 + self.filled[word].trailing_zeros() as usize)
    }

    /// Iterates over the classes with blocks from `class` on. `class` itself is included if it was ever used.
    fn filled_from(&self, class: usize) -> impl Iterator<Item = usize> + Clone {
        let first = (class < self.classes.len()).then_some(class).or_else(|| self.above(class));
        std::iter::successors(first, |&class| self.above(class))
    }

    /// Returns the last class below `class` that has blocks.
    fn under(&self, class: usize) -> Option<usize> {
        (0..class.min(self.classes.len())).rev().find(|&class| self.is_marked(class))
    }

    #[inline]
    fn insert(&mut self, bytes: u64, address: u64, block: u32) {
        let class = class_of(bytes);
        if class >= self.classes.len() {
            self.classes.resize_with(class + 1, Class::default);
        }
        self.classes[class].insert(packed(bytes, address), block);
        self.mark(class);
    }

    /// Finds the first entry with at least this size.
    #[inline(always)]
    fn at_least(&self, bytes: u64) -> Option<(usize, usize, usize)> {
        let class = class_of(bytes);
        if self.is_marked(class)
            && let Some((chunk, slot)) = self.classes[class].at_least(u128::from(bytes) << 64)
        {
            return Some((class, chunk, slot));
        }
        self.above(class).map(|class| (class, 0, 0))
    }

    #[inline]
    fn take(&mut self, class: usize, chunk: usize, slot: usize) -> u32 {
        let entries = &mut self.classes[class];
        let block = entries.take(chunk, slot);
        if entries.is_empty() {
            self.unmark(class);
        }
        block
    }
}

/// Position of an entry, valid until the list changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    shelf: u32,
    class: u32,
    chunk: u32,
    slot: u32,
}

impl Place {
    #[inline]
    fn new(shelf: usize, (class, chunk, slot): (usize, usize, usize)) -> Self {
        // None of them comes near 2³²: blocks are numbered with 32 bits.
        Self { shelf: shelf as u32, class: class as u32, chunk: chunk as u32, slot: slot as u32 }
    }
}

/// The free mapped blocks of one pool.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeList {
    shelves: Vec<Shelf>,
}

impl FreeList {
    #[inline]
    fn shelf(&self, stream: Stream) -> Result<usize, usize> {
        match self.shelves.first() {
            Some(shelf) if shelf.stream == stream => Ok(0),
            _ => self.shelves.binary_search_by_key(&stream, |shelf| shelf.stream),
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, key: Key, block: u32) {
        let at = self.shelf(key.stream).unwrap_or_else(|at| {
            self.shelves.insert(at, Shelf::new(key.stream));
            at
        });
        self.shelves[at].insert(key.bytes, key.address, block);
    }

    /// Removes the block with exactly this key.
    #[inline]
    pub(super) fn remove(&mut self, key: &Key) -> Option<u32> {
        let at = self.shelf(key.stream).ok()?;
        let (shelf, packed, class) = (&mut self.shelves[at], key.packed(), class_of(key.bytes));
        let entries = shelf.classes.get(class)?;
        let (chunk, slot) = entries.at_least(packed)?;
        (entries.entry(chunk, slot).key() == packed).then(|| shelf.take(class, chunk, slot))
    }

    fn entry(&self, place: Place) -> (Place, Key, u32) {
        let shelf = &self.shelves[place.shelf as usize];
        let entry = shelf.classes[place.class as usize].entry(place.chunk as usize, place.slot as usize);
        (place, Key::unpacked(shelf.stream, entry), entry.block)
    }

    /// Finds the smallest block of the stream with at least `bytes`.
    #[inline(always)]
    pub(super) fn at_least(&self, stream: Stream, bytes: u64) -> Option<Place> {
        let shelf = self.shelf(stream).ok()?;
        let found = self.shelves[shelf].at_least(bytes)?;
        Some(Place::new(shelf, found))
    }

    /// Returns size and number of a filed block. They are read one by one: they were just written, and a load wider
    /// than one store waits until all those stores are complete.
    #[inline(always)]
    pub(super) fn at(&self, place: Place) -> (u64, u32) {
        let shelf = &self.shelves[place.shelf as usize];
        let entry = shelf.classes[place.class as usize].entry(place.chunk as usize, place.slot as usize);
        (entry.bytes, entry.block)
    }

    /// Iterates over an entry and the later entries of its stream.
    pub(super) fn from(&self, place: Place) -> impl Iterator<Item = (Place, Key, u32)> + Clone {
        let at = place.shelf as usize;
        let shelf = &self.shelves[at];
        let own = place.class as usize;
        shelf.filled_from(own).flat_map(move |class| {
            let from = if class == own { (place.chunk as usize, place.slot as usize) } else { (0, 0) };
            shelf.classes[class].entries(from).map(move |((chunk, slot), entry)| {
                (Place::new(at, (class, chunk, slot)), Key::unpacked(shelf.stream, entry), entry.block)
            })
        })
    }

    /// Removes an entry that was found. The list must not have changed since.
    #[inline]
    pub(super) fn take(&mut self, place: Place) -> u32 {
        let shelf = &mut self.shelves[place.shelf as usize];
        shelf.take(place.class as usize, place.chunk as usize, place.slot as usize)
    }

    /// Finds the last block below a key in its stream.
    pub(super) fn below(&self, key: &Key) -> Option<(Key, u32)> {
        let at = self.shelf(key.stream).ok()?;
        let (shelf, own) = (&self.shelves[at], class_of(key.bytes));
        let within = shelf.classes.get(own).and_then(|class| class.below(key.packed()));
        let (class, (chunk, slot)) = match within {
            Some(place) => (own, place),
            None => {
                let class = shelf.under(own)?;
                (class, shelf.classes[class].below(u128::MAX)?)
            }
        };
        let (_, key, block) = self.entry(Place::new(at, (class, chunk, slot)));
        Some((key, block))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, u32)> + Clone {
        self.shelves.iter().flat_map(|shelf| {
            let entries = shelf.filled_from(0).flat_map(|class| shelf.classes[class].entries((0, 0)));
            entries.map(|(_, entry)| (Key::unpacked(shelf.stream, entry), entry.block))
        })
    }

    /// Iterates over the blocks, in order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = u32> + Clone {
        self.iter().map(|(_, block)| block)
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.shelves.iter().flat_map(|shelf| &shelf.classes).map(Class::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn classes_are_in_order_of_size() {
        let mut sizes: Vec<u64> = (0..2000).map(|blocks| blocks * 512).collect();
        sizes.extend((0..64).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + (1 << power >> 6)]));
        sizes.push(u64::MAX);
        sizes.sort_unstable();
        assert!(sizes.windows(2).all(|pair| class_of(pair[0]) <= class_of(pair[1])));
        assert_eq!(
            [0, 1, 31, 32, 33, 63, 64, 65, 66].map(|blocks| class_of(blocks * 512)),
            [0, 1, 31, 32, 33, 63, 64, 64, 65]
        );
        assert!(class_of(u64::MAX) < 64 * WORDS);
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_map(steps in proptest::collection::vec((0u32..3, 0u64..300, 0u64..9, 0u8..8), 1..1500)) {
            let (mut list, mut map) = (FreeList::default(), BTreeMap::new());
            for (number, (stream, bytes, address, kind)) in steps.into_iter().enumerate() {
                let bytes = if bytes < 150 { bytes * 512 } else { (bytes - 149) << (bytes % 40) };
                let key = Key { stream: Stream(stream), bytes, address };
                match kind {
                    0..=4 if !map.contains_key(&key) => {
                        list.insert(key, number as u32);
                        map.insert(key, number as u32);
                    }
                    5 => prop_assert_eq!(list.remove(&key), map.remove(&key)),
                    6 => {
                        let found = list.at_least(key.stream, bytes).map(|place| list.entry(place));
                        let start = Key { address: 0, ..key };
                        let expected = map.range(start..).next().filter(|(other, _)| other.stream == key.stream);
                        let seen = found.map(|(_, key, block)| (key, block));
                        prop_assert_eq!(seen, expected.map(|(key, block)| (*key, *block)));
                        if let Some((place, key, block)) = found {
                            prop_assert_eq!(list.at(place), (key.bytes, block));
                            let after: Vec<_> = list.from(place).map(|(_, key, block)| (key, block)).collect();
                            let rest = map.range(key..).filter(|(other, _)| other.stream == key.stream);
                            prop_assert_eq!(after, rest.map(|(key, block)| (*key, *block)).collect::<Vec<_>>());
                            prop_assert_eq!(list.take(place), block);
                            map.remove(&key);
                        }
                    }
                    _ => {
                        let below = map.range(..key).next_back().filter(|(other, _)| other.stream == key.stream);
                        prop_assert_eq!(list.below(&key), below.map(|(key, block)| (*key, *block)));
                    }
                }
                prop_assert_eq!(list.len(), map.len());
            }
            prop_assert!(list.iter().eq(map.iter().map(|(key, block)| (*key, *block))));
            // Everything is removed again.
            for (key, block) in &map {
                prop_assert_eq!(list.remove(key), Some(*block));
            }
            prop_assert_eq!(list.iter().count(), 0);
        }
    }
}
