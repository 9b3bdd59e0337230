//! What optimizers have in common: the parameters, their states, the counters, and the loop that calls a rule.

use super::locals::{List, Locals};
use super::{Implementation, Optimizer, ParameterState, Parameters, nth, with_gradients};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, UnaryOp};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::nn::Parameter;

/// An optimizer's rule: its settings, the state of a parameter, and how a step updates parameters.
pub trait Rule: Send {
    /// What is kept for a parameter.
    type State: Send;

    /// The names of the step and of `zero_grad`, as a profiler shows them: `SGD.step`, `zero_grad:SGD.zero_grad`.
    fn names(&self) -> [&'static str; 2];

    /// Loop, foreach or fused.
    fn implementation(&self) -> Implementation;

    /// Checks the settings.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what the optimizer does not have.
    fn check(&self) -> Result<()> {
        let [step, _] = self.names();
        let name = step.trim_end_matches(".step");
        match self.implementation() {
            Implementation::Fused => Err(Error::invalid("fused", format!("{name} has no fused implementation"))),
            Implementation::Loop | Implementation::Foreach => Ok(()),
        }
    }

    /// Checks a parameter.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one that the optimizer does not update.
    fn accepts(&self, _parameter: &Parameter) -> Result<()> {
        Ok(())
    }

    /// True if the states are allocated with the optimizer, not at a parameter's first step.
    fn begins_with_states(&self) -> bool {
        false
    }

    /// True if a parameter's state is allocated in the loop, after the update of the one before.
    fn begins_in_update(&self) -> bool {
        false
    }

    /// What such a loop does with a gradient before it allocates the state.
    ///
    /// # Errors
    /// Those of the device.
    fn before_state(&self, _p: &Array, _grad: &Array, _locals: &mut Locals<Array>) -> Result<()> {
        Ok(())
    }

    /// Allocates the state of a parameter before its first step.
    ///
    /// # Errors
    /// Those of the device.
    fn first_state(&self, p: &Array) -> Result<Self::State>;

    /// The state's tensors under PyTorch's names.
    fn tensors(&self, state: &Self::State) -> Vec<(&'static str, Array)>;

    /// Changes of the host's numbers in a state before step number `step`, the first of which is 1.
    fn advance(&self, _state: &mut Self::State, _step: i32) {}

    /// `_single_tensor_…`: updates one parameter.
    ///
    /// # Errors
    /// Those of the device.
    fn update(&self, row: &Row<'_, Self::State>, locals: &mut Locals<Array>) -> Result<()>;

    /// `_multi_tensor_…`: updates all parameters of one type, one operation after the other.
    ///
    /// # Errors
    /// Those of the device.
    fn update_all(&self, rows: &[Row<'_, Self::State>], locals: &mut Locals<List>) -> Result<()>;
}

/// A parameter with a gradient, in a step.
pub struct Row<'a, S> {
    pub(super) p: &'a Array,
    pub(super) grad: Array,
    pub(super) state: &'a S,
    /// The number of this step; the first is 1.
    pub(super) step: i32,
}

/// An optimizer that follows a rule.
pub struct ByRule<R: Rule> {
    // The states are dropped before the parameters.
    states: Vec<Option<Counted<R::State>>>,
    parameters: Parameters,
    rule: R,
}

struct Counted<S> {
    steps: i32,
    state: S,
}

impl<R: Rule> ByRule<R> {
    /// Creates the optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for settings that the optimizer does not have; those of the device, if it begins with states.
    pub fn new(parameters: Vec<Parameter>, rule: R) -> Result<Self> {
        rule.check()?;
        parameters.iter().try_for_each(|parameter| rule.accepts(parameter))?;
        let state = |parameter: &Parameter| {
            let made = rule.begins_with_states().then(|| rule.first_state(parameter.array()));
            made.transpose().map(|made| made.map(|state| Counted { steps: 0, state }))
        };
        let states = parameters.iter().map(state).collect::<Result<_>>()?;
        Ok(Self { states, parameters: Parameters(parameters), rule })
    }

    /// Allocates a parameter's state if it is missing, and counts a step of it.
    fn prepare(&mut self, i: usize) -> Result<()> {
        let counted = match &mut self.states[i] {
            Some(counted) => counted,
            missing => missing.insert(Counted { steps: 0, state: self.rule.first_state(self.parameters[i].array())? }),
        };
        counted.steps += 1;
        self.rule.advance(&mut counted.state, counted.steps);
        Ok(())
    }

    /// A parameter with its gradient and its state, which exists.
    fn row(&self, i: usize, grad: Array) -> Option<Row<'_, R::State>> {
        let counted = self.states[i].as_ref()?;
        Some(Row { p: self.parameters[i].array(), grad, state: &counted.state, step: counted.steps })
    }

    fn step_loop(&mut self, gradients: Vec<(usize, Array)>) -> Result<()> {
        let mut locals = Locals::new();
        for (i, grad) in gradients {
            if self.rule.begins_in_update() {
                self.rule.before_state(self.parameters[i].array(), &grad, &mut locals)?;
                self.prepare(i)?;
            }
            if let Some(row) = self.row(i, grad) {
                self.rule.update(&row, &mut locals)?;
            }
        }
        Ok(())
    }
}

/// The gradients of each type. Those of the last type are first: PyTorch goes through a hash table of the types, which
/// holds the newest first.
fn by_type<S>(rows: Vec<Row<'_, S>>) -> Vec<Vec<Row<'_, S>>> {
    let mut groups: Vec<(DType, Vec<Row<'_, S>>)> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|(dtype, _)| *dtype == row.grad.dtype()) {
            Some((_, group)) => group.push(row),
            None => groups.push((row.grad.dtype(), vec![row])),
        }
    }
    groups.into_iter().rev().map(|(_, group)| group).collect()
}

impl<R: Rule> Optimizer for ByRule<R> {
    fn step(&mut self) -> Result<()> {
        let [name, _] = self.rule.names();
        let _op = context::op(name);
        let gradients = with_gradients(&self.parameters);
        if !self.rule.begins_in_update() {
            gradients.iter().try_for_each(|(i, _)| self.prepare(*i))?;
        }
        if self.rule.implementation() == Implementation::Loop {
            return self.step_loop(gradients);
        }
        let rows = gradients.into_iter().filter_map(|(i, grad)| self.row(i, grad)).collect();
        let mut locals = Locals::new();
        by_type(rows).iter().try_for_each(|rows| self.rule.update_all(rows, &mut locals))
    }

    fn state(&self, index: usize) -> Option<ParameterState> {
        let counted = self.states.get(index)?.as_ref()?;
        Some(ParameterState { steps: Some(counted.steps), tensors: self.rule.tensors(&counted.state) })
    }

    fn make_state(&mut self, index: usize, steps: i32) -> Result<Option<ParameterState>> {
        let parameter = nth(&self.parameters, index)?;
        if self.states[index].is_none() {
            self.states[index] = Some(Counted { steps: 0, state: self.rule.first_state(parameter.array())? });
        }
        if let Some(counted) = &mut self.states[index] {
            (1..=steps).for_each(|step| self.rule.advance(&mut counted.state, step));
            counted.steps = steps;
        }
        Ok(self.state(index))
    }

    fn zero_grad_name(&self) -> &'static str {
        let [_, name] = self.rule.names();
        name
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }
}

/// When the gradient of the parameter before is freed that a loop's variable holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rebound {
    /// `for param, grad in …`, or `grad = grads[i]`: at once.
    AtOnce,
    /// `grad = grads[i] if not maximize else -grads[i]`: after the next one exists.
    Later,
}

/// The gradient that the rule is computed with: negated under `maximize`, plus the weight decay. The variable `grad` holds it.
pub(super) fn gradient<S>(
    row: &Row<'_, S>,
    (maximize, weight_decay): (bool, f64),
    rebound: Rebound,
    locals: &mut Locals<Array>,
) -> Result<Array> {
    if rebound == Rebound::AtOnce {
        locals.set("grad", row.grad.clone());
    }
    let signed = if maximize { context::within("neg", || row.grad.unary(UnaryOp::Neg))? } else { row.grad.clone() };
    locals.set("grad", signed.clone());
    if weight_decay == 0.0 {
        return Ok(signed);
    }
    let decayed = context::within("add", || signed.binary(BinaryOp::Add { alpha: weight_decay }, row.p))?;
    drop(signed);
    Ok(locals.set("grad", decayed))
}

/// The same for all rows at once: new arrays only under `maximize` or with weight decay.
pub(super) fn gradients<S>(
    rows: &[Row<'_, S>],
    (maximize, weight_decay): (bool, f64),
    locals: &mut Locals<List>,
) -> Result<List> {
    let mut grads: List = rows.iter().map(|row| row.grad.clone()).collect();
    if maximize {
        grads = locals.set("grads", grads.made("_foreach_neg", |grad| grad.unary(UnaryOp::Neg))?);
    } else {
        grads = locals.set("grads", grads);
    }
    if weight_decay == 0.0 {
        return Ok(grads);
    }
    let decay = BinaryOp::Add { alpha: weight_decay };
    if maximize {
        grads.iter().zip(rows).try_for_each(|(grad, row)| grad.binary_(decay, row.p))?;
        return Ok(grads);
    }
    let made = {
        let _op = context::op("_foreach_add");
        grads.iter().zip(rows).map(|(grad, row)| grad.binary(decay, row.p)).collect::<Result<List>>()?
    };
    drop(grads);
    Ok(locals.set("grads", made))
}

/// Allocates zeros like a parameter, which an optimizer keeps.
pub(super) fn zeros(p: &Array) -> Result<Array> {
    Ok(p.zeros_like()?.with_category(Category::OptimizerState))
}

/// `x = a·x`.
pub(super) fn scale(x: &Array, a: f64) -> Result<()> {
    x.unary_(UnaryOp::Affine { mul: a, add: 0.0 })
}

/// `x = x + a`.
pub(super) fn shift(x: &Array, a: f64) -> Result<()> {
    x.unary_(UnaryOp::Affine { mul: 1.0, add: a })
}
