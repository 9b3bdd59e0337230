//! Every kernel a backend must have, as plain data with named operands.
//!
//! There is one file per family. Each kernel is a struct that defines its result in terms of its operands and checks
//! its own shapes. Validation, traces, counters and bindings are all derived from [`KernelCall::each_operand`] and
//! [`KernelCall::each_attribute`].
//!
//! Conventions, for every kernel unless it says otherwise:
//! - *Type of computation.* A kernel computes and accumulates in the widest float type of its operands (f32 for 16-bit
//!   floats) and rounds to nearest even once, when it stores. So softmax of f32 into f64 is computed in f64. Integers
//!   are computed in their own type and wrap around.
//! - *Element types.* A kernel takes floats of one type unless its definition names others. If the types depend on the
//!   function, the function names them ([`UnaryOp::types`], [`BinaryOp::types`], [`ReduceOp::types`]). Kernels that
//!   move or select values take every type. An undefined combination is refused before a backend sees it; every defined
//!   one has a case in the conformance suites.
//! - NaN is any NaN: sign and payload are unspecified.
//! - Elementwise kernels take any strides; a stride of 0 in an input broadcasts. All operands have `out`'s sizes.
//! - Row kernels take contiguous operands.
//! - An elementwise kernel may work in place: an input may be *the same view* as the output. Otherwise a
//!   written operand shares no byte with any other.

mod attention;
mod attribute;
mod codes;
mod conv;
mod definition;
mod elementwise;
mod index;
mod loss;
mod matmul;
mod norm;
mod optim;
mod pool;
mod quant;
mod random;
mod reduce;
mod softmax;

pub use attention::{Attention, AttentionGrad, Rope};
pub use attribute::{Attribute, AttributeVisitor};
pub use codes::CODES;
pub use conv::{Conv2d, Conv2dGeometry, Conv2dInputGrad, Conv2dWeightGrad};
pub use definition::{OperandVisitor, Types};
pub use elementwise::{
    Binary, BinaryOp, Copy, Fill, MaskedFill, Select, Ternary, TernaryOp, Triangle, Unary, UnaryGrad, UnaryGradOp,
    UnaryOp,
};
pub use index::{Gather, ScatterAdd};
pub use loss::{NllLoss, NllLossGrad, Reduction};
pub use matmul::Matmul;
pub use norm::{BatchNorm, BatchNormGrad, LayerNorm, LayerNormGrad, RmsNorm, RmsNormGrad};
pub use optim::{AdamStep, AdamTensors, SgdStep, SgdTensors, Unscale, UpdateScale};
pub use pool::{Pool2d, Pool2dGeometry, Pool2dGrad, PoolOp};
pub use quant::{DequantizeInt8, MatmulInt8, QuantizeInt8};
pub use random::{Dropout, DropoutGrad, Random, RandomKind};
pub use reduce::{Reduce, ReduceOp};
pub use softmax::{Softmax, SoftmaxGrad};

use definition::Kernel;

use super::Operand;
use crate::dtype::DType;
use crate::error::Result;

/// Declares [`KernelCall`] and forwards each method to the kernel of the variant, which backends have as this function of this module.
macro_rules! kernel_calls {
    ($d:tt $($(#[$doc:meta])* $variant:ident: $family:ident::$function:ident),* $(,)?) => {
        /// A call of any kernel that a backend must be able to run. A new variant makes every in-tree backend fail to
        /// compile until it handles it.
        ///
        /// A call is data: [`Device::launch`](crate::Device::launch) checks it before the backend sees it.
        ///
        /// ```
        /// use memcore::backend::kernel::{Fill, KernelCall};
        /// use memcore::prelude::*;
        ///
        /// # fn main() -> Result<()> {
        /// let device = Device::meta("native")?;
        /// let x = Array::empty(&device, &[4, 8], DType::F32)?;
        /// let call = KernelCall::from(Fill { value: 1.0, out: x.operand() });
        /// let mut operands = Vec::new();
        /// call.each_operand(&mut |name, access, operand| operands.push((name, access.writes(), operand.numel())));
        /// assert_eq!((call.name(), operands), ("fill", vec![("out", true, 32)]));
        /// device.launch(call)?;
        /// assert_eq!(device.counters().launches, 1);
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// The largest variant is not boxed: that would allocate at each launch.
        #[derive(Clone, Debug)]
        #[allow(clippy::large_enum_variant)]
        pub enum KernelCall { $($(#[$doc])* $variant($variant)),* }

        impl KernelCall {
            /// The names of all kernels, in the order of the variants.
            pub const NAMES: &'static [&'static str] = &[$(<$variant as Kernel>::NAME),*];

            /// Each kernel's name, with the names of all its possible operands in the order in which they are visited.
            pub const OPERANDS: &'static [(&'static str, &'static [&'static str])] =
                &[$((<$variant as Kernel>::NAME, <$variant as Kernel>::OPERANDS)),*];

            /// The kernel's name.
            pub fn name(&self) -> &'static str {
                match self { $(KernelCall::$variant(_) => <$variant as Kernel>::NAME),* }
            }
            /// Calls `f` with the name, use and value of each operand. Allocates nothing.
            pub fn each_operand<'call>(&'call self, f: &mut OperandVisitor<'call, '_>) {
                match self { $(KernelCall::$variant(k) => k.each_operand(f)),* }
            }
            /// Calls `f` with the name and value of each attribute. The kernel's name, its operands and its attributes
            /// are the whole call.
            pub fn each_attribute(&self, f: &mut AttributeVisitor<'_>) {
                match self { $(KernelCall::$variant(k) => k.each_attribute(f)),* }
            }
            /// Names of all possible operands of this kernel; [`each_operand`](Self::each_operand) visits those that
            /// are present.
            pub fn operand_names(&self) -> &'static [&'static str] {
                match self { $(KernelCall::$variant(_) => <$variant as Kernel>::OPERANDS),* }
            }
            /// Whether an input may be the same view as the output.
            pub fn may_work_in_place(&self) -> bool {
                match self { $(KernelCall::$variant(_) => <$variant as Kernel>::IN_PLACE),* }
            }
            /// Checks shapes, types and layouts, but not bounds and aliasing: see [`validate`](super::validate).
            pub(crate) fn check(&self) -> Result<()> {
                match self { $(KernelCall::$variant(k) => k.check()),* }
            }
            /// Floating-point operations (a multiply-add is two).
            pub(crate) fn flops(&self) -> u64 {
                match self { $(KernelCall::$variant(k) => k.flops()),* }
            }
            /// The operand that is read through indices, and the number of its elements that are indexed.
            pub(crate) fn gathered(&self) -> Option<(&'static str, usize)> {
                match self { $(KernelCall::$variant(k) => k.gathered()),* }
            }
        }

        $(impl From<$variant> for KernelCall {
            fn from(kernel: $variant) -> Self { KernelCall::$variant(kernel) }
        })*

        /// Launches a call by the function of its family: `by_family!(call, context)` calls `softmax::softmax_grad(context, k)` for a
        /// [`SoftmaxGrad`]. What it calls lies in modules of the caller.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! by_family {
            ($d call:expr, $d context:expr) => {
                match $d call {
                    $($crate::backend::kernel::KernelCall::$variant(k) => $family::$function($d context, k),)*
                }
            };
        }
    };
}

impl KernelCall {
    /// The workspace field of a kernel that has one. It holds `None` until the caller sets a workspace of
    /// [`workspace_bytes`](super::Backend::workspace_bytes).
    pub fn workspace_mut(&mut self) -> Option<&mut Option<Operand>> {
        match self {
            KernelCall::Matmul(k) => Some(&mut k.workspace),
            KernelCall::Conv2d(k) => Some(&mut k.workspace),
            KernelCall::Conv2dInputGrad(k) => Some(&mut k.workspace),
            KernelCall::Conv2dWeightGrad(k) => Some(&mut k.workspace),
            KernelCall::SoftmaxGrad(k) => Some(&mut k.workspace),
            KernelCall::AttentionGrad(k) => Some(&mut k.workspace),
            _ => None,
        }
    }
}

kernel_calls! { $
    /// Sets every element to one value.
    Fill: elementwise::fill,
    /// Strided copy, with a cast where the types differ.
    Copy: elementwise::copy,
    /// Philox random words, uniforms and Bernoulli draws.
    Random: random::random,
    /// One-operand arithmetic.
    Unary: elementwise::unary,
    /// Gradient of a one-operand function.
    UnaryGrad: elementwise::unary_grad,
    /// Two-operand arithmetic and comparisons, with broadcasting.
    Binary: elementwise::binary,
    /// Three-operand arithmetic, with broadcasting.
    Ternary: elementwise::ternary,
    /// Chooses elements by a mask.
    Select: elementwise::select,
    /// Replaces the elements under a mask by one value.
    MaskedFill: elementwise::masked_fill,
    /// Keeps the lower or upper triangle.
    Triangle: elementwise::triangle,
    /// Sums, means, extrema over any axes.
    Reduce: reduce::reduce,
    /// Batched matrix product.
    Matmul: matmul::matmul,
    /// Two-dimensional convolution.
    Conv2d: conv::conv2d,
    /// Gradient of the convolution for its input.
    Conv2dInputGrad: conv::conv2d_input_grad,
    /// Gradient of the convolution for its weight.
    Conv2dWeightGrad: conv::conv2d_weight_grad,
    /// Max and average pooling.
    Pool2d: pool::pool2d,
    /// Gradient of the pooling.
    Pool2dGrad: pool::pool2d_grad,
    /// Softmax and log-softmax over any axis.
    Softmax: softmax::softmax,
    /// Gradient of softmax and log-softmax.
    SoftmaxGrad: softmax::softmax_grad,
    /// Layer normalisation.
    LayerNorm: norm::layer_norm,
    /// Gradients of layer normalisation.
    LayerNormGrad: norm::layer_norm_grad,
    /// Root-mean-square normalisation.
    RmsNorm: norm::rms_norm,
    /// Gradients of root-mean-square normalisation.
    RmsNormGrad: norm::rms_norm_grad,
    /// Batch normalisation.
    BatchNorm: norm::batch_norm,
    /// Gradients of batch normalisation.
    BatchNormGrad: norm::batch_norm_grad,
    /// Negative log-likelihood of class indices.
    NllLoss: loss::nll_loss,
    /// Gradient of the negative log-likelihood.
    NllLossGrad: loss::nll_loss_grad,
    /// Rows of a table by index.
    Gather: index::gather,
    /// Adds rows to a table by index.
    ScatterAdd: index::scatter_add,
    /// Zeroes elements at random and writes a mask of the kept ones.
    Dropout: random::dropout,
    /// Gradient of dropout.
    DropoutGrad: random::dropout_grad,
    /// A fused SGD step over many parameters.
    SgdStep: optim::sgd_step,
    /// A fused Adam or AdamW step over many parameters.
    AdamStep: optim::adam_step,
    /// Multiplies gradients by the inverse loss scale and looks for infinities and NaN.
    Unscale: optim::unscale,
    /// Adapts the loss scale.
    UpdateScale: optim::update_scale,
    /// Rotary position embedding.
    Rope: attention::rope,
    /// Fused scaled dot-product attention.
    Attention: attention::attention,
    /// Gradients of attention.
    AttentionGrad: attention::attention_grad,
    /// Converts rows to int8 with one scale each.
    QuantizeInt8: quant::quantize_int8,
    /// Converts int8 rows back to floats.
    DequantizeInt8: quant::dequantize_int8,
    /// Product with an int8 weight that is dequantised on the way.
    MatmulInt8: quant::matmul_int8,
}

impl KernelCall {
    /// The dtype that represents the call in messages and tables: that of the first operand.
    pub fn dtype(&self) -> DType {
        let mut first = None;
        self.each_operand(&mut |_, _, operand| {
            first.get_or_insert(operand.dtype);
        });
        first.unwrap_or(DType::F32)
    }
}
