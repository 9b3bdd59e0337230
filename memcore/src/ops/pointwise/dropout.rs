//! Dropout.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, Dropout, DropoutGrad, UnaryOp};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Sets each element to 0 with probability `p`, and divides it by `1 − p` otherwise. Saves a mask of one byte per element, which is
/// allocated before the result. Both are laid out as `x`, without gaps. Outside training, and for `p` = 0, returns `x` itself.
///
/// # Errors
/// [`Error::Invalid`] for a probability outside `0..=1`; errors of the device.
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
    // The kernel goes through memory in its own order, whatever the order of the dimensions.
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

/// [`dropout`] in the memory of its input: `nn.Dropout(inplace=True)`. As in PyTorch it multiplies with noise, which it saves: a value of `x`'s type
/// for each element, where [`dropout`] saves a byte. Use only the returned tensor afterwards, not `x`.
///
/// # Errors
/// As [`dropout`], and [`Error::Invalid`] for a leaf that requires a gradient, and for a probability of 1.
pub fn dropout_(x: &Tensor, p: f64, training: bool) -> Result<Tensor> {
    if !(0.0..1.0).contains(&p) {
        return Err(Error::invalid("dropout_", format!("probability {p}")));
    }
    if !training || p == 0.0 {
        return Ok(x.clone());
    }
    let _op = context::op("dropout_");
    x.may_change_in_place("dropout_")?;
    let noise = context::within("empty_like", || x.array().empty_like())?;
    noise.uniform_(0.0, 1.0)?;
    // A step at `p`, so steep that no value lies on it: 0 below, 1 above.
    noise.unary_(UnaryOp::Affine { mul: STEEP, add: -p * STEEP })?;
    noise.unary_(UnaryOp::Clamp { min: 0.0, max: 1.0 })?;
    noise.unary_(UnaryOp::Affine { mul: 1.0 / (1.0 - p), add: 0.0 })?;
    x.array().binary_(BinaryOp::Mul, &noise)?;
    record(x.array().clone(), &[x], |saved| {
        saved.save("other", &noise)?;
        Ok(Box::new(NoiseBackward))
    })
}

/// Slope that is steeper than the spacing of 16-bit floats.
const STEEP: f64 = 1e30;

struct NoiseBackward;

impl Function for NoiseBackward {
    fn name(&self) -> &'static str {
        "MulBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let noise = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("mul");
        let out = grad.mul(&noise)?;
        drop(noise);
        saved.done();
        Ok(smallvec![Some(out)])
    }
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
