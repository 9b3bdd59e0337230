//! Calls a function for several items in parallel, on the available processors.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The most threads.
const MAX_THREADS: usize = 8;

/// Returns what `of` returns for each item, in their order. The first items begin first. `None` for items that had not begun when a stop was
/// requested.
pub fn side_by_side<I: Sync, O: Send>(
    items: &[I],
    stop: &(dyn Fn() -> bool + Sync),
    of: impl Fn(&I) -> O + Sync,
) -> Vec<Option<O>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<O>>> = Mutex::new(items.iter().map(|_| None).collect());
    let work = || {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(turn).filter(|_| !stop()) else { break };
            let out = of(item);
            if let Some(place) = done.lock().unwrap_or_else(PoisonError::into_inner).get_mut(turn) {
                *place = Some(out);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(MAX_THREADS);
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            // If no thread can be started, fewer run.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        let squares = side_by_side(&items, &|| false, |n| n * n);
        assert!(squares.iter().enumerate().all(|(n, square)| *square == Some(n * n)), "{squares:?}");
        assert!(side_by_side(&items, &|| true, |n| *n).iter().all(Option::is_none));
    }
}
