//! Every operator keeps what PyTorch's keeps: bytes alive while its result is held, and bytes alive while only its history is.
//!
//! The input is a temporary that nobody else holds; other operands stay alive and do not count. The expectation is `golden/saved_bytes.json`,
//! recorded from the unmodified torch 2.11.0+cu130 wheel. To add an operator, add a row to the table below, under the name that it has
//! there; the input's sizes are those of the recording.

use std::collections::HashMap;
use std::sync::Arc;

use memcore::backend::Meta;
use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry, Reduction};
use memcore::{Array, DType, Device, Profile, Result, Tensor, ops};

/// One operator: the sizes of its input, what else it needs, and how it is called with the two.
struct Row {
    name: &'static str,
    dims: &'static [usize],
    others: fn(&Device) -> Vec<Tensor>,
    run: fn(&Tensor, &[Tensor]) -> Result<Tensor>,
}

fn leaf(device: &Device, dims: &[usize]) -> Tensor {
    Tensor::leaf(Array::empty(device, dims, DType::F32).unwrap())
}

fn data(device: &Device, dims: &[usize], dtype: DType) -> Tensor {
    Tensor::from_array(Array::empty(device, dims, dtype).unwrap())
}

fn alone(_: &Device) -> Vec<Tensor> {
    Vec::new()
}

fn constant(d: &Device) -> Vec<Tensor> {
    vec![data(d, &[64, 256], DType::F32)]
}

fn mask(d: &Device) -> Vec<Tensor> {
    vec![data(d, &[64, 256], DType::Bool), data(d, &[64, 256], DType::F32)]
}

fn classes(d: &Device) -> Vec<Tensor> {
    vec![data(d, &[64], DType::I64)]
}

const X: &[usize] = &[64, 256];
const PLANES: &[usize] = &[8, 16, 20, 20];

macro_rules! rows {
    ($($name:ident($dims:expr, $others:expr) => |$x:pat_param, $t:pat_param| $run:expr;)*) => {
        vec![$(Row { name: stringify!($name), dims: $dims, others: $others, run: |$x, $t| $run }),*]
    };
}

fn elementwise() -> Vec<Row> {
    rows! {
        relu(X, alone) => |x, _| ops::relu(x);
        leaky_relu(X, alone) => |x, _| ops::leaky_relu(x, 0.01);
        gelu(X, alone) => |x, _| ops::gelu(x);
        gelu_tanh(X, alone) => |x, _| ops::gelu_tanh(x);
        sigmoid(X, alone) => |x, _| ops::sigmoid(x);
        tanh(X, alone) => |x, _| ops::tanh(x);
        silu(X, alone) => |x, _| ops::silu(x);
        exp(X, alone) => |x, _| ops::exp(x);
        log(X, alone) => |x, _| ops::log(x);
        sqrt(X, alone) => |x, _| ops::sqrt(x);
        rsqrt(X, alone) => |x, _| ops::rsqrt(x);
        reciprocal(X, alone) => |x, _| ops::reciprocal(x);
        pow2(X, alone) => |x, _| ops::pow(x, 2.0);
        pow3(X, alone) => |x, _| ops::pow(x, 3.0);
        abs(X, alone) => |x, _| ops::abs(x);
        neg(X, alone) => |x, _| ops::neg(x);
        clamp(X, alone) => |x, _| ops::clamp(x, -1.0, 1.0);
        sin(X, alone) => |x, _| ops::sin(x);
        mul_scalar(X, alone) => |x, _| ops::mul_scalar(x, 3.0);
        add_scalar(X, alone) => |x, _| ops::add_scalar(x, 1.0);
        div_scalar(X, alone) => |x, _| ops::div_scalar(x, 2.0);
        mul_const_tensor(X, constant) => |x, t| ops::mul(x, &t[0]);
        add_const_tensor(X, constant) => |x, t| ops::add(x, &t[0]);
        div_const_tensor(X, constant) => |x, t| ops::div(x, &t[0]);
        mul_self(X, alone) => |x, _| ops::mul(x, x);
        bf16_cast(X, alone) => |x, _| ops::cast(x, DType::BF16);
        masked_fill(X, mask) => |x, t| ops::masked_fill(x, &t[0], 0.0);
        where(X, mask) => |x, t| ops::where_(&t[0], x, &t[1]);
        tril(X, alone) => |x, _| ops::tril(x, 0);
    }
}

fn reductions_and_losses() -> Vec<Row> {
    rows! {
        softmax(X, alone) => |x, _| ops::softmax(x, 1);
        log_softmax(X, alone) => |x, _| ops::log_softmax(x, 1);
        sum(X, alone) => |x, _| ops::sum(x);
        sum_dim(X, alone) => |x, _| ops::sum_axes(x, &[1], false);
        mean(X, alone) => |x, _| ops::mean(x);
        max_dim(X, alone) => |x, _| Ok(ops::max_axis(x, 1, false)?.0);
        amax(X, alone) => |x, _| ops::amax(x, &[1], false);
        norm(X, alone) => |x, _| ops::norm(x);
        cross_entropy(X, classes) => |x, t| ops::cross_entropy(x, &t[0], Reduction::Mean);
        nll_loss(X, classes) => |x, t| ops::nll_loss(x, &t[0], Reduction::Mean);
        mse(X, constant) => |x, t| ops::mse_loss(x, &t[0], Reduction::Mean);
        mse_sum(X, constant) => |x, t| ops::mse_loss(x, &t[0], Reduction::Sum);
        mse_none(X, constant) => |x, t| ops::mse_loss(x, &t[0], Reduction::None);
        l1(X, constant) => |x, t| ops::mean(&ops::abs(&ops::sub(x, &t[0])?)?);
    }
}

fn shapes() -> Vec<Row> {
    rows! {
        view(X, alone) => |x, _| ops::view(x, &[128, 128]);
        flatten(PLANES, alone) => |x, _| ops::flatten(x, 1);
        transpose_contiguous(X, alone) => |x, _| ops::contiguous(&ops::t(x)?);
        clone(X, alone) => |x, _| ops::clone(x);
        cat_self(X, alone) => |x, _| ops::cat(&[x, x], 1);
        expand(X, alone) => |x, _| ops::expand(&ops::unsqueeze(x, 0)?, &[4, 64, 256]);
        repeat(X, alone) => |x, _| ops::repeat(x, &[2, 1]);
    }
}

fn products_and_convolutions() -> Vec<Row> {
    const SAME: Conv2dGeometry = Conv2dGeometry { stride: [1, 1], padding: [1, 1], dilation: [1, 1], groups: 1 };
    const DEPTHWISE: Conv2dGeometry = Conv2dGeometry { groups: 16, ..SAME };
    rows! {
        linear(X, |d| vec![leaf(d, &[192, 256]), leaf(d, &[192])]) => |x, t| ops::linear(x, &t[0], Some(&t[1]));
        mm(X, |d| vec![leaf(d, &[256, 128])]) => |x, t| ops::mm(x, &t[0]);
        conv2d_3x3(PLANES, |d| vec![leaf(d, &[24, 16, 3, 3]), leaf(d, &[24])])
            => |x, t| ops::conv2d(x, &t[0], Some(&t[1]), SAME);
        conv2d_depthwise(PLANES, |d| vec![leaf(d, &[16, 1, 3, 3]), leaf(d, &[16])])
            => |x, t| ops::conv2d(x, &t[0], Some(&t[1]), DEPTHWISE);
    }
}

fn normalised_pooled_and_picked() -> Vec<Row> {
    const HALVED: Pool2dGeometry = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };
    const TRAINING: ops::BatchNormOptions = ops::BatchNormOptions { training: true, momentum: 0.1, eps: 1e-5 };
    rows! {
        layer_norm(X, |d| vec![leaf(d, &[256]), leaf(d, &[256])])
            => |x, t| ops::layer_norm(x, &[256], Some(&t[0]), Some(&t[1]), 1e-5);
        rms_norm(X, alone) => |x, _| ops::rms_norm(x, &[256], None, 1e-6);
        batch_norm2d(PLANES, |d| vec![leaf(d, &[16]), leaf(d, &[16])])
            => |x, t| ops::batch_norm(x, Some(&t[0]), Some(&t[1]), None, TRAINING);
        dropout(X, alone) => |x, _| ops::dropout(x, 0.1, true);
        max_pool2d(PLANES, alone) => |x, _| ops::max_pool2d(x, HALVED);
        avg_pool2d(PLANES, alone) => |x, _| ops::avg_pool2d(x, HALVED);
        adaptive_avg_pool2d(PLANES, alone) => |x, _| ops::adaptive_avg_pool2d(x, [1, 1]);
        index_select(X, alone) => |x, _| {
            // The recording's indices are nobody else's either.
            ops::index_select(x, 0, &data(x.device(), &[40], DType::I64))
        };
    }
}

/// Bytes with the result alive, bytes with its history alone.
type Kept = (u64, u64);

fn recorded() -> HashMap<String, (u64, Kept)> {
    let file: serde_json::Value = serde_json::from_str(include_str!("golden/saved_bytes.json")).unwrap();
    let bytes = |v: &serde_json::Value| v.as_u64().unwrap();
    let row = |row: &serde_json::Value| {
        (row[0].as_str().unwrap().to_string(), (bytes(&row[1]), (bytes(&row[3]), bytes(&row[4]))))
    };
    file["rows"].as_array().unwrap().iter().map(row).collect()
}

fn observe(row: &Row, input_bytes: u64) -> Result<Kept> {
    let device = Device::builder(Arc::new(Meta::default())).profile(Profile::torch_2_11(90)).build();
    // The workspace that a product leaves behind is there before.
    ops::linear(&leaf(&device, &[8, 8]), &leaf(&device, &[8, 8]), Some(&leaf(&device, &[8])))?;
    let leaf = leaf(&device, row.dims);
    assert_eq!(leaf.array().nbytes(), input_bytes, "{}: another input than the recording's", row.name);
    let others = (row.others)(&device);
    let before = allocated(&device);
    // A scaling keeps nothing itself, so its result is gone unless the operator keeps it.
    let x = ops::mul_scalar(&leaf, 1.0)?;
    let y = (row.run)(&x, &others)?;
    drop(x);
    let with_result = allocated(&device) - before;
    let history = y.edge().cloned();
    drop(y);
    let with_history = allocated(&device) - before;
    drop(history);
    assert_eq!(allocated(&device), before, "{}: something outlives its history", row.name);
    Ok((with_result, with_history))
}

fn allocated(device: &Device) -> u64 {
    device.stats().allocated_bytes.all.current
}

fn check(rows: Vec<Row>) {
    let recorded = recorded();
    let mut wrong = Vec::new();
    for row in rows {
        let (input_bytes, want) = recorded[row.name];
        match observe(&row, input_bytes) {
            Ok(found) if found == want => {}
            found => wrong.push(format!("{}: recorded {want:?}, here {found:?}", row.name)),
        }
    }
    assert!(wrong.is_empty(), "bytes with the result alive, with its history alone:\n{}", wrong.join("\n"));
}

#[test]
fn elementwise_functions_and_masks() {
    check(elementwise());
}

#[test]
fn reductions_softmax_and_losses() {
    check(reductions_and_losses());
}

#[test]
fn views_copies_and_joins() {
    check(shapes());
}

#[test]
fn matrix_products_and_convolutions() {
    check(products_and_convolutions());
}

#[test]
fn norms_pooling_dropout_and_rows_by_index() {
    check(normalised_pooled_and_picked());
}
