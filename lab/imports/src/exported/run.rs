//! Runs a graph on a device: the operator of each node, and after each node the values that die with it are freed.

use memcore::{Device, Error, Result, Tensor, context};

use super::call::Call;
use super::operators;
use super::program::{Arg, Expected, Node, Program};
use super::value::{Made, Value};
use super::views::Views;

/// A graph on a device.
pub(super) struct Runner<'a> {
    pub device: &'a Device,
    /// The file's name, for errors.
    pub file: &'a str,
    /// True if results must have the types that the file gives; false in a run with another precision than the file's.
    pub typed: bool,
}

impl Runner<'_> {
    /// Runs a graph on these inputs and returns its results.
    ///
    /// # Errors
    /// What an operator cannot do, with the place in the user's program; those of the device.
    pub(super) fn run(&self, program: &Program, inputs: Vec<Value>) -> Result<Vec<Value>> {
        let mut values = vec![Value::None; program.names.len()];
        for (slot, value) in program.inputs.iter().zip(inputs) {
            values[*slot] = value;
        }
        let mut views = Views::new(values.len());
        for node in &program.nodes {
            self.node(node, &mut values, &mut views).map_err(|error| self.placed(node, error))?;
        }
        let output = |output: &Arg| match output {
            Arg::Value(slot) => values.get(*slot).cloned().unwrap_or(Value::None),
            Arg::Int(value) => Value::Int(*value),
            Arg::Float(value) => Value::Float(*value),
            Arg::Bool(value) => Value::Bool(*value),
            _ => Value::None,
        };
        Ok(program.outputs.iter().map(output).collect())
    }

    fn node(&self, node: &Node, values: &mut [Value], views: &mut Views) -> Result<()> {
        let _scope = context::scope(self.device.scope(&node.scope));
        let made = {
            let inner = |program: &Program, inputs: Vec<Value>| self.run(program, inputs);
            let call = Call::new(node, values, self.device, &inner);
            let missing = || Error::invalid(node.target.clone(), "is not represented");
            let made = operators::find(&node.target).ok_or_else(missing)?(&call)?;
            call.check_all_read()?;
            made
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
        // An export on the host gives the states of an LSTM one dimension more than PyTorch does: only the first result is checked.
        let believed = if node.target.starts_with("lstm.") { 1 } else { usize::MAX };
        for (i, (output, value)) in node.outputs.iter().zip(made).enumerate() {
            if let (Some(expected), Value::Tensor(tensor)) =
                (&output.expected.as_ref().filter(|_| i < believed), &value)
            {
                self.check(node, expected, tensor)?;
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
        for slot in &node.dying {
            values[*slot] = Value::None;
            views.died(*slot);
        }
        Ok(())
    }

    /// Checks the sizes and type of a result. One that differs from PyTorch's would make every later figure wrong.
    fn check(&self, node: &Node, expected: &Expected, found: &Tensor) -> Result<()> {
        let fits = expected.dims.len() == found.rank()
            && expected.dims.iter().zip(found.dims()).all(|(known, dim)| known.is_none_or(|known| known == *dim));
        if !fits {
            let shown: Vec<String> = expected.dims.iter().map(|d| d.map_or("*".into(), |d| d.to_string())).collect();
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
            _ if node.target.starts_with("higher_order.") => return error,
            Error::Invalid { what, problem } if what == node.target => (what, problem),
            Error::Invalid { what, problem } => (node.target.clone(), format!("{what}: {problem}")),
            Error::Shape { op, detail } => (node.target.clone(), format!("{op}: {detail}")),
            // A kernel refuses operands of two types: the file casts to a type of its own, and the run has another one.
            Error::DType { .. } | Error::InvalidCall { .. } => (node.target.clone(), error.to_string()),
            other => return other,
        };
        Error::invalid(format!("{}: {what} in {}", self.file, node.place), problem)
    }
}
