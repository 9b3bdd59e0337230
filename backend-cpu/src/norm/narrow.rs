//! Batch normalisation for planes of a few elements (in fully connected layers: one). Runs would be too short, so that channels lie side by
//! side in tiles of columns. A tile is normalised as a whole, row by row.

use memcore::backend::kernel::{BatchNorm, BatchNormGrad};
use memcore::error::Result;

use super::real;
use crate::element::{Element, Float, Real};
use crate::simd::{Isa, simd};
use crate::view::{Context, SharedMut};

/// Number of elements below which planes are narrow.
pub(super) const NARROW: usize = 16;

/// Columns of a tile.
const TILE: usize = 128;

/// Rows that are summed in the compute type before the sums are added in f64.
const ROWS: usize = 128;

/// Place of a tile: `rows` rows of `width` elements, `stride` apart, the first of which begins at `first`.
#[derive(Clone, Copy)]
struct Tile {
    first: usize,
    width: usize,
    stride: usize,
    rows: usize,
}

/// One number for each column of a tile.
type Columns<T> = [<T as Element>::Compute; TILE];

/// Fills the `l` columns of each channel with one number.
fn expand<T: Float>(columns: &mut Columns<T>, l: usize, channels: usize, value: impl Fn(usize) -> f64) {
    for (channel, columns) in columns.chunks_mut(l).take(channels).enumerate() {
        columns.fill(real::<T>(value(channel)));
    }
}

/// Forward pass, in training or evaluation, with parameters of type `P`.
pub(super) fn batch_norm<T: Float, P: Element<Compute = T::Compute>>(ctx: &Context<'_>, k: &BatchNorm) -> Result<()> {
    let [n, c, l] = *k.x.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one, and each output is taken once.
    let (x, weight, bias, out) = unsafe {
        (
            ctx.input::<T>(&k.x)?,
            ctx.input_option::<P>(&k.weight)?,
            ctx.input_option::<P>(&k.bias)?,
            SharedMut::new(ctx.output::<T>(&k.out)?),
        )
    };
    // SAFETY: as above.
    let ([running_mean, running_var], [save_mean, save_invstd]) = unsafe {
        let running = |operand| -> Result<_> { Ok(ctx.output_option::<P>(operand)?.map(SharedMut::new)) };
        let saved = |operand| -> Result<_> { Ok(ctx.output_option::<T::Compute>(operand)?.map(SharedMut::new)) };
        ([running(&k.running_mean)?, running(&k.running_var)?], [saved(&k.save_mean)?, saved(&k.save_invstd)?])
    };
    ctx.for_pieces(c, TILE / l, n * l, |start, end| {
        let channels = end - start;
        let tile = Tile { first: start * l, width: channels * l, stride: c * l, rows: n };
        // SAFETY: each task has its own channels.
        let part = |of: Option<SharedMut<T::Compute>>| of.map(|of| unsafe { of.part(start, channels) });
        // SAFETY: as above.
        let running = |of: Option<SharedMut<P>>| of.map(|of| unsafe { of.part(start, channels) });
        let (running_mean, running_var) = (running(running_mean), running(running_var));
        let zero = T::Compute::default();
        let (mut mean, mut scale, mut shift) = ([zero; TILE], [zero; TILE], [zero; TILE]);
        if let (true, Some(save_mean), Some(save_invstd)) = (k.training, part(save_mean), part(save_invstd)) {
            statistics(k, x, tile, l, &mut mean, (save_mean, save_invstd), (running_mean, running_var));
            expand::<T>(&mut scale, l, channels, |i| save_invstd[i].to_f64());
        } else if let (Some(running_mean), Some(running_var)) = (running_mean, running_var) {
            expand::<T>(&mut mean, l, channels, |i| running_mean[i].get().to_f64());
            expand::<T>(&mut scale, l, channels, |i| 1.0 / (running_var[i].get().to_f64() + k.eps).sqrt());
        }
        for (channel, scale) in scale.chunks_mut(l).take(channels).enumerate() {
            let weight = weight.map_or(real::<T>(1.0), |w| w[start + channel].get());
            scale.fill(scale[0] * weight);
        }
        expand::<T>(&mut shift, l, channels, |i| bias.map_or(0.0, |b| b[start + i].get().to_f64()));
        affine_rows(x, tile, &mean, &scale, &shift, out);
    });
    Ok(())
}

/// Computes the batch's statistics of a tile's channels, and updates the running ones.
fn statistics<T: Float, P: Element<Compute = T::Compute>>(
    k: &BatchNorm,
    x: &[T],
    tile: Tile,
    l: usize,
    mean: &mut Columns<T>,
    (save_mean, save_invstd): (&mut [T::Compute], &mut [T::Compute]),
    (mut running_mean, mut running_var): (Option<&mut [P]>, Option<&mut [P]>),
) {
    let count = (tile.rows * l) as f64;
    let (mut sums, mut squares) = ([0.0; TILE], [0.0; TILE]);
    column_sums(x, tile, &mut sums[..tile.width]);
    let exact = |channel: usize| sums[channel * l..(channel + 1) * l].iter().sum::<f64>() / count;
    expand::<T>(mean, l, save_mean.len(), exact);
    column_deviations(x, tile, mean, &mut squares[..tile.width]);
    for channel in 0..save_mean.len() {
        // The deviations are taken from the rounded mean.
        let shift = exact(channel) - mean[channel * l].to_f64();
        let squares = squares[channel * l..(channel + 1) * l].iter().sum::<f64>() - shift * shift * count;
        save_mean[channel] = mean[channel * l];
        save_invstd[channel] = real::<T>(1.0 / (squares / count + k.eps).sqrt());
        for (running, batch) in [(&mut running_mean, exact(channel)), (&mut running_var, squares / (count - 1.0))] {
            if let Some(running) = running {
                let old = running[channel].get().to_f64();
                running[channel] = P::put(real::<T>((1.0 - k.momentum) * old + k.momentum * batch));
            }
        }
    }
}

/// Computes the gradients, with parameters of type `P`.
pub(super) fn batch_norm_grad<T: Float, P: Element<Compute = T::Compute>>(
    ctx: &Context<'_>,
    k: &BatchNormGrad,
) -> Result<()> {
    let [n, c, l] = *k.x.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one.
    let (grad, x, mean, invstd, weight) = unsafe {
        (
            ctx.input::<T>(&k.grad)?,
            ctx.input::<T>(&k.x)?,
            ctx.input::<T::Compute>(&k.mean)?,
            ctx.input::<T::Compute>(&k.invstd)?,
            ctx.input_option::<P>(&k.weight)?,
        )
    };
    // SAFETY: as above, and each output is taken once.
    let (out_x, [out_weight, out_bias]) = unsafe {
        let shared = |operand| -> Result<_> { Ok(ctx.output_option::<P>(operand)?.map(SharedMut::new)) };
        let out_x = ctx.output_option::<T>(&k.out_x)?.map(SharedMut::new);
        (out_x, [shared(&k.out_weight)?, shared(&k.out_bias)?])
    };
    let count = (n * l) as f64;
    ctx.for_pieces(c, TILE / l, n * l, |start, end| {
        let channels = end - start;
        let tile = Tile { first: start * l, width: channels * l, stride: c * l, rows: n };
        let zero = T::Compute::default();
        let mut means = [zero; TILE];
        expand::<T>(&mut means, l, channels, |i| mean[start + i].to_f64());
        let (mut plain, mut product) = ([0.0; TILE], [0.0; TILE]);
        column_grads(grad, x, tile, &means, &mut plain[..tile.width], &mut product[..tile.width]);
        let total = |sums: &[f64], i: usize| sums[i * l..(i + 1) * l].iter().sum::<f64>();
        let invstd = |i: usize| invstd[start + i].to_f64();
        for i in 0..channels {
            // SAFETY: each task has its own channels.
            unsafe {
                if let Some(out) = out_weight {
                    *out.get().add(start + i) = P::put(real::<T>(total(&product, i) * invstd(i)));
                }
                if let Some(out) = out_bias {
                    *out.get().add(start + i) = P::put(real::<T>(total(&plain, i)));
                }
            }
        }
        let Some(out_x) = out_x else { return };
        let (mut scale, mut mean_grad, mut slope) = ([zero; TILE], [zero; TILE], [zero; TILE]);
        expand::<T>(&mut scale, l, channels, |i| invstd(i) * weight.map_or(1.0, |w| w[start + i].get().to_f64()));
        if k.training {
            expand::<T>(&mut mean_grad, l, channels, |i| total(&plain, i) / count);
            expand::<T>(&mut slope, l, channels, |i| total(&product, i) / count * invstd(i) * invstd(i));
        }
        grad_rows(grad, x, tile, [&means, &scale, &mean_grad, &slope], out_x);
    });
    Ok(())
}

simd! {
    fn column_sums<T: Float>(x: &[T], tile: Tile, totals: &mut [f64]) = column_sums_body;
    fn column_deviations<T: Float>(x: &[T], tile: Tile, mean: &Columns<T>, totals: &mut [f64]) = column_deviations_body;
    fn column_grads<T: Float>(
        grad: &[T], x: &[T], tile: Tile, mean: &Columns<T>, plain: &mut [f64], product: &mut [f64],
    ) = column_grads_body;
    fn affine_rows<T: Float>(
        x: &[T], tile: Tile, mean: &Columns<T>, scale: &Columns<T>, shift: &Columns<T>, out: SharedMut<T>,
    ) = affine_rows_body;
    fn grad_rows<T: Float>(
        grad: &[T], x: &[T], tile: Tile, columns: [&Columns<T>; 4], out: SharedMut<T>,
    ) = grad_rows_body;
}

/// Adds the sums of a stretch of rows to the totals, and empties them.
#[inline(always)]
fn flush<R: Real>(sums: &mut [R], totals: &mut [f64]) {
    for (total, sum) in totals.iter_mut().zip(sums) {
        *total += sum.to_f64();
        *sum = R::default();
    }
}

#[inline(always)]
fn column_sums_body<S: Isa, T: Float>(x: &[T], tile: Tile, totals: &mut [f64]) {
    let mut sums = [T::Compute::default(); TILE];
    for row in 0..tile.rows {
        let x = &x[tile.first + row * tile.stride..][..tile.width];
        for (s, x) in sums.iter_mut().zip(x) {
            *s = *s + x.get();
        }
        if row % ROWS == ROWS - 1 {
            flush(&mut sums, totals);
        }
    }
    flush(&mut sums, totals);
}

#[inline(always)]
fn column_deviations_body<S: Isa, T: Float>(x: &[T], tile: Tile, mean: &Columns<T>, totals: &mut [f64]) {
    let mut sums = [T::Compute::default(); TILE];
    for row in 0..tile.rows {
        let x = &x[tile.first + row * tile.stride..][..tile.width];
        for ((s, x), &mean) in sums.iter_mut().zip(x).zip(mean) {
            let d = x.get() - mean;
            *s = d.fma::<S>(d, *s);
        }
        if row % ROWS == ROWS - 1 {
            flush(&mut sums, totals);
        }
    }
    flush(&mut sums, totals);
}

#[inline(always)]
fn column_grads_body<S: Isa, T: Float>(
    grad: &[T],
    x: &[T],
    tile: Tile,
    mean: &Columns<T>,
    plain: &mut [f64],
    product: &mut [f64],
) {
    let zero = T::Compute::default();
    let (mut sums, mut products) = ([zero; TILE], [zero; TILE]);
    for row in 0..tile.rows {
        let at = tile.first + row * tile.stride;
        let (grad, x) = (&grad[at..][..tile.width], &x[at..][..tile.width]);
        for ((((s, p), g), x), &mean) in sums.iter_mut().zip(&mut products).zip(grad).zip(x).zip(mean) {
            *s = *s + g.get();
            *p = g.get().fma::<S>(x.get() - mean, *p);
        }
        if row % ROWS == ROWS - 1 {
            flush(&mut sums, plain);
            flush(&mut products, product);
        }
    }
    flush(&mut sums, plain);
    flush(&mut products, product);
}

#[inline(always)]
fn affine_rows_body<S: Isa, T: Float>(
    x: &[T],
    tile: Tile,
    mean: &Columns<T>,
    scale: &Columns<T>,
    shift: &Columns<T>,
    out: SharedMut<T>,
) {
    for row in 0..tile.rows {
        let at = tile.first + row * tile.stride;
        // SAFETY: each task has its own columns of every row.
        let out = unsafe { out.part(at, tile.width) };
        for ((((o, x), &mean), &scale), &shift) in out.iter_mut().zip(&x[at..]).zip(mean).zip(scale).zip(shift) {
            *o = T::put((x.get() - mean).fma::<S>(scale, shift));
        }
    }
}

/// `out = scale·(grad − mean_grad − slope·(x − mean))`.
#[inline(always)]
fn grad_rows_body<S: Isa, T: Float>(grad: &[T], x: &[T], tile: Tile, columns: [&Columns<T>; 4], out: SharedMut<T>) {
    let [mean, scale, mean_grad, slope] = columns.map(|c| &c[..tile.width]);
    for row in 0..tile.rows {
        let at = tile.first + row * tile.stride;
        // SAFETY: each task has its own columns of every row.
        let out = unsafe { out.part(at, tile.width) };
        let (grad, x) = (&grad[at..][..tile.width], &x[at..][..tile.width]);
        for j in 0..tile.width {
            let value = (-slope[j]).fma::<S>(x[j].get() - mean[j], grad[j].get() - mean_grad[j]);
            out[j] = T::put(scale[j] * value);
        }
    }
}
