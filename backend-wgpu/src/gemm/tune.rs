//! Which tile a card makes products of a kind with: it is tried out, once.
//!
//! The first product of a kind runs with each of the candidates, into the result that it is to have; the quickest one makes it then, and all
//! that follow. Nothing is allocated for it, and since every tile adds up in the same order, results do not depend on what was chosen. A
//! product that adds to what the result holds cannot be run twice: it takes what others of its kind have found, or the usual tile.
//! On software adapters nothing is tried: compiling a kernel takes longer there than what could be gained.

use std::time::{Duration, Instant};

use memcore::error::Result;

use super::product::Gemm;
use crate::choice::{Class, Sizes, Tile};
use crate::job::Context;
use crate::key::Variant;

/// Multiply-adds from which trying pays: below, the launch decides.
const WORTH: usize = 1 << 22;
/// Timings of each candidate, of which the best counts.
const ROUNDS: usize = 3;

/// The tile for this product. `variant` is what all sources of its kind have in common, `launch` runs it with a tile.
pub(super) fn choose(
    cx: &mut Context<'_>,
    gemm: &Gemm,
    variant: Variant,
    mut launch: impl FnMut(&mut Context<'_>, Tile) -> Result<()>,
) -> Result<Tile> {
    let candidates = Tile::candidates(&gemm.sizes);
    let usual = candidates[0];
    if let Some(index) = cx.gpu.forced_tile {
        return Ok(candidates[index.min(candidates.len() - 1)]);
    }
    let Sizes { batch, m, n, k } = gemm.sizes;
    if cx.gpu.info.is_software || candidates.len() == 1 || batch * m * n * k < WORTH {
        return Ok(usual);
    }
    let class = Class::of(gemm.name, variant, &gemm.sizes);
    if let Some(tile) = cx.gpu.tuned(&class) {
        return Ok(tile);
    }
    if !gemm.repeats {
        return Ok(usual);
    }
    let mut best = (Duration::MAX, usual);
    for tile in candidates {
        // The first run compiles it.
        launch(cx, tile)?;
        cx.queue.finish(cx.gpu)?;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            launch(cx, tile)?;
            cx.queue.finish(cx.gpu)?;
            let taken = start.elapsed();
            if taken < best.0 {
                best = (taken, tile);
            }
        }
    }
    cx.gpu.keep_tuned(class, best.1);
    Ok(best.1)
}
