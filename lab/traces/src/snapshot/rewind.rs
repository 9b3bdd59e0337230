//! The allocator's state when a trace began: its final blocks, with the trace undone from its end to its beginning.

use std::collections::BTreeMap;

use memcore::memory::{AllocatorConfig, BlockSnapshot, BlockState, SegmentSnapshot, Snapshot as Memory, Stream};
use rustc_hash::{FxHashMap, FxHashSet};

use super::model::{Action, PoolId, Snapshot, StreamId};
use crate::replay::Start;

/// Size of the small pool's segments; no segment of the large pool has it.
pub(super) const SMALL_SEGMENT_BYTES: u64 = 2 << 20;
/// The large pool splits off no rest up to this size: the client gets it too.
const LARGEST_UNSPLIT_REST: u64 = 1 << 20;

/// A segment that existed when the trace began; of one that grows, a run of mapped pages.
pub(super) struct Piece {
    pub(super) bytes: u64,
    pub(super) small: bool,
    pub(super) expandable: bool,
    pub(super) stream: StreamId,
    pub(super) pool: PoolId,
}

impl Snapshot {
    /// Returns the state of a device's allocator when its trace began; `before` are the allocations that lived then, by address. `None` if the trace
    /// does not lead to the final blocks, and if it begins with an allocator whose segments grow and that holds nothing: reservations then begin where
    /// their first pages are mapped.
    pub(super) fn start(
        &self,
        device: usize,
        before: &[(u64, u64, StreamId)],
        config: &AllocatorConfig,
    ) -> Option<Start> {
        let mut later = Vec::new();
        let mut pieces = self.undone(device, &mut later)?;
        let grown = self.pages(device, before, config)?;
        if pieces.is_empty() && self.grows(device) && grown.is_empty() {
            return None;
        }
        pieces.extend(grown);
        let sizes = self.untouched(device);
        let mut left = before;
        let mut segments = Vec::with_capacity(pieces.len());
        for (address, piece) in pieces {
            let end = address.checked_add(piece.bytes)?;
            let here = left.partition_point(|(block, ..)| *block < end);
            let (inside, rest) = left.split_at(here);
            left = rest;
            let blocks = tiled(address, &piece, inside, &sizes, config)?;
            segments.push(SegmentSnapshot {
                address,
                total_bytes: piece.bytes,
                stream: Stream(piece.stream.0),
                small: piece.small,
                expandable: piece.expandable,
                pool_id: (u64::from(piece.pool.0), 0),
                blocks,
            });
        }
        let page_bytes = config.large_segment_bytes;
        left.is_empty().then_some(Start { memory: Memory { segments }, later, page_bytes })
    }

    /// True if a device has segments that grow.
    fn grows(&self, device: usize) -> bool {
        let maps = |action: Action| matches!(action, Action::SegmentMap | Action::SegmentUnmap);
        self.segments_of(device).any(|segment| segment.expandable)
            || self.trace(device).iter().any(|event| maps(event.action))
    }

    /// Returns the ordinary segments at the beginning, by address, and adds those that came later to `later`, in order.
    fn undone(&self, device: usize, later: &mut Vec<(u64, u64)>) -> Option<BTreeMap<u64, Piece>> {
        let piece = |segment: &super::model::Segment| {
            let &super::model::Segment { bytes, small, expandable, stream, pool, .. } = segment;
            (segment.address, Piece { bytes, small, expandable, stream, pool })
        };
        let ordinary = self.segments_of(device).filter(|segment| !segment.expandable);
        let mut pieces: BTreeMap<u64, Piece> = ordinary.map(piece).collect();
        for event in self.trace(device).iter().rev() {
            match event.action {
                Action::SegmentAlloc => {
                    let gone = pieces.remove(&event.address)?;
                    if gone.bytes != event.bytes {
                        return None;
                    }
                    later.push((event.address, event.bytes));
                }
                Action::SegmentFree => {
                    let small = event.bytes == SMALL_SEGMENT_BYTES;
                    let (bytes, stream, pool) = (event.bytes, event.stream, event.pool);
                    let piece = Piece { bytes, small, expandable: false, stream, pool };
                    if pieces.insert(event.address, piece).is_some() {
                        return None;
                    }
                }
                _ => {}
            }
        }
        later.reverse();
        Some(pieces)
    }

    /// Returns the number of allocations of a trace that lie in no segment of the recording; 0 where segments grow, or the trace does not lead to the
    /// final segments.
    pub(super) fn outside(&self, device: usize) -> usize {
        let Some(pieces) = self.undone(device, &mut Vec::new()).filter(|_| !self.grows(device)) else { return 0 };
        let mut there: BTreeMap<u64, u64> = pieces.iter().map(|(address, piece)| (*address, piece.bytes)).collect();
        let mut outside = 0;
        for event in self.trace(device) {
            match event.action {
                Action::SegmentAlloc => drop(there.insert(event.address, event.bytes)),
                Action::SegmentFree => drop(there.remove(&event.address)),
                Action::Alloc => {
                    let below = there.range(..=event.address).next_back();
                    let holds = below.is_some_and(|(start, bytes)| event.address - start < *bytes);
                    outside += usize::from(!holds);
                }
                _ => {}
            }
        }
        outside
    }

    /// Returns the size of each final block that the trace does not touch, by address.
    fn untouched(&self, device: usize) -> FxHashMap<u64, u64> {
        let concerns = |action| matches!(action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted);
        let touched: FxHashSet<u64> =
            self.trace(device).iter().filter(|event| concerns(event.action)).map(|event| event.address).collect();
        let blocks = self.segments_of(device).flat_map(|segment| &segment.blocks);
        let kept = blocks.filter(|block| block.state != BlockState::Inactive && !touched.contains(&block.address));
        kept.map(|block| (block.address, block.bytes)).collect()
    }
}

/// Tiles a segment with the blocks that lived and free ones between them. `None` if they overlap.
fn tiled(
    address: u64,
    piece: &Piece,
    inside: &[(u64, u64, StreamId)],
    sizes: &FxHashMap<u64, u64>,
    config: &AllocatorConfig,
) -> Option<Vec<BlockSnapshot>> {
    let end = address + piece.bytes;
    let mut blocks = Vec::with_capacity(2 * inside.len() + 1);
    let mut at = address;
    for (index, &(start, requested_bytes, _)) in inside.iter().enumerate() {
        if start > at {
            blocks.push(free(at, start - at));
        } else if start < at {
            return None;
        }
        let next = inside.get(index + 1).map_or(end, |next| next.0);
        let room = next - start;
        let bytes = match sizes.get(&start) {
            Some(&known) => known,
            None if piece.expandable => config.block_bytes(requested_bytes),
            None => with_rest(config.block_bytes(requested_bytes), room, piece.small, config),
        };
        if bytes > room || requested_bytes > bytes {
            return None;
        }
        blocks.push(BlockSnapshot { address: start, bytes, requested_bytes, state: BlockState::ActiveAllocated });
        at = start + bytes;
    }
    if at < end {
        blocks.push(free(at, end - at));
    }
    Some(blocks)
}

/// The size of a block of which the rounded request and the distance to the next block are known: with the rest that was too small to split off.
fn with_rest(bytes: u64, room: u64, small: bool, config: &AllocatorConfig) -> u64 {
    let Some(rest) = room.checked_sub(bytes) else { return bytes };
    let unsplit = !small && (rest <= LARGEST_UNSPLIT_REST || bytes >= config.max_split_size_bytes);
    if unsplit { room } else { bytes }
}

fn free(address: u64, bytes: u64) -> BlockSnapshot {
    BlockSnapshot { address, bytes, requested_bytes: 0, state: BlockState::Inactive }
}
