//! Small tensors without a gradient that have no kernel: masks, positions, comparisons with a number. Their memory is allocated on the device, as
//! in PyTorch. Their values are computed on the host, if the device computes.

use memcore::{Array, DType, Device, Error, Result, Tensor, context};

use super::super::call::Sizes;

/// Makes a tensor with these values in row-major order. `values` is called only if the device computes.
pub(super) fn made(
    device: &Device,
    op: &'static str,
    dims: &[usize],
    dtype: DType,
    values: impl FnOnce() -> Result<Vec<f64>>,
) -> Result<Tensor> {
    let _op = context::op(op);
    let array = Array::empty(device, dims, dtype)?;
    if device.computes() {
        array.write_values(&values()?)?;
    }
    Ok(Tensor::from_array(array))
}

/// Applies a function to each element.
pub(super) fn map(x: &Tensor, op: &'static str, dtype: DType, function: impl Fn(f64) -> f64) -> Result<Tensor> {
    no_gradient(op, x)?;
    made(x.device(), op, x.dims(), dtype, || Ok(x.array().host_values()?.into_iter().map(function).collect()))
}

/// Applies a function to each pair of elements of two tensors, which are broadcast against each other.
pub(super) fn zip(
    a: &Tensor,
    b: &Tensor,
    op: &'static str,
    dtype: DType,
    function: impl Fn(f64, f64) -> f64,
) -> Result<Tensor> {
    if !dtype_is_mask(dtype) {
        no_gradient(op, a)?;
        no_gradient(op, b)?;
    }
    let dims = memcore::layout::broadcast_dims(a.dims(), b.dims())?;
    made(a.device(), op, &dims, dtype, || {
        let spread = |x: &Tensor| x.array().broadcast_to(&dims)?.host_values();
        let (a, b) = (spread(a)?, spread(b)?);
        Ok(a.into_iter().zip(b).map(|(a, b)| function(a, b)).collect())
    })
}

/// True for a mask, whose operands may require a gradient because none flows through it.
fn dtype_is_mask(dtype: DType) -> bool {
    dtype == DType::Bool
}

fn no_gradient(op: &'static str, x: &Tensor) -> Result<()> {
    if x.requires_grad() && memcore::autograd::is_grad_enabled() {
        return Err(Error::invalid(op, "its gradient is not supported"));
    }
    Ok(())
}

/// Returns the type that PyTorch promotes two tensors to.
pub(super) fn meeting(a: DType, b: DType) -> DType {
    let rank = |dtype: DType| match dtype {
        DType::Bool => 0,
        DType::U8 => 1,
        DType::I8 => 2,
        DType::I32 => 3,
        DType::I64 => 4,
        DType::F16 | DType::BF16 => 5,
        DType::F32 => 6,
        DType::F64 => 7,
        DType::C64 => 8,
    };
    match (a, b) {
        (DType::U8, DType::I8) | (DType::I8, DType::U8) => DType::I32,
        (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => DType::F32,
        _ if rank(a) >= rank(b) => a,
        _ => b,
    }
}

/// Draws uniform values in [0, 1) from the device's random generator, and advances the generator as far as a kernel that draws `count` values would.
pub(super) fn uniform(device: &Device, count: usize) -> impl Iterator<Item = f64> + use<> {
    let (seed, offset) = device.random_state();
    device.set_random_state((seed, offset + count.div_ceil(4) as u64));
    let mut state = seed ^ offset.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // Vigna's SplitMix64.
    let unit = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    };
    std::iter::repeat_with(unit)
}

/// Draws standard normal values by the Box–Muller transform, as [`uniform`] draws.
pub(super) fn normal(device: &Device, count: usize) -> impl Iterator<Item = f64> + use<> {
    let mut uniform = uniform(device, count);
    std::iter::from_fn(move || {
        let (radius, angle) = (uniform.next()?, uniform.next()?);
        Some((-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos())
    })
}

/// Returns a copy of the sizes of `x`.
pub(super) fn dims_of(x: &Tensor) -> Sizes {
    x.dims().into()
}
