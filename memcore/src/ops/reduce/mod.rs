//! Sums, means, extremes and norms along axes; running sums; sorting.

mod largest_scratch;

pub(in crate::ops) mod cumsum;
pub(in crate::ops) mod cumulative;
pub(in crate::ops) mod logsumexp;

pub(in crate::ops) mod norm_sum;
pub(in crate::ops) mod sort;
pub(in crate::ops) mod sums_and_extremes;
pub(in crate::ops) mod variance;

pub use cumsum::{cumsum, cumsum_whole};
pub use cumulative::{cummax, cummin, cumprod};
pub use logsumexp::logsumexp;
pub use norm_sum::norm_sum;
pub use sort::{kth_value, median_axis, sort, topk};
pub use sums_and_extremes::{
    amax, amin, argmax, argmin, max_all, max_axis, mean, mean_as, mean_axes, min_all, min_axis, norm, norm_axes, sum,
    sum_as, sum_axes,
};
pub use variance::{std, std_mean, var, var_mean};
