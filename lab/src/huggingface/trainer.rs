//! A network in training by a script of one's own.
//!
//! ```python
//! b = batch(); opt.zero_grad(); out = model(**b); loss = out.loss; loss.backward(); opt.step()
//! ```
//!
//! Nothing is deleted, unless the schedule says so: the batch, the result with its logits and cache, and the loss live until the names are bound again.

use std::ops::ControlFlow;

use memcore::amp::Autocast;
use memcore::nn::{Init, Parameter, Training};
use memcore::{Device, NoGrad, Tensor, ops};

use super::Pretrained;
use super::batches::Batches;
use super::inputs::Inputs;
use super::library_trainer::library_trainer;
use super::network::{Network, Output};
use super::options::Script;
use crate::data::Split;
use crate::error::{Error, Result};
use crate::models::Architecture;
use crate::named::named;
use crate::training::{
    Accuracy, Continuation, Failed, Parts, Phase, Progress, RunResult, RunSettings, Schedule, Source, TrainStep,
    Trainer, Update, data_name, evaluate_with, run,
};

/// What of the result the script holds until the next one is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// `out = model(**b)`: loss, logits, cache.
    #[default]
    Output,
    /// `loss = model(**b).loss`
    Loss,
}

named!(Keep, "part of a result", { Output = "output", Loss = "loss" });

/// A network with its script's variables.
pub struct PretrainedStep {
    device: Device,
    network: Network,
    parameters: Vec<Parameter>,
    /// The switch between training and evaluation.
    training: Training,
    update: Update,
    batches: Batches,
    settings: RunSettings,
    schedule: Schedule,
    keep: Keep,
    batch: Option<Inputs>,
    output: Option<Output>,
    loss: Option<Tensor>,
    /// The region of autocast that the step is in.
    autocast: Option<Autocast>,
}

/// In the usual order the loss takes its name in the forward pass, where it is computed. Phases of layers that these networks do not have are refused.
fn schedule(settings: &RunSettings) -> Result<Schedule> {
    if settings.schedule == Schedule::default() {
        let order = Phase::USUAL.into_iter().filter(|phase| *phase != Phase::Loss);
        return Ok(Schedule::of(order.collect(), "s"));
    }
    if settings.schedule.names(Phase::Clear) {
        return Err(Error::usage("schedule", "networks of transformers have no lists that layers append to: no clear"));
    }
    Ok(settings.schedule.clone())
}

/// Builds the network and its optimizer.
///
/// # Errors
/// [`Error::Usage`] for settings that cannot work; those of the device.
pub fn trainer(
    model: &Pretrained,
    device: &Device,
    settings: &RunSettings,
    source: Source,
    keep: Keep,
) -> Result<Trainer<PretrainedStep>> {
    settings.check()?;
    settings.check_network(model, settings.batch)?;
    let schedule = schedule(settings)?;
    if settings.accumulate > 1 && !schedule.names(Phase::Backward) {
        return Err(Error::usage("accumulate", "the schedule has no backward to accumulate gradients in"));
    }
    device.phase("model");
    let init = Init::new(device, settings.precision.dtype(), settings.seed);
    let network = model.network(&init)?;
    let parameters = model.optimizer_order(init.parameters());
    let steps = [Phase::ZeroGrad, Phase::Step].iter().any(|phase| schedule.names(*phase));
    let update = Update::new(settings, steps.then(|| parameters.clone()))?;
    let phases = PretrainedStep {
        device: device.clone(),
        network,
        parameters,
        training: init.training(),
        update,
        batches: Batches::new(model, device, settings, source),
        settings: settings.clone(),
        schedule,
        keep,
        batch: None,
        output: None,
        loss: None,
        autocast: None,
    };
    Ok(Trainer::new(phases, std::slice::from_ref(device), ""))
}

impl PretrainedStep {
    fn call(&self) -> Result<Output> {
        let missing = || Error::usage("schedule", "a forward pass before its batch");
        Ok(self.network.forward(self.batch.as_ref().ok_or_else(missing)?)?)
    }

    /// The region ends with the loss, unless the schedule says where.
    fn end_autocast(&mut self) {
        if !self.schedule.names(Phase::ExitAutocast) {
            self.autocast = None;
        }
    }

    /// `loss = loss / accumulate`
    fn share(&mut self) -> Result<()> {
        if self.settings.accumulate > 1
            && let Some(loss) = &self.loss
        {
            self.loss = Some(ops::div_scalar(loss, self.settings.accumulate as f64)?);
        }
        Ok(())
    }
}

impl TrainStep for PretrainedStep {
    fn settings(&self) -> &RunSettings {
        &self.settings
    }

    fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    fn update(&mut self) -> &mut Update {
        &mut self.update
    }

    fn input(&mut self, number: usize) -> Result<()> {
        self.batch = Some(self.batches.make(number, false)?);
        Ok(())
    }

    fn forward(&mut self) -> Result<()> {
        // The region ends with the loss; what was held before goes in it.
        self.autocast = self.settings.precision.autocast().map(Autocast::new);
        let output = self.call()?;
        let loss = output.loss.clone();
        match self.keep {
            Keep::Output => self.output = Some(output),
            Keep::Loss => drop(output),
        }
        if self.schedule.names(Phase::Loss) && self.keep == Keep::Output {
            drop(loss);
        } else if self.schedule.names(Phase::Backward) || self.keep == Keep::Loss {
            self.loss = Some(loss);
        }
        if self.schedule.names(Phase::Loss) {
            return Ok(());
        }
        self.end_autocast();
        self.share()
    }

    /// It is there with the result: a name for it.
    fn loss(&mut self) -> Result<()> {
        if let Some(output) = &self.output {
            self.loss = Some(output.loss.clone());
        }
        self.end_autocast();
        self.share()
    }

    fn exit_autocast(&mut self) {
        self.autocast = None;
    }

    fn backward(&mut self) -> Result<()> {
        let missing = || Error::usage("schedule", "a backward pass before its loss");
        self.update.backward(self.loss.as_ref().ok_or_else(missing)?)
    }

    fn del(&mut self) -> Result<()> {
        self.output = None;
        Ok(())
    }

    fn forward_no_grad(&mut self) -> Result<()> {
        let _no_grad = NoGrad::new();
        let _autocast = self.settings.precision.autocast().map(Autocast::new);
        let output = self.call()?;
        match self.keep {
            Keep::Output => self.output = Some(output),
            Keep::Loss => drop(output),
        }
        Ok(())
    }

    fn loss_value(&self) -> Result<Option<f64>> {
        let loss = self.loss.as_ref().filter(|_| self.device.computes());
        Ok(loss.map(Tensor::item).transpose()?)
    }

    /// These networks have no buffers that a file holds.
    fn parts(&mut self) -> Parts<'_> {
        Parts {
            devices: vec![&self.device],
            copies: &[],
            parameters: &self.parameters,
            buffers: &[],
            update: &mut self.update,
            settings: &self.settings,
            data: data_name(self.batches.source()),
        }
    }

    fn parameter_count(&self) -> u64 {
        self.parameters.iter().map(|p| p.array().numel() as u64).sum()
    }

    fn accuracy(&self) -> Result<Option<Accuracy>> {
        let Source::Dataset { data, .. } = self.batches.source() else { return Ok(None) };
        self.training.set(false);
        let accuracy = evaluate_with(self.batches.task(), data, Split::Test, self.settings.batch, |batch| {
            let output = self.network.forward(&self.batches.upload(batch)?)?;
            let missing = || Error::usage("data", "a network without scores has no classes to compare");
            output.logits.into_iter().next().ok_or_else(missing)
        });
        self.training.set(true);
        accuracy
    }
}

/// Trains a network from its first to its last step, calling `progress` after each; a break stops the run and keeps what was measured.
///
/// # Errors
/// As [`trainer`] and [`Trainer::step`], with what was measured before.
pub fn train(
    model: &Pretrained,
    device: &Device,
    settings: &RunSettings,
    source: Source,
    keep: Keep,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult, Failed> {
    train_from(model, device, settings, source, keep, &mut Continuation::default(), progress)
}

/// The same, with a beginning from a file, or with what the next run needs to go on.
///
/// # Errors
/// As [`training::train_from`](crate::training::train_from).
pub fn train_from(
    model: &Pretrained,
    device: &Device,
    settings: &RunSettings,
    source: Source,
    keep: Keep,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult, Failed> {
    continuation.check(device)?;
    if model.options().script == Script::Trainer {
        return run(library_trainer(model, device, settings, source)?, device, continuation, progress);
    }
    run(trainer(model, device, settings, source, keep)?, device, continuation, progress)
}
