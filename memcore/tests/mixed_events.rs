//! Operators that meet two types (under autocast, or with parameters in f32 beside a 16-bit input) allocate and free what PyTorch's do, in the same
//! order, by the same operators of the same nodes.
//!
//! The expectation is `golden/mixed_events.json`, recorded from the unmodified torch 2.11.0+cu130 and 2.15.0+cu132 wheels.

mod common;

use std::sync::Arc;

use common::{Events, Watch};
use memcore::autograd::{Autocast, NoGrad};
use memcore::backend::Meta;
use memcore::backend::kernel::Reduction;
use memcore::{Array, DType, Device, Profile, Result, Tensor, ops};
use serde_json::Value;

const F32: DType = DType::F32;

/// What a row of the recording ran, in the lower type `dtype`.
struct Row {
    name: String,
    dtype: DType,
    autocast: bool,
    records: bool,
    parameters: fn(&Device, DType) -> Vec<Tensor>,
    inputs: fn(&Device, DType) -> Vec<Tensor>,
    run: Run,
}

type Run = fn(&[Tensor], &[Tensor]) -> Result<Tensor>;

fn leaf(device: &Device, dims: &[usize], dtype: DType) -> Tensor {
    Tensor::leaf(Array::empty(device, dims, dtype).unwrap())
}

fn data(device: &Device, dims: &[usize], dtype: DType) -> Tensor {
    Tensor::from_array(Array::empty(device, dims, dtype).unwrap())
}

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
    let row = |name: String, parameters, inputs, run: Run| Row {
        autocast: name.contains("autocast"),
        records: !name.ends_with("no_grad"),
        name,
        dtype,
        parameters,
        inputs,
        run,
    };
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
    let row = |name: String, inputs, run: Run| Row {
        autocast: name.contains("autocast"),
        records: true,
        name,
        dtype,
        parameters: none,
        inputs,
        run,
    };
    let cross_entropy: Run = |_, t| ops::cross_entropy(&t[0], &t[1], Reduction::Mean);
    let nll_loss: Run = |_, t| ops::nll_loss(&t[0], &t[1], Reduction::Mean);
    let mse: Run = |_, t| ops::mse_loss(&t[0], &t[1], Reduction::Mean);
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
        row(format!("maximum_{n}"), xx, |_, t| ops::maximum(&t[0], &t[1])),
        row(format!("sum_{n}"), x, |_, t| ops::sum(&t[0])),
        row(format!("softmax_{n}"), x, |_, t| ops::softmax(&t[0], 1)),
        row(format!("norm_{n}"), x, |_, t| ops::norm(&t[0])),
        row(format!("cross_entropy_{n}"), x_and_classes, cross_entropy),
    ]);
    rows
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (n, dtype) in [("f16", DType::F16), ("bf16", DType::BF16)] {
        rows.extend(normalisations(n, dtype));
        rows.extend(others(n, dtype));
    }
    let evaluate: Run = |p, t| batch_norm(p, &t[0], false, true);
    let plain = |name: &str, dtype, parameters, inputs, run| Row {
        name: name.into(),
        dtype,
        autocast: false,
        records: !name.ends_with("no_grad"),
        parameters,
        inputs,
        run,
    };
    rows.extend([
        plain("batch_norm_eval", F32, channels, planes, evaluate),
        plain("batch_norm_eval_no_grad", F32, channels, planes, evaluate),
        plain("rms_norm_3d_f16_f32_weight", DType::F16, columns, |d, t| vec![leaf(d, &[4, 16, 256], t)], rms_norm),
        plain("maximum", F32, none, xx, |_, t| ops::maximum(&t[0], &t[1])),
        plain("minimum", F32, none, xx, |_, t| ops::minimum(&t[0], &t[1])),
    ]);
    rows
}

/// What happened in each phase: input, forward, gradient of the output, backward, teardown.
type Phases = [Vec<(i64, String)>; 5];

const PHASES: [&str; 5] = ["input", "forward", "gradient of the output", "backward", "teardown"];

fn observe(row: &Row, profile: Profile) -> Result<Phases> {
    let device = Device::builder(Arc::new(Meta::default())).profile(profile).build();
    let parameters = (row.parameters)(&device, row.dtype);
    device.set_history(true);
    let mut watch = Watch::new(&device);
    let mut inputs = (row.inputs)(&device, row.dtype);
    // Who makes inputs and seed is the test's affair.
    let unnamed = |events: Events| events.into_iter().map(|event| (event, String::new())).collect();
    let input = unnamed(watch.since());
    let y = {
        let _autocast = row.autocast.then(|| Autocast::new(row.dtype));
        let _no_grad = (!row.records).then(NoGrad::new);
        (row.run)(&parameters, &inputs)?
    };
    let forward = watch.since_by();
    let grad = Array::ones(&device, y.dims(), y.dtype())?;
    let seed = unnamed(watch.since());
    if y.requires_grad() {
        y.backward_with(grad.clone(), false)?;
    }
    let backward = watch.since_by();
    drop(y);
    drop(grad);
    while inputs.pop().is_some() {}
    parameters.iter().for_each(|parameter| parameter.set_grad(None));
    Ok([input, forward, seed, backward, watch.since_by()])
}

/// The rows that a release of PyTorch ran.
fn recorded(release: &str) -> Vec<(String, Phases)> {
    let file: Value = serde_json::from_str(include_str!("golden/mixed_events.json")).unwrap();
    let label = |i: &Value| file["labels"][i.as_u64().unwrap() as usize].as_str().unwrap().to_string();
    let phase = |events: &Value| {
        events.as_array().unwrap().iter().map(|event| (event[0].as_i64().unwrap(), label(&event[1]))).collect()
    };
    let row = |row: &Value| (row[0].as_str().unwrap().to_string(), std::array::from_fn(|i| phase(&row[i + 1])));
    file[release].as_array().unwrap().iter().map(row).collect()
}

/// PyTorch's accumulation of gradients has a longer name, and inside of some operators its casts call the inner operator at once.
fn same_label(ours: &str, theirs: &str) -> bool {
    let theirs = theirs.trim_start_matches("torch::autograd::");
    ours == theirs || ours.replace(">to>_to_copy", ">_to_copy") == theirs
}

fn differences(release: &str, profile: &Profile) -> Vec<String> {
    let rows = rows();
    let mut out = Vec::new();
    for (name, want) in recorded(release) {
        let Some(row) = rows.iter().find(|row| row.name == name) else {
            out.push(format!("{name} is recorded, and not here"));
            continue;
        };
        let found = match observe(row, profile.clone()) {
            Ok(found) => found,
            Err(error) => {
                out.push(format!("{name}: {error}"));
                continue;
            }
        };
        for (i, (found, want)) in found.iter().zip(&want).enumerate() {
            let by = |found: &str, want: &str| i == 0 || i == 2 || same_label(found, want);
            let same = found.len() == want.len() && found.iter().zip(want).all(|(f, w)| f.0 == w.0 && by(&f.1, &w.1));
            if !same {
                out.push(format!("{name}, {}:\n  here     {found:?}\n  recorded {want:?}", PHASES[i]));
            }
        }
    }
    out
}

#[test]
fn every_row_is_as_pytorch_2_11_ran_it() {
    let differences = differences("2.11", &Profile::torch_2_11(90));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_row_is_as_pytorch_2_15_ran_it() {
    let differences = differences("2.15", &Profile::torch_2_15(90));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_row_is_recorded() {
    let recorded: Vec<String> = recorded("2.11").into_iter().map(|(name, _)| name).collect();
    let missing: Vec<String> = rows().into_iter().map(|row| row.name).filter(|name| !recorded.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
