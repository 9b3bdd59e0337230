//! One rank in training.

use std::ops::ControlFlow;
use std::sync::Arc;

use lab_base::error::{Error, Result};
use lab_models::{Architecture, Model};
use memcore::Device;

use super::build::build;
use super::built::{Built, trained};
use super::collective::Sent;
use super::reducer::Replica;
use super::settings::{DataParallelSettings, Stage};
use super::tally::{ModelStates, Tally};
use super::unit::Gathering;
use crate::record::{Account, Row};
use crate::{
    BeforeForward, Failed, ModelStep, Partial, Progress, RunSettings, Source, Steps, TrainStep, Trainer, Update,
};

/// What one rank held and sent.
#[derive(Clone, Debug)]
pub struct RankFigures {
    /// Number of the rank.
    pub rank: usize,
    /// Trained values of the whole network.
    pub parameters: u64,
    /// Bytes of the whole network's frozen parameters.
    pub frozen_bytes: u64,
    /// Values that this rank's optimizer updates: all, or those of its shards.
    pub owned: u64,
    /// Padding values that make the shards equal.
    pub padding: u64,
    /// Number of groups of parameters, each divided by itself; 0 if nothing is divided.
    pub units: usize,
    /// Model states that stay allocated.
    pub states: ModelStates,
    /// The most bytes of parameters that were gathered at once.
    pub gathered_bytes: u64,
    /// The most bytes of buckets that gradients were collected in.
    pub bucket_bytes: u64,
    /// Bytes sent in the last step.
    pub sent: Sent,
    /// The ledger's account after the last step.
    pub account: Account,
    /// One row per phase, as for a run on one device.
    pub rows: Vec<Row>,
}

/// Result of a divided run.
#[derive(Clone, Debug)]
pub struct DataParallelResult {
    /// The ranks that were run.
    pub ranks: Vec<RankFigures>,
    /// True if it was stopped before the last step.
    pub interrupted: bool,
}

/// A rank's part of a network, from which its step is made.
pub struct Share {
    /// The network with its parameters.
    pub model: Model,
    /// The optimizer of what the rank updates.
    pub update: Update,
    /// Settings of the rank's run; the batch is the rank's.
    pub run: RunSettings,
    /// Called before each forward pass of the network, unless the network's module does it.
    pub before_forward: Option<BeforeForward>,
    /// The divided parameters of each piece, which the network's module gathers unless the step runs the network itself; empty if none are divided.
    pub gatherings: Vec<Option<Gathering>>,
}

/// One rank in training.
pub struct Rank<S = ModelStep> {
    device: Device,
    number: usize,
    trainer: Trainer<S>,
    tally: Arc<Tally>,
    frozen_bytes: u64,
    owned: u64,
    padding: u64,
    units: usize,
}

impl Rank {
    /// Builds rank `number`, on a device of its own.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that cannot be combined, and on a device that computes, because communication among ranks is counted, not done.
    /// Those of the device.
    pub fn new(
        architecture: &dyn Architecture,
        device: &Device,
        settings: &DataParallelSettings,
        number: usize,
        source: Source,
    ) -> Result<Self> {
        let step = |share: Share| {
            let Share { mut model, update, run, before_forward, .. } = share;
            if let Some(before) = before_forward {
                model.module = Box::new(Replica { inner: model.module, before });
            }
            Ok(ModelStep::of_model(device, model, update, &run, source))
        };
        Self::with_step(architecture, device, settings, number, step)
    }
}

impl<S: TrainStep> Rank<S> {
    /// Builds rank `number`, whose step is made by `step`.
    ///
    /// # Errors
    /// Those of [`Rank::new`]; those of `step`.
    pub fn with_step(
        architecture: &dyn Architecture,
        device: &Device,
        settings: &DataParallelSettings,
        number: usize,
        step: impl FnOnce(Share) -> Result<S>,
    ) -> Result<Self> {
        settings.check()?;
        if device.computes() {
            let problem = format!(
                "what ranks send each other is counted and not sent, so there are no values: --backend meta (or predict), not {}",
                device.name()
            );
            return Err(Error::usage("data-parallel", problem));
        }
        if number >= settings.ranks {
            return Err(Error::usage("data-parallel", format!("no rank {number} of {}", settings.ranks)));
        }
        settings.run.check_network(architecture, settings.run.batch / settings.ranks)?;
        device.phase("model");
        let tally = Arc::new(Tally::new(settings.ranks));
        let Built { model, optimizer, units, gatherings, reducer } =
            build(architecture, device, settings, number, &tally)?;
        let owned = match units.len() {
            0 => model.parameter_count(),
            _ => units.iter().map(|unit| unit.partition.owned(number as u64)).sum(),
        };
        let frozen = model.parameters.iter().filter(|parameter| !parameter.is_trained());
        let frozen_bytes = frozen.map(|parameter| parameter.array().nbytes()).sum();
        let padding = units.iter().map(|unit| unit.partition.padding()).sum();
        let units = units.len();
        let mut run = settings.run.clone();
        run.batch = settings.share();
        run.evaluation.iter_mut().for_each(|evaluation| evaluation.batch /= settings.ranks);
        if settings.stage != Stage::Replicated {
            // The norm of shards is taken by the optimizer that has them.
            run.clip_grad_norm = None;
        }
        run.check()?;
        let update = Update::with(&run, Some(optimizer));
        let before_forward = reducer.map(|reducer| {
            let parameters = trained(&model.parameters);
            Box::new(move || reducer.before_forward(&parameters)) as BeforeForward
        });
        let phases = step(Share { model, update, run, before_forward, gatherings })?;
        let trainer = Trainer::new(phases, std::slice::from_ref(device), "");
        Ok(Self { device: device.clone(), number, trainer, tally, frozen_bytes, owned, padding, units })
    }

    /// Takes one optimizer step with this rank's share of a batch.
    ///
    /// # Errors
    /// Those of the device; the data's.
    pub fn step(&mut self, step: usize) -> Result<()> {
        self.tally.counts().sent = Sent::default();
        self.trainer.step(step).map(drop)
    }

    /// Model states as of the last step.
    pub fn states(&self) -> ModelStates {
        self.tally.counts().states
    }

    /// Drops everything. Returns what the rank held and sent.
    pub fn finish(self) -> RankFigures {
        let account = Account::take(&self.device);
        let counts = *self.tally.counts();
        RankFigures {
            rank: self.number,
            parameters: self.trainer.parameter_count(),
            frozen_bytes: self.frozen_bytes,
            owned: self.owned,
            padding: self.padding,
            units: self.units,
            states: counts.states,
            gathered_bytes: counts.gathered.most,
            bucket_bytes: counts.buckets.most,
            sent: counts.sent,
            account,
            rows: self.trainer.finish(Some("end")),
        }
    }
}

/// Trains the ranks that are [shown](DataParallelSettings::shown), each on its device, from the first to the last step, calling `progress` after
/// each. A break stops the run and keeps what was measured.
///
/// # Errors
/// Those of [`Rank::new`] and [`Rank::step`]. The devices can still be asked what they held.
pub fn train(
    architecture: &dyn Architecture,
    devices: &[Device],
    settings: &DataParallelSettings,
    source: &Source,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<DataParallelResult, Failed> {
    let rank = |number, device: &Device| Rank::new(architecture, device, settings, number, source.clone());
    train_each(devices, settings, rank, progress)
}

/// Trains the ranks that are shown as [`train`] does; `rank` makes the rank of a number on its device.
///
/// # Errors
/// Those of `rank` and [`Rank::step`].
pub fn train_each<S: TrainStep>(
    devices: &[Device],
    settings: &DataParallelSettings,
    rank: impl Fn(usize, &Device) -> Result<Rank<S>>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<DataParallelResult, Failed> {
    let shown = settings.shown();
    let mut ranks = Vec::with_capacity(shown.len());
    for (number, device) in shown.into_iter().zip(devices) {
        ranks.push(rank(number, device)?);
    }
    let (Steps { interrupted, .. }, failure) = Steps::take(&settings.run, progress, |step| {
        ranks.iter_mut().try_for_each(|rank| rank.step(step))?;
        Ok(None)
    });
    match failure {
        Some(error) => Err(Failed { error, partial: Box::<Partial>::default() }),
        None => Ok(DataParallelResult { ranks: ranks.into_iter().map(Rank::finish).collect(), interrupted }),
    }
}
