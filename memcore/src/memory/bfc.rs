//! Best fit with coalescing, as in TensorFlow and XLA.
//!
//! - Requests are rounded up to 256 bytes. The smallest block that is large enough serves, at the lowest address among
//!   equals. (TensorFlow keeps blocks in bins by power of two, each sorted by size: the same order by another data
//!   structure.)
//! - A block is split if it is at least twice the request, or if the rest is at least 128 MiB; otherwise the client
//!   gets the whole block.
//! - Segments grow: the first has 2 MiB, each later one twice the last, and at least the request. After a refusal the
//!   allocator asks for a tenth less, until the request no longer fits.
//! - Freed neighbours merge at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::arena::{Arena, Fit, FreeBlock, Room};
use super::stream::Stream;
use crate::backend::DeviceMemory;

/// Block sizes are multiples of this, or of the device's alignment if that is larger.
const MIN_BLOCK_BYTES: u64 = 256;
const FIRST_SEGMENT_BYTES: u64 = 2 << 20;
/// The most by which a block may exceed its request, if it is less than twice as large.
const MAX_INTERNAL_BYTES: u64 = 128 << 20;

/// The policy of TensorFlow and XLA.
pub type Bfc = Arena<BestFit>;

/// The rules of [`Bfc`].
#[derive(Clone, Debug)]
pub struct BestFit {
    block_bytes: u64,
    free: BTreeMap<(Stream, u64, u64), u32>,
    next_segment_bytes: u64,
    /// True if the next segment was made larger for a request, so that success does not double it again.
    enlarged: bool,
}

impl Bfc {
    /// Creates the allocator on this device.
    pub fn new(memory: Arc<dyn DeviceMemory>) -> Self {
        let block_bytes = MIN_BLOCK_BYTES.max(memory.limits().alignment);
        let rules =
            BestFit { block_bytes, free: BTreeMap::new(), next_segment_bytes: FIRST_SEGMENT_BYTES, enlarged: false };
        Self::with_rules(memory, rules)
    }
}

impl Fit for BestFit {
    fn name(&self) -> &'static str {
        "bfc"
    }

    fn round(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.block_bytes)
    }

    fn find(&self, stream: Stream, bytes: u64) -> Option<u32> {
        let (key, &index) = self.free.range((stream, bytes, 0)..).next()?;
        (key.0 == stream).then_some(index)
    }

    fn insert(&mut self, block: FreeBlock) {
        self.free.insert((block.stream, block.bytes, block.address), block.index);
    }

    fn remove(&mut self, block: FreeBlock) {
        self.free.remove(&(block.stream, block.bytes, block.address));
    }

    fn cut(&self, block_bytes: u64, bytes: u64) -> Option<u64> {
        let rest = block_bytes - bytes;
        (rest > 0 && (rest >= bytes || rest >= MAX_INTERNAL_BYTES)).then_some(bytes)
    }

    fn segment(&mut self, bytes: u64, refused: Option<u64>, room: Room) -> Option<u64> {
        let block_bytes = self.block_bytes;
        let floor = |bytes: u64| bytes / block_bytes * block_bytes;
        if let Some(refused) = refused {
            let less = floor((refused as f64 * 0.9) as u64);
            return (less >= bytes && less < refused).then_some(less);
        }
        self.enlarged = bytes > self.next_segment_bytes;
        while self.next_segment_bytes < bytes {
            self.next_segment_bytes *= 2;
        }
        let size = self.next_segment_bytes.min(floor(room.free_bytes));
        (size >= bytes).then_some(size)
    }

    fn grown(&mut self, _bytes: u64) {
        if !self.enlarged {
            self.next_segment_bytes = self.next_segment_bytes.saturating_mul(2);
        }
    }

    fn largest(&self, free_bytes: u64) -> u64 {
        free_bytes / self.block_bytes * self.block_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Meta;
    use crate::memory::{Allocator, DriverEvent};

    #[test]
    fn segments_double_and_blocks_are_cut_from_twice_the_request() {
        let mut bfc = Bfc::new(Arc::new(Meta::default()));
        let mut sizes = Vec::new();
        let mut log = |event: DriverEvent| {
            if let DriverEvent::SegmentAlloc { bytes, .. } = event {
                sizes.push(bytes >> 20);
            }
        };
        let a = bfc.allocate((1 << 20) + 1, Stream::DEFAULT, &mut log).unwrap();
        assert_eq!(a.bytes, 2 << 20, "less than twice the request: all of it");
        let b = bfc.allocate(1 << 20, Stream::DEFAULT, &mut log).unwrap();
        assert_eq!(b.bytes, 1 << 20);
        bfc.allocate(100 << 20, Stream::DEFAULT, &mut log).unwrap();
        bfc.allocate(100 << 20, Stream::DEFAULT, &mut log).unwrap();
        assert_eq!(sizes, [2, 4, 128, 128]);
    }
}
