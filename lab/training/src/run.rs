//! The training loop and its result.

use std::ops::ControlFlow;
use std::time::Instant;

use lab_base::error::{Error, Result};
use lab_models::Architecture;
use memcore::Device;
use memcore::backend::Overhead;
use memcore::memory::{PeakComposition, Rings, Usage};

use super::checkpoint::Continuation;
use super::evaluate::Accuracy;
use super::settings::RunSettings;
use super::source::Source;
use super::train_step::TrainStep;
use super::trainer::Trainer;
use crate::record::{Row, RowsKept};

/// State after each step, for showing progress and for stopping.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps done.
    pub done: usize,
    /// Steps in all.
    pub steps: usize,
    /// The last loss; `None` on a device that computes nothing.
    pub loss: Option<f64>,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// One row per phase, from `model` to `end` (everything dropped); for a long run only those that [`RunSettings::rows`] keeps.
    pub rows: Vec<Row>,
    /// Number of rows that are not kept.
    pub rows_left_out: usize,
    /// One loss per optimizer step (the mean of its micro-batches); empty on a device that computes nothing. Under [`RowsKept::Ends`], at most
    /// [`MAX_VALUES`] and one: the first, the last and others at equal distances.
    pub losses: Vec<f64>,
    /// Milliseconds of each step, including the read of the loss, kept like `losses`; empty on a device that computes nothing.
    pub ms_per_step: Vec<f64>,
    /// Memory allocated at the peak, and its origins.
    pub peak: PeakComposition,
    /// Totals before the model was dropped.
    pub usage: Usage,
    /// The five figures at the end, before the model was dropped.
    pub rings: Rings,
    /// What the driver's figure holds besides segments, also before the model was dropped; empty if the backend measures nothing.
    pub overheads: Vec<Overhead>,
    /// Number of trained values.
    pub parameters: u64,
    /// Share of test examples that the trained model classifies correctly; `None` without test examples.
    pub accuracy: Option<Accuracy>,
    /// True if it was stopped before the last step.
    pub interrupted: bool,
}

/// Measurements before a run failed.
#[derive(Clone, Debug, Default)]
pub struct Partial {
    /// Rows as in [`RunResult`], without `end`.
    pub rows: Vec<Row>,
    /// As in [`RunResult`].
    pub rows_left_out: usize,
    /// As in [`RunResult`].
    pub losses: Vec<f64>,
    /// As in [`RunResult`].
    pub ms_per_step: Vec<f64>,
}

/// A run that failed: the error, and the measurements until then.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// Why it failed.
    #[source]
    pub error: Error,
    /// Measurements until then.
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

/// The most losses and times that are kept if not every step's are.
pub const MAX_VALUES: usize = 1 << 14;

/// A value per step: all of them, or a limited number at equal distances.
struct Series {
    most: usize,
    values: Vec<f64>,
    /// Distance between kept values, in steps.
    stride: usize,
    seen: usize,
    last: f64,
}

impl Series {
    fn new(kept: RowsKept) -> Self {
        let most = if kept == RowsKept::Every { usize::MAX } else { MAX_VALUES };
        Self { most, values: Vec::new(), stride: 1, seen: 0, last: 0.0 }
    }

    fn push(&mut self, value: f64) {
        if self.values.len() == self.most {
            let mut stays = [true, false].into_iter().cycle();
            self.values.retain(|_| stays.next() == Some(true));
            self.stride *= 2;
        }
        if self.seen.is_multiple_of(self.stride) {
            self.values.push(value);
        }
        self.seen += 1;
        self.last = value;
    }

    /// Returns the kept values and the last one.
    fn finish(mut self) -> Vec<f64> {
        if self.seen > 0 && !(self.seen - 1).is_multiple_of(self.stride) {
            self.values.push(self.last);
        }
        self.values
    }
}

/// Results of a run's steps.
pub struct Steps {
    /// As in [`RunResult`].
    pub(crate) losses: Vec<f64>,
    /// As in [`RunResult`].
    pub(crate) ms_per_step: Vec<f64>,
    /// As in [`RunResult`].
    pub(crate) interrupted: bool,
}

impl Steps {
    /// Runs the steps of the settings; each step returns its loss if the device has values. Ends when `progress` breaks, or with the error of a step,
    /// which is returned with the results of the steps before it.
    pub(crate) fn take(
        settings: &RunSettings,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
        mut step: impl FnMut(usize) -> Result<Option<f64>>,
    ) -> (Self, Option<Error>) {
        let (mut losses, mut ms_per_step) = (Series::new(settings.rows), Series::new(settings.rows));
        let (mut interrupted, mut failure) = (false, None);
        for number in 0..settings.steps {
            let start = Instant::now();
            let loss = match step(number) {
                Ok(loss) => loss,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            };
            if let Some(loss) = loss {
                losses.push(loss);
                ms_per_step.push(start.elapsed().as_secs_f64() * 1e3);
            }
            let done = number + 1;
            if progress(Progress { done, steps: settings.steps, loss }).is_break() {
                interrupted = done < settings.steps;
                break;
            }
        }
        (Self { losses: losses.finish(), ms_per_step: ms_per_step.finish(), interrupted }, failure)
    }
}

/// Trains a model from its first to its last step, calling `progress` after each. A break stops the run and keeps what was measured.
///
/// # Errors
/// Those of [`Trainer::build`] and [`Trainer::step`], with what was measured before.
pub fn train(
    architecture: &dyn Architecture,
    device: &Device,
    settings: &RunSettings,
    source: Source,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult, Failed> {
    train_from(architecture, device, settings, source, &mut Continuation::default(), progress)
}

/// Trains as [`train`] does, and can begin from a file, or save the state for the next run. A resumed run has a row `resume`, and continues the
/// numbers of the steps.
///
/// # Errors
/// Those of [`train`]; a file that does not fit; [`Error::Usage`] if the state is wanted from a device that computes nothing.
pub fn train_from(
    architecture: &dyn Architecture,
    device: &Device,
    settings: &RunSettings,
    source: Source,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult, Failed> {
    continuation.check(device)?;
    let trainer = Trainer::build(architecture, device, settings, source, "")?;
    run(trainer, device, continuation, progress)
}

/// Results of a run whose steps did not fail.
pub struct Taken {
    /// Losses and times.
    pub(crate) steps: Steps,
    /// Accuracy on the test data; `None` without test data.
    pub(crate) accuracy: Option<Accuracy>,
}

/// Runs the steps of the settings from where `continuation` begins, and saves in it what the next run needs. Calls `ended` after the last step.
///
/// # Errors
/// Those of [`train_from`], with the losses and times before, and without rows.
pub fn take_steps<S: TrainStep>(
    trainer: &mut Trainer<S>,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ended: impl FnOnce() -> Result<()>,
) -> Result<Taken, Failed> {
    let settings = trainer.phases.settings().clone();
    if settings.ema.is_some() && (continuation.save || continuation.resumes()) {
        let problem = "a file of a run has no average of the weights: neither --save nor --resume goes with it";
        return Err(Error::usage("ema", problem).into());
    }
    let first = continuation.first_step(&mut trainer.phases.parts(), &settings)?;
    if continuation.resumes() {
        trainer.row("resume");
    }
    let mut done = 0;
    let (steps, failure) = Steps::take(&settings, progress, |step| {
        let loss = trainer.step(first + step)?;
        done = step + 1;
        Ok(loss)
    });
    if let Some(error) = failure {
        let Steps { losses, ms_per_step, .. } = steps;
        return Err(Failed { error, partial: Box::new(Partial { losses, ms_per_step, ..Partial::default() }) });
    }
    ended()?;
    continuation.end(&trainer.phases.parts(), first + done)?;
    let computes = trainer.rows.devices().all(Device::computes);
    let accuracy = if computes && !steps.interrupted { trainer.phases.accuracy()? } else { None };
    Ok(Taken { steps, accuracy })
}

/// Trains on one device.
pub fn run<S: TrainStep>(
    mut trainer: Trainer<S>,
    device: &Device,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RunResult, Failed> {
    let mut totals = None;
    let ended = || {
        device.synchronize()?;
        totals = Some((device.usage(), device.rings(), device.overheads()));
        Ok(())
    };
    let taken = take_steps(&mut trainer, continuation, progress, ended);
    let Taken { steps: Steps { losses, ms_per_step, interrupted }, accuracy } = match taken {
        Ok(taken) => taken,
        Err(mut failed) => {
            (failed.partial.rows, failed.partial.rows_left_out) = finish(trainer, None);
            return Err(failed);
        }
    };
    let (usage, rings, overheads) = totals.unwrap_or_else(|| (device.usage(), device.rings(), device.overheads()));
    let parameters = trainer.parameter_count();
    let (rows, rows_left_out) = finish(trainer, Some("end"));
    let peak = usage.at_peak();
    Ok(RunResult {
        rows,
        rows_left_out,
        losses,
        ms_per_step,
        peak,
        usage,
        rings,
        overheads,
        parameters,
        accuracy,
        interrupted,
    })
}

/// Frees everything. Returns the rows that are kept, and how many are not.
fn finish<S: TrainStep>(trainer: Trainer<S>, label: Option<&str>) -> (Vec<Row>, usize) {
    let taken = trainer.rows.taken() + usize::from(label.is_some());
    let rows = trainer.finish(label);
    let left_out = taken - rows.len();
    (rows, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_keeps_its_ends_and_equal_distances() {
        let series = |kept, count: usize| {
            let mut series = Series::new(kept);
            (0..count).for_each(|value| series.push(value as f64));
            series.finish()
        };
        assert_eq!(series(RowsKept::Every, 3 * MAX_VALUES).len(), 3 * MAX_VALUES);
        assert_eq!(series(RowsKept::Ends, 0), Vec::<f64>::new());
        let exact = series(RowsKept::Ends, MAX_VALUES);
        assert_eq!((exact.len(), exact[1], exact[MAX_VALUES - 1]), (MAX_VALUES, 1.0, (MAX_VALUES - 1) as f64));
        for count in [MAX_VALUES + 1, 5 * MAX_VALUES + 3, 100 * MAX_VALUES] {
            let values = series(RowsKept::Ends, count);
            assert!(values.len() > MAX_VALUES / 2 && values.len() <= MAX_VALUES + 1, "{count}: {}", values.len());
            assert_eq!((values[0], values[values.len() - 1]), (0.0, (count - 1) as f64));
            assert!(values[..values.len() - 1].windows(2).all(|pair| pair[1] - pair[0] == values[1]), "{count}");
        }
    }
}
