//! The training loop and its result.

use std::ops::ControlFlow;
use std::time::Instant;

use memcore::Device;
use memcore::backend::Overhead;
use memcore::memory::{PeakComposition, Rings, Usage};

use super::checkpoint::Continuation;
use super::evaluate::Accuracy;
use super::settings::RunSettings;
use super::source::Source;
use super::trained::Training;
use super::trainer::Trainer;
use crate::error::{Error, Result};
use crate::models::Architecture;
use crate::record::Row;

/// What is known after each step, for progress and for stopping.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps done.
    pub done: usize,
    /// Steps in all.
    pub steps: usize,
    /// The last loss; absent on a device that computes nothing.
    pub loss: Option<f64>,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// One row per phase, `model` first and `end` (everything dropped) last.
    pub rows: Vec<Row>,
    /// One loss per optimizer step (the mean of its micro-batches); empty on a device that computes nothing.
    pub losses: Vec<f64>,
    /// Milliseconds of each step, read of the loss included; empty on a device that computes nothing.
    pub ms_per_step: Vec<f64>,
    /// What was allocated at the peak, and who made it.
    pub peak: PeakComposition,
    /// Totals before the model was dropped.
    pub usage: Usage,
    /// The five figures at the end, before the model was dropped.
    pub rings: Rings,
    /// What the driver's figure holds besides segments, at the same time; empty where the backend measures nothing.
    pub overheads: Vec<Overhead>,
    /// Number of trained values.
    pub parameters: u64,
    /// Share of test examples that the trained model classifies right, where there are some.
    pub accuracy: Option<Accuracy>,
    /// Whether it was stopped before the last step.
    pub interrupted: bool,
}

/// What was measured before a run failed.
#[derive(Clone, Debug, Default)]
pub struct Partial {
    /// As in [`RunResult`], without `end`.
    pub rows: Vec<Row>,
    /// As in [`RunResult`].
    pub losses: Vec<f64>,
    /// As in [`RunResult`].
    pub ms_per_step: Vec<f64>,
}

/// A run that failed: why, and what it had measured until then.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// Why.
    #[source]
    pub error: Error,
    /// What is known.
    pub partial: Box<Partial>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, partial: Box::default() }
    }
}

impl From<memcore::Error> for Failed {
    fn from(error: memcore::Error) -> Self {
        Error::Core(error).into()
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// What the steps of a run gave.
pub(crate) struct Steps {
    /// As in [`RunResult`].
    pub(crate) losses: Vec<f64>,
    /// As in [`RunResult`].
    pub(crate) ms_per_step: Vec<f64>,
    /// As in [`RunResult`].
    pub(crate) interrupted: bool,
}

impl Steps {
    /// Takes `count` steps, each of which returns its loss where there are values; ends when `progress` breaks, or with the error of a step, which
    /// is returned beside what the steps before it gave.
    pub(crate) fn take(
        count: usize,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
        mut step: impl FnMut(usize) -> Result<Option<f64>>,
    ) -> (Self, Option<Error>) {
        let mut taken = Self { losses: Vec::new(), ms_per_step: Vec::new(), interrupted: false };
        for number in 0..count {
            let start = Instant::now();
            let loss = match step(number) {
                Ok(loss) => loss,
                Err(error) => return (taken, Some(error)),
            };
            if let Some(loss) = loss {
                taken.losses.push(loss);
                taken.ms_per_step.push(start.elapsed().as_secs_f64() * 1e3);
            }
            let done = number + 1;
            if progress(Progress { done, steps: count, loss }).is_break() {
                taken.interrupted = done < count;
                break;
            }
        }
        (taken, None)
    }
}

/// Trains a model from its first to its last step, calling `progress` after each; a break stops the run and keeps what was measured.
///
/// # Errors
/// As [`Trainer::new`] and [`Trainer::step`], with what was measured before.
pub fn train(
    architecture: &dyn Architecture,
    device: &Device,
    settings: &RunSettings,
    source: Source,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult, Failed> {
    train_from(architecture, device, settings, source, &mut Continuation::default(), progress)
}

/// The same, with a beginning from a file, or with what the next run needs to go on. A run that goes on has a row `resume`, and its steps are
/// numbered on.
///
/// # Errors
/// As [`train`]; a file that does not fit; [`Error::Usage`] for a state that is wanted of a device that computes nothing.
pub fn train_from(
    architecture: &dyn Architecture,
    device: &Device,
    settings: &RunSettings,
    source: Source,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult, Failed> {
    continuation.check(device)?;
    let trainer = Trainer::new(architecture, device, settings, source, "")?;
    run(trainer, device, settings.steps, continuation, progress)
}

/// Trains from where `continuation` begins, `steps` further.
///
/// # Errors
/// As [`train_from`].
pub(crate) fn run<T: Training>(
    mut trainer: T,
    device: &Device,
    steps: usize,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult, Failed> {
    let first = continuation.first_step(&mut trainer.parts())?;
    if continuation.resumes() {
        trainer.row("resume");
    }
    let mut done = 0;
    let (Steps { losses, ms_per_step, interrupted }, failure) = Steps::take(steps, progress, |step| {
        let loss = trainer.step(first + step)?;
        done = step + 1;
        Ok(loss)
    });
    if let Some(error) = failure {
        let rows = trainer.finish(None);
        return Err(Failed { error, partial: Box::new(Partial { rows, losses, ms_per_step }) });
    }
    device.synchronize()?;
    let (usage, rings, overheads) = (device.usage(), device.rings(), device.overheads());
    continuation.end(&trainer.parts(), first + done)?;
    let parameters = trainer.parameter_count();
    let accuracy = if device.computes() && !interrupted { trainer.accuracy()? } else { None };
    let rows = trainer.finish(Some("end"));
    let peak = usage.at_peak();
    Ok(RunResult { rows, losses, ms_per_step, peak, usage, rings, overheads, parameters, accuracy, interrupted })
}
