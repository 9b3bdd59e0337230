//! `matmul` for any number of dimensions: chooses the product, and the operands that are copied for it.

use smallvec::SmallVec;

use super::matrices::{bmm, mm};
use crate::autograd::Tensor;
use crate::context;
use crate::error::{Error, Result};
use crate::layout::broadcast_dims;
use crate::ops::autocast::lower;
use crate::ops::shape::view::{expand, reshape, unsafe_view};

type Dims = SmallVec<[usize; 6]>;

/// `a @ b` over the last two dimensions, the others broadcast: `[.., m, k] @ [.., k, n]` gives `[.., m, n]`.
///
/// As in PyTorch: two matrices go to `mm`. A single matrix on the right is multiplied with all rows of `a` in one product, if the matrix
/// requires a gradient or the rows need no copy. Everything else goes to `bmm`, whose operands are *copied* if no view can merge their
/// leading dimensions (for example heads that were transposed). Backward keeps those copies.
///
/// # Errors
/// [`Error::Shape`] for fewer than two dimensions or shapes that do not fit; errors of the device.
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    matmul_of(a, b, b.requires_grad())
}

/// As [`matmul`], where `trained` says whether the matrix on the right requires a gradient: in PyTorch a view of a parameter does, without a graph too.
pub(super) fn matmul_of(a: &Tensor, b: &Tensor, trained: bool) -> Result<Tensor> {
    let misfit = || Error::shape("matmul", format!("{:?} @ {:?}", a.dims(), b.dims()));
    let ([lead_a @ .., m, k], [lead_b @ .., rows, n]) = (a.dims(), b.dims()) else { return Err(misfit()) };
    if rows != k {
        return Err(misfit());
    }
    let _op = context::op("matmul");
    let (b, a) = (&lower(b)?, &lower(a)?);
    if lead_a.is_empty() && lead_b.is_empty() {
        return mm(a, b);
    }
    if lead_b.is_empty() {
        let merged = [lead_a.iter().product::<usize>() * m, *k];
        if trained || a.array().layout().viewed(&merged).is_some() {
            let y = mm(&reshape(a, &merged)?, b)?;
            return unsafe_view(&y, &joined(lead_a, [*m, *n]));
        }
    }
    let batch = broadcast_dims(lead_a, lead_b).map_err(|_| misfit())?;
    let count = batch.iter().product();
    let (dims_a, dims_b) = (joined(&batch, [*m, *k]), joined(&batch, [*k, *n]));
    let y = bmm(&reshape(&expand(a, &dims_a)?, &[count, *m, *k])?, &reshape(&expand(b, &dims_b)?, &[count, *k, *n])?)?;
    unsafe_view(&y, &joined(&batch, [*m, *n]))
}

fn joined(batch: &[usize], matrix: [usize; 2]) -> Dims {
    batch.iter().copied().chain(matrix).collect()
}
