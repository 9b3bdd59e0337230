//! The training loop of a script around such a network.
//!
//! ```python
//! b = batch(); opt.zero_grad(); out = model(**b); loss = out.loss; loss.backward(); opt.step()
//! ```
//!
//! Nothing is deleted: the batch, the result with its logits and cache, and the loss live until the names are bound again.

use std::ops::ControlFlow;

use memcore::amp::Autocast;
use memcore::nn::{Init, Parameter};
use memcore::{Device, Tensor, ops};

use super::Pretrained;
use super::ending::Ending;
use super::inputs::Inputs;
use super::library_trainer::LibraryTrainer;
use super::mask::attention_mask;
use super::network::{Network, Output};
use super::options::{AttentionMask, Script};
use crate::error::{Error, Result};
use crate::models::{Architecture, Task};
use crate::named::named;
use crate::record::{Log, Row};
use crate::training::{
    Continuation, Failed, Parts, Progress, RunResult, RunSettings, Schedule, Source, Training, Update, run,
};

/// What of the result the script holds until the next one is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// `out = model(**b)`: loss, logits, cache.
    #[default]
    Output,
    /// `loss = model(**b).loss`
    Loss,
}

named!(Keep, "part of a result", { Output = "output", Loss = "loss" });

/// A network in training.
pub struct Trainer {
    device: Device,
    network: Network,
    parameters: Vec<Parameter>,
    update: Update,
    task: Task,
    ending: Ending,
    source: Source,
    mask: AttentionMask,
    settings: RunSettings,
    keep: Keep,
    batch: Option<Inputs>,
    output: Option<Output>,
    loss: Option<Tensor>,
    rows: Log,
}

impl Trainer {
    /// Builds the network and its optimizer.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that cannot work; those of the device.
    pub fn new(model: &Pretrained, device: &Device, settings: &RunSettings, keep: Keep) -> Result<Self> {
        settings.check()?;
        settings.check_network(model, settings.batch)?;
        if settings.schedule != Schedule::default() {
            return Err(Error::usage(
                "schedule",
                "these networks are trained in the usual order: their loss is inside",
            ));
        }
        device.phase("model");
        let init = Init::new(device, settings.precision.dtype(), settings.seed);
        let network = model.network(&init)?;
        let parameters = model.optimizer_order(init.parameters());
        let update = Update::new(settings, Some(parameters.clone()))?;
        let mut trainer = Self {
            device: device.clone(),
            network,
            parameters,
            update,
            task: model.task(),
            ending: model.ending(),
            source: Source::Renewed { seed: settings.seed },
            mask: model.options().attention_mask,
            settings: settings.clone(),
            keep,
            batch: None,
            output: None,
            loss: None,
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
        let mut total = 0.0;
        for micro in 0..count {
            let label = if count > 1 { format!("s{step}.m{micro}") } else { format!("s{step}") };
            self.device.phase("input");
            let batch = self.batch(step * count + micro)?;
            self.batch = Some(batch);
            self.row(&format!("{label}.input"));
            if micro == 0 {
                self.device.phase("zero_grad");
                self.update.zero_grad()?;
                self.row(&format!("s{step}.zero_grad"));
            }
            self.device.phase("forward");
            self.forward()?;
            self.row(&format!("{label}.forward"));
            self.device.phase("backward");
            if let Some(loss) = &self.loss {
                self.update.backward(loss)?;
            }
            self.row(&format!("{label}.backward"));
            if let (Some(loss), true) = (&self.loss, self.device.computes()) {
                total += loss.item()?;
            }
        }
        self.device.phase("step");
        self.update.step()?;
        self.update.rescale()?;
        self.row(&format!("s{step}.step"));
        Ok(self.device.computes().then_some(total))
    }

    fn forward(&mut self) -> Result<()> {
        let missing = || Error::usage("schedule", "a forward pass before its batch");
        // The region ends with the loss, which is inside the network; what was held before goes in it.
        let autocast = self.settings.precision.autocast().map(Autocast::new);
        let output = self.network.forward(self.batch.as_ref().ok_or_else(missing)?)?;
        let loss = output.loss.clone();
        match self.keep {
            Keep::Output => self.output = Some(output),
            Keep::Loss => drop(output),
        }
        self.loss = Some(loss);
        drop(autocast);
        if self.settings.accumulate > 1
            && let Some(loss) = &self.loss
        {
            self.loss = Some(ops::div_scalar(loss, self.settings.accumulate as f64)?);
        }
        Ok(())
    }

    /// Synthetic data; on a device that computes nothing only their sizes.
    fn batch(&self, number: usize) -> Result<Inputs> {
        let _op = memcore::context::op("to>_to_copy");
        let (device, dtype) = (&self.device, self.settings.precision.dtype());
        let (batch, seed) = (self.settings.batch, self.settings.seed.wrapping_add(number as u64));
        let rows = batch * self.ending.rows_per_example();
        let data = self.source.batch(&self.task, rows, number, device.computes())?;
        let input = data.upload_inputs(device, dtype)?;
        let attention_mask = attention_mask(self.mask, &input)?;
        let length = input.dims().get(1).copied().unwrap_or(1);
        let labels = match self.ending.labels(device, dtype, batch, length, seed)? {
            Some(labels) => labels,
            None => vec![data.upload_targets(device, dtype)?],
        };
        Ok(Inputs { input, attention_mask, labels, items: None })
    }
}

/// Trains a network from its first to its last step on synthetic data, calling `progress` after each; a break stops the run and keeps what was
/// measured.
///
/// # Errors
/// As [`Trainer::new`] and [`Trainer::step`], with what was measured before.
pub fn train(
    model: &Pretrained,
    device: &Device,
    settings: &RunSettings,
    keep: Keep,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult, Failed> {
    train_from(model, device, settings, keep, &mut Continuation::default(), progress)
}

/// The same, with a beginning from a file, or with what the next run needs to go on.
///
/// # Errors
/// As [`training::train_from`](crate::training::train_from).
pub fn train_from(
    model: &Pretrained,
    device: &Device,
    settings: &RunSettings,
    keep: Keep,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult, Failed> {
    continuation.check(device)?;
    if model.options().script == Script::Trainer {
        let trainer = LibraryTrainer::new(model, device, settings)?;
        return run(trainer, device, settings, continuation, progress);
    }
    run(Trainer::new(model, device, settings, keep)?, device, settings, continuation, progress)
}

impl Training for Trainer {
    fn step(&mut self, step: usize) -> Result<Option<f64>> {
        Self::step(self, step)
    }

    fn row(&mut self, label: &str) {
        Self::row(self, label);
    }

    /// These networks have no buffers that a file holds.
    fn parts(&mut self) -> Parts<'_> {
        Parts {
            devices: vec![&self.device],
            copies: &[],
            parameters: &self.parameters,
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
