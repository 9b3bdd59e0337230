//! RAdam: Adam with a rectified learning rate.

use super::Implementation;
use super::locals::{List, Locals};
use super::moments::{Moments, decay};
use super::rule::{ByRule, Rebound, Row, Rule, gradient, gradients, scale, shift};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, TernaryOp, UnaryOp};
use crate::context;
use crate::error::Result;

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

impl Rule for RAdamOptions {
    type State = Moments;

    fn names(&self) -> [&'static str; 2] {
        ["RAdam.step", "zero_grad:RAdam.zero_grad"]
    }

    fn implementation(&self) -> Implementation {
        self.implementation
    }

    fn first_state(&self, p: &Array) -> Result<Moments> {
        Moments::zeros(p)
    }

    fn tensors(&self, state: &Moments) -> Vec<(&'static str, Array)> {
        state.tensors()
    }

    fn update(&self, row: &Row<'_, Moments>, locals: &mut Locals<Array>) -> Result<()> {
        let decay = decay([row], self.decoupled_weight_decay, (self.lr, self.weight_decay))?;
        let grad = gradient(row, (self.maximize, decay), Rebound::Later, locals)?;
        row.state.update(self.betas, &grad)?;
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

    fn update_all(&self, rows: &[Row<'_, Moments>], locals: &mut Locals<List>) -> Result<()> {
        let decay = decay(rows, self.decoupled_weight_decay, (self.lr, self.weight_decay))?;
        let grads = gradients(rows, (self.maximize, decay), locals)?;
        rows.iter().zip(&*grads).try_for_each(|(row, grad)| row.state.update(self.betas, grad))?;
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
    fn adaptive_rate(&self, row: &Row<'_, Moments>) -> Result<Array> {
        let root = context::within("sqrt", || row.state.exp_avg_sq.unary(UnaryOp::Sqrt))?;
        shift(&root, self.eps)?;
        let inverse = context::within("reciprocal", || root.unary(UnaryOp::Reciprocal))?;
        let rate = context::within("mul", || inverse.affine((1.0 - self.betas[1].powi(row.step)).sqrt(), 0.0))?;
        drop(inverse);
        Ok(rate)
    }
}
