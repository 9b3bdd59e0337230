//! Fill, copy, arithmetic, selection.

use memcore::DType::{self, BF16, Bool, F16, F32, F64, I8, I32, I64, U8};
use memcore::backend::kernel::{
    Binary, BinaryOp, Copy, Fill, MaskedFill, Select, Ternary, TernaryOp, Triangle, Unary, UnaryGrad, UnaryGradOp,
    UnaryOp,
};

use super::common::FLOATS;
use super::form::Form;
use crate::case::{Case, short};
use crate::data::Data::{Constant, Ints, Mask, Range, Values};
use crate::tolerance::Tolerance;

const MOVES: Tolerance = Tolerance::exact("values are moved, not computed");
const SELECTS: Tolerance = Tolerance::exact("one of the operands' values");
const COMPARES: Tolerance = Tolerance::exact("a comparison has one answer");
const ROUNDED_ONCE: Tolerance = Tolerance::exact("a conversion has one right rounding");
const INTEGERS: Tolerance = Tolerance::exact("integer arithmetic");
const SIMPLE: Tolerance = Tolerance::arithmetic(4.0, "a few roundings of values up to 4");
const FUNCTION: Tolerance = Tolerance::function(1.0, "a library function of the device");

/// More elements than 65 535 groups of 256 threads.
const MANY_ELEMENTS: usize = 65_536 * 256 + 1;

pub(super) fn cases() -> Vec<Case> {
    let families =
        [fills, copies, casts, unaries, unary_grads, binaries, comparisons, ternaries, selections, triangles];
    families.iter().flat_map(|cases| cases()).collect()
}

fn fills() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in [F32, F16, BF16, F64, I64, I32, I8, U8, Bool] {
        for form in Form::forms(dtype) {
            let case = form.write(Case::on(dtype, form.name()), "out");
            out.push(case.call(ROUNDED_ONCE, |o| Fill { value: 1.0, out: o.at("out") }));
        }
        // Values that only some types have, each converted once.
        for (name, value) in [("negative", -3.0), ("third", 1.0 / 3.0), ("infinite", f64::NEG_INFINITY)] {
            if dtype.is_float() || (name == "negative" && !matches!(dtype, U8 | Bool)) {
                let case = Case::on(dtype, name).write("out", &[33]);
                out.push(case.call(ROUNDED_ONCE, move |o| Fill { value, out: o.at("out") }));
            }
        }
    }
    let many = Case::on(F32, "many_groups").write("out", &[MANY_ELEMENTS]);
    out.push(many.call(ROUNDED_ONCE, |o| Fill { value: 0.5, out: o.at("out") }));
    out
}

fn copies() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in [F32, F16, BF16, F64, I64, I32, I8, U8, Bool] {
        for form in Form::forms(dtype) {
            let data = if dtype.is_float() { Range(-9.0, 9.0) } else { Ints(0, 2) };
            let case = form.read(Case::on(dtype, form.name()), "src", data, true);
            out.push(form.write(case, "out").call(MOVES, |o| Copy { src: o.at("src"), out: o.at("out") }));
        }
    }
    let wide = Case::on(I64, "beyond_f64").read("src", &[9], Ints(1 << 60, (1 << 60) + 99)).write("out", &[9]);
    out.push(wide.call(MOVES, |o| Copy { src: o.at("src"), out: o.at("out") }));
    out
}

fn casts() -> Vec<Case> {
    let mut out = Vec::new();
    for from in [F32, F16, BF16, F64, I64, I32, I8, U8, Bool] {
        for to in [F32, F16, BF16, F64, I64, I32, I8, U8, Bool] {
            if from == to {
                continue;
            }
            let mut values = vec![0.0, 1.0, 0.25, 0.75, 1.5, 2.5, 3.5, 99.875, 64.0, 127.0, 0.0];
            if from != U8 && to != U8 && from != Bool {
                values.extend([-1.0, -0.25, -2.5, -0.0, -99.875, -127.0]);
            }
            // A transposed source: the cast and the strides together.
            let case = Case::on(to, format!("from_{}", short(from)));
            let case = case.read("src", &[7, 9], Values(values)).typed(from).transposed(0, 1).write("out", &[7, 9]);
            out.push(case.call(ROUNDED_ONCE, |o| Copy { src: o.at("src"), out: o.at("out") }));
            if from.is_float() && to.is_float() {
                out.extend(float_casts(from, to));
            }
        }
    }
    out
}

/// Rounding to nearest even, overflow and what is not a number.
fn float_casts(from: DType, to: DType) -> [Case; 2] {
    let rounding = Case::on(to, format!("rounding_from_{}", short(from)));
    let special = Case::on(to, format!("special_from_{}", short(from)));
    let ties = 1.0 + 2f64.powi(-11);
    let values =
        vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 65519.0, 65520.0, 1e30, -1e30, ties, ties + 2f64.powi(-10)];
    [
        rounding.read("src", &[1000], Range(-300.0, 300.0)).typed(from).write("out", &[1000]),
        special.read("src", &[9], Values(values)).typed(from).write("out", &[9]).expecting_nan(),
    ]
    .map(|case| case.call(ROUNDED_ONCE, |o| Copy { src: o.at("src"), out: o.at("out") }))
}

/// Name, function, range of its argument, tolerance.
fn unary_table() -> Vec<(&'static str, UnaryOp, (f64, f64), Tolerance)> {
    const SIN: Tolerance = Tolerance::function(2.0, "hardware sines have an absolute error near 2⁻²¹");
    vec![
        ("neg", UnaryOp::Neg, (-3.0, 3.0), SELECTS),
        ("abs", UnaryOp::Abs, (-3.0, 3.0), SELECTS),
        ("sign", UnaryOp::Sign, (-3.0, 3.0), SELECTS),
        ("exp", UnaryOp::Exp, (-3.0, 3.0), FUNCTION),
        ("log", UnaryOp::Log, (0.1, 9.0), FUNCTION),
        ("sqrt", UnaryOp::Sqrt, (0.0, 9.0), SIMPLE),
        ("rsqrt", UnaryOp::Rsqrt, (0.1, 9.0), SIMPLE),
        ("reciprocal", UnaryOp::Reciprocal, (0.5, 9.0), SIMPLE),
        ("square", UnaryOp::Square, (-3.0, 3.0), SIMPLE),
        ("sin", UnaryOp::Sin, (-3.0, 3.0), SIN),
        ("cos", UnaryOp::Cos, (-3.0, 3.0), SIN),
        ("tanh", UnaryOp::Tanh, (-4.0, 4.0), FUNCTION),
        ("sigmoid", UnaryOp::Sigmoid, (-4.0, 4.0), FUNCTION),
        ("relu", UnaryOp::Relu, (-3.0, 3.0), SELECTS),
        ("leaky_relu", UnaryOp::LeakyRelu { slope: 0.01 }, (-3.0, 3.0), SIMPLE),
        ("gelu", UnaryOp::Gelu, (-4.0, 4.0), FUNCTION),
        ("gelu_tanh", UnaryOp::GeluTanh, (-4.0, 4.0), FUNCTION),
        ("silu", UnaryOp::Silu, (-4.0, 4.0), FUNCTION),
        ("elu", UnaryOp::Elu { alpha: 0.7 }, (-4.0, 4.0), FUNCTION),
        ("softplus", UnaryOp::Softplus, (-4.0, 4.0), FUNCTION),
        ("log_sigmoid", UnaryOp::LogSigmoid, (-4.0, 4.0), FUNCTION),
        ("mish", UnaryOp::Mish, (-4.0, 4.0), FUNCTION),
        ("hardsigmoid", UnaryOp::Hardsigmoid, (-4.0, 4.0), SIMPLE),
        ("hardswish", UnaryOp::Hardswish, (-4.0, 4.0), SIMPLE),
        ("huber", UnaryOp::Huber { delta: 1.3 }, (-3.0, 3.0), SIMPLE),
        ("affine", UnaryOp::Affine { mul: 1.7, add: -0.3 }, (-3.0, 3.0), SIMPLE),
        ("pow_half", UnaryOp::Pow { exponent: 0.5 }, (0.0, 4.0), FUNCTION),
        ("pow_2", UnaryOp::Pow { exponent: 2.0 }, (-3.0, 3.0), FUNCTION),
        ("pow_3", UnaryOp::Pow { exponent: 3.0 }, (-2.0, 2.0), FUNCTION),
        ("pow_minus_1", UnaryOp::Pow { exponent: -1.0 }, (0.5, 3.0), FUNCTION),
        ("clamp", UnaryOp::Clamp { min: -1.0, max: 0.5 }, (-3.0, 3.0), SELECTS),
    ]
}

fn unaries() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in FLOATS {
        for form in Form::forms(dtype) {
            let op = UnaryOp::Affine { mul: 1.7, add: -0.3 };
            let case = form.read(Case::on(dtype, form.name()), "x", Range(-2.0, 2.0), true);
            let case = form.write(case, "out");
            out.push(case.call(SIMPLE, move |o| Unary { op, x: o.at("x"), out: o.at("out") }));
        }
        for (name, op, (low, high), tolerance) in unary_table() {
            let case = Case::on(dtype, name).read("x", &[257], Range(low, high)).write("out", &[257]);
            out.push(case.call(tolerance, move |o| Unary { op, x: o.at("x"), out: o.at("out") }));
        }
        let large = Values(vec![-100.0, 100.0, -30.0, 30.0, 0.0, -0.0]);
        for (name, op) in [
            ("tanh", UnaryOp::Tanh),
            ("sigmoid", UnaryOp::Sigmoid),
            ("gelu", UnaryOp::Gelu),
            ("gelu_tanh", UnaryOp::GeluTanh),
            ("silu", UnaryOp::Silu),
            ("elu", UnaryOp::Elu { alpha: 1.0 }),
            ("softplus", UnaryOp::Softplus),
            ("log_sigmoid", UnaryOp::LogSigmoid),
            ("mish", UnaryOp::Mish),
        ] {
            let case = Case::on(dtype, format!("{name}_saturates")).read("x", &[6], large.clone()).write("out", &[6]);
            out.push(case.call(FUNCTION, move |o| Unary { op, x: o.at("x"), out: o.at("out") }));
        }
        let special = Values(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0, -1.0]);
        for (name, op) in [
            ("relu_of_nan", UnaryOp::Relu),
            ("neg_of_nan", UnaryOp::Neg),
            ("abs_of_nan", UnaryOp::Abs),
            ("clamp_of_nan", UnaryOp::Clamp { min: -1.0, max: 0.5 }),
        ] {
            let case = Case::on(dtype, name).read("x", &[5], special.clone()).write("out", &[5]).expecting_nan();
            out.push(case.call(SELECTS, move |o| Unary { op, x: o.at("x"), out: o.at("out") }));
        }
    }
    for dtype in [F32, F16, BF16, F64, I64, I32, I8, U8, Bool] {
        let case = Case::on(dtype, "is_zero").read("x", &[99], Ints(0, 2)).write("out", &[99]).typed(Bool);
        out.push(case.call(COMPARES, |o| Unary { op: UnaryOp::IsZero, x: o.at("x"), out: o.at("out") }));
    }
    for dtype in [I64, I32] {
        for (name, op) in [
            ("neg", UnaryOp::Neg),
            ("abs", UnaryOp::Abs),
            ("sign", UnaryOp::Sign),
            ("square", UnaryOp::Square),
            ("relu", UnaryOp::Relu),
            ("affine", UnaryOp::Affine { mul: -3.0, add: 7.0 }),
            ("clamp", UnaryOp::Clamp { min: -20.0, max: 30.0 }),
            ("clamp_below", UnaryOp::Clamp { min: -20.0, max: f64::INFINITY }),
        ] {
            let case = Case::on(dtype, name).read("x", &[99], Ints(-50, 50)).write("out", &[99]);
            out.push(case.call(INTEGERS, move |o| Unary { op, x: o.at("x"), out: o.at("out") }));
        }
    }
    out.push(many_elements());
    out
}

/// In place, over more elements than a launch has threads.
fn many_elements() -> Case {
    let case = Case::on(F32, "many_groups").read("x", &[MANY_ELEMENTS], Values(vec![1.0, -2.0, 3.0, 0.5, -0.25]));
    case.call(SELECTS, |o| Unary { op: UnaryOp::Neg, x: o.at("x"), out: o.at("x") })
}

fn unary_grads() -> Vec<Case> {
    let table = [
        ("relu", UnaryGradOp::Relu, (-1.0, 1.0)),
        ("leaky_relu", UnaryGradOp::LeakyRelu { slope: 0.01 }, (-1.0, 1.0)),
        ("gelu", UnaryGradOp::Gelu, (-4.0, 4.0)),
        ("gelu_tanh", UnaryGradOp::GeluTanh, (-4.0, 4.0)),
        ("silu", UnaryGradOp::Silu, (-4.0, 4.0)),
        ("elu", UnaryGradOp::Elu { alpha: 0.7 }, (-4.0, 4.0)),
        ("softplus", UnaryGradOp::Softplus, (-4.0, 4.0)),
        ("log_sigmoid", UnaryGradOp::LogSigmoid, (-4.0, 4.0)),
        ("mish", UnaryGradOp::Mish, (-4.0, 4.0)),
        ("hardsigmoid", UnaryGradOp::Hardsigmoid, (-4.0, 4.0)),
        ("hardswish", UnaryGradOp::Hardswish, (-4.0, 4.0)),
        ("hardtanh", UnaryGradOp::Hardtanh { min: -1.0, max: 1.5 }, (-4.0, 4.0)),
        ("tanh", UnaryGradOp::Tanh, (-1.0, 1.0)),
        ("sigmoid", UnaryGradOp::Sigmoid, (0.0, 1.0)),
    ];
    let mut out = Vec::new();
    for dtype in FLOATS {
        for form in Form::forms(dtype) {
            for viewed in inputs(form, dtype, 2) {
                let case = Case::on(dtype, input_name(form, viewed, 2));
                let case = form.read(case, "saved", Range(-1.0, 1.0), viewed & 1 > 0);
                let case = form.read(case, "grad", Range(-2.0, 2.0), viewed & 2 > 0);
                let case = form.write(case, "out");
                out.push(case.call(SIMPLE, |o| UnaryGrad {
                    op: UnaryGradOp::Tanh,
                    saved: o.at("saved"),
                    grad: o.at("grad"),
                    out: o.at("out"),
                }));
            }
        }
        for (name, op, (low, high)) in table {
            let case = Case::on(dtype, name).read("saved", &[257], Range(low, high));
            let case = case.read("grad", &[257], Range(-2.0, 2.0)).write("out", &[257]);
            out.push(case.call(FUNCTION, move |o| UnaryGrad {
                op,
                saved: o.at("saved"),
                grad: o.at("grad"),
                out: o.at("out"),
            }));
        }
    }
    out
}

/// Bit sets of the inputs on which a form is tried: in f32 every choice, otherwise all inputs at once.
fn inputs(form: Form, dtype: DType, count: u32) -> std::ops::RangeInclusive<u32> {
    let all = (1 << count) - 1;
    if dtype == F32 && form.is_about_inputs() { 1..=all } else { all..=all }
}

fn input_name(form: Form, viewed: u32, count: u32) -> String {
    if viewed == (1 << count) - 1 { form.name().to_string() } else { format!("{}_input_{viewed:b}", form.name()) }
}

fn binaries() -> Vec<Case> {
    let table = [
        ("add", BinaryOp::ADD, (-2.0, 2.0), SIMPLE),
        ("add_scaled", BinaryOp::Add { alpha: -0.3 }, (-2.0, 2.0), SIMPLE),
        ("sub", BinaryOp::Sub, (-2.0, 2.0), SIMPLE),
        ("mul", BinaryOp::Mul, (-2.0, 2.0), SIMPLE),
        ("div", BinaryOp::Div, (0.5, 4.0), SIMPLE),
        ("maximum", BinaryOp::Maximum, (-2.0, 2.0), SELECTS),
        ("minimum", BinaryOp::Minimum, (-2.0, 2.0), SELECTS),
        ("pow", BinaryOp::Pow, (0.5, 3.0), Tolerance::function(8.0, "exp2(y·log2 x), results up to 27")),
        ("squared_difference", BinaryOp::SquaredDifference, (-2.0, 2.0), SIMPLE),
    ];
    let mut out = Vec::new();
    for dtype in FLOATS {
        for form in Form::forms(dtype) {
            for viewed in inputs(form, dtype, 2) {
                let case = Case::on(dtype, input_name(form, viewed, 2));
                let case = form.read(case, "lhs", Range(-2.0, 2.0), viewed & 1 > 0);
                let case = form.read(case, "rhs", Range(-2.0, 2.0), viewed & 2 > 0);
                out.push(form.write(case, "out").call(SIMPLE, |o| Binary {
                    op: BinaryOp::Sub,
                    lhs: o.at("lhs"),
                    rhs: o.at("rhs"),
                    out: o.at("out"),
                }));
            }
        }
        for (name, op, (low, high), tolerance) in table {
            let case =
                Case::on(dtype, name).read("lhs", &[257], Range(low, high)).read("rhs", &[257], Range(low, high));
            let call =
                move |o: &crate::case::Bound| Binary { op, lhs: o.at("lhs"), rhs: o.at("rhs"), out: o.at("out") };
            out.push(case.write("out", &[257]).call(tolerance, call));
        }
        for (name, op) in [("maximum_of_nan", BinaryOp::Maximum), ("minimum_of_nan", BinaryOp::Minimum)] {
            let case = Case::on(dtype, name).read("lhs", &[4], Values(vec![f64::NAN, 1.0, f64::NAN, 1.0])).read(
                "rhs",
                &[4],
                Values(vec![1.0, f64::NAN, f64::NAN, f64::INFINITY]),
            );
            let call =
                move |o: &crate::case::Bound| Binary { op, lhs: o.at("lhs"), rhs: o.at("rhs"), out: o.at("out") };
            out.push(case.write("out", &[4]).expecting_nan().call(SELECTS, call));
        }
    }
    for dtype in [I64, I32] {
        for (name, op) in [
            ("add", BinaryOp::ADD),
            ("add_scaled", BinaryOp::Add { alpha: -3.0 }),
            ("sub", BinaryOp::Sub),
            ("mul", BinaryOp::Mul),
            ("maximum", BinaryOp::Maximum),
            ("minimum", BinaryOp::Minimum),
            ("squared_difference", BinaryOp::SquaredDifference),
        ] {
            let case = Case::on(dtype, name).read("lhs", &[99], Ints(-50, 50)).read("rhs", &[99], Ints(-50, 50));
            let call =
                move |o: &crate::case::Bound| Binary { op, lhs: o.at("lhs"), rhs: o.at("rhs"), out: o.at("out") };
            out.push(case.write("out", &[99]).call(INTEGERS, call));
        }
    }
    out
}

fn comparisons() -> Vec<Case> {
    let ops = [
        ("eq", BinaryOp::Eq),
        ("ne", BinaryOp::Ne),
        ("lt", BinaryOp::Lt),
        ("le", BinaryOp::Le),
        ("gt", BinaryOp::Gt),
        ("ge", BinaryOp::Ge),
    ];
    let mut out = Vec::new();
    for dtype in [F32, F16, BF16, F64, I64, I32, I8, U8, Bool] {
        for (name, op) in ops {
            // Few different values, so that many are equal; an odd number of one-byte results.
            let top = if dtype == Bool { 2 } else { 4 };
            let case = Case::on(dtype, name).read("lhs", &[7, 9], Ints(0, top)).read("rhs", &[9], Ints(0, top));
            let case = case.broadcast(&[7, 9]).write("out", &[7, 9]).typed(Bool);
            let call =
                move |o: &crate::case::Bound| Binary { op, lhs: o.at("lhs"), rhs: o.at("rhs"), out: o.at("out") };
            out.push(case.call(COMPARES, call));
        }
    }
    for (name, op) in ops {
        let case = Case::on(F32, format!("{name}_of_nan_into_u8"))
            .read("lhs", &[4], Values(vec![f64::NAN, 1.0, f64::NAN, f64::INFINITY]))
            .read("rhs", &[4], Values(vec![1.0, f64::NAN, f64::NAN, f64::INFINITY]));
        let call = move |o: &crate::case::Bound| Binary { op, lhs: o.at("lhs"), rhs: o.at("rhs"), out: o.at("out") };
        out.push(case.write("out", &[4]).typed(U8).call(COMPARES, call));
    }
    out
}

fn ternaries() -> Vec<Case> {
    let table = [
        ("lerp", TernaryOp::Lerp { weight: 0.3 }),
        ("addcmul", TernaryOp::Addcmul { value: 0.7 }),
        ("addcdiv", TernaryOp::Addcdiv { value: -0.7 }),
        ("mse_grad", TernaryOp::MseGrad { scale: 0.5 }),
    ];
    let mut out = Vec::new();
    for dtype in FLOATS {
        for form in Form::forms(dtype) {
            for viewed in inputs(form, dtype, 3) {
                let case = Case::on(dtype, input_name(form, viewed, 3));
                let case = form.read(case, "a", Range(-2.0, 2.0), viewed & 1 > 0);
                let case = form.read(case, "b", Range(-2.0, 2.0), viewed & 2 > 0);
                let case = form.read(case, "c", Range(0.5, 2.0), viewed & 4 > 0);
                out.push(ternary(form.write(case, "out"), TernaryOp::Addcmul { value: 0.7 }));
            }
        }
        for (name, op) in table {
            let case = Case::on(dtype, name).read("a", &[257], Range(-2.0, 2.0)).read("b", &[257], Range(-2.0, 2.0));
            out.push(ternary(case.read("c", &[257], Range(0.5, 2.0)).write("out", &[257]), op));
        }
    }
    out
}

fn ternary(case: crate::case::CaseBuilder, op: TernaryOp) -> Case {
    case.call(SIMPLE, move |o| Ternary { op, a: o.at("a"), b: o.at("b"), c: o.at("c"), out: o.at("out") })
}

fn selections() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in [F32, F16, BF16, F64, I64, I32, I8, U8, Bool] {
        let data = || if dtype.is_float() { Range(-2.0, 2.0) } else { Ints(0, 2) };
        for form in Form::forms(dtype) {
            for viewed in inputs(form, dtype, 3) {
                let case = Case::on(dtype, input_name(form, viewed, 3));
                let case = form.read(case, "mask", Mask, viewed & 1 > 0).typed(Bool);
                let case = form.read(case, "on_true", data(), viewed & 2 > 0);
                let case = form.read(case, "on_false", data(), viewed & 4 > 0);
                out.push(form.write(case, "out").call(SELECTS, |o| Select {
                    mask: o.at("mask"),
                    on_true: o.at("on_true"),
                    on_false: o.at("on_false"),
                    out: o.at("out"),
                }));
            }
            for viewed in inputs(form, dtype, 2) {
                let value = if dtype.is_float() { f64::NEG_INFINITY } else { 1.0 };
                let case = Case::on(dtype, input_name(form, viewed, 2));
                let case = form.read(case, "x", data(), viewed & 1 > 0);
                // Any byte but 0 is true, in a mask of bytes.
                let case = form.read(case, "mask", Ints(0, 3), viewed & 2 > 0).typed(U8);
                out.push(form.write(case, "out").call(SELECTS, move |o| MaskedFill {
                    x: o.at("x"),
                    mask: o.at("mask"),
                    value,
                    out: o.at("out"),
                }));
            }
        }
    }
    out
}

fn triangles() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in [F32, F16, BF16, F64, I64, I32, I8, U8, Bool] {
        let data = || if dtype.is_float() { Constant(2.5) } else { Constant(1.0) };
        for upper in [false, true] {
            let half = if upper { "upper" } else { "lower" };
            for diagonal in [-2i64, 0, 1, 9] {
                let case = Case::on(dtype, format!("{half}_{diagonal}")).read("x", &[2, 5, 7], data());
                out.push(triangle(case.write("out", &[2, 5, 7]), upper, diagonal));
            }
            for form in Form::forms(dtype).filter(|form| form.dims().len() >= 2) {
                let case = form.read(Case::on(dtype, format!("{half}_{}", form.name())), "x", data(), true);
                out.push(triangle(form.write(case, "out"), upper, 0));
            }
        }
    }
    out.push(triangle(Case::on(F32, "one").read("x", &[1, 1], Constant(2.0)).write("out", &[1, 1]), false, -1));
    let long = Case::on(F32, "length_257").read("x", &[3, 257], Range(-2.0, 2.0)).write("out", &[3, 257]);
    out.push(triangle(long, true, 1));
    out
}

fn triangle(case: crate::case::CaseBuilder, upper: bool, diagonal: i64) -> Case {
    case.call(MOVES, move |o| Triangle { upper, diagonal, x: o.at("x"), out: o.at("out") })
}
