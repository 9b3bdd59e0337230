//! A model in training: the phases of one step.

use memcore::amp::Autocast;
use memcore::nn::ListSlot;
use memcore::optim::Optimizer;
use memcore::{DType, Device, NoGrad, Tensor, context, ops};

use super::checkpoint::{Parts, data_name};
use super::evaluate::{Accuracy, evaluate};
use super::loss::loss;
use super::schedule::{Phase, Turn};
use super::settings::RunSettings;
use super::source::Source;
use super::trained::Training;
use super::update::Update;
use crate::data::Split;
use crate::error::{Error, Result};
use crate::models::{Architecture, Model};
use crate::record::{Log, Row, RowsKept};

/// A model in training, with what a Python script's variables would hold between the steps.
pub struct Trainer {
    device: Device,
    model: Model,
    update: Update,
    settings: RunSettings,
    source: Source,
    held: Held,
    /// The region of autocast that the step is in.
    autocast: Option<Autocast>,
    rows: Rows,
}

/// The rows taken so far.
struct Rows {
    device: Device,
    /// What comes before every label: `b128.` when several runs share a device.
    tag: String,
    log: Log,
    /// The highest of the phases since the last row.
    peak_since_row: u64,
}

impl Rows {
    fn new(device: &Device, tag: &str, kept: RowsKept) -> Self {
        Self { device: device.clone(), tag: tag.into(), log: Log::new(kept), peak_since_row: 0 }
    }

    fn take(&mut self, label: &str) {
        let mut row = Row::take(&self.device, format!("{}{label}", self.tag));
        row.phase_peak_allocated = row.phase_peak_allocated.max(std::mem::take(&mut self.peak_since_row));
        self.log.push(row);
    }

    /// No row here: the device's own peak starts anew with the next phase.
    fn pass(&mut self) {
        self.peak_since_row = self.peak_since_row.max(self.device.take_phase_peak());
    }
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
        settings.check()?;
        settings.check_network(architecture, settings.batch)?;
        if settings.accumulate > 1 && !settings.schedule.names(Phase::Backward) {
            return Err(Error::usage("accumulate", "the schedule has no backward to accumulate gradients in"));
        }
        let mut rows = Rows::new(device, tag, settings.rows);
        device.phase("model");
        let dtype = settings.precision.dtype();
        let first = if settings.schedule.cast { DType::F32 } else { dtype };
        let mut model = Model::build(architecture, device, first, settings.seed)?;
        rows.take("model");
        if settings.schedule.cast {
            device.phase("cast");
            model = model.cast(architecture, device, dtype, settings.seed)?;
            rows.take("cast");
        }
        model.parameters = architecture.optimizer_order(std::mem::take(&mut model.parameters));
        let steps = [Phase::ZeroGrad, Phase::Step].iter().any(|phase| settings.schedule.names(*phase));
        let update = Update::new(settings, steps.then(|| model.parameters.clone()))?;
        let (settings, held) = (settings.clone(), Held::default());
        Ok(Self { device: device.clone(), model, update, settings, source, held, autocast: None, rows })
    }

    /// Around a model and its optimizer that were made elsewhere, in the phase `model`.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that cannot work.
    pub(crate) fn around(
        device: &Device,
        (model, optimizer): (Model, Box<dyn Optimizer>),
        settings: &RunSettings,
        source: Source,
    ) -> Result<Self> {
        settings.check()?;
        let mut rows = Rows::new(device, "", settings.rows);
        rows.take("model");
        let update = Update::with(settings, Some(optimizer));
        let (settings, held) = (settings.clone(), Held::default());
        Ok(Self { device: device.clone(), model, update, settings, source, held, autocast: None, rows })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The rows taken so far that are kept.
    pub fn rows(&self) -> &[Row] {
        self.rows.log.rows()
    }

    /// Takes a row now.
    pub fn row(&mut self, label: &str) {
        self.rows.take(label);
    }

    /// One optimizer step. Returns the loss, where there are values.
    ///
    /// # Errors
    /// Those of the device; the data's.
    pub fn step(&mut self, step: usize) -> Result<Option<f64>> {
        let loss = self.run_step(step);
        // A failure in the middle must not leave the thread in autocast.
        self.autocast = None;
        loss
    }

    fn run_step(&mut self, step: usize) -> Result<Option<f64>> {
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
            self.rows.pass();
        }
    }

    fn phase(&mut self, phase: Phase, batch: usize) -> Result<()> {
        match phase {
            Phase::Input => self.input(batch)?,
            Phase::ZeroGrad => self.update.zero_grad()?,
            Phase::Forward => {
                self.autocast = self.settings.precision.autocast().map(Autocast::new);
                self.held.output = Some(self.model.module.forward(read(&self.held.input)?)?);
                if !self.settings.schedule.names(Phase::Loss) {
                    self.autocast = None;
                }
            }
            Phase::Loss => self.loss()?,
            Phase::ExitAutocast => self.autocast = None,
            Phase::Backward => self.update.backward(read(&self.held.loss)?)?,
            Phase::Step => {
                self.update.step()?;
                if !self.settings.schedule.names(Phase::Update) {
                    self.update.rescale()?;
                }
            }
            Phase::Update => self.update.rescale()?,
            Phase::Del => self.held.output = None,
            Phase::ForwardNoGrad => {
                let _no_grad = NoGrad::new();
                let _autocast = self.settings.precision.autocast().map(Autocast::new);
                self.held.output = Some(self.model.module.forward(read(&self.held.input)?)?);
            }
            Phase::Clear => self.model.lists.iter().for_each(ListSlot::clear),
            Phase::EmptyCache => {
                self.device.empty_cache();
            }
            Phase::ResetPeak => self.device.reset_peak_stats(),
        }
        Ok(())
    }

    fn input(&mut self, batch: usize) -> Result<()> {
        let dtype = self.settings.precision.dtype();
        let data = self.source.batch(&self.model.task, self.settings.batch, batch, self.device.computes())?;
        let old = self.settings.schedule.one_batch.then(|| (self.held.input.take(), self.held.target.take()));
        // What was there before is let go by the program, not by the copy.
        let input = {
            let _op = context::op("to>_to_copy");
            data.upload_inputs(&self.device, dtype)?
        };
        self.held.input = Some(input);
        if self.settings.schedule.names(Phase::Loss) {
            let target = {
                let _op = context::op("to>_to_copy");
                data.upload_targets(&self.device, dtype)?
            };
            self.held.target = Some(target);
        }
        drop(old);
        Ok(())
    }

    fn loss(&mut self) -> Result<()> {
        let value = loss(&self.model.task.loss, read(&self.held.output)?, read(&self.held.target)?)?;
        self.held.loss = Some(value);
        if !self.settings.schedule.names(Phase::ExitAutocast) {
            self.autocast = None;
        }
        if self.settings.accumulate > 1 {
            let share = ops::div_scalar(read(&self.held.loss)?, self.settings.accumulate as f64)?;
            self.held.loss = Some(share);
        }
        Ok(())
    }

    /// Lets everything go, in the order in which a Python function lets its variables go, that of their first assignment: the model, the
    /// optimizer with its state, the loss scaler, input, target, what layers keep in variables, output, loss. A graph that is still held keeps
    /// the parameters until it goes itself. What stays allocated are the libraries' workspaces. Returns the rows, with a last one.
    pub fn finish(self, label: Option<&str>) -> Vec<Row> {
        let Self { model, update, held, mut rows, .. } = self;
        drop((model.constants, model.buffers));
        drop(model.module);
        drop(model.parameters);
        drop(update);
        model.lists.iter().for_each(ListSlot::clear);
        let Held { input, target, output, loss } = held;
        drop(input);
        drop(target);
        for variable in model.variables {
            variable.set(None);
        }
        drop(output);
        drop(loss);
        if let Some(label) = label {
            rows.take(label);
        }
        rows.log.into_rows()
    }
}

impl Training for Trainer {
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

    fn rows_taken(&self) -> usize {
        self.rows.log.rows().len() + self.rows.log.left_out()
    }

    fn finish(self, label: Option<&str>) -> Vec<Row> {
        Self::finish(self, label)
    }
}
