//! A split network in training.

use std::ops::ControlFlow;

use memcore::amp::Autocast;
use memcore::memory::Category;
use memcore::nn::{Copied, Parameter};
use memcore::{Array, Device, Tensor, context, ops};

use super::cut::Cut;
use super::figures::{PipelineResult, StageFigures};
use super::joint::{self, Joint};
use super::schedule::{Pass, Schedule, Work};
use super::stage::{self, Built, Stage};
use crate::data::Split;
use crate::error::{Error, Result};
use crate::models::{Architecture, Task};
use crate::record::{Account, Log, Row};
use crate::training::{
    self, Accuracy, Continuation, Failed, Partial, Parts, Progress, RunSettings, Source, Steps, Update, data_name,
    evaluate_with,
};

/// How a split run goes.
#[derive(Clone, Debug)]
pub struct PipelineSettings {
    /// As without a split. `batch` is what the micro-batches are cut from.
    pub run: RunSettings,
    /// Parts that a batch is cut into.
    pub micro_batches: usize,
    /// The order of passes.
    pub schedule: Schedule,
    /// Where the network is cut.
    pub cut: Cut,
}

impl PipelineSettings {
    /// Fails for what cannot go together.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the flag and why.
    pub fn check(&self) -> Result<()> {
        self.run.check()?;
        let (batch, parts) = (self.run.batch, self.micro_batches);
        if parts == 0 || !batch.is_multiple_of(parts) {
            let problem = format!(
                "{parts} micro-batches of a batch of {batch}: they must be equal, or the mean of their losses is not the batch's"
            );
            return Err(Error::usage("micro-batches", problem));
        }
        if self.run.schedule != training::Schedule::default() {
            let problem = "the model file has an order of phases of its own; a split run has that of --schedule";
            return Err(Error::usage("devices", problem));
        }
        Ok(())
    }
}

/// A split network in training.
pub struct PipelineTrainer {
    stages: Vec<Stage>,
    /// All parameters, in the order of PyTorch's `model.parameters()`.
    parameters: Vec<Parameter>,
    copies: Vec<Copied>,
    buffers: Vec<(String, Array)>,
    training: memcore::nn::Training,
    update: Update,
    settings: PipelineSettings,
    source: Source,
    task: Task,
    order: Vec<Work>,
    input: Option<Tensor>,
    target: Option<Tensor>,
    /// Per micro-batch: what the last stage that had it gave, or its loss.
    waiting: Vec<Option<Tensor>>,
    rows: Vec<Log>,
    /// By device, the highest of the phases since the last row.
    peaks_since_row: Vec<u64>,
}

/// What a pass reads.
fn taken(tensor: Option<Tensor>) -> Result<Tensor> {
    tensor.ok_or_else(|| Error::usage("schedule", "a pass ran before the one that it needs"))
}

impl PipelineTrainer {
    /// Builds the network over `devices`, which are all different ones, and an optimizer on each.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that cannot go together; those of the devices.
    pub fn new(
        architecture: &dyn Architecture,
        devices: &[Device],
        settings: &PipelineSettings,
        source: Source,
    ) -> Result<Self> {
        settings.check()?;
        if let Some(without) = devices.iter().find(|device| device.computes() != devices[0].computes()) {
            let other = if without.computes() { &devices[0] } else { without };
            let problem = format!("{} has no values to give to a device that computes, nor keeps any", other.name());
            return Err(Error::usage("devices", problem));
        }
        let run = &settings.run;
        run.check_network(architecture, run.batch / settings.micro_batches.max(1))?;
        devices.iter().for_each(|device| device.phase("model"));
        let built = stage::build(architecture, devices, &settings.cut, run.precision.dtype(), run.seed)?;
        let Built { stages, parameters, copies, buffers, training } = built;
        let joint = Joint::new(&run.optimizer, &stages, parameters.clone(), copies.clone())?;
        let mut trainer = Self {
            parameters,
            copies,
            buffers,
            training,
            update: Update::with(run, Some(Box::new(joint))),
            order: settings.schedule.order(stages.len(), settings.micro_batches),
            settings: settings.clone(),
            source,
            task: architecture.task(),
            input: None,
            target: None,
            waiting: (0..settings.micro_batches).map(|_| None).collect(),
            rows: vec![Log::new(settings.run.rows); stages.len()],
            peaks_since_row: vec![0; stages.len()],
            stages,
        };
        trainer.row("model");
        Ok(trainer)
    }

    /// The parameters of the network, in the order of PyTorch's `model.parameters()`.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The rows taken so far that are kept, by device.
    pub fn rows(&self) -> Vec<&[Row]> {
        self.rows.iter().map(Log::rows).collect()
    }

    fn phase(&mut self, name: &str) {
        (0..self.stages.len()).for_each(|stage| self.phase_of(stage, name));
    }

    /// A device's own peak starts anew with each phase; a row has that of all since the one before it.
    fn phase_of(&mut self, stage: usize, name: &str) {
        let device = &self.stages[stage].device;
        self.peaks_since_row[stage] = self.peaks_since_row[stage].max(device.take_phase_peak());
        device.phase(name);
    }

    fn row(&mut self, label: &str) {
        for ((stage, rows), peak) in self.stages.iter().zip(&mut self.rows).zip(&mut self.peaks_since_row) {
            let mut row = Row::take(&stage.device, label);
            row.phase_peak_allocated = row.phase_peak_allocated.max(std::mem::take(peak));
            rows.push(row);
        }
    }

    /// One optimizer step. Returns the loss, where there are values.
    ///
    /// # Errors
    /// Those of the devices; the data's.
    pub fn step(&mut self, step: usize) -> Result<Option<f64>> {
        let times = self.settings.run.accumulate;
        let mut total = None;
        for time in 0..times {
            let place = if times > 1 { format!("s{step}.m{time}.") } else { format!("s{step}.") };
            self.phase("input");
            self.load(step * times + time)?;
            self.row(&format!("{place}input"));
            if time == 0 {
                self.phase("zero_grad");
                self.update.zero_grad()?;
                self.row(&format!("s{step}.zero_grad"));
            }
            for work in 0..self.order.len() {
                if let Some(loss) = self.work(self.order[work])? {
                    *total.get_or_insert(0.0) += loss;
                }
            }
            self.row(&format!("{place}passes"));
        }
        if !self.copies.is_empty() {
            self.phase("all_reduce");
            joint::add_up(&self.copies)?;
        }
        self.phase("step");
        self.update.step()?;
        self.update.rescale()?;
        self.row(&format!("s{step}.step"));
        self.stages.iter().try_for_each(|stage| stage.device.synchronize())?;
        Ok(total)
    }

    /// Inputs to the first device, targets to the last.
    fn load(&mut self, number: usize) -> Result<()> {
        let _op = context::op("to>_to_copy");
        let (run, dtype) = (&self.settings.run, self.settings.run.precision.dtype());
        let [Some(first), Some(last)] = [self.stages.first(), self.stages.last()] else { return Ok(()) };
        let data = self.source.batch(&self.task, run.batch, number, first.device.computes())?;
        self.input = Some(data.upload_inputs(&first.device, dtype)?);
        self.target = Some(data.upload_targets(&last.device, dtype)?);
        Ok(())
    }

    /// A micro-batch's share of a batch: a view.
    fn share(&self, batch: &Option<Tensor>, micro: usize) -> Result<Tensor> {
        let batch = taken(batch.clone())?;
        if self.settings.micro_batches == 1 {
            return Ok(batch);
        }
        let rows = self.settings.run.batch / self.settings.micro_batches;
        Ok(ops::narrow(&batch, 0, micro * rows, rows)?)
    }

    /// Returns the micro-batch's share of the loss when it is done with, where there are values.
    fn work(&mut self, Work { micro, pass }: Work) -> Result<Option<f64>> {
        match pass {
            Pass::Forward { stage } => {
                self.phase_of(stage, "forward");
                self.forward(stage, micro)?;
                self.stages[stage].begun();
                Ok(None)
            }
            Pass::Backward => {
                self.phase("backward");
                let loss = taken(self.waiting[micro].take())?;
                self.update.backward(&loss)?;
                self.stages.iter_mut().for_each(Stage::ended);
                Ok(if loss.device().computes() { Some(loss.item()?) } else { None })
            }
        }
    }

    fn forward(&mut self, stage: usize, micro: usize) -> Result<()> {
        let x = if stage == 0 { self.share(&self.input, micro)? } else { taken(self.waiting[micro].take())? };
        let _autocast = self.settings.run.precision.autocast().map(Autocast::new);
        let y = self.stages[stage].forward(x)?;
        let result = if stage + 1 == self.stages.len() { self.loss(&y, micro)? } else { y };
        self.waiting[micro] = Some(result);
        Ok(())
    }

    fn loss(&self, output: &Tensor, micro: usize) -> Result<Tensor> {
        let loss = training::loss(&self.task.loss, output, &self.share(&self.target, micro)?)?;
        let parts = self.settings.micro_batches as f64 * self.settings.run.accumulate as f64;
        Ok(if parts > 1.0 { ops::div_scalar(&loss, parts)? } else { loss })
    }

    /// How many test examples are classified right, where there are some.
    fn accuracy(&self) -> Result<Option<Accuracy>> {
        let Source::Dataset { data, .. } = &self.source else { return Ok(None) };
        let Some(first) = self.stages.first() else { return Ok(None) };
        self.training.set(false);
        let accuracy = evaluate_with(&self.task, data, Split::Test, self.settings.run.batch, |batch| {
            let mut x = batch.upload_inputs(&first.device, self.settings.run.precision.dtype())?;
            for stage in &self.stages {
                x = stage.forward(x)?;
            }
            Ok(x)
        });
        self.training.set(true);
        accuracy
    }

    fn parts(&mut self) -> Parts<'_> {
        Parts {
            devices: self.stages.iter().map(|stage| &stage.device).collect(),
            parameters: &self.parameters,
            copies: &self.copies,
            buffers: &self.buffers,
            update: &mut self.update,
            settings: &self.settings.run,
            data: data_name(&self.source),
        }
    }

    /// Lets everything go, and says what each device had. A last row is `end`.
    pub fn finish(self) -> Vec<StageFigures> {
        let Self { stages, update, input, target, waiting, rows, parameters, copies, buffers, .. } = self;
        let devices: Vec<Device> = stages.iter().map(|stage| stage.device.clone()).collect();
        let mut figures: Vec<StageFigures> = stages.iter().map(of_stage).collect();
        drop((waiting, stages, parameters, copies, buffers, update, input, target));
        for ((device, figures), mut rows) in devices.iter().zip(&mut figures).zip(rows) {
            rows.push(Row::take(device, "end"));
            figures.rows = rows.into_rows();
        }
        figures
    }
}

/// All but the rows.
fn of_stage(stage: &Stage) -> StageFigures {
    let moved = stage.device.counters();
    StageFigures {
        pieces: stage.pieces.clone(),
        parameters: stage.parameters.iter().map(|p| p.array().numel() as u64).sum(),
        parameter_bytes: stage.bytes(Category::Parameter),
        gradient_bytes: stage.gradient_bytes,
        optimizer_bytes: stage.bytes(Category::OptimizerState),
        activation_bytes: stage.activation_bytes,
        in_flight: stage.most_in_flight,
        sent_bytes: moved.sent_bytes,
        received_bytes: moved.received_bytes,
        account: Account::take(&stage.device),
        rows: Vec::new(),
    }
}

/// Trains a split network from its first to its last step, calling `progress` after each; a break stops the run and keeps what was measured.
///
/// # Errors
/// As [`PipelineTrainer::new`] and [`PipelineTrainer::step`], with the losses before. What the devices held then, they still say.
pub fn train(
    architecture: &dyn Architecture,
    devices: &[Device],
    settings: &PipelineSettings,
    source: Source,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<PipelineResult, Failed> {
    train_from(architecture, devices, settings, source, &mut Continuation::default(), progress)
}

/// The same, with a beginning from a file, or with what the next run needs to go on. The file is the one that a run on one device writes, and
/// has besides the random state of each further device.
///
/// # Errors
/// As [`train`] and [`training::train_from`](crate::training::train_from).
pub fn train_from(
    architecture: &dyn Architecture,
    devices: &[Device],
    settings: &PipelineSettings,
    source: Source,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<PipelineResult, Failed> {
    devices.iter().try_for_each(|device| continuation.check(device))?;
    let mut trainer = PipelineTrainer::new(architecture, devices, settings, source)?;
    let first = continuation.first_step(&mut trainer.parts(), &settings.run)?;
    if continuation.resumes() {
        trainer.row("resume");
    }
    let mut done = 0;
    let (Steps { losses, ms_per_step, interrupted }, failure) = Steps::take(&settings.run, progress, |step| {
        let loss = trainer.step(first + step)?;
        done = step + 1;
        Ok(loss)
    });
    if let Some(error) = failure {
        let partial = Partial { losses, ms_per_step, ..Partial::default() };
        return Err(Failed { error, partial: Box::new(partial) });
    }
    continuation.end(&trainer.parts(), first + done)?;
    let computes = devices.iter().all(Device::computes);
    let accuracy = if computes && !interrupted { trainer.accuracy()? } else { None };
    let parameters = trainer.parameters.iter().map(|parameter| parameter.array().numel() as u64).sum();
    Ok(PipelineResult { stages: trainer.finish(), parameters, losses, ms_per_step, accuracy, interrupted })
}
