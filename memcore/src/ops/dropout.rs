//! Dropout.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{Dropout, DropoutGrad};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Each element is 0 with probability `p`, otherwise divided by `1 − p`. Saves a mask of one byte per element, which is allocated
/// before the result; both are laid out as `x`, without gaps. Outside training, and for `p` = 0, this is `x` itself.
///
/// # Errors
/// [`Error::Invalid`] for a probability outside `0..=1`; those of the device.
pub fn dropout(x: &Tensor, p: f64, training: bool) -> Result<Tensor> {
    if !(0.0..=1.0).contains(&p) {
        return Err(Error::invalid("dropout", format!("probability {p}")));
    }
    if !training || p == 0.0 {
        return Ok(x.clone());
    }
    let _outer = context::op("dropout");
    let op = context::op("native_dropout");
    let empty = |dtype| Array::empty_for(x.device(), x.dims(), &[x.array().layout()], dtype);
    let (mask, y) = (empty(DType::Bool)?, empty(x.dtype())?);
    let (seed, offset) = x.device().draw(x.numel());
    // The kernel goes through memory, in whatever order the dimensions lie there.
    let (kept, out) = (mask.in_memory_order()?, y.in_memory_order()?);
    let input = if x.array().layout().strides() == y.layout().strides() {
        x.array().in_memory_order()?
    } else {
        y.copy_(x.array())?;
        out.clone()
    };
    x.device().launch(Dropout { p, seed, offset, x: input.operand(), mask: kept.operand(), out: out.operand() })?;
    drop((input, kept, out));
    let y = record(y, &[x], |saved| {
        saved.save("mask", &mask)?;
        let scale = if p == 1.0 { 0.0 } else { 1.0 / (1.0 - p) };
        Ok(Box::new(NativeDropoutBackward { scale }))
    });
    drop(op);
    y
}

struct NativeDropoutBackward {
    scale: f64,
}

impl Function for NativeDropoutBackward {
    fn name(&self) -> &'static str {
        "NativeDropoutBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let mask = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("native_dropout_backward");
        let out = grad.empty_like()?;
        out.device().launch(DropoutGrad {
            scale: self.scale,
            grad: grad.operand(),
            mask: mask.operand(),
            out: out.operand(),
        })?;
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
