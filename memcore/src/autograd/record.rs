//! Recording an operation in the graph.

use std::sync::Arc;

use super::mode::is_grad_enabled;
use super::node::{Edge, Function, Node};
use super::saved::SavedValue;
use super::tensor::Tensor;
use crate::array::Array;
use crate::context::current_scope;
use crate::error::Result;
use crate::tape::TapeResult;

/// Collects the values that an operation saves.
#[derive(Default)]
pub struct Recorder {
    saved: Vec<SavedValue>,
}

impl Recorder {
    /// Saves `array` for backward, under its role. [`Saved::get`](super::Saved::get) finds it by its position.
    ///
    /// # Errors
    /// Errors of a saved-tensor hook.
    pub fn save(&mut self, role: &'static str, array: &Array) -> Result<()> {
        self.saved.push(SavedValue::new(role, array)?);
        Ok(())
    }
}

/// Gives `output` its history: a node that computes the gradients of `inputs`. `describe` makes its backward function
/// and saves the values for it. `describe` is not called when nothing is recorded (no input has a history, or recording
/// is off).
pub fn record(
    output: Array,
    inputs: &[&Tensor],
    describe: impl FnOnce(&mut Recorder) -> Result<Box<dyn Function>>,
) -> Result<Tensor> {
    let Some(node) = record_node(1, inputs, &output, describe)? else { return Ok(Tensor::from_array(output)) };
    Ok(Tensor::with_edge(output, Edge::Node(node, 0)))
}

/// Like [`record`], but saves the inputs before `compute` makes the output, so that a checkpoint's recomputation can
/// stop before computing it. For an operation that saves only inputs.
///
/// # Errors
/// Errors of `describe` and `compute`.
pub fn record_inputs(
    inputs: &[&Tensor],
    describe: impl FnOnce(&mut Recorder) -> Result<Box<dyn Function>>,
    compute: impl FnOnce() -> Result<Array>,
) -> Result<Tensor> {
    if !records(inputs) {
        return Ok(Tensor::from_array(compute()?));
    }
    let mut recorder = Recorder::default();
    let function = describe(&mut recorder)?;
    let output = compute()?;
    let node = new_node(1, inputs, &output, function, recorder);
    Ok(Tensor::with_edge(output, Edge::Node(node, 0)))
}

/// Whether an operation on `inputs` is recorded.
pub(crate) fn records(inputs: &[&Tensor]) -> bool {
    is_grad_enabled() && inputs.iter().any(|t| t.requires_grad())
}

/// Like [`record`], for an operation with several outputs. Gradients arrive in one slot per output.
pub fn record_many(
    outputs: Vec<Array>,
    inputs: &[&Tensor],
    describe: impl FnOnce(&mut Recorder) -> Result<Box<dyn Function>>,
) -> Result<Vec<Tensor>> {
    let Some(first) = outputs.first() else { return Ok(Vec::new()) };
    let node = record_node(outputs.len() as u32, inputs, first, describe)?;
    let with_history = |(i, array): (usize, Array)| match &node {
        Some(node) => Tensor::with_edge(array, Edge::Node(node.clone(), i as u32)),
        None => Tensor::from_array(array),
    };
    Ok(outputs.into_iter().enumerate().map(with_history).collect())
}

fn record_node(
    outputs: u32,
    inputs: &[&Tensor],
    output: &Array,
    describe: impl FnOnce(&mut Recorder) -> Result<Box<dyn Function>>,
) -> Result<Option<Arc<Node>>> {
    if !records(inputs) {
        return Ok(None);
    }
    let mut recorder = Recorder::default();
    let function = describe(&mut recorder)?;
    Ok(Some(new_node(outputs, inputs, output, function, recorder)))
}

fn new_node(
    outputs: u32,
    inputs: &[&Tensor],
    output: &Array,
    function: Box<dyn Function>,
    recorder: Recorder,
) -> Arc<Node> {
    let device = output.device().clone();
    device.tape().result(|| TapeResult {
        scope: current_scope(),
        name: function.name(),
        dims: output.dims().to_vec(),
        dtype: output.dtype(),
    });
    let leaf = |t: &&Tensor| match t.edge() {
        Some(Edge::Leaf(leaf)) if recorder.saved.iter().any(|saved| saved.is_packed(t.array())) => Some(leaf.clone()),
        _ => None,
    };
    let packed_leaves = inputs.iter().filter_map(leaf).collect();
    let next = inputs.iter().map(|t| t.edge().cloned()).collect();
    Node::new(device, function, outputs, next, packed_leaves, recorder.saved)
}
