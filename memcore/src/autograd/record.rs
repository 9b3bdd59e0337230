//! How an operation becomes part of the graph.

use std::sync::Arc;

use super::mode::is_grad_enabled;
use super::node::{Edge, Function, Node};
use super::saved::SavedValue;
use super::tensor::Tensor;
use crate::array::Array;
use crate::error::Result;

/// Collects what an operation saves.
#[derive(Default)]
pub struct Recorder {
    saved: Vec<SavedValue>,
}

impl Recorder {
    /// Keeps `array` for backward, under its role; [`Saved::get`](super::Saved::get) finds it by its position.
    ///
    /// # Errors
    /// That of a hook on saved values.
    pub fn save(&mut self, role: &'static str, array: &Array) -> Result<()> {
        self.saved.push(SavedValue::new(role, array)?);
        Ok(())
    }
}

/// Gives `output` its history: the function of `inputs` whose backward `describe` makes, remembering what it saves. When nothing is
/// recorded (no input has a history, or recording is off) `describe` is not called.
pub fn record(
    output: Array,
    inputs: &[&Tensor],
    describe: impl FnOnce(&mut Recorder) -> Result<Box<dyn Function>>,
) -> Result<Tensor> {
    let Some(node) = record_node(1, inputs, &output, describe)? else { return Ok(Tensor::from_array(output)) };
    Ok(Tensor::with_edge(output, Edge::Node(node, 0)))
}

/// As [`record`], for an operation that saves inputs only: they are saved before `compute` makes the output, so that a recomputation which needs
/// nothing after them stops without it.
///
/// # Errors
/// Those of `describe` and `compute`.
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

/// As [`record`], for an operation with several outputs; gradients arrive in one slot per output.
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
    let leaf = |t: &&Tensor| match t.edge() {
        Some(Edge::Leaf(leaf)) if recorder.saved.iter().any(|saved| saved.is_packed(t.array())) => Some(leaf.clone()),
        _ => None,
    };
    let packed_leaves = inputs.iter().filter_map(leaf).collect();
    let next = inputs.iter().map(|t| t.edge().cloned()).collect();
    Node::new(device, function, outputs, next, packed_leaves, recorder.saved)
}
