//! Operands and sizes of a product.

use memcore::backend::Operand;
use memcore::backend::kernel::Matmul;
use memcore::error::Result;

use crate::element::{Float, Real};
use crate::product::{Mat, MatMut};
use crate::view::Context;

/// Work of a product: sizes, typed addresses, and the steps between matrices of the batch.
pub(super) struct Job<T, R> {
    pub(super) batch: usize,
    pub(super) sizes: [usize; 3],
    pub(super) alpha: R,
    pub(super) beta: R,
    pub(super) a: (Mat<T>, usize),
    pub(super) b: (Mat<T>, usize),
    pub(super) bias: Option<Mat<T>>,
    pub(super) out: (MatMut<T>, usize),
}

pub(super) fn job<T: Float<Compute = R>, R: Real>(ctx: &Context<'_>, call: &Matmul) -> Result<Job<T, R>> {
    let (batch, m, n, k) = call.sizes();
    let out = steps(&call.out);
    let mut job = Job {
        batch,
        sizes: [m, n, k],
        alpha: R::from_f64(call.alpha),
        beta: R::from_f64(call.beta),
        a: matrix(ctx, &call.a)?,
        b: matrix(ctx, &call.b)?,
        bias: call.bias.as_ref().map(|bias| Ok(Mat::new(ctx.ptr::<T>(bias)?, 0, 1))).transpose()?,
        out: (MatMut::new(ctx.ptr::<T>(&call.out)?, out[1], out[2]), out[0]),
    };
    // If rows continue through the batch, and all are multiplied by one matrix, they are one tall product.
    if job.b.1 == 0 && job.a.1 == m * job.a.0.row && job.out.1 == m * job.out.0.row {
        job.sizes[0] = batch * m;
        job.batch = 1;
    }
    Ok(job)
}

fn matrix<T: Float>(ctx: &Context<'_>, x: &Operand) -> Result<(Mat<T>, usize)> {
    let [batch, row, col] = steps(x);
    Ok((Mat::new(ctx.ptr::<T>(x)?, row, col), batch))
}

/// Returns the steps of a `[batch, rows, columns]` operand. Steps of sizes of 1 may be anything; they are returned as if the operand were
/// contiguous.
fn steps(x: &Operand) -> [usize; 3] {
    let (d, s) = (x.dims(), x.layout.strides());
    let col = if d[2] <= 1 { 1 } else { s[2] };
    let row = if d[1] <= 1 { if col == 1 { d[2].max(1) } else { 1 } } else { s[1] };
    [if d[0] <= 1 { 0 } else { s[0] }, row, col]
}
