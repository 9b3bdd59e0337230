//! A product as the library sees it.

use memcore::DType;
use memcore::backend::Operand;
use memcore::backend::kernel::Matmul;

use crate::call::Scratch;

/// A matrix of a batch in the library's form: stored column by column, `lead` elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Matrix {
    /// Rows and columns as stored; exchanged for the product if it is transposed.
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    pub(crate) lead: i64,
    pub(crate) batch_stride: i64,
    pub(crate) transposed: bool,
    /// Alignment of its address in bytes, up to 256.
    pub(crate) alignment: u32,
}

/// Everything on which the library's choice depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) dtype: DType,
    /// True if float32 factors may be rounded to TF32.
    pub(crate) tf32: bool,
    pub(crate) batch: i32,
    pub(crate) first: Matrix,
    pub(crate) second: Matrix,
    pub(crate) out: Matrix,
    pub(crate) bias: bool,
    pub(crate) reads_out: bool,
    pub(crate) workspace_bytes: u64,
}

/// Addresses of the matrices of a product, and of its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Places {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) bias: u64,
    pub(crate) out: u64,
    pub(crate) workspace: Scratch,
}

/// Describes the call in the library's form. `None` if that is impossible, or if the own kernels for narrow and small
/// products are meant to run. With `tf32`, float32 factors may be rounded.
pub(crate) fn shape(k: &Matmul, places: &Places, tf32: bool) -> Option<Shape> {
    const NARROW: usize = 8;
    const FEW_PRODUCTS: usize = 1 << 12;
    // The library's kernels read a bias 16 bytes at a time, and fault if it is not aligned to them.
    const BIAS_ALIGNMENT: u64 = 16;
    let (batch, m, n, inner) = k.sizes();
    if m.min(n) < NARROW || inner == 0 || m * n * inner <= FEW_PRODUCTS {
        return None;
    }
    if k.bias.is_some() && (batch > 1 || !places.bias.is_multiple_of(BIAS_ALIGNMENT)) {
        return None;
    }
    Some(Shape {
        dtype: k.out.dtype,
        tf32: tf32 && k.out.dtype == DType::F32,
        batch: i32::try_from(batch).ok()?,
        first: matrix(&k.b, places.b)?,
        second: matrix(&k.a, places.a)?,
        out: matrix(&k.out, places.out).filter(|out| !out.transposed)?,
        bias: k.bias.is_some(),
        reads_out: k.beta != 0.0,
        workspace_bytes: places.workspace.bytes,
    })
}

/// A matrix with contiguous rows is the transpose of one stored column by column. One with contiguous columns is stored
/// column by column itself, and has to be transposed.
fn matrix(operand: &Operand, address: u64) -> Option<Matrix> {
    let (d, s) = (operand.dims(), operand.layout.strides());
    let (rows, columns) = (d[1] as u64, d[2] as u64);
    let alignment = 1 << address.trailing_zeros().min(8);
    let batch_stride = s[0] as i64;
    if s[2] == 1 && s[1] as u64 >= columns {
        let (rows, columns) = (columns, rows);
        Some(Matrix { rows, columns, lead: s[1] as i64, batch_stride, transposed: false, alignment })
    } else if s[1] == 1 && s[2] as u64 >= rows {
        Some(Matrix { rows, columns, lead: s[2] as i64, batch_stride, transposed: true, alignment })
    } else {
        None
    }
}
