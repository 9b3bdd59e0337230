//! The training of an exported network, with the variables of its script.
//!
//! ```python
//! x = inputs(); y = targets(); opt.zero_grad(); out = model(*x); loss = criterion(out, y); loss.backward(); opt.step()
//! ```
//!
//! Nothing is deleted unless the schedule says so: inputs, targets, outputs and loss live until their names are bound again.

use std::ops::ControlFlow;
use std::sync::Arc;

use lab_base::error::{Error, Result};
use lab_models::Architecture;
use lab_training::data_parallel::BeforeForward;
use lab_training::{
    Averaged, Continuation, Ema, Failed, Hold, Parts, Phase, Progress, Rows, RunResult, RunSettings, Schedule, Source,
    TrainStep, Trainer, Update, bound, data_name, run, value_of,
};
use memcore::amp::Autocast;
use memcore::nn::{Converted, Init, Parameter, trained_values};
use memcore::{Array, Device, NoGrad, Tensor, context, ops};

use super::adversaries;
use super::batches::{self, Wanted};
use super::model::Exported;
use super::network::Network;
use super::types;

/// An exported network, with the variables of the script that trains it.
pub(super) struct ExportedStep<'a> {
    model: &'a Exported,
    device: Device,
    network: Arc<Network>,
    parameters: Vec<Parameter>,
    buffers: Vec<(String, Array)>,
    update: Update,
    settings: RunSettings,
    source: Source,
    /// What a rank does before each forward pass.
    before_forward: Option<BeforeForward>,
    inputs: Vec<Tensor>,
    target: Option<Tensor>,
    outputs: Vec<Option<Tensor>>,
    loss: Option<Tensor>,
    /// Region of autocast that the step is in.
    autocast: Option<Autocast>,
    /// During an evaluation, the values of the loop's own names.
    aside: Option<Names>,
}

/// Inputs, target, outputs and loss, in the order of their first assignment.
type Names = (Vec<Tensor>, Option<Tensor>, Vec<Option<Tensor>>, Option<Tensor>);

/// Returns the schedule of the run. If the network computes its loss, the default schedule has no phase for the loss: it is part of the forward pass.
fn schedule(model: &Exported, settings: &RunSettings) -> Result<Schedule> {
    if settings.schedule.names(Phase::Clear) {
        return Err(Error::usage("schedule", "an exported network has no lists that layers append to: no clear"));
    }
    if settings.schedule == Schedule::default() && model.loss.kind.is_none() {
        let order = Phase::USUAL.into_iter().filter(|phase| *phase != Phase::Loss);
        return Ok(Schedule::of(order.collect(), "s"));
    }
    Ok(settings.schedule.clone())
}

/// Returns the settings with the schedule of the run, checked.
pub(super) fn scheduled(model: &Exported, settings: &RunSettings) -> Result<RunSettings> {
    let settings = RunSettings { schedule: schedule(model, settings)?, ..settings.clone() };
    settings.check()?;
    Ok(settings)
}

impl<'a> ExportedStep<'a> {
    /// Builds the network and its optimizer, and takes the rows of it.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that cannot work; those of the device.
    fn new(
        model: &'a Exported,
        device: &Device,
        settings: RunSettings,
        source: Source,
        rows: &mut Rows,
    ) -> Result<Self> {
        settings.check_network(model, settings.batch)?;
        settings.check_device(device)?;
        let dtype = settings.precision.dtype();
        let mut init = settings.tuned(Init::new(device, dtype, settings.seed));
        let mut network = model.network(&init)?;
        rows.take("model");
        if settings.channels_last {
            rows.phase("channels_last");
            let (parameters, buffers, constants) = (init.parameters(), init.buffers(), init.constants());
            drop(network);
            let before = Converted { parameters, buffers, constants };
            init = settings.tuned(Init::in_channels_last(device, dtype, settings.seed, before));
            network = model.network(&init)?;
            rows.take("channels_last");
        }
        let network = Arc::new(network);
        let parameters = model.optimizer_order(init.parameters());
        if parameters.is_empty() {
            return Err(Error::usage(&model.contents().file, "has no parameters that are trained (requires_grad)"));
        }
        let update = Update::new(&settings, &parameters)?;
        Ok(Self::around(model, device, network, (parameters, init.buffers(), update), settings, source))
    }

    /// Wraps a network that is on a device, with its parameters, its buffers and what updates it; `settings` are [`scheduled`].
    pub(super) fn around(
        model: &'a Exported,
        device: &Device,
        network: Arc<Network>,
        (parameters, buffers, update): (Vec<Parameter>, Vec<(String, Array)>, Update),
        settings: RunSettings,
        source: Source,
    ) -> Self {
        Self {
            model,
            device: device.clone(),
            network,
            parameters,
            buffers,
            update,
            settings,
            source,
            before_forward: None,
            inputs: Vec::new(),
            target: None,
            outputs: Vec::new(),
            loss: None,
            autocast: None,
            aside: None,
        }
    }

    /// The same step, in which a rank does this before each forward pass.
    pub(super) fn after(self, before_forward: Option<BeforeForward>) -> Self {
        Self { before_forward, ..self }
    }

    fn names(&self, phase: Phase) -> bool {
        self.settings.schedule.names(phase)
    }

    /// Runs the network. The outputs before are freed after the new ones are made.
    fn call(&mut self) -> Result<()> {
        if let Some(before) = &self.before_forward {
            before()?;
        }
        let outputs = self.network.outputs(&self.inputs, self.aside.is_some())?;
        self.outputs = outputs;
        Ok(())
    }

    /// Computes the loss and binds it to its name. The region of autocast ends here, unless the schedule says where.
    fn named_loss(&mut self) -> Result<()> {
        let output = self.outputs.get(self.model.loss.output).and_then(Option::as_ref);
        let output = output
            .ok_or_else(|| Error::usage(&self.model.contents().file, "the output of the loss is not a tensor"))?;
        self.loss = Some(self.model.loss.of_output(output, self.target.as_ref())?);
        if !self.names(Phase::ExitAutocast) {
            self.autocast = None;
        }
        let count = self.settings.accumulate;
        if count > 1 && self.aside.is_none() {
            self.loss = Some(ops::div_scalar(bound(&self.loss)?, count as f64)?);
        }
        Ok(())
    }
}

/// Frees inputs as Python frees a list: the last one first.
fn freed(inputs: Vec<Tensor>) {
    inputs.into_iter().rev().for_each(drop);
}

impl TrainStep for ExportedStep<'_> {
    fn settings(&self) -> &RunSettings {
        &self.settings
    }

    fn update(&mut self) -> &mut Update {
        &mut self.update
    }

    fn input(&mut self, number: usize) -> Result<()> {
        self.load_batch(self.settings.examples(number), number)
    }

    fn load_batch(&mut self, examples: usize, number: usize) -> Result<()> {
        let _op = context::op("to>_to_copy");
        let wanted = Wanted { number, examples, calls: 1 };
        let (model, run, source, device) = (self.model, &self.settings, &self.source, &self.device);
        let (inputs, target) = batches::inputs(model, run, source, wanted, &|_| device.clone(), device)?;
        // The inputs before are freed after the new ones are made; the targets before, after the new targets.
        let before = std::mem::replace(&mut self.inputs, inputs);
        drop(_op);
        freed(before);
        if self.model.loss.target_dims(1).is_some() {
            let _op = context::op("to>_to_copy");
            let target = match target {
                Some(target) => Some(target),
                None => batches::targets(model, &self.settings, &self.source, wanted, &self.device)?,
            };
            let before = std::mem::replace(&mut self.target, target);
            drop(_op);
            drop(before);
        }
        Ok(())
    }

    fn forward(&mut self) -> Result<()> {
        self.autocast = self.settings.precision.autocast().map(Autocast::new);
        self.call()?;
        if !self.names(Phase::Loss) {
            if self.names(Phase::Backward) {
                return self.named_loss();
            }
            self.autocast = None;
        }
        Ok(())
    }

    fn loss(&mut self) -> Result<()> {
        self.named_loss()
    }

    fn exit_autocast(&mut self) {
        self.autocast = None;
    }

    fn backward(&mut self) -> Result<()> {
        self.update.backward(bound(&self.loss)?)
    }

    fn del(&mut self) -> Result<()> {
        self.outputs = Vec::new();
        Ok(())
    }

    fn forward_no_grad(&mut self) -> Result<()> {
        let _no_grad = NoGrad::new();
        let _autocast = self.settings.precision.autocast().map(Autocast::new);
        self.call()
    }

    fn loss_value(&self) -> Result<Option<f64>> {
        value_of(&self.loss)
    }

    fn enter_evaluation(&mut self) -> Result<()> {
        let names =
            (std::mem::take(&mut self.inputs), self.target.take(), std::mem::take(&mut self.outputs), self.loss.take());
        self.aside = Some(names);
        Ok(())
    }

    fn results(&self) -> Vec<Tensor> {
        self.outputs.iter().flatten().cloned().collect()
    }

    fn leave_evaluation(&mut self) {
        if let Some((inputs, target, outputs, loss)) = self.aside.take() {
            self.inputs = inputs;
            self.target = target;
            self.outputs = outputs;
            self.loss = loss;
        }
    }

    fn delete_except(&mut self, held: Hold) -> Result<()> {
        if !held.inputs {
            freed(std::mem::take(&mut self.inputs));
            self.target = None;
        }
        if !held.outputs {
            self.outputs = Vec::new();
        }
        if !held.loss {
            self.loss = None;
        }
        Ok(())
    }

    fn averaged(&self, kind: Ema) -> Result<Averaged> {
        if kind == Ema::Model {
            let problem =
                "model: what a copy of an exported module takes was not recorded; parameters keeps a list of them";
            return Err(Error::usage("ema", problem));
        }
        Ok(Averaged { constants: Vec::new(), parameters: self.parameters.clone(), buffers: Vec::new() })
    }

    fn parts(&mut self) -> Parts<'_> {
        Parts {
            devices: vec![&self.device],
            copies: &[],
            parameters: &self.parameters,
            buffers: &self.buffers,
            update: &mut self.update,
            settings: &self.settings,
            data: data_name(&self.source),
        }
    }

    fn parameter_count(&self) -> u64 {
        trained_values(&self.parameters)
    }

    /// Frees the variables in the order of their first assignment: the model, the optimizer with its state, inputs, targets, outputs, loss.
    fn release(self) {
        let Self { network, parameters, buffers, update, inputs, target, outputs, loss, .. } = self;
        drop(buffers);
        drop(network);
        drop(parameters);
        drop(update);
        freed(inputs);
        drop(target);
        drop(outputs);
        drop(loss);
    }
}

/// Refuses a data set that the network does not take.
pub(super) fn check_source(model: &Exported, source: &Source) -> Result<()> {
    if matches!(source, Source::Dataset { .. }) && !model.takes_examples() {
        let problem = "a data set fits a network with one input and a cross entropy outside of it";
        return Err(Error::usage("data", problem));
    }
    Ok(())
}

/// Trains a network from its first to its last step. `continuation` can restore the start from a file, and save the state for the next run.
///
/// # Errors
/// Settings that cannot work, data that do not fit, those of the device; with what was measured before.
pub fn train_from(
    model: &Exported,
    device: &Device,
    settings: &RunSettings,
    source: Source,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult, Failed> {
    continuation.check(device)?;
    types::check(model, settings)?;
    if let Some(discriminator) = model.adversary() {
        types::check(discriminator, settings)?;
        return adversaries::train_from([model, discriminator], device, settings, &source, continuation, progress);
    }
    check_source(model, &source)?;
    let settings = scheduled(model, settings)?;
    let kept = settings.rows;
    let trainer = Trainer::built(device, kept, |rows| ExportedStep::new(model, device, settings, source, rows))?;
    run(trainer.averaging()?, device, continuation, progress)
}
