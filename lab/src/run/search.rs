//! The largest size of a run that fits, and the law of its peak up to it.

use std::cell::Cell;

use lab_analysis::fit::{Fit, Law, Room, fits, largest};
use lab_base::error::{Error, Result};
use lab_base::named;
use lab_models::Input;
use memcore::{Deviations, Device};

use super::gpu::Gpu;
use super::network::Network;
use super::paper::Paper;
use super::resolve::STEPS;
use super::spec::RunSpec;

/// Default number of steps of each run: what is requested repeats after the second.
const FEW_STEPS: usize = 3;

/// Default end of a search.
const MAX_EXAMPLES: usize = 1 << 20;
const MAX_TOKENS: usize = 1 << 17;

/// The size that a search maximizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quantity {
    /// Examples per step.
    #[default]
    Batch,
    /// Tokens per example.
    Sequence,
}

named!(Quantity, "quantity", { Batch = "batch", Sequence = "sequence" });

impl Quantity {
    /// Name of the premise that the size replaces.
    pub fn premise(self) -> &'static str {
        match self {
            Quantity::Batch => "batch",
            Quantity::Sequence => "tokens",
        }
    }
}

/// A search for the largest size.
pub struct Search<'a> {
    /// The size that is maximized.
    pub of: Quantity,
    /// The run, with any size. If it sets no number of steps, the search takes few, and more steps confirm the result.
    pub spec: RunSpec,
    /// Largest size to try.
    pub maximum: usize,
    /// Maker of the dry runs.
    pub paper: Paper<'a>,
    /// Called before each run with its size.
    pub on_run: &'a dyn Fn(usize),
}

/// Result of a search.
pub struct Largest {
    /// Sizes that fit.
    pub fit: Fit,
    /// Law of the peak up to it.
    pub law: Law,
    /// The largest size that fits with the smallest context that the card may have, if that is more.
    pub perhaps: Option<usize>,
    /// Deviations of the runs from PyTorch.
    pub deviations: Deviations,
    /// Number of steps of the runs behind the result.
    pub steps: usize,
}

impl RunSpec {
    /// Sets the number of steps that a search needs, unless the run sets another.
    #[must_use]
    pub fn for_search(mut self) -> Self {
        self.training.steps.get_or_insert(FEW_STEPS.saturating_mul(self.shape.period(self.training.accumulate)));
        self
    }

    /// Refuses a search for a size of which the run has several.
    fn check_one(&self, of: Quantity) -> Result<()> {
        let (field, list) = match of {
            Quantity::Batch => ("batches", &self.shape.batches),
            Quantity::Sequence => ("lengths", &self.shape.lengths),
        };
        match list {
            Some(_) => Err(Error::usage(field, format!("a search for the largest {of} has one size at a time"))),
            None => Ok(()),
        }
    }

    /// Returns the run with another size.
    #[must_use]
    pub fn sized(&self, of: Quantity, size: Option<usize>) -> Self {
        let mut spec = self.clone();
        match of {
            Quantity::Batch => spec.training.batch = size,
            Quantity::Sequence => spec.model.sequence = size,
        }
        spec
    }
}

/// Default end of a search: the largest size that the network itself can take.
///
/// # Errors
/// Tokens for a network that takes none.
pub fn maximum(of: Quantity, spec: &RunSpec, paper: &Paper<'_>) -> Result<usize> {
    if of == Quantity::Batch {
        // An export may limit the batch.
        let exported = spec.model.model_file.as_deref().is_some_and(lab_imports::exported::is_export);
        let session = if exported { Some(paper.session(&spec.sized(of, None))?) } else { None };
        return Ok(match session.map(|session| session.network) {
            Some(Network::Exported(model, _)) => MAX_EXAMPLES.min(model.sizes().allowed.1),
            _ => MAX_EXAMPLES,
        });
    }
    // A pretrained network takes as many tokens as it has positions.
    let longest = paper.session(&spec.sized(of, None))?;
    match longest.network.architecture().task().input {
        Input::Tokens { length, .. } => match &longest.network {
            Network::Pretrained(model, _) => Ok(model.positions().unwrap_or(length).max(2)),
            _ => Ok(MAX_TOKENS),
        },
        Input::Values(_) => Err(Error::usage("of", "sequence: this network takes no tokens")),
    }
}

impl Search<'_> {
    /// Searches for the largest size, and finds the law.
    ///
    /// # Errors
    /// No budget; settings that cannot work; [`Error::Interrupted`].
    pub fn largest(&self, budget_bytes: u64) -> Result<Largest> {
        self.spec.check_one(self.of)?;
        let deviations = Cell::new(Deviations::default());
        let (fit, spec) = self.confirmed(&self.spec, budget_bytes, &deviations)?;
        let end = fit.largest.map_or(1, |largest| (largest + 1).min(self.maximum));
        let law = Law::of(&self.runs(&spec, &deviations), 1, end)?;
        let perhaps = self.perhaps(&fit)?;
        let steps = spec.training.steps.unwrap_or(FEW_STEPS);
        Ok(Largest { fit, law, perhaps, deviations: deviations.get(), steps })
    }

    /// Returns the sizes that fit, and the run with the number of steps behind that: few, if the largest size also fits for the steps of a
    /// prediction, otherwise those of a prediction. Fragmentation can go on after requests repeat.
    fn confirmed(&self, spec: &RunSpec, budget_bytes: u64, deviations: &Cell<Deviations>) -> Result<(Fit, RunSpec)> {
        let few = spec.clone().for_search();
        let fit = largest(&self.runs(&few, deviations), budget_bytes, self.maximum)?;
        let (Some(size), None) = (fit.largest, spec.training.steps) else { return Ok((fit, few)) };
        let mut all = spec.clone();
        all.training.steps = Some(STEPS.max(few.training.steps.unwrap_or(STEPS)));
        let run = self.runs(&all, deviations);
        if fits(run(size, Room::Budget))?.is_ok() {
            return Ok((fit, few));
        }
        let fit = largest(&run, budget_bytes, self.maximum)?;
        drop(run);
        Ok((fit, all))
    }

    /// Returns the run of a size, which records its deviations from PyTorch.
    fn runs(&self, spec: &RunSpec, deviations: &Cell<Deviations>) -> impl Fn(usize, Room) -> Result<Device> {
        let endless = spec.endless();
        move |size, room| {
            (self.on_run)(size);
            if (self.paper.stop)() {
                return Err(Error::Interrupted);
            }
            let base = if room == Room::Endless { &endless } else { spec };
            // All other fields were accepted already, so a size that the network refuses is the user's error.
            let session = self.paper.session(&base.sized(self.of, Some(size))).map_err(|error| match error {
                error if error.is_usage() => Error::usage(format!("{} {size}", self.of), error.to_string()),
                other => other,
            })?;
            let session = if room == Room::Endless { session.with_history() } else { session };
            let device = session.target.open()?;
            self.paper.train(&session, &device)?;
            deviations.set(deviations.get().union(device.deviations()));
            Ok(device)
        }
    }

    /// The largest size that fits with the smallest context that the card may have, if that is more.
    fn perhaps(&self, fit: &Fit) -> Result<Option<usize>> {
        if fit.at_maximum || !matches!(self.spec.device.gpu, Some(Gpu::Card { .. })) {
            return Ok(None);
        }
        let least = self.spec.clone().with_least_context();
        let Some(budget_bytes) = self.paper.session(&least)?.target.budget_bytes()? else { return Ok(None) };
        let (with_least, _) = self.confirmed(&least, budget_bytes, &Cell::default())?;
        Ok(with_least.largest.filter(|size| Some(*size) > fit.largest))
    }
}
