//! A split network in training.

use std::ops::ControlFlow;

use lab_base::error::{Error, Result};
use lab_models::Architecture;
use memcore::memory::Category;
use memcore::nn::{Copied, Parameter};
use memcore::{Array, Device};

use super::chain::{self, Chain};
use super::figures::{PipelineResult, StageFigures};
use super::joint::{self, Joint};
use super::schedule::{Pass, Work};
use super::stage::Stage;
use super::staged::{Built, PipelineSettings, Staged};
use crate::record::Account;
use crate::{
    Accuracy, Continuation, Failed, Parts, Phase, Progress, Rows, RunSettings, Source, Steps, Taken, TrainStep,
    Trainer, Update, data_name, take_steps,
};

/// A split network with its script's variables.
pub struct SplitStep<N = Chain> {
    stages: Vec<Stage>,
    /// All parameters, in the order of PyTorch's `model.parameters()`.
    parameters: Vec<Parameter>,
    copies: Vec<Copied>,
    buffers: Vec<(String, Array)>,
    network: N,
    update: Update,
    settings: PipelineSettings,
    order: Vec<Work>,
    /// Loss of the current batch.
    loss: Option<f64>,
}

/// Phases of a step, with or without those for copies of parameters.
fn phases(copies: bool) -> crate::Schedule {
    let order = [Phase::Input, Phase::ZeroGrad, Phase::Passes, Phase::AllReduce, Phase::Step];
    let order = order.into_iter().filter(|phase| copies || *phase != Phase::AllReduce);
    crate::Schedule::in_order(order.collect(), "s")
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
    trainer_of(architecture, devices, settings, || chain::build(architecture, devices, settings, source))
}

/// As [`trainer`], of a network that `build` puts on the devices.
///
/// # Errors
/// Those of [`trainer`] and of `build`.
pub fn trainer_of<N: Staged>(
    architecture: &dyn Architecture,
    devices: &[Device],
    settings: &PipelineSettings,
    build: impl FnOnce() -> Result<Built<N>>,
) -> Result<Trainer<SplitStep<N>>> {
    settings.check()?;
    if let Some(without) = devices.iter().find(|device| device.computes() != devices[0].computes()) {
        let other = if without.computes() { &devices[0] } else { without };
        let problem = format!("{} has no values to give to a device that computes, nor keeps any", other.name());
        return Err(Error::usage("devices", problem));
    }
    settings.run.check_network(architecture, settings.examples())?;
    devices.iter().for_each(|device| device.phase("model"));
    let Built { stages, parameters, copies, buffers, network } = build()?;
    let joint = Joint::new(&settings.run.optimizer, &stages, parameters.clone(), copies.clone())?;
    let update = Update::with(&settings.run, Some(Box::new(joint)));
    let used: Vec<Device> = stages.iter().map(|stage| stage.device.clone()).collect();
    let order = settings.schedule.order(stages.len(), settings.micro_batches);
    let mut settings = settings.clone();
    settings.run.schedule = phases(!copies.is_empty());
    let step = SplitStep { parameters, copies, buffers, network, update, order, settings, loss: None, stages };
    Ok(Trainer::new(step, &used, ""))
}

impl<N: Staged> SplitStep<N> {
    /// Parameters of the network, in the order of PyTorch's `model.parameters()`.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn work(&mut self, Work { micro, pass }: Work, rows: &mut Rows) -> Result<()> {
        match pass {
            Pass::Forward { stage } => {
                rows.phase_of(stage, "forward");
                self.network.forward(&self.settings, stage, micro)?;
                self.stages[stage].begun();
            }
            Pass::Backward => {
                rows.phase("backward");
                let loss = self.network.take_loss(micro)?;
                self.update.backward(&loss)?;
                self.stages.iter_mut().for_each(Stage::ended);
                if loss.device().computes() {
                    *self.loss.get_or_insert(0.0) += loss.item()?;
                }
            }
        }
        Ok(())
    }
}

impl<N: Staged> TrainStep for SplitStep<N> {
    fn settings(&self) -> &RunSettings {
        &self.settings.run
    }

    fn update(&mut self) -> &mut Update {
        &mut self.update
    }

    fn input(&mut self, number: usize) -> Result<()> {
        self.network.load(&self.settings, number)
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
            data: data_name(self.network.data()),
        }
    }

    fn parameter_count(&self) -> u64 {
        self.parameters.iter().map(|parameter| parameter.array().numel() as u64).sum()
    }

    fn accuracy(&self) -> Result<Option<Accuracy>> {
        self.network.accuracy(&self.settings.run)
    }

    fn release(self) {
        let Self { stages, update, network, parameters, copies, buffers, .. } = self;
        drop((network, stages, parameters, copies, buffers, update));
    }
}

/// Frees everything. Returns what each device had, with a last row `end`.
pub fn finish<N: Staged>(trainer: Trainer<SplitStep<N>>) -> Vec<StageFigures> {
    let figures: Vec<StageFigures> = trainer.phases().stages.iter().map(of_stage).collect();
    let rows = trainer.finish_each(Some("end"));
    figures.into_iter().zip(rows).map(|(figures, rows)| StageFigures { rows, ..figures }).collect()
}

/// Figures of a stage, without its rows.
fn of_stage(stage: &Stage) -> StageFigures {
    let moved = stage.device.counters();
    StageFigures {
        pieces: stage.pieces.clone(),
        modules: stage.modules.clone(),
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
    run(trainer(architecture, devices, settings, source)?, continuation, progress)
}

/// Trains from where `continuation` begins, and saves in it what the next run needs.
///
/// # Errors
/// Those of [`Trainer::step`], with the losses until then.
pub fn run<N: Staged>(
    mut trainer: Trainer<SplitStep<N>>,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<PipelineResult, Failed> {
    let Taken { steps, accuracy } = take_steps(&mut trainer, continuation, progress, || Ok(()))?;
    let Steps { losses, ms_per_step, interrupted } = steps;
    let parameters = trainer.parameter_count();
    Ok(PipelineResult { stages: finish(trainer), parameters, losses, ms_per_step, accuracy, interrupted })
}
