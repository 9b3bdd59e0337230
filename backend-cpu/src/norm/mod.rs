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
    // Plain loops here: the closures of iterator adaptors would be compiled for the least instruction set.
    let mut total = 0.0;
    for x in x.chunks(RUN) {
        total += fold(x, T::Compute::default(), |s, x: T| s + x.get(), |a, b| a + b).to_f64();
    }
    total
}

/// `Σ (x − mean)²`
#[inline(always)]
fn sum_squares<S: Isa, T: Float>(x: &[T], mean: T::Compute) -> f64 {
    let mut total = 0.0;
    for x in x.chunks(RUN) {
        let step = |s: T::Compute, x: T| {
            let d = x.get() - mean;
            d.fma::<S>(d, s)
        };
        total += fold(x, T::Compute::default(), step, |a, b| a + b).to_f64();
    }
    total
}

/// `(Σ grad, Σ grad·(x − mean))`
#[inline(always)]
fn grad_sums<S: Isa, T: Float>(grad: &[T], x: &[T], mean: T::Compute) -> (f64, f64) {
    let zero = T::Compute::default();
    let mut totals = (0.0, 0.0);
    for (grad, x) in grad.chunks(RUN).zip(x.chunks(RUN)) {
        // Two passes over what is cached by then: lanes of pairs would not vectorise.
        let plain = fold(grad, zero, |s, g: T| s + g.get(), |a, b| a + b);
        let product = fold2(grad, x, zero, |s, g: T, x: T| g.get().fma::<S>(x.get() - mean, s), |a, b| a + b);
        totals = (totals.0 + plain.to_f64(), totals.1 + product.to_f64());
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
