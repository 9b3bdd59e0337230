//! Types that operators choose under [autocast](crate::autograd::Autocast).

use crate::autograd::{Edge, Tensor, autocast_dtype, cache_cast, cached_cast};
use crate::dtype::DType;
use crate::error::Result;

/// Prepares an operand of a product: in the lower type under autocast, otherwise unchanged. A leaf in float32 is cast only once.
pub(super) fn lower(x: &Tensor) -> Result<Tensor> {
    let Some(dtype) = autocast_dtype().filter(|&dtype| casts(x.dtype(), dtype)) else { return Ok(x.clone()) };
    let leaf = match x.edge() {
        Some(Edge::Leaf(leaf)) if x.dtype() == DType::F32 && leaf.is_original() => leaf,
        _ => return super::pointwise::cast::cast(x, dtype),
    };
    if let Some(cast) = cached_cast(leaf, dtype) {
        return Ok(cast);
    }
    let cast = super::pointwise::cast::cast(x, dtype)?;
    cache_cast(leaf, &cast);
    Ok(cast)
}

/// Prepares an operand of an operator that computes in float32 under autocast.
pub(super) fn full(x: &Tensor) -> Result<Tensor> {
    super::pointwise::cast::cast(x, full_type(x.dtype()))
}

/// Type in which such an operator computes, for an operand of type `dtype`.
pub(super) fn full_type(dtype: DType) -> DType {
    if autocast_dtype().is_some() && casts(dtype, DType::F32) { DType::F32 } else { dtype }
}

/// True if autocast converts `from` into `to`: it does not touch integers and float64.
pub(super) fn casts(from: DType, to: DType) -> bool {
    from != to && matches!(from, DType::F32 | DType::F16 | DType::BF16)
}
