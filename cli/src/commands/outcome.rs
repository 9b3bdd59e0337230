//! One run, done: what it gave, with names instead of numbers.

use std::ops::ControlFlow;

use lab::figures::median;
use lab::forensics::{Leak, Watch};
use lab::peaks::{LocalPeak, local_peaks};
use lab::record::{Account, COLUMNS, Row};
use lab::report::{Recording, op_name};
use lab::results::DeviceInfo;
use lab::run::{SETTLED, Session};
use lab::snapshot::{Document, record};
use lab::training::{Accuracy, Failed, Partial, Progress as Step, RunResult, TrainingState};
use memcore::memory::{CategoryBytes, Origin, OutOfMemory, PeakComposition, ScopeId, Snapshot as Segments};
use memcore::{Deviations, Device};
use serde_json::{Map, Value, json};

use super::plan::Plan;
use super::{events, warnings, weights};
use crate::account::{by_category, rings};
use crate::exit::{Failure, Result};
use crate::progress::Progress;
use crate::status::Publisher;
use crate::ui::Ui;
use crate::{interrupt, render};
use lab::results::Premise;

/// Who made an allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Maker {
    /// The operator, with the autograd node that it ran in: `AddmmBackward0>mm`.
    pub op: String,
    /// The module's path; empty outside of any.
    pub scope: String,
    /// The phase of the step.
    pub phase: String,
}

/// What a finished run gave.
pub(crate) struct Outcome {
    /// The figures.
    pub result: RunResult,
    /// Who made the allocation that reached the peak.
    pub maker: Maker,
    /// The scopes that held most at the peak, most first.
    pub scopes: Vec<(String, CategoryBytes)>,
    /// The peak and the next moments below it; empty unless the events were kept.
    pub summits: Vec<LocalPeak>,
}

/// A run and what came of it.
pub(crate) struct Report {
    /// The device that it ran on.
    pub device: DeviceInfo,
    /// What the network is called.
    pub model: String,
    /// What it is.
    pub description: String,
    /// What the answer rests on, and where that came from.
    pub premises: Vec<Premise>,
    /// The settings in force.
    pub settings: Map<String, Value>,
    /// Its figures, or the failure for lack of memory.
    pub outcome: Result<Outcome, Failure>,
    /// What a run that failed had measured.
    pub partial: Partial,
    /// The peak of a run that failed, as in the results of one that did not.
    failed_peak: Value,
    /// PyTorch's table, if asked for: after the last step.
    pub summary: Option<String>,
    /// PyTorch's counters, if asked for: after the last step.
    pub stats: Option<Vec<(String, i64)>>,
    /// Memory that grew from step to step, and who holds it.
    pub leak: Option<Leak>,
    /// What was told before the run.
    pub of_file: Vec<String>,
    /// What was done otherwise than the program that the run stands for would.
    pub departures: Deviations,
    /// Every event, if asked for.
    pub events: Option<Value>,
    /// The run as PyTorch's snapshot, if asked for.
    pub snapshot: Option<Document>,
    /// The same for pages and exports, if asked for.
    pub recording: Option<Recording>,
    /// Weights and state after the last step, if asked for.
    pub saved: Option<TrainingState>,
}

/// How many scopes are named.
const TOP_SCOPES: usize = 6;

/// How many moments are named.
const TOP_SUMMITS: usize = 5;

/// What is looked at after each step.
struct Seen<'a> {
    plan: &'a Plan,
    device: &'a Device,
    index: usize,
    summary: Option<String>,
    stats: Option<Vec<(String, i64)>>,
    /// The segments after the last step, and how many events there were by then.
    last: Option<(Segments, usize)>,
    watch: Watch,
    publisher: Publisher,
}

impl<'a> Seen<'a> {
    fn new(plan: &'a Plan, device: &'a Device, info: &DeviceInfo) -> Self {
        let publisher = Publisher::new(plan.session.name(), info);
        let (index, watch) = (info.index, Watch::new(device));
        Self { plan, device, index, summary: None, stats: None, last: None, watch, publisher }
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.figures();
        self.watch.step();
        let flow = interrupt::flow();
        if step.done == step.steps || flow.is_break() {
            self.watch.look();
            // The run's values go when it ends: what it holds is what it holds after its last step.
            let wanted = self.plan.snapshot.is_some();
            self.last = wanted.then(|| (self.device.snapshot(), events_so_far(self.device)));
        }
        self.publisher.step(self.device, step, self.watch.leak());
        flow
    }

    fn figures(&mut self) {
        if self.plan.summary {
            self.summary = Some(memory_summary(self.device, self.index));
        }
        if self.plan.stats {
            self.stats = Some(self.device.stats().flatten());
        }
    }

    /// A run without a step is looked at too.
    fn end(mut self) -> Self {
        if self.summary.is_none() && self.stats.is_none() {
            self.figures();
        }
        self
    }
}

/// Runs a plan on a fresh device.
///
/// # Errors
/// All but running out of memory in the run itself, which is part of the report.
pub(super) fn execute(plan: &Plan, ui: &Ui, progress: Option<&Progress>) -> Result<Report> {
    plan.session.warnings().iter().for_each(|warning| ui.tell(warning));
    let session = &plan.session;
    let target = &session.target;
    let device = target.open()?;
    session.check_size(&device, &interrupt::asked).map_err(|error| Failure::from(error).limited(target.limited()))?;
    let info = target.describe(&device);
    let mut seen = Seen::new(plan, &device, &info);
    let mut finished = 0;
    let on_step = &mut |step: Step| -> ControlFlow<()> {
        finished = step.done;
        if let Some(progress) = progress {
            progress.set(step.done as u64, step.loss.map_or(String::new(), |loss| format!("loss {loss:.4}")));
        }
        seen.step(&step)
    };
    let (result, saved) =
        weights::train(&plan.weights, |continuation| session.train_from(&device, continuation, on_step))?;
    let Seen { summary, stats, last, watch, .. } = seen.end();
    let (outcome, partial, failed_peak) = match result {
        Ok(result) => (Ok(name(result, &device)), Partial::default(), Value::Null),
        Err(Failed { error, partial }) => {
            let failure = Failure::from(error).limited(target.limited());
            if !failure.is_out_of_memory() {
                return Err(failure);
            }
            let peak = failed_peak(&device, &partial.rows);
            (Err(judged(failure, session, finished)), *partial, peak)
        }
    };
    let rows = outcome.as_ref().map_or(&partial.rows, |outcome| &outcome.result.rows);
    let events = plan.events.as_ref().map(|_| {
        let mut recording = device.with_ledger(events::recording);
        recording["device"] = json!(info);
        recording["capacity"] = json!(device.memory_info().map(|memory| memory.total_bytes));
        let allocator = &session.in_force.allocator;
        recording["alloc_conf"] = json!(allocator.alloc_conf);
        recording["memory_fraction"] = json!(allocator.memory_fraction);
        recording["step_columns"] = json!(COLUMNS);
        recording["steps"] = json!(rows);
        recording
    });
    let snapshot = plan.snapshot.as_ref().map(|_| {
        let finished = last.filter(|_| outcome.is_ok());
        snapshot(&device, plan, finished.unwrap_or_else(|| (device.snapshot(), events_so_far(&device))))
    });
    let recorded = plan.page.html.is_some() || plan.exports.any();
    let recording = recorded.then(|| device.with_ledger(|ledger| Recording::of_ledger(session.name(), ledger)));
    ui.note(format!("{} after {} events", info.name, device.usage().n_alloc() + device.usage().n_free()));
    let (model, description) = (session.name().to_string(), session.description());
    let (settings, leak) = (session.in_force.fields(), watch.leak().cloned());
    let departures = device.deviations();
    let device = info;
    Ok(Report {
        device,
        of_file: session.warnings(),
        departures,
        model,
        description,
        premises: session.premises.clone(),
        settings,
        outcome,
        partial,
        failed_peak,
        summary,
        stats,
        leak,
        events,
        snapshot,
        recording,
        saved,
    })
}

/// The failure of a run after so many steps, judged by what the same run takes with memory enough.
fn judged(failure: Failure, session: &Session, finished: usize) -> Failure {
    match session.needs(SETTLED.max(finished + 1), &interrupt::asked) {
        Ok(needs) => failure.judged_by(needs),
        Err(_) => failure,
    }
}

/// The run as PyTorch would have written it.
fn snapshot(device: &Device, plan: &Plan, (segments, events): (Segments, usize)) -> Document {
    let recording = lab::snapshot::Recording {
        segments,
        events,
        capacity_bytes: device.memory_info().map(|memory| memory.total_bytes),
        config: plan.session.target.caching(),
    };
    device.with_ledger(|ledger| record(ledger, &recording))
}

fn events_so_far(device: &Device) -> usize {
    device.with_ledger(|ledger| ledger.history().len())
}

fn memory_summary(device: &Device, index: usize) -> String {
    memcore::memory::caching::memory_summary(&device.stats(), index, false)
}

fn name(result: RunResult, device: &Device) -> Outcome {
    let (maker, scopes) = makers(&result.peak, device);
    let summits = device.with_ledger(|ledger| local_peaks(ledger, TOP_SUMMITS));
    Outcome { result, maker, scopes, summits }
}

/// Who made the allocation that reached a peak, and the scopes that held most then, most first.
fn makers(peak: &PeakComposition, device: &Device) -> (Maker, Vec<(String, CategoryBytes)>) {
    device.with_ledger(|ledger| {
        let Origin { scope, phase, .. } = peak.origin;
        let maker = Maker {
            op: op_name(&peak.origin, false),
            scope: ledger.scope_path(scope).to_string(),
            phase: ledger.phase_name(phase).to_string(),
        };
        let held = |bytes: &CategoryBytes| bytes.iter().sum::<u64>();
        let rows = peak.by_scope.iter().enumerate().filter(|(_, bytes)| held(bytes) > 0);
        let mut scopes: Vec<(String, CategoryBytes)> =
            rows.map(|(id, bytes)| (ledger.scope_path(ScopeId(id as u32)).to_string(), *bytes)).collect();
        scopes.sort_by(|a, b| held(&b.1).cmp(&held(&a.1)).then_with(|| a.0.cmp(&b.0)));
        scopes.truncate(TOP_SCOPES);
        (maker, scopes)
    })
}

/// The peak of a run that ran out of memory. The device's ledger still knows it; of rows, those until then.
fn failed_peak(device: &Device, rows: &[Row]) -> Value {
    let peak = device.usage().at_peak();
    let (maker, scopes) = makers(&peak, device);
    let label = peak_label(rows).filter(|_| rows.iter().any(|row| row.max_allocated == peak.allocated_bytes));
    peak_json(&peak, label, (&maker, &scopes), device.stats().reserved_bytes.all.peak)
}

fn peak_json(
    peak: &PeakComposition,
    label: Option<&str>,
    (maker, scopes): (&Maker, &[(String, CategoryBytes)]),
    reserved_bytes: u64,
) -> Value {
    json!({
        "bytes": peak.allocated_bytes,
        "label": label,
        "op": maker.op,
        "scope": maker.scope,
        "phase": maker.phase,
        "requested_bytes": peak.requested_bytes,
        "reserved_bytes": reserved_bytes,
        "by_category": by_category(&peak.by_category),
        "by_scope": scopes.iter()
            .map(|(path, bytes)| json!({ "scope": path, "by_category": by_category(bytes) }))
            .collect::<Vec<_>>(),
    })
}

/// The row in which the peak was reached.
fn peak_label(rows: &[Row]) -> Option<&str> {
    let peak = rows.iter().map(|row| row.max_allocated).max()?;
    rows.iter().find(|row| row.max_allocated == peak).map(|row| row.label.as_str())
}

impl Outcome {
    /// The row in which the peak was reached.
    pub(crate) fn peak_label(&self) -> Option<&str> {
        peak_label(&self.result.rows)
    }

    /// The most that was reserved.
    pub(crate) fn max_reserved(&self) -> u64 {
        self.result.rows.iter().map(|row| row.max_reserved).max().unwrap_or(0)
    }

    /// The middle one of the times of the steps.
    pub(crate) fn ms_median(&self) -> Option<f64> {
        median(&self.result.ms_per_step)
    }
}

impl Report {
    /// As `vramlab-train-1`. What a device without values cannot give is null, with the reason.
    pub(crate) fn json(&self) -> Value {
        let mut json = blank();
        json["settings"] = Value::Object(self.settings.clone());
        json["description"] = json!(self.description);
        json["device"] = json!(self.device);
        json["premises"] = json!(self.premises);
        json["leak"] = json!(self.leak);
        json["warnings"] = json!(warnings::all(&self.of_file, self.departures));
        if let Some(stats) = &self.stats {
            json["memory_stats"] = stats.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect();
        }
        json["reason"] = json!(self.reason());
        match &self.outcome {
            Ok(outcome) => self.fill(&mut json, outcome),
            Err(failure) => {
                json["out_of_memory"] = out_of_memory(failure);
                json["peak"] = self.failed_peak.clone();
                if let Some(report) = failure.out_of_memory() {
                    json["by_category"] = by_category(&report.by_category);
                    json["rings"] = rings(&report.rings);
                }
                json["steps"] = json!(self.partial.rows);
                if self.device.computes {
                    json["losses"] = json!(self.partial.losses);
                    json["ms_per_step"] = json!(self.partial.ms_per_step);
                }
            }
        }
        json
    }

    /// Why there is something that the run does not say.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match &self.outcome {
            _ if !self.device.computes => {
                Some("meta accounts for memory and computes nothing: there are no values and no times")
            }
            Err(_) => Some("memory ran out before the end"),
            Ok(outcome) if outcome.result.ms_per_step.is_empty() => Some("no step was finished"),
            Ok(outcome) if outcome.result.losses.is_empty() => Some("no step has a loss"),
            Ok(_) => None,
        }
    }

    /// The rows, up to where the run ended.
    pub(crate) fn rows(&self) -> &[Row] {
        self.outcome.as_ref().map_or(&self.partial.rows, |outcome| &outcome.result.rows)
    }

    /// How many rows of a long run are not kept.
    pub(crate) fn rows_left_out(&self) -> usize {
        self.outcome.as_ref().map_or(self.partial.rows_left_out, |outcome| outcome.result.rows_left_out)
    }

    fn fill(&self, json: &mut Value, outcome: &Outcome) {
        let result = &outcome.result;
        json["steps"] = json!(result.rows);
        let makers = (&outcome.maker, &outcome.scopes[..]);
        json["peak"] = peak_json(&result.peak, outcome.peak_label(), makers, outcome.max_reserved());
        json["by_category"] = by_category(result.usage.by_category());
        json["rings"] = rings(&result.rings);
        json["overheads"] = overheads(result);
        json["parameters"] = result.parameters.into();
        json["interrupted"] = result.interrupted.into();
        if self.device.computes {
            json["losses"] = json!(result.losses);
            json["ms_per_step"] = json!(result.ms_per_step);
            json["ms_per_step_median"] = json!(outcome.ms_median());
            json["accuracy"] = accuracy(result.accuracy);
        }
    }
}

/// What of the test examples is classified right.
pub(super) fn accuracy(accuracy: Option<Accuracy>) -> Value {
    json!(accuracy.map(|a| json!({ "right": a.right, "of": a.of, "share": a.share() })))
}

/// A `vramlab-train-1` of which nothing is known yet.
pub(super) fn blank() -> Value {
    json!({
        "schema": "vramlab-train-1",
        "settings": null,
        "description": null,
        "premises": [],
        "device": null,
        "step_columns": COLUMNS,
        "steps": [],
        "peak": null,
        "by_category": null,
        "rings": null,
        "overheads": null,
        "losses": null,
        "ms_per_step_median": null,
        "ms_per_step": null,
        "accuracy": null,
        "parameters": null,
        "interrupted": false,
        "reason": null,
        "out_of_memory": null,
        "leak": null,
        "warnings": [],
    })
}

/// One of several devices: what its ledger says, added to what else is known of it.
pub(super) fn with_account(mut known: Value, account: &Account, rows: &[Row]) -> Value {
    let peak = &account.peak;
    known["peak"] = json!({
        "bytes": peak.allocated_bytes,
        "requested_bytes": peak.requested_bytes,
        "reserved_bytes": account.reserved_peak,
        "by_category": by_category(&peak.by_category),
    });
    known["by_category"] = by_category(&account.by_category);
    known["rings"] = rings(&account.rings);
    known["steps"] = json!(rows);
    known
}

/// What the driver's figure holds besides segments, and what of it nothing explains; null where the backend measures nothing.
fn overheads(result: &RunResult) -> Value {
    let unexplained = result.rings.unexplained_bytes(&result.overheads).filter(|_| !result.overheads.is_empty());
    unexplained.map_or(Value::Null, |unexplained_bytes| {
        let parts = result.overheads.iter().map(|part| json!({ "name": part.name, "bytes": part.bytes }));
        json!({ "parts": parts.collect::<Vec<_>>(), "unexplained_bytes": unexplained_bytes })
    })
}

/// Why a run ended for lack of memory, and what is missing.
pub(super) fn out_of_memory(failure: &Failure) -> Value {
    let missing_bytes = failure.missing_bytes();
    let Some(report) = failure.out_of_memory() else {
        return json!({ "message": failure.error.to_string(), "missing_bytes": missing_bytes });
    };
    let OutOfMemory { requested_bytes, block_bytes, segment_bytes, free_bytes, total_bytes, allowed_bytes, .. } =
        report;
    json!({
        "message": render::oom::text(report),
        "verdict": report.verdict.to_string(),
        "needs": report.needs.map(|needs| json!({
            "allocated_bytes": needs.allocated_bytes,
            "reserved_bytes": needs.reserved_bytes,
        })),
        "missing_bytes": missing_bytes,
        "requested_bytes": requested_bytes,
        "block_bytes": block_bytes,
        "segment_bytes": segment_bytes,
        "free_bytes": free_bytes,
        "total_bytes": total_bytes,
        "allowed_bytes": allowed_bytes,
        "released_bytes": report.released_bytes,
        "largest_fit_bytes": report.largest_fit_bytes,
        "rings": rings(&report.rings),
        "by_category": by_category(&report.by_category),
        "top_scopes": report.top_scopes.iter()
            .map(|(path, bytes)| json!({ "scope": path, "bytes": bytes }))
            .collect::<Vec<_>>(),
    })
}
