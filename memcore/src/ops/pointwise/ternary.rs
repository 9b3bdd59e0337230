//! Two or three tensors in one: products that are added, and what lies between two tensors.

use smallvec::smallvec;

use super::binary::{Like, unbroadcast};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record, record_inputs};
use crate::backend::kernel::{BinaryOp, TernaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::layout::broadcast_dims;

/// `x + value·a·b`, all broadcast against each other. Saves each factor if the other one requires a gradient.
///
/// # Errors
/// [`Error::Shape`] if they do not fit together; errors of the device.
pub fn addcmul(x: &Tensor, a: &Tensor, b: &Tensor, value: f64) -> Result<Tensor> {
    let dims = broadcast_dims(&broadcast_dims(x.dims(), a.dims())?, b.dims())?;
    let _op = context::op("addcmul");
    let describe = |saved: &mut Recorder| {
        if b.requires_grad() {
            saved.save("tensor1", a.array())?;
        }
        if a.requires_grad() {
            saved.save("tensor2", b.array())?;
        }
        let operands = [Like::from_tensor(x), Like::from_tensor(a), Like::from_tensor(b)];
        Ok::<Box<dyn Function>, Error>(Box::new(AddcmulBackward { value, of_first: b.requires_grad(), operands }))
    };
    record_inputs(&[x, a, b], describe, || {
        Array::ternary(TernaryOp::Addcmul { value }, x.array(), a.array(), b.array(), &dims)
    })
}

struct AddcmulBackward {
    value: f64,
    /// True if the first factor was saved, because the second one requires a gradient.
    of_first: bool,
    operands: [Like; 3],
}

impl Function for AddcmulBackward {
    fn name(&self) -> &'static str {
        "AddcmulBackward0"
    }

    /// The factors' gradients are made first: `grad·(other·value)`.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None, None];
        let product = |other: &Array| {
            let scaled = context::within("mul", || other.affine(self.value, 0.0))?;
            context::within("mul", || grad.binary(BinaryOp::Mul, &scaled))
        };
        if needs.input(1) {
            out[1] = Some(product(&saved.get(usize::from(self.of_first))?)?);
        }
        if needs.input(2) {
            out[2] = Some(product(&saved.get(0)?)?);
        }
        if needs.input(0) {
            out[0] = Some(grad.clone());
        }
        saved.done();
        unbroadcast(&mut out, &self.operands)?;
        Ok(out)
    }
}

/// `a + weight·(b − a)`, both broadcast against each other. Saves nothing.
///
/// # Errors
/// [`Error::Shape`] if they do not fit together; errors of the device.
pub fn lerp(a: &Tensor, b: &Tensor, weight: f64) -> Result<Tensor> {
    let dims = broadcast_dims(a.dims(), b.dims())?;
    let _op = context::op("lerp");
    // The kernel takes three operands, and reads two of them.
    let y = Array::ternary(TernaryOp::Lerp { weight }, a.array(), b.array(), b.array(), &dims)?;
    record(y, &[a, b], |_| {
        Ok(Box::new(LerpBackward { weight, operands: [Like::from_tensor(a), Like::from_tensor(b)] }))
    })
}

struct LerpBackward {
    weight: f64,
    operands: [Like; 2],
}

impl Function for LerpBackward {
    fn name(&self) -> &'static str {
        "LerpBackward0"
    }

    /// The end's gradient is made first, as in PyTorch.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        for (i, factor) in [(1, self.weight), (0, 1.0 - self.weight)] {
            if needs.input(i) {
                out[i] = Some(context::within("mul", || grad.affine(factor, 0.0))?);
            }
        }
        saved.done();
        unbroadcast(&mut out, &self.operands)?;
        Ok(out)
    }
}

/// `x` within bounds for each element, which are broadcast to it; one of them may be missing. Saves its input and keeps the bounds.
///
/// # Errors
/// [`Error::Shape`] if they do not fit, [`Error::Invalid`] without bounds, or for bounds of another type or that require a gradient, which are not
/// supported; errors of the device.
pub fn clamp_between(x: &Tensor, min: Option<&Tensor>, max: Option<&Tensor>) -> Result<Tensor> {
    let bounds = || min.iter().chain(max.iter());
    if bounds().count() == 0 || bounds().any(|bound| bound.requires_grad() || bound.dtype() != x.dtype()) {
        return Err(Error::invalid("clamp", "without bounds, or with bounds of another type or that want a gradient"));
    }
    let _op = context::op("clamp");
    let describe = |saved: &mut Recorder| {
        if let Some(max) = max {
            saved.save("max", max.array())?;
        }
        if let Some(min) = min {
            saved.save("min", min.array())?;
        }
        saved.save("self", x.array())?;
        Ok::<Box<dyn Function>, Error>(Box::new(ClampBackward { has: [min.is_some(), max.is_some()] }))
    };
    record_inputs(&[x], describe, || {
        let wide = |bound: &Tensor| bound.array().broadcast_to(x.dims());
        let y = Array::empty_for(x.device(), x.dims(), &[x.array().layout()], x.dtype())?;
        y.copy_(x.array())?;
        if let Some(min) = min {
            y.binary_(BinaryOp::Maximum, &wide(min)?)?;
        }
        if let Some(max) = max {
            y.binary_(BinaryOp::Minimum, &wide(max)?)?;
        }
        Ok(y)
    })
}

struct ClampBackward {
    /// Whether there is a lower bound, and an upper one.
    has: [bool; 2],
}

impl Function for ClampBackward {
    fn name(&self) -> &'static str {
        "ClampBackward1"
    }

    /// The gradient where `min ≤ x ≤ max`, else 0.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let [has_min, has_max] = self.has.map(usize::from);
        let x = saved.get(has_min + has_max)?;
        let zero = context::within("scalar_tensor", || Array::zeros(x.device(), &[], grad.dtype()))?;
        // PyTorch has masks of what is inside; these are of what is outside.
        let mask = |name, op, bound: usize| {
            let bound = saved.get(bound)?.broadcast_to(x.dims())?;
            context::within(name, || x.binary(op, &bound))
        };
        let below = if has_min == 1 { Some(mask("ge", BinaryOp::Lt, has_max)?) } else { None };
        let above = if has_max == 1 { Some(mask("le", BinaryOp::Gt, 0)?) } else { None };
        let layouts = [grad.layout(), x.layout()];
        let out = context::within("where>resize_", || Array::empty_for(x.device(), x.dims(), &layouts, grad.dtype()))?;
        out.copy_(grad)?;
        for mask in [&below, &above].into_iter().flatten() {
            out.masked_fill_(mask, 0.0)?;
        }
        drop(above);
        drop(below);
        drop(zero);
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
