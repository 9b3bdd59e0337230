//! PyTorch's snapshots as recordings.
//!
//! A trace need not begin with the program: blocks and segments that existed at its start are placed at the front of the recording. A trace does not
//! say how large a block is (only what was requested), so the allocator's default rounding is assumed, except for blocks that still exist at the end.

use lab_traces::snapshot::{Action, Snapshot, StackId, TraceEvent};
use lab_traces::stacks::{Guesses, Life, Phase, Place, Role, callers};
use memcore::memory::{BLOCK_BYTES, BlockState};
use rustc_hash::FxHashMap;

use super::recording::{CategoryId, Event, NameId, Recording, UNKNOWN};
use crate::other_devices::OtherDevice;

impl Recording {
    /// Recording of a device. Categories are guessed if the snapshot does not tell them, and the name says so.
    pub fn of_snapshot(name: &str, snapshot: &Snapshot, device: usize) -> Self {
        let guesses = Guesses::from_snapshot(snapshot, device);
        let name = &format!("{name}{}", OtherDevice::after_name(snapshot, device));
        if guesses.roles_are_told {
            return of_snapshot(name, snapshot, device, Roles::default(), &guesses);
        }
        let is_guess = guesses.roles.iter().any(|role| *role != Role::Other);
        let name = if is_guess { format!("{name} (categories are guessed from stacks)") } else { name.into() };
        let roles = Roles::from_lives(&guesses.lives, &guesses.roles);
        let mut recording = of_snapshot(&name, snapshot, device, roles, &guesses);
        recording.categories_are_guesses = is_guess;
        recording
    }

    /// Recording of a device, with the known role of each allocation.
    pub fn of_roles(name: &str, snapshot: &Snapshot, device: usize, lives: &[Life], roles: &[Role]) -> Self {
        of_snapshot(name, snapshot, device, Roles::from_lives(lives, roles), &Guesses::from_snapshot(snapshot, device))
    }
}

/// Roles of allocations.
#[derive(Default)]
struct Roles {
    /// By the entry that made them: a trace has millions, so an index instead of a hash.
    made: Vec<Role>,
    /// Of blocks that existed before the trace, by address.
    before: FxHashMap<u64, Role>,
}

impl Roles {
    fn from_lives(lives: &[Life], roles: &[Role]) -> Self {
        let mut all = Self::default();
        for (life, role) in lives.iter().zip(roles) {
            match life.made {
                Some(entry) => {
                    all.made.resize(all.made.len().max(entry + 1), Role::Other);
                    all.made[entry] = *role;
                }
                None => drop(all.before.insert(life.address, *role)),
            }
        }
        all
    }

    /// Role of an allocation, by the entry that made it and the address.
    fn get(&self, made: Option<usize>, address: u64) -> Role {
        let known = match made {
            Some(entry) => self.made.get(entry),
            None => self.before.get(&address),
        };
        known.copied().unwrap_or_default()
    }
}

/// Name of a phase that stacks suggest, as in this program's own histories.
fn part(phase: Phase) -> &'static str {
    match phase {
        Phase::Setup => "model",
        Phase::Input | Phase::Forward => "forward",
        Phase::Backward | Phase::Recompute => "backward",
        Phase::Optimizer => "step",
        Phase::ZeroGrad => "zero_grad",
    }
}

fn of_snapshot(name: &str, snapshot: &Snapshot, device: usize, roles: Roles, guesses: &Guesses) -> Recording {
    let mut recording = Recording::new(name);
    recording.scopes_are_stacks = true;
    let unknown = recording.category(UNKNOWN);
    let mut maker = Maker {
        snapshot,
        recording,
        unknown,
        reserved: 0,
        roles,
        live: FxHashMap::default(),
        sizes: FxHashMap::default(),
        stacks: FxHashMap::default(),
    };
    maker.know_sizes(device);
    for (address, bytes) in ranges_before(snapshot, device) {
        maker.reserved = maker.reserved.saturating_add(bytes);
        maker.recording.push(Event::SegmentAlloc { address, bytes });
    }
    for (address, _, stack, bytes) in snapshot.live_after(device, None) {
        let category = maker.category(None, address);
        maker.alloc(None, address, bytes, stack, category);
    }
    maker.recording.begins_at = maker.recording.events().len() as u32;
    let mut phase = None;
    for (at, event) in snapshot.trace(device).iter().enumerate() {
        let now = guesses.phase(at).map(|now| (part(now), guesses.steps_before(at)));
        if let Some((part, step)) = now.filter(|_| now != phase) {
            phase = now;
            let name = if guesses.step_ends.is_empty() { part.to_string() } else { format!("s{step}.{part}") };
            let name = maker.recording.intern(&name);
            maker.recording.push(Event::Phase { name });
        }
        maker.event(at, event);
    }
    maker.recording
}

struct Maker<'a> {
    snapshot: &'a Snapshot,
    recording: Recording,
    unknown: CategoryId,
    /// Bytes that PyTorch has taken from the driver.
    reserved: u64,
    /// Roles for blocks about which the snapshot says nothing.
    roles: Roles,
    /// Allocation that holds an address.
    live: FxHashMap<u64, u32>,
    /// Sizes of the blocks that exist at the end, by address and the entry that made them; `None` if that was before the trace.
    sizes: FxHashMap<(u64, Option<usize>), u64>,
    stacks: FxHashMap<StackId, (NameId, NameId)>,
}

impl Maker<'_> {
    /// An allocation that is live at the end is the last one at its address.
    fn know_sizes(&mut self, device: usize) {
        let blocks = self.snapshot.segments_of(device).flat_map(|segment| &segment.blocks);
        let held = blocks.filter(|block| block.state != BlockState::Inactive);
        let sizes: FxHashMap<u64, u64> = held.map(|block| (block.address, block.bytes)).collect();
        let trace = self.snapshot.trace(device).iter().enumerate();
        let allocs = trace.filter(|(_, event)| event.action == Action::Alloc);
        let last: FxHashMap<u64, usize> = allocs.map(|(at, event)| (event.address, at)).collect();
        self.sizes =
            sizes.into_iter().map(|(address, bytes)| ((address, last.get(&address).copied()), bytes)).collect();
    }

    fn event(&mut self, at: usize, event: &TraceEvent) {
        let TraceEvent { address, bytes, stack, .. } = *event;
        match event.action {
            Action::Alloc => {
                let category = match self.snapshot.text(event.category) {
                    "" => self.category(Some(at), address),
                    category => self.recording.category(category),
                };
                self.alloc(Some(at), address, bytes, stack, category);
            }
            // The trace has one of the two kinds; a second event finds nothing.
            Action::FreeRequested | Action::FreeCompleted => {
                if let Some(allocation) = self.live.remove(&address) {
                    let (op, _) = self.names(stack);
                    self.recording.push(Event::Free { allocation, op });
                }
            }
            Action::SegmentAlloc | Action::SegmentMap => {
                self.reserved = self.reserved.saturating_add(bytes);
                self.recording.push(Event::SegmentAlloc { address, bytes });
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                self.reserved = self.reserved.saturating_sub(bytes);
                self.recording.push(Event::SegmentFree { address, bytes });
            }
            Action::Oom => {
                // The address of such an event is the number of free bytes on the device.
                let there = self.reserved.saturating_add(address);
                self.recording.limit = Some(("memory for PyTorch".into(), there));
                let (op, _) = self.names(stack);
                self.recording.push(Event::Oom { requested_bytes: bytes, op });
            }
            Action::Snapshot | Action::Other => {}
        }
    }

    fn alloc(&mut self, at: Option<usize>, address: u64, requested_bytes: u64, stack: StackId, category: CategoryId) {
        let (op, scope) = self.names(stack);
        let rounded = requested_bytes.max(1).checked_next_multiple_of(BLOCK_BYTES).unwrap_or(requested_bytes);
        let bytes = self.sizes.get(&(address, at)).copied().unwrap_or(rounded);
        let event = Event::Alloc { address, requested_bytes, bytes, category, op, scope };
        if let Some(number) = self.recording.push(event) {
            self.live.insert(address, number);
        }
    }

    fn category(&mut self, at: Option<usize>, address: u64) -> CategoryId {
        let category = self.roles.get(at, address).category();
        category.map_or(self.unknown, |category| self.recording.category(category.name()))
    }

    /// The program's line with PyTorch's operator there, and the functions that led to it.
    fn names(&mut self, stack: StackId) -> (NameId, NameId) {
        if let Some(&names) = self.stacks.get(&stack) {
            return names;
        }
        let place = Place::from_stack(self.snapshot, stack);
        let op = match (&place.operator, self.snapshot.has_stack(stack)) {
            (_, false) => String::new(),
            (Some(operator), _) if place.own.is_some() => format!("{} ({operator})", place.in_words()),
            _ => place.in_words(),
        };
        let callers = callers(self.snapshot, stack);
        // The page splits a path at its dots.
        let path: Vec<String> =
            callers.iter().map(|line| format!("{} {}", line.short(), line.function).replace('.', "·")).collect();
        let path: Vec<&str> = path.iter().rev().map(String::as_str).collect();
        let names = (self.recording.intern(&op), self.recording.intern(&path.join(".")));
        self.stacks.insert(stack, names);
        names
    }
}

/// Segments, or mapped parts of them, at the beginning of the trace: those at the end, followed backwards.
fn ranges_before(snapshot: &Snapshot, device: usize) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> =
        snapshot.segments_of(device).map(|segment| (segment.address, segment.bytes)).collect();
    for event in snapshot.trace(device).iter().rev() {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => cut(&mut ranges, event.address, event.bytes),
            Action::SegmentFree | Action::SegmentUnmap => ranges.push((event.address, event.bytes)),
            _ => {}
        }
    }
    ranges.retain(|range| range.1 > 0);
    ranges.sort_unstable();
    ranges
}

/// Removes `address..address + bytes` from the ranges.
fn cut(ranges: &mut Vec<(u64, u64)>, address: u64, bytes: u64) {
    let end = address.saturating_add(bytes);
    let mut kept = Vec::new();
    ranges.retain(|&(from, len)| {
        let to = from.saturating_add(len);
        if to <= address || end <= from {
            return true;
        }
        kept.extend([(from, address.saturating_sub(from)), (end, to.saturating_sub(end))]);
        false
    });
    ranges.extend(kept.into_iter().filter(|range| range.1 > 0));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::report::{Part, html};

    #[test]
    fn a_page_has_the_peak_of_the_snapshot() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/tests/golden/snapshots");
        for name in
            ["cnn_b128_stacks", "cnn_b128_then_b32_plain", "gpt_untied_plain", "mlp_expandable", "mlp_oom_plain"]
        {
            let snapshot = Snapshot::open(&golden.join(format!("{name}.pickle"))).unwrap();
            let device = snapshot.main_device();
            let recording = Recording::of_snapshot(name, &snapshot, device);
            let (mut now, mut most, mut taken, mut reserved) = (0u64, 0u64, 0u64, 0u64);
            let mut sizes = Vec::new();
            for event in recording.events() {
                match *event {
                    Event::Alloc { requested_bytes, bytes, .. } => {
                        sizes.push((requested_bytes, bytes));
                        (now, taken) = (now + requested_bytes, taken + bytes);
                        most = most.max(now);
                    }
                    Event::Free { allocation, .. } => {
                        let (requested_bytes, bytes) = sizes[allocation as usize];
                        (now, taken) = (now - requested_bytes, taken - bytes);
                    }
                    Event::SegmentAlloc { bytes, .. } => reserved += bytes,
                    Event::SegmentFree { bytes, .. } => reserved -= bytes,
                    _ => {}
                }
                assert!(taken <= reserved, "{name}: blocks lie in segments");
            }
            assert_eq!(taken, snapshot.totals(device).allocated, "{name}");
            assert_eq!(most, snapshot.peak(device).bytes, "{name}");
            assert_eq!(reserved, snapshot.totals(device).reserved, "{name}");
            let page = html(&[Part::Recording(&recording)]).unwrap();
            assert!(page.contains(name));
        }
    }

    #[test]
    fn ranges_are_cut() {
        let mut ranges = vec![(0, 10), (20, 10)];
        cut(&mut ranges, 5, 20);
        ranges.sort_unstable();
        assert_eq!(ranges, [(0, 5), (25, 5)]);
        cut(&mut ranges, 26, 1);
        ranges.sort_unstable();
        assert_eq!(ranges, [(0, 5), (25, 1), (27, 3)]);
    }
}
