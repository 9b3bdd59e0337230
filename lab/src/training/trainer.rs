//! A model in training: the phases of one step.

use memcore::optim::{Optimizer, clip_grad_norm};
use memcore::{Device, NoGrad, Tensor, context, ops};

use super::run::loss;
use super::schedule::{Phase, Turn};
use super::settings::RunSettings;
use super::source::Source;
use crate::error::{Error, Result};
use crate::models::{Architecture, Model};
use crate::record::Row;

/// A model in training, with what a Python script's variables would hold between the steps.
pub struct Trainer {
    device: Device,
    model: Model,
    /// `None` for a schedule that takes no step.
    optimizer: Option<Box<dyn Optimizer>>,
    settings: RunSettings,
    source: Source,
    /// What comes before every label: `b128.` when several runs share a device.
    tag: String,
    held: Held,
    rows: Vec<Row>,
    /// The highest of the phases since the last row.
    peak_since_row: u64,
}

/// The variables `x`, `y`, `out` and `loss`: each keeps its value until the next one is there.
#[derive(Default)]
struct Held {
    input: Option<Tensor>,
    target: Option<Tensor>,
    output: Option<Tensor>,
    loss: Option<Tensor>,
}

/// A variable that a phase reads.
fn read(variable: &Option<Tensor>) -> Result<&Tensor> {
    variable.as_ref().ok_or_else(|| Error::usage("schedule", "a phase ran before the one that it needs"))
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
        if settings.accumulate > 1 && !settings.schedule.names(Phase::Backward) {
            return Err(Error::usage("--accumulate", "the schedule has no backward to accumulate gradients in"));
        }
        if settings.precision.autocast().is_some() {
            return Err(Error::usage("--precision", "autocast is not available yet"));
        }
        if settings.schedule.cast {
            return Err(Error::usage("schedule", "cast is not available yet"));
        }
        device.phase("model");
        let model = Model::build(architecture, device, settings.precision.dtype(), settings.seed)?;
        let steps = [Phase::ZeroGrad, Phase::Step].iter().any(|phase| settings.schedule.names(*phase));
        let optimizer = if steps { Some(settings.optimizer.build(model.parameters.clone())?) } else { None };
        let mut trainer = Self {
            device: device.clone(),
            model,
            optimizer,
            settings: settings.clone(),
            source,
            tag: tag.into(),
            held: Held::default(),
            rows: Vec::new(),
            peak_since_row: 0,
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
        let mut row = Row::take(&self.device, format!("{}{label}", self.tag));
        row.phase_peak_allocated = row.phase_peak_allocated.max(std::mem::take(&mut self.peak_since_row));
        self.rows.push(row);
    }

    /// One optimizer step. Returns the loss, where there are values.
    ///
    /// # Errors
    /// Those of the device; the data's.
    pub fn step(&mut self, step: usize) -> Result<Option<f64>> {
        let k = self.settings.accumulate;
        let mut total = None;
        for micro in 0..k {
            for place in 0..self.settings.schedule.order.len() {
                let turn = self.settings.schedule.turn(place);
                let skipped = match turn {
                    Turn::Every => false,
                    Turn::First => micro > 0,
                    Turn::Last => micro + 1 < k,
                };
                if skipped {
                    continue;
                }
                let phase = self.settings.schedule.order[place];
                self.device.phase(phase.name());
                self.phase(phase, step * k + micro)?;
                let micro = (turn == Turn::Every && k > 1).then_some(micro);
                self.rows_after(phase, step, micro);
            }
            if self.device.computes()
                && let Some(loss) = &self.held.loss
            {
                *total.get_or_insert(0.0) += loss.item()?;
            }
        }
        // With accumulation each micro-batch's loss was divided by their number: the sum is the mean.
        Ok(total)
    }

    fn rows_after(&mut self, phase: Phase, step: usize, micro: Option<usize>) {
        let schedule = &self.settings.schedule;
        let labels: Vec<String> =
            schedule.rows.iter().filter(|row| row.phase == phase).map(|row| row.label.clone()).collect();
        let place = match (schedule.prefix.as_str(), micro) {
            ("", _) => String::new(),
            (prefix, None) => format!("{prefix}{step}."),
            (prefix, Some(micro)) => format!("{prefix}{step}.m{micro}."),
        };
        for label in &labels {
            self.row(&format!("{place}{label}"));
        }
        if labels.is_empty() {
            // The device's own peak starts anew with the next phase.
            self.peak_since_row = self.peak_since_row.max(self.device.take_phase_peak());
        }
    }

    fn phase(&mut self, phase: Phase, batch: usize) -> Result<()> {
        match phase {
            Phase::Input => self.input(batch)?,
            Phase::ZeroGrad => {
                let Some(optimizer) = &self.optimizer else { return Ok(()) };
                optimizer.zero_grad(self.settings.set_to_none)?;
            }
            Phase::Forward => self.held.output = Some(self.model.module.forward(read(&self.held.input)?)?),
            Phase::Loss => self.loss()?,
            Phase::ExitAutocast => {}
            Phase::Backward => read(&self.held.loss)?.backward(false)?,
            Phase::Step => {
                let Some(optimizer) = &mut self.optimizer else { return Ok(()) };
                if let Some(norm) = self.settings.clip_grad_norm {
                    clip_grad_norm(optimizer.parameters(), norm)?;
                }
                optimizer.step()?;
            }
            Phase::Update => {}
            Phase::Del => self.held.output = None,
            Phase::ForwardNoGrad => {
                let _no_grad = NoGrad::new();
                self.held.output = Some(self.model.module.forward(read(&self.held.input)?)?);
            }
            Phase::EmptyCache => {
                self.device.empty_cache();
            }
        }
        Ok(())
    }

    fn input(&mut self, batch: usize) -> Result<()> {
        let _op = context::op("to");
        let dtype = self.settings.precision.dtype();
        let data = self.source.batch(&self.model.task, self.settings.batch, batch, self.device.computes())?;
        let old = self.settings.schedule.one_batch.then(|| (self.held.input.take(), self.held.target.take()));
        self.held.input = Some(data.upload_inputs(&self.device, dtype)?);
        if self.settings.schedule.names(Phase::Loss) {
            self.held.target = Some(data.upload_targets(&self.device, dtype)?);
        }
        drop(old);
        Ok(())
    }

    fn loss(&mut self) -> Result<()> {
        let value = loss(&self.model.task.loss, read(&self.held.output)?, read(&self.held.target)?)?;
        self.held.loss = Some(value);
        if self.settings.accumulate > 1 {
            let share = ops::div_scalar(read(&self.held.loss)?, self.settings.accumulate as f64)?;
            self.held.loss = Some(share);
        }
        Ok(())
    }

    /// Lets everything go, in the order in which a Python function lets its variables go, that of their first assignment: the model, the
    /// optimizer with its state, input, target, output, loss. A graph that is still held keeps the parameters until it goes itself. What stays
    /// allocated are the libraries' workspaces. Returns the rows, with a last one.
    pub fn finish(self, label: Option<&str>) -> Vec<Row> {
        let Self { device, model, optimizer, held, mut rows, tag, .. } = self;
        drop(model.module);
        drop(model.parameters);
        drop(optimizer);
        let Held { input, target, output, loss } = held;
        drop(input);
        drop(target);
        drop(output);
        drop(loss);
        if let Some(label) = label {
            rows.push(Row::take(&device, format!("{tag}{label}")));
        }
        rows
    }
}
