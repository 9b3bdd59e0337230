//! The fastest way to train on a card with so many examples a step: a search over techniques and sizes of micro-batches, in which every candidate is a dry run.

mod checkpoints;
mod divide;
mod held;
mod lengths;
mod moves;
mod search;
mod time;

use lab_analysis::step_time::Speed;
use lab_base::error::{Error, Result};
use lab_base::section::Try;
use memcore::Deviations;

pub use checkpoints::CheckpointChoice;
pub use lengths::{LengthsPlan, LengthsPlanner, OrderRun};

use super::dry_runner::DryRunner;
use super::figures::Figures;
use super::session::Session;
use super::spec::RunSpec;

/// Changes of a training's results that a plan may make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Other numeric types.
    pub numbers: bool,
    /// Another optimizer.
    pub optimizer: bool,
    /// Adapters (LoRA, QLoRA) instead of the network.
    pub adapters: bool,
}

/// A search for the fastest way to make a step of so many examples.
pub struct Planner<'a> {
    /// Maker of the dry runs.
    pub runner: DryRunner<'a>,
    /// The run, with all examples of a step in one batch.
    pub spec: &'a RunSpec,
    /// Its resolved form.
    pub session: &'a Session,
    /// How fast the card is.
    pub speed: Speed,
    /// Bytes that a card sends to others in a second.
    pub sent_per_s: f64,
    /// What may change of the training's results.
    pub allowed: Allowed,
    /// True to find what is slower than the best and takes less memory, too.
    pub with_front: bool,
}

/// A way to make a step, run dry.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its changes, with the figures of their dry run.
    pub changes: Try,
    /// Examples of a micro-batch, on each card.
    pub micro_batch: usize,
    /// Micro-batches of a step.
    pub accumulate: usize,
    /// Estimated seconds of a step.
    pub seconds: f64,
    /// True if it fits surely, false if it surely does not.
    pub fits: Option<bool>,
    /// Memory of the dry run.
    pub figures: Figures,
    /// How the run differs from PyTorch's.
    pub deviations: Deviations,
    /// The run with its changes.
    pub spec: RunSpec,
    /// Its changes, by their numbers.
    made: Vec<usize>,
    /// The sum of their sizes: a larger one changes more of the script.
    size: u32,
}

/// Result of a search.
#[derive(Debug)]
pub struct Plan {
    /// The fastest that surely fits; of several that are about as fast, the one with the fewest changes.
    pub best: Option<Planned>,
    /// The fastest for each amount of memory: each next one takes less memory and more time.
    pub front: Vec<Planned>,
    /// Estimated seconds of a step without a limit of memory.
    pub unlimited_seconds: f64,
    /// Number of dry runs made.
    pub tried: usize,
    /// The fastest that would fit with a gibibyte more; `None` if none is faster than the best.
    pub with_more: Option<Planned>,
    /// Number of choices of techniques whose least time was above the best.
    pub left_out: usize,
    /// Number of those whose parameters, gradients and states alone exceed the card.
    pub too_large: usize,
}

impl Plan {
    /// The fastest that is faster than the best, with the memory that it needs: what a larger card would give.
    pub fn faster(&self) -> Option<&Planned> {
        let best = self.best.as_ref().map_or(f64::INFINITY, |best| best.seconds);
        self.front.iter().rev().find(|one| one.fits != Some(true) && one.seconds < best)
    }
}

impl Planner<'_> {
    /// Cards that divide a step's batch among them.
    fn ranks(&self) -> usize {
        self.spec.parallel.ranks.data_parallel.unwrap_or(1).max(1)
    }

    /// Sizes of a micro-batch on each card, the largest first: each at most half of the one before it.
    ///
    /// # Errors
    /// A batch that the cards do not divide.
    fn sizes(&self) -> Result<Vec<usize>> {
        let (batch, ranks) = (self.session.run.batch, self.ranks());
        if !batch.is_multiple_of(ranks) {
            return Err(Error::usage("global-batch", format!("{ranks} cards do not divide {batch} examples")));
        }
        let each = batch / ranks;
        let mut sizes: Vec<usize> = Vec::new();
        for parts in (1..=each).filter(|parts| each.is_multiple_of(*parts)) {
            let size = each / parts;
            if sizes.last().is_none_or(|last| size * 2 <= *last) {
                sizes.push(size);
            }
        }
        self.accepted(sizes)
    }

    /// The run with one micro-batch of this size on each card: what does not depend on the batch is found with one for which the network can be made.
    fn with_micro_batch(&self, size: usize) -> RunSpec {
        let mut run = self.spec.clone();
        (run.training.batch, run.training.accumulate) = (Some(size * self.ranks()), None);
        run
    }

    /// The sizes with which the network can be made: an export holds for some batches, and batch norm asks for several values of each channel.
    fn accepted(&self, sizes: Vec<usize>) -> Result<Vec<usize>> {
        let mut accepted = Vec::new();
        let mut refused = None;
        for size in sizes {
            let mut run = self.spec.endless().undivided();
            (run.training.batch, run.training.accumulate) = (Some(size), None);
            match self.runner.before_training(&run) {
                Ok(_) => accepted.push(size),
                Err(error) if error.is_usage() => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        match refused {
            Some(error) if accepted.is_empty() => Err(error),
            _ => Ok(accepted),
        }
    }
}
