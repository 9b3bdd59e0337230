//! A call of an operator: the arguments of its node by name, with their present values.

use std::cell::Cell;
use std::sync::Arc;

use memcore::{DType, Device, Error, Result, Tensor};
use smallvec::SmallVec;

use super::adapted_weight::AdaptedWeight;
use super::program::{Arg, DROPPED, Node, Num, Program, Slot, TRAINS, dtype};
use super::value::Value;

/// Sizes, axes and the like.
pub(super) type Sizes = SmallVec<[usize; 6]>;

/// Function that runs a graph inside a node.
pub(super) type Inner<'a> = dyn Fn(&Arc<Program>, Vec<Value>) -> Result<Vec<Value>> + 'a;

/// A call of an operator.
pub(super) struct Call<'a> {
    pub node: &'a Node,
    pub values: &'a [Value],
    pub device: &'a Device,
    pub inner: &'a Inner<'a>,
    /// True under `model.eval()`: what trains otherwise computes as it does there, whatever the graph says.
    evaluates: bool,
    /// Arguments that the operator has read, one bit for each.
    read: Cell<u64>,
}

/// Number of arguments that are tracked; no operator has more.
const MAX_ARGUMENTS: usize = 64;

impl<'a> Call<'a> {
    pub(super) fn new(
        node: &'a Node,
        values: &'a [Value],
        device: &'a Device,
        inner: &'a Inner<'a>,
        evaluates: bool,
    ) -> Self {
        Self { node, values, device, inner, evaluates, read: Cell::new(0) }
    }

    /// Returns an error that names the operator.
    pub(super) fn error(&self, problem: impl Into<String>) -> Error {
        Error::invalid(self.node.target.clone(), problem)
    }

    /// Fails if the operator has not read an argument: its request would be left out silently.
    pub(super) fn check_all_read(&self) -> Result<()> {
        let unread = self.node.arguments.iter().enumerate().take(MAX_ARGUMENTS);
        match unread.into_iter().find(|(i, (_, arg))| self.read.get() >> i & 1 == 0 && !matches!(arg, Arg::None)) {
            Some((_, (name, _))) => Err(self.error(format!("the argument {name} is not supported"))),
            None => Ok(()),
        }
    }

    /// Returns an argument that is a number, not a tensor: a constant without dimensions, or a number of the graph.
    pub(super) fn constant(&self, name: &str) -> Option<Value> {
        let (_, argument) = self.node.arguments.iter().find(|(known, _)| known == name)?;
        match argument {
            Arg::Value(slot) => {
                Some(self.value(*slot).clone()).filter(|value| matches!(value, Value::Int(_) | Value::Float(_)))
            }
            Arg::Int(value) => Some(Value::Int(*value)),
            Arg::Float(value) => Some(Value::Float(*value)),
            _ => None,
        }
    }

    /// Refuses pictures in channels-last.
    pub(super) fn refuse_channels_last(&self) -> Result<()> {
        if self.has_tensor(|x| x.array().is_channels_last()) {
            Err(self.error("vramlab does not know its memory for channels-last pictures"))
        } else {
            Ok(())
        }
    }

    /// Refuses complex numbers, unless the operator `takes` them; and complex and real ones together, unless they may `meet` in it.
    pub(super) fn check_complex(&self, takes: bool, meet: bool) -> Result<()> {
        if !self.has_tensor(|x| x.dtype().is_complex()) {
            return Ok(());
        }
        if !takes {
            return Err(self.error("vramlab does not know its memory for complex numbers"));
        }
        if !meet && self.has_tensor(|x| !x.dtype().is_complex()) {
            return Err(self.error("of complex numbers and others together is not supported"));
        }
        Ok(())
    }

    /// True if this holds for one of the tensors among the arguments.
    fn has_tensor(&self, is: impl Fn(&Tensor) -> bool) -> bool {
        let holds = |slot: &Slot| matches!(self.value(*slot), Value::Tensor(x) if is(x));
        self.node.arguments.iter().any(|(_, arg)| match arg {
            Arg::Value(slot) => holds(slot),
            Arg::Values(slots) => slots.iter().flatten().any(holds),
            _ => false,
        })
    }

    /// Accepts any value of the arguments with these names.
    pub(super) fn ignore(&self, names: &[&str]) {
        names.iter().for_each(|name| {
            self.arg(name);
        });
    }

    /// Accepts any value of all arguments.
    pub(super) fn ignore_all(&self) {
        self.read.set(u64::MAX);
    }

    /// Returns an argument and marks it as read; `None` if it is missing or is `None` itself.
    pub(super) fn arg(&self, name: &str) -> Option<&'a Arg> {
        let index = self.node.arguments.iter().take(MAX_ARGUMENTS).position(|(known, _)| known == name)?;
        self.read.set(self.read.get() | 1 << index);
        Some(&self.node.arguments[index].1).filter(|arg| !matches!(arg, Arg::None))
    }

    fn required(&self, name: &str) -> Result<&'a Arg> {
        self.arg(name).ok_or_else(|| self.error(format!("has no argument {name}")))
    }

    fn wrong(&self, name: &str, wanted: &str) -> Error {
        self.error(format!("the argument {name} is not {wanted}"))
    }

    fn value(&self, slot: Slot) -> &'a Value {
        self.values.get(slot).unwrap_or(&Value::None)
    }

    /// Returns the tensor in a slot; `name` is the argument that an error names.
    fn held(&self, name: &str, slot: Slot) -> Result<&'a Tensor> {
        match self.value(slot) {
            Value::Tensor(tensor) => Ok(tensor),
            _ => Err(self.wrong(name, "a tensor")),
        }
    }

    pub(super) fn tensor(&self, name: &str) -> Result<&'a Tensor> {
        match self.required(name)? {
            Arg::Value(slot) => self.held(name, *slot),
            _ => Err(self.wrong(name, "a tensor")),
        }
    }

    /// Returns a weight that has an adapter; `None` for any other argument.
    pub(super) fn adapted(&self, name: &str) -> Option<&'a AdaptedWeight> {
        match self.arg(name)? {
            Arg::Value(slot) => match self.value(*slot) {
                Value::Adapted(weight) => Some(weight),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns a tensor, or `None` if the argument is missing.
    pub(super) fn maybe_tensor(&self, name: &str) -> Result<Option<&'a Tensor>> {
        match self.arg(name) {
            None => Ok(None),
            Some(Arg::Value(slot)) if matches!(self.value(*slot), Value::None) => Ok(None),
            Some(_) => self.tensor(name).map(Some),
        }
    }

    /// Returns a list of tensors, all of which must be there.
    pub(super) fn tensors(&self, name: &str) -> Result<Vec<&'a Tensor>> {
        let missing = || self.wrong(name, "a list of tensors");
        self.maybe_tensors(name)?.into_iter().map(|tensor| tensor.ok_or_else(missing)).collect()
    }

    /// Returns a list of tensors; `None` for one that is missing.
    pub(super) fn maybe_tensors(&self, name: &str) -> Result<Vec<Option<&'a Tensor>>> {
        match self.required(name)? {
            Arg::Values(slots) => slots.iter().map(|slot| slot.map(|slot| self.held(name, slot)).transpose()).collect(),
            _ => Err(self.wrong(name, "a list of tensors")),
        }
    }

    /// Returns the value of an argument that is not a list.
    pub(super) fn scalar(&self, name: &str) -> Result<Value> {
        Ok(match self.required(name)? {
            Arg::Value(slot) => self.value(*slot).clone(),
            Arg::Int(value) => Value::Int(*value),
            Arg::Float(value) => Value::Float(*value),
            Arg::Bool(value) => Value::Bool(*value),
            _ => return Err(self.wrong(name, "a number")),
        })
    }

    pub(super) fn float(&self, name: &str) -> Result<f64> {
        match self.scalar(name)? {
            _ if self.evaluates && name == DROPPED => Ok(0.0),
            Value::Int(value) => Ok(value as f64),
            Value::Float(value) => Ok(value),
            Value::Bool(value) => Ok(f64::from(u8::from(value))),
            _ => Err(self.wrong(name, "a number")),
        }
    }

    /// Returns a number; `otherwise` if the argument is missing.
    pub(super) fn float_or(&self, name: &str, otherwise: f64) -> Result<f64> {
        self.arg(name).map_or(Ok(otherwise), |_| self.float(name))
    }

    pub(super) fn int(&self, name: &str) -> Result<i64> {
        match self.scalar(name)? {
            Value::Int(value) => Ok(value),
            Value::Bool(value) => Ok(i64::from(value)),
            _ => Err(self.wrong(name, "a whole number")),
        }
    }

    /// Returns an integer; `otherwise` if the argument is missing.
    pub(super) fn int_or(&self, name: &str, otherwise: i64) -> Result<i64> {
        self.arg(name).map_or(Ok(otherwise), |_| self.int(name))
    }

    /// Returns a boolean; `otherwise` if the argument is missing.
    pub(super) fn flag(&self, name: &str, otherwise: bool) -> Result<bool> {
        match self.arg(name) {
            None => Ok(otherwise),
            Some(_) => match self.scalar(name)? {
                Value::Bool(_) if self.evaluates && TRAINS.contains(&name) => Ok(false),
                Value::Bool(value) => Ok(value),
                _ => Err(self.wrong(name, "true or false")),
            },
        }
    }

    /// Returns a text, or `None` if the argument is missing.
    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        match self.arg(name) {
            None => Ok(None),
            Some(Arg::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "a text")),
        }
    }

    /// Returns a list of integers; a single integer is read as a list of one.
    pub(super) fn ints(&self, name: &str) -> Result<SmallVec<[i64; 6]>> {
        match self.required(name)? {
            Arg::Numbers(numbers) => numbers
                .iter()
                .map(|number| match number {
                    Num::Given(value) => Ok(*value),
                    Num::Value(slot) => match self.value(*slot) {
                        Value::Int(value) => Ok(*value),
                        _ => Err(self.wrong(name, "a list of whole numbers")),
                    },
                })
                .collect(),
            Arg::Values(slots) if slots.is_empty() => Ok(SmallVec::new()),
            _ => Ok(SmallVec::from_slice(&[self.int(name)?])),
        }
    }

    /// Returns a list of integers, which is empty if the argument is missing.
    pub(super) fn ints_or_none(&self, name: &str) -> Result<SmallVec<[i64; 6]>> {
        self.arg(name).map_or(Ok(SmallVec::new()), |_| self.ints(name))
    }

    /// Returns a list of sizes, and refuses negative ones.
    pub(super) fn sizes(&self, name: &str) -> Result<Sizes> {
        let size = |value: i64| usize::try_from(value).map_err(|_| self.error(format!("{name}: a size of {value}")));
        self.ints(name)?.into_iter().map(size).collect()
    }

    /// Returns two sizes. A single size is used for both; `otherwise` if there is none.
    pub(super) fn pair(&self, name: &str, otherwise: [usize; 2]) -> Result<[usize; 2]> {
        if self.arg(name).is_none() {
            return Ok(otherwise);
        }
        match self.sizes(name)?.as_slice() {
            [] => Ok(otherwise),
            [both] => Ok([*both, *both]),
            [first, second] => Ok([*first, *second]),
            other => Err(self.error(format!("{name} has {} sizes, expected two", other.len()))),
        }
    }

    /// Returns an axis of a tensor of `rank` dimensions; a negative axis counts from the end.
    pub(super) fn axis_of(&self, axis: i64, rank: usize) -> Result<usize> {
        let counted = if axis < 0 { axis + rank as i64 } else { axis };
        let inside = usize::try_from(counted).ok().filter(|axis| *axis < rank.max(1));
        inside.ok_or_else(|| self.error(format!("axis {axis} of a tensor of {rank} dimensions")))
    }

    /// Returns an axis of `x`; the axis `otherwise` if the argument is missing.
    pub(super) fn axis(&self, name: &str, otherwise: i64, x: &Tensor) -> Result<usize> {
        self.axis_of(self.int_or(name, otherwise)?, x.rank())
    }

    /// Returns axes of `x`, none if the argument is missing.
    pub(super) fn axes(&self, name: &str, x: &Tensor) -> Result<Sizes> {
        self.ints_or_none(name)?.into_iter().map(|axis| self.axis_of(axis, x.rank())).collect()
    }

    /// Returns an element type, or `None` if the argument is missing.
    pub(super) fn dtype(&self, name: &str) -> Result<Option<DType>> {
        match self.arg(name) {
            None => Ok(None),
            Some(Arg::Type(code)) => dtype(*code).map(Some).ok_or_else(|| {
                self.error(format!("an element type (number {code} of PyTorch's) that is not supported"))
            }),
            Some(_) => Err(self.wrong(name, "an element type")),
        }
    }

    /// The type that the result has in the user's program, where that is not the graph's.
    pub(super) fn type_in_program(&self) -> Option<DType> {
        match self.value(self.node.typed_as?) {
            Value::Tensor(tensor) => Some(tensor.dtype()),
            _ => None,
        }
    }

    /// Refuses a memory format of the channels-last kind.
    pub(super) fn contiguous_format(&self, name: &str) -> Result<()> {
        match self.arg(name) {
            None | Some(Arg::MemoryFormat(0 | 1 | 4)) => Ok(()),
            Some(_) => Err(self.error("channels_last is not supported")),
        }
    }

    /// Refuses a flag that is set.
    pub(super) fn not_set(&self, name: &str) -> Result<()> {
        if self.flag(name, false)? { Err(self.error(format!("{name}=True is not supported"))) } else { Ok(()) }
    }
}
