//! Every operator allocates and frees what PyTorch's does, in the same order: requested sizes in forward and in backward.
//!
//! The expectation is `golden/op_events.json`, recorded from the unmodified torch 2.11.0+cu130 wheel. To add an operator, add a row to one of the
//! tables below, under the name that it has there; inputs and arguments are those of the recording.

mod common;
#[path = "common/ones.rs"]
mod ones;

use std::collections::HashMap;
use std::sync::Arc;

use common::{Events, Watch};
use memcore::autograd::{Autocast, checkpoint};
use memcore::backend::Meta;
use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry, Reduction};
use memcore::{Array, DType, Device, Profile, Result, Tensor, ops};
use ones::ones_like;

/// One operator: its parameters and inputs, which exist before it is watched, and what is watched.
struct Row {
    name: &'static str,
    parameters: fn(&Device) -> Vec<Tensor>,
    inputs: fn(&Device) -> Vec<Tensor>,
    run: fn(&[Tensor], &[Tensor]) -> Result<Tensor>,
}

fn leaf(device: &Device, dims: &[usize]) -> Tensor {
    Tensor::leaf(Array::empty(device, dims, DType::F32).unwrap())
}

fn data(device: &Device, dims: &[usize], dtype: DType) -> Tensor {
    Tensor::from_array(Array::empty(device, dims, dtype).unwrap())
}

/// `[64, 256]`, as the recording's `X`.
fn x(d: &Device) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256])]
}

fn xx(d: &Device) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256]), leaf(d, &[64, 256])]
}

fn x_and_vector(d: &Device) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256]), leaf(d, &[256])]
}

fn x_and_data(d: &Device) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256]), data(d, &[64, 256], DType::F32)]
}

fn x_and_classes(d: &Device) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256]), data(d, &[64], DType::I64)]
}

fn vector(d: &Device) -> Vec<Tensor> {
    vec![leaf(d, &[1, 256])]
}

/// `[8, 16, 20, 20]`, as the recording's `P`.
fn planes(d: &Device) -> Vec<Tensor> {
    vec![leaf(d, &[8, 16, 20, 20])]
}

fn nothing(_: &Device) -> Vec<Tensor> {
    Vec::new()
}

fn linear_parameters(d: &Device) -> Vec<Tensor> {
    vec![leaf(d, &[192, 256]), leaf(d, &[192])]
}

/// A row without parameters, whose inputs are `$inputs`.
macro_rules! rows {
    ($($name:ident($inputs:expr) => |$args:pat_param| $run:expr;)*) => {
        vec![$(Row { name: stringify!($name), parameters: nothing, inputs: $inputs, run: |_, $args| $run }),*]
    };
}

fn elementwise() -> Vec<Row> {
    rows! {
        relu(x) => |t| ops::relu(&t[0]);
        relu_inplace_after_mul(x) => |t| ops::relu_(&ops::mul_scalar(&t[0], 2.0)?);
        leaky_relu(x) => |t| ops::leaky_relu(&t[0], 0.01);
        gelu(x) => |t| ops::gelu(&t[0]);
        gelu_tanh(x) => |t| ops::gelu_tanh(&t[0]);
        sigmoid(x) => |t| ops::sigmoid(&t[0]);
        tanh(x) => |t| ops::tanh(&t[0]);
        silu(x) => |t| ops::silu(&t[0]);
        exp(x) => |t| ops::exp(&t[0]);
        log(x) => |t| ops::log(&t[0]);
        sqrt(x) => |t| ops::sqrt(&t[0]);
        rsqrt(x) => |t| ops::rsqrt(&t[0]);
        square_pow2(x) => |t| ops::pow(&t[0], 2.0);
        pow3(x) => |t| ops::pow(&t[0], 3.0);
        abs(x) => |t| ops::abs(&t[0]);
        clamp(x) => |t| ops::clamp(&t[0], -1.0, 1.0);
        neg(x) => |t| ops::neg(&t[0]);
        mul_scalar(x) => |t| ops::mul_scalar(&t[0], 3.0);
        add_scalar(x) => |t| ops::add_scalar(&t[0], 1.0);
        add(xx) => |t| ops::add(&t[0], &t[1]);
        sub(xx) => |t| ops::sub(&t[0], &t[1]);
        mul(xx) => |t| ops::mul(&t[0], &t[1]);
        div(xx) => |t| ops::div(&t[0], &t[1]);
        maximum(xx) => |t| ops::maximum(&t[0], &t[1]);
        mul_self(x) => |t| ops::mul(&t[0], &t[0]);
        detach_mul(x) => |t| ops::mul(&t[0], &t[0].detach());
        add_bcast(x_and_vector) => |t| ops::add(&t[0], &t[1]);
        mul_bcast(x_and_vector) => |t| ops::mul(&t[0], &t[1]);
        elu(x) => |t| ops::elu(&t[0], 1.0);
        softplus(x) => |t| ops::softplus(&t[0]);
        cast_bf16(x) => |t| ops::cast(&t[0], DType::BF16);
    }
}

fn reductions_and_losses() -> Vec<Row> {
    rows! {
        sum(x) => |t| ops::sum(&t[0]);
        sum_dim(x) => |t| ops::sum_axes(&t[0], &[0], false);
        sum_big(|d| vec![leaf(d, &[4096, 1024])]) => |t| ops::sum(&t[0]);
        mean(x) => |t| ops::mean(&t[0]);
        mean_dim(x) => |t| ops::mean_axes(&t[0], &[1], false);
        max_dim(x) => |t| Ok(ops::max_axis(&t[0], 1, false)?.0);
        amax(x) => |t| ops::amax(&t[0], &[1], false);
        norm(x) => |t| ops::norm(&t[0]);
        softmax(x) => |t| ops::softmax(&t[0], 1);
        log_softmax(x) => |t| ops::log_softmax(&t[0], 1);
        logsumexp(x) => |t| ops::logsumexp(&t[0], &[1], false);
        cross_entropy_smooth(x_and_classes) => |t| ops::cross_entropy_smooth(&t[0], &t[1], Reduction::Mean, 0.1);
        smooth_l1(x_and_data) => |t| ops::smooth_l1_loss(&t[0], &t[1], Reduction::Mean, 1.0);
        bce_logits(x_and_data) => |t| ops::binary_cross_entropy_with_logits(&t[0], &t[1], Reduction::Mean);
        cross_entropy(x_and_classes) => |t| ops::cross_entropy(&t[0], &t[1], Reduction::Mean);
        nll_loss(x_and_classes) => |t| ops::nll_loss(&t[0], &t[1], Reduction::Mean);
        mse(x_and_data) => |t| ops::mse_loss(&t[0], &t[1], Reduction::Mean);
        mse_both(xx) => |t| ops::mse_loss(&t[0], &t[1], Reduction::Mean);
        l1(x_and_data) => |t| ops::l1_loss(&t[0], &t[1], Reduction::Mean);
    }
}

fn shapes_and_masks() -> Vec<Row> {
    rows! {
        cat(xx) => |t| ops::cat(&[&t[0], &t[1]], 1);
        stack(xx) => |t| ops::stack(&[&t[0], &t[1]], 0);
        chunk(x) => |t| {
            let halves = ops::chunk(&t[0], 2, 1)?;
            let doubled: Vec<Tensor> = halves.iter().map(|half| ops::mul_scalar(half, 2.0)).collect::<Result<_>>()?;
            Ok(doubled[0].clone())
        };
        split3(x) => |t| {
            let parts = ops::split(&t[0], 64, 1)?;
            let mut total = ops::add_scalar(&parts[0], 0.0)?;
            for part in &parts[1..] {
                total = ops::add(&total, part)?;
            }
            Ok(total)
        };
        transpose_contiguous(x) => |t| ops::contiguous(&ops::t(&t[0])?);
        view(x) => |t| ops::view(&t[0], &[128, 128]);
        reshape_copy(x) => |t| ops::reshape(&ops::t(&t[0])?, &[128, 128]);
        clone(x) => |t| ops::clone(&t[0]);
        expand(vector) => |t| ops::expand(&t[0], &[64, 256]);
        repeat(vector) => |t| ops::repeat(&t[0], &[64, 1]);
        permute(|d| vec![leaf(d, &[4, 8, 16])]) => |t| ops::permute(&t[0], &[2, 0, 1]);
        slice(x) => |t| ops::narrow(&t[0], 0, 10, 10);
        select(x) => |t| ops::select(&t[0], 0, 3);
        masked_fill(|d| vec![leaf(d, &[64, 256]), data(d, &[64, 256], DType::Bool)])
            => |t| ops::masked_fill(&t[0], &t[1], -1e9);
        where(|d| vec![leaf(d, &[64, 256]), leaf(d, &[64, 256]), data(d, &[64, 256], DType::Bool)])
            => |t| ops::where_(&t[2], &t[0], &t[1]);
        tril(x) => |t| ops::tril(&t[0], 0);
    }
}

fn products() -> Vec<Row> {
    let mut rows = rows! {
        mm(|d| vec![leaf(d, &[64, 256]), leaf(d, &[256, 128])]) => |t| ops::mm(&t[0], &t[1]);
        bmm(|d| vec![leaf(d, &[8, 32, 48]), leaf(d, &[8, 48, 40])]) => |t| ops::bmm(&t[0], &t[1]);
    };
    let with_bias = |name, inputs| Row {
        name,
        parameters: linear_parameters,
        inputs,
        run: |p, t| ops::linear(&t[0], &p[0], Some(&p[1])),
    };
    let without_bias =
        |name, inputs| Row { name, parameters: linear_parameters, inputs, run: |p, t| ops::linear(&t[0], &p[0], None) };
    rows.extend([
        with_bias("linear", x),
        with_bias("linear_3d", |d| vec![leaf(d, &[4, 16, 256])]),
        with_bias("linear_1row", vector),
        with_bias("linear_noinputgrad", |d| vec![data(d, &[64, 256], DType::F32)]),
        Row {
            // Two layers in name only: a linear layer and a relu, made again in backward.
            name: "ckpt_two_linear",
            parameters: linear_parameters,
            inputs: x,
            run: |p, t| {
                let (weight, bias) = (p[0].clone(), p[1].clone());
                checkpoint(t, move |t| ops::relu(&ops::linear(&t[0], &weight, Some(&bias))?))
            },
        },
        without_bias("linear_nobias", x),
        without_bias("linear_3d_nobias", |d| vec![leaf(d, &[4, 16, 256])]),
    ]);
    rows
}

fn convolutions() -> Vec<Row> {
    const SAME: Conv2dGeometry = Conv2dGeometry { stride: [1, 1], padding: [1, 1], dilation: [1, 1], groups: 1 };
    const PLAIN: Conv2dGeometry = Conv2dGeometry { padding: [0, 0], ..SAME };
    const DEPTHWISE: Conv2dGeometry = Conv2dGeometry { groups: 16, ..SAME };
    const GROUPS2: Conv2dGeometry = Conv2dGeometry { groups: 2, ..SAME };
    const STRIDE2: Conv2dGeometry = Conv2dGeometry { stride: [2, 2], ..PLAIN };
    let row = |name, parameters, inputs, run| Row { name, parameters, inputs, run };
    let three: fn(&Device) -> Vec<Tensor> = |d| vec![leaf(d, &[24, 16, 3, 3]), leaf(d, &[24])];
    let one: fn(&Device) -> Vec<Tensor> = |d| vec![leaf(d, &[24, 16, 1, 1]), leaf(d, &[24])];
    vec![
        row("conv2d_3x3", three, planes, |p, t| ops::conv2d(&t[0], &p[0], Some(&p[1]), SAME)),
        row("conv2d_1x1", one, planes, |p, t| ops::conv2d(&t[0], &p[0], Some(&p[1]), PLAIN)),
        row("conv2d_stride2", three, planes, |p, t| ops::conv2d(&t[0], &p[0], Some(&p[1]), STRIDE2)),
        row(
            "conv2d_depthwise",
            |d| vec![leaf(d, &[16, 1, 3, 3]), leaf(d, &[16])],
            planes,
            |p, t| ops::conv2d(&t[0], &p[0], Some(&p[1]), DEPTHWISE),
        ),
        row(
            "conv2d_groups2",
            |d| vec![leaf(d, &[24, 8, 3, 3]), leaf(d, &[24])],
            planes,
            |p, t| ops::conv2d(&t[0], &p[0], Some(&p[1]), GROUPS2),
        ),
        row(
            "conv2d_noinputgrad",
            three,
            |d| vec![data(d, &[8, 16, 20, 20], DType::F32)],
            |p, t| ops::conv2d(&t[0], &p[0], Some(&p[1]), SAME),
        ),
    ]
}

fn pooling_and_rows() -> Vec<Row> {
    const HALVED: Pool2dGeometry = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };
    const OVERLAP: Pool2dGeometry = Pool2dGeometry { window: [3, 3], stride: [2, 2], padding: [1, 1] };
    let mut rows = rows! {
        max_pool2d(planes) => |t| ops::max_pool2d(&t[0], HALVED);
        max_pool2d_overlap(planes) => |t| ops::max_pool2d(&t[0], OVERLAP);
        avg_pool2d(planes) => |t| ops::avg_pool2d(&t[0], HALVED);
        adaptive_avg_pool2d_1(planes) => |t| ops::adaptive_avg_pool2d(&t[0], [1, 1]);
        adaptive_avg_pool2d_4(planes) => |t| ops::adaptive_avg_pool2d(&t[0], [4, 4]);
        upsample_nearest(planes) => |t| ops::upsample_nearest2d(&t[0], [2, 2]);
        dropout(x) => |t| ops::dropout(&t[0], 0.1, true);
        rms_norm(x) => |t| ops::rms_norm(&t[0], &[256], None, 1e-6);
        index_select(|d| vec![leaf(d, &[64, 256]), data(d, &[40], DType::I64)])
            => |t| ops::index_select(&t[0], 0, &t[1]);
    };
    let norm = |name, inputs| Row {
        name,
        parameters: |d| vec![leaf(d, &[256]), leaf(d, &[256])],
        inputs,
        run: |p, t| ops::layer_norm(&t[0], &[256], Some(&p[0]), Some(&p[1]), 1e-5),
    };
    let embedding = |name, inputs| Row {
        name,
        parameters: |d| vec![leaf(d, &[1000, 64])],
        inputs,
        run: |p, t| ops::embedding(&t[0], &p[0], None),
    };
    rows.extend([
        norm("layer_norm", x),
        norm("layer_norm_3d", |d| vec![leaf(d, &[4, 16, 256])]),
        embedding("embedding", |d| vec![data(d, &[4, 32], DType::I64)]),
        embedding("embedding_4096", |d| vec![data(d, &[8, 512], DType::I64)]),
        embedding("embedding_big", |d| vec![data(d, &[16, 1024], DType::I64)]),
        Row { name: "batch_norm2d", parameters: channels, inputs: planes, run: batch_norm },
        Row {
            name: "group_norm",
            parameters: channels,
            inputs: planes,
            run: |p, t| ops::group_norm(&t[0], 4, Some(&p[0]), Some(&p[1]), 1e-5),
        },
    ]);
    rows
}

/// Weight, bias, running mean and variance of 16 channels.
fn channels(d: &Device) -> Vec<Tensor> {
    vec![leaf(d, &[16]), leaf(d, &[16]), data(d, &[16], DType::F32), data(d, &[16], DType::F32)]
}

fn batch_norm(p: &[Tensor], t: &[Tensor]) -> Result<Tensor> {
    let running = ops::RunningStats { mean: p[2].array(), var: p[3].array() };
    let options = ops::BatchNormOptions { training: true, momentum: 0.1, eps: 1e-5 };
    ops::batch_norm(&t[0], Some(&p[0]), Some(&p[1]), Some(running), options)
}

/// Queries, keys, values `[4, 4, 32, 16]`, as the recording's `Q`.
fn heads(d: &Device) -> Vec<Tensor> {
    (0..3).map(|_| leaf(d, &[4, 4, 32, 16])).collect()
}

fn half_heads(d: &Device) -> Vec<Tensor> {
    let head = || Array::empty(d, &[4, 4, 32, 16], DType::BF16).unwrap();
    (0..3).map(|_| Tensor::leaf(head())).collect()
}

fn attention() -> Vec<Row> {
    const CAUSAL: ops::AttentionOptions = ops::AttentionOptions { scale: None, causal: true, dropout: 0.0 };
    rows! {
        matmul_4d(|d| vec![leaf(d, &[4, 4, 32, 16]), leaf(d, &[4, 4, 32, 16])])
            => |t| ops::matmul(&t[0], &ops::transpose(&t[1], 2, 3)?);
        matmul_4d_noncontig(|d| vec![leaf(d, &[4, 32, 4, 16]), leaf(d, &[4, 32, 4, 16])]) => |t| {
            let (q, k) = (ops::transpose(&t[0], 1, 2)?, ops::transpose(&t[1], 1, 2)?);
            ops::matmul(&q, &ops::transpose(&k, 2, 3)?)
        };
        sdpa_default(heads) => |t| ops::scaled_dot_product_attention(&t[0], &t[1], &t[2], None, CAUSAL);
        sdpa_efficient(heads) => |t| ops::scaled_dot_product_attention(&t[0], &t[1], &t[2], None, CAUSAL);
        sdpa_flash_bf16(half_heads) => |t| ops::scaled_dot_product_attention(&t[0], &t[1], &t[2], None, CAUSAL);
    }
}

fn under_autocast() -> Vec<Row> {
    let linear = |name, run| Row { name, parameters: linear_parameters, inputs: x, run };
    vec![
        linear("half_linear_autocast", |p, t| {
            let _autocast = Autocast::new(DType::F16);
            ops::linear(&t[0], &p[0], Some(&p[1]))
        }),
        linear("bf16_linear_autocast", |p, t| {
            let _autocast = Autocast::new(DType::BF16);
            ops::linear(&t[0], &p[0], Some(&p[1]))
        }),
        Row {
            name: "bf16_layernorm_autocast",
            parameters: |d| vec![leaf(d, &[256]), leaf(d, &[256])],
            inputs: x,
            run: |p, t| {
                let _autocast = Autocast::new(DType::BF16);
                ops::layer_norm(&t[0], &[256], Some(&p[0]), Some(&p[1]), 1e-5)
            },
        },
        Row {
            name: "bf16_softmax_autocast",
            parameters: nothing,
            inputs: x,
            run: |_, t| {
                let _autocast = Autocast::new(DType::BF16);
                ops::softmax(&ops::cast(&t[0], DType::BF16)?, 1)
            },
        },
    ]
}

/// Every operator.
fn rows() -> Vec<Row> {
    let families =
        [elementwise(), reductions_and_losses(), shapes_and_masks(), products(), convolutions(), pooling_and_rows()];
    families.into_iter().flatten().chain(attention()).chain(under_autocast()).collect()
}

/// What is there of each operator: input, forward, gradient of the output, backward, teardown.
type Phases = [Events; 5];

fn recorded() -> HashMap<String, Phases> {
    let file: serde_json::Value = serde_json::from_str(include_str!("golden/op_events.json")).unwrap();
    let events = |v: &serde_json::Value| v.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
    let row = |row: &serde_json::Value| {
        (row[0].as_str().unwrap().to_string(), std::array::from_fn(|phase| events(&row[phase + 1])))
    };
    file["rows"].as_array().unwrap().iter().map(row).collect()
}

/// Reads the device's history in pieces, numbering the allocations of one row.
fn observe(row: &Row) -> Result<Phases> {
    let device = Device::builder(Arc::new(Meta::default())).profile(Profile::torch_2_11(90)).build();
    warm_up(&device)?;
    let parameters = (row.parameters)(&device);
    device.set_history(true);
    let mut watch = Watch::new(&device);
    let mut inputs = (row.inputs)(&device);
    let input = watch.since();
    let y = (row.run)(&parameters, &inputs)?;
    let forward = watch.since();
    let grad = ones_like(y.array())?;
    let seed = watch.since();
    y.backward_with(grad.clone(), false)?;
    let backward = watch.since();
    // `y = g = ins = None`; a tuple lets its last element go first.
    drop(y);
    drop(grad);
    while inputs.pop().is_some() {}
    parameters.iter().for_each(|parameter| parameter.set_grad(None));
    Ok([input, forward, seed, backward, watch.since()])
}

/// The libraries' workspaces are there before the first row, as in the recording.
fn warm_up(device: &Device) -> Result<()> {
    let (a, w, b) = (leaf(device, &[8, 8]), leaf(device, &[8, 8]), leaf(device, &[8]));
    let y = ops::linear(&a, &w, Some(&b))?;
    y.backward_with(Array::ones(device, &[8, 8], DType::F32)?, false)
}

/// Two leaves whose gradients are parts of one: PyTorch's keep these parts, ours keeps the first and copies the other, so that no two leaves' gradients
/// overlap. What backward allocates here instead of nothing, and what goes in the end.
const STACK: (&[i64], &[i64]) = (&[65536], &[-3, -5, -2, -4, -1]);

/// Recorded operators that are not here.
const UNSUPPORTED: [&str; 17] = [
    "var",
    "bce",
    "kl_div",
    // With a matrix added instead of a bias.
    "addmm",
    "einsum",
    "mv",
    "dot",
    "upsample_bilinear",
    "conv_transpose2d",
    "conv1d",
    "gather",
    "index_int",
    "cumsum",
    "sort",
    "topk",
    // Its algorithm is chosen for shapes that the fused kernels do not take, and cannot be asked for.
    "sdpa_math",
    "ckpt_reentrant",
];

/// Compares one row.
fn check(name: &str) {
    let row = rows().into_iter().find(|row| row.name == name).unwrap();
    let mut want = recorded().remove(name).unwrap();
    if name == "stack" {
        assert!(want[3].is_empty());
        (want[3], want[4]) = (STACK.0.to_vec(), STACK.1.to_vec());
    }
    let found = observe(&row).unwrap();
    let phases = ["input", "forward", "gradient of the output", "backward", "teardown"];
    for ((phase, found), want) in phases.iter().zip(&found).zip(&want) {
        assert_eq!(found, want, "{name}, {phase}: here, and recorded");
    }
}

#[test]
fn every_recorded_operator_is_compared_or_named_as_unsupported() {
    let mut known: Vec<&str> = each::NAMES.iter().map(|name| name.trim_start_matches("r#")).collect();
    let mut rows: Vec<&str> = rows().iter().map(|row| row.name.trim_start_matches("r#")).collect();
    known.sort_unstable();
    rows.sort_unstable();
    assert_eq!(known, rows, "tests, and rows");
    let recorded = recorded();
    let mut all: Vec<&str> = recorded.keys().map(String::as_str).collect();
    let mut here: Vec<&str> = known.into_iter().chain(UNSUPPORTED).collect();
    all.sort_unstable();
    here.sort_unstable();
    assert_eq!(here, all, "compared or unsupported, and recorded");
}

/// A test for each operator, by its name.
mod each {
    macro_rules! tests {
        ($($name:ident)*) => {
            pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];
            $(#[test]
            fn $name() {
                super::check(stringify!($name).trim_start_matches("r#"));
            })*
        };
    }

    tests! {
        relu relu_inplace_after_mul leaky_relu gelu gelu_tanh sigmoid tanh silu exp log sqrt rsqrt square_pow2 pow3 abs clamp neg
        mul_scalar add_scalar add sub mul div maximum mul_self detach_mul add_bcast mul_bcast cast_bf16 elu softplus
        logsumexp cross_entropy_smooth smooth_l1 bce_logits group_norm upsample_nearest
        sum sum_dim sum_big mean mean_dim max_dim amax norm softmax log_softmax cross_entropy nll_loss mse mse_both l1
        cat stack chunk split3 transpose_contiguous view reshape_copy clone expand repeat permute slice select masked_fill r#where tril
        mm bmm linear linear_3d linear_1row linear_noinputgrad linear_nobias linear_3d_nobias ckpt_two_linear
        conv2d_3x3 conv2d_1x1 conv2d_stride2 conv2d_depthwise conv2d_groups2 conv2d_noinputgrad
        max_pool2d max_pool2d_overlap avg_pool2d adaptive_avg_pool2d_1 adaptive_avg_pool2d_4
        dropout rms_norm index_select layer_norm layer_norm_3d embedding embedding_4096 embedding_big batch_norm2d
        matmul_4d matmul_4d_noncontig sdpa_default sdpa_efficient sdpa_flash_bf16
        half_linear_autocast bf16_linear_autocast bf16_layernorm_autocast bf16_softmax_autocast
    }
}
