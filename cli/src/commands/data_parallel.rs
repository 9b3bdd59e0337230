//! `train` and `predict` with `--data-parallel`: a step divided among ranks, and a ledger of the first and the last.

use std::ops::ControlFlow;

use lab::data_parallel::{self, Accounting, DataParallelResult, DataParallelSettings, ModelStates, RankFigures};
use lab::section::Table;
use lab::training::{Failed, Progress as Step, Schedule};
use memcore::{DType, Device};
use serde_json::{Map, Value, json};

use super::outcome::{blank, with_account};
use super::parallel::{keeps_no_output, one_device_only};
use super::plan::Plan;
use super::subject::Subject;
use super::warnings;
use crate::args::{OutputArgs, ParallelArgs, PredictArgs, TrainArgs, config_text};
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
    keeps_no_output(&args.model, "--data-parallel")?;
    run(Plan::train(args, ui)?.rows_for(&args.output), &args.parallel, &args.output, ui)
}

/// `predict --data-parallel`
///
/// # Errors
/// As [`train`].
pub(super) fn predict(args: &PredictArgs, ui: &Ui) -> Result<Code> {
    one_device_only(&args.record, &args.page, SEVERAL)?;
    keeps_no_output(&args.paper.model, "--data-parallel")?;
    run(Plan::predict(&args.paper, &args.record)?.rows_for(&args.output), &args.parallel, &args.output, ui)
}

const SEVERAL: &str = "--data-parallel means several";

/// Refuses what belongs to a network that is split over devices.
fn whole_network(parallel: &ParallelArgs) -> Result<()> {
    let asked = [("--micro-batches", parallel.micro_batches.is_some()), ("--cut", parallel.cut.is_some())];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((flag, _)) => Err(Failure::usage(format!(
            "{flag}: it belongs to --devices; with --data-parallel each rank has the whole network (--accumulate cuts its batch)"
        ))),
        None => Ok(()),
    }
}

fn run(mut plan: Plan, parallel: &ParallelArgs, args: &OutputArgs, ui: &Ui) -> Result<Code> {
    whole_network(parallel)?;
    if let Subject::Pretrained(..) = plan.subject {
        if plan.run.schedule != Schedule::default() {
            return Err(Failure::usage("--schedule: networks of transformers are trained in the usual order"));
        }
        plan.run.schedule = Schedule::keeping_the_loss();
    }
    let settings = DataParallelSettings {
        ranks: parallel.data_parallel.unwrap_or(1),
        stage: parallel.stage(),
        master_weights: parallel.zero.is_some() && plan.run.precision.dtype() != DType::F32,
        gradient_as_bucket_view: parallel.gradient_as_bucket_view,
        run: plan.run.clone(),
    };
    settings.check()?;
    output::check(args.destinations())?;
    let in_force = in_force(&plan, parallel);
    ui.note(format!("settings:\n{}", config_text(&in_force).trim_end()));
    let shown = settings.shown();
    let devices: Vec<Device> = shown.iter().map(|_| plan.opening.open()).collect::<Result<_, _>>()?;
    plan.run.batch = settings.share();
    plan.check_size(&devices[0])?;
    let result = trained(&plan, &devices, &settings, ui).map_err(|error| failed(error, &plan, &devices, &shown))?;
    let device = plan.opening.describe(&devices[0]);
    let (model, description) = (plan.subject.name().to_string(), plan.subject.description());
    let report = Report { device, model, description, settings, result };
    let tables: [Table; 4] =
        [render::ranks(&report), render::states(&report), render::sent(&report), render::categories(&report)];
    let mut json = report.json();
    json["settings"] = Value::Object(in_force);
    json["premises"] = json!(plan.premises);
    let departures = warnings::of_all(&devices);
    warnings::tell(departures, ui);
    json["warnings"] = json!(warnings::all(plan.subject.warnings(), departures));
    let text = render::text(&report, &plan.premises, ui.style);
    output::deliver(ui, args, &Results { json: &json, tables: &tables, text: &text })?;
    Ok(if interrupt::asked() { Code::Interrupted } else { Code::Done })
}

fn trained(
    plan: &Plan,
    devices: &[Device],
    settings: &DataParallelSettings,
    ui: &Ui,
) -> lab::Result<DataParallelResult> {
    let progress = Progress::new(ui, settings.run.steps as u64);
    let on_step = &mut |step: Step| -> ControlFlow<()> {
        progress.set(step.done as u64, String::new());
        interrupt::flow()
    };
    let result = data_parallel::train(plan.subject.architecture(), devices, settings, &plan.source, on_step);
    result.map_err(|Failed { error, .. }| error)
}

/// As flags that repeat the run.
fn in_force(plan: &Plan, parallel: &ParallelArgs) -> Map<String, Value> {
    let mut in_force = plan.settings.clone();
    in_force.insert("data-parallel".into(), json!(parallel.data_parallel));
    in_force.insert("zero".into(), json!(parallel.zero));
    in_force.insert("gradient-as-bucket-view".into(), parallel.gradient_as_bucket_view.into());
    in_force
}

/// Says on which rank memory ran out.
fn failed(error: lab::Error, plan: &Plan, devices: &[Device], shown: &[usize]) -> Failure {
    let failure = Failure::from(error).limited(plan.opening.limited());
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
