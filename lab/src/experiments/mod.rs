//! Experiments: a question, the claims that others make about it, a prediction, a measurement, a verdict.
//!
//! One file each, one list of all. **To add one**: write a unit struct with [`Experiment`], name it in [`ALL`]. The command line, the
//! table in the README and the reports come from that list.

mod accumulation;
mod batch_size;
mod beliefs;
mod cache;
mod checkpointing;
mod contest;
mod equation;
mod fit;
mod fragmentation;
mod leak;
mod model_parallel;
mod network_size;
mod optimizer;
mod outcome;
mod pace;
mod placement;
mod precision;
pub mod programs;
mod quantization;
mod release;
mod rig;
mod sequence_length;
mod show;
mod steady_state;

pub use outcome::{Cell, Claim, Curve, JudgedClaim, Measurement, Outcome, Table, Verdict};

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use memcore::Device;
use memcore::backend::{DeviceProfile, Meta};

use crate::error::{Error, Result};

/// Every experiment, in the order in which they are listed.
pub const ALL: &[&dyn Experiment] = &[
    &batch_size::BatchSize,
    &steady_state::SteadyState,
    &leak::Leak,
    &release::Release,
    &equation::Equation,
    &network_size::NetworkSize,
    &optimizer::OptimizerChoice,
    &accumulation::Accumulation,
    &checkpointing::Checkpointing,
    &precision::PrecisionChoice,
    &sequence_length::SequenceLength,
    &placement::Placement,
    &quantization::Quantization,
    &fit::Fit,
    &cache::Cache,
    &fragmentation::Fragmentation,
    &model_parallel::ModelParallel,
    &beliefs::Beliefs,
];

/// How an experiment is asked to be run.
pub struct Setup<'a> {
    /// Opens a fresh device: no memory in use, the same seed.
    pub open: &'a dyn Fn() -> Result<Device>,
    /// Opens the devices over which an experiment spreads a network, in their order, the first as `open` does; none: `open` opens all.
    pub places: &'a [&'a dyn Fn() -> Result<Device>],
    /// Sizes and steps that replace the experiment's own: `batch` → `[128, 32]`.
    pub sizes: BTreeMap<String, Vec<usize>>,
    /// Seed of everything random.
    pub seed: u64,
    /// Told what is being done and how far the whole is (0 to 1); a break ends the experiment with what was measured.
    pub progress: &'a dyn Fn(&str, f64) -> ControlFlow<()>,
}

impl Setup<'_> {
    /// Opens the device of that place, fresh.
    ///
    /// # Errors
    /// Those of the device.
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

/// One question and how it is answered.
pub trait Experiment: Sync {
    /// What the command line calls it.
    fn name(&self) -> &'static str;

    /// What is asked.
    fn question(&self) -> &'static str;

    /// What others say about it.
    fn claims(&self) -> &'static [Claim];

    /// The sizes that can be set from outside.
    fn sizes(&self) -> &'static [Size] {
        &[]
    }

    /// Measures, compares, judges.
    ///
    /// # Errors
    /// Sizes that cannot be; those of the device.
    fn run(&self, setup: &Setup<'_>) -> Result<Outcome>;
}

/// Whether an experiment takes these sizes: it begins on a device on paper, and is ended before its first piece of work. Sizes that it does not
/// have are not its matter.
///
/// # Errors
/// [`Error::Usage`] naming the size.
pub fn check_sizes(experiment: &dyn Experiment, sizes: &BTreeMap<String, Vec<usize>>) -> Result<()> {
    let single = |size: &&Size| !size.many && sizes.get(size.name).is_some_and(|values| values.len() > 1);
    if let Some(size) = experiment.sizes().iter().find(single) {
        return Err(Error::usage(size.name, format!("{} takes one value of it", experiment.name())));
    }
    let open = || Ok(Device::new(Meta::new(DeviceProfile::default())));
    let sizes = sizes.clone();
    let setup = Setup { open: &open, places: &[], sizes, seed: 0, progress: &|_, _| ControlFlow::Break(()) };
    match experiment.run(&setup) {
        Err(error @ Error::Usage { .. }) => Err(error),
        _ => Ok(()),
    }
}

/// The experiment of that name.
///
/// # Errors
/// [`Error::Usage`] listing the known names.
pub fn by_name(name: &str) -> Result<&'static dyn Experiment> {
    ALL.iter().copied().find(|e| e.name() == name).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|e| e.name()).collect();
        Error::usage("experiment", format!("unknown experiment {name:?}; known: {}", known.join(", ")))
    })
}
