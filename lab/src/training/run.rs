//! The training loop.

use std::ops::ControlFlow;
use std::time::Instant;

use memcore::backend::kernel::Reduction;
use memcore::memory::{PeakComposition, Rings, Usage};
use memcore::optim::{Optimizer, clip_grad_norm};
use memcore::{DType, Device, NoGrad, Tensor, context, ops};
use serde::Serialize;

use super::optimizer::OptimizerSettings;
use super::schedule::{Phase, Schedule};
use super::source::{Source, from_dataset};
use crate::data::{Dataset, Split};
use crate::error::{Error, Result};
use crate::models::{Architecture, Input, Loss, Model};
use crate::record::Row;

/// How a run goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSettings {
    /// Examples per step (per micro-batch, with accumulation).
    pub batch: usize,
    /// Optimizer steps.
    pub steps: usize,
    /// The optimizer.
    pub optimizer: OptimizerSettings,
    /// Micro-batches per optimizer step.
    pub accumulate: usize,
    /// Gradients are let go (`true`) or zeroed.
    pub set_to_none: bool,
    /// Largest norm of the gradients.
    pub clip_grad_norm: Option<f64>,
    /// Type of parameters and inputs.
    #[serde(serialize_with = "dtype_name")]
    pub dtype: DType,
    /// Order of the phases.
    pub schedule: Schedule,
    /// Seed of parameters and data.
    pub seed: u64,
}

fn dtype_name<S: serde::Serializer>(dtype: &DType, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(dtype.name())
}

/// What is known after each step, for progress and for stopping.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps done.
    pub done: usize,
    /// Steps in all.
    pub steps: usize,
    /// The last loss; absent on a device that computes nothing.
    pub loss: Option<f64>,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// One row per phase, `model` first and `end` (everything dropped) last.
    pub rows: Vec<Row>,
    /// One loss per optimizer step (the mean of its micro-batches); empty on a device that computes nothing.
    pub losses: Vec<f64>,
    /// Milliseconds of each step, read of the loss included; empty on a device that computes nothing.
    pub ms_per_step: Vec<f64>,
    /// What was allocated at the peak, and who made it.
    pub peak: PeakComposition,
    /// Totals before the model was dropped.
    pub usage: Usage,
    /// The five figures at the end, before the model was dropped.
    pub rings: Rings,
    /// Number of trained values.
    pub parameters: u64,
    /// Share of test examples that the trained model classifies right, where there are some.
    pub accuracy: Option<Accuracy>,
    /// Whether it was stopped before the last step.
    pub interrupted: bool,
}

/// How many of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Accuracy {
    /// Classified right.
    pub right: usize,
    /// Classified.
    pub of: usize,
}

impl Accuracy {
    /// As a share.
    pub fn share(self) -> f64 {
        self.right as f64 / self.of.max(1) as f64
    }
}

/// A model in training, with what a Python script's variables would hold between the steps.
pub struct Trainer {
    device: Device,
    model: Model,
    optimizer: Box<dyn Optimizer>,
    settings: RunSettings,
    source: Source,
    /// What comes before every label: `b128.` when several runs share a device.
    tag: String,
    held: Held,
    rows: Vec<Row>,
}

/// The variables `x`, `y`, `out` and `loss`: each keeps its value until the next one is there.
#[derive(Default)]
struct Held {
    input: Option<Tensor>,
    target: Option<Tensor>,
    output: Option<Tensor>,
    loss: Option<Tensor>,
}

impl Trainer {
    /// Builds the model and its optimizer.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that cannot work; those of the device.
    pub fn new(
        architecture: &dyn Architecture,
        device: &Device,
        settings: &RunSettings,
        source: Source,
        tag: &str,
    ) -> Result<Self> {
        if settings.batch == 0 {
            return Err(Error::usage("--batch", "must be at least 1"));
        }
        if settings.accumulate == 0 {
            return Err(Error::usage("--accumulate", "must be at least 1"));
        }
        device.phase("model");
        let model = Model::build(architecture, device, settings.dtype, settings.seed)?;
        let optimizer = settings.optimizer.build(model.parameters.clone())?;
        let mut trainer = Self {
            device: device.clone(),
            model,
            optimizer,
            settings: settings.clone(),
            source,
            tag: tag.into(),
            held: Held::default(),
            rows: Vec::new(),
        };
        trainer.row("model");
        Ok(trainer)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The rows taken so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Takes a row now.
    pub fn row(&mut self, label: &str) {
        self.rows.push(Row::take(&self.device, format!("{}{label}", self.tag)));
    }

    /// One optimizer step. Returns the loss, where there are values.
    ///
    /// # Errors
    /// Those of the device; the data's.
    pub fn step(&mut self, step: usize) -> Result<Option<f64>> {
        let k = self.settings.accumulate;
        let mut total = 0.0;
        for micro in 0..k {
            let name = format!("{}{step}", self.settings.schedule.prefix);
            let name = if k > 1 { format!("{name}.m{micro}") } else { name };
            for i in 0..self.settings.schedule.order.len() {
                let phase = self.settings.schedule.order[i];
                let skipped = match phase {
                    Phase::ZeroGrad => micro > 0,
                    Phase::Step => micro + 1 < k,
                    _ => false,
                };
                if !skipped {
                    self.device.phase(phase.name());
                    self.phase(phase, step * k + micro)?;
                    let label = if matches!(phase, Phase::ZeroGrad | Phase::Step) && k > 1 {
                        format!("{}{step}.{}", self.settings.schedule.prefix, phase.name())
                    } else {
                        format!("{name}.{}", phase.name())
                    };
                    self.row(&label);
                }
            }
            if self.device.computes()
                && let Some(loss) = &self.held.loss
            {
                total += loss.item()?;
            }
        }
        // With accumulation each micro-batch's loss was divided by their number: the sum is the mean.
        Ok(self.device.computes().then_some(total))
    }

    fn phase(&mut self, phase: Phase, batch: usize) -> Result<()> {
        let missing = || Error::usage("schedule", "a phase ran before the one that it needs");
        match phase {
            Phase::Input => {
                let _op = context::op("to");
                let data = self.source.batch(&self.model.task, self.settings.batch, batch, self.device.computes())?;
                let before =
                    self.settings.schedule.one_batch.then(|| (self.held.input.take(), self.held.target.take()));
                self.held.input = Some(data.upload_inputs(&self.device, self.settings.dtype)?);
                self.held.target = Some(data.upload_targets(&self.device, self.settings.dtype)?);
                drop(before);
            }
            Phase::ZeroGrad => self.optimizer.zero_grad(self.settings.set_to_none)?,
            Phase::Forward => {
                let input = self.held.input.as_ref().ok_or_else(missing)?;
                self.held.output = Some(self.model.module.forward(input)?);
            }
            Phase::Loss => {
                let output = self.held.output.as_ref().ok_or_else(missing)?;
                let target = self.held.target.as_ref().ok_or_else(missing)?;
                let mut loss = loss(&self.model.task.loss, output, target)?;
                if self.settings.accumulate > 1 {
                    loss = ops::mul_scalar(&loss, 1.0 / self.settings.accumulate as f64)?;
                }
                self.held.loss = Some(loss);
            }
            Phase::Backward => self.held.loss.as_ref().ok_or_else(missing)?.backward(false)?,
            Phase::Step => {
                if let Some(norm) = self.settings.clip_grad_norm {
                    clip_grad_norm(self.optimizer.parameters(), norm)?;
                }
                self.optimizer.step()?;
            }
        }
        Ok(())
    }

    /// Lets everything go, in the order in which Python lets a function's variables go: the optimizer's state first, then the tensors, then the
    /// model. What stays allocated are the libraries' workspaces. Returns the rows with a last one.
    pub fn finish(mut self, label: Option<&str>) -> Vec<Row> {
        let Self { device, optimizer, held, model, rows, .. } = &mut self;
        let parameters = optimizer.parameters().to_vec();
        *optimizer = Box::new(Stopped(parameters));
        *held = Held::default();
        let mut rows = std::mem::take(rows);
        model.parameters.clear();
        let (device, tag) = (device.clone(), self.tag.clone());
        drop(self);
        if let Some(label) = label {
            rows.push(Row::take(&device, format!("{tag}{label}")));
        }
        rows
    }
}

/// An optimizer whose state is gone, but which still holds the parameters.
struct Stopped(Vec<memcore::nn::Parameter>);

impl Optimizer for Stopped {
    fn step(&mut self) -> memcore::Result<()> {
        Ok(())
    }

    fn parameters(&self) -> &[memcore::nn::Parameter] {
        &self.0
    }
}

/// The loss of a result against its targets, averaged.
///
/// # Errors
/// Shapes that do not fit; those of the device.
pub fn loss(loss: &Loss, output: &Tensor, target: &Tensor) -> Result<Tensor> {
    Ok(match loss {
        Loss::MeanSquaredError { .. } => ops::mse_loss(output, target, Reduction::Mean)?,
        Loss::CrossEntropy { classes } if output.rank() > 2 => {
            let rows = output.numel() / classes.max(&1);
            let logits = ops::view(output, &[rows, *classes])?;
            ops::cross_entropy(&logits, &ops::view(target, &[rows])?, Reduction::Mean)?
        }
        Loss::CrossEntropy { .. } => ops::cross_entropy(output, target, Reduction::Mean)?,
    })
}

/// Trains a model from its first to its last step, calling `progress` after each; a break stops the run and keeps what was measured.
///
/// # Errors
/// As [`Trainer::new`] and [`Trainer::step`].
pub fn train(
    architecture: &dyn Architecture,
    device: &Device,
    settings: &RunSettings,
    source: Source,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult> {
    let mut trainer = Trainer::new(architecture, device, settings, source.clone(), "")?;
    let (mut losses, mut ms_per_step, mut interrupted) = (Vec::new(), Vec::new(), false);
    for step in 0..settings.steps {
        let start = Instant::now();
        let loss = trainer.step(step)?;
        if let Some(loss) = loss {
            losses.push(loss);
            ms_per_step.push(start.elapsed().as_secs_f64() * 1e3);
        }
        if progress(Progress { done: step + 1, steps: settings.steps, loss }).is_break() {
            interrupted = step + 1 < settings.steps;
            break;
        }
    }
    device.synchronize()?;
    let (usage, rings) = (device.usage(), device.rings());
    let parameters = trainer.model.parameter_count();
    let accuracy = match &source {
        Source::Dataset { data, .. } if device.computes() && !interrupted => {
            evaluate(&trainer.model, device, data, Split::Test, settings)?
        }
        _ => None,
    };
    let rows = trainer.finish(Some("end"));
    Ok(RunResult { rows, losses, ms_per_step, peak: usage.at_peak(), usage, rings, parameters, accuracy, interrupted })
}

/// How many examples of a split the model classifies right; `None` for an empty split.
///
/// # Errors
/// Those of the device; data that do not fit.
pub fn evaluate(
    model: &Model,
    device: &Device,
    data: &Dataset,
    split: Split,
    settings: &RunSettings,
) -> Result<Option<Accuracy>> {
    let (Loss::CrossEntropy { classes }, Input::Values(_)) = (&model.task.loss, &model.task.input) else {
        return Ok(None);
    };
    let examples = data.split(split);
    if examples.is_empty() {
        return Ok(None);
    }
    let _no_grad = NoGrad::new();
    model.training.set(false);
    let mut accuracy = Accuracy { right: 0, of: 0 };
    for indices in examples.chunks(settings.batch.max(1)) {
        let batch = from_dataset(data, &model.task, indices)?;
        let logits = model.module.forward(&batch.upload_inputs(device, settings.dtype)?)?.array().to_f64()?;
        for (row, &class) in logits.chunks(*classes).zip(batch.classes()) {
            let best = row.iter().enumerate().fold(0, |best, (i, v)| if *v > row[best] { i } else { best });
            accuracy.right += usize::from(best as i64 == class);
            accuracy.of += 1;
        }
    }
    model.training.set(true);
    Ok(Some(accuracy))
}
