//! The choice among several algorithms of the library: each is timed on the device, once for each shape.
//!
//! Algorithms add up in different orders, so the choice shows in the last bits. It is kept in the process and, beside the
//! compiled kernels, on disk, so that every run on a card computes the same.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::cublaslt::sys::cublasLtMatmulAlgo_t;
use cudarc::driver::sys;

use super::library::{NOT_SUPPORTED, Status};
use super::shape::Shape;
use crate::cache;
use crate::driver::{Driven, driven};
use crate::queue::Queue;

/// Calls of an algorithm that are timed, after one that is not: that one may load kernels.
const CALLS: usize = 3;

/// An algorithm replaces one that the library prefers if it takes less than this part of its time: smaller differences
/// are noise.
const CLEARLY: f32 = 0.97;

/// The choices by key: of the process, whether they can be stored on disk or not.
type Chosen = HashMap<String, cublasLtMatmulAlgo_t>;

fn chosen() -> MutexGuard<'static, Option<Chosen>> {
    static CHOSEN: Mutex<Option<Chosen>> = Mutex::new(None);
    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The choice that was made before, in this process or another.
fn made_before(key: &str) -> Option<cublasLtMatmulAlgo_t> {
    if let Some(algorithm) = chosen().as_ref().and_then(|chosen| chosen.get(key).copied()) {
        return Some(algorithm);
    }
    let stored = cache::load(key)?;
    let words = stored.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
    Some(cublasLtMatmulAlgo_t { data: words.collect::<Vec<_>>().try_into().ok()? })
}

fn keep(key: String, algorithm: cublasLtMatmulAlgo_t) {
    let bytes: Vec<u8> = algorithm.data.iter().flat_map(|word| word.to_le_bytes()).collect();
    cache::store(&key, &bytes);
    chosen().get_or_insert_default().insert(key, algorithm);
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
            Some(timer) => timer.time(|| (0..CALLS).try_for_each(|_| run(algorithm))),
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

/// Two events of the driver around some work.
struct Timer<'a> {
    queue: &'a Queue,
    events: [sys::CUevent; 2],
}

impl<'a> Timer<'a> {
    fn new(queue: &'a Queue) -> Driven<Self> {
        let mut timer = Self { queue, events: [std::ptr::null_mut(); 2] };
        for event in &mut timer.events {
            driven!(cuEventCreate(event, sys::CUevent_flags::CU_EVENT_DEFAULT as u32))?;
        }
        Ok(timer)
    }

    /// Milliseconds that the device takes for work in the queue; infinite if the driver does not tell.
    fn time(&self, work: impl FnOnce() -> Result<(), Status>) -> Result<f32, Status> {
        let [start, end] = self.events;
        // What was queued before would count too.
        let begun = self.queue.synchronize().and_then(|()| driven!(cuEventRecord(start, self.queue.stream())));
        work()?;
        let mut time = f32::INFINITY;
        let timed = begun
            .and_then(|()| driven!(cuEventRecord(end, self.queue.stream())))
            .and_then(|()| driven!(cuEventSynchronize(end)))
            .and_then(|()| driven!(cuEventElapsedTime(&mut time, start, end)));
        Ok(timed.map_or(f32::INFINITY, |()| time))
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        for event in self.events.into_iter().filter(|event| !event.is_null()) {
            // Nothing can be done about a failure.
            let _ = driven!(cuEventDestroy_v2(event));
        }
    }
}
