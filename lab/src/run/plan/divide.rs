//! How a way is divided into micro-batches: into the largest that fit.
//!
//! A larger micro-batch holds no fewer bytes at any point of the same program. So where the tensors of one size alone exceed the card, those of all larger ones do, and
//! a search by halves finds the first whose tensors fit.

use lab_base::error::{Error, Result};
use lab_base::section::Try;

use super::held::HeldBy;
use super::moves::{Moves, Way};
use super::time::StepTimes;
use super::{Planned, Planner};
use crate::run::changes::{self, Axis, Change};
use crate::run::figures::Figures;
use crate::run::spec::RunSpec;
use crate::run::tries::entry;

/// A search, with what it has found of its parts.
pub(super) struct Search<'a> {
    pub(super) planner: &'a Planner<'a>,
    pub(super) moves: Moves,
    /// Sizes of a micro-batch on each card, the largest first.
    pub(super) sizes: Vec<usize>,
    /// Memory of the card that a process may use.
    pub(super) budget: Option<u64>,
    pub(super) held: HeldBy<'a>,
    times: StepTimes<'a>,
}

/// A division of a way, run dry.
struct Division {
    /// The place of its size.
    size: usize,
    figures: Figures,
    spec: RunSpec,
}

impl<'a> Search<'a> {
    /// `least` is the run with the smallest micro-batch.
    pub(super) fn new(planner: &'a Planner<'a>, moves: Moves, sizes: Vec<usize>, least: &RunSpec) -> Result<Self> {
        let held = HeldBy::new(&planner.runner, planner.spec, sizes.last().copied().unwrap_or(1));
        let times = StepTimes::new(&planner.runner, planner.speed, least.clone());
        Ok(Self { planner, moves, sizes, budget: planner.session.target.budget_bytes()?, held, times })
    }

    /// Estimated seconds of a step, with what its ranks send each other.
    pub(super) fn seconds(&self, spec: &RunSpec) -> Result<f64> {
        let computed = self.times.step(spec)?;
        let ranks = self.planner.ranks();
        if ranks == 1 {
            return Ok(computed);
        }
        let stage = spec.parallel.ranks.zero.unwrap_or(0);
        let accumulate = spec.training.accumulate.unwrap_or(1);
        let sent = self.held.of_run(spec)?.sent().bytes_of_step(stage, ranks, accumulate);
        Ok(computed + sent / self.planner.sent_per_s)
    }

    /// True if so many bytes are more than the card has.
    pub(super) fn exceeds(&self, bytes: u64) -> bool {
        self.budget.is_some_and(|budget| bytes > budget)
    }

    /// The run that takes the least at once of those that compute the same: every technique, the smallest micro-batch. `None` if it does not surely fit.
    pub(super) fn first(&self) -> Result<Option<Planned>> {
        let Some(smallest) = self.sizes.last() else { return Ok(None) };
        let made = [self.moves.furthest_techniques(), self.moves.furthest_settings()].concat();
        match self.planned(&made, *smallest) {
            Ok(planned) => Ok(Some(planned).filter(|one| one.fits == Some(true))),
            Err(error) if error.is_usage() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A way with all settings that take no time: in every size of micro-batch, or in the largest that surely fits with those beside it. Returns the number of dry
    /// runs, too.
    pub(super) fn divided(&self, way: &Way, every: bool) -> Result<(Vec<Planned>, usize)> {
        let divided = way.chosen.iter().any(|i| self.moves.all[*i].axis() == Axis::Zero);
        // Buckets are DistributedDataParallel's.
        let settings = self
            .moves
            .furthest_settings()
            .into_iter()
            .filter(|i| !divided || self.moves.all[*i].axis() != Axis::Buckets);
        let made: Vec<usize> = way.chosen.iter().copied().chain(settings).collect();
        let divisions = if every { self.every_division(&made)? } else { self.largest_that_fits(&made)? };
        let tried = divisions.len();
        let kept =
            divisions.into_iter().filter(|one| every || self.is_kept(one)).map(|one| self.with_time(&made, None, one));
        Ok((kept.collect::<Result<_>>()?, tried))
    }

    /// True for what the plan or the front may need: what fits, and what exceeds the card by less than as much again.
    fn is_kept(&self, division: &Division) -> bool {
        division.figures.fits_surely() != Some(false)
            || self.budget.is_some_and(|budget| division.figures.reserved_bytes <= 2 * budget)
            || division.size + 1 == self.sizes.len()
    }

    fn every_division(&self, made: &[usize]) -> Result<Vec<Division>> {
        let mut found = Vec::new();
        for size in 0..self.sizes.len() {
            match self.division(made, size)? {
                Some(division) => found.push(division),
                None => break,
            }
        }
        Ok(found)
    }

    fn largest_that_fits(&self, made: &[usize]) -> Result<Vec<Division>> {
        let last = self.sizes.len() - 1;
        let Some(whole) = self.division(made, 0)? else { return Ok(Vec::new()) };
        let mut found = vec![whole];
        if last == 0 || found.iter().any(fits) {
            return Ok(found);
        }
        // Gradients exist beside further micro-batches: the whole batch at once is another program than its parts.
        let Some(smallest) = self.division(made, last)? else { return Ok(found) };
        let none_fits = self.is_too_large(&smallest);
        found.push(smallest);
        if none_fits {
            return Ok(found);
        }
        let (mut low, mut high) = (1, last);
        while low < high {
            let middle = usize::midpoint(low, high);
            let Some(division) = self.division(made, middle)? else { return Ok(found) };
            if self.is_too_large(&division) {
                low = middle + 1
            } else {
                high = middle
            }
            found.push(division);
        }
        // What the allocator holds beside the tensors may still be too much.
        for size in high..last {
            let known = found.iter().position(|one| one.size == size);
            if known.is_none() {
                let Some(division) = self.division(made, size)? else { return Ok(found) };
                found.push(division);
            }
            if found.iter().any(|one| one.size == size && fits(one)) {
                break;
            }
        }
        Ok(found)
    }

    /// True if its tensors alone exceed the card.
    fn is_too_large(&self, division: &Division) -> bool {
        self.exceeds(division.figures.allocated_bytes)
    }

    /// The dry run with micro-batches of one size; `None` if these changes do not go with it.
    fn division(&self, made: &[usize], size: usize) -> Result<Option<Division>> {
        if (self.planner.runner.stop)() {
            return Err(Error::Interrupted);
        }
        let (spec, _) = self.run(made, self.sizes[size], None);
        match self.planner.runner.figures_of_change(&spec) {
            Ok(figures) => Ok(Some(Division { size, figures, spec })),
            // Some of what goes together in one batch does not in several.
            Err(error) if error.is_usage() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The dry run of these changes with micro-batches of one size.
    pub(super) fn planned(&self, made: &[usize], micro_batch: usize) -> Result<Planned> {
        self.planned_with(made, micro_batch, None)
    }

    /// The same with one more change.
    pub(super) fn planned_with(&self, made: &[usize], micro_batch: usize, more: Option<&Change>) -> Result<Planned> {
        let (spec, _) = self.run(made, micro_batch, more);
        let figures = self.planner.runner.figures_of_change(&spec)?;
        let size = self.sizes.iter().position(|size| *size == micro_batch).unwrap_or_default();
        self.with_time(made, more, Division { size, figures, spec })
    }

    /// The run with these changes, and what divides it.
    pub(super) fn run(&self, made: &[usize], micro_batch: usize, more: Option<&Change>) -> (RunSpec, Option<Change>) {
        let Planner { spec, session, .. } = *self.planner;
        let ranks = self.planner.ranks();
        let accumulate = session.run.batch / ranks / micro_batch;
        let division = changes::division(spec, session, (micro_batch * ranks, accumulate));
        let division = (accumulate > 1).then_some(division);
        let mut run = self.moves.made(spec, made);
        more.into_iter().chain(&division).for_each(|change| change.apply(&mut run));
        (run, division)
    }

    fn with_time(&self, made: &[usize], more: Option<&Change>, run: Division) -> Result<Planned> {
        let Division { size, figures, spec } = run;
        let micro_batch = self.sizes[size];
        let (_, division) = self.run(made, micro_batch, more);
        let reserved = figures.room.and_then(|room| room.reserved_bytes).unwrap_or(figures.reserved_bytes);
        let changes = made.iter().map(|i| &self.moves.all[*i]).chain(more).chain(&division);
        let left_bytes = figures.room.map(|room| room.budget_bytes.saturating_sub(reserved));
        let (peak_bytes, reserved_bytes) = (Some(figures.allocated_bytes), Some(reserved));
        Ok(Planned {
            changes: Try {
                peak_bytes,
                reserved_bytes,
                left_bytes,
                ..entry((self.planner.spec, &spec), changes.clone(), "predict")
            },
            micro_batch,
            accumulate: spec.training.accumulate.unwrap_or(1),
            seconds: self.seconds(&spec)?,
            fits: figures.fits_surely(),
            figures,
            deviations: figures.unaccounted(figures.deviations),
            made: made.to_vec(),
            spec,
            size: changes.map(|change| change.as_move().size).sum(),
        })
    }
}

/// True if it surely fits.
fn fits(division: &Division) -> bool {
    division.figures.fits_surely() == Some(true)
}
