//! Parts of matrices of 16-bit floats, widened.

use super::product::Mat;
use crate::element::Float;
use crate::simd::{Isa, simd};

simd! {
    /// `to[i] = from[i]`, exactly.
    pub(crate) fn widen<T: Float>(from: &[T], to: &mut [T::Compute]) = widen_body;
    /// `to[i] = from[i]`, rounded to nearest even.
    pub(crate) fn narrow<T: Float>(from: &[T::Compute], to: &mut [T]) = narrow_body;
}

#[inline(always)]
fn widen_body<S: Isa, T: Float>(from: &[T], to: &mut [T::Compute]) {
    for (x, y) in from.iter().zip(to) {
        *y = x.get();
    }
}

#[inline(always)]
fn narrow_body<S: Isa, T: Float>(from: &[T::Compute], to: &mut [T]) {
    for (x, y) in from.iter().zip(to) {
        *y = T::put(*x);
    }
}

/// Widens `rows` × `cols` of a matrix one of whose steps is 1 into `to`, without turning it, and gives the copy.
///
/// # Safety
/// The elements are in bounds and no one writes them; `to` is long enough.
pub(crate) unsafe fn widen_block<T: Float>(
    from: Mat<T>,
    rows: usize,
    cols: usize,
    to: &mut [T::Compute],
) -> Mat<T::Compute> {
    if from.col != 1 && from.row == 1 {
        // SAFETY: the same elements.
        return unsafe { widen_block(from.transposed(), cols, rows, to) }.transposed();
    }
    for i in 0..rows {
        let to = &mut to[i * cols..][..cols];
        if from.col == 1 {
            // SAFETY: a row is contiguous and in bounds.
            widen(unsafe { std::slice::from_raw_parts(from.at(i, 0).ptr(), cols) }, to);
        } else {
            for (j, y) in to.iter_mut().enumerate() {
                // SAFETY: in bounds.
                *y = unsafe { *from.at(i, j).ptr() }.get();
            }
        }
    }
    Mat::new(to.as_ptr(), cols, 1)
}
