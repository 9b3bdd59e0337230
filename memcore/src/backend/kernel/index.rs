//! Rows of a table by index, and back.

use super::definition::{Check, kernel};
use crate::backend::Operand;
use crate::dtype::DType;
use crate::error::Result;

/// `out[i] = table[indices[i]]`. An index outside the table reads as NaN (0 for integers), because a kernel cannot
/// report errors.
#[derive(Clone, Debug)]
pub struct Gather {
    /// `[rows, n]`, any strides; the other operands are contiguous.
    pub table: Operand,
    /// `[count]`, i64.
    pub indices: Operand,
    /// `[count, n]`
    pub out: Operand,
}
kernel!(Gather, "gather", in_place: false, [], { table: Read, indices: Read, out: Write }, flops: |_| 0, gathers: table, |k| k.out.numel());
impl Gather {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.contiguous("out", &self.out)?;
        check_rows(c, ("table", &self.table), &self.indices, ("out", &self.out))
    }
}

/// `out[r] = Σ_{i: indices[i] = r} src[i]`, 0 for rows that no index names. With `accumulate`, the sum is added to the
/// old `out`.
///
/// Rows are summed in the order of `i`, so that the result is the same to the bit in every run. The old `out` may come
/// first or last. Indices outside the table, and `padding_index`, are skipped.
#[derive(Clone, Debug)]
pub struct ScatterAdd {
    /// Adds to `out` instead of overwriting it.
    pub accumulate: bool,
    /// Index of a row that receives nothing.
    pub padding_index: Option<i64>,
    /// `[count, n]`, any strides; the other operands are contiguous.
    pub src: Operand,
    /// `[count]`, i64.
    pub indices: Operand,
    /// `[rows, n]`
    pub out: Operand,
}
kernel!(ScatterAdd, "scatter_add", in_place: false, [accumulate, padding_index], { src: Read, indices: Read, out: ReadWrite }, flops: |k| k.src.numel() as u64);
impl ScatterAdd {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.float("out", &self.out)?;
        c.contiguous("out", &self.out)?;
        check_rows(c, ("out", &self.out), &self.indices, ("src", &self.src))
    }
}

fn check_rows(
    c: &Check,
    table: (&'static str, &Operand),
    indices: &Operand,
    rows: (&'static str, &Operand),
) -> Result<()> {
    c.rank(table.0, table.1, 2)?;
    c.rank("indices", indices, 1)?;
    c.contiguous("indices", indices)?;
    c.dtype("indices", indices, DType::I64)?;
    c.dtype(rows.0, rows.1, table.1.dtype)?;
    c.dims(rows.0, rows.1, &[indices.dims()[0], table.1.dims()[1]])
}
