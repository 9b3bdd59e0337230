//! Networks whose linear layers have weights of bitsandbytes, on the way to their training: loaded, converted, adapted.

use lab_models::Quantized;
use memcore::nn::{Bits, Converted, Init, Quantization};
use memcore::{DType, Device, Result};

use super::settings::RunSettings;

impl RunSettings {
    /// Builds a network on a device, and returns it with the `Init` that made its last parameters.
    ///
    /// One with weights of bitsandbytes is built as a script does it: `from_pretrained` puts quantized weights on the device,
    /// `prepare_model_for_kbit_training` converts the others to float32 and empties the cache, and `get_peft_model` makes adapters.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn built<N>(&self, device: &Device, build: impl Fn(&Init) -> Result<N>) -> Result<(N, Init)> {
        let init = |dtype: DType, before: Converted| Init::converting(device, dtype, self.seed, before);
        let dtype = self.precision.dtype();
        let Some(quantized) = &self.quantized else {
            let init = self.tuned(init(dtype, Converted::default()));
            return Ok((build(&init)?, init));
        };
        let of_layer = self.quantization(quantized);
        let untrained = |dtype: DType, before: Converted| {
            let init = init(dtype, before).freezing(|_| true).quantizing(of_layer.clone());
            build(&init).map(|network| (drop(network), init.into_converted()).1)
        };
        let loaded = untrained(dtype, Converted::default())?;
        let converted = untrained(DType::F32, loaded)?;
        device.empty_cache();
        // PEFT makes the adapters of 4-bit weights in the type of their products, and converts them at the end.
        let made = if quantized.bits == 4 { self.computed() } else { DType::F32 };
        let tuned = |before| self.tuned(init(DType::F32, before)).quantizing(of_layer.clone());
        let adapted = tuned(converted).adding(made);
        drop(build(&adapted)?);
        let init = tuned(adapted.into_converted());
        Ok((build(&init)?, init))
    }

    /// The type of products with weights of 4 bits: `bnb_4bit_compute_dtype`.
    fn computed(&self) -> DType {
        match self.precision.autocast().unwrap_or(self.precision.dtype()) {
            DType::F32 => DType::BF16,
            other => other,
        }
    }

    /// Returns how the weight of the layer at a path is kept.
    fn quantization(&self, quantized: &Quantized) -> impl Fn(&str) -> Option<Quantization> + Clone + 'static {
        let compute = self.computed();
        let bits = if quantized.bits == 4 { Bits::Four { twice: quantized.twice } } else { Bits::Eight };
        let kept = quantized.kept.clone();
        move |path| (!kept.iter().any(|name| name == path)).then_some(Quantization { bits, compute })
    }
}
