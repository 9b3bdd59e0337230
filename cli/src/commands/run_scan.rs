//! `run` with `-L` and `-P`: runs the same experiments for every combination, a row for each claim.

use lab::results::{ExperimentPoint, ExperimentScanResult};
use lab::run::RunSpec;

use super::run::{self, Asked, Measured};
use super::{scan, shard};
use crate::args::{Invocation, RunArgs, axes};
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output;
use crate::ui::Ui;

/// Runs the experiments at every point.
///
/// # Errors
/// As for a single run; all possible checks are made before the first run.
pub(super) fn run(invocation: &Invocation, args: &RunArgs, ui: &Ui) -> Result<Code> {
    if args.scan.go_on.is_some() {
        return Err(Failure::usage("--continue: only scans of train and predict can be continued"));
    }
    if args.claims {
        return Err(Failure::usage("--claims: a scan shows the verdict on each claim at every point already"));
    }
    output::check(args.output.destinations().chain(&args.page.html))?;
    let points = axes::points(&invocation.axes);
    let mut plans = Vec::new();
    for point in &points {
        let asked = asked(args, &invocation.run, point)?;
        let chosen = run::checked(args, &asked)?;
        plans.push((asked, chosen));
    }
    let asked = run::asked_of(args, &invocation.run);
    let shard = shard::from_scan(&args.scan, asked, points.iter().map(|point| shard::named(point)).collect());
    let (points, plans) = (shard::mine(args.scan.shard, points), shard::mine(args.scan.shard, plans));
    let mut done: Vec<Measured> = Vec::new();
    for ((asked, chosen), point) in plans.iter().zip(&points) {
        ui.note(shard::named(point));
        done.push(run::measured(asked, chosen, ui)?);
        if interrupt::asked() {
            break;
        }
    }
    let found = ExperimentScanResult { shard, ..result(invocation, &points, &done) };
    if let Some(destination) = &args.page.html {
        // A page shows every experiment in full.
        let all: Vec<_> = done.iter().flat_map(Measured::results).collect();
        output::Shown::from_findings(&all).page(ui, destination)?;
    }
    output::deliver_findings(ui, &args.output, None, &found)?;
    run::ended(done.into_iter().flat_map(|measured| measured.failures).collect())
}

/// Returns the request of a point: sizes of experiments, and fields of a run.
fn asked(args: &RunArgs, spec: &RunSpec, point: &[(String, String)]) -> Result<Asked> {
    let (sizes, fields): (Vec<_>, Vec<_>) = point.iter().cloned().partition(|(name, _)| axes::is_size(name));
    let mut asked = Asked { spec: spec.clone(), sizes: args.sizes() };
    for (name, value) in sizes {
        let number =
            value.parse().map_err(|_| Failure::usage(format!("scan at {name}={value}: not a whole number")))?;
        asked.sizes.insert(name, vec![number]);
    }
    asked.spec = scan::spec(&asked.spec, &fields)?;
    Ok(asked)
}

fn result(invocation: &Invocation, points: &[Vec<(String, String)>], done: &[Measured]) -> ExperimentScanResult {
    let point = |(point, measured): (&Vec<(String, String)>, &Measured)| ExperimentPoint {
        parameters: point.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect(),
        experiments: measured.results(),
    };
    let stopped = |measured: &Measured| measured.found.iter().any(|(_, outcome)| outcome.interrupted);
    ExperimentScanResult {
        parameters: invocation.axes.iter().map(|axis| axis.name.clone()).collect(),
        interrupted: interrupt::asked() || done.iter().any(stopped),
        results: points.iter().zip(done).map(point).collect(),
        shard: None,
    }
}
