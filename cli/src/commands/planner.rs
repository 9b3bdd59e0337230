//! `vramlab plan`: the fastest way to train on a card, or on each of several, with so many examples a step.

use std::collections::BTreeMap;
use std::path::Path;

use lab::cards::{self as known_cards, Card};
use lab::results::{CardPlan, CardPlans, Findings, PlannedResult, TrainingPlan, plan_settings};
use lab::run::{Gpu, Plan, Planned, Planner, RunSpec, Session};
use lab::step_time::Speed;

use super::hand_over::Files;
use super::plan::dry_runner;
use super::workspaces::Workspaces;
use super::{cards, hand_over, predict, speeds, warnings};
use crate::args::{PlanArgs, config_text, toml_table};
use crate::exit::{Code, Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::ui::Ui;

/// Searches, and reports.
///
/// # Errors
/// No memory to plan for; settings that cannot work.
pub(super) fn run(args: &PlanArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations().chain(&args.page.html))?;
    check(args)?;
    let spec = &of_a_whole_step(spec);
    if let Some(folder) = &args.hand_over {
        hand_over::check(folder)?;
    }
    match &args.gpus {
        Some(names) => on_each(names, args, spec, ui),
        None => on_one(args, spec, ui),
    }
}

/// Refuses settings that leave nothing to plan.
fn check(args: &PlanArgs) -> Result<()> {
    let typed = &args.dry_run.training.spec;
    if args.global_batch.is_some() && typed.batch.is_some() {
        return Err(Failure::usage(
            "--global-batch and --batch: give one; a plan chooses the size of a micro-batch itself",
        ));
    }
    match typed.accumulate {
        Some(_) => Err(Failure::usage(
            "--accumulate: a plan chooses it; give the examples of a whole step with --global-batch",
        )),
        None => Ok(()),
    }
}

/// The run with the parts of a step joined, as a recipe may have them: a plan takes a step apart itself.
fn of_a_whole_step(spec: &RunSpec) -> RunSpec {
    let mut spec = spec.clone();
    if let Some(parts) = spec.training.accumulate.take() {
        spec.training.batch = spec.training.batch.map(|batch| batch.saturating_mul(parts));
    }
    spec
}

/// The plan for one card.
fn on_one(args: &PlanArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    let Searched { session, plan, budget_bytes, card, files } = search(args, spec, true, ui)?;
    let hand_over = files.map(|files| files.write(ui)).transpose()?;
    let mut settings = settings(args, spec, &session);
    if let Some(nodes) = args.nodes {
        settings.insert("nodes".into(), nodes.into());
    }
    ui.note(format!("settings:\n{}", config_text(&settings).trim_end()));
    let deviations = plan.best.as_ref().map(|best| best.deviations).unwrap_or_default();
    warnings::tell_first(session.network.warnings(), true, ui);
    warnings::tell(deviations, ui);
    let found = TrainingPlan {
        settings,
        model: format!("{}: {}", session.name(), session.description()),
        warnings: warnings::all(session.network.warnings(), deviations),
        card: cards::of_gpu(spec.card.gpu),
        speeds_of: card.title.into(),
        budget_bytes,
        global_batch: session.run.batch,
        cards: ranks(spec),
        machines: args.machines(ranks(spec)),
        with_more: plan.with_more.as_ref().map(planned),
        faster: plan.faster().map(planned),
        best: plan.best.as_ref().map(planned),
        hand_over,
        front: plan.front.iter().map(planned).collect(),
        unlimited_seconds: plan.unlimited_seconds,
        tried: plan.tried,
        left_out: plan.left_out,
        too_large: plan.too_large,
        allowed: allowed(args),
        notes: spec.notes().into_iter().map(String::from).collect(),
        premises: session.premises.into_iter().filter(|premise| premise.name != "batch").collect(),
    };
    let fits = found.best.is_some();
    deliver(&found, fits, args, ui)
}

/// The plan for each of several cards.
fn on_each(names: &str, args: &PlanArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    let prices = args.prices.as_deref().map(prices).transpose()?.unwrap_or_default();
    let gpus = named(names)?;
    let progress = Progress::new(ui, gpus.len() as u64);
    let number = ranks(spec);
    let (mut plans, mut of_first) = (Vec::new(), None);
    for (done, &card) in gpus.iter().enumerate() {
        progress.set(done as u64, card.title);
        let gpu = Some(Gpu::of_card(card));
        let mut on_card = spec.clone();
        on_card.card.gpu = gpu;
        let Searched { session, plan, budget_bytes, .. } = search(args, &on_card, false, ui)?;
        let price = prices.get(card.name).copied();
        plans.push(CardPlan::new(
            (card.name, card.title),
            budget_bytes,
            plan.best.as_ref().map(planned),
            (price, number),
        ));
        of_first.get_or_insert(session);
    }
    drop(progress);
    let session = of_first.ok_or_else(|| Failure::usage("--gpus: names no card"))?;
    let mut settings = settings(args, spec, &session);
    settings.remove("gpu");
    settings.insert("gpus".into(), names.into());
    let found = CardPlans {
        global_batch: session.run.batch,
        cards: number,
        plans,
        notes: spec.notes().into_iter().map(String::from).collect(),
        warnings: session.network.warnings().to_vec(),
        premises: session.premises.into_iter().filter(|premise| premise.name != "batch").collect(),
        settings,
    };
    let found = found.in_order();
    let fits = found.plans.iter().any(|plan| plan.best.is_some());
    deliver(&found, fits, args, ui)
}

/// A search that ended.
struct Searched {
    session: Session,
    plan: Plan,
    budget_bytes: u64,
    /// The card whose speeds count.
    card: &'static Card,
    /// The best as files, if they are asked for.
    files: Option<Files>,
}

fn search(args: &PlanArgs, spec: &RunSpec, with_front: bool, ui: &Ui) -> Result<Searched> {
    let workspaces = Workspaces::new(args.workspaces.cudnn, args.dry_run.model.python.as_deref(), ui)?;
    let runner = dry_runner().with_workspaces_of(&workspaces);
    let session = runner.session(spec)?;
    let budget_bytes = session.target.budget_bytes()?.ok_or_else(|| {
        Failure::usage("plan: for what? Name a card or a size with --gpu, several cards with --gpus, or a size with --memory-limit")
    })?;
    let (card, sheet) = speeds::of_card_or_other(spec.card.gpu)?;
    let speed = Speed::from_data_sheet(&sheet, card.sm);
    let sent_per_s = speeds::sent_per_s(card, args.machines(ranks(spec)));
    let planner = Planner { runner, spec, session: &session, speed, sent_per_s, allowed: args.allowed(), with_front };
    let progress = with_front.then(|| Progress::new(ui, 0));
    let plan = planner.plan(&|first| {
        let first = format!("fits: {}", planned(first).in_words());
        if let Some(progress) = &progress {
            ui.note(&first);
            progress.set(0, format!("{first}; looking for the fastest"));
        }
    })?;
    drop(progress);
    let files = match (&args.hand_over, &plan.best) {
        (Some(folder), Some(best)) => Some(Files::of_plan(folder, &planner.runner, best)?),
        _ => None,
    };
    Ok(Searched { session, plan, budget_bytes, card, files })
}

pub(super) fn deliver<F: Findings>(found: &F, fits: bool, args: &PlanArgs, ui: &Ui) -> Result<Code> {
    output::deliver_findings(ui, &args.output, args.page.html.as_ref(), found)?;
    Ok(if fits { Code::Done } else { Code::Check })
}

/// Cards that divide a step.
fn ranks(spec: &RunSpec) -> usize {
    spec.parallel.ranks.data_parallel.unwrap_or(1)
}

fn allowed(args: &PlanArgs) -> Vec<String> {
    args.allow.iter().map(|change| change.word().into()).collect()
}

pub(super) fn settings(args: &PlanArgs, spec: &RunSpec, session: &Session) -> lab::results::Settings {
    let in_force = RunSpec { parallel: spec.parallel.clone(), ..session.in_force.clone() }.fields();
    plan_settings(in_force, session.run.batch, &allowed(args))
}

/// The cards of `any`, or of a list of names.
fn named(names: &str) -> Result<Vec<&'static Card>> {
    if names.trim() == "any" {
        return Ok(known_cards::ALL.iter().filter(|card| card.profile().is_some()).collect());
    }
    let one = |name: &str| match name.trim().parse::<Gpu>() {
        Ok(Gpu::Card { card, .. }) => Ok(card),
        Ok(Gpu::Bytes(_)) => {
            Err(Failure::usage(format!("--gpus {name}: a card has a name; vramlab info cards lists all")))
        }
        Err(problem) => Err(Failure::usage(format!("--gpus {name}: {problem}"))),
    };
    names.split(',').map(one).collect()
}

/// Prices of cards an hour, by their names here.
fn prices(file: &Path) -> Result<BTreeMap<&'static str, f64>> {
    let shown = file.display();
    let number = |value: &toml::Value| value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
    let one = |(name, value): (String, toml::Value)| match (Card::named(&name), number(&value)) {
        (Some(card), Some(price)) if price.is_finite() && price >= 0.0 => Ok((card.name, price)),
        (Some(_), _) => Err(Failure::usage(format!("{shown}: {name} = {value}: a price is a number from 0 on"))),
        (None, _) => Err(Failure::usage(format!("{shown}: {name}: no such card; vramlab info cards lists all"))),
    };
    toml_table(file)?.into_iter().map(one).collect()
}

fn planned(plan: &Planned) -> PlannedResult {
    let Planned { micro_batch, accumulate, seconds, fits, .. } = *plan;
    let on_card = predict::on_card(&plan.spec, &plan.figures);
    PlannedResult { micro_batch, accumulate, seconds, fits, on_card, changes: plan.changes.clone() }
}
