//! Fill, copy, arithmetic, selection. Arithmetic on integers is also done in f64, which represents them exactly up to
//! 2⁵³.

use memcore::Result;
use memcore::backend::Operand;
use memcore::backend::kernel::{
    Binary, BinaryOp, Copy, Fill, MaskedFill, Select, Ternary, TernaryOp, Triangle, Unary, UnaryGrad, UnaryGradOp,
    UnaryOp,
};

use super::special::{normal_cdf, normal_pdf};
use super::{Memory, Number};

pub(super) fn fill(m: &mut Memory, k: &Fill) -> Result<()> {
    m.write_numbers(&k.out, std::iter::repeat(Number::F(k.value)))
}

pub(super) fn copy(m: &mut Memory, k: &Copy) -> Result<()> {
    let x = m.numbers(&k.src)?;
    m.write_numbers(&k.out, x)
}

pub(super) fn unary(m: &mut Memory, k: &Unary) -> Result<()> {
    let y: Vec<f64> = m.floats(&k.x)?.into_iter().map(|x| unary_value(k.op, x)).collect();
    m.write(&k.out, &y)
}

fn unary_value(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign => f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Reciprocal => 1.0 / x,
        UnaryOp::Square => x * x,
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::Relu => {
            if x <= 0.0 {
                0.0
            } else {
                x
            }
        }
        UnaryOp::LeakyRelu { slope } => {
            if x > 0.0 {
                x
            } else {
                slope * x
            }
        }
        UnaryOp::Gelu => x * normal_cdf(x),
        UnaryOp::GeluTanh => 0.5 * x * (1.0 + gelu_inner(x).tanh()),
        UnaryOp::Silu => x * sigmoid(x),
        UnaryOp::Elu { alpha } => {
            if x > 0.0 {
                x
            } else {
                alpha * x.exp_m1()
            }
        }
        UnaryOp::Softplus => softplus(x),
        UnaryOp::LogSigmoid => -softplus(-x),
        UnaryOp::Mish => x * softplus(x).tanh(),
        UnaryOp::Hardsigmoid => (x + 3.0).clamp(0.0, 6.0) / 6.0,
        UnaryOp::Hardswish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        UnaryOp::Huber { delta } => {
            if x.abs() < delta {
                x * x / 2.0
            } else {
                delta * (x.abs() - delta / 2.0)
            }
        }
        UnaryOp::Affine { mul, add } => mul * x + add,
        UnaryOp::Pow { exponent } => x.powf(exponent),
        UnaryOp::Clamp { min, max } => {
            if x < min {
                min
            } else if x > max {
                max
            } else {
                x
            }
        }
        UnaryOp::IsZero => f64::from(u8::from(x == 0.0)),
    }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `√(2/π)·(x + 0.044715·x³)`: the argument of GELU's tanh approximation.
fn gelu_inner(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
}

pub(super) fn unary_grad(m: &mut Memory, k: &UnaryGrad) -> Result<()> {
    let (saved, grad) = (m.floats(&k.saved)?, m.floats(&k.grad)?);
    let out: Vec<f64> = saved.iter().zip(&grad).map(|(&s, &g)| unary_grad_value(k.op, s, g)).collect();
    m.write(&k.out, &out)
}

fn unary_grad_value(op: UnaryGradOp, s: f64, grad: f64) -> f64 {
    match op {
        UnaryGradOp::Relu => {
            if s > 0.0 {
                grad
            } else {
                0.0
            }
        }
        UnaryGradOp::LeakyRelu { slope } => {
            if s > 0.0 {
                grad
            } else {
                slope * grad
            }
        }
        UnaryGradOp::Gelu => grad * (normal_cdf(s) + s * normal_pdf(s)),
        UnaryGradOp::GeluTanh => {
            let t = gelu_inner(s).tanh();
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044715 * s * s);
            grad * (0.5 * (1.0 + t) + 0.5 * s * (1.0 - t * t) * inner)
        }
        UnaryGradOp::Silu => grad * sigmoid(s) * (1.0 + s * (1.0 - sigmoid(s))),
        UnaryGradOp::Elu { alpha } => {
            if s > 0.0 {
                grad
            } else {
                alpha * s.exp() * grad
            }
        }
        UnaryGradOp::Softplus => grad * sigmoid(s),
        UnaryGradOp::LogSigmoid => grad * sigmoid(-s),
        UnaryGradOp::Mish => {
            let t = softplus(s).tanh();
            grad * (t + s * sigmoid(s) * (1.0 - t * t))
        }
        UnaryGradOp::Hardsigmoid => within(s, -3.0, 3.0) * grad / 6.0,
        UnaryGradOp::Hardswish => {
            if s >= 3.0 {
                grad
            } else {
                within(s, -3.0, 3.0) * grad * (s / 3.0 + 0.5)
            }
        }
        UnaryGradOp::Hardtanh { min, max } => within(s, min, max) * grad,
        UnaryGradOp::Tanh => grad * (1.0 - s * s),
        UnaryGradOp::Sigmoid => grad * s * (1.0 - s),
    }
}

/// 1 between the bounds, 0 on them and beyond.
fn within(x: f64, min: f64, max: f64) -> f64 {
    f64::from(u8::from(x > min && x < max))
}

pub(super) fn binary(m: &mut Memory, k: &Binary) -> Result<()> {
    if k.op.is_comparison() {
        return compare(m, k);
    }
    let (a, b) = (m.floats(&k.lhs)?, m.floats(&k.rhs)?);
    let out: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| binary_value(k.op, a, b)).collect();
    m.write(&k.out, &out)
}

fn binary_value(op: BinaryOp, a: f64, b: f64) -> f64 {
    match op {
        BinaryOp::Add { alpha } => a + alpha * b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Maximum if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Minimum if a.is_nan() || b.is_nan() => f64::NAN,
        BinaryOp::Maximum => a.max(b),
        BinaryOp::Minimum => a.min(b),
        BinaryOp::Pow => a.powf(b),
        BinaryOp::SquaredDifference => (a - b) * (a - b),
        // `compare` evaluates comparisons, on integers as integers.
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => f64::NAN,
    }
}

fn compare(m: &mut Memory, k: &Binary) -> Result<()> {
    let pairs = m.numbers(&k.lhs)?.into_iter().zip(m.numbers(&k.rhs)?);
    let out: Vec<i64> = pairs
        .map(|(a, b)| {
            let holds = match (a, b) {
                (Number::I(a), Number::I(b)) => comparison(k.op, &a, &b),
                (a, b) => comparison(k.op, &a.to_f64(), &b.to_f64()),
            };
            i64::from(holds)
        })
        .collect();
    m.write_ints(&k.out, &out)
}

fn comparison<T: PartialOrd>(op: BinaryOp, a: &T, b: &T) -> bool {
    match op {
        BinaryOp::Eq => a == b,
        BinaryOp::Ne => a != b,
        BinaryOp::Lt => a < b,
        BinaryOp::Le => a <= b,
        BinaryOp::Gt => a > b,
        _ => a >= b,
    }
}

pub(super) fn ternary(m: &mut Memory, k: &Ternary) -> Result<()> {
    let (a, b, c) = (m.floats(&k.a)?, m.floats(&k.b)?, m.floats(&k.c)?);
    let value = |i: usize| match k.op {
        TernaryOp::Lerp { weight } => a[i] + weight * (b[i] - a[i]),
        TernaryOp::Addcmul { value } => a[i] + value * b[i] * c[i],
        TernaryOp::Addcdiv { value } => a[i] + value * b[i] / c[i],
        TernaryOp::MseGrad { scale } => scale * a[i] * (b[i] - c[i]),
    };
    let out: Vec<f64> = (0..a.len()).map(value).collect();
    m.write(&k.out, &out)
}

pub(super) fn select(m: &mut Memory, k: &Select) -> Result<()> {
    let (mask, yes, no) = (m.ints(&k.mask)?, m.numbers(&k.on_true)?, m.numbers(&k.on_false)?);
    let chosen = (0..mask.len()).map(|i| if mask[i] != 0 { yes[i] } else { no[i] });
    m.write_numbers(&k.out, chosen)
}

pub(super) fn masked_fill(m: &mut Memory, k: &MaskedFill) -> Result<()> {
    let (mask, x) = (m.ints(&k.mask)?, m.numbers(&k.x)?);
    let chosen = (0..mask.len()).map(|i| if mask[i] != 0 { Number::F(k.value) } else { x[i] });
    m.write_numbers(&k.out, chosen)
}

pub(super) fn triangle(m: &mut Memory, k: &Triangle) -> Result<()> {
    let x = m.numbers(&k.x)?;
    let dims = k.out.dims();
    let (rows, columns) = (dims[dims.len() - 2], dims[dims.len() - 1]);
    let kept = x.into_iter().enumerate().map(|(at, value)| {
        let (i, j) = ((at / columns % rows) as i64, (at % columns) as i64);
        let inside = if k.upper { j - i >= k.diagonal } else { j - i <= k.diagonal };
        if inside { value } else { zero(&k.out) }
    });
    m.write_numbers(&k.out, kept)
}

/// 0 in an operand's type.
fn zero(x: &Operand) -> Number {
    if x.dtype.is_float() { Number::F(0.0) } else { Number::I(0) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use memcore::DType;

    #[track_caller]
    fn unary_is(op: UnaryOp, x: &[f64], want: &[f64]) {
        let b = Bench::new();
        let (x, out) = (b.f32(&[x.len()], x), b.fresh(DType::F32, &[want.len()]));
        b.run(Unary { op, x, out });
        b.expect(&out, want);
    }

    #[test]
    fn fill_and_copy_convert() {
        let b = Bench::new();
        let out = b.fresh(DType::I8, &[3]);
        b.run(Fill { value: -2.7, out });
        b.expect(&out, &[-2.0, -2.0, -2.0]);
        let (src, out) = (b.f32(&[3], &[0.0, -1.9, 2.5]), b.fresh(DType::I64, &[3]));
        b.run(Copy { src, out });
        b.expect(&out, &[0.0, -1.0, 2.0]);
        let out = b.fresh(DType::Bool, &[3]);
        b.run(Copy { src, out });
        b.expect(&out, &[0.0, 1.0, 1.0]);
    }

    #[test]
    fn copy_follows_strides() {
        let b = Bench::new();
        let mut src = b.f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        src.layout = src.layout.transposed(0, 1);
        let out = b.fresh(DType::F32, &[3, 2]);
        b.run(Copy { src, out });
        b.expect(&out, &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }

    #[test]
    fn unary_functions_at_known_points() {
        let (e, ln2) = (std::f64::consts::E, std::f64::consts::LN_2);
        unary_is(UnaryOp::Neg, &[1.5, -2.0], &[-1.5, 2.0]);
        unary_is(UnaryOp::Abs, &[1.5, -2.0], &[1.5, 2.0]);
        unary_is(UnaryOp::Sign, &[1.5, -2.0, 0.0], &[1.0, -1.0, 0.0]);
        unary_is(UnaryOp::Exp, &[0.0, 1.0, ln2], &[1.0, e, 2.0]);
        unary_is(UnaryOp::Log, &[1.0, 2.0, 0.0], &[0.0, ln2, f64::NEG_INFINITY]);
        unary_is(UnaryOp::Sqrt, &[9.0, 0.25], &[3.0, 0.5]);
        unary_is(UnaryOp::Rsqrt, &[4.0, 0.25], &[0.5, 2.0]);
        unary_is(UnaryOp::Reciprocal, &[4.0, -0.5], &[0.25, -2.0]);
        unary_is(UnaryOp::Square, &[-3.0], &[9.0]);
        unary_is(UnaryOp::Sin, &[std::f64::consts::FRAC_PI_6], &[0.5]);
        unary_is(UnaryOp::Cos, &[std::f64::consts::FRAC_PI_3], &[0.5]);
        unary_is(UnaryOp::Tanh, &[0.0, ln2], &[0.0, 0.6]);
        unary_is(UnaryOp::Sigmoid, &[0.0, ln2], &[0.5, 2.0 / 3.0]);
        unary_is(UnaryOp::Relu, &[-1.0, 2.0, f64::NAN], &[0.0, 2.0, f64::NAN]);
        unary_is(UnaryOp::LeakyRelu { slope: 0.5 }, &[-1.0, 2.0], &[-0.5, 2.0]);
        unary_is(UnaryOp::Gelu, &[1.0, -1.0], &[0.841_344_746, -0.158_655_254]);
        unary_is(UnaryOp::GeluTanh, &[1.0], &[0.841_192]);
        unary_is(UnaryOp::Silu, &[ln2], &[ln2 * 2.0 / 3.0]);
        unary_is(UnaryOp::Elu { alpha: 2.0 }, &[1.5, -ln2], &[1.5, -1.0]);
        unary_is(UnaryOp::Softplus, &[0.0, ln2, -800.0, 800.0], &[ln2, 3f64.ln(), 0.0, 800.0]);
        unary_is(UnaryOp::LogSigmoid, &[0.0, -ln2, 800.0, -800.0], &[-ln2, -(3f64.ln()), 0.0, -800.0]);
        unary_is(UnaryOp::Mish, &[0.0, ln2], &[0.0, 0.8 * ln2]);
        unary_is(UnaryOp::Hardsigmoid, &[-4.0, 0.0, 1.5, 4.0], &[0.0, 0.5, 0.75, 1.0]);
        unary_is(UnaryOp::Hardswish, &[-4.0, -1.5, 1.5, 4.0], &[0.0, -0.375, 1.125, 4.0]);
        unary_is(UnaryOp::Huber { delta: 2.0 }, &[-1.0, 2.0, -5.0], &[0.5, 2.0, 8.0]);
        unary_is(UnaryOp::Affine { mul: 3.0, add: -1.0 }, &[2.0], &[5.0]);
        unary_is(UnaryOp::Pow { exponent: 3.0 }, &[-2.0], &[-8.0]);
        unary_is(UnaryOp::Clamp { min: -1.0, max: 2.0 }, &[-3.0, 0.5, 4.0], &[-1.0, 0.5, 2.0]);
    }

    #[test]
    fn unary_gradients_are_central_differences() {
        let bounds = (UnaryOp::Clamp { min: -1.0, max: 2.0 }, UnaryGradOp::Hardtanh { min: -1.0, max: 2.0 }, false);
        let pairs: [(UnaryOp, UnaryGradOp, bool); 14] = [
            bounds,
            (UnaryOp::Elu { alpha: 0.7 }, UnaryGradOp::Elu { alpha: 0.7 }, false),
            (UnaryOp::Softplus, UnaryGradOp::Softplus, false),
            (UnaryOp::LogSigmoid, UnaryGradOp::LogSigmoid, false),
            (UnaryOp::Mish, UnaryGradOp::Mish, false),
            (UnaryOp::Hardsigmoid, UnaryGradOp::Hardsigmoid, false),
            (UnaryOp::Hardswish, UnaryGradOp::Hardswish, false),
            (UnaryOp::Relu, UnaryGradOp::Relu, true),
            (UnaryOp::LeakyRelu { slope: 0.1 }, UnaryGradOp::LeakyRelu { slope: 0.1 }, false),
            (UnaryOp::Gelu, UnaryGradOp::Gelu, false),
            (UnaryOp::GeluTanh, UnaryGradOp::GeluTanh, false),
            (UnaryOp::Silu, UnaryGradOp::Silu, false),
            (UnaryOp::Tanh, UnaryGradOp::Tanh, true),
            (UnaryOp::Sigmoid, UnaryGradOp::Sigmoid, true),
        ];
        let h = 1e-5;
        for (op, grad_op, from_result) in pairs {
            for x in [-3.4, -1.7, -0.3, 0.4, 2.1, 3.3] {
                let slope = (unary_value(op, x + h) - unary_value(op, x - h)) / (2.0 * h);
                let saved = if from_result { unary_value(op, x) } else { x };
                let got = unary_grad_value(grad_op, saved, 3.0);
                assert!((got - 3.0 * slope).abs() < 1e-8, "{grad_op:?} at {x}: {got} against {}", 3.0 * slope);
            }
        }
    }

    #[test]
    fn binary_functions_at_known_points() {
        let cases: [(BinaryOp, [f64; 2]); 8] = [
            (BinaryOp::Add { alpha: 0.5 }, [4.0, 5.0]),
            (BinaryOp::Sub, [1.0, -4.0]),
            (BinaryOp::Mul, [6.0, 12.0]),
            (BinaryOp::Div, [1.5, 2.0 / 6.0]),
            (BinaryOp::Maximum, [3.0, 6.0]),
            (BinaryOp::Minimum, [2.0, 2.0]),
            (BinaryOp::Pow, [9.0, 64.0]),
            (BinaryOp::SquaredDifference, [1.0, 16.0]),
        ];
        for (op, want) in cases {
            let b = Bench::new();
            let (lhs, rhs) = (b.f32(&[2], &[3.0, 2.0]), b.f32(&[2], &[2.0, 6.0]));
            let out = b.fresh(DType::F32, &[2]);
            b.run(Binary { op, lhs, rhs, out });
            b.expect(&out, &want);
        }
        assert!(binary_value(BinaryOp::Maximum, f64::NAN, 1.0).is_nan());
        assert!(binary_value(BinaryOp::Minimum, 1.0, f64::NAN).is_nan());
    }

    #[test]
    fn comparisons_write_masks() {
        let cases: [(BinaryOp, [f64; 3]); 6] = [
            (BinaryOp::Eq, [0.0, 1.0, 0.0]),
            (BinaryOp::Ne, [1.0, 0.0, 1.0]),
            (BinaryOp::Lt, [1.0, 0.0, 0.0]),
            (BinaryOp::Le, [1.0, 1.0, 0.0]),
            (BinaryOp::Gt, [0.0, 0.0, 1.0]),
            (BinaryOp::Ge, [0.0, 1.0, 1.0]),
        ];
        for (op, want) in cases {
            for dtype in [DType::F32, DType::I64] {
                let b = Bench::new();
                let (lhs, rhs) = (b.put(dtype, &[3], &[1.0, 2.0, 3.0]), b.put(dtype, &[3], &[2.0, 2.0, 2.0]));
                let out = b.fresh(DType::Bool, &[3]);
                b.run(Binary { op, lhs, rhs, out });
                b.expect(&out, &want);
            }
        }
    }

    #[test]
    fn ternary_functions_at_known_points() {
        let cases = [
            (TernaryOp::Lerp { weight: 0.25 }, 3.0),
            (TernaryOp::Addcmul { value: 0.5 }, 14.0),
            (TernaryOp::Addcdiv { value: 2.0 }, 5.0),
            (TernaryOp::MseGrad { scale: 2.0 }, 8.0),
        ];
        for (op, want) in cases {
            let b = Bench::new();
            let (x, y, z) = (b.f32(&[1], &[2.0]), b.f32(&[1], &[6.0]), b.f32(&[1], &[4.0]));
            let out = b.fresh(DType::F32, &[1]);
            b.run(Ternary { op, a: x, b: y, c: z, out });
            b.expect(&out, &[want]);
        }
    }

    #[test]
    fn masks_choose() {
        let b = Bench::new();
        let mask = b.put(DType::Bool, &[3], &[1.0, 0.0, 1.0]);
        let (x, y) = (b.f32(&[3], &[1.0, 2.0, 3.0]), b.f32(&[3], &[4.0, 5.0, 6.0]));
        let out = b.fresh(DType::F32, &[3]);
        b.run(Select { mask, on_true: x, on_false: y, out });
        b.expect(&out, &[1.0, 5.0, 3.0]);
        b.run(MaskedFill { x, mask, value: f64::NEG_INFINITY, out });
        b.expect(&out, &[f64::NEG_INFINITY, 2.0, f64::NEG_INFINITY]);
    }

    #[test]
    fn triangles_keep_their_half() {
        let b = Bench::new();
        let x = b.f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let out = b.fresh(DType::F32, &[2, 3]);
        b.run(Triangle { upper: false, diagonal: 0, x, out });
        b.expect(&out, &[1.0, 0.0, 0.0, 4.0, 5.0, 0.0]);
        b.run(Triangle { upper: true, diagonal: 1, x, out });
        b.expect(&out, &[0.0, 2.0, 3.0, 0.0, 0.0, 6.0]);
    }
}
