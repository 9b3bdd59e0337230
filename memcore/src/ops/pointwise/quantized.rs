//! int8 weights for inference: symmetric, with one scale per row (output channel). They have no gradients.

use crate::array::Array;
use crate::backend::kernel::{DequantizeInt8, MatmulInt8, QuantizeInt8};
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// A matrix in one byte per element.
#[derive(Clone, Debug)]
pub struct QuantizedInt8 {
    /// i8, `[rows, n]`, in −127..=127.
    pub values: Array,
    /// f32, `[rows]`: the value of one step of a row.
    pub scale: Array,
}

/// Quantizes each row: `scale = max|x|/127` and `values = round(x/scale)`, to nearest even. The error is half a step at most.
///
/// # Errors
/// [`Error::Shape`] for anything but a matrix; errors of the device.
pub fn quantize_int8(x: &Array) -> Result<QuantizedInt8> {
    let [rows, _] = *x.dims() else {
        return Err(Error::shape("quantize_int8", format!("{:?} is not a matrix", x.dims())));
    };
    let _op = context::op("quantize_int8");
    let x = x.contiguous()?;
    let values = Array::empty(x.device(), x.dims(), DType::I8)?;
    let scale = Array::empty(x.device(), &[rows], DType::F32)?;
    x.device().launch(QuantizeInt8 { x: x.operand(), out: values.operand(), scale: scale.operand() })?;
    Ok(QuantizedInt8 { values, scale })
}

/// `values·scale` in a float type.
///
/// # Errors
/// [`Error::DType`] for a type that is not a float; errors of the device.
pub fn dequantize_int8(x: &QuantizedInt8, dtype: DType) -> Result<Array> {
    if !dtype.is_float() {
        return Err(Error::DType { op: "dequantize_int8", operand: "out", found: dtype, expected: "float" });
    }
    let _op = context::op("dequantize_int8");
    let out = Array::empty(x.values.device(), x.values.dims(), dtype)?;
    let (values, scale) = (x.values.operand(), x.scale.operand());
    out.device().launch(DequantizeInt8 { x: values, scale, out: out.operand() })?;
    Ok(out)
}

/// `x @ weightᵀ + bias` with a weight `[n, k]` in int8, dequantised on the way: `[.., k]` gives `[.., n]`.
///
/// # Errors
/// [`Error::Shape`] if they do not fit; errors of the device.
pub fn matmul_int8(x: &Array, weight: &QuantizedInt8, bias: Option<&Array>) -> Result<Array> {
    let misfit = || Error::shape("matmul_int8", format!("{:?} @ {:?}ᵀ", x.dims(), weight.values.dims()));
    let (Some((&inner, lead)), [n, k]) = (x.dims().split_last(), weight.values.dims()) else {
        return Err(misfit());
    };
    if inner != *k {
        return Err(misfit());
    }
    let _op = context::op("matmul_int8");
    let rows = x.contiguous()?.view(&[lead.iter().product(), inner])?;
    let out = Array::empty(x.device(), &[rows.dims()[0], *n], x.dtype())?;
    x.device().launch(MatmulInt8 {
        x: rows.operand(),
        weight: weight.values.operand(),
        scale: weight.scale.operand(),
        bias: bias.map(Array::operand),
        out: out.operand(),
    })?;
    let dims: smallvec::SmallVec<[usize; 6]> = lead.iter().copied().chain([*n]).collect();
    out.view(&dims)
}
