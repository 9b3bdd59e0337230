//! int8 weights: symmetric, one scale per row (output channel).

use super::definition::{Check, kernel};
use crate::backend::Operand;
use crate::dtype::DType;
use crate::error::Result;

/// Per row: `scale = max|x| / 127` (1 where the row is 0), `out = round(x/scale)` to nearest even, in −127..=127.
#[derive(Clone, Debug)]
pub struct QuantizeInt8 {
    /// `[rows, n]`, contiguous, as all operands here.
    pub x: Operand,
    /// i8, `[rows, n]`
    pub out: Operand,
    /// f32, `[rows]`
    pub scale: Operand,
}
kernel!(QuantizeInt8, "quantize_int8", in_place: false, [], { x: Read, out: Write, scale: Write }, flops: |k| 2 * k.x.numel() as u64);
impl QuantizeInt8 {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        check(c, ("x", &self.x), ("out", &self.out), &self.scale)
    }
}

/// `out = x·scale[row]`.
#[derive(Clone, Debug)]
pub struct DequantizeInt8 {
    /// i8, `[rows, n]`, contiguous, as all operands here.
    pub x: Operand,
    /// f32, `[rows]`
    pub scale: Operand,
    /// `[rows, n]`
    pub out: Operand,
}
kernel!(DequantizeInt8, "dequantize_int8", in_place: false, [], { x: Read, scale: Read, out: Write }, flops: |k| k.x.numel() as u64);
impl DequantizeInt8 {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        check(c, ("out", &self.out), ("x", &self.x), &self.scale)
    }
}

/// `out = x @ (weight·scale)ᵀ + bias`: `x` is `[m, k]`, `weight` i8 `[n, k]` with one scale per row, `out` `[m, n]`.
#[derive(Clone, Debug)]
pub struct MatmulInt8 {
    /// `[m, k]`, contiguous, as all operands here.
    pub x: Operand,
    /// i8, `[n, k]`
    pub weight: Operand,
    /// f32, `[n]`
    pub scale: Operand,
    /// `[n]`
    pub bias: Option<Operand>,
    /// `[m, n]`
    pub out: Operand,
}
kernel!(MatmulInt8, "matmul_int8", in_place: false, [], { x: Read, weight: Read, scale: Read, bias: Read, out: Write }, flops: |k| 2 * (k.x.numel() * k.weight.dims()[0]) as u64);
impl MatmulInt8 {
    fn check_shapes(&self, c: &Check) -> Result<()> {
        c.rank("x", &self.x, 2)?;
        c.rank("weight", &self.weight, 2)?;
        c.float("x", &self.x)?;
        c.contiguous("x", &self.x)?;
        let (m, k, n) = (self.x.dims()[0], self.x.dims()[1], self.weight.dims()[0]);
        c.dtype("weight", &self.weight, DType::I8)?;
        c.dense("weight", &self.weight, &[n, k])?;
        c.dtype("scale", &self.scale, DType::F32)?;
        c.dense("scale", &self.scale, &[n])?;
        c.dtype("out", &self.out, self.x.dtype)?;
        c.dense("out", &self.out, &[m, n])?;
        let Some(bias) = &self.bias else {
            return Ok(());
        };
        c.dtype("bias", bias, self.x.dtype)?;
        c.dense("bias", bias, &[n])
    }
}

fn check(c: &Check, float: (&'static str, &Operand), int: (&'static str, &Operand), scale: &Operand) -> Result<()> {
    c.rank(float.0, float.1, 2)?;
    c.float(float.0, float.1)?;
    c.contiguous(float.0, float.1)?;
    c.dtype(int.0, int.1, DType::I8)?;
    c.dense(int.0, int.1, float.1.dims())?;
    c.dtype("scale", scale, DType::F32)?;
    c.dense("scale", scale, &[float.1.dims()[0]])
}
