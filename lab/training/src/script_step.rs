//! The loop of a script that trains a network: the names that it binds, whatever the network is.
//!
//! ```python
//! x, y = batch(); opt.zero_grad(); out = model(x); loss = criterion(out, y); loss.backward(); opt.step()
//! ```
//!
//! Python frees a value when its name is bound again, or deleted. So each name keeps its value until the next one exists, unless the schedule says otherwise.

use lab_base::error::{Error, Result};
use memcore::amp::Autocast;
use memcore::autograd::SavedHooksGuard;
use memcore::nn::Parameter;
use memcore::{Array, Device, NoGrad, Tensor, ops};

use super::average::{Averaged, Ema};
use super::between::{CheckpointSave, Hold, SavedOn};
use super::checkpoint::{Parts, data_name};
use super::evaluate::Accuracy;
use super::schedule::Phase;
use super::settings::RunSettings;
use super::source::Source;
use super::train_step::{TrainStep, bound, value_of};
use super::update::Update;

/// What a rank of a divided step does before a forward pass.
pub type BeforeForward = Box<dyn Fn() -> memcore::Result<()> + Send + Sync>;

/// A network as a script uses it: how a batch is made, what a call returns, where the loss comes from.
///
/// All methods return the device's errors.
pub trait ScriptNetwork: Sized {
    /// Values of the names of a batch. The default is what they have before the first batch.
    type Batch: Default;
    /// Value of the name `out`.
    type Output;

    /// Device that the batches are loaded to.
    fn device(&self) -> &Device;

    /// Where the batches come from.
    fn source(&self) -> &Source;

    /// Parameters in the order of the files of a run.
    fn saved_parameters(&self) -> &[Parameter];

    /// Buffers that the files of a run hold.
    fn saved_buffers(&self) -> &[(String, Array)] {
        &[]
    }

    /// Number of trained values; shared ones count once.
    fn parameter_count(&self) -> u64;

    /// Makes a batch of so many examples and binds its names; `number` decides its values. The earlier value of a name is freed once the new one exists.
    fn load(&self, batch: &mut Self::Batch, examples: usize, number: usize, settings: &RunSettings) -> Result<()>;

    /// Calls the network.
    fn call(&self, batch: &Self::Batch, evaluates: bool) -> Result<Self::Output>;

    /// The loss of a result: computed from it, or a part of it.
    fn loss(&self, output: &Self::Output, batch: &Self::Batch) -> Result<Tensor>;

    /// True if the script has no name for the result, only for its loss: `loss = model(**b).loss`.
    fn keeps_only_loss(&self) -> bool {
        false
    }

    /// The tensors of a result that an evaluation collects.
    fn results(&self, output: &Self::Output) -> Vec<Tensor>;

    /// `model.train()`, or `model.eval()`.
    fn set_training(&self, _trains: bool) {}

    /// Refuses an evaluation that this network cannot have.
    fn check_evaluation(&self, _settings: &RunSettings) -> Result<()> {
        Ok(())
    }

    /// Empties the lists that layers append to.
    fn clear_lists(&self) {}

    /// The tensors that an average of this kind is of.
    fn averaged(&self, kind: Ema) -> Result<Averaged>;

    /// Accuracy on the test data; `None` without test data.
    fn accuracy(&self, _settings: &RunSettings) -> Result<Option<Accuracy>> {
        Ok(None)
    }

    /// Frees the names that are bound before the result, in the order of their first assignment: the model, the optimizer, the batch.
    fn release(self, update: Update, batch: Self::Batch) {
        drop(self);
        drop(update);
        drop(batch);
    }
}

/// A network with the variables of a script that trains it.
pub struct ScriptStep<N: ScriptNetwork> {
    /// The network, its device, and where its batches come from.
    pub network: N,
    /// Its optimizer and loss scaler.
    pub update: Update,
    /// Settings of the run.
    pub settings: RunSettings,
    /// The names of a batch.
    pub batch: N::Batch,
    /// Variable `out`.
    pub output: Option<N::Output>,
    /// Variable `loss`.
    pub loss: Option<Tensor>,
    /// What a rank of a divided step does before each forward pass.
    before_forward: Option<BeforeForward>,
    /// The region of autocast that the step is in.
    autocast: Option<Autocast>,
    /// The region around it in which what is saved goes to the host.
    saving: Option<SavedHooksGuard>,
    /// During an evaluation, the values of the loop's own names.
    outer_locals: Option<Names<N>>,
}

/// Batch, result and loss.
type Names<N> = (<N as ScriptNetwork>::Batch, Option<<N as ScriptNetwork>::Output>, Option<Tensor>);

impl<N: ScriptNetwork> ScriptStep<N> {
    /// State before the first batch.
    pub fn new(network: N, update: Update, settings: RunSettings) -> Self {
        let (batch, output, loss, before_forward, autocast, saving, outer_locals) = Default::default();
        Self { network, update, settings, batch, output, loss, before_forward, autocast, saving, outer_locals }
    }

    /// The same step, in which a rank does this before each forward pass.
    pub fn after(self, before_forward: Option<BeforeForward>) -> Self {
        Self { before_forward, ..self }
    }

    fn names(&self, phase: Phase) -> bool {
        self.settings.schedule.names(phase)
    }

    fn output(&self) -> Result<N::Output> {
        if let Some(before) = &self.before_forward {
            before()?;
        }
        let _kept = self.settings.checkpoint_save.as_ref().map(CheckpointSave::enter);
        self.network.call(&self.batch, self.outer_locals.is_some())
    }

    /// Runs once the loss is bound: the region of autocast ends, unless the schedule says where, and micro-batches take their share.
    fn named_loss(&mut self) -> Result<()> {
        if !self.names(Phase::ExitAutocast) {
            self.autocast = None;
        }
        self.saving = None;
        let count = self.settings.accumulate;
        if count > 1 && self.outer_locals.is_none() {
            self.loss = Some(ops::div_scalar(bound(&self.loss)?, count as f64)?);
        }
        Ok(())
    }
}

impl<N: ScriptNetwork> TrainStep for ScriptStep<N> {
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
        self.network.load(&mut self.batch, examples, number, &self.settings)
    }

    fn forward(&mut self) -> Result<()> {
        // What the names held before is freed in the regions.
        self.saving = self.settings.save_on_cpu.filter(|_| self.outer_locals.is_none()).map(SavedOn::enter);
        self.autocast = self.settings.precision.autocast().map(Autocast::new);
        let output = self.output()?;
        let only_loss = self.network.keeps_only_loss();
        if only_loss {
            let loss = self.network.loss(&output, &self.batch)?;
            drop(output);
            self.loss = Some(loss);
        } else {
            self.output = Some(output);
        }
        // Without a phase of its own, the loss is bound here, where something needs it.
        if !self.names(Phase::Loss) {
            if only_loss || self.names(Phase::Backward) {
                return TrainStep::loss(self);
            }
            if !self.names(Phase::ExitAutocast) {
                self.autocast = None;
            }
        }
        Ok(())
    }

    fn loss(&mut self) -> Result<()> {
        if !self.network.keeps_only_loss() {
            self.loss = Some(self.network.loss(bound(&self.output)?, &self.batch)?);
        }
        self.named_loss()
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
        let output = self.output()?;
        if !self.network.keeps_only_loss() {
            self.output = Some(output);
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<()> {
        self.network.clear_lists();
        Ok(())
    }

    fn loss_value(&self) -> Result<Option<f64>> {
        value_of(&self.loss)
    }

    fn enter_evaluation(&mut self) -> Result<()> {
        let keeps = self.settings.evaluation.is_some_and(|evaluation| evaluation.keeps_results);
        if keeps && self.network.keeps_only_loss() {
            return Err(Error::usage("eval-keep", "logits: with --keep loss the script has no name for them"));
        }
        self.network.check_evaluation(&self.settings)?;
        self.network.set_training(false);
        self.outer_locals = Some((std::mem::take(&mut self.batch), self.output.take(), self.loss.take()));
        Ok(())
    }

    fn results(&self) -> Vec<Tensor> {
        self.output.iter().flat_map(|output| self.network.results(output)).collect()
    }

    fn leave_evaluation(&mut self) {
        self.network.set_training(true);
        if let Some((batch, output, loss)) = self.outer_locals.take() {
            self.batch = batch;
            self.output = output;
            self.loss = loss;
        }
    }

    fn delete_except(&mut self, held: Hold) -> Result<()> {
        if !held.inputs {
            self.batch = N::Batch::default();
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
        self.network.averaged(kind)
    }

    fn parts(&mut self) -> Parts<'_> {
        let Self { network, update, settings, .. } = self;
        Parts {
            devices: vec![network.device()],
            copies: &[],
            parameters: network.saved_parameters(),
            buffers: network.saved_buffers(),
            update,
            settings,
            data: data_name(network.source()),
        }
    }

    fn parameter_count(&self) -> u64 {
        self.network.parameter_count()
    }

    fn accuracy(&self) -> Result<Option<Accuracy>> {
        self.network.accuracy(&self.settings)
    }

    /// Frees the variables in the order of their first assignment. A graph that is still held keeps the parameters until it is freed itself.
    fn release(self) {
        let Self { network, update, batch, output, loss, before_forward, .. } = self;
        drop(before_forward);
        network.release(update, batch);
        drop(output);
        drop(loss);
    }
}
