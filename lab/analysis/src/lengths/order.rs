//! Orders of examples, and the batches that they make.

use lab_training::data::shuffle;

use super::Lengths;

/// Megabatches of transformers' sampler have this many batches, or as many as make [`LEAST_MEGABATCHES`] of them.
const MEGABATCH: usize = 50;

/// See [`MEGABATCH`].
const LEAST_MEGABATCHES: usize = 4;

/// The order in which a sampler takes a dataset's examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In a random order, as `DataLoader(shuffle=True)` and transformers' Trainer by default.
    Shuffled,
    /// Examples of like lengths together, the longest first: transformers' `group_by_length`.
    Grouped,
    /// As the dataset has them: `shuffle=False`.
    Stored,
    /// From the longest.
    LongestFirst,
    /// From the shortest.
    ShortestFirst,
}

impl Order {
    /// All orders.
    pub const ALL: [Self; 5] = [Self::Shuffled, Self::Grouped, Self::Stored, Self::LongestFirst, Self::ShortestFirst];

    /// As an answer names it.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Shuffled => "shuffled",
            Self::Grouped => "grouped by length (transformers)",
            Self::Stored => "as stored",
            Self::LongestFirst => "the longest first",
            Self::ShortestFirst => "the shortest first",
        }
    }

    /// Tokens of each batch of an epoch, padded to its longest example. A smaller last batch is left out, unless it is the only one.
    pub fn batches(self, lengths: &Lengths, batch: usize, seed: u64) -> Vec<usize> {
        let mut taken = match self {
            Self::Shuffled | Self::Grouped | Self::Stored => lengths.stored.clone(),
            Self::LongestFirst | Self::ShortestFirst => lengths.sorted.clone(),
        };
        match self {
            Self::Shuffled => shuffle(&mut taken, seed),
            Self::Grouped => {
                shuffle(&mut taken, seed);
                group(&mut taken, batch);
            }
            Self::LongestFirst => taken.reverse(),
            Self::Stored | Self::ShortestFirst => {}
        }
        let longest = |batch: &[usize]| batch.iter().copied().max().unwrap_or(1);
        match taken.len() < batch {
            true => vec![longest(&taken)],
            false => taken.chunks_exact(batch).map(longest).collect(),
        }
    }
}

/// Sorts each megabatch from its longest example, and begins with the longest of all: what `get_length_grouped_indices` of transformers 5.24 does to a permutation.
fn group(permuted: &mut [usize], batch: usize) {
    let megabatch = batch * (permuted.len() / (batch * LEAST_MEGABATCHES)).clamp(1, MEGABATCH);
    permuted.chunks_mut(megabatch).for_each(|one| one.sort_by(|a, b| b.cmp(a)));
    let firsts = (0..permuted.len()).step_by(megabatch);
    // The first of several that are as long.
    let longest = firsts.rev().max_by_key(|first| permuted[*first]).unwrap_or(0);
    permuted.swap(0, longest);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERMUTED: [usize; 18] = [22, 28, 9, 25, 5, 16, 37, 2, 8, 40, 3, 12, 33, 14, 40, 31, 19, 7];

    const GROUPED: [usize; 18] = [40, 25, 22, 9, 37, 16, 5, 2, 28, 12, 8, 3, 40, 33, 31, 14, 19, 7];

    /// What transformers 5.24 made of permuted lengths: `get_length_grouped_indices(lengths, batch, generator=…)`, batch 2, where the generator
    /// permutes 18 lengths so that they come in this order.
    #[test]
    fn groups_as_transformers() {
        let mut lengths = PERMUTED.to_vec();
        group(&mut lengths, 2);
        assert_eq!(lengths, GROUPED);
    }

    #[test]
    fn every_order_has_every_batch_of_an_epoch() {
        let lengths = Lengths::new((1..=1000).map(|i| i * 7 % 1009).collect()).unwrap();
        for order in Order::ALL {
            let batches = order.batches(&lengths, 8, 3);
            assert_eq!(batches.len(), 125, "{order:?}");
            assert_eq!(batches.iter().max(), Some(&lengths.longest()), "{order:?}");
        }
        assert_eq!(Order::Grouped.batches(&lengths, 8, 3)[0], lengths.longest());
        assert_eq!(Order::Shuffled.batches(&lengths, 8, 3), Order::Shuffled.batches(&lengths, 8, 3));
        assert_ne!(Order::Shuffled.batches(&lengths, 8, 3), Order::Shuffled.batches(&lengths, 8, 4));
        assert_eq!(Order::Stored.batches(&lengths, 2000, 0), [lengths.longest()]);
    }

    #[test]
    fn sorted_orders_pad_least() {
        let lengths = Lengths::new((1..=1000).map(|i| i * 7 % 1009).collect()).unwrap();
        let tokens = |order: Order| order.batches(&lengths, 8, 3).iter().sum::<usize>();
        assert!(tokens(Order::LongestFirst) < tokens(Order::Grouped));
        assert!(tokens(Order::Grouped) < tokens(Order::Shuffled));
    }
}
