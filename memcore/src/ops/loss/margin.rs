//! Distances of pairs, and losses that want a margin between them. They are composed of several operators, as in PyTorch.

use crate::autograd::Tensor;
use crate::backend::kernel::Reduction;
use crate::context;
use crate::error::{Error, Result};
use crate::ops::pointwise::binary::{mul, sub};
use crate::ops::pointwise::unary::{add_scalar, clamp, neg};
use crate::ops::reduce::sums_and_extremes::{mean, norm_axes, sum};

/// The Euclidean norm of `a − b + eps` over the last axis.
///
/// # Errors
/// [`Error::Shape`] if they do not fit together or have no axis; errors of the device.
pub fn pairwise_distance(a: &Tensor, b: &Tensor, eps: f64, keepdim: bool) -> Result<Tensor> {
    let rank = a.rank().max(b.rank());
    if rank == 0 {
        return Err(Error::shape("pairwise_distance", "of two numbers".to_string()));
    }
    let _op = context::op("pairwise_distance");
    let moved = {
        let difference = sub(a, b)?;
        add_scalar(&difference, eps)?
    };
    norm_axes(&moved, &[rank - 1], keepdim)
}

/// `max(0, −target·(a − b) + margin)`, reduced: `a` should be larger where the target is 1, and smaller where it is −1.
///
/// # Errors
/// [`Error::Shape`] if they do not fit together; errors of the device.
pub fn margin_ranking_loss(
    a: &Tensor,
    b: &Tensor,
    target: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let _op = context::op("margin_ranking_loss");
    let losses = {
        let opposite = neg(target)?;
        let difference = sub(a, b)?;
        let product = mul(&opposite, &difference)?;
        add_scalar(&product, margin)?
    };
    reduced(losses, reduction)
}

/// `max(0, margin + |anchor − positive| − |anchor − negative|)` with [`pairwise_distance`], reduced.
///
/// # Errors
/// As [`pairwise_distance`].
pub fn triplet_margin_loss(
    [anchor, positive, negative]: [&Tensor; 3],
    margin: f64,
    eps: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let _op = context::op("triplet_margin_loss");
    let losses = {
        let near = pairwise_distance(anchor, positive, eps, false)?;
        let far = pairwise_distance(anchor, negative, eps, false)?;
        let wanted = add_scalar(&near, margin)?;
        sub(&wanted, &far)?
    };
    reduced(losses, reduction)
}

/// No loss below 0, reduced.
fn reduced(losses: Tensor, reduction: Reduction) -> Result<Tensor> {
    let bounded = clamp(&losses, 0.0, f64::INFINITY)?;
    drop(losses);
    match reduction {
        Reduction::None => Ok(bounded),
        Reduction::Sum => sum(&bounded),
        Reduction::Mean => mean(&bounded),
    }
}
