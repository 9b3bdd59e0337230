//! Presents the measurements as rows, tables and curves.

use lab_analysis::fit::Piece;
use lab_base::figures::both as bytes;
use lab_base::section::Cell;

use super::found::Found;
use super::law::{Law, Point};
use super::runs::{Run, by_step, summary};
use crate::tables::{by_category, curve, table, text};
use crate::{Measurement, Outcome};

/// Fills in everything except the verdicts.
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
    }
    if let Some(law) = &found.law {
        outcome.rows.extend(law.sample().map(dry));
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

/// Most steps that a table shows side by side.
const COLUMNS: usize = 5;

fn categories(run: &Run, outcome: &mut Outcome) {
    let peak = |(i, step): (usize, &crate::session::StepRecord)| {
        (format!("step {i}, {}", step.peak_phase), step.peak.by_category)
    };
    let columns: Vec<_> = run.steps().enumerate().take(COLUMNS).map(peak).collect();
    outcome.tables.push(by_category(format!("Batch {}: the highest moment of each step", run.name), &columns));
}

fn dry(point: &Point) -> Measurement {
    let mut m = Measurement::with_setting([("law", point.batch.into())]);
    m.measure("peak_bytes", point.peak);
    m.measure("reserved_bytes", point.reserved);
    m
}

fn law_tables(law: &Law, outcome: &mut Outcome) {
    let piece = |p: &Piece| {
        vec![
            Cell::Count(p.from as u64),
            Cell::Count(p.to as u64),
            text(format!("{}: {}", p.phase, p.op)),
            Cell::Difference(p.constant),
            Cell::Difference(p.slope),
        ]
    };
    let title = "Asked for at the peak, by dry runs: constant + B * per example";
    let columns = ["from B", "to B", "peak during", "constant", "per example"];
    outcome.tables.push(table(title, &columns, law.asked.pieces.iter().map(piece).collect()));
    let row = |p: &Point| {
        vec![
            Cell::Count(p.batch as u64),
            p.requested.map_or_else(Cell::unknown, Cell::Count),
            Cell::Count(p.added()),
            Cell::Count(p.peak),
            Cell::Count(p.reserved),
        ]
    };
    let columns = ["B", "asked for", "rounding and slack", "peak", "reserved"];
    outcome.tables.push(table("Dry runs, in bytes", &columns, law.sample().map(row).collect()));
}

fn notes(found: &Found, outcome: &mut Outcome) {
    if let Some(law) = &found.law {
        outcome.notes.push(format!(
            "The law is of {} dry runs; each batch from 1 to {} had one more for what is allocated and reserved.",
            law.asked.runs,
            law.points.len()
        ));
        if let Some(point) = law.points.iter().max_by_key(|point| point.added()) {
            outcome.notes.push(format!(
                "Blocks are rounded up to 512 bytes, and one above 1 MiB may be up to 1 MiB larger than what was asked for; at the \
                 peak that is {} with batch {}.",
                bytes(point.added()),
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
