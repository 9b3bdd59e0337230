//! `vramlab predict`: one run on paper, whether it fits, and what would change it.

use lab::experiments::Table;
use serde_json::{Value, json};

use super::plan::Plan;
use super::techniques::{self, Figures, Technique};
use super::train::{self, Extra};
use crate::args::{Gpu, PredictArgs};
use crate::exit::Result;
use crate::render::prediction as render;
use crate::render::prediction::Prediction;
use crate::ui::Ui;

/// Micro-batches up to which the peaks below the highest are looked for, unless every step is to be written.
const MAX_STEPS: usize = 256;

/// Predicts and reports.
///
/// # Errors
/// Settings that cannot work, a card that is too small (what is known is written), files that cannot be written.
pub(super) fn run(args: &PredictArgs, ui: &Ui) -> Result<crate::exit::Code> {
    let plan = Plan::predict(&args.paper, &args.record)?.for_page(&args.page).rows_for(&args.output);
    let plan = if is_short(&plan) || plan.writes_steps(&args.output) {
        plan.with_history()
    } else {
        ui.tell(format!(
            "more than {MAX_STEPS} micro-batches: the peaks below the highest are not looked for (--json keeps every step)"
        ));
        plan
    };
    let (report, techniques) =
        beside(|| train::measured(&plan, &args.output, ui), || techniques::all(&args.paper, &plan));
    let (report, techniques) = (report?, techniques?);
    let needs = match &report.outcome {
        Ok(outcome) => Figures {
            allocated_bytes: outcome.result.peak.allocated_bytes,
            reserved_bytes: outcome.max_reserved(),
            fits: plan.opening.limited().then_some(true),
            departures: report.departures,
        },
        Err(_) => techniques::figures(&args.paper)?,
    };
    let prediction = Prediction { gpu: args.paper.gpu, budget_bytes: plan.opening.budget_bytes()?, needs, techniques };
    let table: Table = render::techniques(&prediction);
    let text = render::text(&prediction, report.outcome.as_ref().ok(), &report.premises, ui.style);
    let departures = prediction.techniques.iter().filter_map(|technique| technique.figures.as_ref().ok());
    let departures = departures.fold(prediction.needs.departures, |all, figures| all.union(figures.departures));
    let extra = Extra { departures, json: keys(&prediction, report.outcome.as_ref().ok()), tables: vec![table], text };
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
    plan.run.steps.saturating_mul(plan.run.accumulate) <= MAX_STEPS
}

/// Further keys of `vramlab-train-1`.
fn keys(prediction: &Prediction, outcome: Option<&super::outcome::Outcome>) -> serde_json::Map<String, Value> {
    let Prediction { gpu, budget_bytes, needs, techniques } = prediction;
    let keys = [
        ("card", json!(gpu.map(Gpu::card))),
        ("budget_bytes", json!(budget_bytes)),
        ("fits", json!(needs.fits)),
        ("needs", json!({ "allocated_bytes": needs.allocated_bytes, "reserved_bytes": needs.reserved_bytes })),
        ("summits", json!(outcome.map(|outcome| &outcome.summits))),
        ("techniques", techniques.iter().map(Technique::json).collect()),
    ];
    keys.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}
