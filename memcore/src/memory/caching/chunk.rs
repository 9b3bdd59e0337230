//! Filed blocks in order, up to a fixed number: a class of the free list consists of these.

/// Entries of a chunk. More make a shift within one chunk longer; fewer make the table of chunks longer.
pub(super) const CHUNK: usize = 32;

/// A filed block. Size and address are next to the block's number, so that looking at one touches one cache line. They
/// are not next to each other: the compiler would move them as one word of 16 bytes, and the processor would wait until
/// the two stores that just wrote them are complete, which takes a third of an allocation's time.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Entry {
    pub(super) bytes: u64,
    pub(super) block: u32,
    pub(super) address: u64,
}

impl Entry {
    /// Size and address as one number, which sorts like the pair.
    #[inline]
    pub(super) fn key(&self) -> u128 {
        packed(self.bytes, self.address)
    }
}

#[inline]
pub(super) fn packed(bytes: u64, address: u64) -> u128 {
    u128::from(bytes) << 64 | u128::from(address)
}

/// Consecutive entries.
#[derive(Clone, Debug)]
pub(super) struct Chunk<const N: usize> {
    pub(super) len: usize,
    pub(super) entries: [Entry; N],
}

impl<const N: usize> Default for Chunk<N> {
    fn default() -> Self {
        Self { len: 0, entries: [Entry::default(); N] }
    }
}

impl<const N: usize> Chunk<N> {
    #[inline]
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries[..self.len]
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len == N
    }

    /// Index of the first entry that is not below `key`; the length, if all are below.
    #[inline]
    pub(super) fn slot(&self, key: u128) -> usize {
        self.entries().partition_point(|entry| entry.key() < key)
    }

    /// Moves entries one by one: they are few and most changes are near the end, so that costs less than a call of
    /// memmove.
    #[inline]
    pub(super) fn insert(&mut self, slot: usize, key: u128, block: u32) {
        let mut at = self.len;
        while at > slot {
            self.entries[at] = self.entries[at - 1];
            at -= 1;
        }
        let entry = &mut self.entries[slot];
        entry.bytes = (key >> 64) as u64;
        entry.address = key as u64;
        entry.block = block;
        self.len += 1;
    }

    #[inline]
    pub(super) fn remove(&mut self, slot: usize) -> u32 {
        let block = self.entries[slot].block;
        self.len -= 1;
        for at in slot..self.len {
            self.entries[at] = self.entries[at + 1];
        }
        block
    }

    /// Moves all entries from `slot` on into a new chunk.
    pub(super) fn split_off(&mut self, slot: usize) -> Self {
        let mut upper = Self { len: self.len - slot, ..Self::default() };
        upper.entries[..upper.len].copy_from_slice(&self.entries[slot..self.len]);
        self.len = slot;
        upper
    }

    /// Appends all entries of another chunk; there must be room.
    pub(super) fn append(&mut self, other: &Self) {
        let end = self.len + other.len;
        self.entries[self.len..end].copy_from_slice(other.entries());
        self.len = end;
    }
}
