//! Operators by their names in the recordings, with the recordings' inputs and arguments. Those of
//! [`RECORDED`] are in `golden/op_events.json`; other recordings have operators of both tables.

use memcore::autograd::checkpoint;
use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry, Reduction};
use memcore::ops::{Conv1dGeometry, Interpolation, ResizedAxis};
use memcore::{DType, Device, Result, Tensor, ops};

use super::labelled::{Row, data, leaf, row_with};

/// Tensors on a device, of a type.
pub(crate) type Make = fn(&Device, DType) -> Vec<Tensor>;
/// The recorded part of a row, with the parameters and inputs as arguments.
pub(crate) type Run = fn(&[Tensor], &[Tensor]) -> Result<Tensor>;

/// One operator: its parameters and inputs, which exist before the recording starts, and the recorded part.
#[derive(Clone, Copy)]
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    pub(crate) parameters: Make,
    pub(crate) inputs: Make,
    pub(crate) run: Run,
}

impl Operator {
    /// As it is, in this type.
    pub(crate) fn row(self, dtype: DType) -> Row {
        row_with(self.name, dtype, self.parameters, self.inputs, self.run)
    }
}

/// The operator of that name.
pub(crate) fn operator(name: &str) -> Operator {
    let found = RECORDED.iter().chain(MORE).flat_map(|table| table.iter()).find(|operator| operator.name == name);
    *found.unwrap_or_else(|| panic!("no operator {name}"))
}

/// An operator without parameters, called on existing inputs.
pub(crate) fn call(name: &str) -> impl Fn(&[Tensor]) -> Result<Tensor> + use<> {
    let run = operator(name).run;
    move |inputs| run(&[], inputs)
}

/// A table of operators: name, inputs (and parameters), call.
macro_rules! operators {
    ($($name:ident($inputs:expr $(; $parameters:expr)?) => |$($argument:pat_param),+| $run:expr;)*) => {
        &[$(Operator {
            name: stringify!($name),
            parameters: operators!(@parameters $($parameters)?),
            inputs: $inputs,
            run: operators!(@run |$($argument),+| $run),
        }),*]
    };
    (@parameters) => { none };
    (@parameters $parameters:expr) => { $parameters };
    (@run |$inputs:pat_param| $run:expr) => { |_, $inputs| $run };
    (@run |$parameters:pat_param, $inputs:pat_param| $run:expr) => { |$parameters, $inputs| $run };
}
pub(crate) use operators;

/// Operators with one or two tensors and no further arguments.
macro_rules! functions {
    (x: $($name:ident)+) => { operators! { $($name(x) => |t| ops::$name(&t[0]);)+ } };
    (xx: $($name:ident)+) => { operators! { $($name(xx) => |t| ops::$name(&t[0], &t[1]);)+ } };
}

// ---- inputs ----

pub(crate) fn none(_: &Device, _: DType) -> Vec<Tensor> {
    Vec::new()
}

/// `[64, 256]`, as the recordings' `X`.
pub(crate) fn x(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256], t)]
}

pub(crate) fn xx(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256], t), leaf(d, &[64, 256], t)]
}

fn x_and_vector(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256], t), leaf(d, &[256], t)]
}

pub(crate) fn x_and_data(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256], t), data(d, &[64, 256], t)]
}

pub(crate) fn x_and_classes(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256], t), data(d, &[64], DType::I64)]
}

pub(crate) fn x_and_mask(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[64, 256], t), data(d, &[64, 256], DType::Bool)]
}

fn vector(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[1, 256], t)]
}

fn sequence(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[4, 16, 256], t)]
}

/// `[8, 16, 20, 20]`, as the recordings' `P`.
pub(crate) fn planes(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[8, 16, 20, 20], t)]
}

/// Queries, keys, values, as the recordings' `Q`.
fn heads(d: &Device, t: DType) -> Vec<Tensor> {
    (0..3).map(|_| leaf(d, &[4, 4, 32, 16], t)).collect()
}

// ---- parameters ----

pub(crate) fn weights(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[192, 256], t), leaf(d, &[192], t)]
}

/// Weight and bias of 256 columns.
pub(crate) fn columns(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[256], t), leaf(d, &[256], t)]
}

/// Weight, bias, running mean and variance of 16 channels.
pub(crate) fn channels(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[16], t), leaf(d, &[16], t), data(d, &[16], t), data(d, &[16], t)]
}

fn three(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[24, 16, 3, 3], t), leaf(d, &[24], t)]
}

fn table(d: &Device, t: DType) -> Vec<Tensor> {
    vec![leaf(d, &[1000, 64], t)]
}

// ---- calls ----

const SAME: Conv2dGeometry = Conv2dGeometry { stride: [1, 1], padding: [1, 1], dilation: [1, 1], groups: 1 };
const PLAIN: Conv2dGeometry = Conv2dGeometry { padding: [0, 0], ..SAME };
const DEPTHWISE: Conv2dGeometry = Conv2dGeometry { groups: 16, ..SAME };
const GROUPS2: Conv2dGeometry = Conv2dGeometry { groups: 2, ..SAME };
const STRIDE2: Conv2dGeometry = Conv2dGeometry { stride: [2, 2], ..PLAIN };
const HALVED: Pool2dGeometry = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };
const OVERLAP: Pool2dGeometry = Pool2dGeometry { window: [3, 3], stride: [2, 2], padding: [1, 1] };

fn convolved(p: &[Tensor], t: &[Tensor], geometry: Conv2dGeometry) -> Result<Tensor> {
    ops::conv2d(&t[0], &p[0], Some(&p[1]), geometry)
}

fn causal(t: &[Tensor]) -> Result<Tensor> {
    let options = ops::AttentionOptions { scale: None, causal: true, dropout: 0.0 };
    ops::scaled_dot_product_attention(&t[0], &t[1], &t[2], None, options)
}

pub(crate) fn linear(p: &[Tensor], t: &[Tensor]) -> Result<Tensor> {
    ops::linear(&t[0], &p[0], Some(&p[1]))
}

pub(crate) fn layer_norm(p: &[Tensor], t: &[Tensor]) -> Result<Tensor> {
    ops::layer_norm(&t[0], &[256], Some(&p[0]), Some(&p[1]), 1e-5)
}

pub(crate) fn batch_norm(p: &[Tensor], t: &Tensor, training: bool, affine: bool) -> Result<Tensor> {
    let running = ops::RunningStats { mean: p[2].array(), var: p[3].array() };
    let options = ops::BatchNormOptions { training, momentum: 0.1, eps: 1e-5 };
    ops::batch_norm(t, affine.then_some(&p[0]), affine.then_some(&p[1]), Some(running), options)
}

fn embedded(p: &[Tensor], t: &[Tensor]) -> Result<Tensor> {
    ops::embedding(&t[0], &p[0], None)
}

// ---- the tables ----

/// Operators of `golden/op_events.json`.
pub(crate) const RECORDED: &[&[Operator]] = &[
    functions! { x:
        relu gelu gelu_tanh sigmoid tanh silu exp log sqrt rsqrt abs neg softplus sum mean norm clone
    },
    functions! { xx: add sub mul div maximum },
    operators! {
        relu_inplace_after_mul(x) => |t| ops::relu_(&ops::mul_scalar(&t[0], 2.0)?);
        leaky_relu(x) => |t| ops::leaky_relu(&t[0], 0.01);
        elu(x) => |t| ops::elu(&t[0], 1.0);
        square_pow2(x) => |t| ops::pow(&t[0], 2.0);
        pow3(x) => |t| ops::pow(&t[0], 3.0);
        clamp(x) => |t| ops::clamp(&t[0], -1.0, 1.0);
        mul_scalar(x) => |t| ops::mul_scalar(&t[0], 3.0);
        add_scalar(x) => |t| ops::add_scalar(&t[0], 1.0);
        mul_self(x) => |t| ops::mul(&t[0], &t[0]);
        detach_mul(x) => |t| ops::mul(&t[0], &t[0].detach());
        add_bcast(x_and_vector) => |t| ops::add(&t[0], &t[1]);
        mul_bcast(x_and_vector) => |t| ops::mul(&t[0], &t[1]);
        cast_bf16(x) => |t| ops::cast(&t[0], DType::BF16);
        sum_dim(x) => |t| ops::sum_axes(&t[0], &[0], false);
        sum_big(|d, t| vec![leaf(d, &[4096, 1024], t)]) => |t| ops::sum(&t[0]);
        mean_dim(x) => |t| ops::mean_axes(&t[0], &[1], false);
        max_dim(x) => |t| Ok(ops::max_axis(&t[0], 1, false)?.0);
        amax(x) => |t| ops::amax(&t[0], &[1], false);
        softmax(x) => |t| ops::softmax(&t[0], 1);
        log_softmax(x) => |t| ops::log_softmax(&t[0], 1);
        logsumexp(x) => |t| ops::logsumexp(&t[0], &[1], false);
    },
    operators! {
        cross_entropy_smooth(x_and_classes) => |t| ops::cross_entropy_smooth(&t[0], &t[1], Reduction::Mean, 0.1);
        smooth_l1(x_and_data) => |t| ops::smooth_l1_loss(&t[0], &t[1], Reduction::Mean, 1.0);
        bce_logits(x_and_data) => |t| ops::binary_cross_entropy_with_logits(&t[0], &t[1], Reduction::Mean);
        cross_entropy(x_and_classes) => |t| ops::cross_entropy(&t[0], &t[1], Reduction::Mean);
        nll_loss(x_and_classes) => |t| ops::nll_loss(&t[0], &t[1], Reduction::Mean);
        mse(x_and_data) => |t| ops::mse_loss(&t[0], &t[1], Reduction::Mean);
        mse_both(xx) => |t| ops::mse_loss(&t[0], &t[1], Reduction::Mean);
        l1(x_and_data) => |t| ops::l1_loss(&t[0], &t[1], Reduction::Mean);
    },
    operators! {
        cat(xx) => |t| ops::cat(&[&t[0], &t[1]], 1);
        stack(xx) => |t| ops::stack(&[&t[0], &t[1]], 0);
        chunk(x) => |t| {
            let halves = ops::chunk(&t[0], 2, 1)?;
            let doubled: Vec<Tensor> = halves.iter().map(|half| ops::mul_scalar(half, 2.0)).collect::<Result<_>>()?;
            Ok(doubled[0].clone())
        };
        split3(x) => |t| {
            let parts = ops::split(&t[0], 64, 1)?;
            let first = ops::add_scalar(&parts[0], 0.0)?;
            parts[1..].iter().try_fold(first, |total, part| ops::add(&total, part))
        };
        transpose_contiguous(x) => |t| ops::contiguous(&ops::t(&t[0])?);
        view(x) => |t| ops::view(&t[0], &[128, 128]);
        reshape_copy(x) => |t| ops::reshape(&ops::t(&t[0])?, &[128, 128]);
        expand(vector) => |t| ops::expand(&t[0], &[64, 256]);
        repeat(vector) => |t| ops::repeat(&t[0], &[64, 1]);
        permute(|d, t| vec![leaf(d, &[4, 8, 16], t)]) => |t| ops::permute(&t[0], &[2, 0, 1]);
        slice(x) => |t| ops::narrow(&t[0], 0, 10, 10);
        select(x) => |t| ops::select(&t[0], 0, 3);
        masked_fill(x_and_mask) => |t| ops::masked_fill(&t[0], &t[1], -1e9);
        where(|d, t| [xx(d, t), vec![data(d, &[64, 256], DType::Bool)]].concat())
            => |t| ops::where_(&t[2], &t[0], &t[1]);
        tril(x) => |t| ops::tril(&t[0], 0);
        index_select(|d, t| [x(d, t), vec![data(d, &[40], DType::I64)]].concat())
            => |t| ops::index_select(&t[0], 0, &t[1]);
    },
    operators! {
        mm(|d, t| vec![leaf(d, &[64, 256], t), leaf(d, &[256, 128], t)]) => |t| ops::mm(&t[0], &t[1]);
        bmm(|d, t| vec![leaf(d, &[8, 32, 48], t), leaf(d, &[8, 48, 40], t)]) => |t| ops::bmm(&t[0], &t[1]);
        linear(x; weights) => |p, t| linear(p, t);
        linear_3d(sequence; weights) => |p, t| linear(p, t);
        linear_1row(vector; weights) => |p, t| linear(p, t);
        linear_noinputgrad(|d, t| vec![data(d, &[64, 256], t)]; weights) => |p, t| linear(p, t);
        linear_nobias(x; weights) => |p, t| ops::linear(&t[0], &p[0], None);
        linear_3d_nobias(sequence; weights) => |p, t| ops::linear(&t[0], &p[0], None);
        // A linear layer and a relu, recomputed in backward.
        ckpt_two_linear(x; weights) => |p, t| {
            let (weight, bias) = (p[0].clone(), p[1].clone());
            checkpoint(t, move |t| ops::relu(&ops::linear(&t[0], &weight, Some(&bias))?))
        };
        conv2d_3x3(planes; three) => |p, t| convolved(p, t, SAME);
        conv2d_1x1(planes; |d, t| vec![leaf(d, &[24, 16, 1, 1], t), leaf(d, &[24], t)]) => |p, t| convolved(p, t, PLAIN);
        conv2d_stride2(planes; three) => |p, t| convolved(p, t, STRIDE2);
        conv2d_depthwise(planes; |d, t| vec![leaf(d, &[16, 1, 3, 3], t), leaf(d, &[16], t)])
            => |p, t| convolved(p, t, DEPTHWISE);
        conv2d_groups2(planes; |d, t| vec![leaf(d, &[24, 8, 3, 3], t), leaf(d, &[24], t)])
            => |p, t| convolved(p, t, GROUPS2);
        conv_transpose2d(planes; |d, t| vec![leaf(d, &[16, 24, 2, 2], t), leaf(d, &[24], t)])
            => |p, t| ops::conv_transpose2d(&t[0], &p[0], Some(&p[1]), STRIDE2, [0, 0]);
        conv2d_noinputgrad(|d, t| vec![data(d, &[8, 16, 20, 20], t)]; three) => |p, t| convolved(p, t, SAME);
    },
    operators! {
        max_pool2d(planes) => |t| ops::max_pool2d(&t[0], HALVED);
        max_pool2d_overlap(planes) => |t| ops::max_pool2d(&t[0], OVERLAP);
        avg_pool2d(planes) => |t| ops::avg_pool2d(&t[0], HALVED);
        adaptive_avg_pool2d_1(planes) => |t| ops::adaptive_avg_pool2d(&t[0], [1, 1]);
        adaptive_avg_pool2d_4(planes) => |t| ops::adaptive_avg_pool2d(&t[0], [4, 4]);
        upsample_bilinear(planes) => |t| {
            let axis = ResizedAxis { size: 40, factor: Some(2.0) };
            ops::interpolate(&t[0], &[axis, axis], Interpolation::Linear, false)
        };
        conv1d(|d, t| vec![leaf(d, &[8, 16, 100], t)]; |d, t| vec![leaf(d, &[24, 16, 3], t), leaf(d, &[24], t)]) => |p, t| {
            let geometry = Conv1dGeometry { stride: 1, padding: 1, dilation: 1, groups: 1 };
            ops::conv1d(&t[0], &p[0], Some(&p[1]), geometry)
        };
        // Channels innermost, as after a linear layer: PyTorch copies the input, and does not go to channels-last.
        conv1d_turned(|d, t| vec![leaf(d, &[8, 100, 16], t)]; |d, t| vec![leaf(d, &[24, 16, 3], t), leaf(d, &[24], t)]) => |p, t| {
            let geometry = Conv1dGeometry { stride: 1, padding: 2, dilation: 1, groups: 1 };
            ops::conv1d(&ops::transpose(&t[0], 1, 2)?, &p[0], Some(&p[1]), geometry)
        };
        conv1d_turned_depthwise(|d, t| vec![leaf(d, &[8, 100, 16], t)]; |d, t| vec![leaf(d, &[16, 1, 3], t)]) => |p, t| {
            let geometry = Conv1dGeometry { stride: 1, padding: 2, dilation: 1, groups: 16 };
            ops::conv1d(&ops::transpose(&t[0], 1, 2)?, &p[0], None, geometry)
        };
        gather(|d, t| vec![leaf(d, &[64, 256], t), data(d, &[64, 10], DType::I64)]) => |t| ops::gather(&t[0], 1, &t[1]);
        index_int(|d, t| vec![leaf(d, &[64, 256], t), data(d, &[40], DType::I64)]) => |t| ops::index_each(&t[0], &[&t[1]]);
        cumsum(x) => |t| ops::cumsum(&t[0], 1);
        sort(x) => |t| Ok(ops::sort(&t[0], 1, false)?.0);
        topk(x) => |t| Ok(ops::topk(&t[0], 5, 1, true)?.0);
        var(x) => |t| ops::var(&t[0], &[1], 1.0, false);
        // The mean over the batch: the sum, divided by a number.
        kl_div(x_and_data) => |t| {
            let losses = ops::kl_div(&t[0], &t[1], Reduction::Sum, false)?;
            ops::div_scalar(&losses, 64.0)
        };
        einsum(|d, t| vec![leaf(d, &[64, 256], t), leaf(d, &[256, 128], t)]) => |t| ops::einsum("ij,jk->ik", &[&t[0], &t[1]]);
        mv(|d, t| vec![leaf(d, &[64, 256], t), leaf(d, &[256], t)]) => |t| ops::mv(&t[0], &t[1]);
        dot(|d, t| vec![leaf(d, &[512], t), leaf(d, &[512], t)]) => |t| ops::dot(&t[0], &t[1]);
        bce(x_and_data) => |t| {
            let x = ops::sigmoid(&t[0])?;
            ops::binary_cross_entropy(&x, &ops::sigmoid(&t[1])?, Reduction::Mean)
        };
        upsample_nearest(planes) => |t| ops::upsample_nearest2d(&t[0], [2, 2]);
        dropout(x) => |t| ops::dropout(&t[0], 0.1, true);
        rms_norm(x) => |t| ops::rms_norm(&t[0], &[256], None, 1e-6);
        layer_norm(x; columns) => |p, t| layer_norm(p, t);
        layer_norm_3d(sequence; columns) => |p, t| layer_norm(p, t);
        group_norm(planes; channels) => |p, t| ops::group_norm(&t[0], 4, Some(&p[0]), Some(&p[1]), 1e-5);
        batch_norm2d(planes; channels) => |p, t| batch_norm(p, &t[0], true, true);
        embedding(|d, _| vec![data(d, &[4, 32], DType::I64)]; table) => |p, t| embedded(p, t);
        embedding_4096(|d, _| vec![data(d, &[8, 512], DType::I64)]; table) => |p, t| embedded(p, t);
        embedding_big(|d, _| vec![data(d, &[16, 1024], DType::I64)]; table) => |p, t| embedded(p, t);
        matmul_4d(|d, t| vec![leaf(d, &[4, 4, 32, 16], t), leaf(d, &[4, 4, 32, 16], t)]) => |t| ops::matmul(&t[0], &ops::transpose(&t[1], 2, 3)?);
        matmul_4d_noncontig(|d, t| vec![leaf(d, &[4, 32, 4, 16], t), leaf(d, &[4, 32, 4, 16], t)]) => |t| {
            let (q, k) = (ops::transpose(&t[0], 1, 2)?, ops::transpose(&t[1], 1, 2)?);
            ops::matmul(&q, &ops::transpose(&k, 2, 3)?)
        };
        sdpa_default(heads) => |t| causal(t);
        sdpa_efficient(heads) => |t| causal(t);
        sdpa_flash_bf16(|d, _| heads(d, DType::BF16)) => |t| causal(t);
    },
];

/// Further operators of other recordings.
pub(crate) const MORE: &[&[Operator]] = &[
    functions! { x: reciprocal sin cos },
    functions! { xx: minimum },
    operators! {
        pow2(x) => |t| ops::pow(&t[0], 2.0);
        sum_dims(x) => |t| ops::sum_axes(&t[0], &[0, 1], false);
        norm_vector(x) => |t| ops::norm(&t[0]);
    },
];
