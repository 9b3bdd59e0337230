//! Softmax and log-softmax. Rows are read and written block by block, so that one source serves all types, also in place. Rows of 16-bit floats have
//! a source of their own (`narrow.rs`).

mod columns;
mod narrow;

use memcore::DType;
use memcore::backend::Operand;
use memcore::backend::kernel::{Softmax, SoftmaxGrad};
use memcore::error::Result;

use crate::element::{Float, Real, float_type, larger};
use crate::elementwise::{Source, store_cast};
use crate::lanes::{Dot, Largest, Sum, fold, fold2};
use crate::simd::{Isa, simd};
use crate::stream::{BLOCK, Block, Reader, Writer, load_f64};
use crate::view::{Context, SharedMut};
use columns::TASK;

/// Runs `$body` with `$T` as one of the 16-bit floats.
macro_rules! half_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        if $dtype == DType::F16 {
            type $T = half::f16;
            $body
        } else {
            type $T = half::bf16;
            $body
        }
    };
}

/// `out = softmax(x)` over the middle dimension, or its logarithm.
pub(crate) fn softmax(ctx: &Context<'_>, k: &Softmax) -> Result<()> {
    if k.x.dtype == DType::F64 || k.out.dtype == DType::F64 {
        return forward(ctx, k, f64_reader(ctx, &k.x, &k.out)?);
    }
    if let ([rows, n, 1], true) = (k.x.dims(), k.x.dtype == k.out.dtype && k.x.dtype.is_half())
        && *n > 0
        && narrow::fits(*n)
    {
        return half_type!(k.x.dtype, T => {
            let (x, out) = (SharedMut::from_ptr(ctx.ptr::<T>(&k.x)?), SharedMut::from_ptr(ctx.ptr::<T>(&k.out)?));
            narrow::forward(ctx, k.log, [*rows, *n], x, out);
            Ok(())
        });
    }
    float_type!(k.x.dtype, T => forward_f32::<T>(ctx, k), else Ok(()))
}

/// Runs the kernel for types that are computed in f32.
fn forward_f32<T: Float>(ctx: &Context<'_>, k: &Softmax) -> Result<()>
where
    T::Compute: Source,
{
    forward(ctx, k, Reader::typed::<T>(ctx, &k.x, &k.out)?)
}

/// Returns a reader of floats of any type in f64, the compute type if the result is f64.
fn f64_reader(ctx: &Context<'_>, x: &Operand, out: &Operand) -> Result<Reader<f64>> {
    if x.dtype == DType::F64 {
        return Reader::typed::<f64>(ctx, x, out);
    }
    float_type!(x.dtype, T => Reader::with(ctx, x, out, load_f64::<T>), else Reader::typed::<f64>(ctx, x, out))
}

/// Returns a writer of `C` into floats of any type.
fn writer<C: Real + Source>(ctx: &Context<'_>, out: &Operand) -> Result<Writer<C>> {
    if <C as crate::view::Stored>::holds(out.dtype) {
        return Writer::typed::<C>(ctx, out);
    }
    Writer::with(ctx, out, store_cast::<C>(out.dtype))
}

fn forward<C: Real + Source>(ctx: &Context<'_>, k: &Softmax, x: Reader<C>) -> Result<()> {
    let out = writer::<C>(ctx, &k.out)?;
    let [rows, n, inner] = *k.x.dims() else { return Ok(()) };
    if n * inner == 0 {
        return Ok(());
    }
    if inner > 1 {
        return columns::forward(ctx, k.log, [rows, n, inner], &x, &out);
    }
    ctx.for_pieces(rows, TASK.div_ceil(n), n, |start, end| {
        for row in start..end {
            // SAFETY: rows are disjoint; core validated the aliasing.
            unsafe { forward_row(k.log, &x, &out, row * n, n) };
        }
    });
    Ok(())
}

/// Computes one row, which begins at element `first`.
///
/// # Safety
/// The row exists and is ours alone to write.
unsafe fn forward_row<C: Real>(log: bool, x: &Reader<C>, out: &Writer<C>, first: usize, n: usize) {
    let (mut a, mut o) = (Block::new(), Block::new());
    if n <= BLOCK {
        // SAFETY: passed on to the caller.
        unsafe {
            let x = x.read(first, n, &mut a);
            out.write(first, n, &mut o, |out| whole_row(log, x, out));
        }
        return;
    }
    let blocks = || (0..n).step_by(BLOCK).map(|i| (first + i, BLOCK.min(n - i)));
    let mut max = C::LOWEST;
    for (start, len) in blocks() {
        // SAFETY: passed on to the caller.
        max = larger(max, row_max(unsafe { x.read(start, len, &mut a) }));
    }
    if !log && out.is_direct() {
        // The exponentials stay in the output until their sum is known.
        let mut sum = 0.0;
        for (start, len) in blocks() {
            // SAFETY: passed on to the caller.
            unsafe {
                let x = x.read(start, len, &mut a);
                out.write(start, len, &mut o, |out| sum += exp_block(x, max, out).to_f64());
            }
        }
        let factor = C::from_f64(1.0 / sum);
        for (start, len) in blocks() {
            // SAFETY: passed on to the caller; a direct writer finds what it wrote.
            unsafe { out.write(start, len, &mut o, |out| scale(out, factor)) };
        }
        return;
    }
    let (mut sum, mut exponentials) = (0.0, [C::default(); BLOCK]);
    for (start, len) in blocks() {
        // SAFETY: passed on to the caller.
        sum += exp_block(unsafe { x.read(start, len, &mut a) }, max, &mut exponentials[..len]).to_f64();
    }
    let (log_sum, factor) = (C::from_f64(sum.ln()), C::from_f64(1.0 / sum));
    for (start, len) in blocks() {
        // SAFETY: passed on to the caller.
        unsafe {
            let x = x.read(start, len, &mut a);
            out.write(start, len, &mut o, |out| {
                if log {
                    shift(x, max, log_sum, out);
                } else {
                    scaled_exp(x, max, factor, out);
                }
            });
        }
    }
}

simd! {
    fn whole_row<R: Real>(log: bool, x: &[R], out: &mut [R]) = whole_row_body;
    fn row_max<R: Real>(x: &[R]) -> R = row_max_body;
    fn exp_block<R: Real>(x: &[R], max: R, out: &mut [R]) -> R = exp_block_body;
    fn scale<R: Real>(out: &mut [R], factor: R) = scale_body;
    fn scaled_exp<R: Real>(x: &[R], max: R, factor: R, out: &mut [R]) = scaled_exp_body;
    fn shift<R: Real>(x: &[R], max: R, log_sum: R, out: &mut [R]) = shift_body;
    fn dot<R: Real>(x: &[R], y: &[R]) -> R = dot_body;
    fn sum<R: Real>(x: &[R]) -> R = sum_body;
    fn grad_block<R: Real>(log: bool, y: &[R], grad: &[R], total: R, out: &mut [R]) = grad_block_body;
}

#[inline(always)]
fn row_max_body<S: Isa, R: Real>(x: &[R]) -> R {
    fold::<S, R>(Largest, x)
}

#[inline(always)]
fn whole_row_body<S: Isa, R: Real>(log: bool, x: &[R], out: &mut [R]) {
    let max = row_max_body::<S, R>(x);
    if log {
        // The exponentials overwrite the place of the result, which is written last.
        let sum = exp_block_body::<S, R>(x, max, out);
        shift_body::<S, R>(x, max, R::from_f64(sum.to_f64().ln()), out);
        return;
    }
    let factor = R::from_f64(1.0) / exp_block_body::<S, R>(x, max, out);
    scale_body::<S, R>(out, factor);
}

/// Computes `out = eˣ⁻ᵐᵃˣ`, and returns its sum.
#[inline(always)]
fn exp_block_body<S: Isa, R: Real>(x: &[R], max: R, out: &mut [R]) -> R {
    for (o, &x) in out.iter_mut().zip(x) {
        *o = (x - max).exp_nonpositive::<S>();
    }
    sum_body::<S, R>(out)
}

#[inline(always)]
fn scale_body<S: Isa, R: Real>(out: &mut [R], factor: R) {
    for o in out.iter_mut() {
        *o = *o * factor;
    }
}

#[inline(always)]
fn scaled_exp_body<S: Isa, R: Real>(x: &[R], max: R, factor: R, out: &mut [R]) {
    for (o, &x) in out.iter_mut().zip(x) {
        *o = (x - max).exp_nonpositive::<S>() * factor;
    }
}

#[inline(always)]
fn shift_body<S: Isa, R: Real>(x: &[R], max: R, log_sum: R, out: &mut [R]) {
    for (o, &x) in out.iter_mut().zip(x) {
        *o = (x - max) - log_sum;
    }
}

#[inline(always)]
fn dot_body<S: Isa, R: Real>(x: &[R], y: &[R]) -> R {
    fold2::<S, R>(Dot, x, y)
}

#[inline(always)]
fn sum_body<S: Isa, R: Real>(x: &[R]) -> R {
    fold::<S, R>(Sum, x)
}

#[inline(always)]
fn grad_block_body<S: Isa, R: Real>(log: bool, y: &[R], grad: &[R], total: R, out: &mut [R]) {
    if log {
        for ((o, &y), &g) in out.iter_mut().zip(y).zip(grad) {
            *o = (-total).fma::<S>(y.exp::<S>(), g);
        }
    } else {
        for ((o, &y), &g) in out.iter_mut().zip(y).zip(grad) {
            *o = y * (g - total);
        }
    }
}

/// `out = y·(grad − Σ grad·y)`; for the logarithm `grad − e^y·Σ grad`.
pub(crate) fn softmax_grad(ctx: &Context<'_>, k: &SoftmaxGrad) -> Result<()> {
    if k.y.dtype == DType::F64 || k.out.dtype == DType::F64 {
        return backward(ctx, k, f64_reader(ctx, &k.y, &k.out)?, f64_reader(ctx, &k.grad, &k.out)?);
    }
    let one_type = k.y.dtype == k.out.dtype && k.grad.dtype == k.out.dtype;
    if let ([rows, n, 1], true) = (k.y.dims(), one_type && k.y.dtype.is_half())
        && *n > 0
        && narrow::fits(*n)
    {
        return half_type!(k.y.dtype, T => {
            let [y, grad, out] = [ctx.ptr::<T>(&k.y)?, ctx.ptr::<T>(&k.grad)?, ctx.ptr::<T>(&k.out)?].map(SharedMut::from_ptr);
            narrow::backward(ctx, k.log, [*rows, *n], y, grad, out);
            Ok(())
        });
    }
    float_type!(k.y.dtype, T => backward_f32::<T>(ctx, k), else Ok(()))
}

/// Runs the kernel for types that are computed in f32.
fn backward_f32<T: Float>(ctx: &Context<'_>, k: &SoftmaxGrad) -> Result<()>
where
    T::Compute: Source,
{
    backward(ctx, k, Reader::typed::<T>(ctx, &k.y, &k.out)?, Reader::typed::<T>(ctx, &k.grad, &k.out)?)
}

fn backward<C: Real + Source>(ctx: &Context<'_>, k: &SoftmaxGrad, y: Reader<C>, grad: Reader<C>) -> Result<()> {
    let out = writer::<C>(ctx, &k.out)?;
    let [rows, n, inner] = *k.y.dims() else { return Ok(()) };
    if n * inner == 0 {
        return Ok(());
    }
    if inner > 1 {
        return columns::backward(ctx, k.log, [rows, n, inner], [&y, &grad], &out);
    }
    ctx.for_pieces(rows, TASK.div_ceil(n), n, |start, end| {
        let (mut a, mut b, mut o) = (Block::new(), Block::new(), Block::new());
        for row in start..end {
            let blocks = || (0..n).step_by(BLOCK).map(|i| (row * n + i, BLOCK.min(n - i)));
            let mut total = 0.0;
            for (start, len) in blocks() {
                // SAFETY: rows are disjoint; core validated the aliasing.
                let (y, grad) = unsafe { (y.read(start, len, &mut a), grad.read(start, len, &mut b)) };
                total += Real::to_f64(if k.log { sum(grad) } else { dot(y, grad) });
            }
            let total = C::from_f64(total);
            for (start, len) in blocks() {
                // SAFETY: as above.
                unsafe {
                    let (y, grad) = (y.read(start, len, &mut a), grad.read(start, len, &mut b));
                    out.write(start, len, &mut o, |out| grad_block(k.log, y, grad, total, out));
                }
            }
        }
    });
    Ok(())
}
