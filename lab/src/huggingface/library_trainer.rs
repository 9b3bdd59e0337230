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
//! gradients live until the names are bound again. Nothing is logged: `logging_steps` is 500 unless said.

use memcore::amp::Autocast;
use memcore::nn::{Init, Parameter};
use memcore::optim::Implementation;
use memcore::{Array, DType, Device, Result as DeviceResult, Tensor, ops};

use super::Pretrained;
use super::ending::Ending;
use super::groups::Groups;
use super::inputs::Inputs;
use super::mask::attention_mask;
use super::network::{Counting, Network, Output};
use super::options::AttentionMask;
use crate::error::{Error, Result};
use crate::models::{Architecture, Input, Task};
use crate::record::{Log, Row};
use crate::training::{OptimizerKind, OptimizerSettings, Parts, RunSettings, Schedule, Source, Training, Update};

/// The largest norm of the gradients, unless said: `max_grad_norm`.
pub const MAX_GRAD_NORM: f64 = 1.0;

/// The optimizer of this kind as `TrainingArguments` make it unless told: AdamW fused (`adamw_torch_fused`, the default from PyTorch 2.8 on), others in
/// PyTorch's form, learning rate 5e-5, no weight decay.
pub fn trainer_optimizer(kind: OptimizerKind) -> OptimizerSettings {
    let usual = OptimizerSettings::new(kind, 5e-5);
    let implementation = if kind == OptimizerKind::AdamW { Implementation::Fused } else { usual.implementation };
    OptimizerSettings { weight_decay: Some(0.0), implementation, ..usual }
}

/// A network in training by the library's `Trainer`.
pub struct LibraryTrainer {
    device: Device,
    network: Network,
    /// As `model.parameters()` gives them.
    parameters: Vec<Parameter>,
    /// As the optimizer has them: in two groups.
    grouped: Vec<Parameter>,
    update: Update,
    task: Task,
    source: Source,
    mask: AttentionMask,
    ending: Ending,
    counting: Counting,
    settings: RunSettings,
    /// What is bound from one step to the next.
    names: Names,
    rows: Log,
}

/// The variables of the loop that hold memory.
#[derive(Default)]
struct Names {
    batches: Vec<Inputs>,
    items: Option<Tensor>,
    inputs: Option<Inputs>,
    step_loss: Option<Array>,
    /// What the losses add up to; read when something is logged.
    _total: Option<Array>,
    grad_norm: Option<Array>,
}

impl LibraryTrainer {
    /// Builds the network and its optimizer.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that cannot work; those of the device.
    pub fn new(model: &Pretrained, device: &Device, settings: &RunSettings) -> Result<Self> {
        settings.check()?;
        settings.check_network(model, settings.batch)?;
        if settings.schedule != Schedule::default() {
            return Err(Error::usage("schedule", "the order of the library's Trainer is its own"));
        }
        if !settings.set_to_none {
            return Err(Error::usage("zero_grad", "the library's Trainer sets gradients to none"));
        }
        device.phase("model");
        let init = Init::new(device, settings.precision.dtype(), settings.seed);
        let network = model.network(&init)?;
        let parameters = model.optimizer_order(init.parameters());
        let groups = Groups::new(&settings.optimizer, &parameters)?;
        let grouped = memcore::optim::Optimizer::parameters(&groups).to_vec();
        let update = Update::with(settings, Some(Box::new(groups)));
        let total = Array::zeros(device, &[], DType::F32)?;
        let mut trainer = Self {
            device: device.clone(),
            network,
            parameters,
            grouped,
            update,
            task: model.task(),
            source: Source::Renewed { seed: settings.seed },
            mask: model.options().attention_mask,
            ending: model.ending(),
            counting: model.counting()?,
            settings: settings.clone(),
            names: Names { _total: Some(total), ..Names::default() },
            rows: Log::new(settings.rows),
        };
        trainer.row("model");
        Ok(trainer)
    }

    /// Number of trained values; shared ones count once.
    pub fn parameter_count(&self) -> u64 {
        self.parameters.iter().map(|p| p.array().numel() as u64).sum()
    }

    /// The rows taken so far that are kept.
    pub fn rows(&self) -> &[Row] {
        self.rows.rows()
    }

    /// Takes a row now.
    pub fn row(&mut self, label: &str) {
        self.rows.push(Row::take(&self.device, label));
    }

    /// One optimizer step. Returns the loss, where there are values.
    ///
    /// # Errors
    /// Those of the device.
    pub fn step(&mut self, step: usize) -> Result<Option<f64>> {
        let count = self.settings.accumulate;
        self.device.phase("input");
        self.load(step)?;
        let mut total = 0.0;
        for micro in 0..count {
            let label = if count > 1 { format!("s{step}.m{micro}") } else { format!("s{step}") };
            let before = std::mem::replace(&mut self.names.inputs, self.names.batches.get(micro).cloned());
            before.into_iter().for_each(|batch| self.let_go(batch));
            if micro == 0 {
                self.row(&format!("s{step}.input"));
            }
            self.device.phase("forward");
            let mut loss = self.forward()?;
            self.row(&format!("{label}.forward"));
            self.device.phase("backward");
            if !self.counting.counts {
                loss = ops::div_scalar(&loss, count as f64)?;
            }
            self.update.backward(&ops::div_scalar(&loss, 1.0)?)?;
            if self.device.computes() {
                total += loss.item()?;
            }
            // Detached when `training_step` returns it: the graph goes.
            let value = loss.array().clone();
            drop(loss);
            self.row(&format!("{label}.backward"));
            self.add_up(value)?;
        }
        self.device.phase("clip");
        self.names.grad_norm = None;
        let norm = self.settings.clip_grad_norm.unwrap_or(MAX_GRAD_NORM);
        self.names.grad_norm = self.update.clip(&self.parameters, norm)?;
        self.row(&format!("s{step}.clip"));
        self.device.phase("step");
        self.update.apply()?;
        self.update.rescale()?;
        self.row(&format!("s{step}.step"));
        self.device.phase("zero_grad");
        self.parameters.iter().for_each(|parameter| parameter.tensor().set_grad(None));
        self.row(&format!("s{step}.zero_grad"));
        Ok(self.device.computes().then_some(total))
    }

    /// The batches of a step, and how many labels they have.
    fn load(&mut self, step: usize) -> Result<()> {
        let count = self.settings.accumulate;
        let batches: Vec<Inputs> = (0..count).map(|micro| self.batch(step * count + micro)).collect::<Result<_>>()?;
        let items = if self.counting.counts { Some(counted(&batches, self.counting.shifted)?) } else { None };
        // Lists are emptied from their end, as Python's are.
        let before = std::mem::replace(&mut self.names.batches, batches);
        before.into_iter().rev().for_each(|batch| self.let_go(batch));
        self.names.items = items;
        Ok(())
    }

    /// The loss of the batch at hand; all else that the network returns goes here.
    fn forward(&mut self) -> Result<Tensor> {
        let missing = || Error::usage("schedule", "a forward pass before its batch");
        let inputs = self.names.inputs.clone().ok_or_else(missing)?;
        let items = self.names.items.clone().filter(|_| self.counting.passed);
        let inputs = Inputs { items, ..inputs };
        let autocast = self.settings.precision.autocast().map(Autocast::new);
        let casts = autocast.is_some();
        let Output { loss, logits, past_key_values, encoder_last_hidden_state } = self.network.forward(&inputs)?;
        drop(autocast);
        // convert_outputs_to_fp32: of what autocast returns.
        let widened = |tensor: &Tensor| if casts { ops::cast(tensor, DType::F32) } else { Ok(tensor.clone()) };
        let converted: Vec<Tensor> = logits.iter().map(widened).collect::<DeviceResult<_>>()?;
        let converted = (converted, encoder_last_hidden_state.as_ref().map(widened).transpose()?);
        drop((logits, past_key_values, encoder_last_hidden_state));
        // By the number of processes, where labels were counted.
        let loss = if self.counting.counts { ops::times_one_(&loss)? } else { loss };
        drop(converted);
        Ok(loss)
    }

    /// `tr_loss += loss`, after `torch.isnan(loss) or torch.isinf(loss)`. The loss of before goes first.
    fn add_up(&mut self, loss: Array) -> Result<()> {
        let (device, dtype) = (&self.device, loss.dtype());
        self.names.step_loss = Some(loss);
        drop(Array::empty(device, &[], DType::Bool)?);
        let absolute = Array::empty(device, &[], dtype)?;
        let infinite = Array::empty(device, &[], DType::Bool)?;
        drop((absolute, infinite));
        Ok(())
    }

    /// Synthetic data; on a device that computes nothing only their sizes.
    fn batch(&self, number: usize) -> Result<Inputs> {
        let _op = memcore::context::op("to>_to_copy");
        let (device, dtype) = (&self.device, self.settings.precision.dtype());
        let (batch, seed) = (self.settings.batch, self.settings.seed.wrapping_add(number as u64));
        let rows = batch * self.ending.rows_per_example();
        let data = self.source.batch(&self.task, rows, number, device.computes())?;
        let length = if let Input::Tokens { length, .. } = self.task.input { length } else { 1 };
        let labels = || -> Result<Vec<Tensor>> {
            let of_head = self.ending.labels(device, dtype, batch, length, seed)?;
            of_head.map_or_else(|| Ok(vec![data.upload_targets(device, dtype)?]), Ok)
        };
        // The library's collator puts what is called `labels` first.
        let first = if self.counting.counts { Some(labels()?) } else { None };
        let input = data.upload_inputs(device, dtype)?;
        let attention_mask = attention_mask(self.mask, &input)?;
        let labels = first.map_or_else(labels, Ok)?;
        Ok(Inputs { input, attention_mask, labels, items: None })
    }

    /// Drops a batch in the order of its dictionary.
    fn let_go(&self, batch: Inputs) {
        let Inputs { input, attention_mask, labels, items: _ } = batch;
        if self.counting.counts {
            drop((labels, input, attention_mask));
        } else {
            drop((input, attention_mask, labels));
        }
    }
}

/// `num_items_in_batch`: how many labels count in all batches together, a float32 scalar. All do here.
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

impl Training for LibraryTrainer {
    fn step(&mut self, step: usize) -> Result<Option<f64>> {
        Self::step(self, step)
    }

    fn row(&mut self, label: &str) {
        Self::row(self, label);
    }

    fn parts(&mut self) -> Parts<'_> {
        Parts {
            devices: vec![&self.device],
            copies: &[],
            parameters: &self.grouped,
            buffers: &[],
            update: &mut self.update,
            settings: &self.settings,
            data: "synthetic".into(),
        }
    }

    fn parameter_count(&self) -> u64 {
        Self::parameter_count(self)
    }

    fn rows_taken(&self) -> usize {
        self.rows.rows().len() + self.rows.left_out()
    }

    fn finish(mut self, label: Option<&str>) -> Vec<Row> {
        let (device, mut rows) = (self.device.clone(), std::mem::take(&mut self.rows));
        drop(self);
        if let Some(label) = label {
            rows.push(Row::take(&device, label));
        }
        rows.into_rows()
    }
}
