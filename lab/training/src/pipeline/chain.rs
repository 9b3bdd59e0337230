//! A network that is a chain of pieces, cut into stages: the result of one stage is the input of the next.

use lab_base::error::{Error, Result};
use lab_models::{Architecture, Task, measured};
use memcore::amp::Autocast;
use memcore::nn::{Init, Module, Sequential, Training};
use memcore::{DType, Device, Tensor, context, ops};

use super::stage::Stage;
use super::staged::{Built, PipelineSettings, Staged};
use crate::data::Split;
use crate::{Accuracy, RunSettings, Source, evaluate_with};

/// A chain of pieces on its devices, with its script's variables.
pub struct Chain {
    /// The device and the pieces of each stage.
    stages: Vec<(Device, Sequential)>,
    task: Task,
    training: Training,
    source: Source,
    input: Option<Tensor>,
    target: Option<Tensor>,
    /// For each micro-batch, the result of the last stage that ran on it, or its loss.
    waiting: Vec<Option<Tensor>>,
}

/// Takes a tensor that a pass reads.
fn taken(tensor: Option<Tensor>) -> Result<Tensor> {
    tensor.ok_or_else(|| Error::usage("schedule", "a pass ran before the one that it needs"))
}

/// Builds a network over `devices`.
///
/// # Errors
/// [`Error::Usage`] for a network that cannot be split, and for an impossible cut; those of the devices.
pub(super) fn build(
    architecture: &dyn Architecture,
    devices: &[Device],
    settings: &PipelineSettings,
    source: Source,
) -> Result<Built<Chain>> {
    if let Some(reason) = architecture.indivisible().filter(|_| devices.len() > 1) {
        return Err(Error::usage("devices", format!("{} cannot be split: {reason}", architecture.name())));
    }
    let Some(first) = devices.first() else { return Err(Error::usage("devices", "one device at least is needed")) };
    let init = Init::new(first, settings.run.precision.dtype(), settings.run.seed);
    let (ranges, mut pieces) = if architecture.indivisible().is_some() {
        (std::iter::once(0..1).collect(), vec![architecture.build(&init)?].into_iter())
    } else {
        let ranges = settings.cut.stages(&piece_bytes(architecture)?, devices.len())?;
        let device_of = |piece: usize| {
            let stage = ranges.iter().position(|range| range.contains(&piece));
            stage.and_then(|stage| devices.get(stage)).unwrap_or(first)
        };
        let pieces = architecture.pieces(&|piece| init.on(device_of(piece)))?.into_iter();
        (ranges, pieces)
    };
    let (parameters, copies) = (architecture.optimizer_order(init.parameters()), init.copies());
    let all = || parameters.iter().chain(copies.iter().map(|copied| &copied.copy));
    let stages = devices.iter().zip(&ranges).map(|(device, range)| Stage::new(device, range.clone(), None, all()));
    let stages = stages.collect();
    let modules = devices.iter().zip(&ranges).map(|(device, range)| {
        let modules: Vec<Box<dyn Module>> = pieces.by_ref().take(range.len()).collect();
        (device.clone(), Sequential::from_modules(modules))
    });
    let network = Chain {
        stages: modules.collect(),
        task: architecture.task(),
        training: init.training(),
        source,
        input: None,
        target: None,
        waiting: (0..settings.micro_batches).map(|_| None).collect(),
    };
    Ok(Built { stages, parameters, copies, buffers: init.buffers(), network })
}

/// Bytes of each piece's parameters in float32.
fn piece_bytes(architecture: &dyn Architecture) -> Result<Vec<u64>> {
    let measured = measured(architecture, DType::F32, |init| init)?;
    let mut bytes = vec![0; measured.pieces];
    for parameter in measured.parameters.iter().chain(&measured.copies) {
        bytes[parameter.piece] += 4 * parameter.values as u64;
    }
    Ok(bytes)
}

impl Chain {
    /// Moves the previous stage's result to a stage's device, and runs the stage on it.
    fn run(&self, stage: usize, x: Tensor) -> Result<Tensor> {
        let Some((device, modules)) = self.stages.get(stage) else { return Ok(x) };
        let here = ops::to_device(&x, device)?;
        // The previous stage's result is freed now, unless its own graph keeps it.
        drop(x);
        Ok(modules.forward(&here)?)
    }
}

impl Staged for Chain {
    /// Loads inputs to the first device, and targets to the last.
    fn load(&mut self, settings: &PipelineSettings, number: usize) -> Result<()> {
        let _op = context::op("to>_to_copy");
        let (run, dtype) = (&settings.run, settings.run.precision.dtype());
        let [Some((first, _)), Some((last, _))] = [self.stages.first(), self.stages.last()] else { return Ok(()) };
        let data = self.source.batch(&self.task, run.batch, number, first.computes())?;
        self.input = Some(data.upload_inputs(first, dtype)?);
        self.target = Some(data.upload_targets(last, dtype)?);
        Ok(())
    }

    fn forward(&mut self, settings: &PipelineSettings, stage: usize, micro: usize) -> Result<()> {
        let x = if stage == 0 {
            settings.share(&taken(self.input.clone())?, micro)?
        } else {
            taken(self.waiting[micro].take())?
        };
        let _autocast = settings.run.precision.autocast().map(Autocast::new);
        let y = self.run(stage, x)?;
        let result = if stage + 1 == self.stages.len() {
            let target = settings.share(&taken(self.target.clone())?, micro)?;
            settings.part_of_mean(crate::loss(&self.task.loss, &y, &target)?)?
        } else {
            y
        };
        self.waiting[micro] = Some(result);
        Ok(())
    }

    fn take_loss(&mut self, micro: usize) -> Result<Tensor> {
        taken(self.waiting[micro].take())
    }

    fn data(&self) -> &Source {
        &self.source
    }

    /// Accuracy on the test examples; `None` without test examples.
    fn accuracy(&self, run: &RunSettings) -> Result<Option<Accuracy>> {
        let Source::Dataset { data, .. } = &self.source else { return Ok(None) };
        let Some((first, _)) = self.stages.first() else { return Ok(None) };
        self.training.set(false);
        let accuracy = evaluate_with(&self.task, data, Split::Test, run.batch, |batch| {
            let x = batch.upload_inputs(first, run.precision.dtype())?;
            (0..self.stages.len()).try_fold(x, |x, stage| self.run(stage, x))
        });
        self.training.set(true);
        accuracy
    }
}
