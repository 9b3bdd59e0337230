//! Linear layers whose weights bitsandbytes keeps in 4 or 8 bits.

use std::sync::{Arc, Mutex, PoisonError};

use crate::array::Array;
use crate::autograd::Tensor;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::memory::Category;
use crate::ops::{self, EightBit, FourBit};

/// How bitsandbytes keeps the weight of a linear layer, and the type that it computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantization {
    /// Bits of a value.
    pub bits: Bits,
    /// `bnb_4bit_compute_dtype`; weights of 8 bits compute in the type of their inputs.
    pub compute: DType,
}

/// Bits of a value of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// nf4 or fp4.
    Four {
        /// `bnb_4bit_use_double_quant`: the scales are quantized as well.
        twice: bool,
    },
    /// LLM.int8().
    Eight,
}

/// A weight, with the bias beside it.
#[derive(Clone)]
pub(super) struct QuantizedWeight {
    values: Values,
    compute: DType,
    bias: Option<Arc<Mutex<Array>>>,
}

#[derive(Clone)]
enum Values {
    Four(Box<FourBit>),
    Eight(Box<EightBit>),
}

impl QuantizedWeight {
    /// Makes the weight `[outputs, inputs]` of a layer. It arrives in this type, and is quantized on the device; `table` is what all weights share.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) on a device that computes; errors of the device.
    pub(super) fn new(
        (device, dtype): (&Device, DType),
        how: Quantization,
        [inputs, outputs]: [usize; 2],
        has_bias: bool,
        table: &mut Option<Array>,
    ) -> Result<Self> {
        let arrives_in = if how.bits == Bits::Eight { DType::F16 } else { dtype };
        let arrived = Array::empty_as(device, &[outputs, inputs], arrives_in, Category::Parameter)?;
        let values = match how.bits {
            Bits::Four { twice } => Values::Four(Box::new(FourBit::quantize(arrived, twice, table)?)),
            Bits::Eight => Values::Eight(Box::new(EightBit::quantize(arrived)?)),
        };
        let bias = || Array::empty_as(device, &[outputs], dtype, Category::Parameter);
        let bias = if has_bias { Some(Arc::new(Mutex::new(bias()?))) } else { None };
        Ok(Self { values, compute: how.compute, bias })
    }

    /// Converts the bias, as `model.to(dtype)` does.
    pub(super) fn converted(self, dtype: DType) -> Result<Self> {
        self.convert_bias(dtype)?;
        Ok(self)
    }

    /// The packed values.
    pub(super) fn packed(&self) -> &Array {
        match &self.values {
            Values::Four(weight) => weight.packed(),
            Values::Eight(weight) => weight.values(),
        }
    }

    /// `bias.data = bias.data.to(dtype)`; returns it.
    fn convert_bias(&self, dtype: DType) -> Result<Option<Array>> {
        let Some(bias) = &self.bias else { return Ok(None) };
        let mut bias = bias.lock().unwrap_or_else(PoisonError::into_inner);
        if bias.dtype() != dtype {
            let converted = bias.cast(dtype)?.with_category(Category::Parameter);
            *bias = converted;
        }
        Ok(Some(bias.clone()))
    }

    /// `Linear4bit.forward`, or `Linear8bitLt.forward`.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match &self.values {
            Values::Four(weight) => {
                let inner = ops::cast(x, self.compute)?;
                let bias = self.convert_bias(inner.dtype())?;
                let y = ops::linear_4bit(&inner, weight, bias.as_ref())?;
                let converted = ops::cast(&y, x.dtype())?;
                drop(y);
                Ok(converted)
            }
            Values::Eight(weight) => {
                self.convert_bias(x.dtype())?;
                ops::linear_8bit(x, weight)
            }
        }
    }

    /// The weight in the type that was quantized.
    pub(super) fn restored(&self) -> Result<Array> {
        match &self.values {
            Values::Four(weight) => weight.restored(),
            Values::Eight(weight) => weight.restored(),
        }
    }

    /// What `copy.deepcopy` of the layer makes; nothing with 8 bits.
    pub(super) fn copied(&self) -> Result<Vec<Array>> {
        match &self.values {
            Values::Four(weight) => weight.copied(),
            Values::Eight(_) => Ok(Vec::new()),
        }
    }

    /// The bias.
    pub(super) fn bias(&self) -> Option<Array> {
        self.bias.as_ref().map(|bias| bias.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// True if PEFT copies the result before it adds to it.
    pub(super) fn is_copied(&self) -> bool {
        matches!(self.values, Values::Four(_))
    }
}
