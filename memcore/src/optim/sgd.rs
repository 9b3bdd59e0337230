//! Stochastic gradient descent, with momentum.

use std::sync::Arc;

use super::{
    Implementation, Optimizer, ParameterState, Parameters, decayed, drop_reversed, negated, negated_in_place_of, nth,
    with_gradients,
};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, SgdStep, SgdTensors};
use crate::context;
use crate::error::{Error, Result};
use crate::memory::Category;
use crate::nn::Parameter;

/// Settings of [`Sgd`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdOptions {
    /// Learning rate.
    pub lr: f64,
    /// Weight of the old momentum buffer; 0 keeps none.
    pub momentum: f64,
    /// Dampening of the gradient's weight in the buffer.
    pub dampening: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Use Nesterov momentum.
    pub nesterov: bool,
    /// Ascends instead of descending.
    pub maximize: bool,
    /// Loop, foreach or fused.
    pub implementation: Implementation,
}

impl Default for SgdOptions {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
            implementation: Implementation::default(),
        }
    }
}

/// `p −= lr·g`. With momentum, `b = momentum·b + (1 − dampening)·g` replaces the gradient.
pub struct Sgd {
    /// Momentum buffers, allocated at a parameter's first step as copies of its gradient. They are dropped before the
    /// parameters.
    buffers: Vec<Option<Array>>,
    parameters: Parameters,
    options: SgdOptions,
}

impl Sgd {
    /// Creates the optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for Nesterov momentum without momentum or with dampening.
    pub fn new(parameters: Vec<Parameter>, options: SgdOptions) -> Result<Self> {
        if options.nesterov && (options.momentum <= 0.0 || options.dampening != 0.0) {
            return Err(Error::invalid("nesterov", "needs a momentum and no dampening"));
        }
        let buffers = vec![None; parameters.len()];
        Ok(Self { buffers, parameters: Parameters(parameters), options })
    }

    fn step_loop(&mut self, gradients: Vec<(usize, Array)>) -> Result<()> {
        let o = self.options;
        // PyTorch's loop variable: the last gradient lives until the next one replaces it.
        let mut held: Option<Array> = None;
        for (i, grad) in gradients {
            let p = self.parameters[i].array();
            let mut grad = negated_in_place_of(&mut held, grad, o.maximize)?;
            if o.weight_decay != 0.0 {
                grad = context::within("add", || grad.binary(BinaryOp::Add { alpha: o.weight_decay }, p))?;
            }
            if o.momentum != 0.0 {
                let buffer = match &self.buffers[i] {
                    None => {
                        let copy = context::within("clone", || grad.copied())?;
                        self.buffers[i].insert(copy.with_category(Category::OptimizerState))
                    }
                    Some(buffer) => {
                        scale_add(buffer, o.momentum, &grad, 1.0 - o.dampening)?;
                        buffer
                    }
                };
                grad =
                    if o.nesterov { grad.binary(BinaryOp::Add { alpha: o.momentum }, buffer)? } else { buffer.clone() };
            }
            p.binary_(BinaryOp::Add { alpha: -o.lr }, held.insert(grad))?;
        }
        Ok(())
    }

    fn step_foreach(&mut self, gradients: Vec<(usize, Array)>) -> Result<()> {
        let o = self.options;
        let (indices, mut grads): (Vec<usize>, Vec<Array>) = gradients.into_iter().unzip();
        let mut temporary = false;
        if o.maximize {
            grads = negated(&grads)?;
            temporary = true;
        }
        if o.weight_decay != 0.0 {
            let parameters = indices.iter().map(|&i| self.parameters[i].array());
            grads = decayed(grads, parameters, o.weight_decay, o.maximize)?;
            temporary = true;
        }
        if o.momentum != 0.0 {
            for (&i, grad) in indices.iter().zip(&grads) {
                match &self.buffers[i] {
                    None => {
                        let copy = context::within("clone", || grad.copied())?;
                        self.buffers[i] = Some(copy.with_category(Category::OptimizerState));
                    }
                    Some(buffer) => scale_add(buffer, o.momentum, grad, 1.0 - o.dampening)?,
                }
            }
            let buffers: Vec<Array> = indices.iter().filter_map(|&i| self.buffers[i].clone()).collect();
            if o.nesterov {
                for (grad, buffer) in grads.iter().zip(&buffers) {
                    grad.binary_(BinaryOp::Add { alpha: o.momentum }, buffer)?;
                }
            } else {
                drop_reversed(std::mem::replace(&mut grads, buffers));
            }
        }
        for (&i, grad) in indices.iter().zip(&grads) {
            self.parameters[i].array().binary_(BinaryOp::Add { alpha: -o.lr }, grad)?;
        }
        if temporary {
            drop_reversed(grads);
        }
        Ok(())
    }

    /// Buffers that hold nothing yet need a launch of their own: the kernel's first step overwrites them.
    fn step_fused(&mut self, gradients: Vec<(usize, Array)>) -> Result<()> {
        let (mut fresh, mut later) = (Vec::new(), Vec::new());
        for (i, grad) in &gradients {
            let momentum = if self.options.momentum == 0.0 {
                later.push((*i, grad, None));
                continue;
            } else {
                self.buffers[*i].clone()
            };
            match momentum {
                Some(buffer) => later.push((*i, grad, Some(buffer))),
                None => {
                    let buffer = grad.empty_like()?.with_category(Category::OptimizerState);
                    self.buffers[*i] = Some(buffer.clone());
                    fresh.push((*i, grad, Some(buffer)));
                }
            }
        }
        self.launch_fused(&fresh, true)?;
        self.launch_fused(&later, false)
    }

    fn launch_fused(&self, tensors: &[(usize, &Array, Option<Array>)], first_step: bool) -> Result<()> {
        let Some((first, ..)) = tensors.first() else { return Ok(()) };
        let o = self.options;
        let operands: Arc<[SgdTensors]> = tensors
            .iter()
            .map(|(i, grad, momentum)| SgdTensors {
                param: self.parameters[*i].array().operand(),
                grad: grad.operand(),
                momentum: momentum.as_ref().map(Array::operand),
            })
            .collect();
        self.parameters[*first].array().device().launch(SgdStep {
            tensors: operands,
            lr: o.lr,
            momentum: o.momentum,
            dampening: o.dampening,
            weight_decay: o.weight_decay,
            nesterov: o.nesterov,
            maximize: o.maximize,
            first_step,
            found_inf: None,
        })?;
        tensors.iter().for_each(|(i, ..)| self.parameters[*i].array().storage().bump_version());
        Ok(())
    }
}

/// `x = a·x + b·y`.
fn scale_add(x: &Array, a: f64, y: &Array, b: f64) -> Result<()> {
    x.unary_(crate::backend::kernel::UnaryOp::Affine { mul: a, add: 0.0 })?;
    x.binary_(BinaryOp::Add { alpha: b }, y)
}

impl Optimizer for Sgd {
    fn step(&mut self) -> Result<()> {
        let _op = context::op("SGD.step");
        let gradients = with_gradients(&self.parameters);
        match self.options.implementation {
            Implementation::Loop => self.step_loop(gradients),
            Implementation::Foreach => self.step_foreach(gradients),
            Implementation::Fused => self.step_fused(gradients),
        }
    }

    fn state(&self, index: usize) -> Option<ParameterState> {
        let buffer = self.buffers.get(index)?.clone()?;
        Some(ParameterState { steps: None, tensors: vec![("momentum_buffer", buffer)] })
    }

    fn make_state(&mut self, index: usize, _steps: i32) -> Result<Option<ParameterState>> {
        let parameter = nth(&self.parameters, index)?;
        if self.options.momentum == 0.0 {
            return Ok(None);
        }
        let buffer = context::within("clone", || parameter.array().zeros_like())?;
        self.buffers[index] = Some(buffer.with_category(Category::OptimizerState));
        Ok(self.state(index))
    }

    fn takes_loss_scale(&self) -> bool {
        self.options.implementation == Implementation::Fused
    }

    fn zero_grad_name(&self) -> &'static str {
        "zero_grad:SGD.zero_grad"
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }
}
