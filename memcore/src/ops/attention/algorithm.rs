//! Chooses the kernel that fused attention stands for: the one that PyTorch would take.
//!
//! Compared with the answers of PyTorch 2.11 (cuDNN 9.19) and 2.15 (9.26) to `_fused_sdp_choice`, for compute capability 7.5, 8.0, 8.6, 8.9, 9.0,
//! 10.0 and 12.0, and heads of up to 320 elements.

use crate::array::Array;
use crate::deviation::Deviation;
use crate::dtype::DType;
use crate::profile::{CudnnAttention, Profile};

/// A kernel of fused attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Algorithm {
    /// The backend's own kernel: row sums, and the workspace that it asks for.
    Native,
    /// PyTorch's memory-efficient attention.
    Efficient,
    /// PyTorch's flash attention.
    Flash,
    /// cuDNN's attention, which PyTorch prefers on compute capability 9.0 and 10.0.
    Cudnn,
}

/// Most elements of a head in flash attention and in cuDNN's attention.
const WIDEST: usize = 256;

/// Elements of a head up to which cuDNN takes heads of every kind. Below it, the one pair of wider keys and values.
const NARROW_CUDNN: usize = 128;
const NARROW_PAIR: [usize; 2] = [192, 128];

/// Bounds of heads, in elements, for gradients of flash attention on cards of [little shared memory](has_little_shared_memory). Up to the first
/// bound there is a gradient, up to the second there is none, and above it there is one without dropout only.
const WIDEST_FLASH_GRADIENT: [usize; 2] = [192, 224];

/// Inputs on which the choice depends.
pub(in crate::ops) struct Wanted<'a> {
    /// Queries `[b, h, t, d]`, keys `[b, hk, s, d]`, values `[b, hk, s, dv]`.
    pub(in crate::ops) arrays: [&'a Array; 3],
    /// Numbers that are added to the scores, or a bool.
    pub(in crate::ops) mask: Option<&'a Array>,
    /// True if the mask requires a gradient.
    pub(in crate::ops) learned: bool,
    pub(in crate::ops) causal: bool,
    pub(in crate::ops) dropout: bool,
    /// True if a graph is recorded, so that gradients will be computed.
    pub(in crate::ops) records: bool,
}

impl Wanted<'_> {
    fn profile(&self) -> &Profile {
        self.arrays[0].device().profile()
    }

    /// Elements of a head: of keys, and of values.
    fn widths(&self) -> [usize; 2] {
        [self.arrays[0].dims()[3], self.arrays[2].dims()[3]]
    }

    /// Number of queries, and of keys.
    fn lengths(&self) -> [usize; 2] {
        [self.arrays[0].dims()[2], self.arrays[1].dims()[2]]
    }

    fn is_half(&self) -> bool {
        self.arrays[0].dtype().is_half()
    }

    /// True if PyTorch takes cuDNN's kernel, provided that cuDNN exists: on compute capability 9.0 and 10.0 it comes before all others, for
    /// 16-bit types.
    fn suits_cudnn(&self) -> bool {
        let ([d, dv], [queries, keys], profile) = (self.widths(), self.lengths(), self.profile());
        let fits = |width: usize| width <= WIDEST && width.is_multiple_of(8);
        let kernels = profile.cudnn_attention;
        let newer = kernels == CudnnAttention::Narrow;
        let dropped = self.dropout && (kernels != CudnnAttention::WithDropout || queries == 1);
        let narrow = d.max(dv) <= NARROW_CUDNN || [d, dv] == NARROW_PAIR;
        let wide = if newer { !self.records || [d, dv] == [WIDEST; 2] } else { profile.compute_capability == Some(90) };
        kernels != CudnnAttention::Unused
            && matches!(profile.compute_capability, Some(90 | 100))
            && self.is_half()
            && fits(d)
            && fits(dv)
            && keys != 1
            && !dropped
            && !self.learned
            && (narrow || wide)
    }

    /// True if flash attention applies. It exists from compute capability 8.0 on, for 16-bit types without a mask, and for heads that all have
    /// one width (other widths are [padded](super::scaled_dot_product)). Its causal form requires as many queries as keys. Cards with little shared memory
    /// have no gradient for some wide heads.
    fn suits_flash(&self) -> bool {
        let ([d, dv], [queries, keys]) = (self.widths(), self.lengths());
        let [widest, wider] = WIDEST_FLASH_GRADIENT;
        let refused = self.records
            && has_little_shared_memory(self.profile())
            && (d > widest && d <= wider || d > wider && self.dropout);
        self.is_half()
            && is_recent(self.profile())
            && !refused
            && self.mask.is_none()
            && d == dv
            && d <= WIDEST
            && (queries == keys || !self.causal)
    }

    /// True if the memory-efficient kernel applies. Before 2.14 it requires as many key heads as query heads. Before compute capability 8.0 it has no
    /// bfloat16. Rows of heads must be multiples of 16 bytes, which tensor cores can load, except for f32 before 8.0 and for all types before 7.0. The
    /// keys of a mask must be contiguous, even if there is only one.
    fn suits_efficient(&self) -> bool {
        let [q, k, _] = self.arrays;
        let recent = is_recent(self.profile());
        let loads = |width: usize| match self.is_half() {
            true => width.is_multiple_of(8) || !has_tensor_cores(self.profile()),
            false => width.is_multiple_of(4) || !recent,
        };
        let grouped = q.dims()[1] != k.dims()[1] && !self.profile().newer_efficient_attention;
        let together = |mask: &Array| mask.layout().strides().last().is_none_or(|&stride| stride == 1);
        !grouped
            && self.widths().into_iter().all(loads)
            && self.mask.is_none_or(together)
            && (recent || q.dtype() != DType::BF16)
    }
}

/// True if the card has compute capability 8.0 or later.
pub(in crate::ops) fn is_recent(profile: &Profile) -> bool {
    profile.compute_capability.is_none_or(|sm| sm >= 80)
}

/// True if the card has compute capability 7.0 or later.
fn has_tensor_cores(profile: &Profile) -> bool {
    profile.compute_capability.is_none_or(|sm| sm >= 70)
}

/// True if a block of threads has some 100 kB of shared memory on the card, as on 8.6, 8.9 and 12.0, instead of 160 kB and more.
pub(in crate::ops) fn has_little_shared_memory(profile: &Profile) -> bool {
    matches!(profile.compute_capability, Some(86 | 89 | 120 | 121))
}

impl Algorithm {
    /// Returns the kernel that PyTorch takes, under one of its profiles. `None` if PyTorch writes the scores out.
    pub(in crate::ops) fn choose(wanted: &Wanted<'_>) -> Option<Self> {
        let profile = wanted.profile();
        if !profile.torch_temporaries {
            Some(Self::Native)
        } else if wanted.suits_cudnn() && wanted.arrays[0].device().has_cudnn_or(Deviation::AttentionWithoutCudnn) {
            Some(Self::Cudnn)
        } else if wanted.suits_flash() {
            Some(Self::Flash)
        } else if wanted.suits_efficient() {
            Some(Self::Efficient)
        } else {
            None
        }
    }

    pub(in crate::ops) fn forward_op(self) -> &'static str {
        match self {
            Self::Native => "scaled_dot_product_attention",
            Self::Efficient => "scaled_dot_product_attention>_scaled_dot_product_efficient_attention",
            Self::Flash => "scaled_dot_product_attention>_scaled_dot_product_flash_attention",
            Self::Cudnn => "scaled_dot_product_attention>_scaled_dot_product_cudnn_attention",
        }
    }

    /// Name of the operator inside [`Self::forward_op`] that makes the result.
    pub(in crate::ops) fn result_op(self) -> &'static str {
        match self {
            Self::Native => "",
            Self::Efficient => "_efficient_attention_forward",
            Self::Flash => "_flash_attention_forward",
            Self::Cudnn => "_cudnn_attention_forward",
        }
    }

    pub(in crate::ops) fn backward_op(self) -> &'static str {
        match self {
            Self::Native => "scaled_dot_product_attention_backward",
            Self::Efficient => "_scaled_dot_product_efficient_attention_backward",
            Self::Flash => "_scaled_dot_product_flash_attention_backward",
            Self::Cudnn => "_scaled_dot_product_cudnn_attention_backward",
        }
    }

    /// Name of the operator inside [`Self::backward_op`] that makes the gradients.
    pub(in crate::ops) fn gradient_op(self) -> &'static str {
        match self {
            Self::Native => "",
            Self::Efficient => "_efficient_attention_backward",
            Self::Flash => "_flash_attention_backward",
            Self::Cudnn => "_cudnn_attention_backward",
        }
    }

    pub(in crate::ops) fn node_name(self) -> &'static str {
        match self {
            Self::Native | Self::Efficient => "ScaledDotProductEfficientAttentionBackward0",
            Self::Flash => "ScaledDotProductFlashAttentionBackward0",
            Self::Cudnn => "ScaledDotProductCudnnAttentionBackward0",
        }
    }
}
