//! `--config FILE.toml`: flags from a file, under the same names; `--hf-args FILE`: flags from arguments of transformers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, ArgMatches, CommandFactory};
use serde_json::Value as Json;
use toml::Value;

use super::words::{Refusal, first_line, given};
use super::{Cli, hf_args};
use crate::exit::Failure;

/// More is no list of flags.
const MAX_BYTES: u64 = 1 << 20;

/// A command line with the flags that its files stand for before the typed ones.
pub(super) struct Merged {
    pub(super) words: Vec<OsString>,
    /// What is to be said about the files.
    pub(super) notes: Vec<String>,
}

/// `None` where the words name no such file.
pub(super) fn merge(words: &[OsString], matches: &ArgMatches) -> Result<Option<Merged>, Refusal> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(None) };
    let path = |id: &str| matches.try_get_one::<PathBuf>(id).ok().flatten();
    let (config, hf_args) = (path("config"), path("hf_args"));
    let mut flags = Vec::new();
    let mut notes = Vec::new();
    if let Some(path) = hf_args {
        // What the configuration says, it says itself.
        let own = config.map(|path| read(path)).transpose()?.unwrap_or_default();
        let asked = hf_args::read(path, &own, matches)?;
        notes = asked.notes;
        let fields = asked.fields.into_iter().filter(|(key, _)| !own.contains_key(key)).collect();
        flags.extend(of_file(path, &fields, name, matches)?);
    }
    if let Some(path) = config {
        flags.extend(of_file(path, &read(path)?, name, matches)?);
    }
    if config.is_none() && hf_args.is_none() {
        return Ok(None);
    }
    let at = words.iter().skip(1).position(|word| *word == *name).map_or(words.len(), |i| i + 2);
    let words = words[..at].iter().cloned().chain(flags).chain(words[at..].iter().cloned()).collect();
    Ok(Some(Merged { words, notes }))
}

/// The flags of a file, checked by themselves: an error is the file's.
fn of_file(path: &Path, table: &toml::Table, name: &str, matches: &ArgMatches) -> Result<Vec<OsString>, Refusal> {
    let flags = flags(path, table, name, matches)?;
    let alone = [OsString::from("vramlab"), name.into()].into_iter().chain(flags.iter().cloned());
    match Cli::command().try_get_matches_from(alone) {
        Err(error) if error.kind() != clap::error::ErrorKind::MissingRequiredArgument => {
            Err(Failure::usage(format!("{}: {}", path.display(), first_line(&error))).into())
        }
        _ => Ok(flags),
    }
}

/// The file's entries as words. What was typed is left out: options that can be given several times would add up.
fn flags(path: &Path, table: &toml::Table, command: &str, matches: &ArgMatches) -> Result<Vec<OsString>, Failure> {
    let mut root = Cli::command();
    root.build();
    let sub = root.find_subcommand(command);
    let arguments: Vec<clap::Arg> = sub.map(|sub| sub.get_arguments().cloned().collect()).unwrap_or_default();
    let usable = |key: &str| !matches!(key, "config" | "hf-args" | "help" | "version");
    let mut words = Vec::new();
    for (key, value) in table {
        let argument = arguments.iter().find(|a| a.get_long() == Some(key) && usable(key)).ok_or_else(|| {
            let mut known: Vec<&str> = arguments.iter().filter_map(|a| a.get_long()).filter(|k| usable(k)).collect();
            known.sort_unstable();
            Failure::usage(format!("{}: unknown key {key:?}; known: {}", path.display(), known.join(", ")))
        })?;
        // Whatever is typed instead of an entry is typed against it too: a model instead of a model file.
        let typed = |argument: &clap::Arg| given(matches, argument.get_id().as_str());
        let rivals = |argument: &clap::Arg| {
            let conflicts = |a: &clap::Arg, b: &clap::Arg| {
                sub.is_some_and(|sub| sub.get_arg_conflicts_with(a).iter().any(|other| other.get_id() == b.get_id()))
            };
            arguments.iter().any(|other| typed(other) && (conflicts(argument, other) || conflicts(other, argument)))
        };
        if !typed(argument) && !rivals(argument) {
            let entry = entry(key, value, argument);
            words.extend(entry.map_err(|problem| Failure::usage(format!("{}: {key}: {problem}", path.display())))?);
        }
    }
    Ok(words)
}

fn read(path: &Path) -> Result<toml::Table, Failure> {
    let failed = |error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
    let metadata = path.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Failure::usage(format!("{}: not a regular file", path.display())));
    }
    if metadata.len() > MAX_BYTES {
        return Err(Failure::usage(format!("{}: more than {MAX_BYTES} bytes are no configuration", path.display())));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    text.parse::<toml::Table>().map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Failure::usage(format!("{}:{line}: {}", path.display(), error.message().replace('\n', ", ")))
    })
}

/// One entry as words.
fn entry(key: &str, value: &Value, argument: &clap::Arg) -> Result<Vec<OsString>, String> {
    if matches!(argument.get_action(), ArgAction::SetTrue) {
        return match value {
            Value::Boolean(true) => Ok(vec![format!("--{key}").into()]),
            Value::Boolean(false) => Ok(Vec::new()),
            _ => Err("expected true or false".into()),
        };
    }
    let several = argument.get_num_args().is_some_and(|n| n.max_values() > 1);
    match value {
        Value::Array(items) if several && items.iter().any(Value::is_array) => {
            let entries: Result<Vec<_>, _> = items.iter().map(|item| entry(key, item, argument)).collect();
            Ok(entries?.concat())
        }
        Value::Array(items) if several => {
            let values: Result<Vec<String>, String> = items.iter().map(scalar).collect();
            Ok(std::iter::once(format!("--{key}")).chain(values?).map(OsString::from).collect())
        }
        Value::Array(items) if matches!(argument.get_action(), ArgAction::Append) => {
            items.iter().map(|item| Ok(format!("--{key}={}", scalar(item)?).into())).collect()
        }
        _ => Ok(vec![format!("--{key}={}", scalar(value)?).into()]),
    }
}

fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        other => Err(format!("a {} is no value of this option", other.type_str())),
    }
}

/// Settings of a result as a configuration file, a line each; what is not set has none.
pub(crate) fn from_result(settings: &serde_json::Map<String, Json>) -> String {
    let lines = settings.iter().filter(|(_, value)| !value.is_null());
    lines.map(|(key, value)| format!("{key} = {value}\n")).collect()
}
