//! Further differentiable operators: those that write in place, those of lines and sequences, and those that are computed on the host.

use memcore::autograd::written_through;
use memcore::backend::kernel::{Pool2dGeometry, Reduction};
use memcore::ops::{self, Conv1dGeometry, Interpolation, Pool1dGeometry, Recurrent, ResizedAxis};
use memcore::{Result, Tensor};

use crate::operators::{Argument, CUBE, IMAGE, OperatorCase, SAME, X, case, indices, of, positive, thirds};

const PROBABILITIES: &[Argument] = &[Argument { dims: &[3, 5], low: 0.1, high: 0.9 }];
const LINES: &[Argument] = &[of(&[2, 4, 9]), of(&[6, 4, 3]), of(&[6])];
const GROUPED_LINES: &[Argument] = &[of(&[2, 4, 9]), of(&[6, 2, 2])];
const SLOPES: &[Argument] = &[of(&[2, 3, 4]), positive(&[3])];
const LENGTHS: &[Argument] = &[of(&[3, 2, 4]), positive(&[1, 1, 4])];
const LSTM: &[Argument] =
    &[of(&[3, 2, 4]), of(&[1, 2, 3]), of(&[1, 2, 3]), of(&[12, 4]), of(&[12, 3]), of(&[12]), of(&[12])];
const LSTM_CELL: &[Argument] =
    &[of(&[2, 4]), of(&[2, 3]), of(&[2, 3]), of(&[12, 4]), of(&[12, 3]), of(&[12]), of(&[12])];
const GRU: &[Argument] = &[of(&[3, 2, 4]), of(&[1, 2, 3]), of(&[9, 4]), of(&[9, 3]), of(&[9]), of(&[9])];
const GRU_CELL: &[Argument] = &[of(&[2, 4]), of(&[2, 3]), of(&[9, 4]), of(&[9, 3]), of(&[9]), of(&[9])];
const RNN: &[Argument] = &[of(&[3, 2, 4]), of(&[1, 2, 3]), of(&[3, 4]), of(&[3, 3]), of(&[3]), of(&[3])];
const RNN_CELL: &[Argument] = &[of(&[2, 4]), of(&[2, 3]), of(&[3, 4]), of(&[3, 3]), of(&[3]), of(&[3])];
const GRU_LAYERS: &[Argument] = &[
    of(&[2, 3, 2]),
    of(&[4, 2, 2]),
    of(&[6, 2]),
    of(&[6, 2]),
    of(&[6, 2]),
    of(&[6, 2]),
    of(&[6, 4]),
    of(&[6, 2]),
    of(&[6, 4]),
    of(&[6, 2]),
];
const CELLS: &[Argument] = &[
    of(&[2, 3, 2]),
    of(&[4, 2, 2]),
    of(&[4, 2, 2]),
    of(&[8, 2]),
    of(&[8, 2]),
    of(&[8, 2]),
    of(&[8, 2]),
    of(&[8, 4]),
    of(&[8, 2]),
    of(&[8, 4]),
    of(&[8, 2]),
];

/// What may be written over.
pub(crate) fn copied(x: &Tensor) -> Result<Tensor> {
    ops::mul_scalar(x, 1.5)
}

const ONE_LAYER: Recurrent =
    Recurrent { layers: 1, bidirectional: false, dropout: 0.0, training: true, batch_first: false };
const TWO_LAYERS: Recurrent = Recurrent { layers: 2, bidirectional: true, batch_first: true, ..ONE_LAYER };

/// Several tensors as one vector: outputs and states.
pub(crate) fn joined(parts: &[Tensor]) -> Result<Tensor> {
    let flat = parts.iter().map(|part| ops::reshape(part, &[part.numel()])).collect::<Result<Vec<Tensor>>>()?;
    ops::cat(&flat.iter().collect::<Vec<_>>(), 0)
}

/// The arguments from `first` on.
fn from(x: &[Tensor], first: usize) -> Vec<&Tensor> {
    x[first..].iter().collect()
}

fn lstm(x: &[Tensor], options: Recurrent) -> Result<Tensor> {
    joined(&ops::lstm(&x[0], [&x[1], &x[2]], &from(x, 3), options)?)
}

fn resized(x: &Tensor, sizes: &[usize], mode: Interpolation, align_corners: bool) -> Result<Tensor> {
    let axes: Vec<ResizedAxis> = sizes.iter().map(|&size| ResizedAxis { size, factor: None }).collect();
    ops::interpolate(x, &axes, mode, align_corners)
}

const POOL: Pool1dGeometry = Pool1dGeometry { window: 3, stride: 2, padding: 1 };

/// The cases.
pub(crate) const FURTHER: &[OperatorCase] = &[
    case("leaky_relu_", X, |x| ops::leaky_relu_(&copied(&x[0])?, 0.2)),
    case("affine_", X, |x| ops::affine_(&copied(&x[0])?, 3.0, 0.0)),
    case("affine_.sum", X, |x| ops::affine_(&copied(&x[0])?, 1.0, 0.5)),
    case("mul_", SAME, |x| ops::mul_(&copied(&x[0])?, &x[1])),
    case("mul_.broadcast", &[of(&[2, 3, 4]), of(&[3, 1])], |x| ops::mul_(&copied(&x[0])?, &x[1])),
    case("div_", &[of(&[3, 5]), positive(&[3, 5])], |x| ops::div_(&copied(&x[0])?, &x[1])),
    case("copy_", &[of(&[2, 3, 4]), of(&[3, 1])], |x| ops::copy_(&copied(&x[0])?, &x[1])),
    case("fill_", X, |x| ops::fill_(&copied(&x[0])?, 0.5)),
    // A part of a tensor is zeroed: the rest keeps its gradient.
    case("fill_.part", X, |x| {
        let whole = copied(&x[0])?;
        let part = ops::narrow(&whole, 0, 1, 1)?;
        written_through(&whole, &ops::fill_(&part, 0.0)?)
    }),
    case("masked_fill_", X, |x| ops::masked_fill_(&copied(&x[0])?, &thirds(&x[0])?, 2.0)),
    case("binary_cross_entropy", PROBABILITIES, |x| {
        ops::binary_cross_entropy(&x[0], &Tensor::from_array(x[0].array().zeros_like()?), Reduction::Mean)
    }),
    case("binary_cross_entropy.each", PROBABILITIES, |x| {
        let target = memcore::Array::full(x[0].device(), x[0].dims(), x[0].dtype(), 0.25)?;
        ops::binary_cross_entropy(&x[0], &Tensor::from_array(target), Reduction::None)
    }),
    case("conv1d", LINES, |x| {
        let geometry = Conv1dGeometry { stride: 2, padding: 1, dilation: 1, groups: 1 };
        ops::conv1d(&x[0], &x[1], Some(&x[2]), geometry)
    }),
    case("conv1d.grouped", GROUPED_LINES, |x| {
        ops::conv1d(&x[0], &x[1], None, Conv1dGeometry { stride: 1, padding: 0, dilation: 2, groups: 2 })
    }),
    case("max_pool1d", &[of(&[2, 3, 9])], |x| ops::max_pool1d(&x[0], POOL)),
    case("avg_pool1d", &[of(&[2, 3, 9])], |x| ops::avg_pool1d(&x[0], POOL)),
    case("adaptive_avg_pool1d", &[of(&[2, 3, 8])], |x| ops::adaptive_avg_pool1d(&x[0], 4)),
    case("norm_axes", &[positive(&[2, 3, 4])], |x| ops::norm_axes(&x[0], &[1], true)),
    case("norm_axes.last", &[positive(&[2, 3, 4])], |x| ops::norm_axes(&x[0], &[2], false)),
    case("elu_scaled", X, |x| ops::elu_scaled(&x[0], "selu", 1.7, 1.1, 1.0)),
    case("softplus_scaled", X, |x| ops::softplus_scaled(&x[0], 2.0, 20.0)),
    case("prelu", SLOPES, |x| ops::prelu(&x[0], &x[1])),
    case("prelu.one", &[of(&[3, 5]), positive(&[1])], |x| ops::prelu(&x[0], &x[1])),
    case("max_pool2d_ceil", &[of(&[2, 3, 6, 7])], |x| {
        ops::max_pool2d_ceil(&x[0], Pool2dGeometry { window: [3, 2], stride: [2, 2], padding: [0, 0] })
    }),
    case("max_pool2d_ceil.even", IMAGE, |x| {
        ops::max_pool2d_ceil(&x[0], Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] })
    }),
    case("cumsum", CUBE, |x| ops::cumsum(&x[0], 1)),
    case("flip", CUBE, |x| ops::flip(&x[0], &[0, 2])),
    case("gather", X, |x| ops::gather(&x[0], 1, &indices(x[0].device(), &[3, 2], &[4, 0, 1, 1, 2, 3])?)),
    case("pixel_shuffle", IMAGE, |x| ops::pixel_shuffle(&x[0], 2)),
    case("slice", CUBE, |x| ops::slice(&x[0], 2, [1, 3, 2])),
    case("weight_norm", LENGTHS, |x| ops::weight_norm(&x[0], &x[1], 2)),
    case("weight_norm.first", &[of(&[3, 2, 4]), positive(&[3, 1, 1])], |x| ops::weight_norm(&x[0], &x[1], 0)),
    case("interpolate.nearest", IMAGE, |x| resized(&x[0], &[9, 4], Interpolation::Nearest, false)),
    case("interpolate.linear", IMAGE, |x| resized(&x[0], &[9, 4], Interpolation::Linear, false)),
    case("interpolate.corners", IMAGE, |x| resized(&x[0], &[9, 4], Interpolation::Linear, true)),
    case("interpolate.cubic", IMAGE, |x| resized(&x[0], &[9, 4], Interpolation::Cubic, false)),
    case("interpolate.line", CUBE, |x| resized(&x[0], &[7], Interpolation::Linear, false)),
    case("lstm", LSTM, |x| lstm(x, ONE_LAYER)),
    case("lstm.layers", CELLS, |x| lstm(x, TWO_LAYERS)),
    case("lstm_cell", LSTM_CELL, |x| joined(&ops::lstm_cell(&x[0], [&x[1], &x[2]], &from(x, 3))?)),
    case("gru", GRU, |x| joined(&ops::gru(&x[0], &x[1], &from(x, 2), ONE_LAYER)?)),
    case("gru.layers", GRU_LAYERS, |x| joined(&ops::gru(&x[0], &x[1], &from(x, 2), TWO_LAYERS)?)),
    case("gru_cell", GRU_CELL, |x| ops::gru_cell(&x[0], &x[1], &from(x, 2))),
    case("rnn_tanh", RNN, |x| joined(&ops::rnn_tanh(&x[0], &x[1], &from(x, 2), ONE_LAYER)?)),
    case("rnn_relu", RNN, |x| joined(&ops::rnn_relu(&x[0], &x[1], &from(x, 2), ONE_LAYER)?)),
    case("rnn_tanh_cell", RNN_CELL, |x| ops::rnn_tanh_cell(&x[0], &x[1], &from(x, 2))),
    case("rnn_relu_cell", RNN_CELL, |x| ops::rnn_relu_cell(&x[0], &x[1], &from(x, 2))),
];
