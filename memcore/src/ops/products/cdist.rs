//! Distances of every row of one matrix from every row of another. Small matrices are compared on the host; the others are multiplied, as in PyTorch.

use smallvec::smallvec;

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::{BinaryOp, ReduceOp, UnaryOp};
use crate::context;
use crate::error::{Error, Result};
use crate::ops::autocast::full;
use crate::ops::on_host;
use crate::ops::shape::view::{Dims, view};

/// Most rows of either matrix that PyTorch compares without a product.
const COMPARED: usize = 25;

/// Distances of order `p` of the rows of `a` `[.., n, d]` from those of `b` `[.., m, d]`: `[.., n, m]`. Saves both and the result.
///
/// # Errors
/// [`Error::Shape`] if they do not fit, [`Error::Invalid`] for an order that is not from 1 on and finite, or for operands that are not contiguous;
/// errors of the device.
pub fn cdist(a: &Tensor, b: &Tensor, p: f64) -> Result<Tensor> {
    let (b, a) = (&full(b)?, &full(a)?);
    let wrong = || Error::shape("cdist", format!("{:?} from {:?}", a.dims(), b.dims()));
    let [of_a @ .., n, d] = a.dims() else { return Err(wrong()) };
    let [of_b @ .., m, width] = b.dims() else { return Err(wrong()) };
    if of_a != of_b || d != width || a.dtype() != b.dtype() || a.numel() == 0 || b.numel() == 0 {
        return Err(wrong());
    }
    let is_dense = |x: &Tensor| x.array().layout().is_contiguous();
    if !(1.0..f64::INFINITY).contains(&p) || !is_dense(a) || !is_dense(b) {
        return Err(Error::invalid("cdist", format!("of order {p}, or of operands that are not contiguous")));
    }
    let _op = context::op("cdist");
    let batch: usize = of_a.iter().product();
    let dims: Dims = of_a.iter().copied().chain([*n, *m]).collect();
    let (a, b) = (view(a, &[batch, *n, *d])?, view(b, &[batch, *m, *d])?);
    let multiplies = p == 2.0 && (*n > COMPARED || *m > COMPARED);
    let y = if multiplies { euclidean(a.array(), b.array())? } else { compared(a.array(), b.array(), p)? };
    let y = record(y.clone(), &[&a, &b], |saved| {
        saved.save("x1", a.array())?;
        saved.save("x2", b.array())?;
        saved.save("result", &y)?;
        let function: Box<dyn Function> =
            if multiplies { Box::new(EuclideanBackward) } else { Box::new(CdistBackward { p }) };
        Ok(function)
    })?;
    view(&y, &dims)
}

/// Takes each distance from a product of rows that are longer by two elements: `|a|² − 2ab + |b|²`.
fn euclidean(a: &Array, b: &Array) -> Result<Array> {
    let _op = context::op("_euclidean_dist");
    let norm = |x: &Array| {
        let squares = context::within("pow", || x.unary(UnaryOp::Pow { exponent: 2.0 }))?;
        context::within("sum", || squares.reduce(ReduceOp::Sum, &[2], true))
    };
    let ones = |like: &Array| {
        let _op = context::op("ones_like");
        let ones = like.empty_like()?;
        ones.fill_(1.0)?;
        Ok::<_, Error>(ones)
    };
    let of_a = norm(a)?;
    let ones_a = ones(&of_a)?;
    let of_b = norm(b)?;
    let ones_b = ones(&of_b)?;
    let left = {
        let twice = context::within("mul", || a.affine(-2.0, 0.0))?;
        let parts = [twice, of_a, ones_a];
        context::within("cat", || Array::cat(&parts, 2))?
    };
    let right = {
        let parts = [b.clone(), ones_b, of_b];
        context::within("cat", || Array::cat(&parts, 2))?
    };
    let y = context::within("matmul>bmm", || left.matmul(&right.transpose(1, 2)?))?;
    y.unary_(UnaryOp::Clamp { min: 0.0, max: f64::INFINITY })?;
    y.unary_(UnaryOp::Sqrt)?;
    Ok(y)
}

struct EuclideanBackward;

impl Function for EuclideanBackward {
    fn name(&self) -> &'static str {
        "EuclideanDistBackward0"
    }

    /// `a·Σ ratio − ratio @ b` with `ratio = grad / distance`, 0 where the distance is; all temporaries live until both gradients are there.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let (a, b, y) = (saved.get(0)?, saved.get(1)?, saved.get(2)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let _op = context::op("_euclidean_dist_backward");
        let ratio = context::within("div", || grad.binary(BinaryOp::Div, &y))?;
        let is_zero = context::within("eq", || y.unary(UnaryOp::IsZero))?;
        ratio.masked_fill_(&is_zero, 0.0)?;
        drop(is_zero);
        let mut made = Vec::new();
        let mut slope = |x: &Array, other: &Array, ratio: &Array, axis: usize| {
            let product = context::within("matmul>bmm", || ratio.matmul(other))?;
            let sums = context::within("sum", || ratio.reduce(ReduceOp::Sum, &[axis], true))?;
            let own = context::within("mul", || x.mul(&sums))?;
            let slope = context::within("sub", || own.binary(BinaryOp::Sub, &product))?;
            made.extend([product, sums, own]);
            Ok::<_, Error>(slope)
        };
        let of_a = slope(&a, &b, &ratio, 2)?;
        let of_b = slope(&b, &a, &ratio.transpose(1, 2)?, 2)?;
        made.into_iter().rev().for_each(drop);
        drop(ratio);
        saved.done();
        Ok(smallvec![Some(of_a), Some(of_b)])
    }
}

/// Compares each row with each.
fn compared(a: &Array, b: &Array, p: f64) -> Result<Array> {
    let [batch, n, d] = *a.dims() else { return Err(Error::shape("cdist", format!("{:?}", a.dims()))) };
    let m = b.dims()[1];
    let y = context::within("_cdist_forward", || Array::empty(a.device(), &[batch, n, m], a.dtype()))?;
    on_host::fill(&y, &[a, b], |values| {
        let of = |i: usize| {
            let (row, column) = (i / m * d, (i / (n * m) * m + i % m) * d);
            let parts = (0..d).map(|k| (values[0][row + k] - values[1][column + k]).abs().powf(p));
            parts.sum::<f64>().powf(1.0 / p)
        };
        Ok((0..y.numel()).map(of).collect())
    })?;
    Ok(y)
}

struct CdistBackward {
    p: f64,
}

impl CdistBackward {
    /// The gradient of the rows of `a`, each a sum of one term for each row of `b`, which PyTorch makes all at once.
    fn slope(&self, a: &Array, b: &Array, grad: &Array, y: &Array) -> Result<Array> {
        let _op = context::op("_cdist_backward");
        let out = Array::empty(a.device(), a.dims(), a.dtype())?;
        let (m, d) = (b.dims()[1], a.dims()[2]);
        if a.device().profile().torch_temporaries {
            drop(Array::empty(a.device(), &[a.dims()[0], m, a.dims()[1], d], a.dtype())?);
        }
        let n = a.dims()[1];
        on_host::fill(&out, &[a, b, grad, y], |values| {
            let of = |i: usize| {
                let (row, k) = (i / d, i % d);
                let term = |column: usize| {
                    let apart = values[0][i] - values[1][(row / n * m + column) * d + k];
                    let (grad, far) = (values[2][row * m + column], values[3][row * m + column]);
                    if far == 0.0 || apart == 0.0 {
                        return 0.0;
                    }
                    grad * apart.signum() * (apart.abs() / far).powf(self.p - 1.0)
                };
                (0..m).map(term).sum()
            };
            Ok((0..out.numel()).map(of).collect())
        })?;
        Ok(out)
    }
}

impl Function for CdistBackward {
    fn name(&self) -> &'static str {
        "CdistBackward0"
    }

    /// The second gradient is the first one of transposed distances, which are copied.
    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let (a, b, y) = (saved.get(0)?, saved.get(1)?, saved.get(2)?);
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let mut out: Grads = smallvec![None, None];
        if needs.input(0) {
            let grad = context::within("_cdist_backward>contiguous>clone", || grad.contiguous())?;
            out[0] = Some(self.slope(&a, &b, &grad, &y)?);
        }
        if needs.input(1) {
            let turned = |x: &Array| context::within("contiguous>clone", || x.transpose(1, 2)?.contiguous());
            let (y, grad) = (turned(&y)?, turned(grad)?);
            out[1] = Some(self.slope(&b, &a, &grad, &y)?);
        }
        saved.done();
        Ok(out)
    }
}
