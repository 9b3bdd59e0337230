//! Adadelta.

use super::Implementation;
use super::locals::{List, Locals};
use super::rule::{ByRule, Rebound, Row, Rule, gradient, gradients, scale, zeros};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, TernaryOp, UnaryOp};
use crate::context;
use crate::error::Result;

/// `v = ρ·v + (1 − ρ)·g²`, `d = √(u + eps)/√(v + eps)·g`, `u = ρ·u + (1 − ρ)·d²`, `p −= lr·d`.
pub type Adadelta = ByRule<AdadeltaOptions>;

/// Settings of [`Adadelta`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdadeltaOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the averages.
    pub rho: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Ascends instead of descending.
    pub maximize: bool,
    /// Loop or foreach; PyTorch has no fused one.
    pub implementation: Implementation,
}

impl Default for AdadeltaOptions {
    fn default() -> Self {
        Self {
            lr: 1.0,
            rho: 0.9,
            eps: 1e-6,
            weight_decay: 0.0,
            maximize: false,
            implementation: Implementation::default(),
        }
    }
}

/// The state of a parameter.
pub struct State {
    square_avg: Array,
    acc_delta: Array,
}

impl Rule for AdadeltaOptions {
    type State = State;

    fn names(&self) -> [&'static str; 2] {
        ["Adadelta.step", "zero_grad:Adadelta.zero_grad"]
    }

    fn implementation(&self) -> Implementation {
        self.implementation
    }

    fn first_state(&self, p: &Array) -> Result<State> {
        let _op = context::op("zeros_like");
        Ok(State { square_avg: zeros(p)?, acc_delta: zeros(p)? })
    }

    fn tensors(&self, state: &State) -> Vec<(&'static str, Array)> {
        vec![("square_avg", state.square_avg.clone()), ("acc_delta", state.acc_delta.clone())]
    }

    fn update(&self, row: &Row<'_, State>, locals: &mut Locals<Array>) -> Result<()> {
        let grad = gradient(row, (self.maximize, self.weight_decay), Rebound::AtOnce, locals)?;
        let s = row.state;
        self.average(&s.square_avg, &grad)?;
        let std = locals.set("std", context::within("add", || s.square_avg.affine(1.0, self.eps))?);
        std.unary_(UnaryOp::Sqrt)?;
        let delta = locals.set("delta", context::within("add", || s.acc_delta.affine(1.0, self.eps))?);
        delta.unary_(UnaryOp::Sqrt)?;
        self.apply(row, &grad, &std, &delta)
    }

    fn update_all(&self, rows: &[Row<'_, State>], locals: &mut Locals<List>) -> Result<()> {
        let grads = gradients(rows, (self.maximize, self.weight_decay), locals)?;
        rows.iter().zip(&*grads).try_for_each(|(row, grad)| self.average(&row.state.square_avg, grad))?;
        let averages: List = rows.iter().map(|row| row.state.square_avg.clone()).collect();
        let stds = locals.set("std", averages.made("_foreach_add", |average| average.affine(1.0, self.eps))?);
        stds.iter().try_for_each(|std| std.unary_(UnaryOp::Sqrt))?;
        let sums: List = rows.iter().map(|row| row.state.acc_delta.clone()).collect();
        let deltas = locals.set("deltas", sums.made("_foreach_add", |sum| sum.affine(1.0, self.eps))?);
        deltas.iter().try_for_each(|delta| delta.unary_(UnaryOp::Sqrt))?;
        let rows = rows.iter().zip(&*grads).zip(stds.iter().zip(&*deltas));
        rows.into_iter().try_for_each(|((row, grad), (std, delta))| self.apply(row, grad, std, delta))
    }
}

impl AdadeltaOptions {
    /// `average = ρ·average + (1 − ρ)·x²`.
    fn average(&self, average: &Array, x: &Array) -> Result<()> {
        scale(average, self.rho)?;
        average.ternary_(TernaryOp::Addcmul { value: 1.0 - self.rho }, x, x)
    }

    fn apply(&self, row: &Row<'_, State>, grad: &Array, std: &Array, delta: &Array) -> Result<()> {
        delta.binary_(BinaryOp::Div, std)?;
        delta.binary_(BinaryOp::Mul, grad)?;
        self.average(&row.state.acc_delta, delta)?;
        row.p.binary_(BinaryOp::Add { alpha: -self.lr }, delta)
    }
}
