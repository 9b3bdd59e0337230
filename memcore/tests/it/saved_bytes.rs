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
    relu6(x) => |t| ops::relu6(&t[0]);
    hardtanh(x) => |t| ops::hardtanh(&t[0], -1.0, 1.0);
    hardswish(x) => |t| ops::hardswish(&t[0]);
    mish(x) => |t| ops::mish(&t[0]);
    selu(x) => |t| ops::elu_scaled(&t[0], "selu", 1.673_263_242_354_377_2, 1.050_700_987_355_480_5, 1.0);
    // The recording counts the weight, a number, which nothing else holds.
    prelu(x) => |t| ops::prelu(&t[0], &leaf(t[0].device(), &[1], DType::F32));
    smooth_l1(x_and_data) => |t| ops::smooth_l1_loss(&t[0], &t[1], Reduction::None, 1.0);
    huber(x_and_data) => |t| ops::huber_loss(&t[0], &t[1], Reduction::Mean, 1.0);
    pad(planes) => |t| ops::pad(&t[0], &[[0, 0], [0, 0], [0, 0], [1, 1]], 0.0);
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

/// The operators of each test, by their names in the recording.
const ELEMENTWISE: &str =
    "relu leaky_relu gelu gelu_tanh sigmoid tanh silu elu softplus relu6 hardtanh hardswish mish selu prelu exp log sqrt rsqrt reciprocal pow2
     pow3 abs neg clamp sin mul_scalar add_scalar div_scalar mul_const_tensor add_const_tensor div_const_tensor mul_self bf16_cast masked_fill
     where tril";
const REDUCTIONS: &str =
    "softmax log_softmax logsumexp sum sum_dim mean max_dim amax var norm cumsum sort topk cross_entropy nll_loss mse mse_sum mse_none l1
     smooth_l1 huber bce_logits";
const COPIES: &str = "view flatten transpose_contiguous clone cat_self expand repeat pad";
const PRODUCTS: &str = "linear mm conv2d_3x3 conv2d_depthwise";
const NORMS: &str = "layer_norm rms_norm group_norm batch_norm2d dropout max_pool2d avg_pool2d adaptive_avg_pool2d upsample_nearest index_select";

/// Compares the operators of a list.
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
    check(ELEMENTWISE);
}

#[test]
fn reductions_softmax_and_losses() {
    check(REDUCTIONS);
}

#[test]
fn views_copies_and_joins() {
    check(COPIES);
}

#[test]
fn matrix_products_and_convolutions() {
    check(PRODUCTS);
}

#[test]
fn norms_pooling_dropout_and_rows_by_index() {
    check(NORMS);
}

#[test]
fn every_recorded_operator_is_compared() {
    let all = [ELEMENTWISE, REDUCTIONS, COPIES, PRODUCTS, NORMS];
    let mut here: Vec<&str> = all.iter().flat_map(|names| names.split_whitespace()).collect();
    let recorded = recorded();
    let mut names: Vec<&str> = recorded.keys().map(String::as_str).collect();
    here.sort_unstable();
    names.sort_unstable();
    assert_eq!(here, names);
}
