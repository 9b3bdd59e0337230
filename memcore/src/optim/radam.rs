//! RAdam: Adam with a rectified learning rate.

use super::Implementation;
use super::locals::{List, Locals};
use super::rule::{ByRule, Rebound, Row, Rule, gradient, gradients, scale, shift};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, TernaryOp, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::memory::Category;

/// `m = β₁·m + (1 − β₁)·g`, `v = β₂·v + (1 − β₂)·g²`, `p −= lr·m/(1 − β₁ᵗ)·r·√(1 − β₂ᵗ)/(√v + eps)` with the rectification `r`. In the
/// first steps, in which the variance of `v` is not known, `p −= lr·m/(1 − β₁ᵗ)`.
pub type RAdam = ByRule<RAdamOptions>;

/// Settings of [`RAdam`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RAdamOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the two averages.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// The weight decay is subtracted from the parameter instead of added to the gradient.
    pub decoupled_weight_decay: bool,
    /// Ascends instead of descending.
    pub maximize: bool,
    /// Loop or foreach; PyTorch has no fused one.
    pub implementation: Implementation,
}

impl Default for RAdamOptions {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled_weight_decay: false,
            maximize: false,
            implementation: Implementation::default(),
        }
    }
}

/// The state of a parameter.
pub struct State {
    exp_avg: Array,
    exp_avg_sq: Array,
}

impl Rule for RAdamOptions {
    type State = State;

    fn names(&self) -> [&'static str; 2] {
        ["RAdam.step", "zero_grad:RAdam.zero_grad"]
    }

    fn implementation(&self) -> Implementation {
        self.implementation
    }

    fn first_state(&self, p: &Array) -> Result<State> {
        let _op = context::op("zeros_like");
        let zeros = || Ok::<_, Error>(p.zeros_like()?.with_category(Category::OptimizerState));
        Ok(State { exp_avg: zeros()?, exp_avg_sq: zeros()? })
    }

    fn tensors(&self, state: &State) -> Vec<(&'static str, Array)> {
        vec![("exp_avg", state.exp_avg.clone()), ("exp_avg_sq", state.exp_avg_sq.clone())]
    }

    fn update(&self, row: &Row<'_, State>, locals: &mut Locals<Array>) -> Result<()> {
        let decay = self.decay(&[row])?;
        let grad = gradient(row, (self.maximize, decay), Rebound::Later, locals)?;
        self.update_moments(row.state, &grad)?;
        let correction = 1.0 - self.betas[0].powi(row.step);
        let corrected = context::within("div", || row.state.exp_avg.affine(1.0 / correction, 0.0))?;
        let corrected = locals.set("bias_corrected_exp_avg", corrected);
        let mut update = context::within("mul", || corrected.affine(self.lr, 0.0))?;
        if let Some(rectification) = self.rectification(row.step) {
            let adaptive = self.adaptive_rate(row)?;
            let adapted = context::within("mul", || update.mul(&adaptive))?;
            drop((std::mem::replace(&mut update, adapted), adaptive));
            update = context::within("mul", || update.affine(rectification, 0.0))?;
        }
        row.p.binary_(BinaryOp::Add { alpha: -1.0 }, &update)
    }

    fn update_all(&self, rows: &[Row<'_, State>], locals: &mut Locals<List>) -> Result<()> {
        let decay = self.decay(&rows.iter().collect::<Vec<_>>())?;
        let grads = gradients(rows, (self.maximize, decay), locals)?;
        rows.iter().zip(&*grads).try_for_each(|(row, grad)| self.update_moments(row.state, grad))?;
        drop(grads);
        locals.delete("grads");
        let averages: List = rows.iter().map(|row| row.state.exp_avg_sq.clone()).collect();
        let buffers = locals.set("buffer", averages.made("_foreach_sqrt", |v| v.unary(UnaryOp::Sqrt))?);
        for (row, buffer) in rows.iter().zip(&*buffers) {
            let rate = self.lr / (1.0 - self.betas[0].powi(row.step));
            shift(buffer, self.eps)?;
            // In the first steps PyTorch divides by 0 and goes on with the inverse, which is 0.
            buffer.unary_(UnaryOp::Reciprocal)?;
            let adaptive = (1.0 - self.betas[1].powi(row.step)).sqrt();
            match self.rectification(row.step) {
                Some(rectification) => scale(buffer, -rate * rectification * adaptive)?,
                None => buffer.fill_(-rate)?,
            }
            row.p.ternary_(TernaryOp::Addcmul { value: 1.0 }, &row.state.exp_avg, buffer)?;
        }
        Ok(())
    }
}

impl RAdamOptions {
    /// How much smaller the adaptive learning rate is; `None` in the first steps, which have none.
    fn rectification(&self, step: i32) -> Option<f64> {
        let most = 2.0 / (1.0 - self.betas[1]) - 1.0;
        let power = self.betas[1].powi(step);
        let length = most - 2.0 * f64::from(step) * power / (1.0 - power);
        let ratio = (length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length);
        (length > 5.0).then(|| ratio.sqrt())
    }

    /// `√(1 − β₂ᵗ)/(√v + eps)`.
    fn adaptive_rate(&self, row: &Row<'_, State>) -> Result<Array> {
        let root = context::within("sqrt", || row.state.exp_avg_sq.unary(UnaryOp::Sqrt))?;
        shift(&root, self.eps)?;
        let inverse = context::within("reciprocal", || root.unary(UnaryOp::Reciprocal))?;
        let rate = context::within("mul", || inverse.affine((1.0 - self.betas[1].powi(row.step)).sqrt(), 0.0))?;
        drop(inverse);
        Ok(rate)
    }

    fn update_moments(&self, s: &State, grad: &Array) -> Result<()> {
        s.exp_avg.ternary_(TernaryOp::Lerp { weight: 1.0 - self.betas[0] }, grad, grad)?;
        scale(&s.exp_avg_sq, self.betas[1])?;
        s.exp_avg_sq.ternary_(TernaryOp::Addcmul { value: 1.0 - self.betas[1] }, grad, grad)
    }

    /// Subtracts a decoupled weight decay from the parameter. Returns the decay that is added to the gradient.
    fn decay(&self, rows: &[&Row<'_, State>]) -> Result<f64> {
        if !self.decoupled_weight_decay || self.weight_decay == 0.0 {
            return Ok(self.weight_decay);
        }
        rows.iter().try_for_each(|row| scale(row.p, 1.0 - self.lr * self.weight_decay))?;
        Ok(0.0)
    }
}
