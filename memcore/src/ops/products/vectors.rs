//! Further products: with a matrix that is added, and of vectors.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record_inputs};
use crate::backend::kernel::{BinaryOp, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::autocast::lower;
use crate::ops::pointwise::binary::{Like, unbroadcast};

/// `beta·x + alpha·(a @ b)` for batches `[b, m, k]` and `[b, k, n]`; `x` is broadcast to the result. Saves each operand of the product if the other one
/// requires a gradient.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; errors of the device.
pub fn baddbmm(x: &Tensor, a: &Tensor, b: &Tensor, beta: f64, alpha: f64) -> Result<Tensor> {
    if a.rank() != 3 || b.rank() != 3 || x.rank() > 3 {
        return Err(Error::shape("baddbmm", format!("{:?} + {:?} @ {:?}", x.dims(), a.dims(), b.dims())));
    }
    let (b, a, x) = (&lower(b)?, &lower(a)?, &lower(x)?);
    let _op = context::op("baddbmm");
    let describe = |saved: &mut Recorder| {
        if b.requires_grad() {
            saved.save("batch1", a.array())?;
        }
        if a.requires_grad() {
            saved.save("batch2", b.array())?;
        }
        let of_first = b.requires_grad();
        Ok::<Box<dyn Function>, Error>(Box::new(BaddbmmBackward {
            beta,
            alpha,
            of_first,
            added: [Like::from_tensor(x)],
        }))
    };
    record_inputs(&[x, a, b], describe, || {
        let y = a.array().matmul(b.array())?;
        y.unary_(UnaryOp::Affine { mul: alpha, add: 0.0 })?;
        if beta != 0.0 {
            y.binary_(BinaryOp::Add { alpha: beta }, &x.array().broadcast_to(y.dims())?)?;
        }
        Ok(y)
    })
}

struct BaddbmmBackward {
    beta: f64,
    alpha: f64,
    /// True if the first operand was saved, because the second one requires a gradient.
    of_first: bool,
    added: [Like; 1],
}

impl Function for BaddbmmBackward {
    fn name(&self) -> &'static str {
        "BaddbmmBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None, None];
        let scaled = |x: Array, factor: f64| {
            if factor == 1.0 { Ok(x) } else { context::within("mul", || x.affine(factor, 0.0)) }
        };
        let product = |a: &Array, b: &Array| context::within("bmm", || a.matmul(b));
        if needs.input(1) {
            let second = saved.get(usize::from(self.of_first))?;
            out[1] = Some(scaled(product(grad, &second.transpose(1, 2)?)?, self.alpha)?);
        }
        if needs.input(2) {
            out[2] = Some(scaled(product(&saved.get(0)?.transpose(1, 2)?, grad)?, self.alpha)?);
        }
        if needs.input(0) {
            let mut added: Grads = smallvec![Some(scaled(grad.clone(), self.beta)?)];
            saved.done();
            unbroadcast(&mut added, &self.added)?;
            out[0] = added.pop().flatten();
        }
        saved.done();
        Ok(out)
    }
}

/// The product of a matrix `[m, k]` and a vector `[k]`. Saves each operand if the other one requires a gradient.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; errors of the device.
pub fn mv(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    if a.rank() != 2 || x.dims() != &a.dims()[1..] {
        return Err(Error::shape("mv", format!("{:?} @ {:?}", a.dims(), x.dims())));
    }
    let (x, a) = (&lower(x)?, &lower(a)?);
    let _op = context::op("mv>empty");
    let describe = |saved: &mut Recorder| {
        if x.requires_grad() {
            saved.save("self", a.array())?;
        }
        if a.requires_grad() {
            saved.save("vec", x.array())?;
        }
        Ok::<Box<dyn Function>, Error>(Box::new(MvBackward { of_matrix: x.requires_grad() }))
    };
    record_inputs(&[a, x], describe, || column(a.array(), x.array()))
}

/// Multiplies a matrix with a vector.
fn column(a: &Array, x: &Array) -> Result<Array> {
    a.matmul(&x.unsqueeze(1)?)?.squeeze(1).map(Array::keeping_base)
}

struct MvBackward {
    /// True if the matrix was saved, because the vector requires a gradient.
    of_matrix: bool,
}

impl Function for MvBackward {
    fn name(&self) -> &'static str {
        "MvBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        if needs.input(0) {
            let x = saved.get(usize::from(self.of_matrix))?;
            out[0] = Some(context::within("ger>outer>mul", || grad.unsqueeze(1)?.mul(&x.unsqueeze(0)?))?);
        }
        if needs.input(1) {
            let a = saved.get(0)?;
            out[1] = Some(context::within("mv>empty", || column(&a.t()?, grad))?);
        }
        saved.done();
        Ok(out)
    }
}

/// The product of two vectors, a scalar. Saves each operand if the other one requires a gradient.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; errors of the device.
pub fn dot(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.rank() != 1 || a.dims() != b.dims() {
        return Err(Error::shape("dot", format!("{:?} @ {:?}", a.dims(), b.dims())));
    }
    let (b, a) = (&lower(b)?, &lower(a)?);
    let _op = context::op("dot>empty");
    let describe = |saved: &mut Recorder| {
        if b.requires_grad() {
            saved.save("self", a.array())?;
        }
        if a.requires_grad() {
            saved.save("tensor", b.array())?;
        }
        Ok::<Box<dyn Function>, Error>(Box::new(DotBackward { of_first: b.requires_grad() }))
    };
    record_inputs(&[a, b], describe, || {
        let product = a.array().unsqueeze(0)?.matmul(&b.array().unsqueeze(1)?)?;
        product.view(&[]).map(Array::keeping_base)
    })
}

struct DotBackward {
    /// True if the first operand was saved, because the second one requires a gradient.
    of_first: bool,
}

impl Function for DotBackward {
    fn name(&self) -> &'static str {
        "DotBackward0"
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        let _op = context::op("mul");
        if needs.input(0) {
            out[0] = Some(grad.mul(&saved.get(usize::from(self.of_first))?)?);
        }
        if needs.input(1) {
            out[1] = Some(grad.mul(&saved.get(0)?)?);
        }
        saved.done();
        Ok(out)
    }
}
