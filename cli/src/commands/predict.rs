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

/// Predicts and reports.
///
/// # Errors
/// Settings that cannot work, a card that is too small (what is known is written), files that cannot be written.
pub(super) fn run(args: &PredictArgs, ui: &Ui) -> Result<crate::exit::Code> {
    let plan = Plan::predict(&args.paper, &args.record)?.with_history().for_page(&args.page);
    let (report, techniques) = std::thread::scope(|scope| {
        let techniques = scope.spawn(|| techniques::all(&args.paper, &plan));
        (train::measured(&plan, &args.output, ui), techniques.join())
    });
    let report = report?;
    let techniques = techniques.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
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
    let text = render::text(&prediction, report.outcome.as_ref().ok(), ui.style);
    let departures = prediction.techniques.iter().filter_map(|technique| technique.figures.as_ref().ok());
    let departures = departures.fold(prediction.needs.departures, |all, figures| all.union(figures.departures));
    let extra = Extra { departures, json: keys(&prediction, report.outcome.as_ref().ok()), tables: vec![table], text };
    train::deliver(&plan, report, extra, &args.output, ui)
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
