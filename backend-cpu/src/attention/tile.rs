//! Loops over tiles.

use crate::element::{Float, Real};
use crate::panels::{Strided, strided_product};
use crate::simd::{Isa, simd};

/// Tiles are padded to multiples of this: [`product`] works on as many columns together, or twice as many.
pub(super) const COLUMNS: usize = 16;
/// Rows are rounded up to multiples of this: [`product`] works on 4 together, or on 8.
const ROWS: usize = 4;

/// The left factor of a product: element `(i, e)` is at `i·row + e·column`.
#[derive(Clone, Copy)]
pub(super) struct Left<'a, R> {
    pub(super) data: &'a [R],
    pub(super) row: usize,
    pub(super) column: usize,
}

simd! {
    /// Converts elements to the compute type.
    pub(super) fn convert<T: Float>(from: &[T], to: &mut [T::Compute]) = convert_body;
    /// Converts elements to the compute type, and writes them `stride` apart.
    pub(super) fn convert_strided<T: Float>(from: &[T], to: &mut [T::Compute], stride: usize) = convert_strided_body;
    /// `to += from`
    pub(super) fn add_converted<T: Float>(to: &mut [T::Compute], from: &[T]) = add_converted_body;
    /// `tile *= factor`, for a tile `[rows, columns]`.
    pub(super) fn scale_rows<R: Real>(tile: &mut [R], stride: usize, sizes: [usize; 2], factor: R) = scale_rows_body;
    /// `Σ x·y`
    pub(super) fn dot<T: Float>(x: &[T], y: &[T]) -> T::Compute = dot_body;
}

/// `c = a @ b`, or `c += a @ b` if `add`, with sizes `[m, n, k]`. Rows of `b` and `c` are `b_row` and `c_row` apart. `m` and `n` are
/// rounded up to [`ROWS`] and [`COLUMNS`]: the additional elements exist, and their contents do not matter.
pub(super) fn product<R: Real>(
    a: Left<'_, R>,
    b: &[R],
    b_row: usize,
    c: &mut [R],
    c_row: usize,
    [m, n, k]: [usize; 3],
    add: bool,
) {
    let (m, n) = (m.next_multiple_of(ROWS), n.next_multiple_of(COLUMNS));
    if m == 0 || n == 0 {
        return;
    }
    let inside = |k: usize| (m - 1) * a.row + (k - 1) * a.column < a.data.len() && (k - 1) * b_row + n <= b.len();
    assert!(k == 0 || inside(k), "a product beyond its tiles");
    assert!((m - 1) * c_row + n <= c.len(), "a product beyond its result");
    let (left, right, to) = (a.data.as_ptr(), b.as_ptr(), c.as_mut_ptr());
    let job =
        Strided { sizes: [m, n, k], left, row: a.row, step: a.column, right, width: b_row, to, to_row: c_row, add };
    // SAFETY: all elements lie in the slices (asserted).
    unsafe { strided_product(&job) }
}

#[inline(always)]
fn convert_body<S: Isa, T: Float>(from: &[T], to: &mut [T::Compute]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.get();
    }
}

#[inline(always)]
fn convert_strided_body<S: Isa, T: Float>(from: &[T], to: &mut [T::Compute], stride: usize) {
    for (to, from) in to.iter_mut().step_by(stride).zip(from) {
        *to = from.get();
    }
}

#[inline(always)]
fn add_converted_body<S: Isa, T: Float>(to: &mut [T::Compute], from: &[T]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *to + from.get();
    }
}

#[inline(always)]
fn scale_rows_body<S: Isa, R: Real>(tile: &mut [R], stride: usize, [rows, columns]: [usize; 2], factor: R) {
    for row in 0..rows {
        for x in &mut tile[row * stride..][..columns] {
            *x = *x * factor;
        }
    }
}

/// Rows are as short as a head, so that a few partial sums are enough. They are added in order.
#[inline(always)]
fn dot_body<S: Isa, T: Float>(x: &[T], y: &[T]) -> T::Compute {
    crate::lanes::fold2::<S, T>(crate::lanes::Dot, x, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_either_orientation() {
        // 3 by 5 times 5 by 17, in rows of 5 and in columns of 4, with rows of b and c 32 apart.
        let (m, n, k) = (3, 17, 5);
        let a = |i: usize, e: usize| (i * 7 + e * 3) as f32 - 9.0;
        let b = |e: usize, j: usize| (e * 5 + j) as f32 - 11.0;
        let (mut by_rows, mut by_columns) = (vec![0.0; 4 * k], vec![0.0; 4 * k]);
        let mut right = vec![0.0; 32 * k];
        for e in 0..k {
            for i in 0..m {
                by_rows[i * k + e] = a(i, e);
                by_columns[e * 4 + i] = a(i, e);
            }
            for j in 0..n {
                right[e * 32 + j] = b(e, j);
            }
        }
        let mut c = vec![f32::NAN; 4 * 32];
        product(Left { data: &by_rows, row: k, column: 1 }, &right, 32, &mut c, 32, [m, n, k], false);
        product(Left { data: &by_columns, row: 1, column: 4 }, &right, 32, &mut c, 32, [m, n, k], true);
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let want: f32 = (0..k).map(|e| a(i, e) * b(e, j)).sum();
            assert_eq!(c[i * 32 + j], 2.0 * want, "({i}, {j})");
        }
    }
}
