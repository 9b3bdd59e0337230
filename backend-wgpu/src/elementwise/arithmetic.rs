//! Functions of two and three elements.

use memcore::DType;
use memcore::backend::kernel::{Binary, BinaryOp, Ternary, TernaryOp};
use memcore::error::Result;

use super::{FUNCTIONS, I64, f, typed};
use crate::element::Elem;
use crate::job::Context;
use crate::pointwise::{Pointwise, Then};

/// Comparisons exist for every type; arithmetic exists for floats and, if the result is an integer, for integers.
pub(crate) fn supports_binary(k: &Binary) -> bool {
    k.lhs.dtype.is_float()
        || k.op.is_comparison()
        || match k.op {
            BinaryOp::Add { alpha } => k.lhs.dtype != DType::Bool && alpha.fract() == 0.0,
            BinaryOp::Div | BinaryOp::Pow => false,
            _ => true,
        }
}

pub(crate) fn binary(cx: &mut Context<'_>, k: &Binary) -> Result<()> {
    binary_then(cx, k, None)
}

/// The same, with a function that is applied to the results.
pub(crate) fn binary_then(cx: &mut Context<'_>, k: &Binary, then: Option<Then>) -> Result<()> {
    let elem = Elem::from_dtype(k.lhs.dtype);
    let (op, body) = match (elem.wgsl(), k.op.is_comparison()) {
        (_, true) => comparison(k.op, elem == Elem::I64),
        ("f32", _) => float(k.op),
        ("i32", _) => i32s(k.op),
        _ => i64s(k.op),
    };
    let alpha = match k.op {
        BinaryOp::Add { alpha } => alpha,
        _ => 1.0,
    };
    let whole = alpha as i64 as u64;
    let scalars = [f(alpha), 0, whole as u32, (whole >> 32) as u32, 0, 0];
    let operands = [typed(&k.out), typed(&k.lhs), typed(&k.rhs)];
    let kernel = Pointwise { name: "binary", op, operands: &operands, scalars, indexed: false };
    let (from, to) = (elem.wgsl(), Elem::from_dtype(k.out.dtype).wgsl());
    kernel.run_then(cx, then, || format!("{FUNCTIONS}{I64}fn op(x: {from}, y: {from}) -> {to} {{ return {body}; }}"))
}

fn float(op: BinaryOp) -> (u64, &'static str) {
    match op {
        BinaryOp::Add { alpha: 1.0 } => (0, "x + y"),
        BinaryOp::Add { .. } => (1, "x + p.a * y"),
        BinaryOp::Sub => (2, "x - y"),
        BinaryOp::Mul => (3, "x * y"),
        BinaryOp::Div => (4, "x / y"),
        BinaryOp::Maximum => (5, "larger(x, y)"),
        BinaryOp::Minimum => (6, "smaller(x, y)"),
        BinaryOp::Pow => (7, "power(x, y)"),
        _ => (8, "(x - y) * (x - y)"),
    }
}

fn i32s(op: BinaryOp) -> (u64, &'static str) {
    match op {
        BinaryOp::Add { .. } => (1, "x + bitcast<i32>(p.c) * y"),
        BinaryOp::Sub => (2, "x - y"),
        BinaryOp::Mul => (3, "x * y"),
        BinaryOp::Maximum => (5, "max(x, y)"),
        BinaryOp::Minimum => (6, "min(x, y)"),
        _ => (8, "(x - y) * (x - y)"),
    }
}

fn i64s(op: BinaryOp) -> (u64, &'static str) {
    match op {
        BinaryOp::Add { .. } => (1, "i64_add(x, i64_mul(vec2<u32>(p.c, p.d), y))"),
        BinaryOp::Sub => (2, "i64_sub(x, y)"),
        BinaryOp::Mul => (3, "i64_mul(x, y)"),
        BinaryOp::Maximum => (5, "select(x, y, i64_less(x, y))"),
        BinaryOp::Minimum => (6, "select(y, x, i64_less(x, y))"),
        _ => (8, "i64_mul(i64_sub(x, y), i64_sub(x, y))"),
    }
}

fn comparison(op: BinaryOp, wide: bool) -> (u64, &'static str) {
    match (op, wide) {
        (BinaryOp::Eq, false) => (16, "select(0, 1, x == y)"),
        (BinaryOp::Ne, false) => (17, "select(1, 0, x == y)"),
        (BinaryOp::Lt, false) => (18, "select(0, 1, x < y)"),
        (BinaryOp::Le, false) => (19, "select(0, 1, x <= y)"),
        (BinaryOp::Gt, false) => (20, "select(0, 1, x > y)"),
        (_, false) => (21, "select(0, 1, x >= y)"),
        (BinaryOp::Eq, true) => (16, "select(0, 1, all(x == y))"),
        (BinaryOp::Ne, true) => (17, "select(1, 0, all(x == y))"),
        (BinaryOp::Lt, true) => (18, "select(0, 1, i64_less(x, y))"),
        (BinaryOp::Le, true) => (19, "select(1, 0, i64_less(y, x))"),
        (BinaryOp::Gt, true) => (20, "select(0, 1, i64_less(y, x))"),
        (_, true) => (21, "select(1, 0, i64_less(x, y))"),
    }
}

pub(crate) fn ternary(cx: &mut Context<'_>, k: &Ternary) -> Result<()> {
    let (op, scalar, body) = match k.op {
        TernaryOp::Lerp { weight } => (0, weight, "x + p.a * (y - x)"),
        TernaryOp::Addcmul { value } => (1, value, "x + p.a * y * z"),
        TernaryOp::Addcdiv { value } => (2, value, "x + p.a * y / z"),
        TernaryOp::MseGrad { scale } => (3, scale, "p.a * x * (y - z)"),
    };
    let operands = [typed(&k.out), typed(&k.a), typed(&k.b), typed(&k.c)];
    let kernel =
        Pointwise { name: "ternary", op, operands: &operands, scalars: [f(scalar), 0, 0, 0, 0, 0], indexed: false };
    kernel.run(cx, || format!("fn op(x: f32, y: f32, z: f32) -> f32 {{ return {body}; }}"))
}
