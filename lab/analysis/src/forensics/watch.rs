//! Watching a run, step by step.

use memcore::Device;

use super::{Leak, Mark, analyze};

/// Marks that are kept at most. Beyond, every second one goes: a long run is seen at every second, fourth, eighth … of its steps.
const MAX_MARKS: usize = 4096;

/// Watches a run.
pub struct Watch {
    device: Device,
    /// At the end of every `stride`-th step.
    marks: Vec<Mark>,
    stride: usize,
    seen: usize,
    /// The most that was allocated at the end of a step.
    highest: u64,
    /// Steps seen at the last look.
    looked: usize,
    found: Option<Leak>,
}

impl Watch {
    /// Before the first step.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), marks: Vec::new(), stride: 1, seen: 0, highest: 0, looked: 0, found: None }
    }

    /// A step has ended, and its variables still hold what they hold.
    pub fn step(&mut self) {
        let nodes = self.device.tape().len();
        let mark = self.device.with_ledger(|ledger| {
            let usage = ledger.usage();
            Mark {
                n_alloc: usage.n_alloc(),
                allocated: usage.allocated_bytes(),
                by_category: *usage.by_category(),
                nodes,
            }
        });
        let rises = mark.allocated > self.highest;
        self.highest = self.highest.max(mark.allocated);
        self.seen += 1;
        if self.seen.is_multiple_of(self.stride) {
            self.marks.push(mark);
        }
        if self.marks.len() == MAX_MARKS {
            let mut stays = [false, true].into_iter().cycle();
            self.marks.retain(|_| stays.next() == Some(true));
            self.stride *= 2;
        }
        // Looking costs as much as there are allocations: a long run is not looked at in every step.
        let due = self.seen >= self.looked + (self.seen / 16).max(1);
        if due && (rises || self.found.is_some()) {
            self.look();
        }
    }

    /// Looks once more. Call it while everything is still held.
    pub fn look(&mut self) {
        self.looked = self.seen;
        self.found = analyze::analyze(&self.device, &self.marks, self.stride);
    }

    /// What the last look found.
    pub fn leak(&self) -> Option<&Leak> {
        self.found.as_ref()
    }
}
