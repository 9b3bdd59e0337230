//! T5's encoder or decoder: embeddings, blocks, a norm.

use std::sync::Arc;

use memcore::memory::ScopeId;
use memcore::nn::{Dropout, Embedding, Init, Module, Parameter, Training};
use memcore::{Result, Tensor, context, ops};

use super::super::cache::DynamicCache;
use super::super::inputs::Said;
use super::super::options::{Attention, AttentionMask};
use super::super::rms::{Form, Norm};
use super::super::{layers, mask};
use super::block::{self, Biases, Block, BlockInputs};
use super::config::Config;

pub(super) struct Stack {
    scope: ScopeId,
    embed_tokens: Parameter,
    embed_scope: ScopeId,
    /// True if embeddings require a gradient, whatever the table.
    marks: bool,
    blocks: Vec<Arc<Block>>,
    final_layer_norm: Norm,
    dropout: Dropout,
    attention: Attention,
    /// Set if blocks are computed again for their gradients, while the network trains.
    checkpointed: Option<Training>,
    /// True if masks hide anything.
    padded: bool,
    /// True if keys and values are cached, unless blocks are computed again.
    cached: bool,
}

impl Stack {
    /// Makes a stack with the token table of `shared`.
    pub(crate) fn new(init: &Init, c: &Config, shared: &Embedding, decoder: bool) -> Result<Self> {
        let embed = init.at("embed_tokens");
        let count = if decoder { c.own.decoder_layers } else { c.layers };
        let block = |i: usize| Ok(Arc::new(Block::new(&init.at("block").at(i), c, decoder, i == 0)?));
        Ok(Self {
            scope: init.scope(),
            embed_tokens: embed.shared(&shared.weight)?,
            embed_scope: embed.scope(),
            blocks: (0..count).map(block).collect::<Result<_>>()?,
            final_layer_norm: Norm::new(&init.at("final_layer_norm"), c.width, c.eps, Form::WideRoot)?,
            dropout: Dropout::new(&init.at("dropout"), c.dropout)?,
            attention: c.options.attention,
            marks: c.options.marks_embeds(),
            checkpointed: c.options.checkpoints().then(|| init.training()),
            padded: c.options.attention_mask == AttentionMask::Padded,
            // The decoder has a configuration of its own, which the library's Trainer does not change.
            cached: decoder && c.use_cache,
        })
    }

    /// Returns the last hidden states of tokens `[batch, time]`, and the caches of their own keys and values and of the encoder's. A decoder is given
    /// the encoder's output.
    pub(super) fn forward(
        &self,
        ids: &Tensor,
        attention_mask: Option<&Tensor>,
        encoded: Option<&Tensor>,
    ) -> Result<(Tensor, Vec<Arc<DynamicCache>>)> {
        let _scope = context::scope(self.scope);
        let embeds = {
            let _scope = context::scope(self.embed_scope);
            layers::marked(ops::embedding(ids, self.embed_tokens.tensor(), None)?, self.marks)
        };
        let recomputes = self.checkpointed.as_ref().is_some_and(Training::is_on);
        let cached = self.cached && !recomputes;
        let caches = cached.then(<[Arc<DynamicCache>; 2]>::default);
        let request = |attention_mask| mask::Request {
            attention: self.attention,
            embeds: &embeds,
            said: Said { attention_mask, positions: None },
            padded: self.padded,
            cached,
            positions: false,
            triangle: None,
        };
        // The decoder's own tokens have no mask of the batch's; the encoder's tokens have the encoder's.
        let causal = if encoded.is_some() { request(None).causal()? } else { None };
        let of_batch = request(attention_mask).bidirectional()?;
        let (mask, cross_mask) = if encoded.is_some() { (causal, of_batch) } else { (of_batch, None) };
        let given = BlockInputs { mask, encoded: encoded.cloned(), cross_mask, caches: caches.clone() };
        let mut hidden = self.dropout.forward(&embeds)?;
        let mut biases = Biases::default();
        for block in &self.blocks {
            (hidden, biases) = block::through(block, hidden, biases, &given, recomputes)?;
        }
        hidden = self.final_layer_norm.forward(&hidden)?;
        hidden = self.dropout.forward(&hidden)?;
        // In the order of the library's variables.
        drop(given);
        drop(embeds);
        drop(biases);
        Ok((hidden, caches.map_or_else(Vec::new, Vec::from)))
    }
}
