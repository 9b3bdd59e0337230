//! Multi-head self-attention.

use super::init::Init;
use super::linear::Linear;
use super::parameter::Parameter;
use super::slots::Training;
use super::{Module, parameters_of};
use crate::autograd::Tensor;
use crate::context;
use crate::error::{Error, Result};
use crate::memory::ScopeId;
use crate::ops;

/// Self-attention over `[batch, time, width]` with one product for queries, keys and values.
pub struct MultiHeadAttention {
    scope: ScopeId,
    heads: usize,
    options: AttentionOptions,
    training: Training,
    /// `[3·width, width]`
    pub qkv: Linear,
    /// `[width, width]`
    pub proj: Linear,
}

/// Variables of attention that is written out. They are dropped in the order of their first assignment, as in a Python
/// function.
#[doc(hidden)]
pub struct Variables {
    _q: Tensor,
    _k: Tensor,
    _v: Tensor,
    // The program assigns the result of its fused form first.
    _y: Tensor,
    _weights: Option<Tensor>,
}

/// Settings of attention.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionOptions {
    /// Positions see only themselves and earlier ones.
    pub causal: bool,
    /// Use the fused kernel, which keeps no matrix of weights, instead of the written-out form.
    pub fused: bool,
    /// Probability of dropping an attention weight; only in the written-out form.
    pub dropout: f64,
}

impl MultiHeadAttention {
    /// Creates the layer; `heads` must divide `width`.
    ///
    /// # Errors
    /// [`Error::Shape`] if it does not; errors of the device.
    pub fn new(init: &Init, width: usize, heads: usize, options: AttentionOptions) -> Result<Self> {
        if heads == 0 || !width.is_multiple_of(heads) {
            return Err(Error::shape("attention", format!("{heads} heads do not divide a width of {width}")));
        }
        let qkv = Linear::new(&init.at("qkv"), width, 3 * width, true)?;
        let proj = Linear::new(&init.at("proj"), width, width, true)?;
        Ok(Self { scope: init.scope(), heads, options, training: init.training(), qkv, proj })
    }

    /// Weights and biases; those of queries, keys and values first.
    ///
    /// # Errors
    /// Never, but [`Module::parameters`] has a result too.
    pub fn parameters(&self) -> Result<Vec<Parameter>> {
        parameters_of([&self.qkv as &dyn Module, &self.proj])
    }

    /// Returns the result for `x`. `mask` hides positions in the written-out form.
    ///
    /// # Errors
    /// [`Error::Shape`] if `x` is not `[batch, time, width]`; errors of the device.
    pub fn attend(&self, x: Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        Ok(self.attend_inline(x, mask)?.0)
    }

    /// Like [`MultiHeadAttention::attend`], but also returns the variables with queries, keys, values and weights. In a
    /// program that writes attention out inside a larger function, they live until that function returns.
    #[doc(hidden)]
    pub fn attend_inline(&self, x: Tensor, mask: Option<&Tensor>) -> Result<(Tensor, Variables)> {
        let _scope = context::scope(self.scope);
        let [batch, time, width] = *x.dims() else {
            return Err(Error::shape("attention", format!("{:?} is not [batch, time, width]", x.dims())));
        };
        let qkv = self.qkv.forward(&x)?;
        drop(x);
        let mut parts = ops::split(&qkv, width, 2)?.into_iter().map(|part| {
            let part = ops::view(&part, &[batch, time, self.heads, width / self.heads])?;
            ops::transpose(&part, 1, 2)
        });
        let mut next = || parts.next().ok_or_else(|| Error::shape("attention", "a missing part of qkv"))?;
        let (q, k, v) = (next()?, next()?, next()?);
        drop(parts);
        let (y, weights) = if self.options.fused {
            let options = ops::AttentionOptions { causal: self.options.causal, ..ops::AttentionOptions::default() };
            (ops::scaled_dot_product_attention(&q, &k, &v, None, options)?, None)
        } else {
            let (dropout, training) = (self.options.dropout, self.training.is_on());
            let (y, weights) = ops::attention_with_weights(&q, &k, &v, mask, dropout, training)?;
            (y, Some(weights))
        };
        let merged = ops::contiguous(&ops::transpose(&y, 1, 2)?)?;
        drop(y);
        let y = ops::view(&merged, &[batch, time, width])?;
        drop(merged);
        let out = self.proj.forward(&y)?;
        Ok((out, Variables { _q: q, _k: k, _v: v, _y: y, _weights: weights }))
    }
}
