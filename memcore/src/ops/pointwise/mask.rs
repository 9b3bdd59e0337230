//! Chooses elements by a mask, or by their place in a matrix.

use smallvec::smallvec;

use super::binary::{Like, unbroadcast};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record, record_inputs};
use crate::backend::kernel::Triangle;
use crate::context;
use crate::error::{Error, Result};

/// `value` where `mask` is set, `x` elsewhere; the mask is broadcast to `x`. Saves the mask.
///
/// # Errors
/// [`Error::Shape`] if the mask does not fit; errors of the device.
pub fn masked_fill(x: &Tensor, mask: &Tensor, value: f64) -> Result<Tensor> {
    let _op = context::op("masked_fill>clone");
    let describe = |saved: &mut Recorder| {
        saved.save("mask", mask.array())?;
        Ok::<Box<dyn Function>, Error>(Box::new(MaskedFillBackward))
    };
    record_inputs(&[x], describe, || x.array().masked_fill(mask.array(), value))
}

/// [`masked_fill`] in the memory of `x`. Use only the returned tensor afterwards, not `x`.
///
/// # Errors
/// As [`masked_fill`], and [`Error::Invalid`] for a leaf that requires a gradient.
pub fn masked_fill_(x: &Tensor, mask: &Tensor, value: f64) -> Result<Tensor> {
    x.may_change_in_place("masked_fill_")?;
    x.array().masked_fill_(mask.array(), value)?;
    record(x.array().clone(), &[x], |saved| {
        saved.save("mask", mask.array())?;
        Ok(Box::new(MaskedFillBackward))
    })
}

struct MaskedFillBackward;

impl Function for MaskedFillBackward {
    fn name(&self) -> &'static str {
        "MaskedFillBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let mask = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("masked_fill>clone");
        let out = grad.masked_fill(&mask, 0.0)?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}

/// `a` where `condition` is set, `b` elsewhere, all broadcast against each other. An operand of another type than the result's is converted first.
/// Saves the condition.
///
/// # Errors
/// [`Error::Shape`] if they do not fit together, [`Error::DType`] for types without a common type; errors of the device.
pub fn where_(condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let _op = context::op("where");
    let compute = || {
        let dtype = a.array().result_type("where", b.array())?;
        let converted = |x: &Tensor| context::within("to>_to_copy", || x.array().cast(dtype));
        let (a, b) = (converted(a)?, converted(b)?);
        context::within("resize_", || a.select_by(condition.array(), &b))
    };
    let describe = |saved: &mut Recorder| {
        saved.save("condition", condition.array())?;
        Ok::<Box<dyn Function>, Error>(Box::new(WhereBackward {
            operands: [Like::from_tensor(a), Like::from_tensor(b)],
        }))
    };
    record_inputs(&[a, b], describe, compute)
}

struct WhereBackward {
    operands: [Like; 2],
}

impl Function for WhereBackward {
    fn name(&self) -> &'static str {
        "WhereBackward0"
    }

    /// Each operand gets the gradient where it was chosen, and a scalar 0 elsewhere. The second operand's gradient is made first, as in
    /// PyTorch.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let condition = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        for i in [1, 0] {
            if needs.input(i) {
                let _op = context::op("where");
                let zero = context::within("scalar_tensor", || Array::zeros(grad.device(), &[], grad.dtype()))?;
                let (chosen, other) = if i == 0 { (grad, &zero) } else { (&zero, grad) };
                out[i] = Some(context::within("resize_", || chosen.select_by(&condition, other))?);
            }
        }
        saved.done();
        unbroadcast(&mut out, &self.operands)?;
        Ok(out)
    }
}

/// The upper triangle of each matrix in the last two dimensions, from `diagonal` (0: the main one, positive: to its right) on; 0 below. Saves
/// nothing.
///
/// # Errors
/// [`Error::Shape`] for fewer than two dimensions; errors of the device.
pub fn triu(x: &Tensor, diagonal: i64) -> Result<Tensor> {
    triangle(x, true, diagonal)
}

/// The lower triangle of each matrix in the last two dimensions, up to `diagonal`; 0 above. Saves nothing.
pub fn tril(x: &Tensor, diagonal: i64) -> Result<Tensor> {
    triangle(x, false, diagonal)
}

fn triangle(x: &Tensor, upper: bool, diagonal: i64) -> Result<Tensor> {
    let op = if upper { "triu" } else { "tril" };
    if x.rank() < 2 {
        return Err(Error::shape(op, format!("{:?} has no last two dimensions", x.dims())));
    }
    let _op = context::op(op);
    let y = keep_triangle(x.array(), upper, diagonal)?;
    record(y, &[x], |_| Ok(Box::new(TriangleBackward { upper, diagonal })))
}

fn keep_triangle(x: &Array, upper: bool, diagonal: i64) -> Result<Array> {
    let out = x.empty_like()?;
    out.device().launch(Triangle { upper, diagonal, x: x.operand(), out: out.operand() })?;
    Ok(out)
}

struct TriangleBackward {
    upper: bool,
    diagonal: i64,
}

impl Function for TriangleBackward {
    fn name(&self) -> &'static str {
        if self.upper { "TriuBackward0" } else { "TrilBackward0" }
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op(if self.upper { "triu" } else { "tril" });
        Ok(smallvec![Some(keep_triangle(grad, self.upper, self.diagonal)?)])
    }
}
