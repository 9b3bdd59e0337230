//! Row kernels: a thread, a warp or a block per row, one element or 16 bytes of them at a time.

use memcore::DType;

use crate::launch::{Context, Grid, THREADS};

/// Lanes of a warp.
const WARP: u64 = 32;

/// Longer rows get a block each. Shorter ones get a warp, which has registers for that many elements.
pub(crate) const WARP_ROW: u64 = 1024;

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
    let wide = in_packs(n, dtype, bases);
    let block = n > WARP_ROW;
    let blocks = if block { rows } else { rows.div_ceil(u64::from(THREADS) / WARP) };
    (1 + 2 * usize::from(block) + usize::from(wide), Grid::over_blocks(blocks.min(most_blocks(ctx))))
}

/// True if rows are made of aligned groups of 16 bytes, in all operands.
pub(crate) fn in_packs(n: u64, dtype: DType, bases: &[(u64, u64)]) -> bool {
    let pack = PACK_BYTES / dtype.size();
    n.is_multiple_of(pack) && bases.iter().all(|(base, size)| base.is_multiple_of(pack * size))
}

/// A grid of warps that hold rows of 16-bit elements of up to four times the usual length: a warp needs no barrier, and has more
/// memory on its way than a block. `None` unless there are rows enough for every processor, in packs, and so long.
pub(crate) fn long_warps(ctx: &Context<'_>, rows: u64, n: u64, dtype: DType, bases: &[(u64, u64)]) -> Option<Grid> {
    const WARPS_PER_PROCESSOR: u64 = 8;
    let long = dtype.is_half() && n > WARP_ROW && n <= 4 * WARP_ROW;
    let many = rows >= u64::from(ctx.properties.processors) * WARPS_PER_PROCESSOR;
    let blocks = rows.div_ceil(u64::from(THREADS) / WARP);
    (long && many && in_packs(n, dtype, bases)).then(|| Grid::over_blocks(blocks.min(most_blocks(ctx))))
}

/// Number of blocks that keeps the device busy many times over; kernels loop over the remaining rows.
fn most_blocks(ctx: &Context<'_>) -> u64 {
    u64::from(ctx.properties.processors) * 256
}
