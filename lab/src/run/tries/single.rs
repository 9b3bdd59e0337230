//! The single changes that save most, for a run without a limit.
//!
//! Changes on most axes have an order: what the strongest of them does not save, no weaker one saves, and a weaker one saves as much only where activations
//! do not matter. So the strongest are run first, and the others only where they may be better answers.

use std::collections::{BTreeMap, BTreeSet};

use lab_analysis::side_by_side;
use lab_base::error::{Error, Result};
use lab_base::section::{MOST, NOT_HERE, Tries, Try};

use super::super::changes::{Axis, Change};
use super::super::figures::Figures;
use super::TrySearch;

/// Savings below this share are not worth a change.
const WORTH: f64 = 0.05;

/// What a training holds without activations, in bytes of its parameters: these, their gradients, three states of an optimizer, and its temporaries.
const AT_REST: u64 = 8;

/// What steps in backward save at most, in bytes of the parameters: gradients, and the temporaries of an optimizer.
const IN_BACKWARD: u64 = 3;

/// A run without changes.
struct AsItIs {
    reserved_bytes: u64,
    parameter_bytes: u64,
}

impl AsItIs {
    fn is_worth(&self, reserved_bytes: u64) -> bool {
        reserved_bytes as f64 <= self.reserved_bytes as f64 * (1.0 - WORTH)
    }

    /// True for what may save enough to be run.
    fn may_help(&self, change: &Change) -> bool {
        let saves = IN_BACKWARD * self.parameter_bytes;
        change.axis() != Axis::InBackward || self.is_worth(self.reserved_bytes.saturating_sub(saves))
    }

    /// True if changes on an axis may be better answers than the strongest on it. `strongest`: bytes reserved with that; `None` if it cannot be made.
    fn may_be_better(&self, axis: Axis, strongest: Option<u64>) -> bool {
        let Some(reserved) = strongest else { return true };
        // Optimizers and their forms may save as much as SGD, wherever the peak is.
        let is_of_the_optimizer = matches!(axis, Axis::Optimizer | Axis::Form);
        self.is_worth(reserved) && (is_of_the_optimizer || reserved <= AT_REST * self.parameter_bytes)
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
        let may_be_better = |i: &usize| {
            let reserved = bound(*i).and_then(|strongest| found.get(&strongest)).map(reserved_by);
            as_it_is.may_be_better(changes[*i].axis(), reserved)
        };
        let others: Vec<usize> = others.into_iter().filter(may_be_better).collect();
        found.extend(self.each_alone(&changes, &others)?);
        Ok(self.list(&changes, &as_it_is, &found))
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
