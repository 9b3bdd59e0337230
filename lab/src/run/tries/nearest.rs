//! The changes that take a run nearest to its card, where none that were tried make it fit.

use lab_base::error::{Error, Result};
use lab_base::figures::short;

use super::super::changes::{Axis, Change};
use super::TrySearch;

/// Axes on which a change is put to those before it, if it saves enough beside them: those that save most, and keep the network as it is.
const AXES: [Axis; 5] = [Axis::Adapters, Axis::Checkpoint, Axis::Split, Axis::Loss, Axis::InBackward];

/// Savings below this share are not worth one more change.
const WORTH: f64 = 0.01;

impl TrySearch<'_> {
    /// Returns a sentence with the changes that reserve least, of a few: one of each of these axes. Empty if none can be made.
    ///
    /// # Errors
    /// Those of runs; [`Error::Interrupted`].
    pub(super) fn nearest(&self, changes: &[Change]) -> Result<String> {
        let (mut chosen, mut least): (Vec<usize>, Option<u64>) = (Vec::new(), None);
        for axis in AXES {
            if (self.runner.stop)() {
                return Err(Error::Interrupted);
            }
            let Some(strongest) = changes.iter().rposition(|change| change.axis() == axis) else { continue };
            let mut with = [chosen.as_slice(), &[strongest]].concat();
            with.sort_unstable();
            let reserved = self.reserves(changes, &with)?;
            let is_worth = |reserved: &u64| least.is_none_or(|least| (*reserved as f64) < least as f64 * (1.0 - WORTH));
            if let Some(reserved) = reserved.filter(is_worth) {
                (chosen, least) = (with, Some(reserved));
            }
        }
        let words: Vec<&str> = chosen.iter().map(|i| changes[*i].words.as_str()).collect();
        Ok(least.map_or_else(String::new, |least| format!("Even {} reserves {}.", words.join(" + "), short(least))))
    }

    /// What a run with these changes reserves with enough memory, `None` if they cannot be combined.
    fn reserves(&self, changes: &[Change], made: &[usize]) -> Result<Option<u64>> {
        match self.runner.within_limit(&self.tried(self.with(changes, made)).endless()) {
            Ok((needs, _)) => Ok(needs.map(|needs| needs.reserved_bytes)),
            Err(error) if error.is_usage() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
