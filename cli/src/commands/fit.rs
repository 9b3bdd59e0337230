//! `vramlab fit`: the largest batch or sequence for a card, with the law of the peak.

use std::cell::Cell;

use lab::figures::short;
use lab::fit::{Fit, Law, Room, largest};
use lab::models::Input;
use lab::results::FitResult;
use memcore::{Departures, Device};

use super::cards;
use super::plan::Plan;
use super::warnings;
use crate::args::{FitArgs, Gpu, PaperArgs, Quantity, RecordArgs, config_text};
use crate::exit::{Code, Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::render::prediction::notes_on;
use crate::ui::Ui;

/// Steps of each run, unless said: after the second nothing changes any more.
const STEPS: usize = 3;

/// Where a search ends, unless said.
const MOST_EXAMPLES: usize = 1 << 20;
const MOST_TOKENS: usize = 1 << 17;

/// Searches, explains, verifies.
///
/// # Errors
/// No budget, settings that cannot work; with code 1, a budget that not even one example fits into.
pub(super) fn run(args: &FitArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations().chain(&args.page.html))?;
    let paper = with_steps(&args.paper);
    let plan = Plan::predict(&paper, &RecordArgs::default())?;
    let budget_bytes = plan.opening.budget_bytes()?.ok_or_else(|| {
        Failure::usage("fit: into what? Name a card or a size with --gpu, or a size with --memory-limit")
    })?;
    let maximum = args.maximum.map_or_else(|| most(args.of, &paper, &plan), Ok)?;
    let mut settings = plan.settings.clone();
    settings.insert("of".into(), args.of.name().into());
    settings.remove(args.of.name());
    ui.note(format!("settings:\n{}", config_text(&settings).trim_end()));
    for warning in plan.subject.warnings() {
        ui.tell(warning);
    }
    let (fit, law, departures) = solve(args.of, &paper, budget_bytes, maximum, ui)?;
    let perhaps = perhaps(args.of, &paper, &fit, maximum, ui)?;
    warnings::tell(departures, ui);
    let model = format!("{}: {}", plan.subject.name(), plan.subject.description());
    let found = FitResult {
        settings,
        premises: plan.premises.into_iter().filter(|premise| premise.name != args.of.premise()).collect(),
        model,
        card: cards::of_gpu(paper.gpu),
        largest_with_least_context: perhaps.or(fit.largest),
        notes: notes_on(&paper).into_iter().map(String::from).collect(),
        warnings: warnings::all(plan.subject.warnings(), departures),
        ..FitResult::of(args.of.name(), budget_bytes, &fit, &law)
    };
    deliver(&found, args, ui)
}

fn with_steps(paper: &PaperArgs) -> PaperArgs {
    let mut paper = paper.clone();
    paper.training.steps.get_or_insert(STEPS);
    paper
}

/// The same run with another size.
fn sized(of: Quantity, paper: &PaperArgs, size: usize) -> PaperArgs {
    let mut paper = paper.clone();
    match of {
        Quantity::Batch => paper.training.batch = Some(size),
        Quantity::Sequence => paper.model.sequence = Some(size),
    }
    paper
}

/// Where the search ends, unless said: what the network itself can take.
fn most(of: Quantity, paper: &PaperArgs, plan: &Plan) -> Result<usize> {
    if of == Quantity::Batch {
        return Ok(MOST_EXAMPLES);
    }
    // A pretrained network has as many positions as it takes tokens when nothing is said.
    let mut longest = paper.clone();
    longest.model.sequence = None;
    match Plan::predict(&longest, &RecordArgs::default())?.subject.task().input {
        Input::Tokens { length, .. } if !plan.subject.takes_data() => Ok(length.max(2)),
        Input::Tokens { .. } => Ok(MOST_TOKENS),
        Input::Values(_) => Err(Failure::usage("--of sequence: this network takes no tokens")),
    }
}

/// What fits, up to `maximum`, and the law of the peak until then.
fn solve(
    of: Quantity,
    paper: &PaperArgs,
    budget_bytes: u64,
    maximum: usize,
    ui: &Ui,
) -> Result<(Fit, Law, Departures)> {
    let departures = Cell::new(Departures::default());
    let run = runs(of, paper, &departures, ui);
    let fit = largest(&run, budget_bytes, maximum)?;
    let end = fit.largest.map_or(1, |largest| (largest + 1).min(maximum));
    let law = Law::of(&run, 1, end)?;
    Ok((fit, law, departures.get()))
}

/// The run of a size, which notes what it does otherwise than PyTorch would.
fn runs(
    of: Quantity,
    paper: &PaperArgs,
    departures: &Cell<Departures>,
    ui: &Ui,
) -> impl Fn(usize, Room) -> lab::Result<Device> {
    // Spins: how many runs it takes is not known.
    let progress = Progress::new(ui, 0);
    let endless = paper.endless();
    move |size, room| {
        progress.set(0, format!("{} {size}", of.name()));
        if crate::interrupt::asked() {
            return Err(lab::Error::Interrupted);
        }
        let base = if room == Room::Endless { &endless } else { paper };
        // What a flag asks for was understood already; a size that the network refuses is the user's.
        let plan = Plan::predict(&sized(of, base, size), &RecordArgs::default())
            .map_err(|failure| lab::Error::usage(format!("{} {size}", of.name()), format!("{:#}", failure.error)))?;
        let plan = if room == Room::Endless { plan.with_history() } else { plan };
        let device = plan.opening.open()?;
        plan.train_on(&device)?;
        departures.set(departures.get().union(device.departures()));
        Ok(device)
    }
}

/// The largest that fits with the smallest context that the card may have, where that is more.
fn perhaps(of: Quantity, paper: &PaperArgs, fit: &Fit, maximum: usize, ui: &Ui) -> Result<Option<usize>> {
    if fit.at_maximum || !matches!(paper.gpu, Some(Gpu::Named(_))) {
        return Ok(None);
    }
    let least = paper.with_least_context();
    let Some(budget_bytes) = Plan::predict(&least, &RecordArgs::default())?.opening.budget_bytes()? else {
        return Ok(None);
    };
    let ignored = Cell::new(Departures::default());
    let with_least = largest(&runs(of, &least, &ignored, ui), budget_bytes, maximum)?;
    Ok(with_least.largest.filter(|size| Some(*size) > fit.largest))
}

fn deliver(found: &FitResult, args: &FitArgs, ui: &Ui) -> Result<Code> {
    output::deliver_findings(ui, &args.output, args.page.html.as_ref(), found)?;
    if found.largest.is_some() {
        return Ok(Code::Done);
    }
    let missing = found.missing_bytes().map_or(String::new(), |bytes| format!(": {} more are needed", short(bytes)));
    let message = format!("{} 1 does not fit into {} bytes{missing}", found.of, found.budget_bytes);
    Err(Failure::new(Code::Check, anyhow::Error::msg(message)))
}
