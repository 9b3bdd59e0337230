//! Gradient of attention, from recomputed probabilities. Two passes compute the probabilities twice, and therefore need no sums across
//! tasks: one by tiles of keys, for `dk` and `dv`, and one by tiles of queries, for `dq` and `dmask`.

use memcore::backend::kernel::AttentionGrad;
use memcore::error::Result;

use super::tile::{Left, dot, product};
use super::{Pairs, Rows, Scores, Sizes, TASK, take};
use crate::element::{Float, Number, Real, float_type};
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// Computes the gradients of q, k and v, `delta`, and the gradient of the mask if required.
pub(crate) fn attention_grad(ctx: &Context<'_>, k: &AttentionGrad) -> Result<()> {
    float_type!(k.q.dtype, T => run::<T>(ctx, k), else Ok(()))
}

struct Backward<'a, T: Float> {
    sizes: Sizes,
    scores: Scores<T>,
    q: Rows<T>,
    k: Rows<T>,
    v: Rows<T>,
    grad: Rows<T>,
    logsumexp: &'a [T::Compute],
    delta: &'a [T::Compute],
    dq: Rows<T>,
    dk: Rows<T>,
    dv: Rows<T>,
    dmask: Option<Pairs<T>>,
}

fn run<T: Float>(ctx: &Context<'_>, k: &AttentionGrad) -> Result<()> {
    let sizes = Sizes::new::<T>(&k.q, &k.k, &k.v)?;
    let grad = Rows::<T>::new(ctx, &k.grad)?;
    // SAFETY: not an in-place kernel: no operand aliases a written one, and each output is taken once.
    let (logsumexp, delta) = unsafe { (ctx.input::<T::Compute>(&k.logsumexp)?, ctx.output::<T::Compute>(&k.delta)?) };
    deltas(ctx, &sizes, &grad, &Rows::new(ctx, &k.out)?, SharedMut::new(delta));
    let all = Backward {
        sizes,
        scores: Scores::new(ctx, k.scale, k.causal, &k.mask)?,
        q: Rows::new(ctx, &k.q)?,
        k: Rows::new(ctx, &k.k)?,
        v: Rows::new(ctx, &k.v)?,
        grad,
        logsumexp,
        delta,
        dq: Rows::new(ctx, &k.dq)?,
        dk: Rows::new(ctx, &k.dk)?,
        dv: Rows::new(ctx, &k.dv)?,
        dmask: k.dmask.as_ref().map(|dmask| Pairs::new(ctx, dmask)).transpose()?,
    };
    let Sizes { b, h, hk, t, s, tiles, .. } = sizes;
    let n = s.div_ceil(tiles.keys);
    sizes.for_tiles(ctx, b * hk * n, [tiles.keys, t * (h / hk)], |task, room| {
        all.keys(task / n, task % n * tiles.keys, room);
    });
    let n = t.div_ceil(tiles.queries);
    sizes.for_tiles(ctx, b * h * n, [tiles.queries, s], |task, room| {
        all.queries(task / n, task % n * tiles.queries, room);
    });
    Ok(())
}

/// `delta = Σ grad·out` of each row.
fn deltas<T: Float>(ctx: &Context<'_>, z: &Sizes, grad: &Rows<T>, out: &Rows<T>, delta: SharedMut<T::Compute>) {
    ctx.for_pieces(z.b * z.h * z.t, TASK.div_ceil(z.dv.max(1)), z.dv, |start, end| {
        // SAFETY: tasks have rows of their own.
        let delta = unsafe { delta.part(start, end - start) };
        for (row, delta) in (start..end).zip(delta) {
            let (at, i) = (z.heads(row / z.t).0, row % z.t);
            // SAFETY: the row exists, and these operands are only read.
            *delta = unsafe { dot(grad.row(at, i), out.row(at, i)) };
        }
    });
}

impl<T: Float> Backward<'_, T> {
    /// Computes `dk` and `dv` of a tile of keys of one key head, beginning with `first`. Tiles of scores have a row per query.
    fn keys(&self, key_head: usize, first: usize, mut room: &mut [T::Compute]) {
        let z = &self.sizes;
        let (width, key_row, value_row) = (z.tiles.keys, z.key_row(), z.value_row());
        let key_at = [key_head / z.hk, key_head % z.hk];
        let keys = first..(first + width).min(z.s);
        let (k, v) = (take(&mut room, z.d * width), take(&mut room, z.dv * width));
        let (q, grad) = (take(&mut room, z.tiles.queries * key_row), take(&mut room, z.tiles.queries * value_row));
        let [p, ds] = [(); 2].map(|()| take(&mut room, z.tiles.queries * width));
        let (dk, dv) = (take(&mut room, width * key_row), take(&mut room, width * value_row));
        dk.fill(T::Compute::default());
        dv.fill(T::Compute::default());
        // SAFETY: these keys exist, and the operands are only read.
        unsafe {
            self.k.load_transposed(key_at, keys.clone(), k, width);
            self.v.load_transposed(key_at, keys.clone(), v, width);
        }
        // Queries before the first key do not see it.
        let start = if self.scores.causal { first / z.tiles.queries * z.tiles.queries } else { 0 };
        let group = z.h / z.hk;
        for in_batch in key_at[1] * group..(key_at[1] + 1) * group {
            let (at, head) = ([key_at[0], in_batch], key_at[0] * z.h + in_batch);
            for start in (start..z.t).step_by(z.tiles.queries) {
                let queries = start..(start + z.tiles.queries).min(z.t);
                let n = queries.len();
                // SAFETY: these queries exist, and the operands are only read.
                unsafe {
                    self.q.load(at, queries.clone(), q, key_row);
                    self.grad.load(at, queries.clone(), grad, value_row);
                }
                product(Left { data: q, row: key_row, column: 1 }, k, width, p, width, [n, keys.len(), z.d], false);
                let left = Left { data: grad, row: value_row, column: 1 };
                product(left, v, width, ds, width, [n, keys.len(), z.dv], false);
                // SAFETY: the head, the queries and the keys exist.
                unsafe { self.scores.finish(p, width, at, queries.clone(), keys.clone(), false) };
                let rows = head * z.t + queries.start..head * z.t + queries.end;
                let (logsumexp, delta) = (&self.logsumexp[rows.clone()], &self.delta[rows]);
                gradients_by_row(p, ds, width, keys.len(), logsumexp, delta);
                let left = |data| Left { data, row: 1, column: width };
                product(left(p), grad, value_row, dv, value_row, [keys.len(), z.dv, n], true);
                product(left(ds), q, key_row, dk, key_row, [keys.len(), z.d, n], true);
            }
        }
        for (at, key) in keys.enumerate() {
            // SAFETY: the rows exist, and are this task's alone.
            unsafe {
                self.dk.write(key_at, key, &dk[at * key_row..], self.scores.scale);
                self.dv.write(key_at, key, &dv[at * value_row..], T::Compute::from_f64(1.0));
            }
        }
    }

    /// Computes `dq` and `dmask` of a tile of queries of one head, beginning with `first`. Tiles of scores have a row per key.
    fn queries(&self, head: usize, first: usize, mut room: &mut [T::Compute]) {
        let z = &self.sizes;
        let (width, key_row, value_row) = (z.tiles.queries, z.key_row(), z.value_row());
        let (at, key_at) = z.heads(head);
        let queries = first..(first + width).min(z.t);
        let n = queries.len();
        let (q, grad) = (take(&mut room, z.d * width), take(&mut room, z.dv * width));
        let (k, v) = (take(&mut room, z.tiles.keys * key_row), take(&mut room, z.tiles.keys * value_row));
        let [p, ds] = [(); 2].map(|()| take(&mut room, z.tiles.keys * width));
        let dq = take(&mut room, width * key_row);
        dq.fill(T::Compute::default());
        // SAFETY: these queries exist, and the operands are only read.
        unsafe {
            self.q.load_transposed(at, queries.clone(), q, width);
            self.grad.load_transposed(at, queries.clone(), grad, width);
        }
        let rows = head * z.t + queries.start..head * z.t + queries.end;
        let (logsumexp, delta) = (&self.logsumexp[rows.clone()], &self.delta[rows]);
        let visible = if self.scores.causal { z.s.min(queries.end) } else { z.s };
        for start in (0..visible).step_by(z.tiles.keys) {
            let keys = start..(start + z.tiles.keys).min(visible);
            // SAFETY: these keys exist, and the operands are only read.
            unsafe {
                self.k.load(key_at, keys.clone(), k, key_row);
                self.v.load(key_at, keys.clone(), v, value_row);
            }
            product(Left { data: k, row: key_row, column: 1 }, q, width, p, width, [keys.len(), n, z.d], false);
            let left = Left { data: v, row: value_row, column: 1 };
            product(left, grad, width, ds, width, [keys.len(), n, z.dv], false);
            // SAFETY: the head, the queries and the keys exist.
            unsafe { self.scores.finish(p, width, at, queries.clone(), keys.clone(), true) };
            gradients_by_column(p, ds, width, keys.len(), logsumexp, delta);
            if let Some(dmask) = &self.dmask {
                // SAFETY: the head, the queries and the keys exist, and these queries are this task's alone.
                unsafe { dmask.write(at, queries.clone(), keys.clone(), |i, j| ds[j * width + i]) };
            }
            let left = Left { data: ds, row: 1, column: width };
            product(left, k, key_row, dq, key_row, [n, z.d, keys.len()], true);
        }
        if let Some(dmask) = &self.dmask {
            // Keys that none of these queries sees have no part in the result.
            // SAFETY: as above.
            unsafe { dmask.write(at, queries.clone(), visible..z.s, |_, _| T::Compute::default()) };
        }
        for (row, query) in queries.enumerate() {
            // SAFETY: the row exists, and is this task's alone.
            unsafe { self.dq.write(at, query, &dq[row * key_row..], self.scores.scale) };
        }
    }
}

simd! {
    /// Turns scores into probabilities `p`, and `x = grad @ vᵀ` into `p·(x − delta)`, with a row for each query.
    fn gradients_by_row<R: Real>(
        p: &mut [R], ds: &mut [R], stride: usize, keys: usize, logsumexp: &[R], delta: &[R],
    ) = by_row_body;
    /// As `gradients_by_row`, with a row for each key.
    fn gradients_by_column<R: Real>(
        p: &mut [R], ds: &mut [R], stride: usize, keys: usize, logsumexp: &[R], delta: &[R],
    ) = by_column_body;
}

/// Returns `(p, ds)` of one score; zero for a hidden key.
#[inline(always)]
fn gradient<S: Isa, R: Real>(score: R, through: R, logsumexp: R, delta: R) -> (R, R) {
    let p = (score - logsumexp).exp::<S>();
    let hidden = (score == R::LOWEST) | (logsumexp < R::from_f64(AttentionGrad::LOWEST_LOGSUMEXP));
    let p = if hidden { R::default() } else { p };
    (p, p * (through - delta))
}

#[inline(always)]
fn by_row_body<S: Isa, R: Real>(p: &mut [R], ds: &mut [R], stride: usize, keys: usize, logsumexp: &[R], delta: &[R]) {
    for (row, (&logsumexp, &delta)) in logsumexp.iter().zip(delta).enumerate() {
        let (p, ds) = (&mut p[row * stride..][..keys], &mut ds[row * stride..][..keys]);
        for (p, ds) in p.iter_mut().zip(ds) {
            (*p, *ds) = gradient::<S, R>(*p, *ds, logsumexp, delta);
        }
    }
}

#[inline(always)]
fn by_column_body<S: Isa, R: Real>(
    p: &mut [R],
    ds: &mut [R],
    stride: usize,
    keys: usize,
    logsumexp: &[R],
    delta: &[R],
) {
    let n = logsumexp.len();
    let delta = &delta[..n];
    for key in 0..keys {
        let (p, ds) = (&mut p[key * stride..][..n], &mut ds[key * stride..][..n]);
        for i in 0..n {
            (p[i], ds[i]) = gradient::<S, R>(p[i], ds[i], logsumexp[i], delta[i]);
        }
    }
}
