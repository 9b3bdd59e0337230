//! T5's block: self-attention, in a decoder attention to the encoder's tokens, a feed-forward layer.

use std::sync::Arc;

use memcore::autograd::checkpoint_all;
use memcore::memory::ScopeId;
use memcore::nn::{Dropout, Init, Linear, Module};
use memcore::{Result, Tensor, context, ops};

use super::super::attention::Weights;
use super::super::cache::DynamicCache;
use super::super::layers::Activation;
use super::super::rms::{Form, Norm};
use super::attention::{Attended, Attention, Keys};
use super::config::Config;

/// Inputs of every block of one forward pass besides hidden states and biases.
#[derive(Clone)]
pub(super) struct BlockInputs {
    /// Mask of a block's own tokens.
    pub(super) mask: Option<Tensor>,
    /// The encoder's last hidden states, in a decoder.
    pub(super) encoded: Option<Tensor>,
    /// Mask of the encoder's tokens, in a decoder.
    pub(super) cross_mask: Option<Tensor>,
    /// Caches of keys and values: of a block's own tokens, and of the encoder's.
    pub(super) caches: Option<[Arc<DynamicCache>; 2]>,
}

/// Biases that the first block makes for all: for its own tokens, for the encoder's.
#[derive(Clone, Default)]
pub(super) struct Biases {
    own: Option<Tensor>,
    cross: Option<Tensor>,
}

/// Returns the hidden states after a block, and the biases. If `checkpointed`, the block is recomputed for its gradient.
pub(super) fn through(
    block: &Arc<Block>,
    hidden: Tensor,
    biases: Biases,
    inputs: &BlockInputs,
    checkpointed: bool,
) -> Result<(Tensor, Biases)> {
    if !checkpointed {
        return block.forward(&hidden, &biases, inputs);
    }
    // Positional arguments of a block are kept in their order.
    let BlockInputs { mask, encoded, cross_mask, caches } = inputs.clone();
    let others = [mask, biases.own, encoded, cross_mask, biases.cross];
    let there = others.each_ref().map(Option::is_some);
    let inputs: Vec<Tensor> = std::iter::once(hidden).chain(others.into_iter().flatten()).collect();
    let block = block.clone();
    let body = move |inputs: &[Tensor]| {
        let mut others = inputs[1..].iter().cloned();
        let [mask, own, encoded, cross_mask, cross] = there.map(|there| if there { others.next() } else { None });
        let given = BlockInputs { mask, encoded, cross_mask, caches: caches.clone() };
        let (hidden, biases) = block.forward(&inputs[0], &Biases { own, cross }, &given)?;
        Ok([Some(hidden), biases.own, biases.cross].into_iter().flatten().collect())
    };
    let mut results = checkpoint_all(&inputs, body)?.into_iter();
    let hidden = results.next().ok_or_else(|| memcore::Error::invalid("t5", "a block gave nothing"))?;
    Ok((hidden, Biases { own: results.next(), cross: results.next() }))
}

pub(super) struct Block {
    own: Attending,
    cross: Option<Attending>,
    feed: Feed,
}

impl Block {
    /// Makes a block; if `first`, with the table of relative positions.
    pub(crate) fn new(init: &Init, c: &Config, decoder: bool, first: bool) -> Result<Self> {
        let layer = |i: usize| init.at("layer").at(i);
        let own = Attention::own(&layer(0).at("SelfAttention"), c, decoder, first)?;
        let own = Attending::new(&layer(0), own, c, false)?;
        let cross = || Attending::new(&layer(1), Attention::cross(&layer(1).at("EncDecAttention"), c)?, c, true);
        let cross = decoder.then(cross).transpose()?;
        Ok(Self { own, feed: Feed::new(&layer(if decoder { 2 } else { 1 }), c)?, cross })
    }

    fn forward(&self, hidden: &Tensor, biases: &Biases, inputs: &BlockInputs) -> Result<(Tensor, Biases)> {
        let caches = inputs.caches.as_ref();
        let keys = Keys { of: None, cache: caches.map(|caches| &*caches[0]) };
        let (mut hidden, own, mut weights) =
            self.own.forward(hidden, biases.own.clone(), inputs.mask.as_ref(), keys)?;
        let mut bias = None;
        if let Some(cross) = &self.cross {
            let keys = Keys { of: inputs.encoded.as_ref(), cache: caches.map(|caches| &*caches[1]) };
            let (next, made, next_weights) =
                cross.forward(&hidden, biases.cross.clone(), inputs.cross_mask.as_ref(), keys)?;
            hidden = next;
            bias = Some(made);
            weights = next_weights;
        }
        hidden = self.feed.forward(&hidden)?;
        // The library's name for the unused result lives until the block ends.
        drop(weights);
        Ok((hidden, Biases { own: Some(own), cross: bias }))
    }
}

/// Attention with its norm and its residual.
struct Attending {
    scope: ScopeId,
    /// True for attention to the encoder's tokens.
    cross: bool,
    attention: Attention,
    norm: Norm,
    dropout: Dropout,
}

impl Attending {
    fn new(init: &Init, attention: Attention, c: &Config, cross: bool) -> Result<Self> {
        Ok(Self {
            scope: init.scope(),
            cross,
            attention,
            norm: Norm::new(&init.at("layer_norm"), c.width, c.eps, Form::WideRoot)?,
            dropout: Dropout::new(&init.at("dropout"), c.dropout)?,
        })
    }

    fn forward(
        &self,
        hidden: &Tensor,
        bias: Option<Tensor>,
        mask: Option<&Tensor>,
        keys: Keys<'_>,
    ) -> Result<(Tensor, Tensor, Weights)> {
        let _scope = context::scope(self.scope);
        let normed = self.norm.forward(hidden)?;
        let Attended { output, bias, weights } = self.attention.forward(&normed, bias, mask, keys)?;
        let sum = {
            let dropped = self.dropout.forward(&output)?;
            ops::add(hidden, &dropped)?
        };
        // Attention to the encoder binds its result to another name, and frees the operands at the end.
        if self.cross {
            drop(normed);
            drop(output);
        } else {
            drop(output);
            drop(normed);
        }
        Ok((sum, bias, weights))
    }
}

/// `T5LayerFF`, plain or gated.
struct Feed {
    scope: ScopeId,
    inner_scope: ScopeId,
    activation: Activation,
    wi: Linear,
    /// Layer whose output is multiplied with the activation, if it gates.
    linear: Option<Linear>,
    wo: Linear,
    inner_dropout: Dropout,
    norm: Norm,
    dropout: Dropout,
}

impl Feed {
    fn new(init: &Init, c: &Config) -> Result<Self> {
        let inner = init.at("DenseReluDense");
        let (narrow, wide) = ((c.width as f64).powf(-0.5), (c.inner as f64).powf(-0.5));
        let up = |name: &str| Linear::with_fill(&inner.at(name), c.width, c.inner, false, c.normal(narrow));
        Ok(Self {
            scope: init.scope(),
            inner_scope: inner.scope(),
            activation: c.activation,
            wi: up(if c.own.gated { "wi_0" } else { "wi" })?,
            linear: c.own.gated.then(|| up("wi_1")).transpose()?,
            wo: Linear::with_fill(&inner.at("wo"), c.inner, c.width, false, c.normal(wide))?,
            inner_dropout: Dropout::new(&inner.at("dropout"), c.dropout)?,
            norm: Norm::new(&init.at("layer_norm"), c.width, c.eps, Form::WideRoot)?,
            dropout: Dropout::new(&init.at("dropout"), c.dropout)?,
        })
    }

    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut forwarded = self.norm.forward(input)?;
        forwarded = self.inner(&forwarded)?;
        let dropped = self.dropout.forward(&forwarded)?;
        let sum = ops::add(input, &dropped)?;
        drop(dropped);
        drop(forwarded);
        Ok(sum)
    }

    /// Computes the inner features. The second product widens autocast's 16-bit operand to the weight's type first, and narrows it again.
    fn inner(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.inner_scope);
        let mut hidden = self.activation.apply(&self.wi.forward(x)?)?;
        // The factors live until the end.
        let mut factors = None;
        if let Some(linear) = &self.linear {
            let linear = linear.forward(x)?;
            let product = ops::mul(&hidden, &linear)?;
            factors = Some((std::mem::replace(&mut hidden, product), linear));
        }
        hidden = self.inner_dropout.forward(&hidden)?;
        hidden = ops::cast(&hidden, self.wo.weight.tensor().dtype())?;
        hidden = self.wo.forward(&hidden)?;
        drop(factors);
        Ok(hidden)
    }
}
