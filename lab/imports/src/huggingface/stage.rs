//! Inputs of the blocks on one device besides hidden states: mask, positions, angles, cache.

use std::sync::Arc;

use memcore::nn::Training;
use memcore::{DType, Result, Tensor, ops};

use super::blocks::BlockInputs;
use super::cache::DynamicCache;
use super::inputs::Said;
use super::mask::{self, Triangle};
use super::options::{AttentionMask, Options};
use super::rotary::{Angles, RotaryEmbedding};
use super::windows::Windows;

/// Makes the inputs that all blocks share, once per forward pass; if a network is split, on each device anew.
pub(super) struct Stage {
    pub(super) options: Options,
    /// `None` for an encoder, whose blocks have no further inputs.
    decoder: Option<Decoder>,
    /// Whether the network trains or evaluates; `None` until the stage is part of one.
    training: Option<Training>,
}

/// Inputs of a decoder's blocks.
struct Decoder {
    use_cache: bool,
    /// True if the model passes its positions to the mask, from which packed sequences are recognised.
    passes_positions: bool,
    rotary: Option<RotaryEmbedding>,
    /// Number of tokens that a position sees in blocks with a window, if there are such blocks.
    window: Option<usize>,
    /// True if blocks without a window get a mask: always, unless all blocks have a window.
    masks_all: bool,
    /// Way in which early releases make the mask that is added.
    triangle: Triangle,
}

impl Stage {
    /// Makes a stage for blocks that see every position.
    pub(super) fn encoder(options: &Options) -> Self {
        Self { options: options.clone(), decoder: None, training: None }
    }

    /// Makes a stage for blocks that see earlier positions.
    pub(super) fn decoder(options: &Options, use_cache: bool, passes_positions: bool) -> Self {
        let decoder = Decoder {
            use_cache,
            passes_positions,
            rotary: None,
            window: None,
            masks_all: true,
            triangle: Triangle::InPlace { window: false },
        };
        Self { options: options.clone(), decoder: Some(decoder), training: None }
    }

    /// Adds windows, which some blocks may have.
    pub(super) fn windowed(mut self, windows: &Windows) -> Self {
        if let Some(decoder) = &mut self.decoder {
            (decoder.window, decoder.masks_all) = (windows.used(), windows.masks_all());
            decoder.triangle = Triangle::InPlace { window: windows.said().is_some() };
        }
        self
    }

    /// Sets whether the model copies the triangle of its mask.
    pub(super) fn copying_triangle(mut self, copies: bool) -> Self {
        if let Some(decoder) = self.decoder.as_mut().filter(|_| copies) {
            decoder.triangle = Triangle::Copied;
        }
        self
    }

    /// Sets that early releases have the triangle in each block.
    pub(super) fn with_triangles_in_blocks(mut self) -> Self {
        if let Some(decoder) = &mut self.decoder {
            decoder.triangle = Triangle::InBlocks;
        }
        self
    }

    /// Adds the rotation of queries and keys by their positions.
    pub(super) fn with_rotary(mut self, rotary: RotaryEmbedding) -> Self {
        if let Some(decoder) = &mut self.decoder {
            decoder.rotary = Some(rotary);
        }
        self
    }

    /// Makes it a stage of a network with this switch between training and evaluation.
    pub(super) fn of_network(self, training: Training) -> Self {
        Self { training: Some(training), ..self }
    }

    /// True if the block of this number is computed again for its gradients. The library's blocks are not while the network evaluates.
    pub(super) fn recomputes_block(&self, block: usize) -> bool {
        self.recomputes() && self.options.checkpoint.covers(block)
    }

    /// True if some blocks are: then the library fills no cache.
    fn recomputes(&self) -> bool {
        self.options.checkpoints() && self.training.as_ref().is_none_or(Training::is_on)
    }

    /// Returns an empty cache, if one is filled.
    pub(super) fn cache(&self) -> Option<Arc<DynamicCache>> {
        let use_cache = self.decoder.as_ref().is_some_and(|decoder| decoder.use_cache);
        DynamicCache::wanted(use_cache && !self.recomputes(), &self.options)
    }

    /// Returns the mask for these embeddings, `[batch, time, width]`, if one is needed.
    pub(super) fn mask(&self, embeds: &Tensor, said: Said<'_>) -> Result<Option<Tensor>> {
        let Some(decoder) = &self.decoder else {
            let (attention, padded) = (self.options.attention, self.padded());
            let (cached, positions, triangle) = (false, false, None);
            return mask::Request { attention, embeds, said, padded, cached, positions, triangle }.bidirectional();
        };
        if !decoder.masks_all {
            return Ok(None);
        }
        self.request(decoder, embeds, said).causal()
    }

    /// Returns the mask of blocks with a window.
    fn window_mask(&self, embeds: &Tensor, said: Said<'_>) -> Result<Option<Tensor>> {
        match &self.decoder {
            Some(decoder) if decoder.window.is_some() => self.request(decoder, embeds, said).windowed(decoder.window),
            _ => Ok(None),
        }
    }

    /// True if masks hide anything.
    fn padded(&self) -> bool {
        self.options.attention_mask == AttentionMask::Padded
    }

    fn request<'a>(&self, decoder: &Decoder, embeds: &'a Tensor, said: Said<'a>) -> mask::Request<'a> {
        let (cached, positions) = (self.cache().is_some(), decoder.passes_positions);
        let triangle = self.options.rules().triangular_mask.then_some(decoder.triangle);
        let (attention, padded) = (self.options.attention, self.padded());
        mask::Request { attention, embeds, said, padded, cached, positions, triangle }
    }

    /// Returns the positions of hidden states `[batch, time, ..]` as the release makes them: i64 `[1, time]`.
    fn positions(&self, hidden: &Tensor) -> Result<Tensor> {
        if self.options.rules().plain_positions { plain_positions(hidden) } else { positions(hidden) }
    }

    /// Returns cosines and sines of these positions, `[1, time]`, if queries and keys are rotated.
    pub(super) fn angles(&self, positions: &Tensor, dtype: DType) -> Result<Option<Angles>> {
        let rotary = self.decoder.as_ref().and_then(|decoder| decoder.rotary.as_ref());
        rotary.map(|rotary| rotary.forward(positions, dtype)).transpose()
    }

    /// Makes all inputs for hidden states `[batch, time, width]` without further information.
    pub(super) fn block_inputs(&self, hidden: &Tensor, said: Said<'_>) -> Result<BlockInputs> {
        if self.decoder.is_none() {
            return Ok(BlockInputs::default());
        }
        let cache = self.cache();
        let positions = said.positions.cloned().map_or_else(|| self.positions(hidden), Ok)?;
        let mask = self.mask(hidden, said)?;
        let window_mask = self.window_mask(hidden, said)?;
        let rotary = self.angles(&positions, hidden.dtype())?;
        Ok(BlockInputs { mask, window_mask, window: None, cache, rotary, _positions: Some(positions) })
    }
}

/// Returns the positions of `[batch, time, ..]`: i64 `[1, time]`.
pub(super) fn positions(x: &Tensor) -> Result<Tensor> {
    let time = x.dims().get(1).copied().unwrap_or(0);
    ops::unsqueeze(&Tensor::from_array(mask::positions(x.device(), time)?), 0)
}

/// Returns the positions as [`positions`], without those seen before.
pub(super) fn plain_positions(x: &Tensor) -> Result<Tensor> {
    let time = x.dims().get(1).copied().unwrap_or(0);
    ops::unsqueeze(&Tensor::from_array(mask::range(x.device(), time)?), 0)
}
