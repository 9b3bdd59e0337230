//! A prediction in words: the peak, what comes below it, whether it fits, what would change it.

use lab::peaks::LocalPeak;
use lab::results::{CardResult, Premise, room};
use lab::run::{AS_IT_IS, Figures, Room, RunSpec, Technique};
use lab::section::{Cell, Table};
use memcore::Deviations;

use super::style::Style;
use super::{WIDTH, bytes, premises, table, wrapped};
use crate::commands::outcome::Outcome;
use crate::commands::warnings;

/// What was found out beside the run itself.
pub(crate) struct Prediction {
    /// The card, where one was named.
    pub card: Option<CardResult>,
    /// What the run takes.
    pub needs: Figures,
    /// What it would take with segments that grow, where memory is fragmented.
    pub expandable: Option<Figures>,
    /// What it would take with each technique.
    pub techniques: Vec<Technique>,
    /// What the figures stand for, and what not.
    pub notes: Vec<&'static str>,
}

/// What is not represented, and by how much it may differ: nanoGPT of 124 million parameters on the real PyTorch 2.11, compiled, allocated 9298 MiB where it
/// allocates 12757 MiB otherwise.
const EAGER: &str = "This is eager PyTorch. With torch.compile memory is another: nanoGPT (124M) takes 27 % less; it is not represented.";

/// What the figures of a run on paper stand for, and what not.
pub(crate) fn notes_on(spec: &RunSpec) -> Vec<&'static str> {
    if spec.is_torch() { vec![EAGER] } else { Vec::new() }
}

/// With less of the budget left than this, "it fits" deserves a warning.
const TIGHT: f64 = 0.05;

/// Everything that stands before the run's own tables.
///
/// `said`: what the run did otherwise than PyTorch would, and is warned of already.
pub(crate) fn text(
    prediction: &Prediction,
    outcome: Option<&Outcome>,
    premises: &[Premise],
    said: Deviations,
    style: Style,
) -> String {
    let mut out = String::from("\n");
    if let Some(outcome) = outcome {
        out += &format!("{}\n", wrapped(&peak(outcome), WIDTH, 0));
    }
    if let Some(verdict) = verdict(prediction) {
        out += &format!("{}\n", wrapped(&verdict, WIDTH, 0));
    }
    out += &format!("{}\n", premises::line(premises));
    prediction.notes.iter().for_each(|note| out += &format!("{}\n", wrapped(note, WIDTH, 0)));
    if let Some(outcome) = outcome.filter(|outcome| outcome.summits.len() > 1) {
        out += &format!("\n{}", table::titled(&peaks(&outcome.summits), style));
    }
    out += &format!("\n{}", table::titled(&techniques_table(prediction), style));
    for (note, names) in notes(&prediction.techniques, said) {
        out += &format!("{}\n", wrapped(&format!("{}: {note}", names.join("; ")), WIDTH, 2));
    }
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
        text += &format!("; {} of it is {}", bytes::short(first.dominant_bytes), first.dominant_category);
    }
    text + &format!(". PyTorch reserves {} at most.", bytes::both(outcome.max_reserved()))
}

/// Whether it fits, with what is left or missing; `None` where no memory was named.
fn verdict(prediction: &Prediction) -> Option<String> {
    let needs = &prediction.needs;
    let here = needs.room?;
    let room = room(prediction.card.as_ref(), here.budget_bytes);
    Some(match here.reserved_bytes {
        Some(reserved) => fits(needs, here.budget_bytes, reserved, &room),
        None => does_not_fit(prediction, here, &room),
    })
}

fn fits(needs: &Figures, budget: u64, reserved: u64, room: &str) -> String {
    let left = budget.saturating_sub(reserved);
    let share = left as f64 / budget.max(1) as f64;
    let mut text = format!(
        "It fits into {room}: PyTorch reserves {} there, {} ({:.1} %) stay free.",
        bytes::short(reserved),
        bytes::short(left),
        100.0 * share
    );
    if needs.reserved_bytes > reserved {
        let more = bytes::short(needs.reserved_bytes);
        text += &format!(
            " With memory enough it would keep {more}; the difference is cache, given back when memory runs short."
        );
    }
    if share < TIGHT {
        text += " That is little: a display, NCCL's buffers or another driver may take as much.";
    }
    text
}

fn does_not_fit(prediction: &Prediction, here: Room, room: &str) -> String {
    let needs = &prediction.needs;
    let missing = needs.missing_bytes().unwrap_or(0);
    let mut text = format!(
        "It does not fit into {room}: with memory enough, {} are allocated and {} reserved, {} more than there is.",
        bytes::short(needs.allocated_bytes),
        bytes::short(needs.reserved_bytes),
        bytes::short(missing)
    );
    if !needs.is_fragmented() {
        text += " Its tensors alone are more than that: no setting of the allocator helps.";
    } else if let Some(other) = &prediction.expandable {
        let outcome = match other.room.and_then(|room| room.reserved_bytes) {
            Some(reserved) => format!("it fits, with {} reserved", bytes::short(reserved)),
            None => format!("{} are still missing", bytes::short(other.missing_bytes().unwrap_or(0))),
        };
        text +=
            &format!(" Its tensors alone would fit: memory is fragmented. With expandable_segments:True {outcome}.");
    } else {
        text += " Its tensors alone would fit: memory is fragmented.";
    }
    if here.with_least_context {
        text += " With the smallest context that is known it would fit: which it is, only the card tells.";
    }
    text
}

/// The highest moments.
fn peaks(peaks: &[LocalPeak]) -> Table {
    let row = |peak: &LocalPeak| {
        let scope = if peak.scope.is_empty() { "(outside the model)" } else { &peak.scope };
        vec![
            Cell::Bytes(peak.allocated_bytes),
            Cell::Text(peak.phase.clone()),
            Cell::Text(format!("{} in {scope}", peak.op)),
            Cell::Text(format!("{} {}", bytes::short(peak.dominant_bytes), peak.dominant_category)),
        ]
    };
    let columns = ["allocated", "phase", "reached by", "mostly"].map(String::from).to_vec();
    Table { title: "The peak and the next ones below it".into(), columns, rows: peaks.iter().map(row).collect() }
}

/// What each technique would change.
pub(crate) fn techniques_table(prediction: &Prediction) -> Table {
    let limited = prediction.needs.room.is_some();
    let known = || prediction.techniques.iter().filter_map(|t| Some((&t.name, t.figures.as_ref().ok()?)));
    let here = |figures: &Figures| figures.room.and_then(|room| room.reserved_bytes).unwrap_or(figures.reserved_bytes);
    // Apart from what a card has room for, where the two differ.
    let apart = known().any(|(_, figures)| here(figures) != figures.reserved_bytes);
    // What a change is in bytes is left out where the table has to say what fits.
    let mut columns = vec!["technique".to_string(), "peak".into()];
    columns.extend((!limited).then(|| "change".to_string()));
    columns.extend(["".to_string(), "reserved".into()]);
    columns.extend(limited.then(|| "fits".to_string()));
    columns.extend(apart.then(|| "reserved, with memory enough".to_string()));
    let base = known().find(|(name, _)| *name == AS_IT_IS).map_or(0, |(_, figures)| figures.allocated_bytes);
    let row = |(name, figures): (&String, &Figures)| {
        let change = figures.allocated_bytes as i64 - base as i64;
        let percent = 100.0 * change as f64 / base.max(1) as f64;
        let mut row = vec![Cell::Text(name.clone()), Cell::Bytes(figures.allocated_bytes)];
        row.extend((!limited).then_some(Cell::Difference(change)));
        row.extend([Cell::Text(format!("{percent:+.1} %")), Cell::Bytes(here(figures))]);
        row.extend(limited.then(|| Cell::Text(fits_in_short(figures))));
        row.extend(apart.then_some(Cell::Bytes(figures.reserved_bytes)));
        row
    };
    Table { title: "What each technique would change".into(), columns, rows: known().map(row).collect() }
}

fn fits_in_short(figures: &Figures) -> String {
    match figures.missing_bytes() {
        None => "yes".into(),
        Some(missing) if figures.room.is_some_and(|room| room.with_least_context) => {
            format!("perhaps: {} more, or a smaller context", bytes::short(missing))
        }
        Some(missing) => bytes::lacking(Some(missing)),
    }
}

/// What techniques do otherwise than PyTorch would and the run itself does not, by what it is.
fn notes(techniques: &[Technique], said: Deviations) -> Vec<(String, Vec<&str>)> {
    let known = techniques.iter().filter_map(|technique| Some((technique, technique.figures.as_ref().ok()?)));
    let notes = known.flat_map(|(technique, figures)| {
        let new = figures.departures.iter().filter(|departure| !said.contains(*departure));
        new.map(|departure| (warnings::of_one(departure), technique.name.as_str())).collect::<Vec<_>>()
    });
    grouped(notes)
}

/// Techniques that this network cannot have, by the reason.
fn refused(techniques: &[Technique]) -> Vec<(String, Vec<&str>)> {
    let reasons = techniques.iter().filter_map(|technique| {
        let reason = technique.figures.as_ref().err()?;
        Some((reason.clone(), technique.name.as_str()))
    });
    grouped(reasons)
}

/// The names that share a text, in the order of their first.
fn grouped<'a>(pairs: impl Iterator<Item = (String, &'a str)>) -> Vec<(String, Vec<&'a str>)> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (text, name) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(name),
            None => groups.push((text, vec![name])),
        }
    }
    groups
}
