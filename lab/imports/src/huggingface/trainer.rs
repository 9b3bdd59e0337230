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
use lab_training::data_parallel::BeforeForward;
use lab_training::{
    Accuracy, Averaged, Continuation, Ema, Failed, Hold, Parts, Phase, Progress, RunResult, RunSettings, Schedule,
    Source, TrainStep, Trainer, Update, bound, run, value_of,
};
use memcore::amp::Autocast;
use memcore::{Device, NoGrad, Tensor, ops};

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

/// A network with its script's variables.
pub struct PretrainedStep {
    run: Prepared,
    keep: Keep,
    /// What a rank of a divided step does before each forward pass.
    before_forward: Option<BeforeForward>,
    batch: Option<Inputs>,
    output: Option<Output>,
    loss: Option<Tensor>,
    /// Autocast region of the step.
    autocast: Option<Autocast>,
    /// During an evaluation, the values of the loop's own names.
    aside: Option<(Option<Inputs>, Option<Output>, Option<Tensor>)>,
}

/// Makes the schedule. In the usual order the loss is bound in the forward pass, where it is computed. Phases of layers that these networks lack are
/// refused.
pub(super) fn schedule(settings: &RunSettings) -> Result<Schedule> {
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
    let settings = RunSettings { schedule: schedule(settings)?, ..settings.clone() };
    let run = Prepared::new(model, device, settings, source, Update::new)?;
    Trainer::new(PretrainedStep::new(run, keep, None), std::slice::from_ref(device), "").averaging()
}

impl PretrainedStep {
    /// State before the first batch.
    pub(super) fn new(run: Prepared, keep: Keep, before_forward: Option<BeforeForward>) -> Self {
        Self { run, keep, before_forward, batch: None, output: None, loss: None, autocast: None, aside: None }
    }

    fn names(&self, phase: Phase) -> bool {
        self.run.settings.schedule.names(phase)
    }

    /// `out = model(**b)`, or the part of it that is kept; returns the loss.
    fn call(&mut self) -> Result<Tensor> {
        if let Some(before) = &self.before_forward {
            before()?;
        }
        let output = self.run.network.forward(bound(&self.batch)?)?;
        let loss = output.loss.clone();
        match self.keep {
            Keep::Output => self.output = Some(output),
            Keep::Loss => drop(output),
        }
        Ok(loss)
    }

    /// Runs once the loss is bound: the autocast region ends, unless the schedule says where, and micro-batches take their share.
    fn named_loss(&mut self) -> Result<()> {
        if !self.names(Phase::ExitAutocast) {
            self.autocast = None;
        }
        let count = self.run.settings.accumulate;
        if count > 1 && self.aside.is_none() {
            self.loss = Some(ops::div_scalar(bound(&self.loss)?, count as f64)?);
        }
        Ok(())
    }
}

impl TrainStep for PretrainedStep {
    fn settings(&self) -> &RunSettings {
        &self.run.settings
    }

    fn update(&mut self) -> &mut Update {
        &mut self.run.update
    }

    fn input(&mut self, number: usize) -> Result<()> {
        self.batch = Some(self.run.batches.make(number, false)?);
        Ok(())
    }

    fn forward(&mut self) -> Result<()> {
        // Results held from before are freed in the region.
        self.autocast = self.run.settings.precision.autocast().map(Autocast::new);
        let loss = self.call()?;
        // `loss = model(**b).loss` binds it at once; so does a schedule that has no phase for it, but a backward pass.
        let has_own_phase = self.names(Phase::Loss);
        if self.keep == Keep::Loss || !has_own_phase && self.names(Phase::Backward) {
            self.loss = Some(loss);
        }
        if has_own_phase { Ok(()) } else { self.named_loss() }
    }

    /// Binds the loss, which exists with the result.
    fn loss(&mut self) -> Result<()> {
        if let Some(output) = &self.output {
            self.loss = Some(output.loss.clone());
        }
        self.named_loss()
    }

    fn exit_autocast(&mut self) {
        self.autocast = None;
    }

    fn backward(&mut self) -> Result<()> {
        self.run.update.backward(bound(&self.loss)?)
    }

    fn del(&mut self) -> Result<()> {
        self.output = None;
        Ok(())
    }

    fn forward_no_grad(&mut self) -> Result<()> {
        let _no_grad = NoGrad::new();
        let _autocast = self.run.settings.precision.autocast().map(Autocast::new);
        self.call().map(drop)
    }

    fn loss_value(&self) -> Result<Option<f64>> {
        value_of(&self.loss)
    }

    fn enter_evaluation(&mut self) -> Result<()> {
        let keeps = self.run.settings.evaluation.is_some_and(|evaluation| evaluation.keeps_results);
        if keeps && self.keep == Keep::Loss {
            return Err(Error::usage("eval-keep", "logits: with --keep loss the script has no name for them"));
        }
        self.run.set_training(false);
        self.aside = Some((self.batch.take(), self.output.take(), self.loss.take()));
        Ok(())
    }

    fn load_batch(&mut self, examples: usize, number: usize) -> Result<()> {
        self.batch = Some(self.run.batches.made(examples, number, false)?);
        Ok(())
    }

    fn results(&self) -> Vec<Tensor> {
        self.output.iter().flat_map(|output| output.logits.iter().cloned()).collect()
    }

    fn leave_evaluation(&mut self) {
        self.run.set_training(true);
        if let Some((batch, output, loss)) = self.aside.take() {
            self.batch = batch;
            self.output = output;
            self.loss = loss;
        }
    }

    fn delete_except(&mut self, held: Hold) -> Result<()> {
        if !held.inputs {
            self.batch = None;
        }
        if !held.outputs {
            self.output = None;
        }
        if !held.loss {
            self.loss = None;
        }
        Ok(())
    }

    fn averaged(&self, kind: Ema) -> Result<Averaged> {
        if kind == Ema::Model {
            let problem =
                "model: the buffers of a network of transformers were not recorded; parameters keeps a list of them";
            return Err(Error::usage("ema", problem));
        }
        let parameters = self.run.parameters.clone();
        Ok(Averaged { constants: Vec::new(), parameters, buffers: Vec::new() })
    }

    fn parts(&mut self) -> Parts<'_> {
        self.run.parts()
    }

    fn parameter_count(&self) -> u64 {
        self.run.parameter_count()
    }

    fn accuracy(&self) -> Result<Option<Accuracy>> {
        self.run.accuracy()
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
