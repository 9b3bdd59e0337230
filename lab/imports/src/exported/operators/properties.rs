//! What is known of operators beside the function that runs them. An operator that is not listed has none of these properties.

use Property::{ChannelsLast, Complex, ComplexAndReal, Draws, FirstResult, Graph, Layers, Note, PredictedOnly};

/// A property of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Property {
    /// Its memory for channels-last pictures is recorded. The others refuse them.
    ChannelsLast,
    /// Its memory for complex numbers is recorded, or it only views or copies their elements. The others refuse them.
    Complex,
    /// The same, and complex numbers and real ones may meet in it.
    ComplexAndReal,
    /// Python drops whole branches by its draws, which it takes as they are under `model.eval()`.
    Draws,
    /// Only its first result has the sizes of the file: an export on the host gives the states of an LSTM one dimension more than PyTorch does.
    FirstResult,
    /// It runs a graph of its own, whose errors name their place themselves.
    Graph,
    /// It is all layers of a recurrent network, for which cuDNN has kernels.
    Layers,
    /// An answer says this of it: what it assumes, or leaves out.
    Note(&'static str),
    /// Its memory is predicted, and no backend computes its values.
    PredictedOnly,
}

const CTC: &str = "What CTC saves grows with the longest target of the batch, which is a value: vramlab assumes that it is as long as the targets are wide.";
const CUFFT: &str = "Left out are the work areas of cuFFT's plans, temporaries of each Fourier transform: only a card knows their sizes.";

const MASKED: &str = "vramlab assumes that a mask chooses as many elements as are written there (masked_scatter): their number is a value.";

/// The notes, in the order of an answer.
pub(in super::super) const NOTES: [&str; 3] = [CTC, CUFFT, MASKED];

/// The properties of each operator, by its name, in the order of the names.
#[rustfmt::skip]
pub(super) const PROPERTIES: &[(&str, &[Property])] = &[
    ("_assert_tensor_metadata.default", &[ChannelsLast, Complex]),
    ("_to_copy.default", &[Complex]),
    ("abs.default", &[Complex]),
    ("adaptive_avg_pool2d.default", &[ChannelsLast]),
    ("add.Tensor", &[ChannelsLast, ComplexAndReal]),
    ("add_.Tensor", &[ChannelsLast]),
    ("affine_grid_generator.default", &[PredictedOnly]),
    ("alias.default", &[Complex]),
    ("avg_pool2d.default", &[ChannelsLast]),
    ("batch_norm.default", &[ChannelsLast]),
    ("bernoulli.default", &[Draws]),
    ("bernoulli_.float", &[Draws]),
    ("bmm.default", &[Complex]),
    ("cat.default", &[ChannelsLast, Complex]),
    ("clone.default", &[Complex]),
    ("complex.default", &[PredictedOnly, Complex]),
    ("concat.default", &[ChannelsLast, Complex]),
    ("concatenate.default", &[ChannelsLast, Complex]),
    ("contiguous.default", &[Complex]),
    ("conv2d.default", &[ChannelsLast]),
    ("conv2d.padding", &[ChannelsLast]),
    ("conv3d.default", &[PredictedOnly]),
    ("conv_transpose2d.input", &[ChannelsLast]),
    ("conv_transpose3d.input", &[PredictedOnly]),
    ("copy_.default", &[Complex]),
    ("ctc_loss.IntList", &[PredictedOnly]),
    ("ctc_loss.Tensor", &[PredictedOnly, Note(CTC)]),
    ("detach.default", &[Complex]),
    ("dropout.default", &[ChannelsLast]),
    ("einsum.default", &[Complex]),
    ("expand.default", &[Complex]),
    ("fft_fft.default", &[PredictedOnly, Complex, Note(CUFFT)]),
    ("fft_fft2.default", &[PredictedOnly, Complex, Note(CUFFT)]),
    ("fft_fftn.default", &[PredictedOnly, Complex, Note(CUFFT)]),
    ("fft_ifft.default", &[PredictedOnly, Complex, Note(CUFFT)]),
    ("fft_ifft2.default", &[PredictedOnly, Complex, Note(CUFFT)]),
    ("fft_ifftn.default", &[PredictedOnly, Complex, Note(CUFFT)]),
    ("fft_irfft.default", &[PredictedOnly, Complex, Note(CUFFT)]),
    ("fft_irfft2.default", &[PredictedOnly, Complex, Note(CUFFT)]),
    ("fft_irfftn.default", &[PredictedOnly, Complex, Note(CUFFT)]),
    ("fft_rfft.default", &[PredictedOnly, Complex, Note(CUFFT)]),
    ("fft_rfft2.default", &[PredictedOnly, Complex, Note(CUFFT)]),
    ("fft_rfftn.default", &[PredictedOnly, Complex, Note(CUFFT)]),
    ("flatten.using_ints", &[ChannelsLast, Complex]),
    ("gelu.default", &[ChannelsLast]),
    ("grid_sampler.default", &[PredictedOnly]),
    ("gru.input", &[Layers]),
    ("hardsigmoid.default", &[ChannelsLast]),
    ("hardswish.default", &[ChannelsLast]),
    ("hardswish_.default", &[ChannelsLast]),
    ("higher_order.wrap_with_autocast", &[Graph]),
    ("higher_order.wrap_with_set_grad_enabled", &[Graph]),
    ("imag.default", &[PredictedOnly, Complex]),
    ("lstm.input", &[Layers, FirstResult]),
    ("masked_scatter.default", &[Note(MASKED)]),
    ("matmul.default", &[Complex]),
    ("max_pool2d.default", &[ChannelsLast]),
    ("mean.default", &[ChannelsLast]),
    ("mean.dim", &[ChannelsLast, Complex]),
    ("mul.Tensor", &[ChannelsLast, ComplexAndReal]),
    ("narrow.default", &[Complex]),
    ("neg.default", &[Complex]),
    ("permute.default", &[ChannelsLast, Complex]),
    ("polar.default", &[PredictedOnly, Complex]),
    ("rand.default", &[Draws]),
    ("rand_like.default", &[Draws]),
    ("real.default", &[PredictedOnly, Complex]),
    ("relu.default", &[ChannelsLast]),
    ("relu6.default", &[ChannelsLast]),
    ("relu6_.default", &[ChannelsLast]),
    ("relu_.default", &[ChannelsLast]),
    ("reshape.default", &[ChannelsLast, Complex]),
    ("rnn_relu.input", &[Layers]),
    ("rnn_tanh.input", &[Layers]),
    ("select.int", &[Complex]),
    ("sigmoid.default", &[ChannelsLast]),
    ("silu.default", &[ChannelsLast]),
    ("silu_.default", &[ChannelsLast]),
    ("slice.Tensor", &[Complex]),
    ("squeeze.dim", &[Complex]),
    ("stack.default", &[Complex]),
    ("sub.Tensor", &[ComplexAndReal]),
    ("sum.dim_IntList", &[Complex]),
    ("sym_size.int", &[ChannelsLast, Complex]),
    ("t.default", &[Complex]),
    ("to.device", &[Complex]),
    ("to.dtype", &[Complex]),
    ("to.dtype_layout", &[Complex]),
    ("transpose.int", &[Complex]),
    ("unflatten.int", &[Complex]),
    ("uniform_.default", &[Draws]),
    ("unsqueeze.default", &[Complex]),
    ("view.default", &[ChannelsLast, Complex]),
    ("view_as_complex.default", &[PredictedOnly, Complex]),
    ("view_as_real.default", &[PredictedOnly, Complex]),
];
