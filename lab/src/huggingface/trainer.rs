//! The training loop of a script around such a network.
//!
//! ```python
//! b = batch(); opt.zero_grad(); out = model(**b); loss = out.loss; loss.backward(); opt.step()
//! ```
//!
//! Nothing is deleted: the batch, the result with its logits and cache, and the loss live until the names are bound again.

use std::ops::ControlFlow;

use memcore::amp::Autocast;
use memcore::memory::Category;
use memcore::nn::{Init, Parameter};
use memcore::{Array, DType, Device, Tensor, ops};
use serde::Serialize;

use super::network::{Inputs, Network, Output};
use super::{InputKind, Pretrained};
use crate::data::SplitMix64;
use crate::error::{Error, Result};
use crate::record::Row;
use crate::training::{Continuation, Failed, Parts, Progress, RunResult, RunSettings, Schedule, Training, Update, run};

/// What of the result the script holds until the next one is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// `out = model(**b)`: loss, logits, cache.
    #[default]
    Output,
    /// `loss = model(**b).loss`
    Loss,
}

/// A network in training.
pub struct Trainer {
    device: Device,
    network: Box<dyn Network>,
    parameters: Vec<Parameter>,
    update: Update,
    input: InputKind,
    mask: bool,
    settings: RunSettings,
    keep: Keep,
    batch: Option<Inputs>,
    output: Option<Output>,
    loss: Option<Tensor>,
    rows: Vec<Row>,
}

impl Trainer {
    /// Builds the network and its optimizer.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that cannot work; those of the device.
    pub fn new(model: &Pretrained, device: &Device, settings: &RunSettings, keep: Keep) -> Result<Self> {
        settings.check()?;
        model.check(settings)?;
        if settings.schedule != Schedule::default() {
            return Err(Error::usage(
                "schedule",
                "these networks are trained in the usual order: their loss is inside",
            ));
        }
        device.phase("model");
        let init = Init::new(device, settings.precision.dtype(), settings.seed);
        let network = model.build(&init)?;
        let parameters = network.optimizer_order(init.parameters());
        let update = Update::new(settings, Some(parameters.clone()))?;
        let mut trainer = Self {
            device: device.clone(),
            network,
            parameters,
            update,
            input: model.input(),
            mask: model.options().attention_mask,
            settings: settings.clone(),
            keep,
            batch: None,
            output: None,
            loss: None,
            rows: Vec::new(),
        };
        trainer.row("model");
        Ok(trainer)
    }

    /// Number of trained values; shared ones count once.
    pub fn parameter_count(&self) -> u64 {
        self.parameters.iter().map(|p| p.array().numel() as u64).sum()
    }

    /// The rows taken so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
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
        // The region ends with the loss, which is inside the network.
        let autocast = self.settings.precision.autocast().map(Autocast::new);
        let output = self.network.forward(self.batch.as_ref().ok_or_else(missing)?)?;
        drop(autocast);
        let loss = output.loss.clone();
        match self.keep {
            Keep::Output => self.output = Some(output),
            Keep::Loss => drop(output),
        }
        self.loss = Some(loss);
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
        let batch = self.settings.batch;
        let seed = self.settings.seed.wrapping_add(number as u64);
        match self.input {
            InputKind::Tokens { length, vocabulary } => {
                let dims = [batch, length];
                let input = self.indices(&dims, vocabulary, seed)?;
                let mask = if self.mask { Some(self.ones(&dims)?) } else { None };
                Ok(Inputs { input, attention_mask: mask, labels: self.indices(&dims, vocabulary, seed)? })
            }
            InputKind::Image { channels, size, classes } => {
                let dims = [batch, channels, size, size];
                let pixels = Array::empty_as(&self.device, &dims, self.settings.precision.dtype(), Category::Input)?;
                if self.device.computes() {
                    let mut generator = SplitMix64::new(seed);
                    let values: Vec<f32> = (0..pixels.numel()).map(|_| 2.0 * generator.next_f32() - 1.0).collect();
                    memcore::nn::write_f32(&pixels, &values)?;
                }
                let labels = self.indices(&[batch], classes, seed)?;
                Ok(Inputs { input: Tensor::from_array(pixels), attention_mask: None, labels })
            }
        }
    }

    fn indices(&self, dims: &[usize], below: usize, seed: u64) -> Result<Tensor> {
        let array = Array::empty_as(&self.device, dims, DType::I64, Category::Input)?;
        if self.device.computes() {
            let mut generator = SplitMix64::new(seed);
            let values: Vec<i64> = (0..array.numel()).map(|_| generator.below(below.max(1) as u64) as i64).collect();
            array.write(&values)?;
        }
        Ok(Tensor::from_array(array))
    }

    fn ones(&self, dims: &[usize]) -> Result<Tensor> {
        let array = Array::empty_as(&self.device, dims, DType::I64, Category::Input)?;
        if self.device.computes() {
            array.write(&vec![1i64; array.numel()])?;
        }
        Ok(Tensor::from_array(array))
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
    run(Trainer::new(model, device, settings, keep)?, device, settings.steps, continuation, progress)
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
            device: &self.device,
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

    fn finish(mut self, label: Option<&str>) -> Vec<Row> {
        let (device, mut rows) = (self.device.clone(), std::mem::take(&mut self.rows));
        drop(self);
        rows.extend(label.map(|label| Row::take(&device, label)));
        rows
    }
}
