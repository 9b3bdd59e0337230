//! When memory repeats: the rule by which a dry run ends.
//!
//! A run is flat once a step makes as many requests as the step before it, and the allocator's blocks lie at its end as they lay at the end of an earlier step.
//! Steps of a run differ only by their batches, so what follows then repeats what was between: no peak can grow. Where batches differ in turn, a *round* of steps, after which all have had their turn, stands
//! for the step.

use std::collections::HashSet;

use memcore::Device;
use memcore::memory::Snapshot;

/// Rounds after which a run ends whose requests repeat, if its blocks never do.
pub(super) const MOST_ROUNDS: usize = 64;

/// Rounds after which a run ends whose requests differ from round to round.
pub(super) const MOST_DIFFERENT_ROUNDS: usize = 10;

/// The ends of a run's rounds.
pub(super) struct Ends {
    /// Steps of a round.
    period: usize,
    steps: usize,
    /// Numbers of allocations and frees until the last end, and in the round before it.
    made: (u64, u64),
    round: Option<(u64, u64)>,
    layouts: HashSet<u64>,
    /// Number of requests until the end of each step.
    requests: Vec<usize>,
}

/// What the end of a step says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Memory repeats: nothing grows from here on.
    Flat,
    /// The run may still grow, and has had the steps that it is given for that.
    Bound,
    /// The run may still grow.
    GoOn,
}

impl Ends {
    pub(super) fn new(period: usize) -> Self {
        Self {
            period: period.max(1),
            steps: 0,
            made: (0, 0),
            round: None,
            layouts: HashSet::new(),
            requests: Vec::new(),
        }
    }

    /// Notes the end of a step of a run on this device.
    pub(super) fn step(&mut self, device: &Device) -> End {
        let made = (device.usage().n_alloc(), device.usage().n_free());
        self.noted(made, || device.snapshot())
    }

    /// Notes the end of a step: the numbers of allocations and frees until then, and the allocator's memory.
    fn noted(&mut self, made: (u64, u64), memory: impl FnOnce() -> Snapshot) -> End {
        self.steps += 1;
        self.requests.push((made.0 + made.1) as usize);
        if !self.steps.is_multiple_of(self.period) {
            return End::GoOn;
        }
        let round = (made.0 - self.made.0, made.1 - self.made.1);
        let repeats = self.round.replace(round) == Some(round);
        self.made = made;
        let rounds = self.steps / self.period;
        if self.lie_as_before(memory().layout()) && repeats {
            return End::Flat;
        }
        let most = if repeats { MOST_ROUNDS } else { MOST_DIFFERENT_ROUNDS };
        if rounds >= most { End::Bound } else { End::GoOn }
    }

    /// Number of requests until the end of each step so far.
    pub(super) fn requests(&self) -> &[usize] {
        &self.requests
    }

    /// Notes the layout at the end of a round; true if blocks lie as at an earlier end.
    pub(super) fn lie_as_before(&mut self, layout: u64) -> bool {
        !self.layouts.insert(layout)
    }
}

#[cfg(test)]
mod tests {
    use memcore::memory::{BlockSnapshot, BlockState, SegmentSnapshot, Stream};

    use super::*;

    /// One segment at this address, with blocks of these sizes; every second one is free.
    fn memory(address: u64, sizes: &[u64]) -> Snapshot {
        let mut at = address;
        let block = |(i, bytes): (usize, &u64)| {
            let state = if i % 2 == 0 { BlockState::ActiveAllocated } else { BlockState::Inactive };
            let block = BlockSnapshot { address: at, bytes: *bytes, requested_bytes: *bytes, state };
            at += bytes;
            block
        };
        let blocks: Vec<BlockSnapshot> = sizes.iter().enumerate().map(block).collect();
        let total_bytes = sizes.iter().sum();
        let (stream, pool_id) = (Stream::DEFAULT, (0, 0));
        let segment =
            SegmentSnapshot { address, total_bytes, stream, small: false, expandable: false, pool_id, blocks };
        Snapshot { segments: vec![segment] }
    }

    #[test]
    fn a_run_is_flat_where_requests_and_blocks_repeat() {
        let mut ends = Ends::new(1);
        assert_eq!(ends.noted((10, 4), || memory(0, &[512, 1024])), End::GoOn);
        // The blocks lie as before, but the step made other requests.
        assert_eq!(ends.noted((14, 8), || memory(0, &[512, 1024])), End::GoOn);
        // The requests repeat, and a free block was cut.
        assert_eq!(ends.noted((18, 12), || memory(0, &[512, 512, 512])), End::GoOn);
        assert_eq!(ends.noted((22, 16), || memory(4096, &[512, 512, 512])), End::Flat);
    }

    #[test]
    fn a_run_whose_blocks_swap_places_is_flat_when_they_lie_as_in_the_step_before_the_last() {
        let mut ends = Ends::new(1);
        let noted: Vec<End> =
            (1..=4).map(|step| ends.noted((step, step), || memory(0, &[512 << (step % 2), 1024]))).collect();
        assert_eq!(noted, [End::GoOn, End::GoOn, End::Flat, End::Flat]);
    }

    #[test]
    fn sizes_in_turn_are_compared_by_rounds() {
        let mut ends = Ends::new(2);
        let noted: Vec<End> =
            (1..=4).map(|step| ends.noted((step, step), || memory(0, &[512 << (step % 2), 1024]))).collect();
        assert_eq!(noted, [End::GoOn, End::GoOn, End::GoOn, End::Flat]);
    }

    #[test]
    fn what_grows_ends_at_a_bound() {
        let ended = |leak: bool| {
            let mut ends = Ends::new(1);
            let made = |step: u64| if leak { (step * step, step) } else { (step, step) };
            (1..).find(|step| ends.noted(made(*step), || memory(0, &[512 * step, 1024])) != End::GoOn)
        };
        assert_eq!(ended(true), Some(MOST_DIFFERENT_ROUNDS as u64));
        assert_eq!(ended(false), Some(MOST_ROUNDS as u64));
    }
}
