//! Phases of a training step, whatever is trained.

use lab_base::error::{Error, Result};
use memcore::Tensor;

use super::average::{Averaged, Ema};
use super::between::Hold;
use super::checkpoint::Parts;
use super::evaluate::Accuracy;
use super::rows::Rows;
use super::schedule::Phase;
use super::settings::RunSettings;
use super::update::Update;

/// A training: one method for each phase of a step, and what else a run needs. A [`Trainer`](super::Trainer) calls them in the order of the schedule.
///
/// All return the device's errors. A phase that the program does not have is an [`Error::Usage`].
pub trait TrainStep {
    /// Settings of the run; its schedule is that of this loop.
    fn settings(&self) -> &RunSettings;

    /// The optimizer and the loss scaler.
    fn update(&mut self) -> &mut Update;

    /// Loads the batch of this number to the device.
    fn input(&mut self, number: usize) -> Result<()>;

    /// `optimizer.zero_grad()`.
    fn zero_grad(&mut self) -> Result<()> {
        self.update().zero_grad()
    }

    /// Runs the network.
    fn forward(&mut self) -> Result<()> {
        Err(lacks(Phase::Forward))
    }

    /// Computes the loss.
    fn loss(&mut self) -> Result<()> {
        Err(lacks(Phase::Loss))
    }

    /// Leaves the autocast region. Also called if a step fails.
    fn exit_autocast(&mut self) {}

    /// Computes the gradients of the loss.
    fn backward(&mut self) -> Result<()> {
        Err(lacks(Phase::Backward))
    }

    /// Runs all forward and backward passes of a batch over several devices.
    fn passes(&mut self, _: &mut Rows) -> Result<()> {
        Err(lacks(Phase::Passes))
    }

    /// Adds up the gradients of parameters that several devices have.
    fn all_reduce(&mut self) -> Result<()> {
        Err(lacks(Phase::AllReduce))
    }

    /// Adds the loss to the earlier ones.
    fn add_loss(&mut self) -> Result<()> {
        Err(lacks(Phase::AddLoss))
    }

    /// Clips the gradients, if the optimizer's step does not do it.
    fn clip(&mut self) -> Result<()> {
        Err(lacks(Phase::Clip))
    }

    /// `optimizer.step()`; updates the loss scaler too, unless the schedule has a phase for that.
    fn step(&mut self) -> Result<()> {
        let own = self.settings().schedule.names(Phase::Update);
        self.update().step()?;
        if own { Ok(()) } else { self.update().rescale() }
    }

    /// Deletes the network's result.
    fn del(&mut self) -> Result<()> {
        Err(lacks(Phase::Del))
    }

    /// Runs the network once more without recording a graph.
    fn forward_no_grad(&mut self) -> Result<()> {
        Err(lacks(Phase::ForwardNoGrad))
    }

    /// Empties the lists that layers append to.
    fn clear(&mut self) -> Result<()> {
        Err(lacks(Phase::Clear))
    }

    /// Returns the last micro-batch's loss; `None` on a device without values.
    fn loss_value(&self) -> Result<Option<f64>>;

    /// Called after the last row of a step.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }

    /// Enters the function that evaluates: its names have no values yet, and those of the loop keep theirs.
    fn enter_evaluation(&mut self) -> Result<()> {
        Err(Error::usage("eval-every", "this training loop has no evaluation"))
    }

    /// Loads a batch of so many examples to the device; `number` decides its values.
    fn load_batch(&mut self, _examples: usize, _number: usize) -> Result<()> {
        Err(Error::usage("eval-every", "this training loop has no evaluation"))
    }

    /// The network's last results.
    fn results(&self) -> Vec<Tensor> {
        Vec::new()
    }

    /// Leaves the function that evaluates. Its names end in the order of their first assignment.
    fn leave_evaluation(&mut self) {}

    /// Deletes the names that do not outlive a step, in the order of their first assignment.
    fn delete_except(&mut self, _held: Hold) -> Result<()> {
        Err(Error::usage("hold", "what this training loop holds is its own"))
    }

    /// The tensors that an average of this kind is of.
    fn averaged(&self, _kind: Ema) -> Result<Averaged> {
        Err(Error::usage("ema", "this training loop keeps no average of the weights"))
    }

    /// Everything that the training's future depends on.
    fn parts(&mut self) -> Parts<'_>;

    /// Number of trained values; shared ones count once.
    fn parameter_count(&self) -> u64;

    /// Accuracy on the test data; `None` without test data.
    fn accuracy(&self) -> Result<Option<Accuracy>> {
        Ok(None)
    }

    /// Frees everything, in the order in which a Python function frees its variables.
    fn release(self)
    where
        Self: Sized,
    {
        drop(self);
    }
}

/// Returns a variable that a phase reads. Fails if it is not set.
pub fn bound<T>(variable: &Option<T>) -> Result<&T> {
    variable.as_ref().ok_or_else(|| Error::usage("schedule", "a phase ran before the one that it needs"))
}

/// Returns a loss as a number; `None` on a device without values.
pub fn value_of(loss: &Option<Tensor>) -> Result<Option<f64>> {
    let loss = loss.as_ref().filter(|loss| loss.device().computes());
    Ok(loss.map(Tensor::item).transpose()?)
}

fn lacks(phase: Phase) -> Error {
    Error::usage("schedule", format!("this training loop has no phase {}", phase.name()))
}
