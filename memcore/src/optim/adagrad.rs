//! Adagrad.

use super::Implementation;
use super::locals::{List, Locals};
use super::rule::{ByRule, Rebound, Row, Rule, gradient, gradients, scale, shift};
use crate::array::Array;
use crate::backend::kernel::{TernaryOp, UnaryOp};
use crate::context;
use crate::error::Result;
use crate::memory::Category;

/// `s += g²`, `p −= lr/(1 + t·lr_decay)·g/(√s + eps)`, with `t` the number of earlier steps. The sums are allocated
/// with the optimizer, not at its first step.
pub type Adagrad = ByRule<AdagradOptions>;

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

impl Rule for AdagradOptions {
    /// The sum of squares.
    type State = Array;

    fn names(&self) -> [&'static str; 2] {
        ["Adagrad.step", "zero_grad:Adagrad.zero_grad"]
    }

    fn implementation(&self) -> Implementation {
        self.implementation
    }

    fn begins_with_states(&self) -> bool {
        true
    }

    fn first_state(&self, p: &Array) -> Result<Array> {
        let _op = context::op("full_like");
        let sum = Array::full(p.device(), p.dims(), p.dtype(), self.initial_accumulator_value)?;
        Ok(sum.with_category(Category::OptimizerState))
    }

    fn tensors(&self, sum: &Array) -> Vec<(&'static str, Array)> {
        vec![("sum", sum.clone())]
    }

    fn update(&self, row: &Row<'_, Array>, locals: &mut Locals<Array>) -> Result<()> {
        let grad = gradient(row, (self.maximize, self.weight_decay), Rebound::AtOnce, locals)?;
        self.accumulate(row.state, &grad)?;
        let std = locals.set("std", context::within("sqrt", || row.state.unary(UnaryOp::Sqrt))?);
        shift(&std, self.eps)?;
        row.p.ternary_(TernaryOp::Addcdiv { value: -self.rate(row.step) }, &grad, &std)
    }

    fn update_all(&self, rows: &[Row<'_, Array>], locals: &mut Locals<List>) -> Result<()> {
        let grads = gradients(rows, (self.maximize, self.weight_decay), locals)?;
        rows.iter().zip(&*grads).try_for_each(|(row, grad)| self.accumulate(row.state, grad))?;
        let sums: List = rows.iter().map(|row| row.state.clone()).collect();
        let stds = locals.set("std", sums.made("_foreach_sqrt", |sum| sum.unary(UnaryOp::Sqrt))?);
        stds.iter().try_for_each(|std| shift(std, self.eps))?;
        // Gradients that are already temporaries are scaled in place.
        let numerators = if self.maximize || self.weight_decay != 0.0 {
            rows.iter().zip(&*grads).try_for_each(|(row, grad)| scale(grad, -self.rate(row.step)))?;
            grads
        } else {
            let _op = context::op("_foreach_mul");
            let scaled = rows.iter().zip(&*grads).map(|(row, grad)| grad.affine(-self.rate(row.step), 0.0));
            scaled.collect::<Result<List>>()?
        };
        let numerators = locals.set("numerator", numerators);
        let rows = rows.iter().zip(&*numerators).zip(&*stds);
        rows.into_iter()
            .try_for_each(|((row, numerator), std)| row.p.ternary_(TernaryOp::Addcdiv { value: 1.0 }, numerator, std))
    }
}

impl AdagradOptions {
    fn accumulate(&self, sum: &Array, grad: &Array) -> Result<()> {
        sum.ternary_(TernaryOp::Addcmul { value: 1.0 }, grad, grad)
    }

    /// The learning rate of a step.
    fn rate(&self, step: i32) -> f64 {
        self.lr / (1.0 + f64::from(step - 1) * self.lr_decay)
    }
}
