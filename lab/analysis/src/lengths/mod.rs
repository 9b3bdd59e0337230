//! Examples of different lengths: the batches that they make, and how likely the longest one is.

mod chance;
mod order;
mod read;

use std::ops::RangeInclusive;

use lab_base::error::{Error, Result};

pub use chance::{Chance, QUANTILES};
pub use order::Order;
pub use read::read;

/// The most examples of a file.
pub const MOST_EXAMPLES: usize = 10_000_000;

/// The longest example.
const LONGEST: usize = 1 << 30;

/// Tokens of each example of a dataset, as a collator sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// In the dataset's order.
    stored: Vec<usize>,
    /// From the shortest.
    sorted: Vec<usize>,
}

impl Lengths {
    /// Lengths in the dataset's order.
    ///
    /// # Errors
    /// [`Error::Usage`]: no example, too many, or one that is empty or beyond 2³⁰ tokens.
    pub fn new(stored: Vec<usize>) -> Result<Self> {
        const ALLOWED: RangeInclusive<usize> = 1..=LONGEST;
        if stored.is_empty() {
            return Err(Error::usage("example-lengths", "has no example"));
        }
        if stored.len() > MOST_EXAMPLES {
            return Err(Error::usage("example-lengths", format!("has more than {MOST_EXAMPLES} examples")));
        }
        if let Some((at, length)) = stored.iter().enumerate().find(|(_, length)| !ALLOWED.contains(length)) {
            let problem = format!("example {} has {length} tokens: from 1 to {LONGEST} are supported", at + 1);
            return Err(Error::usage("example-lengths", problem));
        }
        let mut sorted = stored.clone();
        sorted.sort_unstable();
        Ok(Self { stored, sorted })
    }

    /// As a collator pads them: cut after `most` tokens, then padded to a multiple.
    #[must_use]
    pub fn collated(&self, most: Option<usize>, multiple: usize) -> Self {
        let one = |length: &usize| (*length).min(most.unwrap_or(LONGEST)).next_multiple_of(multiple.max(1));
        let each = |all: &[usize]| all.iter().map(one).collect();
        Self { stored: each(&self.stored), sorted: each(&self.sorted) }
    }

    /// Number of examples.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// Tokens of all examples.
    pub fn tokens(&self) -> u64 {
        self.sorted.iter().map(|length| *length as u64).sum()
    }

    /// Tokens of the longest example.
    pub fn longest(&self) -> usize {
        self.sorted.last().copied().unwrap_or(1)
    }

    /// The least length that this share of the examples does not exceed.
    pub fn quantile(&self, share: f64) -> usize {
        let rank = (share.clamp(0.0, 1.0) * self.count() as f64).ceil() as usize;
        self.sorted[rank.saturating_sub(1)]
    }

    /// Number of examples with at least so many tokens.
    pub fn at_least(&self, length: usize) -> usize {
        self.count() - self.sorted.partition_point(|one| *one < length)
    }

    /// Different lengths from the shortest, each once.
    pub fn different(&self) -> Vec<usize> {
        let mut different = self.sorted.clone();
        different.dedup();
        different
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_long_examples_are() {
        let lengths = Lengths::new(vec![30, 10, 20, 20]).unwrap();
        assert_eq!((lengths.count(), lengths.tokens(), lengths.longest()), (4, 80, 30));
        assert_eq!([0.0, 0.25, 0.5, 0.76, 1.0].map(|share| lengths.quantile(share)), [10, 10, 20, 30, 30]);
        assert_eq!([1, 20, 21, 31].map(|length| lengths.at_least(length)), [4, 3, 1, 0]);
        assert_eq!(lengths.different(), [10, 20, 30]);
    }

    #[test]
    fn cuts_and_pads_as_a_collator() {
        let lengths = Lengths::new(vec![30, 10, 17]).unwrap().collated(Some(20), 8);
        assert_eq!((lengths.stored, lengths.sorted), (vec![24, 16, 24], vec![16, 24, 24]));
    }

    #[test]
    fn names_an_example_that_has_no_length() {
        for (lengths, part) in [(vec![], "no example"), (vec![3, 0], "example 2"), (vec![1 << 31], "example 1")] {
            assert!(Lengths::new(lengths).unwrap_err().to_string().contains(part), "{part}");
        }
    }
}
