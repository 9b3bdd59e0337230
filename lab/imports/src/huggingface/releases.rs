//! Releases of the transformers library, and their differences.

use std::fmt;
use std::str::FromStr;

use lab_base::as_text;

use super::dtype::LoadAs;

/// A release, by its first two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    pub(super) major: u32,
    pub(super) minor: u32,
}

/// The newest release whose networks are supported.
pub const REPRESENTED: Release = Release { major: 5, minor: 24 };

/// The release before it, whose cache widens values.
pub(super) const WIDENING: Release = Release { major: 5, minor: 23 };

/// The last release whose OPT gives attention the mask of ones that it makes for its positions.
pub(super) const MASKING: Release = Release { major: 5, minor: 17 };

/// The earlier release of which some families are supported.
pub(super) const EARLIER: Release = Release { major: 4, minor: 51 };

/// The first release whose decoders are nearer to [`WIDENING`] than to [`EARLIER`].
pub(super) const TURN: Release = Release { major: 4, minor: 53 };

impl Release {
    /// True if the library's own `Trainer` is supported for this release.
    pub fn has_trainer(self) -> bool {
        self.major >= 5
    }

    /// Returns the default `dtype` of `from_pretrained`: release 5 made it `"auto"`.
    pub fn loads_as(self) -> LoadAs {
        if self.major < 5 { LoadAs::Float32 } else { LoadAs::Saved }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Release {
    type Err = String;

    /// Parses `4.51`, or a longer form: `4.51.3`, `5.0.0.dev0`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = text.split('.').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Self { major, minor }),
            _ => Err(format!("{text:?}: expected a release of transformers, such as 4.51 or {REPRESENTED}")),
        }
    }
}

as_text!(Release);

/// Differences between releases, as far as supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// The cache holds keys and values without a copy; later releases concatenate them with the earlier ones, even if there are none.
    pub(super) caches_as_is: bool,
    /// The cache converts values to the keys' type, which is wider under autocast if keys are rotated.
    pub(super) widens_values: bool,
    /// The fused kernel is given a key for each query head, and everything contiguous.
    pub(super) repeats_keys: bool,
    /// Positions are a range; later releases add the number of tokens seen before.
    pub(super) plain_positions: bool,
    /// Angles are a product of matrices, from frequencies that the device holds once.
    pub(super) multiplies_matrices: bool,
    /// An added mask is a triangle, one key longer than the sequence; batches are not searched for packed sequences.
    pub(super) triangular_mask: bool,
    /// Gemma's embeddings are scaled by a number, not by a tensor on the device.
    pub(super) scales_by_number: bool,
    /// OPT gives attention the mask of ones that it makes for its positions if none is passed.
    pub(super) masks_by_positions: bool,
}

impl Rules {
    /// Returns the rules of [`EARLIER`], of [`MASKING`], of [`WIDENING`] or of [`REPRESENTED`].
    pub(super) fn from_release(release: Release) -> Self {
        let earlier = release < TURN;
        Self {
            caches_as_is: earlier,
            widens_values: release < REPRESENTED,
            repeats_keys: earlier,
            plain_positions: earlier,
            multiplies_matrices: earlier,
            triangular_mask: earlier,
            scales_by_number: earlier,
            masks_by_positions: !earlier && release <= MASKING,
        }
    }
}
