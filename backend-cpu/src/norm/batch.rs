//! Batch normalisation of the channels of `[n, c, l]`.

use memcore::backend::kernel::BatchNorm;
use memcore::error::Result;

use super::narrow::{self, NARROW};
use super::{TASK, channel_types, real, sum, sum_squares};
use crate::element::{Element, Float, Real};
use crate::lanes::{Map, map3};
use crate::parallel::SCRATCH_BYTES;
use crate::simd::{Isa, simd};
use crate::vector::Vector;
use crate::view::{Context, SharedMut};

/// `out = (x − mean)·invstd·weight + bias` per channel, with the statistics of the batch or the running ones.
pub(crate) fn batch_norm(ctx: &Context<'_>, k: &BatchNorm) -> Result<()> {
    channel_types!(k, T, P => run::<T, P>(ctx, k))
}

/// Division of a batch's samples for the sums over them, because few channels would give too few tasks.
pub(super) struct Pieces {
    /// Pieces per channel.
    pub(super) count: usize,
    /// Samples per piece.
    pub(super) samples: usize,
}

impl Pieces {
    pub(super) fn new([n, c, l]: [usize; 3], values_each: usize) -> Self {
        let wanted = 32usize.div_ceil(c.max(1)).min((n * l).div_ceil(TASK));
        let room = SCRATCH_BYTES / (size_of::<f64>() * values_each * c.max(1));
        let count = wanted.min(n).min(room).max(1);
        Self { count, samples: n.div_ceil(count) }
    }

    /// Returns the samples of piece `i` of `n` samples.
    pub(super) fn range(&self, i: usize, n: usize) -> (usize, usize) {
        ((i * self.samples).min(n), ((i + 1) * self.samples).min(n))
    }
}

/// Runs the kernel for parameters of type `P`.
fn run<T: Float, P: Element<Compute = T::Compute>>(ctx: &Context<'_>, k: &BatchNorm) -> Result<()> {
    let [n, c, l] = *k.x.dims() else { return Ok(()) };
    if (1..NARROW).contains(&l) {
        return narrow::batch_norm::<T, P>(ctx, k);
    }
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
    let (running_mean, running_var, save_mean, save_invstd) = unsafe {
        (
            ctx.output_option::<P>(&k.running_mean)?,
            ctx.output_option::<P>(&k.running_var)?,
            ctx.output_option::<T::Compute>(&k.save_mean)?,
            ctx.output_option::<T::Compute>(&k.save_invstd)?,
        )
    };
    let normalise = |mean: &(dyn Fn(usize) -> T::Compute + Sync), invstd: &(dyn Fn(usize) -> T::Compute + Sync)| {
        ctx.for_pieces(n * c, TASK.div_ceil(l.max(1)), l, |start, end| {
            for plane in start..end {
                let channel = plane % c;
                let w = weight.map_or(real::<T>(1.0), |w| w[channel].get());
                let b = bias.map_or(real::<T>(0.0), |b| b[channel].get());
                // SAFETY: planes are disjoint.
                let out = unsafe { out.part(plane * l, l) };
                plane_affine(&x[plane * l..(plane + 1) * l], mean(channel), invstd(channel), w, b, out);
            }
        });
    };
    if !k.training {
        let (Some(mean), Some(var)) = (running_mean, running_var) else { return Ok(()) };
        let invstd = |c: usize| real::<T>(1.0 / (var[c].get().to_f64() + k.eps).sqrt());
        normalise(&|c| mean[c].get(), &invstd);
        return Ok(());
    }
    let (Some(mean), Some(invstd)) = (save_mean, save_invstd) else { return Ok(()) };
    statistics(ctx, k, x, [n, c, l], mean, invstd, running_mean, running_var);
    let (mean, invstd) = (&*mean, &*invstd);
    normalise(&|c| mean[c], &|c| invstd[c]);
    Ok(())
}

/// Number, mean and sum of squared deviations of some elements. They are joined by the formula of Chan, Golub and LeVeque (1979).
#[derive(Clone, Copy, Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn join(self, other: Moments) -> Moments {
        let count = self.count + other.count;
        if count == 0.0 {
            return self;
        }
        let delta = other.mean - self.mean;
        let weight = other.count / count;
        Moments {
            count,
            mean: self.mean + delta * weight,
            squares: self.squares + other.squares + delta * delta * self.count * weight,
        }
    }
}

/// Computes the batch's mean and inverse standard deviation of each channel, and updates the running ones.
#[allow(clippy::too_many_arguments)]
fn statistics<T: Float, P: Element<Compute = T::Compute>>(
    ctx: &Context<'_>,
    k: &BatchNorm,
    x: &[T],
    [n, c, l]: [usize; 3],
    mean: &mut [T::Compute],
    invstd: &mut [T::Compute],
    mut running_mean: Option<&mut [P]>,
    mut running_var: Option<&mut [P]>,
) {
    let pieces = Pieces::new([n, c, l], 2);
    let mut scratch = ctx.scratch();
    // For each channel and piece: mean and sum of squared deviations.
    let partials = scratch.slice_mut::<f64>(2 * c * pieces.count);
    let shared = SharedMut::new(partials);
    ctx.for_pieces(c * pieces.count, 1, pieces.samples * l, |task, _| {
        let (channel, piece) = (task / pieces.count, task % pieces.count);
        let (start, end) = pieces.range(piece, n);
        let mut all = Moments::default();
        for sample in start..end {
            let at = (sample * c + channel) * l;
            let (mean, squares) = plane_moments(&x[at..at + l]);
            all = all.join(Moments { count: l as f64, mean, squares });
        }
        // SAFETY: each task has its own two values.
        unsafe { shared.part(2 * task, 2) }.copy_from_slice(&[all.mean, all.squares]);
    });
    for channel in 0..c {
        let mut all = Moments::default();
        for piece in 0..pieces.count {
            let (start, end) = pieces.range(piece, n);
            let at = 2 * (channel * pieces.count + piece);
            let count = ((end - start) * l) as f64;
            all = all.join(Moments { count, mean: partials[at], squares: partials[at + 1] });
        }
        mean[channel] = real::<T>(all.mean);
        invstd[channel] = real::<T>(1.0 / (all.squares / all.count + k.eps).sqrt());
        let update = |running: &mut Option<&mut [P]>, batch: f64| {
            if let Some(running) = running {
                let old = running[channel].get().to_f64();
                running[channel] = P::put(real::<T>((1.0 - k.momentum) * old + k.momentum * batch));
            }
        };
        update(&mut running_mean, all.mean);
        update(&mut running_var, all.squares / (all.count - 1.0));
    }
}

simd! {
    fn plane_moments<T: Float>(x: &[T]) -> (f64, f64) = plane_moments_body;
    fn plane_affine<T: Float>(
        x: &[T], mean: T::Compute, invstd: T::Compute, weight: T::Compute, bias: T::Compute, out: &mut [T],
    ) = plane_affine_body;
}

/// Returns mean and sum of squared deviations of one plane.
#[inline(always)]
fn plane_moments_body<S: Isa, T: Float>(x: &[T]) -> (f64, f64) {
    if x.is_empty() {
        return (0.0, 0.0);
    }
    let exact = sum::<S, T>(x) / x.len() as f64;
    let mean = real::<T>(exact);
    // The deviations are taken from the rounded mean.
    let shift = exact - mean.to_f64();
    (exact, sum_squares::<S, T>(x, mean) - shift * shift * x.len() as f64)
}

#[inline(always)]
fn plane_affine_body<S: Isa, T: Float>(
    x: &[T],
    mean: T::Compute,
    invstd: T::Compute,
    weight: T::Compute,
    bias: T::Compute,
    out: &mut [T],
) {
    assert_eq!(x.len(), out.len());
    let f = Affine { mean, scale: invstd * weight, shift: bias };
    // SAFETY: slices of one length, which share nothing.
    unsafe { map3::<S, T>(f, [x.as_ptr(); 3], out.as_mut_ptr(), x.len()) };
}

/// `(x − mean)·scale + shift`
#[derive(Clone, Copy)]
struct Affine<R> {
    mean: R,
    scale: R,
    shift: R,
}

impl<R: Real> Map<R> for Affine<R> {
    #[inline(always)]
    fn map<V: Vector<R>>(self, x: V, _y: V, _z: V) -> V {
        x.sub(V::splat(self.mean)).fma(V::splat(self.scale), V::splat(self.shift))
    }
}
