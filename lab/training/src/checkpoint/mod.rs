//! Resuming a run: weights, optimizer state, loss scale, random state and the position in the data, as a file in the safetensors format.
//!
//! | file | what it knows |
//! |---|---|
//! | `format` | reads and writes tensors on the host |
//! | `state` | what belongs to a run's state, and the names of its parts |
//!
//! Names are those of PyTorch's `state_dict()`; `optimizer.3.exp_avg` is the state of parameter 3, in the order of `model.parameters()`. Taking the
//! state copies to the host and allocates nothing on the device.

mod format;
mod state;

pub use format::{HostTensor, StateFile, TrainingState};
pub use state::data_name;
pub use state::{PROFILE_KEY, Parts};

use lab_base::error::{Error, Result};
use memcore::Device;

use super::RunSettings;

/// How a run begins.
#[derive(Clone, Copy, Default)]
pub enum Begin<'a> {
    /// With freshly drawn weights.
    #[default]
    Fresh,
    /// With the weights of a file; everything else is fresh.
    Weights(&'a StateFile<'a>),
    /// Where the run that wrote the file ended.
    Resume(&'a StateFile<'a>),
}

/// How a run begins and ends, apart from its settings.
#[derive(Default)]
pub struct Continuation<'a> {
    /// How it begins.
    pub begin: Begin<'a>,
    /// True if its final state is wanted.
    pub save: bool,
    /// The final state, after the run has ended.
    pub saved: Option<TrainingState>,
}

impl Continuation<'_> {
    /// Fails if there will be nothing to save.
    ///
    /// # Errors
    /// [`Error::Usage`] on a device that computes nothing.
    pub fn check(&self, device: &Device) -> Result<()> {
        if self.save && !device.computes() {
            return Err(Error::usage("save", format!("{} computes nothing: there are no values", device.name())));
        }
        Ok(())
    }

    /// Whether the run continues another one.
    pub(crate) fn resumes(&self) -> bool {
        matches!(self.begin, Begin::Resume(_))
    }

    /// Loads what the run begins with. Returns the number of its first step.
    ///
    /// # Errors
    /// [`Error::Usage`] for a file that does not fit, naming what in it does not, and for more micro-batches than can be numbered; those of the
    /// device.
    pub(crate) fn first_step(&self, parts: &mut Parts<'_>, settings: &RunSettings) -> Result<usize> {
        let first = match self.begin {
            Begin::Fresh => 0,
            Begin::Weights(file) => parts.load(file).map(|()| 0)?,
            Begin::Resume(file) => {
                parts.devices.iter().for_each(|device| device.phase("resume"));
                parts.resume(file)?
            }
        };
        let RunSettings { steps, accumulate, .. } = settings;
        if first.checked_add(*steps).and_then(|steps| steps.checked_mul(*accumulate)).is_none() {
            let problem = format!("{steps} after {first}, each of {accumulate} micro-batches, are too many to count");
            return Err(Error::usage("steps", problem));
        }
        Ok(first)
    }

    /// Saves the final state, after `steps` steps in all.
    pub(crate) fn end(&mut self, parts: &Parts<'_>, steps: usize) -> Result<()> {
        if self.save {
            self.saved = Some(parts.state(steps)?);
        }
        Ok(())
    }
}
