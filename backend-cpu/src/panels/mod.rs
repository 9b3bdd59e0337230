//! Products of packed operands, for convolutions and for products of 16-bit floats.
//!
//! Both operands of a product are copied into *words* first, [`DEPTH`] of them along the sum at a time. A word is one f32 or f64, or two bf16 that
//! belong to neighbouring terms of the sum, which is what the processor's bf16 instruction takes.
//!
//! - A *left block* has [`ROW`] words from one row to the next, so that the addresses of its rows are known when the kernel is compiled.
//! - A *right block* consists of panels of [`WIDTH`] columns: for each term, the words of these columns side by side.
//!
//! [`multiply`] goes over two blocks and gives tiles of at most [`ROWS`] × [`WIDTH`] sums, in registers until they are done, to its caller.
//!
//! | file | what it holds |
//! |---|---|
//! | `lanes.rs` | vectors of words, per instruction set |
//! | `kernel.rs` | the loop over the terms, and which instruction set it is compiled for |
//! | `pack.rs` | copies into blocks |
//! | `kept.rs` | sums whose terms are not all there yet |

mod kept;
mod kernel;
mod lanes;
pub(crate) mod pack;
#[cfg(test)]
mod tests;

use crate::element::Real;
use crate::parallel::Plain;

pub(crate) use kept::Kept;
pub(crate) use kernel::{Strided, has_bf16_products, strided_product};

/// Words along the sum that a block has at most.
pub(crate) const DEPTH: usize = 256;
/// Words from one row of a left block to the next: not a power of two, so that rows do not compete for one set of the cache.
pub(crate) const ROW: usize = DEPTH + 16;
/// Rows of a tile.
pub(crate) const ROWS: usize = 12;
/// Columns of a panel, and of a tile.
pub(crate) const WIDTH: usize = 32;

/// Words from one panel of a right block to the next, for panels that are written side by side, term by term: not a multiple of a page, so that they do not
/// compete for one set of the cache.
pub(crate) fn panel_len(depth: usize) -> usize {
    depth * WIDTH + APART
}

/// The same for the panels of a turned left block.
pub(crate) const TURNED_LEN: usize = ROWS * DEPTH + APART;

const APART: usize = 16;

/// What blocks consist of.
pub(crate) trait Word: Plain + Default {
    /// What products are summed in.
    type Sum: Real;
    /// Terms of the sum in a word.
    const TERMS: usize;
    /// Sums of one tile, by the best instructions of this processor.
    ///
    /// # Safety
    /// What [`Job`] names exists.
    unsafe fn tile(job: &Job<Self>, sums: &mut Sums<Self::Sum>);
}

/// Two neighbouring terms in bf16, the first in the low half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Pair(pub(crate) u32);

// SAFETY: any bits are two bf16.
unsafe impl Plain for Pair {}

/// Sums of a tile, row by row.
#[repr(align(64))]
pub(crate) struct Sums<R>(pub(crate) [[R; WIDTH]; ROWS]);

impl<R: Real> Sums<R> {
    /// All 0.
    pub(crate) fn new() -> Self {
        Self([[R::default(); WIDTH]; ROWS])
    }
}

/// The left operand of a tile: row `i`, term `p` lies at `i·row + p·step`.
#[derive(Clone, Copy)]
pub(crate) enum Left<W> {
    /// Rows of a left block.
    Rows(*const W),
    /// Rows side by side, so many words from one term to the next.
    Turned(*const W, usize),
}

/// One tile.
pub(crate) struct Job<W> {
    pub(crate) left: Left<W>,
    /// The panel.
    pub(crate) right: *const W,
    pub(crate) depth: usize,
    /// At most [`ROWS`]; rounded up to one of the kernel's heights, whose rows must exist.
    pub(crate) rows: usize,
    /// At most [`WIDTH`].
    pub(crate) columns: usize,
}

/// A left and a right block in memory.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<W> {
    /// Rows of a left block; or `None` in `turned`.
    pub(crate) left: *const W,
    /// The left block lies in panels of [`ROWS`] rows side by side.
    pub(crate) turned: bool,
    pub(crate) right: *const W,
    /// Words between panels of the right block.
    pub(crate) panel: usize,
    pub(crate) depth: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Calls `tile(first row, first column, sums)` for every tile of the product of two blocks. Panel by panel, so that a panel stays in the first cache
/// while all rows pass.
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
