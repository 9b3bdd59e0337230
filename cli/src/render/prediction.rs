//! A prediction in words: the peak, what comes below it, whether it fits, what would change it.

use lab::experiments::{Cell, Table};
use lab::summits::Summit;

use super::style::Style;
use super::{WIDTH, bytes, premises, table, wrapped};
use crate::args::Gpu;
use crate::commands::outcome::Outcome;
use crate::commands::premises::Premise;
use crate::commands::techniques::{AS_IT_IS, Figures, Technique};

/// What was found out beside the run itself.
pub(crate) struct Prediction {
    /// The card, where one was named.
    pub gpu: Option<Gpu>,
    /// What a process may take of it, where there is a limit.
    pub budget_bytes: Option<u64>,
    /// What the run takes with memory enough.
    pub needs: Figures,
    /// What it would take with each technique.
    pub techniques: Vec<Technique>,
}

/// With less of the budget left than this, "it fits" deserves a warning.
const TIGHT: f64 = 0.05;

/// Everything that stands before the run's own tables.
pub(crate) fn text(prediction: &Prediction, outcome: Option<&Outcome>, premises: &[Premise], style: Style) -> String {
    let mut out = String::from("\n");
    if let Some(outcome) = outcome {
        out += &format!("{}\n", wrapped(&peak(outcome), WIDTH, 0));
    }
    if let Some(verdict) = verdict(prediction) {
        out += &format!("{}\n", wrapped(&verdict, WIDTH, 0));
    }
    out += &format!("{}\n", premises::line(premises));
    if let Some(outcome) = outcome.filter(|outcome| outcome.summits.len() > 1) {
        out += &format!("\n{}", table::titled(&summits(&outcome.summits), style));
    }
    out += &format!("\n{}", table::titled(&techniques(prediction), style));
    for (reason, names) in refused(&prediction.techniques) {
        out += &format!("{}\n", wrapped(&format!("not here: {} ({reason})", names.join("; ")), WIDTH, 2));
    }
    out
}

/// The peak and what sets it.
fn peak(outcome: &Outcome) -> String {
    let (peak, maker) = (&outcome.result.peak, &outcome.maker);
    let mut text = format!("The peak is {}", bytes::both(peak.allocated_bytes));
    if !maker.phase.is_empty() {
        text += &format!(", in {}", maker.phase);
    }
    if !maker.op.is_empty() {
        text += &format!(", when {} runs", maker.op);
    }
    if !maker.scope.is_empty() {
        text += &format!(" in {}", maker.scope);
    }
    if let Some(first) = outcome.summits.first() {
        text += &format!("; {} of it is {}", bytes::short(first.mostly_bytes), first.mostly);
    }
    text + &format!(". PyTorch reserves {} at most.", bytes::both(outcome.max_reserved()))
}

/// Whether it fits, with what is left or missing; `None` where no memory was named.
fn verdict(prediction: &Prediction) -> Option<String> {
    let (budget, needs) = (prediction.budget_bytes?, &prediction.needs);
    let room = match prediction.gpu {
        Some(Gpu::Named(card)) => format!(
            "{} ({}, of which {} are left for tensors: a CUDA context takes some {})",
            card.title,
            bytes::short(card.total_bytes()),
            bytes::short(budget),
            bytes::short(lab::cards::CONTEXT_BYTES)
        ),
        _ => format!(
            "{} (all of it for tensors; on a card, a CUDA context takes some 0.5 GiB more)",
            bytes::short(budget)
        ),
    };
    if needs.fits != Some(true) {
        let missing = needs.allocated_bytes.max(needs.reserved_bytes).saturating_sub(budget);
        return Some(format!(
            "It does not fit into {room}: with memory enough, {} are allocated and {} reserved, {} more than there is.",
            bytes::short(needs.allocated_bytes),
            bytes::short(needs.reserved_bytes),
            bytes::short(missing)
        ));
    }
    let left = budget.saturating_sub(needs.reserved_bytes);
    let share = left as f64 / budget.max(1) as f64;
    let mut text = format!("It fits into {room}; {} ({:.1} %) stay free.", bytes::short(left), 100.0 * share);
    if share < TIGHT {
        text += " That is little: a display, NCCL's buffers or another driver may take as much.";
    }
    Some(text)
}

/// The highest moments.
fn summits(summits: &[Summit]) -> Table {
    let row = |summit: &Summit| {
        let scope = if summit.scope.is_empty() { "(outside the model)" } else { &summit.scope };
        vec![
            Cell::Bytes(summit.allocated_bytes),
            Cell::Text(summit.phase.clone()),
            Cell::Text(format!("{} in {scope}", summit.op)),
            Cell::Text(format!("{} {}", bytes::short(summit.mostly_bytes), summit.mostly)),
        ]
    };
    let columns = ["allocated", "phase", "reached by", "mostly"].map(String::from).to_vec();
    Table { title: "The peak and the next ones below it".into(), columns, rows: summits.iter().map(row).collect() }
}

/// What each technique would change.
pub(crate) fn techniques(prediction: &Prediction) -> Table {
    let limited = prediction.budget_bytes.is_some();
    let mut columns = ["technique", "peak", "change", "", "reserved"].map(String::from).to_vec();
    columns.extend(limited.then(|| "fits".to_string()));
    let known = || prediction.techniques.iter().filter_map(|t| Some((&t.name, t.figures.as_ref().ok()?)));
    let base = known().find(|(name, _)| *name == AS_IT_IS).map_or(0, |(_, figures)| figures.allocated_bytes);
    let row = |(name, figures): (&String, &Figures)| {
        let change = figures.allocated_bytes as i64 - base as i64;
        let percent = 100.0 * change as f64 / base.max(1) as f64;
        let mut row = vec![
            Cell::Text(name.clone()),
            Cell::Bytes(figures.allocated_bytes),
            Cell::Difference(change),
            Cell::Text(format!("{percent:+.1} %")),
            Cell::Bytes(figures.reserved_bytes),
        ];
        row.extend(limited.then(|| Cell::Text(if figures.fits == Some(true) { "yes" } else { "no" }.into())));
        row
    };
    Table { title: "What each technique would change".into(), columns, rows: known().map(row).collect() }
}

/// Techniques that this network cannot have, by the reason.
fn refused(techniques: &[Technique]) -> Vec<(&str, Vec<&str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for technique in techniques {
        let Err(reason) = &technique.figures else { continue };
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(&technique.name),
            None => reasons.push((reason, vec![&technique.name])),
        }
    }
    reasons
}
