//! Training of one of this program's networks, with its script's variables.

use lab_base::error::{Error, Result};
use lab_models::Model;
use memcore::amp::Autocast;
use memcore::nn::ListSlot;
use memcore::{Device, NoGrad, Tensor, context, ops};

use super::average::{Averaged, Ema};
use super::between::Hold;
use super::checkpoint::{Parts, data_name};
use super::evaluate::{Accuracy, evaluate};
use super::loss::loss;
use super::schedule::Phase;
use super::settings::RunSettings;
use super::source::Source;
use super::train_step::{TrainStep, bound, value_of};
use super::update::Update;
use crate::data::Split;

/// A network with the variables of a script that trains it. Each variable keeps its value until the next one exists.
pub struct ModelStep {
    /// Device of the network.
    pub device: Device,
    /// The network.
    pub model: Model,
    /// Its optimizer and loss scaler.
    pub update: Update,
    /// Settings of the run.
    pub settings: RunSettings,
    /// Source of the batches.
    pub source: Source,
    /// Variable `x`.
    pub input: Option<Tensor>,
    /// Variable `y`.
    pub target: Option<Tensor>,
    /// Variable `out`.
    pub output: Option<Tensor>,
    /// Variable `loss`.
    pub loss: Option<Tensor>,
    /// The region of autocast that the step is in.
    autocast: Option<Autocast>,
    /// During an evaluation, the values of the loop's own names.
    aside: Option<Names>,
}

/// Input, target, output and loss, in the order of their first assignment.
type Names = [Option<Tensor>; 4];

impl ModelStep {
    /// State before the first batch.
    pub fn new(device: &Device, model: Model, update: Update, settings: &RunSettings, source: Source) -> Self {
        Self {
            device: device.clone(),
            model,
            update,
            settings: settings.clone(),
            source,
            input: None,
            target: None,
            output: None,
            loss: None,
            autocast: None,
            aside: None,
        }
    }

    /// Loads the batch of step `number`, with `batch` examples.
    ///
    /// # Errors
    /// The data's; those of the device.
    pub fn load(&mut self, batch: usize, number: usize) -> Result<()> {
        let dtype = self.settings.precision.dtype();
        let task = self.settings.task(&self.model.task, number);
        let data = self.source.batch(&task, batch, number, self.device.computes())?;
        let old = self.settings.schedule.one_batch.then(|| (self.input.take(), self.target.take()));
        // The program frees the earlier value, not the copy.
        let input = {
            let _op = context::op("to>_to_copy");
            data.upload_inputs(&self.device, dtype)?
        };
        let input = self.settings.in_format(input)?;
        self.input = Some(input);
        if self.settings.schedule.names(Phase::Loss) {
            let target = {
                let _op = context::op("to>_to_copy");
                data.upload_targets(&self.device, dtype)?
            };
            self.target = Some(target);
        }
        drop(old);
        Ok(())
    }
}

impl TrainStep for ModelStep {
    fn settings(&self) -> &RunSettings {
        &self.settings
    }

    fn update(&mut self) -> &mut Update {
        &mut self.update
    }

    fn input(&mut self, number: usize) -> Result<()> {
        self.load(self.settings.examples(number), number)
    }

    fn forward(&mut self) -> Result<()> {
        self.autocast = self.settings.precision.autocast().map(Autocast::new);
        self.output = Some(self.model.module.forward(bound(&self.input)?)?);
        if !self.settings.schedule.names(Phase::Loss) {
            self.autocast = None;
        }
        Ok(())
    }

    fn loss(&mut self) -> Result<()> {
        self.loss = Some(loss(&self.model.task.loss, bound(&self.output)?, bound(&self.target)?)?);
        if !self.settings.schedule.names(Phase::ExitAutocast) {
            self.autocast = None;
        }
        if self.settings.accumulate > 1 && self.aside.is_none() {
            self.loss = Some(ops::div_scalar(bound(&self.loss)?, self.settings.accumulate as f64)?);
        }
        Ok(())
    }

    fn exit_autocast(&mut self) {
        self.autocast = None;
    }

    fn backward(&mut self) -> Result<()> {
        self.update.backward(bound(&self.loss)?)
    }

    fn del(&mut self) -> Result<()> {
        self.output = None;
        Ok(())
    }

    fn forward_no_grad(&mut self) -> Result<()> {
        let _no_grad = NoGrad::new();
        let _autocast = self.settings.precision.autocast().map(Autocast::new);
        self.output = Some(self.model.module.forward(bound(&self.input)?)?);
        Ok(())
    }

    fn clear(&mut self) -> Result<()> {
        self.model.lists.iter().for_each(ListSlot::clear);
        Ok(())
    }

    fn loss_value(&self) -> Result<Option<f64>> {
        value_of(&self.loss)
    }

    fn enter_evaluation(&mut self) -> Result<()> {
        if !self.settings.schedule.names(Phase::Loss) {
            return Err(Error::usage("eval-every", "the schedule has no loss to evaluate"));
        }
        if !(self.model.lists.is_empty() && self.model.variables.is_empty()) {
            return Err(Error::usage("eval-every", "a network that keeps intermediate results is not evaluated here"));
        }
        self.model.training.set(false);
        self.aside = Some([self.input.take(), self.target.take(), self.output.take(), self.loss.take()]);
        Ok(())
    }

    fn load_batch(&mut self, examples: usize, number: usize) -> Result<()> {
        self.load(examples, number)
    }

    fn results(&self) -> Vec<Tensor> {
        self.output.iter().cloned().collect()
    }

    fn leave_evaluation(&mut self) {
        self.model.training.set(true);
        let Some(names) = self.aside.take() else { return };
        let own = [&mut self.input, &mut self.target, &mut self.output, &mut self.loss];
        own.into_iter().zip(names).for_each(|(name, value)| *name = value);
    }

    fn delete_except(&mut self, held: Hold) -> Result<()> {
        if !held.inputs {
            (self.input, self.target) = (None, None);
        }
        if !held.outputs {
            self.output = None;
        }
        if !held.loss {
            self.loss = None;
        }
        Ok(())
    }

    fn averaged(&self, _: Ema) -> Result<Averaged> {
        let Model { constants, parameters, buffers, .. } = &self.model;
        Ok(Averaged { constants: constants.clone(), parameters: parameters.clone(), buffers: buffers.clone() })
    }

    fn parts(&mut self) -> Parts<'_> {
        Parts {
            devices: vec![&self.device],
            copies: &[],
            parameters: &self.model.parameters,
            buffers: &self.model.buffers,
            update: &mut self.update,
            settings: &self.settings,
            data: data_name(&self.source),
        }
    }

    fn parameter_count(&self) -> u64 {
        self.model.parameter_count()
    }

    fn accuracy(&self) -> Result<Option<Accuracy>> {
        match &self.source {
            Source::Dataset { data, .. } => evaluate(&self.model, &self.device, data, Split::Test, &self.settings),
            Source::Synthetic { .. } | Source::Renewed { .. } => Ok(None),
        }
    }

    /// Frees variables in the order of their first assignment: the model, the optimizer with its state, the loss scaler, input, target, what layers
    /// keep in variables, output, loss. A graph that is still held keeps the parameters until it is freed itself.
    fn release(self) {
        let Self { model, update, input, target, output, loss, .. } = self;
        drop((model.constants, model.buffers));
        drop(model.module);
        drop(model.parameters);
        drop(update);
        model.lists.iter().for_each(ListSlot::clear);
        drop(input);
        drop(target);
        for variable in model.variables {
            variable.set(None);
        }
        drop(output);
        drop(loss);
    }
}
