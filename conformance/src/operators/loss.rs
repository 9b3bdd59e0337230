//! Cases of `memcore::ops`, folder `loss`.

use memcore::ops::{self, Counting, Reduction};
use memcore::{Array, Result, Tensor};

use super::arguments::{CUBE, FRACTIONS, IMAGE, OperatorCase, SAME, X, case, constant, indices, positive, tensor};

/// A class for each position of `x` `[n, classes, ..]`; one of them is ignored.
fn planes(x: &Tensor) -> Result<Tensor> {
    let dims = [&x.dims()[..1], &x.dims()[2..]].concat();
    let count: usize = dims.iter().product();
    let class = |i| if i == 2 { ops::IGNORE_INDEX } else { (i * 5 % 3 % x.dims()[1]) as i64 };
    indices(x.device(), &dims, &(0..count).map(class).collect::<Vec<_>>())
}

pub(super) const CASES: &[OperatorCase] = &[
    case("l1_loss", SAME, |x| ops::l1_loss(&x[0], &x[1], Reduction::Mean)),
    case("smooth_l1_loss", SAME, |x| ops::smooth_l1_loss(&x[0], &x[1], Reduction::Mean, 0.6)),
    case("huber_loss", SAME, |x| ops::huber_loss(&x[0], &x[1], Reduction::Sum, 0.6)),
    case("binary_cross_entropy_with_logits", SAME, |x| {
        ops::binary_cross_entropy_with_logits(&x[0], &x[1], Reduction::Mean)
    }),
    case("mse_loss", SAME, |x| ops::mse_loss(&x[0], &x[1], Reduction::Mean)),
    case("mse_loss.sum", SAME, |x| ops::mse_loss(&x[0], &x[1], Reduction::Sum)),
    case("cross_entropy", X, |x| {
        ops::cross_entropy(&x[0], &indices(x[0].device(), &[3], &[4, 0, 4])?, Reduction::Mean)
    }),
    case("cross_entropy.ignored", X, |x| {
        let targets = indices(x[0].device(), &[3], &[1, ops::IGNORE_INDEX, 3])?;
        ops::cross_entropy(&x[0], &targets, Reduction::Mean)
    }),
    case("cross_entropy.planes", IMAGE, |x| ops::cross_entropy(&x[0], &planes(&x[0])?, Reduction::Mean)),
    case("cross_entropy.positions", CUBE, |x| {
        let losses = ops::cross_entropy(&x[0], &planes(&x[0])?, Reduction::None)?;
        ops::contiguous(&ops::t(&losses)?)
    }),
    case("cross_entropy.one", &[tensor(&[5])], |x| {
        ops::cross_entropy(&x[0], &indices(x[0].device(), &[], &[3])?, Reduction::Mean)
    }),
    case("cross_entropy_smooth", X, |x| {
        let targets = indices(x[0].device(), &[3], &[1, ops::IGNORE_INDEX, 3])?;
        ops::cross_entropy_smooth(&x[0], &targets, Reduction::Mean, 0.1)
    }),
    case("cross_entropy_smooth.planes", IMAGE, |x| {
        ops::cross_entropy_smooth(&x[0], &planes(&x[0])?, Reduction::None, 0.3)
    }),
    case("nll_loss.planes", CUBE, |x| ops::nll_loss(&x[0], &planes(&x[0])?, Reduction::Sum)),
    case("nll_loss.sum", X, |x| ops::nll_loss(&x[0], &indices(x[0].device(), &[3], &[4, 0, 4])?, Reduction::Sum)),
    case("binary_cross_entropy", FRACTIONS, |x| {
        ops::binary_cross_entropy(&x[0], &Tensor::from_array(x[0].array().zeros_like()?), Reduction::Mean)
    }),
    case("binary_cross_entropy.each", FRACTIONS, |x| {
        let target = memcore::Array::full(x[0].device(), x[0].dims(), x[0].dtype(), 0.25)?;
        ops::binary_cross_entropy(&x[0], &Tensor::from_array(target), Reduction::None)
    }),
    case("kl_div", X, |x| ops::kl_div(&x[0], &constant(&x[0], 0.3)?, Reduction::Sum, false)),
    case("kl_div.logarithms", SAME, |x| ops::kl_div(&x[0], &x[1], Reduction::Mean, true)),
    case("cosine_similarity", &[positive(&[3, 5]), positive(&[3, 5])], |x| {
        ops::cosine_similarity(&x[0], &x[1], 1, 1e-8)
    }),
    case("pairwise_distance", SAME, |x| ops::pairwise_distance(&x[0], &x[1], 1e-6, false)),
    case("margin_ranking_loss", SAME, |x| {
        ops::margin_ranking_loss(&x[0], &x[1], &constant(&x[0], -1.0)?, 0.5, Reduction::Mean)
    }),
    case("triplet_margin_loss", &[tensor(&[3, 5]), tensor(&[3, 5]), tensor(&[3, 5])], |x| {
        ops::triplet_margin_loss([&x[0], &x[1], &x[2]], 2.0, 1e-6, Reduction::Sum)
    }),
    case("cross_entropy_counting", &[tensor(&[3, 4, 2])], |x| {
        let target = indices(x[0].device(), &[3, 2], &[0, 3, 1, 1, 2, 0])?;
        let weight = Tensor::from_array(Array::uniform(x[0].device(), &[4], x[0].dtype(), 0.5, 1.5)?);
        let counting = Counting { ignored: 1, weight: Some(&weight) };
        ops::cross_entropy_counting(&x[0], &target, Reduction::Mean, counting)
    }),
    case("nll_loss_counting", &[tensor(&[3, 4])], |x| {
        let target = indices(x[0].device(), &[3], &[0, 1, 3])?;
        ops::nll_loss_counting(&x[0], &target, Reduction::Mean, Counting { ignored: 1, weight: None })
    }),
];
