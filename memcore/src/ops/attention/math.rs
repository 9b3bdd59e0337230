//! Attention as PyTorch writes it out if none of its fused kernels applies: its *math* algorithm.

use crate::array::Array;
use crate::autograd::{Autocast, Tensor, is_watched};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::norm::softmax::safe_softmax;
use crate::ops::pointwise::binary::add;
use crate::ops::pointwise::cast::cast;
use crate::ops::pointwise::dropout::dropout;
use crate::ops::pointwise::unary::mul_by_scalar;
use crate::ops::products::matmul::matmul;
use crate::ops::shape::view::{clone, expand, transpose, unsqueeze, view};

/// `dropout(softmax(q·√s @ (k·√s)ᵀ + bias)) @ v`, with keys and values repeated for each group of query heads. `[b, h, t, d]` and `[b, hk, s, d]`
/// give `[b, h, t, dv]`. `bias` broadcasts to `[b, h, t, s]` and excludes `causal`; `p` is the probability of dropping a weight.
///
/// # Errors
/// Shapes that do not fit; errors of the device.
pub(in crate::ops) fn attention_math(
    [q, k, v]: [&Tensor; 3],
    bias: Option<&Tensor>,
    scale: f64,
    causal: bool,
    p: f64,
) -> Result<Tensor> {
    let op = context::op("scaled_dot_product_attention>_scaled_dot_product_attention_math");
    // Autocast has already chosen the type of the whole operator.
    let _chosen = Autocast::enter(None);
    // 16-bit types are computed in f32.
    let (dtype, compute) = (q.dtype(), q.dtype().accumulator());
    let wide = [cast(q, compute)?, cast(k, compute)?, cast(v, compute)?];
    let [q, k, v] = wide.each_ref();
    let groups = q.dims()[1] / k.dims()[1].max(1);
    let root = scale.sqrt();
    let q = mul_by_scalar(q, root)?;
    let triangle = if causal { Some(Tensor::from_array(causal_bias(q.array(), k.dims()[2])?)) } else { None };
    let bias = triangle.as_ref().or(bias);
    let (k, v) = (repeat_interleave(k, groups)?, repeat_interleave(v, groups)?);
    let scores = {
        let k_t = mul_by_scalar(&transpose(&k, 2, 3)?, root)?;
        matmul(&q, &k_t)?
    };
    // Where a mode sees the operators, the bias is not added in place.
    let (scores, bias) = match bias {
        Some(bias) if is_watched() => {
            let summed = add(&scores, bias)?;
            drop(scores);
            (summed, None)
        }
        bias => (scores, bias),
    };
    let weights = safe_softmax(&scores, bias)?;
    drop(scores);
    let dropped = dropout(&weights, p, true)?;
    drop(weights);
    // Weights and result are both returned, in the type of the operands.
    let returned = cast(&dropped, dtype)?;
    let y = cast(&matmul(&dropped, &v)?, dtype)?;
    drop(dropped);
    drop((k, v));
    drop(q);
    drop(triangle);
    let [q, k, v] = wide;
    drop(v);
    drop(k);
    drop(q);
    drop(op);
    context::within("scaled_dot_product_attention", || drop(returned));
    Ok(y)
}

/// Makes the causal bias `[t, s]` from a triangle of bools: 0 where position `i` sees key `j ≤ i`, −∞ elsewhere.
fn causal_bias(q: &Array, s: usize) -> Result<Array> {
    let (device, t) = (q.device(), q.dims()[2]);
    let seen = {
        let _ones = context::within("ones", || Array::empty(device, &[t, s], DType::Bool))?;
        context::within("tril", || Array::empty(device, &[t, s], DType::Bool))?
    };
    if device.computes() {
        seen.write(&(0..t * s).map(|i| u8::from(i % s <= i / s)).collect::<Vec<u8>>())?;
    }
    // The two values between which the triangle chooses.
    let scalar = |value| context::within("scalar_tensor", || Array::full(device, &[], q.dtype(), value));
    let (_hidden, open) = (scalar(f64::NEG_INFINITY)?, scalar(0.0)?);
    let bias = context::within("where>resize_", || Array::full(device, &[t, s], q.dtype(), f64::NEG_INFINITY))?;
    bias.masked_fill_(&seen, 0.0)?;
    context::within("where", || drop(open));
    Ok(bias)
}

/// Repeats each head `times` times in a row, as a copy unless `times` is 1.
fn repeat_interleave(x: &Tensor, times: usize) -> Result<Tensor> {
    let [b, h, s, d] = *x.dims() else {
        return Err(Error::shape("repeat_interleave", format!("{:?}: expected four dimensions", x.dims())));
    };
    if times == 1 {
        return Ok(x.clone());
    }
    let spread = expand(&unsqueeze(x, 2)?, &[b, h, times, s, d])?;
    view(&clone(&spread)?, &[b, h * times, s, d])
}
