//! `--hf-args FILE`: arguments of transformers as flags, which typed flags override.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use lab::hf_args::{Around, HfArgs, Refused};
use lab::run::UsualRelease;
use serde_json::{Map, Value};

use super::words::given;
use crate::exit::Failure;
use crate::file_kind::{self, Kind};

/// Settings from a file of arguments.
pub(super) struct Asked {
    pub(super) fields: Map<String, Value>,
    /// Notes about arguments that a run here does not follow.
    pub(super) notes: Vec<String>,
}

/// Reads the file. Typed flags and the entries of `own`, a configuration, override it; both decide the meaning of its other arguments.
pub(super) fn read(path: &Path, own: &toml::Table, matches: &ArgMatches) -> Result<Asked, Failure> {
    // Other kinds of files have these endings; a script's own arguments may have a `model_type`.
    let own_kinds = [Kind::Arguments, Kind::Config, Kind::Weights, Kind::Snapshot];
    file_kind::check(path, &own_kinds, "arguments of transformers")?;
    let model_file = typed::<PathBuf>(matches, "model_file").cloned();
    let model_file = model_file.or_else(|| own.get("model-file").and_then(toml::Value::as_str).map(PathBuf::from));
    let config = model_file.filter(|path| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json")));
    let said = |key: &str| own.get(key).and_then(toml::Value::as_str);
    let release = typed(matches, "transformers").copied().or_else(|| said("transformers")?.parse().ok());
    let python = typed::<PathBuf>(matches, "python").map(PathBuf::as_path);
    let release = match release {
        Some(_) => release,
        None => UsualRelease::installed(python, &lab::python::of_process)?.release(),
    };
    let script = typed(matches, "script").copied().or_else(|| said("loop")?.parse().ok());
    let around = Around { config: config.as_deref(), release, script };
    let HfArgs { fields, refusals, left_out, unknown, .. } = lab::hf_args::read(path, &around)?;
    let file = path.display();
    let stands =
        |refused: &Refused| refused.field.is_some_and(|field| own.contains_key(field)) || stands(refused, matches);
    if let Some(Refused { argument, field }) = refusals.into_iter().find(|refused| !stands(refused)) {
        let instead = field.map(|field| format!("; --{field} says what to take instead")).unwrap_or_default();
        return Err(Failure::usage(format!(
            "{file}: vramlab does not count {argument}; a script that uses it can be rehearsed: `vramlab predict train.py`{instead}"
        )));
    }
    let mut notes: Vec<String> = left_out.into_iter().map(|what| format!("note: {file}: {what}")).collect();
    if !unknown.is_empty() {
        notes.push(format!("note: {file}: not understood, and ignored: {}", unknown.join(", ")));
    }
    Ok(Asked { fields, notes })
}

/// Returns the value of an option that this command has, if it was typed.
fn typed<'a, T: Clone + Send + Sync + 'static>(matches: &'a ArgMatches, id: &str) -> Option<&'a T> {
    matches.try_get_one::<T>(id).ok().flatten().filter(|_| given(matches, id))
}

/// True if a typed flag replaces an argument that cannot be represented.
fn stands(refused: &Refused, matches: &ArgMatches) -> bool {
    refused.field.is_some_and(|field| given(matches, &field.replace('-', "_")))
}
