//! Which nodes are computed again in the backward pass: the calls of the modules that `--checkpoint` names, as
//! `torch.utils.checkpoint(module, x, use_reentrant=False)` does it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use lab_base::error::{Error, Result};
use lab_models::Recompute;

use super::blocks::{Module, in_words, modules, repeated};
use super::modules::{calls, names};
use super::program::{Arg, Node, Program, Slot};

/// A call of a module that is computed again.
pub(super) struct Region {
    /// Path of the module.
    pub module: String,
    /// Its nodes.
    pub nodes: Range<usize>,
    /// Values that enter it, which the graph of autograd keeps.
    pub kept: Vec<Slot>,
    /// Parameters and buffers of the network that it uses.
    pub state: Vec<Slot>,
}

/// The regions of a graph and of the graphs inside it.
#[derive(Default)]
pub(super) struct Regions {
    /// By the number of the program, in the order of their nodes.
    by_program: HashMap<usize, Vec<Region>>,
    /// Modules that are computed again, in the order of their first calls.
    pub modules: Vec<String>,
}

impl Regions {
    /// Finds the regions that are asked for. `is_state` says for each input of the program whether it is a tensor of the network.
    ///
    /// # Errors
    /// [`Error::Usage`] naming what is asked for: no module has the name, or the nodes of a call do not follow one another.
    pub(super) fn of(program: &Program, is_state: &[bool], recompute: &Recompute) -> Result<Self> {
        let mut regions = Self::default();
        if *recompute == Recompute::None {
            return Ok(regions);
        }
        let called = modules(program);
        let wanted = wanted(&called, recompute)?;
        if !wanted.is_empty() {
            regions.find(program, is_state, &wanted)?;
        }
        let is_found: HashSet<&str> =
            regions.by_program.values().flatten().map(|region| region.module.as_str()).collect();
        regions.modules =
            called.iter().map(|m| m.path).filter(|path| is_found.contains(path)).map(Into::into).collect();
        Ok(regions)
    }

    /// The regions of one program.
    pub(super) fn within(&self, program: &Program) -> &[Region] {
        self.by_program.get(&program.number).map_or(&[], Vec::as_slice)
    }

    fn find(&mut self, program: &Program, is_state: &[bool], wanted: &HashSet<&str>) -> Result<()> {
        let mut state = vec![false; program.names.len()];
        program.inputs.iter().zip(is_state).for_each(|(slot, is_state)| state[*slot] = *is_state);
        let (mut found, mut seen, mut before) = (Vec::<Region>::new(), HashSet::new(), None);
        // A node that PyTorch made itself belongs to those around it.
        let has_place = |node: &Node| calls(&node.modules).next().is_some() || node.graphs().next().is_some();
        for (place, node) in program.nodes.iter().enumerate().filter(|(_, node)| has_place(node)) {
            // Modules inside of a matching one are part of it.
            let call = calls(&node.modules).find(|call| wanted.contains(call.path));
            let key = call.map(|call| call.key);
            match (call, found.last_mut()) {
                (Some(_), Some(region)) if key == before => region.nodes.end = place + 1,
                (Some(call), _) if !seen.insert(call.key) => {
                    let problem =
                        "operators outside of the module run between its own, so that it is not computed again as one";
                    return Err(Error::usage("checkpoint", format!("{}: {problem}", call.path)));
                }
                (Some(call), _) => {
                    let (module, nodes) = (call.path.to_string(), place..place + 1);
                    found.push(Region { module, nodes, kept: Vec::new(), state: Vec::new() });
                }
                (None, _) => self.find_inside(node, &state, wanted)?,
            }
            before = key;
        }
        found.iter_mut().for_each(|region| region.enter(program, &state));
        self.by_program.insert(program.number, found);
        Ok(())
    }

    /// Finds the regions of the graphs inside of a node, whose inputs are the arguments after the graph.
    fn find_inside(&mut self, node: &Node, state: &[bool], wanted: &HashSet<&str>) -> Result<()> {
        for (place, (_, argument)) in node.arguments.iter().enumerate() {
            let Arg::Graph(inner) = argument else { continue };
            let is_state = |(_, argument): &(String, Arg)| matches!(argument, Arg::Value(slot) if state[*slot]);
            let is_state: Vec<bool> = node.arguments[place + 1..].iter().map(is_state).collect();
            self.find(inner, &is_state, wanted)?;
        }
        Ok(())
    }
}

impl Region {
    /// Fills in the values that enter: those that its nodes use before they make them.
    fn enter(&mut self, program: &Program, state: &[bool]) {
        let mut known = HashSet::new();
        for node in &program.nodes[self.nodes.clone()] {
            for slot in node.given() {
                if known.insert(slot) {
                    if state[slot] { &mut self.state } else { &mut self.kept }.push(slot);
                }
            }
            known.extend(node.outputs.iter().map(|output| output.slot));
        }
    }
}

/// Returns the paths of the modules that are asked for.
fn wanted<'a>(called: &[Module<'a>], recompute: &Recompute) -> Result<HashSet<&'a str>> {
    let wrong = |problem: String| Err(Error::usage("checkpoint", problem));
    let blocks = match recompute {
        Recompute::None => return Ok(HashSet::new()),
        Recompute::Sqrt => {
            return wrong("sqrt: an exported network has none, blocks, numbers of blocks, and paths of modules".into());
        }
        Recompute::Modules(patterns) => {
            let mut wanted = HashSet::new();
            for pattern in patterns {
                let mut found = called.iter().map(|module| module.path).filter(|path| names(pattern, path)).peekable();
                if found.peek().is_none() {
                    return wrong(format!("{pattern} names no module of the network: it has {}", outer(called)));
                }
                wanted.extend(found);
            }
            return Ok(wanted);
        }
        Recompute::Blocks | Recompute::Every(_) | Recompute::These(_) => repeated(called),
    };
    if blocks.is_empty() {
        let modules = outer(called);
        return wrong(format!(
            "the network has no numbered blocks of one class: name modules by path; it has {modules}"
        ));
    }
    if matches!(recompute, Recompute::Every(_)) {
        recompute.check("the network", blocks.len())?;
    }
    let Recompute::These(numbers) = recompute else {
        let each = blocks.into_iter().enumerate();
        return Ok(each.filter(|(block, _)| recompute.covers(*block)).map(|(_, path)| path).collect());
    };
    match numbers.iter().find(|number| **number >= blocks.len()) {
        Some(number) => {
            wrong(format!("there is no block {number}; the blocks are 0 to {}: {}", blocks.len() - 1, in_words(blocks)))
        }
        None => Ok(numbers.iter().map(|number| blocks[*number]).collect()),
    }
}

/// Names the modules that lie in no other.
fn outer(called: &[Module<'_>]) -> String {
    in_words(called.iter().map(|module| module.path).filter(|path| !path.contains('.')))
}
