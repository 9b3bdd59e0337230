//! Checkpointing within an amount of memory: the blocks whose recomputation costs least, so that the run fits.
//!
//! A chain's forward pass ends with the sum of what its blocks keep. A dry run per block says how much less that is, and how much longer a step takes, if this
//! block is computed again. Of all choices of blocks those are found that save so much for the least time: a table over blocks and savings, exact to a share
//! of [`UNITS`]. Of blocks that are alike the first ones are chosen: what later ones keep is freed first in backward. Then choices are run dry, from the
//! cheapest on that saves what is missing, until the allocator's peak fits. Where blocks differ, cheaper choices are run dry, too: of few
//! blocks all, of many those with one block less or another one. Where they are alike, or nothing fits, as many blocks may leave smaller gaps evenly among
//! all: every second to every sixth are run dry, too. Where no choice of blocks fits, segments of √n blocks may: blocks that keep nothing but their input
//! save only together.

use lab_analysis::side_by_side;
use lab_analysis::step_time::{Speed, StepClock};
use lab_base::error::{Error, Result};
use lab_models::Recompute;
use lab_results::{CheckpointRow, Checkpoints};

use crate::run::dry_runner::DryRunner;
use crate::run::figures::Figures;
use crate::run::session::flow;
use crate::run::spec::{ParallelSpec, RunSpec};

/// Savings are rounded down to this share of all of them.
const UNITS: u64 = 1 << 14;

/// The most dry runs that make a choice of many blocks cheaper.
const MOST_NEIGHBOURS: usize = 8;

/// With more blocks than these a few places are measured first.
const MEASURED: usize = 8;

/// The number of those places.
const PLACES: usize = 5;

/// Blocks whose figures are within this share are alike.
const ALIKE: f64 = 1e-3;

/// So many blocks are tried in every combination.
const FEW_BLOCKS: usize = 6;

/// More blocks than any network has that is read.
const MOST_BLOCKS: usize = 1 << 12;

/// Most blocks from one that is computed again to the next, where they lie evenly among all.
const MOST_APART: usize = 6;

/// A choice of blocks that are computed again.
#[derive(Clone, Debug)]
pub struct CheckpointChoice {
    /// Their numbers. The run says whether each is computed again by itself.
    pub blocks: Vec<usize>,
    /// Blocks of the network.
    pub of: usize,
    /// The run with this choice.
    pub spec: RunSpec,
    /// Its dry run.
    pub figures: Figures,
    /// Dry runs made.
    pub tried: usize,
}

/// What recomputing one block changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    /// Bytes that the end of the forward pass holds less.
    saved: u64,
    /// Picoseconds that a step takes longer.
    cost: u64,
}

impl Block {
    /// True if neither figure differs by more than a thousandth.
    fn is_like(self, other: Self) -> bool {
        let near = |a: u64, b: u64| a.abs_diff(b) as f64 <= ALIKE * a.max(b) as f64;
        near(self.saved, other.saved) && near(self.cost, other.cost)
    }
}

/// A choice of which none with as much saved costs less.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    saved: u64,
    cost: u64,
    blocks: Vec<usize>,
}

impl DryRunner<'_> {
    /// Chooses the blocks to compute again so that the run reserves at most `budget` bytes, or surely fits its card if there is none; `None` if it has no blocks,
    /// or does not fit with all of them.
    ///
    /// # Errors
    /// Those of runs; [`Error::Interrupted`].
    pub fn checkpoints_within(
        &self,
        spec: &RunSpec,
        speed: Speed,
        budget: Option<u64>,
    ) -> Result<Option<CheckpointChoice>> {
        let of = self.blocks(spec)?;
        if of == 0 {
            return Ok(None);
        }
        let without = with(spec, Vec::new());
        let figures = self.figures_of_change(&without)?;
        if is_within(&figures, budget) {
            return Ok(Some(CheckpointChoice { blocks: Vec::new(), of, spec: without, figures, tried: 1 }));
        }
        let (blocks, mut tried) = self.each(spec, speed, of)?;
        tried += 1;
        let room = budget.or(figures.room.map(|room| room.budget_bytes)).unwrap_or_default();
        let missing = figures.allocated_bytes.saturating_sub(room);
        let search = Within { runner: self, spec, of, budget, missing };
        let mut found = search.first_that_fits(&cheapest(&blocks), &mut tried)?;
        if found.is_none() || are_alike(&blocks) {
            let fewer = found.as_ref().map_or(of, |choice| choice.blocks.len());
            let evenly = search.first_of_some(&among_all(&blocks, fewer), &mut tried)?;
            found = evenly.or(found);
        }
        let Some(mut choice) = found else { return search.segments(tried) };
        choice.tried = tried;
        self.improved(&blocks, budget, choice).map(Some)
    }

    /// What recomputing each of so many blocks changes. Of more than [`MEASURED`] blocks, if those in some inner places are alike, all inner ones are. With the number of
    /// dry runs.
    fn each(&self, spec: &RunSpec, speed: Speed, of: usize) -> Result<(Vec<Block>, usize)> {
        let measured = |numbers: &[usize]| -> Result<Vec<Block>> {
            let alone: Vec<Vec<usize>> =
                std::iter::once(Vec::new()).chain(numbers.iter().map(|number| vec![*number])).collect();
            let kept = side_by_side(&alone, self.stop, |blocks| self.kept(&with(spec, blocks.clone()), speed));
            let kept: Vec<(u64, f64)> =
                kept.into_iter().map(|one| one.ok_or(Error::Interrupted)?).collect::<Result<_>>()?;
            let Some(((all, whole), each)) = kept.split_first() else { return Ok(Vec::new()) };
            let block = |(bytes, seconds): &(u64, f64)| Block {
                saved: all.saturating_sub(*bytes),
                cost: ((seconds - whole).max(0.0) * 1e12) as u64,
            };
            Ok(each.iter().map(block).collect())
        };
        if of > MEASURED {
            let places: [usize; PLACES] = [0, 1, 2, of / 2, of - 1];
            let some = measured(&places)?;
            if let [first, inner, others @ .., last] = some.as_slice()
                && others.iter().all(|other| other.is_like(*inner))
            {
                let mut all = vec![*inner; of];
                all.splice(..1, [*first]);
                all.splice(of - 1.., [*last]);
                return Ok((all, PLACES + 1));
            }
        }
        let before = if of > MEASURED { PLACES + 1 } else { 0 };
        Ok((measured(&(0..of).collect::<Vec<usize>>())?, before + of + 1))
    }

    /// A choice with less recomputation that still fits: where blocks differ, the peak may lie in backward, where what is computed again is held, too. Of few blocks
    /// every cheaper choice is run dry, of many those that leave out a block, or have a cheaper one for it.
    fn improved(
        &self,
        blocks: &[Block],
        budget: Option<u64>,
        mut choice: CheckpointChoice,
    ) -> Result<CheckpointChoice> {
        if are_alike(blocks) {
            return Ok(choice);
        }
        let is_few = blocks.len() <= FEW_BLOCKS;
        let most = choice.tried + if is_few { 1 << FEW_BLOCKS } else { MOST_NEIGHBOURS };
        loop {
            let others =
                if is_few { every_cheaper(blocks, &choice.blocks) } else { neighbours(blocks, &choice.blocks) };
            let mut found = None;
            for chosen in others {
                if choice.tried >= most {
                    break;
                }
                choice.tried += 1;
                let spec = with(&choice.spec, chosen.clone());
                let figures = self.figures_of_change(&spec)?;
                if is_within(&figures, budget) {
                    found = Some(CheckpointChoice { blocks: chosen, spec, figures, ..choice.clone() });
                    break;
                }
            }
            match found {
                Some(found) if is_few => return Ok(found),
                Some(found) => choice = found,
                None => return Ok(choice),
            }
        }
    }

    /// The choice beside no checkpointing, every block, and segments of √n blocks where the network has them.
    ///
    /// # Errors
    /// Those of runs.
    pub fn beside_others(&self, choice: &CheckpointChoice, speed: Speed, budget: u64) -> Result<Checkpoints> {
        let ways = [
            ("none", None, 0),
            ("blocks", Some(Recompute::Blocks), choice.of),
            ("sqrt", Some(Recompute::Sqrt), choice.of),
            ("chosen", choice.spec.model.checkpoint.clone(), choice.blocks.len()),
        ];
        let mut rows = Vec::new();
        for (name, checkpoint, recomputed) in ways {
            let mut spec = choice.spec.clone();
            spec.model.checkpoint = checkpoint;
            let figures = match self.figures_of_change(&spec) {
                Ok(figures) => figures,
                // Networks of transformers have no segments.
                Err(error) if error.is_usage() => continue,
                Err(error) => return Err(error),
            };
            rows.push(CheckpointRow {
                name: name.into(),
                recomputed,
                seconds: self.step_seconds(&spec, speed)?,
                peak_bytes: figures.allocated_bytes,
                reserved_bytes: figures.reserved_bytes,
                fits: figures.reserved_bytes <= budget,
            });
        }
        let blocks = choice.spec.model.checkpoint.as_ref().map(ToString::to_string).unwrap_or_default();
        Ok(Checkpoints { budget_bytes: budget, blocks, of: choice.of, tried: choice.tried, rows })
    }

    /// Number of a network's blocks.
    fn blocks(&self, spec: &RunSpec) -> Result<usize> {
        let has = |block: usize| match self.session(&with(spec, vec![block])) {
            Ok(_) => Ok(true),
            Err(error) if error.is_usage() => Ok(false),
            Err(error) => Err(error),
        };
        let (mut low, mut high) = (0, MOST_BLOCKS);
        while low < high {
            let middle = usize::midpoint(low, high);
            if has(middle)? { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Bytes that are held at the end of the second step's first forward pass, and seconds of that step.
    fn kept(&self, spec: &RunSpec, speed: Speed) -> Result<(u64, f64)> {
        let ranks = spec.parallel.ranks.data_parallel.unwrap_or(1).max(1);
        let mut alone = RunSpec { parallel: ParallelSpec::default(), ..spec.endless() };
        alone.training.batch = alone.training.batch.map(|batch| batch / ranks);
        alone.training.accumulate = None;
        let session = self.session(&alone)?;
        let device = session.target.open()?;
        let clock = StepClock::new(speed);
        device.set_meter(clock.clone());
        let mut ends = Vec::new();
        let result = session.train_steps(&device, 2, &mut |_| {
            ends.push(clock.seconds());
            flow(self.stop)
        })?;
        let seconds = match ends[..] {
            [first, second] => second - first,
            _ if (self.stop)() => return Err(Error::Interrupted),
            _ => ends.last().copied().unwrap_or(0.0),
        };
        let of_forward = result.rows.iter().rev().find(|row| row.label.ends_with(".forward"));
        Ok((of_forward.map_or(0, |row| row.allocated), seconds))
    }
}

/// A search for the cheapest choice with which a run fits.
struct Within<'a> {
    runner: &'a DryRunner<'a>,
    /// The run.
    spec: &'a RunSpec,
    /// Its blocks.
    of: usize,
    budget: Option<u64>,
    /// Bytes by which its tensors exceed the budget.
    missing: u64,
}

impl Within<'_> {
    /// The first choice that fits of these, of which each saves more than the one before, by halves.
    fn first_that_fits(&self, choices: &[Choice], tried: &mut usize) -> Result<Option<CheckpointChoice>> {
        // A choice that saves less than what is missing cannot fit: what it saves, it saves of the peak at most.
        let mut low = choices.partition_point(|choice| choice.saved < self.missing);
        let (mut high, mut found) = (choices.len(), None);
        while low < high {
            let middle = usize::midpoint(low, high);
            let Some(choice) = choices.get(middle) else { break };
            match self.choice(choice, tried)? {
                Some(fits) => (found, high) = (Some(fits), middle),
                None => low = middle + 1,
            }
        }
        Ok(found)
    }

    /// The first choice that fits of these few: gaps between blocks decide, so that a choice may fit that saves less than one that does not.
    fn first_of_some(&self, choices: &[Choice], tried: &mut usize) -> Result<Option<CheckpointChoice>> {
        for choice in choices {
            if let Some(fits) = self.choice(choice, tried)? {
                return Ok(Some(fits));
            }
        }
        Ok(None)
    }

    /// A choice of blocks, if the run fits with it.
    fn choice(&self, choice: &Choice, tried: &mut usize) -> Result<Option<CheckpointChoice>> {
        *tried += 1;
        self.run(with(self.spec, choice.blocks.clone()), choice.blocks.clone())
    }

    /// Segments of √n blocks, if the network has them and they fit.
    fn segments(&self, tried: usize) -> Result<Option<CheckpointChoice>> {
        let mut spec = self.spec.clone();
        spec.model.checkpoint = Some(Recompute::Sqrt);
        match self.run(spec, (0..self.of).collect()) {
            Ok(choice) => Ok(choice.map(|choice| CheckpointChoice { tried: tried + 1, ..choice })),
            // Networks of transformers have no segments.
            Err(error) if error.is_usage() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn run(&self, spec: RunSpec, blocks: Vec<usize>) -> Result<Option<CheckpointChoice>> {
        let figures = self.runner.figures_of_change(&spec)?;
        let fits = is_within(&figures, self.budget);
        Ok(fits.then_some(CheckpointChoice { blocks, of: self.of, spec, figures, tried: 1 }))
    }
}

/// True if the blocks differ in neither figure.
fn are_alike(blocks: &[Block]) -> bool {
    blocks.iter().zip(blocks.iter().skip(1)).all(|(one, next)| one.is_like(*next))
}

/// Every sixth block to every second, if these are fewer than so many: those that take the least time first.
fn among_all(blocks: &[Block], fewer: usize) -> Vec<Choice> {
    let choice = |apart: usize| {
        let chosen: Vec<usize> = (apart - 1..blocks.len()).step_by(apart).collect();
        let saved = chosen.iter().filter_map(|block| blocks.get(*block)).map(|block| block.saved).sum();
        Choice { saved, cost: cost(blocks, &chosen), blocks: chosen }
    };
    let is_cheaper = |choice: &Choice| !choice.blocks.is_empty() && choice.blocks.len() < fewer;
    (2..=MOST_APART).rev().map(choice).filter(is_cheaper).collect()
}

/// True if a run reserves at most so many bytes, or surely fits its card if no number is given.
fn is_within(figures: &Figures, budget: Option<u64>) -> bool {
    budget.map_or(figures.fits_surely() == Some(true), |bytes| figures.reserved_bytes <= bytes)
}

/// The run with these blocks computed again.
fn with(spec: &RunSpec, blocks: Vec<usize>) -> RunSpec {
    let mut spec = spec.clone();
    spec.model.checkpoint = if blocks.is_empty() { None } else { Some(Recompute::These(blocks)) };
    spec
}

fn cost(blocks: &[Block], chosen: &[usize]) -> u64 {
    chosen.iter().filter_map(|block| blocks.get(*block)).map(|block| block.cost).sum()
}

/// Every choice of few blocks that costs less than this one, the cheapest first.
fn every_cheaper(blocks: &[Block], chosen: &[usize]) -> Vec<Vec<usize>> {
    let most = cost(blocks, chosen);
    let sets = (0_usize..1 << blocks.len())
        .map(|set| (0..blocks.len()).filter(|block| set >> block & 1 == 1).collect::<Vec<usize>>());
    let mut cheaper: Vec<Vec<usize>> = sets.filter(|set| cost(blocks, set) < most).collect();
    cheaper.sort_by_key(|set| cost(blocks, set));
    cheaper
}

/// The choices that leave out one block of this one, or have a cheaper one for it, the cheapest first.
fn neighbours(blocks: &[Block], chosen: &[usize]) -> Vec<Vec<usize>> {
    let most = cost(blocks, chosen);
    let mut others: Vec<Vec<usize>> = Vec::new();
    for left_out in chosen {
        let rest: Vec<usize> = chosen.iter().copied().filter(|block| block != left_out).collect();
        for other in (0..blocks.len()).filter(|block| !chosen.contains(block)) {
            let mut with_other = [rest.as_slice(), &[other]].concat();
            with_other.sort_unstable();
            others.push(with_other);
        }
        others.push(rest);
    }
    others.retain(|set| cost(blocks, set) < most);
    others.sort_by_key(|set| cost(blocks, set));
    others
}

/// Returns the cheapest choice for each saving, both rising.
fn cheapest(blocks: &[Block]) -> Vec<Choice> {
    let all: u64 = blocks.iter().map(|block| block.saved).sum();
    let unit = (all / UNITS).max(1);
    let mut best = vec![Choice { saved: 0, cost: 0, blocks: Vec::new() }];
    for (number, block) in blocks.iter().enumerate() {
        let saved = block.saved / unit * unit;
        let taken: Vec<Choice> = best
            .iter()
            .map(|choice| Choice {
                saved: choice.saved + saved,
                cost: choice.cost + block.cost,
                blocks: choice.blocks.iter().copied().chain([number]).collect(),
            })
            .collect();
        // The sort keeps the order of equals: those without this block, which have earlier ones.
        best.extend(taken);
        best.sort_by(|a, b| b.saved.cmp(&a.saved).then(a.cost.cmp(&b.cost)));
        let mut least = u64::MAX;
        best.retain(|choice| {
            let is_less = choice.cost < least;
            least = least.min(choice.cost);
            is_less
        });
    }
    best.reverse();
    best
}

#[cfg(test)]
mod tests;
