//! What a rank counts on the way.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memcore::Device;
use memcore::memory::Category;
use serde::Serialize;

use super::collective::{Collective, Sent};

/// The model states on one device, in bytes, by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelStates {
    /// Parameters that are there all the time, when backward is done.
    pub parameter_bytes: u64,
    /// Gradients, when backward is done.
    pub gradient_bytes: u64,
    /// The optimizer's states, master weights among them, when its step is done.
    pub optimizer_bytes: u64,
}

impl ModelStates {
    /// Their sum.
    pub fn total(self) -> u64 {
        self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes
    }
}

/// Bytes that are there from time to time, and the most there were.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gauge {
    now: u64,
    pub(super) most: u64,
}

impl Gauge {
    pub(super) fn take(&mut self, bytes: u64) {
        self.now += bytes;
        self.most = self.most.max(self.now);
    }

    pub(super) fn give_back(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub(bytes);
    }
}

/// What a rank counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Sent in the step.
    pub(super) sent: Sent,
    /// Parameters gathered from other ranks.
    pub(super) gathered: Gauge,
    /// What gradients are collected in before they are reduced.
    pub(super) buckets: Gauge,
    /// As of the last step.
    pub(super) states: ModelStates,
}

/// Shared by everything of a rank that counts.
pub(super) struct Tally {
    ranks: u64,
    counts: Mutex<Counts>,
}

impl Tally {
    pub(crate) fn new(ranks: usize) -> Self {
        Self { ranks: ranks as u64, counts: Mutex::default() }
    }

    /// For changing, and for a copy.
    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A collective over `values` values of `size` bytes.
    pub(super) fn collective(&self, collective: Collective, values: u64, size: u64) {
        let bytes = collective.ring_bytes(values, size, self.ranks);
        self.counts().sent.add(collective, bytes);
    }

    /// Backward is done, the optimizer has not begun.
    pub(super) fn after_backward(&self, device: &Device) {
        let by_category = *device.usage().by_category();
        let mut counts = self.counts();
        counts.states.parameter_bytes = by_category[Category::Parameter as usize];
        counts.states.gradient_bytes = by_category[Category::Gradient as usize];
    }

    /// The optimizer is done.
    pub(super) fn after_step(&self, device: &Device) {
        let by_category = *device.usage().by_category();
        self.counts().states.optimizer_bytes = by_category[Category::OptimizerState as usize];
    }
}
