//! `vramlab plan`: the fastest way to train on a card with so many examples a step.

use lab::cards::Card;
use lab::results::{PlannedResult, TrainingPlan, plan_settings};
use lab::run::{Gpu, Planned, Planner, RunSpec};
use lab::speeds::{self, DataSheet};
use lab::step_time::Speed;

use super::plan::on_paper;
use super::workspaces::Workspaces;
use super::{cards, warnings};
use crate::args::{PlanArgs, config_text};
use crate::exit::{Code, Failure, Result};
use crate::output;
use crate::ui::Ui;

/// Searches, and reports.
///
/// # Errors
/// No memory to plan for; settings that cannot work.
pub(super) fn run(args: &PlanArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations().chain(&args.page.html))?;
    check(args, spec)?;
    let workspaces = Workspaces::new(args.workspaces.cudnn, args.paper.model.python.as_deref(), ui)?;
    let paper = on_paper().with_workspaces_of(&workspaces);
    let session = paper.session(spec)?;
    let budget_bytes = session.target.budget_bytes()?.ok_or_else(|| {
        Failure::usage("plan: for what? Name a card or a size with --gpu, or a size with --memory-limit")
    })?;
    let allowed: Vec<String> = args.allow.iter().map(|change| change.word().into()).collect();
    let in_force = RunSpec { parallel: spec.parallel.clone(), ..session.in_force.clone() }.fields();
    let settings = plan_settings(in_force, session.run.batch, &allowed);
    ui.note(format!("settings:\n{}", config_text(&settings).trim_end()));
    let (card, sheet) = speeds_for(spec.device.gpu)?;
    let speed = Speed::from_data_sheet(&sheet, card.sm);
    let plan = Planner { paper, spec, session: &session, speed, allowed: args.allowed() }.plan()?;
    let deviations = plan.best.as_ref().map(|best| best.deviations).unwrap_or_default();
    warnings::tell_first(session.network.warnings(), true, ui);
    warnings::tell(deviations, ui);
    let found = TrainingPlan {
        settings,
        model: format!("{}: {}", session.name(), session.description()),
        warnings: warnings::all(session.network.warnings(), deviations),
        card: cards::of_gpu(spec.device.gpu),
        speeds_of: card.title.into(),
        budget_bytes,
        global_batch: session.run.batch,
        cards: spec.parallel.data_parallel.unwrap_or(1),
        faster: plan.faster().map(planned),
        best: plan.best.as_ref().map(planned),
        front: plan.front.iter().map(planned).collect(),
        unlimited_seconds: plan.unlimited_seconds,
        tried: plan.tried,
        left_out: plan.left_out,
        allowed,
        notes: spec.notes().into_iter().map(String::from).collect(),
        premises: session.premises.into_iter().filter(|premise| premise.name != "batch").collect(),
    };
    output::deliver_findings(ui, &args.output, args.page.html.as_ref(), &found)?;
    Ok(if found.best.is_some() { Code::Done } else { Code::Check })
}

/// Refuses settings that leave nothing to plan.
fn check(args: &PlanArgs, spec: &RunSpec) -> Result<()> {
    if args.global_batch.is_some() && args.paper.training.batch.is_some() {
        return Err(Failure::usage(
            "--global-batch and --batch: give one; a plan chooses the size of a micro-batch itself",
        ));
    }
    if spec.training.accumulate.is_some() {
        return Err(Failure::usage(
            "--accumulate: a plan chooses it; give the examples of a whole step with --global-batch",
        ));
    }
    Ok(())
}

/// The card whose speeds count, and these: the named one, else one that stands in.
fn speeds_for(gpu: Option<Gpu>) -> Result<(&'static Card, DataSheet)> {
    let card = gpu.and_then(Gpu::card).or_else(|| Card::named(speeds::STAND_IN));
    let found = card.and_then(|card| Some((card, speeds::of_card(card)?)));
    found.ok_or_else(|| {
        Failure::usage("plan: the speed of this card is not known; name an amount of memory with --gpu 24GiB")
    })
}

fn planned(plan: &Planned) -> PlannedResult {
    let Planned { micro_batch, accumulate, seconds, fits, .. } = *plan;
    PlannedResult { micro_batch, accumulate, seconds, fits, changes: plan.changes.clone() }
}
