//! `run` with `-L` and `-P`: the same experiments for every combination, a row for each claim.

use lab::claims::{self, CheckedClaim};
use lab::results::Findings;
use lab::section::{Cell, Table};
use serde_json::{Value, json};

use super::run::{self, Asked, Measured};
use super::scan;
use crate::args::{Invocation, RunArgs, axes};
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output::{self, Results};
use crate::render::table;
use crate::ui::Ui;

/// What results of such scans call themselves.
const SCHEMA: &str = "vramlab-experiment-scan-1";

/// Runs the experiments at every point.
///
/// # Errors
/// As a single run; everything that can be checked is, before the first one.
pub(super) fn run(invocation: &Invocation, args: &RunArgs, ui: &Ui) -> Result<Code> {
    if args.scan.go_on.is_some() {
        return Err(Failure::usage(
            "--continue: a scan of experiments is run as a whole; of train and predict one goes on",
        ));
    }
    if args.claims {
        return Err(Failure::usage("--claims: a scan shows the verdict on each claim at every point already"));
    }
    output::check(args.output.destinations().chain(&args.page.html))?;
    let points = axes::points(&invocation.axes);
    let mut plans = Vec::new();
    for point in &points {
        let asked = asked(args, point)?;
        let chosen = run::checked(args, &asked)?;
        plans.push((asked, chosen));
    }
    let mut done: Vec<Measured> = Vec::new();
    for ((asked, chosen), point) in plans.iter().zip(&points) {
        ui.note(named(point));
        done.push(run::measured(asked, chosen, ui)?);
        if interrupt::asked() {
            break;
        }
    }
    let verdicts = verdicts(invocation, &points, &done);
    let json = as_json(invocation, &points, &done).map_err(|error| Failure::new(Code::Usage, error))?;
    if let Some(destination) = &args.page.html {
        let all: Vec<_> = done.iter().flat_map(Measured::results).collect();
        output::Shown::of(&all).page(ui, destination)?;
    }
    let text = table::titled(&verdicts, ui.style);
    output::deliver(ui, &args.output, &Results { json: &json, tables: &[verdicts], text: &text })?;
    run::ended(done.into_iter().flat_map(|measured| measured.failures).collect())
}

/// What a point asks: sizes of experiments, and fields of a run.
fn asked(args: &RunArgs, point: &[(String, String)]) -> Result<Asked> {
    let (sizes, fields): (Vec<_>, Vec<_>) = point.iter().cloned().partition(|(name, _)| axes::is_size(name));
    let mut asked = Asked { spec: args.spec(), sizes: args.sizes() };
    for (name, value) in sizes {
        let number =
            value.parse().map_err(|_| Failure::usage(format!("scan at {name}={value}: not a whole number")))?;
        asked.sizes.insert(name, vec![number]);
    }
    asked.spec = scan::spec(&asked.spec, &fields)?;
    Ok(asked)
}

fn named(point: &[(String, String)]) -> String {
    point.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

fn claims(measured: &Measured) -> Vec<CheckedClaim> {
    let found: Vec<_> = measured.found.iter().map(|(experiment, outcome)| (experiment.name(), outcome)).collect();
    claims::checked(&found)
}

fn verdicts(invocation: &Invocation, points: &[Vec<(String, String)>], done: &[Measured]) -> Table {
    let axes = invocation.axes.iter().map(|axis| axis.name.clone());
    let columns = axes.chain(["claim", "verdict", "number"].map(String::from)).collect();
    let mut rows = Vec::new();
    for (point, measured) in points.iter().zip(done) {
        for claim in claims(measured) {
            let values = point.iter().map(|(_, value)| value.clone());
            let told = [claim.claim.to_string(), claim.verdict.name().into(), claim.number];
            rows.push(values.chain(told).map(Cell::Text).collect());
        }
    }
    Table { title: "Verdicts, for every combination".into(), columns, rows }
}

fn as_json(invocation: &Invocation, points: &[Vec<(String, String)>], done: &[Measured]) -> serde_json::Result<Value> {
    let names: Vec<&str> = invocation.axes.iter().map(|axis| axis.name.as_str()).collect();
    let mut results = Vec::new();
    for (point, measured) in points.iter().zip(done) {
        let parameters: serde_json::Map<String, Value> =
            point.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let found = measured.results();
        let experiments: Vec<Value> = found.iter().map(Findings::to_json).collect::<serde_json::Result<_>>()?;
        results.push(json!({ "parameters": parameters, "experiments": experiments }));
    }
    let interrupted = interrupt::asked() || done.iter().any(|m| m.found.iter().any(|(_, outcome)| outcome.interrupted));
    Ok(json!({
        "schema": SCHEMA,
        "parameters": names,
        "interrupted": interrupted,
        "results": results,
    }))
}
