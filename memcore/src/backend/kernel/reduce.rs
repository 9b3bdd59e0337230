//! Reductions over any set of axes.

use super::definition::{Check, Types, kernel};
use crate::backend::Operand;
use crate::dtype::DType;
use crate::error::Result;

/// The value computed from the elements of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    /// Their sum.
    Sum,
    /// Their sum divided by their number.
    Mean,
    /// The sum of their squares.
    SumSquares,
    /// The largest; NaN wins.
    Max,
    /// The smallest; NaN wins.
    Min,
}

impl ReduceOp {
    /// The element types for which the reduction is defined.
    pub const fn types(self) -> Types {
        match self {
            ReduceOp::Sum => Types::NumbersAndComplex,
            ReduceOp::Max | ReduceOp::Min => Types::Numbers,
            ReduceOp::Mean => Types::FloatsAndComplex,
            ReduceOp::SumSquares => Types::Floats,
        }
    }
}

/// `out[kept] = op over reduced axes of x`. `out` has `x`'s rank, with size 1 in each reduced axis.
///
/// For `Max` and `Min` over exactly one axis, `indices` receives the position of the first extremum. Groups are summed
/// pairwise or in blocks, so that the error grows at most with the logarithm of their size.
#[derive(Clone, Debug)]
pub struct Reduce {
    /// What is computed.
    pub op: ReduceOp,
    /// Bit `i` set: axis `i` is reduced.
    pub axes: u8,
    /// Any strides; not empty in a reduced axis for `Max` and `Min`.
    pub x: Operand,
    /// Same type as `x`, any strides. For sums of 16-bit floats it may be f32; the sum is then not rounded.
    pub out: Operand,
    /// i64, the sizes of `out`, contiguous.
    pub indices: Option<Operand>,
}
kernel!(Reduce, "reduce", in_place: false, [op, axes], { x: Read, out: Write, indices: Write }, flops: |k| k.x.numel() as u64);
impl Reduce {
    /// Whether axis `i` is reduced.
    pub fn reduces(&self, axis: usize) -> bool {
        self.axes >> axis & 1 == 1
    }

    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.rank("out", &self.out, self.x.layout.rank())?;
        c.defined("x", &self.x, self.op, self.op.types(), [0.0; 2])?;
        let extremum = matches!(self.op, ReduceOp::Max | ReduceOp::Min);
        let unrounded = !extremum && self.x.dtype.is_float() && self.out.dtype == self.x.dtype.accumulator();
        if !unrounded {
            c.dtype("out", &self.out, self.x.dtype)?;
        }
        for (i, (&have, &out)) in self.x.dims().iter().zip(self.out.dims()).enumerate() {
            let want = if self.reduces(i) { 1 } else { have };
            c.that(out == want, "out", || format!("size {out} in axis {i}, expected {want}"))?;
        }
        c.that(!extremum || self.x.numel() > 0 || self.out.numel() == 0, "x", || "an extremum of nothing".into())?;
        let Some(indices) = &self.indices else {
            return Ok(());
        };
        c.that(extremum && self.axes.count_ones() == 1, "indices", || "only for an extremum over one axis".into())?;
        c.dtype("indices", indices, DType::I64)?;
        c.dense("indices", indices, self.out.dims())
    }
}
