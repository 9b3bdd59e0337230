//! Orders of things of some kinds, one after the other.

/// Number of orders of `counts` each of `kinds` kinds: (kinds·counts)! / counts!^kinds, at most `usize::MAX`.
pub(super) fn orders(kinds: usize, counts: usize) -> usize {
    let mut product: u128 = 1;
    for k in 0..kinds {
        for i in 1..=counts {
            // A product of binomials: each division leaves a whole number.
            product = product.saturating_mul((k * counts + i) as u128) / i as u128;
        }
    }
    usize::try_from(product).unwrap_or(usize::MAX)
}

/// Moves to the next order lexicographically. Returns `false` after the last.
pub(super) fn next_permutation(order: &mut [usize]) -> bool {
    let Some(pivot) = order.windows(2).rposition(|pair| pair[0] < pair[1]) else { return false };
    let Some(swap) = order.iter().rposition(|&value| value > order[pivot]) else { return false };
    order.swap(pivot, swap);
    order[pivot + 1..].reverse();
    true
}
