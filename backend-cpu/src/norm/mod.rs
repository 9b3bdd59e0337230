//! Layer, root-mean-square and batch normalisation. Statistics are sums in f64 over stretches, which are summed in the compute type.

mod batch;
mod batch_grad;
mod narrow;
mod rows;
mod rows_grad;
mod strided;
mod wide;

pub(crate) use batch::batch_norm;
pub(crate) use batch_grad::batch_norm_grad;
pub(crate) use rows::{layer_norm, rms_norm};
pub(crate) use rows_grad::{layer_norm_grad, rms_norm_grad};

use crate::element::{Element, Float, Number, Real};
use crate::lanes::{CentredDot, Deviations, Dot, RUN, Sum, WeightedCentredDot, fold, fold2, fold3};
use crate::simd::Isa;

/// True if the sums of this many channels fit the scratch.
pub(crate) fn supports_channels(channels: usize) -> bool {
    channels <= crate::parallel::SCRATCH_BYTES / (2 * size_of::<f64>())
}

// The code below uses plain loops, because the closures of iterator adaptors would be compiled for the least instruction set.

/// `Σ x`
#[inline(always)]
fn sum<S: Isa, T: Float>(x: &[T]) -> f64 {
    let mut total = 0.0;
    for x in x.chunks(RUN) {
        total += fold::<S, T>(Sum, x).to_f64();
    }
    total
}

/// `Σ (x − mean)²`
#[inline(always)]
fn sum_squares<S: Isa, T: Float>(x: &[T], mean: T::Compute) -> f64 {
    let mut total = 0.0;
    for x in x.chunks(RUN) {
        total += fold::<S, T>(Deviations { mean }, x).to_f64();
    }
    total
}

/// `(Σ grad, Σ grad·(x − mean))`
#[inline(always)]
fn grad_sums<S: Isa, T: Float>(grad: &[T], x: &[T], mean: T::Compute) -> (f64, f64) {
    let mut totals = (0.0, 0.0);
    for (grad, x) in grad.chunks(RUN).zip(x.chunks(RUN)) {
        totals.0 += fold::<S, T>(Sum, grad).to_f64();
        totals.1 += fold2::<S, T>(CentredDot { mean }, grad, x).to_f64();
    }
    totals
}

/// `(Σ grad·weight, Σ grad·weight·(x − mean))`
#[inline(always)]
fn weighted_sums<S: Isa, T: Float>(grad: &[T], x: &[T], weight: &[T], mean: T::Compute) -> (f64, f64) {
    let mut totals = (0.0, 0.0);
    for ((grad, x), weight) in grad.chunks(RUN).zip(x.chunks(RUN)).zip(weight.chunks(RUN)) {
        totals.0 += fold2::<S, T>(Dot, grad, weight).to_f64();
        totals.1 += fold3::<S, T>(WeightedCentredDot { mean }, grad, weight, x).to_f64();
    }
    totals
}

/// Converts a scalar to the compute type.
#[inline(always)]
fn real<T: Element>(x: f64) -> T::Compute {
    <T::Compute as Number>::from_f64(x)
}

/// Runs `$body` with `$T` as the type of the input, and `$P` as that of a batch norm's parameters: the same type or the compute type.
macro_rules! channel_types {
    ($k:expr, $T:ident, $P:ident => $body:expr) => {
        $crate::element::float_type!($k.x.dtype, $T => {
            if $k.parameter_dtype() == $k.x.dtype {
                type $P = $T;
                $body
            } else {
                type $P = <$T as $crate::element::Element>::Compute;
                $body
            }
        }, else Ok(()))
    };
}
use channel_types;

/// Elements per task.
const TASK: usize = 16 << 10;
