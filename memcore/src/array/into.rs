//! Computations into existing memory, needed where PyTorch makes its temporaries in another order than that of their computation.

use super::Array;
use crate::backend::kernel::{Binary, BinaryOp, Reduce, ReduceOp, Select, Unary, UnaryOp};
use crate::error::Result;

impl Array {
    /// `out = op(self)`.
    ///
    /// # Errors
    /// [`Error::InvalidCall`](crate::Error::InvalidCall) if `out` has other sizes or another type; errors of the backend.
    pub(crate) fn unary_into(&self, op: UnaryOp, out: &Array) -> Result<()> {
        out.launch_in_place(Unary { op, x: self.operand(), out: out.operand() })
    }

    /// `out = op(self, rhs)`, both broadcast to `out`.
    pub(crate) fn binary_into(&self, op: BinaryOp, rhs: &Array, out: &Array) -> Result<()> {
        let (lhs, rhs) = (self.broadcast_to(out.dims())?, rhs.broadcast_to(out.dims())?);
        out.launch_in_place(Binary { op, lhs: lhs.operand(), rhs: rhs.operand(), out: out.operand() })
    }

    /// `out = mask ? self : other`, all broadcast to `out`.
    pub(crate) fn select_into(&self, mask: &Array, other: &Array, out: &Array) -> Result<()> {
        let dims = out.dims();
        let (mask, a, b) = (mask.broadcast_to(dims)?, self.broadcast_to(dims)?, other.broadcast_to(dims)?);
        let (mask, on_true, on_false) = (mask.operand(), a.operand(), b.operand());
        out.launch_in_place(Select { mask, on_true, on_false, out: out.operand() })
    }

    /// Reduces by `op` over the axes in which `out`, of the same rank, has size 1.
    pub(crate) fn reduce_axes_into(&self, op: ReduceOp, out: &Array) -> Result<()> {
        let axes = out.dims().iter().enumerate().fold(0, |mask, (i, &d)| if d == 1 { mask | 1 << i } else { mask });
        out.launch_in_place(Reduce { op, axes, x: self.operand(), out: out.operand(), indices: None })
    }
}
