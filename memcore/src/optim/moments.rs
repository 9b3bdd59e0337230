//! The two running averages that NAdam and RAdam keep, and their decoupled weight decay.

use super::rule::{Row, scale, zeros};
use crate::array::Array;
use crate::backend::kernel::TernaryOp;
use crate::context;
use crate::error::Result;

/// Averages of a parameter's gradient and of its square, of the parameter's type and sizes.
pub struct Moments {
    pub(super) exp_avg: Array,
    pub(super) exp_avg_sq: Array,
}

impl Moments {
    /// Allocates both, of zeros.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn zeros(p: &Array) -> Result<Self> {
        let _op = context::op("zeros_like");
        Ok(Self { exp_avg: zeros(p)?, exp_avg_sq: zeros(p)? })
    }

    /// Both under PyTorch's names.
    pub(super) fn tensors(&self) -> Vec<(&'static str, Array)> {
        vec![("exp_avg", self.exp_avg.clone()), ("exp_avg_sq", self.exp_avg_sq.clone())]
    }

    /// `m = β₁·m + (1 − β₁)·g`, `v = β₂·v + (1 − β₂)·g²`.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn update(&self, betas: [f64; 2], grad: &Array) -> Result<()> {
        self.exp_avg.ternary_(TernaryOp::Lerp { weight: 1.0 - betas[0] }, grad, grad)?;
        scale(&self.exp_avg_sq, betas[1])?;
        self.exp_avg_sq.ternary_(TernaryOp::Addcmul { value: 1.0 - betas[1] }, grad, grad)
    }
}

/// Subtracts a weight decay from the parameters, if it is decoupled. Returns the decay that is added to the gradients instead.
///
/// # Errors
/// Those of the device.
pub(super) fn decay<'a, S: 'a>(
    rows: impl IntoIterator<Item = &'a Row<'a, S>>,
    is_decoupled: bool,
    (lr, weight_decay): (f64, f64),
) -> Result<f64> {
    if !is_decoupled || weight_decay == 0.0 {
        return Ok(weight_decay);
    }
    rows.into_iter().try_for_each(|row| scale(row.p, 1.0 - lr * weight_decay))?;
    Ok(0.0)
}
