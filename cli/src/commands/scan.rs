//! `-L` and `-P`: a run for every combination, a row each.

use std::path::Path;

use lab::report::Part;
use lab::run::{DeviceSpec, ParallelSpec, RunSpec, SETTLED};
use lab::section::{Cell, Table};
use serde_json::{Map, Value, json};

use super::outcome::{blank, execute, out_of_memory};
use super::plan::Plan;
use super::predict::ON_PAPER;
use super::{profile, report};
use crate::args::{Cli, Command, HtmlArgs, Invocation, OutputArgs, RecordArgs, ScanArgs, axes};
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output::{self, Results};
use crate::progress::Progress;
use crate::render::{bytes, premises, table};
use crate::ui::Ui;
use lab::results::Premise;

/// What results of scans call themselves.
const SCHEMA: &str = "vramlab-scan-1";

/// More is no result of a scan.
const MAX_BYTES: u64 = 1 << 30;

/// What a point gave.
struct Point {
    /// As `vramlab-train-1`.
    run: Value,
    /// Where it ran out of memory.
    failed: Option<Code>,
}

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
    let points = axes::points(&invocation.axes);
    let earlier = earlier(invocation)?;
    let like = like_before(invocation, &earlier);
    let specs = specs(&invocation.cli, &points, like.as_ref())?;
    let note = like.as_ref().and_then(|like| profile::taken_from("the scan that goes on", Some(like)));
    note.iter().for_each(|note| ui.tell(note));
    // All plans before the first run: a bad value is found while nothing is done.
    let silent = ui.silenced();
    let plans = specs.iter().enumerate().map(|(i, spec)| {
        if interrupt::asked() {
            return Err(lab::Error::Interrupted.into());
        }
        // The same choices are made for each point: told once.
        plan(&invocation.cli, spec.clone(), if i == 0 { ui } else { &silent })
    });
    let plans: Vec<Plan> = plans.collect::<Result<_>>()?;
    let mut done: Vec<Point> = Vec::new();
    {
        let progress = Progress::new(ui, plans.len() as u64);
        for (plan, point) in plans.iter().zip(&points) {
            let name: Vec<String> = point.iter().map(|(name, value)| format!("{name} {value}")).collect();
            progress.set(done.len() as u64, name.join(", "));
            if let Some(point) = taken(&earlier, plan) {
                ui.note(format!("{}: taken from the earlier result", name.join(", ")));
                done.push(point);
                continue;
            }
            ui.note(name.join(", "));
            done.push(one(plan, ui).map_err(|failure| at(&name.join(", "), failure))?);
            if interrupt::asked() {
                break;
            }
        }
    }
    let main = rows(invocation, &points, &done);
    let text = table::titled(&told(main.clone(), points.first().map_or(0, Vec::len)), ui.style);
    let text = format!("{text}{}", of_all(&plans));
    let mut json = json(invocation, &points, &done);
    json["notes"] = json!(note.iter().collect::<Vec<_>>());
    if let Some(destination) = &page.html {
        add_predictions(&mut json, &specs);
        report::page(destination, &[Part::Result(&json)], ui)?;
    }
    tell_warnings(&done, ui);
    output::deliver(ui, args, &Results { json: &json, tables: &[main], text: &text })?;
    end(&done, ui, points.len())
}

/// What the answers of all points rest on; nothing where they have nothing in common.
fn of_all(plans: &[Plan]) -> String {
    let first = plans.first().map(|plan| plan.session.premises.as_slice()).unwrap_or_default();
    let in_all = |premise: &&Premise| plans.iter().all(|plan| plan.session.premises.contains(premise));
    let shared: Vec<Premise> = first.iter().filter(in_all).cloned().collect();
    if shared.is_empty() { String::new() } else { format!("{}\n", premises::line(&shared)) }
}

/// A point; one without memory enough is one too.
fn one(plan: &Plan, ui: &Ui) -> Result<Point> {
    match execute(plan, ui, None) {
        Ok(report) => Ok(Point { run: report.json(), failed: report.outcome.err().map(|failure| failure.code) }),
        Err(failure) if failure.is_too_large() => {
            let mut run = blank();
            run["settings"] = Value::Object(plan.session.in_force.fields());
            run["out_of_memory"] = out_of_memory(&failure);
            run["reason"] = "nothing was run".into();
            Ok(Point { run, failed: Some(failure.code) })
        }
        Err(failure) => Err(failure),
    }
}

/// Each warning of any run, once.
fn tell_warnings(done: &[Point], ui: &Ui) {
    let all = done.iter().filter_map(|point| point.run["warnings"].as_array()).flatten().filter_map(Value::as_str);
    let different: std::collections::BTreeSet<&str> = all.collect();
    different.iter().for_each(|warning| ui.tell(warning));
}

/// The results of the scan that this one goes on with.
fn earlier(invocation: &Invocation) -> Result<Vec<Value>> {
    let Some(path) = scan_args(&invocation.cli).and_then(|scan| scan.go_on.as_deref()) else { return Ok(Vec::new()) };
    read(path).map_err(|problem| Failure::usage(format!("--continue {}: {problem}", path.display())))
}

/// The profile of the training runs that this scan goes on with: its own, unless a flag names another one.
fn like_before(invocation: &Invocation, earlier: &[Value]) -> Option<String> {
    let Command::Train(args) = &invocation.cli.command else { return None };
    let named = args.profile.like.is_some() || invocation.axes.iter().any(|axis| axis.name == "like");
    let first = earlier.first().filter(|_| !named)?;
    Some(first["settings"]["like"].as_str()?.to_string())
}

fn scan_args(cli: &Cli) -> Option<&ScanArgs> {
    match &cli.command {
        Command::Train(args) => Some(&args.scan),
        Command::Predict(args) => Some(&args.scan),
        Command::Run(args) => Some(&args.scan),
        _ => None,
    }
}

/// Refuses `--continue` where there is nothing to go on with.
///
/// # Errors
/// A command that is no scan.
pub(super) fn check_alone(cli: &Cli) -> Result<()> {
    match scan_args(cli).and_then(|scan| scan.go_on.as_ref()) {
        Some(_) => Err(Failure::usage("--continue: only a scan goes on, with the same -L and -P as before")),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Vec<Value>, String> {
    let metadata = path.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(format!("expected a file of at most {MAX_BYTES} bytes"));
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let mut json: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if json["schema"] != SCHEMA {
        return Err(format!("schema: expected {SCHEMA:?}, found {}", json["schema"]));
    }
    match json["results"].take() {
        Value::Array(results) => results.into_iter().enumerate().map(|(i, result)| run_of(i, result)).collect(),
        other => Err(format!("results: expected a list, found {other}")),
    }
}

/// The run of the `i`-th result. One that names no profile has the default of its time.
fn run_of(i: usize, mut result: Value) -> Result<Value, String> {
    match result.get_mut("run").map(Value::take) {
        Some(Value::Object(mut run)) => {
            if let Some(Value::Object(settings)) = run.get_mut("settings") {
                settings.entry("like").or_insert_with(|| profile::FORMER_DEFAULT.into());
            }
            Ok(Value::Object(run))
        }
        _ => Err(format!("results[{i}]: expected an object with the object \"run\"")),
    }
}

/// A finished run with these very settings. A run without memory enough is finished too.
fn taken(earlier: &[Value], plan: &Plan) -> Option<Point> {
    let settings = |run: &Value| RunSpec::of_fields(run["settings"].as_object()?).ok();
    let is_it = |run: &&Value| run["interrupted"] == false && settings(run).as_ref() == Some(&plan.session.in_force);
    let run = earlier.iter().find(is_it)?.clone();
    let code = if plan.session.target.limited() { Code::Check } else { Code::Device };
    let failed = (!run["out_of_memory"].is_null()).then_some(code);
    Some(Point { run, failed })
}

/// The run of each point.
fn specs(cli: &Cli, points: &[Vec<(String, String)>], like: Option<&String>) -> Result<Vec<RunSpec>> {
    let mut base = match &cli.command {
        Command::Train(args) => args.spec(),
        Command::Predict(args) => args.spec(),
        _ => return Err(Failure::usage("scan: only train and predict have one")),
    };
    base.profile.like = base.profile.like.or(like.cloned());
    points.iter().map(|point| spec(&base, point)).collect()
}

/// The run of a point.
pub(super) fn spec(base: &RunSpec, point: &[(String, String)]) -> Result<RunSpec> {
    let values: Vec<(&str, Value)> = point.iter().map(|(name, value)| (name.as_str(), value.as_str().into())).collect();
    let spec = base.with(values.iter().map(|(name, value)| (*name, value))).map_err(|error| {
        let named: Vec<String> = point.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Failure::usage(format!("scan at {}: {error}", named.join(", ")))
    })?;
    if spec.parallel != ParallelSpec::default() {
        let problem = "its points are runs on one device; --devices and --data-parallel are runs on several";
        return Err(Failure::usage(format!("scan: {problem}")));
    }
    Ok(spec)
}

fn plan(cli: &Cli, spec: RunSpec, ui: &Ui) -> Result<Plan> {
    let (plan, page, output) = match &cli.command {
        Command::Train(args) => (Plan::train(args, spec, ui)?, &args.page, &args.output),
        Command::Predict(args) => (Plan::predict(args, &spec, ui)?, &args.page, &args.output),
        _ => return Err(Failure::usage("scan: only train and predict have one")),
    };
    Ok(if page.html.is_some() { plan } else { plan.rows_for(output) })
}

/// Beside what was measured, what the same run takes on paper; nothing where that cannot be said.
fn add_predictions(json: &mut Value, specs: &[RunSpec]) {
    let Some(results) = json["results"].as_array_mut() else { return };
    for (result, spec) in results.iter_mut().zip(specs).filter(|(_, spec)| spec.device.backend.is_some()) {
        let backend = result["run"]["device"]["backend"].as_str().unwrap_or_default();
        if let Some((allocated_bytes, reserved_bytes)) = on_paper(spec, backend) {
            result["predicted"] = json!({ "peak_bytes": allocated_bytes, "reserved_bytes": reserved_bytes });
        }
    }
}

/// Allocated and reserved bytes at most, of a run that computes nothing, with memory enough.
fn on_paper(spec: &RunSpec, backend: &str) -> Option<(u64, u64)> {
    let mut spec = spec.endless();
    spec.device = DeviceSpec::default();
    // On paper a backend's own workspaces are asked for by its name.
    if spec.profile.like.as_deref() == Some("native") && backend != "meta" {
        spec.profile.like = Some(format!("native:{backend}"));
    }
    let session = ON_PAPER.session(&spec).ok()?.at_most(SETTLED);
    let device = session.target.open().ok()?;
    ON_PAPER.train(&session, &device).ok()?;
    let stats = device.stats();
    Some((stats.allocated_bytes.all.peak, stats.reserved_bytes.all.peak))
}

fn at(point: &str, failure: Failure) -> Failure {
    Failure { code: failure.code, error: failure.error.context(format!("at {point}")) }
}

fn end(done: &[Point], ui: &Ui, points: usize) -> Result<Code> {
    if interrupt::asked() {
        return Ok(Code::Interrupted);
    }
    let failed: Vec<Code> = done.iter().filter_map(|point| point.failed).collect();
    match failed.first() {
        None => Ok(Code::Done),
        Some(code) => {
            ui.tell(format!("{} of {points} combinations ran out of memory", failed.len()));
            Ok(*code)
        }
    }
}

fn rows(invocation: &Invocation, points: &[Vec<(String, String)>], done: &[Point]) -> Table {
    let mut columns: Vec<String> = invocation.axes.iter().map(|axis| axis.name.clone()).collect();
    let figures = ["parameters", "allocated", "reserved", "fits", "ms/step", "last loss"];
    columns.extend(figures.map(String::from));
    let rows = points.iter().zip(done).map(|(point, done)| {
        let values = point.iter().map(|(_, value)| Cell::Text(value.clone()));
        values.chain(figures_of(&done.run)).collect()
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

fn figures_of(run: &Value) -> [Cell; 6] {
    let count = |value: &Value, cell: fn(u64) -> Cell| value.as_u64().map_or_else(none, cell);
    let number = |value: Option<f64>| value.map_or_else(none, Cell::Number);
    if !run["out_of_memory"].is_null() {
        let missing = bytes::lacking(run["out_of_memory"]["missing_bytes"].as_u64());
        return [none(), none(), none(), Cell::Text(missing), none(), none()];
    }
    // Without a limit there is nothing to fit into.
    let limits = ["gpu", "memory-limit", "memory-fraction"];
    let limited = limits.iter().any(|name| run["settings"].get(name).is_some_and(|value| !value.is_null()));
    let fits = if limited { Cell::Text("yes".into()) } else { none() };
    let last_loss = run["losses"].as_array().and_then(|losses| losses.last()?.as_f64());
    [
        count(&run["parameters"], Cell::Count),
        count(&run["peak"]["bytes"], Cell::Bytes),
        count(&run["peak"]["reserved_bytes"], Cell::Bytes),
        fits,
        number(run["ms_per_step_median"].as_f64()),
        number(last_loss),
    ]
}

fn json(invocation: &Invocation, points: &[Vec<(String, String)>], done: &[Point]) -> Value {
    let names: Vec<&str> = invocation.axes.iter().map(|axis| axis.name.as_str()).collect();
    let results: Vec<Value> = points
        .iter()
        .zip(done)
        .map(|(point, Point { run, .. })| {
            let parameters: Map<String, Value> =
                point.iter().map(|(name, _)| (name.clone(), run["settings"].get(name).cloned().into())).collect();
            json!({ "parameters": parameters, "run": run })
        })
        .collect();
    json!({
        "schema": SCHEMA,
        "parameters": names,
        "interrupted": done.len() < points.len() || done.iter().any(|point| point.run["interrupted"] == true),
        "results": results,
    })
}
