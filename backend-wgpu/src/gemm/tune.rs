//! Choice of the tile for each kind of product on a card, by one trial.
//!
//! The first product of a kind runs with each of the candidates, into its own result; the fastest candidate then
//! computes it, and all later ones. Nothing is allocated for the trial. Every tile adds in the same order, so results
//! do not depend on the choice. A product that adds to the old result cannot run twice: it takes the tile found for
//! others of its kind, or the usual one. Software adapters run no trial: compiling a kernel takes longer there than
//! could be gained.

use std::time::{Duration, Instant};

use memcore::error::Result;

use super::product::Gemm;
use crate::choice::{Class, Sizes, Tile};
use crate::job::Context;
use crate::key::Variant;

/// Multiply-adds from which a trial pays off: below, launch overhead dominates.
const WORTH: usize = 1 << 22;
/// Timings of each candidate; the best one counts.
const ROUNDS: usize = 3;

/// Returns the tile for this product. `variant` is common to all sources of its kind; `launch` runs the product with a
/// tile.
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
    let class = Class::named(gemm.name, variant, &gemm.sizes);
    if let Some(tile) = cx.gpu.tuned(&class) {
        return Ok(tile);
    }
    if !gemm.repeats {
        return Ok(usual);
    }
    let mut best = (Duration::MAX, usual);
    for tile in candidates {
        // The first run compiles the kernel.
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
