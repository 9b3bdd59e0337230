//! The graph, ready to run: names are replaced by slot numbers, each node lists the values that die after it, and every name is known to be defined
//! before its use.
//!
//! A value dies after the last node that uses it, as in the Python that `ExportedProgram.module()` runs; or later, if the file says that the
//! user's program held it. A tensor that a node writes in place keeps its slot: both names are one tensor.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lab_base::error::{Error, Result};
use memcore::DType;

use super::lifetimes::{ENTRY, Lifetimes};
use super::names::Place;
use super::open_sizes::{OpenDim, OpenSizes};
use super::schema::{self, Argument, Number, Size, TensorMeta};
use super::unrepresented::{Unknown, refusal};

/// Number of a value in a graph.
pub(super) type Slot = usize;

/// Number of an operator among all that are supported.
pub(super) type OperatorNumber = u16;

pub(super) struct Program {
    /// Number of the program among all graphs of its file.
    pub number: usize,
    /// Names of the values, by slot; the first name if a tensor has two.
    pub names: Vec<String>,
    /// Slots of the inputs.
    pub inputs: Vec<Slot>,
    /// Nodes in the order in which they run.
    pub nodes: Vec<Node>,
    /// Results of the graph.
    pub outputs: Vec<Arg>,
    /// Sizes of results that follow from the inputs.
    pub open: OpenSizes,
}

/// One call of an operator.
pub(super) struct Node {
    /// Name of the operator, such as `conv2d.default`.
    pub target: String,
    /// The operator itself.
    pub operator: OperatorNumber,
    /// True if the operator writes its first argument, which then is also its result.
    pub in_place: bool,
    /// Arguments with their names.
    pub arguments: Vec<(String, Arg)>,
    /// Slots of the results.
    pub outputs: Vec<Output>,
    /// The value whose type the result takes, in place of the one that the graph names (`first_states.rs`).
    pub typed_as: Option<Slot>,
    /// Values that die after this node, in the order of their deaths.
    pub dying: Vec<Slot>,
    /// Module and line that the node comes from.
    pub place: Place,
    /// The same origin as the scope that memory is attributed to.
    pub scope: String,
    /// Calls of modules that the node lies in, as the file has them (`modules.rs`).
    pub modules: String,
}

impl Node {
    /// Returns the values among its arguments, in order.
    pub(super) fn given(&self) -> impl Iterator<Item = Slot> {
        let mut slots = smallvec::SmallVec::<[Slot; 8]>::new();
        self.arguments.iter().for_each(|(_, argument)| used(argument, &mut |slot| slots.push(slot)));
        slots.into_iter()
    }

    /// Returns the graphs among its arguments.
    pub(super) fn graphs(&self) -> impl Iterator<Item = &Arc<Program>> {
        self.arguments
            .iter()
            .filter_map(|(_, argument)| if let Arg::Graph(inner) = argument { Some(inner) } else { None })
    }
}

/// Slot of a result, with its sizes and type from the file.
pub(super) struct Output {
    pub slot: Slot,
    pub expected: Option<Expected>,
}

/// Sizes and type of a tensor, as the file has them. A size is `None` if it is not a number; the type is `None` if it is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub dims: Vec<Option<usize>>,
    /// Sizes that are not numbers, and follow from the graph's inputs.
    pub open: Vec<OpenDim>,
    pub dtype: Option<DType>,
}

/// An argument of a node.
#[derive(Clone)]
pub(super) enum Arg {
    None,
    Value(Slot),
    Values(Vec<Option<Slot>>),
    Int(i64),
    Float(f64),
    Floats(Vec<f64>),
    Bool(bool),
    Bools,
    Text(String),
    Numbers(Vec<Num>),
    Type(i64),
    MemoryFormat(i64),
    /// A layout or a device. Neither is kept: every tensor is dense and on the run's device.
    Elsewhere,
    Graph(Arc<Program>),
}

/// A number that the file gives, or that the graph computes into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Num {
    Given(i64),
    Value(Slot),
}

/// Names of the argument by which an operator is told that it trains.
pub(super) const TRAINS: [&str; 2] = ["train", "training"];

/// Name of the probability with which attention drops weights.
pub(super) const DROPPED: &str = "dropout_p";

struct Lowering<'a> {
    file: &'a str,
    lifetimes: &'a Lifetimes,
    find: &'a dyn Fn(&str) -> Option<OperatorNumber>,
    unknown: BTreeMap<String, Unknown>,
    /// Number of graphs that were begun.
    graphs: usize,
}

impl Program {
    /// The first node, also in graphs of nodes, for whose operator this is true.
    pub(super) fn first(&self, is: &dyn Fn(&str) -> bool) -> Option<(&str, &Place)> {
        self.nodes.iter().find_map(|node| {
            let own = is(&node.target).then_some((node.target.as_str(), &node.place));
            own.or_else(|| node.graphs().find_map(|inner| inner.first(is)))
        })
    }

    /// True if an operator computes otherwise under `model.eval()`: it drops values, or takes the statistics of the batch.
    pub(super) fn trains_otherwise(&self) -> bool {
        let otherwise = |(name, arg): &(String, Arg)| match arg {
            Arg::Bool(trains) => *trains && TRAINS.contains(&name.as_str()),
            Arg::Float(p) => *p > 0.0 && name == DROPPED,
            Arg::Graph(program) => program.trains_otherwise(),
            _ => false,
        };
        self.nodes.iter().any(|node| node.arguments.iter().any(otherwise))
    }

    /// Makes the program of a graph of `file`. `lifetimes` says how long its values live; `find` gives the number of each operator that is supported.
    ///
    /// # Errors
    /// [`Error::Usage`] naming file and node: an undefined name, two values of one name, an argument of an unknown kind; operators that are not
    /// supported, all of them at once; lifetimes of values that the graph does not have, or that end before the last use.
    pub(super) fn build(
        graph: &schema::Graph,
        file: &str,
        lifetimes: &Lifetimes,
        find: &dyn Fn(&str) -> Option<OperatorNumber>,
    ) -> Result<Self> {
        let mut lowering = Lowering { file, lifetimes, find, unknown: BTreeMap::new(), graphs: 0 };
        let program = lowering.graph(graph)?;
        if lowering.unknown.is_empty() {
            return match lifetimes.left() {
                None => Ok(program),
                Some((value, last)) => Err(Error::usage(
                    format!("{file}: {ENTRY}"),
                    format!("{value} dies after {last}, and no graph of the file makes both"),
                )),
            };
        }
        let mut unknown: Vec<Unknown> = lowering.unknown.into_values().collect();
        unknown.sort_by_key(|operator| std::cmp::Reverse(operator.count));
        Err(Error::usage(file, refusal(&unknown)))
    }

    /// Returns for each input whether a node uses it or the program returns it.
    pub(super) fn used_inputs(&self) -> Vec<bool> {
        let mut is_used = vec![false; self.names.len()];
        let mut tell = |slot: Slot| is_used[slot] = true;
        self.nodes.iter().flat_map(|node| &node.arguments).for_each(|(_, argument)| used(argument, &mut tell));
        self.outputs.iter().for_each(|output| used(output, &mut tell));
        self.inputs.iter().map(|slot| is_used[*slot]).collect()
    }
}

impl Lowering<'_> {
    fn graph(&mut self, graph: &schema::Graph) -> Result<Program> {
        let number = self.graphs;
        self.graphs += 1;
        let mut scope = Scope { file: self.file, slots: HashMap::new(), names: Vec::new(), open: OpenSizes::default() };
        let mut inputs = Vec::new();
        for input in &graph.inputs {
            inputs.push(match input {
                Argument::Tensor(name) | Argument::Named(name) => scope.define(name, "the inputs")?,
                // An input that is neither a tensor nor a computed number is a constant of the program: its slot stays empty.
                _ => scope.unnamed(),
            });
        }
        let first_made = scope.names.len();
        scope.open = OpenSizes::read(graph, inputs.iter().map(|slot: &Slot| (*slot, scope.names[*slot].as_str())));
        let mut nodes = Vec::new();
        for node in &graph.nodes {
            nodes.push(self.node(node, graph, &mut scope)?);
        }
        let outputs = graph.outputs.iter().map(|output| self.argument(output, &scope, "the outputs"));
        let outputs = outputs.collect::<Result<Vec<Arg>>>()?;
        let (names, open) = (std::mem::take(&mut scope.names), std::mem::take(&mut scope.open));
        let mut program = Program { number, names, inputs, nodes, outputs, open };
        find_deaths(&mut program, first_made);
        self.live_on(&mut program, graph, &scope, first_made)?;
        Ok(program)
    }

    /// Moves each death that the file lists to the node after which the value died in the user's program.
    fn live_on(&self, program: &mut Program, graph: &schema::Graph, scope: &Scope<'_>, first_made: Slot) -> Result<()> {
        let mut last_use = vec![None; program.names.len()];
        for (place, node) in program.nodes.iter().enumerate() {
            node.dying.iter().for_each(|slot| last_use[*slot] = Some(place));
        }
        let made = graph.nodes.iter().enumerate();
        let made = made.flat_map(|(place, node)| node.outputs.iter().flat_map(names_of).map(move |name| (name, place)));
        let made: HashMap<&str, usize> = made.filter_map(|(name, place)| Some((name?, place))).collect();
        let slot = |name: &str| scope.slots.get(name).copied().filter(|slot| *slot >= first_made);
        for (name, slot, place) in self.lifetimes.within(&graph.name, slot, |last| made.get(last).copied()) {
            // A value that dies after no node is a result of the graph, and dies with its caller's name.
            let Some(before) = last_use[slot] else { continue };
            if place < before {
                let problem = format!("{name} dies before its last use");
                return Err(Error::usage(format!("{}: {ENTRY}", self.file), problem));
            }
            program.nodes[before].dying.retain(|dying| *dying != slot);
            program.nodes[place].dying.push(slot);
            last_use[slot] = Some(place);
        }
        Ok(())
    }

    fn node(&mut self, node: &schema::Node, graph: &schema::Graph, scope: &mut Scope<'_>) -> Result<Node> {
        let modules = node.metadata("nn_module_stack").to_string();
        let place = Place::new(&modules, node.metadata("stack_trace"));
        let target = short(&node.target).to_string();
        let name = node.outputs.iter().find_map(first_name).unwrap_or(&target).to_string();
        let mut arguments = Vec::new();
        for argument in &node.inputs {
            arguments.push((argument.name.clone(), self.argument(&argument.arg, scope, &name)?));
        }
        let operator = (self.find)(&target);
        if operator.is_none() {
            let new = || Unknown { target: target.clone(), count: 0, place: place.clone() };
            self.unknown.entry(target.clone()).or_insert_with(new).count += 1;
        }
        let in_place = match arguments.first() {
            Some((_, Arg::Value(slot))) if operator.is_some() && writes_first(&target) => Some(*slot),
            _ => None,
        };
        let mut outputs = Vec::new();
        for result in &node.outputs {
            for result in names_of(result) {
                let slot = match (result, in_place) {
                    (Some(result), Some(slot)) => scope.rename(result, slot)?,
                    (Some(result), None) => scope.define(result, &name)?,
                    (None, _) => scope.unnamed(),
                };
                let meta = result.and_then(|result| graph.tensor_values.get(result));
                let expected =
                    meta.map(|meta| Expected { open: scope.open.of_result(meta), ..Expected::from_meta(meta) });
                outputs.push(Output { slot, expected });
            }
        }
        let (in_place, scope) = (in_place.is_some(), place.scope());
        // A graph with an operator that is not supported is an error.
        let operator = operator.unwrap_or_default();
        let (typed_as, dying) = (None, Vec::new());
        Ok(Node { target, operator, in_place, arguments, outputs, typed_as, dying, place, scope, modules })
    }

    fn argument(&mut self, argument: &Argument, scope: &Scope<'_>, node: &str) -> Result<Arg> {
        Ok(match argument {
            Argument::None => Arg::None,
            Argument::Tensor(name) | Argument::Named(name) => Arg::Value(scope.slot(name, node)?),
            Argument::Tensors(names) => {
                let slot = |name: &Option<String>| name.as_ref().map(|name| scope.slot(name, node)).transpose();
                Arg::Values(names.iter().map(slot).collect::<Result<_>>()?)
            }
            Argument::Int(value) => Arg::Int(*value),
            Argument::Float(value) => Arg::Float(*value),
            Argument::Floats(values) => Arg::Floats(values.clone()),
            Argument::Bool(value) => Arg::Bool(*value),
            Argument::Bools => Arg::Bools,
            Argument::Text(text) => Arg::Text(text.clone()),
            Argument::Numbers(numbers) => {
                let number = |number: &Number| match number {
                    Number::Given(value) => Ok(Num::Given(*value)),
                    Number::Named(name) => scope.slot(name, node).map(Num::Value),
                };
                Arg::Numbers(numbers.iter().map(number).collect::<Result<_>>()?)
            }
            Argument::Type(code) => Arg::Type(*code),
            Argument::MemoryFormat(code) => Arg::MemoryFormat(*code),
            Argument::Layout | Argument::Device => Arg::Elsewhere,
            Argument::Graph(graph) => Arg::Graph(Arc::new(self.graph(graph)?)),
            Argument::Other(kind) => {
                return Err(Error::usage(
                    format!("{}: node {node}", self.file),
                    format!("an argument of kind {kind}, which is not supported"),
                ));
            }
        })
    }
}

/// Names of one graph, with their slots.
struct Scope<'a> {
    file: &'a str,
    slots: HashMap<String, Slot>,
    names: Vec<String>,
    open: OpenSizes,
}

impl Scope<'_> {
    fn error(&self, node: &str, problem: String) -> Error {
        Error::usage(format!("{}: node {node}", self.file), problem)
    }

    fn unnamed(&mut self) -> Slot {
        self.names.push(String::new());
        self.names.len() - 1
    }

    fn define(&mut self, name: &str, node: &str) -> Result<Slot> {
        let slot = self.names.len();
        if self.slots.insert(name.to_string(), slot).is_some() {
            return Err(self.error(node, format!("the name {name} is given a second time")));
        }
        self.names.push(name.to_string());
        Ok(slot)
    }

    /// Gives a value a second name, as an operator in place does.
    fn rename(&mut self, name: &str, slot: Slot) -> Result<Slot> {
        if self.slots.insert(name.to_string(), slot).is_some_and(|before| before != slot) {
            return Err(self.error(name, format!("the name {name} is given a second time")));
        }
        Ok(slot)
    }

    fn slot(&self, name: &str, node: &str) -> Result<Slot> {
        self.slots
            .get(name)
            .copied()
            .ok_or_else(|| self.error(node, format!("uses {name}, which no node before it makes")))
    }
}

impl Expected {
    pub(super) fn from_meta(meta: &TensorMeta) -> Self {
        let known = |size: &Size| match size {
            Size::AsInt(value) => usize::try_from(*value).ok(),
            Size::AsExpr(_) => None,
        };
        Self { dims: meta.sizes.iter().map(known).collect(), open: Vec::new(), dtype: dtype(meta.dtype) }
    }
}

/// Returns the type of a `ScalarType` of the schema; `None` if it is not supported.
pub(super) fn dtype(code: i64) -> Option<DType> {
    Some(match code {
        1 => DType::U8,
        2 => DType::I8,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::F16,
        7 => DType::F32,
        8 => DType::F64,
        10 => DType::C64,
        12 => DType::Bool,
        13 => DType::BF16,
        _ => return None,
    })
}

/// Shortens `torch.ops.aten.conv2d.default` to `conv2d.default`, and other names by `torch.ops.`.
fn short(target: &str) -> &str {
    let target = target.strip_prefix("torch.ops.").unwrap_or(target);
    target.strip_prefix("aten.").unwrap_or(target)
}

/// True if an operator writes its first argument in place. PyTorch ends such names with `_`: `relu_.default`.
fn writes_first(target: &str) -> bool {
    let base = target.split('.').next().unwrap_or_default();
    base.ends_with('_') && !base.starts_with('_')
}

/// Returns the names of the values of an output; `None` for a value that is not used.
fn names_of(output: &Argument) -> Vec<Option<&str>> {
    match output {
        Argument::Tensor(name) | Argument::Named(name) => vec![Some(name)],
        Argument::Tensors(names) => names.iter().map(Option::as_deref).collect(),
        Argument::None => vec![None],
        _ => Vec::new(),
    }
}

fn first_name(output: &Argument) -> Option<&str> {
    names_of(output).into_iter().flatten().next()
}

/// Fills in the values that die after each node: those from slot `first_made` on, which nodes made, and which no later node or output uses.
fn find_deaths(program: &mut Program, first_made: Slot) {
    let mut lives: Vec<bool> = vec![false; program.names.len()];
    for output in &program.outputs {
        used(output, &mut |slot| lives[slot] = true);
    }
    for node in program.nodes.iter_mut().rev() {
        let mut dying = Vec::new();
        let mut dies = |slot: Slot| {
            if slot >= first_made && !std::mem::replace(&mut lives[slot], true) {
                dying.push(slot);
            }
        };
        node.arguments.iter().for_each(|(_, argument)| used(argument, &mut dies));
        node.outputs.iter().for_each(|output| dies(output.slot));
        node.dying = dying;
    }
}

/// The values that an argument is or holds.
pub(super) fn slots_of(argument: &Arg) -> impl Iterator<Item = Slot> + use<> {
    let mut slots = smallvec::SmallVec::<[Slot; 4]>::new();
    used(argument, &mut |slot| slots.push(slot));
    slots.into_iter()
}

/// Calls `tell` with every value that an argument is or holds.
fn used(argument: &Arg, tell: &mut impl FnMut(Slot)) {
    match argument {
        Arg::Value(slot) => tell(*slot),
        Arg::Values(slots) => slots.iter().flatten().for_each(|slot| tell(*slot)),
        Arg::Numbers(numbers) => numbers.iter().for_each(|number| {
            if let Num::Value(slot) = number {
                tell(*slot);
            }
        }),
        _ => {}
    }
}
