//! Results that no kernel computes. Their memory is taken on the device as for any operator; their values are computed on the host, one element
//! after the other. They are correct on every backend, and slow.

use crate::array::Array;
use crate::error::Result;

/// Fills `out` with the result of `compute` for the values of `inputs`, all in row-major order. Does nothing on a device that computes nothing.
/// `out` must have no gaps.
///
/// # Errors
/// Errors of the device, and of `compute`.
pub(super) fn fill(
    out: &Array,
    inputs: &[&Array],
    compute: impl FnOnce(Vec<Vec<f64>>) -> Result<Vec<f64>>,
) -> Result<()> {
    if !out.device().computes() {
        return Ok(());
    }
    let values = inputs.iter().map(|input| input.host_values()).collect::<Result<Vec<_>>>()?;
    let values = compute(values)?;
    if out.layout().is_contiguous() {
        return out.write_values(&values);
    }
    let dense = out.in_memory_order()?;
    let strides: Vec<usize> = {
        let rows = crate::layout::Layout::contiguous(out.dims())?;
        out.memory_order().iter().map(|&axis| rows.strides()[axis]).collect()
    };
    let place = |i: usize| {
        let (mut rest, mut at) = (i, 0);
        for (&dim, stride) in dense.dims().iter().zip(&strides).rev() {
            at += rest % dim * stride;
            rest /= dim;
        }
        values[at]
    };
    dense.write_values(&(0..dense.numel()).map(place).collect::<Vec<f64>>())
}

/// A linear function: each element of the result is a weighted sum of input elements. It is called with the number of a result element, and
/// reports each (number of the input element, weight).
pub(super) type Sources<'a> = dyn Fn(usize, &mut dyn FnMut(usize, f64)) + 'a;

/// `y = A·x`.
pub(super) fn apply(y: &Array, x: &Array, sources: &Sources<'_>) -> Result<()> {
    fill(y, &[x], |values| {
        let of = |i: usize| {
            let mut sum = 0.0;
            sources(i, &mut |source, weight| sum += weight * values[0][source]);
            sum
        };
        Ok((0..y.numel()).map(of).collect())
    })
}

/// `out = Aᵀ·grad`: the gradient of [`apply`].
pub(super) fn apply_transposed(out: &Array, grad: &Array, sources: &Sources<'_>) -> Result<()> {
    fill(out, &[grad], |values| {
        let mut sums = vec![0.0; out.numel()];
        for (i, value) in values[0].iter().enumerate() {
            sources(i, &mut |source, weight| sums[source] += weight * value);
        }
        Ok(sums)
    })
}

/// Sums `of(element)` over the group of each element of an array `dims`, which has a result `kept` of as many dimensions, each of the same size or 1.
pub(super) fn group_sums(values: &[f64], dims: &[usize], kept: &[usize], of: impl Fn(f64, usize) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; kept.iter().product()];
    for (i, value) in values.iter().enumerate() {
        let (mut rest, mut group, mut step) = (i, 0, 1);
        for (&size, &kept) in dims.iter().zip(kept).rev() {
            group += if kept == 1 { 0 } else { rest % size * step };
            step *= kept;
            rest /= size;
        }
        sums[group] += of(*value, group);
    }
    sums
}
