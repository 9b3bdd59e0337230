//! The free blocks of about one size, in order: the free list consists of these classes.
//!
//! Most classes have one or two blocks, stored in the class itself: every allocation and every free passes here, and
//! each pointer on the way costs a wait. A class that once had more keeps all its blocks in chunks, so that no change
//! moves more than one chunk even with a million blocks.

use super::chunk::{CHUNK, Chunk, Entry};

/// Number of blocks that are stored in the class itself: with them the class fills one cache line.
const FEW: usize = 2;

/// Sorted entries of one class.
#[derive(Clone, Debug, Default)]
pub(super) struct Class {
    /// All entries, unless `many` exists.
    few: Chunk<FEW>,
    /// All entries, once there were more than `FEW`.
    many: Option<Box<Chunks>>,
}

impl Class {
    #[inline(always)]
    pub(super) fn insert(&mut self, key: u128, block: u32) {
        match &mut self.many {
            None if !self.few.is_full() => self.few.insert(self.few.slot(key), key, block),
            None => self.grow(key, block),
            Some(chunks) => chunks.insert(key, block),
        }
    }

    #[cold]
    fn grow(&mut self, key: u128, block: u32) {
        let mut chunks = Chunks::default();
        self.few.entries().iter().for_each(|few| chunks.insert(few.key(), few.block));
        chunks.insert(key, block);
        self.few = Chunk::default();
        self.many = Some(Box::new(chunks));
    }

    /// Removes the entry at a place and returns its block.
    #[inline(always)]
    pub(super) fn take(&mut self, chunk: usize, slot: usize) -> u32 {
        match &mut self.many {
            None => self.few.remove(slot),
            Some(chunks) => chunks.take(chunk, slot),
        }
    }

    /// The place of the first entry that is not below `key`.
    #[inline(always)]
    pub(super) fn at_least(&self, key: u128) -> Option<(usize, usize)> {
        match &self.many {
            None => Some(self.few.slot(key)).filter(|&slot| slot < self.few.len).map(|slot| (0, slot)),
            Some(chunks) => chunks.at_least(key),
        }
    }

    /// The place of the last entry below `key`.
    pub(super) fn below(&self, key: u128) -> Option<(usize, usize)> {
        match &self.many {
            None => self.few.slot(key).checked_sub(1).map(|slot| (0, slot)),
            Some(chunks) => chunks.below(key),
        }
    }

    /// The entry at a place.
    #[inline(always)]
    pub(super) fn entry(&self, chunk: usize, slot: usize) -> &Entry {
        match &self.many {
            None => &self.few.entries[slot],
            Some(chunks) => &chunks.chunks[chunk].entries[slot],
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        match &self.many {
            None => self.few.len == 0,
            Some(chunks) => chunks.chunks[0].len == 0,
        }
    }

    /// Places and entries, from a place on.
    pub(super) fn entries(&self, from: (usize, usize)) -> impl Iterator<Item = ((usize, usize), &Entry)> + Clone {
        let chunks = self.many.iter().flat_map(|chunks| &chunks.chunks).map(Chunk::entries);
        let pieces = std::iter::once(self.few.entries()).filter(|_| self.many.is_none()).chain(chunks);
        pieces.enumerate().skip(from.0).flat_map(move |(at, piece)| {
            let first = if at == from.0 { from.1 } else { 0 };
            piece.iter().enumerate().skip(first).map(move |(slot, entry)| ((at, slot), entry))
        })
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.few.len + self.many.iter().flat_map(|chunks| &chunks.chunks).map(|chunk| chunk.len).sum::<usize>()
    }
}

#[derive(Clone, Debug)]
struct Chunks {
    /// `starts[i]` is a lower bound of the keys in chunk `i`, and above all keys of chunk `i − 1`.
    starts: Vec<u128>,
    /// Never empty, except for a single chunk.
    chunks: Vec<Chunk<CHUNK>>,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { starts: vec![0], chunks: vec![Chunk::default()] }
    }
}

impl Chunks {
    /// Index of the chunk that a key belongs to.
    #[inline]
    fn chunk(&self, key: u128) -> usize {
        match self.starts.len() {
            1 => 0,
            _ => self.starts.partition_point(|&start| start <= key) - 1,
        }
    }

    fn insert(&mut self, key: u128, block: u32) {
        let mut at = self.chunk(key);
        if self.chunks[at].is_full() {
            self.cut(at);
            at += usize::from(self.starts[at + 1] <= key);
        }
        let chunk = &mut self.chunks[at];
        chunk.insert(chunk.slot(key), key, block);
    }

    /// Splits a full chunk into two.
    #[cold]
    fn cut(&mut self, at: usize) {
        let upper = self.chunks[at].split_off(CHUNK / 2);
        self.starts.insert(at + 1, upper.entries[0].key());
        self.chunks.insert(at + 1, upper);
    }

    fn at_least(&self, key: u128) -> Option<(usize, usize)> {
        let at = self.chunk(key);
        let slot = self.chunks[at].slot(key);
        if slot < self.chunks[at].len { Some((at, slot)) } else { (at + 1 < self.chunks.len()).then_some((at + 1, 0)) }
    }

    fn below(&self, key: u128) -> Option<(usize, usize)> {
        let at = self.chunk(key);
        match self.chunks[at].slot(key) {
            0 => at.checked_sub(1).map(|at| (at, self.chunks[at].len - 1)),
            slot => Some((at, slot - 1)),
        }
    }

    fn take(&mut self, at: usize, slot: usize) -> u32 {
        let block = self.chunks[at].remove(slot);
        if self.chunks[at].len < CHUNK / 4 && self.chunks.len() > 1 {
            self.join(at);
        }
        block
    }

    /// Merges a chunk that has become small with the next one, if the result is at most half full; removes an empty
    /// chunk.
    #[cold]
    fn join(&mut self, at: usize) {
        if at + 1 < self.chunks.len() && self.chunks[at].len + self.chunks[at + 1].len <= CHUNK / 2 {
            let next = self.chunks.remove(at + 1);
            self.starts.remove(at + 1);
            self.chunks[at].append(&next);
        } else if self.chunks[at].len == 0 {
            self.chunks.remove(at);
            self.starts.remove(at);
            self.starts[0] = 0;
        }
    }
}
