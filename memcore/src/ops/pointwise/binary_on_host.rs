//! Functions of each element of one, two or three tensors, whose values are computed on the host: angles, quotients, remainders, what lies between.
//!
//! Each saves what PyTorch's saves (`derivatives.yaml`), and makes its temporaries in the order of the formula there.

use smallvec::SmallVec;

use super::binary::{Like, unbroadcast};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Recorder, Saved, Tensor, record_inputs};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::{Layout, broadcast_dims};
use crate::ops::on_host;

/// What a gradient does before its result is there.
#[derive(Clone, Copy)]
enum Step {
    /// Makes a temporary of the common sizes of these operands, with the name of its operator. Without operands it has the result's sizes.
    Make(&'static str, &'static [usize]),
    /// Makes a mask of the sizes of these operands.
    Mask(&'static str, &'static [usize]),
    /// Frees the temporary of this number.
    Free(usize),
}

use Step::{Free, Make, Mask};

/// The gradient of one operand.
#[derive(Clone, Copy)]
struct Slope {
    of: usize,
    /// The operands that it is computed from.
    from: &'static [usize],
    steps: &'static [Step],
    /// The operator that makes the gradient.
    made_by: &'static str,
}

/// A function with its gradients.
#[derive(Clone, Copy)]
struct Formula {
    op: &'static str,
    node: &'static str,
    /// What is made before the first gradient and lives until the last one is there, as what these make does.
    shared: &'static [Step],
    /// The gradients, in the order in which they are made.
    slopes: &'static [Slope],
}

type Value<'a> = dyn Fn(&[f64]) -> f64 + 'a;
/// The derivative by an operand.
type Derivative = Box<dyn Fn(usize, &[f64]) -> f64 + Send + Sync>;

/// Applies a formula to operands of one type, broadcast against each other.
fn applied(operands: &[&Tensor], formula: Formula, value: &Value<'_>, derivative: Derivative) -> Result<Tensor> {
    let dtype = operands[0].dtype();
    if !dtype.is_float() || operands.iter().any(|x| x.dtype() != dtype) {
        return Err(Error::invalid(formula.op, "of operands that are not floats of one type is not supported"));
    }
    let mut dims: SmallVec<[usize; 6]> = SmallVec::new();
    for x in operands {
        dims = broadcast_dims(&dims, x.dims())?.into_iter().collect();
    }
    let wide = operands.iter().map(|x| x.array().broadcast_to(&dims)).collect::<Result<SmallVec<[Array; 3]>>>()?;
    let compute = || {
        let _op = context::op(formula.op);
        let layouts: SmallVec<[&Layout; 3]> = wide.iter().map(Array::layout).collect();
        let y = Array::empty_for(operands[0].device(), &dims, &layouts, dtype)?;
        on_host::fill(&y, &wide.iter().collect::<SmallVec<[_; 3]>>(), |values| Ok(each(&values, value)))?;
        Ok(y)
    };
    let is_wanted = |slope: &&Slope| operands[slope.of].requires_grad();
    let is_kept = |i: &usize| formula.slopes.iter().filter(is_wanted).any(|slope| slope.from.contains(i));
    let kept: SmallVec<[usize; 3]> = (0..operands.len()).filter(is_kept).collect();
    let describe = |saved: &mut Recorder| {
        kept.iter().try_for_each(|&i| saved.save("operand", operands[i].array()))?;
        let likes = operands.iter().map(|x| Like::from_tensor(x)).collect();
        Ok::<Box<dyn Function>, Error>(Box::new(FormulaBackward { formula, derivative, kept, likes }))
    };
    record_inputs(operands, describe, compute)
}

/// Applies a function to the elements of each place.
fn each(values: &[Vec<f64>], value: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let at = |i: usize| values.iter().map(|column| column[i]).collect::<SmallVec<[f64; 4]>>();
    (0..values[0].len()).map(|i| value(&at(i))).collect()
}

struct FormulaBackward {
    formula: Formula,
    derivative: Derivative,
    /// The operands that were saved.
    kept: SmallVec<[usize; 3]>,
    likes: SmallVec<[Like; 3]>,
}

impl FormulaBackward {
    /// Does these steps, and returns what is left.
    fn done(&self, steps: &[Step], grad: &Array) -> Result<Vec<Option<Array>>> {
        let mut made: Vec<Option<Array>> = Vec::new();
        if !grad.device().profile().torch_temporaries {
            return Ok(made);
        }
        let array = |op, of: &[usize], dtype| {
            let mut dims: SmallVec<[usize; 6]> = if of.is_empty() { grad.dims().into() } else { SmallVec::new() };
            for &i in of {
                dims = broadcast_dims(&dims, self.likes[i].dims())?.into_iter().collect();
            }
            context::within(op, || Array::empty(grad.device(), &dims, dtype))
        };
        for step in steps {
            match *step {
                Make(op, of) => made.push(Some(array(op, of, grad.dtype())?)),
                Mask(op, of) => made.push(Some(array(op, of, DType::Bool)?)),
                Free(i) => made[i] = None,
            }
        }
        Ok(made)
    }

    /// Computes the gradient of an operand.
    fn slope(&self, slope: &Slope, grad: &Array, saved: &[Array]) -> Result<Array> {
        let layouts: SmallVec<[&Layout; 4]> = std::iter::once(grad).chain(saved).map(Array::layout).collect();
        let out =
            context::within(slope.made_by, || Array::empty_for(grad.device(), grad.dims(), &layouts, grad.dtype()))?;
        let inputs: SmallVec<[&Array; 4]> = std::iter::once(grad).chain(saved).collect();
        on_host::fill(&out, &inputs, |values| {
            let of = |at: &[f64]| {
                let mut operands = [0.0; 3];
                self.kept.iter().zip(&at[1..]).for_each(|(&i, &value)| operands[i] = value);
                at[0] * (self.derivative)(slope.of, &operands)
            };
            Ok(each(&values, of))
        })?;
        Ok(out)
    }
}

impl Function for FormulaBackward {
    fn name(&self) -> &'static str {
        self.formula.node
    }

    fn backward(&self, grads: Grads, saved: &Saved<'_>, needs: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let wide = |i| saved.get(i)?.broadcast_to(grad.dims());
        let operands = (0..self.kept.len()).map(wide).collect::<Result<SmallVec<[Array; 3]>>>()?;
        let mut out: Grads = self.likes.iter().map(|_| None).collect();
        let mut shared = self.done(self.formula.shared, grad)?;
        let is_shared = !self.formula.shared.is_empty();
        for slope in self.formula.slopes.iter().filter(|slope| needs.input(slope.of)) {
            let made = if slope.from.is_empty() && slope.steps.is_empty() && slope.made_by.is_empty() {
                out[slope.of] = Some(grad.clone());
                continue;
            } else {
                self.done(slope.steps, grad)?
            };
            out[slope.of] = Some(self.slope(slope, grad, &operands)?);
            if is_shared {
                shared.extend(made);
            } else {
                made.into_iter().rev().for_each(drop);
            }
        }
        shared.into_iter().rev().for_each(drop);
        drop(operands);
        saved.done();
        unbroadcast(&mut out, &self.likes)?;
        Ok(out)
    }
}

/// A gradient of the first operand that is the result's.
const PASSED: Slope = Slope { of: 0, from: &[], steps: &[], made_by: "" };

const BOTH: &[usize] = &[0, 1];

/// The angle of the point (`x`, `y`), from −π to π. Saves both.
///
/// # Errors
/// [`Error::Shape`] if they do not fit together, [`Error::Invalid`] for other than floats of one type; errors of the device. The other functions of
/// this file have the same.
pub fn atan2(y: &Tensor, x: &Tensor) -> Result<Tensor> {
    const SHARED: &[Step] = &[
        Make("mul", &[0]),
        Make("mul", &[1]),
        Make("add", BOTH),
        Free(1),
        Free(0),
        Make("reciprocal", BOTH),
        Mask("eq", BOTH),
        Free(4),
    ];
    let formula = Formula {
        op: "atan2",
        node: "Atan2Backward0",
        shared: SHARED,
        slopes: &[
            Slope { of: 0, from: BOTH, steps: &[Make("mul", &[])], made_by: "mul" },
            Slope { of: 1, from: BOTH, steps: &[Make("neg", &[0]), Make("mul", &[])], made_by: "mul" },
        ],
    };
    let derivative = |of: usize, at: &[f64]| {
        let squares = at[0] * at[0] + at[1] * at[1];
        if squares == 0.0 { 0.0 } else { [at[1], -at[0]][of] / squares }
    };
    applied(&[y, x], formula, &|at| at[0].atan2(at[1]), Box::new(derivative))
}

/// `a + weight·(b − a)` with a weight for each element. Saves the weight, and the ends if it requires a gradient.
///
/// # Errors
/// As [`atan2`].
pub fn lerp_by(a: &Tensor, b: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let formula = Formula {
        op: "lerp",
        node: "LerpBackward1",
        shared: &[],
        slopes: &[
            Slope { of: 1, from: &[2], steps: &[], made_by: "mul" },
            Slope { of: 0, from: &[2], steps: &[Make("rsub", &[2])], made_by: "mul" },
            Slope { of: 2, from: BOTH, steps: &[Make("sub", BOTH)], made_by: "mul" },
        ],
    };
    let derivative = |of: usize, at: &[f64]| [1.0 - at[2], at[2], at[1] - at[0]][of];
    applied(&[a, b, weight], formula, &|at| at[0] + at[2] * (at[1] - at[0]), Box::new(derivative))
}

/// `x + value·a/b`. Saves `b`, and `a` if `b` requires a gradient.
///
/// # Errors
/// As [`atan2`].
pub fn addcdiv(x: &Tensor, a: &Tensor, b: &Tensor, value: f64) -> Result<Tensor> {
    const DIVISOR: &[Step] = &[Make("neg", &[]), Make("mul", &[1]), Make("mul", &[2]), Make("div", &[1, 2])];
    let formula = Formula {
        op: "addcdiv",
        node: "AddcdivBackward0",
        shared: &[],
        slopes: &[
            Slope { of: 1, from: &[2], steps: &[Make("div", &[2])], made_by: "mul" },
            Slope { of: 2, from: &[1, 2], steps: DIVISOR, made_by: "mul" },
            PASSED,
        ],
    };
    let derivative = move |of: usize, at: &[f64]| match of {
        1 => value / at[2],
        _ => -value * at[1] / (at[2] * at[2]),
    };
    applied(&[x, a, b], formula, &|at| at[0] + value * at[1] / at[2], Box::new(derivative))
}

/// What is left of `a` after whole multiples of `b` are taken away: with the sign of `a`, or with `floor` that of `b`. Saves both if `b` requires a gradient.
fn left_over(a: &Tensor, b: &Tensor, op: &'static str, node: &'static str, whole: fn(f64) -> f64) -> Result<Tensor> {
    let formula = Formula {
        op,
        node,
        shared: &[],
        slopes: &[Slope { of: 1, from: BOTH, steps: &[Make("neg", &[]), Make("div", BOTH)], made_by: "mul" }, PASSED],
    };
    let quotient = move |at: &[f64]| whole(at[0] / at[1]);
    applied(&[a, b], formula, &move |at| at[0] - at[1] * quotient(at), Box::new(move |_, at| -quotient(at)))
}

/// What is left of `a` after whole multiples of `b` are taken away, with the sign of `a`. Saves both if `b` requires a gradient.
///
/// # Errors
/// As [`atan2`].
pub fn fmod(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    left_over(a, b, "fmod", "FmodBackward1", f64::trunc)
}

/// What is left of `a` after whole multiples of `b` are taken away, with the sign of `b`. Saves both if `b` requires a gradient.
///
/// # Errors
/// As [`atan2`].
pub fn remainder(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    left_over(a, b, "remainder", "RemainderBackward1", f64::floor)
}

/// `ln(eᵃ + eᵇ)`. Saves both.
///
/// # Errors
/// As [`atan2`].
pub fn logaddexp(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    const STEPS: &[Step] = &[Make("sub", BOTH), Make("exp", BOTH), Make("add", BOTH)];
    let formula = Formula {
        op: "logaddexp",
        node: "LogaddexpBackward0",
        shared: &[],
        slopes: &[
            Slope { of: 1, from: BOTH, steps: STEPS, made_by: "div" },
            Slope { of: 0, from: BOTH, steps: STEPS, made_by: "div" },
        ],
    };
    let value = |at: &[f64]| at[0].max(at[1]) + (-(at[0] - at[1]).abs()).exp().ln_1p();
    applied(&[a, b], formula, &value, Box::new(|of, at| 1.0 / (1.0 + (at[1 - of] - at[of]).exp())))
}

/// Zero, or other numbers, in place of what is not a number: `numbers` are for NaN, infinity and its negative. Saves its input.
///
/// # Errors
/// As [`atan2`].
pub fn nan_to_num(x: &Tensor, numbers: [f64; 3]) -> Result<Tensor> {
    const FINITE: &[Step] = &[
        Make("isfinite>abs", &[0]),
        Mask("isfinite>eq", &[0]),
        Mask("isfinite>ne", &[0]),
        Mask("isfinite>mul", &[0]),
        Free(2),
        Free(1),
        Free(0),
    ];
    let formula = Formula {
        op: "nan_to_num",
        node: "NanToNumBackward0",
        shared: &[],
        slopes: &[Slope { of: 0, from: &[0], steps: FINITE, made_by: "mul" }],
    };
    let value = move |at: &[f64]| match at[0] {
        x if x.is_finite() => x,
        x if x.is_nan() => numbers[0],
        x if x > 0.0 => numbers[1],
        _ => numbers[2],
    };
    applied(&[x], formula, &value, Box::new(|_, at| f64::from(u8::from(at[0].is_finite()))))
}

macro_rules! passing {
    ($($(#[$doc:meta])* $name:ident($($divisor:ident)?): $op:literal, $node:literal, $value:expr;)*) => {
        $($(#[$doc])*
        /// Saves nothing; the gradient is the result's.
        ///
        /// # Errors
        /// As [`atan2`].
        pub fn $name(x: &Tensor $(, $divisor: f64)?) -> Result<Tensor> {
            let formula = Formula { op: $op, node: $node, shared: &[], slopes: &[PASSED] };
            applied(&[x], formula, &|at| $value(at[0] $(, $divisor)?), Box::new(|_, _| 1.0))
        })*
    };
}

passing! {
    /// What follows the point, with the sign of `x`.
    frac(): "frac", "FracBackward0", f64::fract;
    /// What is left of `x` after whole multiples of a number are taken away, with the sign of `x`.
    fmod_by(divisor): "fmod", "FmodBackward0", |x: f64, by: f64| x % by;
    /// What is left of `x` after whole multiples of a number are taken away, with the sign of the number.
    remainder_by(divisor): "remainder", "RemainderBackward0", |x: f64, by: f64| x - by * (x / by).floor();
}
