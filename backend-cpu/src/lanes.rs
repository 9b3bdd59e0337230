//! Reductions of slices in independent lanes, which vectorise and whose order depends on the length alone.
//!
//! The loops over lanes have lengths that the compiler does not know: it then vectorises them as loops. Short loops of known length
//! would be unrolled first and vectorise only by luck.

/// Elements that are summed in the compute type before their sum goes to f64 (or i64): so the error does not grow with
/// the number of elements.
pub(crate) const RUN: usize = 4096;

/// The most lanes.
const MAX_LANES: usize = 128;

/// Lanes come in groups of this many.
const GROUP: usize = 16;

/// `step` over all elements, from `start` (a neutral element of `join`).
#[inline(always)]
pub(crate) fn fold<T: Copy, C: Copy>(xs: &[T], start: C, step: impl Fn(C, T) -> C, join: impl Fn(C, C) -> C) -> C {
    fold3(xs, xs, xs, start, |c, x, _, _| step(c, x), join)
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
    fold3(xs, ys, xs, start, |c, x, y, _| step(c, x, y), join)
}

/// [`fold`] over three slices of one length.
#[inline(always)]
pub(crate) fn fold3<T: Copy, U: Copy, V: Copy, C: Copy>(
    xs: &[T],
    ys: &[U],
    zs: &[V],
    start: C,
    step: impl Fn(C, T, U, V) -> C,
    join: impl Fn(C, C) -> C,
) -> C {
    let n = xs.len();
    let (ys, zs) = (&ys[..n], &zs[..n]);
    let width = (n / 4).next_multiple_of(GROUP).clamp(GROUP, MAX_LANES);
    let mut storage = [start; MAX_LANES];
    let lanes = &mut storage[..width];
    let mut at = 0;
    // Four rows of lanes at a time, so that the lanes are loaded and stored a quarter as often.
    while n - at >= 4 * width {
        let row = |r: usize| at + r * width..at + (r + 1) * width;
        let (x0, x1, x2, x3) = (&xs[row(0)], &xs[row(1)], &xs[row(2)], &xs[row(3)]);
        let (y0, y1, y2, y3) = (&ys[row(0)], &ys[row(1)], &ys[row(2)], &ys[row(3)]);
        let (z0, z1, z2, z3) = (&zs[row(0)], &zs[row(1)], &zs[row(2)], &zs[row(3)]);
        for (l, lane) in lanes.iter_mut().enumerate() {
            let c = step(step(*lane, x0[l], y0[l], z0[l]), x1[l], y1[l], z1[l]);
            *lane = step(step(c, x2[l], y2[l], z2[l]), x3[l], y3[l], z3[l]);
        }
        at += 4 * width;
    }
    while at < n {
        let end = (at + width).min(n);
        for (((lane, &x), &y), &z) in lanes.iter_mut().zip(&xs[at..end]).zip(&ys[at..end]).zip(&zs[at..end]) {
            *lane = step(*lane, x, y, z);
        }
        at = end;
    }
    for group in (GROUP..width).step_by(GROUP) {
        for l in 0..GROUP {
            storage[l] = join(storage[l], storage[group + l]);
        }
    }
    let mut half = GROUP;
    while half > 1 {
        half /= 2;
        for l in 0..half {
            storage[l] = join(storage[l], storage[l + half]);
        }
    }
    storage[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_counts_once() {
        for n in [0, 1, 15, 16, 17, 63, 64, 65, 100, 511, 512, 513, 1000, 5000] {
            let xs: Vec<i64> = (0..n).collect();
            assert_eq!(fold(&xs, 0, |a, x| a + x, |a, b| a + b), n * (n - 1) / 2);
            assert_eq!(fold(&xs, i64::MIN, i64::max, i64::max), if n == 0 { i64::MIN } else { n - 1 });
            assert_eq!(fold2(&xs, &xs, 0, |a, x, y| a + x * y, |a, b| a + b), xs.iter().map(|x| x * x).sum::<i64>());
        }
    }
}
