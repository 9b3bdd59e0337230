//! Sizes of a run's batches, where they are not all alike.

use std::borrow::Cow;

use lab_base::error::{Error, Result};
use lab_models::{Architecture, Input, Task};
use serde::Serialize;

/// Sizes that the batches have in turn, each list from its beginning again. An empty list leaves the size as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Turns {
    /// Examples of each batch.
    pub batches: Vec<usize>,
    /// Tokens of each batch's examples.
    pub lengths: Vec<usize>,
}

impl Turns {
    /// Number of steps, of so many batches each, after which every pair of sizes has had its turn, as has what happens `every` few steps.
    pub fn period(&self, accumulate: usize, every: usize) -> usize {
        let batches = common_multiple(self.batches.len().max(1), self.lengths.len().max(1));
        common_multiple(batches / common_divisor(batches, accumulate.max(1)), every.max(1))
    }

    /// The examples of the batch with this number; `None` if all batches have one size.
    pub(super) fn examples(&self, number: usize) -> Option<usize> {
        in_turn(&self.batches, number)
    }

    /// The task of the batch with this number: that of the network, with as many tokens as the batch has.
    pub(super) fn task<'a>(&self, task: &'a Task, number: usize) -> Cow<'a, Task> {
        match (&task.input, in_turn(&self.lengths, number)) {
            (&Input::Tokens { vocabulary, .. }, Some(length)) => {
                Cow::Owned(Task { input: Input::Tokens { length, vocabulary }, loss: task.loss.clone() })
            }
            _ => Cow::Borrowed(task),
        }
    }

    /// # Errors
    /// [`Error::Usage`] for batches of nothing.
    pub(super) fn check(&self) -> Result<()> {
        let lists = [("batches", &self.batches), ("lengths", &self.lengths)];
        match lists.into_iter().find(|(_, sizes)| sizes.contains(&0)) {
            Some((field, _)) => Err(Error::usage(field, "each must be at least 1")),
            None => Ok(()),
        }
    }

    /// Refuses lengths that a network does not take.
    pub(super) fn check_network(&self, architecture: &dyn Architecture) -> Result<()> {
        let Some(longest) = self.lengths.iter().max() else { return Ok(()) };
        let Input::Tokens { length, .. } = architecture.task().input else {
            return Err(Error::usage("lengths", "this network takes no tokens"));
        };
        if let Some(reason) = architecture.one_length() {
            return Err(Error::usage("lengths", reason));
        }
        if *longest > length {
            let problem = format!("{longest} tokens, and the network takes {length}; --sequence sets that");
            return Err(Error::usage("lengths", problem));
        }
        Ok(())
    }
}

fn in_turn(sizes: &[usize], number: usize) -> Option<usize> {
    sizes.get(number % sizes.len().max(1)).copied()
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// The least common multiple; the largest number if that is beyond it.
fn common_multiple(a: usize, b: usize) -> usize {
    (a / common_divisor(a, b)).saturating_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_every_pair_of_sizes() {
        let period = |batches: &[usize], lengths: &[usize], accumulate| {
            Turns { batches: batches.to_vec(), lengths: lengths.to_vec() }.period(accumulate, 1)
        };
        assert_eq!(period(&[], &[], 1), 1);
        assert_eq!(period(&[], &[], 4), 1);
        assert_eq!(period(&[32, 17], &[], 1), 2);
        assert_eq!(period(&[32, 17], &[], 2), 1, "both in each step");
        assert_eq!(period(&[32, 32, 17], &[], 2), 3);
        assert_eq!(period(&[8, 3], &[48, 16, 64], 1), 6);
        assert_eq!(period(&[8; 4], &[16; 6], 3), 4);
        assert_eq!(Turns { batches: vec![4, 2], lengths: Vec::new() }.period(1, 5), 10);
    }

    #[test]
    fn sizes_have_their_turn_and_begin_again() {
        let turns = Turns { batches: vec![32, 17], lengths: Vec::new() };
        assert_eq!([0, 1, 2, 3].map(|number| turns.examples(number)), [Some(32), Some(17), Some(32), Some(17)]);
        assert_eq!(Turns::default().examples(1), None);
        assert!(Turns { lengths: vec![0], ..turns }.check().is_err());
    }
}
