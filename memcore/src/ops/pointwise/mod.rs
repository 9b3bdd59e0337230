//! Functions of each element: activations, arithmetic, powers, masks, dropout, casts.

pub(in crate::ops) mod activation;
pub(in crate::ops) mod activation_on_host;
pub(in crate::ops) mod binary;
pub(in crate::ops) mod binary_on_host;
pub(in crate::ops) mod cast;
pub(in crate::ops) mod dropout;
pub(in crate::ops) mod in_place;
pub(in crate::ops) mod mask;
pub(in crate::ops) mod power;
pub(in crate::ops) mod quantized;
pub(in crate::ops) mod ternary;
pub(in crate::ops) mod unary;
pub(in crate::ops) mod unary_on_host;

pub use activation::{
    elu, gelu, gelu_tanh, hardsigmoid, hardsigmoid_, hardswish, hardswish_, hardtanh, hardtanh_, leaky_relu,
    leaky_relu_, log_sigmoid, mish, mish_, relu, relu_, relu6, relu6_, sigmoid, sigmoid_, silu, silu_, softplus, tanh,
    tanh_,
};
pub use activation_on_host::{elu_scaled, elu_scaled_, glu, prelu, softplus_scaled};
pub use binary::{add, add_, div, maximum, minimum, mul, mul_add_, sub, sub_};
pub use binary_on_host::{
    addcdiv, atan2, fmod, fmod_by, frac, lerp_by, logaddexp, nan_to_num, remainder, remainder_by,
};
pub use cast::{cast, to_device};
pub use dropout::{dropout, dropout_};
pub use in_place::{affine_, copy_, div_, fill_, mul_};
pub use mask::{masked_fill, masked_fill_, tril, triu, where_};
pub use power::pow_tensors;
pub use quantized::{QuantizedInt8, dequantize_int8, matmul_int8, quantize_int8};
pub use ternary::{addcmul, clamp_between, lerp};
pub use unary::{
    abs, add_scalar, clamp, clamp_, cos, div_scalar, exp, exp_, log, mul_scalar, neg, pow, reciprocal, rsqrt,
    rsub_scalar, sin, sqrt, square, sub_scalar, times_one_,
};
pub use unary_on_host::{
    acos, acosh, asin, asinh, atan, atanh, ceil, cosh, erf, expm1, floor, hardshrink, log1p, log2, log10, logit,
    power_of, round, sign, sinh, softshrink, tan, threshold, trunc,
};
