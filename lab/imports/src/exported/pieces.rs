//! The pieces that a graph is cut into for several devices: they begin where modules do.

use std::collections::HashSet;
use std::ops::Range;

use super::blocks::{above, modules, outer, repeated};
use super::modules::calls;
use super::program::{Node, Program};

/// Nodes that are on one device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub nodes: Range<usize>,
    /// Paths of its modules: the block that it begins with, and the outermost ones of those that follow.
    pub modules: Vec<String>,
}

/// The pieces of a graph.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    /// In the order of the graph, which they cover.
    pub all: Vec<Piece>,
    /// Modules that are called again after others: the graph is cut before their first call alone.
    pub called_again: Vec<String>,
}

impl Pieces {
    /// Finds the pieces of a graph: the repeated blocks, what is before the first, and what is after the last; what lies between two blocks goes with
    /// the first of them. A graph without blocks has its outermost modules as pieces, with what lies between.
    pub(super) fn from_program(program: &Program) -> Self {
        let called = modules(program);
        let blocks: HashSet<&str> = repeated(&called).into_iter().collect();
        let others: HashSet<&str> = outer(&called).into_iter().collect();
        let (found, ends) = match starts(program, &blocks) {
            found if found.places.is_empty() => (starts(program, &others), false),
            found => (found, true),
        };
        let Starts { units, mut places, end, called_again } = found;
        match places.first_mut() {
            Some(first) if !ends || !program.nodes[..*first].iter().any(is_computed) => *first = 0,
            _ => places.insert(0, 0),
        }
        let rest = end..program.nodes.len();
        if ends && program.nodes[rest.clone()].iter().any(is_computed) {
            places.push(rest.start);
        }
        let bounds = places.iter().copied().zip(places.iter().skip(1).copied().chain([program.nodes.len()]));
        let ranges: Vec<Range<usize>> = bounds.map(|(start, end)| start..end).collect();
        let around: HashSet<&str> = units.iter().flat_map(|path| above(path)).collect();
        let all =
            ranges.into_iter().map(|nodes| Piece { modules: named(&program.nodes[nodes.clone()], &around), nodes });
        Self { all: all.collect(), called_again }
    }
}

/// Where the modules that pieces begin with have their nodes.
struct Starts<'a> {
    /// Paths of the modules.
    units: &'a HashSet<&'a str>,
    /// The first node of each, in order.
    places: Vec<usize>,
    /// The node after the last one of the last of them.
    end: usize,
    called_again: Vec<String>,
}

fn starts<'a>(program: &'a Program, units: &'a HashSet<&'a str>) -> Starts<'a> {
    let mut found = Starts { units, places: Vec::new(), end: 0, called_again: Vec::new() };
    let (mut seen, mut before) = (HashSet::new(), None);
    for (place, node) in program.nodes.iter().enumerate() {
        let Some(path) = unit(node, units) else { continue };
        found.end = place + 1;
        if before != Some(path) {
            if seen.insert(path) {
                found.places.push(place);
            } else if !found.called_again.iter().any(|known| known == path) {
                found.called_again.push(path.to_string());
            }
            before = Some(path);
        }
    }
    found
}

/// The module, of these, that a node lies in, or the first one in a graph inside of it.
fn unit<'a>(node: &'a Node, units: &HashSet<&str>) -> Option<&'a str> {
    let own = calls(&node.modules).map(|call| call.path).find(|path| units.contains(path));
    own.or_else(|| node.graphs().flat_map(|inner| &inner.nodes).find_map(|inner| unit(inner, units)))
}

/// True for a node that computes tensors, and does not only ask for sizes.
fn is_computed(node: &Node) -> bool {
    !["sym_", "_assert", "_operator."].iter().any(|start| node.target.starts_with(start))
}

/// The outermost modules of nodes, without those `around` the pieces.
fn named(nodes: &[Node], around: &HashSet<&str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut add = |node: &Node| {
        let path = calls(&node.modules).map(|call| call.path).find(|path| !path.is_empty() && !around.contains(path));
        if let Some(path) = path.filter(|path| !found.iter().any(|known| known == path)) {
            found.push(path.to_string());
        }
    };
    for node in nodes {
        add(node);
        node.graphs().flat_map(|inner| &inner.nodes).for_each(&mut add);
    }
    found
}
