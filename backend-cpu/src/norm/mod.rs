//! Layer, root-mean-square and batch normalisation. Statistics are sums in f64 over stretches summed in the compute type.

mod batch;
mod batch_grad;
mod rows;
mod rows_grad;

pub(crate) use batch::batch_norm;
pub(crate) use batch_grad::batch_norm_grad;
pub(crate) use rows::{layer_norm, rms_norm};
pub(crate) use rows_grad::{layer_norm_grad, rms_norm_grad};

use crate::element::{Element, Float, Number, Real};
use crate::lanes::{RUN, fold, fold2};
use crate::simd::Isa;

/// Whether the sums of so many channels fit the scratch.
pub(crate) fn supports_channels(channels: usize) -> bool {
    channels <= crate::parallel::SCRATCH_BYTES / (2 * size_of::<f64>())
}

/// `Σ x`
#[inline(always)]
fn sum<T: Float>(x: &[T]) -> f64 {
    let zero = T::Compute::default();
    x.chunks(RUN).map(|x| fold(x, zero, |s, x: T| s + x.get(), |a, b| a + b).to_f64()).sum()
}

/// `Σ (x − mean)²`
#[inline(always)]
fn sum_squares<S: Isa, T: Float>(x: &[T], mean: T::Compute) -> f64 {
    let zero = T::Compute::default();
    let step = |s: T::Compute, x: T| {
        let d = x.get() - mean;
        d.fma::<S>(d, s)
    };
    x.chunks(RUN).map(|x| fold(x, zero, step, |a, b| a + b).to_f64()).sum()
}

/// `(Σ grad, Σ grad·(x − mean))`
#[inline(always)]
fn grad_sums<S: Isa, T: Float>(grad: &[T], x: &[T], mean: T::Compute) -> (f64, f64) {
    let zero = (T::Compute::default(), T::Compute::default());
    let mut totals = (0.0, 0.0);
    for (grad, x) in grad.chunks(RUN).zip(x.chunks(RUN)) {
        let (plain, centred) = fold2(
            grad,
            x,
            zero,
            |(a, b), g: T, x: T| (a + g.get(), g.get().fma::<S>(x.get() - mean, b)),
            |a, b| (a.0 + b.0, a.1 + b.1),
        );
        totals = (totals.0 + plain.to_f64(), totals.1 + centred.to_f64());
    }
    totals
}

/// A scalar in the compute type.
#[inline(always)]
fn real<T: Element>(x: f64) -> T::Compute {
    <T::Compute as Number>::from_f64(x)
}

/// Elements per task.
const TASK: usize = 16 << 10;
