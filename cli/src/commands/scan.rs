//! `-L` and `-P`: a run for every combination, a row each.

use lab::experiments::{Cell, Table};
use lab::report::Part;
use serde_json::{Map, Value, json};

use super::outcome::{Report, execute};
use super::plan::Plan;
use super::report;
use crate::args::{self, Cli, Command, HtmlArgs, Invocation, OutputArgs, PaperArgs, RecordArgs};
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output::{self, Results};
use crate::progress::Progress;
use crate::render::{bytes, table};
use crate::ui::Ui;

/// Steps after which nothing grows any more.
const SETTLED: usize = 3;

/// Runs every point of the scan.
///
/// # Errors
/// As a single run; but a point that runs out of memory is a row, and the others are run.
pub(super) fn run(
    invocation: &Invocation,
    args: &OutputArgs,
    page: &HtmlArgs,
    record: &RecordArgs,
    ui: &Ui,
) -> Result<Code> {
    if record.events.is_some() || record.snapshot.is_some() || record.summary || record.exports.any() {
        return Err(Failure::usage(
            "--events, --snapshot, --summary, --export-trace …: they belong to one run, not to a scan",
        ));
    }
    if let Command::Train(args) = &invocation.cli.command
        && args.weights.save.is_some()
    {
        return Err(Failure::usage("--save: it belongs to one run, not to a scan"));
    }
    output::check(args.destinations().chain(&page.html))?;
    let points = args::scan::points(&invocation.axes);
    // All plans before the first run: a bad value is found while nothing is done.
    let silent = ui.silenced();
    let plans = points.iter().enumerate().map(|(i, point)| {
        let cli = args::parse_with(&invocation.words, point)?;
        // The same choices are made for each point: told once.
        plan(&cli, if i == 0 { ui } else { &silent })
    });
    let plans: Vec<Plan> = plans.collect::<Result<_>>()?;
    let mut reports = Vec::new();
    {
        let progress = Progress::new(ui, plans.len() as u64);
        for (plan, point) in plans.iter().zip(&points) {
            let name: Vec<String> = point.iter().map(|(name, value)| format!("{name} {value}")).collect();
            progress.set(reports.len() as u64, name.join(", "));
            ui.note(name.join(", "));
            reports.push(execute(plan, ui, None).map_err(|failure| at(&name.join(", "), failure))?);
            if interrupt::asked() {
                break;
            }
        }
    }
    let main = rows(invocation, &points, &reports);
    let text = table::titled(&told(main.clone(), points.first().map_or(0, Vec::len)), ui.style);
    let mut json = json(invocation, &points, &reports);
    if let Some(destination) = &page.html {
        add_predictions(&mut json, invocation, &points, &reports);
        report::page(destination, &[Part::Result(&json)], ui)?;
    }
    output::deliver(ui, args, &Results { json: &json, tables: &[main], text: &text })?;
    end(reports, points.len(), ui)
}

fn plan(cli: &Cli, ui: &Ui) -> Result<Plan> {
    match &cli.command {
        Command::Train(args) => Plan::train(args, ui),
        Command::Predict(args) => Plan::predict(&args.paper, &args.record),
        _ => Err(Failure::usage("scan: only train and predict have one")),
    }
}

/// Beside what was measured, what the same run takes on paper; nothing where that cannot be said.
fn add_predictions(json: &mut Value, invocation: &Invocation, points: &[Vec<(String, String)>], reports: &[Report]) {
    let Some(results) = json["results"].as_array_mut() else { return };
    for ((result, point), report) in results.iter_mut().zip(points).zip(reports) {
        let predicted =
            args::parse_with(&invocation.words, point).ok().and_then(|cli| on_paper(&cli, &report.device.backend));
        if let Some((allocated_bytes, reserved_bytes)) = predicted {
            result["predicted"] = json!({ "peak_bytes": allocated_bytes, "reserved_bytes": reserved_bytes });
        }
    }
}

/// Allocated and reserved bytes at most, of a run that computes nothing, with memory enough.
fn on_paper(cli: &Cli, backend: &str) -> Option<(u64, u64)> {
    let Command::Train(args) = &cli.command else { return None };
    let mut paper = PaperArgs {
        model: args.model.clone(),
        training: args.training.clone(),
        gpu: None,
        allocator: args.allocator.clone(),
        profile: args.profile.clone(),
    };
    paper.profile.like.get_or_insert_with(|| match backend {
        "meta" => "native".into(),
        backend => format!("native:{backend}"),
    });
    (paper.allocator.memory_limit, paper.allocator.memory_fraction) = (None, None);
    let plan = Plan::predict(&paper, &RecordArgs::default()).ok()?.at_most(SETTLED);
    let device = plan.opening.open().ok()?;
    plan.train_on(&device).ok()?;
    let stats = device.stats();
    Some((stats.allocated_bytes.all.peak, stats.reserved_bytes.all.peak))
}

fn at(point: &str, failure: Failure) -> Failure {
    Failure { code: failure.code, error: failure.error.context(format!("at {point}")) }
}

fn end(reports: Vec<Report>, points: usize, ui: &Ui) -> Result<Code> {
    if interrupt::asked() {
        return Ok(Code::Interrupted);
    }
    let failed: Vec<Code> = reports.iter().filter_map(|report| report.outcome.as_ref().err().map(|f| f.code)).collect();
    match failed.first() {
        None => Ok(Code::Done),
        Some(code) => {
            ui.tell(format!("{} of {points} combinations ran out of memory", failed.len()));
            Ok(*code)
        }
    }
}

fn rows(invocation: &Invocation, points: &[Vec<(String, String)>], reports: &[Report]) -> Table {
    let mut columns: Vec<String> = invocation.axes.iter().map(|axis| axis.name.clone()).collect();
    let figures = ["parameters", "allocated", "reserved", "ms/step", "last loss"];
    columns.extend(figures.map(String::from));
    let rows = points.iter().zip(reports).map(|(point, report)| {
        let values = point.iter().map(|(_, value)| Cell::Text(value.clone()));
        values.chain(figures_of(report)).collect()
    });
    Table { title: "Peaks, for every combination".into(), columns, rows: rows.collect() }
}

/// Without the columns (after the first `keep`) that say nothing: the width is for the others.
fn told(mut table: Table, keep: usize) -> Table {
    let says = |table: &Table, column: usize| {
        let cells: Vec<&Cell> = table.rows.iter().filter_map(|row| row.get(column)).collect();
        let constant = table.columns[column] == "parameters" && cells.windows(2).all(|pair| pair[0] == pair[1]);
        !constant && cells.iter().any(|cell| **cell != none())
    };
    for column in (keep..table.columns.len()).rev().filter(|&column| !says(&table, column)).collect::<Vec<_>>() {
        table.columns.remove(column);
        table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
    }
    table
}

/// What is not known.
fn none() -> Cell {
    Cell::Text("–".into())
}

fn figures_of(report: &Report) -> [Cell; 5] {
    let number = |value: Option<f64>| value.map_or_else(none, Cell::Number);
    match &report.outcome {
        Ok(outcome) => [
            Cell::Count(outcome.result.parameters),
            Cell::Bytes(outcome.result.peak.allocated_bytes),
            Cell::Bytes(outcome.max_reserved()),
            number(outcome.ms_median()),
            number(outcome.result.losses.last().copied()),
        ],
        Err(failure) => {
            let wanted =
                failure.out_of_memory().map(|report| format!("no: {} more", bytes::short(report.requested_bytes)));
            [none(), Cell::Text(wanted.unwrap_or("no".into())), none(), none(), none()]
        }
    }
}

fn json(invocation: &Invocation, points: &[Vec<(String, String)>], reports: &[Report]) -> Value {
    let names: Vec<&str> = invocation.axes.iter().map(|axis| axis.name.as_str()).collect();
    let results: Vec<Value> = points
        .iter()
        .zip(reports)
        .map(|(point, report)| {
            let parameters: Map<String, Value> =
                point.iter().map(|(name, _)| (name.clone(), report.settings.get(name).cloned().into())).collect();
            json!({ "parameters": parameters, "run": report.json() })
        })
        .collect();
    json!({
        "schema": "vramlab-scan-1",
        "parameters": names,
        "interrupted": reports.len() < points.len(),
        "results": results,
    })
}
