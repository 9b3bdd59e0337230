//! `--config FILE.toml`, `--hf-args FILE` and `--recipe FILE`: settings of files, which typed flags override.
//!
//! Fields of the run change the [`RunSpec`] by name. The other flags, mostly destinations of results, are passed to clap before the typed words; the
//! last of equal flags wins.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches};
use lab::run::RunSpec;
use serde_json::{Map, Number, Value as Json};
use toml::Value;

use super::words::{Refusal, first_line, given};
use super::{Cli, hf_args, recipe, spellings};
use crate::exit::Failure;

/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// Fields of the run that a file sets, each with the file's path.
pub(crate) type Sources = BTreeMap<String, String>;

/// Settings from a command line's files that no typed flag replaces.
#[derive(Default)]
pub(super) struct Files {
    /// Fields of the run.
    pub(super) fields: Map<String, Json>,
    /// The file that sets each field.
    pub(super) sources: Sources,
    /// The other flags, as they would be typed.
    words: Vec<OsString>,
    /// Notes about the files, for the user.
    pub(super) notes: Vec<String>,
    /// What a file asks for and a run does otherwise.
    pub(super) left_out: Vec<String>,
}

impl Files {
    /// Reads the files that the words name.
    pub(super) fn read(matches: &ArgMatches) -> Result<Self, Refusal> {
        let Some((name, matches)) = matches.subcommand() else { return Ok(Self::default()) };
        let path = |id: &str| matches.try_get_one::<PathBuf>(id).ok().flatten();
        let autocast = matches.try_get_one::<String>("autocast").ok().flatten();
        if ["config", "hf_args", "recipe"].into_iter().all(|id| path(id).is_none()) && autocast.is_none() {
            return Ok(Self::default());
        }
        let mut root = Cli::declared();
        root.build();
        let Some(command) = root.find_subcommand(name) else { return Ok(Self::default()) };
        let typed = Typed { command, matches };
        let mut files = Self::default();
        // The configuration is read first: it decides the meaning of the other arguments.
        let own = path("config").map(|path| read(path)).transpose()?.unwrap_or_default();
        let asked = match (path("hf_args"), path("recipe")) {
            (Some(path), _) => Some((path, hf_args::read(path, &own, matches)?)),
            (None, Some(path)) => Some((path, recipe::read(path, &own, matches)?)),
            (None, None) => None,
        };
        if let Some((path, hf_args::Asked { fields, notes, left_out })) = asked {
            let own = fields.into_iter().filter(|(key, _)| typed.flag(key).is_some_and(|flag| !typed.replaces(flag)));
            files = Self { notes, left_out, ..files };
            files.take(path, own.collect());
        }
        if let Some(path) = path("config") {
            files.add(path, &own, &typed)?;
        }
        if let Some(kind) = autocast.filter(|_| !given(matches, "precision")) {
            files.fields.insert("precision".into(), hf_args::autocast(kind, &own, matches)?);
            files.sources.insert("precision".into(), format!("--{kind}"));
        }
        Ok(files)
    }

    /// Returns the words, with the flags of files that are not fields of the run before the typed ones; `None` if there are no such flags.
    pub(super) fn before(&self, words: &[OsString], matches: &ArgMatches) -> Option<Vec<OsString>> {
        let name = matches.subcommand_name().filter(|_| !self.words.is_empty())?;
        let at = words.iter().skip(1).position(|word| *word == *name).map_or(words.len(), |i| i + 2);
        Some(words[..at].iter().chain(&self.words).chain(&words[at..]).cloned().collect())
    }

    fn take(&mut self, path: &Path, fields: Map<String, Json>) {
        let file = path.display().to_string();
        self.sources.extend(fields.keys().map(|key| (key.clone(), file.clone())));
        self.fields.extend(fields);
    }

    /// Adds the entries of a configuration file. It is checked by itself, so that an error names the file.
    fn add(&mut self, path: &Path, table: &toml::Table, typed: &Typed<'_>) -> Result<(), Failure> {
        let refused = |problem: String| Failure::usage(format!("{}: {problem}", path.display()));
        let (mut fields, mut words) = (Map::new(), Vec::new());
        for (typed_key, value) in table {
            let key = &if typed.flag(typed_key).is_some() { typed_key.clone() } else { spellings::ours(typed_key) };
            let flag = typed
                .flag(key)
                .ok_or_else(|| refused(format!("unknown key {typed_key:?}; known: {}", typed.known().join(", "))))?;
            let problem = |problem: String| refused(format!("{key}: {problem}"));
            if !RunSpec::has_field(key) {
                words.push((flag, entry(key, value, flag).map_err(problem)?));
            } else if let Some(value) = field(value, flag).map_err(problem)? {
                RunSpec::default().with([(key.as_str(), &value)]).map_err(|error| refused(error.to_string()))?;
                fields.insert(key.clone(), value);
            }
        }
        let alone = ["vramlab", typed.command.get_name()].map(OsString::from).into_iter();
        match Cli::declared().try_get_matches_from(alone.chain(words.iter().flat_map(|(_, words)| words.clone()))) {
            Err(error) if error.kind() != clap::error::ErrorKind::MissingRequiredArgument => {
                return Err(refused(first_line(&error)));
            }
            _ => {}
        }
        let run = RunSpec::of_fields(&fields).and_then(|run| run.check_part());
        run.map_err(|error| refused(error.to_string()))?;
        fields.retain(|key, _| typed.flag(key).is_some_and(|flag| !typed.replaces(flag)));
        self.take(path, fields);
        self.words.extend(words.into_iter().filter(|(flag, _)| !typed.replaces(flag)).flat_map(|(_, words)| words));
        Ok(())
    }
}

/// The typed flags, and the command that they belong to.
struct Typed<'a> {
    command: &'a clap::Command,
    matches: &'a ArgMatches,
}

impl Typed<'_> {
    /// Returns the flag of a key in a file.
    fn flag(&self, key: &str) -> Option<&Arg> {
        let usable = !matches!(key, "config" | "hf-args" | "recipe" | "help" | "version");
        self.command.get_arguments().find(|flag| usable && flag.get_long() == Some(key))
    }

    fn known(&self) -> Vec<&str> {
        let all = self.command.get_arguments().filter_map(Arg::get_long);
        let mut known: Vec<&str> = all.filter(|key| self.flag(key).is_some()).collect();
        known.sort_unstable();
        known
    }

    /// True if a typed flag replaces a flag of the file: the flag itself, or one that conflicts with it, such as a model in place of a model file.
    fn replaces(&self, flag: &Arg) -> bool {
        let conflict =
            |a: &Arg, b: &Arg| self.command.get_arg_conflicts_with(a).iter().any(|other| other.get_id() == b.get_id());
        let typed = self.command.get_arguments().filter(|other| given(self.matches, other.get_id().as_str()));
        typed.into_iter().any(|other| other.get_id() == flag.get_id() || conflict(flag, other) || conflict(other, flag))
    }
}

pub(crate) fn read(path: &Path) -> Result<toml::Table, Failure> {
    let failed = |error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
    let metadata = path.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Failure::usage(format!("{}: not a regular file", path.display())));
    }
    if metadata.len() > MAX_BYTES {
        return Err(Failure::usage(format!("{}: more than {MAX_BYTES} bytes are not a configuration", path.display())));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    text.parse::<toml::Table>().map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Failure::usage(format!("{}:{line}: {}", path.display(), error.message().replace('\n', ", ")))
    })
}

/// Returns an entry as the value of a field of the run; `None` if the entry sets nothing.
fn field(value: &Value, flag: &Arg) -> Result<Option<Json>, String> {
    if matches!(flag.get_action(), ArgAction::SetTrue) {
        return Ok(truth(value)?.then_some(Json::Bool(true)));
    }
    if let Value::String(text) = value {
        let known = flag.get_possible_values();
        // The field may know further spellings; a network's name is checked with the network.
        let name = flag.get_long().filter(|name| *name != "model").unwrap_or_default();
        let takes = |text: &str| RunSpec::default().with([(name, &Json::String(text.into()))]).is_ok();
        let is_spelled = takes(text) && !takes("?");
        if !known.is_empty() && !is_spelled && !known.iter().any(|known| known.matches(text, false)) {
            let known: Vec<&str> = known.iter().map(|known| known.get_name()).collect();
            return Err(format!("unknown: {text:?}; known: {}", known.join(", ")));
        }
    }
    plain(value).map(Some)
}

fn plain(value: &Value) -> Result<Json, String> {
    match value {
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::String(text) => Ok(text.clone().into()),
        Value::Integer(number) => Ok((*number).into()),
        Value::Float(number) => Number::from_f64(*number).map(Json::Number).ok_or("must be finite".into()),
        other => Err(not_a_value(other)),
    }
}

/// Returns an entry as words.
fn entry(key: &str, value: &Value, flag: &Arg) -> Result<Vec<OsString>, String> {
    if matches!(flag.get_action(), ArgAction::SetTrue) {
        return Ok(if truth(value)? { vec![format!("--{key}").into()] } else { Vec::new() });
    }
    let several = flag.get_num_args().is_some_and(|n| n.max_values() > 1);
    match value {
        Value::Array(items) if several && items.iter().any(Value::is_array) => {
            let entries: Result<Vec<_>, _> = items.iter().map(|item| entry(key, item, flag)).collect();
            Ok(entries?.concat())
        }
        Value::Array(items) if several => {
            let values: Result<Vec<String>, String> = items.iter().map(scalar).collect();
            Ok(std::iter::once(format!("--{key}")).chain(values?).map(OsString::from).collect())
        }
        Value::Array(items) if matches!(flag.get_action(), ArgAction::Append) => {
            items.iter().map(|item| Ok(format!("--{key}={}", scalar(item)?).into())).collect()
        }
        _ => Ok(vec![format!("--{key}={}", scalar(value)?).into()]),
    }
}

fn truth(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or("expected true or false".into())
}

fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        other => Err(not_a_value(other)),
    }
}

fn not_a_value(value: &Value) -> String {
    format!("{} is not a value of this option", value.type_str())
}

/// Formats the settings of a result as a configuration file, a line each; unset ones are left out.
pub(crate) fn from_result(settings: &Map<String, Json>) -> String {
    let lines = settings.iter().filter(|(_, value)| !value.is_null());
    lines.map(|(key, value)| format!("{key} = {value}\n")).collect()
}
