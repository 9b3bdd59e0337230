//! T5's attention: scores are not scaled, and a bias by position is added.

use memcore::memory::ScopeId;
use memcore::nn::{Dropout, Init, Linear, Module, Training};
use memcore::{Array, Result, Tensor, context};

use super::super::attention::{self, Call, Softmax, Weights};
use super::super::cache::DynamicCache;
use super::super::options;
use super::bias::RelativePositions;
use super::config::Config;

/// Source of keys and values, and their cache.
pub(super) struct Keys<'a> {
    /// Hidden states for keys and values, if not the same as for queries.
    pub(super) of: Option<&'a Tensor>,
    pub(super) cache: Option<&'a DynamicCache>,
}

/// Result of attention.
pub(super) struct Attended {
    /// `[batch, time, width]`
    pub(super) output: Tensor,
    /// Bias that was added to the scores, `[1, heads, time, keys]`, for the next block.
    pub(super) bias: Tensor,
    pub(super) weights: Weights,
}

pub(super) struct Attention {
    scope: ScopeId,
    kind: options::Attention,
    heads: usize,
    head: usize,
    dropout: Dropout,
    causal: bool,
    /// Set if a bias of zeros is trained while the network trains, as in the library's checkpointed blocks.
    trained_zeros: Option<Training>,
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    relative: Option<RelativePositions>,
}

impl Attention {
    /// Makes the self-attention of a block. The first block has the table of relative positions.
    pub(super) fn own(init: &Init, c: &Config, decoder: bool, first: bool) -> Result<Self> {
        let mut attention = Self::cross(init, c)?;
        attention.causal = decoder;
        let relative = || RelativePositions::new(&init.at("relative_attention_bias"), c, !decoder);
        attention.relative = first.then(relative).transpose()?;
        Ok(attention)
    }

    /// Makes the attention to the encoder's tokens.
    pub(super) fn cross(init: &Init, c: &Config) -> Result<Self> {
        let (width, inner) = (c.width, c.heads * c.own.head);
        let spread = |n: usize| c.normal((n as f64).powf(-0.5));
        let into = |name: &str, n: usize| Linear::with_fill(&init.at(name), width, inner, false, spread(n));
        Ok(Self {
            scope: init.scope(),
            kind: c.options.attention,
            heads: c.heads,
            head: c.own.head,
            dropout: Dropout::new(init, c.dropout)?,
            causal: false,
            trained_zeros: c.options.checkpoints().then(|| init.training()),
            q: into("q", width * c.own.head)?,
            k: into("k", width)?,
            v: into("v", width)?,
            o: Linear::with_fill(&init.at("o"), inner, width, false, spread(inner))?,
            relative: None,
        })
    }

    /// Computes attention of `hidden` `[batch, time, width]`; `bias` is given except in the first block.
    pub(super) fn forward(
        &self,
        hidden: &Tensor,
        bias: Option<Tensor>,
        mask: Option<&Tensor>,
        keys: Keys<'_>,
    ) -> Result<Attended> {
        let _scope = context::scope(self.scope);
        let q = attention::heads(&self.q.forward(hidden)?, self.heads)?;
        let from = keys.of.unwrap_or(hidden);
        let k = attention::heads(&self.k.forward(from)?, self.heads)?;
        let v = attention::heads(&self.v.forward(from)?, self.heads)?;
        let (k, v) = match keys.cache {
            Some(cache) => cache.update(k, v, None)?,
            None => (k, v),
        };
        let bias = match bias {
            Some(bias) => bias,
            None => self.bias(&q, &k)?,
        };
        let call = Call {
            bias: Some(&bias),
            mask,
            causal: self.causal,
            scale: 1.0,
            softmax: Softmax::OwnType,
            ..Call::new(self.kind, self.head, &self.dropout)
        };
        let (output, weights) = call.project([q, k, v], &self.o)?;
        Ok(Attended { output, bias, weights })
    }

    /// Returns the bias by relative position if this block has the table, else zeros.
    fn bias(&self, q: &Tensor, k: &Tensor) -> Result<Tensor> {
        let [time, keys] = [q.dims()[2], k.dims()[2]];
        if let Some(relative) = &self.relative {
            return relative.forward([time, keys]);
        }
        let dims = [1, self.heads, time, keys];
        let _op = context::op("zeros");
        let zeros = Array::zeros(q.device(), &dims, q.dtype())?;
        let trained = self.trained_zeros.as_ref().is_some_and(Training::is_on);
        Ok(if trained { Tensor::leaf(zeros) } else { Tensor::from_array(zeros) })
    }
}
