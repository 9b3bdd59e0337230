//! Cases of `memcore::ops`, folder `reduce`.

use memcore::ops;

use super::arguments::{CUBE, OperatorCase, X, case, flattened, positive};

pub(super) const CASES: &[OperatorCase] = &[
    case("sum", X, |x| ops::sum(&x[0])),
    case("sum_axes", CUBE, |x| ops::sum_axes(&x[0], &[0, 2], false)),
    case("sum_axes.kept", CUBE, |x| ops::sum_axes(&x[0], &[1], true)),
    case("mean", X, |x| ops::mean(&x[0])),
    case("mean_axes", CUBE, |x| ops::mean_axes(&x[0], &[1], false)),
    case("max_axis", CUBE, |x| Ok(ops::max_axis(&x[0], 1, false)?.0)),
    case("min_axis.kept", CUBE, |x| Ok(ops::min_axis(&x[0], 2, true)?.0)),
    case("amax", CUBE, |x| ops::amax(&x[0], &[0, 2], false)),
    case("norm", X, |x| ops::norm(&x[0])),
    case("sum_as", CUBE, |x| ops::sum_as(&x[0], &[1], false, x[0].dtype())),
    case("mean_as", CUBE, |x| ops::mean_as(&x[0], &[0, 2], true, x[0].dtype())),
    case("logsumexp", CUBE, |x| ops::logsumexp(&x[0], &[1], false)),
    case("logsumexp.kept", CUBE, |x| ops::logsumexp(&x[0], &[0, 2], true)),
    case("norm_axes", &[positive(&[2, 3, 4])], |x| ops::norm_axes(&x[0], &[1], true)),
    case("norm_axes.last", &[positive(&[2, 3, 4])], |x| ops::norm_axes(&x[0], &[2], false)),
    case("cumsum", CUBE, |x| ops::cumsum(&x[0], 1)),
    case("amin", CUBE, |x| ops::amin(&x[0], &[1], true)),
    case("max_all", X, |x| ops::max_all(&x[0])),
    case("min_all", X, |x| ops::min_all(&x[0])),
    case("var", CUBE, |x| ops::var(&x[0], &[1], 1.0, false)),
    case("var.all", CUBE, |x| ops::var(&x[0], &[], 0.0, false)),
    case("std", CUBE, |x| ops::std(&x[0], &[2], 1.0, true)),
    case("std.two", CUBE, |x| ops::std(&x[0], &[0, 2], 0.0, false)),
    case("var_mean", CUBE, |x| flattened(&ops::var_mean(&x[0], &[1], 1.0, true)?)),
    case("std_mean", CUBE, |x| flattened(&ops::std_mean(&x[0], &[1], 1.0, false)?)),
    case("norm_sum", &[positive(&[2, 3, 4])], |x| ops::norm_sum(&x[0], &[1], false)),
    case("sort", CUBE, |x| Ok(ops::sort(&x[0], 1, false)?.0)),
    case("sort.descending", X, |x| Ok(ops::sort(&x[0], 1, true)?.0)),
    case("topk", CUBE, |x| Ok(ops::topk(&x[0], 2, 2, true)?.0)),
    case("topk.smallest", X, |x| Ok(ops::topk(&x[0], 2, 0, false)?.0)),
    case("cumprod", CUBE, |x| ops::cumprod(&x[0], 1)),
    case("cummax", CUBE, |x| Ok(ops::cummax(&x[0], 1)?.0)),
    case("cummin", CUBE, |x| Ok(ops::cummin(&x[0], 2)?.0)),
    case("median_axis", CUBE, |x| Ok(ops::median_axis(&x[0], 1, false)?.0)),
    case("kth_value", CUBE, |x| Ok(ops::kth_value(&x[0], 2, 0, true)?.0)),
];
