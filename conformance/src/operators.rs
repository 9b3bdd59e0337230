//! Every differentiable operator of core, with described arguments, for the gradients suite.
//!
//! A case is one line: a name that begins with the operator's, the arguments, and the call. To add an operator, add its line here, in
//! `further_operators.rs` or in `rare_operators.rs`; a test of `all_operators.rs` fails for one that has none.

use memcore::backend::kernel::{Conv2dGeometry, Pool2dGeometry, Reduction};
use memcore::ops::{self, AttentionOptions, BatchNormOptions, RunningStats};
use memcore::{Array, DType, Device, Result, Tensor};

/// A differentiable argument: its sizes and the range of its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument {
    pub(crate) dims: &'static [usize],
    pub(crate) low: f64,
    pub(crate) high: f64,
}

#[derive(Clone, Copy)]
pub(crate) struct OperatorCase {
    /// The operator, followed by a dot and the name of the variant.
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [Argument],
    pub(crate) call: fn(&[Tensor]) -> Result<Tensor>,
}

pub(crate) const fn case(
    name: &'static str,
    arguments: &'static [Argument],
    call: fn(&[Tensor]) -> Result<Tensor>,
) -> OperatorCase {
    OperatorCase { name, arguments, call }
}

/// Values of both signs.
pub(crate) const fn of(dims: &'static [usize]) -> Argument {
    Argument { dims, low: -1.0, high: 1.0 }
}

/// Values away from 0, where a function has a pole or a root.
pub(crate) const fn positive(dims: &'static [usize]) -> Argument {
    Argument { dims, low: 0.5, high: 1.5 }
}

pub(crate) const X: &[Argument] = &[of(&[3, 5])];
const ROOTS: &[Argument] = &[positive(&[3, 5])];
pub(crate) const SAME: &[Argument] = &[of(&[3, 5]), of(&[3, 5])];
const BROADCAST: &[Argument] = &[of(&[2, 3, 1]), of(&[3, 4])];
const QUOTIENT: &[Argument] = &[of(&[2, 3, 1]), positive(&[3, 4])];
const SCALAR: &[Argument] = &[of(&[3, 4]), of(&[])];
pub(crate) const CUBE: &[Argument] = &[of(&[2, 3, 4])];
pub(crate) const IMAGE: &[Argument] = &[of(&[2, 4, 6, 6])];
const CONVOLUTION: &[Argument] = &[of(&[2, 4, 6, 6]), of(&[6, 4, 3, 3]), of(&[6])];
const GROUPED: &[Argument] = &[of(&[2, 4, 7, 6]), of(&[6, 2, 3, 3])];
const NORM: &[Argument] = &[of(&[4, 6]), positive(&[6]), of(&[6])];
const CHANNELS: &[Argument] = &[of(&[3, 4, 2, 3]), positive(&[4]), of(&[4])];
const HEADS: &[Argument] = &[of(&[2, 2, 5, 4]), of(&[2, 2, 5, 4]), of(&[2, 2, 5, 4])];
const EIGHTS: &[Argument] = &[of(&[1, 4, 5, 8]), of(&[1, 2, 5, 8]), of(&[1, 2, 5, 8])];
const GROUPED_HEADS: &[Argument] = &[of(&[1, 4, 5, 4]), of(&[1, 2, 5, 4]), of(&[1, 2, 5, 4])];

pub(crate) fn indices(device: &Device, dims: &[usize], values: &[i64]) -> Result<Tensor> {
    Tensor::from_slice(device, dims, values)
}

/// A mask from one byte per element.
fn mask(device: &Device, dims: &[usize], values: &[u8]) -> Result<Tensor> {
    let mask = Array::empty(device, dims, DType::Bool)?;
    mask.write(values)?;
    Ok(Tensor::from_array(mask))
}

/// About every third element of `x`'s sizes.
pub(crate) fn thirds(x: &Tensor) -> Result<Tensor> {
    let values: Vec<u8> = (0..x.numel()).map(|i| u8::from(i * 7 % 3 == 0)).collect();
    mask(x.device(), x.dims(), &values)
}

fn causal(x: &Tensor) -> Result<Tensor> {
    let t = x.dims().get(2).copied().unwrap_or(1);
    Ok(Tensor::from_array(ops::causal_mask(x.device(), t)?))
}

/// A class for each position of `x` `[n, classes, ..]`; one of them is ignored.
fn planes(x: &Tensor) -> Result<Tensor> {
    let dims = [&x.dims()[..1], &x.dims()[2..]].concat();
    let count: usize = dims.iter().product();
    let class = |i| if i == 2 { ops::IGNORE_INDEX } else { (i * 5 % 3 % x.dims()[1]) as i64 };
    indices(x.device(), &dims, &(0..count).map(class).collect::<Vec<_>>())
}

/// Joins several results into one, so that each has another gradient.
fn joined(parts: &[Tensor], axis: usize) -> Result<Tensor> {
    ops::cat(&parts.iter().rev().collect::<Vec<_>>(), axis)
}

fn fused(x: &[Tensor], causal: bool, mask: Option<&Tensor>) -> Result<Tensor> {
    ops::scaled_dot_product_attention(
        &x[0],
        &x[1],
        &x[2],
        mask,
        AttentionOptions { causal, ..AttentionOptions::default() },
    )
}

fn normalised(x: &[Tensor], training: bool) -> Result<Tensor> {
    let statistic = |value| Array::full(x[0].device(), &[4], x[0].dtype(), value);
    let (mean, var) = (statistic(0.1)?, statistic(0.7)?);
    let running = RunningStats { mean: &mean, var: &var };
    let options = BatchNormOptions { training, momentum: 0.1, eps: 1e-5 };
    ops::batch_norm(&x[0], x.get(1), x.get(2), Some(running), options)
}

fn turned(x: &Tensor) -> Result<Tensor> {
    let angles: Vec<f64> = (0..6).map(|i| f64::from(i) * 0.7).collect();
    let table = |f: fn(f64) -> f64| -> Result<Array> {
        let array = Array::empty(x.device(), &[3, 2], x.dtype().accumulator())?;
        let values: Vec<f32> = angles.iter().map(|&a| f(a) as f32).collect();
        memcore::nn::write_f32(&array, &values)?;
        Ok(array)
    };
    ops::rope(x, &table(f64::cos)?, &table(f64::sin)?)
}

const fn geometry(stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2], groups: usize) -> Conv2dGeometry {
    Conv2dGeometry { stride, padding, dilation, groups }
}

const fn window(window: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Pool2dGeometry {
    Pool2dGeometry { window, stride, padding }
}

pub(crate) const OPERATORS: &[OperatorCase] = &[
    // Functions of one value.
    case("relu", X, |x| ops::relu(&x[0])),
    case("relu_", X, |x| ops::relu_(&ops::mul_scalar(&x[0], 2.0)?)),
    case("relu6_", X, |x| ops::relu6_(&ops::mul_scalar(&x[0], 8.0)?)),
    case("silu_", X, |x| ops::silu_(&ops::mul_scalar(&x[0], 2.0)?)),
    case("hardswish_", X, |x| ops::hardswish_(&ops::mul_scalar(&x[0], 4.0)?)),
    case("leaky_relu", X, |x| ops::leaky_relu(&x[0], 0.2)),
    case("gelu", X, |x| ops::gelu(&x[0])),
    case("gelu_tanh", X, |x| ops::gelu_tanh(&x[0])),
    case("sigmoid", X, |x| ops::sigmoid(&x[0])),
    case("silu", X, |x| ops::silu(&x[0])),
    case("tanh", X, |x| ops::tanh(&x[0])),
    case("elu", X, |x| ops::elu(&x[0], 0.7)),
    case("softplus", X, |x| ops::softplus(&x[0])),
    case("log_sigmoid", X, |x| ops::log_sigmoid(&x[0])),
    case("mish", X, |x| ops::mish(&x[0])),
    case("hardsigmoid", X, |x| ops::hardsigmoid(&ops::mul_scalar(&x[0], 4.0)?)),
    case("hardswish", X, |x| ops::hardswish(&ops::mul_scalar(&x[0], 4.0)?)),
    case("hardtanh", X, |x| ops::hardtanh(&x[0], -0.3, 0.6)),
    case("relu6", X, |x| ops::relu6(&ops::mul_scalar(&x[0], 8.0)?)),
    case("abs", X, |x| ops::abs(&x[0])),
    case("cos", X, |x| ops::cos(&x[0])),
    case("sin", X, |x| ops::sin(&x[0])),
    case("exp", X, |x| ops::exp(&x[0])),
    case("log", ROOTS, |x| ops::log(&x[0])),
    case("sqrt", ROOTS, |x| ops::sqrt(&x[0])),
    case("rsqrt", ROOTS, |x| ops::rsqrt(&x[0])),
    case("reciprocal", ROOTS, |x| ops::reciprocal(&x[0])),
    case("square", X, |x| ops::square(&x[0])),
    case("neg", X, |x| ops::neg(&x[0])),
    case("pow.cube", X, |x| ops::pow(&x[0], 3.0)),
    case("pow.fraction", ROOTS, |x| ops::pow(&x[0], -1.5)),
    case("clamp", X, |x| ops::clamp(&x[0], -0.4, 0.6)),
    case("add_scalar", X, |x| ops::add_scalar(&x[0], 2.5)),
    case("sub_scalar", X, |x| ops::sub_scalar(&x[0], 2.5)),
    case("rsub_scalar", X, |x| ops::rsub_scalar(&x[0], 2.5)),
    case("mul_scalar", X, |x| ops::mul_scalar(&x[0], -2.5)),
    case("div_scalar", X, |x| ops::div_scalar(&x[0], 2.5)),
    case("times_one_", X, |x| ops::times_one_(&ops::mul_scalar(&x[0], 2.0)?)),
    case("cast", X, |x| ops::cast(&x[0], x[0].dtype())),
    case("to_device", X, |x| ops::to_device(&x[0], x[0].device())),
    case("clone", X, |x| ops::clone(&x[0])),
    // Functions of two values.
    case("add", SAME, |x| ops::add(&x[0], &x[1])),
    case("add.broadcast", BROADCAST, |x| ops::add(&x[0], &x[1])),
    case("add_", SAME, |x| ops::add_(&ops::mul_scalar(&x[0], 2.0)?, &x[1])),
    case("mul_add_", SAME, |x| ops::mul_add_(&x[0], &ops::mul_scalar(&x[0], 2.0)?, &x[1])),
    case("add.itself", X, |x| ops::add(&x[0], &x[0])),
    case("sub.broadcast", BROADCAST, |x| ops::sub(&x[0], &x[1])),
    case("sub.scalar", SCALAR, |x| ops::sub(&x[0], &x[1])),
    case("mul.broadcast", BROADCAST, |x| ops::mul(&x[0], &x[1])),
    case("mul.itself", X, |x| ops::mul(&x[0], &x[0])),
    case("mul.mask", X, |x| ops::mul(&x[0], &thirds(&x[0])?)),
    case("div.broadcast", QUOTIENT, |x| ops::div(&x[0], &x[1])),
    case("maximum.broadcast", BROADCAST, |x| ops::maximum(&x[0], &x[1])),
    case("minimum", SAME, |x| ops::minimum(&x[0], &x[1])),
    case("where_", SAME, |x| ops::where_(&thirds(&x[0])?, &x[0], &x[1])),
    case("where_.broadcast", &[of(&[3, 5]), of(&[5])], |x| ops::where_(&thirds(&x[0])?, &x[0], &x[1])),
    case("masked_fill", X, |x| ops::masked_fill(&x[0], &thirds(&x[0])?, 9.0)),
    case("tril", X, |x| ops::tril(&x[0], 1)),
    case("triu", CUBE, |x| ops::triu(&x[0], -1)),
    // Sums and extrema.
    case("sum", X, |x| ops::sum(&x[0])),
    case("sum_axes", CUBE, |x| ops::sum_axes(&x[0], &[0, 2], false)),
    case("sum_axes.kept", CUBE, |x| ops::sum_axes(&x[0], &[1], true)),
    case("mean", X, |x| ops::mean(&x[0])),
    case("mean_axes", CUBE, |x| ops::mean_axes(&x[0], &[1], false)),
    case("max_axis", CUBE, |x| Ok(ops::max_axis(&x[0], 1, false)?.0)),
    case("min_axis.kept", CUBE, |x| Ok(ops::min_axis(&x[0], 2, true)?.0)),
    case("amax", CUBE, |x| ops::amax(&x[0], &[0, 2], false)),
    case("norm", X, |x| ops::norm(&x[0])),
    case("softmax", X, |x| ops::softmax(&x[0], 1)),
    case("softmax.middle", CUBE, |x| ops::softmax(&x[0], 1)),
    case("softmax.transposed", CUBE, |x| ops::softmax(&ops::transpose(&x[0], 0, 2)?, 0)),
    case("softmax_as", X, |x| ops::softmax_as(&x[0], 1, x[0].dtype())),
    case("log_softmax_as", CUBE, |x| ops::log_softmax_as(&x[0], 1, x[0].dtype())),
    case("sum_as", CUBE, |x| ops::sum_as(&x[0], &[1], false, x[0].dtype())),
    case("mean_as", CUBE, |x| ops::mean_as(&x[0], &[0, 2], true, x[0].dtype())),
    case("logsumexp", CUBE, |x| ops::logsumexp(&x[0], &[1], false)),
    case("logsumexp.kept", CUBE, |x| ops::logsumexp(&x[0], &[0, 2], true)),
    case("log_softmax", X, |x| ops::log_softmax(&x[0], 1)),
    case("log_softmax.first", CUBE, |x| ops::log_softmax(&x[0], 0)),
    // Views and copies.
    case("view", CUBE, |x| ops::view(&x[0], &[6, 4])),
    case("reshape.transposed", X, |x| ops::reshape(&ops::t(&x[0])?, &[15])),
    case("flatten", CUBE, |x| ops::flatten(&x[0], 1)),
    case("t", X, |x| ops::t(&x[0])),
    case("transpose", CUBE, |x| ops::transpose(&x[0], 0, 2)),
    case("permute", CUBE, |x| ops::permute(&x[0], &[2, 0, 1])),
    case("narrow", CUBE, |x| ops::narrow(&x[0], 2, 1, 2)),
    case("select", CUBE, |x| ops::select(&x[0], 1, 2)),
    case("unsqueeze", X, |x| ops::unsqueeze(&x[0], 1)),
    case("squeeze", &[of(&[3, 1, 5])], |x| ops::squeeze(&x[0], 1)),
    case("expand", &[of(&[3, 1, 5])], |x| ops::expand(&x[0], &[2, 3, 4, 5])),
    case("repeat", X, |x| ops::repeat(&x[0], &[2, 3])),
    case("contiguous", X, |x| ops::contiguous(&ops::t(&x[0])?)),
    case("cat", &[of(&[2, 3]), of(&[2, 1]), of(&[2, 4])], |x| ops::cat(&[&x[0], &x[1], &x[2]], 1)),
    case("stack", SAME, |x| ops::stack(&[&x[0], &x[1]], 1)),
    case("split", X, |x| joined(&ops::split(&x[0], 2, 1)?, 1)),
    case("split.unused", X, |x| Ok(ops::split(&x[0], 2, 1)?.swap_remove(1))),
    case("split_with_sizes", X, |x| joined(&ops::split_with_sizes(&x[0], &[1, 4], 1)?, 1)),
    case("chunk", X, |x| joined(&ops::chunk(&x[0], 3, 0)?, 0)),
    // Tables.
    case("embedding", &[of(&[5, 3])], |x| {
        ops::embedding(&indices(x[0].device(), &[2, 3], &[4, 0, 4, 1, 4, 2])?, &x[0], None)
    }),
    case("embedding.padding", &[of(&[5, 3])], |x| {
        // The padding row gets no gradient, whatever its effect on the result: its weight is 0.
        let rows = ops::embedding(&indices(x[0].device(), &[4], &[3, 1, 0, 3])?, &x[0], Some(1))?;
        let weights = Tensor::from_array(Array::ones(x[0].device(), &[4, 1], x[0].dtype())?);
        ops::mul(&rows, &ops::masked_fill(&weights, &mask(x[0].device(), &[4, 1], &[0, 1, 0, 0])?, 0.0)?)
    }),
    case("index_each", CUBE, |x| {
        let device = x[0].device();
        ops::index_each(&x[0], &[&indices(device, &[3], &[1, 0, 1])?, &indices(device, &[3], &[2, 0, 2])?])
    }),
    case("index_by", &[of(&[2, 3, 4])], |x| {
        let device = x[0].device();
        let (rows, columns) = (indices(device, &[2, 1], &[1, -2])?, indices(device, &[3], &[2, 0, 2])?);
        ops::index_by(&x[0], &[None, Some(&rows), Some(&columns)])
    }),
    case("index_by.apart", &[of(&[3, 2, 4])], |x| {
        let device = x[0].device();
        let (rows, columns) = (indices(device, &[3], &[1, 0, 1])?, indices(device, &[3], &[2, 0, 2])?);
        ops::index_by(&x[0], &[Some(&rows), None, Some(&columns)])
    }),
    case("index_by.transposed", CUBE, |x| {
        let rows = indices(x[0].device(), &[2], &[1, 1])?;
        ops::index_by(&ops::transpose(&x[0], 0, 2)?, &[None, Some(&rows)])
    }),
    case("index_each.rows", X, |x| ops::index_each(&x[0], &[&indices(x[0].device(), &[2], &[1, 1])?])),
    case("index_select", CUBE, |x| ops::index_select(&x[0], 1, &indices(x[0].device(), &[4], &[2, 0, 2, 2])?)),
    case("index_select.transposed", CUBE, |x| {
        let x = ops::transpose(&x[0], 0, 2)?;
        ops::index_select(&x, 2, &indices(x.device(), &[3], &[1, 0, 1])?)
    }),
    case("index_select.transposed_back", CUBE, |x| {
        let rows = ops::index_select(&x[0], 1, &indices(x[0].device(), &[4], &[2, 0, 2, 2])?)?;
        ops::contiguous(&ops::transpose(&rows, 0, 2)?)
    }),
    // Products.
    case("mm", &[of(&[3, 5]), of(&[5, 4])], |x| ops::mm(&x[0], &x[1])),
    case("mm.transposed", &[of(&[5, 3]), of(&[4, 5])], |x| ops::mm(&ops::t(&x[0])?, &ops::t(&x[1])?)),
    case("bmm", &[of(&[2, 3, 5]), of(&[2, 5, 4])], |x| ops::bmm(&x[0], &x[1])),
    case("addmm", &[of(&[4]), of(&[3, 5]), of(&[5, 4])], |x| ops::addmm(&x[0], &x[1], &x[2])),
    case("linear", &[of(&[3, 5]), of(&[4, 5]), of(&[4])], |x| ops::linear(&x[0], &x[1], Some(&x[2]))),
    case("linear.sequence", &[of(&[2, 3, 5]), of(&[4, 5]), of(&[4])], |x| ops::linear(&x[0], &x[1], Some(&x[2]))),
    case("alias", X, |x| ops::alias(&x[0])),
    case("linear.no_bias", &[of(&[2, 3, 5]), of(&[4, 5])], |x| ops::linear(&x[0], &x[1], None)),
    case("matmul.broadcast", &[of(&[2, 1, 3, 5]), of(&[4, 5, 2])], |x| ops::matmul(&x[0], &x[1])),
    case("matmul.folded", &[of(&[2, 3, 5]), of(&[5, 4])], |x| ops::matmul(&x[0], &x[1])),
    // Images.
    case("conv2d", CONVOLUTION, |x| ops::conv2d(&x[0], &x[1], Some(&x[2]), geometry([1, 1], [0, 0], [1, 1], 1))),
    case("conv2d.strided", CONVOLUTION, |x| {
        ops::conv2d(&x[0], &x[1], Some(&x[2]), geometry([2, 1], [1, 2], [1, 2], 1))
    }),
    case("conv2d.grouped", GROUPED, |x| ops::conv2d(&x[0], &x[1], None, geometry([1, 2], [1, 1], [2, 1], 2))),
    case("conv_transpose2d", &[of(&[2, 6, 4, 4]), of(&[6, 4, 3, 3]), of(&[4])], |x| {
        ops::conv_transpose2d(&x[0], &x[1], Some(&x[2]), geometry([1, 1], [0, 0], [1, 1], 1), [0, 0])
    }),
    case("conv_transpose2d.strided", &[of(&[2, 3, 4, 3]), of(&[3, 4, 3, 2])], |x| {
        ops::conv_transpose2d(&x[0], &x[1], None, geometry([2, 3], [1, 0], [1, 2], 1), [1, 2])
    }),
    case("max_pool2d", IMAGE, |x| ops::max_pool2d(&x[0], window([2, 2], [2, 2], [0, 0]))),
    case("max_pool2d.overlapping", IMAGE, |x| ops::max_pool2d(&x[0], window([3, 3], [2, 1], [1, 1]))),
    case("avg_pool2d", IMAGE, |x| ops::avg_pool2d(&x[0], window([2, 3], [2, 2], [1, 1]))),
    case("adaptive_avg_pool2d", IMAGE, |x| ops::adaptive_avg_pool2d(&x[0], [1, 1])),
    case("adaptive_avg_pool2d.larger", IMAGE, |x| ops::adaptive_avg_pool2d(&x[0], [2, 3])),
    case("upsample_nearest2d", IMAGE, |x| ops::upsample_nearest2d(&x[0], [2, 3])),
    case("roll", CUBE, |x| ops::roll(&x[0], &[-1, 2], &[1, 2])),
    case("unbind", CUBE, |x| {
        let parts = ops::unbind(&x[0], 1)?;
        ops::add(&ops::mul_scalar(&parts[0], 2.0)?, &parts[2])
    }),
    case("pad", CUBE, |x| ops::pad(&x[0], &[[0, 1], [2, 0], [1, 3]], 0.5)),
    // Normalisation.
    case("group_norm", CHANNELS, |x| ops::group_norm(&x[0], 2, Some(&x[1]), Some(&x[2]), 1e-5)),
    case("group_norm.one_position", &[of(&[3, 4]), positive(&[4]), of(&[4])], |x| {
        ops::group_norm(&x[0], 2, Some(&x[1]), Some(&x[2]), 1e-5)
    }),
    case("group_norm.one_position_plain", &[of(&[3, 6, 1])], |x| ops::group_norm(&x[0], 2, None, None, 1e-5)),
    case("group_norm.plain", CUBE, |x| ops::group_norm(&x[0], 3, None, None, 1e-5)),
    case("group_norm.transposed", &[of(&[4, 3, 2, 3]), positive(&[4])], |x| {
        ops::group_norm(&ops::transpose(&x[0], 0, 1)?, 1, Some(&x[1]), None, 1e-5)
    }),
    case("layer_norm", NORM, |x| ops::layer_norm(&x[0], &[6], Some(&x[1]), Some(&x[2]), 1e-5)),
    case("layer_norm.plain", X, |x| ops::layer_norm(&x[0], &[5], None, None, 1e-5)),
    case("rms_norm", &[of(&[4, 6]), positive(&[6])], |x| ops::rms_norm(&x[0], &[6], Some(&x[1]), 1e-5)),
    case("batch_norm", CHANNELS, |x| normalised(x, true)),
    case("batch_norm.evaluation", CHANNELS, |x| normalised(x, false)),
    case("batch_norm.plain", &[of(&[3, 4, 2, 3])], |x| normalised(x, true)),
    case("batch_norm.transposed", &[of(&[4, 3, 2, 3]), positive(&[4]), of(&[4])], |x| {
        normalised(&[ops::transpose(&x[0], 0, 1)?, x[1].clone(), x[2].clone()], true)
    }),
    case("batch_norm.channels_last", &[of(&[3, 2, 3, 4]), positive(&[4]), of(&[4])], |x| {
        normalised(&[ops::permute(&x[0], &[0, 3, 1, 2])?, x[1].clone(), x[2].clone()], false)
    }),
    case("batch_norm.transposed_back", CHANNELS, |x| ops::contiguous(&ops::transpose(&normalised(x, true)?, 0, 1)?)),
    case("batch_norm.rows", &[of(&[6, 4]), positive(&[4]), of(&[4])], |x| normalised(x, true)),
    // Attention.
    case("attention_eager", HEADS, |x| ops::attention_eager(&x[0], &x[1], &x[2], Some(&causal(&x[0])?), 0.0, true)),
    case("attention_with_weights", HEADS, |x| {
        Ok(ops::attention_with_weights(&x[0], &x[1], &x[2], Some(&causal(&x[0])?), 0.0, true)?.0)
    }),
    case("attention_eager.grouped", GROUPED_HEADS, |x| ops::attention_eager(&x[0], &x[1], &x[2], None, 0.0, false)),
    case("scaled_dot_product_attention", HEADS, |x| fused(x, false, None)),
    case("scaled_dot_product_attention.causal", HEADS, |x| fused(x, true, None)),
    // With a width that the kernels of all libraries accept.
    case("scaled_dot_product_attention.eights", EIGHTS, |x| fused(x, true, None)),
    case("scaled_dot_product_attention.eights_turned", EIGHTS, |x| {
        let [q, k, v] = [0, 1, 2].map(|i| ops::contiguous(&ops::transpose(&x[i], 1, 2)?));
        let [q, k, v] = [q?, k?, v?].map(|x| ops::transpose(&x, 1, 2));
        fused(&[q?, k?, v?], false, None)
    }),
    case("scaled_dot_product_attention.grouped", GROUPED_HEADS, |x| fused(x, true, None)),
    case("scaled_dot_product_attention.mask", HEADS, |x| {
        let seen: Vec<u8> = (0..25).map(|i| u8::from(i % 6 == 0 || i % 4 == 1)).collect();
        fused(x, false, Some(&mask(x[0].device(), &[5, 5], &seen)?))
    }),
    case("rope", &[of(&[2, 3, 2, 4])], |x| turned(&x[0])),
    case("dropout", X, |x| ops::dropout(&x[0], 0.4, true)),
    case("dropout_", X, |x| ops::dropout_(&ops::mul_scalar(&x[0], 2.0)?, 0.4, true)),
    case("dropout.transposed", X, |x| ops::dropout(&ops::t(&x[0])?, 0.4, true)),
    // Losses.
    case("l1_loss", SAME, |x| ops::l1_loss(&x[0], &x[1], Reduction::Mean)),
    case("smooth_l1_loss", SAME, |x| ops::smooth_l1_loss(&x[0], &x[1], Reduction::Mean, 0.6)),
    case("huber_loss", SAME, |x| ops::huber_loss(&x[0], &x[1], Reduction::Sum, 0.6)),
    case("binary_cross_entropy_with_logits", SAME, |x| {
        ops::binary_cross_entropy_with_logits(&x[0], &x[1], Reduction::Mean)
    }),
    case("mse_loss", SAME, |x| ops::mse_loss(&x[0], &x[1], Reduction::Mean)),
    case("mse_loss.sum", SAME, |x| ops::mse_loss(&x[0], &x[1], Reduction::Sum)),
    case("cross_entropy", X, |x| {
        ops::cross_entropy(&x[0], &indices(x[0].device(), &[3], &[4, 0, 4])?, Reduction::Mean)
    }),
    case("cross_entropy.ignored", X, |x| {
        let targets = indices(x[0].device(), &[3], &[1, ops::IGNORE_INDEX, 3])?;
        ops::cross_entropy(&x[0], &targets, Reduction::Mean)
    }),
    case("cross_entropy.planes", IMAGE, |x| ops::cross_entropy(&x[0], &planes(&x[0])?, Reduction::Mean)),
    case("cross_entropy.positions", CUBE, |x| {
        let losses = ops::cross_entropy(&x[0], &planes(&x[0])?, Reduction::None)?;
        ops::contiguous(&ops::t(&losses)?)
    }),
    case("cross_entropy.one", &[of(&[5])], |x| {
        ops::cross_entropy(&x[0], &indices(x[0].device(), &[], &[3])?, Reduction::Mean)
    }),
    case("cross_entropy_smooth", X, |x| {
        let targets = indices(x[0].device(), &[3], &[1, ops::IGNORE_INDEX, 3])?;
        ops::cross_entropy_smooth(&x[0], &targets, Reduction::Mean, 0.1)
    }),
    case("cross_entropy_smooth.planes", IMAGE, |x| {
        ops::cross_entropy_smooth(&x[0], &planes(&x[0])?, Reduction::None, 0.3)
    }),
    case("nll_loss.planes", CUBE, |x| ops::nll_loss(&x[0], &planes(&x[0])?, Reduction::Sum)),
    case("nll_loss.sum", X, |x| ops::nll_loss(&x[0], &indices(x[0].device(), &[3], &[4, 0, 4])?, Reduction::Sum)),
];
