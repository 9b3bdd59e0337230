//! Operators with operands of two types (under autocast, or f32 parameters with a 16-bit input) allocate and free what PyTorch's do, in the same
//! order, by the same operators of the same nodes.
//!
//! The expectation is `golden/mixed_events.json`, recorded from the unmodified torch 2.11.0+cu130 and 2.15.0+cu132 wheels.

use crate::common::labelled::{Row, against_other_releases, against_recordings, data, leaf, row, row_with};
use crate::common::operators::{
    Make, Run, batch_norm, call, channels, layer_norm, none, operator, planes, x, x_and_classes, x_and_data,
    x_and_mask, xx,
};
use memcore::{DType, Device, Profile, Result, Tensor, ops};

const F32: DType = DType::F32;

fn x_of_f32(d: &Device, _: DType) -> Vec<Tensor> {
    x(d, F32)
}

fn x_beside_f32(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256], t), leaf(d, &[64, 256], F32)]
}

fn planes_of_f32(d: &Device, _: DType) -> Vec<Tensor> {
    planes(d, F32)
}

fn channels_of_f32(d: &Device, _: DType) -> Vec<Tensor> {
    channels(d, F32)
}

/// Weight and bias of 256 columns.
fn columns(d: &Device, _: DType) -> Vec<Tensor> {
    vec![leaf(d, &[256], F32), leaf(d, &[256], F32)]
}

fn rms_norm(p: &[Tensor], t: &[Tensor]) -> Result<Tensor> {
    ops::rms_norm(&t[0], &[256], Some(&p[0]), 1e-6)
}

/// Operators with parameters, in one lower type.
fn normalisations(n: &str, dtype: DType) -> Vec<Row> {
    let row = |name: String, parameters: Make, inputs: Make, run: Run| row_with(name, dtype, parameters, inputs, run);
    let train: Run = |p, t| batch_norm(p, &t[0], true, true);
    let evaluate: Run = |p, t| batch_norm(p, &t[0], false, true);
    let mut rows = Vec::new();
    for after in ["", "_no_grad"] {
        rows.push(row(format!("batch_norm_{n}{after}"), channels_of_f32, planes, train));
        rows.push(row(format!("batch_norm_eval_{n}{after}"), channels_of_f32, planes, evaluate));
        rows.push(row(format!("rms_norm_{n}_f32_weight{after}"), columns, x, rms_norm));
    }
    rows.extend([
        row(format!("batch_norm_plain_{n}"), channels_of_f32, planes, |p, t| batch_norm(p, &t[0], true, false)),
        row(format!("batch_norm_all_{n}"), channels, planes, train),
        row(format!("batch_norm_autocast_{n}"), channels_of_f32, planes, train),
        row(format!("batch_norm_autocast_{n}_of_f32"), channels_of_f32, planes_of_f32, train),
        row(format!("layer_norm_autocast_{n}"), columns, x, layer_norm),
        row(format!("rms_norm_{n}_no_eps"), columns, x, rms_norm),
        row(format!("rms_norm_autocast_{n}"), columns, x, rms_norm),
        row(format!("rms_norm_autocast_{n}_of_f32"), columns, x_of_f32, rms_norm),
        row(format!("rms_norm_autocast_{n}_plain"), none, x, |_, t| ops::rms_norm(&t[0], &[256], None, 1e-6)),
    ]);
    rows
}

/// Operators whose operands autocast casts or leaves unchanged.
const CAST: &str =
    "sum sum_dim sum_dims mean mean_dim amax max_dim softmax log_softmax norm norm_vector exp log pow2 pow3 rsqrt sqrt
    reciprocal sin cos gelu silu tanh sigmoid relu dropout mul_scalar abs";

/// Operators with two tensors, or without autocast.
fn others(n: &str, dtype: DType) -> Vec<Row> {
    let row = |name: String, inputs: Make, operator: &str| row(name, dtype, inputs, call(operator));
    let mut rows: Vec<Row> = CAST.split_whitespace().map(|op| row(format!("{op}_autocast_{n}"), x, op)).collect();
    rows.extend([
        row(format!("sum_autocast_{n}_of_f32"), x_of_f32, "sum"),
        row(format!("sum_big_autocast_{n}"), |d, t| vec![leaf(d, &[4096, 1024], t)], "sum"),
        row(format!("softmax_autocast_{n}_of_f32"), x_of_f32, "softmax"),
        row(format!("cross_entropy_autocast_{n}"), x_and_classes, "cross_entropy"),
        row(format!("nll_loss_autocast_{n}"), x_and_classes, "nll_loss"),
        row(format!("mse_autocast_{n}"), x_and_data, "mse"),
        row(format!("mse_autocast_{n}_mixed"), |d, t| vec![leaf(d, &[64, 256], t), data(d, &[64, 256], F32)], "mse"),
        row(format!("add_mixed_bcast_{n}"), |d, t| vec![leaf(d, &[64, 256], t), leaf(d, &[256], F32)], "add"),
        row(format!("mul_{n}_by_scalar_f32"), |d, t| vec![leaf(d, &[64, 256], t), data(d, &[], F32)], "mul"),
        row(format!("mul_{n}_by_leaf_f32"), |d, t| vec![leaf(d, &[64, 256], t), leaf(d, &[], F32)], "mul"),
        row(format!("add_{n}_to_scalar_f32"), |d, t| vec![data(d, &[], F32), leaf(d, &[64, 256], t)], "add"),
        row(format!("maximum_{n}"), xx, "maximum"),
        row(format!("cross_entropy_{n}"), x_and_classes, "cross_entropy"),
    ]);
    rows.extend(["add", "mul", "div", "sub"].map(|op| row(format!("{op}_mixed_{n}"), x_beside_f32, op)));
    rows.extend(["sum", "softmax", "norm"].map(|op| row(format!("{op}_{n}"), x, op)));
    rows
}

/// Concatenation, selection and comparison of tensors of two types.
fn joined(n: &str, dtype: DType) -> Vec<Row> {
    let row = |name: String, inputs: Make, run: Run| row_with(name, dtype, none, inputs, run);
    let f32_beside_x: Make = |d, t| vec![leaf(d, &[64, 256], F32), leaf(d, &[64, 256], t)];
    let columns: Run = operator("cat").run;
    let stack: Run = |_, t| ops::stack(&[&t[0], &t[1]], 1);
    let l1: Run = operator("l1").run;
    let choose: Run = operator("where").run;
    vec![
        row(format!("cat_autocast_{n}"), x_beside_f32, columns),
        row(format!("cat_mixed_{n}"), x_beside_f32, columns),
        row(format!("cat_mixed_{n}_last"), f32_beside_x, columns),
        row(format!("stack_autocast_{n}"), x_beside_f32, stack),
        row(format!("stack_mixed_{n}"), x_beside_f32, stack),
        row(format!("l1_autocast_{n}"), x_and_data, l1),
        row(format!("l1_autocast_{n}_mixed"), x_beside_f32, l1),
        row(format!("l1_mixed_{n}"), x_beside_f32, l1),
        row(format!("where_autocast_{n}"), |d, t| choice([leaf(d, &[64, 256], t), leaf(d, &[64, 256], F32)]), choose),
        row(format!("where_mixed_{n}"), |d, t| choice([leaf(d, &[64, 256], t), leaf(d, &[64, 256], F32)]), choose),
        row(
            format!("where_mixed_{n}_second"),
            |d, t| choice([leaf(d, &[64, 256], F32), leaf(d, &[64, 256], t)]),
            choose,
        ),
        row(format!("where_mixed_{n}_scalar"), |d, t| choice([leaf(d, &[64, 256], t), data(d, &[], F32)]), choose),
        row(format!("masked_fill_{n}"), x_and_mask, operator("masked_fill").run),
    ]
}

/// Softmax over an axis that is not the last one.
fn over_axes(n: &str, dtype: DType) -> Vec<Row> {
    let row = |name: String, inputs: Make, run: Run| row_with(name, dtype, none, inputs, run);
    let cube: Make = |d, t| vec![leaf(d, &[4, 24, 40], t)];
    vec![
        row(format!("softmax_dim0_autocast_{n}"), x, |_, t| ops::softmax(&t[0], 0)),
        row(format!("log_softmax_dim0_autocast_{n}"), x, |_, t| ops::log_softmax(&t[0], 0)),
        row(format!("softmax_3d_1_autocast_{n}"), cube, |_, t| ops::softmax(&t[0], 1)),
        row(format!("log_softmax_3d_1_autocast_{n}"), cube, |_, t| ops::log_softmax(&t[0], 1)),
    ]
}

/// Operands of a selection, and a mask.
fn choice([a, b]: [Tensor; 2]) -> Vec<Tensor> {
    let mask = data(a.device(), &[64, 256], DType::Bool);
    vec![a, b, mask]
}

/// Float16 and bfloat16, which meet in float32.
fn halves() -> Vec<Row> {
    let inputs: Make = |d, _| vec![leaf(d, &[64, 256], DType::F16), leaf(d, &[64, 256], DType::BF16)];
    let and_mask: Make = |d, _| choice([leaf(d, &[64, 256], DType::F16), leaf(d, &[64, 256], DType::BF16)]);
    let row = |name: &str, inputs: Make, run: Run| row_with(name, DType::F16, none, inputs, run);
    vec![
        row("cat_f16_bf16", inputs, |_, t| ops::cat(&[&t[0], &t[1]], 0)),
        row("where_f16_bf16", and_mask, operator("where").run),
    ]
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (n, dtype) in [("f16", DType::F16), ("bf16", DType::BF16)] {
        rows.extend(normalisations(n, dtype));
        rows.extend(others(n, dtype));
        rows.extend(joined(n, dtype));
        rows.extend(over_axes(n, dtype));
    }
    let evaluate: Run = |p, t| batch_norm(p, &t[0], false, true);
    let plain =
        |name: &str, dtype, parameters: Make, inputs: Make, run: Run| row_with(name, dtype, parameters, inputs, run);
    rows.extend(halves());
    rows.extend([
        plain("batch_norm_eval", F32, channels, planes, evaluate),
        plain("batch_norm_eval_no_grad", F32, channels, planes, evaluate),
        plain("rms_norm_3d_f16_f32_weight", DType::F16, columns, |d, t| vec![leaf(d, &[4, 16, 256], t)], rms_norm),
        operator("maximum").row(F32),
        operator("minimum").row(F32),
    ]);
    rows
}

against_recordings! {
    "../golden/mixed_events.json", rows();
    every_row_is_as_pytorch_2_11_ran_it: "2.11", Profile::torch_2_11(90);
    every_row_is_as_pytorch_2_15_ran_it: "2.15", Profile::torch_2_15(90);
}

against_other_releases! { "../golden/releases/mixed_events.json", rows(), |profile| profile }
