//! What the blocks of one device are given besides hidden states: mask, positions, angles, cache.

use std::sync::Arc;

use memcore::nn::Init;
use memcore::{DType, Result, Tensor, ops};

use super::Options;
use super::blocks::Context;
use super::cache::DynamicCache;
use super::mask;
use super::rotary::RotaryEmbedding;

/// Makes what all blocks are given, once per forward pass; on each device anew, where a network is split.
pub(super) struct Guide {
    pub(super) options: Options,
    /// `None` for an encoder, whose blocks are given nothing.
    decoder: Option<Decoder>,
}

/// What a decoder's blocks are given.
struct Decoder {
    use_cache: bool,
    /// Whether the model passes its positions to the mask, from which packed sequences are recognised.
    passes_positions: bool,
    rotary: Option<RotaryEmbedding>,
}

impl Guide {
    /// For blocks that see every position.
    pub(super) fn encoder(options: &Options) -> Self {
        Self { options: options.clone(), decoder: None }
    }

    /// For blocks that see what came before.
    pub(super) fn decoder(options: &Options, use_cache: bool, passes_positions: bool) -> Self {
        let decoder = Decoder { use_cache, passes_positions, rotary: None };
        Self { options: options.clone(), decoder: Some(decoder) }
    }

    /// One for each device that has blocks, with the buffers that are made there.
    ///
    /// # Errors
    /// Those of the devices.
    pub(super) fn turning(
        desks: &[Init],
        new: impl Fn() -> Self,
        rotary: impl Fn(&Init) -> Result<RotaryEmbedding>,
    ) -> Result<Vec<Self>> {
        let guide = |init: &Init| {
            let mut guide = new();
            if let Some(decoder) = &mut guide.decoder {
                decoder.rotary = Some(rotary(init)?);
            }
            Ok(guide)
        };
        desks.iter().map(guide).collect()
    }

    /// An empty cache, where one is filled.
    pub(super) fn cache(&self) -> Option<Arc<DynamicCache>> {
        let use_cache = self.decoder.as_ref().is_some_and(|decoder| decoder.use_cache);
        DynamicCache::wanted(use_cache, &self.options)
    }

    /// The mask for these embeddings, `[batch, time, width]`, where one is needed.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn mask(&self, embeds: &Tensor, attention_mask: Option<&Tensor>) -> Result<Option<Tensor>> {
        let attention = self.options.attention;
        let Some(decoder) = &self.decoder else {
            mask::Request { attention, embeds, attention_mask, cached: false, positions: false }.bidirectional()?;
            return Ok(None);
        };
        let (cached, positions) = (self.cache().is_some(), decoder.passes_positions);
        mask::Request { attention, embeds, attention_mask, cached, positions }.causal()
    }

    /// Cosines and sines of these positions, `[1, time]`, where queries and keys are turned.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn angles(&self, positions: &Tensor, dtype: DType) -> Result<Option<(Tensor, Tensor)>> {
        let rotary = self.decoder.as_ref().and_then(|decoder| decoder.rotary.as_ref());
        rotary.map(|rotary| rotary.forward(positions, dtype)).transpose()
    }

    /// Everything, for hidden states `[batch, time, width]` that nothing else is known of.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn context(&self, hidden: &Tensor, attention_mask: Option<&Tensor>) -> Result<Context> {
        if self.decoder.is_none() {
            return Ok(Context::default());
        }
        let cache = self.cache();
        let positions = positions(hidden)?;
        let mask = self.mask(hidden, attention_mask)?;
        let rotary = self.angles(&positions, hidden.dtype())?;
        Ok(Context { mask, cache, rotary, _positions: Some(positions) })
    }
}

/// The positions of `[batch, time, ..]`: i64 `[1, time]`.
///
/// # Errors
/// Those of the device.
pub(super) fn positions(x: &Tensor) -> Result<Tensor> {
    let time = x.dims().get(1).copied().unwrap_or(0);
    ops::unsqueeze(&Tensor::from_array(mask::positions(x.device(), time)?), 0)
}
