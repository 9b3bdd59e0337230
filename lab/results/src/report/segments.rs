//! What lies in which segment: how much is free inside segments in use, and how much in segments without a block.

use std::collections::BTreeMap;

/// A segment, or pages of one: from when to when it was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stay {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The event that took it.
    pub(super) from: u32,
    /// The event that gave it back; `u32::MAX`: none.
    pub(super) to: u32,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    bytes: u64,
    used_bytes: u64,
    from: u32,
}

/// The segments at one moment, and those that were there before.
#[derive(Debug, Default)]
pub(super) struct Segments {
    pieces: BTreeMap<u64, Piece>,
    /// What the driver gave.
    pub(super) reserved_bytes: u64,
    /// Free parts of segments that hold a block.
    pub(super) split_bytes: u64,
    gone: Vec<Stay>,
}

impl Piece {
    fn split_bytes(&self) -> u64 {
        if self.used_bytes > 0 { self.bytes.saturating_sub(self.used_bytes) } else { 0 }
    }
}

impl Segments {
    /// Memory was taken from the driver. What overlaps with what is there already replaces it.
    pub(super) fn take(&mut self, address: u64, bytes: u64, at: u32) {
        if bytes == 0 {
            return;
        }
        self.give_back(address, bytes, at);
        self.reserved_bytes += bytes;
        self.pieces.insert(address, Piece { bytes, used_bytes: 0, from: at });
    }

    /// Memory was given back: a segment, or a part of one, whose ends stay.
    pub(super) fn give_back(&mut self, address: u64, bytes: u64, at: u32) {
        let end = address.saturating_add(bytes);
        let overlapping = |(start, piece): (&u64, &Piece)| (start + piece.bytes > address).then_some((*start, *piece));
        let found: Vec<(u64, Piece)> = self.pieces.range(..end).rev().map_while(overlapping).collect();
        for (start, piece) in found {
            self.pieces.remove(&start);
            self.reserved_bytes -= piece.bytes;
            self.split_bytes -= piece.split_bytes();
            self.gone.push(Stay { address: start, bytes: piece.bytes, from: piece.from, to: at });
            let piece_end = start + piece.bytes;
            // No block lies in pages that are given back: what is used is in what stays, first come.
            let mut used = piece.used_bytes;
            for (from, to) in [(start, address), (end, piece_end)] {
                if from < to && from >= start && to <= piece_end {
                    let used_bytes = used.min(to - from);
                    used -= used_bytes;
                    let rest = Piece { bytes: to - from, used_bytes, from: at };
                    self.reserved_bytes += rest.bytes;
                    self.split_bytes += rest.split_bytes();
                    self.pieces.insert(from, rest);
                }
            }
        }
    }

    /// A block was given (`taken`) or freed. What lies outside of every segment changes nothing.
    pub(super) fn block(&mut self, address: u64, bytes: u64, taken: bool) {
        let end = address.saturating_add(bytes);
        let pieces = self.pieces.range_mut(..end).rev();
        for (start, piece) in pieces.take_while(|(start, piece)| *start + piece.bytes > address) {
            let part = end.min(start + piece.bytes) - address.max(*start);
            let before = piece.split_bytes();
            piece.used_bytes = if taken { piece.used_bytes + part } else { piece.used_bytes.saturating_sub(part) };
            self.split_bytes = self.split_bytes - before + piece.split_bytes();
        }
    }

    /// All segments that ever were, by the time and place where they began. Of more than `most`, those that were there
    /// after an event come first, then the largest.
    pub(super) fn stays(self, most: usize, at: u32) -> Vec<Stay> {
        let now = self.pieces.iter();
        let there = now.map(|(&address, piece)| Stay { address, bytes: piece.bytes, from: piece.from, to: u32::MAX });
        let mut stays: Vec<Stay> = self.gone.into_iter().filter(|stay| stay.from < stay.to).chain(there).collect();
        stays.sort_by_key(|stay| (stay.from > at || stay.to <= at, std::cmp::Reverse(stay.bytes)));
        stays.truncate(most);
        stays.sort_by_key(|stay| (stay.from, stay.address));
        stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_parts_count_only_where_something_lives() {
        let mut segments = Segments::default();
        segments.take(0, 100, 0);
        segments.take(1000, 50, 1);
        assert_eq!((segments.reserved_bytes, segments.split_bytes), (150, 0));
        segments.block(10, 30, true);
        assert_eq!(segments.split_bytes, 70);
        segments.block(1000, 50, true);
        assert_eq!(segments.split_bytes, 70);
        segments.block(10, 30, false);
        assert_eq!(segments.split_bytes, 0);
        segments.block(5000, 10, true);
        assert_eq!((segments.reserved_bytes, segments.split_bytes), (150, 0));
        segments.give_back(0, 100, 9);
        let stay = |address, bytes, from, to| Stay { address, bytes, from, to };
        assert_eq!(segments.stays(9, 0), [stay(0, 100, 0, 9), stay(1000, 50, 1, u32::MAX)]);
    }

    #[test]
    fn pages_come_and_go_in_parts_and_a_block_may_span_them() {
        let mut segments = Segments::default();
        for page in 0..3 {
            segments.take(page * 10, 10, page as u32);
        }
        segments.block(5, 10, true);
        assert_eq!((segments.reserved_bytes, segments.split_bytes), (30, 10));
        segments.give_back(22, 4, 5);
        assert_eq!((segments.reserved_bytes, segments.split_bytes), (26, 10));
        segments.block(5, 10, false);
        assert_eq!(segments.split_bytes, 0);
        let bytes: Vec<u64> = segments.stays(99, 0).iter().map(|stay| stay.bytes).collect();
        assert_eq!(bytes, [10, 10, 10, 2, 4]);
    }
}
