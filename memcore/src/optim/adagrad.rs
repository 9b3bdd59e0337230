//! Adagrad.

use super::{
    Implementation, Optimizer, ParameterState, Parameters, decayed, drop_reversed, negated, nth, with_gradients,
};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, TernaryOp, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::nn::Parameter;

/// Settings of [`Adagrad`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdagradOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decrease of the learning rate with the number of steps.
    pub lr_decay: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Initial value of the sums of squares.
    pub initial_accumulator_value: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Ascends instead of descending.
    pub maximize: bool,
    /// Loop or foreach; PyTorch has a fused one only for the CPU.
    pub implementation: Implementation,
}

impl Default for AdagradOptions {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            lr_decay: 0.0,
            weight_decay: 0.0,
            initial_accumulator_value: 0.0,
            eps: 1e-10,
            maximize: false,
            implementation: Implementation::default(),
        }
    }
}

/// `s += g²`, `p −= lr/(1 + t·lr_decay)·g/(√s + eps)`, with `t` the number of earlier steps. The sums are allocated
/// with the optimizer, not at its first step.
pub struct Adagrad {
    // The state is dropped before the parameters.
    sums: Vec<Array>,
    steps: Vec<i32>,
    parameters: Parameters,
    options: AdagradOptions,
}

impl Adagrad {
    /// Creates the optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the fused implementation; errors of the device.
    pub fn new(parameters: Vec<Parameter>, options: AdagradOptions) -> Result<Self> {
        if options.implementation == Implementation::Fused {
            return Err(Error::invalid("adagrad", "has no fused implementation"));
        }
        let _op = context::op("full_like");
        let sum = |parameter: &Parameter| {
            let p = parameter.array();
            let sum = Array::full(p.device(), p.dims(), p.dtype(), options.initial_accumulator_value)?;
            Ok(sum.with_category(Category::OptimizerState))
        };
        let sums: Result<Vec<Array>> = parameters.iter().map(sum).collect();
        let steps = vec![0; parameters.len()];
        Ok(Self { sums: sums?, steps, parameters: Parameters(parameters), options })
    }

    /// Counts a step and returns its learning rate.
    fn advance(&mut self, i: usize) -> f64 {
        let before = f64::from(self.steps[i]);
        self.steps[i] += 1;
        self.options.lr / (1.0 + before * self.options.lr_decay)
    }

    fn step_loop(&mut self, gradients: Vec<(usize, Array)>) -> Result<()> {
        let o = self.options;
        // PyTorch's loop variable: the last root lives until the next one replaces it.
        let mut deviation: Option<Array> = None;
        for (i, grad) in gradients {
            let lr = self.advance(i);
            let (p, sum) = (self.parameters[i].array(), &self.sums[i]);
            let mut grad = if o.maximize { context::within("neg", || grad.unary(UnaryOp::Neg))? } else { grad };
            if o.weight_decay != 0.0 {
                grad = context::within("add", || grad.binary(BinaryOp::Add { alpha: o.weight_decay }, p))?;
            }
            let sum = o.accumulate(sum, &grad)?;
            let root = context::within("sqrt", || sum.unary(UnaryOp::Sqrt))?;
            root.unary_(UnaryOp::Affine { mul: 1.0, add: o.eps })?;
            let previous = deviation.replace(root);
            drop(previous);
            if let Some(root) = &deviation {
                p.ternary_(TernaryOp::Addcdiv { value: -lr }, &grad, root)?;
            }
        }
        Ok(())
    }

    fn step_foreach(&mut self, gradients: Vec<(usize, Array)>) -> Result<()> {
        let o = self.options;
        let (indices, mut grads): (Vec<usize>, Vec<Array>) = gradients.into_iter().unzip();
        let rates: Vec<f64> = indices.iter().map(|&i| self.advance(i)).collect();
        if o.maximize {
            grads = negated(&grads)?;
        }
        if o.weight_decay != 0.0 {
            let parameters = indices.iter().map(|&i| self.parameters[i].array());
            grads = decayed(grads, parameters, o.weight_decay, o.maximize)?;
        }
        let mut sums = Vec::with_capacity(indices.len());
        for (&i, grad) in indices.iter().zip(&grads) {
            sums.push(o.accumulate(&self.sums[i], grad)?);
        }
        let deviations: Vec<Array> = {
            let _op = context::op("_foreach_sqrt");
            sums.iter().map(|sum| sum.unary(UnaryOp::Sqrt)).collect::<Result<_>>()?
        };
        for deviation in &deviations {
            deviation.unary_(UnaryOp::Affine { mul: 1.0, add: o.eps })?;
        }
        // Gradients that are already temporaries are scaled in place.
        let own = o.maximize || o.weight_decay != 0.0;
        let numerators: Vec<Array> = {
            let _op = context::op("_foreach_mul");
            let scaled = |(grad, &lr): (&Array, &f64)| {
                let op = UnaryOp::Affine { mul: -lr, add: 0.0 };
                if own { grad.unary_(op).map(|()| grad.clone()) } else { grad.unary(op) }
            };
            grads.iter().zip(&rates).map(scaled).collect::<Result<_>>()?
        };
        for ((&i, numerator), deviation) in indices.iter().zip(&numerators).zip(&deviations) {
            self.parameters[i].array().ternary_(TernaryOp::Addcdiv { value: 1.0 }, numerator, deviation)?;
        }
        drop_reversed(grads);
        drop_reversed(deviations);
        drop_reversed(numerators);
        Ok(())
    }
}

impl AdagradOptions {
    /// Adds `grad²` to `sum`; returns `sum`.
    fn accumulate<'a>(&self, sum: &'a Array, grad: &Array) -> Result<&'a Array> {
        sum.ternary_(TernaryOp::Addcmul { value: 1.0 }, grad, grad)?;
        Ok(sum)
    }
}

impl Optimizer for Adagrad {
    fn step(&mut self) -> Result<()> {
        let gradients = with_gradients(&self.parameters);
        let _op = context::op("Adagrad.step");
        match self.options.implementation {
            Implementation::Loop => self.step_loop(gradients),
            Implementation::Foreach | Implementation::Fused => self.step_foreach(gradients),
        }
    }

    fn state(&self, index: usize) -> Option<ParameterState> {
        let (sum, steps) = (self.sums.get(index)?, self.steps.get(index)?);
        Some(ParameterState { steps: Some(*steps), tensors: vec![("sum", sum.clone())] })
    }

    fn make_state(&mut self, index: usize, steps: i32) -> Result<Option<ParameterState>> {
        nth(&self.parameters, index)?;
        // The sums were allocated with the optimizer.
        self.steps[index] = steps;
        Ok(self.state(index))
    }

    fn zero_grad_name(&self) -> &'static str {
        "zero_grad:Adagrad.zero_grad"
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }
}
