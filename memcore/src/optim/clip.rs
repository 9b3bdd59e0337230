//! Gradient clipping.

use super::{Implementation, drop_reversed};
use crate::array::Array;
use crate::backend::kernel::{BinaryOp, ReduceOp, UnaryOp};
use crate::context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::MAX_RANK;
use crate::nn::Parameter;

/// Number of elements of a tensor that one block of PyTorch's multi-tensor kernels processes.
const CHUNK: usize = 65_536;

/// Scales all gradients down so that their joint 2-norm is at most `max_norm`. Returns the norm before scaling, a
/// scalar on the device (`None` without gradients). As in PyTorch on a GPU: `grad *= min(1, max_norm/(norm + 1e-6))`,
/// computed on the device without a read, over lists of tensors. If gradients are on several devices, their norms are
/// moved to the first one's device, and the factor to each device.
pub fn clip_grad_norm(parameters: &[Parameter], max_norm: f64) -> Result<Option<Array>> {
    clip_grad_norm_with(parameters, max_norm, Implementation::Foreach)
}

/// Like [`clip_grad_norm`]; [`Implementation::Loop`] computes one norm after another.
pub fn clip_grad_norm_with(
    parameters: &[Parameter],
    max_norm: f64,
    implementation: Implementation,
) -> Result<Option<Array>> {
    let grads: Vec<Array> = parameters.iter().filter_map(Parameter::grad).collect();
    let Some(first) = grads.first() else { return Ok(None) };
    let norms = match implementation {
        Implementation::Loop => grads.iter().map(norm).collect::<Result<Vec<Array>>>()?,
        Implementation::Foreach | Implementation::Fused => foreach_norms(&grads)?,
    };
    let stacked = {
        let here = norms.iter().map(|norm| moved(norm.clone(), first.device())).collect::<Result<Vec<Array>>>()?;
        let make = || Array::empty(first.device(), &[grads.len()], first.dtype());
        let stacked = context::within("stack>cat", make)?;
        for (i, norm) in here.iter().enumerate() {
            stacked.narrow(0, i, 1)?.copy_(norm)?;
        }
        drop_reversed(here);
        stacked
    };
    let total = norm(&stacked)?;
    drop(stacked);
    drop_reversed(norms);
    let coefficient = {
        let shifted = context::within("add", || total.affine(1.0, 1e-6))?;
        let inverse = context::within("reciprocal", || shifted.unary(UnaryOp::Reciprocal))?;
        context::within("mul", || inverse.affine(max_norm, 0.0))?
    };
    let bound = UnaryOp::Clamp { min: f64::NEG_INFINITY, max: 1.0 };
    let clamped = context::within("clamp", || coefficient.unary(bound))?;
    drop(coefficient);
    for of_device in by_device(&grads) {
        let Some(device) = of_device.first().map(|i| grads[*i].device()) else { continue };
        let here = moved(clamped.clone(), device)?;
        of_device.iter().try_for_each(|i| grads[*i].binary_(BinaryOp::Mul, &here))?;
    }
    Ok(Some(total))
}

/// Clamps every element of the gradients to `[−limit, limit]`, in place.
pub fn clip_grad_value(parameters: &[Parameter], limit: f64) -> Result<()> {
    let _op = context::op("clip_grad_value_");
    for grad in parameters.iter().filter_map(Parameter::grad) {
        grad.unary_(UnaryOp::Clamp { min: -limit, max: limit })?;
    }
    Ok(())
}

/// The 2-norm of all elements.
pub(super) fn norm(x: &Array) -> Result<Array> {
    let _op = context::op("linalg_vector_norm");
    let squares = x.reduce(ReduceOp::SumSquares, &[], false)?;
    squares.unary_(UnaryOp::Sqrt)?;
    Ok(squares)
}

/// Indices of the arrays of each device. Devices are in the order of their first array.
pub(crate) fn by_device(arrays: &[Array]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (number, array) in arrays.iter().enumerate() {
        match groups.iter_mut().find(|group| arrays[group[0]].device().is_same(array.device())) {
            Some(group) => group.push(number),
            None => groups.push(vec![number]),
        }
    }
    groups
}

/// Returns `array` on `device`: itself, or a copy.
fn moved(array: Array, device: &Device) -> Result<Array> {
    if array.device().is_same(device) {
        return Ok(array);
    }
    context::within("to>_to_copy", || array.to_device(device))
}

/// The 2-norm of each array, device by device.
fn foreach_norms(arrays: &[Array]) -> Result<Vec<Array>> {
    let mut norms: Vec<Option<Array>> = vec![None; arrays.len()];
    for of_device in by_device(arrays) {
        let here: Vec<Array> = of_device.iter().map(|i| arrays[*i].clone()).collect();
        of_device.iter().zip(foreach_norm(&here)?).for_each(|(i, norm)| norms[*i] = Some(norm));
    }
    Ok(norms.into_iter().flatten().collect())
}

/// The 2-norm of each array of one device. PyTorch's kernel first gathers a partial sum for each chunk of each tensor.
fn foreach_norm(arrays: &[Array]) -> Result<Vec<Array>> {
    let _op = context::op("_foreach_norm");
    let Some(first) = arrays.first() else { return Ok(Vec::new()) };
    let device = first.device();
    let chunks: Vec<usize> = arrays.iter().map(|array| array.numel().div_ceil(CHUNK)).collect();
    let partial = partial_sums(device, &chunks, first.dtype().accumulator())?;
    let norms: Result<Vec<Array>> = arrays.iter().map(|a| Array::empty(device, &[], a.dtype())).collect();
    let norms = norms?;
    for (array, norm) in arrays.iter().zip(&norms) {
        array.reduce_axes_into(ReduceOp::SumSquares, &norm.view(&[1; MAX_RANK][..array.rank()])?)?;
        norm.unary_(UnaryOp::Sqrt)?;
    }
    drop(partial);
    Ok(norms)
}

/// The temporaries of PyTorch's kernel for tensors with these numbers of chunks: a partial sum for each chunk, and the
/// offset of each tensor's first sum (measured with the wheels of 2.11 and 2.15).
fn partial_sums(device: &Device, chunks: &[usize], dtype: DType) -> Result<Vec<Array>> {
    if !device.profile().torch_temporaries {
        return Ok(Vec::new());
    }
    if !device.profile().norms_have_offsets {
        let count = chunks.len() * chunks.iter().max().copied().unwrap_or(0);
        return Ok(vec![context::within("zeros", || Array::empty(device, &[count], dtype))?]);
    }
    // Empty tensors are skipped.
    let tensors = chunks.iter().filter(|&&chunks| chunks > 0).count();
    let offsets = context::within("to>_to_copy", || Array::empty(device, &[tensors + 1], DType::I64))?;
    // The first to be freed is the last to be allocated.
    Ok(vec![Array::empty(device, &[chunks.iter().sum()], dtype)?, offsets])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backend::Meta;
    use crate::memory::Event;
    use crate::profile::Profile;

    /// Sizes that the norms of such tensors allocate; the first two exist only while the kernel runs.
    fn asked(profile: Profile, sizes: &[usize], dtype: DType) -> Vec<u64> {
        let device = Device::builder(Arc::new(Meta::default())).profile(profile).history(true).build();
        let arrays: Vec<Array> = sizes.iter().map(|n| Array::empty(&device, &[*n], dtype).unwrap()).collect();
        let before = device.with_ledger(|ledger| ledger.history().len());
        drop(foreach_norm(&arrays).unwrap());
        let size = |event: &Event| match event {
            Event::Alloc { requested_bytes, .. } => Some(*requested_bytes),
            _ => None,
        };
        device.with_ledger(|ledger| ledger.history()[before..].iter().filter_map(size).collect())
    }

    /// The sizes that the wheels of 2.15 and 2.11 asked for.
    #[test]
    fn norms_of_tensors_of_several_chunks_take_partial_sums() {
        let sizes = [10, 70_000, 200_000, 65_536, 65_537];
        assert_eq!(asked(Profile::torch_2_15(90), &sizes, DType::F32), [48, 40, 4, 4, 4, 4, 4]);
        assert_eq!(asked(Profile::torch_2_15(90), &sizes[..3], DType::BF16), [32, 28, 2, 2, 2]);
        assert_eq!(asked(Profile::torch_2_15(90), &sizes[..2], DType::F64), [24, 24, 8, 8]);
        assert_eq!(asked(Profile::torch_2_11(90), &sizes, DType::F32), [80, 4, 4, 4, 4, 4]);
        // The sizes that the wheels of 2.7.1 to 2.14.1 asked for.
        for release in ["2.7", "2.8", "2.9", "2.10", "2.12", "2.13", "2.14"] {
            let profile = Profile::named(&format!("torch-{release}-sm90")).unwrap();
            assert_eq!(asked(profile.clone(), &sizes, DType::F32), [80, 4, 4, 4, 4, 4], "{release}");
            assert_eq!(asked(profile.clone(), &sizes[..3], DType::BF16), [48, 2, 2, 2], "{release}");
            assert_eq!(asked(profile, &sizes[..2], DType::F64), [32, 8, 8], "{release}");
        }
        assert_eq!(asked(Profile::native(), &sizes, DType::F32), [4; 5]);
    }
}
