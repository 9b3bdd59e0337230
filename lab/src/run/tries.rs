//! Changes that would make a run fit, or need less memory: a search over its fields, in which every candidate is a dry run.
//!
//! The smallest change comes first: a setting outside of the script, one line of it, a batch in parts, other numeric types, another optimizer, a shorter
//! sequence; combinations of a few small changes come before a large one.

mod nearest;
mod single;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use lab_analysis::combine::{End, Found, Goal, Limits, Move, Outcome, smallest};
use lab_base::error::{Error, Result};
use lab_base::figures::{counted, short};
use lab_base::section::{MOST, NOT_HERE, Tries, Try};
use lab_results::{TIGHT, command};
use lab_training::OptimizerKind;
use memcore::memory::Needs;
use serde_json::{Map, Value};

use super::changes::{self, Axis, Change};
use super::dry_runner::{BeforeTraining, DryRunner};
use super::network::Network;
use super::request_cache::has_no_temporaries;
use super::session::Session;
use super::spec::{ParallelSpec, RunSpec};

/// Largest number of changes at once.
const MOST_CHANGES: usize = 5;

/// Allocations after which a search ends: about a second of a release build on one processor. It counts work, not time, so that an answer is the same on every
/// machine.
const WORK: u64 = 1_000_000;

/// A network may have parameters without a gradient, but not as many as these: what certainly does not fit takes so many times the memory.
const UNUSED: f64 = 1.1;

/// A search for changes of a run.
pub struct TrySearch<'a> {
    /// Maker of the dry runs.
    pub runner: &'a DryRunner<'a>,
    /// The run.
    pub spec: &'a RunSpec,
    /// Its resolved form.
    pub session: &'a Session,
    /// The command that repeats it: `predict`, `train`.
    pub command: &'a str,
    /// Memory of the device, if the run is on one. The changed runs are dry runs with as much memory.
    pub instead: Option<u64>,
}

/// Memory that a changed run must fit into.
#[derive(Clone, Copy)]
struct Room {
    bytes: u64,
    /// True if it must hold what cuDNN may take besides.
    for_cudnn: bool,
}

impl Room {
    /// True if a run that takes so many bytes at least certainly does not fit.
    fn lacks(self, least: u64) -> bool {
        least as f64 > UNUSED * self.bytes as f64
    }
}

/// The changes that may be made of a run.
struct Allowed {
    changes: Vec<Change>,
    /// Bytes of the run's parameters, if all of them are trained, on one device.
    trained: Option<u64>,
    /// States of a parameter's size and type that the run's optimizer has of each, at least.
    states: u64,
}

impl Allowed {
    /// Bytes that the run takes after any of the chosen changes or all of them: parameters and the optimizer's states, and at the end of the backward pass a
    /// gradient of each, unless steps free it. Other numeric types may halve them. `None` if a change trains adapters instead.
    fn least(&self, chosen: &[usize]) -> Option<u64> {
        let has = |axis: Axis| chosen.iter().any(|i| self.changes[*i].axis() == axis);
        let each = if has(Axis::Precision) || has(Axis::InBackward) { 1 } else { 2 };
        let has_own_states = !has(Axis::Optimizer) && !has(Axis::LargerOptimizer);
        let states = if has_own_states { self.states } else { 0 };
        let halves = 2 * each + if has(Axis::Precision) { states } else { 2 * states };
        self.trained.filter(|_| !has(Axis::Adapters)).map(|bytes| halves * bytes / 2)
    }
}

/// Combinations that are tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    All,
    /// Those that train adapters, with the run's own types, optimizer and length.
    Adapters,
}

/// True for changes that change the training, but for adapters.
fn changes_the_training(axis: Axis) -> bool {
    matches!(axis, Axis::Sequence | Axis::Precision | Axis::Optimizer | Axis::LargerOptimizer)
}

/// True if two of these changes cannot be made beside each other.
fn exclude_each_other(changes: &[Change], made: &[usize]) -> bool {
    let axis = |i: &usize| changes[*i].axis();
    made.iter().enumerate().any(|(at, one)| made[..at].iter().any(|other| axis(other).excludes(axis(one))))
}

/// States of a parameter's size and type that an optimizer surely has of each. Others have smaller ones, or have them on the host.
fn states(kind: OptimizerKind) -> u64 {
    use OptimizerKind::{Adam, AdamW, Adamax, Momentum, NAdam, NAdamW, RAdam, RAdamW};
    match kind {
        Adam | AdamW | Adamax | NAdam | NAdamW | RAdam | RAdamW => 2,
        Momentum => 1,
        _ => 0,
    }
}

/// Results of runs that were already made.
type Made = Mutex<HashMap<Vec<usize>, Option<Needs>>>;

impl TrySearch<'_> {
    /// Returns the smallest changes with which the run fits with some memory left.
    ///
    /// # Errors
    /// Those of runs; [`Error::Interrupted`].
    pub fn that_fit(&self, budget_bytes: u64) -> Result<Tries> {
        let before = self.runner.before_training(&self.tried(self.spec.clone()))?;
        let states = states(self.session.run.optimizer.kind);
        let allowed = Allowed { changes: self.changes(before.tensors), trained: self.trained(before), states };
        // What fits surely: a card may reserve more than was said.
        let sure = self.spec.basis().band().surely(budget_bytes);
        let room = ((budget_bytes as f64 * (1.0 - TIGHT)) as u64).min(sure);
        let unasked = Room { bytes: sure, for_cudnn: false };
        let all: Vec<usize> = (0..allowed.changes.len()).collect();
        if let Some(least) = allowed.least(&all).filter(|least| unasked.lacks(*least)) {
            let order =
                format!("Nothing here makes it fit: parameters and their gradients alone take {}", short(least));
            return Ok(Tries { order, not_here: NOT_HERE.into(), ..Tries::default() });
        }
        let made = Made::default();
        let whole = Room { for_cudnn: self.runner.convolves(&self.tried(self.spec.clone()))?, ..unasked };
        let mut found = self.within(&allowed, Room { bytes: room, ..whole }, &made, Of::All)?;
        if found.reached.is_empty() && matches!(found.end, End::Work) {
            // What is left of the time is for adapters, which the search may not have come to.
            found.reached = self.within(&allowed, whole, &made, Of::Adapters)?.reached;
        }
        if found.reached.is_empty() {
            // Little memory left is better than no answer.
            found = self.within(&allowed, whole, &made, Of::All)?;
        }
        let is_in_doubt = whole.for_cudnn && found.reached.is_empty();
        let unsure = Room { bytes: room, for_cudnn: false };
        if is_in_doubt {
            found = self.within(&allowed, unsure, &made, Of::All)?;
        }
        self.beside_adapters(&allowed, if is_in_doubt { unsure } else { whole }, &made, &mut found)?;
        if (self.runner.stop)() {
            return Err(Error::Interrupted);
        }
        let chosen: Vec<Vec<usize>> = found.reached.into_iter().map(|(made, ())| made).collect();
        let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut entries = Vec::new();
        for chosen in &chosen {
            if let Some(Needs { allocated_bytes, reserved_bytes }) = made.get(chosen).copied().flatten() {
                let left_bytes = Some(budget_bytes.saturating_sub(reserved_bytes));
                let (peak_bytes, reserved_bytes) = (Some(allocated_bytes), Some(reserved_bytes));
                entries.push(Try { peak_bytes, reserved_bytes, left_bytes, ..self.entry(&allowed.changes, chosen) });
            }
        }
        let order = match entries.is_empty() {
            true => format!("Nothing that was tried makes it fit ({})", counted(found.tried as u64, "combination")),
            false if is_in_doubt => "Try, the smallest change first (each was run; cuDNN may need more)".into(),
            false => "Try, the smallest change first (each was run)".into(),
        };
        let search = match found.end {
            _ if entries.is_empty() => self.nearest(&allowed.changes)?,
            // A full list needs no others.
            End::Work if entries.len() < MOST => format!(
                "The search ended at its limit of work, after {}; there may be others.",
                counted(found.tried as u64, "combination")
            ),
            End::Work | End::Enough | End::AllTried | End::Stopped => String::new(),
        };
        Ok(Tries { order, entries, search, not_here: NOT_HERE.into() })
    }

    fn changes(&self, tensors: u64) -> Vec<Change> {
        let mut all = changes::proposed(self.spec, self.session, tensors);
        all.retain(Change::may_save);
        all
    }

    /// Bytes of the parameters, if all of them are trained, on one device.
    fn trained(&self, before: BeforeTraining) -> Option<u64> {
        let training = &self.spec.training;
        let trains_all = match &self.session.network {
            Network::Exported(model, _) => model.trains_all(),
            Network::Architecture(_) | Network::Pretrained(..) => true,
        };
        let whole = trains_all
            && training.freeze.is_none()
            && training.lora.is_none()
            && self.spec.parallel == ParallelSpec::default();
        whole.then_some(before.parameter_bytes)
    }

    /// Adapters are what many people take first, and the largest change here: the smallest changes with them have the last place, if none of the others
    /// is a part of them.
    fn beside_adapters(&self, allowed: &Allowed, room: Room, made: &Made, found: &mut Found<()>) -> Result<()> {
        let adapts = |set: &[usize]| set.iter().any(|i| allowed.changes[*i].axis() == Axis::Adapters);
        if found.reached.is_empty() || found.reached.iter().any(|(set, ())| adapts(set)) {
            return Ok(());
        }
        let more = self.within(allowed, room, made, Of::Adapters)?;
        let Some((set, ())) = more.reached.into_iter().next() else { return Ok(()) };
        found.reached.truncate(MOST - 1);
        if !found.reached.iter().any(|(smaller, ())| smaller.iter().all(|i| set.contains(i))) {
            found.reached.push((set, ()));
        }
        Ok(())
    }

    fn within(&self, allowed: &Allowed, room: Room, made: &Made, of: Of) -> Result<Found<()>> {
        let changes = &allowed.changes;
        // An allocation of a rank takes more time: hooks, buckets and shards come with it. So does one of a graph: every node reads its arguments.
        let most = match &self.session.network {
            Network::Exported(..) => WORK / 2,
            _ if self.spec.parallel.ranks.data_parallel.is_some() => WORK / 4 * 3,
            _ => WORK,
        };
        let (enough, work) = if of == Of::All { (MOST, most) } else { (1, most / 2) };
        let limits = Limits { moves: MOST_CHANGES, enough, work, stop: self.runner.stop };
        let is_of_others = |i: &usize| changes_the_training(changes[*i].axis());
        let moves: Vec<Move> = changes.iter().map(Change::as_move).collect();
        let run = |changed: &[usize]| self.tried(self.with(changes, changed));
        let books = || made.lock().unwrap_or_else(PoisonError::into_inner);
        let saves_nothing = |changed: &[usize]| {
            changed.iter().any(|i| changes[*i].saves_temporaries()) && has_no_temporaries(&run(changed).training)
        };
        let is_too_large = |changed: &[usize]| allowed.least(changed).is_some_and(|least| room.lacks(least));
        let attempt = |changed: &[usize]| -> Result<(Outcome<()>, u64)> {
            if is_too_large(changed) {
                return Ok((Outcome::Missed, 0));
            }
            let may_be = of == Of::All || !changed.iter().any(is_of_others);
            if saves_nothing(changed) || exclude_each_other(changes, changed) || !may_be {
                return Ok((Outcome::Impossible, 0));
            }
            if of == Of::Adapters && !changed.iter().any(|i| changes[*i].axis() == Axis::Adapters) {
                return Ok((Outcome::Missed, 0));
            }
            let known = books().get(changed).copied();
            let (taken, mut work) = match known {
                Some(taken) => (taken, 0),
                None => match self.runner.within_limit(&run(changed)) {
                    Ok(taken) => taken,
                    Err(error) if error.is_usage() => return Ok((Outcome::Impossible, 0)),
                    Err(error) => return Err(error),
                },
            };
            books().insert(changed.to_vec(), taken);
            let mut reaches = taken.is_some_and(|needs| needs.reserved_bytes <= room.bytes);
            if reaches && room.for_cudnn {
                let (fits, more) = self.runner.surely_fits(&run(changed), room.bytes)?;
                (reaches, work) = (fits, work + more);
            }
            Ok((if reaches { Outcome::Reached(()) } else { Outcome::Missed }, work))
        };
        let may_reach = |changed: &[usize]| {
            // Few combinations have adapters: bounds would cost more than they spare.
            if of == Of::Adapters {
                return Ok((true, 0));
            }
            if is_too_large(changed) {
                return Ok((false, 0));
            }
            match self.runner.first_steps_within_limit(&run(changed)) {
                Ok((taken, work)) => Ok((taken.is_some_and(|needs| needs.reserved_bytes <= room.bytes), work)),
                // If two changes cannot be combined, each may still help alone.
                Err(error) if error.is_usage() => Ok((true, 0)),
                Err(error) => Err(error),
            }
        };
        smallest(&moves, &limits, &Goal { attempt: &attempt, may_reach: &may_reach })
    }

    /// The run with these changes.
    fn with(&self, changes: &[Change], made: &[usize]) -> RunSpec {
        let mut spec = self.spec.clone();
        made.iter().for_each(|i| changes[*i].apply(&mut spec));
        spec
    }

    /// The dry run of it, with the device's memory if the run is on a device.
    fn tried(&self, spec: RunSpec) -> RunSpec {
        let spec = spec.of_any_sizes();
        match self.instead {
            Some(bytes) => spec.on_paper_in(bytes),
            None => spec,
        }
    }

    fn entry(&self, changes: &[Change], made: &[usize]) -> Try {
        let after = self.with(changes, made);
        entry((self.spec, &after), made.iter().map(|i| &changes[*i]), self.command)
    }
}

/// The entry of changes that make `after` of `before`: their words, their code, and the command; no figures yet.
pub(super) fn entry<'c>(
    (before, after): (&RunSpec, &RunSpec),
    made: impl Iterator<Item = &'c Change> + Clone,
    command: &str,
) -> Try {
    let joined = |text: fn(&Change) -> &str, between: &str| made.clone().map(text).collect::<Vec<_>>().join(between);
    let (before, after) = (before.repeated(), after.repeated());
    let new: Map<String, Value> = after
        .iter()
        .filter(|(name, value)| before.get(*name) != Some(value))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    Try {
        change: joined(|change| &change.words, " + "),
        script: joined(|change| &change.script, "; "),
        flags: command::flags(&new),
        command: Some(command::again(&[command], &after)),
        fields: after,
        checked: true,
        ..Try::default()
    }
}

#[cfg(test)]
mod tests;
