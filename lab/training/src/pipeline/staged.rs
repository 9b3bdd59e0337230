//! What a split run trains: a network whose stages lie on devices.

use lab_base::error::{Error, Result};
use memcore::nn::{Copied, Parameter};
use memcore::{Array, Tensor, ops};

use super::cut::Cut;
use super::schedule::Schedule;
use super::stage::Stage;
use crate::{Accuracy, RunSettings, Source};

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

    /// Examples of a micro-batch.
    pub fn examples(&self) -> usize {
        self.run.batch / self.micro_batches.max(1)
    }

    /// Returns a micro-batch's part of a batch: a view along the first dimension.
    ///
    /// # Errors
    /// A batch of fewer examples than the settings say.
    pub fn share(&self, batch: &Tensor, micro: usize) -> Result<Tensor> {
        if self.micro_batches == 1 {
            return Ok(batch.clone());
        }
        let rows = batch.dims().first().map_or(0, |rows| rows / self.micro_batches);
        Ok(ops::narrow(batch, 0, micro * rows, rows)?)
    }

    /// Divides the loss of a micro-batch by the number of them in an optimizer's step.
    ///
    /// # Errors
    /// Those of the device.
    pub fn part_of_mean(&self, loss: Tensor) -> Result<Tensor> {
        let parts = self.micro_batches as f64 * self.run.accumulate as f64;
        Ok(if parts > 1.0 { ops::div_scalar(&loss, parts)? } else { loss })
    }
}

/// A network over devices.
pub struct Built<N> {
    /// The stages, in the order of the network.
    pub stages: Vec<Stage>,
    /// Parameters, in the order of PyTorch's `model.parameters()`.
    pub parameters: Vec<Parameter>,
    /// Parameters that two devices have.
    pub copies: Vec<Copied>,
    /// Buffers, such as running statistics, with their paths.
    pub buffers: Vec<(String, Array)>,
    /// What the stages run.
    pub network: N,
}

/// A network whose stages lie on devices, with its script's variables. All return the errors of the devices.
pub trait Staged {
    /// Loads the batch of this number, each tensor to the device of the stage that reads it first.
    fn load(&mut self, settings: &PipelineSettings, number: usize) -> Result<()>;

    /// Runs a stage on a micro-batch, and keeps what later stages read of its results; of the last stage it keeps the loss.
    fn forward(&mut self, settings: &PipelineSettings, stage: usize, micro: usize) -> Result<()>;

    /// Takes the loss of a micro-batch that has gone through all stages.
    fn take_loss(&mut self, micro: usize) -> Result<Tensor>;

    /// Where batches come from.
    fn data(&self) -> &Source;

    /// Accuracy on the test examples; `None` without test examples.
    fn accuracy(&self, _: &RunSettings) -> Result<Option<Accuracy>> {
        Ok(None)
    }
}
