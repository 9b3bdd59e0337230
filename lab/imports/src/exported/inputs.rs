//! Inputs of an exported network: their sizes follow from the batch, and their values stay in the range that the graph accepts.

use std::collections::{BTreeMap, BTreeSet};

use lab_training::data::SplitMix64;
use memcore::memory::Category;
use memcore::{Array, DType, Device, Tensor};

use super::program::{Arg, Expected, Program, Slot};
use super::schema::{Hint, Size};
use super::signature::UserTensor;
use super::symbols::Expression;

/// Kind of values in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Uniform values between −1 and 1.
    Floats,
    /// Indices below this number.
    Below(usize),
    /// Ones: a mask that hides nothing.
    Ones,
}

/// How an input is divided into micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    /// Each has its examples.
    Examples,
    /// Each has the whole input, which does not depend on the batch.
    Whole,
    /// It is not known which sizes are the batch's.
    Unknown,
}

/// One input.
#[derive(Clone, Debug)]
pub struct Input {
    /// Name in the graph, which is the name of the argument of `forward`.
    pub name: String,
    pub(super) sizes: Vec<Expression>,
    /// Element type.
    pub dtype: DType,
    /// Kind of its values.
    pub content: Content,
}

impl Input {
    /// True if it has a number for each token of an example: `[batch, tokens]`.
    pub(super) fn has_tokens(&self) -> bool {
        self.sizes.len() == 2 && !self.dtype.is_differentiable()
    }
}

/// Makes a tensor of the category "input", filled with values of this kind if the device computes.
pub(super) fn filled(
    device: &Device,
    dims: &[usize],
    dtype: DType,
    content: Content,
    seed: u64,
) -> memcore::Result<Tensor> {
    let array = Array::empty_as(device, dims, dtype, Category::Input)?;
    if device.computes() {
        let mut generator = SplitMix64::new(seed);
        let values: Vec<f64> = match content {
            Content::Floats => (0..array.numel()).map(|_| f64::from(2.0 * generator.next_f32() - 1.0)).collect(),
            Content::Below(n) => (0..array.numel()).map(|_| generator.below(n.max(1) as u64) as f64).collect(),
            Content::Ones => vec![1.0; array.numel()],
        };
        array.write_values(&values)?;
    }
    Ok(Tensor::from_array(array))
}

/// Returns all inputs of a program, and the values of their symbols in the example.
///
/// # Errors
/// The problem with an input, in words; the caller adds the file's name.
pub(super) fn make_inputs(
    users: &[UserTensor],
    slots: &[Slot],
    program: &Program,
    known: &BTreeMap<Slot, Vec<Option<usize>>>,
) -> Result<(Vec<Input>, BTreeMap<String, i64>), String> {
    let mut inputs = Vec::new();
    let mut hints = BTreeMap::new();
    for (user, slot) in users.iter().zip(slots) {
        let mut sizes = Vec::new();
        for size in &user.meta.sizes {
            let expression = Expression::from_size(size);
            let expression =
                expression.ok_or_else(|| format!("a size of the input {} is not understood", user.name))?;
            if let (Expression::Symbol(symbol), Size::AsExpr(written)) = (&expression, size) {
                let hint = written.hint.as_ref().and_then(|Hint { as_int }| *as_int);
                hints.entry(symbol.clone()).or_insert(hint.unwrap_or(1));
            }
            sizes.push(expression);
        }
        let content = if user.dtype.is_differentiable() { Content::Floats } else { content(*slot, program, known) };
        inputs.push(Input { name: user.name.clone(), sizes, dtype: user.dtype, content });
    }
    let all = inputs.iter().flat_map(|input| &input.sizes).flat_map(Expression::symbols);
    if let Some(unknown) = all.clone().find(|symbol| !hints.contains_key(*symbol)) {
        return Err(format!("the symbol {unknown} stands in a size of an input, and never alone"));
    }
    Ok((inputs, hints))
}

/// Operators whose result holds values of their first argument.
const SAME_VALUES: [&str; 22] = [
    "view",
    "reshape",
    "flatten",
    "unflatten",
    "to",
    "slice",
    "contiguous",
    "alias",
    "expand",
    "unsqueeze",
    "squeeze",
    "clone",
    "narrow",
    "select",
    "transpose",
    "permute",
    "pad",
    "constant_pad_nd",
    "detach",
    "t",
    "type_as",
    "_to_copy",
];

/// Returns the kind of values that the integers in this slot need, by their use: below the rows of an embedding table or the classes of a loss
/// (the least of these), or ones if no such use is found.
fn content(slot: Slot, program: &Program, known: &BTreeMap<Slot, Vec<Option<usize>>>) -> Content {
    let mut same = BTreeSet::from([slot]);
    let mut below: Option<usize> = None;
    for node in &program.nodes {
        let name = node.target.split('.').next().unwrap_or_default();
        let at = |wanted: &str| node.arguments.iter().find(|(name, _)| name == wanted).map(|(_, arg)| arg);
        let is_same = |arg: Option<&Arg>| matches!(arg, Some(Arg::Value(slot)) if same.contains(slot));
        let size = |arg: Option<&Arg>, axis: usize| match arg {
            Some(Arg::Value(slot)) => known.get(slot).and_then(|dims| *dims.get(axis)?),
            _ => None,
        };
        let found = match name {
            "embedding" if is_same(at("indices")) => size(at("weight"), 0),
            "cross_entropy_loss" | "nll_loss" | "nll_loss_nd" if is_same(at("target")) => size(at("self"), 1),
            _ => None,
        };
        below = below.into_iter().chain(found).min();
        if SAME_VALUES.contains(&name) && is_same(node.arguments.first().map(|(_, arg)| arg)) {
            same.extend(node.outputs.iter().map(|output| output.slot));
        }
    }
    below.map_or(Content::Ones, Content::Below)
}

/// Returns the sizes that the file gives for each node's results; `None` for a size that is not a number.
pub(super) fn known_sizes(program: &Program) -> BTreeMap<Slot, Vec<Option<usize>>> {
    let outputs = program.nodes.iter().flat_map(|node| &node.outputs);
    let sizes = |expected: &Expected| expected.dims.clone();
    outputs.filter_map(|output| Some((output.slot, output.expected.as_ref().map(sizes)?))).collect()
}
