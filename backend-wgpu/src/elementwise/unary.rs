//! Functions of one element.

use memcore::DType;
use memcore::backend::kernel::{Unary, UnaryOp};
use memcore::error::Result;

use super::{FUNCTIONS, I64, f, typed};
use crate::element::Elem;
use crate::job::Context;
use crate::pointwise::{Pointwise, Then};

/// Floats have every function; integers have those with integer results.
pub(crate) fn supports_unary(k: &Unary) -> bool {
    k.x.dtype.is_float() || k.op == UnaryOp::IsZero || integer(k.op, k.x.dtype).is_some()
}

/// Returns `op` as a function that is applied to the results of another function of floats.
pub(crate) fn then(op: UnaryOp) -> Then {
    let (op, [a, b, ..], body) = float(op);
    Then { op, scalars: [a, b], body }
}

pub(crate) fn unary(cx: &mut Context<'_>, k: &Unary) -> Result<()> {
    unary_then(cx, k, None)
}

/// The same, with a function that is applied to the results.
pub(crate) fn unary_then(cx: &mut Context<'_>, k: &Unary, then: Option<Then>) -> Result<()> {
    let (code, scalars, body) = if k.op == UnaryOp::IsZero {
        let body = match Elem::from_dtype(k.x.dtype) {
            Elem::I64 => "select(0, 1, (x.x | x.y) == 0u)",
            Elem::F32 | Elem::F16 | Elem::BF16 => "select(0, 1, x == 0.0)",
            _ => "select(0, 1, x == 0)",
        };
        (63, [0; 6], body)
    } else if let Some(found) = integer(k.op, k.x.dtype) {
        found
    } else {
        float(k.op)
    };
    let kernel =
        Pointwise { name: "unary", op: code, operands: &[typed(&k.out), typed(&k.x)], scalars, indexed: false };
    let (from, to) = (Elem::from_dtype(k.x.dtype).wgsl(), Elem::from_dtype(k.out.dtype).wgsl());
    kernel.run_then(cx, then, || format!("{FUNCTIONS}{I64}fn op(x: {from}) -> {to} {{ return {body}; }}"))
}

/// Code, scalars and expression of a function of floats.
fn float(op: UnaryOp) -> (u64, [u32; 6], &'static str) {
    let plain = |code, body| (code, [0; 6], body);
    match op {
        UnaryOp::Neg => plain(0, "bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u)"),
        UnaryOp::Abs => plain(1, "bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu)"),
        UnaryOp::Sign => plain(2, "select(0.0, 1.0, x > 0.0) - select(0.0, 1.0, x < 0.0)"),
        UnaryOp::Exp => plain(3, "exp(x)"),
        UnaryOp::Log => plain(4, "log(x)"),
        UnaryOp::Sqrt => plain(5, "sqrt(x)"),
        UnaryOp::Rsqrt => plain(6, "1.0 / sqrt(x)"),
        UnaryOp::Reciprocal => plain(7, "1.0 / x"),
        UnaryOp::Square => plain(8, "x * x"),
        UnaryOp::Sin => plain(9, "circular(x, 0)"),
        UnaryOp::Cos => plain(10, "circular(x, 1)"),
        UnaryOp::Tanh => plain(11, "tanh_of(x)"),
        UnaryOp::Sigmoid => plain(12, "sigmoid(x)"),
        // NVIDIA's compiler for Vulkan makes a maximum of the comparison, which is not NaN of NaN.
        UnaryOp::Relu => plain(13, "select(select(x, 0.0, x <= 0.0), x, is_nan(x))"),
        UnaryOp::LeakyRelu { slope } => (14, [f(slope), 0, 0, 0, 0, 0], "select(p.a * x, x, x > 0.0)"),
        UnaryOp::Gelu => plain(15, "x * normal_cdf(x)"),
        UnaryOp::GeluTanh => plain(16, "0.5 * x * (1.0 + tanh_of(gelu_inner(x)))"),
        UnaryOp::Silu => plain(17, "x * sigmoid(x)"),
        UnaryOp::Elu { alpha } => (30, [f(alpha), 0, 0, 0, 0, 0], "select(p.a * (exp(x) - 1.0), x, x > 0.0)"),
        UnaryOp::Softplus => plain(31, "softplus(x)"),
        UnaryOp::LogSigmoid => plain(32, "-softplus(-x)"),
        UnaryOp::Mish => plain(33, "x * tanh_of(softplus(x))"),
        UnaryOp::Hardsigmoid => plain(34, "hard_gate(x)"),
        UnaryOp::Hardswish => plain(35, "x * hard_gate(x)"),
        UnaryOp::Huber { delta } => {
            (36, [f(delta), 0, 0, 0, 0, 0], "select(p.a * (abs(x) - 0.5 * p.a), 0.5 * x * x, abs(x) < p.a)")
        }
        UnaryOp::Affine { mul, add } => (18, [f(mul), f(add), 0, 0, 0, 0], "p.a * x + p.b"),
        UnaryOp::Pow { exponent } => power(exponent),
        UnaryOp::Clamp { min, max } => {
            (20, [f(min), f(max), 0, 0, 0, 0], "select(select(select(x, p.b, x > p.b), p.a, x < p.a), x, is_nan(x))")
        }
        UnaryOp::IsZero => plain(63, "select(0.0, 1.0, x == 0.0)"),
    }
}

/// Common exponents have better forms than the general one.
fn power(exponent: f64) -> (u64, [u32; 6], &'static str) {
    let plain = |code, body| (code, [0; 6], body);
    match exponent {
        2.0 => plain(8, "x * x"),
        3.0 => plain(21, "x * x * x"),
        0.5 => plain(5, "sqrt(x)"),
        -0.5 => plain(6, "1.0 / sqrt(x)"),
        -1.0 => plain(7, "1.0 / x"),
        _ => (19, [f(exponent), 0, 0, 0, 0, 0], "power(x, p.a)"),
    }
}

/// Code, scalars and expression of a function of integers.
fn integer(op: UnaryOp, dtype: DType) -> Option<(u64, [u32; 6], &'static str)> {
    let plain = |code, body| Some((code, [0; 6], body));
    let words = |a: f64, b: f64| {
        let (a, b) = (a as i64 as u64, b as i64 as u64);
        [0, 0, a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32]
    };
    match (dtype, op) {
        (dtype, _) if dtype.is_float() => None,
        (DType::I64, UnaryOp::Neg) => plain(32, "i64_neg(x)"),
        (DType::I64, UnaryOp::Abs) => plain(33, "select(x, i64_neg(x), i64_is_negative(x))"),
        (DType::I64, UnaryOp::Square) => plain(34, "i64_mul(x, x)"),
        (DType::I64, UnaryOp::Sign) => {
            plain(35, "i64_of_i32(select(select(0, 1, any(x != vec2<u32>(0u))), -1, i64_is_negative(x)))")
        }
        (DType::I64, UnaryOp::Relu) => plain(36, "select(x, vec2<u32>(0u), i64_is_negative(x))"),
        (DType::I64, UnaryOp::Affine { mul, add }) if mul.fract() == 0.0 && add.fract() == 0.0 => {
            Some((37, words(mul, add), "i64_add(i64_mul(x, vec2<u32>(p.c, p.d)), vec2<u32>(p.e, p.f))"))
        }
        (DType::I64, UnaryOp::Clamp { min, max }) => {
            Some((38, words(min, max), "i64_clamp(x, vec2<u32>(p.c, p.d), vec2<u32>(p.e, p.f))"))
        }
        (_, UnaryOp::Neg) => plain(32, "-x"),
        (_, UnaryOp::Abs) => plain(33, "abs(x)"),
        (_, UnaryOp::Square) => plain(34, "x * x"),
        (_, UnaryOp::Sign) => plain(35, "sign(x)"),
        (_, UnaryOp::Relu) => plain(36, "max(x, 0)"),
        (_, UnaryOp::Affine { mul, add }) if mul.fract() == 0.0 && add.fract() == 0.0 => {
            Some((37, words(mul, add), "x * bitcast<i32>(p.c) + bitcast<i32>(p.e)"))
        }
        (_, UnaryOp::Clamp { min, max }) => {
            let inside = |bound: f64| bound.clamp(i32::MIN.into(), i32::MAX.into());
            Some((38, words(inside(min), inside(max)), "min(max(x, bitcast<i32>(p.c)), bitcast<i32>(p.e))"))
        }
        _ => None,
    }
}
