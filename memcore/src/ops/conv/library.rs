//! Chooses the library for a convolution: cuDNN, PyTorch's own kernels, or the backend's.

use crate::array::{Array, Format};
use crate::backend::KernelCall;
use crate::backend::kernel::Conv2dGeometry;
use crate::deviation::Deviation;
use crate::dtype::DType;
use crate::error::Result;
use crate::memory::Category;
use crate::profile::Convolution;

/// Returns the library of the profile, or PyTorch's own kernels for convolutions that PyTorch does not give to cuDNN. Channels-last ones go to
/// cuDNN whatever their groups.
pub(in crate::ops) fn library_of(x: &Array, weight: &Array, geometry: Conv2dGeometry) -> Convolution {
    let of_profile = x.device().profile().convolution;
    let last = [x, weight].into_iter().any(|operand| operand.format() == Format::ChannelsLast);
    let suits = last || suits_cudnn(x, weight.dims(), geometry);
    if !suits || !x.device().has_cudnn_or(Deviation::WithoutCudnn) {
        return if of_profile == Convolution::Backend { of_profile } else { Convolution::Native };
    }
    of_profile
}

/// True if PyTorch takes cuDNN, provided that cuDNN exists. For one filter group per channel it does so only in float16, and by a table
/// (`_select_conv_backend`, `check_cudnn_depthwise_workload_with_filter`).
fn suits_cudnn(x: &Array, weight: &[usize], geometry: Conv2dGeometry) -> bool {
    let ([n, c, h, w], [_, _, kh, kw]) = (x.dims(), weight) else { return true };
    if geometry.groups == 1 || geometry.groups != *c {
        return true;
    }
    let [down, right] = geometry.stride;
    let fits = x.dtype() == DType::F16 && geometry.dilation == [1, 1] && (down == right || *h == 1) && *c >= 32;
    let known = kh == kw && [1, 3, 5].contains(kw) && *w >= 7 && [1, 2].contains(&right);
    let fast = match (right, n, kw) {
        (1, ..) => true,
        (_, 1, 1) => *w <= 28,
        (_, 1, _) => true,
        (_, _, 1) => *n <= 16 && *c >= 128 && *w <= 7,
        _ => *c >= 512 || *c >= 256 && *w >= 28,
    };
    let line = *h == 1 && right == 1;
    fits && (line || known && fast)
}

/// Records the memory that a convolution with a result of these sizes may take besides, if PyTorch gives it to cuDNN: only a card knows it.
/// [`Deviations::convolution_bytes`](crate::deviation::Deviations::convolution_bytes) says what is assumed. Under a profile that counts
/// it, takes as much; the convolution, and each of its gradients, has it while it runs.
pub(in crate::ops) fn workspace(x: &Array, weight: &Array, out: &[usize]) -> Result<Option<Array>> {
    let (device, profile) = (x.device(), x.device().profile());
    if profile.convolution == Convolution::Backend {
        return Ok(None);
    }
    let elements: usize = [x.dims(), weight.dims(), out].iter().map(|dims| dims.iter().product::<usize>()).sum();
    let is_depthwise = weight.dims().get(1) == Some(&1) && x.dims().get(1).is_some_and(|channels| *channels > 1);
    let copies = if is_depthwise { 5 } else { 1 };
    let bytes = device.recorded_deviations().record_convolution(elements as u64 * DType::F32.size() * copies);
    if !profile.convolutions_copy {
        return Ok(None);
    }
    Array::empty_as(device, &[bytes as usize], DType::U8, Category::Workspace).map(Some)
}

/// Launches a convolution with a result of these sizes, or one of its gradients, which has its [`workspace`] while it runs.
pub(in crate::ops) fn launch(call: impl Into<KernelCall>, x: &Array, weight: &Array, out: &[usize]) -> Result<()> {
    let copies = workspace(x, weight, out)?;
    x.device().launch(call)?;
    drop(copies);
    Ok(())
}

/// The format that a convolution of these two works in: that of either, if the library reads channels-last.
pub(in crate::ops) fn format_of(library: Convolution, operands: [&Array; 2]) -> Format {
    let reads = matches!(library, Convolution::Cudnn { .. });
    let last = reads && operands.iter().any(|operand| operand.format() == Format::ChannelsLast);
    if last { Format::ChannelsLast } else { Format::RowMajor }
}
