//! Layers and activations as `transformers` composes them.

use lab_base::error::Error;
use memcore::memory::ScopeId;
use memcore::nn::{Base, Embedding, Fill, Init, Linear, LowRankAdapter, Parameter};
use memcore::{Array, Result, Tensor, context, ops};

use super::keys::Keys;
use super::options::Options;

/// `Conv1D`: `bias + x @ weight` with the weight `[in, out]`, transposed from a linear layer's.
pub(super) struct Conv1d {
    scope: ScopeId,
    weight: Parameter,
    bias: Parameter,
    adapter: Option<LowRankAdapter>,
}

impl Conv1d {
    /// Makes a layer from `inputs` to `outputs` features.
    pub(crate) fn new(init: &Init, outputs: usize, inputs: usize) -> Result<Self> {
        let weight = init.parameter("weight", &[inputs, outputs], Fill::Normal { std: 0.02 })?;
        let bias = init.parameter("bias", &[outputs], Fill::Constant(0.0))?;
        let adapter = LowRankAdapter::beside(init, inputs, outputs, &weight.array().t()?)?;
        Ok(Self { scope: init.scope(), weight, bias, adapter })
    }

    /// Computes `[batch, time, out]` from `[batch, time, in]`.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let y = self.own(x)?;
        match &self.adapter {
            None => Ok(y),
            Some(adapter) => {
                let base = Base { weight: &|| self.weight.array().t(), bias: Some(self.bias.array()) };
                adapter.added(y, x, &base)
            }
        }
    }

    /// The layer's own result.
    fn own(&self, x: &Tensor) -> Result<Tensor> {
        let width = x.dims().last().copied().unwrap_or(1);
        let mut dims = x.dims().to_vec();
        let rows = ops::view(x, &[x.numel() / width.max(1), width])?;
        let y = ops::addmm(self.bias.tensor(), &rows, self.weight.tensor())?;
        if let Some(last) = dims.last_mut() {
            *last = y.dims()[1];
        }
        ops::view(&y, &dims)
    }
}

/// Makes the layer from features to scores of tokens, `[width, vocabulary]`, without bias: with weights of its own, or those of the token table.
/// (Made on the device, it has weights of its own until they are tied.)
pub(super) fn lm_head(
    init: &Init,
    table: &Embedding,
    tied: bool,
    [width, vocabulary]: [usize; 2],
    options: &Options,
) -> Result<Linear> {
    if tied {
        if options.built_on_device {
            Array::empty(init.device(), &[vocabulary, width], init.dtype())?;
        }
        return Ok(Linear::tied(init, &init.shared(&table.weight)?));
    }
    Linear::with_fill(init, width, vocabulary, false, Fill::Normal { std: 0.02 })
}

/// Activation function, by the name that configurations use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    /// `gelu`: one operator, with erf.
    Gelu,
    /// `gelu_pytorch_tanh`: one operator, the tanh approximation.
    GeluTanh,
    /// `gelu_new`: the tanh approximation written out in eight operators.
    NewGelu,
    /// `relu`
    Relu,
    /// `silu`, also called `swish`
    Silu,
    /// `tanh`
    Tanh,
}

impl Activation {
    /// Reads the function under `key`; `default` if absent.
    pub(super) fn read(keys: &Keys<'_>, key: &'static str, default: &'static str) -> Result<Self, Error> {
        Self::named(key, keys.name(key, default)?)
    }

    /// # Errors
    /// [`Error::Usage`] for one that is not here, listing those that are.
    pub(super) fn named(key: &str, name: &str) -> Result<Self, Error> {
        Ok(match name {
            "gelu" => Self::Gelu,
            "gelu_pytorch_tanh" => Self::GeluTanh,
            "gelu_new" => Self::NewGelu,
            "relu" => Self::Relu,
            "silu" | "swish" => Self::Silu,
            "tanh" => Self::Tanh,
            _ => {
                let known = "gelu, gelu_new, gelu_pytorch_tanh, relu, silu, swish, tanh";
                return Err(Error::usage(key, format!("unknown activation {name:?}; known: {known}")));
            }
        })
    }

    pub(super) fn apply(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Gelu => ops::gelu(x),
            Self::GeluTanh => ops::gelu_tanh(x),
            Self::NewGelu => new_gelu(x),
            Self::Relu => ops::relu(x),
            Self::Silu => ops::silu(x),
            Self::Tanh => ops::tanh(x),
        }
    }
}

/// `0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`, operator by operator.
fn new_gelu(x: &Tensor) -> Result<Tensor> {
    let half = ops::mul_scalar(x, 0.5)?;
    let mut inner = ops::pow(x, 3.0)?;
    inner = ops::mul_scalar(&inner, 0.044_715)?;
    inner = ops::add(x, &inner)?;
    inner = ops::mul_scalar(&inner, (2.0 / std::f64::consts::PI).sqrt())?;
    inner = ops::tanh(&inner)?;
    inner = ops::add_scalar(&inner, 1.0)?;
    let y = ops::mul(&half, &inner)?;
    drop(half);
    Ok(y)
}

/// The embeddings of tokens: the rows of a table, marked by a hook if there is one, and what an adapter adds to them.
///
/// # Errors
/// Those of the table.
pub(super) fn embedded(table: &Embedding, ids: &Tensor, marks: bool) -> Result<Tensor> {
    table.adapted(marked(table.rows(ids)?, marks), ids, None)
}

/// `output.requires_grad_(True)` of a hook, if there is one: the embeddings of a frozen table become a leaf, which keeps them and their gradient.
pub(super) fn marked(embeds: Tensor, marks: bool) -> Tensor {
    if marks && !embeds.requires_grad() { Tensor::leaf(embeds.into_array()) } else { embeds }
}
