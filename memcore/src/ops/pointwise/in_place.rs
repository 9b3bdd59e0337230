//! Arithmetic in the memory of its first operand. Use only the returned tensor afterwards, not the operand.

use smallvec::smallvec;

use super::binary::{Like, change_in_place, divided_in_place, multiplied_in_place};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, UnaryOp};
use crate::context;
use crate::error::Result;
use crate::ops::shape::view::Dims;

/// `a *= b`, `b` broadcast to `a`. Saves `b`, and a copy of the former `a` if `b` requires a gradient.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if they do not fit together, [`Error::Invalid`](crate::Error::Invalid) for a leaf `a` that
/// requires a gradient; errors of the device.
pub fn mul_(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let _op = context::op("mul_");
    a.may_change_in_place("mul_")?;
    multiplied_in_place(a, b, || change_in_place(BinaryOp::Mul, a.array(), b.array()))
}

/// `a /= b`, `b` broadcast to `a`. Saves `b`, and a copy of the former `a` if `b` requires a gradient.
///
/// # Errors
/// As [`mul_`].
pub fn div_(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let _op = context::op("div_");
    a.may_change_in_place("div_")?;
    divided_in_place(a, b, || change_in_place(BinaryOp::Div, a.array(), b.array()))
}

/// `mul · x + add` in the memory of `x`. Saves nothing.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) for a leaf that requires a gradient; errors of the device.
pub fn affine_(x: &Tensor, mul: f64, add: f64) -> Result<Tensor> {
    let op = if mul == 1.0 { "add_" } else { "mul_" };
    let _op = context::op(op);
    x.may_change_in_place(op)?;
    x.array().unary_(UnaryOp::Affine { mul, add })?;
    record(x.array().clone(), &[x], |_| Ok(Box::new(AffineBackward { mul })))
}

struct AffineBackward {
    mul: f64,
}

impl Function for AffineBackward {
    fn name(&self) -> &'static str {
        if self.mul == 1.0 { "AddBackward0" } else { "MulBackward0" }
    }

    fn backward(&self, mut grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        if self.mul == 1.0 {
            return Ok(smallvec![Some(grad)]);
        }
        let _op = context::op("mul");
        Ok(smallvec![Some(grad.affine(self.mul, 0.0)?)])
    }
}

/// Fills `x` with `value`: `x.zero_()` if that is 0, else `x.fill_(value)`. Nothing of `x` reaches the result, so its gradient is zeros. Saves nothing.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) for a leaf that requires a gradient; errors of the device.
pub fn fill_(x: &Tensor, value: f64) -> Result<Tensor> {
    let op = if value == 0.0 { "zero_" } else { "fill_" };
    let _op = context::op(op);
    x.may_change_in_place(op)?;
    x.array().fill_(value)?;
    record(x.array().clone(), &[x], |_| Ok(Box::new(FillBackward { zeroed: value == 0.0 })))
}

struct FillBackward {
    zeroed: bool,
}

impl Function for FillBackward {
    fn name(&self) -> &'static str {
        if self.zeroed { "ZeroBackward0" } else { "FillBackward0" }
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        Ok(smallvec![Some(context::within("zeros_like", || grad.zeros_like())?)])
    }
}

/// Copies the values of `src`, broadcast to `a`, into the memory of `a`. Saves nothing.
///
/// # Errors
/// As [`mul_`].
pub fn copy_(a: &Tensor, src: &Tensor) -> Result<Tensor> {
    let _op = context::op("copy_");
    a.may_change_in_place("copy_")?;
    a.array().copy_(&src.array().broadcast_to(a.dims())?)?;
    let like = Like::from_tensor(src);
    record(a.array().clone(), &[a, src], |_| Ok(Box::new(CopyBackwards { dims: a.dims().into(), src: [like] })))
}

struct CopyBackwards {
    dims: Dims,
    src: [Like; 1],
}

impl Function for CopyBackwards {
    fn name(&self) -> &'static str {
        "CopyBackwards"
    }

    /// The overwritten tensor gets zeros, and the copied one the whole gradient.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        if needs.input(0) {
            let zeros = || Array::zeros(grad.device(), &self.dims, grad.dtype());
            out[0] = Some(context::within("zeros_like", zeros)?);
        }
        if needs.input(1) {
            let mut src: Grads = smallvec![Some(grad.clone())];
            saved.done();
            super::binary::unbroadcast(&mut src, &self.src)?;
            out[1] = src.pop().flatten();
        }
        Ok(out)
    }
}
