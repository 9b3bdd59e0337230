//! What layers consist of: products, normalisation, activations, attention, tables, dropout.

use memcore::ops::{self, AttentionOptions, BatchNormOptions, RunningStats};
use memcore::{Result, Tensor, context};

use super::super::call::{Call, Sizes};
use super::super::value::Made;
use super::host;
use super::table::Table;

pub(super) const TABLE: Table = &[
    ("linear.default", linear),
    ("matmul.default", matmul),
    ("mm.default", |c| Ok(Made::tensor(ops::mm(c.tensor("self")?, c.tensor("mat2")?)?))),
    ("bmm.default", |c| Ok(Made::tensor(ops::bmm(c.tensor("self")?, c.tensor("mat2")?)?))),
    ("addmm.default", addmm),
    ("baddbmm.default", |c| {
        let (a, b) = (c.tensor("batch1")?, c.tensor("batch2")?);
        let (beta, alpha) = (c.float_or("beta", 1.0)?, c.float_or("alpha", 1.0)?);
        of_one(c, |x| ops::baddbmm(x, a, b, beta, alpha))
    }),
    ("mv.default", |c| of_one(c, |a| ops::mv(a, c.tensor("vec")?))),
    ("dot.default", |c| of_one(c, |a| ops::dot(a, c.tensor("tensor")?))),
    ("vdot.default", |c| of_one(c, |a| ops::dot(a, c.tensor("other")?))),
    ("outer.default", |c| of_one(c, |a| ops::mul(&ops::unsqueeze(a, 1)?, c.tensor("vec2")?))),
    ("einsum.default", |c| {
        let equation = c.text("equation")?.ok_or_else(|| c.error("without an equation"))?;
        let path = if c.arg("path").is_some() { c.sizes("path")? } else { Sizes::new() };
        Ok(Made::tensor(ops::einsum_along(equation, &c.tensors("tensors")?, &path)?))
    }),
    ("embedding.default", embedding),
    ("dropout.default", |c| {
        Ok(Made::tensor(ops::dropout(c.tensor("input")?, c.float("p")?, c.flag("train", false)?)?))
    }),
    ("dropout_.default", |c| {
        Ok(Made::tensor(ops::dropout_(c.tensor("self")?, c.float("p")?, c.flag("train", false)?)?))
    }),
    ("feature_dropout.default", feature_dropout),
    ("alpha_dropout.default", alpha_dropout),
    ("batch_norm.default", batch_norm),
    ("layer_norm.default", layer_norm),
    ("group_norm.default", group_norm),
    ("instance_norm.default", instance_norm),
    ("rms_norm.default", rms_norm),
    ("scaled_dot_product_attention.default", attention),
    ("softmax.int", softmax),
    ("log_softmax.int", log_softmax),
    ("relu.default", |c| of_one(c, ops::relu)),
    ("relu_.default", |c| of_one(c, ops::relu_)),
    ("relu6.default", |c| of_one(c, ops::relu6)),
    ("relu6_.default", |c| of_one(c, ops::relu6_)),
    ("gelu.default", gelu),
    ("silu.default", |c| of_one(c, ops::silu)),
    ("silu_.default", |c| of_one(c, ops::silu_)),
    ("mish.default", |c| of_one(c, ops::mish)),
    ("sigmoid.default", |c| of_one(c, ops::sigmoid)),
    ("log_sigmoid.default", |c| of_one(c, ops::log_sigmoid)),
    ("tanh.default", |c| of_one(c, ops::tanh)),
    ("hardswish.default", |c| of_one(c, ops::hardswish)),
    ("hardswish_.default", |c| of_one(c, ops::hardswish_)),
    ("mish_.default", |c| of_one(c, ops::mish_)),
    ("hardsigmoid_.default", |c| of_one(c, ops::hardsigmoid_)),
    ("hardsigmoid.default", |c| of_one(c, ops::hardsigmoid)),
    ("hardtanh.default", |c| {
        let (min, max) = (c.float_or("min_val", -1.0)?, c.float_or("max_val", 1.0)?);
        of_one(c, |x| ops::hardtanh(x, min, max))
    }),
    ("hardtanh_.default", |c| {
        let (min, max) = (c.float_or("min_val", -1.0)?, c.float_or("max_val", 1.0)?);
        of_one(c, |x| ops::hardtanh_(x, min, max))
    }),
    ("leaky_relu.default", |c| {
        let slope = c.float_or("negative_slope", 0.01)?;
        of_one(c, |x| ops::leaky_relu(x, slope))
    }),
    ("leaky_relu_.default", |c| {
        let slope = c.float_or("negative_slope", 0.01)?;
        of_one(c, |x| ops::leaky_relu_(x, slope))
    }),
    ("glu.default", |c| of_one(c, |x| ops::glu(x, c.axis("dim", -1, x)?))),
    ("threshold.default", |c| {
        let (threshold, value) = (c.float("threshold")?, c.float("value")?);
        of_one(c, |x| ops::threshold(x, threshold, value))
    }),
    ("hardshrink.default", |c| {
        let bound = c.float_or("lambd", 0.5)?;
        of_one(c, |x| ops::hardshrink(x, bound))
    }),
    ("softshrink.default", |c| {
        let bound = c.float_or("lambd", 0.5)?;
        of_one(c, |x| ops::softshrink(x, bound))
    }),
    ("elu.default", elu),
    ("elu_.default", |c| {
        let (alpha, scale) = (c.float_or("alpha", 1.0)?, c.float_or("scale", 1.0)?);
        let input_scale = c.float_or("input_scale", 1.0)?;
        of_one(c, |x| ops::elu_scaled_(x, "elu_", alpha, scale, input_scale))
    }),
    ("selu_.default", |c| of_one(c, |x| ops::elu_scaled_(x, "selu_", SELU[0], SELU[1], 1.0))),
    ("celu_.default", |c| {
        let alpha = c.float_or("alpha", 1.0)?;
        of_one(c, |x| ops::elu_scaled_(x, "celu_", alpha, 1.0, 1.0 / alpha))
    }),
    ("selu.default", |c| of_one(c, |x| ops::elu_scaled(x, "selu", SELU[0], SELU[1], 1.0))),
    ("celu.default", |c| {
        let alpha = c.float_or("alpha", 1.0)?;
        of_one(c, |x| ops::elu_scaled(x, "celu", alpha, 1.0, 1.0 / alpha))
    }),
    ("prelu.default", |c| Ok(Made::tensor(ops::prelu(c.tensor("self")?, c.tensor("weight")?)?))),
    ("softplus.default", softplus),
    ("_weight_norm.default", |c| {
        let (v, g) = (c.tensor("v")?, c.tensor("g")?);
        Ok(Made::tensor(ops::weight_norm(v, g, c.axis("dim", 0, v)?)?))
    }),
];

/// Of the argument `self` alone.
pub(super) fn of_one(c: &Call<'_>, function: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Made> {
    Ok(Made::tensor(function(c.tensor("self")?)?))
}

fn linear(c: &Call<'_>) -> Result<Made> {
    let (x, bias) = (c.tensor("input")?, c.maybe_tensor("bias")?);
    Ok(Made::tensor(match c.adapted("weight") {
        Some(weight) => weight.forward(x, bias)?,
        None => ops::linear(x, c.tensor("weight")?, bias)?,
    }))
}

/// Multiplies vectors and matrices as PyTorch does, each with the operator for their dimensions.
fn matmul(c: &Call<'_>) -> Result<Made> {
    let (a, b) = (c.tensor("self")?, c.tensor("other")?);
    let of_vector: fn(&Tensor, &Tensor) -> Result<Tensor> = match (a.rank(), b.rank()) {
        (1, 1) => ops::dot,
        (2, 1) => ops::mv,
        _ => return Ok(Made::tensor(ops::matmul(a, b)?)),
    };
    let _op = context::op("matmul");
    Ok(Made::tensor(of_vector(a, b)?))
}

fn addmm(c: &Call<'_>) -> Result<Made> {
    if (c.float_or("beta", 1.0)?, c.float_or("alpha", 1.0)?) != (1.0, 1.0) {
        return Err(c.error("factors (alpha, beta) are not supported"));
    }
    let (bias, a, b) = (c.tensor("self")?, c.tensor("mat1")?, c.tensor("mat2")?);
    Ok(Made::tensor(ops::addmm(bias, a, b)?))
}

fn embedding(c: &Call<'_>) -> Result<Made> {
    c.not_set("scale_grad_by_freq")?;
    c.not_set("sparse")?;
    let padding = usize::try_from(c.int_or("padding_idx", -1)?).ok();
    Ok(Made::tensor(ops::embedding(c.tensor("indices")?, c.tensor("weight")?, padding)?))
}

/// Drops whole channels: a factor for each channel of each sample, 0 or what makes up for the dropped ones.
fn feature_dropout(c: &Call<'_>) -> Result<Made> {
    let (x, p) = (c.tensor("input")?, c.float("p")?);
    if !c.flag("train", false)? || p == 0.0 {
        return Ok(Made::tensor(x.clone()));
    }
    if !(0.0..1.0).contains(&p) || x.rank() < 2 {
        return Err(c.error(format!("p={p} of {:?} is not supported", x.dims())));
    }
    let dims: Vec<usize> = x.dims().iter().enumerate().map(|(i, &size)| if i < 2 { size } else { 1 }).collect();
    let count = dims.iter().product();
    let _op = context::op("feature_dropout");
    let factors = host::uniform(c.device, count).map(|value| if value < p { 0.0 } else { 1.0 / (1.0 - p) });
    let noise = host::made(c.device, "new_empty", &dims, x.dtype(), || Ok(factors.take(count).collect()))?;
    Ok(Made::tensor(ops::mul(x, &noise)?))
}

/// Drops elements to the value that SELU saturates at, then scales and moves all of them so that mean and variance stay (Klambauer and others, 2017).
fn alpha_dropout(c: &Call<'_>) -> Result<Made> {
    let (x, p) = (c.tensor("input")?, c.float("p")?);
    if !c.flag("train", false)? || p == 0.0 || x.numel() == 0 {
        return Ok(Made::tensor(x.clone()));
    }
    if !(0.0..1.0).contains(&p) {
        return Err(c.error(format!("p={p} is not supported")));
    }
    let saturated = SELU[0] * SELU[1];
    let scale = 1.0 / ((saturated * saturated * p + 1.0) * (1.0 - p)).sqrt();
    let count = x.numel();
    let _op = context::op("alpha_dropout");
    let factors = host::uniform(c.device, count).map(|value| if value < p { 0.0 } else { scale });
    let noise = host::made(c.device, "empty_like", x.dims(), x.dtype(), || Ok(factors.take(count).collect()))?;
    let moved =
        host::map(&noise, "add", x.dtype(), |kept| saturated * scale * (p - if kept == 0.0 { 1.0 } else { 0.0 }))?;
    let y = ops::mul(x, &noise)?;
    Ok(Made::tensor(ops::add_(&y, &moved)?))
}

fn batch_norm(c: &Call<'_>) -> Result<Made> {
    c.ignore(&["cudnn_enabled"]);
    let options =
        BatchNormOptions { training: c.flag("training", false)?, momentum: c.float("momentum")?, eps: c.float("eps")? };
    let (mean, var) = (c.maybe_tensor("running_mean")?, c.maybe_tensor("running_var")?);
    let running = mean.zip(var).map(|(mean, var)| RunningStats { mean: mean.array(), var: var.array() });
    let x = c.tensor("input")?;
    Ok(Made::tensor(ops::batch_norm(x, c.maybe_tensor("weight")?, c.maybe_tensor("bias")?, running, options)?))
}

fn layer_norm(c: &Call<'_>) -> Result<Made> {
    c.ignore(&["cudnn_enable"]);
    let (weight, bias) = (c.maybe_tensor("weight")?, c.maybe_tensor("bias")?);
    let sizes = c.sizes("normalized_shape")?;
    Ok(Made::tensor(ops::layer_norm(c.tensor("input")?, &sizes, weight, bias, c.float_or("eps", 1e-5)?)?))
}

fn group_norm(c: &Call<'_>) -> Result<Made> {
    c.ignore(&["cudnn_enabled"]);
    let groups = usize::try_from(c.int("num_groups")?).map_err(|_| c.error("a negative number of groups"))?;
    let (weight, bias) = (c.maybe_tensor("weight")?, c.maybe_tensor("bias")?);
    Ok(Made::tensor(ops::group_norm(c.tensor("input")?, groups, weight, bias, c.float_or("eps", 1e-5)?)?))
}

fn instance_norm(c: &Call<'_>) -> Result<Made> {
    c.ignore(&["cudnn_enabled", "momentum"]);
    if c.maybe_tensor("running_mean")?.is_some() || c.maybe_tensor("running_var")?.is_some() {
        return Err(c.error("with running statistics is not supported"));
    }
    if !c.flag("use_input_stats", true)? {
        return Err(c.error("without the input's own statistics is not supported"));
    }
    let (weight, bias) = (c.maybe_tensor("weight")?, c.maybe_tensor("bias")?);
    Ok(Made::tensor(ops::instance_norm(c.tensor("input")?, weight, bias, c.float_or("eps", 1e-5)?)?))
}

fn rms_norm(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("input")?;
    // Unless said, PyTorch adds the smallest step of the type.
    let smallest = if x.dtype() == memcore::DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let eps = c.float_or("eps", smallest)?;
    Ok(Made::tensor(ops::rms_norm(x, &c.sizes("normalized_shape")?, c.maybe_tensor("weight")?, eps)?))
}

fn attention(c: &Call<'_>) -> Result<Made> {
    let (q, k, v) = (c.tensor("query")?, c.tensor("key")?, c.tensor("value")?);
    let grouped = c.flag("enable_gqa", false)?;
    if !grouped && q.rank() == 4 && k.rank() == 4 && q.dims()[1] != k.dims()[1] {
        return Err(c.error(format!("queries {:?} and keys {:?} without enable_gqa", q.dims(), k.dims())));
    }
    let options = AttentionOptions {
        scale: c.arg("scale").map(|_| c.float("scale")).transpose()?,
        causal: c.flag("is_causal", false)?,
        dropout: c.float_or("dropout_p", 0.0)?,
    };
    Ok(Made::tensor(ops::scaled_dot_product_attention(q, k, v, c.maybe_tensor("attn_mask")?, options)?))
}

fn softmax(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    let axis = c.axis("dim", 0, x)?;
    Ok(Made::tensor(match c.dtype("dtype")? {
        Some(dtype) => ops::softmax_as(x, axis, dtype)?,
        None => ops::softmax(x, axis)?,
    }))
}

fn log_softmax(c: &Call<'_>) -> Result<Made> {
    let x = c.tensor("self")?;
    let axis = c.axis("dim", 0, x)?;
    Ok(Made::tensor(match c.dtype("dtype")? {
        Some(dtype) => ops::log_softmax_as(x, axis, dtype)?,
        None => ops::log_softmax(x, axis)?,
    }))
}

fn gelu(c: &Call<'_>) -> Result<Made> {
    match c.text("approximate")?.unwrap_or("none") {
        "none" => of_one(c, ops::gelu),
        "tanh" => of_one(c, ops::gelu_tanh),
        other => Err(c.error(format!("approximate={other:?}"))),
    }
}

/// What SELU multiplies the exponential and everything with (Klambauer and others, 2017), as PyTorch has it.
const SELU: [f64; 2] = [1.673_263_242_354_377_2, 1.050_700_987_355_480_5];

fn elu(c: &Call<'_>) -> Result<Made> {
    let (scale, input_scale) = (c.float_or("scale", 1.0)?, c.float_or("input_scale", 1.0)?);
    let alpha = c.float_or("alpha", 1.0)?;
    if (scale, input_scale) == (1.0, 1.0) {
        return of_one(c, |x| ops::elu(x, alpha));
    }
    of_one(c, |x| ops::elu_scaled(x, "elu", alpha, scale, input_scale))
}

fn softplus(c: &Call<'_>) -> Result<Made> {
    let (beta, threshold) = (c.float_or("beta", 1.0)?, c.float_or("threshold", 20.0)?);
    if (beta, threshold) == (1.0, 20.0) {
        of_one(c, ops::softplus)
    } else {
        of_one(c, |x| ops::softplus_scaled(x, beta, threshold))
    }
}
