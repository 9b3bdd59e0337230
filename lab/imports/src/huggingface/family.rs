//! Properties of a family of architectures.

use std::ops::Deref;

use lab_base::error;
use lab_models::Places;
use memcore::nn::{Init, Parameter};
use memcore::{Error, Result};

use super::config::Common;
use super::head::Head;
use super::head_config::HeadConfig;
use super::network::{Body, Chain, Parts};
use super::options::Sizes;

/// How a family's positions see each other, and how the library's losses and `Trainer` treat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Tokens that see all others. `pools`: the base model also returns a pooled state.
    Encoder { pools: bool },
    /// Tokens that see those before. `wide`: its loss is computed in float32. `shifted`: the library's `Trainer` counts its labels without the first.
    Decoder { wide: bool, shifted: bool },
    /// An encoder with a decoder.
    EncoderDecoder,
    /// Patches of images: number of channels, pixels per side.
    Pictures { channels: usize, side: usize },
}

/// A configured network of a family.
pub(super) trait Family: Deref<Target = Common> + Send + Sync {
    fn kind(&self) -> Kind;

    /// Returns its parts, with parameters made in the order in which `model.to(device)` moves them.
    fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts>;

    /// Returns the network on one device, without its loss.
    fn body(&self, init: &Init, head: &HeadConfig) -> Result<Box<dyn Body>> {
        let parts = self.parts(&|_| init.clone(), head)?;
        let chain = Chain::new(parts, init).ok_or_else(|| Error::invalid("network", "it has no blocks"))?;
        Ok(Box::new(chain))
    }

    /// Returns the sizes for a line about it.
    fn sizes(&self) -> Sizes {
        Common::sizes(self)
    }

    /// Refuses batches whose temporaries are not supported.
    ///
    /// # Errors
    /// [`error::Error::Usage`] with the reason.
    fn check(&self, _batch: usize) -> error::Result<()> {
        Ok(())
    }

    /// Returns the parameters, given in the order of [`Family::parts`], in the order of `model.parameters()`.
    fn optimizer_order(&self, _head: Head, parameters: Vec<Parameter>) -> Vec<Parameter> {
        parameters
    }
}
