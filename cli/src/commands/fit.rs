//! `vramlab fit`: the largest batch or sequence for a card, with the law of the peak.

use std::cell::Cell;

use lab::experiments::Table;
use lab::fit::{Fit, Law, Piece, Room, Stretch, Tried, largest, outline};
use lab::models::Input;
use lab::report::Part;
use memcore::{Departures, Device};
use serde_json::{Value, json};

use super::cards;
use super::plan::Plan;
use super::premises;
use super::{report, warnings};
use crate::args::{FitArgs, Gpu, PaperArgs, Quantity, RecordArgs, config_text};
use crate::exit::{Code, Failure, Result};
use crate::output::{self, Results};
use crate::progress::Progress;
use crate::render::bytes::short;
use crate::render::fit as render;
use crate::render::fit::Found;
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
    let found = Found {
        of: args.of,
        model,
        gpu: paper.gpu,
        budget_bytes,
        fit,
        perhaps,
        law,
        premises: plan.premises.into_iter().filter(|premise| premise.name != args.of.premise()).collect(),
        notes: notes_on(&paper),
        warnings: warnings::all(plan.subject.warnings(), departures),
        settings,
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

fn deliver(found: &Found, args: &FitArgs, ui: &Ui) -> Result<Code> {
    let tables: Vec<Table> = vec![render::pieces(found), render::runs(found)];
    let text = render::text(found, ui.style);
    let json = as_json(found);
    if let Some(destination) = &args.page.html {
        report::page(destination, &[Part::Result(&json)], ui)?;
    }
    output::deliver(ui, &args.output, &Results { json: &json, tables: &tables, text: &text })?;
    match found.fit.largest {
        Some(_) => Ok(Code::Done),
        None => {
            let missing = found.fit.run(1).and_then(Tried::missing_bytes);
            let missing = missing.map_or(String::new(), |bytes| format!(": {} more are needed", short(bytes)));
            let message = format!("{} 1 does not fit into {} bytes{missing}", found.of.name(), found.budget_bytes);
            Err(Failure::new(Code::Check, anyhow::Error::msg(message)))
        }
    }
}

fn as_json(found: &Found) -> Value {
    let Found { of, model, gpu, budget_bytes, fit, perhaps, law, premises, notes, warnings, settings } = found;
    let outline = outline(law).map(|stretches| stretches.iter().map(stretch).collect::<Vec<_>>());
    json!({
        "schema": "vramlab-fit-1",
        "settings": settings,
        "premises": premises::json(premises),
        "model": model,
        "of": of.name(),
        "card": cards::of_gpu(*gpu),
        "budget_bytes": budget_bytes,
        "largest": fit.largest,
        "largest_with_least_context": perhaps.or(fit.largest),
        "at_maximum": fit.at_maximum,
        "gaps": fit.gaps(),
        "notes": notes,
        "warnings": warnings,
        "law": {
            "complete": law.complete,
            "runs": law.runs,
            "outline": outline,
            "pieces": law.pieces.iter().map(piece).collect::<Vec<_>>(),
        },
        "runs": fit.tried.iter().map(|tried| tried_json(tried, law)).collect::<Vec<_>>(),
    })
}

fn piece(piece: &Piece) -> Value {
    json!({
        "from": piece.from,
        "to": piece.to,
        "constant": piece.constant,
        "slope": piece.slope,
        "square": piece.square,
        "phase": piece.phase,
        "op": piece.op,
        "scope": piece.scope,
    })
}

fn stretch(stretch: &Stretch) -> Value {
    json!({
        "from": stretch.from,
        "to": stretch.to,
        "bytes": stretch.bytes,
        "slope": stretch.slope,
        "off_bytes": stretch.off_bytes,
    })
}

fn tried_json(tried: &Tried, law: &Law) -> Value {
    json!({
        "size": tried.size,
        "fits": tried.fits(),
        "peak_allocated_bytes": tried.allocated_bytes,
        "peak_reserved_bytes": tried.reserved_bytes,
        "retries": tried.retries,
        "law_requested_bytes": law.at(tried.size),
        "needs_reserved_bytes": tried.out_of_memory.as_ref().and_then(|report| report.needs).map(|needs| needs.reserved_bytes),
        "missing_bytes": tried.missing_bytes(),
        "out_of_memory_bytes": tried.out_of_memory.as_ref().map(|report| report.requested_bytes),
    })
}
