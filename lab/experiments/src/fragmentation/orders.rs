//! Search over all orders of the same batches.

use lab_base::error::Result;
use lab_traces::replay::{Machine, Policy, Silent, replay};

use super::super::policy_comparison::{CACHING, CONTENDERS, EXPANDABLE};
use super::super::progress::Progress;
use super::permutations::{next_permutation, orders};
use super::steps::{Steps, program};

/// The most orders that are tried. If there are more, every n-th is tried.
const MAX_ORDERS: usize = 4096;
/// Number of orders between two checks for an interrupt.
const STRETCH: usize = 256;

/// Least and most reserved by one policy over all orders.
pub(super) struct Range {
    pub(super) policy: &'static str,
    /// Least reserved bytes, and the first order with them.
    pub(super) best: (u64, Vec<usize>),
    /// Most reserved bytes, and the first order with them.
    pub(super) worst: (u64, Vec<usize>),
    /// Number of orders that reserve more than the least.
    pub(super) above: usize,
}

/// Result of the search.
pub(super) struct Orders {
    pub(super) tried: usize,
    pub(super) possible: usize,
    pub(super) ranges: Vec<Range>,
}

/// Tries the orders of a multiset of batches (`counts` of each of `steps`).
pub(super) fn search(steps: &[Steps], counts: usize, progress: &mut Progress<'_>) -> Result<Orders> {
    let mut order: Vec<usize> = (0..steps.len()).flat_map(|which| std::iter::repeat_n(which, counts)).collect();
    let possible = orders(steps.len(), counts);
    let every = possible.div_ceil(MAX_ORDERS).max(1);
    let wanted = |name: &str| CONTENDERS.iter().find(|contender| contender.name == name);
    let mut ranges: Vec<(Policy, Range)> = Vec::new();
    for name in [CACHING, EXPANDABLE] {
        if let Some(contender) = wanted(name) {
            let (best, worst) = ((u64::MAX, Vec::new()), (0, Vec::new()));
            ranges.push((contender.policy()?, Range { policy: name, best, worst, above: 0 }));
        }
    }
    let mut seen: Vec<Vec<u64>> = vec![Vec::new(); ranges.len()];
    let mut tried = 0;
    for index in 0.. {
        if index % every == 0 {
            if tried % STRETCH == 0 {
                progress.next(&format!("orders of batches, {tried} tried"))?;
            }
            tried += 1;
            let trace = program("order", steps, &order)?;
            for ((policy, range), seen) in ranges.iter_mut().zip(&mut seen) {
                let mut opened = policy.open(&trace, &Machine::default(), &mut |_| {})?;
                replay(&trace, &mut *opened.allocator, &mut Silent)?;
                // The programs contain no resets, so that the statistics have the peak of the whole run.
                let reserved = opened.allocator.stats().reserved_bytes.all.peak;
                seen.push(reserved);
                if reserved < range.best.0 {
                    range.best = (reserved, order.clone());
                }
                if reserved > range.worst.0 {
                    range.worst = (reserved, order.clone());
                }
            }
        }
        if !next_permutation(&mut order) {
            break;
        }
    }
    let finish = |((_, range), seen): ((Policy, Range), Vec<u64>)| {
        let above = seen.iter().filter(|&&reserved| reserved > range.best.0).count();
        Range { above, ..range }
    };
    Ok(Orders { tried, possible, ranges: ranges.into_iter().zip(seen).map(finish).collect() })
}

/// Number of progress reports of the search.
pub(super) fn pieces(kinds: usize, counts: usize) -> usize {
    let possible = orders(kinds, counts);
    possible.div_ceil(possible.div_ceil(MAX_ORDERS).max(1)).div_ceil(STRETCH)
}
