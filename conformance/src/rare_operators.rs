//! Differentiable operators that few networks use: further functions and reductions, elements by index, products of other forms.

use memcore::backend::kernel::Reduction;
use memcore::ops::{
    self, Conv1dGeometry, Conv2dGeometry, Counting, Edge, Interpolation, Pool2dGeometry, Pool3dGeometry, ResizedAxis,
};
use memcore::{Array, Result, Tensor};

use crate::further_operators::{copied, joined};
use crate::operators::{Argument, CUBE, IMAGE, OperatorCase, SAME, X, case, indices, of, positive};

const ROOTS: &[Argument] = &[positive(&[3, 5])];
const SIGNED: &[Argument] = &[Argument { dims: &[3, 5], low: 0.1, high: 0.9 }];
const BATCHES: &[Argument] = &[of(&[2, 3, 5]), of(&[2, 3, 4]), of(&[2, 4, 5])];
const ROW_AND_BATCHES: &[Argument] = &[of(&[5]), of(&[2, 3, 4]), of(&[2, 4, 5])];
const WRITTEN: &[Argument] = &[of(&[3, 5]), of(&[3, 2])];
const SLICES: &[Argument] = &[of(&[4, 3]), of(&[2, 3])];
const CHANNELS: &[Argument] = &[of(&[2, 3, 4, 2]), positive(&[3]), of(&[3])];

/// Two different elements of each row.
fn two_of_five(x: &Tensor) -> Result<Tensor> {
    indices(x.device(), &[3, 2], &[4, 0, 1, 3, 2, 4])
}

/// Two different rows of four.
fn two_rows(x: &Tensor) -> Result<Tensor> {
    indices(x.device(), &[2], &[3, 1])
}

/// A constant of the sizes of `x`.
fn constant(x: &Tensor, value: f64) -> Result<Tensor> {
    Ok(Tensor::from_array(Array::full(x.device(), x.dims(), x.dtype(), value)?))
}

/// Numbers between 2 and 3, and between 0.6 and 0.9.
const FEW: &[Argument] =
    &[Argument { dims: &[3, 5], low: 2.1, high: 2.3 }, Argument { dims: &[3, 5], low: 0.8, high: 0.9 }];
const PAIR: &[Argument] = &[of(&[3, 5]), of(&[3, 5])];
const PATCHES: Conv2dGeometry = Conv2dGeometry { stride: [2, 1], padding: [1, 0], dilation: [1, 2], groups: 1 };
const VOLUME: &[Argument] = &[of(&[1, 2, 3, 4, 5])];
const OVERLAPPING: Pool3dGeometry = Pool3dGeometry { window: [2, 3, 2], stride: [1, 2, 2], padding: [0, 1, 1] };

/// A volume in other sizes.
fn volume(x: &Tensor, mode: Interpolation) -> Result<Tensor> {
    ops::interpolate(x, &[5, 3, 8].map(|size| ResizedAxis { size, factor: None }), mode, false)
}

/// Rows of three groups, one of which has none, and their matrices.
const GROUPED: &[Argument] = &[of(&[5, 8]), of(&[3, 8, 8])];

/// The ends of the groups.
fn ends(x: &Tensor) -> Result<Tensor> {
    Tensor::from_slice(x.device(), &[3], &[2i32, 2, 5])
}

/// The cases.
pub(crate) const RARE: &[OperatorCase] = &[
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
    case("asin", SIGNED, |x| ops::asin(&x[0])),
    case("acos", SIGNED, |x| ops::acos(&x[0])),
    case("logit", SIGNED, |x| ops::logit(&x[0])),
    case("sigmoid_", X, |x| ops::sigmoid_(&copied(&x[0])?)),
    case("tanh_", X, |x| ops::tanh_(&copied(&x[0])?)),
    case("exp_", X, |x| ops::exp_(&copied(&x[0])?)),
    case("clamp_", SIGNED, |x| ops::clamp_(&copied(&x[0])?, 0.05, 0.5)),
    case("sub_", PAIR, |x| ops::sub_(&copied(&x[0])?, &x[1])),
    case("amin", CUBE, |x| ops::amin(&x[0], &[1], true)),
    case("max_all", X, |x| ops::max_all(&x[0])),
    case("min_all", X, |x| ops::min_all(&x[0])),
    case("diagonal", CUBE, |x| ops::diagonal(&x[0], 1, 1, 2)),
    case("diagonal.below", CUBE, |x| ops::diagonal(&x[0], -1, 2, 0)),
    case("unfold_axis", CUBE, |x| ops::unfold_axis(&x[0], 1, 2, 1)),
    case("unfold_axis.apart", CUBE, |x| ops::unfold_axis(&x[0], 2, 2, 2)),
    case("floor", SIGNED, |x| ops::floor(&x[0])),
    case("ceil", SIGNED, |x| ops::ceil(&x[0])),
    case("round", &[Argument { dims: &[3, 5], low: 0.6, high: 0.9 }], |x| ops::round(&x[0])),
    case("trunc", SIGNED, |x| ops::trunc(&x[0])),
    case("sign", SIGNED, |x| ops::sign(&x[0])),
    case("threshold", ROOTS, |x| ops::threshold(&x[0], 0.2, 3.0)),
    case("hardshrink", ROOTS, |x| ops::hardshrink(&x[0], 0.3)),
    case("softshrink", ROOTS, |x| ops::softshrink(&x[0], 0.3)),
    case("glu", &[of(&[3, 4])], |x| ops::glu(&x[0], 1)),
    case("glu.first", &[of(&[4, 3])], |x| ops::glu(&x[0], 0)),
    case("var", CUBE, |x| ops::var(&x[0], &[1], 1.0, false)),
    case("var.all", CUBE, |x| ops::var(&x[0], &[], 0.0, false)),
    case("std", CUBE, |x| ops::std(&x[0], &[2], 1.0, true)),
    case("std.two", CUBE, |x| ops::std(&x[0], &[0, 2], 0.0, false)),
    case("var_mean", CUBE, |x| joined(&ops::var_mean(&x[0], &[1], 1.0, true)?)),
    case("std_mean", CUBE, |x| joined(&ops::std_mean(&x[0], &[1], 1.0, false)?)),
    case("norm_sum", &[positive(&[2, 3, 4])], |x| ops::norm_sum(&x[0], &[1], false)),
    case("kl_div", X, |x| ops::kl_div(&x[0], &constant(&x[0], 0.3)?, Reduction::Sum, false)),
    case("kl_div.logarithms", SAME, |x| ops::kl_div(&x[0], &x[1], Reduction::Mean, true)),
    case("cosine_similarity", &[positive(&[3, 5]), positive(&[3, 5])], |x| {
        ops::cosine_similarity(&x[0], &x[1], 1, 1e-8)
    }),
    case("scatter", WRITTEN, |x| ops::scatter(&x[0], 1, &two_of_five(&x[0])?, &x[1])),
    case("scatter_value", X, |x| ops::scatter_value(&x[0], 1, &two_of_five(&x[0])?, 0.7)),
    case("scatter_add", WRITTEN, |x| {
        ops::scatter_add(&x[0], 1, &indices(x[0].device(), &[3, 2], &[4, 4, 1, 3, 2, 2])?, &x[1])
    }),
    case("scatter_add_", WRITTEN, |x| ops::scatter_add_(&copied(&x[0])?, 1, &two_of_five(&x[0])?, &x[1])),
    case("index_add", SLICES, |x| ops::index_add(&x[0], 0, &indices(x[0].device(), &[2], &[3, 3])?, &x[1], 0.5)),
    case("index_add_", SLICES, |x| ops::index_add_(&copied(&x[0])?, 0, &two_rows(&x[0])?, &x[1], 1.0)),
    case("index_copy", SLICES, |x| ops::index_copy(&x[0], 0, &two_rows(&x[0])?, &x[1])),
    case("index_put", SLICES, |x| ops::index_put(&x[0], &two_rows(&x[0])?, &x[1])),
    case("index_put_", SLICES, |x| ops::index_put_(&copied(&x[0])?, &two_rows(&x[0])?, &x[1])),
    case("unfold", IMAGE, |x| ops::unfold(&x[0], [3, 2], PATCHES)),
    case("fold", &[of(&[2, 12, 12])], |x| ops::fold(&x[0], [6, 6], [3, 2], PATCHES)),
    case("conv_transpose1d", &[of(&[2, 4, 5]), of(&[4, 3, 4]), of(&[3])], |x| {
        let geometry = Conv1dGeometry { stride: 2, padding: 1, dilation: 1, groups: 1 };
        ops::conv_transpose1d(&x[0], &x[1], Some(&x[2]), geometry, 1)
    }),
    case("pairwise_distance", PAIR, |x| ops::pairwise_distance(&x[0], &x[1], 1e-6, false)),
    case("margin_ranking_loss", PAIR, |x| {
        ops::margin_ranking_loss(&x[0], &x[1], &constant(&x[0], -1.0)?, 0.5, Reduction::Mean)
    }),
    case("triplet_margin_loss", &[of(&[3, 5]), of(&[3, 5]), of(&[3, 5])], |x| {
        ops::triplet_margin_loss([&x[0], &x[1], &x[2]], 2.0, 1e-6, Reduction::Sum)
    }),
    case("max_pool3d", VOLUME, |x| ops::max_pool3d(&x[0], OVERLAPPING)),
    case("avg_pool3d", VOLUME, |x| ops::avg_pool3d(&x[0], OVERLAPPING)),
    case("adaptive_avg_pool3d", VOLUME, |x| ops::adaptive_avg_pool3d(&x[0], [2, 3, 1])),
    case("adaptive_avg_pool3d.one", VOLUME, |x| ops::adaptive_avg_pool3d(&x[0], [1, 1, 1])),
    case("adaptive_max_pool", IMAGE, |x| Ok(ops::adaptive_max_pool(&x[0], &[3, 2])?.0)),
    case("adaptive_max_pool.volume", VOLUME, |x| Ok(ops::adaptive_max_pool(&x[0], &[2, 3, 1])?.0)),
    case("interpolate.volume_nearest", VOLUME, |x| volume(&x[0], Interpolation::Nearest)),
    case("interpolate.volume_linear", VOLUME, |x| volume(&x[0], Interpolation::Linear)),
    case("pad_edges.volume", VOLUME, |x| ops::pad_edges(&x[0], &[[1, 2], [0, 1], [3, 0]], Edge::Reflected)),
    case("pad_edges.volume_repeated", VOLUME, |x| ops::pad_edges(&x[0], &[[1, 2], [0, 1], [3, 0]], Edge::Repeated)),
    case("sort", CUBE, |x| Ok(ops::sort(&x[0], 1, false)?.0)),
    case("sort.descending", X, |x| Ok(ops::sort(&x[0], 1, true)?.0)),
    case("topk", CUBE, |x| Ok(ops::topk(&x[0], 2, 2, true)?.0)),
    case("topk.smallest", X, |x| Ok(ops::topk(&x[0], 2, 0, false)?.0)),
    case("grouped_mm", GROUPED, |x| ops::grouped_mm(&x[0], &x[1], &ends(&x[0])?)),
    case("grouped_mm.transposed", GROUPED, |x| ops::grouped_mm(&x[0], &ops::transpose(&x[1], 1, 2)?, &ends(&x[0])?)),
    case("grouped_mm_in_turn", GROUPED, |x| ops::grouped_mm_in_turn(&x[0], &x[1], &ends(&x[0])?)),
    case("pow_tensors", &[positive(&[3, 5]), of(&[3, 5])], |x| ops::pow_tensors(&x[0], &x[1])),
    case("pad_edges", IMAGE, |x| ops::pad_edges(&x[0], &[[2, 1], [0, 3]], Edge::Reflected)),
    case("pad_edges.repeated", IMAGE, |x| ops::pad_edges(&x[0], &[[2, 1], [0, 3]], Edge::Repeated)),
    case("pad_edges.line", CUBE, |x| ops::pad_edges(&x[0], &[[1, 2]], Edge::Reflected)),
    case("pixel_unshuffle", IMAGE, |x| ops::pixel_unshuffle(&x[0], 2)),
    case("baddbmm", BATCHES, |x| ops::baddbmm(&x[0], &x[1], &x[2], 1.0, 1.0)),
    case("baddbmm.factors", ROW_AND_BATCHES, |x| ops::baddbmm(&x[0], &x[1], &x[2], 2.0, 0.5)),
    case("mv", &[of(&[3, 5]), of(&[5])], |x| ops::mv(&x[0], &x[1])),
    case("dot", &[of(&[5]), of(&[5])], |x| ops::dot(&x[0], &x[1])),
    case("einsum", &[of(&[2, 3, 4]), of(&[2, 5, 4])], |x| ops::einsum("bij,bkj->bik", &[&x[0], &x[1]])),
    case("einsum.heads", &[of(&[2, 3, 2, 4]), of(&[2, 5, 2, 4])], |x| ops::einsum("bthd,bshd->bhts", &[&x[0], &x[1]])),
    case("einsum.one", CUBE, |x| ops::einsum("ijk->ki", &[&x[0]])),
    case("einsum.outer", &[of(&[3]), of(&[4])], |x| ops::einsum("i,j->ij", &[&x[0], &x[1]])),
    case("einsum.alone", &[of(&[3, 2]), of(&[3, 4])], |x| ops::einsum("ij,ik->k", &[&x[0], &x[1]])),
    case("einsum.implicit", &[of(&[3, 2]), of(&[2, 4])], |x| ops::einsum("ij,jk", &[&x[0], &x[1]])),
    case("einsum.three", &[of(&[2, 3]), of(&[3, 4]), of(&[4, 2])], |x| {
        ops::einsum("ij,jk,kl->il", &[&x[0], &x[1], &x[2]])
    }),
    case("einsum.forms", &[of(&[2, 3]), of(&[3, 4]), of(&[2, 4])], |x| {
        ops::einsum("bi,ij,bj->b", &[&x[0], &x[1], &x[2]])
    }),
    case("einsum_along", &[of(&[2, 3]), of(&[3, 4]), of(&[4, 2])], |x| {
        ops::einsum_along("ij,jk,kl->il", &[&x[0], &x[1], &x[2]], &[1, 2, 0, 1])
    }),
    case("einsum.ellipsis", &[of(&[2, 3, 4]), of(&[4, 2])], |x| ops::einsum("...ij,jk->...ik", &[&x[0], &x[1]])),
    case("einsum.ellipses", &[of(&[2, 1, 3, 4]), of(&[5, 3, 4])], |x| ops::einsum("...j,...j->...", &[&x[0], &x[1]])),
    case("einsum.diagonal", &[of(&[2, 3, 3])], |x| ops::einsum("bii->bi", &[&x[0]])),
    case("einsum.trace", &[of(&[2, 3, 3]), of(&[2, 4])], |x| ops::einsum("bii,bj->j", &[&x[0], &x[1]])),
    case("atan2", &[of(&[3, 5]), of(&[5])], |x| ops::atan2(&x[0], &x[1])),
    case("asinh", X, |x| ops::asinh(&x[0])),
    case("acosh", ROOTS, |x| ops::acosh(&ops::add_scalar(&x[0], 1.0)?)),
    case("atanh", SIGNED, |x| ops::atanh(&x[0])),
    case("logaddexp", PAIR, |x| ops::logaddexp(&x[0], &x[1])),
    case("lerp_by", &[of(&[3, 5]), of(&[5]), of(&[3, 1])], |x| ops::lerp_by(&x[0], &x[1], &x[2])),
    case("addcdiv", &[of(&[3, 5]), of(&[5]), positive(&[3, 5])], |x| ops::addcdiv(&x[0], &x[1], &x[2], 0.5)),
    case("fmod", FEW, |x| ops::fmod(&x[0], &x[1])),
    case("remainder", FEW, |x| ops::remainder(&ops::neg(&x[0])?, &x[1])),
    case("frac", SIGNED, |x| ops::frac(&x[0])),
    case("fmod_by", SIGNED, |x| ops::fmod_by(&x[0], 2.0)),
    case("remainder_by", SIGNED, |x| ops::remainder_by(&ops::neg(&x[0])?, 2.0)),
    case("nan_to_num", X, |x| ops::nan_to_num(&x[0], [0.0, 1.0, -1.0])),
    case("cdist", &[of(&[2, 3, 4]), of(&[2, 5, 4])], |x| ops::cdist(&x[0], &x[1], 2.0)),
    case("cdist.third", &[of(&[3, 4]), of(&[5, 4])], |x| ops::cdist(&x[0], &x[1], 3.0)),
    case("cdist.multiplied", &[of(&[27, 2]), of(&[3, 2])], |x| ops::cdist(&x[0], &x[1], 2.0)),
    case("cumprod", CUBE, |x| ops::cumprod(&x[0], 1)),
    case("cummax", CUBE, |x| Ok(ops::cummax(&x[0], 1)?.0)),
    case("cummin", CUBE, |x| Ok(ops::cummin(&x[0], 2)?.0)),
    case("median_axis", CUBE, |x| Ok(ops::median_axis(&x[0], 1, false)?.0)),
    case("kth_value", CUBE, |x| Ok(ops::kth_value(&x[0], 2, 0, true)?.0)),
    case("rot90", IMAGE, |x| ops::rot90(&x[0], 1, [2, 3])),
    case("rot90.thrice", IMAGE, |x| ops::rot90(&x[0], -1, [3, 1])),
    case("rot90.twice", X, |x| ops::rot90(&x[0], 2, [0, 1])),
    case("diag_embed", X, |x| ops::diag_embed(&x[0], 1, 1, 2)),
    case("diag_embed.first", X, |x| ops::diag_embed(&x[0], -1, 2, 0)),
    case("max_unpool2d", IMAGE, |x| {
        let geometry = Pool2dGeometry { window: [2, 2], stride: [2, 2], padding: [0, 0] };
        let (y, places) = ops::max_pool2d_with_indices(&x[0], geometry)?;
        ops::max_unpool2d(&y, &places, [x[0].dims()[2], x[0].dims()[3]])
    }),
    case("max_pool2d_with_indices", IMAGE, |x| {
        let geometry = Pool2dGeometry { window: [2, 3], stride: [2, 1], padding: [0, 1] };
        Ok(ops::max_pool2d_with_indices(&x[0], geometry)?.0)
    }),
    case("hardsigmoid_", X, |x| ops::hardsigmoid_(&copied(&x[0])?)),
    case("mish_", X, |x| ops::mish_(&copied(&x[0])?)),
    case("hardtanh_", SIGNED, |x| ops::hardtanh_(&copied(&x[0])?, -0.5, 2.0)),
    case("elu_scaled_", X, |x| ops::elu_scaled_(&copied(&x[0])?, "elu_", 1.5, 0.5, 2.0)),
    case("cross_entropy_counting", &[of(&[3, 4, 2])], |x| {
        let target = indices(x[0].device(), &[3, 2], &[0, 3, 1, 1, 2, 0])?;
        let weight = Tensor::from_array(Array::uniform(x[0].device(), &[4], x[0].dtype(), 0.5, 1.5)?);
        let counting = Counting { ignored: 1, weight: Some(&weight) };
        ops::cross_entropy_counting(&x[0], &target, Reduction::Mean, counting)
    }),
    case("nll_loss_counting", &[of(&[3, 4])], |x| {
        let target = indices(x[0].device(), &[3], &[0, 1, 3])?;
        ops::nll_loss_counting(&x[0], &target, Reduction::Mean, Counting { ignored: 1, weight: None })
    }),
    case("addcmul", &[of(&[3, 5]), of(&[3, 5]), of(&[5])], |x| ops::addcmul(&x[0], &x[1], &x[2], 0.5)),
    case("lerp", &[of(&[3, 5]), of(&[5])], |x| ops::lerp(&x[0], &x[1], 0.3)),
    case("clamp_between", X, |x| {
        ops::clamp_between(&x[0], Some(&constant(&x[0], -0.53)?), Some(&constant(&x[0], 0.47)?))
    }),
    case("clamp_between.one", X, |x| ops::clamp_between(&x[0], Some(&constant(&x[0], -0.13)?), None)),
    case("instance_norm", CHANNELS, |x| ops::instance_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-5)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_outside_are_refused() {
        let device = memcore::Device::new(crate::reference::Reference::default());
        let x = Tensor::from_slice(&device, &[2, 2], &[1.0f32; 4]).unwrap();
        let outside = indices(&device, &[1], &[2]).unwrap();
        let row = Tensor::from_slice(&device, &[1, 2], &[1.0f32; 2]).unwrap();
        assert!(ops::index_add(&x, 0, &outside, &row, 1.0).is_err());
        assert!(ops::scatter_value(&x, 1, &indices(&device, &[1, 1], &[-1]).unwrap(), 1.0).is_err());
    }

    #[test]
    fn equations_that_are_not_represented_are_refused() {
        let device = memcore::Device::new(crate::reference::Reference::default());
        let x = Tensor::from_slice(&device, &[2, 2], &[1.0f32; 4]).unwrap();
        for equation in ["....i->i", "ij->ii", "ij->k", "ijk->i", "ij,jk->ik", "i.j->i"] {
            assert!(ops::einsum(equation, &[&x]).is_err(), "{equation}");
        }
    }
}
