//! A run that begins where another one ended: weights, optimizer state, loss scale, random state and the place in the data, as a file in the
//! safetensors format.
//!
//! | file | what it knows |
//! |---|---|
//! | `format` | tensors on the host, written and read |
//! | `state` | what of a run they are, under which names |
//!
//! Names are those of PyTorch's `state_dict()`; `optimizer.3.exp_avg` is the state of the parameter of number 3, in the order of
//! `model.parameters()`. Taking the state copies to the host and takes no memory on the device.

mod format;
mod state;

pub use format::{HostTensor, StateFile, TrainingState};
pub use state::data_name;
pub use state::{PROFILE_KEY, Parts};

use lab_base::error::{Error, Result};
use memcore::Device;

use super::RunSettings;

/// What a run begins with.
#[derive(Clone, Copy, Default)]
pub enum Begin<'a> {
    /// Freshly drawn weights.
    #[default]
    Fresh,
    /// The weights of a file, everything else fresh.
    Weights(&'a StateFile<'a>),
    /// Where the run that wrote the file ended.
    Resume(&'a StateFile<'a>),
}

/// How a run begins and ends, besides its settings.
#[derive(Default)]
pub struct Continuation<'a> {
    /// With what it begins.
    pub begin: Begin<'a>,
    /// Whether its state at the end is wanted.
    pub save: bool,
    /// That state, once the run has ended.
    pub saved: Option<TrainingState>,
}

impl Continuation<'_> {
    /// Fails where there will be nothing to save.
    ///
    /// # Errors
    /// [`Error::Usage`] on a device that computes nothing.
    pub fn check(&self, device: &Device) -> Result<()> {
        if self.save && !device.computes() {
            return Err(Error::usage("save", format!("{} computes nothing: there are no values", device.name())));
        }
        Ok(())
    }

    /// Whether the run goes on from where another one ended.
    pub(crate) fn resumes(&self) -> bool {
        matches!(self.begin, Begin::Resume(_))
    }

    /// Gives a run its beginning. Returns the number of its first step.
    ///
    /// # Errors
    /// [`Error::Usage`] for a file that does not fit, naming what in it, and for more micro-batches than can be numbered; those of the device.
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

    /// Takes the state at the end, after `steps` steps in all.
    pub(crate) fn end(&mut self, parts: &Parts<'_>, steps: usize) -> Result<()> {
        if self.save {
            self.saved = Some(parts.state(steps)?);
        }
        Ok(())
    }
}
