//! Reservations of segments that grow, in a state that was recorded: runs of mapped pages, and addresses between them.

use super::Caching;
use super::block::{NONE, Node, Segment};
use crate::error::{Error, Result};
use crate::memory::{Block, BlockSnapshot, BlockState, SegmentSnapshot};

/// True if two runs are of one pool and stream.
fn alike(a: &SegmentSnapshot, b: &SegmentSnapshot) -> bool {
    a.expandable && b.expandable && a.stream == b.stream && a.small == b.small && a.pool_id == b.pool_id
}

fn wrong(problem: &str) -> Error {
    Error::invalid("recorded state", problem)
}

impl Caching {
    /// Groups segments, which are in order of address: each ordinary one by itself, runs of one reservation together. A
    /// recording has no reservations: runs of one pool and stream are of one as long as one is large enough for them.
    pub(super) fn reservations<'a>(&self, segments: &'a [SegmentSnapshot]) -> Vec<&'a [SegmentSnapshot]> {
        let mut groups = Vec::new();
        let mut from = 0;
        for (index, segment) in segments.iter().enumerate() {
            let first = &segments[from];
            let most = self.reservation_bytes(self.page_bytes_of(first.small));
            let end = segment.address.saturating_add(segment.total_bytes);
            if index > from && !(alike(first, segment) && end.saturating_sub(first.address) <= most) {
                groups.push(&segments[from..index]);
                from = index;
            }
        }
        groups.extend(Some(&segments[from..]).filter(|rest| !rest.is_empty()));
        groups
    }

    /// Returns the bytes from a group's first address on that are its own: of an ordinary segment its size, of a
    /// reservation whole pages up to `limit`, where the next group begins.
    ///
    /// # Errors
    /// [`Error::Invalid`] for parts of pages.
    pub(super) fn recorded_bytes(&self, group: &[SegmentSnapshot], limit: u64) -> Result<u64> {
        let (first, last) = (&group[0], &group[group.len() - 1]);
        if !first.expandable {
            return Ok(first.total_bytes);
        }
        let page_bytes = self.page_bytes_of(first.small);
        let is_whole = |run: &SegmentSnapshot| {
            (run.address - first.address).is_multiple_of(page_bytes) && run.total_bytes.is_multiple_of(page_bytes)
        };
        if !group.iter().all(is_whole) {
            return Err(wrong("a part of a page is mapped"));
        }
        let needed = last.address.saturating_add(last.total_bytes) - first.address;
        let room = limit.saturating_sub(first.address) / page_bytes * page_bytes;
        let bytes = self.reservation_bytes(page_bytes).max(needed).min(room);
        if bytes < needed {
            return Err(wrong("two segments overlap"));
        }
        Ok(bytes)
    }

    /// Restores a reservation of `bytes` with its runs of pages.
    ///
    /// # Errors
    /// [`Error::DeviceFull`] if the device has no room for the pages; [`Error::Invalid`] if it cannot map pages.
    pub(super) fn restore_reservation(
        &mut self,
        runs: &[SegmentSnapshot],
        bytes: u64,
        held: &mut Vec<Block>,
    ) -> Result<()> {
        let &SegmentSnapshot { address: base, stream, small, .. } = &runs[0];
        let pool = self.restored_pool(&runs[0]);
        let page_bytes = self.page_bytes(pool);
        let owner = self.pools[pool as usize].owner;
        let memory = self.memory.clone();
        let virtual_memory = memory.virtual_memory().ok_or_else(|| wrong("this device maps no pages"))?;
        let id = virtual_memory.reserve(bytes, page_bytes)?;
        let segment = self.segments.insert(Segment { id, base, bytes, first: NONE, page_bytes });
        let node = |address: u64, bytes: u64, mapped: bool| Node {
            mapped,
            expandable: true,
            ..Node::new(stream, bytes, pool, address, segment)
        };
        let unmapped = |address: u64, bytes: u64| BlockSnapshot {
            address,
            bytes,
            requested_bytes: 0,
            state: BlockState::Inactive,
        };
        let (mut prev, mut end) = (NONE, base);
        for run in runs.iter().filter(|run| run.total_bytes > 0) {
            if run.address > end {
                let hole = unmapped(end, run.address - end);
                prev = self.restore_block(&hole, node(hole.address, hole.bytes, false), prev, held);
            }
            virtual_memory.map(id, run.address - base, run.total_bytes)?;
            self.taken_bytes += run.total_bytes;
            self.stats.reserved_bytes.increase(small, run.total_bytes);
            self.private.reserve(&mut self.stats, owner, run.total_bytes);
            for block in &run.blocks {
                prev = self.restore_block(block, node(block.address, block.bytes, true), prev, held);
            }
            end = run.address + run.total_bytes;
        }
        if end < base + bytes {
            let rest = unmapped(end, base + bytes - end);
            self.restore_block(&rest, node(rest.address, rest.bytes, false), prev, held);
        }
        Ok(())
    }
}
