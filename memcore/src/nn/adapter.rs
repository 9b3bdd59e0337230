//! Low-rank adapters (LoRA, DoRA) beside layers whose own weights are not trained.

use super::Module;
use super::init::Init;
use super::parameter::{Fill, Parameter};
use super::quantized::QuantizedWeight;
use super::sequential::Dropout;
use crate::array::Array;
use crate::autograd::{Tensor, autocast_dtype};
use crate::backend::kernel::{ReduceOp, UnaryOp};
use crate::context;
use crate::error::Result;
use crate::memory::ScopeId;
use crate::ops;

/// An adapter: `scaling · B(A(dropout(x)))`, which is added to the layer's own result.
///
/// The order of its temporaries is that of `lora.Linear.forward` in PEFT 0.21.
pub struct LowRankAdapter {
    scope: ScopeId,
    down: Projection,
    up: Projection,
    dropout: Option<Dropout>,
    scaling: f64,
    /// `[out]`, of DoRA.
    magnitude: Option<Parameter>,
}

/// One of the two matrices, `[out, in]`.
struct Projection {
    scope: ScopeId,
    weight: Parameter,
}

impl Projection {
    fn new(init: &Init, [inputs, outputs]: [usize; 2], fill: Fill) -> Result<Self> {
        Ok(Self { scope: init.scope(), weight: init.parameter("weight", &[outputs, inputs], fill)? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        ops::linear(x, self.weight.tensor(), None)
    }
}

/// The weight `[out, in]` and the bias of the layer that an adapter belongs to.
pub struct Base<'a> {
    /// Returns the weight.
    pub weight: &'a dyn Fn() -> Result<Array>,
    /// The bias.
    pub bias: Option<&'a Array>,
}

impl LowRankAdapter {
    /// Creates the adapter that `init` has for a layer from `inputs` to `outputs` features at its path, if it has one: `A` by Kaiming's uniform rule, `B` with zeros. Its weights are float32 where the
    /// layer's are of 16 bits (`autocast_adapter_dtype=True`). `weight` is the layer's, `[out, in]`, which the magnitudes of DoRA begin with.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a probability outside 0..=1; errors of the device.
    pub fn beside(init: &Init, inputs: usize, outputs: usize, weight: &Array) -> Result<Option<Self>> {
        Self::of_layer(init, inputs, outputs, weight, None)
    }

    /// As [`LowRankAdapter::beside`], of a layer whose weight may be one of bitsandbytes.
    pub(super) fn of_layer(
        init: &Init,
        inputs: usize,
        outputs: usize,
        weight: &Array,
        quantized: Option<&QuantizedWeight>,
    ) -> Result<Option<Self>> {
        let Some(options) = init.adapter() else { return Ok(None) };
        let init = init.of_adapter();
        let plain = |name: &str, inputs: usize, outputs: usize, fill: Fill| {
            Projection::new(&init.at(name).at("default"), [inputs, outputs], fill)
        };
        let dropout =
            (options.dropout > 0.0).then(|| Dropout::new(&init.at("lora_dropout").at("default"), options.dropout));
        let mut adapter = Self {
            scope: init.scope(),
            dropout: dropout.transpose()?,
            down: plain("lora_A", inputs, options.rank, Fill::fan_in(inputs))?,
            up: plain("lora_B", options.rank, outputs, Fill::Constant(0.0))?,
            scaling: options.scaling,
            magnitude: None,
        };
        if options.magnitudes {
            let of_existing = match quantized.filter(|_| init.adds()) {
                Some(quantized) => adapter.measured(quantized)?,
                None => Vec::new(),
            };
            let init = init.at("lora_magnitude_vector").at("default");
            let magnitude = init.parameter("weight", &[outputs], Fill::Constant(1.0))?;
            if init.device().computes() {
                magnitude.set(&lengths(&weight.to_f64()?, inputs))?;
            }
            drop(of_existing);
            adapter.magnitude = Some(magnitude);
        }
        Ok(Some(adapter))
    }

    /// What `DoraLinearLayer.update_layer` makes on the device to measure the rows of a weight that is there already, in the order in which it is freed.
    fn measured(&self, layer: &QuantizedWeight) -> Result<Vec<Array>> {
        let mut made = layer.copied()?;
        let weight = layer.restored()?;
        let product = self.up.weight.array().matmul(self.down.weight.array())?;
        let scaled = product.affine(self.scaling, 0.0)?;
        let sum = weight.add(&scaled)?;
        drop(scaled);
        made.extend([weight, product, sum]);
        Ok(made)
    }

    /// Adds the adapter's result for `x` to the layer's own result, in the type of the latter.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn added(&self, own: Tensor, x: &Tensor, base: &Base<'_>) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let dtype = own.dtype();
        // The function's `x` is bound to the converted input until it returns.
        let x = ops::cast(x, self.down.weight.tensor().dtype())?;
        let added = self.adapted(&own, &x, base)?;
        let sum = ops::add(&own, &added)?;
        drop(added);
        drop(own);
        ops::cast(&sum, dtype)
    }

    /// Adds the adapter's result to that of a layer of bitsandbytes: `lora.bnb.Linear4bit.forward`, which copies the layer's result first, or
    /// `lora.bnb.Linear8bitLt.forward`. Under autocast nothing is converted.
    pub(super) fn added_to_quantized(&self, own: Tensor, x: &Tensor, layer: &QuantizedWeight) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let own = if layer.is_copied() {
            let copy = ops::clone(&own)?;
            drop(own);
            copy
        } else {
            own
        };
        let converts = autocast_dtype().is_none();
        let x = if converts { ops::cast(x, self.down.weight.tensor().dtype())? } else { x.clone() };
        let bias = layer.bias();
        let base = Base { weight: &|| layer.restored(), bias: bias.as_ref() };
        let added = self.adapted(&own, &x, &base)?;
        let converted = |tensor: Tensor| if converts { ops::cast(&tensor, own.dtype()) } else { Ok(tensor) };
        if self.magnitude.is_some() {
            let sum = ops::add(&own, &added)?;
            drop(added);
            return converted(sum);
        }
        let added = converted(added)?;
        let sum = ops::add(&own, &added)?;
        drop(own);
        Ok(sum)
    }

    /// The adapter's result.
    fn adapted(&self, own: &Tensor, x: &Tensor, base: &Base<'_>) -> Result<Tensor> {
        match &self.magnitude {
            None => {
                let dropped = self.dropout.as_ref().map_or_else(|| Ok(x.clone()), |dropout| dropout.forward(x))?;
                let high = self.low_rank(dropped)?;
                ops::mul_scalar(&high, self.scaling)
            }
            Some(magnitude) => self.with_magnitude(magnitude, own, x, base),
        }
    }

    /// `B(A(x))`.
    fn low_rank(&self, x: Tensor) -> Result<Tensor> {
        let low = self.down.forward(&x)?;
        drop(x);
        self.up.forward(&low)
    }

    /// `DoraLinearLayer.forward`: the lengths of the rows of `weight + scaling · B A` divide the magnitudes, and have no gradient.
    fn with_magnitude(&self, magnitude: &Parameter, own: &Tensor, x: &Tensor, base: &Base<'_>) -> Result<Tensor> {
        let dropout = self.dropout.as_ref().filter(|dropout| dropout.probability() > 0.0);
        let (x, own) = match dropout {
            Some(dropout) => (dropout.forward(x)?, None),
            None => (x.clone(), Some(own)),
        };
        let product = {
            let identity = Tensor::from_array(identity(&x)?);
            let low = self.down.forward(&identity)?;
            let product = self.up.forward(&low)?;
            drop(low);
            ops::t(&product)?
        };
        let product = {
            let converted = ops::cast(&product, x.dtype())?;
            drop(product);
            converted
        };
        let weight = (base.weight)()?.cast(x.dtype())?;
        let lengths = {
            let scaled = product.array().affine(self.scaling, 0.0)?;
            let sum = weight.add(&scaled)?;
            drop(scaled);
            let lengths = sum.reduce(ReduceOp::SumSquares, &[1], false)?;
            lengths.unary_(UnaryOp::Sqrt)?;
            lengths
        };
        let ratio = {
            let ratio = ops::div(magnitude.tensor(), &Tensor::from_array(lengths.clone()))?;
            ops::view(&ratio, &[1, lengths.numel()])?
        };
        let high = self.low_rank(x.clone())?;
        let own = match (own, base.bias) {
            (Some(own), Some(bias)) => ops::sub(own, &Tensor::from_array(bias.clone()))?,
            (Some(own), None) => own.clone(),
            (None, _) => ops::linear(&x, &Tensor::from_array(weight.clone()), None)?,
        };
        let less = ops::add_scalar(&ratio, -1.0)?;
        let left = ops::mul(&less, &own)?;
        drop(less);
        let right = ops::mul(&ratio, &high)?;
        let scaled = ops::mul_scalar(&right, self.scaling)?;
        drop(right);
        let sum = ops::add(&left, &scaled)?;
        drop((left, scaled));
        // Names die in the order of their first assignment: `base_result` is an argument.
        drop((own, product, weight, lengths, ratio, high));
        Ok(sum)
    }

    /// Its parameters: `A`, `B`, and the magnitudes.
    ///
    /// # Errors
    /// Those of the layers.
    pub(super) fn parameters(&self) -> Result<Vec<Parameter>> {
        let both = [self.down.weight.clone(), self.up.weight.clone()];
        Ok(both.into_iter().chain(self.magnitude.clone()).collect())
    }
}

/// The lengths of a matrix's rows, which have `inputs` values each.
fn lengths(weight: &[f64], inputs: usize) -> Vec<f32> {
    let length = |row: &[f64]| row.iter().map(|value| value * value).sum::<f64>().sqrt() as f32;
    weight.chunks(inputs.max(1)).map(length).collect()
}

/// `torch.eye` of as many rows as `x` has features.
fn identity(x: &Tensor) -> Result<Array> {
    let n = x.dims().last().copied().unwrap_or(1);
    let array = Array::empty(x.device(), &[n, n], x.dtype())?;
    if x.device().computes() {
        let values: Vec<f64> = (0..n * n).map(|place| f64::from(u8::from(place % (n + 1) == 0))).collect();
        array.write_values(&values)?;
    }
    Ok(array)
}
