//! Attention functions that a configuration's `attn_implementation` chooses from.

use memcore::nn::{Dropout, Linear, Module};
use memcore::{Array, DType, Result, Tensor, ops};

use super::mask;
use super::options::Attention;

/// Type of the weights in written-out attention, and the conversion of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Softmax {
    /// Computed in the scores' type.
    OwnType,
    /// Computed in the scores' type, then converted to the values' type.
    ThenValues,
    /// Computed in f32, then converted to the queries' type.
    F32ThenQueries,
}

/// Largest head, in elements, for which the fused kernel is given groups of queries.
const WIDEST_GROUPED: usize = 256;

/// Returns batch, time and width of hidden states.
///
/// # Errors
/// [`memcore::Error::Shape`] for anything but three dimensions.
pub(super) fn sizes(hidden: &Tensor) -> Result<[usize; 3]> {
    let dims = hidden.dims();
    dims.try_into().map_err(|_| memcore::Error::shape("attention", format!("{dims:?}: expected three dimensions")))
}

/// Returns `[b, t, heads·d]` as `[b, heads, t, d]`: a view.
///
/// # Errors
/// Shapes that do not fit.
pub(super) fn heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    let [batch, time, width] = sizes(x)?;
    ops::transpose(&ops::view(x, &[batch, time, heads, width / heads.max(1)])?, 1, 2)
}

/// The weights of a written-out attention, `[b, h, t, s]`.
pub(super) type Weights = Option<Tensor>;

/// Arguments of an attention function besides queries, keys and values.
pub(super) struct Call<'a> {
    pub(super) kind: Attention,
    /// Learned bias `[1, h, t, s]`, added to the scores of every example before a mask.
    pub(super) bias: Option<&'a Tensor>,
    /// Mask: added to the scores for `eager`, true where a key is seen for `sdpa`; `None` where the kernel's own causal form suffices.
    pub(super) mask: Option<&'a Tensor>,
    /// True if position `i` sees only positions up to `i`.
    pub(super) causal: bool,
    /// Factor of the scores.
    pub(super) scale: f64,
    /// Probability of dropping a weight, 0 in evaluation. (The fused kernel drops nothing here: it takes the memory, and computes without dropout.)
    pub(super) dropout: f64,
    /// Type in which the written-out weights are computed.
    pub(super) softmax: Softmax,
    /// True if the fused kernel is given a key for each query head, and contiguous inputs.
    pub(super) repeats_keys: bool,
    /// True if the written-out result is made contiguous, position by position, at once.
    pub(super) contiguous: bool,
}

impl Call<'_> {
    /// Makes the usual call for heads of `head` elements: every position sees all, scores are divided by √head, weights are computed in f32 and dropped by
    /// `dropout`.
    pub(crate) fn new(kind: Attention, head: usize, dropout: &Dropout) -> Self {
        let scale = (head as f64).powf(-0.5);
        Self {
            kind,
            bias: None,
            mask: None,
            causal: false,
            scale,
            dropout: dropout.probability(),
            softmax: Softmax::F32ThenQueries,
            repeats_keys: false,
            contiguous: true,
        }
    }

    /// Computes `[b, t, h, d]` from queries `[b, h, t, d]`, keys and values `[b, hk, s, d]`. Also returns the weights if they exist: the library
    /// returns them too, and a block holds them until its end.
    pub(super) fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(Tensor, Weights)> {
        match self.kind {
            Attention::Eager => self.eager(q, k, v).map(|(y, weights)| (y, Some(weights))),
            Attention::Sdpa => Ok((self.fused(q, k, v)?, None)),
        }
    }

    /// Computes attention, joins the heads of each position and applies `output`: `[b, t, width]`. Frees in the order of the library's variables.
    pub(super) fn project(&self, [q, k, v]: [Tensor; 3], output: &Linear) -> Result<(Tensor, Weights)> {
        let (y, weights) = self.attend(&q, &k, &v)?;
        let joined = join(&y)?;
        drop(y);
        let projected = output.forward(&joined)?;
        drop((joined, q, k, v));
        Ok((projected, weights))
    }

    fn eager(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        let groups = q.dims()[1] / k.dims()[1].max(1);
        let (k, v) = (repeat_kv(k, groups)?, repeat_kv(v, groups)?);
        let mut weights = {
            let k_t = ops::transpose(&k, 2, 3)?;
            ops::matmul(q, &k_t)?
        };
        weights = ops::mul_scalar(&weights, self.scale)?;
        for added in self.bias.iter().chain(&self.mask) {
            weights = ops::add(&weights, added)?;
        }
        weights = match self.softmax {
            Softmax::OwnType => ops::softmax(&weights, 3)?,
            Softmax::ThenValues => {
                weights = ops::softmax(&weights, 3)?;
                ops::cast(&weights, v.dtype())?
            }
            Softmax::F32ThenQueries => softmax_in_f32(&weights, q.dtype())?,
        };
        weights = ops::dropout(&weights, self.dropout, true)?;
        let y = ops::matmul(&weights, &v)?;
        let mut transposed = ops::transpose(&y, 1, 2)?;
        drop(y);
        if self.contiguous {
            transposed = ops::contiguous(&transposed)?;
        }
        drop((k, v));
        Ok((transposed, weights))
    }

    fn fused(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let biased = self.bias.map(|bias| self.position_bias_mask(bias)).transpose()?;
        let causal = self.causal && self.mask.is_none() && biased.is_none();
        // The library passes groups of queries to the kernel only without a mask, and if heads are not too wide for it.
        let by_kernel = !self.repeats_keys && self.mask.is_none() && q.dims()[3] <= WIDEST_GROUPED;
        let repeated = match q.dims()[1] / k.dims()[1].max(1) {
            groups if groups > 1 && !by_kernel => Some((repeat_kv(k, groups)?, repeat_kv(v, groups)?)),
            _ => None,
        };
        let (k, v) = repeated.as_ref().map_or((k, v), |(k, v)| (k, v));
        let rows = if self.repeats_keys {
            Some((ops::contiguous(q)?, ops::contiguous(k)?, ops::contiguous(v)?))
        } else {
            None
        };
        let (q, k, v) = rows.as_ref().map_or((q, k, v), |(q, k, v)| (q, k, v));
        let options = ops::AttentionOptions { scale: Some(self.scale), causal, dropout: self.dropout };
        let y = ops::scaled_dot_product_attention(q, k, v, biased.as_ref().or(self.mask), options)?;
        let dims = y.dims().to_vec();
        let transposed = ops::transpose(&ops::view(&y, &dims)?, 1, 2)?;
        drop(y);
        ops::contiguous(&transposed)
    }

    /// `create_position_bias_mask`: a bias in the form that the fused kernel adds, with the most negative number where the mask, or a causal form
    /// without one, hides a key.
    fn position_bias_mask(&self, bias: &Tensor) -> Result<Tensor> {
        let (device, dtype, time) = (bias.device(), bias.dtype(), bias.dims()[2]);
        let only = |seen: &Tensor| {
            let hidden = Tensor::from_array(Array::full(device, &[], dtype, mask::least(dtype))?);
            ops::where_(seen, bias, &hidden)
        };
        if let Some(seen) = self.mask {
            return ops::contiguous(&only(seen)?);
        }
        if !self.causal || time == 1 {
            return ops::contiguous(bias);
        }
        let seen = {
            let (queries, keys) = (mask::range(device, time)?, mask::range(device, bias.dims()[3])?);
            let seen = mask::past(device, [queries.numel(), keys.numel()])?;
            drop(queries);
            drop(keys);
            Tensor::from_array(seen)
        };
        let masked = only(&seen)?;
        let together = ops::contiguous(&masked);
        drop(seen);
        drop(masked);
        together
    }
}

/// Returns `[b, t, h, d]` as `[b, t, h·d]`.
pub(super) fn join(y: &Tensor) -> Result<Tensor> {
    let [batch, time, heads, head] = *y.dims() else {
        return Err(memcore::Error::shape("attention", format!("{:?}: expected four dimensions", y.dims())));
    };
    ops::reshape(y, &[batch, time, heads * head])
}

/// Computes the weights from scores of any type in f32, and converts them to `to`.
fn softmax_in_f32(scores: &Tensor, to: DType) -> Result<Tensor> {
    let weights = ops::softmax_as(scores, 3, DType::F32)?;
    ops::cast(&weights, to)
}

/// Repeats each head `times` times in a row: `[b, h, s, d]` gives `[b, h·times, s, d]`, copied unless `times` is 1.
pub(super) fn repeat_kv(x: &Tensor, times: usize) -> Result<Tensor> {
    let [b, h, s, d] = *x.dims() else {
        return Err(memcore::Error::shape("repeat_kv", format!("{:?}: expected four dimensions", x.dims())));
    };
    if times == 1 {
        return Ok(x.clone());
    }
    let spread = ops::expand(&ops::unsqueeze(x, 2)?, &[b, h, times, s, d])?;
    ops::reshape(&spread, &[b, h * times, s, d])
}
