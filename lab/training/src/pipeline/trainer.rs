//! A split network in training.

use std::ops::ControlFlow;

use lab_base::error::{Error, Result};
use lab_models::{Architecture, Task};
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
use crate::record::Account;
use crate::{
    Accuracy, Continuation, Failed, Parts, Phase, Progress, Rows, RunSettings, Source, Steps, Taken, TrainStep,
    Trainer, Update, data_name, evaluate_with, take_steps,
};

/// Settings of a split run.
#[derive(Clone, Debug)]
pub struct PipelineSettings {
    /// Settings as without a split. Micro-batches are cut from its `batch`.
    pub run: RunSettings,
    /// Number of micro-batches in a batch.
    pub micro_batches: usize,
    /// The order of passes.
    pub schedule: Schedule,
    /// Where the network is cut.
    pub cut: Cut,
}

impl PipelineSettings {
    /// Fails for settings that cannot be combined.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the flag and why.
    pub fn check(&self) -> Result<()> {
        self.run.check()?;
        self.run.check_usual("over several devices")?;
        let (batch, parts) = (self.run.batch, self.micro_batches);
        if parts == 0 || !batch.is_multiple_of(parts) {
            let problem = format!(
                "{parts} micro-batches of a batch of {batch}: they must be equal, or the mean of their losses is not the batch's"
            );
            return Err(Error::usage("micro-batches", problem));
        }
        if self.run.schedule != crate::Schedule::default() {
            let problem = "the model file has an order of phases of its own; a split run has that of --schedule";
            return Err(Error::usage("devices", problem));
        }
        Ok(())
    }
}

/// A split network with its script's variables.
pub struct SplitStep {
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
    /// For each micro-batch, the result of the last stage that ran on it, or its loss.
    waiting: Vec<Option<Tensor>>,
    /// Loss of the current batch.
    loss: Option<f64>,
}

/// Takes a tensor that a pass reads.
fn taken(tensor: Option<Tensor>) -> Result<Tensor> {
    tensor.ok_or_else(|| Error::usage("schedule", "a pass ran before the one that it needs"))
}

/// Phases of a step, with or without those for copies of parameters.
fn phases(copies: bool) -> crate::Schedule {
    let order = [Phase::Input, Phase::ZeroGrad, Phase::Passes, Phase::AllReduce, Phase::Step];
    let order = order.into_iter().filter(|phase| copies || *phase != Phase::AllReduce);
    crate::Schedule::of(order.collect(), "s")
}

/// Builds a network over `devices`, which must all be different, and an optimizer on each.
///
/// # Errors
/// [`Error::Usage`] for settings that cannot be combined; those of the devices.
pub fn trainer(
    architecture: &dyn Architecture,
    devices: &[Device],
    settings: &PipelineSettings,
    source: Source,
) -> Result<Trainer<SplitStep>> {
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
    let update = Update::with(run, Some(Box::new(joint)));
    let used: Vec<Device> = stages.iter().map(|stage| stage.device.clone()).collect();
    let order = settings.schedule.order(stages.len(), settings.micro_batches);
    let mut settings = settings.clone();
    settings.run.schedule = phases(!copies.is_empty());
    let step = SplitStep {
        parameters,
        copies,
        buffers,
        training,
        update,
        order,
        source,
        task: architecture.task(),
        input: None,
        target: None,
        waiting: (0..settings.micro_batches).map(|_| None).collect(),
        settings,
        loss: None,
        stages,
    };
    Ok(Trainer::new(step, &used, ""))
}

impl SplitStep {
    /// Parameters of the network, in the order of PyTorch's `model.parameters()`.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Returns a micro-batch's part of a batch: a view.
    fn share(&self, batch: &Option<Tensor>, micro: usize) -> Result<Tensor> {
        let batch = taken(batch.clone())?;
        if self.settings.micro_batches == 1 {
            return Ok(batch);
        }
        let rows = self.settings.run.batch / self.settings.micro_batches;
        Ok(ops::narrow(&batch, 0, micro * rows, rows)?)
    }

    fn work(&mut self, Work { micro, pass }: Work, rows: &mut Rows) -> Result<()> {
        match pass {
            Pass::Forward { stage } => {
                rows.phase_of(stage, "forward");
                self.forward_of(stage, micro)?;
                self.stages[stage].begun();
            }
            Pass::Backward => {
                rows.phase("backward");
                let loss = taken(self.waiting[micro].take())?;
                self.update.backward(&loss)?;
                self.stages.iter_mut().for_each(Stage::ended);
                if loss.device().computes() {
                    *self.loss.get_or_insert(0.0) += loss.item()?;
                }
            }
        }
        Ok(())
    }

    fn forward_of(&mut self, stage: usize, micro: usize) -> Result<()> {
        let x = if stage == 0 { self.share(&self.input, micro)? } else { taken(self.waiting[micro].take())? };
        let _autocast = self.settings.run.precision.autocast().map(Autocast::new);
        let y = self.stages[stage].forward(x)?;
        let result = if stage + 1 == self.stages.len() { self.loss_of(&y, micro)? } else { y };
        self.waiting[micro] = Some(result);
        Ok(())
    }

    fn loss_of(&self, output: &Tensor, micro: usize) -> Result<Tensor> {
        let loss = crate::loss(&self.task.loss, output, &self.share(&self.target, micro)?)?;
        let parts = self.settings.micro_batches as f64 * self.settings.run.accumulate as f64;
        Ok(if parts > 1.0 { ops::div_scalar(&loss, parts)? } else { loss })
    }
}

impl TrainStep for SplitStep {
    fn settings(&self) -> &RunSettings {
        &self.settings.run
    }

    fn update(&mut self) -> &mut Update {
        &mut self.update
    }

    /// Loads inputs to the first device, and targets to the last.
    fn input(&mut self, number: usize) -> Result<()> {
        let _op = context::op("to>_to_copy");
        let (run, dtype) = (&self.settings.run, self.settings.run.precision.dtype());
        let [Some(first), Some(last)] = [self.stages.first(), self.stages.last()] else { return Ok(()) };
        let data = self.source.batch(&self.task, run.batch, number, first.device.computes())?;
        self.input = Some(data.upload_inputs(&first.device, dtype)?);
        self.target = Some(data.upload_targets(&last.device, dtype)?);
        Ok(())
    }

    fn passes(&mut self, rows: &mut Rows) -> Result<()> {
        self.loss = None;
        (0..self.order.len()).try_for_each(|work| self.work(self.order[work], rows))
    }

    fn all_reduce(&mut self) -> Result<()> {
        Ok(joint::add_up(&self.copies)?)
    }

    fn loss_value(&self) -> Result<Option<f64>> {
        Ok(self.loss)
    }

    fn end(&mut self) -> Result<()> {
        Ok(self.stages.iter().try_for_each(|stage| stage.device.synchronize())?)
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

    fn parameter_count(&self) -> u64 {
        self.parameters.iter().map(|parameter| parameter.array().numel() as u64).sum()
    }

    /// Accuracy on the test examples; `None` without test examples.
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

    fn release(self) {
        let Self { stages, update, input, target, waiting, parameters, copies, buffers, .. } = self;
        drop((waiting, stages, parameters, copies, buffers, update, input, target));
    }
}

/// Frees everything. Returns what each device had, with a last row `end`.
pub fn finish(trainer: Trainer<SplitStep>) -> Vec<StageFigures> {
    let figures: Vec<StageFigures> = trainer.phases().stages.iter().map(of_stage).collect();
    let rows = trainer.finish_each(Some("end"));
    figures.into_iter().zip(rows).map(|(figures, rows)| StageFigures { rows, ..figures }).collect()
}

/// Figures of a stage, without its rows.
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

/// Trains a split network from its first to its last step, calling `progress` after each. A break stops the run and keeps what was measured.
///
/// # Errors
/// Those of [`trainer`] and [`Trainer::step`], with the losses until then. The devices can still be asked what they held.
pub fn train(
    architecture: &dyn Architecture,
    devices: &[Device],
    settings: &PipelineSettings,
    source: Source,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<PipelineResult, Failed> {
    train_from(architecture, devices, settings, source, &mut Continuation::default(), progress)
}

/// Trains as [`train`] does, and can begin from a file, or save the state for the next run. The file is the same as that of a run on one device, plus
/// the random state of each further device.
pub fn train_from(
    architecture: &dyn Architecture,
    devices: &[Device],
    settings: &PipelineSettings,
    source: Source,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<PipelineResult, Failed> {
    devices.iter().try_for_each(|device| continuation.check(device))?;
    let mut trainer = trainer(architecture, devices, settings, source)?;
    let Taken { steps, accuracy } = take_steps(&mut trainer, continuation, progress, || Ok(()))?;
    let Steps { losses, ms_per_step, interrupted } = steps;
    let parameters = trainer.parameter_count();
    Ok(PipelineResult { stages: finish(trainer), parameters, losses, ms_per_step, accuracy, interrupted })
}
