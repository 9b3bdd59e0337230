//! Cases of `memcore::ops`, folder `shape`.

use memcore::ops;
use memcore::{Result, Tensor};

use super::arguments::{CUBE, IMAGE, OperatorCase, SAME, X, case, tensor};

/// Joins several results into one, so that each has another gradient.
fn joined(parts: &[Tensor], axis: usize) -> Result<Tensor> {
    ops::cat(&parts.iter().rev().collect::<Vec<_>>(), axis)
}

pub(super) const CASES: &[OperatorCase] = &[
    case("clone", X, |x| ops::clone(&x[0])),
    case("view", CUBE, |x| ops::view(&x[0], &[6, 4])),
    case("reshape.transposed", X, |x| ops::reshape(&ops::t(&x[0])?, &[15])),
    case("flatten", CUBE, |x| ops::flatten(&x[0], 1)),
    case("t", X, |x| ops::t(&x[0])),
    case("transpose", CUBE, |x| ops::transpose(&x[0], 0, 2)),
    case("permute", CUBE, |x| ops::permute(&x[0], &[2, 0, 1])),
    case("narrow", CUBE, |x| ops::narrow(&x[0], 2, 1, 2)),
    case("select", CUBE, |x| ops::select(&x[0], 1, 2)),
    case("unsqueeze", X, |x| ops::unsqueeze(&x[0], 1)),
    case("squeeze", &[tensor(&[3, 1, 5])], |x| ops::squeeze(&x[0], 1)),
    case("expand", &[tensor(&[3, 1, 5])], |x| ops::expand(&x[0], &[2, 3, 4, 5])),
    case("repeat", X, |x| ops::repeat(&x[0], &[2, 3])),
    case("contiguous", X, |x| ops::contiguous(&ops::t(&x[0])?)),
    case("cat", &[tensor(&[2, 3]), tensor(&[2, 1]), tensor(&[2, 4])], |x| ops::cat(&[&x[0], &x[1], &x[2]], 1)),
    case("stack", SAME, |x| ops::stack(&[&x[0], &x[1]], 1)),
    case("split", X, |x| joined(&ops::split(&x[0], 2, 1)?, 1)),
    case("split.unused", X, |x| Ok(ops::split(&x[0], 2, 1)?.swap_remove(1))),
    case("split_with_sizes", X, |x| joined(&ops::split_with_sizes(&x[0], &[1, 4], 1)?, 1)),
    case("chunk", X, |x| joined(&ops::chunk(&x[0], 3, 0)?, 0)),
    case("alias", X, |x| ops::alias(&x[0])),
    case("roll", CUBE, |x| ops::roll(&x[0], &[-1, 2], &[1, 2])),
    case("unbind", CUBE, |x| {
        let parts = ops::unbind(&x[0], 1)?;
        ops::add(&ops::mul_scalar(&parts[0], 2.0)?, &parts[2])
    }),
    case("flip", CUBE, |x| ops::flip(&x[0], &[0, 2])),
    case("pixel_shuffle", IMAGE, |x| ops::pixel_shuffle(&x[0], 2)),
    case("slice", CUBE, |x| ops::slice(&x[0], 2, [1, 3, 2])),
    case("diagonal", CUBE, |x| ops::diagonal(&x[0], 1, 1, 2)),
    case("diagonal.below", CUBE, |x| ops::diagonal(&x[0], -1, 2, 0)),
    case("unfold_axis", CUBE, |x| ops::unfold_axis(&x[0], 1, 2, 1)),
    case("unfold_axis.apart", CUBE, |x| ops::unfold_axis(&x[0], 2, 2, 2)),
    case("pixel_unshuffle", IMAGE, |x| ops::pixel_unshuffle(&x[0], 2)),
    case("rot90", IMAGE, |x| ops::rot90(&x[0], 1, [2, 3])),
    case("rot90.thrice", IMAGE, |x| ops::rot90(&x[0], -1, [3, 1])),
    case("rot90.twice", X, |x| ops::rot90(&x[0], 2, [0, 1])),
    case("diag_embed", X, |x| ops::diag_embed(&x[0], 1, 1, 2)),
    case("diag_embed.first", X, |x| ops::diag_embed(&x[0], -1, 2, 0)),
];
