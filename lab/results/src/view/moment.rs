//! Memory after one event: its holders, and its blocks in their segments.

use rustc_hash::FxHashMap;

use super::found::Found;
use super::history::History;
use crate::report::{CategoryId, Event, NameId};

/// Memory after one event. Sizes are bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// The event.
    pub at: u32,
    /// Bytes of live blocks.
    pub allocated_bytes: u64,
    /// Bytes requested among them.
    pub requested_bytes: u64,
    /// Bytes taken from the driver.
    pub reserved_bytes: u64,
    /// Free bytes in segments that hold a block.
    pub split_bytes: u64,
    /// Live blocks.
    pub blocks: u64,
    /// Bytes of live blocks that were searched for.
    pub found_bytes: u64,
    /// Holders, largest first.
    pub holders: Vec<Holder>,
    /// Bytes by category, largest first, without those that have none.
    pub categories: Vec<(CategoryId, u64)>,
    /// Segments by address, with what lies in them.
    pub segments: Vec<Segment>,
}

/// Memory that one line or one module holds in one category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Operator or line of its largest block.
    pub op: NameId,
    /// Module, or stack, of its largest block.
    pub scope: NameId,
    /// Its category.
    pub category: CategoryId,
    /// Bytes of its blocks.
    pub bytes: u64,
    /// Number of its blocks.
    pub blocks: u64,
    /// True if one of them was searched for.
    pub found: bool,
    largest_bytes: u64,
}

/// A segment, or pages of one, with the blocks in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Bytes of blocks in it.
    pub used_bytes: u64,
    /// Blocks, by address; of one that reaches beyond the segment, the part in it.
    pub blocks: Vec<Placed>,
}

/// A block in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// First address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// Its category.
    pub category: CategoryId,
    /// True if it was searched for.
    pub found: bool,
}

/// A piece of a segment that is drawn as one character.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Share of it that blocks take, from 0 to 1.
    pub used: f64,
    /// Category with most bytes in it, if there is a block.
    pub category: Option<CategoryId>,
    /// True if a block in it was searched for.
    pub found: bool,
}

impl Moment {
    /// Finds the memory that lives after an event.
    pub fn at_event(history: &History, at: u32, found: Option<&Found>) -> Self {
        let recording = &history.recording;
        let mut moment = Self { at, reserved_bytes: history.reserved.at(at), ..Self::default() };
        let mut holders: FxHashMap<(NameId, CategoryId), Holder> = FxHashMap::default();
        let mut categories: FxHashMap<CategoryId, u64> = FxHashMap::default();
        let mut placed = Vec::new();
        for allocation in history.living(at) {
            let event = recording.events()[history.made[allocation] as usize];
            let Event::Alloc { address, requested_bytes, bytes, category, op, scope } = event else { continue };
            let category = history.category(allocation, at, category);
            let found = found.is_some_and(|found| found.has(op) || found.has(scope));
            moment.allocated_bytes = moment.allocated_bytes.saturating_add(bytes);
            moment.requested_bytes = moment.requested_bytes.saturating_add(requested_bytes);
            moment.found_bytes = moment.found_bytes.saturating_add(if found { bytes } else { 0 });
            moment.blocks += 1;
            let sum = categories.entry(category).or_default();
            *sum = sum.saturating_add(bytes);
            // A stack has the lines that led to an operator: the operator's line is the holder. A module has many operators.
            let key = if recording.scopes_are_stacks { op } else { scope };
            let one = Holder { op, scope, category, bytes, blocks: 1, found, largest_bytes: bytes };
            holders.entry((key, category)).and_modify(|holder| holder.add(&one)).or_insert(one);
            placed.push(Placed { address, bytes, category, found });
        }
        moment.holders = holders.into_values().collect();
        moment
            .holders
            .sort_by_key(|holder| (std::cmp::Reverse(holder.bytes), holder.category, holder.op, holder.scope));
        moment.categories = categories.into_iter().collect();
        moment.categories.sort_by_key(|&(category, bytes)| (std::cmp::Reverse(bytes), category));
        moment.segments = segments(history, at, placed);
        let used = moment.segments.iter().filter(|segment| segment.used_bytes > 0);
        moment.split_bytes = sum(used.map(Segment::free_bytes));
        moment
    }
}

impl Holder {
    fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.blocks += other.blocks;
        self.found |= other.found;
        if other.largest_bytes > self.largest_bytes {
            (self.op, self.scope, self.largest_bytes) = (other.op, other.scope, other.largest_bytes);
        }
    }
}

/// Returns the segments after an event, with the blocks in each.
fn segments(history: &History, at: u32, mut placed: Vec<Placed>) -> Vec<Segment> {
    placed.sort_unstable_by_key(|block| block.address);
    let mut segments: Vec<Segment> = history
        .stays
        .at(at)
        .map(|stay| Segment { address: stay.address, bytes: stay.bytes, used_bytes: 0, blocks: Vec::new() })
        .collect();
    segments.sort_unstable_by_key(|segment| segment.address);
    let mut first = 0;
    for segment in &mut segments {
        let end = segment.address.saturating_add(segment.bytes);
        let ends = |block: &Placed| block.address.saturating_add(block.bytes);
        first += placed[first..].iter().take_while(|block| ends(block) <= segment.address).count();
        let inside = placed[first..].iter().take_while(|block| block.address < end);
        segment.blocks.extend(inside.map(|block| {
            let address = block.address.max(segment.address);
            Placed { address, bytes: ends(block).min(end).saturating_sub(address), ..*block }
        }));
        segment.used_bytes = sum(segment.blocks.iter().map(|block| block.bytes));
    }
    segments
}

/// Adds sizes from a file, which may be absurd: the sum stops at the largest number.
fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

impl Segment {
    /// Free bytes in it.
    pub fn free_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.used_bytes)
    }

    /// Divides the segment into `count` pieces of one size.
    pub fn cells(&self, count: usize) -> Vec<Cell> {
        let mut cells = vec![Cell::default(); count];
        // The most that one category has in each cell, where cells hold several blocks.
        let mut most = vec![0.0; count];
        let each = self.bytes as f64 / count as f64;
        for block in &self.blocks {
            let from = (block.address - self.address) as f64 / each;
            let to = from + block.bytes as f64 / each;
            for cell in from as usize..(to.ceil() as usize).min(count) {
                let share = (to.min((cell + 1) as f64) - from.max(cell as f64)).max(0.0);
                cells[cell].used = (cells[cell].used + share).min(1.0);
                cells[cell].found |= block.found;
                if share > most[cell] {
                    most[cell] = share;
                    cells[cell].category = Some(block.category);
                }
            }
        }
        cells
    }
}
