//! Pages of segments that grow, as they were mapped when a trace began: the final ones, with the trace undone.

use std::collections::BTreeMap;

use memcore::memory::AllocatorConfig;

use super::model::{Action, PoolId, Snapshot, StreamId, TraceEvent};
use super::rewind::Piece;

/// Mapped ranges: the end of each, by its beginning.
#[derive(Default)]
struct Mapped(BTreeMap<u64, u64>);

impl Mapped {
    /// Takes a range out, which must lie in one that is mapped.
    fn take(&mut self, from: u64, to: u64) -> Option<()> {
        let (&start, &end) = self.0.range(..=from).next_back()?;
        if end < to {
            return None;
        }
        self.0.remove(&start);
        if start < from {
            self.0.insert(start, from);
        }
        if to < end {
            self.0.insert(to, end);
        }
        Some(())
    }

    /// Adds a range, which must not be mapped; it becomes one with its neighbours.
    fn add(&mut self, mut from: u64, mut to: u64) -> Option<()> {
        if self.0.range(..to).next_back().is_some_and(|(_, &end)| end > from) {
            return None;
        }
        if let Some((&before, &end)) = self.0.range(..from).next_back()
            && end == from
        {
            self.0.remove(&before);
            from = before;
        }
        if let Some(end) = self.0.remove(&to) {
            to = end;
        }
        self.0.insert(from, to);
        Some(())
    }
}

/// Where blocks of a kind lie: stream, pool, and whether they are of the small pool, by address.
struct Places(BTreeMap<u64, (StreamId, PoolId, bool)>);

impl Places {
    /// The kind of the nearest known place of a stream: reservations lie further apart than what is mapped in them.
    fn nearest(&self, address: u64, stream: Option<StreamId>) -> Option<(StreamId, PoolId, bool)> {
        let is_its = |(_, (of, ..)): &(&u64, &(StreamId, PoolId, bool))| stream.is_none_or(|stream| *of == stream);
        let below = self.0.range(..=address).rev().find(is_its).map(|(at, kind)| (address - at, *kind));
        let above = self.0.range(address..).find(is_its).map(|(at, kind)| (at - address, *kind));
        below.into_iter().chain(above).min_by_key(|(distance, _)| *distance).map(|(_, kind)| kind)
    }
}

impl Snapshot {
    /// Returns the runs of pages that were mapped when the trace began, by address, and empty runs where a reservation reaches further down. `None` if
    /// the trace does not lead to the final pages.
    pub(super) fn pages(
        &self,
        device: usize,
        before: &[(u64, u64, StreamId)],
        config: &AllocatorConfig,
    ) -> Option<BTreeMap<u64, Piece>> {
        let mut mapped = Mapped::default();
        for segment in self.segments_of(device).filter(|segment| segment.expandable) {
            mapped.add(segment.address, segment.address.checked_add(segment.bytes)?)?;
        }
        for event in self.trace(device).iter().rev() {
            let range = || Some((event.address, event.address.checked_add(event.bytes)?));
            match event.action {
                Action::SegmentMap => range().and_then(|(from, to)| mapped.take(from, to))?,
                Action::SegmentUnmap => range().and_then(|(from, to)| mapped.add(from, to))?,
                _ => {}
            }
        }
        let places = self.places(device, before, config);
        let mut pieces = BTreeMap::new();
        for (from, to) in mapped.0 {
            let (stream, pool, small) = places.nearest(from, None)?;
            pieces.insert(from, Piece { bytes: to - from, small, expandable: true, stream, pool });
        }
        let lower = self.lower_beginnings(device, &places, &pieces);
        pieces.extend(lower);
        Some(pieces)
    }

    /// Returns the places of blocks and of final segments that grow.
    fn places(&self, device: usize, before: &[(u64, u64, StreamId)], config: &AllocatorConfig) -> Places {
        let made = |event: &&TraceEvent| event.action == Action::Alloc;
        let homes = super::pools::Homes::from_snapshot(self, device);
        let mut places = BTreeMap::new();
        for &(address, bytes, stream) in before {
            places.insert(address, (stream, homes.pool(address, None), config.is_small(bytes)));
        }
        for event in self.trace(device).iter().filter(made) {
            let named = Some(event.pool).filter(|pool| *pool != PoolId::default());
            let pool = named.unwrap_or_else(|| homes.pool(event.address, None));
            places.insert(event.address, (event.stream, pool, config.is_small(event.bytes)));
        }
        for segment in self.segments_of(device).filter(|segment| segment.expandable) {
            places.insert(segment.address, (segment.stream, segment.pool, segment.small));
        }
        Places(places)
    }

    /// Returns an empty run for each reservation of which the trace maps pages below those that were mapped when it began.
    fn lower_beginnings(&self, device: usize, places: &Places, pieces: &BTreeMap<u64, Piece>) -> BTreeMap<u64, Piece> {
        let mut lowest: BTreeMap<(u32, u32, bool), (u64, u64)> = BTreeMap::new();
        for (&address, piece) in pieces {
            let of = lowest.entry((piece.stream.0, piece.pool.0, piece.small)).or_insert((address, address));
            of.0 = of.0.min(address);
            of.1 = of.1.min(address);
        }
        for event in self.trace(device).iter().filter(|event| event.action == Action::SegmentMap) {
            let Some((stream, pool, small)) = places.nearest(event.address, Some(event.stream)) else { continue };
            if let Some((_, least)) = lowest.get_mut(&(stream.0, pool.0, small)) {
                *least = (*least).min(event.address);
            }
        }
        let lower = lowest.into_iter().filter(|(_, (first, least))| least < first);
        lower
            .map(|((stream, pool, small), (_, least))| {
                (least, Piece { bytes: 0, small, expandable: true, stream: StreamId(stream), pool: PoolId(pool) })
            })
            .collect()
    }
}
