//! Operators that meet two types (under autocast, or with parameters in f32 beside a 16-bit input) allocate and free what PyTorch's do, in the same
//! order, by the same operators of the same nodes.
//!
//! The expectation is `golden/mixed_events.json`, recorded from the unmodified torch 2.11.0+cu130 and 2.15.0+cu132 wheels.

mod common;
#[path = "common/labelled.rs"]
mod labelled;

use labelled::{Row, against_recordings, assert_same, data, leaf};
use memcore::backend::kernel::Reduction;
use memcore::{DType, Device, Profile, Result, Tensor, ops};

const F32: DType = DType::F32;

type Inputs = fn(&Device, DType) -> Vec<Tensor>;
type Run = fn(&[Tensor], &[Tensor]) -> Result<Tensor>;

/// Under autocast, or without a tape, where the name says so.
fn row(name: String, dtype: DType, parameters: Inputs, inputs: Inputs, run: Run) -> Row {
    Row {
        autocast: name.contains("autocast"),
        records: !name.ends_with("no_grad"),
        name,
        dtype,
        parameters: Box::new(parameters),
        inputs: Box::new(inputs),
        run: Box::new(run),
    }
}

/// `[64, 256]`
fn x(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256], t)]
}

fn x_of_f32(d: &Device, _: DType) -> Vec<Tensor> {
    x(d, F32)
}

fn xx(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256], t), leaf(d, &[64, 256], t)]
}

fn x_beside_f32(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256], t), leaf(d, &[64, 256], F32)]
}

fn x_and_classes(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256], t), data(d, &[64], DType::I64)]
}

/// `[8, 16, 20, 20]`
fn planes(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[8, 16, 20, 20], t)]
}

fn planes_of_f32(d: &Device, _: DType) -> Vec<Tensor> {
    planes(d, F32)
}

fn none(_: &Device, _: DType) -> Vec<Tensor> {
    Vec::new()
}

/// Weight, bias, running mean and variance of 16 channels.
fn channels(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[16], t), leaf(d, &[16], t), data(d, &[16], t), data(d, &[16], t)]
}

fn channels_of_f32(d: &Device, _: DType) -> Vec<Tensor> {
    channels(d, F32)
}

/// Weight and bias of 256 columns.
fn columns(d: &Device, _: DType) -> Vec<Tensor> {
    vec![leaf(d, &[256], F32), leaf(d, &[256], F32)]
}

fn batch_norm(p: &[Tensor], t: &Tensor, training: bool, affine: bool) -> Result<Tensor> {
    let running = ops::RunningStats { mean: p[2].array(), var: p[3].array() };
    let options = ops::BatchNormOptions { training, momentum: 0.1, eps: 1e-5 };
    let (weight, bias) = (affine.then_some(&p[0]), affine.then_some(&p[1]));
    ops::batch_norm(t, weight, bias, Some(running), options)
}

fn rms_norm(p: &[Tensor], t: &[Tensor]) -> Result<Tensor> {
    ops::rms_norm(&t[0], &[256], Some(&p[0]), 1e-6)
}

/// Whatever has parameters, in one lower type.
fn normalisations(n: &str, dtype: DType) -> Vec<Row> {
    let row = |name: String, parameters: Inputs, inputs: Inputs, run: Run| row(name, dtype, parameters, inputs, run);
    let train: Run = |p, t| batch_norm(p, &t[0], true, true);
    let evaluate: Run = |p, t| batch_norm(p, &t[0], false, true);
    let layer_norm: Run = |p, t| ops::layer_norm(&t[0], &[256], Some(&p[0]), Some(&p[1]), 1e-5);
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

/// What autocast does to operators without parameters.
const CAST: &[(&str, Run)] = &[
    ("sum", |_, t| ops::sum(&t[0])),
    ("sum_dim", |_, t| ops::sum_axes(&t[0], &[0], false)),
    ("sum_dims", |_, t| ops::sum_axes(&t[0], &[0, 1], false)),
    ("mean", |_, t| ops::mean(&t[0])),
    ("mean_dim", |_, t| ops::mean_axes(&t[0], &[1], false)),
    ("amax", |_, t| ops::amax(&t[0], &[1], false)),
    ("max_dim", |_, t| Ok(ops::max_axis(&t[0], 1, false)?.0)),
    ("softmax", |_, t| ops::softmax(&t[0], 1)),
    ("log_softmax", |_, t| ops::log_softmax(&t[0], 1)),
    ("norm", |_, t| ops::norm(&t[0])),
    ("norm_vector", |_, t| ops::norm(&t[0])),
    ("exp", |_, t| ops::exp(&t[0])),
    ("log", |_, t| ops::log(&t[0])),
    ("pow2", |_, t| ops::pow(&t[0], 2.0)),
    ("pow3", |_, t| ops::pow(&t[0], 3.0)),
    ("rsqrt", |_, t| ops::rsqrt(&t[0])),
    ("sqrt", |_, t| ops::sqrt(&t[0])),
    ("reciprocal", |_, t| ops::reciprocal(&t[0])),
    ("sin", |_, t| ops::sin(&t[0])),
    ("cos", |_, t| ops::cos(&t[0])),
    ("gelu", |_, t| ops::gelu(&t[0])),
    ("silu", |_, t| ops::silu(&t[0])),
    ("tanh", |_, t| ops::tanh(&t[0])),
    ("sigmoid", |_, t| ops::sigmoid(&t[0])),
    ("relu", |_, t| ops::relu(&t[0])),
    ("dropout", |_, t| ops::dropout(&t[0], 0.1, true)),
    ("mul_scalar", |_, t| ops::mul_scalar(&t[0], 3.0)),
    ("abs", |_, t| ops::abs(&t[0])),
];

/// Operators that take two tensors, or run without autocast.
fn others(n: &str, dtype: DType) -> Vec<Row> {
    let row = |name: String, inputs: Inputs, run: Run| row(name, dtype, none, inputs, run);
    let cross_entropy: Run = |_, t| ops::cross_entropy(&t[0], &t[1], Reduction::Mean);
    let nll_loss: Run = |_, t| ops::nll_loss(&t[0], &t[1], Reduction::Mean);
    let mse: Run = |_, t| ops::mse_loss(&t[0], &t[1], Reduction::Mean);
    let mul: Run = |_, t| ops::mul(&t[0], &t[1]);
    let mut rows: Vec<Row> = CAST.iter().map(|&(op, run)| row(format!("{op}_autocast_{n}"), x, run)).collect();
    rows.extend([
        row(format!("sum_autocast_{n}_of_f32"), x_of_f32, |_, t| ops::sum(&t[0])),
        row(format!("sum_big_autocast_{n}"), |d, t| vec![leaf(d, &[4096, 1024], t)], |_, t| ops::sum(&t[0])),
        row(format!("softmax_autocast_{n}_of_f32"), x_of_f32, |_, t| ops::softmax(&t[0], 1)),
        row(format!("cross_entropy_autocast_{n}"), x_and_classes, cross_entropy),
        row(format!("nll_loss_autocast_{n}"), x_and_classes, nll_loss),
        row(format!("mse_autocast_{n}"), |d, t| vec![leaf(d, &[64, 256], t), data(d, &[64, 256], t)], mse),
        row(format!("mse_autocast_{n}_mixed"), |d, t| vec![leaf(d, &[64, 256], t), data(d, &[64, 256], F32)], mse),
        row(format!("add_mixed_{n}"), x_beside_f32, |_, t| ops::add(&t[0], &t[1])),
        row(format!("mul_mixed_{n}"), x_beside_f32, |_, t| ops::mul(&t[0], &t[1])),
        row(format!("div_mixed_{n}"), x_beside_f32, |_, t| ops::div(&t[0], &t[1])),
        row(
            format!("add_mixed_bcast_{n}"),
            |d, t| vec![leaf(d, &[64, 256], t), leaf(d, &[256], F32)],
            |_, t| ops::add(&t[0], &t[1]),
        ),
        row(format!("sub_mixed_{n}"), x_beside_f32, |_, t| ops::sub(&t[0], &t[1])),
        row(format!("mul_{n}_by_scalar_f32"), |d, t| vec![leaf(d, &[64, 256], t), data(d, &[], F32)], mul),
        row(format!("mul_{n}_by_leaf_f32"), |d, t| vec![leaf(d, &[64, 256], t), leaf(d, &[], F32)], mul),
        row(
            format!("add_{n}_to_scalar_f32"),
            |d, t| vec![data(d, &[], F32), leaf(d, &[64, 256], t)],
            |_, t| ops::add(&t[0], &t[1]),
        ),
        row(format!("maximum_{n}"), xx, |_, t| ops::maximum(&t[0], &t[1])),
        row(format!("sum_{n}"), x, |_, t| ops::sum(&t[0])),
        row(format!("softmax_{n}"), x, |_, t| ops::softmax(&t[0], 1)),
        row(format!("norm_{n}"), x, |_, t| ops::norm(&t[0])),
        row(format!("cross_entropy_{n}"), x_and_classes, cross_entropy),
    ]);
    rows
}

/// Tensors of two types that are joined, chosen from or compared.
fn joined(n: &str, dtype: DType) -> Vec<Row> {
    let row = |name: String, inputs: Inputs, run: Run| row(name, dtype, none, inputs, run);
    let f32_beside_x: Inputs = |d, t| vec![leaf(d, &[64, 256], F32), leaf(d, &[64, 256], t)];
    let columns: Run = |_, t| ops::cat(&[&t[0], &t[1]], 1);

    let stack: Run = |_, t| ops::stack(&[&t[0], &t[1]], 1);
    let l1: Run = |_, t| ops::l1_loss(&t[0], &t[1], Reduction::Mean);
    let choose: Run = |_, t| ops::where_(&t[2], &t[0], &t[1]);
    vec![
        row(format!("cat_autocast_{n}"), x_beside_f32, columns),
        row(format!("cat_mixed_{n}"), x_beside_f32, columns),
        row(format!("cat_mixed_{n}_last"), f32_beside_x, columns),
        row(format!("stack_autocast_{n}"), x_beside_f32, stack),
        row(format!("stack_mixed_{n}"), x_beside_f32, stack),
        row(format!("l1_autocast_{n}"), |d, t| vec![leaf(d, &[64, 256], t), data(d, &[64, 256], t)], l1),
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
        row(
            format!("masked_fill_{n}"),
            |d, t| vec![leaf(d, &[64, 256], t), data(d, &[64, 256], DType::Bool)],
            |_, t| ops::masked_fill(&t[0], &t[1], -1.0),
        ),
    ]
}

/// Softmax over an axis that is not the last one.
fn over_axes(n: &str, dtype: DType) -> Vec<Row> {
    let row = |name: String, inputs: Inputs, run: Run| row(name, dtype, none, inputs, run);
    let cube: Inputs = |d, t| vec![leaf(d, &[4, 24, 40], t)];
    vec![
        row(format!("softmax_dim0_autocast_{n}"), x, |_, t| ops::softmax(&t[0], 0)),
        row(format!("log_softmax_dim0_autocast_{n}"), x, |_, t| ops::log_softmax(&t[0], 0)),
        row(format!("softmax_3d_1_autocast_{n}"), cube, |_, t| ops::softmax(&t[0], 1)),
        row(format!("log_softmax_3d_1_autocast_{n}"), cube, |_, t| ops::log_softmax(&t[0], 1)),
    ]
}

/// What is chosen from, and a mask.
fn choice([a, b]: [Tensor; 2]) -> Vec<Tensor> {
    let mask = data(a.device(), &[64, 256], DType::Bool);
    vec![a, b, mask]
}

/// Float16 and bfloat16, which meet in float32.
fn halves() -> Vec<Row> {
    let inputs: Inputs = |d, _| vec![leaf(d, &[64, 256], DType::F16), leaf(d, &[64, 256], DType::BF16)];
    let and_mask: Inputs = |d, _| choice([leaf(d, &[64, 256], DType::F16), leaf(d, &[64, 256], DType::BF16)]);
    let row = |name: &str, inputs: Inputs, run: Run| row(name.into(), DType::F16, none, inputs, run);
    vec![
        row("cat_f16_bf16", inputs, |_, t| ops::cat(&[&t[0], &t[1]], 0)),
        row("where_f16_bf16", and_mask, |_, t| ops::where_(&t[2], &t[0], &t[1])),
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
    let plain = |name: &str, dtype, parameters: Inputs, inputs: Inputs, run: Run| {
        row(name.into(), dtype, parameters, inputs, run)
    };
    rows.extend(halves());
    rows.extend([
        plain("batch_norm_eval", F32, channels, planes, evaluate),
        plain("batch_norm_eval_no_grad", F32, channels, planes, evaluate),
        plain("rms_norm_3d_f16_f32_weight", DType::F16, columns, |d, t| vec![leaf(d, &[4, 16, 256], t)], rms_norm),
        plain("maximum", F32, none, xx, |_, t| ops::maximum(&t[0], &t[1])),
        plain("minimum", F32, none, xx, |_, t| ops::minimum(&t[0], &t[1])),
    ]);
    rows
}

against_recordings! {
    "golden/mixed_events.json", rows();
    every_row_is_as_pytorch_2_11_ran_it: "2.11", Profile::torch_2_11(90);
    every_row_is_as_pytorch_2_15_ran_it: "2.15", Profile::torch_2_15(90);
}

mod other_releases {
    use super::*;

    against_recordings! {
        "golden/releases/mixed_events.json", rows();
        as_pytorch_2_7: "2.7", Profile::named("torch-2.7-sm90").unwrap();
        as_pytorch_2_8: "2.8", Profile::named("torch-2.8-sm90").unwrap();
        as_pytorch_2_9: "2.9", Profile::named("torch-2.9-sm90").unwrap();
        as_pytorch_2_10: "2.10", Profile::named("torch-2.10-sm90").unwrap();
        as_pytorch_2_12: "2.12", Profile::named("torch-2.12-sm90").unwrap();
        as_pytorch_2_13: "2.13", Profile::named("torch-2.13-sm90").unwrap();
        as_pytorch_2_14: "2.14", Profile::named("torch-2.14-sm90").unwrap();
    }
}
