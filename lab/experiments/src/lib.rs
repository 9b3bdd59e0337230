//! Experiments: a question, the claims that others make about it, a prediction, a measurement, a verdict.
//!
//! An experiment receives devices and sizes, and returns an [`Outcome`]: tables, curves, predictions beside
//! measurements, and a [`JudgedClaim`] for each claim. [`claims`] lists all claims by article.
//!
//! Each experiment has its own file. **To add one**: write a unit struct with [`Experiment`], and name it in [`ALL`]. The command
//! line, the tables in `docs/` and the reports are made from that list.

mod accumulation;
mod batch_size;
mod beliefs;
mod cache;
mod checkpointing;
pub mod claims;
mod columns;
mod contexts;
mod default_allocator;
mod equation;
mod evaluation;
mod experiment;
mod fit;
mod fragmentation;
mod leak;
mod loader;
mod model_parallel;
mod network_size;
mod optimizer;
mod outcome;
mod perceptron;
mod placement;
mod policy_comparison;
mod precision;
pub mod programs;
mod progress;
mod quantization;
mod release;
mod resume;
mod sequence_length;
mod session;
mod sharded_saving;
mod steady_state;
mod tables;
mod timing;

pub use experiment::{About, Experiment, Setup, Size};
pub use outcome::{Claim, Curve, JudgedClaim, Measurement, Outcome, ShortAnswer};
use outcome::{in_bytes, in_counts};

pub use lab_base::section::Verdict;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use lab_base::error::{Error, Result};
use lab_base::similar::{similar, slips};
use memcore::Device;
use memcore::backend::{DeviceProfile, Meta};

/// Every experiment, in the order in which they are listed.
pub const ALL: &[&dyn Experiment] = &[
    &batch_size::BatchSize,
    &steady_state::SteadyState,
    &leak::Leak,
    &release::Release,
    &equation::Equation,
    &network_size::NetworkSize,
    &optimizer::OptimizerChoice,
    &accumulation::Accumulation,
    &checkpointing::Checkpointing,
    &checkpointing::InVain,
    &precision::PrecisionChoice,
    &sequence_length::SequenceLength,
    &placement::Placement,
    &quantization::Quantization,
    &fit::Fit,
    &cache::Cache,
    &fragmentation::Fragmentation,
    &model_parallel::ModelParallel,
    &resume::Resume,
    &evaluation::Evaluation,
    &sharded_saving::ShardedSaving,
    &loader::Loader,
    &contexts::Contexts,
    &beliefs::Beliefs,
];

/// Checks that an experiment accepts these sizes: starts it on a device that computes nothing, and ends it before its first piece of work.
/// Sizes that the experiment does not have are ignored.
///
/// # Errors
/// [`Error::Usage`] naming the size.
pub fn check_sizes(experiment: &dyn Experiment, sizes: &BTreeMap<String, Vec<usize>>) -> Result<()> {
    let single = |size: &&Size| !size.many && sizes.get(size.name).is_some_and(|values| values.len() > 1);
    if let Some(size) = experiment.sizes().iter().find(single) {
        return Err(Error::usage(size.name, format!("{} takes one value of it", experiment.name())));
    }
    let open = || Ok(Device::new(Meta::new(DeviceProfile::default())));
    let sizes = sizes.clone();
    let setup =
        Setup { open: &open, places: &[], model: None, sizes, seed: 0, progress: &|_, _| ControlFlow::Break(()) };
    match experiment.ask(&setup) {
        Err(error @ Error::Usage { .. }) => Err(error),
        _ => Ok(()),
    }
}

/// Most letters by which a name that is proposed differs from the one that was typed.
const SLIP: usize = 2;

/// Fewest letters of a word that says what a question is about, and most experiments that are named for it.
const TELLING: usize = 4;
const MOST_ABOUT: usize = 3;

/// Names of the experiments whose question and claims have most of the words of a text.
fn about(text: &str) -> Vec<&'static str> {
    let text = text.to_lowercase();
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() >= TELLING).collect();
    let said = |experiment: &&'static dyn Experiment| {
        let claims = experiment.claims().iter().map(|claim| claim.text);
        let said = [experiment.name(), experiment.question()].into_iter().chain(claims).collect::<Vec<_>>().join(" ");
        let said = said.to_lowercase();
        // Its own name says more than all others.
        let named = if words.contains(&experiment.name()) { words.len() } else { 0 };
        named + words.iter().filter(|word| said.contains(**word)).count()
    };
    let mut found: Vec<(usize, &'static str)> = ALL.iter().map(|one| (said(one), one.name())).collect();
    let most = found.iter().map(|(count, _)| *count).max().unwrap_or(0);
    found.retain(|(count, _)| most > 0 && *count == most);
    found.into_iter().map(|(_, name)| name).take(MOST_ABOUT).collect()
}

/// Returns the experiment with that name.
///
/// # Errors
/// [`Error::Usage`] listing the known names.
pub fn by_name(name: &str) -> Result<&'static dyn Experiment> {
    ALL.iter().copied().find(|e| e.name() == name).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|e| e.name()).collect();
        let near = |meant: &&str| meant.starts_with(name) || slips(meant, name) <= SLIP;
        let like = similar(name, known.iter().copied()).filter(near);
        let like = like.map_or_else(
            || match about(name)[..] {
                [] => String::new(),
                ref found => format!("; about this: vramlab ask {}.", found.join(", vramlab ask ")),
            },
            |meant| format!("; did you mean {meant:?}?"),
        );
        let there = match like.is_empty() {
            true => format!("; there are {}", known.join(", ")),
            false => " `vramlab ask` lists all.".into(),
        };
        Error::usage(format!("ask {name}"), format!("no such experiment{like}{there}"))
    })
}
