//! Cases of `memcore::ops`, folder `pointwise`.

use memcore::autograd::written_through;
use memcore::ops;
use memcore::{Result, Tensor};

use super::arguments::{
    Argument, CUBE, FRACTIONS, OperatorCase, SAME, X, case, constant, copied, mask, positive, tensor,
};

const ROOTS: &[Argument] = &[positive(&[3, 5])];
const BROADCAST: &[Argument] = &[tensor(&[2, 3, 1]), tensor(&[3, 4])];
const QUOTIENT: &[Argument] = &[tensor(&[2, 3, 1]), positive(&[3, 4])];
const SCALAR: &[Argument] = &[tensor(&[3, 4]), tensor(&[])];

/// About every third element of `x`'s sizes.
fn thirds(x: &Tensor) -> Result<Tensor> {
    let values: Vec<u8> = (0..x.numel()).map(|i| u8::from(i * 7 % 3 == 0)).collect();
    mask(x.device(), x.dims(), &values)
}

const SLOPES: &[Argument] = &[tensor(&[2, 3, 4]), positive(&[3])];

/// Numbers between 2 and 3, and between 0.6 and 0.9.
const FEW: &[Argument] =
    &[Argument { dims: &[3, 5], low: 2.1, high: 2.3 }, Argument { dims: &[3, 5], low: 0.8, high: 0.9 }];

pub(super) const CASES: &[OperatorCase] = &[
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
    case("where_.broadcast", &[tensor(&[3, 5]), tensor(&[5])], |x| ops::where_(&thirds(&x[0])?, &x[0], &x[1])),
    case("masked_fill", X, |x| ops::masked_fill(&x[0], &thirds(&x[0])?, 9.0)),
    case("tril", X, |x| ops::tril(&x[0], 1)),
    case("triu", CUBE, |x| ops::triu(&x[0], -1)),
    case("dropout", X, |x| ops::dropout(&x[0], 0.4, true)),
    case("dropout_", X, |x| ops::dropout_(&ops::mul_scalar(&x[0], 2.0)?, 0.4, true)),
    case("dropout.transposed", X, |x| ops::dropout(&ops::t(&x[0])?, 0.4, true)),
    case("leaky_relu_", X, |x| ops::leaky_relu_(&copied(&x[0])?, 0.2)),
    case("affine_", X, |x| ops::affine_(&copied(&x[0])?, 3.0, 0.0)),
    case("affine_.sum", X, |x| ops::affine_(&copied(&x[0])?, 1.0, 0.5)),
    case("mul_", SAME, |x| ops::mul_(&copied(&x[0])?, &x[1])),
    case("mul_.broadcast", &[tensor(&[2, 3, 4]), tensor(&[3, 1])], |x| ops::mul_(&copied(&x[0])?, &x[1])),
    case("div_", &[tensor(&[3, 5]), positive(&[3, 5])], |x| ops::div_(&copied(&x[0])?, &x[1])),
    case("copy_", &[tensor(&[2, 3, 4]), tensor(&[3, 1])], |x| ops::copy_(&copied(&x[0])?, &x[1])),
    case("fill_", X, |x| ops::fill_(&copied(&x[0])?, 0.5)),
    // A part of a tensor is zeroed: the rest keeps its gradient.
    case("fill_.part", X, |x| {
        let whole = copied(&x[0])?;
        let part = ops::narrow(&whole, 0, 1, 1)?;
        written_through(&whole, &ops::fill_(&part, 0.0)?)
    }),
    case("masked_fill_", X, |x| ops::masked_fill_(&copied(&x[0])?, &thirds(&x[0])?, 2.0)),
    case("elu_scaled", X, |x| ops::elu_scaled(&x[0], "selu", 1.7, 1.1, 1.0)),
    case("softplus_scaled", X, |x| ops::softplus_scaled(&x[0], 2.0, 20.0)),
    case("prelu", SLOPES, |x| ops::prelu(&x[0], &x[1])),
    case("prelu.one", &[tensor(&[3, 5]), positive(&[1])], |x| ops::prelu(&x[0], &x[1])),
    case("tan", X, |x| ops::tan(&x[0])),
    case("atan", X, |x| ops::atan(&x[0])),
    case("sinh", X, |x| ops::sinh(&x[0])),
    case("cosh", X, |x| ops::cosh(&x[0])),
    case("log1p", ROOTS, |x| ops::log1p(&x[0])),
    case("expm1", X, |x| ops::expm1(&x[0])),
    case("log2", ROOTS, |x| ops::log2(&x[0])),
    case("erf", X, |x| ops::erf(&x[0])),
    case("log10", ROOTS, |x| ops::log10(&x[0])),
    case("power_of", X, |x| ops::power_of(1.5, &x[0])),
    case("asin", FRACTIONS, |x| ops::asin(&x[0])),
    case("acos", FRACTIONS, |x| ops::acos(&x[0])),
    case("logit", FRACTIONS, |x| ops::logit(&x[0])),
    case("sigmoid_", X, |x| ops::sigmoid_(&copied(&x[0])?)),
    case("tanh_", X, |x| ops::tanh_(&copied(&x[0])?)),
    case("exp_", X, |x| ops::exp_(&copied(&x[0])?)),
    case("clamp_", FRACTIONS, |x| ops::clamp_(&copied(&x[0])?, 0.05, 0.5)),
    case("sub_", SAME, |x| ops::sub_(&copied(&x[0])?, &x[1])),
    case("floor", FRACTIONS, |x| ops::floor(&x[0])),
    case("ceil", FRACTIONS, |x| ops::ceil(&x[0])),
    case("round", &[Argument { dims: &[3, 5], low: 0.6, high: 0.9 }], |x| ops::round(&x[0])),
    case("trunc", FRACTIONS, |x| ops::trunc(&x[0])),
    case("sign", FRACTIONS, |x| ops::sign(&x[0])),
    case("threshold", ROOTS, |x| ops::threshold(&x[0], 0.2, 3.0)),
    case("hardshrink", ROOTS, |x| ops::hardshrink(&x[0], 0.3)),
    case("softshrink", ROOTS, |x| ops::softshrink(&x[0], 0.3)),
    case("glu", &[tensor(&[3, 4])], |x| ops::glu(&x[0], 1)),
    case("glu.first", &[tensor(&[4, 3])], |x| ops::glu(&x[0], 0)),
    case("pow_tensors", &[positive(&[3, 5]), tensor(&[3, 5])], |x| ops::pow_tensors(&x[0], &x[1])),
    case("atan2", &[tensor(&[3, 5]), tensor(&[5])], |x| ops::atan2(&x[0], &x[1])),
    case("asinh", X, |x| ops::asinh(&x[0])),
    case("acosh", ROOTS, |x| ops::acosh(&ops::add_scalar(&x[0], 1.0)?)),
    case("atanh", FRACTIONS, |x| ops::atanh(&x[0])),
    case("logaddexp", SAME, |x| ops::logaddexp(&x[0], &x[1])),
    case("lerp_by", &[tensor(&[3, 5]), tensor(&[5]), tensor(&[3, 1])], |x| ops::lerp_by(&x[0], &x[1], &x[2])),
    case("addcdiv", &[tensor(&[3, 5]), tensor(&[5]), positive(&[3, 5])], |x| ops::addcdiv(&x[0], &x[1], &x[2], 0.5)),
    case("fmod", FEW, |x| ops::fmod(&x[0], &x[1])),
    case("remainder", FEW, |x| ops::remainder(&ops::neg(&x[0])?, &x[1])),
    case("frac", FRACTIONS, |x| ops::frac(&x[0])),
    case("fmod_by", FRACTIONS, |x| ops::fmod_by(&x[0], 2.0)),
    case("remainder_by", FRACTIONS, |x| ops::remainder_by(&ops::neg(&x[0])?, 2.0)),
    case("nan_to_num", X, |x| ops::nan_to_num(&x[0], [0.0, 1.0, -1.0])),
    case("hardsigmoid_", X, |x| ops::hardsigmoid_(&copied(&x[0])?)),
    case("mish_", X, |x| ops::mish_(&copied(&x[0])?)),
    case("hardtanh_", FRACTIONS, |x| ops::hardtanh_(&copied(&x[0])?, -0.5, 2.0)),
    case("elu_scaled_", X, |x| ops::elu_scaled_(&copied(&x[0])?, "elu_", 1.5, 0.5, 2.0)),
    case("addcmul", &[tensor(&[3, 5]), tensor(&[3, 5]), tensor(&[5])], |x| ops::addcmul(&x[0], &x[1], &x[2], 0.5)),
    case("lerp", &[tensor(&[3, 5]), tensor(&[5])], |x| ops::lerp(&x[0], &x[1], 0.3)),
    case("clamp_between", X, |x| {
        ops::clamp_between(&x[0], Some(&constant(&x[0], -0.53)?), Some(&constant(&x[0], 0.47)?))
    }),
    case("clamp_between.one", X, |x| ops::clamp_between(&x[0], Some(&constant(&x[0], -0.13)?), None)),
];
