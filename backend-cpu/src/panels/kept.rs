//! Partial sums of all tiles of a task, row by row, until their further terms are added.

use super::{Sums, WIDTH};
use crate::element::Real;
use crate::simd::{Isa, simd};

/// Partial sums of a whole task, in rows of `columns`.
pub(crate) struct Kept<'a, R> {
    sums: &'a mut [R],
    columns: usize,
}

impl<'a, R: Real> Kept<'a, R> {
    /// Makes partial sums in the buffer `sums`, whose contents do not matter.
    pub(crate) fn new(sums: &'a mut [R], columns: usize) -> Self {
        Self { sums, columns }
    }

    /// Joins a tile of `rows` × `columns` at row and column `at` with its partial sums. Adds the kept sums to the tile, unless it is the `first`.
    /// Keeps the tile's sums, unless it is the `last`. Returns `last`: true if the sums are complete.
    pub(crate) fn join(
        &mut self,
        tile: &mut Sums<R>,
        at: [usize; 2],
        sizes: [usize; 2],
        first: bool,
        last: bool,
    ) -> bool {
        let sums = if first && last { &mut [] } else { &mut self.sums[at[0] * self.columns + at[1]..] };
        if !first {
            add(tile, sums, self.columns, sizes);
        }
        if !last {
            keep(tile, sums, self.columns, sizes);
        }
        last
    }
}

simd! {
    fn add<R: Real>(tile: &mut Sums<R>, sums: &[R], apart: usize, sizes: [usize; 2]) = add_body;
    fn keep<R: Real>(tile: &Sums<R>, sums: &mut [R], apart: usize, sizes: [usize; 2]) = keep_body;
}

#[inline(always)]
fn add_body<S: Isa, R: Real>(tile: &mut Sums<R>, sums: &[R], apart: usize, [rows, columns]: [usize; 2]) {
    for i in 0..rows {
        let from = &sums[i * apart..][..columns];
        if columns == WIDTH {
            add_row(&mut tile.0[i], &from[..WIDTH]);
        } else {
            add_row(&mut tile.0[i][..columns], from);
        }
    }
}

// Loops over indices, because some iterators are not inlined here.
#[inline(always)]
fn add_row<R: Real>(to: &mut [R], from: &[R]) {
    for j in 0..to.len() {
        to[j] = to[j] + from[j];
    }
}

#[inline(always)]
fn keep_body<S: Isa, R: Real>(tile: &Sums<R>, sums: &mut [R], apart: usize, [rows, columns]: [usize; 2]) {
    for i in 0..rows {
        let to = &mut sums[i * apart..][..columns];
        if columns == WIDTH {
            to[..WIDTH].copy_from_slice(&tile.0[i]);
        } else {
            to.copy_from_slice(&tile.0[i][..columns]);
        }
    }
}
