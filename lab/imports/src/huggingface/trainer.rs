//! Trains a network by a user's own script.
//!
//! ```python
//! b = batch(); opt.zero_grad(); out = model(**b); loss = out.loss; loss.backward(); opt.step()
//! ```
//!
//! Nothing is deleted, unless the schedule says so: the batch, the result with its logits and cache, and the loss live until the names are bound
//! again.

use std::ops::ControlFlow;

use lab_base::error::{Error, Result};
use lab_base::named;
use lab_training::{
    Accuracy, Averaged, Continuation, Ema, Failed, Phase, Progress, RunResult, RunSettings, Schedule, ScriptNetwork,
    ScriptStep, Source, Trainer, Update, bound, run,
};
use memcore::nn::Parameter;
use memcore::{Device, Tensor};

use super::Pretrained;
use super::inputs::Inputs;
use super::library_trainer::library_trainer;
use super::network::Output;
use super::options::Script;
use super::prepared::Prepared;

/// Part of the result that the script holds until the next one exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// `out = model(**b)`: loss, logits, cache.
    #[default]
    Output,
    /// `loss = model(**b).loss`
    Loss,
}

named!(Keep, "part of a result", { Output = "output", Loss = "loss" });

/// A network of transformers as a script uses it.
pub struct PretrainedNetwork {
    prepared: Prepared,
    keep: Keep,
}

/// A network of transformers in training by a user's script.
pub type PretrainedStep = ScriptStep<PretrainedNetwork>;

/// Makes the schedule. In the usual order the loss is bound in the forward pass, where it is computed. Phases of layers that these networks lack are
/// refused.
pub(super) fn schedule(settings: &RunSettings) -> Result<Schedule> {
    if settings.schedule == Schedule::default() {
        let order = Phase::USUAL.into_iter().filter(|phase| *phase != Phase::Loss);
        return Ok(Schedule::in_order(order.collect(), "s"));
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
    let settings = RunSettings { schedule: schedule(settings)?, ..settings.clone() };
    let (prepared, update) = Prepared::new(model, device, &settings, source, Update::new)?;
    let step = ScriptStep::new(PretrainedNetwork::new(prepared, keep), update, settings);
    Trainer::new(step, std::slice::from_ref(device), "").averaging()
}

impl PretrainedNetwork {
    pub(super) fn new(prepared: Prepared, keep: Keep) -> Self {
        Self { prepared, keep }
    }
}

impl ScriptNetwork for PretrainedNetwork {
    type Batch = Option<Inputs>;
    type Output = Output;

    fn device(&self) -> &Device {
        &self.prepared.device
    }

    fn source(&self) -> &Source {
        self.prepared.batches.source()
    }

    fn saved_parameters(&self) -> &[Parameter] {
        &self.prepared.optimized
    }

    fn parameter_count(&self) -> u64 {
        self.prepared.parameter_count()
    }

    fn load(&self, batch: &mut Option<Inputs>, examples: usize, number: usize, _: &RunSettings) -> Result<()> {
        *batch = Some(self.prepared.batches.make(examples, number, false)?);
        Ok(())
    }

    fn call(&self, batch: &Option<Inputs>, _: bool) -> Result<Output> {
        Ok(self.prepared.network.forward(bound(batch)?)?)
    }

    fn loss(&self, output: &Output, _: &Option<Inputs>) -> Result<Tensor> {
        Ok(output.loss.clone())
    }

    fn keeps_only_loss(&self) -> bool {
        self.keep == Keep::Loss || self.prepared.network.gives_only_loss()
    }

    fn results(&self, output: &Output) -> Vec<Tensor> {
        output.logits.clone()
    }

    fn set_training(&self, trains: bool) {
        self.prepared.set_training(trains);
    }

    fn averaged(&self, kind: Ema) -> Result<Averaged> {
        if kind == Ema::Model {
            let problem =
                "model: the buffers of a network of transformers were not recorded; parameters keeps a list of them";
            return Err(Error::usage("ema", problem));
        }
        let parameters = self.prepared.parameters.clone();
        Ok(Averaged { constants: Vec::new(), parameters, buffers: Vec::new() })
    }

    fn accuracy(&self, settings: &RunSettings) -> Result<Option<Accuracy>> {
        self.prepared.accuracy(settings)
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

/// Trains a network like [`train`], beginning from a file, or returning what the next run needs to continue.
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
