//! A network of the `transformers` library: embeddings, blocks, output layers, and its loss, which is computed inside.

use std::sync::Arc;

use lab_models::Places;
use memcore::memory::ScopeId;
use memcore::nn::{Embedding, Init, LayerNorm, Linear, Module, Parameter, Sequential};
use memcore::{Error, Result, Tensor, context, ops};

use super::blocks::{self, Block, BlockInputs};
use super::cache::{DynamicCache, LayerCache};
use super::config::Common;
use super::ending::{Ended, Ending};
use super::head_config::HeadConfig;
use super::inputs::{Inputs, Said};
use super::layers::{self, Activation};
use super::stage::Stage;
use super::{fused_loss, recomputed};

/// How the library's `Trainer` counts labels and passes `num_items_in_batch`.
#[derive(Clone, Copy)]
pub(super) struct Counting {
    /// True if there are `labels` to count. Without them, a loss is divided by the number of micro-batches.
    pub(super) counts: bool,
    /// True if labels are shifted by one inside the loss, and counted shifted.
    pub(super) shifted: bool,
    /// True if the loss is divided by the count, which it receives in any case.
    pub(super) passed: bool,
}

/// Result of a call. What a script holds of it decides how long it lives.
pub struct Output {
    /// The loss, a scalar.
    pub loss: Tensor,
    /// Scores before the softmax; for a base model its hidden states.
    pub logits: Vec<Tensor>,
    /// Keys and values of each layer, the last one first, with `use_cache`.
    pub past_key_values: Vec<LayerCache>,
    /// Output of the encoder for the decoder after it.
    pub encoder_last_hidden_state: Option<Tensor>,
}

/// A network without its output layer and loss.
pub(super) trait Body: Send + Sync + 'static {
    fn forward(&self, inputs: &Inputs) -> Result<Hidden>;

    /// Applies the output layer: scores of the last hidden states.
    fn scores(&self, hidden: &Tensor) -> Result<Scores>;

    /// Weight of the output layer.
    fn output_weight(&self) -> Result<Tensor> {
        Err(Error::invalid("loss", "this network has no output layer of one weight"))
    }
}

/// Result of a head.
pub(super) struct Scores {
    pub(super) scores: Tensor,
    /// Input of its last layer: a local variable of the library's function, which lives until the function returns.
    pub(super) input: Tensor,
}

impl Scores {
    /// Applies layers. In the library their intermediate results share one name, so each is freed when the next one exists; the last layer's has its
    /// own.
    pub(super) fn run(layers: &Sequential, hidden: &Tensor) -> Result<Self> {
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

/// Result of a body.
pub(super) struct Hidden {
    /// The last hidden states.
    pub(super) last: Tensor,
    /// Result of a pooler, which the head reads instead.
    pub(super) pooled: Option<Tensor>,
    /// Caches, in the order in which they are freed.
    pub(super) caches: Vec<Arc<DynamicCache>>,
    /// Last hidden states of the encoder, if the network has one besides the decoder.
    pub(super) encoder: Option<Tensor>,
    /// Variables of the library's function, which live until the loss exists.
    pub(super) variables: Variables,
}

/// Embeddings, which come before the blocks.
pub(super) trait InputEmbeddings: Send + Sync + 'static {
    /// Computes the embeddings; `stage` makes the inputs of the blocks, if some lie on the same device.
    fn forward(&self, input: &Tensor, said: Said<'_>, stage: Option<&Stage>) -> Result<EmbeddingOutput>;
}

/// Output of the embeddings, and the inputs that all blocks share.
pub(super) struct EmbeddingOutput {
    /// The hidden states.
    pub(super) hidden: Tensor,
    /// Further inputs of the blocks.
    pub(super) context: BlockInputs,
    /// Local variables of the library's function, in the order of their assignment: they live until it returns, after the last norm.
    pub(super) variables: Variables,
}

impl EmbeddingOutput {
    /// Makes it of hidden states that a variable of the library's function holds.
    pub(super) fn held(hidden: Tensor, context: BlockInputs) -> Self {
        Self { hidden: hidden.clone(), context, variables: Variables(vec![hidden]) }
    }
}

/// Tensors that are freed from first to last.
#[derive(Default)]
pub(super) struct Variables(#[expect(dead_code, reason = "it holds them, no more")] pub(super) Vec<Tensor>);

/// Layers after the blocks.
pub(super) trait OutputHead: Send + Sync + 'static {
    /// Applies the body's last norm.
    fn norm(&self, hidden: Tensor) -> Result<Tensor>;

    /// Applies the body's pooler, if it has one.
    fn pooled(&self, _: &Tensor) -> Result<Option<Tensor>> {
        Ok(None)
    }

    fn scores(&self, hidden: &Tensor) -> Result<Scores>;

    /// The layers that compute the scores; `None` if they are not a chain.
    fn layers(&self) -> Option<&Sequential> {
        None
    }
}

/// The usual end: a norm, a pooler if there is one, and layers that compute the scores.
pub(super) struct NormedHead<N> {
    pub(super) norm: N,
    pub(super) pooler: Option<Sequential>,
    pub(super) scores: Sequential,
}

impl<N: Module + 'static> NormedHead<N> {
    /// Makes a decoder's end, at `init`: the scores of tokens, or another head; `classifier` is the name of the layer that classifies tokens.
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
        Scores::run(&self.scores, hidden)
    }

    fn layers(&self) -> Option<&Sequential> {
        Some(&self.scores)
    }
}

/// End of an encoder that predicts masked tokens: a transform, a norm, and the scores of all tokens.
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

/// Parts of a network, each on its device.
pub(super) struct Parts {
    pub(super) embeddings: Box<dyn InputEmbeddings>,
    pub(super) blocks: Vec<Arc<dyn Block>>,
    pub(super) output: Box<dyn OutputHead>,
    /// One stage for each device that has blocks, in order.
    pub(super) stages: Vec<Stage>,
    /// Path of the module around everything except the output layer.
    pub(super) body: &'static str,
}

impl Parts {
    /// Makes a stage for each device that has some of `layers` blocks, through the place of the first block there.
    pub(super) fn stages(at: &Places<'_>, layers: usize, stage: impl Fn(&Init) -> Result<Stage>) -> Result<Vec<Stage>> {
        let mut first: Vec<Init> = (1..=layers).map(at).collect();
        first.dedup_by(|next, last| last.device().is_same(next.device()));
        first.iter().map(|init| Ok(stage(init)?.of_network(init.training()))).collect()
    }
}

/// A network on one device, with its loss.
pub struct Network {
    body: Arc<dyn Body>,
    ending: Ending,
}

impl Network {
    /// Makes it of a body.
    pub(super) fn new(body: Box<dyn Body>, ending: Ending) -> Self {
        Self { body: body.into(), ending }
    }

    /// True if its result holds the loss alone.
    pub(super) fn gives_only_loss(&self) -> bool {
        matches!(self.ending, Ending::Recomputed { .. } | Ending::Fused { whole: false })
    }

    /// Runs one forward pass.
    pub fn forward(&self, inputs: &Inputs) -> Result<Output> {
        if self.gives_only_loss() {
            let last = self.body.forward(inputs)?.last;
            let loss = self.loss_of_hidden(last, inputs.label(0)?)?;
            return Ok(Output {
                loss,
                logits: Vec::new(),
                past_key_values: Vec::new(),
                encoder_last_hidden_state: None,
            });
        }
        let Hidden { last, pooled, caches, encoder, variables } = self.body.forward(inputs)?;
        if matches!(self.ending, Ending::Fused { .. }) {
            let loss = self.loss_of_hidden(last, inputs.label(0)?)?;
            let past_key_values = caches.iter().flat_map(|cache| cache.take()).collect();
            return Ok(Output { loss, logits: Vec::new(), past_key_values, encoder_last_hidden_state: encoder });
        }
        let of_last = self.ending.last_tokens(&last, inputs)?;
        let (seen, inputs) = of_last.as_ref().map_or((&last, inputs), |(seen, inputs)| (seen, inputs));
        let Scores { scores, input } = self.body.scores(pooled.as_ref().unwrap_or(seen))?;
        let Ended { loss, outputs, holds_cache, variables: of_head } = self.ending.finish(&last, scores, inputs)?;
        let past_key_values = caches.iter().flat_map(|cache| cache.take()).filter(|_| holds_cache).collect();
        drop(of_last);
        drop(last);
        drop(pooled);
        drop(variables);
        drop(input);
        drop(of_head);
        Ok(Output { loss, logits: outputs, past_key_values, encoder_last_hidden_state: encoder })
    }
}

impl Network {
    /// The loss of last hidden states, of which no scores are given.
    fn loss_of_hidden(&self, last: Tensor, labels: &Tensor) -> Result<Tensor> {
        let Ending::Recomputed { classes, chunks } = self.ending else {
            return fused_loss::loss(&last, &self.body.output_weight()?, labels);
        };
        let body = self.body.clone();
        let scores = move |hidden: &Tensor| body.scores(hidden).map(|output| output.scores);
        recomputed::loss(scores, last, labels, classes, chunks)
    }
}

/// Body of a network that is a chain of blocks.
pub(super) struct Chain {
    scope: ScopeId,
    embeddings: Box<dyn InputEmbeddings>,
    blocks: Vec<Arc<dyn Block>>,
    output: Box<dyn OutputHead>,
    stage: Stage,
}

impl Chain {
    /// Makes it of parts that were made through `init`. `None` for a network without blocks.
    pub(crate) fn new(parts: Parts, init: &Init) -> Option<Self> {
        let Parts { embeddings, blocks, output, stages, body } = parts;
        let stage = stages.into_iter().next()?;
        Some(Self { scope: init.at(body).scope(), embeddings, blocks, output, stage })
    }
}

impl Body for Chain {
    fn forward(&self, inputs: &Inputs) -> Result<Hidden> {
        let _scope = context::scope(self.scope);
        let embedded = self.embeddings.forward(&inputs.input, inputs.said(), Some(&self.stage))?;
        let EmbeddingOutput { mut hidden, mut context, variables } = embedded;
        for (number, block) in self.blocks.iter().enumerate() {
            hidden = blocks::through(block, hidden, &context, self.stage.recomputes_block(number))?;
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

    fn output_weight(&self) -> Result<Tensor> {
        let last = self.output.layers().and_then(|layers| layers.modules().last());
        match last.map(|layer| layer.parameters()).transpose()?.as_deref() {
            Some([weight]) => Ok(weight.tensor().clone()),
            _ => Err(Error::invalid("loss", "Liger's has an output layer of one weight, which this network has not")),
        }
    }
}
