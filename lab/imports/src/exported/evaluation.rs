//! `extra/vramlab-evaluation.json`, which `vramlab.export` writes beside a graph that computes otherwise under `model.eval()`: the graph of an
//! evaluation, or why PyTorch has none.
//!
//! ```json
//! {"version": 1, "program": {"graph_module": …, "schema_version": …}, "dies_after": [["dropout", "linear"]]}
//! {"version": 1, "problem": "PyTorch's message"}
//! ```
//!
//! `program` is what `models/model.json` would be. Its tensors are those of the training: no weights belong to it. What cannot be read of it refuses
//! an evaluation, not a training.

use std::sync::Arc;

use lab_base::error::Result;
use serde::Deserialize;

use super::archive::Archive;
use super::first_states;
use super::lifetimes::{self, Death, Lifetimes};
use super::operators::Operator;
use super::program::Program;
use super::schema::{Argument, ExportedProgram, TensorMeta};
use super::signature::{self, InputKind, OutputTensor, Signature};

/// Name of the entry in the archive.
const ENTRY: &str = "extra/vramlab-evaluation.json";

/// The graph of an evaluation.
pub(super) struct Evaluation {
    pub program: Arc<Program>,
    /// For each of its inputs, which input of the training's graph it is; `None` for one that is not a tensor.
    pub inputs: Vec<Option<usize>>,
    pub outputs: Vec<OutputTensor>,
}

#[derive(Deserialize)]
struct Entry {
    version: u64,
    program: Option<ExportedProgram>,
    #[serde(default)]
    dies_after: Vec<Death>,
    problem: Option<String>,
}

impl Evaluation {
    /// Reads the graph; `None` if the archive has none, and inside why it cannot be run. `training` is what the training's graph takes and gives.
    pub(super) fn in_archive(archive: &mut Archive, training: &Signature, file: &str) -> Option<Result<Self, String>> {
        archive.has(ENTRY).then(|| {
            let entry: Entry = archive.json(ENTRY).map_err(|error| error.to_string())?;
            if entry.version != lifetimes::VERSION {
                return Err(format!("it was written by another release of vramlab (version {})", entry.version));
            }
            match (entry.program, entry.problem) {
                (Some(program), _) => {
                    let lifetimes =
                        Lifetimes::of_deaths(entry.dies_after).map_err(|value| format!("{value} dies twice"))?;
                    Self::read(&program, &lifetimes, training, file)
                }
                (None, problem) => Err(format!("torch.export: {}", problem.unwrap_or_default())),
            }
        })
    }

    fn read(
        exported: &ExportedProgram,
        lifetimes: &Lifetimes,
        training: &Signature,
        file: &str,
    ) -> Result<Self, String> {
        let graph = &exported.graph_module.graph;
        let specs = &exported.graph_module.signature;
        let mut program =
            Program::build(graph, file, lifetimes, &Operator::number).map_err(|error| error.to_string())?;
        first_states::follow_inputs(&mut program);
        let mut users = 0;
        let mut inputs = Vec::new();
        for (argument, spec) in graph.inputs.iter().zip(&specs.input_specs) {
            let Argument::Tensor(name) = argument else {
                inputs.push(None);
                continue;
            };
            let meta = graph.tensor_values.get(name).ok_or_else(|| format!("nothing is said of the input {name}"))?;
            let place = if spec.contains_key("user_input") {
                users += 1;
                training.user(users - 1, name, meta)
            } else {
                spec.values().find_map(signature::path).and_then(|path| training.tensor(path, meta))
            };
            inputs.push(Some(place.ok_or_else(|| format!("the training has no input as its {name}"))?));
        }
        let mut outputs = Vec::new();
        for (argument, spec) in graph.outputs.iter().zip(&specs.output_specs) {
            outputs.push(signature::output(graph, argument, spec)?);
        }
        if inputs.len() != program.inputs.len() || outputs.len() != program.outputs.len() {
            return Err("graph and signature have different numbers of inputs or outputs".into());
        }
        Ok(Self { program: Arc::new(program), inputs, outputs })
    }

    /// Why no loss can be computed from the output of this number, as the training's graph gives it; `None` if one can.
    pub(super) fn without_output(&self, number: usize, training: &Signature) -> Option<String> {
        let dims = |output: Option<&OutputTensor>| output?.expected.as_ref().map(|expected| expected.dims.clone());
        let of_training = dims(training.outputs.get(number));
        (dims(self.outputs.get(number)) != of_training)
            .then(|| "under model.eval() the network does not return what its loss is computed from".into())
    }
}

impl Signature {
    /// Returns the place among the inputs of a tensor of the network with this path, these sizes and this type.
    fn tensor(&self, path: &str, meta: &TensorMeta) -> Option<usize> {
        let is_it = |kind: &InputKind| match kind {
            InputKind::State(number) => {
                let tensor = &self.state[*number];
                tensor.path == path && signature::is_like(meta, &tensor.dims, tensor.dtype)
            }
            _ => false,
        };
        self.inputs.iter().position(is_it)
    }

    /// Returns the place among the inputs of the user's input of this number, if it has this name and this type.
    fn user(&self, number: usize, name: &str, meta: &TensorMeta) -> Option<usize> {
        let user = self.users.get(number)?;
        let is_it = user.name == name && user.meta.dtype == meta.dtype && user.meta.sizes.len() == meta.sizes.len();
        let place = self.inputs.iter().position(|kind| matches!(kind, InputKind::User(other) if *other == number));
        place.filter(|_| is_it)
    }
}
