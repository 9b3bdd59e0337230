//! Functions of one element.

use memcore::DType;
use memcore::backend::kernel::{Unary, UnaryOp};
use memcore::error::Result;

use crate::element::{Element, Float, Number, Real};
use crate::parallel::Plain;
use crate::simd::{Isa, simd};
use crate::stream::{Block, Reader, Writer, for_blocks};
use crate::view::Context;

/// True if the function exists for the type: every function for floats; for integers only functions whose result is an integer.
pub(crate) fn supports_unary(k: &Unary) -> bool {
    k.x.dtype.is_float()
        || matches!(
            k.op,
            UnaryOp::Neg
                | UnaryOp::Abs
                | UnaryOp::Sign
                | UnaryOp::Square
                | UnaryOp::Relu
                | UnaryOp::Affine { .. }
                | UnaryOp::Clamp { .. }
                | UnaryOp::IsZero
        )
}

/// `out = op(x)`.
pub(crate) fn unary(ctx: &Context<'_>, k: &Unary) -> Result<()> {
    match k.x.dtype {
        DType::F32 => run::<f32>(ctx, k, real_block::<f32>),
        DType::F64 => run::<f64>(ctx, k, real_block::<f64>),
        DType::F16 if k.op == UnaryOp::Relu => {
            let (x, out) = (Reader::<u16>::bits(ctx, &k.x, &k.out)?, Writer::bits(ctx, &k.out)?);
            each_block(ctx, k, &x, out, relu_of_bits);
            Ok(())
        }
        DType::F16 => run::<half::f16>(ctx, k, real_block::<f32>),
        DType::BF16 if k.op == UnaryOp::IsZero => run::<half::bf16>(ctx, k, real_block::<f32>),
        // bf16 is converted in registers.
        DType::BF16 => {
            let (x, out) = (Reader::<half::bf16>::bits(ctx, &k.x, &k.out)?, Writer::bits(ctx, &k.out)?);
            each_block(ctx, k, &x, out, real_block::<half::bf16>);
            Ok(())
        }
        DType::I64 => run::<i64>(ctx, k, integer_block),
        DType::I32 => run::<i32>(ctx, k, integer_block),
        DType::I8 => run::<i8>(ctx, k, integer_block),
        DType::U8 | DType::Bool => run::<u8>(ctx, k, integer_block),
        DType::C64 => Err(super::refused("unary", DType::C64)),
    }
}

type BlockFn<C> = fn(UnaryOp, &[C], &mut [C]);

fn run<T: Element>(ctx: &Context<'_>, k: &Unary, block: BlockFn<T::Compute>) -> Result<()> {
    let x = Reader::typed::<T>(ctx, &k.x, &k.out)?;
    if k.op == UnaryOp::IsZero {
        return is_zero(ctx, k, &x);
    }
    each_block(ctx, k, &x, Writer::typed::<T>(ctx, &k.out)?, block);
    Ok(())
}

fn each_block<C: Plain + Default>(ctx: &Context<'_>, k: &Unary, x: &Reader<C>, out: Writer<C>, block: BlockFn<C>) {
    let out = out.streamed(&[&k.x], &k.out);
    for_blocks(ctx, k.out.numel(), |start, len| {
        let (mut a, mut o) = (Block::new(), Block::new());
        // SAFETY: blocks lie in `0..numel` and are disjoint; core validated the aliasing.
        unsafe {
            let x = x.read(start, len, &mut a);
            out.write(start, len, &mut o, |out| block(k.op, x, out));
        }
    });
}

fn is_zero<C: Number>(ctx: &Context<'_>, k: &Unary, x: &Reader<C>) -> Result<()> {
    let out = Writer::<u8>::bits(ctx, &k.out)?;
    for_blocks(ctx, k.out.numel(), |start, len| {
        let (mut a, mut o) = (Block::new(), Block::new());
        // SAFETY: blocks lie in `0..numel` and are disjoint; core validated the aliasing.
        unsafe {
            let x = x.read(start, len, &mut a);
            out.write(start, len, &mut o, |out| map(x, out, |x| (x == C::default()) as u8));
        }
    });
    Ok(())
}

simd! {
    fn relu_of_bits(op: UnaryOp, x: &[u16], out: &mut [u16]) = relu_of_bits_body;
    fn real_block<T: Float>(op: UnaryOp, x: &[T], out: &mut [T]) = real_block_body;
}

#[inline(always)]
pub(super) fn map<A: Copy, B>(x: &[A], out: &mut [B], f: impl Fn(A) -> B) {
    for (o, &x) in out.iter_mut().zip(x) {
        *o = f(x);
    }
}

/// Computes `out = f(x)` in the compute type.
#[inline(always)]
fn each<T: Float>(x: &[T], out: &mut [T], f: impl Fn(T::Compute) -> T::Compute) {
    for (o, x) in out.iter_mut().zip(x) {
        *o = T::put(f(x.get()));
    }
}

/// ReLU of f16 without a conversion: what is from −0 to −∞ becomes 0, and NaN stays.
#[inline(always)]
fn relu_of_bits_body<S: Isa>(_: UnaryOp, x: &[u16], out: &mut [u16]) {
    for (o, &x) in out.iter_mut().zip(x) {
        *o = if x.wrapping_sub(0x8000) <= 0x7c00 { 0 } else { x };
    }
}

#[inline(always)]
fn real_block_body<S: Isa, T: Float>(op: UnaryOp, x: &[T], out: &mut [T]) {
    let c = <T::Compute as Number>::from_f64;
    let (zero, one) = (c(0.0), c(1.0));
    match op {
        UnaryOp::Neg => each(x, out, |x| -x),
        UnaryOp::Abs => each(x, out, |x| x.magnitude()),
        UnaryOp::Sign => each(x, out, sign),
        UnaryOp::Exp => each(x, out, |x| x.exp::<S>()),
        UnaryOp::Log => each(x, out, |x| x.ln::<S>()),
        UnaryOp::Sqrt => each(x, out, |x| x.sqrt()),
        UnaryOp::Rsqrt => each(x, out, |x| one / x.sqrt()),
        UnaryOp::Reciprocal => each(x, out, |x| one / x),
        UnaryOp::Square => each(x, out, |x| x * x),
        UnaryOp::Sin => each(x, out, |x| x.sin()),
        UnaryOp::Cos => each(x, out, |x| x.cos()),
        UnaryOp::Tanh => each(x, out, |x| x.tanh::<S>()),
        UnaryOp::Sigmoid => each(x, out, |x| x.sigmoid::<S>()),
        UnaryOp::Relu => each(x, out, |x| if x <= zero { zero } else { x }),
        UnaryOp::LeakyRelu { slope } => {
            let slope = c(slope);
            each(x, out, |x| if x > zero { x } else { slope * x });
        }
        UnaryOp::Gelu => each(x, out, |x| x * x.normal::<S>().0),
        UnaryOp::GeluTanh => each(x, out, |x| gelu_tanh::<S, T::Compute>(x)),
        UnaryOp::Silu => each(x, out, |x| x * x.sigmoid::<S>()),
        UnaryOp::Elu { alpha } => {
            let alpha = c(alpha);
            each(x, out, |x| if x > zero { x } else { alpha * (x.exp::<S>() - one) });
        }
        UnaryOp::Softplus => each(x, out, |x| softplus::<S, T::Compute>(x)),
        UnaryOp::LogSigmoid => each(x, out, |x| -softplus::<S, T::Compute>(-x)),
        UnaryOp::Mish => each(x, out, |x| x * softplus::<S, T::Compute>(x).tanh::<S>()),
        UnaryOp::Hardsigmoid => each(x, out, hard_gate),
        UnaryOp::Hardswish => each(x, out, |x| x * hard_gate(x)),
        UnaryOp::Huber { delta } => {
            let (delta, half) = (c(delta), c(0.5));
            each(x, out, |x| if x.magnitude() < delta { half * x * x } else { delta * (x.magnitude() - half * delta) });
        }
        UnaryOp::Affine { mul, add } => {
            let (mul, add) = (c(mul), c(add));
            each(x, out, |x| x.fma::<S>(mul, add));
        }
        UnaryOp::Pow { exponent } => pow(exponent, x, out),
        UnaryOp::Clamp { min, max } => {
            let (min, max) = (c(min), c(max));
            each(x, out, |x| clamp(min, max, x));
        }
        // `is_zero` handles this function, because it writes another type.
        UnaryOp::IsZero => {}
    }
}

/// `ln(1 + eˣ)`, without overflow.
#[inline(always)]
pub(super) fn softplus<S: Isa, R: Real>(x: R) -> R {
    let (zero, one) = (R::from_f64(0.0), R::from_f64(1.0));
    let positive = if x < zero { zero } else { x };
    positive + (one + (-x.magnitude()).exp::<S>()).ln::<S>()
}

/// `min(max(x + 3, 0), 6)/6`.
#[inline(always)]
fn hard_gate<R: Real>(x: R) -> R {
    let (zero, six) = (R::from_f64(0.0), R::from_f64(6.0));
    let shifted = x + R::from_f64(3.0);
    let bounded = if shifted < zero { zero } else { shifted };
    (if bounded > six { six } else { bounded }) / six
}

#[inline(always)]
fn sign<C: Number>(x: C) -> C {
    let (zero, one) = (C::default(), C::from_f64(1.0));
    let positive = if x > zero { one } else { zero };
    if x < zero { zero.minus(one) } else { positive }
}

/// Clamps by comparisons that let NaN through.
#[inline(always)]
fn clamp<C: Number>(min: C, max: C, x: C) -> C {
    let x = if x < min { min } else { x };
    if x > max { max } else { x }
}

/// `x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2` (Hendrycks and Gimpel 2016), with the sigmoid form of tanh, which needs one exponential.
#[inline(always)]
fn gelu_tanh<S: Isa, R: Real>(x: R) -> R {
    x * gelu_tanh_gate::<S, R>(x)
}

/// `(1 + tanh u)/2 = sigmoid(2u)` with `u = √(2/π)·(x + 0.044715·x³)`.
#[inline(always)]
pub(super) fn gelu_tanh_gate<S: Isa, R: Real>(x: R) -> R {
    let slope = R::from_f64(2.0 * SQRT_2_OVER_PI);
    let cubic = R::from_f64(2.0 * SQRT_2_OVER_PI * GELU_CUBIC);
    (x * (x * x).fma::<S>(cubic, slope)).sigmoid::<S>()
}

/// √(2/π)
pub(super) const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
/// Factor of the cubic term of GELU's tanh approximation.
pub(super) const GELU_CUBIC: f64 = 0.044_715;

/// Computes common exponents without the general power, as PyTorch does.
#[inline(always)]
fn pow<T: Float>(exponent: f64, x: &[T], out: &mut [T]) {
    let one = <T::Compute as Number>::from_f64(1.0);
    if exponent == 2.0 {
        each(x, out, |x| x * x);
    } else if exponent == 3.0 {
        each(x, out, |x| x * x * x);
    } else if exponent == 0.5 {
        each(x, out, |x| x.sqrt());
    } else if exponent == -0.5 {
        each(x, out, |x| one / x.sqrt());
    } else if exponent == -1.0 {
        each(x, out, |x| one / x);
    } else if exponent == -2.0 {
        each(x, out, |x| one / (x * x));
    } else {
        let exponent = <T::Compute as Number>::from_f64(exponent);
        each(x, out, |x| x.pow(exponent));
    }
}

fn integer_block(op: UnaryOp, x: &[i64], out: &mut [i64]) {
    match op {
        UnaryOp::Neg => map(x, out, |x| x.wrapping_neg()),
        UnaryOp::Abs => map(x, out, |x| x.wrapping_abs()),
        UnaryOp::Sign => map(x, out, |x| x.signum()),
        UnaryOp::Square => map(x, out, |x| x.wrapping_mul(x)),
        UnaryOp::Relu => map(x, out, |x| x.max(0)),
        UnaryOp::Affine { mul, add } if mul.fract() == 0.0 && add.fract() == 0.0 => {
            let (mul, add) = (mul as i64, add as i64);
            map(x, out, |x| x.wrapping_mul(mul).wrapping_add(add));
        }
        UnaryOp::Affine { mul, add } => map(x, out, |x| (x as f64).mul_add(mul, add) as i64),
        UnaryOp::Clamp { min, max } => map(x, out, |x| clamp(min as i64, max as i64, x)),
        // `supports_unary` refuses all other functions.
        _ => out.copy_from_slice(x),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relu_of_every_f16_is_that_of_its_number() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let mut out = vec![1; all.len()];
        relu_of_bits(UnaryOp::Relu, &all, &mut out);
        for (x, out) in all.into_iter().zip(out) {
            let (x, out) = (half::f16::from_bits(x), half::f16::from_bits(out));
            let want = if x.to_f32() <= 0.0 { half::f16::ZERO } else { x };
            assert_eq!(out.to_bits(), want.to_bits(), "{x}");
        }
    }
}
