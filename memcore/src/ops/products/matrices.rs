//! Matrix products: `mm`, `bmm`, `addmm`.

use smallvec::smallvec;

use crate::array::{Array, MatmulOptions};
use crate::autograd::{Function, Grads, KeptOp, Needs, Recorder, Saved, Tensor, kept_result, record_inputs};
use crate::backend::kernel::ReduceOp;
use crate::context;
use crate::error::{Error, Result};
use crate::ops::autocast::lower;

/// `a @ b` for matrices `[m, k]` and `[k, n]`. Saves each operand if the other one requires a gradient.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; errors of the device.
pub fn mm(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    product("mm", "MmBackward0", a, b, 2)
}

/// `a @ b` for batches `[b, m, k]` and `[b, k, n]`. Saves each operand if the other one requires a gradient.
pub fn bmm(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    product("bmm", "BmmBackward0", a, b, 3)
}

fn product(op: &'static str, name: &'static str, a: &Tensor, b: &Tensor, rank: usize) -> Result<Tensor> {
    if a.rank() != rank || b.rank() != rank {
        return Err(Error::shape(op, format!("{:?} @ {:?}: expected {rank} dimensions each", a.dims(), b.dims())));
    }
    let _op = context::op(op);
    let (b, a) = (&lower(b)?, &lower(a)?);
    let describe = |saved: &mut Recorder| {
        let operands = Operands::save(saved, a, b)?;
        let column_major = [is_column_major(a.array()), is_column_major(b.array())];
        Ok::<Box<dyn Function>, Error>(Box::new(ProductBackward { op, name, operands, column_major }))
    };
    let kept = if rank == 2 { KeptOp::Mm } else { KeptOp::Bmm };
    record_inputs(&[a, b], describe, || kept_result(kept, || a.array().matmul(b.array())))
}

/// True if a matrix is in column-major order, as a transposed weight is.
fn is_column_major(b: &Array) -> bool {
    matches!((b.layout().strides(), b.dims()), (&[1, column], &[rows, _]) if column == rows)
}

/// Positions of a product's operands among the saved values; `None` if an operand was not saved.
struct Operands {
    lhs: Option<usize>,
    rhs: Option<usize>,
}

impl Operands {
    /// Saves each operand only if the other one's gradient needs it, as PyTorch does, and in the order of PyTorch's names: `mat2` before
    /// `self`. They are freed in that order.
    fn save(saved: &mut Recorder, a: &Tensor, b: &Tensor) -> Result<Self> {
        let rhs = a.requires_grad();
        if rhs {
            saved.save("mat2", b.array())?;
        }
        if b.requires_grad() {
            saved.save("self", a.array())?;
        }
        Ok(Self { lhs: b.requires_grad().then_some(rhs as usize), rhs: rhs.then_some(0) })
    }

    /// Returns the saved operands. Both live until the node has run: values that a checkpoint recomputed are freed with them.
    fn unpack(&self, saved: &Saved<'_>) -> Result<[Option<Array>; 2]> {
        let get = |place: Option<usize>| place.map(|place| saved.get(place)).transpose();
        // In the order of saving, which is the order of unpacking.
        if self.lhs < self.rhs {
            let lhs = get(self.lhs)?;
            Ok([lhs, get(self.rhs)?])
        } else {
            let rhs = get(self.rhs)?;
            Ok([get(self.lhs)?, rhs])
        }
    }

    /// As [`Operands::save`], under the names that `addmm` uses.
    fn save_named(saved: &mut Recorder, a: &Tensor, b: &Tensor) -> Result<Self> {
        let lhs = b.requires_grad();
        if lhs {
            saved.save("mat1", a.array())?;
        }
        if a.requires_grad() {
            saved.save("mat2", b.array())?;
        }
        Ok(Self { lhs: lhs.then_some(0), rhs: a.requires_grad().then_some(lhs as usize) })
    }
}

struct ProductBackward {
    op: &'static str,
    name: &'static str,
    operands: Operands,
    /// Whether each operand is in column-major order.
    column_major: [bool; 2],
}

impl Function for ProductBackward {
    fn name(&self) -> &'static str {
        self.name
    }

    /// The gradient of the second operand is made first, as in PyTorch for `mm` and `bmm`.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let _op = context::op(self.op);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        let [lhs, rhs] = self.operands.unpack(saved)?;
        if let (true, Some(lhs)) = (needs.input(1), &lhs) {
            out[1] = Some(rhs_grad(lhs, grad, self.column_major[1])?);
        }
        if let (true, Some(rhs)) = (needs.input(0), &rhs) {
            out[0] = Some(lhs_grad(grad, rhs, self.column_major[0])?);
        }
        drop((lhs, rhs));
        saved.done();
        Ok(out)
    }
}

/// Gradient of the left operand, `grad @ bᵀ`, laid out as the operand was; of complex numbers with the conjugates of `b`.
fn lhs_grad(grad: &Array, b: &Array, column_major: bool) -> Result<Array> {
    if column_major {
        Ok(b.matmul_with(&grad.t()?, conjugates([true, false]))?.t()?.keeping_base())
    } else {
        grad.matmul_with(&b.t()?, conjugates([false, true]))
    }
}

fn conjugates(conjugates: [bool; 2]) -> MatmulOptions<'static> {
    MatmulOptions { conjugates, ..MatmulOptions::default() }
}

/// Gradient of the right operand, `aᵀ @ grad`, of complex numbers with the conjugates of `a`. It is in column-major order if the operand was, so that the gradient of a transposed weight
/// comes out contiguous.
fn rhs_grad(a: &Array, grad: &Array, column_major: bool) -> Result<Array> {
    if column_major {
        Ok(grad.t()?.matmul_with(a, conjugates([false, true]))?.t()?.keeping_base())
    } else {
        a.t()?.matmul_with(grad, conjugates([true, false]))
    }
}

/// `bias + a @ b`: `[n] + [m, k] @ [k, n]`, in one product with an epilogue.
pub fn addmm(bias: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.rank() != 2 || b.rank() != 2 || bias.dims() != &b.dims()[b.rank() - 1..] {
        let detail = format!("{:?} + {:?} @ {:?}", bias.dims(), a.dims(), b.dims());
        return Err(Error::shape("addmm", detail));
    }
    let (b, a, bias) = (&lower(b)?, &lower(a)?, &lower(bias)?);
    let _op = context::op("addmm");
    let describe = |saved: &mut Recorder| {
        let operands = Operands::save_named(saved, a, b)?;
        let column_major = [is_column_major(a.array()), is_column_major(b.array())];
        Ok::<Box<dyn Function>, Error>(Box::new(AddmmBackward { operands, column_major }))
    };
    let options = MatmulOptions { bias: Some(bias.array()), ..MatmulOptions::default() };
    let compute = || a.array().matmul_with(b.array(), options);
    record_inputs(&[bias, a, b], describe, || kept_result(KeptOp::Addmm, compute))
}

struct AddmmBackward {
    operands: Operands,
    /// Whether each operand is in column-major order.
    column_major: [bool; 2],
}

impl Function for AddmmBackward {
    fn name(&self) -> &'static str {
        "AddmmBackward0"
    }

    /// Makes the input gradient, the weight gradient, then the bias gradient by a sum.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None, None];
        let [lhs, rhs] = self.operands.unpack(saved)?;
        let mm = context::op("mm");
        if let (true, Some(rhs)) = (needs.input(1), &rhs) {
            out[1] = Some(lhs_grad(grad, rhs, self.column_major[0])?);
        }
        if let (true, Some(lhs)) = (needs.input(2), &lhs) {
            out[2] = Some(rhs_grad(lhs, grad, self.column_major[1])?);
        }
        drop(mm);
        drop((rhs, lhs));
        saved.done();
        if needs.input(0) {
            let _sum = context::op(".>sum");
            let sum = grad.reduce(ReduceOp::Sum, &[0], false);
            // The engine already has the other gradients: it frees them if memory runs out here.
            out[0] = Some(sum.map_err(|error| of_engine(&mut out, error))?.keeping_base());
        }
        Ok(out)
    }
}

/// Drops gradients on the engine's behalf, for `error`.
fn of_engine(grads: &mut Grads, error: Error) -> Error {
    let _around = context::op(context::AROUND);
    // Frees them in their order; clearing a list would start at its end.
    grads.iter_mut().for_each(|grad| drop(grad.take()));
    error
}
