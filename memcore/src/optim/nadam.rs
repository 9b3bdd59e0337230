//! NAdam: Adam with Nesterov momentum.

use super::Implementation;
use super::locals::{List, Locals};
use super::moments::{Moments, decay};
use super::rule::{ByRule, Rebound, Row, Rule, gradient, gradients, scale, shift};
use crate::array::Array;
use crate::backend::kernel::{TernaryOp, UnaryOp};
use crate::context;
use crate::error::Result;

/// `m = β₁·m + (1 − β₁)·g`, `v = β₂·v + (1 − β₂)·g²`, `μₜ = β₁·(1 − 0.96^(t·momentum_decay)/2)`, and
/// `p −= lr·((1 − μₜ)/(1 − Πμ)·g + μₜ₊₁/(1 − Πμ·μₜ₊₁)·m)/(√(v/(1 − β₂ᵗ)) + eps)`.
pub type NAdam = ByRule<NAdamOptions>;

/// Settings of [`NAdam`], with PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NAdamOptions {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the two averages.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Decay of the momentum with the number of steps.
    pub momentum_decay: f64,
    /// The weight decay is subtracted from the parameter instead of added to the gradient.
    pub decoupled_weight_decay: bool,
    /// Ascends instead of descending.
    pub maximize: bool,
    /// Loop or foreach; PyTorch has no fused one.
    pub implementation: Implementation,
}

impl Default for NAdamOptions {
    fn default() -> Self {
        Self {
            lr: 2e-3,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.0,
            momentum_decay: 4e-3,
            decoupled_weight_decay: false,
            maximize: false,
            implementation: Implementation::default(),
        }
    }
}

/// The state of a parameter.
pub struct State {
    moments: Moments,
    /// The product of the momenta of all steps.
    mu_product: f64,
}

impl Rule for NAdamOptions {
    type State = State;

    fn names(&self) -> [&'static str; 2] {
        ["NAdam.step", "zero_grad:NAdam.zero_grad"]
    }

    fn implementation(&self) -> Implementation {
        self.implementation
    }

    fn first_state(&self, p: &Array) -> Result<State> {
        Ok(State { moments: Moments::zeros(p)?, mu_product: 1.0 })
    }

    fn tensors(&self, state: &State) -> Vec<(&'static str, Array)> {
        state.moments.tensors()
    }

    fn advance(&self, state: &mut State, step: i32) {
        // PyTorch keeps the product in a tensor of float32, whatever the parameters are.
        state.mu_product = f64::from(state.mu_product as f32 * self.mu(step) as f32);
    }

    fn update(&self, row: &Row<'_, State>, locals: &mut Locals<Array>) -> Result<()> {
        let decay = decay([row], self.decoupled_weight_decay, (self.lr, self.weight_decay))?;
        let grad = gradient(row, (self.maximize, decay), Rebound::Later, locals)?;
        row.state.moments.update(self.betas, &grad)?;
        let correction = 1.0 - self.betas[1].powi(row.step);
        let corrected = context::within("div", || row.state.moments.exp_avg_sq.affine(1.0 / correction, 0.0))?;
        let denom = context::within("sqrt", || corrected.unary(UnaryOp::Sqrt))?;
        drop(corrected);
        let denom = locals.set("denom", denom);
        shift(&denom, self.eps)?;
        self.apply(row, &grad, &denom)
    }

    fn update_all(&self, rows: &[Row<'_, State>], locals: &mut Locals<List>) -> Result<()> {
        let decay = decay(rows, self.decoupled_weight_decay, (self.lr, self.weight_decay))?;
        let grads = gradients(rows, (self.maximize, decay), locals)?;
        rows.iter().zip(&*grads).try_for_each(|(row, grad)| row.state.moments.update(self.betas, grad))?;
        let averages: List = rows.iter().map(|row| row.state.moments.exp_avg_sq.clone()).collect();
        let roots = locals.set("exp_avg_sq_sqrt", averages.made("_foreach_sqrt", |v| v.unary(UnaryOp::Sqrt))?);
        for (row, root) in rows.iter().zip(&*roots) {
            scale(root, 1.0 / (1.0 - self.betas[1].powi(row.step)).sqrt())?;
            shift(root, self.eps)?;
        }
        rows.iter().zip(&*grads).zip(&*roots).try_for_each(|((row, grad), root)| self.apply(row, grad, root))
    }
}

impl NAdamOptions {
    /// The momentum of a step.
    fn mu(&self, step: i32) -> f64 {
        self.betas[0] * (1.0 - 0.5 * 0.96_f64.powf(f64::from(step) * self.momentum_decay))
    }

    fn apply(&self, row: &Row<'_, State>, grad: &Array, denom: &Array) -> Result<()> {
        let (mu, next, product) = (self.mu(row.step), self.mu(row.step + 1), row.state.mu_product);
        let value = -self.lr * (1.0 - mu) / (1.0 - product);
        row.p.ternary_(TernaryOp::Addcdiv { value }, grad, denom)?;
        let value = -self.lr * next / (1.0 - product * next);
        row.p.ternary_(TernaryOp::Addcdiv { value }, &row.state.moments.exp_avg, denom)
    }
}
