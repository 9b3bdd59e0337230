//! Activations, functions, dropout, and arithmetic of one or two types.

use super::inputs::{DATA_AND_X, X, X_AND_DATA, XX, rows_of};
use crate::common::labelled::{
    Row, against_other_releases, against_recordings, against_sizes, data, in_every_form, leaf, leaf_of, row,
    turned_back,
};
use crate::common::operators::call;
use memcore::{DType, Device, Profile, Result, Tensor, ops};

const F32: DType = DType::F32;
const HALVES: [(&str, DType); 2] = [("f16", DType::F16), ("bf16", DType::BF16)];

type One = fn(&Tensor) -> Result<Tensor>;

/// Each of a matrix, contiguous or transposed, with a transposed gradient, under autocast and in bfloat16.
fn activations(rows: &mut Vec<Row>) {
    let all: [(&str, One); 8] = [
        ("elu", |x| ops::elu(x, 1.0)),
        ("softplus", ops::softplus),
        ("hardswish", ops::hardswish),
        ("hardsigmoid", ops::hardsigmoid),
        ("hardtanh", |x| ops::hardtanh(x, -1.0, 1.0)),
        ("relu6", ops::relu6),
        ("mish", ops::mish),
        ("logsigmoid", ops::log_sigmoid),
    ];
    for (name, f) in all {
        in_every_form(rows, name, f);
        rows.push(row(format!("{name}_turned_grad"), F32, leaf_of(&[64, 256]), move |t| turned_back(&f(&t[0])?)));
    }
}

fn dropout(rows: &mut Vec<Row>) {
    let dropout: One = |x| ops::dropout(x, 0.1, true);
    rows.extend([
        row("dropout_turned", F32, leaf_of(&[256, 64]), move |t| dropout(&ops::t(&t[0])?)),
        row("dropout_f16_turned", DType::F16, leaf_of(&[256, 64]), move |t| dropout(&ops::t(&t[0])?)),
        row("dropout_4d_turned", F32, leaf_of(&[4, 6, 8, 10]), move |t| dropout(&ops::transpose(&t[0], 1, 2)?)),
        row("dropout_part", F32, leaf_of(&[64, 256]), move |t| dropout(&ops::narrow(&t[0], 1, 0, 100)?)),
        row("dropout_part_turned", F32, leaf_of(&[64, 256]), move |t| {
            dropout(&ops::t(&ops::narrow(&t[0], 1, 0, 100)?)?)
        }),
        row("dropout_expanded", F32, leaf_of(&[1, 256]), move |t| dropout(&ops::expand(&t[0], &[64, 256])?)),
    ]);
}

fn of_two_types(rows: &mut Vec<Row>) {
    for (n, dtype) in HALVES {
        for name in ["add", "sub", "mul", "div", "maximum", "minimum", "l1"] {
            let first = |d: &Device, t| vec![leaf(d, &[64, 256], t), leaf(d, &[64, 256], F32)];
            let second = |d: &Device, t| vec![leaf(d, &[64, 256], F32), leaf(d, &[64, 256], t)];
            let scalar = |d: &Device, t| vec![leaf(d, &[64, 256], t), leaf(d, &[], F32)];
            rows.push(row(format!("{name}_{n}_f32"), dtype, first, call(name)));
            rows.push(row(format!("{name}_f32_{n}"), dtype, second, call(name)));
            // The absolute error of two sizes is refused.
            if name != "l1" {
                rows.push(row(format!("{name}_{n}_f32_scalar"), dtype, scalar, call(name)));
            }
        }
    }
    let beside =
        |dims: &'static [usize], other| move |d: &Device, t| vec![leaf(d, &[64, 256], t), data(d, dims, other)];
    for name in ["mul", "add", "div", "sub"] {
        rows.push(row(format!("{name}_f32_i64"), F32, beside(&[64, 256], DType::I64), call(name)));
    }
    rows.extend([
        row("mul_f32_bool", F32, beside(&[64, 256], DType::Bool), call("mul")),
        row("mul_f16_bool", DType::F16, beside(&[64, 256], DType::Bool), call("mul")),
        row("mul_f32_bool_bcast", F32, beside(&[256], DType::Bool), call("mul")),
        row("mul_bool_f32", F32, |d, t| vec![data(d, &[64, 256], DType::Bool), leaf(d, &[64, 256], t)], call("mul")),
    ]);
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    activations(&mut rows);
    dropout(&mut rows);
    of_two_types(&mut rows);
    rows
}

against_recordings! {
    "../../golden/events/pointwise.json", rows();
    every_row_is_as_pytorch_2_11_ran_it: "2.11", Profile::torch_2_11(90);
    every_row_is_as_pytorch_2_15_ran_it: "2.15", Profile::torch_2_15(90);
}

against_other_releases! { "../../golden/events/releases/pointwise.json", rows(), |profile| profile }

fn of_sizes() -> Vec<Row> {
    rows_of(&[
        ("tan", X, |t| ops::tan(&t[0])),
        ("atan", X, |t| ops::atan(&t[0])),
        ("sinh", X, |t| ops::sinh(&t[0])),
        ("cosh", X, |t| ops::cosh(&t[0])),
        ("log1p", X, |t| ops::log1p(&t[0])),
        ("expm1", X, |t| ops::expm1(&t[0])),
        ("log2", X, |t| ops::log2(&t[0])),
        ("erf", X, |t| ops::erf(&t[0])),
        ("floor", X, |t| ops::floor(&t[0])),
        ("ceil", X, |t| ops::ceil(&t[0])),
        ("round", X, |t| ops::round(&t[0])),
        ("trunc", X, |t| ops::trunc(&t[0])),
        ("sign", X, |t| ops::sign(&t[0])),
        ("threshold", X, |t| ops::threshold(&t[0], 0.1, 0.5)),
        ("hardshrink", X, |t| ops::hardshrink(&t[0], 0.5)),
        ("softshrink", X, |t| ops::softshrink(&t[0], 0.5)),
        ("glu", X, |t| ops::glu(&t[0], 1)),
        ("glu_first", X, |t| ops::glu(&t[0], 0)),
        ("addcmul", &[('l', &[64, 256]), ('l', &[64, 256]), ('l', &[256])], |t| ops::addcmul(&t[0], &t[1], &t[2], 0.5)),
        ("lerp", &[('l', &[64, 256]), ('l', &[256])], |t| ops::lerp(&t[0], &t[1], 0.3)),
        ("clamp_both", &[('l', &[64, 256]), ('d', &[64, 256]), ('d', &[256])], |t| {
            ops::clamp_between(&t[0], Some(&t[1]), Some(&t[2]))
        }),
        ("clamp_low", &[('l', &[64, 256]), ('d', &[256])], |t| ops::clamp_between(&t[0], Some(&t[1]), None)),
        ("clamp_high", &[('l', &[64, 256]), ('d', &[256])], |t| ops::clamp_between(&t[0], None, Some(&t[1]))),
        ("pow_tensors", XX, |t| ops::pow_tensors(&t[0], &t[1])),
        ("pow_tensors_base", X_AND_DATA, |t| ops::pow_tensors(&t[0], &t[1])),
        ("pow_tensors_exponent", DATA_AND_X, |t| ops::pow_tensors(&t[0], &t[1])),
    ])
}

against_sizes! { "../../golden/events/sizes/pointwise.json", of_sizes() }
