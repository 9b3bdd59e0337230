//! `--hf-args FILE`: arguments of transformers as flags, which typed flags override.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use lab::any_model::{Which, which};
use lab::hf_args::{Around, HfArgs, Refused};
use lab::huggingface::{self, Configuration, Known, Release, Script};
use lab::run::{ModelSpec, RunSpec, UsualRelease};
use serde_json::{Map, Value};

use super::words::given;
use crate::exit::Failure;
use crate::file_kind::{self, Kind};

/// Settings from a file of arguments.
pub(super) struct Asked {
    pub(super) fields: Map<String, Value>,
    /// Notes about arguments that a run here does not follow.
    pub(super) notes: Vec<String>,
    /// The same, where the answer itself says so.
    pub(super) left_out: Vec<String>,
}

/// Reads the file. Typed flags and the entries of `own`, a configuration, override it; both decide the meaning of its other arguments.
pub(super) fn read(path: &Path, own: &toml::Table, matches: &ArgMatches) -> Result<Asked, Failure> {
    // Other kinds of files have these endings; a script's own arguments may have a `model_type`.
    let own_kinds = [Kind::Arguments, Kind::Config, Kind::Weights, Kind::Snapshot];
    file_kind::check(path, &own_kinds, "arguments of transformers")?;
    let beside = Beside::read(own, matches)?;
    let read = |around: &Around<'_>| lab::hf_args::read(path, around);
    let mut found = read(&beside.around())?;
    if beside.needs_python(&found.fields) {
        found = read(&Around { plain: true, ..beside.around() })?;
    }
    let HfArgs { mut fields, refusals, left_out, unknown, .. } = found;
    beside.of_all_ranks(&mut fields);
    let file = path.display();
    if let Some(Refused { argument, field }) = refusals.into_iter().find(|refused| !stands(refused, own, matches)) {
        let instead = field.map(|field| format!("; --{field} says what to take instead")).unwrap_or_default();
        return Err(Failure::usage(format!(
            "{file}: vramlab does not count {argument}; a script that uses it can be rehearsed: `vramlab predict train.py`{instead}"
        )));
    }
    let mut notes: Vec<String> = left_out.into_iter().map(|what| format!("note: {file}: {what}")).collect();
    if !unknown.is_empty() {
        notes.push(format!("note: {file}: not understood, and ignored: {}", unknown.join(", ")));
    }
    Ok(Asked { fields, notes, left_out: Vec::new() })
}

/// Returns the precision that `bf16=true` or `fp16=true` means for the network that is named beside it.
///
/// # Errors
/// Autocast over weights of another type of 16 bits.
pub(super) fn autocast(kind: &str, own: &toml::Table, matches: &ArgMatches) -> Result<Value, Failure> {
    let arguments = Map::from_iter([(kind.to_string(), Value::Bool(true))]);
    let beside = Beside::read(own, matches)?;
    let found = lab::hf_args::counted(&arguments, kind, &beside.around())?;
    let meant = found.fields.get("precision").cloned();
    meant.ok_or_else(|| {
        let argument = found.refusals.into_iter().next().map_or_else(|| kind.into(), |refused| refused.argument);
        Failure::usage(format!(
            "--{kind}: vramlab does not count {argument}; --precision TYPE says what to take instead"
        ))
    })
}

/// Returns the value of an option that this command has, if it was typed.
fn typed<'a, T: Clone + Send + Sync + 'static>(matches: &'a ArgMatches, id: &str) -> Option<&'a T> {
    matches.try_get_one::<T>(id).ok().flatten().filter(|_| given(matches, id))
}

/// True if a typed flag or an entry of the configuration replaces an argument that cannot be supported.
pub(super) fn stands(refused: &Refused, own: &toml::Table, matches: &ArgMatches) -> bool {
    refused.field.is_some_and(|field| own.contains_key(field) || given_here(matches, &field.replace('-', "_")))
}

/// What stands beside a file of arguments and decides its meaning.
pub(super) struct Beside {
    /// The network, by the word that names it.
    word: Option<PathBuf>,
    /// The network that is known by name.
    known: Option<&'static Known>,
    release: Option<Release>,
    script: Option<Script>,
    /// True if a step is divided among ranks.
    divided: bool,
    /// How many ranks share a batch: files of arguments name the batch of each.
    ranks: Option<usize>,
    /// The name of the network, if it is a recorded graph.
    graph: Option<String>,
}

impl Beside {
    /// Collects it from typed flags and from the entries of a configuration.
    pub(super) fn read(own: &toml::Table, matches: &ArgMatches) -> Result<Self, Failure> {
        let said = |key: &str| own.get(key).and_then(toml::Value::as_str);
        let word = typed::<PathBuf>(matches, "model_file").cloned().or_else(|| said("model-file").map(PathBuf::from));
        let named = typed::<String>(matches, "model").map(String::as_str).or_else(|| said("model"));
        let known = named.and_then(huggingface::find);
        let script = typed(matches, "script").copied().or_else(|| said("loop")?.parse().ok());
        let release = typed(matches, "transformers").copied().or_else(|| said("transformers")?.parse().ok());
        let python = typed::<PathBuf>(matches, "python").map(PathBuf::as_path);
        let release = match release {
            Some(_) => release,
            None => UsualRelease::installed(python, &lab::python::of_process)?.release(),
        };
        let divided = ["data_parallel", "zero", "devices"].iter().any(|flag| given_here(matches, flag));
        let of_own =
            || own.get("data-parallel").and_then(toml::Value::as_integer).and_then(|n| usize::try_from(n).ok());
        let ranks = typed(matches, "data_parallel").copied().or_else(of_own);
        let model = ModelSpec { model: named.map(String::from), model_file: word.clone(), ..ModelSpec::default() };
        let graph = model.recorded().map(String::from);
        Ok(Self { word, known, release, script, divided: divided || ranks.is_some(), ranks, graph })
    }

    /// Returns the name of the network, if it is a recorded graph.
    pub(super) fn graph(&self) -> Option<&str> {
        self.graph.as_deref()
    }

    /// True if the weights of a recorded graph are not kept as these fields say: the user's Python, if one may be started, builds its network.
    fn lacks_layers(&self, fields: &Map<String, Value>) -> bool {
        let may = std::env::var_os(super::ONLY_BUILT_IN).is_none();
        may && self.graph.is_some() && FEW_BITS.iter().any(|field| fields.contains_key(*field))
    }

    pub(super) fn around(&self) -> Around<'_> {
        let is_json = |path: &&PathBuf| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"));
        let file = self.word.as_ref().filter(is_json).map(|path| Configuration::File(path));
        let config = file.or(self.known.map(Configuration::Known));
        Around { config, release: self.release, script: self.script, plain: self.divided }
    }

    /// Makes the batch of each rank the batch of all.
    pub(super) fn of_all_ranks(&self, fields: &mut Map<String, Value>) {
        let batch = fields.get("batch").and_then(Value::as_u64);
        if let (Some(batch), Some(ranks)) = (batch, self.ranks) {
            fields.insert("batch".into(), batch.saturating_mul(ranks as u64).into());
        }
    }

    /// True if the user's Python builds the network of a run with these fields.
    pub(super) fn needs_python(&self, fields: &Map<String, Value>) -> bool {
        let asks = self.script.is_none();
        let run = || RunSpec::default().with(fields.iter().map(|(name, value)| (name.as_str(), value))).ok();
        let built = |word: &PathBuf| run().is_some_and(|run| matches!(which(word, &run.model), Which::ByPython(..)));
        asks && (self.word.as_ref().is_some_and(built) || self.lacks_layers(fields))
    }
}

/// Fields of a run that keep weights in few bits, which those of a recorded graph are not.
pub(crate) const FEW_BITS: [&str; 2] = ["load-in-4bit", "load-in-8bit"];

/// True if a command has this option, and it was typed.
fn given_here(matches: &ArgMatches, id: &str) -> bool {
    matches.ids().any(|known| known == id) && given(matches, id)
}
