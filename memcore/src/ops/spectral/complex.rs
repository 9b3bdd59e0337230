//! Complex numbers and their parts. Predicted only: no values are computed.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, is_grad_enabled, record};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::predicted::predicted_only;
use crate::ops::shape::view::select;

/// Complex numbers as float32 with a last dimension of 2: a view. Saves nothing. Predicted only.
///
/// # Errors
/// [`Error::DType`] for another type than complex64; errors of recording.
pub fn view_as_real(x: &Tensor) -> Result<Tensor> {
    record(x.array().as_real()?, &[x], |_| Ok(Box::new(PairsBackward { name: "ViewAsRealBackward0" })))
}

/// Float32 with a last dimension of 2 as complex numbers: a view. Saves nothing. Predicted only.
///
/// # Errors
/// [`Error::DType`] for another type than float32; [`Error::Shape`] for floats that do not lie in pairs; [`Error::Invalid`] on a device that
/// computes.
pub fn view_as_complex(x: &Tensor) -> Result<Tensor> {
    predicted_only("view_as_complex", x.device())?;
    record(x.array().as_complex()?, &[x], |_| Ok(Box::new(PairsBackward { name: "ViewAsComplexBackward0" })))
}

/// The real parts of complex numbers: a view, composed of two as in PyTorch. Predicted only.
///
/// # Errors
/// As [`view_as_real`].
pub fn real(x: &Tensor) -> Result<Tensor> {
    select(&view_as_real(x)?, x.rank(), 0)
}

/// The imaginary parts of complex numbers: a view, composed of two as in PyTorch. Predicted only.
///
/// # Errors
/// As [`view_as_real`].
pub fn imag(x: &Tensor) -> Result<Tensor> {
    select(&view_as_real(x)?, x.rank(), 1)
}

/// Backward of a view as numbers of the other kind.
struct PairsBackward {
    name: &'static str,
}

impl Function for PairsBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let whole = grad.contiguous()?;
        Ok(smallvec![Some(if whole.dtype().is_complex() { whole.as_real()? } else { whole.as_complex()? })])
    }
}

/// Complex numbers of real and imaginary parts of equal sizes. PyTorch saves both, although its gradients do not need them. Predicted only.
///
/// # Errors
/// [`Error::Shape`] and [`Error::DType`] for parts of other sizes or types than float32; [`Error::Invalid`] on a device that computes.
pub fn complex(real: &Tensor, imag: &Tensor) -> Result<Tensor> {
    const OP: &str = "complex";
    if real.dims() != imag.dims() {
        return Err(Error::shape(
            OP,
            format!("{:?} and {:?}: broadcasting is not supported", real.dims(), imag.dims()),
        ));
    }
    if let Some(other) = [real, imag].iter().find(|part| part.dtype() != DType::F32) {
        return Err(Error::DType { op: OP, operand: "self", found: other.dtype(), expected: "float32" });
    }
    predicted_only(OP, real.device())?;
    let layouts = [real.array().layout(), imag.array().layout()];
    let y = context::within(OP, || Array::empty_for(real.device(), real.dims(), &layouts, DType::C64))?;
    record(y, &[real, imag], |saved| {
        saved.save("imag", imag.array())?;
        saved.save("real", real.array())?;
        Ok(Box::new(ComplexBackward))
    })
}

/// Complex numbers of absolute values and angles of equal sizes. Predicted only, and without a gradient, as rotary positions are.
///
/// # Errors
/// [`Error::Shape`] and [`Error::DType`] for parts of other sizes or types than float32; [`Error::Invalid`] on a device that computes, and for a
/// part that requires a gradient.
pub fn polar(abs: &Tensor, angle: &Tensor) -> Result<Tensor> {
    const OP: &str = "polar";
    if abs.dims() != angle.dims() {
        let problem = format!("{:?} and {:?}: broadcasting is not supported", abs.dims(), angle.dims());
        return Err(Error::shape(OP, problem));
    }
    if let Some(other) = [abs, angle].iter().find(|part| part.dtype() != DType::F32) {
        return Err(Error::DType { op: OP, operand: "abs", found: other.dtype(), expected: "float32" });
    }
    if is_grad_enabled() && (abs.requires_grad() || angle.requires_grad()) {
        return Err(Error::invalid(OP, "its gradient is not supported"));
    }
    predicted_only(OP, abs.device())?;
    let layouts = [abs.array().layout(), angle.array().layout()];
    let y = context::within(OP, || Array::empty_for(abs.device(), abs.dims(), &layouts, DType::C64))?;
    Ok(Tensor::from_array(y))
}

struct ComplexBackward;

impl Function for ComplexBackward {
    fn name(&self) -> &'static str {
        "ComplexBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        saved.done();
        let part = |i: usize| needs.input(i).then(|| grad.as_real()?.select(grad.rank(), i)).transpose();
        Ok(smallvec![part(0)?.map(Array::keeping_base), part(1)?.map(Array::keeping_base)])
    }
}

/// The absolute values of complex numbers, float32. Saves its input. Predicted only.
///
/// # Errors
/// [`Error::DType`] for another type than complex64; errors of the device.
pub fn abs_of_complex(x: &Tensor) -> Result<Tensor> {
    if x.dtype() != DType::C64 {
        return Err(Error::DType { op: "abs", operand: "self", found: x.dtype(), expected: DType::C64.name() });
    }
    let _op = context::op("abs");
    let like = |dtype| Array::empty_for(x.device(), x.dims(), &[x.array().layout()], dtype);
    let y = like(DType::F32)?;
    // PyTorch's kernel makes complex numbers of them, which are then converted.
    drop(like(DType::C64)?);
    record(y, &[x], |saved| {
        saved.save("self", x.array())?;
        Ok(Box::new(AbsBackward))
    })
}

struct AbsBackward;

impl Function for AbsBackward {
    fn name(&self) -> &'static str {
        "AbsBackward0"
    }

    /// `grad · x / |x|`.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let x = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let like = |layouts: &[&crate::layout::Layout]| Array::empty_for(x.device(), x.dims(), layouts, DType::C64);
        let direction = context::within("sgn", || like(&[x.layout()]))?;
        let out = context::within("mul", || like(&[grad.layout(), direction.layout()]))?;
        drop(direction);
        drop(x);
        saved.done();
        Ok(smallvec![Some(out)])
    }
}
