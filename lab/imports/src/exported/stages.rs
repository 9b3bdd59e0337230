//! Which nodes of a graph are on which device, and which values cross from one device to another.

use std::collections::HashSet;
use std::ops::Range;

use lab_base::error::{Error, Result};
use lab_training::pipeline::Cut;

use super::blocks::in_words;
use super::contents::Contents;
use super::pieces::Pieces;
use super::program::{Arg, Program, Slot};
use super::regions::Regions;
use super::signature::{InputKind, StateKind};

/// A stage of a graph: what one device runs.
pub(super) struct Part {
    pub nodes: Range<usize>,
    /// Numbers of its pieces.
    pub pieces: Range<usize>,
    /// The modules of the pieces, in words.
    pub modules: String,
    /// The user's inputs and the earlier stages' values that its nodes use, in the order of their first use.
    pub takes: Vec<Slot>,
    /// Values that it takes and no later stage does.
    pub ends: Vec<Slot>,
    /// Values that it makes and later stages take.
    pub leaves: Vec<Slot>,
}

/// A graph over several devices.
pub(super) struct Parts {
    /// The stages, in order.
    pub all: Vec<Part>,
    /// For each tensor of the network, the stages that use it; the first stage for one that no node uses.
    pub holders: Vec<Vec<usize>>,
    /// For each input of the user, the first stage that uses it.
    pub first_use: Vec<usize>,
}

impl Parts {
    /// Cuts a graph into `count` stages.
    ///
    /// # Errors
    /// [`Error::Usage`] for a cut that cannot be made: too few pieces, a module on two devices whose operators are computed again as one, a result for the
    /// loss that an earlier stage makes.
    pub(super) fn cut(contents: &Contents, cut: &Cut, count: usize, again: &Regions, output: usize) -> Result<Self> {
        let program = &*contents.program;
        let pieces = Pieces::from_program(program);
        if pieces.all.len() < count {
            return Err(Error::usage("devices", too_few(&pieces, count)));
        }
        let state = states(contents);
        let ranges = cut.stages(&bytes(contents, &pieces, &state), count)?;
        let mut all: Vec<Part> = ranges.into_iter().map(|range| part(&pieces, range)).collect();
        check_regions(&all, again.within(program))?;
        cross(program, &state, &mut all);
        if count > 1 {
            check_output(program, &all, output)?;
        }
        let holders = holders(contents, &state, &all);
        let first_use = inputs(contents, &all);
        Ok(Self { all, holders, first_use })
    }
}

/// The pieces of a graph in words, by their numbers: `0: wte, wpe; 1–12: h.0–11; 13: ln_f`.
pub(super) fn described(pieces: &Pieces) -> String {
    let mut runs: Vec<(Range<usize>, Vec<&str>)> = Vec::new();
    for (number, piece) in pieces.all.iter().enumerate() {
        let modules: Vec<&str> = piece.modules.iter().map(String::as_str).collect();
        // Pieces of one module each whose names follow one another are named together.
        match runs.last_mut() {
            Some((range, before))
                if modules.len() == 1 && before.len() == range.len() && {
                    !in_words(before.iter().chain(&modules).copied()).contains(", ")
                } =>
            {
                range.end += 1;
                before.extend(modules);
            }
            _ => runs.push((number..number + 1, modules)),
        }
    }
    let one = |(range, modules): &(Range<usize>, Vec<&str>)| {
        let numbers =
            if range.len() > 1 { format!("{}–{}", range.start, range.end - 1) } else { range.start.to_string() };
        let modules = in_words(modules.iter().copied());
        format!("{numbers}: {}", if modules.is_empty() { "operators of no module" } else { &modules })
    };
    runs.iter().map(one).collect::<Vec<String>>().join("; ")
}

fn too_few(pieces: &Pieces, count: usize) -> String {
    let again = match pieces.called_again.as_slice() {
        [] => String::new(),
        modules => format!(
            ". It is not cut before {}, which other modules run between",
            in_words(modules.iter().map(String::as_str))
        ),
    };
    let problem = format!("{count} devices for a network of {} pieces: each needs one at least", pieces.all.len());
    format!("{problem} ({}){again}", described(pieces))
}

fn part(pieces: &Pieces, range: Range<usize>) -> Part {
    let of = &pieces.all[range.clone()];
    let start = of.first().map_or(0, |piece| piece.nodes.start);
    Part {
        nodes: start..of.last().map_or(start, |piece| piece.nodes.end),
        modules: in_words(of.iter().flat_map(|piece| &piece.modules).map(String::as_str)),
        pieces: range,
        takes: Vec::new(),
        ends: Vec::new(),
        leaves: Vec::new(),
    }
}

/// For each slot, the tensor of the network that it is, under the first of its names.
fn states(contents: &Contents) -> Vec<Option<usize>> {
    let mut found = vec![None; contents.program.names.len()];
    for (slot, kind) in contents.program.inputs.iter().zip(&contents.signature.inputs) {
        if let InputKind::State(number) = kind {
            found[*slot] = Some(contents.signature.state[*number].same_as.unwrap_or(*number));
        }
    }
    found
}

/// Bytes of the parameters of each piece. Those that two pieces use count in both.
fn bytes(contents: &Contents, pieces: &Pieces, state: &[Option<usize>]) -> Vec<u64> {
    let of = |nodes: &Range<usize>| {
        let used: HashSet<usize> = contents.program.nodes[nodes.clone()]
            .iter()
            .flat_map(|node| node.given())
            .filter_map(|s| state[s])
            .collect();
        let size = |number: usize| {
            let tensor = &contents.signature.state[number];
            let is_parameter = matches!(tensor.kind, StateKind::Parameter { .. });
            if is_parameter { tensor.dims.iter().product::<usize>() as u64 * tensor.dtype.size() } else { 0 }
        };
        used.into_iter().map(size).sum()
    };
    pieces.all.iter().map(|piece| of(&piece.nodes)).collect()
}

/// Refuses a result for the loss that the last stage does not make.
fn check_output(program: &Program, parts: &[Part], output: usize) -> Result<()> {
    let Some(Arg::Value(slot)) = program.outputs.get(output) else { return Ok(()) };
    let last = parts.last().map(|part| &program.nodes[part.nodes.clone()]).unwrap_or_default();
    if last.iter().flat_map(|node| &node.outputs).any(|made| made.slot == *slot) {
        return Ok(());
    }
    let name = &program.names[*slot];
    let problem =
        format!("the loss is computed from {name}, which is made before the last stage begins: --cut earlier");
    Err(Error::usage("cut", problem))
}

/// Refuses modules that are computed again as one and lie on two devices.
fn check_regions(parts: &[Part], again: &[super::regions::Region]) -> Result<()> {
    for region in again {
        let is_within = |part: &Part| part.nodes.start <= region.nodes.start && region.nodes.end <= part.nodes.end;
        if !parts.iter().any(is_within) {
            let problem =
                format!("{}: it is cut between two devices, so that it is not computed again as one", region.module);
            return Err(Error::usage("checkpoint", problem));
        }
    }
    Ok(())
}

/// Fills in the values that cross from stage to stage.
fn cross(program: &Program, state: &[Option<usize>], parts: &mut [Part]) {
    let mut taken_later = HashSet::new();
    for part in parts.iter_mut().rev() {
        let mut known = HashSet::new();
        let mut made = Vec::new();
        for node in &program.nodes[part.nodes.clone()] {
            let new: Vec<Slot> = node.given().filter(|slot| state[*slot].is_none() && known.insert(*slot)).collect();
            part.takes.extend(new);
            let outputs = node.outputs.iter().map(|output| output.slot);
            made.extend(outputs.filter(|slot| known.insert(*slot)));
        }
        part.ends = part.takes.iter().copied().filter(|slot| !taken_later.contains(slot)).collect();
        part.leaves = made.into_iter().filter(|slot| taken_later.contains(slot)).collect();
        taken_later.extend(part.takes.iter().copied());
    }
}

/// The stages that use each tensor of the network.
fn holders(contents: &Contents, state: &[Option<usize>], parts: &[Part]) -> Vec<Vec<usize>> {
    let mut found = vec![Vec::new(); contents.signature.state.len()];
    for (stage, part) in parts.iter().enumerate() {
        let used = contents.program.nodes[part.nodes.clone()].iter().flat_map(|node| node.given());
        for number in used.filter_map(|slot| state[slot]) {
            if found[number].last() != Some(&stage) {
                found[number].push(stage);
            }
        }
    }
    // A tensor of the network may also be a result of it, and nothing else.
    found.iter_mut().filter(|stages| stages.is_empty()).for_each(|stages| stages.push(0));
    found
}

/// The first stage that uses each input of the user.
fn inputs(contents: &Contents, parts: &[Part]) -> Vec<usize> {
    let slots = contents.program.inputs.iter().zip(&contents.signature.inputs);
    let users = slots.filter(|(_, kind)| matches!(kind, InputKind::User(_)));
    users.map(|(slot, _)| parts.iter().position(|part| part.takes.contains(slot)).unwrap_or(0)).collect()
}
