//! Cases of `memcore::ops`, folder `resample`.

use memcore::ops::{self, Edge, Interpolation, ResizedAxis};
use memcore::{Result, Tensor};

use super::arguments::{CUBE, IMAGE, OperatorCase, VOLUME, case, volume};

fn resized(x: &Tensor, sizes: &[usize], mode: Interpolation, align_corners: bool) -> Result<Tensor> {
    let axes: Vec<ResizedAxis> = sizes.iter().map(|&size| ResizedAxis { size, factor: None }).collect();
    ops::interpolate(x, &axes, mode, align_corners)
}

pub(super) const CASES: &[OperatorCase] = &[
    case("upsample_nearest2d", IMAGE, |x| ops::upsample_nearest2d(&x[0], [2, 3])),
    case("pad", CUBE, |x| ops::pad(&x[0], &[[0, 1], [2, 0], [1, 3]], 0.5)),
    case("interpolate.nearest", IMAGE, |x| resized(&x[0], &[9, 4], Interpolation::Nearest, false)),
    case("interpolate.linear", IMAGE, |x| resized(&x[0], &[9, 4], Interpolation::Linear, false)),
    case("interpolate.corners", IMAGE, |x| resized(&x[0], &[9, 4], Interpolation::Linear, true)),
    case("interpolate.cubic", IMAGE, |x| resized(&x[0], &[9, 4], Interpolation::Cubic, false)),
    case("interpolate.line", CUBE, |x| resized(&x[0], &[7], Interpolation::Linear, false)),
    case("interpolate.volume_nearest", VOLUME, |x| volume(&x[0], Interpolation::Nearest)),
    case("interpolate.volume_linear", VOLUME, |x| volume(&x[0], Interpolation::Linear)),
    case("pad_edges.volume", VOLUME, |x| ops::pad_edges(&x[0], &[[1, 2], [0, 1], [3, 0]], Edge::Reflected)),
    case("pad_edges.volume_repeated", VOLUME, |x| ops::pad_edges(&x[0], &[[1, 2], [0, 1], [3, 0]], Edge::Repeated)),
    case("pad_edges", IMAGE, |x| ops::pad_edges(&x[0], &[[2, 1], [0, 3]], Edge::Reflected)),
    case("pad_edges.repeated", IMAGE, |x| ops::pad_edges(&x[0], &[[2, 1], [0, 3]], Edge::Repeated)),
    case("pad_edges.line", CUBE, |x| ops::pad_edges(&x[0], &[[1, 2]], Edge::Reflected)),
];
