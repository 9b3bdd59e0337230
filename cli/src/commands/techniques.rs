//! What each technique would change: the same run on paper, once more for each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use lab::models::Recompute;
use lab::training::Precision;
use memcore::memory::Needs;
use memcore::optim::Implementation;
use memcore::{Departures, Profile};
use serde_json::{Value, json};

use super::needs::{SETTLED, taken};
use super::plan::Plan;
use super::warnings;
use crate::args::{AllocatorName, AttentionName, ImplementationName, PaperArgs};
use crate::exit::{Code, Failure, Result};
use crate::interrupt;

/// The name of the run without any change.
pub(crate) const AS_IT_IS: &str = "as it is";

/// The most threads that predict side by side.
const MOST_THREADS: usize = 8;

/// What a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    /// The most that is allocated at once.
    pub allocated_bytes: u64,
    /// The most that is reserved, with memory enough.
    pub reserved_bytes: u64,
    /// How it goes in the memory that there is; `None` where nothing was said about that.
    pub room: Option<Room>,
    /// What was done otherwise than the program that the run stands for would.
    pub departures: Departures,
}

/// A run in the memory that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// What a process may take.
    pub budget_bytes: u64,
    /// The most that it reserves there, if it goes through: no more than there is, since PyTorch gives its cache back before it runs out.
    pub reserved_bytes: Option<u64>,
    /// Whether it would go through with the smallest context that the card may have.
    pub with_least_context: bool,
}

impl Figures {
    /// Whether it goes through in the memory that there is.
    pub(crate) fn fits(&self) -> Option<bool> {
        self.room.map(|room| room.reserved_bytes.is_some())
    }

    /// Bytes that are needed beyond what there is, where it does not go through.
    pub(crate) fn missing_bytes(&self) -> Option<u64> {
        let room = self.room.filter(|room| room.reserved_bytes.is_none())?;
        Some(self.reserved_bytes.saturating_sub(room.budget_bytes))
    }

    /// Whether its tensors alone would go in, so that only the way in which memory is cut prevents it.
    pub(crate) fn is_fragmented(&self) -> bool {
        self.room.is_some_and(|room| room.reserved_bytes.is_none() && self.allocated_bytes <= room.budget_bytes)
    }
}

/// A technique, and what the run takes with it.
pub(crate) struct Technique {
    /// What it is.
    pub name: String,
    /// The run, or why this network cannot have it.
    pub figures: Result<Figures, String>,
}

impl Technique {
    /// For other programs.
    pub(crate) fn json(&self) -> Value {
        match &self.figures {
            Ok(figures) => json!({
                "name": self.name,
                "peak_bytes": figures.allocated_bytes,
                "reserved_bytes": figures.reserved_bytes,
                "reserved_here_bytes": figures.room.and_then(|room| room.reserved_bytes),
                "fits": figures.fits(),
                "missing_bytes": figures.missing_bytes(),
                "reason": null,
                "warnings": warnings::all(&[], figures.departures),
            }),
            Err(reason) => json!({
                "name": self.name,
                "peak_bytes": null,
                "reserved_bytes": null,
                "reserved_here_bytes": null,
                "fits": null,
                "missing_bytes": null,
                "reason": reason,
                "warnings": [],
            }),
        }
    }
}

/// What a run on paper takes: on a device without end, and, where there is a limit, on one of that size.
///
/// # Errors
/// Settings that cannot work.
pub(super) fn figures(paper: &PaperArgs) -> Result<Figures> {
    let plan = plan(&paper.endless())?;
    let device = plan.opening.open()?;
    plan.train_on(&device)?;
    let needs = taken(&device);
    let room = match self::plan(paper)?.opening.budget_bytes()? {
        None => None,
        Some(budget_bytes) => {
            let reserved_bytes = in_room(paper, needs)?;
            let with_least_context = reserved_bytes.is_some() || in_room(&paper.with_least_context(), needs)?.is_some();
            Some(Room { budget_bytes, reserved_bytes, with_least_context })
        }
    };
    let Needs { allocated_bytes, reserved_bytes } = needs;
    Ok(Figures { allocated_bytes, reserved_bytes, room, departures: device.departures() })
}

/// The most that a run reserves in the memory that there is; `None` where it runs out.
fn in_room(paper: &PaperArgs, needs: Needs) -> Result<Option<u64>> {
    let plan = self::plan(paper)?;
    match plan.opening.budget_bytes()? {
        Some(budget) if needs.allocated_bytes > budget => return Ok(None),
        Some(budget) if needs.reserved_bytes > budget => {}
        _ => return Ok(Some(needs.reserved_bytes)),
    }
    // What is reserved beyond need is given back before memory runs out: the run itself tells.
    let device = plan.opening.open()?;
    match plan.train_on(&device).map_err(Failure::from) {
        Ok(()) => Ok(Some(device.stats().reserved_bytes.all.peak)),
        Err(failure) if failure.is_out_of_memory() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The same with segments that grow, where the run has a cache and not these already.
///
/// # Errors
/// As [`figures`].
pub(super) fn with_expandable_segments(paper: &PaperArgs) -> Result<Option<Figures>> {
    let mut variant = paper.clone();
    let settings = variant.allocator.alloc_conf.take().unwrap_or_default();
    if variant.allocator.allocator != AllocatorName::Caching || settings.contains("expandable_segments") {
        return Ok(None);
    }
    let comma = if settings.is_empty() { "" } else { "," };
    variant.allocator.alloc_conf = Some(format!("{settings}{comma}expandable_segments:True"));
    figures(&variant).map(Some)
}

fn plan(paper: &PaperArgs) -> Result<Plan> {
    Ok(Plan::predict(paper, &crate::args::RecordArgs::default())?.at_most(SETTLED))
}

/// The run as it is, every technique that is not in force, alone, and those that this network can have in the pairs that matter, each predicted; in the order of the
/// table.
///
/// # Errors
/// Anything but a technique that this network cannot have.
pub(super) fn all(paper: &PaperArgs, plan: &Plan) -> Result<Vec<Technique>> {
    let mut options = Options::of(paper, plan, tensors(paper)?);
    // For as many steps as the others, so that they can be compared: what is reserved may grow a little with each.
    let mut variants = vec![(AS_IT_IS.to_string(), paper.clone())];
    variants.extend(options.singles().map(|single| with(paper, &[single])));
    let mut found = predicted(variants)?;
    let works = |change: &Change| found.iter().any(|one| one.name == change.0 && one.figures.is_ok());
    options.keep(works);
    found.extend(predicted(options.combinations(paper))?);
    Ok(found)
}

/// A run for each, side by side; those of many parts, which take longest, begin first.
fn predicted(variants: Vec<(String, PaperArgs)>) -> Result<Vec<Technique>> {
    let mut order: Vec<usize> = (0..variants.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(variants[i].1.training.accumulate));
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, Result<Technique>)>> = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(MOST_THREADS);
    let work = || {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let Some(&i) = order.get(turn).filter(|_| !interrupt::asked()) else { break };
            let (name, variant) = &variants[i];
            let technique = attempt(name, variant);
            found.lock().unwrap_or_else(PoisonError::into_inner).push((i, technique));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(variants.len()) {
            // Where no thread can be made there are fewer.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(i, _)| *i);
    found.into_iter().map(|(_, technique)| technique).collect()
}

fn attempt(name: &str, variant: &PaperArgs) -> Result<Technique> {
    let name = name.to_string();
    match figures(variant) {
        Ok(figures) => Ok(Technique { name, figures: Ok(figures) }),
        Err(Failure { code: Code::Usage, error }) => Ok(Technique { name, figures: Err(error.to_string()) }),
        Err(failure) => Err(failure),
    }
}

/// A change of the flags.
type Change = (String, Box<dyn Fn(&mut PaperArgs)>);

fn change(name: impl Into<String>, apply: impl Fn(&mut PaperArgs) + 'static) -> Change {
    (name.into(), Box::new(apply))
}

/// The same run with these changes.
fn with(paper: &PaperArgs, changes: &[&Change]) -> (String, PaperArgs) {
    let mut variant = paper.clone();
    changes.iter().for_each(|(_, apply)| apply(&mut variant));
    let names: Vec<&str> = changes.iter().map(|(name, _)| name.as_str()).collect();
    (names.join(" + "), variant)
}

/// What can be changed in a run; `None` where it is in force already.
struct Options {
    amp: Option<Change>,
    checkpoint: Option<Change>,
    attention: Option<Change>,
    halves: Option<Change>,
    smallest: Option<Change>,
    fused: Option<Change>,
    optimizers: Vec<Change>,
}

impl Options {
    /// `tensors`: how many the network has before its first step.
    fn of(paper: &PaperArgs, plan: &Plan, tensors: u64) -> Self {
        let run = &plan.run;
        // Networks of transformers are fused unless said, ours are written out unless said.
        let written_out = match paper.model.attention {
            Some(kind) => kind == AttentionName::Eager,
            None => plan.subject.takes_data(),
        };
        Self {
            amp: (run.precision == Precision::Fp32).then(|| amp(paper)),
            checkpoint: (paper.model.checkpoint.clone().unwrap_or_default() == Recompute::None)
                .then(|| change("checkpointing, each block", |args| args.model.checkpoint = Some(Recompute::Blocks))),
            attention: written_out
                .then(|| change("fused attention", |args| args.model.attention = Some(AttentionName::Sdpa))),
            halves: micro_batches(run.batch, run.accumulate, 2),
            smallest: most_parts(run.batch, tensors).and_then(|parts| micro_batches(run.batch, run.accumulate, parts)),
            fused: (run.optimizer.implementation != Implementation::Fused).then(|| {
                change("fused optimizer", |args| args.training.optimizer_impl = Some(ImplementationName::Fused))
            }),
            optimizers: optimizers(run.optimizer.kind.name()),
        }
    }

    fn singles(&self) -> impl Iterator<Item = &Change> {
        let options = [&self.amp, &self.checkpoint, &self.attention, &self.halves, &self.smallest, &self.fused];
        options.into_iter().flatten().chain(&self.optimizers)
    }

    /// Without those that this network cannot have.
    fn keep(&mut self, works: impl Fn(&Change) -> bool) {
        let Self { amp, checkpoint, attention, halves, smallest, fused, optimizers: _ } = self;
        for option in [amp, checkpoint, attention, halves, smallest, fused] {
            option.take_if(|change| !works(change));
        }
    }

    fn combinations(&self, paper: &PaperArgs) -> Vec<(String, PaperArgs)> {
        let Self { amp, checkpoint, attention, halves, smallest, fused, .. } = self;
        let pairs = [[amp, checkpoint], [amp, attention], [attention, checkpoint], [checkpoint, halves], [amp, halves]];
        let pairs = pairs.iter().filter_map(|[a, b]| Some([a.as_ref()?, b.as_ref()?]));
        let mut combinations: Vec<(String, PaperArgs)> = pairs.map(|pair| with(paper, &pair)).collect();
        let parts = if smallest.is_some() { smallest } else { halves };
        let everything: Vec<&Change> = [amp, attention, checkpoint, parts, fused].into_iter().flatten().collect();
        if everything.len() > 2 {
            combinations.push(("all of these, the optimizer kept".into(), with(paper, &everything).1));
        }
        combinations
    }
}

/// Another optimizer with its own settings.
fn optimizers(kind: &'static str) -> Vec<Change> {
    // Adam holds what AdamW holds.
    let others = ["sgd", "momentum", "adamw"].into_iter().filter(|name| !kind.starts_with("adam") || *name != "adamw");
    let to = |name: &'static str| {
        change(format!("{name} for {kind}"), move |args| {
            args.training.optimizer = Some(name.into());
            (args.training.optimizer_impl, args.training.capturable) = (None, false);
            (args.training.amsgrad, args.training.nesterov) = (false, false);
        })
    };
    others.filter(|name| *name != kind).map(to).collect()
}

/// The compute capability from which on there are instructions for bfloat16.
const BF16_SM: u32 = 80;

/// bfloat16 where the card computes it, float16 with a loss scaler where not.
fn amp(paper: &PaperArgs) -> Change {
    let sm = Profile::named(&paper.like()).and_then(|profile| profile.compute_capability);
    let old = sm.is_some_and(|sm| sm < BF16_SM);
    let precision = if old { "autocast-fp16" } else { "autocast-bf16" };
    change(format!("AMP ({precision})"), move |args| args.training.precision = Some(precision.into()))
}

/// So many parts at most.
const MOST_PARTS: usize = 32;

/// So many parameters are gone through in the parts of one step: each part is a forward and a backward more, and an answer should be there in a second.
const MOST_TENSORS: u64 = 2000;

/// The number of the smallest parts that a batch has, of more than two: single examples, unless that is too much to go through.
fn most_parts(batch: usize, tensors: u64) -> Option<usize> {
    let most = usize::try_from(MOST_TENSORS / tensors.max(1)).unwrap_or(MOST_PARTS).min(MOST_PARTS);
    (3..=most).rev().find(|&parts| batch.is_multiple_of(parts))
}

/// How many tensors the network has before its first step.
fn tensors(paper: &PaperArgs) -> Result<u64> {
    let plan = self::plan(&paper.endless())?.at_most(0);
    let device = plan.opening.open()?;
    plan.train_on(&device)?;
    Ok(device.usage().n_alloc())
}

/// The same examples per step in `parts` parts.
fn micro_batches(batch: usize, accumulate: usize, parts: usize) -> Option<Change> {
    if parts <= 1 || !batch.is_multiple_of(parts) {
        return None;
    }
    let (size, times) = (batch / parts, accumulate.checked_mul(parts)?);
    Some(change(format!("accumulation, {times} × {size}"), move |args| {
        (args.training.batch, args.training.accumulate) = (Some(size), Some(times));
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_parts_are_counted_or_left_out() {
        assert_eq!(micro_batches(8, 3, 2).map(|(name, _)| name).as_deref(), Some("accumulation, 6 × 4"));
        assert!(micro_batches(8, usize::MAX, 2).is_none());
        assert!(micro_batches(8, 1, 3).is_none() && micro_batches(8, 1, 1).is_none());
    }
}
