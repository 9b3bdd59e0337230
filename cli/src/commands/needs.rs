//! What a run takes with memory enough, and what is missing where it runs out.

use lab::models::{Input, Loss, Task};
use lab::training::RunSettings;
use memcore::Device;
use memcore::memory::Needs;

use super::plan::Plan;
use crate::exit::{Code, Failure, Result, TooLarge};
use crate::render::bytes;

/// Steps after which nothing grows any more, unless something is kept that should go.
pub(super) const SETTLED: usize = 3;

/// What a run has taken on a device that had memory enough.
pub(super) fn taken(device: &Device) -> Needs {
    Needs { allocated_bytes: device.usage().peak_bytes(), reserved_bytes: device.stats().reserved_bytes.all.peak }
}

/// The failure of a run after so many steps, judged by what the same run takes with memory enough.
pub(super) fn judged(failure: Failure, plan: &Plan, finished: usize) -> Failure {
    match plan.needs(SETTLED.max(finished + 1)) {
        Ok(needs) => failure.judged_by(needs),
        Err(_) => failure,
    }
}

impl Plan {
    /// What the run takes with memory enough: on paper, over so many steps at most.
    ///
    /// # Errors
    /// As [`train_on`](Self::train_on); [`lab::Error::Interrupted`] when the user stopped it.
    pub(super) fn needs(&self, steps: usize) -> Result<Needs> {
        let device = self.opening.endless()?.open()?;
        let bytes = batch_bytes(&self.subject.task(), self.run.batch);
        if device.memory_info().zip(bytes).is_none_or(|(memory, bytes)| bytes > memory.total_bytes) {
            return Err(Failure::usage("--batch: beyond what any device holds"));
        }
        let run = RunSettings { steps: self.run.steps.min(steps), ..self.run.clone() };
        let trained = self.subject.train(&device, &run, &self.source, &mut |_| crate::interrupt::flow());
        trained.map_err(lab::Error::from)?;
        if crate::interrupt::asked() {
            return Err(lab::Error::Interrupted.into());
        }
        Ok(taken(&device))
    }

    /// Refuses a batch that no device of this size can hold, before the host tries to make it.
    ///
    /// # Errors
    /// Sizes beyond 64 bits; more than the device's (or, for a device that is the host, the host's) memory.
    pub(super) fn check_size(&self, device: &Device) -> Result<()> {
        let batch = self.run.batch;
        let absurd =
            || Failure::usage(format!("--batch: {batch} examples of this model are beyond what 64 bits count"));
        let bytes = batch_bytes(&self.subject.task(), batch).ok_or_else(absurd)?;
        let Some(memory) = device.memory_info() else { return Ok(()) };
        // The host makes the batch before the device has it.
        let copies = if device.name() == "cpu" { 2 } else { 1 };
        if bytes > memory.total_bytes || (copies == 2 && bytes > memory.free_bytes / copies) {
            let mut message = format!(
                "a batch of {batch} takes {} for its inputs and targets alone, and {} of {} are free",
                bytes::both(bytes),
                bytes::short(memory.free_bytes),
                bytes::short(memory.total_bytes)
            );
            let needs = self.needs(SETTLED).ok();
            let missing_bytes = needs.and_then(|needs| needs.reserved_bytes.checked_sub(memory.free_bytes));
            if let Some(missing) = missing_bytes {
                message += &format!("; the whole run needs {} more than that", bytes::short(missing));
            }
            let code = if self.opening.limited() { Code::Check } else { Code::Device };
            return Err(Failure::new(code, TooLarge { message, missing_bytes }));
        }
        Ok(())
    }
}

/// Bytes of inputs and targets on the host; `None` beyond 63 bits.
fn batch_bytes(task: &Task, batch: usize) -> Option<u64> {
    let product = |dims: &[usize]| dims.iter().try_fold(batch as u64, |n, d| n.checked_mul(*d as u64));
    let inputs = match &task.input {
        Input::Values(dims) => product(dims)?.checked_mul(4)?,
        Input::Tokens { length, .. } => product(&[*length])?.checked_mul(8)?,
    };
    let targets = match (&task.loss, &task.input) {
        (Loss::MeanSquaredError { dims }, _) => product(dims)?.checked_mul(4)?,
        (_, Input::Tokens { length, .. }) => product(&[*length])?.checked_mul(8)?,
        (_, Input::Values(_)) => (batch as u64).checked_mul(8)?,
    };
    inputs.checked_add(targets).filter(|bytes| i64::try_from(*bytes).is_ok())
}
