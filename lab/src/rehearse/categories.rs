//! Purpose of each allocation of a process, as far as PyTorch's own objects tell it.
//!
//! Nothing is guessed: an allocation that belongs to no known parameter, gradient, optimizer, batch or backward pass is `other`.

use std::collections::HashMap;

use lab_traces::snapshot::Snapshot;
use lab_traces::stacks::{Life, Role, lives};

use super::answers::Answer;

/// Upper bound of the difference between the clocks of PyTorch's traces and of Python, in microseconds.
const SLACK_US: i64 = 200;

/// Purposes of addresses, as one process reported them. Times are in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// For each address: the time, and what lay there.
    at: HashMap<u64, Vec<(i64, Role)>>,
    /// Start and end of each backward pass.
    backward: Vec<(i64, i64)>,
    /// Workspaces that PyTorch keeps for libraries: cards and addresses.
    workspaces: Vec<(usize, u64)>,
    /// For each step, cards with the numbers of allocations and of frees until its end; and the number of allocations until the snapshot, by card.
    marks: Vec<Vec<(usize, u64, u64)>>,
    made: Vec<(usize, u64)>,
    /// True if the process reported the addresses of an optimizer's tensors at least once.
    pub(super) anything: bool,
}

impl Told {
    pub(super) fn from_answer(answer: &Answer) -> Self {
        let mut at: HashMap<u64, Vec<(i64, Role)>> = HashMap::new();
        for held in &answer.held {
            let kinds = [
                (&held.parameter, Role::Parameter),
                (&held.gradient, Role::Gradient),
                (&held.optimizer, Role::Optimizer),
                (&held.buffer, Role::Buffer),
            ];
            for (addresses, role) in kinds {
                addresses.iter().for_each(|address| at.entry(*address).or_default().push((held.time_us, role)));
            }
        }
        for (address, time_us) in &answer.inputs {
            at.entry(*address).or_default().push((*time_us, Role::Input));
        }
        let backward = answer.backward.iter().map(|(from, to)| (*from, to.unwrap_or(i64::MAX))).collect();
        Self {
            at,
            backward,
            workspaces: answer.workspaces.clone(),
            marks: answer.growth.marks.clone(),
            made: answer.cards.iter().map(|card| (card.index, card.made)).collect(),
            anything: !answer.held.is_empty(),
        }
    }

    /// True if the allocation was saved for a backward pass: it was made before the pass began, and freed during it.
    fn is_saved(&self, made_us: i64, freed_us: i64) -> bool {
        if freed_us == i64::MAX {
            return false;
        }
        let begun = self.backward.partition_point(|(from, _)| *from <= freed_us);
        let last = begun.checked_sub(1).and_then(|last| self.backward.get(last));
        last.is_some_and(|(from, to)| made_us < *from && freed_us <= *to)
    }

    /// Returns all allocations of a card, and the purpose of each.
    pub(super) fn roles(&self, snapshot: &Snapshot, device: usize) -> (Vec<Life>, Vec<Role>) {
        let (lives, trace) = (lives(snapshot, device), snapshot.trace(device));
        let time = |entry: usize| trace.get(entry).map_or(0, |event| event.time_us);
        // Allocations from before the trace have an unknown start: they count as made at time 0.
        let span =
            |life: &Life| Span { made_us: life.made.map_or(0, time), freed_us: life.freed.map_or(i64::MAX, time) };
        let spans: Vec<Span> = lives.iter().map(span).collect();
        let addresses: Vec<u64> = lives.iter().map(|life| life.address).collect();
        let mut roles = self.roles_of(&addresses, &spans);
        self.name_the_rest(snapshot, device, &lives, &mut roles);
        (lives, roles)
    }

    /// Returns the numbers of allocations and of frees on a card until the end of each step.
    fn marks_of(&self, device: usize) -> impl Iterator<Item = (u64, u64)> {
        let of_card = move |marks: &Vec<(usize, u64, u64)>| marks.iter().find(|mark| mark.0 == device).copied();
        self.marks.iter().filter_map(of_card).map(|(_, made, freed)| (made, freed))
    }

    /// Returns the number of allocations on a card until the end of each step.
    pub(super) fn ends(&self, device: usize) -> Vec<u64> {
        self.marks_of(device).map(|(made, _)| made).collect()
    }

    /// Names what no object of PyTorch holds: workspaces, and what lives at no end of a step.
    fn name_the_rest(&self, snapshot: &Snapshot, device: usize, lives: &[Life], roles: &mut [Role]) {
        let marks: Vec<(u64, u64)> = self.marks_of(device).collect();
        let made = self.made.iter().find(|(card, _)| *card == device).map_or(0, |(_, made)| *made);
        let ends = snapshot.ends_at(device, &marks, made);
        for (life, role) in lives.iter().zip(roles).filter(|(_, role)| **role == Role::Other) {
            if life.freed.is_none() && self.workspaces.contains(&(device, life.address)) {
                *role = Role::Workspace;
                continue;
            }
            // The end of the next step, if there is one: in steps that were not seen to the end nothing is said.
            let next = ends.get(ends.partition_point(|end| *end <= life.made.unwrap_or(0)));
            if next.is_some_and(|end| life.freed.is_some_and(|freed| freed < *end)) {
                *role = Role::Temporary;
            }
        }
    }

    /// Returns the purposes of allocations, given by address and span in the order in which they were made.
    fn roles_of(&self, addresses: &[u64], spans: &[Span]) -> Vec<Role> {
        let mut at: HashMap<u64, Vec<usize>> = HashMap::new();
        for (life, address) in addresses.iter().enumerate().filter(|(_, address)| self.at.contains_key(address)) {
            at.entry(*address).or_default().push(life);
        }
        let mut roles = vec![Role::Other; spans.len()];
        for (address, told) in &self.at {
            let here = at.get(address).map_or(&[][..], Vec::as_slice);
            for (time, role) in told {
                if let Some(life) = living(here, spans, *time) {
                    roles[life] = roles[life].min(*role);
                }
            }
        }
        for (role, span) in roles.iter_mut().zip(spans) {
            if *role == Role::Other && self.is_saved(span.made_us, span.freed_us) {
                *role = Role::Activation;
            }
        }
        roles
    }
}

/// Lifetime of an allocation, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Span {
    made_us: i64,
    freed_us: i64,
}

/// Returns the allocation, among those that one address had, that lived at `time`. Allows for the clocks' difference of [`SLACK_US`].
fn living(here: &[usize], spans: &[Span], time: i64) -> Option<usize> {
    let distance = |life: usize| {
        let Span { made_us, freed_us } = spans[life];
        made_us.saturating_sub(time).max(time.saturating_sub(freed_us)).max(0)
    };
    // Only two are possible: the last allocation made until then, and the next one. Earlier ones have ended.
    let next = here.partition_point(|life| spans[*life].made_us <= time);
    let near = here[next.saturating_sub(1)..].iter().copied().take(2);
    near.filter(|life| distance(*life) <= SLACK_US).min_by_key(|life| distance(*life))
}

#[cfg(test)]
mod tests {
    use super::super::answers::Held;
    use super::*;

    /// Returns the purposes of allocations at one address, given the times when each was made and freed.
    fn roles(told: &Told, address: u64, spans: &[(i64, i64)]) -> Vec<Role> {
        let spans: Vec<Span> = spans.iter().map(|&(made_us, freed_us)| Span { made_us, freed_us }).collect();
        told.roles_of(&vec![address; spans.len()], &spans)
    }

    #[test]
    fn an_address_is_of_a_kind_only_while_that_lives_there() {
        let held = Held { time_us: 10_000, gradient: vec![64], ..Held::default() };
        let told = Told::from_answer(&Answer { held: vec![held], ..Answer::default() });
        let lives = [(1_000, 2_000), (5_000, 10_050), (11_000, i64::MAX)];
        assert_eq!(roles(&told, 64, &lives), [Role::Other, Role::Gradient, Role::Other], "before and after, another's");
        assert_eq!(roles(&told, 64, &[(1_000, 9_990), (9_995, i64::MAX)]), [Role::Other, Role::Gradient]);
        assert_eq!(roles(&told, 64, &[(1_000, 9_900)]), [Role::Gradient], "clocks differ a little");
        assert_eq!(roles(&told, 65, &[(5_000, i64::MAX)]), [Role::Other]);
    }

    #[test]
    fn what_a_backward_pass_lets_go_of_was_saved_for_it() {
        let backward = vec![(10_000, Some(20_000)), (30_000, None)];
        let told = Told::from_answer(&Answer { backward, inputs: vec![(7, 5_000)], ..Answer::default() });
        let role = |address, made, freed| roles(&told, address, &[(made, freed)])[0];
        assert_eq!(role(64, 5_000, 15_000), Role::Activation);
        assert_eq!(role(64, 5_000, 9_000), Role::Other, "freed before");
        assert_eq!(role(64, 12_000, 15_000), Role::Other, "made by the backward pass itself");
        assert_eq!(role(64, 5_000, 25_000), Role::Other, "held by the script");
        assert_eq!(role(64, 25_000, 40_000), Role::Activation, "by one that did not end");
        assert_eq!(role(64, 5_000, i64::MAX), Role::Other);
        assert_eq!(role(7, 4_900, 15_000), Role::Input, "whatever else was done with it");
    }
}
