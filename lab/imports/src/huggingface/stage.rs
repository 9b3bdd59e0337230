//! What the blocks of one device are given besides hidden states: mask, positions, angles, cache.

use std::sync::Arc;

use memcore::{DType, Result, Tensor, ops};

use super::blocks::BlockInputs;
use super::cache::DynamicCache;
use super::mask::{self, Triangle};
use super::options::{AttentionMask, Options};
use super::rotary::{Angles, RotaryEmbedding};
use super::windows::Windows;

/// Makes what all blocks are given, once per forward pass; on each device anew, where a network is split.
pub(super) struct Stage {
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
    /// Tokens that a position sees in the blocks with a window, where there are such blocks.
    window: Option<usize>,
    /// Whether blocks without a window are given a mask: always, but where all blocks have one.
    masks_all: bool,
    /// How early releases make the mask that is added.
    triangle: Triangle,
}

impl Stage {
    /// For blocks that see every position.
    pub(super) fn encoder(options: &Options) -> Self {
        Self { options: options.clone(), decoder: None }
    }

    /// For blocks that see what came before.
    pub(super) fn decoder(options: &Options, use_cache: bool, passes_positions: bool) -> Self {
        let decoder = Decoder {
            use_cache,
            passes_positions,
            rotary: None,
            window: None,
            masks_all: true,
            triangle: Triangle::InPlace { window: false },
        };
        Self { options: options.clone(), decoder: Some(decoder) }
    }

    /// The same where some blocks may have a window.
    pub(super) fn windowed(mut self, windows: &Windows) -> Self {
        if let Some(decoder) = &mut self.decoder {
            (decoder.window, decoder.masks_all) = (windows.used(), windows.masks_all());
            decoder.triangle = Triangle::InPlace { window: windows.said().is_some() };
        }
        self
    }

    /// The same, of a model that copies the triangle of its mask.
    pub(super) fn copying_triangle(mut self, copies: bool) -> Self {
        if let Some(decoder) = self.decoder.as_mut().filter(|_| copies) {
            decoder.triangle = Triangle::Copied;
        }
        self
    }

    /// The same, of a model that turns queries and keys by their positions.
    pub(super) fn with_rotary(mut self, rotary: RotaryEmbedding) -> Self {
        if let Some(decoder) = &mut self.decoder {
            decoder.rotary = Some(rotary);
        }
        self
    }

    /// An empty cache, where one is filled.
    pub(super) fn cache(&self) -> Option<Arc<DynamicCache>> {
        let use_cache = self.decoder.as_ref().is_some_and(|decoder| decoder.use_cache);
        DynamicCache::wanted(use_cache, &self.options)
    }

    /// The mask for these embeddings, `[batch, time, width]`, where one is needed.
    pub(super) fn mask(&self, embeds: &Tensor, attention_mask: Option<&Tensor>) -> Result<Option<Tensor>> {
        let Some(decoder) = &self.decoder else {
            let (attention, padded) = (self.options.attention, self.padded());
            let (cached, positions, triangle) = (false, false, None);
            return mask::Request { attention, embeds, attention_mask, padded, cached, positions, triangle }
                .bidirectional();
        };
        if !decoder.masks_all {
            return Ok(None);
        }
        self.request(decoder, embeds, attention_mask).causal()
    }

    /// The mask of blocks with a window.
    fn window_mask(&self, embeds: &Tensor, attention_mask: Option<&Tensor>) -> Result<Option<Tensor>> {
        match &self.decoder {
            Some(decoder) if decoder.window.is_some() => {
                self.request(decoder, embeds, attention_mask).windowed(decoder.window)
            }
            _ => Ok(None),
        }
    }

    /// Whether masks hide anything.
    fn padded(&self) -> bool {
        self.options.attention_mask == AttentionMask::Padded
    }

    fn request<'a>(
        &self,
        decoder: &Decoder,
        embeds: &'a Tensor,
        attention_mask: Option<&'a Tensor>,
    ) -> mask::Request<'a> {
        let (cached, positions) = (self.cache().is_some(), decoder.passes_positions);
        let triangle = self.options.rules().triangular_mask.then_some(decoder.triangle);
        let (attention, padded) = (self.options.attention, self.padded());
        mask::Request { attention, embeds, attention_mask, padded, cached, positions, triangle }
    }

    /// Cosines and sines of these positions, `[1, time]`, where queries and keys are rotated.
    pub(super) fn angles(&self, positions: &Tensor, dtype: DType) -> Result<Option<Angles>> {
        let rotary = self.decoder.as_ref().and_then(|decoder| decoder.rotary.as_ref());
        rotary.map(|rotary| rotary.forward(positions, dtype)).transpose()
    }

    /// Everything, for hidden states `[batch, time, width]` that nothing else is known of.
    pub(super) fn block_inputs(&self, hidden: &Tensor, attention_mask: Option<&Tensor>) -> Result<BlockInputs> {
        if self.decoder.is_none() {
            return Ok(BlockInputs::default());
        }
        let cache = self.cache();
        let positions = if self.options.rules().plain_positions {
            let time = hidden.dims().get(1).copied().unwrap_or(0);
            ops::unsqueeze(&Tensor::from_array(mask::range(hidden.device(), time)?), 0)?
        } else {
            positions(hidden)?
        };
        let mask = self.mask(hidden, attention_mask)?;
        let window_mask = self.window_mask(hidden, attention_mask)?;
        let rotary = self.angles(&positions, hidden.dtype())?;
        Ok(BlockInputs { mask, window_mask, window: None, cache, rotary, _positions: Some(positions) })
    }
}

/// The positions of `[batch, time, ..]`: i64 `[1, time]`.
pub(super) fn positions(x: &Tensor) -> Result<Tensor> {
    let time = x.dims().get(1).copied().unwrap_or(0);
    ops::unsqueeze(&Tensor::from_array(mask::positions(x.device(), time)?), 0)
}
