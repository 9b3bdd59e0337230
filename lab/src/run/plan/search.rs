//! The search for a plan.
//!
//! A *way* is a choice of the techniques that cost or save time: checkpointing, the optimizer's form, fused attention, and if the user allows it other numeric types
//! and optimizers. No division into micro-batches makes a way faster than the whole batch at once: the kernels of a part move and compute its share, and the
//! weights again. So the time of the whole batch is a bound, and a way whose bound is above the best time is not searched for the best. Settings whose time the
//! estimate does not know (what is kept of a result, the allocator's segments, what cards divide and send) are made as far as the plan needs them to fit.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use lab_analysis::combine::{Goal, Limits, Move, Outcome, smallest};
use lab_analysis::side_by_side;
use lab_base::error::{Error, Result};
use lab_base::section::Try;

use super::{Plan, Planned, Planner};
use crate::run::changes::{self, Axis, Change};
use crate::run::spec::RunSpec;
use crate::run::tries::entry;

/// Times within this share are alike: of them the plan with the fewest changes is taken.
const ALIKE: f64 = 0.02;

/// Ways that are judged at a time, however many threads there are.
const WAVE: usize = 4;

/// The most ways that are all divided, so that the front has what is slower than the best and takes less memory. A step of one card is run dry in milliseconds.
const MOST_WAYS: usize = 24;

/// The most runs for which blocks are chosen: each takes a dry run per block.
const MOST_OF_BLOCKS: usize = 2;

/// The changes of a search.
struct Moves {
    all: Vec<Change>,
    /// Those that cost or save time.
    timed: Vec<usize>,
    /// Those whose time the estimate does not know.
    settings: Vec<usize>,
}

/// A choice of techniques, and the time that no division of it is below.
struct Way {
    chosen: Vec<usize>,
    least_seconds: f64,
}

impl Planner<'_> {
    /// Returns the fastest plan that fits, and what other amounts of memory would give.
    ///
    /// # Errors
    /// A batch that the cards do not divide; those of runs; [`Error::Interrupted`].
    pub fn plan(&self) -> Result<Plan> {
        let sizes = self.sizes()?;
        let moves = self.moves()?;
        let ways = self.ways(&moves)?;
        let mut found: Vec<Planned> = Vec::new();
        let mut left_out = 0;
        let divides_all = self.with_front && self.ranks() == 1 && ways.len() <= MOST_WAYS;
        for wave in ways.chunks(WAVE) {
            let bound = fastest(&found).filter(|_| !divides_all);
            let bound = bound.map_or(f64::INFINITY, |seconds| seconds * (1.0 + ALIKE));
            let open: Vec<&Way> = wave.iter().filter(|way| way.least_seconds <= bound).collect();
            left_out += wave.len() - open.len();
            for made in side_by_side(&open, self.runner.stop, |way| self.divided(&moves, way, &sizes)) {
                found.extend(made.ok_or(Error::Interrupted)??);
            }
        }
        let (of_blocks, tried_blocks) = self.of_some_blocks(&moves, &found)?;
        let best = self.best(&moves, &found)?;
        let is_faster = |one: &Planned| best.as_ref().is_none_or(|best| one.seconds < best.seconds * (1.0 - ALIKE));
        let of_blocks = of_blocks.filter(is_faster);
        found.extend(of_blocks.clone());
        Ok(Plan {
            best: of_blocks.or(best),
            unlimited_seconds: ways.first().map_or(0.0, |way| way.least_seconds),
            tried: ways.len() + found.len() + tried_blocks,
            front: front(found),
            left_out,
        })
    }

    fn moves(&self) -> Result<Moves> {
        let mut all = changes::proposed(self.spec, self.session, self.runner.before_training(self.spec)?.tensors);
        all.retain(|change| match change.axis() {
            // Of steps in backward the time is not known.
            Axis::Sequence | Axis::LargerOptimizer | Axis::Split | Axis::InBackward => false,
            Axis::Precision => self.allowed.numbers,
            Axis::Optimizer => self.allowed.optimizer,
            Axis::Adapters => self.allowed.adapters,
            _ => true,
        });
        let settings = [Axis::Keep, Axis::ZeroGrad, Axis::Allocator, Axis::Buckets, Axis::Zero];
        let (settings, timed) = (0..all.len()).partition(|i: &usize| settings.contains(&all[*i].axis()));
        Ok(Moves { all, timed, settings })
    }

    /// Every choice of techniques that can be combined, the one with the smallest bound first.
    fn ways(&self, moves: &Moves) -> Result<Vec<Way>> {
        let mut choices: Vec<Vec<usize>> = vec![Vec::new()];
        for &i in &moves.timed {
            let axis = moves.all[i].axis();
            let free = |chosen: &&Vec<usize>| chosen.iter().all(|other| moves.all[*other].axis() != axis);
            let with: Vec<Vec<usize>> =
                choices.iter().filter(free).map(|chosen| [chosen.as_slice(), &[i]].concat()).collect();
            choices.extend(with);
        }
        let seconds = side_by_side(&choices, self.runner.stop, |chosen| {
            self.runner.step_seconds(&moves.made(self.spec, chosen), self.speed)
        });
        let mut ways = Vec::new();
        for (chosen, seconds) in choices.into_iter().zip(seconds) {
            match seconds.ok_or(Error::Interrupted)? {
                Ok(least_seconds) => ways.push(Way { chosen, least_seconds }),
                // These techniques cannot be combined, or not in this network.
                Err(error) if error.is_usage() && !chosen.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        ways.sort_by(|a, b| a.least_seconds.total_cmp(&b.least_seconds));
        Ok(ways)
    }

    /// A way with all settings that take no time, in every size of micro-batch.
    fn divided(&self, moves: &Moves, way: &Way, sizes: &[usize]) -> Result<Vec<Planned>> {
        let made = [way.chosen.as_slice(), &moves.furthest_settings()].concat();
        let mut found: Vec<Planned> = Vec::new();
        for &size in sizes {
            if (self.runner.stop)() {
                return Err(Error::Interrupted);
            }
            match self.planned(moves, &made, size) {
                Ok(planned) => found.push(planned),
                // Some of what goes together in one batch does not in several.
                Err(error) if error.is_usage() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// The fastest that fits, with as few settings as it needs.
    fn best(&self, moves: &Moves, found: &[Planned]) -> Result<Option<Planned>> {
        let Some(fastest) = fastest(found) else { return Ok(None) };
        let alike = found.iter().filter(|one| one.fits == Some(true) && one.seconds <= fastest * (1.0 + ALIKE));
        let by_size = |a: &&Planned, b: &&Planned| a.size.cmp(&b.size).then(a.seconds.total_cmp(&b.seconds));
        let Some(best) = alike.min_by(by_size) else { return Ok(None) };
        let timed: Vec<usize> = best.made.iter().copied().filter(|i| moves.timed.contains(i)).collect();
        let with = |settings: &[usize]| {
            let made: Vec<usize> = timed.iter().copied().chain(settings.iter().map(|i| moves.settings[*i])).collect();
            self.planned(moves, &made, best.micro_batch)
        };
        let bare = with(&[])?;
        if bare.fits == Some(true) {
            return Ok(Some(bare));
        }
        let attempt = |settings: &[usize]| -> Result<(Outcome<Planned>, u64)> {
            match with(settings) {
                Ok(planned) if planned.fits == Some(true) => Ok((Outcome::Reached(planned), 1)),
                Ok(_) => Ok((Outcome::Missed, 1)),
                Err(error) if error.is_usage() => Ok((Outcome::Impossible, 1)),
                Err(error) => Err(error),
            }
        };
        let as_moves: Vec<Move> = moves.settings.iter().map(|i| moves.all[*i].as_move()).collect();
        let limits = Limits { moves: as_moves.len(), enough: 1, work: u64::MAX, stop: self.runner.stop };
        let goal = Goal { attempt: &attempt, may_reach: &|_| Ok((true, 0)) };
        let reached = smallest(&as_moves, &limits, &goal)?.reached;
        Ok(Some(reached.into_iter().next().map_or_else(|| best.clone(), |(_, planned)| planned)))
    }

    /// The fastest that fits with some blocks computed again, of what does not fit without checkpointing and would be faster than what does.
    fn of_some_blocks(&self, moves: &Moves, found: &[Planned]) -> Result<(Option<Planned>, usize)> {
        if self.spec.model.by_trainer() || self.spec.model.checkpoint.is_some() {
            return Ok((None, 0));
        }
        let best = fastest(found).unwrap_or(f64::INFINITY);
        let is_checkpointed = |one: &Planned| one.spec.model.checkpoint.is_some();
        let mut open: Vec<&Planned> = found
            .iter()
            .filter(|one| one.fits != Some(true) && !is_checkpointed(one) && one.seconds < best * (1.0 - ALIKE))
            .collect();
        let reserved = |one: &&Planned| one.changes.reserved_bytes.unwrap_or(u64::MAX);
        open.sort_by(|a, b| reserved(a).cmp(&reserved(b)).then(a.size.cmp(&b.size)));
        let (mut made, mut tried): (Vec<Planned>, usize) = (Vec::new(), 0);
        for one in open.into_iter().take(MOST_OF_BLOCKS) {
            // Recomputation only adds time.
            if made.iter().any(|other| other.fits == Some(true) && other.seconds <= one.seconds) {
                continue;
            }
            let Some(choice) = self.runner.checkpoints_within(&one.spec, self.speed, None)? else { continue };
            tried += choice.tried;
            if choice.blocks.is_empty() {
                continue;
            }
            let change = changes::checkpointed(self.spec, self.session, &choice.blocks, choice.of);
            made.push(self.planned_with(moves, &one.made, one.micro_batch, Some(&change))?);
        }
        let fits = made.into_iter().filter(|one| one.fits == Some(true));
        Ok((fits.min_by(|a, b| a.seconds.total_cmp(&b.seconds)), tried))
    }

    /// The dry run of these changes with micro-batches of one size.
    fn planned(&self, moves: &Moves, made: &[usize], micro_batch: usize) -> Result<Planned> {
        self.planned_with(moves, made, micro_batch, None)
    }

    /// The same with one more change.
    fn planned_with(
        &self,
        moves: &Moves,
        made: &[usize],
        micro_batch: usize,
        more: Option<&Change>,
    ) -> Result<Planned> {
        let ranks = self.ranks();
        let accumulate = self.session.run.batch / ranks / micro_batch;
        let division = changes::division(self.spec, self.session, (micro_batch * ranks, accumulate));
        let division = (accumulate > 1).then_some(&division);
        let mut spec = moves.made(self.spec, made);
        more.into_iter().chain(division).for_each(|change| change.apply(&mut spec));
        let figures = self.runner.figures_of_change(&spec)?;
        let reserved = figures.room.and_then(|room| room.reserved_bytes).unwrap_or(figures.reserved_bytes);
        let changes = made.iter().map(|i| &moves.all[*i]).chain(more).chain(division);
        let left_bytes = figures.room.map(|room| room.budget_bytes.saturating_sub(reserved));
        let (peak_bytes, reserved_bytes) = (Some(figures.allocated_bytes), Some(reserved));
        Ok(Planned {
            changes: Try {
                peak_bytes,
                reserved_bytes,
                left_bytes,
                ..entry((self.spec, &spec), changes.clone(), "predict")
            },
            micro_batch,
            accumulate,
            seconds: self.runner.step_seconds(&spec, self.speed)?,
            fits: figures.fits_surely(),
            figures,
            deviations: figures.unaccounted(figures.deviations),
            made: made.to_vec(),
            spec,
            size: changes.map(|change| change.as_move().size).sum(),
        })
    }
}

impl Moves {
    /// The run with these changes.
    fn made(&self, spec: &RunSpec, chosen: &[usize]) -> RunSpec {
        let mut spec = spec.clone();
        chosen.iter().for_each(|i| self.all[*i].apply(&mut spec));
        spec
    }

    /// The last setting of each kind, which goes furthest.
    fn furthest_settings(&self) -> Vec<usize> {
        let last: BTreeMap<usize, usize> = self.settings.iter().map(|&i| (self.all[i].axis() as usize, i)).collect();
        last.into_values().collect()
    }
}

/// Seconds of the fastest that surely fits.
fn fastest(found: &[Planned]) -> Option<f64> {
    found.iter().filter(|one| one.fits == Some(true)).map(|one| one.seconds).min_by(f64::total_cmp)
}

/// Those that no other one beats both in time and in memory, the fastest first.
fn front(mut found: Vec<Planned>) -> Vec<Planned> {
    let reserved = |one: &Planned| one.changes.reserved_bytes.unwrap_or(u64::MAX);
    let order = |a: &Planned, b: &Planned| match a.seconds.total_cmp(&b.seconds) {
        Ordering::Equal => reserved(a).cmp(&reserved(b)).then(a.size.cmp(&b.size)),
        other => other,
    };
    found.sort_by(order);
    let mut least = u64::MAX;
    found.retain(|one| {
        let is_less = reserved(one) < least;
        least = least.min(reserved(one));
        is_less
    });
    found
}
