//! Functions of two and three elements.

use half::f16;
use memcore::DType;
use memcore::backend::kernel::{Binary, BinaryOp, Ternary, TernaryOp};
use memcore::error::Result;

use crate::element::{Element, Float, Number, Real, larger, smaller};
use crate::parallel::Plain;
use crate::simd::{Isa, simd};
use crate::stream::{Block, Reader, Writer, for_blocks};
use crate::vector::Vector;
use crate::view::Context;

/// True if the function exists for the type: every function for floats; for integers only functions whose result is an integer.
pub(crate) fn supports_binary(k: &Binary) -> bool {
    k.lhs.dtype.is_float() || !matches!(k.op, BinaryOp::Div | BinaryOp::Pow)
}

/// `out = op(lhs, rhs)`.
pub(crate) fn binary(ctx: &Context<'_>, k: &Binary) -> Result<()> {
    match k.lhs.dtype {
        DType::F32 => run::<f32>(ctx, k, real_block::<f32>),
        DType::F64 => run::<f64>(ctx, k, real_block::<f64>),
        DType::F16 if is_lane_by_lane(k.op) => {
            let (lhs, rhs) = (Reader::<f16>::bits(ctx, &k.lhs, &k.out)?, Reader::bits(ctx, &k.rhs, &k.out)?);
            each_block(ctx, k, [&lhs, &rhs], Writer::bits(ctx, &k.out)?, half_block);
            Ok(())
        }
        DType::F16 => run::<f16>(ctx, k, real_block::<f32>),
        DType::BF16 if k.op.is_comparison() => run::<half::bf16>(ctx, k, real_block::<f32>),
        // bf16 is converted in registers.
        DType::BF16 => {
            let (lhs, rhs) = (Reader::<half::bf16>::bits(ctx, &k.lhs, &k.out)?, Reader::bits(ctx, &k.rhs, &k.out)?);
            each_block(ctx, k, [&lhs, &rhs], Writer::bits(ctx, &k.out)?, real_block::<half::bf16>);
            Ok(())
        }
        DType::I64 => run::<i64>(ctx, k, integer_block),
        DType::I32 => run::<i32>(ctx, k, integer_block),
        DType::I8 => run::<i8>(ctx, k, integer_block),
        DType::U8 | DType::Bool => run::<u8>(ctx, k, integer_block),
        DType::C64 => Err(super::refused("binary", DType::C64)),
    }
}

type BlockFn<C> = fn(BinaryOp, &[C], &[C], &mut [C]);

fn run<T: Element>(ctx: &Context<'_>, k: &Binary, block: BlockFn<T::Compute>) -> Result<()> {
    let lhs = Reader::typed::<T>(ctx, &k.lhs, &k.out)?;
    let rhs = Reader::typed::<T>(ctx, &k.rhs, &k.out)?;
    if k.op.is_comparison() {
        let out = Writer::<u8>::bits(ctx, &k.out)?;
        for_blocks(ctx, k.out.numel(), |start, len| {
            let (mut a, mut b, mut o) = (Block::new(), Block::new(), Block::new());
            // SAFETY: blocks lie in `0..numel` and are disjoint; core validated the aliasing.
            unsafe {
                let lhs = lhs.read(start, len, &mut a);
                let rhs = rhs.read(start, len, &mut b);
                out.write(start, len, &mut o, |out| compare(k.op, lhs, rhs, out));
            }
        });
        return Ok(());
    }
    each_block(ctx, k, [&lhs, &rhs], Writer::typed::<T>(ctx, &k.out)?, block);
    Ok(())
}

fn each_block<C: Plain + Default>(
    ctx: &Context<'_>,
    k: &Binary,
    [lhs, rhs]: [&Reader<C>; 2],
    out: Writer<C>,
    block: BlockFn<C>,
) {
    let out = out.streamed(&[&k.lhs, &k.rhs], &k.out);
    for_blocks(ctx, k.out.numel(), |start, len| {
        let (mut a, mut b, mut o) = (Block::new(), Block::new(), Block::new());
        // SAFETY: blocks lie in `0..numel` and are disjoint; core validated the aliasing.
        unsafe {
            let lhs = lhs.read(start, len, &mut a);
            let rhs = rhs.read(start, len, &mut b);
            out.write(start, len, &mut o, |out| block(k.op, lhs, rhs, out));
        }
    });
}

/// True for a function that [`half_block`] computes.
fn is_lane_by_lane(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Add { .. } | BinaryOp::Sub | BinaryOp::Mul)
}

simd! {
    fn half_block(op: BinaryOp, a: &[f16], b: &[f16], out: &mut [f16]) = half_block_body;
    fn real_block<T: Float>(op: BinaryOp, a: &[T], b: &[T], out: &mut [T]) = real_block_body;
    fn compare<C: Number>(op: BinaryOp, a: &[C], b: &[C], out: &mut [u8]) = compare_body;
    fn ternary_block<R: Real>(op: TernaryOp, a: &[R], b: &[R], c: &[R], out: &mut [R]) = ternary_block_body;
}

#[inline(always)]
fn map<A: Copy, B>(a: &[A], b: &[A], out: &mut [B], f: impl Fn(A, A) -> B) {
    for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *o = f(a, b);
    }
}

/// Computes `out = f(a, b)` in the compute type.
#[inline(always)]
fn each<T: Float>(a: &[T], b: &[T], out: &mut [T], f: impl Fn(T::Compute, T::Compute) -> T::Compute) {
    for ((o, a), b) in out.iter_mut().zip(a).zip(b) {
        *o = T::put(f(a.get(), b.get()));
    }
}

#[inline(always)]
fn real_block_body<S: Isa, T: Float>(op: BinaryOp, a: &[T], b: &[T], out: &mut [T]) {
    match op {
        BinaryOp::Add { alpha: 1.0 } => each(a, b, out, |a, b| a + b),
        BinaryOp::Add { alpha } => {
            let alpha = <T::Compute as Number>::from_f64(alpha);
            each(a, b, out, |a, b| b.fma::<S>(alpha, a));
        }
        BinaryOp::Sub => each(a, b, out, |a, b| a - b),
        BinaryOp::Mul => each(a, b, out, |a, b| a * b),
        BinaryOp::Div => each(a, b, out, |a, b| a / b),
        BinaryOp::Maximum => each(a, b, out, larger),
        BinaryOp::Minimum => each(a, b, out, smaller),
        BinaryOp::Pow => each(a, b, out, |a, b| a.pow(b)),
        BinaryOp::SquaredDifference => each(a, b, out, |a, b| (a - b) * (a - b)),
        // `compare` handles comparisons, because they write another type.
        _ => {}
    }
}

/// The functions of [`is_lane_by_lane`] for f16, which explicit vectors widen and round in registers: compilers do not.
#[inline(always)]
fn half_block_body<S: Isa>(op: BinaryOp, a: &[f16], b: &[f16], out: &mut [f16]) {
    let (factor, is_product) = match op {
        BinaryOp::Add { alpha } => (alpha as f32, false),
        BinaryOp::Sub => (-1.0, false),
        _ => (1.0, true),
    };
    let (n, lanes) = (out.len().min(a.len()).min(b.len()), <S::F32 as Vector<f32>>::N);
    let mut at = 0;
    while at + lanes <= n {
        // SAFETY: `lanes` elements from `at` on lie in each slice.
        let done = unsafe {
            let (a, b) = (S::F32::load_f16(a.as_ptr().add(at)), S::F32::load_f16(b.as_ptr().add(at)));
            let (Some(a), Some(b)) = (a, b) else { break };
            let result = if is_product { a.mul(b) } else { b.fma(S::F32::splat(factor), a) };
            result.store_f16(out.as_mut_ptr().add(at))
        };
        debug_assert!(done, "what can be loaded can be stored");
        at += lanes;
    }
    for ((o, a), b) in out[at..n].iter_mut().zip(&a[at..n]).zip(&b[at..n]) {
        let (a, b) = (a.get(), b.get());
        *o = f16::put(if is_product { a * b } else { b.fma::<S>(factor, a) });
    }
}

#[inline(always)]
fn compare_body<S: Isa, C: Number>(op: BinaryOp, a: &[C], b: &[C], out: &mut [u8]) {
    match op {
        BinaryOp::Eq => map(a, b, out, |a, b| (a == b) as u8),
        BinaryOp::Ne => map(a, b, out, |a, b| (a != b) as u8),
        BinaryOp::Lt => map(a, b, out, |a, b| (a < b) as u8),
        BinaryOp::Le => map(a, b, out, |a, b| (a <= b) as u8),
        BinaryOp::Gt => map(a, b, out, |a, b| (a > b) as u8),
        _ => map(a, b, out, |a, b| (a >= b) as u8),
    }
}

fn integer_block(op: BinaryOp, a: &[i64], b: &[i64], out: &mut [i64]) {
    match op {
        BinaryOp::Add { alpha } => {
            let alpha = alpha as i64;
            map(a, b, out, |a, b| a.wrapping_add(alpha.wrapping_mul(b)));
        }
        BinaryOp::Sub => map(a, b, out, |a, b| a.wrapping_sub(b)),
        BinaryOp::Mul => map(a, b, out, |a, b| a.wrapping_mul(b)),
        BinaryOp::Maximum => map(a, b, out, |a, b| a.max(b)),
        BinaryOp::Minimum => map(a, b, out, |a, b| a.min(b)),
        BinaryOp::SquaredDifference => map(a, b, out, |a, b| a.wrapping_sub(b).wrapping_mul(a.wrapping_sub(b))),
        // `supports_binary` refuses all other functions.
        _ => out.copy_from_slice(a),
    }
}

/// `out = op(a, b, c)`.
pub(crate) fn ternary(ctx: &Context<'_>, k: &Ternary) -> Result<()> {
    match k.out.dtype {
        DType::F64 => run_ternary::<f64>(ctx, k),
        DType::F16 => run_ternary::<half::f16>(ctx, k),
        DType::BF16 => run_ternary::<half::bf16>(ctx, k),
        _ => run_ternary::<f32>(ctx, k),
    }
}

fn run_ternary<T: Float>(ctx: &Context<'_>, k: &Ternary) -> Result<()> {
    let a = Reader::typed::<T>(ctx, &k.a, &k.out)?;
    let b = Reader::typed::<T>(ctx, &k.b, &k.out)?;
    let c = Reader::typed::<T>(ctx, &k.c, &k.out)?;
    let out = Writer::typed::<T>(ctx, &k.out)?.streamed(&[&k.a, &k.b, &k.c], &k.out);
    for_blocks(ctx, k.out.numel(), |start, len| {
        let (mut x, mut y, mut z, mut o) = (Block::new(), Block::new(), Block::new(), Block::new());
        // SAFETY: blocks lie in `0..numel` and are disjoint; core validated the aliasing.
        unsafe {
            let a = a.read(start, len, &mut x);
            let b = b.read(start, len, &mut y);
            let c = c.read(start, len, &mut z);
            out.write(start, len, &mut o, |out| ternary_block(k.op, a, b, c, out));
        }
    });
    Ok(())
}

#[inline(always)]
fn map3<R: Real>(a: &[R], b: &[R], c: &[R], out: &mut [R], f: impl Fn(R, R, R) -> R) {
    for (((o, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) {
        *o = f(a, b, c);
    }
}

#[inline(always)]
fn ternary_block_body<S: Isa, R: Real>(op: TernaryOp, a: &[R], b: &[R], c: &[R], out: &mut [R]) {
    match op {
        TernaryOp::Lerp { weight } => {
            let weight = R::from_f64(weight);
            map3(a, b, b, out, |a, b, _| weight.fma::<S>(b - a, a));
        }
        TernaryOp::Addcmul { value } => {
            let value = R::from_f64(value);
            map3(a, b, c, out, |a, b, c| (value * b).fma::<S>(c, a));
        }
        TernaryOp::Addcdiv { value } => {
            let value = R::from_f64(value);
            map3(a, b, c, out, |a, b, c| a + value * b / c);
        }
        TernaryOp::MseGrad { scale } => {
            let scale = R::from_f64(scale);
            map3(a, b, c, out, |a, b, c| scale * a * (b - c));
        }
    }
}
