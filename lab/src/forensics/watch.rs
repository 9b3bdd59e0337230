//! Watching a run, step by step.

use memcore::Device;

use super::{Leak, Mark, look};

/// Watches a run.
pub struct Watch {
    device: Device,
    marks: Vec<Mark>,
    /// The most that was allocated at the end of a step.
    highest: u64,
    /// Steps seen at the last look.
    looked: usize,
    found: Option<Leak>,
}

impl Watch {
    /// Before the first step.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), marks: Vec::new(), highest: 0, looked: 0, found: None }
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
        self.marks.push(mark);
        // Looking costs as much as there are allocations: a long run is not looked at in every step.
        let due = self.marks.len() >= self.looked + (self.marks.len() / 16).max(1);
        if due && (rises || self.found.is_some()) {
            self.look();
        }
    }

    /// Looks once more. Call it while everything is still held.
    pub fn look(&mut self) {
        self.looked = self.marks.len();
        self.found = look::look(&self.device, &self.marks);
    }

    /// What the last look found.
    pub fn leak(&self) -> Option<&Leak> {
        self.found.as_ref()
    }
}
