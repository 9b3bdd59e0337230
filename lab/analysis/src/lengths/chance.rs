//! How soon a shuffled epoch meets one of its long examples.

/// Chances of which an answer says the step.
pub const QUANTILES: [f64; 3] = [0.05, 0.5, 0.95];

/// A shuffled epoch in which some examples are marked: drawing without replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance {
    /// Examples of the epoch.
    pub count: usize,
    /// Those that are marked.
    pub marked: usize,
    /// Examples of a batch.
    pub batch: usize,
}

impl Chance {
    /// Chance that one of the first so many batches has a marked example.
    ///
    /// Source: the hypergeometric distribution, 1 − C(count − drawn, marked) / C(count, marked).
    pub fn within(&self, batches: usize) -> f64 {
        let drawn = batches.saturating_mul(self.batch).min(self.count);
        // Both products are the same fraction: the shorter one is computed.
        let (few, many) = (drawn.min(self.marked), drawn.max(self.marked));
        if few + many > self.count {
            return 1.0;
        }
        let none: f64 = (0..few).map(|i| 1.0 - many as f64 / (self.count - i) as f64).product();
        1.0 - none
    }

    /// The first batch, counted from 1, by which that has happened with this chance; `None` if an epoch does not reach it.
    pub fn batch_of(&self, chance: f64) -> Option<usize> {
        let last = self.count.div_ceil(self.batch.max(1));
        if self.within(last) < chance {
            return None;
        }
        let (mut before, mut by) = (0, last);
        while by - before > 1 {
            let middle = before + (by - before) / 2;
            if self.within(middle) < chance { before = middle } else { by = middle }
        }
        Some(by)
    }
}

#[cfg(test)]
mod tests {
    use lab_training::data::shuffle;

    use super::*;

    #[test]
    fn is_the_share_of_all_orders() {
        // Of 5 examples 2 are marked. The first two miss both in C(3,2) of C(5,2) cases.
        let chance = Chance { count: 5, marked: 2, batch: 2 };
        assert!((chance.within(1) - 0.7).abs() < 1e-12);
        assert_eq!((chance.within(0), chance.within(2), chance.within(9)), (0.0, 1.0, 1.0));
        assert_eq!([0.1, 0.7, 0.71, 1.0].map(|share| chance.batch_of(share)), [Some(1), Some(1), Some(2), Some(2)]);
        assert_eq!(Chance { marked: 0, ..chance }.batch_of(0.5), None);
    }

    #[test]
    fn is_what_shuffles_give() {
        let chance = Chance { count: 400, marked: 3, batch: 8 };
        let median = chance.batch_of(0.5).unwrap();
        let met = (0..4000).filter(|&seed| {
            let mut examples: Vec<usize> = (0..chance.count).collect();
            shuffle(&mut examples, seed);
            examples[..median * chance.batch].iter().any(|example| *example < chance.marked)
        });
        let share = met.count() as f64 / 4000.0;
        assert!((share - chance.within(median)).abs() < 0.03, "{share} {}", chance.within(median));
    }

    #[test]
    fn works_for_large_datasets() {
        let chance = Chance { count: 10_000_000, marked: 5_000_000, batch: 1 };
        assert!((chance.within(1) - 0.5).abs() < 1e-9);
        assert_eq!(Chance { marked: 1, batch: 32, ..chance }.batch_of(0.5), Some(156_250));
    }
}
