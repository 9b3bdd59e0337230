//! The smallest combinations of changes that reach a goal.
//!
//! Combinations are tried from the smallest on: by the sum of their sizes, then by their number of changes. A combination that contains all changes
//! of a smaller one that reached the goal is not tried, so every result is minimal. What is tried, and in which order, does not depend on the clock
//! or on threads.

use std::collections::HashMap;

use crate::side_by_side;

/// A possible change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Axis of the change. A combination has at most one move per axis; the moves of an axis are listed from the smallest on, and the last goes
    /// furthest.
    pub axis: usize,
    /// Size of the change.
    pub size: u32,
    /// Whether more of it never hurts: if all such changes together miss the goal, no selection of them is tried.
    pub helps: Helps,
}

/// Effect of a change, as far as it is known before trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helps {
    /// Never needs more memory.
    Always,
    /// May need more memory.
    Often,
    /// Unknown: combinations with this change are judged separately from those without.
    Unknown,
}

/// Result of trying a combination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The goal was reached.
    Reached(T),
    /// The goal was missed.
    Missed,
    /// The changes cannot be combined.
    Impossible,
}

/// Limits of a search.
pub struct Limits<'a> {
    /// The most changes at once.
    pub moves: usize,
    /// Number of combinations that reach the goal after which the search ends.
    pub enough: usize,
    /// Cost of trying after which the search ends.
    pub work: u64,
    /// Whether to stop.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Enough combinations reached the goal.
    Enough,
    /// Nothing was left to try.
    AllTried,
    /// The limit of work was reached.
    Work,
    /// A stop was requested.
    Stopped,
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// Indices of the moves, with their results; the smallest combination first.
    pub reached: Vec<(Vec<usize>, T)>,
    /// Number of combinations tried.
    pub tried: usize,
    /// Why the search ended.
    pub end: End,
}

/// Number of combinations tried at a time, however many threads there are.
const WAVE: usize = 8;

/// A result and its cost.
pub type Costly<T, E> = Result<(T, u64), E>;

/// Answers a question about a combination.
pub type Attempt<'a, T, E> = dyn Fn(&[usize]) -> Costly<T, E> + Sync + 'a;

/// Goal of a search.
pub struct Goal<'a, T, E> {
    /// Tries a combination.
    pub attempt: &'a Attempt<'a, Outcome<T>, E>,
    /// Whether a combination may reach the goal. Cheaper than trying, and false only if it certainly misses the goal.
    pub may_reach: &'a Attempt<'a, bool, E>,
}

/// Returns the smallest combinations that reach the goal.
///
/// # Errors
/// The first error of an attempt.
pub fn smallest<T: Clone + Send, E: Send>(
    moves: &[Move],
    limits: &Limits<'_>,
    goal: &Goal<'_, T, E>,
) -> Result<Found<T>, E> {
    let (known, bounds) = (HashMap::new(), HashMap::new());
    let (reached, impossible) = (Vec::new(), Vec::new());
    let mut search = Search { moves, limits, goal, known, bounds, reached, impossible, work: 0 };
    let singles: Vec<Vec<usize>> = (0..moves.len()).map(|i| vec![i]).collect();
    search.try_all(&singles)?;
    let mut wave = Vec::new();
    let combinations = combinations(moves, limits.moves);
    for (at, combination) in combinations.iter().enumerate() {
        if search.ended().is_some() {
            break;
        }
        if !search.is_open(combination) || search.is_hopeless(&combinations[at..])? {
            continue;
        }
        wave.push(combination.clone());
        if wave.len() == WAVE {
            search.judge(&std::mem::take(&mut wave))?;
        }
    }
    search.judge(&wave)?;
    let end = search.ended().unwrap_or(End::AllTried);
    if end == End::Work {
        // Single changes were all tried, also those that the search did not come to.
        search.keep_known(&combinations);
    }
    search.reached.truncate(limits.enough);
    Ok(Found { reached: search.reached, tried: search.known.len(), end })
}

struct Search<'a, T, E> {
    moves: &'a [Move],
    limits: &'a Limits<'a>,
    goal: &'a Goal<'a, T, E>,
    known: HashMap<Vec<usize>, Outcome<T>>,
    /// For some changes: whether they may reach the goal together with everything that helps.
    bounds: HashMap<Vec<usize>, bool>,
    reached: Vec<(Vec<usize>, T)>,
    impossible: Vec<Vec<usize>>,
    work: u64,
}

impl<T: Clone + Send, E: Send> Search<'_, T, E> {
    fn ended(&self) -> Option<End> {
        match () {
            () if (self.limits.stop)() => Some(End::Stopped),
            () if self.reached.len() >= self.limits.enough => Some(End::Enough),
            () if self.work >= self.limits.work => Some(End::Work),
            () => None,
        }
    }

    /// Tries the combinations whose results are not known yet.
    fn try_all(&mut self, combinations: &[Vec<usize>]) -> Result<(), E> {
        let new: Vec<&Vec<usize>> = combinations
            .iter()
            .enumerate()
            .filter(|(i, one)| !combinations[..*i].contains(one))
            .map(|(_, one)| one)
            .filter(|one| !self.known.contains_key(*one))
            .collect();
        let outcomes = side_by_side(&new, self.limits.stop, |combination| (self.goal.attempt)(combination));
        for (combination, outcome) in new.into_iter().zip(outcomes) {
            let Some(outcome) = outcome else { continue };
            let (outcome, work) = outcome?;
            self.work += work;
            if matches!(outcome, Outcome::Impossible) {
                self.impossible.push(combination.clone());
            }
            self.known.insert(combination.clone(), outcome);
        }
        Ok(())
    }

    /// Tries combinations, and keeps those that reach the goal, in order.
    fn judge(&mut self, wave: &[Vec<usize>]) -> Result<(), E> {
        self.try_all(wave)?;
        self.keep_known(wave);
        Ok(())
    }

    /// Keeps what is known to reach the goal, of these combinations in their order.
    fn keep_known(&mut self, combinations: &[Vec<usize>]) {
        for combination in combinations {
            if let Some(Outcome::Reached(value)) = self.known.get(combination)
                && !self.is_more_than_needed(combination)
            {
                self.reached.push((combination.clone(), value.clone()));
            }
        }
    }

    /// Whether a smaller combination already reached the goal.
    fn is_more_than_needed(&self, combination: &[usize]) -> bool {
        self.reached.iter().any(|(smaller, _)| self.covers(combination, smaller))
    }

    /// Whether `larger` goes at least as far as `smaller` on each axis that `smaller` changes.
    fn covers(&self, larger: &[usize], smaller: &[usize]) -> bool {
        let axis = |i: usize| self.moves[i].axis;
        smaller.iter().all(|&s| larger.iter().any(|&l| axis(l) == axis(s) && l >= s))
    }

    fn is_impossible(&self, combination: &[usize]) -> bool {
        self.impossible.iter().any(|part| part.iter().all(|i| combination.contains(i)))
    }

    /// Whether a combination may be one of the smallest, as far as that is known without another try.
    fn is_open(&self, combination: &[usize]) -> bool {
        let missed = matches!(self.known.get(combination), Some(Outcome::Missed | Outcome::Impossible));
        !missed && !self.is_more_than_needed(combination) && !self.is_impossible(combination)
    }

    /// Whether the first of these combinations misses the goal even with everything that helps.
    fn is_hopeless(&mut self, next: &[Vec<usize>]) -> Result<bool, E> {
        if self.known.contains_key(&next[0]) {
            return Ok(false);
        }
        let always = self.furthest(Helps::Always);
        let often = [always.as_slice(), &self.furthest(Helps::Often)].concat();
        for helpful in [&always, &often] {
            let bound = self.bound(&next[0], helpful);
            if !self.bounds.contains_key(&bound) {
                self.find_bounds(next, &always, helpful)?;
            }
            if self.bounds.get(&bound) == Some(&true) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The moves of a combination that do not surely help, and everything helpful.
    fn bound(&self, combination: &[usize], helpful: &[usize]) -> Vec<usize> {
        let kept = combination.iter().filter(|i| self.moves[**i].helps == Helps::Unknown);
        let mut bound: Vec<usize> = kept.chain(helpful).copied().collect();
        bound.sort_unstable();
        bound
    }

    /// Finds whether the first of these combinations may reach the goal together with everything helpful, and beside it the same for some that follow: one
    /// after the other, these would be most of a search's time.
    fn find_bounds(&mut self, next: &[Vec<usize>], always: &[usize], helpful: &[usize]) -> Result<(), E> {
        let mut new: Vec<Vec<usize>> = Vec::new();
        for one in next {
            // What may reach the goal with what always helps needs no other bound.
            let may = self.bounds.get(&self.bound(one, always)) == Some(&true);
            if may || self.known.contains_key(one) || !self.is_open(one) {
                continue;
            }
            let bound = self.bound(one, helpful);
            if !self.bounds.contains_key(&bound) && !new.contains(&bound) {
                new.push(bound);
            }
            if new.len() == WAVE {
                break;
            }
        }
        let found = side_by_side(&new, self.limits.stop, |bound| (self.goal.may_reach)(bound));
        for (bound, found) in new.into_iter().zip(found) {
            let Some(found) = found else { continue };
            let (may, work) = found?;
            self.work += work;
            self.bounds.insert(bound, may);
        }
        Ok(())
    }

    /// Returns the last possible move of each axis whose moves help in this way.
    fn furthest(&self, helps: Helps) -> Vec<usize> {
        let possible: Vec<usize> = (0..self.moves.len()).filter(|i| !self.is_impossible(&[*i])).collect();
        let is_last = |i: &usize| !possible.iter().any(|j| j > i && self.moves[*j].axis == self.moves[*i].axis);
        possible.iter().copied().filter(|i| self.moves[*i].helps == helps && is_last(i)).collect()
    }
}

/// Returns every combination of at most `most` moves, the smallest first.
fn combinations(moves: &[Move], most: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for (i, one) in moves.iter().enumerate() {
        let free = |taken: &&Vec<usize>| taken.len() < most && taken.iter().all(|t| moves[*t].axis != one.axis);
        let with: Vec<Vec<usize>> =
            all.iter().filter(free).map(|taken| taken.iter().copied().chain([i]).collect()).collect();
        all.extend(with);
    }
    all.retain(|combination| !combination.is_empty());
    let size = |combination: &[usize]| combination.iter().map(|i| u64::from(moves[*i].size)).sum::<u64>();
    all.sort_by_cached_key(|combination| (size(combination), combination.len(), combination.clone()));
    all
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn moves(sizes: &[(usize, u32, Helps)]) -> Vec<Move> {
        sizes.iter().map(|&(axis, size, helps)| Move { axis, size, helps }).collect()
    }

    fn limits(enough: usize, work: u64) -> Limits<'static> {
        Limits { moves: 4, enough, work, stop: &|| false }
    }

    /// A need of 100 that each move lowers; the goal is 50.
    fn found(moves: &[Move], saves: &[i64], limits: &Limits<'_>) -> (Found<i64>, usize) {
        let runs = AtomicUsize::new(0);
        let attempt = |combination: &[usize]| -> Result<(Outcome<i64>, u64), ()> {
            runs.fetch_add(1, Ordering::Relaxed);
            let need = 100 - combination.iter().map(|i| saves[*i]).sum::<i64>();
            let outcome = match need {
                _ if combination == [0, 3] => Outcome::Impossible,
                ..=50 => Outcome::Reached(need),
                _ => Outcome::Missed,
            };
            Ok((outcome, 1))
        };
        let may_reach = |combination: &[usize]| match attempt(combination)? {
            (Outcome::Missed, work) => Ok((false, work)),
            (_, work) => Ok((true, work)),
        };
        let goal = Goal { attempt: &attempt, may_reach: &may_reach };
        (smallest(moves, limits, &goal).unwrap(), runs.into_inner())
    }

    #[test]
    fn the_smallest_come_first_and_none_has_more_than_it_needs() {
        use Helps::{Always, Unknown};
        let moves = moves(&[(0, 1, Always), (1, 2, Always), (2, 4, Always), (2, 5, Always), (3, 16, Unknown)]);
        let (found, _) = found(&moves, &[10, 25, 20, 40, 60], &limits(9, 1000));
        // 0 and 3 do not go together; 4 alone does it; 0, 1 and 2 only all three, which are as large as 1 and 3, and more.
        let sets: Vec<&[usize]> = found.reached.iter().map(|(set, _)| set.as_slice()).collect();
        assert_eq!(sets, [&[1, 3][..], &[0, 1, 2], &[4]]);
        assert_eq!((found.reached[1].1, found.end), (45, End::AllTried));
    }

    #[test]
    fn what_cannot_suffice_is_not_tried() {
        let cheap = [(0, 1), (1, 2), (2, 2), (3, 2), (4, 2)].map(|(axis, size)| (axis, size, Helps::Always));
        let moves = moves(&[&cheap[..], &[(5, 32, Helps::Unknown)]].concat());
        let (found, runs) = found(&moves, &[1, 1, 1, 1, 1, 50], &limits(3, 1000));
        assert_eq!(found.reached, [(vec![5], 50)]);
        assert!(
            runs < 6 + 2 + WAVE,
            "{runs} of 63: the single ones, all together, and what is tried beside the one that is enough"
        );
    }

    #[test]
    fn a_change_that_may_take_more_is_left_out_of_the_bound_too() {
        let moves = moves(&[(0, 1, Helps::Always), (1, 2, Helps::Always), (2, 4, Helps::Often)]);
        let (found, _) = found(&moves, &[30, 30, -40], &limits(3, 1000));
        assert_eq!(found.reached, [(vec![0, 1], 40)]);
    }

    #[test]
    fn work_ends_a_search_and_that_is_said() {
        let sizes: Vec<_> = (0..12).map(|axis| (axis, 1, Helps::Unknown)).collect();
        let (found, runs) = found(&moves(&sizes), &[0; 12], &limits(3, 40));
        assert_eq!((found.end, found.reached.len()), (End::Work, 0));
        assert!((40..40 + 2 * WAVE).contains(&runs), "{runs}");
    }
}
