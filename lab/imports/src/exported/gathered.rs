//! The parameters of a graph divided among ranks (ZeRO-3): each piece's are gathered before its nodes run, forward or backward, and freed after them.
//!
//! Pieces are those that a graph is [cut](super::pieces) into for several devices. Pieces with a parameter in common are one group, whose parameters
//! stay gathered from the first of them on, as those of built-in networks with tied ends do.

use std::collections::HashSet;
use std::ops::Range;

use lab_training::data_parallel::Gathering;
use memcore::Result;

use super::contents::Contents;
use super::pieces;
use super::program::{Program, Slot, slots_of};
use super::regions::{Region, Regions};
use super::signature::{InputKind, StateKind};
use super::value::Value;

/// The pieces of a graph, and whose parameters are divided together.
pub(super) struct Pieces {
    /// Nodes of each piece.
    nodes: Vec<Range<usize>>,
    /// Values of each piece that later ones use, or the graph returns.
    leaving: Vec<Vec<Slot>>,
    /// Group of each piece.
    groups: Vec<usize>,
    /// Group of each tensor of the network.
    of_tensor: Vec<usize>,
}

impl Pieces {
    /// Finds the pieces of a network. One that is computed again as a whole is in one piece.
    pub(super) fn from_contents(contents: &Contents, again: &Regions) -> Self {
        let program = &*contents.program;
        let nodes = joined(pieces::Pieces::from_program(program), again.within(program));
        let state = &contents.signature.state;
        let mut of_slot = vec![None; program.names.len()];
        for (slot, kind) in program.inputs.iter().zip(&contents.signature.inputs) {
            if let InputKind::State(number) = kind {
                let number = state[*number].same_as.unwrap_or(*number);
                let is_parameter = matches!(state[number].kind, StateKind::Parameter { .. });
                of_slot[*slot] = is_parameter.then_some(number);
            }
        }
        // Each piece has its own group, unless it has a parameter of an earlier one.
        let mut groups: Vec<usize> = (0..nodes.len()).collect();
        let mut first_use = vec![None; state.len()];
        for (piece, range) in nodes.iter().enumerate() {
            for number in program.nodes[range.clone()].iter().flat_map(|node| node.given()).filter_map(|s| of_slot[s]) {
                let first = *first_use[number].get_or_insert(piece);
                let (one, other) = (groups[first], groups[piece]);
                let (least, most) = (one.min(other), one.max(other));
                groups.iter_mut().filter(|group| **group == most).for_each(|group| *group = least);
            }
        }
        let mut known: Vec<usize> = groups.clone();
        known.sort_unstable();
        known.dedup();
        let groups: Vec<usize> = groups.iter().map(|group| known.partition_point(|other| other < group)).collect();
        let of_tensor = first_use.into_iter().map(|piece| piece.map_or(0, |piece| groups[piece])).collect();
        Self { leaving: leaving(program, &nodes), nodes, groups, of_tensor }
    }

    /// Number of groups.
    pub(super) fn groups(&self) -> usize {
        self.groups.iter().max().map_or(0, |last| last + 1)
    }

    /// Group of a tensor of the network.
    pub(super) fn group_of(&self, tensor: usize) -> usize {
        self.of_tensor.get(tensor).copied().unwrap_or(0)
    }

    /// The pieces with the parameters of each group; `None` for a group without any.
    pub(super) fn gathered(&self, of_groups: Vec<Option<Gathering>>) -> Gathered {
        let piece = |(number, nodes): (usize, &Range<usize>)| {
            let group = self.groups[number];
            Piece {
                nodes: nodes.clone(),
                gathering: of_groups.get(group).cloned().flatten(),
                stays: self.groups.iter().filter(|other| **other == group).count() > 1,
                leaving: self.leaving[number].clone(),
            }
        };
        Gathered { pieces: self.nodes.iter().enumerate().map(piece).collect() }
    }
}

/// A graph on a rank that has a share of each parameter.
pub(super) struct Gathered {
    /// In the order of the graph, which they cover.
    pub pieces: Vec<Piece>,
}

/// A piece of such a graph.
pub(super) struct Piece {
    pub nodes: Range<usize>,
    /// Its parameters; `None` if it has none.
    gathering: Option<Gathering>,
    /// True if another piece has the same parameters: they stay after the forward pass.
    stays: bool,
    leaving: Vec<Slot>,
}

impl Piece {
    /// Gathers the parameters before the forward pass.
    pub(super) fn begin(&self) -> Result<()> {
        self.gathering.as_ref().map_or(Ok(()), Gathering::begin)
    }

    /// Frees them after it, and makes the backward pass of what leaves the piece begin with gathering them.
    pub(super) fn end(&self, values: &mut [Value]) -> Result<()> {
        let Some(gathering) = &self.gathering else { return Ok(()) };
        if !self.stays {
            gathering.end()?;
        }
        for slot in &self.leaving {
            if let Value::Tensor(tensor) = &values[*slot]
                && tensor.requires_grad()
            {
                values[*slot] = Value::Tensor(gathering.result(tensor)?);
            }
        }
        Ok(())
    }
}

/// The nodes of the pieces, without cuts inside of what is computed again as one.
fn joined(pieces: pieces::Pieces, again: &[Region]) -> Vec<Range<usize>> {
    let end = pieces.all.last().map_or(0, |piece| piece.nodes.end);
    let is_inside = |start: &usize| again.iter().any(|region| region.nodes.start < *start && *start < region.nodes.end);
    let starts: Vec<usize> =
        pieces.all.iter().map(|piece| piece.nodes.start).filter(|start| !is_inside(start)).collect();
    let ends = starts.iter().skip(1).copied().chain([end]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

/// For each piece the values that it makes and later pieces use, or the graph returns.
fn leaving(program: &Program, pieces: &[Range<usize>]) -> Vec<Vec<Slot>> {
    let mut used_later: HashSet<Slot> = program.outputs.iter().flat_map(slots_of).collect();
    let mut found: Vec<Vec<Slot>> = Vec::new();
    for range in pieces.iter().rev() {
        let nodes = &program.nodes[range.clone()];
        let mut made: Vec<Slot> = nodes.iter().flat_map(|node| &node.outputs).map(|output| output.slot).collect();
        made.retain(|slot| used_later.contains(slot));
        made.sort_unstable();
        made.dedup();
        found.push(made);
        used_later.extend(nodes.iter().flat_map(|node| node.given()));
    }
    found.reverse();
    found
}
