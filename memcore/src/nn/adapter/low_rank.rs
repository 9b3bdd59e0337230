//! Low-rank adapters (LoRA, DoRA) beside layers whose own weights are not trained.

use super::dora::{self, Base, lengths, magnitude};
use super::projections::Projections;
use crate::array::Array;
use crate::autograd::{Tensor, autocast_dtype};
use crate::backend::kernel::Conv2dGeometry;
use crate::context;
use crate::error::{Error, Result};
use crate::memory::ScopeId;
use crate::nn::adapted::LayerKind;
use crate::nn::init::Init;
use crate::nn::parameter::Parameter;
use crate::nn::quantized::QuantizedWeight;
use crate::ops;

/// An adapter: `scaling · B(A(dropout(x)))`, which is added to the layer's own result.
///
/// The order of its temporaries is that of `lora.Linear.forward` and `lora.Conv2d.forward` in PEFT 0.21.
pub struct LowRankAdapter {
    scope: ScopeId,
    maps: Projections,
    /// Of DoRA: `[out]`, and of a convolution `[1, out, 1, 1]`.
    magnitude: Option<Parameter>,
    /// Of the layer that it belongs to; `None` for a linear one.
    geometry: Option<Conv2dGeometry>,
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
    pub(in crate::nn) fn of_layer(
        init: &Init,
        inputs: usize,
        outputs: usize,
        weight: &Array,
        quantized: Option<&QuantizedWeight>,
    ) -> Result<Option<Self>> {
        let Some(options) = init.adapter(LayerKind::Linear) else { return Ok(None) };
        let init = init.of_adapter(quantized.is_some());
        let (down, up) = ([options.rank, inputs], [outputs, options.rank]);
        let maps = Projections::new(&init, &options, (&down, None), (&up, None))?;
        let mut adapter = Self { scope: init.scope(), maps, magnitude: None, geometry: None };
        if options.magnitudes {
            let of_existing = match quantized.filter(|_| init.adds()) {
                Some(quantized) => adapter.measured(quantized)?,
                None => Vec::new(),
            };
            adapter.magnitude = Some(magnitude(&init, &[outputs], || Ok(lengths(&weight.to_f64()?, inputs)))?);
            drop(of_existing);
        }
        Ok(Some(adapter))
    }

    /// Creates the adapter that `init` has for a convolution with a weight of these sizes at its path, if it has one: `A` is a convolution to few channels, `B` one of points.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) where PEFT has none: for groups that do not divide the rank, and for a dilation, which `A` has not. Errors of the device.
    pub(in crate::nn) fn of_convolution(
        init: &Init,
        inputs: usize,
        geometry: Conv2dGeometry,
        weight: &Array,
    ) -> Result<Option<Self>> {
        let Some(options) = init.adapter(LayerKind::Convolution) else { return Ok(None) };
        let (groups, [outputs, _, height, width]) = (geometry.groups, sizes(weight)?);
        if !options.rank.is_multiple_of(groups) || geometry.dilation != [1, 1] {
            let what = format!("{} in {}", options, init.path());
            let problem = format!("PEFT needs a rank that {groups} groups divide, and no dilation");
            return Err(Error::invalid(what, problem));
        }
        let init = init.of_adapter(false);
        let (down, up) = ([options.rank, inputs, height, width], [outputs, options.rank / groups, 1, 1]);
        let (of_down, of_up) =
            (Conv2dGeometry { groups: 1, ..geometry }, Conv2dGeometry { groups, ..Conv2dGeometry::default() });
        let maps = Projections::new(&init, &options, (&down, Some(of_down)), (&up, Some(of_up)))?;
        let rows = || Ok(lengths(&weight.to_f64()?, inputs / groups * height * width));
        let magnitude = options.magnitudes.then(|| magnitude(&init, &[1, outputs, 1, 1], rows)).transpose()?;
        Ok(Some(Self { scope: init.scope(), maps, magnitude, geometry: Some(geometry) }))
    }

    /// What `DoraLinearLayer.update_layer` makes on the device to measure the rows of a weight that is there already, in the order in which it is freed.
    fn measured(&self, layer: &QuantizedWeight) -> Result<Vec<Array>> {
        let mut made = layer.copied()?;
        let weight = layer.restored()?;
        let product = self.maps.up.weight.array().matmul(self.maps.down.weight.array())?;
        let scaled = product.affine(self.maps.scaling, 0.0)?;
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
        let x = ops::cast(x, self.maps.down.weight.tensor().dtype())?;
        let added = self.adapted(&own, &x, base)?;
        let sum = ops::add(&own, &added)?;
        drop(added);
        drop(own);
        ops::cast(&sum, dtype)
    }

    /// Adds the adapter's result to that of a layer of bitsandbytes: `lora.bnb.Linear4bit.forward`, which copies the layer's result first, or
    /// `lora.bnb.Linear8bitLt.forward`. Under autocast nothing is converted.
    pub(in crate::nn) fn added_to_quantized(&self, own: Tensor, x: &Tensor, layer: &QuantizedWeight) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let own = if layer.is_copied() {
            let copy = ops::clone(&own)?;
            drop(own);
            copy
        } else {
            own
        };
        let converts = autocast_dtype().is_none();
        let x = if converts { ops::cast(x, self.maps.down.weight.tensor().dtype())? } else { x.clone() };
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
        match (&self.magnitude, self.geometry) {
            (None, _) => self.maps.scaled(x),
            (Some(magnitude), None) => dora::linear(&self.maps, magnitude, own, x, base),
            (Some(magnitude), Some(geometry)) => dora::convolution(&self.maps, (magnitude, geometry), own, x, base),
        }
    }

    /// Its parameters: `A`, `B`, and the magnitudes.
    ///
    /// # Errors
    /// Those of the layers.
    pub(in crate::nn) fn parameters(&self) -> Result<Vec<Parameter>> {
        let both = [self.maps.down.weight.clone(), self.maps.up.weight.clone()];
        Ok(both.into_iter().chain(self.magnitude.clone()).collect())
    }
}

/// Sizes of a convolution's weight.
fn sizes(weight: &Array) -> Result<[usize; 4]> {
    let misfit = |_| Error::shape("conv2d", format!("a weight {:?} of a convolution", weight.dims()));
    weight.dims().try_into().map_err(misfit)
}
