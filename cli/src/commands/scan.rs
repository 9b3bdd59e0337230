//! `-L` and `-P`: a run for every combination, a row each.

use std::path::Path;

use lab::results::{Findings, Point, PointOnCard, Predicted, ScanResult, TrainResult};
use lab::run::{DryRunner, ParallelSpec, RunSpec};
use memcore::backend::Meta;
use serde_json::Value;

use super::outcome::{Steps, execute, out_of_memory};
use super::plan::{Plan, dry_runner};
use super::predict::prediction;
use super::workspaces::Workspaces;
use super::{profile, shard};
use crate::args::{Cli, Command, HtmlArgs, Invocation, OutputArgs, RecordArgs, ScanArgs, axes};
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use crate::ui::Ui;

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Result of a point.
struct Done {
    run: TrainResult,
    /// Exit code, if it ran out of memory.
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
        && args.save.save.is_some()
    {
        return Err(Failure::usage("--save: it belongs to one run, not to a scan"));
    }
    output::check(args.destinations().chain(&page.html))?;
    let points = axes::points(&invocation.axes);
    let earlier = earlier(invocation)?;
    let like = like_before(invocation, &earlier);
    let specs = specs(&invocation.run, &points, like.as_ref())?;
    let note = like.as_ref().and_then(|like| profile::taken_from("the scan that goes on", Some(like)));
    note.iter().for_each(|note| ui.tell(note));
    let asked = invocation.run.said();
    let args_of_scan = scan_args(&invocation.cli);
    let shard = args_of_scan
        .and_then(|scan| shard::from_scan(scan, asked, points.iter().map(|point| shard::named(point)).collect()));
    let part = args_of_scan.and_then(|scan| scan.shard);
    let (points, specs) = (shard::mine(part, points), shard::mine(part, specs));
    // All plans are made before the first run: a bad value is found before anything is done.
    let silent = ui.silenced();
    let plans = specs.iter().enumerate().map(|(i, spec)| {
        if interrupt::asked() {
            return Err(lab::Error::Interrupted.into());
        }
        // The same choices are made for each point: they are told once.
        plan(&invocation.cli, spec.clone(), if i == 0 { ui } else { &silent })
    });
    let plans: Vec<Plan> = plans.collect::<Result<_>>()?;
    let mut done: Vec<Done> = Vec::new();
    {
        let progress = Progress::new(ui, plans.len() as u64);
        for (plan, point) in plans.iter().zip(&points) {
            let name = shard::named(point);
            progress.set(done.len() as u64, name.clone());
            if let Some(point) = taken(&earlier, plan) {
                ui.note(format!("{name}: taken from the earlier result"));
                done.push(point);
                continue;
            }
            ui.note(&name);
            done.push(one(plan, ui).map_err(|failure| at(&name, failure))?);
            if interrupt::asked() {
                break;
            }
        }
    }
    let mut failed: Vec<Option<Code>> = done.iter().map(|done| done.failed).collect();
    let mut found = ScanResult { shard, ..result(invocation, &specs, done, note, page.html.is_some()) };
    on_card(invocation, &specs, &mut found, ui)?;
    for (failed, point) in failed.iter_mut().zip(&found.results) {
        let is_no = point.on_card.is_some_and(|on_card| on_card.fits == Some(false));
        *failed = failed.or(is_no.then_some(Code::Check));
    }
    tell_warnings(&found, ui);
    output::deliver_findings(ui, args, page.html.as_ref(), &found)?;
    end(&failed, ui, points.len())
}

/// Runs a point; running out of memory is a result.
fn one(plan: &Plan, ui: &Ui) -> Result<Done> {
    match execute(plan, Steps::Every, ui, None) {
        Ok(report) => Ok(Done { run: report.result, failed: report.failure.map(|failure| failure.code) }),
        Err(failure) if failure.is_too_large() => {
            let run = TrainResult {
                out_of_memory: Some(out_of_memory(&failure)),
                reason: Some("nothing was run".into()),
                ..TrainResult::from_settings(plan.session.in_force.fields())
            };
            Ok(Done { run, failed: Some(failure.code) })
        }
        Err(failure) => Err(failure),
    }
}

/// Prints each warning of any run once.
fn tell_warnings(found: &ScanResult, ui: &Ui) {
    let all = found.results.iter().flat_map(|point| &point.run.warnings);
    let different: std::collections::BTreeSet<&String> = all.collect();
    different.iter().for_each(|warning| ui.tell_after(warning));
}

/// Returns the runs of the scan that this one continues.
fn earlier(invocation: &Invocation) -> Result<Vec<TrainResult>> {
    let Some(path) = scan_args(&invocation.cli).and_then(|scan| scan.go_on.as_deref()) else { return Ok(Vec::new()) };
    read(path).map_err(|problem| Failure::usage(format!("--continue {}: {problem}", path.display())))
}

/// Returns the profile of the training runs that this scan continues, unless a flag names another one.
fn like_before(invocation: &Invocation, earlier: &[TrainResult]) -> Option<String> {
    let Command::Train(_) = &invocation.cli.command else { return None };
    let named = invocation.run.profile.like.is_some() || invocation.axes.iter().any(|axis| axis.name == "like");
    let first = earlier.first().filter(|_| !named)?;
    Some(first.settings.get("like")?.as_str()?.to_string())
}

fn scan_args(cli: &Cli) -> Option<&ScanArgs> {
    match &cli.command {
        Command::Train(args) => Some(&args.scan),
        Command::Predict(args) => Some(&args.scan),
        Command::Run(args) => Some(&args.scan),
        _ => None,
    }
}

/// Refuses `--continue` for a command that has nothing to continue.
///
/// # Errors
/// A command that is not a scan.
pub(super) fn check_alone(cli: &Cli) -> Result<()> {
    match scan_args(cli).and_then(|scan| scan.go_on.as_ref()) {
        Some(_) => Err(Failure::usage("--continue: it needs the -L and -P of the interrupted scan")),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Vec<TrainResult>, String> {
    let metadata = path.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(format!("expected a file of at most {MAX_BYTES} bytes"));
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let json: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if json["schema"] != ScanResult::SCHEMA {
        return Err(format!("schema: expected {:?}, found {}", ScanResult::SCHEMA, json["schema"]));
    }
    let found: ScanResult = serde_json::from_value(json).map_err(|error| error.to_string())?;
    Ok(found.results.into_iter().map(|point| with_profile(point.run)).collect())
}

/// Gives a run that names no profile the default of its time.
fn with_profile(mut run: TrainResult) -> TrainResult {
    run.settings.entry("like").or_insert_with(|| profile::FORMER_DEFAULT.into());
    run
}

/// Returns a finished run with the same settings. A run that ran out of memory is finished too.
fn taken(earlier: &[TrainResult], plan: &Plan) -> Option<Done> {
    let is_it = |run: &&TrainResult| {
        !run.interrupted && RunSpec::of_fields(&run.settings).is_ok_and(|spec| spec == plan.session.in_force)
    };
    let run = earlier.iter().find(is_it)?.clone();
    let code = if plan.session.target.limited() { Code::Check } else { Code::Device };
    let failed = run.out_of_memory.is_some().then_some(code);
    Some(Done { run, failed })
}

/// Returns the run of each point.
fn specs(run: &RunSpec, points: &[Vec<(String, String)>], like: Option<&String>) -> Result<Vec<RunSpec>> {
    let mut base = run.clone();
    base.profile.like = base.profile.like.or(like.cloned());
    points.iter().map(|point| spec(&base, point).and_then(on_one_device)).collect()
}

fn on_one_device(spec: RunSpec) -> Result<RunSpec> {
    if spec.parallel != ParallelSpec::default() {
        let problem = "its points are runs on one device; --devices and --data-parallel are runs on several";
        return Err(Failure::usage(format!("scan: {problem}")));
    }
    Ok(spec)
}

/// Returns the run of a point.
pub(super) fn spec(base: &RunSpec, point: &[(String, String)]) -> Result<RunSpec> {
    let values: Vec<(&str, Value)> = point.iter().map(|(name, value)| (name.as_str(), value.as_str().into())).collect();
    base.with(values.iter().map(|(name, value)| (*name, value))).map_err(|error| {
        let named: Vec<String> = point.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Failure::usage(format!("scan at {}: {error}", named.join(", ")))
    })
}

fn plan(cli: &Cli, spec: RunSpec, ui: &Ui) -> Result<Plan> {
    let (plan, page, output) = match &cli.command {
        Command::Train(args) => (Plan::train(args, spec, ui)?, &args.page, &args.output),
        Command::Predict(args) => (Plan::predict(args, &spec, ui)?, &args.page, &args.output),
        _ => return Err(Failure::usage("scan: only train and predict have one")),
    };
    Ok(if page.html.is_some() { plan } else { plan.rows_for(output) })
}

/// Makes the result. On a page, each measurement is shown with a dry run's prediction, if one can be made.
fn result(invocation: &Invocation, specs: &[RunSpec], done: Vec<Done>, note: Option<String>, page: bool) -> ScanResult {
    let names: Vec<String> = invocation.axes.iter().map(|axis| axis.name.clone()).collect();
    let interrupted = done.len() < specs.len() || done.iter().any(|done| done.run.interrupted);
    let point = |(Done { run, .. }, spec): (Done, &RunSpec)| {
        let value = |name: &String| (name.clone(), run.settings.get(name).cloned().unwrap_or_default());
        let backend = run.device.as_ref().map(|device| device.backend.clone()).unwrap_or_default();
        let predicted = (page && spec.device.backend.is_some()).then(|| predicted_on(spec, &backend)).flatten();
        Point { parameters: names.iter().map(value).collect(), predicted, run, on_card: None }
    };
    let results = done.into_iter().zip(specs).map(point).collect();
    ScanResult { results, interrupted, notes: note.into_iter().collect(), parameters: names.clone(), shard: None }
}

/// Gives each predicted point the three figures and the verdict that it has alone.
///
/// # Errors
/// A Python that cannot be asked.
fn on_card(invocation: &Invocation, specs: &[RunSpec], found: &mut ScanResult, ui: &Ui) -> Result<()> {
    let Command::Predict(args) = &invocation.cli.command else { return Ok(()) };
    let workspaces = Workspaces::new(args.workspaces.cudnn, args.dry_run.model.python.as_deref(), ui)?;
    let runner = dry_runner().with_workspaces_of(&workspaces);
    for (point, spec) in found.results.iter_mut().zip(specs) {
        point.on_card = of_point(spec, &runner, &point.run);
    }
    Ok(())
}

/// What a point takes on the card; `None` without a limit, and if its batch alone is beyond any device.
fn of_point(spec: &RunSpec, runner: &DryRunner<'_>, run: &TrainResult) -> Option<PointOnCard> {
    let mut figures = runner.figures(spec).ok()?;
    let room = figures.room.as_mut()?;
    if run.out_of_memory.is_some() {
        (room.reserved_bytes, room.surely) = (None, false);
    } else if let Some(peak) = &run.peak {
        figures.with_at_least(peak.bytes, peak.reserved_bytes);
    }
    prediction(spec, runner, &figures, None).ok().map(|found| PointOnCard::from_prediction(&found))
}

/// Predicts the peaks of allocated and reserved bytes by a dry run with enough memory.
fn predicted_on(spec: &RunSpec, backend: &str) -> Option<Predicted> {
    let mut spec = spec.endless();
    (spec.card, spec.device, spec.kernels) = <_>::default();
    // In a dry run a backend's own workspaces are selected by its name.
    if spec.profile.like.as_deref() == Some("native") && backend != Meta::NAME {
        spec.profile.like = Some(format!("native:{backend}"));
    }
    let figures = dry_runner().figures(&spec).ok()?;
    Some(Predicted { peak_bytes: figures.allocated_bytes, reserved_bytes: figures.reserved_bytes })
}

fn at(point: &str, failure: Failure) -> Failure {
    Failure { code: failure.code, error: failure.error.context(format!("at {point}")) }
}

fn end(failed: &[Option<Code>], ui: &Ui, points: usize) -> Result<Code> {
    if interrupt::asked() {
        return Ok(Code::Interrupted);
    }
    let failed: Vec<Code> = failed.iter().flatten().copied().collect();
    match failed.first() {
        None => Ok(Code::Done),
        Some(code) => {
            ui.tell(format!("{} of {points} combinations ran out of memory", failed.len()));
            Ok(*code)
        }
    }
}
