//! The training loop of the library's own `Trainer` (transformers 5.23 with accelerate 1.15, one process), as recorded.
//!
//! ```python
//! batches = [next(loader) for _ in range(accumulate)]        # all micro-batches of a step lie on the device
//! items = sum((labels != -100).sum() for labels in batches) / 1
//! for inputs in batches:
//!     outputs = model(**inputs, num_items_in_batch=items)    # under autocast, 16-bit results converted to float32
//!     loss = outputs["loss"]; loss *= 1; del outputs
//!     (loss / 1).backward(); step_loss = loss.detach()
//!     tr_loss += step_loss                                   # after a look for NaN and infinity
//! grad_norm = clip_grad_norm_(model.parameters(), 1.0); optimizer.step(); model.zero_grad()
//! ```
//!
//! Results go before the backward pass, gradients go after the step; the batches, the count of their labels, the last loss and the norm of the
//! gradients live until the names are bound again. Nothing is logged: `logging_steps` is 500 by default.

use lab_base::error::{Error, Result};
use lab_training::{
    Accuracy, CheckpointSave, OptimizerKind, OptimizerSettings, Parts, Phase, RunSettings, Schedule, Source, TrainStep,
    Trainer, Update, bound, data_name, value_of,
};
use memcore::amp::Autocast;
use memcore::optim::Implementation;
use memcore::{Array, DType, Device, Result as DeviceResult, Tensor, ops};

use super::Pretrained;
use super::groups::by_decay;
use super::inputs::Inputs;
use super::network::{Counting, Output};
use super::prepared::Prepared;

/// Default of `max_grad_norm`, the largest norm of the gradients.
pub const MAX_GRAD_NORM: f64 = 1.0;

/// Returns the default optimizer of this kind in `TrainingArguments`: AdamW fused (`adamw_torch_fused`, the default from PyTorch 2.8 on), others in
/// PyTorch's form, learning rate 5e-5, no weight decay.
pub fn trainer_optimizer(kind: OptimizerKind) -> OptimizerSettings {
    let usual = OptimizerSettings::new(kind, 5e-5);
    let implementation = if kind == OptimizerKind::AdamW { Implementation::Fused } else { usual.implementation };
    OptimizerSettings { weight_decay: Some(0.0), implementation, ..usual }
}

/// A network in training by the library's `Trainer`.
pub struct LibraryStep {
    run: Prepared,
    update: Update,
    settings: RunSettings,
    counting: Counting,
    /// Variables that live from one step to the next.
    names: Names,
}

/// The variables of the loop that hold memory.
#[derive(Default)]
struct Names {
    batches: Vec<Inputs>,
    /// Number of the current micro-batch.
    micro: usize,
    items: Option<Tensor>,
    inputs: Option<Inputs>,
    loss: Option<Tensor>,
    /// Loss that `training_step` returns, detached, before it is bound to `step_loss`.
    detached: Option<Array>,
    step_loss: Option<Array>,
    /// Sum of the losses; read when something is logged.
    _total: Option<Array>,
    grad_norm: Option<Array>,
}

/// Order of the phases.
const ORDER: [Phase; 7] =
    [Phase::Inputs, Phase::Forward, Phase::Backward, Phase::AddLoss, Phase::Clip, Phase::Step, Phase::ZeroGrad];

/// Builds the network and its optimizer.
///
/// # Errors
/// [`Error::Usage`] for settings that cannot work; those of the device.
pub fn library_trainer(
    model: &Pretrained,
    device: &Device,
    settings: &RunSettings,
    source: Source,
) -> Result<Trainer<LibraryStep>> {
    if settings.schedule != Schedule::default() {
        return Err(Error::usage("schedule", "the order of the library's Trainer is its own"));
    }
    settings.check_usual("with the library's Trainer")?;
    if !settings.set_to_none {
        return Err(Error::usage("zero_grad", "the library's Trainer sets gradients to none"));
    }
    let settings = RunSettings { schedule: Schedule::in_order(ORDER.to_vec(), "s"), ..settings.clone() };
    let (run, update) = Prepared::new(model, device, &settings, source, |settings, parameters| {
        let groups = by_decay(&settings.optimizer, parameters)?;
        Ok(Update::with(settings, Some(Box::new(groups))))
    })?;
    let total = Array::zeros(device, &[], DType::F32)?;
    let names = Names { _total: Some(total), ..Names::default() };
    let phases = LibraryStep { run, update, settings, counting: model.counting()?, names };
    Ok(Trainer::new(phases, std::slice::from_ref(device), ""))
}

impl LibraryStep {
    /// Makes the batches of a step, and counts their labels.
    fn load(&mut self, first: usize) -> Result<()> {
        let count = self.settings.accumulate;
        let batches: Vec<Inputs> = (0..count).map(|micro| self.batch(first + micro)).collect::<Result<_>>()?;
        let items = if self.counting.counts { Some(counted(&batches, self.counting.shifted)?) } else { None };
        // Lists are emptied from the end, as Python's are.
        let before = std::mem::replace(&mut self.names.batches, batches);
        before.into_iter().rev().for_each(|batch| self.free(batch));
        self.names.items = items;
        Ok(())
    }

    /// Returns the loss of the current batch; the network's other results are freed here.
    fn call(&self) -> Result<Tensor> {
        let inputs = bound(&self.names.inputs)?.clone();
        let items = self.names.items.clone().filter(|_| self.counting.passed);
        let inputs = Inputs { items, ..inputs };
        let autocast = self.settings.precision.autocast().map(Autocast::new);
        let casts = autocast.is_some();
        let _kept = self.settings.checkpoint_save.as_ref().map(CheckpointSave::enter);
        let Output { loss, logits, past_key_values, encoder_last_hidden_state } = self.run.network.forward(&inputs)?;
        drop(autocast);
        // convert_outputs_to_fp32: applied to results under autocast.
        let widened = |tensor: &Tensor| if casts { ops::cast(tensor, DType::F32) } else { Ok(tensor.clone()) };
        let converted: Vec<Tensor> = logits.iter().map(widened).collect::<DeviceResult<_>>()?;
        let converted = (converted, encoder_last_hidden_state.as_ref().map(widened).transpose()?);
        drop((logits, past_key_values, encoder_last_hidden_state));
        // Times the number of processes, if labels were counted.
        let loss = if self.counting.counts { ops::times_one_(&loss)? } else { loss };
        drop(converted);
        Ok(loss)
    }

    fn batch(&self, number: usize) -> Result<Inputs> {
        // The library's collator puts `labels` first.
        self.run.batches.make(self.settings.examples(number), number, self.counting.counts)
    }

    /// Binds the current batch to its name.
    fn bind(&mut self) {
        let next = self.names.batches.get(self.names.micro).cloned();
        let before = std::mem::replace(&mut self.names.inputs, next);
        before.into_iter().for_each(|batch| self.free(batch));
    }

    /// Frees a batch in the order of its dictionary.
    fn free(&self, batch: Inputs) {
        let Inputs { input, attention_mask, labels, items: _, positions: _ } = batch;
        if self.counting.counts {
            drop((labels, input, attention_mask));
        } else {
            drop((input, attention_mask, labels));
        }
    }
}

/// `num_items_in_batch`: the number of labels that count in all batches together, a float32 scalar. Here all of them count.
fn counted(batches: &[Inputs], shifted: bool) -> DeviceResult<Tensor> {
    let mut total: Option<Array> = None;
    let mut count = 0;
    for labels in batches.iter().filter_map(|batch| batch.labels.first()) {
        let device = labels.device();
        let mut dims = labels.dims().to_vec();
        if let (true, Some(time)) = (shifted, dims.last_mut()) {
            *time = time.saturating_sub(1);
        }
        count += dims.iter().product::<usize>();
        let unequal = Array::empty(device, &dims, DType::Bool)?;
        let sum = Array::empty(device, &[], DType::I64)?;
        drop(Array::empty(device, &dims, DType::I64)?);
        drop(unequal);
        let both = Array::empty(device, &[], DType::I64)?;
        drop(total.replace(both));
        drop(sum);
    }
    let device = batches.first().map(|batch| batch.input.device().clone());
    let missing = || memcore::Error::invalid("num_items_in_batch", "a step without a batch");
    let items = Array::full(&device.ok_or_else(missing)?, &[], DType::F32, count as f64)?;
    drop(total);
    Ok(Tensor::from_array(items))
}

impl TrainStep for LibraryStep {
    fn settings(&self) -> &RunSettings {
        &self.settings
    }

    fn update(&mut self) -> &mut Update {
        &mut self.update
    }

    fn input(&mut self, number: usize) -> Result<()> {
        self.load(number)?;
        self.names.micro = 0;
        self.bind();
        Ok(())
    }

    fn forward(&mut self) -> Result<()> {
        if self.names.micro > 0 {
            self.bind();
        }
        self.names.micro += 1;
        self.names.loss = Some(self.call()?);
        Ok(())
    }

    fn backward(&mut self) -> Result<()> {
        let mut loss = bound(&self.names.loss)?.clone();
        self.names.loss = None;
        if !self.counting.counts {
            loss = ops::div_scalar(&loss, self.settings.accumulate as f64)?;
        }
        self.update.backward(&ops::div_scalar(&loss, 1.0)?)?;
        // Detached when `training_step` returns it: the graph is freed.
        self.names.detached = Some(loss.array().clone());
        Ok(())
    }

    /// `tr_loss += loss`, after `torch.isnan(loss) or torch.isinf(loss)`. The previous loss is freed first.
    fn add_loss(&mut self) -> Result<()> {
        let loss = bound(&self.names.detached)?.clone();
        self.names.detached = None;
        let (device, dtype) = (&self.run.device, loss.dtype());
        self.names.step_loss = Some(loss);
        drop(Array::empty(device, &[], DType::Bool)?);
        let absolute = Array::empty(device, &[], dtype)?;
        let infinite = Array::empty(device, &[], DType::Bool)?;
        drop((absolute, infinite));
        Ok(())
    }

    fn clip(&mut self) -> Result<()> {
        self.names.grad_norm = None;
        let norm = self.settings.clip_grad_norm.unwrap_or(MAX_GRAD_NORM);
        self.names.grad_norm = self.update.clip(&self.run.parameters, norm)?;
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        self.update.apply()?;
        self.update.rescale()
    }

    fn zero_grad(&mut self) -> Result<()> {
        self.run.parameters.iter().for_each(|parameter| parameter.tensor().set_grad(None));
        Ok(())
    }

    fn loss_value(&self) -> Result<Option<f64>> {
        value_of(&self.names.step_loss.clone().map(Tensor::from_array))
    }

    fn parts(&mut self) -> Parts<'_> {
        Parts {
            devices: vec![&self.run.device],
            copies: &[],
            parameters: &self.run.optimized,
            buffers: &[],
            update: &mut self.update,
            settings: &self.settings,
            data: data_name(self.run.batches.source()),
        }
    }

    fn parameter_count(&self) -> u64 {
        self.run.parameter_count()
    }

    fn accuracy(&self) -> Result<Option<Accuracy>> {
        self.run.accuracy(&self.settings)
    }
}
