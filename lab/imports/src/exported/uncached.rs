//! A graph of transformers without its cache of keys and values: `gradient_checkpointing_enable()` makes a training leave it out, and exports
//! have it.
//!
//! A layer of the cache begins empty, and joins keys to it: `torch.cat([empty, keys])`. Without it the keys themselves go on, and
//! live as long as their name in the attention's function, which ends after that of the queries.

use std::collections::{HashMap, HashSet};

use super::modules::{calls, is_of_transformers};
use super::program::{Arg, Node, Output, Program, Slot, slots_of};
use super::signature::{InputKind, Signature};

/// What a run without the cache does otherwise; nothing for a graph that has none.
#[derive(Default)]
pub(super) struct Uncached {
    /// Joined keys or values, and what was joined to nothing.
    same: HashMap<Slot, Slot>,
    /// Results of the graph that the cache held, by the queries with which they die.
    dies_with: HashMap<Slot, Vec<Slot>>,
}

impl Uncached {
    /// Finds the cache of a graph.
    pub(super) fn from_graph(program: &Program, signature: &Signature) -> Self {
        let mut found = Self::default();
        let outputs: HashSet<Slot> = program.outputs.iter().flat_map(slots_of).collect();
        let mut empty: HashSet<Slot> = program
            .inputs
            .iter()
            .zip(&signature.inputs)
            .filter(|(_, kind)| matches!(kind, InputKind::State(number) if signature.state[*number].dims.contains(&0)))
            .map(|(slot, _)| *slot)
            .collect();
        // By what is cached, the queries of its attention.
        let mut queries: HashMap<Slot, Slot> = HashMap::new();
        for (place, node) in program.nodes.iter().enumerate() {
            let is_empty =
                |output: &&Output| output.expected.as_ref().is_some_and(|expected| expected.dims.contains(&Some(0)));
            empty.extend(node.outputs.iter().filter(is_empty).map(|output| output.slot));
            let Some(made) = node.outputs.first().map(|output| output.slot) else { continue };
            if let Some(joined) = joined(node, &empty).filter(|_| is_of_transformers(&node.modules)) {
                if let Some(query) = query_after(&program.nodes[place..]) {
                    found.same.insert(made, joined);
                    queries.insert(made, query);
                }
            } else if node.target == "slice.Tensor"
                && let Some(query) = node.given().next().and_then(|seen| queries.get(&seen)).copied()
            {
                queries.insert(made, query);
            }
            if let Some(query) = queries.get(&made).filter(|_| outputs.contains(&made)) {
                found.dies_with.entry(*query).or_default().push(made);
            }
        }
        found
    }

    /// The value that stands for the result of a node.
    pub(super) fn instead(&self, node: &Node) -> Option<(Slot, Slot)> {
        let made = node.outputs.first()?.slot;
        self.same.get(&made).map(|joined| (made, *joined))
    }

    /// The values that die after another one.
    pub(super) fn dying_with(&self, slot: Slot) -> &[Slot] {
        self.dies_with.get(&slot).map_or(&[], Vec::as_slice)
    }
}

/// What a node joins to nothing.
fn joined(node: &Node, empty: &HashSet<Slot>) -> Option<Slot> {
    match node.arguments.first() {
        Some((_, Arg::Values(slots))) if node.target == "cat.default" => match slots.as_slice() {
            [Some(first), Some(second)] if empty.contains(first) => Some(*second),
            _ => None,
        },
        _ => None,
    }
}

/// The queries of the attention that the first of these nodes belongs to.
fn query_after(nodes: &[Node]) -> Option<Slot> {
    let module = calls(&nodes.first()?.modules).next_back()?.path;
    let attends = |node: &&Node| {
        let is_in = calls(&node.modules).any(|call| call.path == module);
        is_in && (node.target == "scaled_dot_product_attention.default" || node.target == "matmul.default")
    };
    nodes.iter().find(attends)?.given().next()
}
