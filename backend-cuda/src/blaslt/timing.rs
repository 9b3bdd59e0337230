//! The choice among several algorithms of the library: each is timed on the device, once for each shape.
//!
//! Algorithms add up in different orders, so the choice shows in the last bits. It is kept in the process and, beside the
//! compiled kernels, on disk, so that every run on a card computes the same.

use cudarc::cublaslt::sys::cublasLtMatmulAlgo_t;

use super::library::{NOT_SUPPORTED, Status};
use super::shape::Shape;
use crate::cache;
use crate::queue::Queue;
use crate::timer::{CLEARLY, Timer};

/// The choice that was made before, in this process or another.
fn made_before(key: &str) -> Option<cublasLtMatmulAlgo_t> {
    let kept = cache::kept(key)?;
    let words = kept.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
    Some(cublasLtMatmulAlgo_t { data: words.collect::<Vec<_>>().try_into().ok()? })
}

fn keep(key: String, algorithm: cublasLtMatmulAlgo_t) {
    cache::keep(key, algorithm.data.iter().flat_map(|word| word.to_le_bytes()).collect());
}

/// Runs the product by the fastest of the algorithms, and returns that algorithm. `run` overwrites the result, so it may
/// be called again. `card` names the card and the library.
///
/// # Errors
/// The library's status if no algorithm runs.
pub(super) fn fastest(
    queue: &Queue,
    card: &str,
    shape: &Shape,
    algorithms: &[cublasLtMatmulAlgo_t],
    run: impl Fn(&cublasLtMatmulAlgo_t) -> Result<(), Status>,
) -> Result<cublasLtMatmulAlgo_t, Status> {
    let key = format!("product-{}.algorithm", cache::fingerprint([card, &format!("{shape:?}")]));
    if let Some(known) = made_before(&key)
        && run(&known).is_ok()
    {
        return Ok(known);
    }
    let timer = Timer::new(queue).ok();
    let mut best: Option<(f32, cublasLtMatmulAlgo_t)> = None;
    let mut failed = NOT_SUPPORTED;
    for algorithm in algorithms {
        let timed = run(algorithm).and_then(|()| match &timer {
            Some(timer) => timer.time(|| run(algorithm)),
            None => Ok(f32::INFINITY),
        });
        match timed {
            Ok(time) if best.is_none_or(|(least, _)| time < least * CLEARLY) => best = Some((time, *algorithm)),
            Ok(_) => (),
            Err(status) if failed == NOT_SUPPORTED => failed = status,
            Err(_) => (),
        }
    }
    let (_, algorithm) = best.ok_or(failed)?;
    // The result has the bits of the algorithm that computes it from now on.
    run(&algorithm)?;
    keep(key, algorithm);
    Ok(algorithm)
}
