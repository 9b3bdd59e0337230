//! Gradients of the functions of one element.

use memcore::DType;
use memcore::backend::kernel::{UnaryGrad, UnaryGradOp};
use memcore::error::Result;

use super::unary::{GELU_CUBIC, SQRT_2_OVER_PI, gelu_tanh_gate, softplus};
use crate::element::{Float, Number, Real};
use crate::parallel::Plain;
use crate::simd::{Isa, simd};
use crate::stream::{Block, Reader, Writer, for_blocks};
use crate::view::Context;

/// `out = grad · f′`.
pub(crate) fn unary_grad(ctx: &Context<'_>, k: &UnaryGrad) -> Result<()> {
    match k.out.dtype {
        DType::F64 => run::<f64>(ctx, k),
        DType::F16 => run::<half::f16>(ctx, k),
        // bf16 is converted in registers.
        DType::BF16 => {
            let (saved, grad) =
                (Reader::<half::bf16>::bits(ctx, &k.saved, &k.out)?, Reader::bits(ctx, &k.grad, &k.out)?);
            each_block(ctx, k, [&saved, &grad], Writer::bits(ctx, &k.out)?, block::<half::bf16>);
            Ok(())
        }
        _ => run::<f32>(ctx, k),
    }
}

fn run<T: Float>(ctx: &Context<'_>, k: &UnaryGrad) -> Result<()> {
    let saved = Reader::typed::<T>(ctx, &k.saved, &k.out)?;
    let grad = Reader::typed::<T>(ctx, &k.grad, &k.out)?;
    each_block(ctx, k, [&saved, &grad], Writer::typed::<T>(ctx, &k.out)?, block::<T::Compute>);
    Ok(())
}

type BlockFn<C> = fn(UnaryGradOp, &[C], &[C], &mut [C]);

fn each_block<C: Plain + Default>(
    ctx: &Context<'_>,
    k: &UnaryGrad,
    [saved, grad]: [&Reader<C>; 2],
    out: Writer<C>,
    block: BlockFn<C>,
) {
    let out = out.streamed(&[&k.saved, &k.grad], &k.out);
    for_blocks(ctx, k.out.numel(), |start, len| {
        let (mut a, mut b, mut o) = (Block::new(), Block::new(), Block::new());
        // SAFETY: blocks lie in `0..numel` and are disjoint; core validated the aliasing.
        unsafe {
            let saved = saved.read(start, len, &mut a);
            let grad = grad.read(start, len, &mut b);
            out.write(start, len, &mut o, |out| block(k.op, saved, grad, out));
        }
    });
}

simd! {
    fn block<T: Float>(op: UnaryGradOp, saved: &[T], grad: &[T], out: &mut [T]) = block_body;
}

#[inline(always)]
fn map<T: Float>(saved: &[T], grad: &[T], out: &mut [T], f: impl Fn(T::Compute, T::Compute) -> T::Compute) {
    for ((o, s), g) in out.iter_mut().zip(saved).zip(grad) {
        *o = T::put(f(s.get(), g.get()));
    }
}

/// `f` inside the bounds, 0 on and outside them.
#[inline(always)]
fn inside<T: Float>(
    min: f64,
    max: f64,
    saved: &[T],
    grad: &[T],
    out: &mut [T],
    f: impl Fn(T::Compute, T::Compute) -> T::Compute,
) {
    let c = <T::Compute as Number>::from_f64;
    let (zero, min, max) = (c(0.0), c(min), c(max));
    map(saved, grad, out, |x, g| if x > min && x < max { f(x, g) } else { zero });
}

#[inline(always)]
fn block_body<S: Isa, T: Float>(op: UnaryGradOp, saved: &[T], grad: &[T], out: &mut [T]) {
    let c = <T::Compute as Number>::from_f64;
    let (zero, one) = (c(0.0), c(1.0));
    match op {
        UnaryGradOp::Relu => map(saved, grad, out, |y, g| if y > zero { g } else { zero }),
        UnaryGradOp::LeakyRelu { slope } => {
            let slope = c(slope);
            map(saved, grad, out, |x, g| if x > zero { g } else { slope * g });
        }
        UnaryGradOp::Gelu => map(saved, grad, out, |x, g| {
            let (distribution, density) = x.normal::<S>();
            g * x.fma::<S>(density, distribution)
        }),
        UnaryGradOp::GeluTanh => map(saved, grad, out, |x, g| g * gelu_tanh_slope::<S, T::Compute>(x)),
        UnaryGradOp::Silu => map(saved, grad, out, |x, g| {
            let s = x.sigmoid::<S>();
            g * s * x.fma::<S>(one - s, one)
        }),
        UnaryGradOp::Elu { alpha } => {
            let alpha = c(alpha);
            map(saved, grad, out, |x, g| if x > zero { g } else { alpha * x.exp::<S>() * g });
        }
        UnaryGradOp::Softplus => map(saved, grad, out, |x, g| g * x.sigmoid::<S>()),
        UnaryGradOp::LogSigmoid => map(saved, grad, out, |x, g| g * (-x).sigmoid::<S>()),
        UnaryGradOp::Mish => map(saved, grad, out, |x, g| {
            let t = softplus::<S, T::Compute>(x).tanh::<S>();
            g * (x * x.sigmoid::<S>()).fma::<S>(one - t * t, t)
        }),
        UnaryGradOp::Hardsigmoid => {
            let sixth = c(1.0 / 6.0);
            inside(-3.0, 3.0, saved, grad, out, |_, g| g * sixth);
        }
        UnaryGradOp::Hardswish => {
            let (three, half) = (c(3.0), c(0.5));
            let slope = |x: T::Compute| if x < three { x / three + half } else { one };
            map(saved, grad, out, |x, g| if x > -three { g * slope(x) } else { zero });
        }
        UnaryGradOp::Hardtanh { min, max } => inside(min, max, saved, grad, out, |_, g| g),
        UnaryGradOp::Tanh => map(saved, grad, out, |y, g| g * (-y).fma::<S>(y, one)),
        UnaryGradOp::Sigmoid => map(saved, grad, out, |y, g| g * y * (one - y)),
    }
}

/// Derivative of `x·s(x)` with `s = sigmoid(2u)`: `s + x·2s(1 − s)·u′`, `u′ = √(2/π)·(1 + 3·0.044715·x²)`.
#[inline(always)]
fn gelu_tanh_slope<S: Isa, R: Real>(x: R) -> R {
    let s = gelu_tanh_gate::<S, R>(x);
    let slope = R::from_f64(2.0 * SQRT_2_OVER_PI);
    let cubic = R::from_f64(6.0 * SQRT_2_OVER_PI * GELU_CUBIC);
    let inner = (x * x).fma::<S>(cubic, slope);
    (x * inner).fma::<S>(s * (R::from_f64(1.0) - s), s)
}
