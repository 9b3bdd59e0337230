//! `vit`: `ViTForImageClassification` and `ViTModel`.

use lab_base::error;
use lab_models::Places;
use memcore::backend::kernel::Conv2dGeometry;
use memcore::memory::ScopeId;
use memcore::nn::{Conv2d, Dropout, Init, LayerNorm, Linear, Module, Parameter, Sequential};
use memcore::{Result, Tensor, context, ops};
use serde_json::Value;

use super::attention::{self, Call, Weights};
use super::blocks::{self, BlockInputs};
use super::config::{self, Common, SIZES};
use super::family::{Family, Kind};
use super::head::Head;
use super::head_config::{self, HeadConfig, SMALL};
use super::inputs::Said;
use super::keys::{self, Keys};
use super::layers::Activation;
use super::network::{EmbeddingOutput, InputEmbeddings, NormedHead, Parts};
use super::options::Options;
use super::stage::Stage;

/// Settings of this family.
#[derive(Clone, Debug)]
pub(super) struct Own {
    channels: usize,
    image: usize,
    patch: usize,
    qkv_bias: bool,
}

impl Own {
    fn patches(&self) -> usize {
        (self.image / self.patch).pow(2)
    }
}

/// Configuration of this family; its vocabulary are its classes.
pub(super) type Config = config::Config<Own>;

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not supported.
    pub(super) fn read(keys: &Keys<'_>, head: &HeadConfig, options: &Options) -> error::Result<Self> {
        let labels = keys.map_len("id2label").unwrap_or(2);
        let own = Own {
            channels: keys.size("num_channels", 3)?,
            image: keys.size("image_size", 224)?,
            patch: keys.size("patch_size", 16)?,
            qkv_bias: keys.flag("qkv_bias", true)?,
        };
        let [_, _, width, layers, heads, inner] = SIZES;
        let names = ["num_labels", "image_size", width, layers, heads, inner];
        let activation = Activation::read(keys, "hidden_act", "gelu")?;
        let mut common = Common::read(keys, options, names, [labels, own.image, 768, 12, 12, 3072], activation)?;
        common.positions = own.patches() + 1;
        common.dropout = keys.probability("hidden_dropout_prob", 0.0)?;
        common.attention_dropout = keys.probability("attention_probs_dropout_prob", 0.0)?;
        common.eps = keys.number("layer_norm_eps", 1e-12)?;
        let classifies = head.head == Head::ImageClassification;
        if classifies && common.vocabulary == 1 {
            return Err(keys.error("num_labels", "one label means a regression, which is not supported"));
        }
        let single = Value::from("single_label_classification");
        if classifies {
            keys.expect("problem_type", &single, "only single_label_classification is supported")?;
        }
        keys.expect("pooler_output_size", &Value::from(common.width), "a pooler narrower or wider than the model")?;
        keys.expect("pooler_act", &Value::from("tanh"), "only tanh is supported")?;
        // A key of a head for another task.
        keys.get("encoder_stride");
        keys::divides(keys, "patch_size", own.patch, own.image)?;
        keys::divides(keys, "num_attention_heads", common.heads, common.width)?;
        Ok(Self { common, own })
    }
}

impl Family for Config {
    fn kind(&self) -> Kind {
        Kind::Pictures { channels: self.own.channels, side: self.own.image }
    }

    fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts> {
        let body = |piece: usize| at(piece).at(BODY);
        let embeddings = Embeddings::new(&body(0).at("embeddings"), self)?;
        let blocks = blocks::stack(self.layers, |i| Layer::new(&body(1 + i).at("layers").at(i), self))?;
        let last = 1 + self.layers;
        let norm = LayerNorm::new(&body(last).at("layernorm"), self.width, self.eps)?;
        let mut scores = Sequential::new();
        let classifies = head.head == Head::ImageClassification;
        if classifies {
            scores.push(head_config::First);
            scores.push(head_config::linear(&at(last).at("classifier"), self.width, self.vocabulary, true)?);
        }
        let pooler = || head_config::pooler(&body(last).at("pooler"), "dense", self.width, ops::tanh, None);
        let pooler = if classifies { None } else { Some(pooler()?) };
        Ok(Parts {
            embeddings: Box::new(embeddings),
            blocks,
            output: Box::new(NormedHead { norm, pooler, scores }),
            stages: Parts::stages(at, self.layers, |_| Ok(Stage::encoder(&self.options)))?,
            body: BODY,
        })
    }

    /// Returns a module's own parameters before those of its parts: class token and positions before the patches' projection.
    fn optimizer_order(&self, _: Head, mut parameters: Vec<Parameter>) -> Vec<Parameter> {
        if parameters.len() >= 4 {
            parameters[..4].rotate_left(2);
        }
        parameters
    }
}

/// Name of everything except the classifier.
const BODY: &str = "vit";

struct Embeddings {
    scope: ScopeId,
    projection: Conv2d,
    cls_token: Parameter,
    positions: Parameter,
    dropout: Dropout,
}

impl Embeddings {
    fn new(init: &Init, c: &Config) -> Result<Self> {
        let geometry = Conv2dGeometry { stride: [c.own.patch; 2], ..Conv2dGeometry::default() };
        let at = init.at("patch_embeddings").at("projection");
        Ok(Self {
            scope: init.scope(),
            projection: Conv2d::new(&at, c.own.channels, c.width, c.own.patch, geometry, true)?,
            cls_token: init.parameter("cls_token", &[1, 1, c.width], SMALL)?,
            positions: init.parameter("position_embeddings", &[1, c.positions, c.width], SMALL)?,
            dropout: Dropout::new(&init.at("dropout"), c.dropout)?,
        })
    }

    fn embedded(&self, pixels: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut hidden = {
            let patches = self.projection.forward(pixels)?;
            ops::transpose(&ops::flatten(&patches, 2)?, 1, 2)?
        };
        let [batch, _, width] = *hidden.dims() else {
            return Err(memcore::Error::shape("patches", format!("{:?}", hidden.dims())));
        };
        let cls_tokens = ops::expand(self.cls_token.tensor(), &[batch, 1, width])?;
        hidden = ops::cat(&[&cls_tokens, &hidden], 1)?;
        hidden = ops::add(&hidden, self.positions.tensor())?;
        self.dropout.forward(&hidden)
    }
}

impl InputEmbeddings for Embeddings {
    fn forward(&self, pixels: &Tensor, _: Said<'_>, _: Option<&Stage>) -> Result<EmbeddingOutput> {
        Ok(EmbeddingOutput::held(self.embedded(pixels)?, BlockInputs::default()))
    }
}

struct Layer {
    scope: ScopeId,
    config: Config,
    /// Of the attention's weights.
    weights_dropout: Dropout,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    layernorm_before: LayerNorm,
    layernorm_after: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    dropout: Dropout,
}

impl Layer {
    fn new(init: &Init, c: &Config) -> Result<Self> {
        let (attention, mlp) = (init.at("attention"), init.at("mlp"));
        let square = |name: &str, bias| Linear::with_fill(&attention.at(name), c.width, c.width, bias, SMALL);
        Ok(Self {
            scope: init.scope(),
            config: c.clone(),
            weights_dropout: Dropout::new(&attention, c.attention_dropout)?,
            q_proj: square("q_proj", c.own.qkv_bias)?,
            k_proj: square("k_proj", c.own.qkv_bias)?,
            v_proj: square("v_proj", c.own.qkv_bias)?,
            o_proj: square("o_proj", true)?,
            layernorm_before: LayerNorm::new(&init.at("layernorm_before"), c.width, c.eps)?,
            layernorm_after: LayerNorm::new(&init.at("layernorm_after"), c.width, c.eps)?,
            fc1: Linear::with_fill(&mlp.at("fc1"), c.width, c.inner, true, SMALL)?,
            fc2: Linear::with_fill(&mlp.at("fc2"), c.inner, c.width, true, SMALL)?,
            dropout: Dropout::new(&init.at("dropout"), c.dropout)?,
        })
    }

    fn attention(&self, hidden: &Tensor) -> Result<(Tensor, Weights)> {
        let c = &self.config;
        let [_, _, width] = attention::sizes(hidden)?;
        let head = width / c.heads;
        let heads = |projection: &Linear| attention::heads(&projection.forward(hidden)?, c.heads);
        let (q, k, v) = (heads(&self.q_proj)?, heads(&self.k_proj)?, heads(&self.v_proj)?);
        let call = Call::new(c.options.attention, head, &self.weights_dropout);
        call.project([q, k, v], &self.o_proj)
    }

    fn mlp(&self, input: &Tensor) -> Result<Tensor> {
        let mut hidden = self.fc1.forward(input)?;
        hidden = self.config.activation.apply(&hidden)?;
        self.fc2.forward(&hidden)
    }
}

impl blocks::Block for Layer {
    fn forward(&self, input: &Tensor, _: &BlockInputs) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let mut hidden = self.layernorm_before.forward(input)?;
        let (attended, _weights) = self.attention(&hidden)?;
        hidden = attended;
        hidden = self.dropout.forward(&hidden)?;
        hidden = ops::add(&hidden, input)?;
        let residual = hidden.clone();
        hidden = self.layernorm_after.forward(&hidden)?;
        hidden = self.mlp(&hidden)?;
        hidden = self.dropout.forward(&hidden)?;
        ops::add(&hidden, &residual)
    }
}
