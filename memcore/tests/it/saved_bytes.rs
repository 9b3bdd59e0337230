//! Every operator keeps what PyTorch's keeps: live bytes while its result is held, and while only its history is held.
//!
//! The first input is a temporary that nobody else holds; other operands stay alive and do not count. The expectation is
//! `golden/saved_bytes.json`, recorded from the unmodified torch 2.11.0+cu130 wheel. To add an operator, name it in a test below; it is that of
//! `common/operators.rs`, or of the table here where the recording has other operands or arguments.

use std::collections::HashMap;
use std::sync::Arc;

use crate::common::labelled::{data, leaf, warm_up};
use crate::common::operators::{Operator, none, operator, operators, planes, x, x_and_data, x_and_mask};
use memcore::backend::Meta;
use memcore::backend::kernel::Reduction;
use memcore::{DType, Device, Profile, Result, ops};

const OWN: &[Operator] = operators! {
    div_scalar(x) => |t| ops::div_scalar(&t[0], 2.0);
    mul_const_tensor(x_and_data) => |t| ops::mul(&t[0], &t[1]);
    add_const_tensor(x_and_data) => |t| ops::add(&t[0], &t[1]);
    div_const_tensor(x_and_data) => |t| ops::div(&t[0], &t[1]);
    bf16_cast(x) => |t| ops::cast(&t[0], DType::BF16);
    where(|d, t| [x_and_mask(d, t), vec![data(d, &[64, 256], t)]].concat()) => |t| ops::where_(&t[1], &t[0], &t[2]);
    sum_dim(x) => |t| ops::sum_axes(&t[0], &[1], false);
    mse_sum(x_and_data) => |t| ops::mse_loss(&t[0], &t[1], Reduction::Sum);
    mse_none(x_and_data) => |t| ops::mse_loss(&t[0], &t[1], Reduction::None);
    l1(x_and_data) => |t| ops::mean(&ops::abs(&ops::sub(&t[0], &t[1])?)?);
    flatten(planes) => |t| ops::flatten(&t[0], 1);
    cat_self(x) => |t| ops::cat(&[&t[0], &t[0]], 1);
    expand(x) => |t| ops::expand(&ops::unsqueeze(&t[0], 0)?, &[4, 64, 256]);
    repeat(x) => |t| ops::repeat(&t[0], &[2, 1]);
    batch_norm2d(planes; |d, t| vec![leaf(d, &[16], t), leaf(d, &[16], t)]) => |p, t| {
        let options = ops::BatchNormOptions { training: true, momentum: 0.1, eps: 1e-5 };
        ops::batch_norm(&t[0], Some(&p[0]), Some(&p[1]), None, options)
    };
    adaptive_avg_pool2d(planes) => |t| ops::adaptive_avg_pool2d(&t[0], [1, 1]);
    // In the recording nothing else holds the indices either.
    index_select(x) => |t| ops::index_select(&t[0], 0, &data(t[0].device(), &[40], DType::I64));
};

/// Bytes with the result alive, bytes with its history alone.
type Kept = (u64, u64);

fn recorded() -> HashMap<String, (u64, Kept)> {
    let file: serde_json::Value = serde_json::from_str(include_str!("../golden/saved_bytes.json")).unwrap();
    let bytes = |v: &serde_json::Value| v.as_u64().unwrap();
    let row = |row: &serde_json::Value| {
        (row[0].as_str().unwrap().to_string(), (bytes(&row[1]), (bytes(&row[3]), bytes(&row[4]))))
    };
    file["rows"].as_array().unwrap().iter().map(row).collect()
}

fn observe(operator: &Operator, input_bytes: u64) -> Result<Kept> {
    let device = Device::builder(Arc::new(Meta::default())).profile(Profile::torch_2_11(90)).build();
    // The workspace of matrix products exists before the measurement.
    warm_up(&device)?;
    let mut inputs = (operator.inputs)(&device, DType::F32);
    let leaf = inputs[0].clone();
    assert_eq!(leaf.array().nbytes(), input_bytes, "{}: another input than the recording's", operator.name);
    let parameters = (operator.parameters)(&device, DType::F32);
    let before = allocated(&device);
    // A scaling keeps nothing itself, so its result is gone unless the operator keeps it.
    inputs[0] = ops::mul_scalar(&leaf, 1.0)?;
    let y = (operator.run)(&parameters, &inputs)?;
    inputs[0] = leaf;
    let with_result = allocated(&device) - before;
    let history = y.edge().cloned();
    drop(y);
    let with_history = allocated(&device) - before;
    drop(history);
    assert_eq!(allocated(&device), before, "{}: something outlives its history", operator.name);
    Ok((with_result, with_history))
}

fn allocated(device: &Device) -> u64 {
    device.stats().allocated_bytes.all.current
}

/// Defines a test for each operator of the list, with its name in the recording.
fn check(names: &str) {
    let recorded = recorded();
    let mut wrong = Vec::new();
    for name in names.split_whitespace() {
        let own = OWN.iter().find(|operator| operator.name == name).copied();
        let (input_bytes, want) = recorded[name];
        match observe(&own.unwrap_or_else(|| operator(name)), input_bytes) {
            Ok(found) if found == want => {}
            found => wrong.push(format!("{name}: recorded {want:?}, here {found:?}")),
        }
    }
    assert!(wrong.is_empty(), "bytes with the result alive, with its history alone:\n{}", wrong.join("\n"));
}

#[test]
fn elementwise_functions_and_masks() {
    check(
        "relu leaky_relu gelu gelu_tanh sigmoid tanh silu exp log sqrt rsqrt reciprocal pow2 pow3 abs neg clamp sin mul_scalar add_scalar
         div_scalar mul_const_tensor add_const_tensor div_const_tensor mul_self bf16_cast masked_fill where tril",
    );
}

#[test]
fn reductions_softmax_and_losses() {
    check("softmax log_softmax sum sum_dim mean max_dim amax norm cross_entropy nll_loss mse mse_sum mse_none l1");
}

#[test]
fn views_copies_and_joins() {
    check("view flatten transpose_contiguous clone cat_self expand repeat");
}

#[test]
fn matrix_products_and_convolutions() {
    check("linear mm conv2d_3x3 conv2d_depthwise");
}

#[test]
fn norms_pooling_dropout_and_rows_by_index() {
    check("layer_norm rms_norm batch_norm2d dropout max_pool2d avg_pool2d adaptive_avg_pool2d index_select");
}
