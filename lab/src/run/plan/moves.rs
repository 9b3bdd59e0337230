//! The changes of which a plan is made, and the ways that they make.

use std::collections::BTreeMap;

use lab_base::error::Result;

use super::Planner;
use crate::run::changes::{self, Axis, Change};
use crate::run::spec::RunSpec;

/// The changes of a search.
pub(super) struct Moves {
    pub(super) all: Vec<Change>,
    /// Those that cost or save time.
    pub(super) timed: Vec<usize>,
    /// Those whose time the estimate does not know.
    pub(super) settings: Vec<usize>,
    /// Number of the network's tensors.
    pub(super) tensors: u64,
}

/// A choice of techniques, and the time that no division of it is below.
pub(super) struct Way {
    pub(super) chosen: Vec<usize>,
    pub(super) least_seconds: f64,
    /// What a rank holds for as long as it trains, however the batch is divided.
    pub(super) least_bytes: u64,
}

impl Planner<'_> {
    /// The changes that are allowed. `least` is the run with the smallest micro-batch.
    pub(super) fn moves(&self, least: &RunSpec) -> Result<Moves> {
        let tensors = self.runner.before_training(least)?.tensors;
        let mut all = changes::proposed(self.spec, self.session, tensors);
        all.retain(|change| match change.axis() {
            // Of steps in backward the time is not known.
            Axis::Sequence | Axis::LargerOptimizer | Axis::Split | Axis::InBackward => false,
            Axis::Precision => self.allowed.numbers,
            Axis::Optimizer => self.allowed.optimizer,
            Axis::Adapters => self.allowed.adapters,
            _ => true,
        });
        // A fused kernel is faster than a loop and makes no temporaries: of both none takes the loop.
        if all.iter().any(Change::is_fused) {
            all.retain(|change| change.axis() != Axis::Form || change.is_fused());
        }
        let settings = [Axis::Keep, Axis::ZeroGrad, Axis::Allocator, Axis::Buckets];
        let (settings, timed) = (0..all.len()).partition(|i: &usize| settings.contains(&all[*i].axis()));
        Ok(Moves { all, timed, settings, tensors })
    }
}

impl Moves {
    /// The run with these changes.
    pub(super) fn made(&self, spec: &RunSpec, chosen: &[usize]) -> RunSpec {
        let mut spec = spec.clone();
        chosen.iter().for_each(|i| self.all[*i].apply(&mut spec));
        spec
    }

    /// The last setting of each kind, which goes furthest.
    pub(super) fn furthest_settings(&self) -> Vec<usize> {
        self.last_of_each(&self.settings)
    }

    /// The last technique of each kind that leaves the training as it is, on the card.
    pub(super) fn furthest_techniques(&self) -> Vec<usize> {
        let changes_more = [Axis::Precision, Axis::Optimizer, Axis::Adapters, Axis::SavedOn, Axis::Zero];
        let of_memory = |i: &usize| !changes_more.contains(&self.all[*i].axis());
        self.last_of_each(&self.timed.iter().copied().filter(of_memory).collect::<Vec<_>>())
    }

    fn last_of_each(&self, changes: &[usize]) -> Vec<usize> {
        let last: BTreeMap<usize, usize> = changes.iter().map(|&i| (self.all[i].axis() as usize, i)).collect();
        last.into_values().collect()
    }
}
