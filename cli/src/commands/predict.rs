//! `vramlab predict`: one run on paper, whether it fits, and what would change it.

use lab::run::{AS_IT_IS, Figures, Paper, Technique, techniques};
use lab::section::Table;
use serde_json::{Value, json};

use super::cards;
use super::outcome::Report;
use super::plan::Plan;
use super::train::{self, Extra};
use super::warnings;
use crate::args::PredictArgs;
use crate::exit::Result;
use crate::render::prediction as render;
use crate::render::prediction::Prediction;
use crate::ui::Ui;
use crate::{backends, interrupt};

/// Runs on paper, until Ctrl-C.
pub(super) const ON_PAPER: Paper<'static> = Paper { backends: backends::ALL, stop: &interrupt::asked };

/// Micro-batches up to which the peaks below the highest are looked for, unless every step is to be written.
const MAX_STEPS: usize = 256;

/// Predicts and reports.
///
/// # Errors
/// Settings that cannot work, a card that is too small (what is known is written), files that cannot be written.
pub(super) fn run(args: &PredictArgs, ui: &Ui) -> Result<crate::exit::Code> {
    let spec = args.spec();
    let plan = Plan::predict(args, &spec, ui)?.for_page(&args.page).rows_for(&args.output);
    let plan = if is_short(&plan) || plan.writes_steps(&args.output) {
        plan.with_history()
    } else {
        ui.tell(format!(
            "more than {MAX_STEPS} micro-batches: the peaks below the highest are not looked for (--json keeps every step)"
        ));
        plan
    };
    let (report, techniques) =
        beside(|| train::measured(&plan, &args.output, ui), || techniques(ON_PAPER, &spec, &plan.session));
    let (report, mut techniques) = (report?, techniques?);
    let mut rows = techniques.iter_mut().filter(|one| one.name == AS_IT_IS).map(|one| &mut one.figures);
    let needs = match rows.next() {
        // One run, one line: the table says of it what the verdict says.
        Some(Ok(row)) => {
            *row = of_run(*row, &report);
            *row
        }
        _ => of_run(ON_PAPER.figures(&spec)?, &report),
    };
    let expandable = match needs.is_fragmented() {
        true => ON_PAPER.with_expandable_segments(&spec)?,
        false => None,
    };
    let notes = render::notes_on(&spec);
    let prediction = Prediction { card: cards::of_gpu(args.paper.gpu), needs, expandable, techniques, notes };
    let table: Table = render::techniques_table(&prediction);
    let text = render::text(&prediction, report.outcome.as_ref().ok(), &report.premises, report.departures, ui.style);
    let extra = Extra { json: keys(&prediction, report.outcome.as_ref().ok()), tables: vec![table], text };
    train::deliver(&plan, report, extra, &args.output, ui)
}

/// Does both, at the same time where another thread can be had.
fn beside<A, B: Send>(here: impl FnOnce() -> A, there: impl Fn() -> B + Sync) -> (A, B) {
    std::thread::scope(|scope| match std::thread::Builder::new().spawn_scoped(scope, &there) {
        Ok(thread) => (here(), thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))),
        Err(_) => (here(), there()),
    })
}

/// Whether every event of the run can be kept in memory, for the moments below the peak.
fn is_short(plan: &Plan) -> bool {
    plan.session.run.steps.saturating_mul(plan.session.run.accumulate) <= MAX_STEPS
}

/// What the run takes with memory enough, and how it went in what there is: as it did go, not as the shorter one of the table.
fn of_run(mut figures: Figures, report: &Report) -> Figures {
    match &report.outcome {
        Ok(outcome) => {
            let reserved_bytes = outcome.max_reserved();
            figures.allocated_bytes = figures.allocated_bytes.max(outcome.result.peak.allocated_bytes);
            figures.reserved_bytes = figures.reserved_bytes.max(reserved_bytes);
            if let Some(room) = &mut figures.room {
                (room.reserved_bytes, room.with_least_context) = (Some(reserved_bytes), true);
            }
        }
        Err(failure) => {
            if let Some(known) = failure.out_of_memory().and_then(|report| report.needs) {
                (figures.allocated_bytes, figures.reserved_bytes) = (known.allocated_bytes, known.reserved_bytes);
            }
            figures.room.iter_mut().for_each(|room| room.reserved_bytes = None);
        }
    }
    figures
}

/// Further keys of `vramlab-train-1`.
fn keys(prediction: &Prediction, outcome: Option<&super::outcome::Outcome>) -> serde_json::Map<String, Value> {
    let Prediction { card, needs, techniques, notes, .. } = prediction;
    let keys = [
        ("card", json!(card)),
        ("budget_bytes", json!(needs.room.map(|room| room.budget_bytes))),
        ("fits", json!(needs.fits())),
        ("needs", needs_json(needs)),
        ("notes", json!(notes)),
        ("summits", json!(outcome.map(|outcome| &outcome.summits))),
        ("techniques", techniques.iter().map(technique_json).collect()),
    ];
    keys.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

fn needs_json(needs: &Figures) -> Value {
    json!({
        "allocated_bytes": needs.allocated_bytes,
        "reserved_bytes": needs.reserved_bytes,
        "missing_bytes": needs.missing_bytes(),
        "fits_with_least_context": needs.room.map(|room| room.with_least_context),
    })
}

/// A technique for other programs.
fn technique_json(technique: &Technique) -> Value {
    let figures = technique.figures.as_ref().ok();
    json!({
        "name": technique.name,
        "peak_bytes": figures.map(|figures| figures.allocated_bytes),
        "reserved_bytes": figures.map(|figures| figures.reserved_bytes),
        "reserved_here_bytes": figures.and_then(|figures| figures.room?.reserved_bytes),
        "fits": figures.and_then(Figures::fits),
        "missing_bytes": figures.and_then(Figures::missing_bytes),
        "reason": technique.figures.as_ref().err(),
        "warnings": figures.map_or_else(Vec::new, |figures| warnings::all(&[], figures.departures)),
    })
}
