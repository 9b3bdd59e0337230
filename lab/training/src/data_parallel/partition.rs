//! Partition of values among ranks.

/// Values in shards of equal size, one per rank, with padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Number of values.
    pub values: u64,
    /// Number of shards; at least 1.
    pub ranks: u64,
}

impl Partition {
    /// Divides `values` values among `ranks` ranks (0 counts as 1).
    pub fn new(values: u64, ranks: u64) -> Self {
        Self { values, ranks: ranks.max(1) }
    }

    /// Values of each shard, padding included: `⌈values / ranks⌉`.
    pub fn shard(self) -> u64 {
        self.values.div_ceil(self.ranks)
    }

    /// Values of all shards.
    pub fn padded(self) -> u64 {
        self.shard() * self.ranks
    }

    /// Padding values: fewer than there are ranks.
    pub fn padding(self) -> u64 {
        self.padded() - self.values
    }

    /// First value of a rank's shard.
    pub fn start(self, rank: u64) -> u64 {
        rank * self.shard()
    }

    /// Values of a rank's shard without padding. The last ranks have fewer, or none.
    pub fn owned(self, rank: u64) -> u64 {
        self.values.saturating_sub(self.start(rank)).min(self.shard())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shards_add_up_to_the_whole(values in 0u64..5_000_000, ranks in 1u64..2000) {
            let partition = Partition::new(values, ranks);
            prop_assert_eq!((0..ranks).map(|rank| partition.owned(rank)).sum::<u64>(), values);
            prop_assert!(partition.padding() < ranks);
            prop_assert_eq!(partition.padded(), values + partition.padding());
            // Each shard begins where the previous one ends, as long as values are left.
            for rank in 1..ranks {
                prop_assert_eq!(partition.start(rank), partition.start(rank - 1) + partition.shard());
                prop_assert!(partition.owned(rank) <= partition.owned(rank - 1));
                if partition.owned(rank) > 0 {
                    prop_assert_eq!(partition.owned(rank - 1), partition.shard());
                }
            }
        }
    }

    #[test]
    fn few_values_among_many_ranks() {
        let partition = Partition::new(3, 8);
        assert_eq!((partition.shard(), partition.padded(), partition.padding()), (1, 8, 5));
        assert_eq!((0..8).map(|rank| partition.owned(rank)).collect::<Vec<_>>(), [1, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(Partition::new(0, 4).padded(), 0);
        assert_eq!(Partition::new(7, 1).shard(), 7);
    }
}
