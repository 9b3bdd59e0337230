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
use lab_training::{
    Averaged, Continuation, Ema, Failed, Phase, Progress, Rows, RunResult, RunSettings, Schedule, ScriptNetwork,
    ScriptStep, Source, Trainer, Update, run,
};
use memcore::nn::{Converted, Init, Parameter, trained_values};
use memcore::{Array, Device, Tensor, context};

use super::adversaries;
use super::batches::{self, Wanted};
use super::gathered::Gathered;
use super::model::Exported;
use super::network::Network;
use super::types;

/// An exported network on its device, as a script uses it.
pub(super) struct ExportedNetwork<'a> {
    model: &'a Exported,
    device: Device,
    network: Arc<Network>,
    parameters: Vec<Parameter>,
    buffers: Vec<(String, Array)>,
    source: Source,
    /// The parameters that ranks gather piece by piece; `None` where each has all of them.
    gathered: Option<Gathered>,
}

/// An exported network in training.
pub(super) type ExportedStep<'a> = ScriptStep<ExportedNetwork<'a>>;

/// The names of a batch, in the order of their first assignment.
#[derive(Default)]
pub(super) struct ExportedBatch {
    inputs: Inputs,
    target: Option<Tensor>,
}

/// The inputs of a call. They are freed as Python frees a list: the last one first.
#[derive(Default)]
struct Inputs(Vec<Tensor>);

impl Drop for Inputs {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// Returns the schedule of the run. If the network computes its loss, the default schedule has no phase for the loss: it is part of the forward pass.
fn schedule(model: &Exported, settings: &RunSettings) -> Result<Schedule> {
    if settings.schedule.names(Phase::Clear) {
        return Err(Error::usage("schedule", "an exported network has no lists that layers append to: no clear"));
    }
    if settings.schedule == Schedule::default() && model.loss.kind.is_none() {
        let order = Phase::USUAL.into_iter().filter(|phase| *phase != Phase::Loss);
        return Ok(Schedule::in_order(order.collect(), "s"));
    }
    Ok(settings.schedule.clone())
}

/// Returns the settings with the schedule of the run, checked.
pub(super) fn scheduled(model: &Exported, settings: &RunSettings) -> Result<RunSettings> {
    let settings = RunSettings { schedule: schedule(model, settings)?, ..settings.clone() };
    settings.check()?;
    Ok(settings)
}

/// Builds the network and its optimizer, and takes the rows of it; `settings` are [`scheduled`].
///
/// # Errors
/// [`Error::Usage`] for settings that cannot work; those of the device.
fn built<'a>(
    model: &'a Exported,
    device: &Device,
    settings: RunSettings,
    source: Source,
    rows: &mut Rows,
) -> Result<ExportedStep<'a>> {
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
        let before = Converted::from_lists(parameters, buffers, constants);
        init = settings.tuned(Init::in_channels_last(device, dtype, settings.seed, before));
        network = model.network(&init)?;
        rows.take("channels_last");
    }
    let parameters = model.optimizer_order(init.parameters());
    if parameters.is_empty() {
        return Err(Error::usage(&model.contents().file, "has no parameters that are trained (requires_grad)"));
    }
    let update = Update::new(&settings, &parameters)?;
    let network = ExportedNetwork::around(model, device, Arc::new(network), (parameters, init.buffers()), source);
    Ok(ScriptStep::new(network, update, settings))
}

impl<'a> ExportedNetwork<'a> {
    /// Wraps a network that is on a device, with its parameters and buffers.
    pub(super) fn around(
        model: &'a Exported,
        device: &Device,
        network: Arc<Network>,
        (parameters, buffers): (Vec<Parameter>, Vec<(String, Array)>),
        source: Source,
    ) -> Self {
        Self { model, device: device.clone(), network, parameters, buffers, source, gathered: None }
    }

    /// The same network with parameters that are gathered piece by piece.
    pub(super) fn gathering(self, gathered: Option<Gathered>) -> Self {
        Self { gathered, ..self }
    }
}

impl ScriptNetwork for ExportedNetwork<'_> {
    type Batch = ExportedBatch;
    /// The outputs; `None` for one that is not a tensor.
    type Output = Vec<Option<Tensor>>;

    fn device(&self) -> &Device {
        &self.device
    }

    fn source(&self) -> &Source {
        &self.source
    }

    fn saved_parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn saved_buffers(&self) -> &[(String, Array)] {
        &self.buffers
    }

    fn parameter_count(&self) -> u64 {
        trained_values(&self.parameters)
    }

    fn load(&self, batch: &mut ExportedBatch, examples: usize, number: usize, settings: &RunSettings) -> Result<()> {
        let _op = context::op("to>_to_copy");
        let wanted = Wanted { number, examples, calls: 1 };
        let (model, source, device) = (self.model, &self.source, &self.device);
        let (inputs, target) = batches::inputs(model, settings, source, wanted, &|_| device.clone(), device)?;
        let before = std::mem::replace(&mut batch.inputs, Inputs(inputs));
        drop(_op);
        drop(before);
        if model.loss.target_dims(1).is_some() {
            let _op = context::op("to>_to_copy");
            let target = match target {
                Some(target) => Some(target),
                None => batches::targets(model, settings, source, wanted, device)?,
            };
            let before = std::mem::replace(&mut batch.target, target);
            drop(_op);
            drop(before);
        }
        Ok(())
    }

    fn call(&self, batch: &ExportedBatch, evaluates: bool) -> Result<Vec<Option<Tensor>>> {
        Ok(self.network.outputs(&batch.inputs.0, evaluates, self.gathered.as_ref())?)
    }

    fn loss(&self, outputs: &Vec<Option<Tensor>>, batch: &ExportedBatch) -> Result<Tensor> {
        let output = outputs.get(self.model.loss.output).and_then(Option::as_ref);
        let output = output
            .ok_or_else(|| Error::usage(&self.model.contents().file, "the output of the loss is not a tensor"))?;
        Ok(self.model.loss.of_output(output, batch.target.as_ref())?)
    }

    fn results(&self, outputs: &Vec<Option<Tensor>>) -> Vec<Tensor> {
        outputs.iter().flatten().cloned().collect()
    }

    fn averaged(&self, kind: Ema) -> Result<Averaged> {
        if kind == Ema::Model {
            let problem =
                "model: what a copy of an exported module takes was not recorded; parameters keeps a list of them";
            return Err(Error::usage("ema", problem));
        }
        Ok(Averaged { constants: Vec::new(), parameters: self.parameters.clone(), buffers: Vec::new() })
    }

    fn release(self, update: Update, batch: ExportedBatch) {
        let Self { network, parameters, buffers, .. } = self;
        drop(buffers);
        drop(network);
        drop(parameters);
        drop(update);
        drop(batch);
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
    let trainer = Trainer::built(device, kept, |rows| built(model, device, settings, source, rows))?;
    run(trainer.averaging()?, device, continuation, progress)
}
