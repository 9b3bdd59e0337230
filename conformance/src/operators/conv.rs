//! Cases of `memcore::ops`, folder `conv`.

use memcore::ops::{self, Conv1dGeometry, Conv2dGeometry, Pool1dGeometry};

use super::arguments::{Argument, IMAGE, OperatorCase, case, geometry, positive, tensor};

const CONVOLUTION: &[Argument] = &[tensor(&[2, 4, 6, 6]), tensor(&[6, 4, 3, 3]), tensor(&[6])];
const GROUPED: &[Argument] = &[tensor(&[2, 4, 7, 6]), tensor(&[6, 2, 3, 3])];
const LINES: &[Argument] = &[tensor(&[2, 4, 9]), tensor(&[6, 4, 3]), tensor(&[6])];
const GROUPED_LINES: &[Argument] = &[tensor(&[2, 4, 9]), tensor(&[6, 2, 2])];
const LENGTHS: &[Argument] = &[tensor(&[3, 2, 4]), positive(&[1, 1, 4])];
const POOL: Pool1dGeometry = Pool1dGeometry { window: 3, stride: 2, padding: 1 };
const PATCHES: Conv2dGeometry = Conv2dGeometry { stride: [2, 1], padding: [1, 0], dilation: [1, 2], groups: 1 };

pub(super) const CASES: &[OperatorCase] = &[
    case("conv2d", CONVOLUTION, |x| ops::conv2d(&x[0], &x[1], Some(&x[2]), geometry([1, 1], [0, 0], [1, 1], 1))),
    case("conv2d.strided", CONVOLUTION, |x| {
        ops::conv2d(&x[0], &x[1], Some(&x[2]), geometry([2, 1], [1, 2], [1, 2], 1))
    }),
    case("conv2d.grouped", GROUPED, |x| ops::conv2d(&x[0], &x[1], None, geometry([1, 2], [1, 1], [2, 1], 2))),
    case("conv_transpose2d", &[tensor(&[2, 6, 4, 4]), tensor(&[6, 4, 3, 3]), tensor(&[4])], |x| {
        ops::conv_transpose2d(&x[0], &x[1], Some(&x[2]), geometry([1, 1], [0, 0], [1, 1], 1), [0, 0])
    }),
    case("conv_transpose2d.strided", &[tensor(&[2, 3, 4, 3]), tensor(&[3, 4, 3, 2])], |x| {
        ops::conv_transpose2d(&x[0], &x[1], None, geometry([2, 3], [1, 0], [1, 2], 1), [1, 2])
    }),
    case("conv1d", LINES, |x| {
        let geometry = Conv1dGeometry { stride: 2, padding: 1, dilation: 1, groups: 1 };
        ops::conv1d(&x[0], &x[1], Some(&x[2]), geometry)
    }),
    case("conv1d.grouped", GROUPED_LINES, |x| {
        ops::conv1d(&x[0], &x[1], None, Conv1dGeometry { stride: 1, padding: 0, dilation: 2, groups: 2 })
    }),
    case("max_pool1d", &[tensor(&[2, 3, 9])], |x| ops::max_pool1d(&x[0], POOL)),
    case("avg_pool1d", &[tensor(&[2, 3, 9])], |x| ops::avg_pool1d(&x[0], POOL)),
    case("adaptive_avg_pool1d", &[tensor(&[2, 3, 8])], |x| ops::adaptive_avg_pool1d(&x[0], 4)),
    case("weight_norm", LENGTHS, |x| ops::weight_norm(&x[0], &x[1], 2)),
    case("weight_norm.first", &[tensor(&[3, 2, 4]), positive(&[3, 1, 1])], |x| ops::weight_norm(&x[0], &x[1], 0)),
    case("unfold", IMAGE, |x| ops::unfold(&x[0], [3, 2], PATCHES)),
    case("fold", &[tensor(&[2, 12, 12])], |x| ops::fold(&x[0], [6, 6], [3, 2], PATCHES)),
    case("conv_transpose1d", &[tensor(&[2, 4, 5]), tensor(&[4, 3, 4]), tensor(&[3])], |x| {
        let geometry = Conv1dGeometry { stride: 2, padding: 1, dilation: 1, groups: 1 };
        ops::conv_transpose1d(&x[0], &x[1], Some(&x[2]), geometry, 1)
    }),
];
