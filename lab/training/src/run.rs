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
    /// One row per phase, `model` first and `end` (everything dropped) last; of a long run only what [`RunSettings::rows`] says.
    pub rows: Vec<Row>,
    /// How many rows are not kept.
    pub rows_left_out: usize,
    /// One loss per optimizer step (the mean of its micro-batches); empty on a device that computes nothing. Under [`RowsKept::Ends`], at most
    /// [`MAX_VALUES`] and one: the first, the last and others at equal distances.
    pub losses: Vec<f64>,
    /// Milliseconds of each step, read of the loss included, kept as `losses` are; empty on a device that computes nothing.
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
    pub rows_left_out: usize,
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

/// Losses and times kept of a run of which not every step is.
pub const MAX_VALUES: usize = 1 << 14;

/// A value per step: all, or so many at equal distances.
struct Series {
    most: usize,
    values: Vec<f64>,
    /// Steps from one kept value to the next.
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

    /// The last value is there too.
    fn finish(mut self) -> Vec<f64> {
        if self.seen > 0 && !(self.seen - 1).is_multiple_of(self.stride) {
            self.values.push(self.last);
        }
        self.values
    }
}

/// What the steps of a run gave.
pub struct Steps {
    /// As in [`RunResult`].
    pub(crate) losses: Vec<f64>,
    /// As in [`RunResult`].
    pub(crate) ms_per_step: Vec<f64>,
    /// As in [`RunResult`].
    pub(crate) interrupted: bool,
}

impl Steps {
    /// Takes the steps of the settings, each of which returns its loss where there are values; ends when `progress` breaks, or with the error of a step, which
    /// is returned beside what the steps before it gave.
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

/// Trains a model from its first to its last step, calling `progress` after each; a break stops the run and keeps what was measured.
///
/// # Errors
/// As [`Trainer::of`] and [`Trainer::step`], with what was measured before.
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
    let trainer = Trainer::of(architecture, device, settings, source, "")?;
    run(trainer, device, continuation, progress)
}

/// What the steps of a run gave that did not fail.
pub struct Taken {
    /// Losses and times.
    pub(crate) steps: Steps,
    /// How much of the test data it gets right, where there are some.
    pub(crate) accuracy: Option<Accuracy>,
}

/// Takes the steps of the settings, from where `continuation` begins, and leaves there what the next run needs. `ended` is called when the last step is done.
///
/// # Errors
/// As [`train_from`], with the losses and times before, and without rows.
pub fn take_steps<S: TrainStep>(
    trainer: &mut Trainer<S>,
    continuation: &mut Continuation<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ended: impl FnOnce() -> Result<()>,
) -> Result<Taken, Failed> {
    let settings = trainer.phases.settings().clone();
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

/// The rows that are kept, and how many are not.
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
