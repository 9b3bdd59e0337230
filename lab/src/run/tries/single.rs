//! The single changes that save most, for a run without a limit.
//!
//! Changes on most axes have an order: what the strongest of them does not save, no weaker one saves. So the strongest are run first, and the others within
//! the memory that the strongest reserved: most exceed it in their first step, and a smaller change that saves as much is the better answer.

use std::collections::{BTreeMap, BTreeSet};

use lab_analysis::side_by_side;
use lab_base::error::{Error, Result};
use lab_base::section::{MOST, NOT_HERE, Tries, Try};

use super::super::changes::{Axis, Change};
use super::super::figures::Figures;
use super::super::spec::RunSpec;
use super::TrySearch;

/// Savings below this share are not worth a change.
const WORTH: f64 = 0.05;

/// What steps in backward save at most, in bytes of the parameters: gradients, and the temporaries of an optimizer.
const IN_BACKWARD: u64 = 3;

/// A run without changes.
struct AsItIs {
    reserved_bytes: u64,
    parameter_bytes: u64,
}

impl AsItIs {
    /// The most bytes that a change may reserve to be worth it.
    fn most(&self) -> u64 {
        (self.reserved_bytes as f64 * (1.0 - WORTH)) as u64
    }

    fn is_worth(&self, reserved_bytes: u64) -> bool {
        reserved_bytes <= self.most()
    }

    /// True for what may save enough to be run.
    fn may_help(&self, change: &Change) -> bool {
        let saves = IN_BACKWARD * self.parameter_bytes;
        change.axis() != Axis::InBackward || self.is_worth(self.reserved_bytes.saturating_sub(saves))
    }
}

/// The axis whose strongest change bounds what this one saves. SGD that only adds gradients holds as little as any form of another optimizer.
fn bounded_by(change: &Change, changes: &[Change]) -> Option<Axis> {
    match change.axis() {
        Axis::Form if changes.iter().any(|other| other.axis() == Axis::Optimizer) => Some(Axis::Optimizer),
        axis @ (Axis::Sequence | Axis::Precision | Axis::Optimizer | Axis::Form | Axis::Checkpoint | Axis::Split) => {
            Some(axis)
        }
        _ => None,
    }
}

/// The strongest change on an axis: the last in the list.
fn strongest(changes: &[Change], axis: Axis) -> Option<usize> {
    changes.iter().rposition(|change| change.axis() == axis)
}

impl TrySearch<'_> {
    /// Returns the single changes that save most, for a run without a limit.
    ///
    /// # Errors
    /// Those of runs; [`Error::Interrupted`].
    pub fn that_save(&self, figures: &Figures) -> Result<Tries> {
        let before = self.runner.before_training(&self.tried(self.spec.clone()))?;
        let changes = self.changes(before.tensors);
        let as_it_is = AsItIs { reserved_bytes: figures.reserved_bytes, parameter_bytes: before.parameter_bytes };
        let bound = |i: usize| bounded_by(&changes[i], &changes).and_then(|axis| strongest(&changes, axis));
        // What takes longest stands last in the list.
        let (first, others): (Vec<usize>, Vec<usize>) = (0..changes.len())
            .rev()
            .filter(|i| as_it_is.may_help(&changes[*i]))
            .partition(|i| bound(*i).is_none_or(|strongest| strongest == *i));
        let mut found = self.each_alone(&changes, &first)?;
        let better = |i: usize| -> Result<bool> {
            let strongest = bound(i).filter(|strongest| found.contains_key(strongest));
            let Some((strongest, reserved)) = strongest.map(|strongest| (strongest, reserved_by(&found[&strongest])))
            else {
                return Ok(true);
            };
            let is_of_its_axis = changes[strongest].axis() == changes[i].axis();
            let most = if is_of_its_axis { reserved } else { as_it_is.most() };
            // Beside 16-bit weights no other numeric type takes as little.
            let may_be = as_it_is.is_worth(reserved) && changes[i].axis() != Axis::Precision;
            Ok(may_be && self.fits_in(self.with(&changes, &[i]), most)?)
        };
        let tried = side_by_side(&others, self.runner.stop, |i| Ok::<_, Error>((*i, better(*i)?)));
        let tried = tried.into_iter().map(|one| one.ok_or(Error::Interrupted)?);
        let tried: Vec<(usize, bool)> = tried.collect::<Result<_>>()?;
        let better: Vec<usize> = tried.into_iter().filter(|(_, better)| *better).map(|(i, _)| i).collect();
        found.extend(self.each_alone(&changes, &better)?);
        Ok(self.list(&changes, &as_it_is, &found))
    }

    /// True if a run may reserve no more than so many bytes: it does not run out of memory with these.
    fn fits_in(&self, spec: RunSpec, bytes: u64) -> Result<bool> {
        match self.runner.within_limit(&self.tried(spec).on_paper_in(bytes)) {
            Ok((needs, _)) => Ok(needs.is_some()),
            // The run itself says so.
            Err(error) if error.is_usage() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The same list from a run of every change.
    #[cfg(test)]
    pub(super) fn of_every_change(&self, figures: &Figures) -> Result<Tries> {
        let before = self.runner.before_training(&self.tried(self.spec.clone()))?;
        let changes = self.changes(before.tensors);
        let as_it_is = AsItIs { reserved_bytes: figures.reserved_bytes, parameter_bytes: before.parameter_bytes };
        let every: Vec<usize> = (0..changes.len()).collect();
        Ok(self.list(&changes, &as_it_is, &self.each_alone(&changes, &every)?))
    }

    /// The figures of the run with each of these changes, by the change's number; of those that can be made.
    fn each_alone(&self, changes: &[Change], which: &[usize]) -> Result<BTreeMap<usize, Figures>> {
        let runs = side_by_side(which, self.runner.stop, |i| {
            self.runner.figures_of_change(&self.tried(self.with(changes, &[*i])))
        });
        let mut found = BTreeMap::new();
        for (i, figures) in which.iter().zip(runs) {
            match figures.ok_or(Error::Interrupted)? {
                Ok(figures) => found.insert(*i, figures),
                Err(error) if error.is_usage() => continue,
                Err(error) => return Err(error),
            };
        }
        Ok(found)
    }

    /// The list of those that save enough: of each kind the one that saves most.
    fn list(&self, changes: &[Change], as_it_is: &AsItIs, found: &BTreeMap<usize, Figures>) -> Tries {
        let mut entries: BTreeMap<(u64, usize), Try> = BTreeMap::new();
        for (i, figures) in found {
            let reserved = reserved_by(figures);
            if as_it_is.is_worth(reserved) {
                let left_bytes = figures.room.map(|room| room.budget_bytes.saturating_sub(reserved));
                let (peak_bytes, reserved_bytes) = (Some(figures.allocated_bytes), Some(reserved));
                let entry = Try { peak_bytes, reserved_bytes, left_bytes, ..self.entry(changes, &[*i]) };
                entries.insert((reserved, *i), entry);
            }
        }
        let order = match entries.is_empty() {
            true => "No single change that was tried saves 5 %",
            false => "Try, what saves most first (each was run)",
        };
        let mut seen = BTreeSet::new();
        let entries = entries.into_iter().filter(|((_, i), _)| seen.insert(changes[*i].axis() as usize));
        let entries = entries.map(|(_, entry)| entry).take(MOST).collect();
        Tries { order: order.into(), entries, search: String::new(), not_here: NOT_HERE.into() }
    }
}

/// Bytes that a run reserves, in the memory that it has if that is known.
fn reserved_by(figures: &Figures) -> u64 {
    figures.room.and_then(|room| room.reserved_bytes).unwrap_or(figures.reserved_bytes)
}
