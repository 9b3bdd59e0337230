//! `train` and `predict` with `--data-parallel`: a step divided among ranks, with a ledger for the first and the last.

use std::ops::ControlFlow;

use lab::data_parallel::{Accounting, DataParallelResult, DataParallelSettings, Stage};
use lab::record::RowsKept;
use lab::results::{DataParallelFigures, TrainResult};
use lab::run::{Network, RunSpec, Session};
use lab::training::{Failed, Progress as Step, Schedule};
use memcore::{DType, Device};

use super::outcome::described;
use super::parallel::{keeps_no_output, one_device_only};
use super::{plan, warnings, weights};
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
    weights::check(&args.weights)?;
    run(spec.clone(), &args.output, ui)
}

/// `predict --data-parallel`
pub(super) fn predict(args: &PredictArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    one_device_only(&args.record, &args.page, SEVERAL)?;
    run(spec.clone(), &args.output, ui)
}

/// What the result of a divided step does not say.
const REASON: &str = "the step is divided: each of `ranks` has its own account, and those that are not listed hold the same; meta only counts memory \
                      and computes nothing";

const SEVERAL: &str = "--data-parallel means several";

fn run(spec: RunSpec, args: &OutputArgs, ui: &Ui) -> Result<Code> {
    let parallel = &spec.parallel;
    keeps_no_output(&spec.model, "--data-parallel")?;
    spec.check()?;
    let mut session = plan::session(&spec.alone(), ui)?;
    session.run.rows = if args.destinations().next().is_some() { RowsKept::Every } else { RowsKept::Ends };
    if let Network::Pretrained(..) = session.network {
        if session.run.schedule != Schedule::default() {
            return Err(Failure::usage("--schedule: networks of transformers are trained in the usual order"));
        }
        session.run.schedule = Schedule::keeping_the_loss();
    }
    let settings = DataParallelSettings {
        ranks: parallel.data_parallel.unwrap_or(1),
        stage: parallel.zero.and_then(|stage| Stage::ALL.get(usize::from(stage)).copied()).unwrap_or_default(),
        master_weights: parallel.zero.is_some() && session.run.precision.dtype() != DType::F32,
        gradient_as_bucket_view: parallel.gradient_as_bucket_view.unwrap_or(false),
        sync_each: parallel.sync_each.unwrap_or(false),
        run: session.run.clone(),
    };
    settings.check()?;
    output::check(args.destinations())?;
    let in_force = RunSpec { parallel: parallel.clone(), ..session.in_force.clone() };
    ui.note(format!("settings:\n{}", config_text(&in_force.said()).trim_end()));
    let shown = settings.shown();
    let devices: Vec<Device> = shown.iter().map(|_| session.target.open()).collect::<Result<_, _>>()?;
    session.run.batch = settings.share();
    let failed = |error| failed(error, &session, &devices, &shown);
    session.check_size(&devices[0], &interrupt::asked).map_err(failed)?;
    let result = trained(&session, &devices, &settings, ui).map_err(failed)?;
    let deviations = warnings::of_all(&devices);
    warnings::tell(deviations, ui);
    let device = session.target.describe(&devices[0]);
    let parameters = result.ranks.first().map_or(0, |rank| rank.parameters);
    let formula = Accounting::of(&settings).model_states(parameters, settings.ranks as u64, settings.stage);
    let found = TrainResult {
        data_parallel: Some(DataParallelFigures::of(&settings, formula)),
        ranks: result.ranks.iter().map(Into::into).collect(),
        parameters: result.ranks.first().map(|rank| rank.parameters),
        interrupted: result.interrupted,
        reason: Some(REASON.into()),
        warnings: warnings::all(session.network.warnings(), deviations),
        ..TrainResult { settings: in_force.fields(), ..described(&session, device) }
    };
    output::deliver_findings(ui, args, None, &found)?;
    Ok(if interrupt::asked() { Code::Interrupted } else { Code::Done })
}

fn trained(
    session: &Session,
    devices: &[Device],
    settings: &DataParallelSettings,
    ui: &Ui,
) -> lab::Result<DataParallelResult> {
    let progress = Progress::new(ui, settings.run.steps as u64);
    let on_step = &mut |step: Step| -> ControlFlow<()> {
        progress.set(step.done as u64, String::new());
        interrupt::flow()
    };
    let result = session.network.train_ranks(devices, settings, &session.source, on_step);
    result.map_err(|Failed { error, .. }| error)
}

/// Adds to an out-of-memory error the rank on which it happened.
fn failed(error: lab::Error, session: &Session, devices: &[Device], shown: &[usize]) -> Failure {
    let failure = Failure::from(error).limited(session.target.limited());
    let full = devices.iter().zip(shown).find(|(device, _)| device.usage().n_oom() > 0);
    match full {
        Some((_, rank)) if failure.is_out_of_memory() => {
            Failure { code: failure.code, error: failure.error.context(format!("on rank {rank}")) }
        }
        _ => failure,
    }
}
