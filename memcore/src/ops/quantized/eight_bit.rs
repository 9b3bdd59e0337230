//! Weights of 8 bits (`Int8Params` of bitsandbytes 0.50), and the product with them (LLM.int8(), `MatMul8bitLt`).

use smallvec::{SmallVec, smallvec};

use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record};
use crate::backend::kernel::UnaryOp;
use crate::context;
use crate::dtype::DType;
use crate::error::Result;
use crate::memory::Category;
use crate::ops::predicted::predicted_only;

/// A weight `[out, in]` of 8 bits a value, with a scale for each row.
#[derive(Clone)]
pub struct EightBit {
    values: Array,
    scales: Array,
}

impl EightBit {
    /// Quantizes a weight `[out, in]` of half precision, which is freed at the end.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) on a device that computes; errors of the device.
    pub fn quantize(weight: Array) -> Result<Self> {
        let device = weight.device().clone();
        predicted_only("int8_vectorwise_quant", &device)?;
        let scales = Array::empty_as(&device, &weight.dims()[..1], DType::F32, Category::Parameter)?;
        let values = Array::empty_as(&device, weight.dims(), DType::I8, Category::Parameter)?;
        drop(weight);
        Ok(Self { values, scales })
    }

    /// The quantized values.
    pub fn values(&self) -> &Array {
        &self.values
    }

    /// `int8_vectorwise_dequant`: the weight in float32.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn restored(&self) -> Result<Array> {
        let device = self.values.device();
        let weight = Array::empty(device, self.values.dims(), DType::F32)?;
        drop(self.scales.clone());
        Array::empty(device, weight.dims(), DType::F32)
    }
}

/// `bnb.matmul` with the usual threshold of 6: `x @ weightᵀ` in the type of `x`. A bias is added in place, which takes no memory. vramlab assumes that no column of `x` has outliers: their number depends
/// on values.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the sizes do not fit; errors of the device.
pub fn linear_8bit(x: &Tensor, weight: &EightBit) -> Result<Tensor> {
    let _op = context::op("MatMul8bitLt");
    let device = x.device();
    predicted_only("int8_scaled_mm", device)?;
    let (outputs, inputs) = (weight.values.dims()[0], weight.values.dims()[1]);
    let rows = x.numel() / inputs.max(1);
    let matrix = x.array().reshape(&[rows, inputs])?;
    let half = matrix.cast(DType::F16)?;
    let scales = Array::empty(device, &[rows], DType::F32)?;
    let quantized = Array::empty(device, &[rows, inputs], DType::I8)?;
    // The search for outliers: `(A.abs() >= threshold).any()`.
    let outliers = {
        let absolute = half.unary(UnaryOp::Abs)?;
        let outliers = Array::empty(device, &[rows, inputs], DType::Bool)?;
        drop(absolute);
        outliers
    };
    {
        let _any = Array::empty(device, &[], DType::Bool)?;
        let _scratch = outliers.scratch_of_partials(&[], 1)?;
    }
    // `out_row[:, outlier_cols] = 0`: the zero.
    drop(Array::empty(device, &[], DType::I8)?);
    drop(outliers);
    drop(half);
    let product = Array::empty(device, &[rows, outputs], DType::I32)?;
    let in_half = Array::empty(device, &[rows, outputs], DType::F16)?;
    let y = in_half.cast(x.dtype())?;
    drop(in_half);
    drop(product);
    drop(quantized);
    drop(scales);
    let mut dims: SmallVec<[usize; 6]> = x.dims().into();
    if let Some(last) = dims.last_mut() {
        *last = outputs;
    }
    let node = MatMul8bitLtBackward { weight: weight.clone(), dtype: x.dtype(), _input: matrix };
    record(y.view(&dims)?, &[x], |_| Ok(Box::new(node)))
}

struct MatMul8bitLtBackward {
    weight: EightBit,
    dtype: DType,
    /// An attribute of the function's context (`ctx.tensors`), not a saved tensor: it lives as long as the graph, and no checkpoint replaces it.
    _input: Array,
}

impl Function for MatMul8bitLtBackward {
    fn name(&self) -> &'static str {
        "MatMul8bitLtBackward"
    }

    /// `grad @ (values · scales/127)`.
    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let (outputs, inputs) = (self.weight.values.dims()[0], self.weight.values.dims()[1]);
        let rows = grad.reshape(&[grad.numel() / outputs.max(1), outputs])?.contiguous()?;
        let weight = Array::empty(grad.device(), &[outputs, inputs], self.dtype)?;
        drop(Array::empty(grad.device(), &[outputs, 1], DType::F32)?);
        let mut dims: SmallVec<[usize; 6]> = grad.dims().into();
        if let Some(last) = dims.last_mut() {
            *last = inputs;
        }
        let converted = rows.cast(self.dtype)?;
        let product = converted.matmul(&weight)?;
        drop(converted);
        drop(weight);
        Ok(smallvec![Some(product.view(&dims)?.keeping_base())])
    }
}
