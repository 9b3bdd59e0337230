//! Cases of `memcore::ops`, folder `index`.

use memcore::ops;
use memcore::{Array, Result, Tensor};

use super::arguments::{Argument, CUBE, OperatorCase, X, case, copied, indices, mask, tensor};

const WRITTEN: &[Argument] = &[tensor(&[3, 5]), tensor(&[3, 2])];
const SLICES: &[Argument] = &[tensor(&[4, 3]), tensor(&[2, 3])];

/// Two different elements of each row.
fn two_of_five(x: &Tensor) -> Result<Tensor> {
    indices(x.device(), &[3, 2], &[4, 0, 1, 3, 2, 4])
}

/// Two different rows of four.
fn two_rows(x: &Tensor) -> Result<Tensor> {
    indices(x.device(), &[2], &[3, 1])
}

pub(super) const CASES: &[OperatorCase] = &[
    case("embedding", &[tensor(&[5, 3])], |x| {
        ops::embedding(&indices(x[0].device(), &[2, 3], &[4, 0, 4, 1, 4, 2])?, &x[0], None)
    }),
    case("embedding.padding", &[tensor(&[5, 3])], |x| {
        // The padding row gets no gradient, whatever its effect on the result: its weight is 0.
        let rows = ops::embedding(&indices(x[0].device(), &[4], &[3, 1, 0, 3])?, &x[0], Some(1))?;
        let weights = Tensor::from_array(Array::ones(x[0].device(), &[4, 1], x[0].dtype())?);
        ops::mul(&rows, &ops::masked_fill(&weights, &mask(x[0].device(), &[4, 1], &[0, 1, 0, 0])?, 0.0)?)
    }),
    case("index_each", CUBE, |x| {
        let device = x[0].device();
        ops::index_each(&x[0], &[&indices(device, &[3], &[1, 0, 1])?, &indices(device, &[3], &[2, 0, 2])?])
    }),
    case("index_by", &[tensor(&[2, 3, 4])], |x| {
        let device = x[0].device();
        let (rows, columns) = (indices(device, &[2, 1], &[1, -2])?, indices(device, &[3], &[2, 0, 2])?);
        ops::index_by(&x[0], &[None, Some(&rows), Some(&columns)])
    }),
    case("index_by.apart", &[tensor(&[3, 2, 4])], |x| {
        let device = x[0].device();
        let (rows, columns) = (indices(device, &[3], &[1, 0, 1])?, indices(device, &[3], &[2, 0, 2])?);
        ops::index_by(&x[0], &[Some(&rows), None, Some(&columns)])
    }),
    case("index_by.transposed", CUBE, |x| {
        let rows = indices(x[0].device(), &[2], &[1, 1])?;
        ops::index_by(&ops::transpose(&x[0], 0, 2)?, &[None, Some(&rows)])
    }),
    case("index_each.rows", X, |x| ops::index_each(&x[0], &[&indices(x[0].device(), &[2], &[1, 1])?])),
    case("index_select", CUBE, |x| ops::index_select(&x[0], 1, &indices(x[0].device(), &[4], &[2, 0, 2, 2])?)),
    case("index_select.transposed", CUBE, |x| {
        let x = ops::transpose(&x[0], 0, 2)?;
        ops::index_select(&x, 2, &indices(x.device(), &[3], &[1, 0, 1])?)
    }),
    case("index_select.transposed_back", CUBE, |x| {
        let rows = ops::index_select(&x[0], 1, &indices(x[0].device(), &[4], &[2, 0, 2, 2])?)?;
        ops::contiguous(&ops::transpose(&rows, 0, 2)?)
    }),
    case("gather", X, |x| ops::gather(&x[0], 1, &indices(x[0].device(), &[3, 2], &[4, 0, 1, 1, 2, 3])?)),
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
];

#[cfg(test)]
mod tests {
    use memcore::Device;

    use super::*;
    use crate::reference::Reference;

    #[test]
    fn places_outside_are_refused() {
        let device = Device::new(Reference::default());
        let x = Tensor::from_slice(&device, &[2, 2], &[1.0f32; 4]).unwrap();
        let outside = indices(&device, &[1], &[2]).unwrap();
        let row = Tensor::from_slice(&device, &[1, 2], &[1.0f32; 2]).unwrap();
        assert!(ops::index_add(&x, 0, &outside, &row, 1.0).is_err());
        assert!(ops::scatter_value(&x, 1, &indices(&device, &[1, 1], &[-1]).unwrap(), 1.0).is_err());
    }
}
