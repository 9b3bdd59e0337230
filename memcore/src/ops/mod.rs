//! Operators: forward, saved values and backward, side by side.
//!
//! Each operator saves exactly what PyTorch's operator saves, and makes its temporaries in the same order (under a PyTorch profile; see
//! [`Profile`](crate::profile::Profile)). Operators of one tensor are methods of [`Tensor`](crate::Tensor) as well. Every function takes tensors by
//! reference, returns a new one, and gives its name to the ledger.
//!
//! A temporary of a Rust expression lives until the end of its *statement*. As in Python, write one operator per statement if it matters
//! when an intermediate value is freed.

mod activation;
mod all_pairs;
mod attention;
mod attention_algorithm;
mod attention_math;
mod attention_temporaries;
mod autocast;
mod batch_norm;
mod batch_norm_cudnn;
mod batch_norm_kernels;
mod binary;
mod blends;
mod cast;
mod complex;
mod conv;
mod conv_algorithm;
mod conv_library;
mod conv_record;
mod conv_transpose;
mod ctc;
mod curves;
mod distance;
mod dropout;
mod einsum;
mod elementwise;
mod embedding_temporaries;
mod enlarge;
mod entropy;
mod fold;
mod formulas;
mod fourier;
mod group_norm;
mod grouped;
mod in_place;
mod index;
mod index_each;
mod instance_norm;
mod join;
mod lines;
mod logsumexp;
mod loss;
mod mask;
mod matmul;
mod matmul_nd;
mod methods;
mod norm;
mod norm_sum;
mod on_host;
mod order;
mod pad_edges;
mod pairs;
mod pointwise;
mod pool;
mod pool_ceil;
mod power;
mod predicted;
mod products;
mod quant;
mod rearrange;
mod recurrent;
mod recurrent_algorithm;
mod recurrent_cells;
mod recurrent_cudnn;
mod recurrent_network;
mod recurrent_sizes;
mod reduce;
mod resize;
mod roll;
mod rope;
mod running;
mod samples;
mod scatter;
mod shape;
mod similarity;
mod softmax;
mod strided;
mod unpool;
mod variance;
mod volume_conv;
mod volume_conv_transpose;
mod weight_norm;
mod weighted_classes;
mod windows;

use crate::backend::kernel;
pub use activation::{
    elu, gelu, gelu_tanh, hardsigmoid, hardsigmoid_, hardswish, hardswish_, hardtanh, hardtanh_, leaky_relu,
    leaky_relu_, log_sigmoid, mish, mish_, relu, relu_, relu6, relu6_, sigmoid, sigmoid_, silu, silu_, softplus, tanh,
    tanh_,
};
pub use all_pairs::cdist;
pub use attention::{
    AttentionOptions, attention_eager, attention_with_weights, causal_mask, scaled_dot_product_attention,
};
pub use batch_norm::batch_norm;
pub use batch_norm_kernels::{BatchNormOptions, RunningStats};
pub use binary::{add, add_, div, maximum, minimum, mul, mul_add_, sub, sub_};
pub use blends::{addcmul, clamp_between, lerp};
pub use cast::{cast, to_device};
pub use complex::{abs_of_complex, complex, imag, polar, real, view_as_complex, view_as_real};
pub use conv::conv2d;
pub use conv_transpose::conv_transpose2d;
pub use ctc::{CtcOptions, ctc_loss};
pub use curves::{
    acos, acosh, asin, asinh, atan, atanh, ceil, cosh, erf, expm1, floor, hardshrink, log1p, log2, log10, logit,
    power_of, round, sign, sinh, softshrink, tan, threshold, trunc,
};
pub use distance::{huber_loss, l1_loss, mse_loss, smooth_l1_loss};
pub use dropout::{dropout, dropout_};
pub use einsum::{einsum, einsum_along};
pub use elementwise::{
    abs, add_scalar, clamp, clamp_, cos, div_scalar, exp, exp_, log, mul_scalar, neg, pow, reciprocal, rsqrt,
    rsub_scalar, sin, sqrt, square, sub_scalar, times_one_,
};
pub use enlarge::{pad, upsample_nearest2d};
pub use entropy::{binary_cross_entropy, binary_cross_entropy_with_logits};
pub use fold::{fold, unfold};
pub use formulas::{addcdiv, atan2, fmod, fmod_by, frac, lerp_by, logaddexp, nan_to_num, remainder, remainder_by};
pub use fourier::{fft_c2c, fft_c2r, fft_r2c};
pub use group_norm::group_norm;
pub use grouped::{grouped_mm, grouped_mm_in_turn};
pub use in_place::{affine_, copy_, div_, fill_, mul_};
pub use index::{embedding, index_select};
pub use index_each::{MAX_EACH, index_by, index_each};
pub use instance_norm::instance_norm;
pub use join::{cat, chunk, split, split_with_sizes, stack, unbind};
pub use kernel::{Conv2dGeometry, Pool2dGeometry, Reduction};
pub use lines::{
    Conv1dGeometry, Pool1dGeometry, adaptive_avg_pool1d, avg_pool1d, conv_transpose1d, conv1d, max_pool1d,
};
pub use logsumexp::logsumexp;
pub use loss::{
    Counting, IGNORE_INDEX, cross_entropy, cross_entropy_counting, cross_entropy_smooth, nll_loss, nll_loss_counting,
};
pub use mask::{masked_fill, masked_fill_, tril, triu, where_};
pub use matmul::{addmm, bmm, linear, mm};
pub use matmul_nd::matmul;
pub use norm::{layer_norm, rms_norm};
pub use norm_sum::norm_sum;
pub use order::{kth_value, median_axis, sort, topk};
pub use pad_edges::{Edge, pad_edges};
pub use pairs::{margin_ranking_loss, pairwise_distance, triplet_margin_loss};
pub use pointwise::{elu_scaled, elu_scaled_, glu, prelu, softplus_scaled};
pub use pool::{adaptive_avg_pool2d, avg_pool2d, max_pool2d, max_pool2d_with_indices};
pub use pool_ceil::max_pool2d_ceil;
pub use power::pow_tensors;
pub use products::{baddbmm, dot, mv};
pub use quant::{QuantizedInt8, dequantize_int8, matmul_int8, quantize_int8};
pub use rearrange::{cumsum, cumsum_whole, flip, gather, pixel_shuffle, pixel_unshuffle, rot90};
pub use recurrent::{gru, gru_cell, lstm, lstm_cell, rnn_relu, rnn_relu_cell, rnn_tanh, rnn_tanh_cell};
pub use recurrent_network::{FlatWeights, Recurrent};
pub use reduce::{
    amax, amin, argmax, argmin, max_all, max_axis, mean, mean_as, mean_axes, min_all, min_axis, norm, norm_axes, sum,
    sum_as, sum_axes,
};
pub use resize::{Interpolation, ResizedAxis, interpolate};
pub use roll::roll;
pub use rope::rope;
pub use running::{cummax, cummin, cumprod};
pub use samples::{affine_grid, grid_sampler};
pub use scatter::{
    index_add, index_add_, index_copy, index_put, index_put_, scatter, scatter_add, scatter_add_, scatter_value,
};
pub use shape::{
    alias, clone, contiguous, expand, flatten, narrow, permute, repeat, reshape, select, slice, squeeze, t, transpose,
    unsqueeze, view,
};
pub use similarity::{cosine_similarity, kl_div};
pub use softmax::{log_softmax, log_softmax_as, softmax, softmax_as};
pub use strided::{diag_embed, diagonal, unfold_axis};
pub use unpool::max_unpool2d;
pub use variance::{std, std_mean, var, var_mean};
pub use volume_conv::{Conv3dGeometry, conv3d};
pub use volume_conv_transpose::conv_transpose3d;
pub use weight_norm::weight_norm;
pub use windows::{Pool3dGeometry, adaptive_avg_pool3d, adaptive_max_pool, avg_pool3d, max_pool3d};
