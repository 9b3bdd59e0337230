//! How near distributions and directions are: Kullback–Leibler divergence and cosine similarity.

use super::regression::check_same;
use crate::array::Array;
use crate::autograd::{Tensor, autocast_dtype};
use crate::backend::kernel::{Reduction, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::layout::broadcast_dims;
use crate::ops::on_host;
use crate::ops::pointwise::binary::{div, mul, sub};
use crate::ops::pointwise::unary::exp;
use crate::ops::reduce::sums_and_extremes::{mean, norm_axes, sum, sum_axes};
use crate::ops::shape::view::{clone, expand};

/// `t·(ln t − x)` of log-probabilities and targets of the same sizes, reduced; the targets are probabilities, or their logarithms if `log_target`. It is
/// composed of several operators, as in PyTorch. The logarithms of targets are computed on the host.
///
/// # Errors
/// [`Error::Shape`] if the shapes differ; [`Error::Invalid`] under autocast, and for targets as probabilities that require a gradient, which are not
/// supported; errors of the device.
pub fn kl_div(x: &Tensor, target: &Tensor, reduction: Reduction, log_target: bool) -> Result<Tensor> {
    const OP: &str = "kl_div";
    check_same(OP, x, target)?;
    if autocast_dtype().is_some() || (target.requires_grad() && !log_target) {
        return Err(Error::invalid(OP, "under autocast, or of a target of probabilities that wants a gradient"));
    }
    let _op = context::op(OP);
    let losses = if log_target {
        let difference = sub(target, x)?;
        mul(&exp(target)?, &difference)?
    } else {
        let product = mul(target, x)?;
        sub(&negative_entropy(target)?, &product)?
    };
    match reduction {
        Reduction::None => Ok(losses),
        Reduction::Sum => sum(&losses),
        Reduction::Mean => mean(&losses),
    }
}

/// `t·ln t`, 0 where `t` is 0.
fn negative_entropy(target: &Tensor) -> Result<Tensor> {
    let y = context::within("xlogy", || {
        Array::empty_for(target.device(), target.dims(), &[target.array().layout()], target.dtype())
    })?;
    on_host::fill(&y, &[target.array()], |values| {
        Ok(values[0].iter().map(|&t| if t == 0.0 { 0.0 } else { t * t.ln() }).collect())
    })?;
    Ok(Tensor::from_array(y))
}

/// `Σ a·b / (‖a‖·‖b‖)` over `axis`, both broadcast against each other; no norm counts less than `eps`. It is composed of several operators, as in
/// PyTorch.
///
/// # Errors
/// [`Error::Shape`] if they do not fit together, or for an axis that does not exist; [`Error::Invalid`] for other types than floats; errors of the device.
pub fn cosine_similarity(a: &Tensor, b: &Tensor, axis: usize, eps: f64) -> Result<Tensor> {
    const OP: &str = "cosine_similarity";
    if a.dtype() != b.dtype() || !a.dtype().is_float() || autocast_dtype().is_some() {
        return Err(Error::invalid(OP, format!("of {} and {}, or under autocast", a.dtype(), b.dtype())));
    }
    let dims = broadcast_dims(a.dims(), b.dims())?;
    let _op = context::op(OP);
    let wide = |x: &Tensor| if x.dims() == &dims[..] { Ok(x.clone()) } else { expand(x, &dims) };
    let (a, b) = (&wide(a)?, &wide(b)?);
    // The copies are clamped without a history: below `eps` the gradient is that of a norm.
    let length = |x: &Tensor| clone(&norm_axes(x, &[axis], true)?);
    let (of_a, of_b) = (length(a)?, length(b)?);
    let bound = context::within("scalar_tensor", || Array::full(a.device(), &[], a.dtype(), eps))?;
    for norm in [&of_a, &of_b] {
        norm.array().unary_(UnaryOp::Clamp { min: eps, max: f64::INFINITY })?;
    }
    let (b, a) = (div(b, &of_b)?, div(a, &of_a)?);
    let product = mul(&a, &b)?;
    let y = sum_axes(&product, &[axis], false)?;
    drop(product);
    drop((a, b));
    drop(bound);
    Ok(y)
}
