//! What the processor can do at most, without any kernel.

use std::time::{Duration, Instant};

use memcore::DType;
use memcore::backend::Bound;
use memmap2::{MmapOptions, MmapRaw};

use crate::panels::rate;
use crate::parallel::Threads;
use crate::past_caches::copy_past_caches;

/// Bytes on each side of a copy: larger than any cache.
const COPY_BYTES: usize = 64 << 20;
/// Rounds of multiply-adds in a sample: about a millisecond.
const ROUNDS: u64 = 200_000;

/// Returns the highest rate of all samples that were taken in about `seconds`, of which there is one at least. `None` for arithmetic that the processor
/// has no units for, or without memory to copy.
pub(crate) fn roof(threads: &Threads, bound: Bound, seconds: f64) -> Option<f64> {
    let rounds = match bound {
        Bound::Memory => return copied(threads, seconds),
        // f16 is computed in f32.
        Bound::Arithmetic(DType::F32 | DType::F16) => rate::rounds_f32,
        Bound::Arithmetic(DType::BF16) => rate::rounds_bf16,
        Bound::Arithmetic(DType::F64) => rate::rounds_f64,
        Bound::Arithmetic(_) => return None,
    };
    let count = threads.count();
    let operations = (rounds(1) * ROUNDS * count as u64) as f64;
    Some(best(seconds, operations, || threads.for_each(count, |_| _ = rounds(ROUNDS))))
}

/// Bytes per second that a copy reads and writes, if every line goes past the caches.
fn copied(threads: &Threads, seconds: f64) -> Option<f64> {
    let side = || MmapOptions::new().len(COPY_BYTES).map_anon().ok().map(MmapRaw::from);
    let (from, to) = (side()?, side()?);
    let addresses = [&from, &to].map(|side| side.as_mut_ptr() as usize);
    for address in addresses {
        // SAFETY: the mapping is ours, and this long. Pages that were never written are all the same one.
        unsafe { (address as *mut u8).write_bytes(1, COPY_BYTES) };
    }
    let parts = threads.count();
    let part = COPY_BYTES.div_ceil(parts).next_multiple_of(64);
    let copy = |i: usize| {
        let (start, end) = ((i * part).min(COPY_BYTES), ((i + 1) * part).min(COPY_BYTES));
        let [from, to] = addresses.map(|address| address as *mut u8);
        // SAFETY: both mappings are this long; parts begin at cache lines, and each is one task's.
        unsafe { copy_past_caches(std::slice::from_raw_parts(from.add(start), end - start), to.add(start)) };
    };
    Some(best(seconds, 2.0 * COPY_BYTES as f64, || threads.for_each(parts, copy)))
}

/// `amount` divided by the seconds of the shortest run.
fn best(seconds: f64, amount: f64, run: impl Fn()) -> f64 {
    let (begin, mut least) = (Instant::now(), Duration::MAX);
    loop {
        let start = Instant::now();
        run();
        least = least.min(start.elapsed());
        if begin.elapsed().as_secs_f64() >= seconds {
            return amount / least.as_secs_f64().max(1e-9);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints what it finds: `cargo test -p backend-cpu roof -- --nocapture`.
    #[test]
    fn every_type_with_units_has_a_roof_and_the_narrower_is_not_lower() {
        let threads = Threads::new(None).unwrap();
        let of = |bound| roof(&threads, bound, 0.3);
        let arithmetic = |dtype| of(Bound::Arithmetic(dtype)).unwrap();
        // A moment in which another program has the processor can be that of every sample of a type: then all are measured again.
        let holds = || {
            let (half, single, double) = (arithmetic(DType::BF16), arithmetic(DType::F32), arithmetic(DType::F64));
            let memory = of(Bound::Memory).unwrap();
            println!("bf16 {half:.3e}, f32 {single:.3e}, f64 {double:.3e} FLOP/s, {memory:.3e} B/s");
            double > 1e8 && memory > 1e8 && single > 0.5 * double && half > 0.3 * single
        };
        assert!((0..5).any(|_| holds()), "see above");
        assert_eq!(of(Bound::Arithmetic(DType::I64)), None);
    }
}
