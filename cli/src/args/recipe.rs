//! A recipe of a trainer: it is rehearsed as the trainer runs it if the user's Python has the trainer, else counted from its keys.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use lab::hf_args::Around;
use lab::recipes::{Counted, Recipe};

use super::hf_args::{Asked, Beside, FEW_BITS, stands};
use super::line::{Line, values_of};
use super::what::{self, What};
use crate::exit::Failure;

/// What becomes of a recipe.
pub(super) enum Start {
    /// The trainer's command is rehearsed.
    Rehearsed {
        /// Flags of the rehearsal.
        flags: Vec<OsString>,
        /// The command.
        command: Vec<OsString>,
        /// What was recognised, for the user.
        note: String,
    },
    /// Its keys are counted; why the trainer does not run, if that needs a word.
    Counted(Option<String>),
}

/// Chooses for the recipe that stands at a place of a line.
///
/// # Errors
/// A file that cannot be read; a named Python that does not exist.
pub(super) fn start(line: &Line<'_>, at: usize, file: &Path) -> Result<Start, Failure> {
    let Some(recipe) = Recipe::read(file)? else { return Ok(Start::Counted(None)) };
    if std::env::var_os(super::ONLY_BUILT_IN).is_some() {
        return Ok(Start::Counted(None));
    }
    let mut flags = line.rest.clone();
    flags.remove(at);
    let named = take_python(&mut flags);
    let Some(program) = program(&recipe, named.as_deref())? else { return Ok(Start::Counted(None)) };
    let trainer = recipe.trainer;
    let not_here = match line.command("rehearse") {
        None => Some("rehearsals need Linux".to_string()),
        Some(rehearse) => flags
            .iter()
            .filter_map(|word| word.to_str())
            .find(|word| word.starts_with("--") && (*word == "--largest" || values_of(rehearse, word).is_none()))
            .map(|flag| format!("{flag} is for networks that vramlab counts")),
    };
    if let Some(why) = not_here {
        return Ok(Start::Counted(Some(format!("note: {} is counted without {trainer}: {why}", file.display()))));
    }
    if !flags.iter().any(|word| word.to_str().is_some_and(|word| word.starts_with("--make-data"))) {
        let length =
            recipe.counted(&Around::default())?.args.fields.get("sequence").and_then(serde_json::Value::as_u64);
        flags.push(length.map_or("--make-data".into(), |length| format!("--make-data={length}").into()));
    }
    let words = recipe.command.iter().skip(1).map(OsString::from);
    // An environment that is named is not an activated one: what the trainer starts is beside it.
    if let Some(folder) = program.parent().filter(|_| named.is_some()) {
        flags.extend(["--path-first".into(), folder.into()]);
    }
    let command: Vec<OsString> = std::iter::once(program.into_os_string()).chain(words).collect();
    let note = format!(
        "note: {} is a recipe of {trainer} ({}), rehearsed as {}; vramlab predict --recipe {} counts it without {trainer}",
        file.display(),
        recipe.because.join(", "),
        recipe.command.join(" "),
        file.display()
    );
    Ok(Start::Rehearsed { flags, command, note })
}

/// Takes `--python PATH` out of flags.
fn take_python(flags: &mut Vec<OsString>) -> Option<PathBuf> {
    let at = flags
        .iter()
        .position(|word| word.to_str().is_some_and(|word| word == "--python" || word.starts_with("--python=")))?;
    let word = flags.remove(at);
    match word.to_str().and_then(|word| word.split_once('=')) {
        Some((_, path)) => Some(path.into()),
        None => (at < flags.len()).then(|| flags.remove(at).into()),
    }
}

/// Returns the trainer's program in the user's Python; `None` if it is not installed there.
fn program(recipe: &Recipe, named: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let variable = &lab::python::of_process;
    let python = match (lab::python::Python::find(named, variable)?, lab::python::interpreter(named, variable)) {
        (Some(python), Ok(interpreter)) if python.version_of(recipe.trainer.package()).is_some() => interpreter,
        _ => return Ok(None),
    };
    let program = recipe.command.first().and_then(|name| Some(python.parent()?.join(name)));
    Ok(program.filter(|program| program.is_file()))
}

/// Returns the network that a recipe names; `notes` gets a word about one that is not on this machine.
///
/// # Errors
/// A name of a network that is not on this machine, with the command that takes its configuration.
pub(super) fn network(word: &str, name: &str, notes: &mut Vec<String>) -> Result<What, Failure> {
    let last = name.rsplit('/').next().unwrap_or(name);
    match (what::named(name), super::model::named(last)) {
        (Ok(What::ByPython(_)), Some(known)) => {
            notes.push(format!("note: {name} is not on this machine: counted as {known}"));
            Ok(What::BuiltIn(known.into()))
        }
        (Ok(What::ByPython(_)), None) => {
            notes.push(format!(
                "note: {name} is not on this machine: your Python's huggingface_hub fetches its config.json if it may; with the file: \
                 vramlab predict {word} --model-file config.json"
            ));
            Ok(What::ByPython(name.into()))
        }
        (Ok(found), _) => Ok(found),
        (Err(_), _) => Err(Failure::usage(format!(
            "{word} names the network {name}, which is neither a folder here, nor built in, nor in the Hugging Face cache; with its config.json: \
             vramlab predict {word} --model-file config.json"
        ))),
    }
}

/// Reads a recipe for `--recipe`. Typed flags and the entries of `own`, a configuration, override it.
pub(super) fn read(path: &Path, own: &toml::Table, matches: &ArgMatches) -> Result<Asked, Failure> {
    let file = path.display();
    let recipe = Recipe::read(path)?.ok_or_else(|| {
        Failure::usage(format!(
            "{file}: its keys are those of no trainer that vramlab knows (axolotl, LLaMA-Factory, TRL, torchtune, ms-swift); arguments of \
             transformers: --hf-args {file}"
        ))
    })?;
    let beside = Beside::read(own, matches)?;
    let mut counted = recipe.counted(&beside.around())?;
    let by_python = beside.needs_python(&counted.args.fields);
    if by_python {
        counted = recipe.counted(&Around { plain: true, ..beside.around() })?;
    }
    let Counted { mut args, without_effect } = counted;
    beside.of_all_ranks(&mut args.fields);
    if let Some(graph) = beside.graph().filter(|_| !by_python) {
        if let Some(field) = FEW_BITS.into_iter().find(|field| args.fields.contains_key(*field)) {
            return Err(Failure::usage(format!(
                "{file}: {graph} is a recorded graph, in which weights stay as they are (--{field}); with its config.json your Python builds it: \
                 vramlab predict {file} --model-file config.json"
            )));
        }
        if args.fields.remove("keep").is_some() {
            let how = "the results of the network (counted as kept until the next step, as the loop of a graph does)";
            args.left_out.push(how.into());
        }
    }
    let trainer = recipe.trainer;
    let missing: Vec<_> = args.refusals.iter().filter(|refused| !stands(refused, own, matches)).collect();
    if !missing.is_empty() {
        let named: Vec<&str> = missing.iter().map(|refused| refused.argument.as_str()).collect();
        let mut fields: Vec<String> =
            missing.iter().filter_map(|refused| refused.field).map(|field| format!("--{field}")).collect();
        fields.sort_unstable();
        fields.dedup();
        if missing.iter().all(|refused| refused.field == Some("data-parallel")) && args.fields.contains_key("zero") {
            return Err(Failure::usage(format!(
                "{file}: {} divides a step among cards, and says not how many; of 8: vramlab predict {file} --data-parallel 8",
                named.join(", ")
            )));
        }
        let instead = match fields.is_empty() {
            true => String::new(),
            false => format!("; {} of vramlab's own can stand for some of it", fields.join(", ")),
        };
        return Err(Failure::usage(format!(
            "{file}: vramlab does not count {}; with {trainer} in a Python it is rehearsed: vramlab predict {file} --python PATH{instead}",
            named.join(", ")
        )));
    }
    let mut notes = vec![format!(
        "note: {file} is a recipe of {trainer} ({}), counted from its keys, without {trainer}",
        recipe.because.join(", ")
    )];
    let left_out = args.left_out.iter().map(|what| format!("warning: not exact, {file}: {what}")).collect();
    if !without_effect.is_empty() {
        notes.push(format!("note: {file}: no effect on memory: {}", without_effect.join(", ")));
    }
    if !args.unknown.is_empty() {
        notes.push(format!("note: {file}: not known, and ignored: {}", args.unknown.join(", ")));
    }
    Ok(Asked { fields: args.fields, notes, left_out })
}
