//! RMSprop.

use super::{
    Implementation, Optimizer, ParameterState, Parameters, decayed, drop_reversed, negated, nth, with_gradients,
};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, TernaryOp, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::nn::Parameter;

/// Settings of [`RmsProp`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsPropOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the averages.
    pub alpha: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Weight of the old momentum buffer; 0 keeps none.
    pub momentum: f64,
    /// Subtracts the square of the average gradient from the average square.
    pub centered: bool,
    /// Ascends instead of descending.
    pub maximize: bool,
    /// Loop or foreach; PyTorch has no fused one.
    pub implementation: Implementation,
}

impl Default for RmsPropOptions {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
            maximize: false,
            implementation: Implementation::default(),
        }
    }
}

/// `v = α·v + (1 − α)·g²`, `p −= lr·g/(√v + eps)`. If centred, the square of the average gradient is subtracted from
/// `v`. With momentum, the quotients are accumulated in a buffer.
pub struct RmsProp {
    // The state is dropped before the parameters.
    states: Vec<Option<State>>,
    parameters: Parameters,
    options: RmsPropOptions,
}

struct State {
    square_avg: Array,
    momentum_buffer: Option<Array>,
    grad_avg: Option<Array>,
}

impl RmsProp {
    /// Creates the optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the fused implementation, which PyTorch does not have.
    pub fn new(parameters: Vec<Parameter>, options: RmsPropOptions) -> Result<Self> {
        if options.implementation == Implementation::Fused {
            return Err(Error::invalid("rmsprop", "has no fused implementation"));
        }
        let states = parameters.iter().map(|_| None).collect();
        Ok(Self { states, parameters: Parameters(parameters), options })
    }

    fn prepare(&mut self, gradients: &[(usize, Array)]) -> Result<()> {
        for (i, _) in gradients {
            if self.states[*i].is_none() {
                self.states[*i] = Some(self.options.first_state(self.parameters[*i].array())?);
            }
        }
        Ok(())
    }

    fn step_loop(&self, gradients: Vec<(usize, Array)>) -> Result<()> {
        let o = &self.options;
        // PyTorch's loop variable: the last root lives until the next one replaces it.
        let mut average: Option<Array> = None;
        for (i, grad) in gradients {
            let (p, Some(s)) = (self.parameters[i].array(), &self.states[i]) else { continue };
            let mut grad = if o.maximize { context::within("neg", || grad.unary(UnaryOp::Neg))? } else { grad };
            if o.weight_decay != 0.0 {
                grad = context::within("add", || grad.binary(BinaryOp::Add { alpha: o.weight_decay }, p))?;
            }
            o.update_averages(s, &grad)?;
            let root = context::within(if o.centered { "" } else { "sqrt" }, || o.root(s))?;
            let previous = average.replace(root);
            drop(previous);
            if let Some(root) = &average {
                o.apply(p, s, &grad, root)?;
            }
        }
        Ok(())
    }

    fn step_foreach(&self, gradients: Vec<(usize, Array)>) -> Result<()> {
        let o = &self.options;
        let (indices, mut grads): (Vec<usize>, Vec<Array>) = gradients.into_iter().unzip();
        if o.maximize {
            grads = negated(&grads)?;
        }
        if o.weight_decay != 0.0 {
            let parameters = indices.iter().map(|&i| self.parameters[i].array());
            grads = decayed(grads, parameters, o.weight_decay, o.maximize)?;
        }
        let rows = || indices.iter().filter_map(|&i| Some((self.parameters[i].array(), self.states[i].as_ref()?)));
        for ((_, s), grad) in rows().zip(&grads) {
            o.update_averages(s, grad)?;
        }
        let roots: Vec<Array> = {
            let _op = context::op(if o.centered { "_foreach_addcmul" } else { "_foreach_sqrt" });
            rows().map(|(_, s)| o.root(s)).collect::<Result<_>>()?
        };
        for (((p, s), grad), root) in rows().zip(&grads).zip(&roots) {
            o.apply(p, s, grad, root)?;
        }
        drop_reversed(grads);
        drop_reversed(roots);
        Ok(())
    }
}

impl RmsPropOptions {
    /// Creates the state of a parameter before its first step.
    fn first_state(&self, p: &Array) -> Result<State> {
        let _op = context::op("zeros_like");
        let zeros = || Ok::<_, Error>(p.zeros_like()?.with_category(Category::OptimizerState));
        let square_avg = zeros()?;
        let momentum_buffer = if self.momentum > 0.0 { Some(zeros()?) } else { None };
        let grad_avg = if self.centered { Some(zeros()?) } else { None };
        Ok(State { square_avg, momentum_buffer, grad_avg })
    }

    fn update_averages(&self, s: &State, grad: &Array) -> Result<()> {
        s.square_avg.unary_(UnaryOp::Affine { mul: self.alpha, add: 0.0 })?;
        s.square_avg.ternary_(TernaryOp::Addcmul { value: 1.0 - self.alpha }, grad, grad)?;
        match &s.grad_avg {
            Some(average) => average.ternary_(TernaryOp::Lerp { weight: 1.0 - self.alpha }, grad, grad),
            None => Ok(()),
        }
    }

    /// `√v + eps`, or `√(v − m²) + eps`.
    fn root(&self, s: &State) -> Result<Array> {
        let v = &s.square_avg;
        let root = match &s.grad_avg {
            Some(m) => {
                let root = Array::ternary(TernaryOp::Addcmul { value: -1.0 }, v, m, m, v.dims())?;
                root.unary_(UnaryOp::Sqrt)?;
                root
            }
            None => v.unary(UnaryOp::Sqrt)?,
        };
        root.unary_(UnaryOp::Affine { mul: 1.0, add: self.eps })?;
        Ok(root)
    }

    fn apply(&self, p: &Array, s: &State, grad: &Array, root: &Array) -> Result<()> {
        match &s.momentum_buffer {
            Some(buffer) => {
                buffer.unary_(UnaryOp::Affine { mul: self.momentum, add: 0.0 })?;
                buffer.ternary_(TernaryOp::Addcdiv { value: 1.0 }, grad, root)?;
                p.binary_(BinaryOp::Add { alpha: -self.lr }, buffer)
            }
            None => p.ternary_(TernaryOp::Addcdiv { value: -self.lr }, grad, root),
        }
    }
}

impl Optimizer for RmsProp {
    fn step(&mut self) -> Result<()> {
        let _op = context::op("RMSprop.step");
        let gradients = with_gradients(&self.parameters);
        self.prepare(&gradients)?;
        match self.options.implementation {
            Implementation::Loop => self.step_loop(gradients),
            Implementation::Foreach | Implementation::Fused => self.step_foreach(gradients),
        }
    }

    fn state(&self, index: usize) -> Option<ParameterState> {
        let state = self.states.get(index)?.as_ref()?;
        let mut tensors = vec![("square_avg", state.square_avg.clone())];
        tensors.extend(state.momentum_buffer.clone().map(|buffer| ("momentum_buffer", buffer)));
        tensors.extend(state.grad_avg.clone().map(|average| ("grad_avg", average)));
        Some(ParameterState { steps: None, tensors })
    }

    fn make_state(&mut self, index: usize, _steps: i32) -> Result<Option<ParameterState>> {
        self.states[index] = Some(self.options.first_state(nth(&self.parameters, index)?.array())?);
        Ok(self.state(index))
    }

    fn zero_grad_name(&self) -> &'static str {
        "zero_grad:RMSprop.zero_grad"
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }
}
