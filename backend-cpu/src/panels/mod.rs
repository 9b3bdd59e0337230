//! Products of packed operands, for convolutions and for products of 16-bit floats.
//!
//! Both operands of a product are first copied into *words*, [`DEPTH`] of them along the sum at a time. A word is one f32, one f64, or a pair of
//! bf16 for two neighbouring terms of the sum, as the processor's bf16 instruction takes it.
//!
//! - A *left block* has [`ROW`] words from one row to the next, so that the distances between its rows are known when the kernel is compiled.
//! - A *right block* consists of panels of [`WIDTH`] columns. For each term, the words of these columns lie side by side.
//!
//! [`multiply`] goes over two blocks and passes tiles of at most [`ROWS`] × [`WIDTH`] sums to its caller. The sums stay in registers until they are
//! done.
//!
//! | file | contents |
//! |---|---|
//! | `lanes.rs` | vectors of words, per instruction set |
//! | `kernel.rs` | the loop over the terms, and the instruction sets that it is compiled for |
//! | `pack.rs` | copies into blocks |
//! | `kept.rs` | partial sums, whose further terms come later |
//! | `rate.rs` | how many multiply-adds the same vectors do without any memory |

mod kept;
mod kernel;
mod lanes;
pub(crate) mod pack;
pub(crate) mod rate;
#[cfg(test)]
mod tests;

use crate::element::Real;
use crate::parallel::Plain;

pub(crate) use kept::Kept;
pub(crate) use kernel::{Strided, has_bf16_products, strided_product};

/// Maximum number of a block's words along the sum.
pub(crate) const DEPTH: usize = 256;
/// Number of words from one row of a left block to the next. It is not a power of two, so that rows do not compete for one set of the cache.
pub(crate) const ROW: usize = DEPTH + 16;
/// Rows of a tile.
pub(crate) const ROWS: usize = 12;
/// Columns of a panel, and of a tile.
pub(crate) const WIDTH: usize = 32;

/// Number of words from one panel of a right block to the next, for panels that are written side by side, term by term. It is not a multiple of a
/// page, so that panels do not compete for one set of the cache.
pub(crate) fn panel_len(depth: usize) -> usize {
    depth * WIDTH + APART
}

/// Number of words from one panel of a turned left block to the next.
pub(crate) const TURNED_LEN: usize = ROWS * DEPTH + APART;

const APART: usize = 16;

/// Words, of which blocks consist.
pub(crate) trait Word: Plain + Default {
    /// Type in which products are summed.
    type Sum: Real;
    /// Number of terms of the sum in a word.
    const TERMS: usize;
    /// Computes the sums of one tile, with the best instructions of this processor.
    ///
    /// # Safety
    /// What [`Job`] names exists.
    unsafe fn tile(job: &Job<Self>, sums: &mut Sums<Self::Sum>);
}

/// Pair of neighbouring terms in bf16, the first in the low half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Pair(pub(crate) u32);

// SAFETY: any bits are two bf16.
unsafe impl Plain for Pair {}

/// Sums of a tile, row by row.
#[repr(align(64))]
pub(crate) struct Sums<R>(pub(crate) [[R; WIDTH]; ROWS]);

impl<R: Real> Sums<R> {
    /// Returns sums that are all 0.
    pub(crate) fn new() -> Self {
        Self([[R::default(); WIDTH]; ROWS])
    }
}

/// Left operand of a tile: term `p` of row `i` lies at `i·row + p·step`.
#[derive(Clone, Copy)]
pub(crate) enum Left<W> {
    /// Rows of a left block.
    Rows(*const W),
    /// Rows side by side, and the number of words from one term to the next.
    Turned(*const W, usize),
}

/// Operands and sizes of one tile.
pub(crate) struct Job<W> {
    pub(crate) left: Left<W>,
    /// The panel.
    pub(crate) right: *const W,
    pub(crate) depth: usize,
    /// At most [`ROWS`]. The kernel rounds it up to one of its heights; the rows up to that height must exist.
    pub(crate) rows: usize,
    /// At most [`WIDTH`].
    pub(crate) columns: usize,
}

/// A left and a right block in memory.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<W> {
    /// Address of the left block.
    pub(crate) left: *const W,
    /// True if the left block lies in panels of [`ROWS`] rows side by side.
    pub(crate) turned: bool,
    pub(crate) right: *const W,
    /// Number of words from one panel of the right block to the next.
    pub(crate) panel: usize,
    pub(crate) depth: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Calls `tile(first row, first column, sums)` for every tile of the product of two blocks. Goes panel by panel, so that a panel stays in the
/// first-level cache while all rows pass.
///
/// # Safety
/// The blocks exist as described, with rows up to a multiple of [`ROWS`].
pub(crate) unsafe fn multiply<W: Word>(blocks: &Blocks<W>, mut tile: impl FnMut(usize, usize, &mut Sums<W::Sum>)) {
    let mut sums = Sums::new();
    for (panel, column) in (0..blocks.columns).step_by(WIDTH).enumerate() {
        for row in (0..blocks.rows).step_by(ROWS) {
            let left = if blocks.turned {
                Left::Turned(blocks.left.wrapping_add(row / ROWS * TURNED_LEN), ROWS)
            } else {
                Left::Rows(blocks.left.wrapping_add(row * ROW))
            };
            let job = Job {
                left,
                right: blocks.right.wrapping_add(panel * blocks.panel),
                depth: blocks.depth,
                rows: ROWS.min(blocks.rows - row),
                columns: WIDTH.min(blocks.columns - column),
            };
            // SAFETY: as the caller asserts.
            unsafe { W::tile(&job, &mut sums) };
            tile(row, column, &mut sums);
        }
    }
}
