//! One of this program's networks, as a script trains it.

use lab_base::error::{Error, Result};
use lab_models::Model;
use memcore::nn::{ListSlot, Parameter};
use memcore::{Array, Device, Tensor, context};

use super::average::{Averaged, Ema};
use super::evaluate::{Accuracy, evaluate};
use super::loss::loss;
use super::schedule::Phase;
use super::script_step::{ScriptNetwork, ScriptStep};
use super::settings::RunSettings;
use super::source::Source;
use super::train_step::bound;
use super::update::Update;
use crate::data::Split;

/// A network on its device, with the source of its batches.
pub struct ModelNetwork {
    /// Device of the network.
    pub device: Device,
    /// The network.
    pub model: Model,
    /// Source of the batches.
    pub source: Source,
}

/// The names of a batch, in the order of their first assignment.
#[derive(Default)]
pub struct ModelBatch {
    /// Variable `x`.
    pub input: Option<Tensor>,
    /// Variable `y`; it has no value if the schedule computes no loss.
    pub target: Option<Tensor>,
}

/// One of this program's networks in training.
pub type ModelStep = ScriptStep<ModelNetwork>;

impl ModelStep {
    /// State of a training before the first batch.
    pub fn of_model(device: &Device, model: Model, update: Update, settings: &RunSettings, source: Source) -> Self {
        Self::new(ModelNetwork { device: device.clone(), model, source }, update, settings.clone())
    }
}

impl ScriptNetwork for ModelNetwork {
    type Batch = ModelBatch;
    type Output = Tensor;

    fn device(&self) -> &Device {
        &self.device
    }

    fn source(&self) -> &Source {
        &self.source
    }

    fn saved_parameters(&self) -> &[Parameter] {
        &self.model.parameters
    }

    fn saved_buffers(&self) -> &[(String, Array)] {
        &self.model.buffers
    }

    fn parameter_count(&self) -> u64 {
        self.model.parameter_count()
    }

    fn load(&self, batch: &mut ModelBatch, examples: usize, number: usize, settings: &RunSettings) -> Result<()> {
        let dtype = settings.precision.dtype();
        let task = settings.task(&self.model.task, number);
        let data = self.source.batch(&task, examples, number, self.device.computes())?;
        let old = settings.schedule.one_batch.then(|| std::mem::take(batch));
        // The program frees the earlier value, not the copy.
        let input = {
            let _op = context::op("to>_to_copy");
            data.upload_inputs(&self.device, dtype)?
        };
        batch.input = Some(settings.in_format(input)?);
        if settings.schedule.names(Phase::Loss) {
            let target = {
                let _op = context::op("to>_to_copy");
                data.upload_targets(&self.device, dtype)?
            };
            batch.target = Some(target);
        }
        drop(old);
        Ok(())
    }

    fn call(&self, batch: &ModelBatch, _: bool) -> Result<Tensor> {
        Ok(self.model.module.forward(bound(&batch.input)?)?)
    }

    fn loss(&self, output: &Tensor, batch: &ModelBatch) -> Result<Tensor> {
        Ok(loss(&self.model.task.loss, output, bound(&batch.target)?)?)
    }

    fn results(&self, output: &Tensor) -> Vec<Tensor> {
        vec![output.clone()]
    }

    fn set_training(&self, trains: bool) {
        self.model.training.set(trains);
    }

    fn check_evaluation(&self, settings: &RunSettings) -> Result<()> {
        if !settings.schedule.names(Phase::Loss) {
            return Err(Error::usage("eval-every", "the schedule has no loss to evaluate"));
        }
        if !(self.model.lists.is_empty() && self.model.variables.is_empty()) {
            return Err(Error::usage("eval-every", "a network that keeps intermediate results is not evaluated here"));
        }
        Ok(())
    }

    fn clear_lists(&self) {
        self.model.lists.iter().for_each(ListSlot::clear);
    }

    fn averaged(&self, _: Ema) -> Result<Averaged> {
        let Model { constants, parameters, buffers, .. } = &self.model;
        Ok(Averaged { constants: constants.clone(), parameters: parameters.clone(), buffers: buffers.clone() })
    }

    fn accuracy(&self, settings: &RunSettings) -> Result<Option<Accuracy>> {
        match &self.source {
            Source::Dataset { data, .. } => evaluate(&self.model, &self.device, data, Split::Test, settings),
            Source::Synthetic { .. } | Source::Renewed { .. } => Ok(None),
        }
    }

    /// Between the optimizer and the result are, besides the batch, what layers keep in lists and in variables.
    fn release(self, update: Update, batch: ModelBatch) {
        let Self { model, .. } = self;
        drop((model.constants, model.buffers));
        drop(model.module);
        drop(model.parameters);
        drop(update);
        model.lists.iter().for_each(ListSlot::clear);
        drop(batch);
        for variable in model.variables {
            variable.set(None);
        }
    }
}
