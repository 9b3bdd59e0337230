//! Arithmetic of two tensors, broadcast against each other.
//!
//! The gradients of both operands are made before either is summed down to its operand's sizes, as in PyTorch's engine. The second operand's
//! gradient is made first, as in PyTorch's generated code: by name, `other` before `self`. Values are saved and freed in that order too.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record, record_inputs};
use crate::backend::kernel::{BinaryOp, TernaryOp, UnaryOp};
use crate::context;
use crate::deviation::Deviation;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::broadcast_dims;
use crate::ops::shape::view::Dims;

/// `a + b`. Saves nothing.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if they do not fit together, [`Error::DType`](crate::Error::DType) for operands of two types;
/// errors of the device.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let _op = context::op("add");
    let y = promoted(BinaryOp::ADD, a.array(), b.array())?;
    record(y, &[a, b], |_| Ok(Box::new(SumBackward { name: "AddBackward0", negated: false, operands: like(a, b) })))
}

/// `a += b`, `b` broadcast to `a`. Saves nothing. Use only the returned tensor afterwards, not `a`.
///
/// # Errors
/// As [`add`], and [`Error::Invalid`](crate::Error::Invalid) for a leaf `a` that requires a gradient.
pub fn add_(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let _op = context::op("add_");
    a.may_change_in_place("add_")?;
    change_in_place(BinaryOp::ADD, a.array(), b.array())?;
    added_in_place(a, b)
}

/// Records the history of `a += b`. The caller computes the sum in the memory of `a`.
///
/// # Errors
/// Errors of recording.
pub(in crate::ops) fn added_in_place(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let y = a.array().clone();
    record(y, &[a, b], |_| Ok(Box::new(SumBackward { name: "AddBackward0", negated: false, operands: like(a, b) })))
}

/// `a −= b`, `b` broadcast to `a`. Saves nothing. Errors as [`add_`].
pub fn sub_(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let _op = context::op("sub_");
    a.may_change_in_place("sub_")?;
    change_in_place(BinaryOp::Sub, a.array(), b.array())?;
    let y = a.array().clone();
    record(y, &[a, b], |_| Ok(Box::new(SumBackward { name: "SubBackward0", negated: true, operands: like(a, b) })))
}

/// `a − b`. Saves nothing.
pub fn sub(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let _op = context::op("sub");
    let y = promoted(BinaryOp::Sub, a.array(), b.array())?;
    record(y, &[a, b], |_| Ok(Box::new(SumBackward { name: "SubBackward0", negated: true, operands: like(a, b) })))
}

/// Sizes and type of an operand, which its gradient must have.
pub(in crate::ops) struct Like {
    dims: Dims,
    dtype: DType,
}

impl Like {
    /// Returns the sizes and the type of `x`.
    pub(in crate::ops) fn from_tensor(x: &Tensor) -> Self {
        Self { dims: x.dims().into(), dtype: x.dtype() }
    }

    pub(in crate::ops) fn dims(&self) -> &[usize] {
        &self.dims
    }
}

fn like(a: &Tensor, b: &Tensor) -> [Like; 2] {
    [Like::from_tensor(a), Like::from_tensor(b)]
}

/// Sums each existing gradient down to its operand's sizes, and casts it to the operand's type. The gradient of real numbers that met complex ones is
/// the real part, a view.
pub(in crate::ops) fn unbroadcast(grads: &mut Grads, operands: &[Like]) -> Result<()> {
    let _around = context::op(context::AROUND);
    for (grad, like) in grads.iter_mut().zip(operands) {
        if let Some(complex) = grad.take_if(|grad| grad.dtype().is_complex() && like.dtype.is_float()) {
            *grad = Some(complex.real()?);
        }
        if let Some(wide) = grad.take_if(|grad| grad.dims() != &like.dims[..]) {
            let _op = context::op(".>sum");
            *grad = Some(wide.sum_to(&like.dims)?);
        }
        if let Some(other) = grad.take_if(|grad| grad.dtype() != like.dtype) {
            let _op = context::op(".>to>_to_copy");
            *grad = Some(other.cast(like.dtype)?);
        }
    }
    Ok(())
}

/// `op(a, b)` in the common type of both, without a temporary: the other operand is converted into the result, which then takes part in place.
/// (The common type of float16 and bfloat16 is float32; they need a temporary.) Two integers of different types are refused.
fn promoted(op: BinaryOp, a: &Array, b: &Array) -> Result<Array> {
    let differentiable = a.dtype().is_differentiable() || b.dtype().is_differentiable();
    if a.dtype() == b.dtype() || !differentiable || !a.device().is_same(b.device()) {
        return a.binary(op, b);
    }
    let dims = broadcast_dims(a.dims(), b.dims())?;
    let empty = |dtype: DType| {
        let (a, b) = (a.broadcast_to(&dims)?, b.broadcast_to(&dims)?);
        Array::empty_for(a.device(), &dims, &[a.layout(), b.layout()], dtype)
    };
    let dtype = a.result_type("binary", b)?;
    if a.dtype() == dtype {
        let out = empty(dtype)?;
        out.copy_(b)?;
        a.binary_into(op, &out, &out)?;
        Ok(out)
    } else if b.dtype() == dtype {
        let out = empty(dtype)?;
        out.copy_(a)?;
        out.binary_into(op, b, &out)?;
        Ok(out)
    } else {
        let out = empty(dtype)?;
        out.copy_(a)?;
        change_in_place(op, &out, b)?;
        Ok(out)
    }
}

/// `a = op(a, b)` in the type of `a`. PyTorch's kernel converts `b` as it reads, so that a device without values needs no memory for it; the others
/// convert it first.
pub(in crate::ops) fn change_in_place(op: BinaryOp, a: &Array, b: &Array) -> Result<()> {
    let device = a.device();
    match a.dtype() != b.dtype() && !device.computes() && device.profile().torch_temporaries {
        true => {
            b.broadcast_to(a.dims())?;
            a.binary_(op, a)
        }
        false => a.binary_(op, &converted(b, a.dtype())?),
    }
}

/// Returns `x` in another type, in memory of its own.
pub(in crate::ops) fn converted(x: &Array, dtype: DType) -> Result<Array> {
    if x.dtype() != dtype && x.device().profile().torch_temporaries {
        x.device().recorded_deviations().record(Deviation::ConvertedOperand);
    }
    x.cast(dtype)
}

/// Backward of a sum or a difference.
struct SumBackward {
    name: &'static str,
    /// True if the second operand was subtracted.
    negated: bool,
    operands: [Like; 2],
}

impl Function for SumBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(&self, mut grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = grads[0].take() else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        if needs.input(1) {
            out[1] =
                Some(if self.negated { context::within("neg", || grad.unary(UnaryOp::Neg))? } else { grad.clone() });
        }
        if needs.input(0) {
            out[0] = Some(grad);
        }
        saved.done();
        unbroadcast(&mut out, &self.operands)?;
        Ok(out)
    }
}

/// `a · b`. Saves each operand if the other one requires a gradient.
pub fn mul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    multiplied(a, b, || promoted(BinaryOp::Mul, a.array(), b.array()))
}

/// Records the node of a product that `compute` makes.
fn multiplied(a: &Tensor, b: &Tensor, compute: impl FnOnce() -> Result<Array>) -> Result<Tensor> {
    let _op = context::op("mul");
    let describe = |saved: &mut Recorder| {
        if a.requires_grad() {
            saved.save("other", b.array())?;
        }
        if b.requires_grad() {
            saved.save("self", a.array())?;
        }
        Ok::<Box<dyn Function>, Error>(Box::new(MulBackward { operands: like(a, b) }))
    };
    record_inputs(&[a, b], describe, compute)
}

/// Records the node of a product, or of a quotient, that `compute` makes in the memory of `a`.
fn in_place(a: &Tensor, b: &Tensor, divides: bool, compute: impl FnOnce() -> Result<()>) -> Result<Tensor> {
    let operands = like(a, b);
    let describe = |saved: &mut Recorder| {
        if a.requires_grad() || divides {
            saved.save("other", b.array())?;
        }
        if b.requires_grad() {
            saved.save("self", &context::within("clone", || a.array().copied())?)?;
        }
        Ok::<Box<dyn Function>, Error>(if divides {
            Box::new(DivBackward { operands })
        } else {
            Box::new(MulBackward { operands })
        })
    };
    record_inputs(&[a, b], describe, || {
        compute()?;
        Ok(a.array().clone())
    })
}

/// Records the history of `a *= b`, which `compute` computes.
pub(in crate::ops) fn multiplied_in_place(
    a: &Tensor,
    b: &Tensor,
    compute: impl FnOnce() -> Result<()>,
) -> Result<Tensor> {
    in_place(a, b, false, compute)
}

/// Records the history of `a /= b`, which `compute` computes.
pub(in crate::ops) fn divided_in_place(a: &Tensor, b: &Tensor, compute: impl FnOnce() -> Result<()>) -> Result<Tensor> {
    in_place(a, b, true, compute)
}

/// `a · b + c` as PyTorch computes `y = a * b; y += c`: in the memory of the product, with the nodes of both. `c` may have another type. In PyTorch
/// the addition converts `c` while reading; here `c` is converted into the result before the product is added to it.
pub fn mul_add_(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<Tensor> {
    let dims = broadcast_dims(a.dims(), b.dims())?;
    if c.dtype() == a.dtype() || a.dtype() != b.dtype() || c.dims() != &dims[..] {
        return add_(&mul(a, b)?, c);
    }
    let y = multiplied(a, b, || {
        let (a, b) = (a.array().broadcast_to(&dims)?, b.array().broadcast_to(&dims)?);
        let out = Array::empty_for(a.device(), &dims, &[a.layout(), b.layout()], a.dtype())?;
        out.copy_(c.array())?;
        out.ternary_(TernaryOp::Addcmul { value: 1.0 }, &a, &b)?;
        Ok(out)
    })?;
    let _op = context::op("add_");
    let sum = y.array().clone();
    record(sum, &[&y, c], |_| Ok(Box::new(SumBackward { name: "AddBackward0", negated: false, operands: like(&y, c) })))
}

struct MulBackward {
    operands: [Like; 2],
}

impl Function for MulBackward {
    fn name(&self) -> &'static str {
        "MulBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        let mul = context::op("mul");
        let other = if needs.input(0) { Some(saved.get(0)?) } else { None };
        if needs.input(1) {
            out[1] = Some(by_conjugate(grad, &saved.get(needs.input(0) as usize)?)?);
        }
        if let Some(other) = other {
            out[0] = Some(by_conjugate(grad, &other)?);
        }
        drop(mul);
        saved.done();
        unbroadcast(&mut out, &self.operands)?;
        Ok(out)
    }
}

/// `grad · x`, of complex numbers with the conjugate of `x`, a temporary.
fn by_conjugate(grad: &Array, x: &Array) -> Result<Array> {
    let conjugate = context::within("conj_physical", || x.conjugated())?;
    promoted(BinaryOp::Mul, grad, conjugate.as_ref().unwrap_or(x))
}

/// `a / b`. Saves the divisor, and the dividend if the divisor requires a gradient.
pub fn div(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let _op = context::op("div");
    let describe = |saved: &mut Recorder| {
        saved.save("other", b.array())?;
        if b.requires_grad() {
            saved.save("self", a.array())?;
        }
        Ok::<Box<dyn Function>, Error>(Box::new(DivBackward { operands: like(a, b) }))
    };
    record_inputs(&[a, b], describe, || promoted(BinaryOp::Div, a.array(), b.array()))
}

struct DivBackward {
    operands: [Like; 2],
}

impl DivBackward {
    /// `−grad · ((a/b)/b)`.
    fn divisor_grad(grad: &Array, a: &Array, b: &Array) -> Result<Array> {
        let quotient = context::within("div", || promoted(BinaryOp::Div, a, b))?;
        let slope = context::within("div", || promoted(BinaryOp::Div, &quotient, b))?;
        let negated = context::within("neg", || grad.unary(UnaryOp::Neg))?;
        context::within("mul", || promoted(BinaryOp::Mul, &negated, &slope))
    }
}

impl Function for DivBackward {
    fn name(&self) -> &'static str {
        "DivBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let b = saved.get(0)?;
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        if needs.input(1) {
            out[1] = Some(Self::divisor_grad(grad, &saved.get(1)?, &b)?);
        }
        if needs.input(0) {
            out[0] = Some(context::within("div", || promoted(BinaryOp::Div, grad, &b))?);
        }
        saved.done();
        unbroadcast(&mut out, &self.operands)?;
        Ok(out)
    }
}

/// The larger of two elements. Equal elements get half the gradient each. Saves both operands.
pub fn maximum(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    extremum("maximum", BinaryOp::Maximum, a, b)
}

/// The smaller of two elements. Equal elements get half the gradient each. Saves both operands.
pub fn minimum(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    extremum("minimum", BinaryOp::Minimum, a, b)
}

fn extremum(name: &'static str, op: BinaryOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let _op = context::op(name);
    let describe = |saved: &mut Recorder| {
        saved.save("other", b.array())?;
        saved.save("self", a.array())?;
        let maximum = op == BinaryOp::Maximum;
        Ok::<Box<dyn Function>, Error>(Box::new(ExtremumBackward { maximum, operands: like(a, b) }))
    };
    record_inputs(&[a, b], describe, || promoted(op, a.array(), b.array()))
}

struct ExtremumBackward {
    maximum: bool,
    operands: [Like; 2],
}

impl ExtremumBackward {
    /// Gradient of operand `i`: `grad` where it won, half of it where both are equal, 0 where the other operand won. The profile says whether the
    /// mask of where it won is made first or last. The temporaries are freed in the opposite order of their making. All are made before anything
    /// is computed: the half and the share hold operands of two types, converted, while these are compared.
    fn share(&self, i: usize, a: &Array, b: &Array, grad: &Array) -> Result<Array> {
        // Where the other operand won, this one gets nothing.
        let lost = if self.maximum { [BinaryOp::Lt, BinaryOp::Gt] } else { [BinaryOp::Gt, BinaryOp::Lt] }[i];
        let device = grad.device();
        let dims = grad.dims();
        let wide = [a.broadcast_to(dims)?, b.broadcast_to(dims)?];
        let operands = [wide[0].layout(), wide[1].layout()];
        let mask = |name| context::within(name, || Array::empty_for(device, dims, &operands, DType::Bool));
        let name = if lost == BinaryOp::Lt { "lt" } else { "gt" };
        let early = if device.profile().masks_extremum_first { Some(mask(name)?) } else { None };
        let half = context::within("div", || Array::empty_for(device, dims, &[grad.layout()], grad.dtype()))?;
        let equal = mask("eq")?;
        let layouts = [equal.layout(), half.layout(), grad.layout()];
        let share = context::within("where>resize_", || Array::empty_for(device, dims, &layouts, grad.dtype()))?;
        let is_early = early.is_some();
        let lose = early.map_or_else(|| mask(name), Ok)?;
        if a.dtype() == b.dtype() {
            wide[0].binary_into(BinaryOp::Eq, &wide[1], &equal)?;
            wide[0].binary_into(lost, &wide[1], &lose)?;
        } else {
            half.copy_(a)?;
            share.copy_(b)?;
            half.binary_into(BinaryOp::Eq, &share, &equal)?;
            half.binary_into(lost, &share, &lose)?;
        }
        grad.unary_into(UnaryOp::Affine { mul: 0.5, add: 0.0 }, &half)?;
        half.select_into(&equal, grad, &share)?;
        share.masked_fill_(&lose, 0.0)?;
        if is_early {
            drop((equal, half));
            drop(lose);
        } else {
            drop(lose);
            drop((equal, half));
        }
        Ok(share)
    }
}

impl Function for ExtremumBackward {
    fn name(&self) -> &'static str {
        if self.maximum { "MaximumBackward0" } else { "MinimumBackward0" }
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (b, a) = (saved.get(0)?, saved.get(1)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        for i in [1, 0] {
            if needs.input(i) {
                out[i] = Some(self.share(i, &a, &b, grad)?);
            }
        }
        saved.done();
        unbroadcast(&mut out, &self.operands)?;
        Ok(out)
    }
}
