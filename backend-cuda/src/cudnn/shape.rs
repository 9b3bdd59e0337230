//! A convolution as the library sees it.

use memcore::DType;
use memcore::backend::kernel::Conv2dGeometry;

/// One of the three products of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Which {
    Forward,
    InputGrad,
    WeightGrad,
}

/// Everything on which the library's choice depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) which: Which,
    pub(crate) dtype: DType,
    /// True if float32 factors may be rounded to TF32.
    pub(crate) tf32: bool,
    /// Sizes of input, weight and result.
    pub(crate) x: [usize; 4],
    pub(crate) weight: [usize; 4],
    pub(crate) y: [usize; 4],
    pub(crate) geometry: Conv2dGeometry,
    /// True if it is added to what the result holds, which is the bias then.
    pub(crate) adds: bool,
    pub(crate) workspace_bytes: u64,
}
