//! Elements in order along an axis: all of them, or the largest. Values are computed on the host.

use std::cmp::Ordering;

use super::largest_scratch;
use super::sums_and_extremes::check_axis;
use crate::array::Array;
use crate::autograd::{Tensor, record};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ops::index::gather::{ChosenBackward, Places};
use crate::ops::index::temporaries;
use crate::ops::on_host;
use crate::ops::shape::view::{Dims, squeeze};

/// Most elements along an axis that PyTorch sorts without scratch.
const SORTED_IN_PLACE: usize = 4096;

/// The most elements that PyTorch puts in order without scratch once they are found.
const MOST_LARGEST: usize = 4096;

/// The elements along `axis` in order, the smallest first unless `descending`, and the place that each had (i64, without history). Equal elements stay in
/// their order. Saves the places.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist; [`Error::Invalid`] for more than 4096 elements along the axis, except for one vector of i64; errors of
/// the device.
pub fn sort(x: &Tensor, axis: usize, descending: bool) -> Result<(Tensor, Tensor)> {
    check_axis("sort", x, axis)?;
    let size = x.dims()[axis];
    let is_large = size > SORTED_IN_PLACE;
    if is_large && (x.numel() != size || x.dtype() != DType::I64) {
        let problem = format!(
            "{size} {} along an axis: more than {SORTED_IN_PLACE} are supported for one vector of i64",
            x.dtype()
        );
        return Err(Error::invalid("sort", problem));
    }
    let ends = Ends { descending, name: "SortBackward0" };
    let _op = context::op("sort");
    let chosen = chosen(x, axis, size, ends)?;
    if x.device().profile().torch_temporaries {
        let _places = Array::empty(x.device(), &[size], DType::I64)?;
        if is_large {
            let scratch = temporaries::sort_of_all_bits(size, x.device().profile().index_sort);
            drop(Array::empty(x.device(), &[scratch], DType::U8)?);
        }
    }
    Ok(chosen)
}

/// The `k` largest elements along `axis`, the largest first (the smallest if not `largest`), and the place that each had (i64, without history). Saves
/// the places.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist or is shorter than `k`; [`Error::Invalid`] for more than 4096 elements, and for scratch that is not known; errors of the
/// device.
pub fn topk(x: &Tensor, k: usize, axis: usize, largest: bool) -> Result<(Tensor, Tensor)> {
    check_axis("topk", x, axis)?;
    let size = x.dims()[axis];
    if k > size {
        return Err(Error::shape("topk", format!("{k} of {size} elements")));
    }
    if k > MOST_LARGEST {
        return Err(Error::invalid("topk", format!("the largest {k}: more than {MOST_LARGEST} are not supported")));
    }
    let _op = context::op("topk");
    let chosen = chosen(x, axis, k, Ends { descending: largest, name: "TopkBackward0" })?;
    let is_copied = !x.array().layout().is_contiguous();
    let _copy = if is_copied { Some(context::within("contiguous>clone", || x.array().copied())?) } else { None };
    if x.device().profile().torch_temporaries && size > 0 {
        largest_scratch::take_and_free(x.array(), x.numel() / size, size)?;
    }
    Ok(chosen)
}

/// The median along `axis` (of two in the middle, the smaller), and its place (i64, without history). Saves the place.
///
/// # Errors
/// As [`kth_value`].
pub fn median_axis(x: &Tensor, axis: usize, keepdim: bool) -> Result<(Tensor, Tensor)> {
    check_axis("median", x, axis)?;
    one_in_order(x, x.dims()[axis].div_ceil(2), axis, keepdim, ["median", "MedianBackward1"])
}

/// The element at place `k` along `axis` if these are in order, counted from 1, and its place (i64, without history). Saves the place.
///
/// # Errors
/// [`Error::Shape`] for an axis that does not exist or is shorter than `k`; errors of the device.
pub fn kth_value(x: &Tensor, k: usize, axis: usize, keepdim: bool) -> Result<(Tensor, Tensor)> {
    check_axis("kthvalue", x, axis)?;
    one_in_order(x, k, axis, keepdim, ["kthvalue", "KthvalueBackward0"])
}

/// The element at place `k` in order. PyTorch makes the input contiguous before.
fn one_in_order(
    x: &Tensor,
    k: usize,
    axis: usize,
    keepdim: bool,
    [op, name]: [&'static str; 2],
) -> Result<(Tensor, Tensor)> {
    if k == 0 || k > x.dims()[axis] {
        return Err(Error::shape(op, format!("place {k} of {}", x.dims()[axis])));
    }
    let _op = context::op(op);
    let ordered = context::within("contiguous>clone", || x.array().contiguous())?;
    let mut taken: Dims = x.dims().into();
    taken[axis] = 1;
    let made = |dtype| Array::empty(x.device(), &taken, dtype);
    let (y, indices) = (made(x.dtype())?, made(DType::I64)?);
    on_host::fill(&indices, &[x.array()], |values| {
        let places = first_places(&values[0], x.dims(), axis, k, false);
        let inner: usize = x.dims()[axis + 1..].iter().product();
        let last = |i: usize| places[(i / inner * k + k - 1) * inner + i % inner];
        Ok((0..indices.numel()).map(last).collect())
    })?;
    let places = Places { axis, dims: x.dims().into(), taken };
    places.fill(&y, x.array(), &indices)?;
    drop(ordered);
    let y = record(y, &[x], |saved| {
        saved.save("indices", &indices)?;
        Ok(Box::new(ChosenBackward { name, made_by: MADE_BY, places }))
    })?;
    let indices = Tensor::from_array(indices);
    if keepdim {
        return Ok((y, indices));
    }
    Ok((squeeze(&y, axis)?, squeeze(&indices, axis)?))
}

/// The operator that makes the gradient of elements that were chosen by their order.
const MADE_BY: &str = "value_selecting_reduction_backward>zeros";

/// Which elements come first, and the name of the node.
struct Ends {
    descending: bool,
    name: &'static str,
}

/// The first `k` elements along `axis` in order, and their places.
fn chosen(x: &Tensor, axis: usize, k: usize, ends: Ends) -> Result<(Tensor, Tensor)> {
    let mut taken: Dims = x.dims().into();
    taken[axis] = k;
    let layouts = [x.array().layout()];
    let made = |dtype| {
        if k == x.dims()[axis] {
            Array::empty_for(x.device(), &taken, &layouts, dtype)
        } else {
            Array::empty(x.device(), &taken, dtype)
        }
    };
    let (y, indices) = (made(x.dtype())?, made(DType::I64)?);
    on_host::fill(&indices, &[x.array()], |values| Ok(first_places(&values[0], x.dims(), axis, k, ends.descending)))?;
    let places = Places { axis, dims: x.dims().into(), taken };
    places.fill(&y, x.array(), &indices)?;
    let y = record(y, &[x], |saved| {
        saved.save("indices", &indices)?;
        Ok(Box::new(ChosenBackward { name: ends.name, made_by: MADE_BY, places }))
    })?;
    Ok((y, Tensor::from_array(indices)))
}

/// Returns the places along `axis` of the first `k` elements in order, for each row along it, in row-major order.
fn first_places(values: &[f64], dims: &[usize], axis: usize, k: usize, descending: bool) -> Vec<f64> {
    let (size, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    let outer: usize = dims[..axis].iter().product();
    let mut out = vec![0.0; outer * k * inner];
    for row in 0..outer * inner {
        let (before, after) = (row / inner, row % inner);
        let value = |place: usize| values[(before * size + place) * inner + after];
        let mut order: Vec<usize> = (0..size).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = if descending { (b, a) } else { (a, b) };
            compared(value(a), value(b))
        });
        for (i, place) in order.into_iter().take(k).enumerate() {
            out[(before * k + i) * inner + after] = place as f64;
        }
    }
    out
}

/// Compares as PyTorch does: what is not a number is larger than every number.
fn compared(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_elements_stay_in_order_and_nan_is_largest() {
        let values = [2.0, f64::NAN, 1.0, 2.0];
        assert_eq!(first_places(&values, &[4], 0, 4, false), [2.0, 0.0, 3.0, 1.0]);
        assert_eq!(first_places(&values, &[4], 0, 3, true), [1.0, 0.0, 3.0]);
        assert_eq!(first_places(&[1.0, 4.0, 3.0, 2.0], &[2, 2], 0, 1, true), [1.0, 0.0]);
    }
}
