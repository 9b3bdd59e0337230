//! Which library convolves: cuDNN, PyTorch's own kernels, or the backend's.

use crate::array::Array;
use crate::backend::kernel::Conv2dGeometry;
use crate::departure::Departure;
use crate::dtype::DType;
use crate::profile::Convolution;

/// What convolves: as the profile says, but PyTorch takes cuDNN for one filter group per channel only in float16, and there by a table
/// (`_select_conv_backend`, `check_cudnn_depthwise_workload_with_filter`).
pub(super) fn library_of(x: &Array, weight: &[usize], geometry: Conv2dGeometry) -> Convolution {
    let of_profile = x.device().profile().convolution;
    let ([n, c, h, w], [_, _, kh, kw]) = (x.dims(), weight) else { return of_profile };
    if !matches!(of_profile, Convolution::Cudnn { .. }) || geometry.groups == 1 || geometry.groups != *c {
        return of_profile;
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
    if fits && (line || known && fast) { of_profile } else { Convolution::Native }
}

/// Where PyTorch would do otherwise than this does.
pub(super) fn note_departure(x: &Array, library: Convolution) {
    match (library, x.device().profile().convolution) {
        (Convolution::Native, Convolution::Native) => x.device().depart(Departure::WithoutCudnn),
        (Convolution::Cudnn { .. }, _) if lies_channels_last(x) => x.device().depart(Departure::ChannelsLast),
        _ => {}
    }
}

/// Whether the channels lie innermost, and not outside as well.
fn lies_channels_last(x: &Array) -> bool {
    !x.layout().is_contiguous() && x.permute(&[0, 2, 3, 1]).is_ok_and(|turned| turned.layout().is_contiguous())
}
