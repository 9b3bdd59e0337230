//! The search for a plan.
//!
//! A *way* is a choice of the techniques that cost or save time: checkpointing, the optimizer's form, fused attention, ZeRO's stage, and if the user allows it other
//! numeric types and optimizers. No division into micro-batches makes a way faster than the whole batch at once: the kernels of a part move and compute its
//! share, and the weights again. So the time of the whole batch is a bound, and a way whose bound is above the best time is not searched for the best. A way whose
//! parameters, gradients and states alone exceed the card is not searched either. Settings whose time the estimate does not know (what is kept of a result,
//! the allocator's segments, buckets of gradients) are made as far as the plan needs them to fit.

use std::cmp::Ordering;

use lab_analysis::combine::{Goal, Limits, Move, Outcome, smallest};
use lab_analysis::side_by_side;
use lab_base::error::{Error, Result};

use super::divide::Search;
use super::moves::Way;
use super::{Plan, Planned, Planner};
use crate::run::changes;

/// Times within this share are alike: of them the plan with the fewest changes is taken.
const ALIKE: f64 = 0.02;

/// Ways that are judged at a time, however many threads there are.
const WAVE: usize = 4;

/// The most tensors of all dry runs of a search that divides every way into every size, so that the front has what is slower than the best and takes less memory.
const MOST_TENSORS: u64 = 40_000;

/// Where not every way is divided, so many of those that are slower than the best are.
const THRIFTY: usize = 3;

/// The most runs for which blocks are chosen: each takes a dry run per block.
const MOST_OF_BLOCKS: usize = 2;

/// Bytes of a gibibyte.
const GIB: u64 = 1 << 30;

impl Planner<'_> {
    /// Returns the fastest plan that fits, and what other amounts of memory would give. `on_first` is told of the first one that fits.
    ///
    /// # Errors
    /// A batch that the cards do not divide; those of runs; [`Error::Interrupted`].
    pub fn plan(&self, on_first: &dyn Fn(&Planned)) -> Result<Plan> {
        let sizes = self.sizes()?;
        let least = self.with_micro_batch(sizes.last().copied().unwrap_or(1));
        let search = Search::new(self, self.moves(&least)?, sizes, &least)?;
        let first = search.first()?;
        if let Some(first) = &first {
            on_first(first);
        }
        search.plan(first.is_some(), on_first)
    }
}

impl Search<'_> {
    /// `is_told`: whether somebody was told of a first one that fits.
    fn plan(&self, mut is_told: bool, on_first: &dyn Fn(&Planned)) -> Result<Plan> {
        let Planner { runner, .. } = self.planner;
        let ways = self.ways()?;
        let runs = ways.len() as u64 * self.sizes.len() as u64;
        let divides_all =
            self.planner.with_front && self.planner.ranks() == 1 && runs * self.moves.tensors <= MOST_TENSORS;
        let mut found: Vec<Planned> = Vec::new();
        let mut left_out: Vec<&Way> = Vec::new();
        let (open, too_large): (Vec<&Way>, Vec<&Way>) =
            ways.iter().partition(|way| divides_all || !self.exceeds(way.least_bytes));
        let mut tried = ways.len();
        for wave in open.chunks(WAVE) {
            let bound = fastest(&found).filter(|_| !divides_all);
            let bound = bound.map_or(f64::INFINITY, |seconds| seconds * (1.0 + ALIKE));
            let (open, slower): (Vec<&Way>, Vec<&Way>) =
                wave.iter().copied().partition(|way| way.least_seconds <= bound);
            left_out.extend(slower);
            tried += self.divide(&open, divides_all, &mut found)?;
            // Of the thriftiest one it may not be sure that it fits: nobody asked for all workspaces of its convolutions.
            if let Some(fits) = found.iter().find(|one| !is_told && one.fits == Some(true)) {
                on_first(fits);
                is_told = true;
            }
        }
        // What takes less memory than the best, or least of all if nothing fits.
        let mut thrifty = spread(&left_out, THRIFTY);
        if found.is_empty() {
            thrifty = spread(&too_large, THRIFTY);
        }
        if self.planner.with_front || found.is_empty() {
            tried += self.divide(&thrifty, false, &mut found)?;
        }
        let (of_blocks, tried_blocks) = self.of_some_blocks(&found)?;
        let best = self.best(&found)?;
        let is_faster = |one: &Planned| best.as_ref().is_none_or(|best| one.seconds < best.seconds * (1.0 - ALIKE));
        let of_blocks = of_blocks.filter(is_faster);
        found.extend(of_blocks.clone());
        if (runner.stop)() {
            return Err(Error::Interrupted);
        }
        let best = of_blocks.or(best);
        Ok(Plan {
            with_more: self.with_more(&found, best.as_ref())?,
            best,
            unlimited_seconds: ways.first().map_or(0.0, |way| way.least_seconds),
            tried: tried + tried_blocks,
            front: front(found),
            left_out: left_out.len() - if divides_all { 0 } else { thrifty.len().min(left_out.len()) },
            too_large: too_large.len(),
        })
    }

    /// Divides ways side by side. Returns the number of dry runs.
    fn divide(&self, ways: &[&Way], every: bool, found: &mut Vec<Planned>) -> Result<usize> {
        let mut tried = 0;
        for made in side_by_side(ways, self.planner.runner.stop, |way| self.divided(way, every)) {
            let (made, runs) = made.ok_or(Error::Interrupted)??;
            found.extend(made);
            tried += runs;
        }
        Ok(tried)
    }

    /// Every choice of techniques that can be combined, the one with the smallest bound first.
    fn ways(&self) -> Result<Vec<Way>> {
        let moves = &self.moves;
        let mut choices: Vec<Vec<usize>> = vec![Vec::new()];
        for &i in &moves.timed {
            let axis = moves.all[i].axis();
            let free = |chosen: &&Vec<usize>| chosen.iter().all(|other| !moves.all[*other].axis().excludes(axis));
            let with: Vec<Vec<usize>> =
                choices.iter().filter(free).map(|chosen| [chosen.as_slice(), &[i]].concat()).collect();
            choices.extend(with);
        }
        let timed = side_by_side(&choices, self.planner.runner.stop, |chosen| self.way(chosen));
        let mut ways = Vec::new();
        for (chosen, way) in choices.into_iter().zip(timed) {
            match way.ok_or(Error::Interrupted)? {
                Ok(way) => ways.push(way),
                // These techniques cannot be combined, or not in this network.
                Err(error) if error.is_usage() && !chosen.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        ways.sort_by(|a, b| a.least_seconds.total_cmp(&b.least_seconds));
        Ok(ways)
    }

    fn way(&self, chosen: &[usize]) -> Result<Way> {
        // No division is faster than that into the largest micro-batches.
        let (spec, _) = self.run(chosen, self.sizes.first().copied().unwrap_or(1), None);
        let least_seconds = self.seconds(&spec)?;
        let stage = spec.parallel.ranks.zero.unwrap_or(0);
        let least_bytes = self.held.of_run(&spec)?.of_rank(stage, self.planner.ranks());
        Ok(Way { chosen: chosen.to_vec(), least_seconds, least_bytes })
    }

    /// The fastest that fits, with as few settings as it needs.
    fn best(&self, found: &[Planned]) -> Result<Option<Planned>> {
        let moves = &self.moves;
        let Some(fastest) = fastest(found) else { return Ok(None) };
        let alike = found.iter().filter(|one| one.fits == Some(true) && one.seconds <= fastest * (1.0 + ALIKE));
        let by_size = |a: &&Planned, b: &&Planned| a.size.cmp(&b.size).then(a.seconds.total_cmp(&b.seconds));
        let Some(best) = alike.min_by(by_size) else { return Ok(None) };
        let timed: Vec<usize> = best.made.iter().copied().filter(|i| moves.timed.contains(i)).collect();
        let with = |settings: &[usize]| {
            let made: Vec<usize> = timed.iter().copied().chain(settings.iter().map(|i| moves.settings[*i])).collect();
            self.planned(&made, best.micro_batch)
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
        let limits = Limits { moves: as_moves.len(), enough: 1, work: u64::MAX, stop: self.planner.runner.stop };
        let goal = Goal { attempt: &attempt, may_reach: &|_| Ok((true, 0)) };
        let reached = smallest(&as_moves, &limits, &goal)?.reached;
        Ok(Some(reached.into_iter().next().map_or_else(|| best.clone(), |(_, planned)| planned)))
    }

    /// The fastest that fits with some blocks computed again, of what does not fit without checkpointing and would be faster than what does.
    fn of_some_blocks(&self, found: &[Planned]) -> Result<(Option<Planned>, usize)> {
        let Planner { runner, spec, session, speed, .. } = self.planner;
        if spec.model.by_trainer() || spec.model.checkpoint.is_some() {
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
            let Some(choice) = runner.checkpoints_within(&one.spec, *speed, None)? else { continue };
            tried += choice.tried;
            if choice.blocks.is_empty() {
                continue;
            }
            let Some(what) = choice.spec.model.checkpoint else { continue };
            let change = changes::checkpointed(spec, session, &what, (choice.blocks.len(), choice.of));
            made.push(self.planned_with(&one.made, one.micro_batch, Some(&change))?);
        }
        let fits = made.into_iter().filter(|one| one.fits == Some(true));
        Ok((fits.min_by(|a, b| a.seconds.total_cmp(&b.seconds)), tried))
    }

    /// The fastest that would fit with a gibibyte more, if it is faster than the best.
    fn with_more(&self, found: &[Planned], best: Option<&Planned>) -> Result<Option<Planned>> {
        let Some(budget) = self.budget else { return Ok(None) };
        let room = self.planner.spec.basis().band().surely(budget + GIB);
        let reserved = |one: &Planned| one.changes.reserved_bytes.unwrap_or(u64::MAX);
        let limit = best.map_or(f64::INFINITY, |best| best.seconds * (1.0 - ALIKE));
        let faster = found.iter().filter(|one| reserved(one) <= room && one.seconds < limit);
        Ok(faster.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).cloned())
    }
}

/// So many of the items, evenly spread, with the last.
fn spread<'w>(ways: &[&'w Way], most: usize) -> Vec<&'w Way> {
    let of = ways.len();
    (1..=most.min(of)).map(|part| ways[part * of / most.min(of) - 1]).collect()
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
