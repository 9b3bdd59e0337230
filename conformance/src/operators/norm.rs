//! Cases of `memcore::ops`, folder `norm`.

use memcore::ops::{self, BatchNormOptions, RunningStats};
use memcore::{Array, Result, Tensor};

use super::arguments::{Argument, CUBE, OperatorCase, X, case, positive, tensor};

const NORM: &[Argument] = &[tensor(&[4, 6]), positive(&[6]), tensor(&[6])];
const CHANNELS: &[Argument] = &[tensor(&[3, 4, 2, 3]), positive(&[4]), tensor(&[4])];

fn normalised(x: &[Tensor], training: bool) -> Result<Tensor> {
    let statistic = |value| Array::full(x[0].device(), &[4], x[0].dtype(), value);
    let (mean, var) = (statistic(0.1)?, statistic(0.7)?);
    let running = RunningStats { mean: &mean, var: &var };
    let options = BatchNormOptions { training, momentum: 0.1, eps: 1e-5 };
    ops::batch_norm(&x[0], x.get(1), x.get(2), Some(running), options)
}

const INSTANCES: &[Argument] = &[tensor(&[2, 3, 4, 2]), positive(&[3]), tensor(&[3])];

pub(super) const CASES: &[OperatorCase] = &[
    case("softmax", X, |x| ops::softmax(&x[0], 1)),
    case("softmax.middle", CUBE, |x| ops::softmax(&x[0], 1)),
    case("softmax.transposed", CUBE, |x| ops::softmax(&ops::transpose(&x[0], 0, 2)?, 0)),
    case("softmax_as", X, |x| ops::softmax_as(&x[0], 1, x[0].dtype())),
    case("log_softmax_as", CUBE, |x| ops::log_softmax_as(&x[0], 1, x[0].dtype())),
    case("log_softmax", X, |x| ops::log_softmax(&x[0], 1)),
    case("log_softmax.first", CUBE, |x| ops::log_softmax(&x[0], 0)),
    case("group_norm", CHANNELS, |x| ops::group_norm(&x[0], 2, Some(&x[1]), Some(&x[2]), 1e-5)),
    case("group_norm.one_position", &[tensor(&[3, 4]), positive(&[4]), tensor(&[4])], |x| {
        ops::group_norm(&x[0], 2, Some(&x[1]), Some(&x[2]), 1e-5)
    }),
    case("group_norm.one_position_plain", &[tensor(&[3, 6, 1])], |x| ops::group_norm(&x[0], 2, None, None, 1e-5)),
    case("group_norm.plain", CUBE, |x| ops::group_norm(&x[0], 3, None, None, 1e-5)),
    case("group_norm.transposed", &[tensor(&[4, 3, 2, 3]), positive(&[4])], |x| {
        ops::group_norm(&ops::transpose(&x[0], 0, 1)?, 1, Some(&x[1]), None, 1e-5)
    }),
    case("layer_norm", NORM, |x| ops::layer_norm(&x[0], &[6], Some(&x[1]), Some(&x[2]), 1e-5)),
    case("layer_norm.plain", X, |x| ops::layer_norm(&x[0], &[5], None, None, 1e-5)),
    case("rms_norm", &[tensor(&[4, 6]), positive(&[6])], |x| ops::rms_norm(&x[0], &[6], Some(&x[1]), 1e-5)),
    case("batch_norm", CHANNELS, |x| normalised(x, true)),
    case("batch_norm.evaluation", CHANNELS, |x| normalised(x, false)),
    case("batch_norm.plain", &[tensor(&[3, 4, 2, 3])], |x| normalised(x, true)),
    case("batch_norm.transposed", &[tensor(&[4, 3, 2, 3]), positive(&[4]), tensor(&[4])], |x| {
        normalised(&[ops::transpose(&x[0], 0, 1)?, x[1].clone(), x[2].clone()], true)
    }),
    case("batch_norm.channels_last", &[tensor(&[3, 2, 3, 4]), positive(&[4]), tensor(&[4])], |x| {
        normalised(&[ops::permute(&x[0], &[0, 3, 1, 2])?, x[1].clone(), x[2].clone()], false)
    }),
    case("batch_norm.transposed_back", CHANNELS, |x| ops::contiguous(&ops::transpose(&normalised(x, true)?, 0, 1)?)),
    case("batch_norm.rows", &[tensor(&[6, 4]), positive(&[4]), tensor(&[4])], |x| normalised(x, true)),
    case("instance_norm", INSTANCES, |x| ops::instance_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-5)),
];
