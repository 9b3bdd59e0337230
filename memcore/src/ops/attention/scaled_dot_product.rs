//! Attention: eager, of separate operators, and fused, in one kernel.
//!
//! Queries are `[b, h, t, d]`, keys `[b, hk, s, d]`, values `[b, hk, s, dv]`; query head `i` reads key and value head `i/(h/hk)`.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::algorithm::{Algorithm, Wanted};
use super::math::attention_math;
use super::temporaries::{per_query, with_rows};
use crate::array::Array;
use crate::autograd::{Function, Grads, KeptOp, Needs, Saved, Tensor, kept_results, record, records};
use crate::backend::kernel::{Attention, AttentionGrad};
use crate::context;
use crate::deviation::Deviation;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::autocast::lower;
use crate::ops::norm::softmax::softmax;
use crate::ops::pointwise::dropout::dropout;
use crate::ops::pointwise::mask::masked_fill;
use crate::ops::pointwise::unary::mul_scalar;
use crate::ops::products::matmul::matmul;
use crate::ops::resample::pad::pad;
use crate::ops::shape::view::{Dims, expand, narrow, reshape, transpose, unsqueeze};

/// Makes the mask of causal attention for [`attention_eager`]: a bool `[t, t]`, true above the diagonal, where the future is hidden.
pub fn causal_mask(device: &Device, t: usize) -> Result<Array> {
    let mask = Array::empty(device, &[t, t], DType::Bool)?;
    let hidden: Vec<u8> = (0..t * t).map(|i| u8::from(i % t > i / t)).collect();
    mask.write(&hidden)?;
    Ok(mask)
}

/// `dropout(softmax(q @ kᵀ/√d, hidden where mask)) @ v`, operator by operator, as models write it out. The score matrix exists, and several
/// tensors of its size are kept. `mask` is a bool, true where hidden, broadcastable to `[b, h, t, s]`.
///
/// Keys and values with fewer heads are repeated first, as a copy. `p` is the probability of dropping a weight in training.
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit; errors of the device.
pub fn attention_eager(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    p: f64,
    training: bool,
) -> Result<Tensor> {
    Ok(attention_with_weights(q, k, v, mask, p, training)?.0)
}

/// As [`attention_eager`]. Also returns the weights that multiplied the values, `[b, h, t, s]`: programs that write attention out have them
/// in a variable.
pub fn attention_with_weights(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    p: f64,
    training: bool,
) -> Result<(Tensor, Tensor)> {
    let heads = Heads::new("attention", q, k, v)?;
    let (k, v) = (repeat_heads(k, heads.groups)?, repeat_heads(v, heads.groups)?);
    let k_t = transpose(&k, 2, 3)?;
    let products = matmul(q, &k_t)?;
    let mut scores = mul_scalar(&products, (heads.d as f64).powf(-0.5))?;
    drop(products);
    if let Some(mask) = mask {
        scores = masked_fill(&scores, mask, f64::NEG_INFINITY)?;
    }
    let weights = softmax(&scores, 3)?;
    let dropped = dropout(&weights, p, training)?;
    drop(weights);
    drop(scores);
    Ok((matmul(&dropped, &v)?, dropped))
}

/// Repeats each head `times` times in a row: `[b, h, s, d]` gives `[b, h·times, s, d]`, a copy unless `times` is 1.
fn repeat_heads(x: &Tensor, times: usize) -> Result<Tensor> {
    let [b, h, s, d] = *x.dims() else { return Err(four_dimensions("repeat_heads", x)) };
    if times == 1 {
        return Ok(x.clone());
    }
    let spread = expand(&unsqueeze(x, 2)?, &[b, h, times, s, d])?;
    reshape(&spread, &[b, h * times, s, d])
}

fn four_dimensions(op: &'static str, x: &Tensor) -> Error {
    Error::shape(op, format!("{:?}: expected four dimensions", x.dims()))
}

/// Sizes on which queries, keys and values agree.
#[derive(Clone, Copy)]
struct Heads {
    d: usize,
    /// Query heads per key head.
    groups: usize,
}

impl Heads {
    fn new(op: &'static str, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Self> {
        let ([b, h, _, d], [kb, hk, s, kd], [vb, hv, vs, _]) = (q.dims(), k.dims(), v.dims()) else {
            return Err(four_dimensions(op, q));
        };
        let fits = b == kb && b == vb && d == kd && s == vs && hk == hv && *hk > 0 && h % hk == 0;
        if !fits {
            let detail = format!("queries {:?}, keys {:?}, values {:?}", q.dims(), k.dims(), v.dims());
            return Err(Error::shape(op, detail));
        }
        Ok(Self { d: *d, groups: h / hk })
    }
}

/// Options of [`scaled_dot_product_attention`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionOptions {
    /// Factor of the scores; `1/√d` if `None`.
    pub scale: Option<f64>,
    /// Position `i` sees keys `j ≤ i` only. Not together with a mask.
    pub causal: bool,
    /// Probability of dropping a weight. Our kernels drop nothing. The probability decides which memory PyTorch's kernel would take (flash keeps a
    /// generator state of its own).
    pub dropout: f64,
}

/// PyTorch's flash kernel takes heads whose width is a multiple of this. Other heads are padded with zeros first.
const FLASH_MULTIPLE: usize = 8;

/// Attention in one kernel, without the score matrix: `[b, h, t, dv]`. Saves queries, keys, values, the result and the logarithm of each
/// row's denominator, in f32. Without a graph, only flash attention makes those logarithms.
///
/// `mask` broadcasts to `[b, h, t, s]`. It is a bool, true where a key is seen (as PyTorch's mask, and the opposite of
/// [`attention_eager`]'s), or numbers that are added to the scores. Such numbers may require a gradient (a learned bias).
///
/// Under a PyTorch profile the temporaries are those of the kernel that PyTorch would take (see `Algorithm::choose`): cuDNN's for 16-bit types on compute
/// capability 9.0 and 10.0 if the profile has cuDNN, flash for 16-bit types without a mask, else the memory-efficient one. If PyTorch has no fused
/// kernel, it writes the scores out, and so does this function.
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit; [`Error::Invalid`] for a mask with `causal`; errors of the device.
pub fn scaled_dot_product_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    options: AttentionOptions,
) -> Result<Tensor> {
    // A mask in autocast's type stays alive until the end.
    let lowered =
        mask.map(|mask| if mask.dtype() == DType::Bool { Ok(mask.clone()) } else { lower(mask) }).transpose()?;
    let mask = lowered.as_ref();
    let (v, k, q) = (&lower(v)?, &lower(k)?, &lower(q)?);
    let heads = Heads::new("scaled_dot_product_attention", q, k, v)?;
    if mask.is_some() && options.causal {
        return Err(Error::invalid("scaled_dot_product_attention", "a mask excludes `causal`"));
    }
    let scale = options.scale.unwrap_or((heads.d as f64).powf(-0.5));
    let bias = mask.map(|mask| additive(mask, q.dtype())).transpose()?;
    let wanted = Wanted {
        arrays: [q, k, v].map(Tensor::array),
        mask: mask.map(Tensor::array),
        learned: mask.is_some_and(Tensor::requires_grad),
        causal: options.causal,
        dropout: options.dropout > 0.0,
        records: records(&[q, k, v]),
    };
    let Some(algorithm) = Algorithm::choose(&wanted) else {
        return attention_math([q, k, v], bias.as_ref(), scale, options.causal, options.dropout);
    };
    if algorithm == Algorithm::Flash && heads.d % FLASH_MULTIPLE != 0 {
        let wide = |x: &Tensor| {
            let width = x.dims()[3].next_multiple_of(FLASH_MULTIPLE);
            context::within("scaled_dot_product_attention", || pad_last(x, width))
        };
        let (q, k, padded) = (wide(q)?, wide(k)?, wide(v)?);
        let y = narrow(&fused(algorithm, [&q, &k, &padded], None, scale, options)?, 3, 0, v.dims()[3]);
        context::within("scaled_dot_product_attention", || drop((padded, k, q)));
        return y;
    }
    let scores = [q.dims()[0], q.dims()[1], q.dims()[2], k.dims()[2]];
    let bias = bias.map(|bias| for_kernel(bias, algorithm, &scores)).transpose()?;
    fused(algorithm, [q, k, v], bias.as_ref(), scale, options)
}

/// Prepares a bias for the kernel. A bias that requires a gradient is repeated for all `scores` first: the kernel makes the gradient of each score,
/// and the repetition's backward sums them.
fn for_kernel(mut bias: Tensor, algorithm: Algorithm, scores: &[usize]) -> Result<Tensor> {
    if algorithm == Algorithm::Efficient {
        bias = with_aligned_rows(bias)?;
    }
    if bias.requires_grad() { expand(&bias, scores) } else { Ok(bias) }
}

/// Pads the last dimension of `x` with zeros to `width`.
fn pad_last(x: &Tensor, width: usize) -> Result<Tensor> {
    let rank = x.rank();
    let mut borders: Dims = smallvec![0; rank];
    borders[rank - 1] = width - x.dims()[rank - 1];
    let borders: SmallVec<[[usize; 2]; 4]> = borders.iter().map(|&behind| [0, behind]).collect();
    pad(x, &borders, 0.0)
}

/// Prepares a bias for PyTorch's memory-efficient kernel: its rows begin at multiples of 8 elements. Copies if they do not.
fn with_aligned_rows(bias: Tensor) -> Result<Tensor> {
    let last = bias.rank() - 1;
    let keys = bias.dims()[last];
    if keys.is_multiple_of(8) {
        return Ok(bias);
    }
    let wide = context::within("scaled_dot_product_attention", || pad_last(&bias, keys.next_multiple_of(8)))?;
    narrow(&wide, last, 0, keys)
}

/// Computes attention by one kernel, which stands for `algorithm`.
fn fused(
    algorithm: Algorithm,
    [q, k, v]: [&Tensor; 3],
    bias: Option<&Tensor>,
    scale: f64,
    options: AttentionOptions,
) -> Result<Tensor> {
    if options.dropout > 0.0 && q.device().computes() {
        q.device().recorded_deviations().record(Deviation::NoAttentionDropout);
    }
    let inputs: SmallVec<[&Tensor; 4]> = [q, k, v].into_iter().chain(bias).collect();
    let op = context::op(algorithm.forward_op());
    let [q_in, k_in, v_in] = [with_rows(q.array())?, with_rows(k.array())?, with_rows(v.array())?];
    let recorded = records(&inputs);
    let mut made = kept_results(KeptOp::Attention, || {
        attend(algorithm, [&q_in, &k_in, &v_in], bias.map(Tensor::array), (scale, options), recorded)
    })?
    .into_iter();
    let inner = context::op(algorithm.result_op());
    let y = made.next().ok_or_else(|| Error::invalid("scaled_dot_product_attention", "gave nothing"))?;
    let logsumexp = if recorded || algorithm == Algorithm::Flash { made.next() } else { None };
    let mut extras: SmallVec<[Array; 4]> = made.collect();
    let result = record(y.clone(), &inputs, |saved| {
        if let Some(bias) = bias {
            saved.save("attn_bias", bias.array())?;
        }
        for (role, array) in [("key", &k_in), ("query", &q_in), ("value", &v_in)] {
            saved.save(role, array)?;
        }
        if let Some(logsumexp) = &logsumexp {
            saved.save("logsumexp", logsumexp)?;
        }
        saved.save("output", &y)?;
        for extra in &extras {
            saved.save("philox_state", extra)?;
        }
        Ok(Box::new(AttentionBackward { algorithm, scale, causal: options.causal, masked: bias.is_some() }))
    });
    drop(inner);
    drop(op);
    // Results that no node saved are freed in the order of their making.
    let _outer = context::op("scaled_dot_product_attention");
    drop(logsumexp);
    if algorithm != Algorithm::Flash {
        extras.reverse();
    }
    drop(extras);
    result
}

/// Computes the results of [`fused`]: attention `[b, h, t, dv]`, the logarithms of the denominators if there are some, and the generator's states.
fn attend(
    algorithm: Algorithm,
    [q, k, v]: [&Array; 3],
    bias: Option<&Array>,
    (scale, options): (f64, AttentionOptions),
    recorded: bool,
) -> Result<SmallVec<[Array; 4]>> {
    let drops = options.dropout > 0.0;
    let seeds = algorithm.seeds(q.device(), drops)?;
    let _inner = context::op(algorithm.result_op());
    let y = algorithm.output(q, v.dims()[3])?;
    let logsumexp = algorithm.logsumexp(q, recorded)?;
    let partial = algorithm.partial_results(q, k, v, drops)?;
    let extras = algorithm.extras(y.device(), drops)?;
    let seen = bias.map(|bias| scores_shaped(bias, q, k)).transpose()?;
    let of_queries = logsumexp.as_ref().map(|padded| per_query(padded, q)).transpose()?;
    y.device().launch(Attention {
        scale,
        causal: options.causal,
        q: q.operand(),
        k: k.operand(),
        v: v.operand(),
        mask: seen.as_ref().map(Array::operand),
        out: y.operand(),
        logsumexp: of_queries.as_ref().map(Array::operand),
    })?;
    drop(of_queries);
    partial.into_iter().for_each(drop);
    Ok(std::iter::once(y).chain(logsumexp).chain(extras).chain(seeds).collect())
}

/// Turns a mask into numbers to add: 0 where a bool says that a key is seen, −∞ elsewhere.
fn additive(mask: &Tensor, dtype: DType) -> Result<Tensor> {
    if mask.dtype() != DType::Bool {
        return Ok(mask.clone());
    }
    let seen = Array::full(mask.device(), &[], dtype, 0.0)?;
    let hidden = Array::full(mask.device(), &[], dtype, f64::NEG_INFINITY)?;
    seen.select_by(mask.array(), &hidden).map(Tensor::from_array)
}

/// Views a mask as `[b, h, t, s]` for the kernel.
fn scores_shaped(bias: &Array, q: &Array, k: &Array) -> Result<Array> {
    let [b, h, t, s] = [q.dims()[0], q.dims()[1], q.dims()[2], k.dims()[2]];
    bias.broadcast_to(&[b, h, t, s])
}

struct AttentionBackward {
    algorithm: Algorithm,
    scale: f64,
    causal: bool,
    masked: bool,
}

impl Function for AttentionBackward {
    fn name(&self) -> &'static str {
        self.algorithm.node_name()
    }

    /// One kernel makes all gradients, whichever are required. Only the gradient of the mask is left out if it is not required.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        // In PyTorch's order, which is alphabetical by name.
        let bias = if self.masked { Some(saved.get(0)?) } else { None };
        let key = usize::from(self.masked);
        let [k, q, v] = [saved.get(key)?, saved.get(key + 1)?, saved.get(key + 2)?];
        let [logsumexp, out] = [per_query(&saved.get(key + 3)?, &q)?, saved.get(key + 4)?];
        for state in key + 5..saved.len() {
            saved.get(state)?;
        }
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op(self.algorithm.backward_op());
        let grad = self.algorithm.incoming(grad)?;
        let result = self.algorithm.result_again(&out)?;
        let [dq, dk, dv] = [self.algorithm.gradient(&q)?, self.algorithm.gradient(&k)?, self.algorithm.gradient(&v)?];
        let repeated = self.algorithm.repeated_gradients([&q, &k, &v])?;
        let dmask = needs.input(3).then(|| self.algorithm.mask_gradient(&q, &k)).transpose()?;
        let scratch = self.algorithm.scratch([&q, &k, &v], repeated, &out, &grad)?;
        let seen = bias.as_ref().map(|bias| scores_shaped(bias, &q, &k)).transpose()?;
        let mut call = AttentionGrad {
            scale: self.scale,
            causal: self.causal,
            q: q.operand(),
            k: k.operand(),
            v: v.operand(),
            mask: seen.as_ref().map(Array::operand),
            out: result.operand(),
            logsumexp: logsumexp.operand(),
            grad: scratch.grad.as_ref().unwrap_or(&grad).operand(),
            delta: scratch.delta.operand(),
            dq: dq.operand(),
            dk: dk.operand(),
            dv: dv.operand(),
            dmask: dmask.as_ref().map(Array::operand),
            workspace: None,
        };
        let workspace = self.algorithm.workspace(&scratch, &call)?;
        call.workspace = workspace.as_ref().map(Array::operand);
        q.device().launch(call)?;
        drop(workspace);
        context::within(self.algorithm.gradient_op(), || scratch.release());
        let keep = |i, grad: Array| if needs.input(i) { Some(grad) } else { None };
        let copied = (!Arc::ptr_eq(result.storage(), out.storage())).then_some(result);
        drop((bias, k, q, v, logsumexp, out));
        saved.done();
        context::within(self.algorithm.gradient_op(), || {
            drop(copied);
            drop(grad);
        });
        let mut all: Grads = smallvec![keep(0, dq), keep(1, dk), keep(2, dv)];
        if self.masked {
            all.push(dmask);
        }
        Ok(all)
    }
}
