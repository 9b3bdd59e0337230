//! `vit`: `ViTForImageClassification` and `ViTModel`.

use memcore::backend::kernel::Conv2dGeometry;
use memcore::memory::ScopeId;
use memcore::nn::{Conv2d, Dropout, Init, LayerNorm, Linear, Module, Parameter, Sequential};
use memcore::{Result, Tensor, context, ops};
use serde_json::Value;

use super::attention::{self, Call, Weights};
use super::blocks::{self, Context};
use super::guide::Guide;
use super::head::Head;
use super::head_config::{self, HeadConfig, SMALL};
use super::keys::{self, Keys};
use super::layers::Activation;
use super::network::{Begun, Front, NormedHead, Parts, Variables};
use super::options::{Options, Sizes};
use crate::error;
use crate::models::Places;

/// What its configuration says.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) channels: usize,
    pub(super) image: usize,
    pub(super) classes: usize,
    patch: usize,
    width: usize,
    layers: usize,
    heads: usize,
    inner: usize,
    activation: Activation,
    hidden_dropout: f64,
    attention_dropout: f64,
    eps: f64,
    qkv_bias: bool,
    options: Options,
}

impl Config {
    /// # Errors
    /// Keys of another type, sizes that do not fit, what is not represented.
    pub(super) fn read(keys: &Keys<'_>, head: &HeadConfig, options: &Options) -> error::Result<Self> {
        let labels = keys.map_len("id2label").unwrap_or(2);
        let config = Self {
            channels: keys.size("num_channels", 3)?,
            image: keys.size("image_size", 224)?,
            classes: keys.size("num_labels", labels)?,
            patch: keys.size("patch_size", 16)?,
            width: keys.size("hidden_size", 768)?,
            layers: keys.size("num_hidden_layers", 12)?,
            heads: keys.size("num_attention_heads", 12)?,
            inner: keys.size("intermediate_size", 3072)?,
            activation: Activation::named("hidden_act", keys.name("hidden_act", "gelu")?)?,
            hidden_dropout: keys.probability("hidden_dropout_prob", 0.0)?,
            attention_dropout: keys.probability("attention_probs_dropout_prob", 0.0)?,
            eps: keys.number("layer_norm_eps", 1e-12)?,
            qkv_bias: keys.flag("qkv_bias", true)?,
            options: options.clone(),
        };
        let classifies = head.head == Head::ImageClassification;
        if classifies && config.classes == 1 {
            return Err(keys.error("num_labels", "one label means a regression, which is not represented"));
        }
        let single = Value::from("single_label_classification");
        if classifies {
            keys.expect("problem_type", &single, "only single_label_classification is represented")?;
        }
        keys.expect("pooler_output_size", &Value::from(config.width), "a pooler narrower or wider than the model")?;
        keys.expect("pooler_act", &Value::from("tanh"), "only tanh is represented")?;
        // Of a head for another task.
        keys.get("encoder_stride");
        keys::divides(keys, "patch_size", config.patch, config.image)?;
        keys::divides(keys, "num_attention_heads", config.heads, config.width)?;
        Ok(config)
    }

    fn patches(&self) -> usize {
        (self.image / self.patch).pow(2)
    }

    pub(super) fn sizes(&self) -> Sizes {
        let (layers, width, heads) = (self.layers, self.width, self.heads);
        Sizes { layers, width, heads, classes: self.classes, positions: self.patches() + 1 }
    }

    /// # Errors
    /// Those of the device.
    pub(super) fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts> {
        let body = |piece: usize| at(piece).at(BODY);
        let embeddings = Embeddings::new(&body(0).at("embeddings"), self)?;
        let blocks = blocks::stack(self.layers, |i| Layer::new(&body(1 + i).at("layers").at(i), self))?;
        let last = 1 + self.layers;
        let norm = LayerNorm::new(&body(last).at("layernorm"), self.width, self.eps)?;
        let mut scores = Sequential::new();
        let classifies = head.head == Head::ImageClassification;
        if classifies {
            scores.push(head_config::First);
            scores.push(head_config::linear(&at(last).at("classifier"), self.width, self.classes, true)?);
        }
        let pooler = || head_config::pooler(&body(last).at("pooler"), "dense", self.width, ops::tanh, None);
        let pooler = if classifies { None } else { Some(pooler()?) };
        let guide = |_: &Init| Guide::encoder(&self.options);
        Ok(Parts {
            front: Box::new(embeddings),
            blocks,
            back: Box::new(NormedHead { norm, pooler, scores }),
            guides: Parts::desks(at, self.layers).iter().map(guide).collect(),
            body: BODY,
        })
    }
}

/// All but the classifier.
const BODY: &str = "vit";

/// The parameters, given in the order in which they are moved to the device, as `model.parameters()` has them: a module's own come before those
/// of its parts, class token and positions before the patches' projection.
pub(super) fn optimizer_order(mut parameters: Vec<Parameter>) -> Vec<Parameter> {
    if parameters.len() >= 4 {
        parameters[..4].rotate_left(2);
    }
    parameters
}

struct Embeddings {
    scope: ScopeId,
    projection: Conv2d,
    cls_token: Parameter,
    positions: Parameter,
    dropout: Dropout,
}

impl Embeddings {
    fn new(init: &Init, c: &Config) -> Result<Self> {
        let geometry = Conv2dGeometry { stride: [c.patch; 2], ..Conv2dGeometry::default() };
        let at = init.at("patch_embeddings").at("projection");
        Ok(Self {
            scope: init.scope(),
            projection: Conv2d::new(&at, c.channels, c.width, c.patch, geometry, true)?,
            cls_token: init.parameter("cls_token", &[1, 1, c.width], SMALL)?,
            positions: init.parameter("position_embeddings", &[1, c.patches() + 1, c.width], SMALL)?,
            dropout: Dropout::new(&init.at("dropout"), c.hidden_dropout)?,
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

impl Front for Embeddings {
    fn forward(&self, pixels: &Tensor, _: Option<&Tensor>, _: Option<&Guide>) -> Result<Begun> {
        let embedded = self.embedded(pixels)?;
        Ok(Begun { hidden: embedded.clone(), context: Context::default(), variables: Variables(vec![embedded]) })
    }
}

struct Layer {
    scope: ScopeId,
    config: Config,
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
            q_proj: square("q_proj", c.qkv_bias)?,
            k_proj: square("k_proj", c.qkv_bias)?,
            v_proj: square("v_proj", c.qkv_bias)?,
            o_proj: square("o_proj", true)?,
            layernorm_before: LayerNorm::new(&init.at("layernorm_before"), c.width, c.eps)?,
            layernorm_after: LayerNorm::new(&init.at("layernorm_after"), c.width, c.eps)?,
            fc1: Linear::with_fill(&mlp.at("fc1"), c.width, c.inner, true, SMALL)?,
            fc2: Linear::with_fill(&mlp.at("fc2"), c.inner, c.width, true, SMALL)?,
            dropout: Dropout::new(&init.at("dropout"), c.hidden_dropout)?,
        })
    }

    fn attention(&self, hidden: &Tensor) -> Result<(Tensor, Weights)> {
        let c = &self.config;
        let [_, _, width] = attention::sizes(hidden)?;
        let head = width / c.heads;
        let heads = |projection: &Linear| attention::heads(&projection.forward(hidden)?, c.heads);
        let (q, k, v) = (heads(&self.q_proj)?, heads(&self.k_proj)?, heads(&self.v_proj)?);
        let call = Call::new(c.options.attention, head, c.attention_dropout);
        call.project([q, k, v], &self.o_proj)
    }

    fn mlp(&self, input: &Tensor) -> Result<Tensor> {
        let mut hidden = self.fc1.forward(input)?;
        hidden = self.config.activation.apply(&hidden)?;
        self.fc2.forward(&hidden)
    }
}

impl blocks::Block for Layer {
    fn forward(&self, input: &Tensor, _: &Context) -> Result<Tensor> {
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
