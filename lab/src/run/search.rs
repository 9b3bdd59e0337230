//! The largest size of a run that fits, and the law of its peak up to it.

use std::cell::Cell;
use std::collections::BTreeSet;

use lab_analysis::fit::{Fit, Law, Room, largest};
use lab_base::bands::Basis;
use lab_base::error::{Error, Result};
use lab_base::named;
use lab_models::Input;
use memcore::{Deviation, Deviations, Device};

use super::dry_runner::DryRunner;
use super::network::Network;
use super::spec::RunSpec;
use super::with_cudnn::rest;

/// Steps of a run that shows what is requested: that repeats after the second.
const FEW_STEPS: usize = 3;

/// Default end of a search.
const MAX_EXAMPLES: usize = 1 << 20;
const MAX_TOKENS: usize = 1 << 17;

/// The size that a search maximizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Quantity {
    /// Examples per step, of a divided run on each card.
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
    /// The run, with any size. If it sets no number of steps, each run goes on until memory is flat.
    pub spec: RunSpec,
    /// Largest size to try.
    pub maximum: usize,
    /// Maker of the dry runs.
    pub runner: DryRunner<'a>,
    /// Called before each run with its size.
    pub on_run: &'a dyn Fn(usize),
}

/// Result of a search.
pub struct Largest {
    /// Sizes that fit.
    pub fit: Fit,
    /// Law of the peak up to it.
    pub law: Law,
    /// Sizes that fit with the most that cuDNN may take besides, if the network has convolutions.
    pub with_cudnn: Option<WithCudnn>,
    /// The largest size that fits with the smallest context that the card may have, if that is more.
    pub perhaps: Option<usize>,
    /// Deviations of the runs from PyTorch.
    pub deviations: Deviations,
}

/// Sizes that fit with the most that cuDNN may take besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithCudnn {
    /// The largest; `None` if not even 1 fits.
    pub largest: Option<usize>,
    /// Smaller ones that do not.
    pub gaps: Vec<usize>,
    /// Version of the cuDNN that named the workspaces of the largest; `None` if nobody did.
    pub named_by: Option<u32>,
}

/// Sizes for whose workspaces cuDNN is asked at once.
const ASKED_AT_ONCE: usize = 7;

impl RunSpec {
    /// Sets the number of steps that show what is requested, unless the run sets another.
    fn of_few_steps(mut self) -> Self {
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
            // Each rank of a divided run has as many.
            Quantity::Batch => {
                let ranks = self.parallel.ranks.data_parallel.unwrap_or(1);
                spec.training.batch = size.map(|size| size.saturating_mul(ranks));
            }
            Quantity::Sequence => spec.model.sequence = size,
        }
        spec
    }
}

/// Default end of a search: the largest size that the network itself can take.
///
/// # Errors
/// Tokens for a network that takes none.
pub fn maximum(of: Quantity, spec: &RunSpec, runner: &DryRunner<'_>) -> Result<usize> {
    if of == Quantity::Batch {
        // An export may limit the batch.
        let of_file = spec.model.model_file.as_deref().is_some_and(lab_imports::exported::is_export);
        let exported = spec.model.graph.is_some() || of_file;
        let session = if exported { Some(runner.session(&spec.sized(of, None))?) } else { None };
        return Ok(match session.map(|session| session.network) {
            Some(Network::Exported(model, _)) => MAX_EXAMPLES.min(model.sizes().allowed.1),
            _ => MAX_EXAMPLES,
        });
    }
    // A pretrained network takes as many tokens as it has positions.
    let longest = runner.session(&spec.sized(of, None))?;
    match longest.network.architecture().task().input {
        Input::Tokens { length, .. } => match &longest.network {
            Network::Pretrained(model, _) => Ok(model.positions().unwrap_or(length).max(2)),
            Network::Exported(model, _) => Ok(model.sizes().longest().unwrap_or(length).min(MAX_TOKENS)),
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
        let band = self.spec.basis().band();
        // Of a network with convolutions this is the size without cuDNN; of others a card may reserve more than was said.
        let room = match self.runner.convolves(&self.spec.sized(self.of, Some(1))).unwrap_or(false) {
            true => budget_bytes,
            false => band.surely(budget_bytes),
        };
        let within = self.spec.clone().on_paper_in(room);
        let fit = largest(&self.runs(&within, &deviations), room, self.maximum)?;
        let end = fit.largest.map_or(1, |largest| (largest + 1).min(self.maximum));
        let law = Law::from_run(&self.runs(&self.spec.clone().of_few_steps(), &deviations), 1, end)?;
        let perhaps = self.perhaps(&fit)?;
        let with_cudnn = self.with_cudnn(budget_bytes, &fit, deviations.get())?;
        let is_named = with_cudnn.as_ref().is_some_and(|found| found.named_by.is_some());
        let unaccounted = |all: Deviations| if is_named { all.without(Deviation::WithoutCudnn) } else { all };
        Ok(Largest { fit, law, with_cudnn, perhaps, deviations: unaccounted(deviations.get()) })
    }

    /// The sizes that fit with the most that cuDNN may take besides; `None` without convolutions.
    fn with_cudnn(&self, budget_bytes: u64, fit: &Fit, deviations: Deviations) -> Result<Option<WithCudnn>> {
        let (Some(most), true) = (fit.largest, deviations.convolution_bytes() > 0) else { return Ok(None) };
        let rest = rest(&self.spec, Basis::WorkspacesBounded, budget_bytes);
        let copying = self.spec.clone().with_copying_convolutions().on_paper_in(rest);
        let bounded = largest(&self.runs(&copying, &Cell::default()), rest, most)?;
        let mut found = WithCudnn { largest: bounded.largest, gaps: bounded.gaps(), named_by: None };
        if self.runner.known(&self.spec).is_some() {
            // Tables have usual sizes.
            let usual = (0..usize::BITS).flat_map(|i| [1 << i, (1_usize << i).saturating_mul(3)]);
            let smallest = found.largest.unwrap_or(0);
            self.name(&mut found, &usual.filter(|size| *size > smallest && *size <= most).collect())?;
        }
        self.ask(&mut found, most)?;
        Ok(Some(found))
    }

    /// Adds what fits with the workspaces that are known of these sizes.
    fn name(&self, found: &mut WithCudnn, sizes: &BTreeSet<usize>) -> Result<()> {
        for size in sizes {
            (self.on_run)(*size);
            let figures = self.runner.figures_unasked(&self.spec.sized(self.of, Some(*size)))?;
            let named_by = figures.with_cudnn.and_then(|bound| bound.cudnn_version);
            match figures.fits_surely() {
                Some(true) if named_by.is_some() => (found.largest, found.named_by) = (Some(*size), named_by),
                _ if named_by.is_some() => found.gaps.push(*size),
                _ => {}
            }
        }
        found.gaps.retain(|gap| Some(*gap) < found.largest);
        Ok(())
    }

    /// Adds what fits with the workspaces for which somebody is asked: the sizes between the largest that fits and the first that does not, a few at a time.
    fn ask(&self, found: &mut WithCudnn, most: usize) -> Result<()> {
        let (mut low, mut high) = (found.largest.unwrap_or(0), most + 1);
        while high - low > 1 {
            let parts = (high - low).min(ASKED_AT_ONCE + 1);
            let sizes: BTreeSet<usize> = (1..parts).map(|part| low + (high - low) * part / parts).collect();
            let runs: Vec<RunSpec> = sizes.iter().map(|size| self.spec.sized(self.of, Some(*size))).collect();
            if !self.runner.ask_for(&runs)? {
                break;
            }
            self.name(found, &sizes)?;
            low = found.largest.unwrap_or(0).max(low);
            high = sizes.into_iter().find(|size| *size > low).unwrap_or(high);
        }
        Ok(())
    }

    /// Returns the run of a size, which records its deviations from PyTorch.
    fn runs(&self, spec: &RunSpec, deviations: &Cell<Deviations>) -> impl Fn(usize, Room) -> Result<Device> {
        let endless = spec.endless();
        move |size, room| {
            (self.on_run)(size);
            if (self.runner.stop)() {
                return Err(Error::Interrupted);
            }
            let base = if room == Room::Endless { &endless } else { spec };
            // All other fields were accepted already, so a size that the network refuses is the user's error.
            let made = self.runner.device_after(&base.sized(self.of, Some(size)));
            let device = made.map_err(|error| match error {
                error if error.is_usage() => Error::usage(format!("{} {size}", self.of), error.to_string()),
                other => other,
            })?;
            deviations.set(deviations.get().union(device.deviations()));
            Ok(device)
        }
    }

    /// The largest size whose lower figure fits, with the smallest context that the card may have, if that is more.
    fn perhaps(&self, fit: &Fit) -> Result<Option<usize>> {
        if fit.at_maximum {
            return Ok(None);
        }
        let Some(room) = self.runner.most_room(&self.spec)? else { return Ok(None) };
        let room = self.spec.basis().band().perhaps(room);
        let least = self.spec.clone().on_paper_in(room);
        let with_least = largest(&self.runs(&least, &Cell::default()), room, self.maximum)?;
        Ok(with_least.largest.filter(|size| Some(*size) > fit.largest))
    }
}
