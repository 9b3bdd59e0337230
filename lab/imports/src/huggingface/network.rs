//! A network of the `transformers` library: what comes before its blocks, the blocks, what comes after, and its loss, which is computed inside.

use std::sync::Arc;

use lab_models::Places;
use memcore::memory::ScopeId;
use memcore::nn::{Embedding, Init, LayerNorm, Linear, Module, Parameter, Sequential};
use memcore::{Result, Tensor, context, ops};

use super::blocks::{self, Block, BlockInputs};
use super::cache::{DynamicCache, LayerCache};
use super::config::Common;
use super::ending::{Ended, Ending};
use super::head_config::HeadConfig;
use super::inputs::Inputs;
use super::layers::{self, Activation};
use super::stage::Stage;

/// What the library's `Trainer` counts and passes as `num_items_in_batch` for a network.
#[derive(Clone, Copy)]
pub(super) struct Counting {
    /// Whether there are `labels` to count. Where there are none, a loss is divided by the number of micro-batches.
    pub(super) counts: bool,
    /// Whether labels are shifted by one inside the loss, and counted so.
    pub(super) shifted: bool,
    /// Whether the loss is divided by the count, which it is given in any case.
    pub(super) passed: bool,
}

/// What a call returns. What a script holds of it decides how long it lives.
pub struct Output {
    /// The loss, a scalar.
    pub loss: Tensor,
    /// Scores before the softmax; of a base model its hidden states.
    pub logits: Vec<Tensor>,
    /// Keys and values of each layer, the last one first, with `use_cache`.
    pub past_key_values: Vec<LayerCache>,
    /// What an encoder gave to the decoder behind it.
    pub encoder_last_hidden_state: Option<Tensor>,
}

/// All of a network but its output layer and loss.
pub(super) trait Body: Send + Sync + 'static {
    fn forward(&self, inputs: &Inputs) -> Result<Hidden>;

    /// The output layer: scores of the last hidden states.
    fn scores(&self, hidden: &Tensor) -> Result<Scores>;
}

/// What a head gives.
pub(super) struct Scores {
    pub(super) scores: Tensor,
    /// What its last layer was given: a local variable of the library's function, which lives until that returns.
    pub(super) input: Tensor,
}

impl Scores {
    /// Of layers, whose results on the way have the same name in the library, so that each goes with the next one; the last layer's has its own.
    pub(super) fn of(layers: &Sequential, hidden: &Tensor) -> Result<Self> {
        let mut input = hidden.clone();
        let Some((last, before)) = layers.modules().split_last() else {
            return Ok(Self { scores: hidden.clone(), input });
        };
        for layer in before {
            input = layer.forward(&input)?;
        }
        Ok(Self { scores: last.forward(&input)?, input })
    }
}

/// What a body returns.
pub(super) struct Hidden {
    /// The last hidden states.
    pub(super) last: Tensor,
    /// What a pooler made of them: the head reads it in their place.
    pub(super) pooled: Option<Tensor>,
    /// What was cached, in the order in which it is freed.
    pub(super) caches: Vec<Arc<DynamicCache>>,
    /// The last hidden states of the encoder, where there is one beside the decoder.
    pub(super) encoder: Option<Tensor>,
    /// What the library's function holds until the loss is there.
    pub(super) variables: Variables,
}

/// What comes before the blocks: embeddings.
pub(super) trait InputEmbeddings: Send + Sync + 'static {
    /// `stage` makes what the blocks are given, where some lie on the same device.
    fn forward(
        &self,
        input: &Tensor,
        attention_mask: Option<&Tensor>,
        stage: Option<&Stage>,
    ) -> Result<EmbeddingOutput>;
}

/// What is there when the first block begins.
pub(super) struct EmbeddingOutput {
    /// The hidden states.
    pub(super) hidden: Tensor,
    /// What the blocks are given besides.
    pub(super) context: BlockInputs,
    /// Local variables of the library's function, in the order of their assignment: they live until it returns, behind the last norm.
    pub(super) variables: Variables,
}

impl EmbeddingOutput {
    /// Of hidden states that a variable of the library's function holds.
    pub(super) fn held(hidden: Tensor, context: BlockInputs) -> Self {
        Self { hidden: hidden.clone(), context, variables: Variables(vec![hidden]) }
    }
}

/// Tensors that are freed from the first to the last.
#[derive(Default)]
pub(super) struct Variables(#[expect(dead_code, reason = "it holds them, no more")] pub(super) Vec<Tensor>);

/// What comes after the blocks.
pub(super) trait OutputHead: Send + Sync + 'static {
    /// What is still the body's: the last norm.
    fn norm(&self, hidden: Tensor) -> Result<Tensor>;

    /// And what a pooler makes of that, where the body has one.
    fn pooled(&self, _: &Tensor) -> Result<Option<Tensor>> {
        Ok(None)
    }

    fn scores(&self, hidden: &Tensor) -> Result<Scores>;
}

/// The usual end: a norm, where there is one a pooler, and layers that give the scores.
pub(super) struct NormedHead<N> {
    pub(super) norm: N,
    pub(super) pooler: Option<Sequential>,
    pub(super) scores: Sequential,
}

impl<N: Module + 'static> NormedHead<N> {
    /// A decoder's end, at `init`: the scores of tokens, or what the head makes of them; `classifier` is the name of the layer that classifies tokens.
    pub(super) fn of_decoder(
        init: &Init,
        common: &Common,
        head: &HeadConfig,
        classifier: &str,
        (norm, table): (N, &Embedding),
    ) -> Result<Box<dyn OutputHead>> {
        let sizes = [common.width, common.vocabulary];
        let lm_head = |init: &Init| layers::lm_head(init, table, common.tied, sizes, &common.options);
        let scores = head.on_decoder(init, common.width, classifier, lm_head)?;
        Ok(Box::new(Self { norm, pooler: None, scores }))
    }
}

impl<N: Module + 'static> OutputHead for NormedHead<N> {
    fn norm(&self, hidden: Tensor) -> Result<Tensor> {
        self.norm.forward(&hidden)
    }

    fn pooled(&self, hidden: &Tensor) -> Result<Option<Tensor>> {
        self.pooler.as_ref().map(|pooler| pooler.forward(hidden)).transpose()
    }

    fn scores(&self, hidden: &Tensor) -> Result<Scores> {
        Scores::of(&self.scores, hidden)
    }
}

/// The end of an encoder that guesses hidden tokens: a transform, a norm, and the scores of all tokens.
pub(super) struct MaskedHead {
    pub(super) scope: ScopeId,
    pub(super) activation: Activation,
    pub(super) dense: Linear,
    pub(super) norm: LayerNorm,
    pub(super) decoder: Parameter,
    pub(super) bias: Parameter,
}

impl OutputHead for MaskedHead {
    fn norm(&self, hidden: Tensor) -> Result<Tensor> {
        Ok(hidden)
    }

    fn scores(&self, x: &Tensor) -> Result<Scores> {
        let _scope = context::scope(self.scope);
        let mut hidden = self.dense.forward(x)?;
        hidden = self.activation.apply(&hidden)?;
        hidden = self.norm.forward(&hidden)?;
        let scores = ops::linear(&hidden, self.decoder.tensor(), Some(self.bias.tensor()))?;
        Ok(Scores { scores, input: x.clone() })
    }
}

/// A network's parts, each on its device.
pub(super) struct Parts {
    pub(super) embeddings: Box<dyn InputEmbeddings>,
    pub(super) blocks: Vec<Arc<dyn Block>>,
    pub(super) output: Box<dyn OutputHead>,
    /// One for each device that has blocks, in their order.
    pub(super) stages: Vec<Stage>,
    /// The path of the module around all but the output layer.
    pub(super) body: &'static str,
}

impl Parts {
    /// One for each device that has some of `layers` blocks, made through the place of the first one there.
    pub(super) fn stages(at: &Places<'_>, layers: usize, stage: impl Fn(&Init) -> Result<Stage>) -> Result<Vec<Stage>> {
        let mut first: Vec<Init> = (1..=layers).map(at).collect();
        first.dedup_by(|next, last| last.device().is_same(next.device()));
        first.iter().map(stage).collect()
    }
}

/// A network on one device, with its loss.
pub struct Network {
    body: Box<dyn Body>,
    ending: Ending,
}

impl Network {
    /// Of a body that was made.
    pub(super) fn new(body: Box<dyn Body>, ending: Ending) -> Self {
        Self { body, ending }
    }

    /// One forward pass.
    pub fn forward(&self, inputs: &Inputs) -> Result<Output> {
        let Hidden { last, pooled, caches, encoder, variables } = self.body.forward(inputs)?;
        let Scores { scores, input } = self.body.scores(pooled.as_ref().unwrap_or(&last))?;
        let Ended { loss, outputs, holds_cache, variables: of_head } = self.ending.finish(&last, scores, inputs)?;
        let past_key_values = caches.iter().flat_map(|cache| cache.take()).filter(|_| holds_cache).collect();
        drop(last);
        drop(pooled);
        drop(variables);
        drop(input);
        drop(of_head);
        Ok(Output { loss, logits: outputs, past_key_values, encoder_last_hidden_state: encoder })
    }
}

/// The body of a network that is a chain of blocks.
pub(super) struct Chain {
    scope: ScopeId,
    embeddings: Box<dyn InputEmbeddings>,
    blocks: Vec<Arc<dyn Block>>,
    output: Box<dyn OutputHead>,
    stage: Stage,
}

impl Chain {
    /// Of parts that were made through `init`. `None` for a network without blocks.
    pub(crate) fn new(parts: Parts, init: &Init) -> Option<Self> {
        let Parts { embeddings, blocks, output, stages, body } = parts;
        let stage = stages.into_iter().next()?;
        Some(Self { scope: init.at(body).scope(), embeddings, blocks, output, stage })
    }
}

impl Body for Chain {
    fn forward(&self, inputs: &Inputs) -> Result<Hidden> {
        let _scope = context::scope(self.scope);
        let embedded = self.embeddings.forward(&inputs.input, inputs.attention_mask.as_ref(), Some(&self.stage))?;
        let EmbeddingOutput { mut hidden, mut context, variables } = embedded;
        for block in &self.blocks {
            hidden = blocks::through(block, hidden, &context, self.stage.options.checkpoint)?;
        }
        hidden = self.output.norm(hidden)?;
        let pooled = self.output.pooled(&hidden)?;
        let caches = context.cache.iter().cloned().collect();
        drop(context._positions.take());
        drop(variables);
        drop(context);
        Ok(Hidden { last: hidden, pooled, caches, encoder: None, variables: Variables::default() })
    }

    fn scores(&self, hidden: &Tensor) -> Result<Scores> {
        self.output.scores(hidden)
    }
}
