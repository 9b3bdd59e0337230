//! Attention by the online softmax (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018). Tiles of keys are taken
//! in turn, and the sums so far are scaled down whenever a row's maximum rises.

use memcore::backend::kernel::Attention;
use memcore::error::Result;

use super::tile::{COLUMNS, Left, product, scale_rows};
use super::{Rows, Scores, Sizes, take};
use crate::element::{Float, Number, Real, float_type};
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// `out = softmax(scale·q @ kᵀ + mask) @ v`, and each row's logsumexp if required.
pub(crate) fn attention(ctx: &Context<'_>, k: &Attention) -> Result<()> {
    float_type!(k.q.dtype, T => run::<T>(ctx, k), else Ok(()))
}

struct Forward<T: Float> {
    sizes: Sizes,
    scores: Scores<T>,
    q: Rows<T>,
    k: Rows<T>,
    v: Rows<T>,
    out: Rows<T>,
    logsumexp: Option<SharedMut<T::Compute>>,
}

fn run<T: Float>(ctx: &Context<'_>, k: &Attention) -> Result<()> {
    let sizes = Sizes::new::<T>(&k.q, &k.k, &k.v)?;
    let all = Forward {
        sizes,
        scores: Scores::new(ctx, k.scale, k.causal, &k.mask)?,
        q: Rows::<T>::new(ctx, &k.q)?,
        k: Rows::new(ctx, &k.k)?,
        v: Rows::new(ctx, &k.v)?,
        out: Rows::new(ctx, &k.out)?,
        logsumexp: k.logsumexp.as_ref().map(|x| ctx.ptr(x).map(SharedMut::from_ptr)).transpose()?,
    };
    let tiles = sizes.t.div_ceil(sizes.tiles.queries);
    sizes.for_tiles(ctx, sizes.b * sizes.h * tiles, [sizes.tiles.queries, sizes.s], |task, room| {
        all.tile(task / tiles, task % tiles * sizes.tiles.queries, room);
    });
    Ok(())
}

impl<T: Float> Forward<T> {
    /// Computes a tile of queries of one head, beginning with `first`. Tiles of scores have a row per key, so that operations by query run
    /// over contiguous columns.
    fn tile(&self, head: usize, first: usize, mut room: &mut [T::Compute]) {
        let z = &self.sizes;
        let (width, key_row, value_row) = (z.tiles.queries, z.key_row(), z.value_row());
        let (at, key_at) = z.heads(head);
        let queries = first..(first + width).min(z.t);
        let n = queries.len();
        let q = take(&mut room, z.d * width);
        let k = take(&mut room, z.tiles.keys * key_row);
        let v = take(&mut room, z.tiles.keys * value_row);
        let scores = take(&mut room, z.tiles.keys * width);
        let sums = take(&mut room, width * value_row);
        let [max, total, factor] = [(); 3].map(|()| take(&mut room, width));
        sums.fill(T::Compute::default());
        total.fill(T::Compute::default());
        max.fill(T::Compute::LOWEST);
        // SAFETY: these queries exist, and the operand is only read.
        unsafe { self.q.load_transposed(at, queries.clone(), q, width) };
        let visible = if self.scores.causal { z.s.min(queries.end) } else { z.s };
        for start in (0..visible).step_by(z.tiles.keys) {
            let keys = start..(start + z.tiles.keys).min(visible);
            // SAFETY: these keys exist, and the operands are only read.
            unsafe {
                self.k.load(key_at, keys.clone(), k, key_row);
                self.v.load(key_at, keys.clone(), v, value_row);
            }
            let left = Left { data: k, row: key_row, column: 1 };
            product(left, q, width, scores, width, [keys.len(), n, z.d], false);
            // SAFETY: the head, the queries and the keys exist.
            unsafe { self.scores.finish(scores, width, at, queries.clone(), keys.clone(), true) };
            exponentials(scores, width, [keys.len(), n], max, total, factor);
            for (i, &factor) in factor[..n].iter().enumerate() {
                scale_rows(&mut sums[i * value_row..], value_row, [1, z.dv], factor);
            }
            let left = Left { data: scores, row: 1, column: width };
            product(left, v, value_row, sums, value_row, [n, z.dv, keys.len()], true);
        }
        self.write(head, first, n, sums, max, total);
    }

    /// Divides by the denominators and writes the result. A row that saw no key is 0.
    fn write(
        &self,
        head: usize,
        first: usize,
        n: usize,
        sums: &[T::Compute],
        max: &[T::Compute],
        total: &[T::Compute],
    ) {
        let (at, value_row) = (self.sizes.heads(head).0, self.sizes.value_row());
        let (zero, one) = (T::Compute::default(), T::Compute::from_f64(1.0));
        for (i, &total) in total[..n].iter().enumerate() {
            let factor = if total == zero { zero } else { one / total };
            // SAFETY: the rows of these queries exist, and are this task's alone.
            unsafe { self.out.write(at, first + i, &sums[i * value_row..], factor) };
        }
        let Some(logsumexp) = &self.logsumexp else { return };
        // SAFETY: as above.
        let logsumexp = unsafe { logsumexp.part(head * self.sizes.t + first, n) };
        for (to, (max, total)) in logsumexp.iter_mut().zip(max.iter().zip(total)) {
            let unseen = *total == zero;
            *to = if unseen { T::Compute::LOWEST } else { T::Compute::from_f64(max.to_f64() + total.to_f64().ln()) };
        }
    }
}

simd! {
    /// Turns scores `[keys, queries]` into `e^(score − max)`, with maxima that include these scores. Their sums are added to `total`, after
    /// older sums were multiplied by `factor`.
    fn exponentials<R: Real>(
        scores: &mut [R], stride: usize, sizes: [usize; 2], max: &mut [R], total: &mut [R], factor: &mut [R],
    ) = exponentials_body;
}

#[inline(always)]
fn exponentials_body<S: Isa, R: Real>(
    scores: &mut [R],
    stride: usize,
    [keys, queries]: [usize; 2],
    max: &mut [R],
    total: &mut [R],
    factor: &mut [R],
) {
    let zero = R::default();
    for start in (0..queries).step_by(COLUMNS) {
        let n = COLUMNS.min(queries - start);
        let (max, total, factor) = (&mut max[start..][..n], &mut total[start..][..n], &mut factor[start..][..n]);
        let mut highest = [R::LOWEST; COLUMNS];
        highest[..n].copy_from_slice(max);
        for key in 0..keys {
            for (m, &x) in highest.iter_mut().zip(&scores[key * stride + start..][..n]) {
                *m = if x > *m { x } else { *m };
            }
        }
        // If nothing was seen yet: −∞ − 0 is −∞, while −∞ − −∞ would be NaN.
        let mut shift = highest;
        for ((shift, (max, total)), (factor, highest)) in
            shift.iter_mut().zip(max.iter_mut().zip(total.iter_mut())).zip(factor.iter_mut().zip(highest))
        {
            *shift = if highest == R::LOWEST { zero } else { highest };
            *factor = if *max == R::LOWEST { zero } else { (*max - *shift).exp_nonpositive::<S>() };
            *total = *total * *factor;
            *max = highest;
        }
        for key in 0..keys {
            for ((x, shift), total) in scores[key * stride + start..][..n].iter_mut().zip(shift).zip(total.iter_mut()) {
                let p = (*x - shift).exp_nonpositive::<S>();
                *x = if *x == R::LOWEST { zero } else { p };
                *total = *total + *x;
            }
        }
    }
}
