//! The trait of an experiment, and the settings of its run.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, RangeInclusive};

use lab_base::error::{Error, Result};
use memcore::Device;

use super::outcome::{Claim, Outcome};

/// Devices, sizes and seed with which an experiment runs.
pub struct Setup<'a> {
    /// Opens a fresh device: no memory in use, and always the same seed.
    pub open: &'a dyn Fn() -> Result<Device>,
    /// Opens the devices over which an experiment spreads a network, in their order; the first is opened as by `open`. If empty,
    /// `open` opens all of them.
    pub places: &'a [&'a dyn Fn() -> Result<Device>],
    /// Name of the network that replaces the experiment's own, if its question allows that ([`Experiment::takes_model`]).
    pub model: Option<&'a str>,
    /// Sizes and step counts that replace the experiment's own: `batch` → `[128, 32]`.
    pub sizes: BTreeMap<String, Vec<usize>>,
    /// Seed of everything random.
    pub seed: u64,
    /// Receives the current piece of work and the progress of the whole (0 to 1). A break ends the experiment, which
    /// returns what was measured.
    pub progress: &'a dyn Fn(&str, f64) -> ControlFlow<()>,
}

impl Setup<'_> {
    /// Opens a fresh device for this place.
    pub fn open_at(&self, place: usize) -> Result<Device> {
        self.places.get(place).map_or_else(|| (self.open)(), |open| open())
    }

    /// Returns the values of a size, or the experiment's own.
    pub fn sizes(&self, name: &str, own: &[usize]) -> Vec<usize> {
        self.sizes.get(name).cloned().unwrap_or_else(|| own.to_vec())
    }

    /// Returns the single value of a size, or the experiment's own.
    pub fn size(&self, name: &str, own: usize) -> usize {
        self.sizes.get(name).and_then(|values| values.first().copied()).unwrap_or(own)
    }

    /// Returns the single value of a size, or the experiment's own, if it lies in a range.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the size and its allowed values.
    pub fn within(&self, name: &str, own: usize, range: RangeInclusive<usize>) -> Result<usize> {
        let value = self.size(name, own);
        if range.contains(&value) {
            return Ok(value);
        }
        Err(Error::usage(name.to_string(), format!("from {} to {}, not {value}", range.start(), range.end())))
    }
}

/// A size that the user can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Name of the size.
    pub name: &'static str,
    /// Meaning of the size, and its default.
    pub meaning: &'static str,
    /// True if the size may have several values.
    pub many: bool,
}

impl Size {
    /// Makes a size with one value.
    pub const fn one(name: &'static str, meaning: &'static str) -> Self {
        Self { name, meaning, many: false }
    }

    /// Makes a size with several values.
    pub const fn many(name: &'static str, meaning: &'static str) -> Self {
        Self { name, meaning, many: true }
    }
}

/// Description of an experiment.
pub struct About {
    /// Name on the command line.
    pub name: &'static str,
    /// The question that the experiment answers.
    pub question: &'static str,
    /// Claims that others make about the question.
    pub claims: &'static [Claim],
    /// The sizes that the user can set.
    pub sizes: &'static [Size],
    /// True if the experiment can run another network than its own ([`Setup::model`]).
    pub takes_model: bool,
}

/// One question, and how to answer it.
pub trait Experiment: Sync {
    /// Name, question, claims and sizes.
    fn about(&self) -> &'static About;

    /// Measures, compares, judges, and writes each into the outcome as soon as it is known.
    ///
    /// # Errors
    /// Impossible sizes; errors of the device; [`Error::Interrupted`] if `setup.progress` ends it.
    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()>;

    /// Answers the question. If it is ended on the way, the outcome has what was measured until then.
    ///
    /// # Errors
    /// Impossible sizes; errors of the device.
    fn ask(&self, setup: &Setup<'_>) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        match self.run(setup, &mut outcome) {
            Err(Error::Interrupted) => outcome.interrupted = true,
            ended => ended?,
        }
        Ok(outcome)
    }

    /// Name on the command line.
    fn name(&self) -> &'static str {
        self.about().name
    }

    /// The question that the experiment answers.
    fn question(&self) -> &'static str {
        self.about().question
    }

    /// Claims that others make about the question.
    fn claims(&self) -> &'static [Claim] {
        self.about().claims
    }

    /// True if the experiment can run another network than its own ([`Setup::model`]).
    fn takes_model(&self) -> bool {
        self.about().takes_model
    }

    /// The sizes that the user can set.
    fn sizes(&self) -> &'static [Size] {
        self.about().sizes
    }
}
