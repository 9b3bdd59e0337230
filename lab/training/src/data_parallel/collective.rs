//! Communication among ranks.

use serde::Serialize;

/// An operation that all ranks take part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every rank gets the sum of all ranks' values.
    AllReduce,
    /// Every rank gets its shard of that sum.
    ReduceScatter,
    /// Every rank gets all ranks' shards.
    AllGather,
}

impl Collective {
    /// Bytes that each rank sends in a ring for `values` values of `size` bytes each, cut into a chunk per rank (Patarasuk and Yuan, *Bandwidth
    /// optimal all-reduce algorithms for clusters of workstations*, 2009): `ranks − 1` rounds of one chunk to reduce and scatter, as many to
    /// gather, and both for an all-reduce. A rank receives as many.
    pub fn ring_bytes(self, values: u64, size: u64, ranks: u64) -> u64 {
        let rounds = ranks.saturating_sub(1);
        let chunk = values.div_ceil(ranks.max(1)) * size;
        match self {
            Collective::AllReduce => 2 * rounds * chunk,
            Collective::ReduceScatter | Collective::AllGather => rounds * chunk,
        }
    }
}

/// Bytes that one rank sent, by collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Bytes in all-reduces.
    pub all_reduce: u64,
    /// Bytes in reduce-scatters.
    pub reduce_scatter: u64,
    /// Bytes in all-gathers.
    pub all_gather: u64,
}

impl Sent {
    /// Bytes in all collectives.
    pub fn total(self) -> u64 {
        self.all_reduce + self.reduce_scatter + self.all_gather
    }

    pub(super) fn add(&mut self, collective: Collective, bytes: u64) {
        match collective {
            Collective::AllReduce => self.all_reduce += bytes,
            Collective::ReduceScatter => self.reduce_scatter += bytes,
            Collective::AllGather => self.all_gather += bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_all_reduce_is_a_reduce_scatter_and_an_all_gather() {
        for (values, ranks) in [(1000, 4), (1001, 4), (3, 8), (0, 5), (7, 1)] {
            let bytes = |collective: Collective| collective.ring_bytes(values, 2, ranks);
            let [all, scatter, gather] =
                [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather].map(bytes);
            assert_eq!(all, scatter + gather);
        }
        assert_eq!(Collective::AllReduce.ring_bytes(1000, 2, 4), 2 * 3 * 500);
        assert_eq!(Collective::AllGather.ring_bytes(1001, 2, 4), 3 * 502, "the last chunk is padded");
        assert_eq!(Collective::AllReduce.ring_bytes(1000, 4, 1), 0, "nobody to send to");
    }
}
