//! Row kernels: a thread, a warp or a block per row, one element or 16 bytes of them at a time.

use memcore::DType;

use crate::launch::{Context, Grid, THREADS};

/// Lanes of a warp.
const WARP: u64 = 32;

/// Longer rows get a block each. Shorter ones get a warp, which has registers for that many elements.
const WARP_ROW: u64 = 1024;

/// Rows up to this length get a thread each.
const THREAD_ROW: u64 = 4;

/// Bytes that the wide form moves at a time.
pub(crate) const PACK_BYTES: u64 = 16;

/// Returns form (`_thread`, `_warp`, `_warp_wide`, `_block`, `_block_wide`) and grid for `rows` rows of `n` elements of
/// the kernel's type. `bases` are the operands' addresses and element sizes.
pub(crate) fn form(ctx: &Context<'_>, rows: u64, n: u64, dtype: DType, bases: &[(u64, u64)]) -> (usize, Grid) {
    if n <= THREAD_ROW {
        return (0, ctx.grid(rows));
    }
    let pack = PACK_BYTES / dtype.size();
    let wide = n.is_multiple_of(pack) && bases.iter().all(|(base, size)| base.is_multiple_of(pack * size));
    let block = n > WARP_ROW;
    let blocks = if block { rows } else { rows.div_ceil(u64::from(THREADS) / WARP) };
    (1 + 2 * usize::from(block) + usize::from(wide), Grid::of(blocks.min(most_blocks(ctx))))
}

/// Number of blocks that keeps the device busy many times over; kernels loop over the remaining rows.
fn most_blocks(ctx: &Context<'_>) -> u64 {
    u64::from(ctx.properties.processors) * 256
}
