//! `linear`: a transpose, and one of the matrix products.

use smallvec::SmallVec;

use super::matmul::matmul_of;
use super::matrices::addmm;
use crate::autograd::{Tensor, is_watched};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::autocast::lower;
use crate::ops::pointwise::binary::{add, add_};
use crate::ops::shape::view::{reshape, t, view};

/// `x @ weightᵀ + bias` over the last dimension: `[.., in] → [.., out]` with a weight `[out, in]`.
///
/// As PyTorch: the weight is transposed by a view; with a bias, leading dimensions are flattened by a view for `addmm`; without one, [`matmul`](super::matmul()) chooses.
///
/// # Errors
/// [`Error::Shape`] if the sizes do not fit; errors of the device.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (Some((&inner, lead)), [out, expected]) = (x.dims().split_last(), weight.dims()) else {
        return Err(Error::shape("linear", format!("input {:?}, weight {:?}", x.dims(), weight.dims())));
    };
    if inner != *expected {
        let detail = format!("input {:?} ends in {inner}, the weight {:?} expects {expected}", x.dims(), weight.dims());
        return Err(Error::shape("linear", detail));
    }
    let _op = context::op("linear");
    let bias = bias.map(lower).transpose()?;
    let (weight, x) = (&lower(weight)?, &lower(x)?);
    let mut dims: SmallVec<[usize; 6]> = lead.into();
    dims.push(*out);
    let rows = lead.iter().product();
    let product = |x: &Tensor| matmul_of(x, &t(weight)?, weight.requires_grad());
    let Some(bias) = &bias else {
        if lead.is_empty() {
            return view(&product(&reshape(x, &[rows, inner])?)?, &dims);
        }
        return product(x);
    };
    // If the input is not contiguous, PyTorch makes the product by itself, then adds the bias to it: in place, unless a mode sees its operators.
    if x.rank() > 2 && !x.array().layout().is_contiguous() {
        let product = product(x)?;
        return if is_watched() { add(&product, bias) } else { add_(&product, bias) };
    }
    // The order of the two views decides which of their gradients the engine finishes first.
    let matrix = if x.rank() == 2 { x.clone() } else { reshape(x, &[rows, inner])? };
    let y = addmm(bias, &matrix, &t(weight)?)?;
    if x.rank() == 2 { Ok(y) } else { view(&y, &dims) }
}
