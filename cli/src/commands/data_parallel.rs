//! `train` and `predict` with `--data-parallel`: a step divided among ranks, with a ledger for the first and the last.

use std::ops::ControlFlow;

use lab::data_parallel::{Accounting, DataParallelResult};
use lab::record::RowsKept;
use lab::results::{DataParallelFigures, TrainResult};
use lab::run::{Divided, DryRunner, Figures, RunSpec};
use lab::training::Progress as Step;
use memcore::Device;

use super::outcome::{described, out_of_memory};
use super::parallel::one_device_only;
use super::plan::dry_runner;
use super::workspaces::Workspaces;
use super::{plan, predict, tries, warnings, weights};
use crate::args::{OutputArgs, PredictArgs, TrainArgs, config_text};
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use crate::ui::Ui;

/// `train --data-parallel`
///
/// # Errors
/// Settings that cannot work or cannot go together; a device that computes; memory that runs out; files that cannot be written.
pub(super) fn train(args: &TrainArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    one_device_only(&args.record, &args.page, SEVERAL)?;
    weights::check(&args.save)?;
    let (found, failure) = run(spec, &args.output, ui)?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    deliver(&found, None, &args.output, ui)
}

/// `predict --data-parallel`: the same, with a verdict.
///
/// # Errors
/// Those of [`train`]; memory that runs out is part of the answer, which is delivered first.
pub(super) fn predict(args: &PredictArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    one_device_only(&args.record, &args.page, SEVERAL)?;
    let (mut found, mut failure) = run(spec, &args.output, ui)?;
    if !interrupt::asked() {
        let workspaces = Workspaces::new(args.workspaces.cudnn, args.dry_run.model.python.as_deref(), ui)?;
        let runner = dry_runner().with_workspaces_of(&workspaces);
        judged(&mut found, &mut failure, &runner, spec, true)?;
    }
    let is_no = predict::is_no(&failure);
    predict::answered(is_no, deliver(&found, failure, &args.output, ui))
}

/// The answer of `predict --data-parallel`, before it is shown.
///
/// # Errors
/// Settings that cannot work or cannot go together.
#[cfg(feature = "ui")]
pub(super) fn answer(runner: &DryRunner<'_>, spec: &RunSpec, changes: bool, ui: &Ui) -> Result<TrainResult> {
    let (mut found, mut failure) = run(spec, &OutputArgs::default(), ui)?;
    judged(&mut found, &mut failure, runner, spec, changes)?;
    Ok(found)
}

/// Adds the verdict. `changes`: with changes that make it fit.
fn judged(
    found: &mut TrainResult,
    failure: &mut Option<Failure>,
    runner: &DryRunner<'_>,
    spec: &RunSpec,
    changes: bool,
) -> Result<()> {
    let needs = with_ranks(runner.figures(spec)?, found);
    let needs_peak = failure.as_ref().map(|_| runner.peak(spec)).transpose()?;
    if changes {
        found.tries = tries::of_predicted(runner, spec, &runner.session(spec)?, &needs)?;
    }
    predict::judge(failure, &needs);
    found.prediction = Some(predict::prediction(spec, runner, &needs, needs_peak)?);
    Ok(())
}

/// What the result of a divided step does not say.
const REASON: &str =
    "each rank has figures of its own, ranks that are not listed hold the same, and the device meta computes nothing";

const SEVERAL: &str = "--data-parallel means several";

/// Runs the ranks. Returns what was found, and the failure of a run that ran out of memory.
fn run(spec: &RunSpec, args: &OutputArgs, ui: &Ui) -> Result<(TrainResult, Option<Failure>)> {
    let mut session = plan::session(&spec.alone(), ui)?;
    session.run.rows = if args.destinations().next().is_some() { RowsKept::Every } else { RowsKept::Ends };
    let mut divided = Divided::from_spec(spec, session)?;
    output::check(args.destinations())?;
    let in_force = RunSpec { parallel: spec.parallel.clone(), ..divided.session.in_force.clone() };
    ui.note(format!("settings:\n{}", config_text(&in_force.said()).trim_end()));
    let devices = divided.open(false)?;
    // Each rank makes its share of a batch.
    divided.session.run.batch = divided.settings.share();
    let limited = |error| failed(error, &divided, &devices);
    divided.session.check_size(&devices[0], &interrupt::asked).map_err(limited)?;
    let trained = trained(&divided, &devices, ui).map_err(limited);
    let (result, failure) = match trained {
        Ok(result) => (Some(result), None),
        Err(failure) if failure.is_out_of_memory() => (None, Some(failure)),
        Err(failure) => return Err(failure),
    };
    let deviations = warnings::of_all(&devices);
    warnings::tell(deviations, ui);
    divided.session.notes.iter().chain(&divided.notes).for_each(|note| ui.tell_after(note.clone()));
    let ranks = result.as_ref().map_or(&[][..], |result| &result.ranks[..]);
    let parameters = ranks.first().map(|rank| rank.parameters);
    let settings = &divided.settings;
    let number = settings.ranks as u64;
    let mut formula = Accounting::from_settings(settings).model_states(parameters.unwrap_or(0), number, settings.stage);
    // What is not trained has no gradients and no states.
    let frozen_bytes = ranks.first().map_or(0, |rank| rank.frozen_bytes);
    formula.parameter_bytes += frozen_bytes.div_ceil(if settings.stage.divides_parameters() { number } else { 1 });
    let session = &divided.session;
    let said: Vec<String> = session.warnings().into_iter().chain(divided.notes.iter().cloned()).collect();
    let found = TrainResult {
        data_parallel: result.as_ref().map(|_| DataParallelFigures::from_settings(settings, formula)),
        ranks: ranks.iter().map(Into::into).collect(),
        parameters,
        interrupted: result.as_ref().is_some_and(|result| result.interrupted),
        out_of_memory: failure.as_ref().map(out_of_memory),
        reason: Some(REASON.into()),
        warnings: warnings::all(&said, deviations),
        ..TrainResult { settings: in_force.fields(), ..described(session, session.target.describe(&devices[0])) }
    };
    Ok((found, failure))
}

fn trained(divided: &Divided, devices: &[Device], ui: &Ui) -> lab::Result<DataParallelResult> {
    let progress = Progress::new(ui, divided.settings.run.steps as u64);
    divided.train(devices, &mut |step: Step| -> ControlFlow<()> {
        progress.set(step.done as u64, String::new());
        interrupt::flow()
    })
}

/// The figures, of which those of the ranks that were run are a part.
fn with_ranks(mut needs: Figures, found: &TrainResult) -> Figures {
    for peak in found.ranks.iter().map(|rank| &rank.account.peak) {
        needs.with_at_least(peak.bytes, peak.reserved_bytes);
    }
    needs
}

fn deliver(found: &TrainResult, failure: Option<Failure>, args: &OutputArgs, ui: &Ui) -> Result<Code> {
    output::deliver_findings(ui, args, None, found)?;
    match failure {
        Some(failure) => Err(failure),
        None if interrupt::asked() => Ok(Code::Interrupted),
        None => Ok(Code::Done),
    }
}

/// Adds to an out-of-memory error the rank on which it happened.
fn failed(error: lab::Error, divided: &Divided, devices: &[Device]) -> Failure {
    let failure = Failure::from(error).limited(divided.session.target.limited());
    let shown = divided.settings.shown();
    let full = devices.iter().zip(shown).find(|(device, _)| device.usage().n_oom() > 0);
    match full {
        Some((_, rank)) if failure.is_out_of_memory() => {
            Failure { code: failure.code, error: failure.error.context(format!("on rank {rank}")) }
        }
        _ => failure,
    }
}
