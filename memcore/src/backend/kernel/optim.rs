//! Fused optimizer steps over all parameters in one launch, and the loss scaler's kernels.
//!
//! Loop and foreach optimizers are composed of elementwise kernels in core. They differ from these fused kernels
//! exactly where PyTorch's do: in temporaries.

use std::sync::Arc;

use super::attribute::{AttributeVisitor, VisitAttribute};
use super::definition::{Check, Kernel, OperandVisitor, Visit};
use crate::backend::{Access, Operand};
use crate::dtype::DType;
use crate::error::Result;

/// Operands of one parameter in an SGD step: contiguous, of one type and size.
#[derive(Clone, Copy, Debug)]
pub struct SgdTensors {
    /// The parameter, which is updated.
    pub param: Operand,
    /// Its gradient.
    pub grad: Operand,
    /// Its momentum buffer, updated; present when `momentum` is not 0.
    pub momentum: Option<Operand>,
}

/// SGD as in PyTorch: `g = ±grad + weight_decay·p`; with momentum `b = g` at the first step, else `momentum·b + (1 −
/// dampening)·g`, and `g = nesterov ? g + momentum·b : b`; then `p −= lr·g`. A non-zero `found_inf` skips the step.
#[derive(Clone, Debug)]
pub struct SgdStep {
    /// The parameters.
    pub tensors: Arc<[SgdTensors]>,
    /// Learning rate.
    pub lr: f64,
    /// Weight of the old momentum buffer.
    pub momentum: f64,
    /// Dampening of the gradient's weight in the buffer.
    pub dampening: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Use Nesterov momentum.
    pub nesterov: bool,
    /// Ascends instead of descending.
    pub maximize: bool,
    /// True at the first step, when the momentum buffers hold nothing.
    pub first_step: bool,
    /// Scalar f32; non-zero skips the step.
    pub found_inf: Option<Operand>,
}

impl Kernel for SgdStep {
    const NAME: &'static str = "sgd_step";
    const IN_PLACE: bool = false;
    const OPERANDS: &'static [&'static str] = &["param", "grad", "momentum", "found_inf"];
    fn each_operand<'call>(&'call self, f: &mut OperandVisitor<'call, '_>) {
        for t in self.tensors.iter() {
            f("param", Access::ReadWrite, &t.param);
            f("grad", Access::Read, &t.grad);
            t.momentum.visit("momentum", Access::ReadWrite, f);
        }
        self.found_inf.visit("found_inf", Access::Read, f);
    }
    fn each_attribute(&self, f: &mut AttributeVisitor<'_>) {
        let Self { lr, momentum, dampening, weight_decay, nesterov, maximize, first_step, tensors: _, found_inf: _ } =
            self;
        VisitAttribute::visit(lr, "lr", f);
        VisitAttribute::visit(momentum, "momentum", f);
        VisitAttribute::visit(dampening, "dampening", f);
        VisitAttribute::visit(weight_decay, "weight_decay", f);
        VisitAttribute::visit(nesterov, "nesterov", f);
        VisitAttribute::visit(maximize, "maximize", f);
        VisitAttribute::visit(first_step, "first_step", f);
    }
    fn check(&self) -> Result<()> {
        let c = Check { kernel: Self::NAME };
        for t in self.tensors.iter() {
            update(&c, "grad", &t.grad, &t.param)?;
            c.that(t.momentum.is_some() == (self.momentum != 0.0), "momentum", || {
                "a buffer exactly when momentum is not 0".into()
            })?;
            if let Some(m) = &t.momentum {
                update(&c, "momentum", m, &t.param)?;
            }
        }
        scalar(&c, "found_inf", &self.found_inf)
    }
    fn flops(&self) -> u64 {
        self.tensors.iter().map(|t| 4 * t.param.numel() as u64).sum()
    }
}

/// Operands of one parameter in an Adam step: contiguous, of one type and size.
#[derive(Clone, Copy, Debug)]
pub struct AdamTensors {
    /// The parameter, which is updated.
    pub param: Operand,
    /// Its gradient.
    pub grad: Operand,
    /// First moment, updated.
    pub exp_avg: Operand,
    /// Second moment, updated.
    pub exp_avg_sq: Operand,
    /// Largest second moment so far, updated; only with AMSGrad.
    pub max_exp_avg_sq: Option<Operand>,
    /// Scalar f32: the number of steps, **including this one** (already incremented); equal to the call's `step_count`.
    pub step: Operand,
}

/// Adam and AdamW as in PyTorch, with `t` the step count, which is the same for all parameters of a call:
/// `g = ±grad` (Adam: `+ weight_decay·p`; AdamW: first `p *= 1 − lr·weight_decay`); `m += (1 − β₁)(g − m)`;
/// `v = β₂v + (1 − β₂)g²`; with AMSGrad `v̂ = max(v̂, v)`, else `v̂ = v`; `p −= lr/(1 − β₁ᵗ) · m / (√v̂/√(1 − β₂ᵗ) + eps)`.
/// A non-zero `found_inf` skips the step.
#[derive(Clone, Debug)]
pub struct AdamStep {
    /// The parameters.
    pub tensors: Arc<[AdamTensors]>,
    /// Learning rate.
    pub lr: f64,
    /// Decay of the moments, β₁ and β₂.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// AdamW's decoupled weight decay instead of Adam's.
    pub decoupled: bool,
    /// Ascends instead of descending.
    pub maximize: bool,
    /// The number of steps, including this one: what every `step` operand holds, for backends that compute `1 − βᵗ` on
    /// the host.
    pub step_count: i32,
    /// Scalar f32; non-zero skips the step.
    pub found_inf: Option<Operand>,
}

impl AdamStep {
    /// `lr/(1 − β₁ᵗ)` and `√(1 − β₂ᵗ)`, in f64: near 1, `1 − βᵗ` would lose most digits of an f32.
    pub fn corrections(&self) -> [f64; 2] {
        let [first, second] = self.betas.map(|beta| 1.0 - beta.powi(self.step_count));
        [self.lr / first, second.sqrt()]
    }
}

impl Kernel for AdamStep {
    const NAME: &'static str = "adam_step";
    const IN_PLACE: bool = false;
    const OPERANDS: &'static [&'static str] =
        &["param", "grad", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step", "found_inf"];
    fn each_operand<'call>(&'call self, f: &mut OperandVisitor<'call, '_>) {
        for t in self.tensors.iter() {
            f("param", Access::ReadWrite, &t.param);
            f("grad", Access::Read, &t.grad);
            f("exp_avg", Access::ReadWrite, &t.exp_avg);
            f("exp_avg_sq", Access::ReadWrite, &t.exp_avg_sq);
            t.max_exp_avg_sq.visit("max_exp_avg_sq", Access::ReadWrite, f);
            f("step", Access::Read, &t.step);
        }
        self.found_inf.visit("found_inf", Access::Read, f);
    }
    fn each_attribute(&self, f: &mut AttributeVisitor<'_>) {
        let Self { lr, betas, eps, weight_decay, decoupled, maximize, step_count, tensors: _, found_inf: _ } = self;
        VisitAttribute::visit(lr, "lr", f);
        VisitAttribute::visit(betas, "betas", f);
        VisitAttribute::visit(eps, "eps", f);
        VisitAttribute::visit(weight_decay, "weight_decay", f);
        VisitAttribute::visit(decoupled, "decoupled", f);
        VisitAttribute::visit(maximize, "maximize", f);
        VisitAttribute::visit(step_count, "step_count", f);
    }
    fn check(&self) -> Result<()> {
        let c = Check { kernel: Self::NAME };
        for t in self.tensors.iter() {
            update(&c, "grad", &t.grad, &t.param)?;
            update(&c, "exp_avg", &t.exp_avg, &t.param)?;
            update(&c, "exp_avg_sq", &t.exp_avg_sq, &t.param)?;
            if let Some(m) = &t.max_exp_avg_sq {
                update(&c, "max_exp_avg_sq", m, &t.param)?;
            }
            scalar(&c, "step", &Some(t.step))?;
        }
        scalar(&c, "found_inf", &self.found_inf)
    }
    fn flops(&self) -> u64 {
        self.tensors.iter().map(|t| 12 * t.param.numel() as u64).sum()
    }
}

/// `grad *= inv_scale` for every gradient. `found_inf = 1` if an element was infinite or NaN before scaling, else
/// unchanged.
#[derive(Clone, Debug)]
pub struct Unscale {
    /// The gradients, contiguous floats.
    pub grads: Arc<[Operand]>,
    /// Scalar f32.
    pub inv_scale: Operand,
    /// Scalar f32.
    pub found_inf: Operand,
}

impl Kernel for Unscale {
    const NAME: &'static str = "unscale";
    const IN_PLACE: bool = false;
    const OPERANDS: &'static [&'static str] = &["grads", "inv_scale", "found_inf"];
    fn each_operand<'call>(&'call self, f: &mut OperandVisitor<'call, '_>) {
        for grad in self.grads.iter() {
            f("grads", Access::ReadWrite, grad);
        }
        f("inv_scale", Access::Read, &self.inv_scale);
        f("found_inf", Access::ReadWrite, &self.found_inf);
    }
    fn each_attribute(&self, _: &mut AttributeVisitor<'_>) {
        let Self { grads: _, inv_scale: _, found_inf: _ } = self;
    }
    fn check(&self) -> Result<()> {
        let c = Check { kernel: Self::NAME };
        for grad in self.grads.iter() {
            c.float("grads", grad)?;
            c.contiguous("grads", grad)?;
        }
        scalar(&c, "inv_scale", &Some(self.inv_scale))?;
        scalar(&c, "found_inf", &Some(self.found_inf))
    }
    fn flops(&self) -> u64 {
        self.grads.iter().map(|g| g.numel() as u64).sum()
    }
}

/// The loss scaler's update: with `found_inf` set, `scale *= backoff_factor` and `growth_tracker = 0`; otherwise the tracker
/// grows by one, and at `growth_interval` `scale *= growth_factor` (unless that overflows) and the tracker returns to 0.
#[derive(Clone, Debug)]
pub struct UpdateScale {
    /// Factor after `growth_interval` steps without an overflow.
    pub growth_factor: f64,
    /// Factor after an overflow.
    pub backoff_factor: f64,
    /// Steps in a row without an overflow after which the scale grows.
    pub growth_interval: i32,
    /// Scalar f32.
    pub scale: Operand,
    /// Scalar i32.
    pub growth_tracker: Operand,
    /// Scalar f32.
    pub found_inf: Operand,
}

impl Kernel for UpdateScale {
    const NAME: &'static str = "update_scale";
    const IN_PLACE: bool = false;
    const OPERANDS: &'static [&'static str] = &["scale", "growth_tracker", "found_inf"];
    fn each_operand<'call>(&'call self, f: &mut OperandVisitor<'call, '_>) {
        f("scale", Access::ReadWrite, &self.scale);
        f("growth_tracker", Access::ReadWrite, &self.growth_tracker);
        f("found_inf", Access::Read, &self.found_inf);
    }
    fn each_attribute(&self, f: &mut AttributeVisitor<'_>) {
        let Self { growth_factor, backoff_factor, growth_interval, scale: _, growth_tracker: _, found_inf: _ } = self;
        VisitAttribute::visit(growth_factor, "growth_factor", f);
        VisitAttribute::visit(backoff_factor, "backoff_factor", f);
        VisitAttribute::visit(growth_interval, "growth_interval", f);
    }
    fn check(&self) -> Result<()> {
        let c = Check { kernel: Self::NAME };
        scalar(&c, "scale", &Some(self.scale))?;
        scalar(&c, "found_inf", &Some(self.found_inf))?;
        c.dtype("growth_tracker", &self.growth_tracker, DType::I32)?;
        c.that(self.growth_tracker.numel() == 1, "growth_tracker", || "not a scalar".into())
    }
    fn flops(&self) -> u64 {
        1
    }
}

fn update(c: &Check, name: &'static str, operand: &Operand, param: &Operand) -> Result<()> {
    c.float("param", param)?;
    c.contiguous("param", param)?;
    c.dtype(name, operand, param.dtype)?;
    c.dense(name, operand, param.dims())
}

fn scalar(c: &Check, name: &'static str, operand: &Option<Operand>) -> Result<()> {
    let Some(operand) = operand else {
        return Ok(());
    };
    c.dtype(name, operand, DType::F32)?;
    c.that(operand.numel() == 1, name, || format!("{:?} is not a scalar", operand.dims()))
}
