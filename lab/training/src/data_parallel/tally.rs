//! A rank's counters.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memcore::Device;
use memcore::memory::Category;
use serde::Serialize;

use super::collective::{Collective, Sent};

/// Model states on one device, in bytes, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelStates {
    /// Parameters that stay allocated, measured after backward.
    pub parameter_bytes: u64,
    /// Gradients, measured after backward.
    pub gradient_bytes: u64,
    /// The optimizer's states, including master weights, measured after its step.
    pub optimizer_bytes: u64,
}

impl ModelStates {
    /// Their sum.
    pub fn total(self) -> u64 {
        self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes
    }
}

/// Bytes that come and go, and their maximum.
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

/// A rank's counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Bytes sent in the step.
    pub(super) sent: Sent,
    /// Parameters gathered from other ranks.
    pub(super) gathered: Gauge,
    /// Buckets that gradients are collected in before they are reduced.
    pub(super) buckets: Gauge,
    /// Model states as of the last step.
    pub(super) states: ModelStates,
}

/// Counters shared by all parts of a rank.
pub(super) struct Tally {
    ranks: u64,
    counts: Mutex<Counts>,
}

impl Tally {
    pub(crate) fn new(ranks: usize) -> Self {
        Self { ranks: ranks as u64, counts: Mutex::default() }
    }

    /// Locks the counters, to read or change them.
    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a collective over `values` values of `size` bytes.
    pub(super) fn collective(&self, collective: Collective, values: u64, size: u64) {
        let bytes = collective.ring_bytes(values, size, self.ranks);
        self.counts().sent.add(collective, bytes);
    }

    /// Called after backward, before the optimizer begins.
    pub(super) fn after_backward(&self, device: &Device) {
        let by_category = *device.usage().by_category();
        let mut counts = self.counts();
        counts.states.parameter_bytes = by_category[Category::Parameter as usize];
        counts.states.gradient_bytes = by_category[Category::Gradient as usize];
    }

    /// Called after the optimizer's step.
    pub(super) fn after_step(&self, device: &Device) {
        let by_category = *device.usage().by_category();
        self.counts().states.optimizer_bytes = by_category[Category::OptimizerState as usize];
    }
}
