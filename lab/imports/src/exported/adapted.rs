//! The linear layers of a graph, which may have low-rank adapters, and the embeddings of its tokens.

use std::collections::{HashMap, HashSet};

use super::modules::{calls, is_of_transformers};
use super::program::{Arg, Node, Program, Slot};
use super::signature::{InputKind, Signature, StateKind, StateTensor};

/// The class whose modules PEFT puts adapters on.
const LINEAR: &str = "torch.nn.modules.linear.Linear";

/// The operator that such a module calls.
const CALLED: &str = "linear.default";

/// The last tensor of each linear layer, after which its adapter is made, with the layer's weight: both are numbers among the tensors of the file.
///
/// A layer is a module of PyTorch's own class whose weight is used by its own calls alone, and is not shared.
pub(super) fn linear_layers(program: &Program, signature: &Signature) -> HashMap<usize, usize> {
    let state = &signature.state;
    let inputs = program.inputs.iter().zip(&signature.inputs);
    let numbers: HashMap<Slot, usize> = inputs
        .filter_map(|(slot, kind)| if let InputKind::State(number) = kind { Some((*slot, *number)) } else { None })
        .collect();
    let mut is_layer: HashMap<usize, bool> = HashMap::new();
    for node in &program.nodes {
        let weight = weight_of(node).and_then(|slot| numbers.get(&slot)).copied();
        let own = weight.filter(|number| is_own_call(node, &state[*number]));
        for number in node.given().filter_map(|slot| numbers.get(&slot)) {
            let is_own = own == Some(*number);
            is_layer.entry(*number).and_modify(|all| *all &= is_own).or_insert(is_own);
        }
    }
    let shared: HashSet<usize> = state.iter().filter_map(|tensor| tensor.same_as).collect();
    let alone = |number: &usize| state[*number].same_as.is_none() && !shared.contains(number);
    let weights = is_layer.into_iter().filter_map(|(number, is)| is.then_some(number)).filter(alone);
    let numbers: HashMap<&str, usize> =
        state.iter().enumerate().map(|(number, one)| (one.path.as_str(), number)).collect();
    // The bias of the weight's module, if it has one.
    let last = |weight: usize| {
        let bias = state[weight].path.strip_suffix("weight").map(|module| format!("{module}bias"));
        bias.and_then(|bias| numbers.get(bias.as_str()).copied()).unwrap_or(weight)
    };
    weights.map(|weight| (last(weight), weight)).collect()
}

/// The slot of a linear call's weight.
fn weight_of(node: &Node) -> Option<Slot> {
    let (_, argument) = node.arguments.iter().find(|(name, _)| name == "weight")?;
    match argument {
        Arg::Value(slot) if node.target == CALLED => Some(*slot),
        _ => None,
    }
}

/// True if the call is one of the module that has the weight.
fn is_own_call(node: &Node, weight: &StateTensor) -> bool {
    let is_parameter = matches!(weight.kind, StateKind::Parameter { .. }) && weight.dims.len() == 2;
    let module = weight.path.strip_suffix(".weight");
    let call = calls(&node.modules).next_back();
    is_parameter && call.is_some_and(|call| call.class == LINEAR && Some(call.path) == module)
}

/// The embeddings of tokens of a network of transformers, by slot: with `gradient_checkpointing_enable()` they require a gradient. A
/// module that scales them does so before its hook runs.
pub(super) fn embeddings(program: &Program) -> Vec<Slot> {
    let first = program.nodes.iter().find(|node| node.target == "embedding.default");
    let of_transformers = first.filter(|node| is_of_transformers(&node.modules));
    let Some(table) = of_transformers.and_then(|node| calls(&node.modules).next_back()) else { return Vec::new() };
    let mut last: Vec<(&str, Slot)> = Vec::new();
    for node in &program.nodes {
        let call = calls(&node.modules).next_back().filter(|call| call.path == table.path);
        let (Some(call), Some(made)) = (call, node.outputs.first()) else { continue };
        match last.iter_mut().find(|(key, _)| *key == call.key) {
            Some((_, slot)) => *slot = made.slot,
            None => last.push((call.key, made.slot)),
        }
    }
    last.into_iter().map(|(_, slot)| slot).collect()
}
