//! `train` and `predict` with `--data-parallel`: a step divided among ranks, and a ledger of the first and the last.

use std::ops::ControlFlow;

use lab::data_parallel::{self, Accounting, DataParallelResult, DataParallelSettings, ModelStates, RankFigures, Stage};
use lab::record::RowsKept;
use lab::run::{Network, ParallelSpec, RunSpec, Session};
use lab::section::Table;
use lab::training::{Failed, Progress as Step, Schedule};
use memcore::{DType, Device};
use serde_json::{Value, json};

use super::outcome::{blank, with_account};
use super::parallel::{keeps_no_output, one_device_only};
use super::{plan, warnings, weights};
use crate::args::{OutputArgs, PredictArgs, TrainArgs, config_text};
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output::{self, Results};
use crate::progress::Progress;
use crate::render::data_parallel as render;
use crate::render::data_parallel::Report;
use crate::ui::Ui;

impl Report {
    /// What the model would take on each rank by the ZeRO paper's formula.
    pub(crate) fn formula(&self) -> ModelStates {
        let parameters = self.result.ranks.first().map_or(0, |rank| rank.parameters);
        Accounting::of(&self.settings).model_states(parameters, self.settings.ranks as u64, self.settings.stage)
    }
}

/// `train --data-parallel`
///
/// # Errors
/// Settings that cannot work or cannot go together; a device that computes; memory that runs out; files that cannot be written.
pub(super) fn train(args: &TrainArgs, ui: &Ui) -> Result<Code> {
    one_device_only(&args.record, &args.page, SEVERAL)?;
    weights::check(&args.weights)?;
    run(args.spec(), &args.output, ui)
}

/// `predict --data-parallel`
///
/// # Errors
/// As [`train`].
pub(super) fn predict(args: &PredictArgs, ui: &Ui) -> Result<Code> {
    one_device_only(&args.record, &args.page, SEVERAL)?;
    run(args.spec(), &args.output, ui)
}

const SEVERAL: &str = "--data-parallel means several";

/// Refuses what belongs to a network that is split over devices.
fn whole_network(parallel: &ParallelSpec) -> Result<()> {
    let asked = [("--micro-batches", parallel.micro_batches.is_some()), ("--cut", parallel.cut.is_some())];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((flag, _)) => Err(Failure::usage(format!(
            "{flag}: it belongs to --devices; with --data-parallel each rank has the whole network (--accumulate cuts its batch)"
        ))),
        None => Ok(()),
    }
}

fn run(spec: RunSpec, args: &OutputArgs, ui: &Ui) -> Result<Code> {
    let parallel = &spec.parallel;
    keeps_no_output(&spec.model, "--data-parallel")?;
    whole_network(parallel)?;
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
    let device = session.target.describe(&devices[0]);
    let (model, description) = (session.name().to_string(), session.description());
    let report = Report { device, model, description, settings, result };
    let tables: [Table; 4] =
        [render::ranks(&report), render::states(&report), render::sent(&report), render::categories(&report)];
    let mut json = report.json();
    json["settings"] = Value::Object(in_force.fields());
    json["premises"] = json!(session.premises);
    let departures = warnings::of_all(&devices);
    warnings::tell(departures, ui);
    json["warnings"] = json!(warnings::all(session.network.warnings(), departures));
    let text = render::text(&report, &session.premises, ui.style);
    output::deliver(ui, args, &Results { json: &json, tables: &tables, text: &text })?;
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
    let result = data_parallel::train(session.network.architecture(), devices, settings, &session.source, on_step);
    result.map_err(|Failed { error, .. }| error)
}

/// Says on which rank memory ran out.
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

impl Report {
    /// As `vramlab-train-1`: what is one rank's is under `ranks`.
    fn json(&self) -> Value {
        let (settings, result) = (&self.settings, &self.result);
        let mut json = blank();
        json["description"] = json!(self.description);
        json["device"] = json!(self.device);
        json["data_parallel"] = json!({
            "ranks": settings.ranks,
            "stage": settings.stage,
            "examples_per_rank": settings.share(),
            "master_weights": settings.master_weights,
            "gradient_as_bucket_view": settings.gradient_as_bucket_view,
            "formula": states(&self.formula()),
        });
        json["ranks"] = result.ranks.iter().map(rank_json).collect();
        json["parameters"] = json!(result.ranks.first().map(|rank| rank.parameters));
        json["interrupted"] = result.interrupted.into();
        json["reason"] = "the step is divided: each of `ranks` has its own account, and those that are not listed hold the same; meta accounts \
                          for memory and computes nothing: there are no values and no times"
            .into();
        json
    }
}

fn rank_json(rank: &RankFigures) -> Value {
    let sent = &rank.sent;
    let known = json!({
        "rank": rank.rank,
        "parameters_owned": rank.owned,
        "padding": rank.padding,
        "units": rank.units,
        "model_states": states(&rank.states),
        "gathered_bytes": rank.gathered_bytes,
        "bucket_bytes": rank.bucket_bytes,
        "sent_bytes_per_step": {
            "all_reduce": sent.all_reduce,
            "reduce_scatter": sent.reduce_scatter,
            "all_gather": sent.all_gather,
            "total": sent.total(),
        },
    });
    with_account(known, &rank.account, &rank.rows)
}

fn states(states: &ModelStates) -> Value {
    json!({
        "parameter_bytes": states.parameter_bytes,
        "gradient_bytes": states.gradient_bytes,
        "optimizer_bytes": states.optimizer_bytes,
        "total_bytes": states.total(),
    })
}
