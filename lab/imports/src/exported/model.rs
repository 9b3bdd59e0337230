//! An exported network: it is read from its file, checked, and can be built on a device.

use std::path::Path;
use std::sync::Arc;

use lab_base::error::{Error, Result};
use lab_models::{Architecture, Defaults, Task};
use memcore::nn::{Init, Module, Parameter};
use memcore::{DType, MAX_RANK};

use super::archive::{self, Archive};
use super::contents::Contents;
use super::inputs::{self, Content, Input, Sizes};
use super::lifetimes::Lifetimes;
use super::loss::{Chosen, LossName};
use super::network::{Network, parameter_order, parameter_type};
use super::operators;
use super::program::Program;
use super::schema::ExportedProgram;
use super::signature::{InputKind, Signature, StateKind};

/// Major version of the schema that is read; the files of torch 2.9 to 2.11 have it.
const SCHEMA: u64 = 8;

/// An exported network, before it is on a device.
pub struct Exported {
    contents: Contents,
    name: String,
    /// Inputs of the network, in the order of the graph.
    pub inputs: Vec<Input>,
    /// Sizes of the inputs.
    pub sizes: Sizes,
    /// Loss that a training minimises.
    pub loss: Chosen,
    /// True if the file says when Python drops each value.
    knows_lifetimes: bool,
    /// Release of PyTorch that wrote the file.
    pub torch: Option<String>,
}

/// True if a file begins as a zip archive, which an export is.
pub fn is_export(path: &Path) -> bool {
    archive::is_archive(path)
}

/// Reads an export. `loss` is the loss to minimise in place of the default one, which is the network's own scalar if it returns one.
///
/// # Errors
/// [`Error::Usage`] naming file, entry and node: the file is not an export, is of another version or is damaged; it has operators (all are named at
/// once), inputs or outputs that are not represented.
pub fn load(path: &Path, loss: Option<LossName>) -> Result<Exported> {
    let file = path.display().to_string();
    let mut archive = Archive::open(path)?;
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
    let lifetimes = Lifetimes::of(&mut archive)?;
    let knows_lifetimes = lifetimes.is_some();
    let lifetimes = lifetimes.unwrap_or_default();
    let program = Program::of(graph, &file, &lifetimes, &|target| operators::find(target).is_some())?;
    let tied = lifetimes.tied.as_deref();
    let signature = Signature::of(&exported.graph_module, &program.used_inputs(), tied, &model, &mut archive)?;
    let found = given(&program, &signature, &exported);
    let (inputs, mut sizes) = found.map_err(|problem| archive.error(&entry, problem))?;
    sizes.is_recorded = lifetimes.is_recorded;
    let loss = Chosen::of(&signature.outputs, loss, &file)?;
    let (dtype, other) = parameter_type(&signature.state);
    if let Some(other) = other {
        return Err(Error::usage(
            &file,
            format!("parameters of {dtype} and of {other} in one network are not represented"),
        ));
    }
    let name = path.file_stem().map_or_else(|| model.clone(), |stem| stem.display().to_string());
    let contents = Contents { path: path.to_path_buf(), file, program: Arc::new(program), signature, dtype };
    Ok(Exported { contents, name, inputs, sizes, loss, knows_lifetimes, torch: exported.torch_version })
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
    inputs::of(&signature.users, &users, program, &known, &exported.range_constraints)
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

/// Note on a file without lifetimes. The figures are those of the table in `docs/import.md`.
const GRAPH_ALONE: &str = "The file does not say how long Python keeps values (`vramlab.export` writes that): of 40 networks the eager program's \
                           peak was the same for most, 0.7 % lower to 5 % higher for others.";

impl Exported {
    /// Returns the notes of a run: the loss, unknown lifetimes, the one call if the file records it, the sizes from the example, the parameters taken
    /// to be tied.
    pub fn notes(&self) -> Vec<String> {
        let size =
            |(symbol, value): (&str, i64)| format!("The size {symbol} is {value}, as in the example of the export.");
        let tied = |(first, second): &(String, String)| {
            format!(
                "The graph does not use one of {first} and {second}, and the file has no weights: they are taken to be one (tied)."
            )
        };
        let sizes = self.sizes.others().map(size);
        let recorded = self.sizes.is_recorded.then(|| {
            format!(
                "The file is one recorded call: the batch is {}, and what the code asks of values is answered as it was then.",
                self.sizes.example
            )
        });
        let graph_alone = (!self.knows_lifetimes).then(|| GRAPH_ALONE.to_string());
        std::iter::once(self.loss.sentence())
            .chain(graph_alone)
            .chain(recorded)
            .chain(sizes)
            .chain(self.contents.signature.taken_as_one.iter().map(tied))
            .collect()
    }

    /// Returns the type of the trained parameters.
    pub fn dtype(&self) -> DType {
        self.contents.dtype
    }

    /// Returns the contents of the file.
    pub(super) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Builds the network on the device of `init`.
    ///
    /// # Errors
    /// Values that the file does not have or that cannot be read; those of the device.
    pub(super) fn network(&self, init: &Init) -> memcore::Result<Network> {
        Network::new(&self.contents, self.loss.output, init)
    }

    /// True if the network can be trained on a data set: it has one input, of floats, and a cross entropy outside the network.
    pub(super) fn takes_examples(&self) -> bool {
        self.inputs.len() == 1
            && self.inputs[0].content == Content::Floats
            && self.loss.kind == Some(LossName::CrossEntropy)
    }

    fn parameters(&self) -> usize {
        let is_one = |kind: StateKind| matches!(kind, StateKind::Parameter { .. });
        self.contents.signature.state.iter().filter(|tensor| is_one(tensor.kind) && tensor.same_as.is_none()).count()
    }
}

impl Architecture for Exported {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        let torch = self.torch.as_ref().map(|torch| format!(", exported by torch {torch}")).unwrap_or_default();
        format!("{} operators, {} parameter tensors{torch}", self.contents.program.nodes.len(), self.parameters())
    }

    fn task(&self) -> Task {
        let first = self.inputs.first();
        let dims = first.and_then(|input| input.dims(&self.sizes, self.sizes.example)).unwrap_or_default();
        let rest = dims.get(1..).unwrap_or_default().to_vec();
        let input = match first.map(|input| input.content) {
            Some(Content::Below(vocabulary)) if rest.len() == 1 => {
                lab_models::Input::Tokens { length: rest[0], vocabulary }
            }
            _ => lab_models::Input::Values(rest),
        };
        Task { input, loss: self.loss.task() }
    }

    fn defaults(&self) -> Defaults {
        Defaults { batch: self.sizes.example, optimizer: "adamw", lr: 1e-3 }
    }

    fn check(&self, batch: usize, _: DType) -> Result<()> {
        self.sizes.check(batch)?;
        match self.inputs.iter().find(|input| input.dims(&self.sizes, batch).is_none()) {
            Some(input) => {
                Err(Error::usage("batch", format!("{batch}: the input {} is beyond what 64 bits count", input.name)))
            }
            None => Ok(()),
        }
    }

    /// Builds a module of one tensor. The network must have one input, and a loss outside it that takes targets.
    fn build(&self, init: &Init) -> memcore::Result<Box<dyn Module>> {
        let has_task = matches!(self.loss.kind, Some(LossName::CrossEntropy | LossName::Mse));
        if self.inputs.len() != 1 || !has_task {
            let problem = "is divided among ranks with one input and --loss cross-entropy or mse only";
            return Err(memcore::Error::invalid(self.contents.file.clone(), problem));
        }
        Ok(Box::new(self.network(init)?))
    }

    fn indivisible(&self) -> Option<&'static str> {
        Some("an exported graph is not cut into pieces")
    }

    fn optimizer_order(&self, parameters: Vec<Parameter>) -> Vec<Parameter> {
        parameter_order(&self.contents.signature.state, parameters)
    }
}
