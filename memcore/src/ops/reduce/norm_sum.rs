//! The sum of absolute values: the norm of order 1. Values are computed on the host.

use smallvec::smallvec;

use super::sums_and_extremes::{check_axis, kept_dims};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::on_host;
use crate::ops::shape::view::Dims;

/// `Σ |x|` over `axes` (all axes if there are none), which stay with size 1 if `keepdim`. Saves input and result.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist, [`Error::Invalid`] for whole numbers; errors of the device.
pub fn norm_sum(x: &Tensor, axes: &[usize], keepdim: bool) -> Result<Tensor> {
    axes.iter().try_for_each(|&axis| check_axis("linalg_vector_norm", x, axis))?;
    if !x.dtype().is_float() {
        return Err(Error::invalid("linalg_vector_norm", format!("not defined for {}", x.dtype())));
    }
    let _op = context::op("linalg_vector_norm");
    let kept = kept_dims(x.dims(), axes);
    let is_kept = |axis: &usize| keepdim || !(axes.is_empty() || axes.contains(axis));
    let dims: Dims = (0..x.rank()).filter(is_kept).map(|axis| kept[axis]).collect();
    let y = Array::empty(x.device(), &dims, x.dtype())?;
    {
        let _scratch = x.array().scratch_of_partials(axes, x.dtype().accumulator().size() as usize)?;
        on_host::fill(&y, &[x.array()], |values| {
            Ok(on_host::group_sums(&values[0], x.dims(), &kept, |value, _| value.abs()))
        })?;
    }
    record(y.clone(), &[x], |saved| {
        saved.save("result", &y)?;
        saved.save("self", x.array())?;
        Ok(Box::new(NormBackward { kept }))
    })
}

struct NormBackward {
    kept: Dims,
}

impl Function for NormBackward {
    fn name(&self) -> &'static str {
        "LinalgVectorNormBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let x = saved.get(1)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let signs = context::within("sgn", || x.unary(UnaryOp::Sign))?;
        let out = context::within("mul", || signs.binary(BinaryOp::Mul, &grad.view(&self.kept)?))?;
        drop(signs);
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
