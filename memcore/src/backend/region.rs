//! A range of bytes in a segment: addresses for backends without pointers.

use crate::error::{Error, Result};
use crate::segment::SegmentId;

/// A byte range of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The segment.
    pub segment: SegmentId,
    /// First byte in it.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Region {
    /// The part of this region that starts `offset` bytes in and is `len` bytes long. It must lie inside; debug builds
    /// check that.
    #[must_use]
    pub fn part(self, offset: u64, len: u64) -> Region {
        debug_assert!(offset + len <= self.len, "part {offset}+{len} of {self:?}");
        Region { segment: self.segment, offset: self.offset + offset, len }
    }

    /// Checks that a transfer has as many bytes on the host as in this region.
    ///
    /// # Errors
    /// [`Error::Invalid`] with both sizes.
    pub fn check_host_len(self, host: usize) -> Result<()> {
        if host as u64 == self.len {
            return Ok(());
        }
        Err(Error::invalid("transfer", format!("{host} host bytes for {} device bytes", self.len)))
    }

    /// One past the last byte.
    pub fn end(self) -> u64 {
        self.offset + self.len
    }

    /// True if the two share a byte.
    pub fn overlaps(self, other: Region) -> bool {
        self.segment == other.segment
            && self.len > 0
            && other.len > 0
            && self.offset < other.end()
            && other.offset < self.end()
    }
}
