//! Gradients of batch normalisation if its input or gradient is not in row-major order. They are computed element by element, one channel
//! per task.

use memcore::backend::Operand;
use memcore::backend::kernel::BatchNormGrad;
use memcore::error::Result;

use super::real;
use crate::element::{Element, Float, Real};
use crate::view::{Context, SharedMut};

/// One channel of `[n, c, l]` with any strides.
struct Channel<T> {
    first: SharedMut<T>,
    start: usize,
    steps: [usize; 2],
}

impl<T: Float> Channel<T> {
    fn new(ctx: &Context<'_>, x: &Operand, channel: usize) -> Result<Self> {
        let steps = x.layout.strides();
        Ok(Self {
            first: SharedMut::from_ptr(ctx.ptr::<T>(x)?),
            start: channel * steps[1],
            steps: [steps[0], steps[2]],
        })
    }

    /// # Safety
    /// `sample` and `place` are below the sizes, and nobody writes the operand.
    unsafe fn at(&self, sample: usize, place: usize) -> T::Compute {
        // SAFETY: by the caller: an element of the operand, whose bounds were checked.
        let value = unsafe { self.first.view(self.start + sample * self.steps[0] + place * self.steps[1], 1) };
        value[0].get()
    }
}

/// Computes the required gradients of the input and the parameters.
pub(super) fn batch_norm_grad<T: Float, P: Element<Compute = T::Compute>>(
    ctx: &Context<'_>,
    k: &BatchNormGrad,
) -> Result<()> {
    let [n, c, l] = *k.x.dims() else { return Ok(()) };
    // SAFETY: not an in-place kernel: no operand aliases a written one, and each output is taken once.
    let (mean, invstd, weight) = unsafe {
        (ctx.input::<T::Compute>(&k.mean)?, ctx.input::<T::Compute>(&k.invstd)?, ctx.input_option::<P>(&k.weight)?)
    };
    // SAFETY: as above.
    let (out_x, out_weight, out_bias) = unsafe {
        (
            ctx.output_option::<T>(&k.out_x)?.map(SharedMut::new),
            ctx.output_option::<P>(&k.out_weight)?.map(SharedMut::new),
            ctx.output_option::<P>(&k.out_bias)?.map(SharedMut::new),
        )
    };
    let channels: Vec<[Channel<T>; 2]> = (0..c)
        .map(|channel| Ok([Channel::new(ctx, &k.grad, channel)?, Channel::new(ctx, &k.x, channel)?]))
        .collect::<Result<_>>()?;
    ctx.for_pieces(c, 1, n * l, |channel, _| {
        let [grad, x] = &channels[channel];
        let (mean, invstd) = (mean[channel].to_f64(), invstd[channel].to_f64());
        let (mut sum, mut product) = (0.0, 0.0);
        for (sample, place) in (0..n).flat_map(|sample| (0..l).map(move |place| (sample, place))) {
            // SAFETY: within the sizes; both are read only.
            let (g, x) = unsafe { (grad.at(sample, place).to_f64(), x.at(sample, place).to_f64()) };
            sum += g;
            product += g * (x - mean) * invstd;
        }
        for (out, value) in [(&out_weight, product), (&out_bias, sum)] {
            if let Some(out) = out {
                // SAFETY: each task has its own channel.
                let to = unsafe { out.part(channel, 1) };
                to[0] = P::put(real::<T>(value));
            }
        }
        let Some(out) = &out_x else { return };
        let scale = invstd * weight.map_or(1.0, |w| w[channel].get().to_f64());
        let count = (n * l) as f64;
        let [mean_grad, slope] = if k.training { [sum / count, product / count] } else { [0.0; 2] };
        for sample in 0..n {
            // SAFETY: planes are disjoint.
            let plane = unsafe { out.part((sample * c + channel) * l, l) };
            for (place, out) in plane.iter_mut().enumerate() {
                // SAFETY: within the sizes; both are read only.
                let (g, x) = unsafe { (grad.at(sample, place).to_f64(), x.at(sample, place).to_f64()) };
                *out = T::put(real::<T>(scale * (g - mean_grad - slope * (x - mean) * invstd)));
            }
        }
    });
    Ok(())
}
