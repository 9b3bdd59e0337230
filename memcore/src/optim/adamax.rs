//! Adamax.

use super::Implementation;
use super::locals::{List, Locals};
use super::rule::{ByRule, Rebound, Row, Rule, gradient, gradients, scale, shift, zeros};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, TernaryOp, UnaryOp};
use crate::context;
use crate::error::Result;

/// `m = β₁·m + (1 − β₁)·g`, `u = max(β₂·u, |g| + eps)`, `p −= lr/(1 − β₁ᵗ)·m/u`.
pub type Adamax = ByRule<AdamaxOptions>;

/// Settings of [`Adamax`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamaxOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the two averages.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Ascends instead of descending.
    pub maximize: bool,
    /// Loop or foreach; PyTorch has no fused one.
    pub implementation: Implementation,
}

impl Default for AdamaxOptions {
    fn default() -> Self {
        Self {
            lr: 2e-3,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.0,
            maximize: false,
            implementation: Implementation::default(),
        }
    }
}

/// The state of a parameter.
pub struct State {
    exp_avg: Array,
    exp_inf: Array,
}

impl Rule for AdamaxOptions {
    type State = State;

    fn names(&self) -> [&'static str; 2] {
        ["Adamax.step", "zero_grad:Adamax.zero_grad"]
    }

    fn implementation(&self) -> Implementation {
        self.implementation
    }

    fn first_state(&self, p: &Array) -> Result<State> {
        let _op = context::op("zeros_like");
        Ok(State { exp_avg: zeros(p)?, exp_inf: zeros(p)? })
    }

    fn tensors(&self, state: &State) -> Vec<(&'static str, Array)> {
        vec![("exp_avg", state.exp_avg.clone()), ("exp_inf", state.exp_inf.clone())]
    }

    fn update(&self, row: &Row<'_, State>, locals: &mut Locals<Array>) -> Result<()> {
        let grad = gradient(row, (self.maximize, self.weight_decay), Rebound::AtOnce, locals)?;
        row.state.exp_avg.ternary_(TernaryOp::Lerp { weight: 1.0 - self.betas[0] }, &grad, &grad)?;
        scale(&row.state.exp_inf, self.betas[1])?;
        let norm = context::within("abs", || grad.unary(UnaryOp::Abs))?;
        shift(&norm, self.eps)?;
        row.state.exp_inf.binary_(BinaryOp::Maximum, &norm)?;
        drop(norm);
        self.apply(row)
    }

    fn update_all(&self, rows: &[Row<'_, State>], locals: &mut Locals<List>) -> Result<()> {
        let mut grads = gradients(rows, (self.maximize, self.weight_decay), locals)?;
        for (row, grad) in rows.iter().zip(&*grads) {
            row.state.exp_avg.ternary_(TernaryOp::Lerp { weight: 1.0 - self.betas[0] }, grad, grad)?;
            scale(&row.state.exp_inf, self.betas[1])?;
        }
        // Gradients that are already temporaries become their absolute values in place.
        if self.maximize || self.weight_decay != 0.0 {
            grads.iter().try_for_each(|grad| grad.unary_(UnaryOp::Abs))?;
        } else {
            grads = locals.set("grads", grads.made("_foreach_abs", |grad| grad.unary(UnaryOp::Abs))?);
        }
        for (row, norm) in rows.iter().zip(&*grads) {
            shift(norm, self.eps)?;
            row.state.exp_inf.binary_(BinaryOp::Maximum, norm)?;
        }
        rows.iter().try_for_each(|row| self.apply(row))
    }
}

impl AdamaxOptions {
    fn apply(&self, row: &Row<'_, State>) -> Result<()> {
        let rate = self.lr / (1.0 - self.betas[0].powi(row.step));
        row.p.ternary_(TernaryOp::Addcdiv { value: -rate }, &row.state.exp_avg, &row.state.exp_inf)
    }
}
