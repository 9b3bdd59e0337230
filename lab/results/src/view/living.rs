//! Finds the allocations that live after an event, without reading from the beginning.

/// Minimum number of beginnings between two lists.
const APART: usize = 4096;

/// Lists of what lived at some moments, between which lives are few.
///
/// Two lists are as many beginnings apart as the first has entries, and at least [`APART`]: so all lists together are about as long as the lives are
/// many, and what lives at a moment is found in time proportional to its number.
#[derive(Clone, Debug, Default)]
pub(super) struct Living {
    lists: Vec<List>,
}

#[derive(Clone, Debug)]
struct List {
    /// Number of lives that had begun.
    begun: usize,
    /// Numbers of those lives that had not ended when the last of them began.
    living: Vec<u32>,
}

impl Living {
    /// Makes lists for lives from `from` (in order) until before `to`.
    pub(super) fn new(from: &[u32], to: &[u32]) -> Self {
        let mut lists: Vec<List> = Vec::new();
        let (mut begun, mut apart) = (0, APART);
        while from.len() - begun > apart {
            let end = begun + apart;
            let now = from[end - 1];
            let before = lists.last().map_or(&[][..], |list| &list.living);
            let living = before.iter().copied().chain(begun as u32..end as u32);
            let living: Vec<u32> = living.filter(|&life| to[life as usize] > now).collect();
            (begun, apart) = (end, living.len().max(APART));
            lists.push(List { begun, living });
        }
        Self { lists }
    }

    /// Returns the numbers of the lives at a moment, in order of their beginning. The columns are those that the lists were made of.
    pub(super) fn at<'a>(&'a self, from: &'a [u32], to: &'a [u32], moment: u32) -> impl Iterator<Item = usize> + 'a {
        let begun = from.partition_point(|&from| from <= moment);
        let lists = self.lists.partition_point(|list| list.begun <= begun);
        let (before, rest) =
            lists.checked_sub(1).map_or((&[][..], 0), |last| (&self.lists[last].living[..], self.lists[last].begun));
        let there = before.iter().map(|&life| life as usize).chain(rest..begun);
        there.filter(move |&life| to[life] > moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lives_is_found_at_every_moment() {
        let from: Vec<u32> = (0..30_000).collect();
        let to: Vec<u32> = from.iter().map(|i| if i % 3 == 0 { u32::MAX } else { i + 1 + i * 37 % 500 }).collect();
        let living = Living::new(&from, &to);
        assert!(living.lists.len() > 3);
        let kept: usize = living.lists.iter().map(|list| list.living.len()).sum();
        assert!(kept < 2 * from.len(), "{kept}");
        for moment in [0, 1, 4095, 4096, 8191, 12_345, 29_999, 99_999] {
            let expected: Vec<usize> = (0..from.len()).filter(|&i| from[i] <= moment && to[i] > moment).collect();
            assert_eq!(living.at(&from, &to, moment).collect::<Vec<_>>(), expected, "{moment}");
        }
    }

    #[test]
    fn nothing_lives_before_the_first() {
        let living = Living::new(&[5], &[u32::MAX]);
        assert_eq!(living.at(&[5], &[u32::MAX], 4).count(), 0);
        assert_eq!(Living::new(&[], &[]).at(&[], &[], 0).count(), 0);
    }
}
