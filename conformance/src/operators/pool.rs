//! Cases of `memcore::ops`, folder `pool`.

use memcore::ops::{self, Pool2dGeometry, Pool3dGeometry};

use super::arguments::{IMAGE, OperatorCase, VOLUME, case, tensor, window};

const OVERLAPPING: Pool3dGeometry = Pool3dGeometry { window: [2, 3, 2], stride: [1, 2, 2], padding: [0, 1, 1] };

pub(super) const CASES: &[OperatorCase] = &[
    case("max_pool2d", IMAGE, |x| ops::max_pool2d(&x[0], window([2, 2], [2, 2], [0, 0]))),
    case("max_pool2d.overlapping", IMAGE, |x| ops::max_pool2d(&x[0], window([3, 3], [2, 1], [1, 1]))),
    case("avg_pool2d", IMAGE, |x| ops::avg_pool2d(&x[0], window([2, 3], [2, 2], [1, 1]))),
    case("adaptive_avg_pool2d", IMAGE, |x| ops::adaptive_avg_pool2d(&x[0], [1, 1])),
    case("adaptive_avg_pool2d.larger", IMAGE, |x| ops::adaptive_avg_pool2d(&x[0], [2, 3])),
    case("max_pool2d_ceil", &[tensor(&[2, 3, 6, 7])], |x| {
        ops::max_pool2d_ceil(&x[0], Pool2dGeometry { window: [3, 2], stride: [2, 2], padding: [0, 0] })
    }),
    case("max_pool2d_ceil.even", IMAGE, |x| {
        ops::max_pool2d_ceil(&x[0], Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] })
    }),
    case("max_pool3d", VOLUME, |x| ops::max_pool3d(&x[0], OVERLAPPING)),
    case("avg_pool3d", VOLUME, |x| ops::avg_pool3d(&x[0], OVERLAPPING)),
    case("adaptive_avg_pool3d", VOLUME, |x| ops::adaptive_avg_pool3d(&x[0], [2, 3, 1])),
    case("adaptive_avg_pool3d.one", VOLUME, |x| ops::adaptive_avg_pool3d(&x[0], [1, 1, 1])),
    case("adaptive_max_pool", IMAGE, |x| Ok(ops::adaptive_max_pool(&x[0], &[3, 2])?.0)),
    case("adaptive_max_pool.volume", VOLUME, |x| Ok(ops::adaptive_max_pool(&x[0], &[2, 3, 1])?.0)),
    case("max_unpool2d", IMAGE, |x| {
        let geometry = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };
        let (y, places) = ops::max_pool2d_with_indices(&x[0], geometry)?;
        ops::max_unpool2d(&y, &places, [x[0].dims()[2], x[0].dims()[3]])
    }),
    case("max_pool2d_with_indices", IMAGE, |x| {
        let geometry = Pool2dGeometry { window: [2, 3], stride: [2, 1], padding: [0, 1] };
        Ok(ops::max_pool2d_with_indices(&x[0], geometry)?.0)
    }),
];
