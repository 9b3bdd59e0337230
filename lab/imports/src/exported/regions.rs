//! Which nodes are computed again in the backward pass: the calls of the modules that `--checkpoint` names, as
//! `torch.utils.checkpoint(module, x, use_reentrant=False)` does it; of `sqrt` the calls of the blocks of each segment, as one function.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use lab_base::error::{Error, Result};
use lab_models::Recompute;
use memcore::DType;

use super::blocks::{Module, in_words, modules, repeated};
use super::modules::{calls, is_of_transformers, names};
use super::program::{Arg, Node, Output, Program, Slot};
use super::uncached::Uncached;

/// A call of a module, or of the blocks of a segment, that is computed again.
pub(super) struct Region {
    /// Path of the module; of a segment those of its blocks in words, `h.0–2`.
    pub module: String,
    /// Its nodes.
    pub nodes: Range<usize>,
    /// Values that enter it, which the graph of autograd keeps.
    pub kept: Vec<Slot>,
    /// Parameters and buffers of the network that it uses, and arguments of its function that it does not use.
    pub state: Vec<Slot>,
}

/// The regions of a graph and of the graphs inside it.
#[derive(Default)]
pub(super) struct Regions {
    /// By the number of the program, in the order of their nodes.
    by_program: HashMap<usize, Vec<Region>>,
    /// Modules or segments that are computed again, in the order of their first calls.
    pub modules: Vec<String>,
    /// Values of the whole graph that require a gradient, even those of a frozen table: `enable_input_require_grads` of transformers.
    pub marked: Vec<Slot>,
    /// What the whole graph does otherwise without its cache.
    pub uncached: Uncached,
}

/// What is to be computed again.
#[derive(Default)]
struct Wanted<'a> {
    /// For the path of each module the name of what is computed again as one: its own, or that of its segment.
    names: HashMap<&'a str, String>,
    /// True if several modules are computed again as one, with what lies between them.
    joins: bool,
}

impl Regions {
    /// Finds the regions that are asked for. `is_state` says for each input of the program whether it is a tensor of the network.
    ///
    /// # Errors
    /// [`Error::Usage`] naming what is asked for: no module has the name, or the nodes of a call do not follow one another.
    pub(super) fn from_program(program: &Program, is_state: &[bool], recompute: &Recompute) -> Result<Self> {
        let mut regions = Self::default();
        if *recompute == Recompute::None {
            return Ok(regions);
        }
        let called = modules(program);
        let wanted = wanted(&called, recompute)?;
        if !wanted.names.is_empty() {
            regions.find(program, is_state, &wanted)?;
        }
        let found = || regions.by_program.values().flatten().map(|region| region.module.as_str());
        let is_found: HashSet<&str> = found().collect();
        if wanted.joins && found().count() > is_found.len() {
            return Err(Error::usage("checkpoint", "sqrt: the blocks of a segment lie in graphs of their own: blocks"));
        }
        let names = called.iter().filter_map(|module| wanted.names.get(module.path));
        let mut names: Vec<String> = names.filter(|name| is_found.contains(name.as_str())).cloned().collect();
        names.dedup();
        regions.modules = names;
        Ok(regions)
    }

    /// The regions of one program.
    pub(super) fn within(&self, program: &Program) -> &[Region] {
        self.by_program.get(&program.number).map_or(&[], Vec::as_slice)
    }

    fn find(&mut self, program: &Program, is_state: &[bool], wanted: &Wanted<'_>) -> Result<()> {
        let mut state = vec![false; program.names.len()];
        program.inputs.iter().zip(is_state).for_each(|(slot, is_state)| state[*slot] = *is_state);
        let (mut found, mut seen, mut before) = (Vec::<Region>::new(), HashSet::new(), None);
        // A node that PyTorch made itself belongs to those around it.
        let has_place = |node: &Node| calls(&node.modules).next().is_some() || node.graphs().next().is_some();
        for (place, node) in program.nodes.iter().enumerate().filter(|(_, node)| has_place(node)) {
            // Modules inside of a matching one are part of it.
            let call = calls(&node.modules).find_map(|call| Some((call, wanted.names.get(call.path)?)));
            let key = call.map(|(call, name)| if wanted.joins { name.as_str() } else { call.key });
            match (call, found.last_mut()) {
                (Some(_), Some(region)) if key == before => region.nodes.end = place + 1,
                (Some((call, _)), _) if !seen.insert(key) => {
                    let problem =
                        "operators outside of the module run between its own, so that it is not computed again as one";
                    return Err(Error::usage("checkpoint", format!("{}: {problem}", call.path)));
                }
                (Some((_, name)), _) => {
                    let (module, nodes) = (name.clone(), place..place + 1);
                    found.push(Region { module, nodes, kept: Vec::new(), state: Vec::new() });
                }
                (None, _) => self.find_inside(node, &state, wanted)?,
            }
            if key.is_some() || !wanted.joins {
                before = key;
            }
        }
        let positions = positions(program, &found);
        found.iter_mut().for_each(|region| region.enter(program, &state, &positions));
        self.by_program.insert(program.number, found);
        Ok(())
    }

    /// Finds the regions of the graphs inside of a node, whose inputs are the arguments after the graph.
    fn find_inside(&mut self, node: &Node, state: &[bool], wanted: &Wanted<'_>) -> Result<()> {
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
    fn enter(&mut self, program: &Program, state: &[bool], positions: &[Slot]) {
        let mut known = HashSet::new();
        for node in &program.nodes[self.nodes.clone()] {
            for slot in node.given() {
                if known.insert(slot) {
                    if state[slot] { &mut self.state } else { &mut self.kept }.push(slot);
                }
            }
            known.extend(node.outputs.iter().map(|output| output.slot));
        }
        self.state.extend(positions.iter().filter(|slot| known.insert(**slot)));
    }
}

/// The positions of the tokens, which the loop over the blocks of a network of transformers passes to each: `position_ids`. Blocks that use the
/// embeddings of positions alone hold them, too, until they were computed again.
fn positions(program: &Program, regions: &[Region]) -> Vec<Slot> {
    let (Some(first), Some(last)) = (regions.first(), regions.last()) else { return Vec::new() };
    if !program.nodes.get(first.nodes.start).is_some_and(|node| is_of_transformers(&node.modules)) {
        return Vec::new();
    }
    let made = program.nodes[..first.nodes.start].iter().flat_map(|node| &node.outputs);
    let is_whole = |output: &&Output| {
        output.expected.as_ref().is_some_and(|made| made.dtype == Some(DType::I64) && made.dims.len() == 2)
    };
    let whole: HashSet<Slot> = made.filter(is_whole).map(|output| output.slot).collect();
    let after = program.nodes[last.nodes.end..].iter().flat_map(|node| &node.dying);
    after.copied().filter(|slot| whole.contains(slot)).collect()
}

impl<'a> Wanted<'a> {
    /// Each of these modules by itself.
    fn modules(paths: impl IntoIterator<Item = &'a str>) -> Self {
        Self { names: paths.into_iter().map(|path| (path, path.to_string())).collect(), joins: false }
    }

    /// Blocks in segments of about √n.
    fn segments(blocks: &[&'a str]) -> Self {
        let segments = blocks.chunks(Recompute::segment_length(blocks.len()));
        let named = segments.map(|segment| (segment, in_words(segment.iter().copied())));
        let names = named.flat_map(|(segment, name)| segment.iter().map(move |path| (*path, name.clone())));
        Self { names: names.collect(), joins: true }
    }
}

/// Returns the modules that are asked for.
fn wanted<'a>(called: &[Module<'a>], recompute: &Recompute) -> Result<Wanted<'a>> {
    let wrong = |problem: String| Err(Error::usage("checkpoint", problem));
    let blocks = match recompute {
        Recompute::None => return Ok(Wanted::default()),
        Recompute::Modules(patterns) => {
            let mut wanted = HashSet::new();
            for pattern in patterns {
                let mut found = called.iter().map(|module| module.path).filter(|path| names(pattern, path)).peekable();
                if found.peek().is_none() {
                    return wrong(format!("{pattern} names no module of the network: it has {}", outer(called)));
                }
                wanted.extend(found);
            }
            return Ok(Wanted::modules(wanted));
        }
        Recompute::Blocks | Recompute::Sqrt | Recompute::Every(_) | Recompute::These(_) => repeated(called),
    };
    if blocks.is_empty() {
        let modules = outer(called);
        return wrong(format!(
            "the network has no numbered blocks of one class: name modules by path; it has {modules}"
        ));
    }
    match recompute {
        Recompute::Every(_) => recompute.check("the network", blocks.len())?,
        Recompute::Sqrt => return Ok(Wanted::segments(&blocks)),
        _ => {}
    }
    let Recompute::These(numbers) = recompute else {
        let each = blocks.into_iter().enumerate();
        return Ok(Wanted::modules(each.filter(|(block, _)| recompute.covers(*block)).map(|(_, path)| path)));
    };
    match numbers.iter().find(|number| **number >= blocks.len()) {
        Some(number) => {
            wrong(format!("there is no block {number}; the blocks are 0 to {}: {}", blocks.len() - 1, in_words(blocks)))
        }
        None => Ok(Wanted::modules(numbers.iter().map(|number| blocks[*number]))),
    }
}

/// Names the modules that lie in no other.
fn outer(called: &[Module<'_>]) -> String {
    in_words(called.iter().map(|module| module.path).filter(|path| !path.contains('.')))
}
