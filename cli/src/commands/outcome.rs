//! Runs one plan, and collects its result and the other outputs requested.

use std::ops::ControlFlow;

use lab::forensics::Watch;
use lab::peaks::{LocalPeak, local_peaks};
use lab::record::COLUMNS;
use lab::report::Recording;
use lab::results::{DeviceInfo, OutOfMemoryResult, TrainResult};
use lab::run::{MadeRun, Session};
use lab::snapshot::{Document, record};
use lab::training::{Failed, Progress as Step, TrainingState};
use memcore::memory::{Needs, Snapshot as Segments};
use memcore::{Deviations, Device};
use serde_json::{Value, json};

use super::plan::Plan;
use super::{events, warnings, weights};
use crate::exit::{Failure, Result};
use crate::interrupt;
use crate::progress::Progress;
use crate::render::{View, oom};
use crate::status::Publisher;
use crate::ui::Ui;

/// Number of moments below the peak that are named.
const TOP_PEAKS: usize = 5;

/// A run's results.
pub(crate) struct Report {
    /// Figures of the run; if it ran out of memory, those until then.
    pub result: TrainResult,
    /// Failure for lack of memory.
    pub failure: Option<Failure>,
    /// Peak and the highest moments below it; `None` for a run that failed, or whose events were not kept.
    pub peaks: Option<Vec<LocalPeak>>,
    /// Deviations from the program that the run stands for.
    pub deviations: Deviations,
    /// PyTorch's table after the last step, if requested.
    pub summary: Option<String>,
    /// Every event, if requested.
    pub events: Option<Value>,
    /// The run as PyTorch's snapshot, if requested.
    pub snapshot: Option<Document>,
    /// Every event for exports and pages, if requested.
    pub recording: Option<Recording>,
    /// Recording that a page draws for a run that ran out of memory: the same run with enough memory.
    pub drawn: Option<Recording>,
    /// Weights and state after the last step, if requested.
    pub saved: Option<TrainingState>,
    /// Its requests, for those who ask what further steps take.
    pub made: Option<MadeRun>,
}

/// Which steps of a run are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Steps {
    /// All of them.
    Every,
    /// The first, of which a dry run shows what the others take ([`Session::train_first`]).
    First,
}

/// Observer of each step.
struct Seen<'a> {
    plan: &'a Plan,
    device: &'a Device,
    index: usize,
    summary: Option<String>,
    stats: Option<Vec<(String, i64)>>,
    /// Segments after the last step, and the number of events at that time.
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
            // The run's values are freed when it ends: a snapshot shows the memory after the last step.
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

    /// Takes the observation also for a run without a step.
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
/// All except running out of memory in the run itself, which is part of the report.
pub(super) fn execute(plan: &Plan, steps: Steps, ui: &Ui, progress: Option<&Progress>) -> Result<Report> {
    let session = &plan.session;
    warnings::tell_first(&session.warnings(), session.in_force.is_on_paper(), ui);
    let device = match steps {
        Steps::First => session.target.clone().history(true).open()?,
        Steps::Every => session.target.open()?,
    };
    let limited = |error: lab::Error| Failure::from(error).limited(session.target.limited());
    session.check_size(&device, &interrupt::asked).map_err(limited)?;
    let info = session.target.describe(&device);
    let mut seen = Seen::new(plan, &device, &info);
    let mut finished = 0;
    let on_step = &mut |step: Step| -> ControlFlow<()> {
        finished = step.done;
        if let Some(progress) = progress {
            progress.set(step.done as u64, step.loss.map_or(String::new(), |loss| format!("loss {loss:.4}")));
        }
        seen.step(&step)
    };
    let ((trained, made), saved) = weights::train(&plan.weights, |continuation| match steps {
        Steps::First => session.train_first(&device, continuation, on_step),
        Steps::Every => (session.train_from(&device, continuation, on_step), None),
    })?;
    let Seen { summary, stats, last, watch, .. } = seen.end();
    ui.note(format!("{} after {} events", info.name, device.usage().n_alloc() + device.usage().n_free()));
    let result = described(session, info);
    let (result, failure) = match trained {
        Ok(run) => (result.finished(run, &device), None),
        Err(Failed { error, partial }) => {
            let failure = limited(error);
            if !failure.is_out_of_memory() {
                return Err(failure);
            }
            let failure = judged(failure, session.needs(finished + 1, &interrupt::asked));
            (result.failed(*partial, out_of_memory(&failure), &device), Some(failure))
        }
    };
    let deviations = device.deviations();
    let stats = stats.map(|stats| stats.into_iter().map(|(name, value)| (name, Value::from(value))).collect());
    let warnings = warnings::all(&session.warnings(), deviations);
    let result = TrainResult { leak: watch.leak().cloned(), memory_stats: stats, warnings, ..result };
    let events = plan.events.as_ref().map(|_| recorded(session, &result, &device));
    let snapshot = plan.snapshot.as_ref().map(|_| {
        let finished = last.filter(|_| failure.is_none());
        snapshot(&device, plan, finished.unwrap_or_else(|| (device.snapshot(), events_so_far(&device))))
    });
    let kept = plan.page.html.is_some() || plan.exports.any();
    let recording = kept.then(|| history(session, &device));
    let enough = || session.drawn_with_memory_enough(finished + 1, &interrupt::asked).ok();
    let drawn = (failure.is_some() && plan.page.html.is_some()).then(enough).flatten();
    let peaks = failure.is_none().then(|| match steps {
        Steps::First => Vec::new(),
        Steps::Every => device.with_ledger(|ledger| local_peaks(ledger, TOP_PEAKS)),
    });
    Ok(Report { made, result, failure, peaks, deviations, summary, events, snapshot, recording, drawn, saved })
}

/// Returns the parts of a result that are known before the run begins.
pub(super) fn described(session: &Session, device: DeviceInfo) -> TrainResult {
    TrainResult {
        description: Some(session.description()),
        premises: session.premises.clone(),
        device: Some(device),
        ..TrainResult::from_settings(session.in_force.fields())
    }
}

/// Judges the failure of a run by the needs of the same run with enough memory.
fn judged(failure: Failure, needs: lab::Result<Needs>) -> Failure {
    match needs {
        Ok(needs) => failure.judged_by(needs),
        Err(_) => failure,
    }
}

/// Returns every event, for pages and exports.
fn history(session: &Session, device: &Device) -> Recording {
    let mut recording = device.with_ledger(|ledger| Recording::of_ledger(session.name(), ledger));
    recording.of_capacity(device.memory_info().map(|memory| memory.total_bytes));
    recording
}

/// Returns every event, as `vramlab-events-1`.
fn recorded(session: &Session, result: &TrainResult, device: &Device) -> Value {
    let mut recording = device.with_ledger(events::recording);
    let allocator = &session.in_force.allocator;
    recording["device"] = json!(result.device);
    recording["capacity"] = json!(device.memory_info().map(|memory| memory.total_bytes));
    recording["alloc_conf"] = json!(allocator.alloc_conf);
    recording["memory_fraction"] = json!(allocator.memory_fraction);
    recording["step_columns"] = json!(COLUMNS);
    recording["steps"] = json!(result.steps);
    recording
}

/// Returns the run as PyTorch's snapshot.
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

/// Returns why a run ended for lack of memory, and how much is missing.
pub(super) fn out_of_memory(failure: &Failure) -> OutOfMemoryResult {
    match failure.out_of_memory() {
        Some(report) => OutOfMemoryResult::from_report(report, oom::text(report, View::of_document())),
        None => OutOfMemoryResult {
            message: failure.error.to_string(),
            missing_bytes: failure.missing_bytes(),
            ..OutOfMemoryResult::default()
        },
    }
}
