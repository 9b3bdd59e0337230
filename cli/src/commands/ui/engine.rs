//! Requests of the page as JSON, and their answers: no sockets here, so that another host can carry them.
//!
//! | `ask` | answer |
//! |---|---|
//! | `lists` | networks, cards, fields of a run |
//! | `predict` | `result`, as `vramlab predict --json` has it; `details`, its sections as markup; `picture`, the data of a curve; what repeats it |
//! | `picture` | `picture`, the same with every block and segment |
//! | `try` | `tries`, each with the `fields` of the changed run |
//! | `curve` | `chart`, the memory for several batches or sequences, as markup |
//! | `arguments` | `python`, the run as arguments of transformers, PEFT and bitsandbytes, or `why` not |
//!
//! `spec` has the fields of a run, by name. A request without an answer has `{"error": …}`.

use std::path::PathBuf;

use lab::models::Input;
use lab::report::{self, Detail, Recording};
use lab::results::{Cards, Findings, TrainResult, command};
use lab::run::{DryRunner, PythonArguments, RunSpec, Session};
use lab::section::{Chart, Section, Series, Shape};
use serde_json::{Map, Value, json};

use super::fields;
use crate::args::{AskCudnn, network_named, usual_release};
use crate::commands::outcome::{Steps, execute};
use crate::commands::plan::{Plan, dry_runner};
use crate::commands::predict::{Asked, answer};
use crate::commands::workspaces::Workspaces;
use crate::commands::{data_parallel, models};
use crate::exit::{Failure, Result};
use crate::interrupt;
use crate::ui::Ui;

/// Steps whose phases an answer shows. What is needed is found from as many as it takes.
const STEPS: usize = 3;

/// Points of a curve.
const POINTS: usize = 12;

/// Answers requests.
pub(crate) struct Engine<'a> {
    /// The folder of the files that were dropped; `None` if none may be.
    pub files: Option<PathBuf>,
    pub ui: &'a Ui,
}

impl Engine<'_> {
    /// Returns the answer to a request, both as JSON.
    pub(crate) fn answer(&self, request: &str) -> String {
        let answer = match serde_json::from_str(request) {
            Ok(request) => self.answered(&request),
            Err(error) => Err(Failure::usage(format!("the request is not JSON: {error}"))),
        };
        answer.unwrap_or_else(|failure| json!({ "error": format!("{:#}", failure.error) })).to_string()
    }

    fn answered(&self, request: &Value) -> Result<Value> {
        let asked = request["ask"].as_str().unwrap_or_default();
        if asked == "lists" {
            return self.lists();
        }
        let spec =
            request["spec"].as_object().ok_or_else(|| Failure::usage("spec: the fields of a run are missing"))?;
        let spec = self.spec(spec)?;
        match asked {
            "predict" => self.predict(&spec),
            "try" => self.changes(&spec),
            "picture" => self.picture(&spec),
            "arguments" => self.arguments(&spec),
            "curve" => self.curve(&spec, request["over"].as_str().unwrap_or("batch")),
            _ => Err(Failure::usage("ask: lists, predict, picture, try, curve or arguments")),
        }
    }

    /// Everything that the page offers.
    fn lists(&self) -> Result<Value> {
        let networks = models::listed()?.models;
        let cards = Cards::default().cards;
        let cards =
            cards.iter().map(|card| json!({ "name": card.name, "title": card.title, "bytes": card.total_bytes }));
        Ok(json!({
            "networks": networks,
            "cards": cards.collect::<Vec<_>>(),
            "groups": fields::groups(),
            "files": self.files.is_some(),
            "version": env!("VRAMLAB_VERSION"),
        }))
    }

    /// The run with these fields.
    fn spec(&self, said: &Map<String, Value>) -> Result<RunSpec> {
        let mut said = said.clone();
        said.retain(|_, value| !value.is_null() && *value != Value::Bool(false));
        fields::check(&said)?;
        if let Some(file) = said.get_mut("model-file") {
            *file = self.dropped(file)?.into();
        }
        if let Some(name) = said.get_mut("model") {
            *name = known_network(name.as_str().unwrap_or_default())?.into();
        }
        let mut spec = RunSpec::of_fields(&said)?;
        spec.check()?;
        spec.model.usual_release = usual_release(&spec, None)?;
        Ok(spec)
    }

    /// The path of a file that was dropped, from its name below the folder.
    fn dropped(&self, name: &Value) -> Result<String> {
        let missing = || Failure::usage("model-file: drop the file on the page (again)");
        let folder = self.files.as_ref().ok_or_else(missing)?;
        let name = name.as_str().ok_or_else(missing)?;
        // A number, a file: nothing else is in the folder.
        let (number, file) = name.split_once('/').ok_or_else(missing)?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let path = folder.join(number).join(file);
        if !is_number || !super::files::is_name(file) || !path.is_file() {
            return Err(missing());
        }
        Ok(path.to_string_lossy().into_owned())
    }

    fn predict(&self, spec: &RunSpec) -> Result<Value> {
        let plan = planned(spec, self.ui)?;
        let workspaces = Workspaces::new(AskCudnn::Auto, None, self.ui)?;
        let runner = dry_runner().with_workspaces_of(&workspaces).drawing(spec, &plan.session)?;
        let result = self.result(&plan, &runner, spec, false)?;
        let recording = runner.drawn().map(|drawn| drawn.recording).or_else(|| drawn(&runner, spec, &plan.session));
        let picture = recording.and_then(|recording| picture_of(&recording, &result, Detail::Curve));
        let json = result.to_json().map_err(|error| Failure::usage(error.to_string()))?;
        Ok(json!({
            "result": json,
            "details": report::markup(&shown(result.sections())),
            "picture": picture,
            "sizes": sizes(&plan.session),
            "repeat": repeat(spec),
        }))
    }

    /// The drawing with all that can be pointed at.
    fn picture(&self, spec: &RunSpec) -> Result<Value> {
        let plan = planned(spec, self.ui)?;
        let workspaces = Workspaces::new(AskCudnn::Auto, None, self.ui)?;
        let runner = dry_runner().with_workspaces_of(&workspaces).drawing(spec, &plan.session)?;
        let result = self.result(&plan, &runner, spec, false)?;
        let recording = runner.drawn().map(|drawn| drawn.recording).or_else(|| drawn(&runner, spec, &plan.session));
        let picture = recording.and_then(|recording| picture_of(&recording, &result, Detail::Whole));
        Ok(json!({ "picture": picture }))
    }

    fn result(&self, plan: &Plan, runner: &DryRunner<'_>, spec: &RunSpec, changes: bool) -> Result<TrainResult> {
        if spec.parallel.ranks.data_parallel.is_some() {
            return data_parallel::answer(runner, spec, changes, self.ui);
        }
        let asked = Asked { in_full: false, changes, steps: Steps::First };
        let report = answer(runner, spec, plan, asked, None, |steps| execute(plan, steps, self.ui, None))?;
        Ok(report.result)
    }

    fn changes(&self, spec: &RunSpec) -> Result<Value> {
        let plan = on_one_device(spec, self.ui)?;
        let workspaces = Workspaces::new(AskCudnn::Auto, None, self.ui)?;
        let runner = dry_runner().with_workspaces_of(&workspaces);
        let tries = self.result(&plan, &runner, spec, true)?.tries.unwrap_or_default();
        let fields: Vec<_> = tries.entries.iter().map(|entry| self.shared(entry.fields.clone())).collect();
        Ok(json!({ "tries": tries, "fields": fields }))
    }

    /// The run as transformers, PEFT and bitsandbytes are told it.
    fn arguments(&self, spec: &RunSpec) -> Result<Value> {
        let workspaces = Workspaces::new(AskCudnn::Auto, None, self.ui)?;
        let runner = dry_runner().with_workspaces_of(&workspaces);
        Ok(match PythonArguments::of_run(&runner, spec)? {
            Ok(PythonArguments { text, differs }) => json!({ "python": text, "differs": differs }),
            Err(why) => json!({ "why": why }),
        })
    }

    /// Fields as the page knows them: a file by its name below the folder.
    fn shared(&self, mut fields: Map<String, Value>) -> Map<String, Value> {
        if let (Some(folder), Some(file)) = (&self.files, fields.get_mut("model-file")) {
            let below = file.as_str().and_then(|path| std::path::Path::new(path).strip_prefix(folder).ok());
            *file = below.map_or_else(|| file.clone(), |path| path.to_string_lossy().into());
        }
        fields
    }

    /// The memory for several values of a field, each from a dry run: powers of two around the run's own.
    fn curve(&self, spec: &RunSpec, over: &str) -> Result<Value> {
        if !["batch", "sequence"].contains(&over) {
            return Err(Failure::usage("over: batch or sequence"));
        }
        let session = dry_runner().session(spec)?;
        let own = sizes(&session)[over].as_u64().unwrap_or(1).max(1);
        let workspaces = Workspaces::new(AskCudnn::Auto, None, self.ui)?;
        let runner = dry_runner().with_workspaces_of(&workspaces);
        let first = (own >> (POINTS / 2)).max(1).next_power_of_two();
        let mut values: Vec<u64> = (0..POINTS as u32).map(|power| first << power).chain([own]).collect();
        values.sort_unstable();
        values.dedup();
        let (mut allocated, mut reserved, mut budget) = (Vec::new(), Vec::new(), None);
        for value in values {
            let Ok(changed) = spec.with([(over, &Value::from(value))]) else { break };
            // A network has a longest sequence.
            let Ok(figures) = runner.figures(&changed) else { continue };
            budget = figures.room.map(|room| room.budget_bytes);
            let held = figures.room.and_then(|room| room.reserved_bytes).unwrap_or(figures.reserved_bytes);
            allocated.push((value as f64, figures.allocated_bytes as f64));
            reserved.push((value as f64, held as f64));
            if value > own && budget.is_some_and(|budget| figures.allocated_bytes > budget + budget / 2) {
                break;
            }
        }
        let series = |name: &str, points, color, shape| Series { name: name.into(), points, color, shape };
        let chart = Chart {
            title: format!("Peak by {over}"),
            x: over.into(),
            labels: Vec::new(),
            series: vec![
                series("allocated", allocated, 0, Shape::Line),
                series("reserved", reserved, 1, Shape::Predicted),
            ],
            bytes: true,
            limit: budget.map(|bytes| ("memory for tensors".into(), bytes as f64)),
        };
        Ok(json!({ "chart": report::markup(&[Section::Chart(chart)]) }))
    }
}

/// The run; of one that is divided among cards, its form on one of them.
fn on_one_device(spec: &RunSpec, ui: &Ui) -> Result<Plan> {
    match spec.parallel.ranks.data_parallel {
        Some(_) => Plan::dry(&spec.alone(), ui),
        None => Plan::dry(spec, ui),
    }
}

/// The run with the steps whose phases an answer shows.
fn planned(spec: &RunSpec, ui: &Ui) -> Result<Plan> {
    let mut plan = on_one_device(spec, ui)?;
    if plan.session.steps_said.is_none() {
        plan.session.run.steps = plan.session.run.steps.min(STEPS);
    }
    Ok(plan)
}

/// The run with enough memory, of several cards the fullest; `None` where that cannot be drawn.
fn drawn(runner: &DryRunner<'_>, spec: &RunSpec, session: &Session) -> Option<Recording> {
    match spec.parallel.ranks.data_parallel {
        Some(_) => runner.drawn_fullest_rank(spec).ok(),
        None => session.drawn_until_it_repeats(&interrupt::asked).ok(),
    }
}

/// The data of a drawing, with the memory that the run has.
fn picture_of(recording: &Recording, result: &TrainResult, detail: Detail) -> Option<Value> {
    let prediction = result.prediction.as_ref();
    let budget = prediction.and_then(|prediction| prediction.budget_bytes);
    let name = prediction.and_then(|prediction| prediction.card.as_ref()).map_or("available", |card| &card.title);
    report::picture(recording, budget.map(|bytes| (name.to_string(), bytes)).as_ref(), detail).ok()
}

/// The sections beneath a drawing: charts that repeat it are left out, and PyTorch's long message comes last.
fn shown(sections: Vec<Section>) -> Vec<Section> {
    let kept = sections.into_iter().filter(|section| !matches!(section, Section::Drawing(_) | Section::Chart(_)));
    let (failures, mut kept): (Vec<Section>, Vec<Section>) =
        kept.partition(|section| matches!(section, Section::Failure(_)));
    if !failures.is_empty() {
        kept.push(Section::Details { title: "What would be said when memory runs out".into(), sections: failures });
    }
    kept
}

/// Sizes in force: examples of a batch, tokens of an example if it has tokens.
fn sizes(session: &Session) -> Value {
    let tokens = match session.network.architecture().task().input {
        Input::Tokens { length, .. } => Some(length),
        Input::Values(_) => None,
    };
    json!({ "batch": session.run.batch, "sequence": tokens })
}

/// What repeats a run elsewhere. A dropped file has the name that it was dropped with.
fn repeat(spec: &RunSpec) -> Value {
    let mut said = spec.repeated();
    if let Some(Value::String(path)) = said.get_mut("model-file") {
        *path = path.rsplit(['/', '\\']).next().unwrap_or_default().to_string();
    }
    json!({ "command": command::again(&["predict"], &said), "python": command::in_python("predict", &said) })
}

/// The name of a network as a run has it.
///
/// # Errors
/// A name that no network has.
pub(super) fn known_network(name: &str) -> Result<String> {
    let unknown = || Failure::usage(format!("{name}: no network is called so (vramlab info models)"));
    network_named(name).map(Into::into).ok_or_else(unknown)
}

#[cfg(test)]
mod tests;
