//! Cutting a network into stages.

use std::ops::Range;

use lab_base::error::{Error, Result};
use serde::Serialize;

/// Where a chain of pieces is cut into stages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// The largest stage has as few bytes of parameters as possible; of several such cuts, the one whose first stages are longest.
    #[default]
    Balanced,
    /// Before these pieces: one number fewer than there are stages, ascending.
    Before(Vec<usize>),
}

impl Cut {
    /// Returns the pieces of each of `stages` stages, for pieces with these bytes of parameters.
    ///
    /// # Errors
    /// [`Error::Usage`] if there are fewer pieces than stages, or a cut is at an impossible place.
    pub fn stages(&self, piece_bytes: &[u64], stages: usize) -> Result<Vec<Range<usize>>> {
        let pieces = piece_bytes.len();
        if stages == 0 || pieces < stages {
            let problem = format!("{stages} devices for a network of {pieces} pieces: each needs one at least");
            return Err(Error::usage("devices", problem));
        }
        let starts = match self {
            Cut::Balanced => balanced(piece_bytes, stages),
            Cut::Before(cuts) => {
                let ascending = cuts.windows(2).all(|pair| pair[0] < pair[1]);
                let inside = cuts.iter().all(|&cut| 0 < cut && cut < pieces);
                if cuts.len() + 1 != stages || !ascending || !inside {
                    let problem = format!(
                        "{cuts:?}: {} ascending numbers of pieces from 1 to {} are needed, one for each device but the first",
                        stages - 1,
                        pieces - 1
                    );
                    return Err(Error::usage("cut", problem));
                }
                std::iter::once(0).chain(cuts.iter().copied()).collect()
            }
        };
        let ends = starts.iter().skip(1).copied().chain([pieces]);
        Ok(starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect())
    }
}

/// Returns the first piece of each stage, for the balanced cut.
fn balanced(bytes: &[u64], stages: usize) -> Vec<usize> {
    let mut limits: Vec<u64> = Vec::new();
    for start in 0..bytes.len() {
        let mut sum = 0u64;
        for piece in &bytes[start..] {
            sum = sum.saturating_add(*piece);
            limits.push(sum);
        }
    }
    limits.sort_unstable();
    let smallest = limits.partition_point(|&limit| filled(bytes, stages, limit).is_none());
    limits.get(smallest).and_then(|&limit| filled(bytes, stages, limit)).unwrap_or_else(|| (0..stages).collect())
}

/// Fills stages from the first on, up to `limit` bytes each; `None` if pieces are left over.
fn filled(bytes: &[u64], stages: usize, limit: u64) -> Option<Vec<usize>> {
    let (mut starts, mut next) = (Vec::with_capacity(stages), 0);
    for stage in 0..stages {
        starts.push(next);
        let mut sum = 0u64;
        // Leaves at least one piece for each later stage.
        while next < bytes.len() - (stages - 1 - stage) && sum.saturating_add(bytes[next]) <= limit {
            sum += bytes[next];
            next += 1;
        }
        if next == starts[stage] {
            return None;
        }
    }
    (next == bytes.len()).then_some(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_stage_is_as_small_as_it_can_be() {
        let stages = |bytes: &[u64], n| -> Vec<Range<usize>> { Cut::Balanced.stages(bytes, n).unwrap() };
        assert_eq!(stages(&[4, 4, 4, 4], 2), [0..2, 2..4]);
        assert_eq!(stages(&[9, 1, 1, 1], 2), [0..1, 1..4]);
        assert_eq!(
            stages(&[2, 0, 0, 0, 160], 2),
            [0..4, 4..5],
            "pieces without parameters stay with what made their input"
        );
        assert_eq!(stages(&[0, 0, 0], 3), [0..1, 1..2, 2..3]);
        assert_eq!(stages(&[7], 1).first(), Some(&(0..1)));
        // Compared with every possible cut.
        let bytes = [5u64, 3, 8, 1, 1, 9, 2, 4];
        let largest = |cuts: &[usize]| {
            let bounds: Vec<usize> = std::iter::once(0).chain(cuts.iter().copied()).chain([bytes.len()]).collect();
            bounds.windows(2).map(|w| bytes[w[0]..w[1]].iter().sum::<u64>()).max().unwrap()
        };
        let best = (1..7).flat_map(|a| (a + 1..8).map(move |b| [a, b])).map(|cuts| largest(&cuts)).min().unwrap();
        let ours: Vec<usize> = stages(&bytes, 3)[1..].iter().map(|range| range.start).collect();
        assert_eq!(largest(&ours), best);
    }

    #[test]
    fn cuts_that_cannot_be_are_refused() {
        assert_eq!(Cut::Before(vec![1]).stages(&[1, 2, 3], 2).unwrap(), [0..1, 1..3]);
        for (cuts, stages) in [(vec![], 2), (vec![0], 2), (vec![3], 2), (vec![2, 1], 3), (vec![1, 1], 3)] {
            assert!(Cut::Before(cuts.clone()).stages(&[1, 2, 3], stages).is_err(), "{cuts:?}");
        }
        assert!(Cut::Balanced.stages(&[1, 2], 3).unwrap_err().to_string().contains("2 pieces"));
    }
}
