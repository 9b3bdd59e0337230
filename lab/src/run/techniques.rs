//! Effects of techniques: a dry run for each.

use lab_analysis::side_by_side;
use lab_base::error::Result;
use lab_models::Recompute;
use lab_results::{AS_IT_IS, TechniqueResult};
use lab_training::{OptimizerKind, Precision};
use memcore::optim::Implementation;
use memcore::{Deviations, Profile};

use super::choices::{AttentionName, OptimizerForm};
use super::network::Network;
use super::paper::{Figures, Paper};
use super::session::Session;
use super::spec::RunSpec;

/// A technique, and the memory of the run with it.
pub struct Technique {
    /// Name.
    pub name: String,
    /// Figures of the run, or the reason why this network cannot have the technique.
    pub figures: Result<Figures, String>,
}

impl Technique {
    /// Converts it for a result; `warnings` puts deviations into words.
    pub fn result(&self, warnings: impl Fn(Deviations) -> Vec<String>) -> TechniqueResult {
        let figures = self.figures.as_ref().ok();
        TechniqueResult {
            name: self.name.clone(),
            peak_bytes: figures.map(|figures| figures.allocated_bytes),
            reserved_bytes: figures.map(|figures| figures.reserved_bytes),
            reserved_here_bytes: figures.and_then(|figures| figures.room?.reserved_bytes),
            fits: figures.and_then(Figures::fits),
            missing_bytes: figures.and_then(Figures::missing_bytes),
            fits_with_least_context: figures.and_then(|figures| Some(figures.room?.with_least_context)),
            reason: self.figures.as_ref().err().cloned(),
            warnings: figures.map_or_else(Vec::new, |figures| warnings(figures.deviations)),
        }
    }
}

/// Predicts the run as it is, then with each technique that is not in force, then with the combinations that matter, if this network can have their
/// techniques.
///
/// # Errors
/// All errors except that a network cannot have a technique.
pub fn all(paper: &Paper<'_>, spec: &RunSpec, session: &Session) -> Result<Vec<Technique>> {
    let mut options = Options::of(spec, session, paper.tensors(spec)?);
    // As many steps as the others have, so that they can be compared: reserved memory may grow a little with each step.
    let mut variants = vec![(AS_IT_IS.to_string(), spec.clone())];
    variants.extend(options.singles().map(|single| with(spec, &[single])));
    let mut found = predicted(paper, variants)?;
    let works = |change: &Change| found.iter().any(|one| one.name == change.0 && one.figures.is_ok());
    options.keep(works);
    found.extend(predicted(paper, options.combinations(spec))?);
    Ok(found)
}

/// Makes the runs in parallel. Runs of many parts take longest, and begin first.
fn predicted(paper: &Paper<'_>, variants: Vec<(String, RunSpec)>) -> Result<Vec<Technique>> {
    let mut order: Vec<usize> = (0..variants.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(variants[i].1.training.accumulate));
    let found = side_by_side(&order, paper.stop, |&i| (i, attempt(paper, &variants[i].0, &variants[i].1)));
    let mut found: Vec<(usize, Result<Technique>)> = found.into_iter().flatten().collect();
    found.sort_by_key(|(i, _)| *i);
    found.into_iter().map(|(_, technique)| technique).collect()
}

fn attempt(paper: &Paper<'_>, name: &str, variant: &RunSpec) -> Result<Technique> {
    let name = name.to_string();
    match paper.figures(variant) {
        Ok(figures) => Ok(Technique { name, figures: Ok(figures) }),
        Err(error) if error.is_usage() => Ok(Technique { name, figures: Err(error.to_string()) }),
        Err(error) => Err(error),
    }
}

/// A change of the fields.
type Change = (String, Box<dyn Fn(&mut RunSpec)>);

fn change(name: impl Into<String>, apply: impl Fn(&mut RunSpec) + 'static) -> Change {
    (name.into(), Box::new(apply))
}

/// The same run with these changes.
fn with(spec: &RunSpec, changes: &[&Change]) -> (String, RunSpec) {
    let mut variant = spec.clone();
    changes.iter().for_each(|(_, apply)| apply(&mut variant));
    let names: Vec<&str> = changes.iter().map(|(name, _)| name.as_str()).collect();
    (names.join(" + "), variant)
}

/// The changes to a run; `None` for what is in force already.
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
    /// `tensors`: number of the network's tensors before its first step.
    fn of(spec: &RunSpec, session: &Session, tensors: u64) -> Self {
        let run = &session.run;
        // Networks of transformers use fused attention by default; this program's own use eager attention.
        let written_out = match spec.model.attention {
            Some(kind) => kind == AttentionName::Eager,
            None => matches!(session.network, Network::Architecture(_)),
        };
        // A list of batches is not divided.
        let parts = |parts| micro_batches(run.batch, run.accumulate, parts).filter(|_| run.turns.batches.is_empty());
        Self {
            amp: (run.precision == Precision::Fp32).then(|| amp(spec)),
            checkpoint: (spec.model.checkpoint.clone().unwrap_or_default() == Recompute::None)
                .then(|| change("checkpointing, each block", |spec| spec.model.checkpoint = Some(Recompute::Blocks))),
            attention: written_out
                .then(|| change("fused attention", |spec| spec.model.attention = Some(AttentionName::Sdpa))),
            halves: parts(2),
            smallest: most_parts(run.batch, tensors).and_then(parts),
            fused: (run.optimizer.implementation != Implementation::Fused)
                .then(|| change("fused optimizer", |spec| spec.training.optimizer_impl = Some(OptimizerForm::Fused))),
            optimizers: optimizers(run.optimizer.kind),
        }
    }

    fn singles(&self) -> impl Iterator<Item = &Change> {
        let options = [&self.amp, &self.checkpoint, &self.attention, &self.halves, &self.smallest, &self.fused];
        options.into_iter().flatten().chain(&self.optimizers)
    }

    /// Removes the changes that this network cannot have.
    fn keep(&mut self, works: impl Fn(&Change) -> bool) {
        let Self { amp, checkpoint, attention, halves, smallest, fused, optimizers: _ } = self;
        for option in [amp, checkpoint, attention, halves, smallest, fused] {
            option.take_if(|change| !works(change));
        }
    }

    fn combinations(&self, spec: &RunSpec) -> Vec<(String, RunSpec)> {
        let Self { amp, checkpoint, attention, halves, smallest, fused, .. } = self;
        let pairs = [[amp, checkpoint], [amp, attention], [attention, checkpoint], [checkpoint, halves], [amp, halves]];
        let pairs = pairs.iter().filter_map(|[a, b]| Some([a.as_ref()?, b.as_ref()?]));
        let mut combinations: Vec<(String, RunSpec)> = pairs.map(|pair| with(spec, &pair)).collect();
        let parts = if smallest.is_some() { smallest } else { halves };
        let everything: Vec<&Change> = [amp, attention, checkpoint, parts, fused].into_iter().flatten().collect();
        if everything.len() > 2 {
            combinations.push(("all of these, with the same optimizer".into(), with(spec, &everything).1));
        }
        combinations
    }
}

/// Another optimizer with its own settings.
fn optimizers(kind: OptimizerKind) -> Vec<Change> {
    // Adam holds what AdamW holds.
    let adam = matches!(kind, OptimizerKind::Adam | OptimizerKind::AdamW);
    let others = [OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::AdamW];
    let to = |other: OptimizerKind| {
        change(format!("{other} for {kind}"), move |spec| {
            let training = &mut spec.training;
            training.optimizer = Some(other);
            (training.optimizer_impl, training.capturable) = (None, false);
            (training.amsgrad, training.nesterov) = (false, false);
        })
    };
    others.into_iter().filter(|other| *other != kind && !(adam && *other == OptimizerKind::AdamW)).map(to).collect()
}

/// The lowest compute capability with instructions for bfloat16.
const BF16_SM: u32 = 80;

/// bfloat16 if the card computes it, otherwise float16 with a loss scaler.
fn amp(spec: &RunSpec) -> Change {
    let sm = Profile::named(&spec.like()).and_then(|profile| profile.compute_capability);
    let old = sm.is_some_and(|sm| sm < BF16_SM);
    let precision = if old { Precision::AutocastFp16 } else { Precision::AutocastBf16 };
    change(format!("AMP ({precision})"), move |spec| spec.training.precision = Some(precision))
}

/// Largest number of parts of a batch.
const MAX_PARTS: usize = 32;

/// Largest number of tensors times parts: each part adds a forward and a backward pass, and an answer should come within a second.
const MAX_TENSORS: u64 = 2000;

/// Number of the smallest parts of a batch, if there are more than two: single examples, unless these take too long to run.
fn most_parts(batch: usize, tensors: u64) -> Option<usize> {
    let most = usize::try_from(MAX_TENSORS / tensors.max(1)).unwrap_or(MAX_PARTS).min(MAX_PARTS);
    (3..=most).rev().find(|&parts| batch.is_multiple_of(parts))
}

/// The same examples per step in `parts` parts.
fn micro_batches(batch: usize, accumulate: usize, parts: usize) -> Option<Change> {
    if parts <= 1 || !batch.is_multiple_of(parts) {
        return None;
    }
    let (size, times) = (batch / parts, accumulate.checked_mul(parts)?);
    Some(change(format!("accumulation, {times} × {size}"), move |spec| {
        (spec.training.batch, spec.training.accumulate) = (Some(size), Some(times));
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
