//! Contents of segments: free memory inside segments in use, and in segments without a block.

use std::collections::BTreeMap;

/// A segment, or pages of one, with its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Event that took it from the driver.
    pub(crate) from: u32,
    /// Event that gave it back; `u32::MAX` if none did.
    pub(crate) to: u32,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    bytes: u64,
    used_bytes: u64,
    from: u32,
}

/// Segments at one moment, and those that existed before.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    pieces: BTreeMap<u64, Piece>,
    /// Bytes taken from the driver.
    pub(crate) reserved_bytes: u64,
    /// Free parts of segments that hold a block.
    pub(crate) split_bytes: u64,
    gone: Vec<Stay>,
}

impl Piece {
    fn split_bytes(&self) -> u64 {
        if self.used_bytes > 0 { self.bytes.saturating_sub(self.used_bytes) } else { 0 }
    }
}

impl Segments {
    /// Adds memory taken from the driver. It replaces overlapping memory that already exists.
    ///
    /// A file may claim any address and size. Memory beyond the largest address is left out, so that no sum of pieces overflows.
    pub(crate) fn take(&mut self, address: u64, bytes: u64, at: u32) {
        let bytes = bytes.min(u64::MAX - address);
        if bytes == 0 {
            return;
        }
        self.give_back(address, bytes, at);
        self.reserved_bytes += bytes;
        self.pieces.insert(address, Piece { bytes, used_bytes: 0, from: at });
    }

    /// Removes memory given back: a segment, or a part of one, whose ends stay.
    pub(crate) fn give_back(&mut self, address: u64, bytes: u64, at: u32) {
        let end = address.saturating_add(bytes);
        let overlapping = |(start, piece): (&u64, &Piece)| (start + piece.bytes > address).then_some((*start, *piece));
        let found: Vec<(u64, Piece)> = self.pieces.range(..end).rev().map_while(overlapping).collect();
        for (start, piece) in found {
            self.pieces.remove(&start);
            self.reserved_bytes -= piece.bytes;
            self.split_bytes -= piece.split_bytes();
            self.gone.push(Stay { address: start, bytes: piece.bytes, from: piece.from, to: at });
            let piece_end = start + piece.bytes;
            // Pages that are given back contain no block: the used bytes are assigned to the remaining pages in order.
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

    /// Counts a block that was allocated (`taken`) or freed. A block outside of every segment changes nothing.
    pub(crate) fn block(&mut self, address: u64, bytes: u64, taken: bool) {
        let end = address.saturating_add(bytes);
        let pieces = self.pieces.range_mut(..end).rev();
        for (start, piece) in pieces.take_while(|(start, piece)| *start + piece.bytes > address) {
            let part = end.min(start + piece.bytes) - address.max(*start);
            let before = piece.split_bytes();
            piece.used_bytes =
                if taken { piece.used_bytes.saturating_add(part) } else { piece.used_bytes.saturating_sub(part) };
            self.split_bytes = self.split_bytes - before + piece.split_bytes();
        }
    }

    /// Returns all segments that ever existed, ordered by the time and address at which they began. If there are more than `most`, those that existed
    /// after the event `at` come first, then the largest.
    pub(crate) fn stays(self, most: usize, at: u32) -> Vec<Stay> {
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
