//! A figure after each event, with the extremes of any range at hand.

use std::ops::Range;

/// Events whose extremes are kept together.
const TOGETHER: usize = 1024;

/// Bytes after each event.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    values: Vec<u64>,
    /// Lowest and highest of each [`TOGETHER`] events.
    extremes: Vec<(u64, u64)>,
}

impl Curve {
    pub(super) fn from_values(values: Vec<u64>) -> Self {
        let extremes = values.chunks(TOGETHER).filter_map(extremes_of).collect();
        Self { values, extremes }
    }

    /// Returns the bytes after an event; 0 for an event that does not exist.
    pub fn at(&self, event: u32) -> u64 {
        self.values.get(event as usize).copied().unwrap_or(0)
    }

    /// Returns the lowest and the highest value of the events in a range, as far as they exist; zeros for an empty range.
    pub fn extremes(&self, range: Range<usize>) -> (u64, u64) {
        let (from, to) = (range.start.min(self.values.len()), range.end.min(self.values.len()));
        // Whole groups between the ends.
        let (first, last) = (from.div_ceil(TOGETHER), to / TOGETHER);
        if from >= to || first >= last {
            return self.values.get(from..to).and_then(extremes_of).unwrap_or_default();
        }
        let ends = [&self.values[from..first * TOGETHER], &self.values[last * TOGETHER..to]];
        let within = self.extremes[first..last].iter().copied();
        within.chain(ends.into_iter().filter_map(extremes_of)).reduce(joined).unwrap_or_default()
    }
}

fn extremes_of(values: &[u64]) -> Option<(u64, u64)> {
    values.iter().map(|&value| (value, value)).reduce(joined)
}

fn joined(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    (a.0.min(b.0), a.1.max(b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_of_a_range_are_those_of_its_values() {
        let values: Vec<u64> = (0..5000u64).map(|i| i * 7919 % 5003).collect();
        let curve = Curve::from_values(values.clone());
        for range in [0..0, 0..1, 3..1024, 1024..2048, 1000..1030, 1..4999, 0..5000, 2047..4100, 4999..9000] {
            let there = &values[range.start.min(5000)..range.end.min(5000)];
            let expected = (there.iter().min(), there.iter().max());
            let found = curve.extremes(range.clone());
            assert_eq!(
                (Some(&found.0), Some(&found.1)),
                (expected.0.or(Some(&0)), expected.1.or(Some(&0))),
                "{range:?}"
            );
        }
        assert_eq!((curve.at(3), curve.at(5000)), (values[3], 0));
    }
}
