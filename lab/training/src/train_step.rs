//! What the phases of a training step do, whatever is trained.

use lab_base::error::{Error, Result};
use memcore::Tensor;

use super::checkpoint::Parts;
use super::evaluate::Accuracy;
use super::rows::Rows;
use super::schedule::Phase;
use super::settings::RunSettings;
use super::update::Update;

/// Something in training: one method for each phase of a step, and what a run needs besides. A [`Trainer`](super::Trainer) calls them in the order of
/// the schedule.
///
/// All fail as the device does. A phase that the program does not have is an [`Error::Usage`].
pub trait TrainStep {
    /// How the run goes; its schedule is the one of this loop.
    fn settings(&self) -> &RunSettings;

    /// The optimizer and what scales the loss.
    fn update(&mut self) -> &mut Update;

    /// The batch of this number is put on the device.
    fn input(&mut self, number: usize) -> Result<()>;

    /// `optimizer.zero_grad()`.
    fn zero_grad(&mut self) -> Result<()> {
        self.update().zero_grad()
    }

    /// The network runs.
    fn forward(&mut self) -> Result<()> {
        Err(lacks(Phase::Forward))
    }

    /// The loss is there.
    fn loss(&mut self) -> Result<()> {
        Err(lacks(Phase::Loss))
    }

    /// The region of autocast ends. Also called where a step fails.
    fn exit_autocast(&mut self) {}

    /// Gradients of the loss.
    fn backward(&mut self) -> Result<()> {
        Err(lacks(Phase::Backward))
    }

    /// All forward and backward passes of a batch, over several devices.
    fn passes(&mut self, _: &mut Rows) -> Result<()> {
        Err(lacks(Phase::Passes))
    }

    /// Gradients of parameters that several devices have are added up.
    fn all_reduce(&mut self) -> Result<()> {
        Err(lacks(Phase::AllReduce))
    }

    /// The loss is added to those before.
    fn add_loss(&mut self) -> Result<()> {
        Err(lacks(Phase::AddLoss))
    }

    /// Gradients are clipped, where the optimizer's step does not do it.
    fn clip(&mut self) -> Result<()> {
        Err(lacks(Phase::Clip))
    }

    /// `optimizer.step()`; the loss scaler is updated too, where no phase of the schedule does.
    fn step(&mut self) -> Result<()> {
        let own = self.settings().schedule.names(Phase::Update);
        self.update().step()?;
        if own { Ok(()) } else { self.update().rescale() }
    }

    /// The program deletes the network's result.
    fn del(&mut self) -> Result<()> {
        Err(lacks(Phase::Del))
    }

    /// The network runs once more without recording a graph.
    fn forward_no_grad(&mut self) -> Result<()> {
        Err(lacks(Phase::ForwardNoGrad))
    }

    /// Lists that layers append to are emptied.
    fn clear(&mut self) -> Result<()> {
        Err(lacks(Phase::Clear))
    }

    /// The last micro-batch's loss, where there are values.
    fn loss_value(&self) -> Result<Option<f64>>;

    /// The step is over, and its last row taken.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }

    /// What its future depends on.
    fn parts(&mut self) -> Parts<'_>;

    /// Number of trained values; shared ones count once.
    fn parameter_count(&self) -> u64;

    /// How much of the test data it gets right, where there are some.
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

/// A variable that a phase reads.
pub fn bound<T>(variable: &Option<T>) -> Result<&T> {
    variable.as_ref().ok_or_else(|| Error::usage("schedule", "a phase ran before the one that it needs"))
}

/// A loss as a number, on a device that has values.
pub fn value_of(loss: &Option<Tensor>) -> Result<Option<f64>> {
    let loss = loss.as_ref().filter(|loss| loss.device().computes());
    Ok(loss.map(Tensor::item).transpose()?)
}

fn lacks(phase: Phase) -> Error {
    Error::usage("schedule", format!("this training loop has no phase {}", phase.name()))
}
