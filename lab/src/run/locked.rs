//! A run of a lock file: its device, and its memory.

use lab_analysis::lock::Footprint;
use lab_base::error::{Error, Result};
use lab_training::record::RowsKept;
use lab_training::{Continuation, RunSettings};
use memcore::Deviations;
use memcore::backend::Meta;

use super::session::{Session, flow};
use super::spec::{BeginSpec, RunSpec};

impl RunSpec {
    /// True for a dry run: no device is named.
    pub fn is_on_paper(&self) -> bool {
        self.device.backend.as_deref().is_none_or(|backend| backend == Meta::NAME)
    }

    /// Returns the run in the form of a lock file: from the beginning, and a dry run unless a real device is named.
    ///
    /// # Errors
    /// [`Error::Usage`] for a run that continues from a file, and for a card named beside a device.
    pub fn locked(mut self) -> Result<Self> {
        if self.begin != BeginSpec::default() {
            let field = if self.begin.load.is_some() { "load" } else { "resume" };
            return Err(Error::usage(field, "a locked run begins anew"));
        }
        if self.is_on_paper() {
            (self.device.backend, self.device.device) = (None, None);
        } else if self.card.gpu.is_some() {
            return Err(Error::usage("gpu", "names a card to predict for, but this run uses a device"));
        }
        Ok(self)
    }
}

impl Session {
    /// Makes the run. Returns its memory and the deviations of its device; `None` if it was stopped.
    pub fn footprint(&self, stop: &dyn Fn() -> bool) -> Result<Option<(Footprint, Deviations)>> {
        let device = self.target.clone().history(true).open()?;
        self.check_size(&device, stop)?;
        let run = RunSettings { rows: RowsKept::Ends, ..self.run.clone() };
        let beginning = &mut Continuation::default();
        let result = self.network.train(&device, &run, &self.source, beginning, &mut |_| flow(stop))?;
        let taken = device.with_ledger(|ledger| Footprint::from_ledger(ledger, result.usage.allocated_bytes()));
        Ok((!result.interrupted).then(|| (taken, device.deviations())))
    }
}
