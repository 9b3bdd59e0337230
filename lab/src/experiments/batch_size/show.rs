//! What was found, as rows, tables and curves.

use super::found::Found;
use super::law::Law;
use super::runs::{Run, by_step, summary};
use crate::experiments::show::{by_category, curve, table, text};
use crate::experiments::{Measurement, Outcome};
use crate::figures::both as bytes;
use crate::section::Cell;

/// Fills in everything but the verdicts.
pub(super) fn fill(found: &Found, outcome: &mut Outcome) {
    let runs: Vec<&Run> = found.fresh.iter().chain(&found.orders).chain(&found.changing).chain(&found.epochs).collect();
    outcome.rows.extend(runs.iter().map(|run| summary(run)));
    for run in found.fresh.iter().chain(&found.orders).chain(&found.changing) {
        outcome.rows.extend(by_step(run));
        outcome.curves.push(curve(format!("batch {}", run.name), &run.moments));
    }
    overview(&runs, outcome);
    graph(&runs, outcome);
    for run in &found.fresh {
        categories(run, outcome);
        pieces(run, outcome);
    }
    if let Some(law) = &found.law {
        outcome.rows.extend(law.checked.iter().map(|check| checked(law, *check)));
        law_tables(law, outcome);
    }
    notes(found, outcome);
}

fn overview(runs: &[&Run], outcome: &mut Outcome) {
    let row = |run: &&Run| {
        let end = &run.ends[run.ends.len() - 1].row;
        vec![
            text(run.name.clone()),
            Cell::Bytes(run.peak()),
            Cell::Bytes(run.reserved()),
            Cell::Bytes(end.allocated),
            Cell::Bytes(run.cached()),
            Cell::Bytes(end.inactive_split),
        ]
    };
    let columns = ["batches", "peak", "reserved", "allocated", "cached", "split"];
    let title = "One device each: highest allocated and reserved; allocated, cached (reserved - allocated) and free \
                 parts of split segments after the last step";
    outcome.tables.push(table(title, &columns, runs.iter().map(row).collect()));
}

fn graph(runs: &[&Run], outcome: &mut Outcome) {
    let row = |run: &&Run| {
        vec![
            text(run.name.clone()),
            Cell::Count(run.steps().count() as u64),
            Cell::Count(run.nodes_made()),
            Cell::Count(run.nodes_alive()),
            Cell::Bytes(run.graph_bytes()),
        ]
    };
    let columns = ["batches", "steps", "nodes made", "alive at once", "on the host"];
    let title = "The graph: nodes made in all, nodes alive at once, their host memory";
    outcome.tables.push(table(title, &columns, runs.iter().map(row).collect()));
}

/// Most steps that fit beside each other.
const COLUMNS: usize = 5;

fn categories(run: &Run, outcome: &mut Outcome) {
    let peak = |(i, step): (usize, &crate::experiments::rig::StepRecord)| {
        (format!("step {i}, {}", step.peak_phase), step.peak.by_category)
    };
    let columns: Vec<_> = run.steps().enumerate().take(COLUMNS).map(peak).collect();
    outcome.tables.push(by_category(format!("Batch {}: the highest moment of each step", run.name), &columns));
}

/// The prediction, written out.
fn pieces(run: &Run, outcome: &mut Outcome) {
    let Some(forecast) = &run.forecast else { return };
    let row = |piece: &crate::predict::Piece| {
        vec![
            text(piece.what.clone()),
            text(piece.formula.clone()),
            Cell::Count(piece.requested_bytes),
            Cell::Count(piece.block_bytes),
        ]
    };
    let mut rows: Vec<Vec<Cell>> = forecast.peak.pieces.iter().map(row).collect();
    rows.push(vec![text("sum"), text(""), text(""), Cell::Count(forecast.peak.allocated)]);
    let title = format!("Batch {}: what there is at the peak, predicted ({})", run.name, forecast.peak.phase);
    outcome.tables.push(table(title, &["tensor", "formula", "bytes", "block"], rows));
}

fn checked(law: &Law, (batch, peak, reserved): (usize, u64, u64)) -> Measurement {
    let mut m = Measurement::of([("law", batch.into())]);
    m.measure("peak_bytes", peak);
    m.measure("reserved_bytes", reserved);
    if let Some(point) = law.at(batch) {
        m.predict("peak_bytes", point.peak.allocated);
        m.predict("reserved_bytes", point.reserved);
    }
    m
}

fn law_tables(law: &Law, outcome: &mut Outcome) {
    let stretch = |s: &super::law::Stretch| {
        vec![
            Cell::Count(s.from as u64),
            Cell::Count(s.to as u64),
            text(s.phase.clone()),
            Cell::Count(s.constant),
            Cell::Count(s.slope),
            Cell::Count(s.most_slack),
        ]
    };
    let title = "peak(B) = constant + B * per example + rounding to 512 + rest of large blocks";
    let columns = ["from B", "to B", "peak during", "constant", "per example", "rest, at most"];
    outcome.tables.push(table(title, &columns, law.stretches.iter().map(stretch).collect()));
    let growing = |g: &super::law::Growing| {
        vec![text(g.what.clone()), Cell::Count(g.per_example), Cell::Count(g.large_from), Cell::Count(g.own_from)]
    };
    let title = "Breakpoints: the batch from which a tensor at the peak is in the large pool (above 1 MiB), and has \
                 a segment to measure (from 10 MiB)";
    let columns = ["tensor", "per example", "large from B", "own from B"];
    outcome.tables.push(table(title, &columns, law.growing.iter().map(growing).collect()));
    let mut sample: Vec<usize> = law.points.iter().map(|p| p.batch).filter(|b| b.is_power_of_two()).collect();
    sample.extend(law.falls.iter().take(3).flat_map(|&(batch, ..)| [batch, batch + 1]));
    sample.sort_unstable();
    sample.dedup();
    let row = |batch: &usize| {
        let p = law.at(*batch)?;
        Some(vec![
            Cell::Count(p.batch as u64),
            Cell::Count(p.constant()),
            Cell::Count(p.slope() * p.batch as u64),
            Cell::Count(p.rounding()),
            Cell::Count(p.slack()),
            Cell::Count(p.peak.allocated),
            Cell::Count(p.reserved),
        ])
    };
    let columns = ["B", "constant", "B * slope", "rounding", "rest", "peak", "reserved"];
    outcome.tables.push(table("The law, term by term, in bytes", &columns, sample.iter().filter_map(row).collect()));
}

fn notes(found: &Found, outcome: &mut Outcome) {
    if found.fresh.iter().any(|run| run.forecast.is_none()) {
        outcome.notes.push("No prediction: it knows the experiment's own network alone, under the caching allocator with its default settings and a profile whose workspaces are kept.".into());
    }
    if let Some(law) = &found.law {
        outcome.notes.push(format!(
            "The law was computed for every batch from 1 to {} and checked by dry runs at {} of them, on both sides of every \
             breakpoint among those.",
            law.points.len(),
            law.checked.len()
        ));
        let slack = law.points.iter().max_by_key(|point| point.slack());
        if let Some(point) = slack.filter(|point| point.slack() > 0) {
            outcome.notes.push(format!(
                "A block above 1 MiB keeps a rest of up to 1 MiB that nobody asked for; at the peak that is {} with batch {}.",
                bytes(point.slack()),
                point.batch
            ));
        }
    }
    if let Some(run) = found.orders.first() {
        outcome.notes.push(format!(
            "After {} everything was dropped: {} stay allocated (libraries' workspaces) and {} stay reserved.",
            run.name,
            bytes(run.dropped.row.allocated),
            bytes(run.dropped.row.reserved)
        ));
    }
}
