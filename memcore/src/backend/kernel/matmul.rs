//! Matrix products.

use super::attribute::{AttributeVisitor, VisitAttribute};
use super::definition::{Check, Kernel, OperandVisitor, Visit};
use crate::backend::Operand;
use crate::error::Result;

/// `out = alpha·(a @ b) + beta·out + bias`, for each matrix of a batch.
///
/// `a` is `[batch, m, k]`, `b` is `[batch, k, n]`, `out` is `[batch, m, n]`; `bias` is `[n]` and is added to every row.
/// Transposes are strides; a batch stride of 0 repeats a matrix. In each matrix of `a`, `b` and `out` one of the two
/// strides is 1 (or its size is 1), so that every BLAS can take it; `out`'s rows are contiguous. If `beta` is 0, `out`
/// is not read and may hold NaN. If k is 0, the product is 0.
#[derive(Clone, Debug)]
pub struct Matmul {
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of the old `out`.
    pub beta: f64,
    /// `[batch, m, k]`
    pub a: Operand,
    /// `[batch, k, n]`
    pub b: Operand,
    /// `[n]`, contiguous.
    pub bias: Option<Operand>,
    /// `[batch, m, n]`, last stride 1.
    pub out: Operand,
    /// Scratch that core allocated for this call.
    pub workspace: Option<Operand>,
}

impl Matmul {
    /// Batch, rows, columns and inner size.
    pub fn sizes(&self) -> (usize, usize, usize, usize) {
        let (o, a) = (self.out.dims(), self.a.dims());
        (o[0], o[1], o[2], a[2])
    }

    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.rank("a", &self.a, 3)?;
        c.rank("b", &self.b, 3)?;
        c.rank("out", &self.out, 3)?;
        c.that(self.out.dtype.is_differentiable(), "out", || {
            format!("{}, expected a float or complex64", self.out.dtype)
        })?;
        let (batch, m, n, k) = self.sizes();
        c.dims("a", &self.a, &[batch, m, k])?;
        c.dims("b", &self.b, &[batch, k, n])?;
        c.dtype("a", &self.a, self.out.dtype)?;
        c.dtype("b", &self.b, self.out.dtype)?;
        for (name, x) in [("a", &self.a), ("b", &self.b), ("out", &self.out)] {
            let (d, s) = (x.dims(), x.layout.strides());
            c.that(s[1] == 1 || s[2] == 1 || d[1] <= 1 || d[2] <= 1 || x.numel() == 0, name, || {
                format!("{:?}: no stride of 1", x.layout)
            })?;
        }
        c.that(self.out.layout.strides()[2] == 1 || n <= 1 || self.out.numel() == 0, "out", || {
            format!("{:?}: rows are not contiguous", self.out.layout)
        })?;
        let Some(bias) = &self.bias else {
            return Ok(());
        };
        c.dtype("bias", bias, self.out.dtype)?;
        c.dense("bias", bias, &[n])
    }
}

impl Kernel for Matmul {
    const NAME: &'static str = "matmul";
    const IN_PLACE: bool = false;
    const OPERANDS: &'static [&'static str] = &["a", "b", "bias", "out", "workspace"];
    fn each_operand<'call>(&'call self, f: &mut OperandVisitor<'call, '_>) {
        use crate::backend::Access;
        f("a", Access::Read, &self.a);
        f("b", Access::Read, &self.b);
        Visit::visit(&self.bias, "bias", Access::Read, f);
        f("out", if self.beta == 0.0 { Access::Write } else { Access::ReadWrite }, &self.out);
        Visit::visit(&self.workspace, "workspace", Access::Workspace, f);
    }
    fn each_attribute(&self, f: &mut AttributeVisitor<'_>) {
        let Self { alpha, beta, a: _, b: _, bias: _, out: _, workspace: _ } = self;
        VisitAttribute::visit(alpha, "alpha", f);
        VisitAttribute::visit(beta, "beta", f);
    }
    fn check(&self) -> Result<()> {
        self.check_shapes(&Check { kernel: Self::NAME })
    }
    fn flops(&self) -> u64 {
        let (batch, m, n, k) = self.sizes();
        2 * (batch * m * n * k) as u64
    }
}
