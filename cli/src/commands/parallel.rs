//! `train` and `predict` with `--devices`: a network split over several devices, with a ledger for each.

use std::ops::ControlFlow;

use lab::huggingface::{AttentionMask, Keep};
use lab::pipeline::{Cut, PipelineResult, PipelineSettings, Schedule};
use lab::record::RowsKept;
use lab::results::{DeviceInfo, OutOfMemoryResult, StageResult, TrainResult};
use lab::run::{CutList, DeviceList, DeviceName, ModelSpec, RunSpec, Session};
use lab::training::{Failed, Progress as Step};
use memcore::Device;
use memcore::backend::Meta;

use super::weights::{self, Weights};
use super::{outcome, plan, warnings};
use crate::args::{HtmlArgs, OutputArgs, PredictArgs, RecordArgs, TrainArgs, config_text};
use crate::backends;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use crate::ui::Ui;

/// The same run on each device.
struct Split<'a> {
    names: &'a DeviceList,
    sessions: Vec<Session>,
    spec: RunSpec,
    weights: Weights,
    schedule: Schedule,
}

/// `train --devices`
///
/// # Errors
/// Settings that cannot work or cannot go together; devices that are absent or fail; files that cannot be written.
pub(super) fn train(args: &TrainArgs, spec: &RunSpec, names: &DeviceList, ui: &Ui) -> Result<Code> {
    one_device_only(&args.record, &args.page, "--devices names several")?;
    weights::check(&args.save)?;
    let (spec, note) = weights::under_its_profile(spec.clone())?;
    keeps_no_output(&spec.model, "--devices")?;
    let weights = Weights::new(&spec, &args.save);
    let mut split = Split::from_spec(spec, names, weights, &args.output, ui)?;
    split.sessions.iter_mut().for_each(|session| session.notes.extend(note.clone()));
    split.run(&args.output, ui)
}

/// `predict --devices`
pub(super) fn predict(args: &PredictArgs, spec: &RunSpec, names: &DeviceList, ui: &Ui) -> Result<Code> {
    if let Some(other) = names.0.iter().find(|name| name.backend != Meta::NAME) {
        return Err(Failure::usage(format!("--devices: a prediction uses meta devices (meta:0,meta:1), not {other}")));
    }
    one_device_only(&args.record, &args.page, "--devices names several")?;
    keeps_no_output(&spec.model, "--devices")?;
    let split = Split::from_spec(spec.clone(), names, Weights::default(), &args.output, ui)?;
    match split.run(&args.output, ui) {
        // A No is an answer, not an error.
        Err(failure) if failure.code == Code::Check && failure.is_out_of_memory() => {
            output::deliver_findings(ui, &args.output, None, &split.that_does_not_fit(&failure))?;
            Ok(Code::Check)
        }
        done => done,
    }
}

/// Refuses flags that show the memory of one device; `several` says why there are more.
///
/// # Errors
/// Naming the flag.
pub(super) fn one_device_only(record: &RecordArgs, page: &HtmlArgs, several: &str) -> Result<()> {
    let asked = [
        ("--events", record.events.is_some()),
        ("--snapshot", record.snapshot.is_some()),
        ("--summary", record.summary),
        ("--stats", record.stats),
        ("--export-trace, --export-folded, --export-minimalloc", record.exports.any()),
        ("--html", page.html.is_some()),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((flag, _)) => Err(Failure::usage(format!("{flag}: it shows the memory of one device, and {several}"))),
        None => Ok(()),
    }
}

/// Refuses features of a `config.json` that runs over several devices lack: kept outputs, a mask, another training loop, another way of making the
/// network.
///
/// # Errors
/// Naming the flag.
pub(super) fn keeps_no_output(model: &ModelSpec, flag: &str) -> Result<()> {
    let asked = [
        ("--attention-mask", model.attention_mask.is_some_and(|mask| mask != AttentionMask::None)),
        ("--built-on-device", model.built_on_device),
        ("--loop trainer", model.by_trainer()),
    ];
    if let Some((asked, _)) = asked.iter().find(|(_, asked)| *asked) {
        return Err(Failure::usage(format!("{asked}: vramlab does not support it with {flag}")));
    }
    match model.keep {
        Some(Keep::Output) => Err(Failure::usage(format!(
            "--keep output: with {flag} a script holds only the loss of a result; scores and cache stay on the devices that compute them"
        ))),
        _ => Ok(()),
    }
}

impl<'a> Split<'a> {
    fn from_spec(spec: RunSpec, names: &'a DeviceList, weights: Weights, output: &OutputArgs, ui: &Ui) -> Result<Self> {
        spec.check()?;
        if spec.training.schedule.is_some() {
            let problem =
                "with --devices the order of phases is fixed; --pipeline-schedule orders the micro-batches' passes";
            return Err(Failure::usage(format!("--schedule: {problem}")));
        }
        // In a dry run one card name stands for several cards, each with its memory.
        let is_dry = spec.card.gpu.is_some() || names.0.iter().all(|name| name.backend == Meta::NAME);
        let rows = if output.destinations().next().is_some() { RowsKept::Every } else { RowsKept::Ends };
        let session = |name: &DeviceName| -> Result<Session> {
            let mut session = plan::session(&if is_dry { spec.alone() } else { spec.on(name, backends::all()) }, ui)?;
            session.run.rows = rows;
            Ok(session)
        };
        let sessions = names.0.iter().map(session).collect::<Result<_>>()?;
        let schedule = spec.parallel.split.pipeline_schedule.unwrap_or_default();
        Ok(Self { names, sessions, spec, weights, schedule })
    }

    fn run(&self, args: &OutputArgs, ui: &Ui) -> Result<Code> {
        let [first, ..] = self.sessions.as_slice() else { return Err(Failure::usage("--devices: none")) };
        let split = &self.spec.parallel.split;
        let settings = PipelineSettings {
            run: first.run.clone(),
            micro_batches: split.micro_batches.unwrap_or(1),
            schedule: self.schedule,
            cut: split.cut.as_ref().map_or(Cut::Balanced, CutList::cut),
        };
        settings.check()?;
        output::check(args.destinations().chain(&self.weights.save))?;
        let in_force = self.in_force(&settings);
        ui.note(format!("settings:\n{}", config_text(&in_force.said()).trim_end()));
        warnings::tell_first(&first.warnings(), first.in_force.is_on_paper(), ui);
        let devices: Vec<Device> =
            self.sessions.iter().map(|session| session.target.open()).collect::<Result<_, _>>()?;
        first.check_size(&devices[0], &interrupt::asked).map_err(|error| self.failed(error, &devices))?;
        let progress = Progress::new(ui, settings.run.steps as u64);
        let on_step = &mut |step: Step| -> ControlFlow<()> {
            progress.set(step.done as u64, step.loss.map_or(String::new(), |loss| format!("loss {loss:.4}")));
            interrupt::flow()
        };
        let (result, saved) = weights::train(&self.weights, |continuation| {
            first.network.train_split(&devices, &settings, &first.source, continuation, on_step)
        })?;
        drop(progress);
        let result = result.map_err(|Failed { error, .. }| self.failed(error, &devices))?;
        if let (Some(destination), Some(state)) = (&self.weights.save, &saved) {
            weights::write(destination, state)?;
        }
        let deviations = warnings::of_all(&devices);
        warnings::tell(deviations, ui);
        let infos = self.sessions.iter().zip(&devices).map(|(session, device)| session.target.describe(device));
        let found = TrainResult {
            warnings: warnings::all(&first.warnings(), deviations),
            ..self.found(&in_force, infos.collect(), &result)
        };
        output::deliver_findings(ui, args, None, &found)?;
        Ok(if interrupt::asked() { Code::Interrupted } else { Code::Done })
    }

    /// Returns the settings in force as fields that repeat the run.
    fn in_force(&self, settings: &PipelineSettings) -> RunSpec {
        let mut spec = self.sessions[0].in_force.clone();
        (spec.device.backend, spec.device.device) = (None, None);
        spec.parallel = self.spec.parallel.clone();
        spec.parallel.split.micro_batches = Some(settings.micro_batches);
        spec.parallel.split.pipeline_schedule = Some(settings.schedule);
        spec
    }

    /// Returns the result as `vramlab-train-1`: figures of single devices are under `devices`, in the order of the network.
    fn found(&self, in_force: &RunSpec, infos: Vec<DeviceInfo>, result: &PipelineResult) -> TrainResult {
        let computes = infos.iter().all(|info| info.computes);
        let mut reason = "each device of a split network has figures of its own".to_string();
        if !computes {
            reason += ", and the device meta computes nothing";
        }
        let devices = self.names.0.iter().zip(infos).zip(&result.stages);
        TrainResult {
            description: Some(self.sessions[0].description()),
            premises: self.sessions[0].premises.clone(),
            devices: devices
                .map(|((name, info), stage)| StageResult::from_figures(name.to_string(), info, stage))
                .collect(),
            parameters: Some(result.parameters),
            accuracy: result.accuracy.map(Into::into),
            interrupted: result.interrupted,
            reason: Some(reason),
            losses: TrainResult::losses(&result.losses).filter(|_| computes),
            ms_per_step: computes.then(|| result.ms_per_step.clone()),
            ..TrainResult::from_settings(in_force.fields())
        }
    }

    /// Returns the result of a dry run that ran out of memory.
    fn that_does_not_fit(&self, failure: &Failure) -> TrainResult {
        let account = outcome::out_of_memory(failure);
        // The context names the device.
        let device = failure.error.to_string();
        let message = match account.message.as_str() {
            known if known.contains(&device) => account.message.clone(),
            message => format!("{device}: {message}"),
        };
        TrainResult {
            description: Some(self.sessions[0].description()),
            premises: self.sessions[0].premises.clone(),
            reason: Some("memory ran out before the end".into()),
            out_of_memory: Some(OutOfMemoryResult { message, ..account }),
            ..TrainResult::from_settings(self.sessions[0].in_force.fields())
        }
    }

    /// Adds to an out-of-memory error the device on which it happened.
    fn failed(&self, error: lab::Error, devices: &[Device]) -> Failure {
        let failure = Failure::from(error).limited(self.sessions[0].target.limited());
        let full = devices.iter().zip(&self.names.0).find(|(device, _)| device.usage().n_oom() > 0);
        match full {
            Some((_, name)) if failure.is_out_of_memory() => {
                Failure { code: failure.code, error: failure.error.context(format!("on {name}")) }
            }
            _ => failure,
        }
    }
}
