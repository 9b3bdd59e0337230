//! Elementwise kernels: fill, copy, arithmetic, selection. They take any strides, and work in place if the types agree.

use super::definition::{Check, Types, kernel};
use crate::backend::Operand;
use crate::error::Result;

/// `out = value`, converted to `out`'s type.
#[derive(Clone, Debug)]
pub struct Fill {
    /// The value.
    pub value: f64,
    /// Any layout.
    pub out: Operand,
}
kernel!(Fill, "fill", in_place: false, [value], { out: Write }, flops: |_| 0);
impl Fill {
    fn check_shapes(&self, _: &Check) -> Result<()> {
        Ok(())
    }
}

/// `out = src`, converted if the types differ: floats round to nearest even, floats to integers truncate, anything to
/// bool is `!= 0`.
#[derive(Clone, Debug)]
pub struct Copy {
    /// The operand that is read.
    pub src: Operand,
    /// The operand that is written.
    pub out: Operand,
}
kernel!(Copy, "copy", in_place: false, [], { src: Read, out: Write }, flops: |_| 0);
impl Copy {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.dims("src", &self.src, self.out.dims())
    }
}

/// A function of one element. Scalars are f64 and are applied in the type in which the kernel computes.
/// [`UnaryOp::types`] says for which element types each function is defined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UnaryOp {
    /// `-x`
    Neg,
    /// `|x|`
    Abs,
    /// `-1`, `0` or `1`
    Sign,
    /// `eˣ`
    Exp,
    /// `ln x`
    Log,
    /// `√x`
    Sqrt,
    /// `1/√x`
    Rsqrt,
    /// `1/x`
    Reciprocal,
    /// `x²`
    Square,
    /// `sin x`
    Sin,
    /// `cos x`
    Cos,
    /// `tanh x`
    Tanh,
    /// `1/(1+e⁻ˣ)`
    Sigmoid,
    /// `max(x, 0)`; NaN stays NaN
    Relu,
    /// `x` where positive, else `slope·x`
    LeakyRelu {
        /// The slope of the negative half.
        slope: f64,
    },
    /// `x·Φ(x)`, with the error function
    Gelu,
    /// `x·Φ(x)` by the tanh approximation
    GeluTanh,
    /// `x·sigmoid(x)`
    Silu,
    /// `x` where positive, else `alpha·(eˣ − 1)`
    Elu {
        /// The limit for large negative `x`, negated.
        alpha: f64,
    },
    /// `ln(1 + eˣ)`
    Softplus,
    /// `−ln(1 + e⁻ˣ)`, the logarithm of the sigmoid
    LogSigmoid,
    /// `x·tanh(ln(1 + eˣ))`
    Mish,
    /// `min(max(x + 3, 0), 6)/6`
    Hardsigmoid,
    /// `x·min(max(x + 3, 0), 6)/6`
    Hardswish,
    /// `x²/2` where `|x| < delta`, else `delta·(|x| − delta/2)`
    Huber {
        /// The end of the parabola.
        delta: f64,
    },
    /// `mul·x + add`
    Affine {
        /// Factor.
        mul: f64,
        /// Summand.
        add: f64,
    },
    /// `x^exponent`
    Pow {
        /// The exponent.
        exponent: f64,
    },
    /// `min(max(x, min), max)`; NaN stays NaN
    Clamp {
        /// Lower bound.
        min: f64,
        /// Upper bound.
        max: f64,
    },
    /// `x == 0` (writes 0 or 1)
    IsZero,
}

impl UnaryOp {
    /// The element types for which the function is defined. For integers the scalars must be whole numbers.
    pub const fn types(self) -> Types {
        use UnaryOp::{Abs, Affine, Clamp, IsZero, Neg, Relu, Sign, Square};
        match self {
            IsZero => Types::Any,
            Neg | Affine { .. } => Types::NumbersAndComplex,
            Abs | Sign | Square | Relu | Clamp { .. } => Types::Numbers,
            _ => Types::Floats,
        }
    }

    /// The scalars that must be whole numbers if the elements are integers.
    const fn whole(self) -> [f64; 2] {
        match self {
            UnaryOp::Affine { mul, add } => [mul, add],
            UnaryOp::Clamp { min, max } => [min, max],
            _ => [0.0; 2],
        }
    }
}

/// `out = op(x)`, in the same type; [`UnaryOp::IsZero`] writes a mask.
#[derive(Clone, Debug)]
pub struct Unary {
    /// The function.
    pub op: UnaryOp,
    /// Its argument.
    pub x: Operand,
    /// Its value.
    pub out: Operand,
}
kernel!(Unary, "unary", in_place: true, [op], { x: Read, out: Write }, flops: |k| k.out.numel() as u64);
impl Unary {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.dims("x", &self.x, self.out.dims())?;
        c.defined("x", &self.x, self.op, self.op.types(), self.op.whole())?;
        if self.op == UnaryOp::IsZero {
            return c.mask("out", &self.out);
        }
        c.dtype("x", &self.x, self.out.dtype)
    }
}

/// A function whose gradient has a kernel of its own, and the saved value (argument or result) that the gradient is
/// computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UnaryGradOp {
    /// From the result: `grad` where `y > 0`, else 0.
    Relu,
    /// From the argument: `grad` where `x > 0`, else `slope·grad`.
    LeakyRelu {
        /// The slope of the negative half.
        slope: f64,
    },
    /// From the argument: `grad·(Φ(x) + x·φ(x))`.
    Gelu,
    /// From the argument: the gradient of the tanh approximation.
    GeluTanh,
    /// From the argument: `grad·σ(x)·(1 + x·(1 − σ(x)))`.
    Silu,
    /// From the argument: `grad` where `x > 0`, else `alpha·eˣ·grad`.
    Elu {
        /// As in forward.
        alpha: f64,
    },
    /// From the argument: `grad·σ(x)`.
    Softplus,
    /// From the argument: `grad·σ(−x)`.
    LogSigmoid,
    /// From the argument, with `t = tanh(ln(1 + eˣ))`: `grad·(t + x·σ(x)·(1 − t²))`.
    Mish,
    /// From the argument: `grad/6` between −3 and 3, else 0.
    Hardsigmoid,
    /// From the argument: `grad·(x/3 + 1/2)` between −3 and 3, 0 below, `grad` above.
    Hardswish,
    /// From the argument: `grad` between the bounds, 0 on them and beyond.
    Hardtanh {
        /// Lower bound.
        min: f64,
        /// Upper bound.
        max: f64,
    },
    /// From the result: `grad·(1 − y²)`.
    Tanh,
    /// From the result: `grad·y·(1 − y)`.
    Sigmoid,
}

/// `out = grad · f′`, from the saved argument or result: floats of one type.
#[derive(Clone, Debug)]
pub struct UnaryGrad {
    /// The function.
    pub op: UnaryGradOp,
    /// Its argument or its result, depending on `op`.
    pub saved: Operand,
    /// Gradient of the result.
    pub grad: Operand,
    /// Gradient of the argument.
    pub out: Operand,
}
kernel!(UnaryGrad, "unary_grad", in_place: true, [op], { saved: Read, grad: Read, out: Write }, flops: |k| k.out.numel() as u64);
impl UnaryGrad {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        for (name, x) in [("saved", &self.saved), ("grad", &self.grad)] {
            c.dims(name, x, self.out.dims())?;
            c.dtype(name, x, self.out.dtype)?;
        }
        c.float("out", &self.out)
    }
}

/// A function of two elements. [`BinaryOp::types`] says for which element types each function is defined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BinaryOp {
    /// `lhs + alpha·rhs`
    Add {
        /// Factor of the right operand.
        alpha: f64,
    },
    /// `lhs − rhs`
    Sub,
    /// `lhs · rhs`
    Mul,
    /// `lhs / rhs`
    Div,
    /// The larger; NaN wins
    Maximum,
    /// The smaller; NaN wins
    Minimum,
    /// `lhs ^ rhs`
    Pow,
    /// `(lhs − rhs)²`
    SquaredDifference,
    /// `lhs == rhs`, as 0 or 1
    Eq,
    /// `lhs != rhs`
    Ne,
    /// `lhs < rhs`
    Lt,
    /// `lhs <= rhs`
    Le,
    /// `lhs > rhs`
    Gt,
    /// `lhs >= rhs`
    Ge,
}

impl BinaryOp {
    /// `lhs + rhs`
    pub const ADD: BinaryOp = BinaryOp::Add { alpha: 1.0 };

    /// Whether the result is a mask.
    pub const fn is_comparison(self) -> bool {
        matches!(self, BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge)
    }

    /// The element types for which the function is defined. For integers `alpha` must be a whole number.
    pub const fn types(self) -> Types {
        match self {
            BinaryOp::Div | BinaryOp::Pow => Types::Floats,
            BinaryOp::Add { .. } | BinaryOp::Sub | BinaryOp::Mul => Types::NumbersAndComplex,
            _ if self.is_comparison() => Types::Any,
            _ => Types::Numbers,
        }
    }

    /// The scalars that must be whole numbers if the elements are integers.
    const fn whole(self) -> [f64; 2] {
        match self {
            BinaryOp::Add { alpha } => [alpha, 0.0],
            _ => [0.0; 2],
        }
    }
}

/// `out = op(lhs, rhs)`: operands of one type; comparisons write a mask.
#[derive(Clone, Debug)]
pub struct Binary {
    /// The function.
    pub op: BinaryOp,
    /// Left operand.
    pub lhs: Operand,
    /// Right operand.
    pub rhs: Operand,
    /// The result.
    pub out: Operand,
}
kernel!(Binary, "binary", in_place: true, [op], { lhs: Read, rhs: Read, out: Write }, flops: |k| k.out.numel() as u64);
impl Binary {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.dims("lhs", &self.lhs, self.out.dims())?;
        c.dims("rhs", &self.rhs, self.out.dims())?;
        c.defined("lhs", &self.lhs, self.op, self.op.types(), self.op.whole())?;
        c.dtype("rhs", &self.rhs, self.lhs.dtype)?;
        if self.op.is_comparison() { c.mask("out", &self.out) } else { c.dtype("out", &self.out, self.lhs.dtype) }
    }
}

/// A function of three elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TernaryOp {
    /// `a + weight·(b − a)`. The value of `c` is not used: pass `b` again
    Lerp {
        /// Position between `a` and `b`.
        weight: f64,
    },
    /// `a + value·b·c`
    Addcmul {
        /// Factor of the product.
        value: f64,
    },
    /// `a + value·b/c`
    Addcdiv {
        /// Factor of the quotient.
        value: f64,
    },
    /// `scale·a·(b − c)`: the gradient of a squared difference; `a` is the incoming gradient
    MseGrad {
        /// 2 for a sum, 2/N for a mean.
        scale: f64,
    },
}

/// `out = op(a, b, c)`: floats of one type.
#[derive(Clone, Debug)]
pub struct Ternary {
    /// The function.
    pub op: TernaryOp,
    /// First operand.
    pub a: Operand,
    /// Second operand.
    pub b: Operand,
    /// Third operand.
    pub c: Operand,
    /// The result.
    pub out: Operand,
}
kernel!(Ternary, "ternary", in_place: true, [op], { a: Read, b: Read, c: Read, out: Write }, flops: |k| 3 * k.out.numel() as u64);
impl Ternary {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        for (name, x) in [("a", &self.a), ("b", &self.b), ("c", &self.c)] {
            c.dims(name, x, self.out.dims())?;
            c.dtype(name, x, self.out.dtype)?;
        }
        c.float("out", &self.out)
    }
}

/// `out = mask ? on_true : on_false`.
#[derive(Clone, Debug)]
pub struct Select {
    /// Non-zero chooses `on_true`.
    pub mask: Operand,
    /// Taken if the mask is set.
    pub on_true: Operand,
    /// Taken elsewhere.
    pub on_false: Operand,
    /// The result.
    pub out: Operand,
}
kernel!(Select, "select", in_place: true, [], { mask: Read, on_true: Read, on_false: Read, out: Write }, flops: |_| 0);
impl Select {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.mask("mask", &self.mask)?;
        c.dims("mask", &self.mask, self.out.dims())?;
        for (name, x) in [("on_true", &self.on_true), ("on_false", &self.on_false)] {
            c.dims(name, x, self.out.dims())?;
            c.dtype(name, x, self.out.dtype)?;
        }
        Ok(())
    }
}

/// `out = mask ? value : x`.
#[derive(Clone, Debug)]
pub struct MaskedFill {
    /// Taken if the mask is 0.
    pub x: Operand,
    /// Non-zero chooses `value`.
    pub mask: Operand,
    /// The replacement; may be infinite.
    pub value: f64,
    /// The result.
    pub out: Operand,
}
kernel!(MaskedFill, "masked_fill", in_place: true, [value], { x: Read, mask: Read, out: Write }, flops: |_| 0);
impl MaskedFill {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.mask("mask", &self.mask)?;
        c.dims("mask", &self.mask, self.out.dims())?;
        c.dims("x", &self.x, self.out.dims())?;
        c.dtype("x", &self.x, self.out.dtype)
    }
}

/// `out[.., i, j] = x[.., i, j]` inside the triangle, 0 outside, over the last two dimensions. The lower triangle
/// is `j − i ≤ diagonal`, the upper one `j − i ≥ diagonal`.
#[derive(Clone, Debug)]
pub struct Triangle {
    /// True for the upper triangle.
    pub upper: bool,
    /// Offset of the diagonal, positive to the right.
    pub diagonal: i64,
    /// At least two dimensions.
    pub x: Operand,
    /// The result.
    pub out: Operand,
}
kernel!(Triangle, "triangle", in_place: true, [upper, diagonal], { x: Read, out: Write }, flops: |_| 0);
impl Triangle {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.that(self.out.layout.rank() >= 2, "out", || format!("{:?} has no last two dimensions", self.out.dims()))?;
        c.dims("x", &self.x, self.out.dims())?;
        c.dtype("x", &self.x, self.out.dtype)
    }
}
