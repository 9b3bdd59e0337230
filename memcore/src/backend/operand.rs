//! Operands: the memory that a kernel reads and writes.

use super::Region;
use crate::dtype::DType;
use crate::layout::Layout;

/// One operand of a kernel: a typed, strided view of device memory. Owned and `Copy`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand {
    /// The bytes that the view spans. Its first element is at `region.offset`; `region.len` is the size of
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

    /// Bytes of the elements, each counted once: the bytes that a kernel moves to read or write the whole operand.
    pub fn bytes(&self) -> u64 {
        self.numel() as u64 * self.dtype.size()
    }

    /// True if both name the same elements in the same order.
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
    /// Scratch: contents before and after mean nothing.
    Workspace,
}

impl Access {
    /// True if the kernel changes the operand's memory.
    pub fn writes(self) -> bool {
        !matches!(self, Access::Read)
    }
}
