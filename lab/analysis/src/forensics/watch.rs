//! Watching a run, step by step.

use memcore::Device;

use super::{Leak, Mark, analyze};

/// The most marks that are kept. When there are more, every second one is dropped: a long run is seen at every second, fourth, eighth … of its steps.
const MAX_MARKS: usize = 4096;

/// Watches a run.
pub struct Watch {
    device: Device,
    /// Marks at the end of every `stride`-th step.
    marks: Vec<Mark>,
    stride: usize,
    seen: usize,
    /// The most that was allocated at the end of a step.
    highest: u64,
    /// Number of steps at the last analysis.
    looked: usize,
    found: Option<Leak>,
}

impl Watch {
    /// Starts watching before the first step.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), marks: Vec::new(), stride: 1, seen: 0, highest: 0, looked: 0, found: None }
    }

    /// Called when a step has ended, while its variables are still alive.
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
        // The analysis costs time in proportion to the allocations: a long run is not analysed in every step.
        let due = self.seen >= self.looked + (self.seen / 16).max(1);
        if due && (rises || self.found.is_some()) {
            self.look();
        }
    }

    /// Analyses once more. To be called while everything is still held.
    pub fn look(&mut self) {
        self.looked = self.seen;
        self.found = analyze::analyze(&self.device, &self.marks, self.stride);
    }

    /// Result of the last analysis.
    pub fn leak(&self) -> Option<&Leak> {
        self.found.as_ref()
    }
}
