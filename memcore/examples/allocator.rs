//! Your own allocation policy: the first free block by address that is large enough.

use std::collections::BTreeMap;
use std::sync::Arc;

use memcore::backend::Meta;
use memcore::memory::{Allocator, Arena, Fit, FreeBlock, Room, Stream};
use memcore::nn::Linear;
use memcore::prelude::*;

const BLOCK_BYTES: u64 = 512;
const SEGMENT_BYTES: u64 = 1 << 20;

/// The rules; an [`Arena`] keeps blocks, segments and statistics by them.
#[derive(Default)]
pub(crate) struct FirstFit {
    /// By stream and address: size and index.
    free: BTreeMap<(Stream, u64), (u64, u32)>,
}

impl Fit for FirstFit {
    fn name(&self) -> &'static str {
        "first-fit"
    }

    fn round(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(BLOCK_BYTES)
    }

    fn find(&self, stream: Stream, bytes: u64) -> Option<u32> {
        let of_stream = self.free.range((stream, 0)..=(stream, u64::MAX));
        of_stream.map(|(_, &block)| block).find(|&(size, _)| size >= bytes).map(|(_, index)| index)
    }

    fn insert(&mut self, block: FreeBlock) {
        self.free.insert((block.stream, block.address), (block.bytes, block.index));
    }

    fn remove(&mut self, block: FreeBlock) {
        self.free.remove(&(block.stream, block.address));
    }

    fn cut(&self, block_bytes: u64, bytes: u64) -> Option<u64> {
        (block_bytes > bytes).then_some(bytes)
    }

    fn segment(&mut self, bytes: u64, refused: Option<u64>, _: Room) -> Option<u64> {
        // Once more with exactly what is needed; after that there is no room.
        match refused {
            None => Some(bytes.next_multiple_of(SEGMENT_BYTES)),
            Some(refused) => (refused > bytes).then_some(bytes),
        }
    }

    fn largest(&self, free_bytes: u64) -> u64 {
        free_bytes / BLOCK_BYTES * BLOCK_BYTES
    }
}

/// What a forward pass takes from the driver by this policy, and what of it is in use at the peak.
pub(crate) fn reserved_and_peak(policy: impl FnOnce(Arc<Meta>) -> Box<dyn Allocator>) -> Result<(u64, u64)> {
    let backend = Arc::new(Meta::default());
    let device = Device::builder(backend.clone()).allocator(policy(backend)).build();
    let layer = Linear::new(&Init::new(&device, DType::F32, 0), 1000, 1000, true)?;
    let mut x = Tensor::from_array(Array::empty(&device, &[300, 1000], DType::F32)?);
    for _ in 0..3 {
        x = layer.forward(&x)?.relu()?;
    }
    let usage = device.usage();
    Ok((usage.reserved_bytes(), usage.peak_bytes()))
}

pub(crate) fn main() -> Result<()> {
    let (reserved, peak) = reserved_and_peak(|memory| Box::new(Arena::with_rules(memory, FirstFit::default())))?;
    println!("first fit: {reserved} bytes reserved for {peak} in use at the peak");
    let (reserved, peak) = reserved_and_peak(|memory| Box::new(memcore::memory::Caching::with_defaults(memory)))?;
    println!("PyTorch's: {reserved} bytes reserved for {peak} in use at the peak");
    Ok(())
}
