//! Tiles of the output. Each tile is a task.

use std::ops::Range;

use crate::view::Context;

/// Number of multiply-adds below which a product is not worth a second thread.
pub(super) const INLINE_MACS: usize = 64 << 10;

/// Returns the size of pieces that cuts `len` into as many parts as `piece` does, but more evenly. It is a multiple of `unit`, unless it is the
/// whole.
pub(super) fn even(len: usize, piece: usize, unit: usize) -> usize {
    len.div_ceil(len.div_ceil(piece.max(1)).max(1)).next_multiple_of(unit).min(len.max(1))
}

/// Runs `f(batch, rows, columns)` for each tile: on this thread if there is little to do, otherwise in tasks, each with several small tiles.
pub(super) fn for_each_tile(
    ctx: &Context<'_>,
    batch: usize,
    sizes: [usize; 3],
    tile: [usize; 2],
    f: impl Fn(usize, Range<usize>, Range<usize>) + Sync + Send,
) {
    let [m, n, k] = sizes;
    let (down, across) = (m.div_ceil(tile[0]), n.div_ceil(tile[1]));
    let one = |i: usize| {
        let (row, col) = (i / across % down * tile[0], i % across * tile[1]);
        f(i / across / down, row..m.min(row + tile[0]), col..n.min(col + tile[1]));
    };
    let tiles = batch * down * across;
    if batch * m * n * k.max(1) <= INLINE_MACS {
        return (0..tiles).for_each(one);
    }
    let each = (INLINE_MACS / (tile[0] * tile[1] * k.max(1))).max(1);
    ctx.for_each(tiles.div_ceil(each), |task| (task * each..tiles.min((task + 1) * each)).for_each(one));
}
