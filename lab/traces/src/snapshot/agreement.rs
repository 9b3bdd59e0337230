//! Checks whether a replay repeats the recording: the proof that a what-if starts from what happened.

use std::collections::{BTreeMap, HashMap};

use lab_base::error::Result;
use memcore::memory::{Allocator, Block, BlockState, DriverEvent};

use super::model::{Snapshot, total};
use super::program::Program;
use crate::replay::{Machine, Observer, Operation, Policy};

/// Agreement of a replay under the recorded settings with the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Allocations of the trace, except those that failed and those that lived before it.
    pub allocations: usize,
    /// Allocations placed as recorded: at the same address; where segments can grow, at the same offset of the same segment.
    pub placed: usize,
    /// Segments in the recording at the end.
    pub segments: usize,
    /// Segments that the replay has too, block by block.
    pub equal_segments: usize,
    /// Peak of reserved bytes: recorded, replayed.
    pub peak_reserved: (u64, u64),
    /// Reserved bytes at the end: recorded, replayed.
    pub final_reserved: (u64, u64),
    /// Allocations that lived before the trace began.
    pub before: usize,
    /// True if the replay began with these where they were; false if they were placed anew.
    pub resumed: bool,
    /// Allocations after which as much was reserved as in the recording.
    pub reserved_alike: usize,
    /// Allocations at addresses where the recording has no segment: it was taken after segments had gone that its trace does not say.
    pub outside: usize,
    /// Requests that failed: in the recording, in the replay.
    pub failed: (usize, usize),
}

impl Agreement {
    /// True if as much is reserved as in the recording, all along.
    pub fn reserved_is_equal(&self) -> bool {
        self.outside == 0
            && self.reserved_alike == self.allocations
            && self.peak_reserved.0 == self.peak_reserved.1
            && self.final_reserved.0 == self.final_reserved.1
            && self.failed.0 == self.failed.1
    }

    /// True if nothing differs.
    pub fn is_exact(&self) -> bool {
        self.placed == self.allocations && self.equal_segments == self.segments && self.reserved_is_equal()
    }
}

/// Replays a program through a policy and compares the result with the recording.
pub fn agreement(
    snapshot: &Snapshot,
    device: usize,
    program: &Program,
    policy: &Policy,
    machine: &Machine,
) -> Result<Agreement> {
    let found = Agreement { resumed: program.trace.start.is_some(), ..Agreement::default() };
    let reserved: Vec<u64> = snapshot.reserved_after(device).collect();
    let peak_reserved = reserved.iter().copied().max().unwrap_or(0).max(snapshot.reserved_before(device));
    let mut watch = Watch { program, reserved, ranges: BTreeMap::new(), next: 0, served: false, found };
    let mut opened = policy.open(&program.trace, machine, &mut |event| watch.driver(0, event))?;
    opened.replay(&program.trace, &mut watch)?;
    let mut found = watch.found;
    let ours = opened.allocator.snapshot();
    found.final_reserved = (total(snapshot.segments_of(device).map(|s| s.bytes)), ours.reserved_bytes());
    found.peak_reserved.0 = peak_reserved;
    found.before = program.before;
    found.outside = snapshot.outside(device);
    let mut shapes: HashMap<Shape, usize> = HashMap::new();
    for segment in &ours.segments {
        let blocks = segment.blocks.iter().map(|block| part(block.bytes, block.requested_bytes, block.state));
        *shapes.entry((segment.total_bytes, segment.small, blocks.collect())).or_default() += 1;
    }
    for segment in snapshot.segments_of(device) {
        let blocks = segment.blocks.iter().map(|block| part(block.bytes, block.requested_bytes, block.state));
        found.segments += 1;
        if let Some(left) = shapes.get_mut(&(segment.bytes, segment.small, blocks.collect()))
            && *left > 0
        {
            *left -= 1;
            found.equal_segments += 1;
        }
    }
    Ok(found)
}

/// Size, pool and blocks.
type Shape = (u64, bool, Vec<(u64, u64, &'static str)>);

/// The last request of a free block is not compared.
fn part(bytes: u64, requested_bytes: u64, state: BlockState) -> (u64, u64, &'static str) {
    (bytes, if state == BlockState::Inactive { 0 } else { requested_bytes }, state.name())
}

struct Watch<'a> {
    program: &'a Program,
    /// Recorded bytes of segments after each entry.
    reserved: Vec<u64>,
    /// Segments and reserved ranges of the replay, by address: their distance from the recording's addresses, once known.
    ranges: BTreeMap<u64, Option<u64>>,
    /// Index of the next allocation.
    next: usize,
    /// True if the operation is an allocation that the recording counts.
    served: bool,
    found: Agreement,
}

impl Observer for Watch<'_> {
    fn driver(&mut self, _operation: usize, event: DriverEvent) {
        match event {
            // A resumed replay gives segments their recorded addresses, but a reservation of its own begins anywhere.
            DriverEvent::SegmentAlloc { address, .. } => {
                self.ranges.insert(address, self.found.resumed.then_some(0));
            }
            DriverEvent::Reserve { address, .. } => {
                self.ranges.insert(address, None);
            }
            _ => {}
        }
    }

    fn allocated(&mut self, _operation: usize, block: Option<&Block>) {
        let recorded = self.program.addresses.get(self.next).copied().flatten();
        let before = self.next < self.program.before;
        self.next += 1;
        let Some(recorded) = recorded else {
            self.found.failed.0 += 1;
            self.found.failed.1 += usize::from(block.is_none());
            return;
        };
        self.served = !before;
        self.found.allocations += usize::from(!before);
        let Some(block) = block else {
            self.found.failed.1 += 1;
            return;
        };
        let distance = recorded.wrapping_sub(block.address);
        let alike = match self.ranges.range_mut(..=block.address).next_back() {
            Some((_, known)) => *known.get_or_insert(distance) == distance,
            // In what the replay began with.
            None => self.found.resumed && distance == 0,
        };
        self.found.placed += usize::from(alike && !before);
    }

    fn after<A: Allocator + ?Sized>(&mut self, operation: usize, allocator: &A) {
        let stats = allocator.stats();
        let peak = match self.program.trace.operations()[operation] {
            Operation::ResetPeak => stats.reserved_bytes.all.current,
            _ => stats.reserved_bytes.all.peak,
        };
        self.found.peak_reserved.1 = self.found.peak_reserved.1.max(peak);
        if std::mem::take(&mut self.served) {
            let recorded = self.reserved[self.program.events[operation] as usize];
            self.found.reserved_alike += usize::from(stats.reserved_bytes.all.current == recorded);
        }
    }
}
