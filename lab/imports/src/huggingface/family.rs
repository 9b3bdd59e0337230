//! What is particular to a family of architectures.

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

/// How a family's positions see each other, and what the library's losses and `Trainer` do for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Tokens that see all others. `pools`: the base model returns a pooled state besides.
    Encoder { pools: bool },
    /// Tokens that see those before. `wide`: its loss is computed in float32. `shifted`: the library's `Trainer` counts its labels without the first.
    Decoder { wide: bool, shifted: bool },
    /// An encoder beside a decoder.
    EncoderDecoder,
    /// Patches of pictures of so many channels and pixels a side.
    Pictures { channels: usize, side: usize },
}

/// A configured network of a family.
pub(super) trait Family: Deref<Target = Common> + Send + Sync {
    fn kind(&self) -> Kind;

    /// Its parts, with parameters made in the order in which `model.to(device)` moves them.
    fn parts(&self, at: &Places<'_>, head: &HeadConfig) -> Result<Parts>;

    /// The network on one device, but for its loss.
    fn body(&self, init: &Init, head: &HeadConfig) -> Result<Box<dyn Body>> {
        let parts = self.parts(&|_| init.clone(), head)?;
        let chain = Chain::new(parts, init).ok_or_else(|| Error::invalid("network", "it has no blocks"))?;
        Ok(Box::new(chain))
    }

    /// The sizes that one line about it says.
    fn sizes(&self) -> Sizes {
        Common::sizes(self)
    }

    /// Refuses batches whose temporaries are not represented.
    ///
    /// # Errors
    /// [`error::Error::Usage`] with the reason.
    fn check(&self, _batch: usize) -> error::Result<()> {
        Ok(())
    }

    /// The parameters, given in the order of [`Family::parts`], as `model.parameters()` has them.
    fn optimizer_order(&self, _head: Head, parameters: Vec<Parameter>) -> Vec<Parameter> {
        parameters
    }
}
