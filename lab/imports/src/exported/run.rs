//! Runs a graph on a device: the operator of each node, and after each node the values that die with it are freed.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use lab_training::Precision;
use memcore::autograd::{BlockGuard, checkpoint_until_dropped, is_grad_enabled};
use memcore::{DType, Device, Error, Result, Tensor, context};

use super::call::Call;
use super::gathered::Gathered;
use super::operators::{self, Operator, Property};
use super::program::{Arg, Expected, Node, Program, Slot};
use super::regions::{Region, Regions};
use super::uncached::Uncached;
use super::value::{Made, Value};
use super::views::Views;

/// A graph on a device.
#[derive(Clone)]
pub(super) struct Runner {
    pub device: Device,
    /// The file's name, for errors.
    pub file: Arc<str>,
    /// True if results must have the types that the file gives; false in a run with another precision than the file's.
    pub typed: bool,
    /// The type of the file's parameters.
    pub own: DType,
    /// True under `model.eval()`.
    pub evaluates: bool,
    /// Nodes that are computed again in the backward pass.
    pub regions: Arc<Regions>,
    /// Empty slots for the next of them: a graph has thousands, and a region fills a few dozen.
    pub spare: Spare,
}

/// The number of the whole graph among those of its file.
const WHOLE: usize = 0;

/// Slots of a graph that hold nothing, kept for the next use.
#[derive(Clone, Default)]
pub(super) struct Spare(Arc<Mutex<Vec<Slots>>>);

/// The values in the slots of a graph, and the views among them.
struct Slots {
    values: Vec<Value>,
    views: Views,
}

impl Spare {
    fn take(&self, len: usize) -> Slots {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|slots| slots.values.len() == len);
        known
            .map(|at| kept.swap_remove(at))
            .unwrap_or_else(|| Slots { values: vec![Value::None; len], views: Views::new(len) })
    }

    /// Keeps slots of which only `used` may hold something; what they hold is freed in order.
    fn give_back(&self, mut slots: Slots, mut used: Vec<Slot>) {
        used.sort_unstable();
        slots.views.forget(&used);
        used.iter().for_each(|slot| slots.values[*slot] = Value::None);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(slots);
    }
}

impl Runner {
    /// Runs a graph on these inputs and returns its results.
    ///
    /// # Errors
    /// What an operator cannot do, with the place in the user's program; those of the device.
    pub(super) fn run(&self, program: &Arc<Program>, inputs: Vec<Value>) -> Result<Vec<Value>> {
        let mut values = entered(program, inputs);
        self.part(program, 0..program.nodes.len(), &mut values)?;
        Ok(results(program, &values))
    }

    /// As [`run`](Self::run), gathering the parameters of each piece before its nodes run, forward or backward.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub(super) fn run_gathering(
        &self,
        program: &Arc<Program>,
        inputs: Vec<Value>,
        gathered: &Gathered,
    ) -> Result<Vec<Value>> {
        let mut values = entered(program, inputs);
        let mut views = Views::new(values.len());
        for piece in &gathered.pieces {
            piece.begin()?;
            self.part_with(program, piece.nodes.clone(), &mut values, &mut views)?;
            piece.end(&mut values)?;
        }
        Ok(results(program, &values))
    }

    /// Runs some of a graph's nodes on the values in its slots. A region begins and ends among them.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub(super) fn part(&self, program: &Arc<Program>, nodes: Range<usize>, values: &mut [Value]) -> Result<()> {
        self.part_with(program, nodes, values, &mut Views::new(values.len()))
    }

    /// As [`part`](Self::part), after other nodes that left views.
    fn part_with(
        &self,
        program: &Arc<Program>,
        nodes: Range<usize>,
        values: &mut [Value],
        views: &mut Views,
    ) -> Result<()> {
        let open: Arc<[Option<usize>]> = program.open.values(values).into();
        let mut next = nodes.start;
        for region in self.regions.within(program).iter().filter(|region| nodes.contains(&region.nodes.start)) {
            self.nodes(program, next..region.nodes.start, values, views, &open)?;
            let _again = is_grad_enabled().then(|| self.begin(program, region, values, &open));
            self.nodes(program, region.nodes.clone(), values, views, &open)?;
            next = region.nodes.end;
        }
        self.nodes(program, next..nodes.end, values, views, &open)
    }

    fn nodes(
        &self,
        of: &Program,
        nodes: Range<usize>,
        values: &mut [Value],
        views: &mut Views,
        open: &[Option<usize>],
    ) -> Result<()> {
        of.nodes[nodes].iter().try_for_each(|node| {
            let uncached = (of.number == WHOLE).then_some(&self.regions.uncached);
            self.node(node, values, views, (open, uncached)).map_err(|error| self.placed(node, error))?;
            self.mark(of, node, values);
            Ok(())
        })
    }

    /// Makes a marked result a leaf, which keeps it and its gradient, unless it has one anyway.
    fn mark(&self, of: &Program, node: &Node, values: &mut [Value]) {
        if of.number != WHOLE
            || self.evaluates
            || !node.outputs.iter().any(|output| self.regions.marked.contains(&output.slot))
        {
            return;
        }
        let value = &mut values[node.outputs[0].slot];
        if let Value::Tensor(tensor) = value
            && !tensor.requires_grad()
        {
            *tensor = Tensor::leaf(tensor.array().clone());
        }
    }

    /// Begins nodes that are computed again: what they save until the guard is dropped is freed, and comes back from the values that enter.
    fn begin(
        &self,
        program: &Arc<Program>,
        region: &Region,
        values: &[Value],
        open: &Arc<[Option<usize>]>,
    ) -> Result<BlockGuard> {
        let (mut kept, mut others) = (Vec::<(Slot, Tensor)>::new(), Vec::new());
        for slot in &region.kept {
            match &values[*slot] {
                Value::Tensor(tensor) => kept.push((*slot, tensor.clone())),
                other => others.push((*slot, other.clone())),
            }
        }
        others.extend(region.state.iter().map(|slot| (*slot, values[*slot].clone())));
        let (slots, tensors): (Vec<Slot>, Vec<Tensor>) = kept.into_iter().unzip();
        let versions: Vec<u32> = tensors.iter().map(|tensor| tensor.array().storage().version()).collect();
        let (runner, program, open) = (self.clone(), program.clone(), open.clone());
        let (module, nodes) = (region.module.clone(), region.nodes.clone());
        checkpoint_until_dropped(&self.device, &tensors, move |tensors| {
            for ((slot, tensor), version) in slots.iter().zip(tensors).zip(&versions) {
                if tensor.array().storage().version() != *version {
                    let problem = format!(
                        "{} enters it and is written in place afterwards, so that it cannot be computed again; in PyTorch its backward pass fails, too",
                        program.names[*slot]
                    );
                    return Err(Error::invalid(format!("{}: checkpoint of {module}", runner.file), problem));
                }
            }
            let entering = slots.iter().copied().zip(tensors.iter().cloned().map(Value::Tensor));
            runner.again(&program, nodes.clone(), others.iter().cloned().chain(entering), &open)
        })
    }

    /// Computes nodes again, from the values that enter them.
    fn again(
        &self,
        program: &Program,
        nodes: Range<usize>,
        entering: impl Iterator<Item = (Slot, Value)>,
        open: &[Option<usize>],
    ) -> Result<()> {
        let mut slots = self.spare.take(program.names.len());
        let mut used: Vec<Slot> =
            program.nodes[nodes.clone()].iter().flat_map(|node| &node.outputs).map(|o| o.slot).collect();
        for (slot, value) in entering {
            slots.values[slot] = value;
            used.push(slot);
        }
        let done = self.nodes(program, nodes, &mut slots.values, &mut slots.views, open);
        self.spare.give_back(slots, used);
        done
    }

    fn node(
        &self,
        node: &Node,
        values: &mut [Value],
        views: &mut Views,
        (open, uncached): (&[Option<usize>], Option<&Uncached>),
    ) -> Result<()> {
        if let Some((made, joined)) = uncached.and_then(|uncached| uncached.instead(node)) {
            values[made] = values[joined].clone();
        } else if !self.evaluates || !counts_batches(node, values) {
            self.made(node, values, views, open)?;
        }
        for slot in &node.dying {
            let beside = uncached.map_or(&[][..], |uncached| uncached.dying_with(*slot));
            for slot in std::iter::once(slot).chain(beside) {
                values[*slot] = Value::None;
                views.died(*slot);
            }
        }
        Ok(())
    }

    /// Computes a node, and puts its results into their slots.
    fn made(&self, node: &Node, values: &mut [Value], views: &mut Views, open: &[Option<usize>]) -> Result<()> {
        let _scope = context::scope(self.device.scope(&node.scope));
        let operator = Operator::numbered(node.operator);
        let made = {
            let inner = |program: &Arc<Program>, inputs: Vec<Value>| self.run(program, inputs);
            let call = Call::new(node, values, &self.device, &inner, self.evaluates);
            if self.device.profile().channels_last && !operator.is(Property::ChannelsLast) {
                call.refuse_channels_last()?;
            }
            call.check_complex(operator.takes_complex(), operator.is(Property::ComplexAndReal))?;
            match operators::of_constants(&call)? {
                Some(made) => made,
                None => {
                    let made = (operator.run)(&call)?;
                    call.check_all_read()?;
                    made
                }
            }
        };
        let made = match made {
            Made::One(value) => vec![value],
            Made::Many(values) => values,
            Made::Nothing => Vec::new(),
        };
        if made.len() < node.outputs.len() {
            let problem = format!("gives {} results, the file names {}", made.len(), node.outputs.len());
            return Err(Error::invalid(node.target.clone(), problem));
        }
        let checked = if operator.is(Property::FirstResult) { 1 } else { usize::MAX };
        for (i, (output, value)) in node.outputs.iter().zip(made).enumerate() {
            if let (Some(expected), Value::Tensor(tensor)) = (&output.expected.as_ref().filter(|_| i < checked), &value)
            {
                self.check(node, expected, open, tensor)?;
            }
            match value {
                Value::Tensor(written) if node.in_place => views.written(output.slot, written, values)?,
                value => {
                    if let Value::Tensor(made) = &value {
                        views.made(output.slot, made, node.given(), values);
                    }
                    values[output.slot] = value;
                }
            }
        }
        Ok(())
    }

    /// Checks the sizes and type of a result. One that differs from PyTorch's would make every later figure wrong. `open`: the graph's open sizes.
    fn check(&self, node: &Node, expected: &Expected, open: &[Option<usize>], found: &Tensor) -> Result<()> {
        let is = |known: Option<usize>, dim: usize| known.is_none_or(|known| known == dim);
        let fits = expected.dims.len() == found.rank()
            && expected.dims.iter().zip(found.dims()).all(|(known, dim)| is(*known, *dim))
            && expected.open.iter().all(|(dim, size)| is(open[*size], found.dims()[*dim]));
        if !fits {
            let mut dims = expected.dims.clone();
            expected.open.iter().for_each(|(dim, size)| dims[*dim] = open[*size]);
            let shown: Vec<String> = dims.iter().map(|d| d.map_or("*".into(), |d| d.to_string())).collect();
            let problem = format!("gives {:?}, the file says [{}]", found.dims(), shown.join(", "));
            return Err(Error::invalid(node.target.clone(), problem));
        }
        match expected.dtype {
            Some(dtype) if self.typed && dtype != found.dtype() => {
                Err(Error::invalid(node.target.clone(), format!("gives {}, the file says {dtype}", found.dtype())))
            }
            _ => Ok(()),
        }
    }

    /// Adds the place in the user's program to an error, unless a graph inside the node has named it.
    fn placed(&self, node: &Node, error: Error) -> Error {
        let (what, problem) = match error {
            _ if Operator::numbered(node.operator).is(Property::Graph) => return error,
            Error::Invalid { what, problem } if what == node.target => (what, problem),
            Error::Invalid { what, problem } => (node.target.clone(), format!("{what}: {problem}")),
            Error::Shape { op, detail } => (node.target.clone(), format!("{op}: {detail}")),
            Error::DType { .. } | Error::InvalidCall { .. } if !self.typed => {
                (node.target.clone(), mixed_types(&self.file, self.own, &error))
            }
            Error::DType { .. } | Error::InvalidCall { .. } => (node.target.clone(), error.to_string()),
            other => return other,
        };
        Error::invalid(format!("{}: {what} in {}", self.file, node.place), problem)
    }
}

/// Says that the types of an operator's operands do not go together in another precision than that of the file: `x.to(y.dtype)` is in a graph as the type that `y`
/// had in the export (`own`), which another precision does not change.
fn mixed_types(file: &str, own: DType, error: &Error) -> String {
    let precision = Precision::throughout(own).name();
    format!(
        "{error}: --precision is not that of the graph, which converts to {own} where PyTorch would convert to the type of another tensor; \
         this works: vramlab predict {file} --precision {precision}"
    )
}

/// True for the counter of batches that a batch norm has in training, and does not advance under `model.eval()`.
fn counts_batches(node: &Node, values: &[Value]) -> bool {
    let counter = |slot: &Slot| matches!(&values[*slot], Value::Tensor(x) if x.dtype() == DType::I64 && x.rank() == 0);
    node.target == "add_.Tensor" && matches!(node.arguments.first(), Some((_, Arg::Value(slot))) if counter(slot))
}

/// The slots of a graph with its inputs in them.
fn entered(program: &Program, inputs: Vec<Value>) -> Vec<Value> {
    let mut values = vec![Value::None; program.names.len()];
    program.inputs.iter().zip(inputs).for_each(|(slot, value)| values[*slot] = value);
    values
}

/// The results of a graph, of the values in its slots.
pub(super) fn results(program: &Program, values: &[Value]) -> Vec<Value> {
    let output = |output: &Arg| match output {
        Arg::Value(slot) => values.get(*slot).cloned().unwrap_or(Value::None),
        Arg::Int(value) => Value::Int(*value),
        Arg::Float(value) => Value::Float(*value),
        Arg::Bool(value) => Value::Bool(*value),
        _ => Value::None,
    };
    program.outputs.iter().map(output).collect()
}
