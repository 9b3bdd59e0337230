//! Operators of one tensor, or of a tensor and another, as its methods: `x.relu()?` is `ops::relu(&x)?`.

use super as ops;
use crate::autograd::Tensor;
use crate::backend::kernel::Reduction;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;

macro_rules! methods {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Tensor {$(
            #[doc = concat!("[`ops::", stringify!($name), "`](crate::ops::", stringify!($name), ") of this tensor.")]
            pub fn $name(&self, $($argument: $type),*) -> Result<$result> {
                ops::$name(self, $($argument),*)
            }
        )*}
    };
}

// Functions of one element.
methods! {
    relu() -> Tensor;
    relu6() -> Tensor;
    leaky_relu(slope: f64) -> Tensor;
    elu(alpha: f64) -> Tensor;
    gelu() -> Tensor;
    gelu_tanh() -> Tensor;
    silu() -> Tensor;
    mish() -> Tensor;
    sigmoid() -> Tensor;
    log_sigmoid() -> Tensor;
    softplus() -> Tensor;
    tanh() -> Tensor;
    hardtanh(min: f64, max: f64) -> Tensor;
    hardsigmoid() -> Tensor;
    hardswish() -> Tensor;
    abs() -> Tensor;
    neg() -> Tensor;
    exp() -> Tensor;
    log() -> Tensor;
    sin() -> Tensor;
    cos() -> Tensor;
    sqrt() -> Tensor;
    rsqrt() -> Tensor;
    square() -> Tensor;
    reciprocal() -> Tensor;
    pow(exponent: f64) -> Tensor;
    clamp(min: f64, max: f64) -> Tensor;
    add_scalar(value: f64) -> Tensor;
    sub_scalar(value: f64) -> Tensor;
    mul_scalar(value: f64) -> Tensor;
    div_scalar(value: f64) -> Tensor;
    dropout(p: f64, training: bool) -> Tensor;
    masked_fill(mask: &Tensor, value: f64) -> Tensor;
    tril(diagonal: i64) -> Tensor;
    triu(diagonal: i64) -> Tensor;
    cast(dtype: DType) -> Tensor;
    to_device(device: &Device) -> Tensor;
}

// Operators with another tensor.
methods! {
    add(other: &Tensor) -> Tensor;
    sub(other: &Tensor) -> Tensor;
    mul(other: &Tensor) -> Tensor;
    div(other: &Tensor) -> Tensor;
    maximum(other: &Tensor) -> Tensor;
    minimum(other: &Tensor) -> Tensor;
    mm(other: &Tensor) -> Tensor;
    bmm(other: &Tensor) -> Tensor;
    matmul(other: &Tensor) -> Tensor;
    index_select(axis: usize, indices: &Tensor) -> Tensor;
    mse_loss(target: &Tensor, reduction: Reduction) -> Tensor;
    l1_loss(target: &Tensor, reduction: Reduction) -> Tensor;
    cross_entropy(target: &Tensor, reduction: Reduction) -> Tensor;
    nll_loss(target: &Tensor, reduction: Reduction) -> Tensor;
}

// Reductions over axes.
methods! {
    sum() -> Tensor;
    sum_axes(axes: &[usize], keepdim: bool) -> Tensor;
    mean() -> Tensor;
    mean_axes(axes: &[usize], keepdim: bool) -> Tensor;
    norm() -> Tensor;
    amax(axes: &[usize], keepdim: bool) -> Tensor;
    argmax(axis: usize, keepdim: bool) -> Tensor;
    logsumexp(axes: &[usize], keepdim: bool) -> Tensor;
    softmax(axis: usize) -> Tensor;
    log_softmax(axis: usize) -> Tensor;
}

// Changes of shape.
methods! {
    view(dims: &[usize]) -> Tensor;
    reshape(dims: &[usize]) -> Tensor;
    flatten(start: usize) -> Tensor;
    t() -> Tensor;
    transpose(a: usize, b: usize) -> Tensor;
    permute(axes: &[usize]) -> Tensor;
    narrow(axis: usize, start: usize, len: usize) -> Tensor;
    select(axis: usize, index: usize) -> Tensor;
    squeeze(axis: usize) -> Tensor;
    unsqueeze(axis: usize) -> Tensor;
    expand(dims: &[usize]) -> Tensor;
    repeat(times: &[usize]) -> Tensor;
    contiguous() -> Tensor;
    split(size: usize, axis: usize) -> Vec<Tensor>;
    chunk(chunks: usize, axis: usize) -> Vec<Tensor>;
}
