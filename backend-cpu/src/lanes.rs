//! Reductions of slices in [`LANES`] independent partial results, which vectorise and whose order is fixed.

use crate::simd::LANES;

/// Elements that are summed in the compute type before their sum goes to f64 (or i64): so the error does not grow with
/// the number of elements.
pub(crate) const RUN: usize = 4096;

/// Joins lanes two by two.
#[inline(always)]
fn join_lanes<C: Copy>(mut lanes: [C; LANES], join: impl Fn(C, C) -> C) -> C {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for l in 0..width {
            lanes[l] = join(lanes[l], lanes[l + width]);
        }
    }
    lanes[0]
}

/// `step` over all elements, from `start` (a neutral element of `join`).
#[inline(always)]
pub(crate) fn fold<T: Copy, C: Copy>(xs: &[T], start: C, step: impl Fn(C, T) -> C, join: impl Fn(C, C) -> C) -> C {
    let mut lanes = [start; LANES];
    let chunks = xs.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for l in 0..LANES {
            lanes[l] = step(lanes[l], chunk[l]);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, x);
    }
    join_lanes(lanes, join)
}

/// [`fold`] over two slices of one length.
#[inline(always)]
pub(crate) fn fold2<T: Copy, U: Copy, C: Copy>(
    xs: &[T],
    ys: &[U],
    start: C,
    step: impl Fn(C, T, U) -> C,
    join: impl Fn(C, C) -> C,
) -> C {
    let ys = &ys[..xs.len()];
    let mut lanes = [start; LANES];
    let (x_chunks, y_chunks) = (xs.chunks_exact(LANES), ys.chunks_exact(LANES));
    let (x_rest, y_rest) = (x_chunks.remainder(), y_chunks.remainder());
    for (x, y) in x_chunks.zip(y_chunks) {
        for l in 0..LANES {
            lanes[l] = step(lanes[l], x[l], y[l]);
        }
    }
    for ((lane, &x), &y) in lanes.iter_mut().zip(x_rest).zip(y_rest) {
        *lane = step(*lane, x, y);
    }
    join_lanes(lanes, join)
}

/// [`fold`] over three slices of one length.
#[inline(always)]
pub(crate) fn fold3<T: Copy, C: Copy>(
    xs: &[T],
    ys: &[T],
    zs: &[T],
    start: C,
    step: impl Fn(C, T, T, T) -> C,
    join: impl Fn(C, C) -> C,
) -> C {
    let n = xs.len();
    let (ys, zs) = (&ys[..n], &zs[..n]);
    let mut lanes = [start; LANES];
    let whole = n / LANES * LANES;
    for first in (0..whole).step_by(LANES) {
        let (x, y, z) = (&xs[first..first + LANES], &ys[first..first + LANES], &zs[first..first + LANES]);
        for l in 0..LANES {
            lanes[l] = step(lanes[l], x[l], y[l], z[l]);
        }
    }
    for i in whole..n {
        lanes[i - whole] = step(lanes[i - whole], xs[i], ys[i], zs[i]);
    }
    join_lanes(lanes, join)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_counts_once() {
        for n in [0, 1, 31, 32, 33, 100, 1000] {
            let xs: Vec<i64> = (0..n).collect();
            assert_eq!(fold(&xs, 0, |a, x| a + x, |a, b| a + b), n * (n - 1) / 2);
            assert_eq!(fold(&xs, i64::MIN, i64::max, i64::max), if n == 0 { i64::MIN } else { n - 1 });
            assert_eq!(fold2(&xs, &xs, 0, |a, x, y| a + x * y, |a, b| a + b), xs.iter().map(|x| x * x).sum::<i64>());
        }
    }
}
