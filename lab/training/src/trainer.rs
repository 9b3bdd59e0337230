//! The one training loop: the phases of a step in the order of their schedule, and the rows that follow them.

use lab_base::error::Result;
use lab_models::{Architecture, Model};
use memcore::nn::Init;
use memcore::{DType, Device, NoGrad};

use super::average::Average;
use super::between::{Evaluation, Hold};
use super::model_network::ModelStep;
use super::rows::Rows;
use super::schedule::{Phase, Turn};
use super::settings::RunSettings;
use super::source::Source;
use super::train_step::TrainStep;
use super::update::Update;
use crate::record::{Row, RowsKept};

/// A training, with the rows taken so far.
pub struct Trainer<S = ModelStep> {
    pub(crate) phases: S,
    pub(crate) rows: Rows,
    average: Option<Average>,
}

impl Trainer {
    /// Builds a model and its optimizer.
    ///
    /// # Errors
    /// [`Error::Usage`](lab_base::error::Error::Usage) for settings that cannot work; those of the device.
    pub fn build(
        architecture: &dyn Architecture,
        device: &Device,
        settings: &RunSettings,
        source: Source,
        tag: &str,
    ) -> Result<Self> {
        settings.check()?;
        settings.check_network(architecture, settings.batch)?;
        settings.check_device(device)?;
        let mut rows = Rows::new(std::slice::from_ref(device), tag, settings.rows);
        device.phase("model");
        let dtype = settings.precision.dtype();
        let first = if settings.schedule.cast { DType::F32 } else { dtype };
        let mut model = Model::build(architecture, &settings.tuned(Init::new(device, first, settings.seed)))?;
        rows.take("model");
        if settings.schedule.cast {
            device.phase("cast");
            model = model.rebuilt(architecture, |before| {
                settings.tuned(Init::converting(device, dtype, settings.seed, before))
            })?;
            rows.take("cast");
        }
        if settings.channels_last {
            device.phase("channels_last");
            model = model.rebuilt(architecture, |before| {
                settings.tuned(Init::in_channels_last(device, dtype, settings.seed, before))
            })?;
            rows.take("channels_last");
        }
        model.parameters = settings.in_optimizer_order(architecture, std::mem::take(&mut model.parameters));
        let update = Update::new(settings, &model.parameters)?;
        let phases = ModelStep::of_model(device, model, update, settings, source);
        Self { phases, rows, average: None }.averaging()
    }
}

impl<S: TrainStep> Trainer<S> {
    /// Wraps what was just built in the phase `model`, and takes the first row.
    pub fn new(phases: S, devices: &[Device], tag: &str) -> Self {
        let rows = Rows::new(devices, tag, phases.settings().rows);
        let mut trainer = Self { phases, rows, average: None };
        trainer.row("model");
        trainer
    }

    /// Begins the rows, and builds what is trained, in the phase `model`. `build` takes the rows of its phases.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn built(device: &Device, kept: RowsKept, build: impl FnOnce(&mut Rows) -> Result<S>) -> Result<Self> {
        let mut rows = Rows::new(std::slice::from_ref(device), "", kept);
        device.phase("model");
        let phases = build(&mut rows)?;
        Ok(Self { phases, rows, average: None })
    }

    /// Begins the average of the weights, if one is kept, and takes a row.
    ///
    /// # Errors
    /// [`Error::Usage`](lab_base::error::Error::Usage) for a network of which none of this kind is supported; those of the device.
    pub fn averaging(mut self) -> Result<Self> {
        let Some(kind) = self.phases.settings().ema else { return Ok(self) };
        let of = self.phases.averaged(kind)?;
        self.rows.phase("ema");
        // A network over several devices has none: the run's settings refuse it.
        self.average = self.rows.devices().next().map(|device| Average::new(kind, &of, device)).transpose()?;
        self.rows.take("ema");
        Ok(self)
    }

    /// The training whose phases are called.
    pub fn phases(&self) -> &S {
        &self.phases
    }

    /// Number of trained values; shared ones count once.
    pub fn parameter_count(&self) -> u64 {
        self.phases.parameter_count()
    }

    /// Rows of the first device that were taken so far and are kept.
    pub fn rows(&self) -> &[Row] {
        self.rows.first()
    }

    /// Rows of each device that were taken so far and are kept.
    pub fn rows_by_device(&self) -> Vec<&[Row]> {
        self.rows.each()
    }

    /// Takes a row now.
    pub fn row(&mut self, label: &str) {
        self.rows.take(label);
    }

    /// Takes one optimizer step. Returns the loss; `None` on a device without values.
    ///
    /// # Errors
    /// Those of the devices; the data's.
    pub fn step(&mut self, step: usize) -> Result<Option<f64>> {
        let loss = self.run_step(step);
        // A failure in the middle must not leave the thread in autocast.
        self.phases.exit_autocast();
        loss
    }

    fn run_step(&mut self, step: usize) -> Result<Option<f64>> {
        let count = self.phases.settings().accumulate;
        let mut total = None;
        for micro in 0..count {
            for place in 0..self.phases.settings().schedule.order.len() {
                let schedule = &self.phases.settings().schedule;
                let (phase, turn) = (schedule.order[place], schedule.turn(place));
                let skipped = match turn {
                    Turn::Every => false,
                    Turn::First => micro > 0,
                    Turn::Last => micro + 1 < count,
                };
                if skipped {
                    continue;
                }
                self.rows.phase(phase.name());
                self.phase(phase, step * count + micro)?;
                self.rows_after(phase, step, (turn == Turn::Every && count > 1).then_some(micro));
            }
            if let Some(loss) = self.phases.loss_value()? {
                *total.get_or_insert(0.0) += loss;
            }
        }
        self.phases.end()?;
        self.end_names(step)?;
        self.average(step)?;
        self.evaluate(step)?;
        // With accumulation, each micro-batch's loss was divided by their number: the sum is the mean.
        Ok(total)
    }

    /// Deletes the names that do not outlive a step.
    fn end_names(&mut self, step: usize) -> Result<()> {
        let held = self.phases.settings().hold;
        if held == Hold::default() {
            return Ok(());
        }
        self.rows.phase("held");
        self.phases.delete_except(held)?;
        let label = format!("{}held", self.place(step, None));
        self.rows.take(&label);
        Ok(())
    }

    /// Takes the weights of a step into their average.
    fn average(&mut self, step: usize) -> Result<()> {
        let (Some(average), Some(kind)) = (&mut self.average, self.phases.settings().ema) else { return Ok(()) };
        let of = self.phases.averaged(kind)?;
        self.rows.phase("ema");
        average.update(&of)?;
        let label = format!("{}ema", self.place(step, None));
        self.rows.take(&label);
        Ok(())
    }

    /// Evaluates, after a step that is followed by it.
    fn evaluate(&mut self, step: usize) -> Result<()> {
        let due = |evaluation: &Evaluation| (step + 1).is_multiple_of(evaluation.every);
        let Some(evaluation) = self.phases.settings().evaluation.filter(due) else { return Ok(()) };
        let place = self.place(step, None);
        self.rows.phase("evaluation");
        self.phases.enter_evaluation()?;
        let done = self.evaluated(evaluation, &place);
        self.phases.exit_autocast();
        self.phases.leave_evaluation();
        done?;
        self.rows.take(&format!("{place}evaluated"));
        Ok(())
    }

    fn evaluated(&mut self, evaluation: Evaluation, place: &str) -> Result<()> {
        let _no_grad = NoGrad::new();
        let has_loss = self.phases.settings().schedule.names(Phase::Loss);
        let mut kept = Vec::new();
        for number in 0..evaluation.batches {
            self.phases.load_batch(evaluation.batch, number)?;
            self.rows.take(&format!("{place}eval{number}.input"));
            self.phases.forward()?;
            self.rows.take(&format!("{place}eval{number}.forward"));
            if has_loss {
                self.phases.loss()?;
                self.phases.exit_autocast();
                self.rows.take(&format!("{place}eval{number}.loss"));
            }
            if evaluation.keeps_results {
                kept.push(self.phases.results());
            }
        }
        // As a list ends: from its last entry.
        while kept.pop().is_some() {}
        Ok(())
    }

    fn phase(&mut self, phase: Phase, batch: usize) -> Result<()> {
        let Self { phases, rows, .. } = self;
        match phase {
            Phase::Input | Phase::Inputs => phases.input(batch)?,
            Phase::ZeroGrad => phases.zero_grad()?,
            Phase::Forward => phases.forward()?,
            Phase::Loss => phases.loss()?,
            Phase::ExitAutocast => phases.exit_autocast(),
            Phase::Backward => phases.backward()?,
            Phase::AddLoss => phases.add_loss()?,
            Phase::Passes => phases.passes(rows)?,
            Phase::AllReduce => phases.all_reduce()?,
            Phase::Clip => phases.clip()?,
            Phase::Step => phases.step()?,
            Phase::Update => phases.update().rescale()?,
            Phase::Del => phases.del()?,
            Phase::ForwardNoGrad => phases.forward_no_grad()?,
            Phase::Clear => phases.clear()?,
            Phase::EmptyCache => rows.devices().for_each(|device| {
                device.empty_cache();
            }),
            Phase::ResetPeak => rows.devices().for_each(Device::reset_peak_stats),
        }
        Ok(())
    }

    fn rows_after(&mut self, phase: Phase, step: usize, micro: Option<usize>) {
        let place = self.place(step, micro);
        let schedule = &self.phases.settings().schedule;
        for row in schedule.rows.iter().filter(|row| row.phase == phase) {
            self.rows.take(&format!("{place}{}", row.label));
        }
    }

    /// The beginning of a label.
    fn place(&self, step: usize, micro: Option<usize>) -> String {
        match (self.phases.settings().schedule.prefix.as_str(), micro) {
            ("", _) => String::new(),
            (prefix, None) => format!("{prefix}{step}."),
            (prefix, Some(micro)) => format!("{prefix}{step}.m{micro}."),
        }
    }

    /// Frees everything, in the order in which a Python function frees its variables. Only the libraries' workspaces stay allocated. Returns the rows
    /// of the first device, the last one with this label.
    pub fn finish(self, label: Option<&str>) -> Vec<Row> {
        self.finish_each(label).into_iter().next().unwrap_or_default()
    }

    /// Frees everything as [`finish`](Self::finish) does. Returns the rows of each device.
    pub fn finish_each(self, label: Option<&str>) -> Vec<Vec<Row>> {
        let Self { phases, mut rows, average } = self;
        phases.release();
        drop(average);
        if let Some(label) = label {
            rows.take(label);
        }
        rows.into_each()
    }
}
