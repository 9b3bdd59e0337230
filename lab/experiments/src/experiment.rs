//! What an experiment is, and how it is asked to be run.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, RangeInclusive};

use lab_base::error::{Error, Result};
use memcore::Device;

use super::outcome::{Claim, Outcome};

/// How an experiment is asked to be run.
pub struct Setup<'a> {
    /// Opens a fresh device: no memory in use, the same seed.
    pub open: &'a dyn Fn() -> Result<Device>,
    /// Opens the devices over which an experiment spreads a network, in their order, the first as `open` does; none: `open` opens all.
    pub places: &'a [&'a dyn Fn() -> Result<Device>],
    /// The network that stands in for the experiment's own, by name, where its question allows that ([`Experiment::takes_model`]).
    pub model: Option<&'a str>,
    /// Sizes and steps that replace the experiment's own: `batch` → `[128, 32]`.
    pub sizes: BTreeMap<String, Vec<usize>>,
    /// Seed of everything random.
    pub seed: u64,
    /// Told what is being done and how far the whole is (0 to 1); a break ends the experiment with what was measured.
    pub progress: &'a dyn Fn(&str, f64) -> ControlFlow<()>,
}

impl Setup<'_> {
    /// Opens the device of that place, fresh.
    pub fn open_at(&self, place: usize) -> Result<Device> {
        self.places.get(place).map_or_else(|| (self.open)(), |open| open())
    }

    /// The values of a size, or the experiment's own.
    pub fn sizes(&self, name: &str, own: &[usize]) -> Vec<usize> {
        self.sizes.get(name).cloned().unwrap_or_else(|| own.to_vec())
    }

    /// The single value of a size, or the experiment's own.
    pub fn size(&self, name: &str, own: usize) -> usize {
        self.sizes.get(name).and_then(|values| values.first().copied()).unwrap_or(own)
    }

    /// The same, which must lie in a range.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the size and what it can be.
    pub fn within(&self, name: &str, own: usize, range: RangeInclusive<usize>) -> Result<usize> {
        let value = self.size(name, own);
        if range.contains(&value) {
            return Ok(value);
        }
        Err(Error::usage(name.to_string(), format!("from {} to {}, not {value}", range.start(), range.end())))
    }
}

/// A size that can be set from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// What it is called.
    pub name: &'static str,
    /// What it means, and what it is unless set.
    pub meaning: &'static str,
    /// Whether it may have several values.
    pub many: bool,
}

impl Size {
    /// Of one value.
    pub const fn one(name: &'static str, meaning: &'static str) -> Self {
        Self { name, meaning, many: false }
    }

    /// Of several values.
    pub const fn many(name: &'static str, meaning: &'static str) -> Self {
        Self { name, meaning, many: true }
    }
}

/// What an experiment is about.
pub struct About {
    /// What the command line calls it.
    pub name: &'static str,
    /// What is asked.
    pub question: &'static str,
    /// What others say about it.
    pub claims: &'static [Claim],
    /// The sizes that can be set from outside.
    pub sizes: &'static [Size],
    /// Whether the question can be asked of another network than the experiment's own ([`Setup::model`]).
    pub takes_model: bool,
}

/// One question and how it is answered.
pub trait Experiment: Sync {
    /// Name, question, claims and sizes.
    fn about(&self) -> &'static About;

    /// Measures, compares, judges.
    ///
    /// # Errors
    /// Sizes that cannot be; those of the device.
    fn run(&self, setup: &Setup<'_>) -> Result<Outcome>;

    /// What the command line calls it.
    fn name(&self) -> &'static str {
        self.about().name
    }

    /// What is asked.
    fn question(&self) -> &'static str {
        self.about().question
    }

    /// What others say about it.
    fn claims(&self) -> &'static [Claim] {
        self.about().claims
    }

    /// Whether the question can be asked of another network than the experiment's own ([`Setup::model`]).
    fn takes_model(&self) -> bool {
        self.about().takes_model
    }

    /// The sizes that can be set from outside.
    fn sizes(&self) -> &'static [Size] {
        self.about().sizes
    }
}
