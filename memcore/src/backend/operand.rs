//! What a kernel reads and writes.

use super::Region;
use crate::dtype::DType;
use crate::layout::Layout;

/// One operand of a kernel: a typed, strided view of device memory. Owned and `Copy`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand {
    /// The bytes that the view spans: `region.offset` is where its first element lies, `region.len` is
    /// `layout.span()` elements.
    pub region: Region,
    /// The element type.
    pub dtype: DType,
    /// Sizes and strides, in elements.
    pub layout: Layout,
}

impl Operand {
    /// Sizes, outermost first.
    pub fn dims(&self) -> &[usize] {
        self.layout.dims()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.layout.numel()
    }

    /// Bytes of the elements, each counted once: what a kernel moves to read or write it all.
    pub fn bytes(&self) -> u64 {
        self.numel() as u64 * self.dtype.size()
    }

    /// Whether both name the same elements in the same order.
    pub fn is_same_view(&self, other: &Operand) -> bool {
        self.region == other.region && self.dtype == other.dtype && self.layout == other.layout
    }
}

/// How a kernel uses an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only reads it.
    Read,
    /// Writes every element and reads none.
    Write,
    /// Reads and writes it: an in-place update or an accumulation.
    ReadWrite,
    /// Free to use as scratch; contents before and after mean nothing.
    Workspace,
}

impl Access {
    /// Whether memory changes.
    pub fn writes(self) -> bool {
        !matches!(self, Access::Read)
    }
}
