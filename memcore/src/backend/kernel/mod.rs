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

/// Declares [`KernelCall`] and forwards each method to the kernel of the variant.
macro_rules! kernel_calls {
    ($($(#[$doc:meta])* $variant:ident),* $(,)?) => {
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

kernel_calls! {
    /// Sets every element to one value.
    Fill,
    /// Strided copy, with a cast where the types differ.
    Copy,
    /// Philox random words, uniforms and Bernoulli draws.
    Random,
    /// One-operand arithmetic.
    Unary,
    /// Gradient of a one-operand function.
    UnaryGrad,
    /// Two-operand arithmetic and comparisons, with broadcasting.
    Binary,
    /// Three-operand arithmetic, with broadcasting.
    Ternary,
    /// Chooses elements by a mask.
    Select,
    /// Replaces the elements under a mask by one value.
    MaskedFill,
    /// Keeps the lower or upper triangle.
    Triangle,
    /// Sums, means, extrema over any axes.
    Reduce,
    /// Batched matrix product.
    Matmul,
    /// Two-dimensional convolution.
    Conv2d,
    /// Gradient of the convolution for its input.
    Conv2dInputGrad,
    /// Gradient of the convolution for its weight.
    Conv2dWeightGrad,
    /// Max and average pooling.
    Pool2d,
    /// Gradient of the pooling.
    Pool2dGrad,
    /// Softmax and log-softmax over any axis.
    Softmax,
    /// Gradient of softmax and log-softmax.
    SoftmaxGrad,
    /// Layer normalisation.
    LayerNorm,
    /// Gradients of layer normalisation.
    LayerNormGrad,
    /// Root-mean-square normalisation.
    RmsNorm,
    /// Gradients of root-mean-square normalisation.
    RmsNormGrad,
    /// Batch normalisation.
    BatchNorm,
    /// Gradients of batch normalisation.
    BatchNormGrad,
    /// Negative log-likelihood of class indices.
    NllLoss,
    /// Gradient of the negative log-likelihood.
    NllLossGrad,
    /// Rows of a table by index.
    Gather,
    /// Adds rows to a table by index.
    ScatterAdd,
    /// Zeroes elements at random and writes a mask of the kept ones.
    Dropout,
    /// Gradient of dropout.
    DropoutGrad,
    /// A fused SGD step over many parameters.
    SgdStep,
    /// A fused Adam or AdamW step over many parameters.
    AdamStep,
    /// Multiplies gradients by the inverse loss scale and looks for infinities and NaN.
    Unscale,
    /// Adapts the loss scale.
    UpdateScale,
    /// Rotary position embedding.
    Rope,
    /// Fused scaled dot-product attention.
    Attention,
    /// Gradients of attention.
    AttentionGrad,
    /// Converts rows to int8 with one scale each.
    QuantizeInt8,
    /// Converts int8 rows back to floats.
    DequantizeInt8,
    /// Product with an int8 weight that is dequantised on the way.
    MatmulInt8,
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
