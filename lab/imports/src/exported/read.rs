//! Reading an export: its archive, checked, becomes what networks are built from.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lab_base::error::Result;
use lab_models::Recompute;
use memcore::MAX_RANK;

use super::adapted::embeddings;
use super::archive::Archive;
use super::contents::Contents;
use super::evaluation::Evaluation;
use super::first_states;
use super::inputs::{self, Input};
use super::lifetimes::Lifetimes;
use super::network::parameter_types;
use super::operators::{self, Operator, Property};
use super::program::Program;
use super::regions::Regions;
use super::schema::ExportedProgram;
use super::signature::{InputKind, Signature};
use super::sizes::Sizes;
use super::uncached::Uncached;

/// Major version of the schema that is read; the files of torch 2.9 to 2.15 have it.
const SCHEMA: u64 = 8;

/// Contents of a file that do not depend on a run's settings.
pub(super) struct Read {
    pub contents: Contents,
    pub name: String,
    /// Inputs of the network, in the order of the graph.
    pub inputs: Vec<Input>,
    /// Sizes of the inputs.
    pub sizes: Sizes,
    /// True if the file says when Python drops each value.
    pub knows_lifetimes: bool,
    /// Release of PyTorch that wrote the file.
    pub torch: Option<String>,
    /// What is assumed of its operators, or left out.
    pub of_operators: Vec<&'static str>,
    /// What each choice of modules to compute again comes to; a search asks for the same few many times.
    again: Mutex<Vec<(Recompute, Arc<Regions>)>>,
}

impl Read {
    /// The parts of the program that are computed again.
    ///
    /// # Errors
    /// Modules that the network does not have, or whose operators do not follow one another.
    pub(super) fn again(&self, recompute: &Recompute) -> Result<Arc<Regions>> {
        let mut known = self.again.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, regions)) = known.iter().find(|(other, _)| other == recompute) {
            return Ok(regions.clone());
        }
        let Contents { program, signature, .. } = &self.contents;
        let is_state = |kind: &InputKind| matches!(kind, InputKind::State(_));
        let is_state: Vec<bool> = signature.inputs.iter().map(is_state).collect();
        let mut regions = Regions::from_program(program, &is_state, recompute)?;
        if !regions.modules.is_empty() {
            regions.marked = embeddings(program);
            regions.uncached = Uncached::from_graph(program, signature);
        }
        let regions = Arc::new(regions);
        known.push((recompute.clone(), regions.clone()));
        Ok(regions)
    }
}

/// Reads and checks a file.
///
/// # Errors
/// Those of [`load`](super::load).
pub(super) fn read(path: &Path) -> Result<Read> {
    read_archive(Archive::open(path)?, path)
}

/// Reads and checks an archive. `path`: the file, or the name of a network that is in none.
///
/// # Errors
/// Those of [`load`](super::load).
pub(super) fn read_archive(mut archive: Archive, path: &Path) -> Result<Read> {
    let file = path.display().to_string();
    let model = only_model(&archive)?;
    let entry = format!("models/{model}.json");
    let exported: ExportedProgram = archive.json(&entry)?;
    if exported.schema_version.major != SCHEMA {
        let (major, minor) = (exported.schema_version.major, exported.schema_version.minor);
        let problem = format!(
            "is of version {major}.{minor} of the schema; version {SCHEMA} is read, that of torch 2.9 and later"
        );
        return Err(archive.error(&entry, problem));
    }
    let graph = &exported.graph_module.graph;
    if let Some((name, _)) = graph.tensor_values.iter().find(|(_, meta)| meta.sizes.len() > MAX_RANK) {
        return Err(archive.error(&entry, format!("{name} has more than {MAX_RANK} dimensions")));
    }
    let lifetimes = Lifetimes::read(&mut archive)?;
    let knows_lifetimes = lifetimes.is_some();
    let mut lifetimes = lifetimes.unwrap_or_default();
    let mut program = Program::build(graph, &file, &lifetimes, &Operator::number)?;
    if knows_lifetimes {
        first_states::follow_inputs(&mut program);
    }
    let tied = lifetimes.tied.as_deref();
    let signature = Signature::read(&exported.graph_module, &program.used_inputs(), tied, &model, &mut archive)?;
    let found = given(&program, &signature, &exported);
    let (inputs, mut sizes) = found.map_err(|problem| archive.error(&entry, problem))?;
    sizes.is_recorded = lifetimes.is_recorded;
    let (dtype, other_type) = parameter_types(&signature.state);
    let name = path.file_stem().map_or_else(|| model.clone(), |stem| stem.display().to_string());
    let is_noted = |note: &&'static str| program.first(&|name| operators::has(name, Property::Note(note))).is_some();
    let of_operators = operators::NOTES.into_iter().filter(is_noted).collect();
    let program = Arc::new(program);
    let evaluation = Evaluation::in_archive(&mut archive, &signature, &file);
    let (path, flattens) = (path.to_path_buf(), knows_lifetimes);
    let moved_before = std::mem::take(&mut lifetimes.moved_before);
    let layers = OnceLock::new();
    let contents =
        Contents { path, file, program, signature, evaluation, dtype, other_type, moved_before, layers, flattens };
    let (torch, again) = (exported.torch_version, Mutex::default());
    Ok(Read { contents, name, inputs, sizes, knows_lifetimes, torch, of_operators, again })
}

/// Returns the network's inputs and their sizes.
fn given(program: &Program, signature: &Signature, exported: &ExportedProgram) -> Result<(Vec<Input>, Sizes), String> {
    let mut known = inputs::known_sizes(program);
    let mut users = Vec::new();
    for (slot, kind) in program.inputs.iter().zip(&signature.inputs) {
        match kind {
            InputKind::State(number) => {
                known.insert(*slot, signature.state[*number].dims.iter().copied().map(Some).collect());
            }
            InputKind::User(_) => users.push(*slot),
            InputKind::Nothing => {}
        }
    }
    let (mut inputs, hints) = inputs::make_inputs(&signature.users, &users, program, &known)?;
    let sizes = Sizes::read(&mut inputs, hints, &exported.range_constraints, &exported.guards_code);
    Ok((inputs, sizes))
}

/// Returns the name of the archive's only model.
fn only_model(archive: &Archive) -> Result<String> {
    let models: Vec<&str> = archive.below("models/").filter_map(|name| name.strip_suffix(".json")).collect();
    match models.as_slice() {
        [model] => Ok((*model).to_string()),
        [] => Err(archive.error("models", "holds no model: torch.export.save writes one, models/model.json")),
        several => Err(archive.error("models", format!("holds several models: {}", several.join(", ")))),
    }
}
