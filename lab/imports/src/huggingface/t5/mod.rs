//! `t5`: `T5ForConditionalGeneration`, an encoder and a decoder that attends to the encoder's output; `T5ForQuestionAnswering`, the same with another
//! head; `T5EncoderModel` and `T5ForTokenClassification`, the encoder alone.

mod attention;
mod bias;
mod block;
mod config;
mod stack;

use lab_models::Places;
use memcore::nn::{Dropout, Embedding, Init, Linear, Module, Sequential};
use memcore::{Array, DType, Result, Tensor, context, ops};

use super::config::Common;
use super::family::{Family, Kind};
use super::head::Head;
use super::head_config::{self, HeadConfig};
use super::inputs::Inputs;
use super::network::{Body, Hidden, Parts, Scores, Variables};
use super::options::Sizes;
pub(super) use config::{Config, Form};
use stack::Stack;

/// Reason why the network is trained as a whole.
pub(super) const TWO_STACKS: &str =
    "its decoder reads the labels and what its encoder gives: it is not a chain of blocks";

impl Family for Config {
    fn kind(&self) -> Kind {
        Kind::EncoderDecoder
    }

    fn parts(&self, _: &Places<'_>, _: &HeadConfig) -> Result<Parts> {
        Err(memcore::Error::invalid("t5", TWO_STACKS))
    }

    fn body(&self, init: &Init, head: &HeadConfig) -> Result<Box<dyn Body>> {
        match head.head {
            Head::ConditionalGeneration => self.pair(init, None),
            // It has no cache if there are labels.
            Head::QuestionAnswering => {
                let mut config = self.clone();
                config.common.use_cache = false;
                config.pair(init, Some(head))
            }
            _ => self.encoder(init, head),
        }
    }

    fn sizes(&self) -> Sizes {
        Sizes { layers: self.layers + self.own.decoder_layers, ..Common::sizes(self) }
    }
}

impl Config {
    fn encoder(&self, init: &Init, head: &HeadConfig) -> Result<Box<dyn Body>> {
        let mut scores = Sequential::new();
        let classifies = head.head == Head::TokenClassification;
        let body = if classifies { init.at("transformer") } else { init.clone() };
        let table = [self.vocabulary, self.width];
        let shared = Embedding::without_adapter(&body.at("shared"), table[0], table[1], self.normal(1.0))?;
        let own =
            self.options.built_on_device.then(|| Array::empty(init.device(), &table, init.dtype())).transpose()?;
        let encoder = Stack::new(&body.at("encoder"), self, &shared, false)?;
        drop(own);
        if classifies {
            scores.push(Dropout::new(&init.at("dropout"), head.dropout(0.0))?);
            scores.push(head_config::linear(&init.at("classifier"), self.width, head.labels, true)?);
        }
        Ok(Box::new(Encoder { encoder, scores }))
    }

    fn pair(&self, init: &Init, head: Option<&HeadConfig>) -> Result<Box<dyn Body>> {
        let table = [self.vocabulary, self.width];
        let shared = Embedding::without_adapter(&init.at("shared"), table[0], table[1], self.normal(1.0))?;
        // Made on the device, each copy has weights of its own until they are tied.
        let own = || {
            let made = self.options.built_on_device.then(|| Array::empty(init.device(), &table, init.dtype()));
            made.transpose()
        };
        let encoder_table = own()?;
        let encoder = Stack::new(&init.at("encoder"), self, &shared, false)?;
        let decoder_table = own()?;
        let decoder = Stack::new(&init.at("decoder"), self, &shared, true)?;
        let head_table = if head.is_none() { own()? } else { None };
        drop((encoder_table, decoder_table, head_table));
        let start = self.own.start;
        if head.is_some() {
            let scores = head_config::linear(&init.at("qa_outputs"), self.width, 2, true)?;
            return Ok(Box::new(Model { encoder, decoder, scale: None, scores, start, reads_input: true }));
        }
        let head = init.at("lm_head");
        let scores = Linear::tied(&head, &head.shared(&shared.weight)?);
        let scale = self.own.scales_outputs.then(|| (self.width as f64).powf(-0.5));
        Ok(Box::new(Model { encoder, decoder, scale, scores, start, reads_input: false }))
    }
}

struct Encoder {
    encoder: Stack,
    scores: Sequential,
}

impl Body for Encoder {
    fn forward(&self, inputs: &Inputs) -> Result<Hidden> {
        let (last, caches) = self.encoder.forward(&inputs.input, inputs.attention_mask.as_ref(), None)?;
        Ok(Hidden { last, pooled: None, caches, encoder: None, variables: Variables::default() })
    }

    fn scores(&self, hidden: &Tensor) -> Result<Scores> {
        Scores::run(&self.scores, hidden)
    }
}

struct Model {
    encoder: Stack,
    decoder: Stack,
    /// Factor of the decoder's output.
    scale: Option<f64>,
    scores: Linear,
    start: u32,
    /// True if the decoder reads the encoder's input, shifted by one, instead of the labels.
    reads_input: bool,
}

impl Model {
    /// Returns the decoder's input: the labels or the input `[batch, time]`, shifted by one after the start token.
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
        // Ignored labels would become padding: batches here have none, but the library checks.
        let _op = context::op("eq");
        Array::empty(device, dims, DType::Bool)?;
        Ok(Tensor::from_array(shifted))
    }
}

impl Body for Model {
    fn forward(&self, inputs: &Inputs) -> Result<Hidden> {
        let mask = inputs.attention_mask.as_ref();
        let before = if self.reads_input { Some(self.shift_right(&inputs.input)?) } else { None };
        let (encoded, _) = self.encoder.forward(&inputs.input, mask, None)?;
        let ids = match before {
            Some(ids) => ids,
            None => self.shift_right(inputs.label(0)?)?,
        };
        let (last, caches) = self.decoder.forward(&ids, mask, Some(&encoded))?;
        let scaled = self.scale.map(|scale| ops::mul_scalar(&last, scale)).transpose()?;
        let output = scaled.clone().unwrap_or_else(|| last.clone());
        let variables = Variables([ids, last].into_iter().chain(scaled).collect());
        Ok(Hidden { last: output, pooled: None, caches, encoder: Some(encoded), variables })
    }

    fn scores(&self, hidden: &Tensor) -> Result<Scores> {
        Ok(Scores { scores: self.scores.forward(hidden)?, input: hidden.clone() })
    }
}
