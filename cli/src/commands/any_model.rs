//! `vramlab predict` of a network that is not built in: the user's Python builds it, and a rehearsal trains it.

use std::path::Path;

use lab::any_model::{Driver, Told, Which, is_of_the_loss, options, which, with_phases};
use lab::huggingface::Configuration;
use lab::run::RunSpec;

use super::plan::dry_runner;
use super::workspaces::Workspaces;
use crate::args::{FEW_BITS, ONLY_BUILT_IN, PredictArgs};
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::ui::Ui;

/// What becomes of a model that a command names.
pub(crate) enum Prepared {
    /// This program reads it; the run names the file.
    BuiltIn(Box<RunSpec>),
    /// The user's Python builds it.
    ByPython(String, Option<String>),
}

/// Returns the run of a network that the user's Python builds with a graph that is kept of it, and a sentence on where the answer comes from.
#[cfg(target_os = "linux")]
pub(crate) fn kept_graph(
    word: &str,
    args: &PredictArgs,
    spec: &RunSpec,
    workspaces: &Workspaces<'_>,
) -> Option<(RunSpec, String)> {
    let asked = !args.any.no_cache && !args.any.program && args.any.phases.is_none();
    super::any_model_graphs::Kept::of_network(word, spec, args.dry_run.model.python.as_deref())
        .filter(|_| asked)?
        .run(spec, &dry_runner().with_workspaces_of(workspaces))
}

/// Without Linux there are no rehearsals to compare a graph with.
#[cfg(not(target_os = "linux"))]
pub(crate) fn kept_graph(_: &str, _: &PredictArgs, _: &RunSpec, _: &Workspaces<'_>) -> Option<(RunSpec, String)> {
    None
}

/// Tells who builds the network of a run. `by_python`: the user's Python, if it can.
pub(crate) fn prepare(spec: &RunSpec, by_python: bool) -> Prepared {
    if std::env::var_os(ONLY_BUILT_IN).is_some() {
        return Prepared::BuiltIn(Box::new(spec.clone()));
    }
    let Some(word) = &spec.model.model_file else {
        return match spec.model.configuration() {
            Some(known) if by_python => Prepared::ByPython(known.name(), None),
            Some(known) => match not_represented(spec, known) {
                Some(why) => Prepared::ByPython(known.name(), Some(why)),
                None => Prepared::BuiltIn(Box::new(spec.clone())),
            },
            None => match (without_layers(spec), spec.model.recorded().filter(|_| by_python)) {
                (Some((name, why)), _) => Prepared::ByPython(name, Some(why)),
                (None, Some(name)) => Prepared::ByPython(name.into(), None),
                (None, None) => Prepared::BuiltIn(Box::new(spec.clone())),
            },
        };
    };
    match which(word, &spec.model) {
        Which::BuiltIn(path) if !by_python => {
            let mut spec = spec.clone();
            spec.model.model_file = Some(path);
            match only_by_python(&spec) {
                Some(why) => Prepared::ByPython(word.display().to_string(), Some(why)),
                None => Prepared::BuiltIn(Box::new(spec)),
            }
        }
        Which::BuiltIn(path) => Prepared::ByPython(path.display().to_string(), None),
        Which::ByPython(word, why) => Prepared::ByPython(word, why),
    }
}

/// Fields of what libraries of the user's do to a network.
const OF_LIBRARIES: [&str; 3] = ["lora", FEW_BITS[0], FEW_BITS[1]];

/// Fields of adapters that a recorded graph may refuse.
const OF_ADAPTERS: [&str; 3] = ["lora", "lora-target", "modules-to-save"];

/// The name of a recorded graph with a field of what libraries do to layers, which vramlab does not do to this graph, and why it is left to the user's
/// Python.
fn without_layers(spec: &RunSpec) -> Option<(String, String)> {
    let name = spec.model.recorded()?;
    let fields = spec.said();
    if let Some(field) = FEW_BITS.iter().find(|field| fields.contains_key(**field)) {
        return Some((
            name.into(),
            format!("{name} is a recorded graph, in which weights stay as they are: --{field}"),
        ));
    }
    if !fields.contains_key("lora") {
        return None;
    }
    match dry_runner().session(spec) {
        // Python's PEFT chooses none either.
        Err(lab::Error::Usage { problem, .. }) if problem.starts_with("PEFT chooses no layers") => None,
        Err(lab::Error::Usage { what, problem }) if OF_ADAPTERS.contains(&what.as_str()) => {
            Some((name.into(), format!("--{what}: {problem}")))
        }
        _ => None,
    }
}

/// Why a network that is known by name is left to the user's Python: what this program's family of it cannot, or what a library does to it.
fn not_represented(spec: &RunSpec, known: Configuration<'_>) -> Option<String> {
    let unknown = spec.model.read(known).err().filter(|error| !is_of_the_loss(error));
    unknown.map(|error| error.to_string()).or_else(|| only_by_python(spec))
}

/// Why a network that is built in is left to the user's Python: what a library does to it is not built in.
fn only_by_python(spec: &RunSpec) -> Option<String> {
    let fields = spec.said();
    if !spec.model.is_pretrained() || !OF_LIBRARIES.iter().any(|name| fields.contains_key(*name)) {
        return None;
    }
    match dry_runner().session(spec) {
        Err(lab::Error::Usage { what, problem }) if OF_LIBRARIES.contains(&what.as_str()) => {
            let problem = problem.split([';', ':']).next().unwrap_or_default();
            Some(format!("--{what} ({})", problem.trim_start_matches("vramlab does not support ")))
        }
        _ => None,
    }
}

/// Predicts by a rehearsal, or prints the program with `--script`.
///
/// # Errors
/// No Python, a Python that does not know the network (with what works instead), flags that the driver cannot do, and those of a rehearsal.
pub(crate) fn predict_by_rehearsal(
    word: &str,
    why: Option<&str>,
    args: &PredictArgs,
    spec: &RunSpec,
    ui: &Ui,
) -> Result<Code> {
    if let Some(why) = why {
        ui.tell(format!("not built in: {why}"));
    }
    // Refuses flags before anything is started.
    let options = with_phases(options(word, spec)?, spec, args.any.phases);
    let python = lab::python::interpreter(args.dry_run.model.python.as_deref(), &lab::python::of_process)
        .map_err(|error| without_python(word, why, args.any.phases, &error))?;
    if args.any.program {
        return print_program(&Driver::make(options)?, &python, ui);
    }
    rehearsed(word, &python, args, spec, ui)
}

/// Prints the program.
fn print_program(driver: &Driver, python: &Path, ui: &Ui) -> Result<Code> {
    match driver.plan(python, &interrupt::asked)? {
        Told::Chosen(chosen) => {
            ui.print(&chosen.program)?;
            Ok(Code::Done)
        }
        Told::Refused(refusal) => Err(Failure::usage(refusal.in_words())),
    }
}

/// A refusal without a Python ends in a command that works, with the user's own word.
fn without_python(word: &str, why: Option<&str>, phases: Option<u32>, error: &lab::Error) -> Failure {
    let (flag, otherwise) = match phases {
        Some(_) => (" --phases", format!("--phases asks a Python to build {word}")),
        None => ("", format!("{word} is not built in")),
    };
    let why = why.map_or(otherwise, String::from);
    Failure::usage(format!(
        "{why}; and {error}. With PyTorch's wheel for CUDA and the network's library in a Python: vramlab predict {word}{flag} --python PATH"
    ))
}

#[cfg(target_os = "linux")]
use super::any_model_rehearsed::rehearsed;

/// Without Linux there are no rehearsals: says so, and what works.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
fn rehearsed(word: &str, _: &Path, _: &PredictArgs, _: &RunSpec, _: &Ui) -> Result<Code> {
    Err(Failure::usage(format!(
        "{word} is not built in, and rehearsals need Linux on x86-64 (WSL 2 is one); its program works anywhere: vramlab predict {word} --script > predicted.py"
    )))
}
