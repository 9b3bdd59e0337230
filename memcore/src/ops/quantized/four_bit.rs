//! Weights of 4 bits (`Params4bit` of bitsandbytes 0.50), and the product with them (`MatMul4Bit`).

use smallvec::{SmallVec, smallvec};

use super::kernel::{BLOCK, is_fused};
use crate::array::Array;
use crate::autograd::{Function, Grads, Needs, Saved, Tensor, record, unwatched};
use crate::backend::kernel::{BinaryOp, ReduceOp, UnaryOp};
use crate::context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::memory::Category;
use crate::ops::predicted::predicted_only;
use crate::ops::products::linear;

/// Scales that share one scale of their own, if these are quantized as well.
const BLOCK_OF_SCALES: usize = 256;

/// A weight `[out, in]` of 4 bits a value, nf4 or fp4: both take the same memory.
#[derive(Clone)]
pub struct FourBit {
    dims: [usize; 2],
    /// The type of the weight that was quantized: backward restores it in this type.
    dtype: DType,
    /// Two values a byte, `[values/2, 1]`.
    packed: Array,
    /// One for each block: f32, or u8 if they are quantized as well.
    scales: Array,
    _code: Array,
    nested: Option<Nested>,
}

/// Scales of the scales: `bnb_4bit_use_double_quant`.
#[derive(Clone)]
struct Nested {
    offset: Array,
    _scales: Array,
    _code: Array,
    /// Shared by all weights of a process.
    _table: Array,
}

/// A table that bitsandbytes makes once for all quantized scales of a process.
const TABLE: usize = 256;

impl FourBit {
    /// Quantizes a weight `[out, in]`, which is freed at the end. `twice` quantizes the scales, too; `table` is what bitsandbytes keeps for these, and is
    /// made where it is `None`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) on a device that computes; errors of the device.
    pub fn quantize(weight: Array, twice: bool, table: &mut Option<Array>) -> Result<Self> {
        let device = weight.device().clone();
        predicted_only("quantize_4bit", &device)?;
        let (dims, dtype) = ([weight.dims()[0], weight.dims()[1]], weight.dtype());
        let numel = weight.numel();
        let scales = kept(&device, &[numel.div_ceil(BLOCK)], DType::F32)?;
        let packed = kept(&device, &[numel.div_ceil(2), 1], DType::U8)?;
        let code = code(&device)?;
        let (scales, nested) = if twice {
            let (scales, nested) = nested(scales, table)?;
            (scales, Some(nested))
        } else {
            (scales, None)
        };
        drop(weight);
        Ok(Self { dims, dtype, packed, scales, _code: code, nested })
    }

    /// The packed values.
    pub fn packed(&self) -> &Array {
        &self.packed
    }

    /// Its sizes, `[out, in]`.
    pub fn dims(&self) -> [usize; 2] {
        self.dims
    }

    /// `dequantize_4bit`: the weight in the type that was quantized.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn restored(&self) -> Result<Array> {
        let device = self.packed.device();
        let scales = match &self.nested {
            Some(_) => Array::empty(device, self.scales.dims(), DType::F32)?,
            None => self.scales.clone(),
        };
        let weight = Array::empty(device, &self.dims, self.dtype)?;
        drop(scales);
        Ok(weight)
    }

    /// `copy.deepcopy` of the layer around it, whose description of the weight is copied twice. Everything is returned in the order in which it is freed.
    ///
    /// # Errors
    /// Errors of the device.
    #[doc(hidden)]
    pub fn copied(&self) -> Result<Vec<Array>> {
        let mut copies = self.description_copied()?;
        copies.push(copied(&self.packed)?);
        copies.extend(self.description_copied()?);
        Ok(copies)
    }

    fn description_copied(&self) -> Result<Vec<Array>> {
        let nested = self.nested.iter().flat_map(|nested| [&nested.offset, &nested._scales, &nested._code]);
        [&self.scales, &self._code].into_iter().chain(nested).map(copied).collect()
    }
}

/// `Tensor.__deepcopy__` copies the memory, then makes a tensor that is put in its place.
fn copied(array: &Array) -> Result<Array> {
    let copy = Array::empty(array.device(), array.dims(), array.dtype())?;
    drop(Array::empty(array.device(), &[1], array.dtype())?);
    Ok(copy)
}

fn kept(device: &Device, dims: &[usize], dtype: DType) -> Result<Array> {
    Array::empty_as(device, dims, dtype, Category::Parameter)
}

/// `get_4bit_type`: the 16 values that there are, divided by the largest.
fn code(device: &Device) -> Result<Array> {
    let code = kept(device, &[16], DType::F32)?;
    let absolute = code.unary(UnaryOp::Abs)?;
    let largest = absolute.reduce(ReduceOp::Max, &[], false)?;
    drop(absolute);
    drop(largest);
    Ok(code)
}

/// Quantizes the scales by blocks of their own.
fn nested(scales: Array, table: &mut Option<Array>) -> Result<(Array, Nested)> {
    let device = scales.device().clone();
    let offset = scales.reduce(ReduceOp::Mean, &[], false)?.with_category(Category::Parameter);
    let shifted = scales.binary(BinaryOp::Sub, &offset)?;
    let table_of_all = match table.clone() {
        Some(table) => table,
        None => kept(&device, &[TABLE], DType::F32)?,
    };
    *table = Some(table_of_all.clone());
    let of_scales = kept(&device, &[scales.numel().div_ceil(BLOCK_OF_SCALES)], DType::F32)?;
    let quantized = kept(&device, scales.dims(), DType::U8)?;
    let code = kept(&device, &[TABLE], DType::F32)?;
    drop(shifted);
    drop(scales);
    Ok((quantized, Nested { offset, _scales: of_scales, _code: code, _table: table_of_all }))
}

/// `bnb.matmul_4bit`: `x @ weightᵀ + bias` in the type of `x`. Saves nothing but the weight.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the sizes do not fit; errors of the device.
pub fn linear_4bit(x: &Tensor, weight: &FourBit, bias: Option<&Array>) -> Result<Tensor> {
    let _op = context::op("MatMul4Bit");
    predicted_only("matmul_4bit", x.device())?;
    let [outputs, inputs] = weight.dims;
    let mut dims: SmallVec<[usize; 6]> = x.dims().into();
    if let Some(last) = dims.last_mut() {
        *last = outputs;
    }
    let rows = x.numel() / inputs.max(1);
    let y = if is_fused(x.device().profile(), x.dtype(), rows, outputs, inputs) {
        let input = x.array().contiguous()?;
        let y = Array::empty(x.device(), &dims, x.dtype())?;
        drop(input);
        y
    } else {
        unwatched(|| by_restoring(x, weight, bias))?
    };
    record(y, &[x], |_| Ok(Box::new(MatMul4BitBackward { weight: weight.clone() })))
}

/// The weight is restored, and a usual product follows.
fn by_restoring(x: &Tensor, weight: &FourBit, bias: Option<&Array>) -> Result<Array> {
    let device = x.device();
    let (scales, restored) = match &weight.nested {
        Some(_) => {
            let restored = Array::empty(device, weight.scales.dims(), DType::F32)?;
            (Array::empty(device, weight.scales.dims(), DType::F32)?, Some(restored))
        }
        None => (weight.scales.clone(), None),
    };
    let full = Tensor::from_array(Array::empty(device, &weight.dims, x.dtype())?);
    let bias = bias.cloned().map(Tensor::from_array);
    let y = linear(&x.detach(), &full, bias.as_ref())?.into_array();
    drop(scales);
    drop(restored);
    drop(full);
    Ok(y)
}

struct MatMul4BitBackward {
    weight: FourBit,
}

impl Function for MatMul4BitBackward {
    fn name(&self) -> &'static str {
        "MatMul4BitBackward"
    }

    /// `grad @ weight`, the weight restored in the type that was quantized and then converted.
    fn backward(&self, grads: Grads, _: &Saved<'_>, _: Needs<'_>) -> Result<Grads> {
        let Some(grad) = &grads[0] else { return Ok(Grads::new()) };
        let [outputs, inputs] = self.weight.dims;
        let weight = self.weight.restored()?.cast(grad.dtype())?;
        let mut dims: SmallVec<[usize; 6]> = grad.dims().into();
        if let Some(last) = dims.last_mut() {
            *last = inputs;
        }
        let rows = grad.reshape(&[grad.numel() / outputs.max(1), outputs])?;
        let product = rows.matmul(&weight)?;
        drop(rows);
        drop(weight);
        Ok(smallvec![Some(product.view(&dims)?.keeping_base())])
    }
}
