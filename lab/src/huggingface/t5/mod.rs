//! `t5`: `T5ForConditionalGeneration`, an encoder and a decoder that looks at what the encoder made of the input.

mod attention;
mod bias;
mod block;
mod config;
mod stack;

use memcore::nn::{Embedding, Init, Linear, Module};
use memcore::{Array, DType, Result, Tensor, context, ops};

use super::network::{Body, Hidden, Inputs, Variables};
pub(super) use config::{Config, Family};
use stack::Stack;

impl Config {
    /// The network but for its loss.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn body(&self, init: &Init) -> Result<Box<dyn Body>> {
        let table = [self.vocabulary, self.width];
        let shared = Embedding::with_fill(&init.at("shared"), table[0], table[1], self.normal(1.0))?;
        // Made on the device, each place has weights of its own until they are tied.
        let own = || {
            let made = self.options.built_on_device.then(|| Array::empty(init.device(), &table, init.dtype()));
            made.transpose()
        };
        let encoder_table = own()?;
        let encoder = Stack::new(&init.at("encoder"), self, &shared, false)?;
        let decoder_table = own()?;
        let decoder = Stack::new(&init.at("decoder"), self, &shared, true)?;
        let head_table = own()?;
        drop((encoder_table, decoder_table, head_table));
        let head = init.at("lm_head");
        let lm_head = Linear::tied(&head, &head.shared(&shared.weight)?);
        let scale = self.scales_outputs.then(|| (self.width as f64).powf(-0.5));
        Ok(Box::new(Model { encoder, decoder, scale, lm_head, start: self.start }))
    }
}

struct Model {
    encoder: Stack,
    decoder: Stack,
    /// Factor of the decoder's output.
    scale: Option<f64>,
    lm_head: Linear,
    start: u32,
}

impl Model {
    /// What the decoder reads: the labels `[batch, time]` one place later, behind the token that begins.
    fn shift_right(&self, labels: &Tensor) -> Result<Tensor> {
        let (device, dims) = (labels.device(), labels.dims());
        let time = dims[1];
        let shifted = {
            let _op = context::op("new_zeros>new_empty");
            Array::zeros(device, dims, DType::I64)?
        };
        {
            let _op = context::op("clone");
            let kept = labels.array().narrow(1, 0, time - 1)?.copied()?;
            shifted.narrow(1, 1, time - 1)?.copy_(&kept)?;
        }
        shifted.narrow(1, 0, 1)?.fill_(f64::from(self.start))?;
        // Labels that count for nothing would be padding: batches here have none, but the library looks.
        let _op = context::op("eq");
        Array::empty(device, dims, DType::Bool)?;
        Ok(Tensor::from_array(shifted))
    }
}

impl Body for Model {
    fn forward(&self, inputs: &Inputs) -> Result<Hidden> {
        let mask = inputs.attention_mask.as_ref();
        let (encoded, _) = self.encoder.forward(&inputs.input, mask, None)?;
        let ids = self.shift_right(&inputs.labels)?;
        let (last, caches) = self.decoder.forward(&ids, mask, Some(&encoded))?;
        let scaled = self.scale.map(|scale| ops::mul_scalar(&last, scale)).transpose()?;
        let output = scaled.clone().unwrap_or_else(|| last.clone());
        let variables = Variables([ids, last].into_iter().chain(scaled).collect());
        Ok(Hidden { last: output, caches, encoder: Some(encoded), variables })
    }

    fn scores(&self, hidden: &Tensor) -> Result<Tensor> {
        self.lm_head.forward(hidden)
    }
}
