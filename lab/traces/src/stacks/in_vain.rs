//! Memory that a forward pass keeps for a backward pass which does not come: an evaluation without `torch.no_grad()`.

use rustc_hash::FxHashSet;

use super::guess::Guesses;
use super::phase::Phase;

/// Fewest allocations, and fewest places that made them, that tell a graph from results that are collected.
const MIN_ALLOCATIONS: usize = 8;
const MIN_PLACES: usize = 6;
/// What is kept is so many times its largest part, or more: without a graph a forward pass holds only the neighbours of one operation.
const TIMES_LARGEST: u64 = 4;

/// Returns the bytes that live after an entry, were made in its forward pass, and are freed before any backward pass begins; 0 unless they are so many,
/// from so many places, as only a graph keeps. 0 also in a trace without backward passes: nothing tells that one could have come.
pub fn kept_in_vain(guesses: &Guesses, entry: usize) -> u64 {
    let is_backward = |phase: &Option<Phase>| matches!(phase, Some(Phase::Backward | Phase::Recompute));
    if guesses.roles_are_told || guesses.phase(entry) != Some(Phase::Forward) || !guesses.phases.iter().any(is_backward)
    {
        return 0;
    }
    let of_the_pass = |phase: &Option<Phase>| matches!(phase, Some(Phase::Forward | Phase::Input) | None);
    let begin = guesses.phases[..entry].iter().rposition(|phase| !of_the_pass(phase)).map_or(0, |last| last + 1);
    let next = guesses.phases[entry..].iter().position(is_backward).map_or(usize::MAX, |next| entry + next);
    let (mut sum, mut largest, mut count) = (0u64, 0, 0);
    let mut places = FxHashSet::default();
    for life in guesses.lives.iter().filter(|life| life.lives_after(Some(entry))) {
        let made = life.made.is_some_and(|made| made >= begin && guesses.phase(made) == Some(Phase::Forward));
        if made && life.freed.is_some_and(|freed| freed < next) {
            sum = sum.saturating_add(life.bytes);
            largest = largest.max(life.bytes);
            count += 1;
            places.insert(life.stack);
        }
    }
    let is_a_graph =
        count >= MIN_ALLOCATIONS && places.len() >= MIN_PLACES && sum >= TIMES_LARGEST.saturating_mul(largest);
    if is_a_graph { sum } else { 0 }
}
