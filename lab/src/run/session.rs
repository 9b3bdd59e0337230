//! A run that is ready to start: the network, its training settings, and a device that can be opened any number of times.

use std::ops::ControlFlow;

use lab_base::backends::Remark;
use lab_base::error::{Error, Result};
use lab_base::figures::{both, short};
use lab_models::{Input, Loss, Task};
use lab_results::Premise;
use lab_results::report::Recording;
use lab_training::{Continuation, Failed, Phase, Progress, RunResult, RunSettings, Source};
use memcore::Device;
use memcore::memory::Needs;

use super::flat::{End, Ends, MOST_ROUNDS};
use super::network::Network;
use super::requests::{Requests, STEPS, Served};
use super::spec::RunSpec;
use super::target::Target;

/// Rounds of steps in which every kernel of a run is called.
const ROUNDS_WITH_EVERY_KERNEL: usize = 2;

/// Called after each step; returns whether to continue.
pub type OnStep<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// A resolved run.
pub struct Session {
    /// The network.
    pub network: Network,
    /// Settings of the training.
    pub run: RunSettings,
    /// Source of the batches.
    pub source: Source,
    /// The device.
    pub target: Target,
    /// Premises of the answer, with their sources.
    pub premises: Vec<Premise>,
    /// Number of steps that the user or a file said; `None` where the run has as many as it takes.
    pub steps_said: Option<usize>,
    /// Every field with the value in force.
    pub in_force: RunSpec,
    /// Notes on values that were taken from files instead of fields.
    pub notes: Vec<String>,
    /// Remarks on the choice of the device.
    pub remarks: Vec<Remark>,
}

impl Session {
    /// Name of the network.
    pub fn name(&self) -> &str {
        self.network.architecture().name()
    }

    /// One line about the network.
    pub fn description(&self) -> String {
        self.network.architecture().description()
    }

    /// Warnings before the run: what was taken from files, and what the network's file sets that is not known here.
    pub fn warnings(&self) -> Vec<String> {
        self.notes.iter().chain(self.network.warnings()).cloned().collect()
    }

    /// Returns the run with a history of all events.
    #[must_use]
    pub fn with_history(self) -> Self {
        Self { target: self.target.history(true), ..self }
    }

    /// Returns the run with so many steps.
    #[must_use]
    pub(super) fn of_steps(mut self, steps: usize) -> Self {
        self.run.steps = steps;
        self
    }

    /// The most steps of a dry run until memory is flat: those that were said, else more than a run takes for that.
    pub(super) fn most_steps(&self) -> usize {
        let most = MOST_ROUNDS.saturating_mul(self.run.period());
        self.steps_said.map_or(most, |steps| steps.min(most))
    }

    /// Trains on an opened device, from where `continuation` begins.
    ///
    /// # Errors
    /// Settings that cannot work, a file that does not fit, those of the device; with what was measured before.
    pub fn train_from(
        &self,
        device: &Device,
        continuation: &mut Continuation<'_>,
        on_step: &mut OnStep<'_>,
    ) -> Result<RunResult, Failed> {
        self.train_as(device, &self.run, continuation, on_step)
    }

    /// The same with other settings.
    pub(super) fn train_as(
        &self,
        device: &Device,
        run: &RunSettings,
        continuation: &mut Continuation<'_>,
        on_step: &mut OnStep<'_>,
    ) -> Result<RunResult, Failed> {
        self.network.train(device, run, &self.source, continuation, on_step)
    }

    /// Trains from the beginning.
    pub fn train(&self, device: &Device, on_step: &mut OnStep<'_>) -> Result<RunResult, Failed> {
        self.train_from(device, &mut Continuation::default(), on_step)
    }

    /// Trains on a device that `target` opened with a history, until memory is flat; where it is not, for `least` steps and no more than `most`, unless `least` is
    /// more. It ends before that where the requests of further steps are known to take no more memory.
    ///
    /// # Errors
    /// Those of [`train_from`](Self::train_from).
    pub(super) fn train_until_flat(
        &self,
        (target, device): (&Target, &Device),
        (least, most): (usize, usize),
        stop: &dyn Fn() -> bool,
    ) -> Result<RunResult, Failed> {
        let most = most.max(least);
        let mut ends = Ends::new(self.run.period());
        let on_step = &mut |progress: Progress| match ends.step(device) {
            End::Flat => ControlFlow::Break(()),
            End::Bound if progress.done >= least => ControlFlow::Break(()),
            _ if self.takes_no_more((target, device), ends.requests(), most) => ControlFlow::Break(()),
            End::Bound | End::GoOn => flow(stop),
        };
        self.train_steps(device, most, on_step)
    }

    /// True for a dry run to which there is no more than requests of an allocator.
    pub(super) fn makes_only_requests(&self) -> bool {
        let schedule = &self.run.schedule;
        self.target.is_on_paper() && ![Phase::EmptyCache, Phase::ResetPeak].iter().any(|phase| schedule.names(*phase))
    }

    /// True if further steps of a dry run, which make the requests of its last round again until memory is flat, raise no peak. An allocator alone tells that in a
    /// twentieth of the time.
    fn takes_no_more(&self, (target, device): (&Target, &Device), ends: &[usize], most: usize) -> bool {
        let (Some(again), Ok(mut allocator)) = (self.repeating(device, ends), target.allocator()) else {
            return false;
        };
        let served = again.until_flat(&mut *allocator, self.run.period(), most);
        matches!(served, Ok(Served::All { needs, .. }) if needs == taken(device))
    }

    /// The requests of a dry run whose further steps make those of its last round again; `None` if they may not. Asked once, when two rounds have been made.
    pub(super) fn repeating(&self, device: &Device, ends: &[usize]) -> Option<Requests> {
        let period = self.run.period();
        if ends.len() != STEPS.saturating_mul(period) || !self.makes_only_requests() {
            return None;
        }
        device.with_ledger(|ledger| Requests::of_steps(ledger, ends.to_vec(), Vec::new()))?.repeating(period)
    }

    /// Trains on an opened device for at most so many steps, whatever the run's number is.
    ///
    /// # Errors
    /// Those of [`train_from`](Self::train_from).
    pub(super) fn train_steps(
        &self,
        device: &Device,
        steps: usize,
        on_step: &mut OnStep<'_>,
    ) -> Result<RunResult, Failed> {
        self.train_with(device, &RunSettings { steps, ..self.run.clone() }, on_step)
    }

    /// Trains on an opened device with other settings.
    ///
    /// # Errors
    /// Those of [`train_from`](Self::train_from).
    pub(super) fn train_with(
        &self,
        device: &Device,
        run: &RunSettings,
        on_step: &mut OnStep<'_>,
    ) -> Result<RunResult, Failed> {
        self.train_as(device, run, &mut Continuation::default(), on_step)
    }

    /// Every event of the run with enough memory, until memory is flat, or of at least so many steps.
    ///
    /// # Errors
    /// Those of [`needs`](Self::needs).
    pub fn drawn_with_memory_enough(&self, least: usize, stop: &dyn Fn() -> bool) -> Result<Recording> {
        let (target, device) = self.with_memory_enough()?;
        self.train_until_flat((&target, &device), (least, self.most_steps()), stop)?;
        self.recording(&device, stop)
    }

    /// Returns a device with enough memory, which keeps a history.
    pub(super) fn with_memory_enough(&self) -> Result<(Target, Device)> {
        let target = self.target.endless()?.history(true);
        let device = target.open()?;
        let bytes = batch_bytes(&self.network.architecture().task(), self.run.largest_batch());
        if device.memory_info().zip(bytes).is_none_or(|(memory, bytes)| bytes > memory.total_bytes) {
            return Err(Error::usage("batch", "beyond what any device holds"));
        }
        Ok((target, device))
    }

    /// Refuses a run on a device that lacks some of its kernels, and names them all. A dry run finds them.
    ///
    /// # Errors
    /// Naming the kernels; [`Error::Interrupted`] when it was stopped.
    fn check_kernels(&self, device: &Device, stop: &dyn Fn() -> bool) -> Result<()> {
        if !device.computes() {
            return Ok(());
        }
        let (runner, meta) = self.target.asking(device.shared_backend())?;
        let steps = ROUNDS_WITH_EVERY_KERNEL.saturating_mul(self.run.period());
        let run = RunSettings { steps: self.run.steps.min(steps), ..self.run.clone() };
        // What fails in the dry run fails on the device too, with its reason.
        let tried = self.network.train(&runner, &run, &self.source, &mut Continuation::default(), &mut |_| flow(stop));
        if stop() {
            return Err(Error::Interrupted);
        }
        drop(tried);
        let missing: Vec<String> =
            meta.missing().iter().map(|(kernel, dtype)| format!("{kernel} for {dtype}")).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let problem = format!("it lacks kernels that this run needs: {}", missing.join(", "));
        Err(memcore::Error::backend(device.name(), problem).into())
    }

    /// Refuses a run that the device cannot make: it lacks kernels, or cannot hold a batch. The host does not try to make the batch then.
    ///
    /// # Errors
    /// Kernels that the device lacks, by name. Sizes beyond 64 bits. [`Error::TooLarge`] for a batch that exceeds the device's memory (the host's, if the
    /// device is the host).
    pub fn check_size(&self, device: &Device, stop: &dyn Fn() -> bool) -> Result<()> {
        let batch = self.run.largest_batch();
        let absurd = || Error::usage("batch", format!("{batch} examples of this model are beyond what 64 bits count"));
        let bytes = batch_bytes(&self.network.architecture().task(), batch).ok_or_else(absurd)?;
        let Some(memory) = device.memory_info() else { return self.check_kernels(device, stop) };
        // The host makes the batch before it is copied to the device.
        let copies = if device.backend().host_memory() { 2 } else { 1 };
        if bytes <= memory.total_bytes && (copies == 1 || bytes <= memory.free_bytes / copies) {
            return self.check_kernels(device, stop);
        }
        let mut message = format!(
            "a batch of {batch} takes {} for its inputs and targets alone, and {} of {} are free",
            both(bytes),
            short(memory.free_bytes),
            short(memory.total_bytes)
        );
        let needs = self.needs(0, stop).ok();
        let missing_bytes = needs.and_then(|needs| needs.reserved_bytes.checked_sub(memory.free_bytes));
        if let Some(missing) = missing_bytes {
            message += &format!("; the whole run needs {} more than that", short(missing));
        }
        Err(Error::TooLarge { message, missing_bytes })
    }
}

/// True to go on.
pub fn flow(stop: &dyn Fn() -> bool) -> ControlFlow<()> {
    if stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Memory that a run took on a device with enough memory.
pub(super) fn taken(device: &Device) -> Needs {
    Needs { allocated_bytes: device.usage().peak_bytes(), reserved_bytes: device.stats().reserved_bytes.all.peak }
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
