//! A run that is drawn: its events, the peak, and the requests that figures ask for, from one dry run.

use std::ops::ControlFlow;

use lab_base::error::{Error, Result};
use lab_results::PeakResult;
use lab_results::report::Recording;
use memcore::{Deviations, Device};

use super::flat::{End, Ends};
use super::requests::{MICRO_BATCHES, Requests};
use super::session::{Session, flow};

/// A run with enough memory, until its steps repeat their requests.
pub struct Drawn {
    /// Every event.
    pub recording: Recording,
    /// What memory consisted of at the peak.
    pub(super) peak: PeakResult,
}

/// A drawn run with its requests; `None` in their place if they may differ from step to step. And the number of allocations that were made for it.
pub(super) type WithRequests = (Drawn, Option<(Requests, Deviations)>, u64);

impl Session {
    /// True if drawing the run finds its requests in as few micro-batches as a dry run for them needs.
    pub(super) fn draws_its_requests(&self) -> bool {
        self.makes_only_requests() && self.run.accumulate <= MICRO_BATCHES
    }

    /// Every event of the run with enough memory, until its steps repeat their requests: tensors take no more then, though the allocator may.
    ///
    /// # Errors
    /// Those of [`needs`](Self::needs).
    pub fn drawn_until_it_repeats(&self, stop: &dyn Fn() -> bool) -> Result<Recording> {
        let (device, _) = self.until_it_repeats(stop)?;
        self.recording(&device, stop)
    }

    /// The same with the requests.
    ///
    /// # Errors
    /// Those of [`needs`](Self::needs).
    pub(super) fn drawn_with_requests(&self, stop: &dyn Fn() -> bool) -> Result<WithRequests> {
        let (device, requests) = self.until_it_repeats(stop)?;
        let drawn = Drawn { recording: self.recording(&device, stop)?, peak: PeakResult::of_device(&device) };
        Ok((drawn, requests.map(|requests| (requests, device.deviations())), device.usage().n_alloc()))
    }

    fn until_it_repeats(&self, stop: &dyn Fn() -> bool) -> Result<(Device, Option<Requests>)> {
        let (_, device) = self.with_memory_enough()?;
        let (mut ends, mut requests) = (Ends::new(self.run.period()), None);
        let on_step = &mut |_| {
            let end = ends.step(&device);
            requests = requests.take().or_else(|| self.repeating(&device, ends.requests()));
            match end {
                End::GoOn if requests.is_none() => flow(stop),
                _ => ControlFlow::Break(()),
            }
        };
        self.train_steps(&device, self.most_steps(), on_step)?;
        Ok((device, requests))
    }

    pub(super) fn recording(&self, device: &Device, stop: &dyn Fn() -> bool) -> Result<Recording> {
        if stop() {
            return Err(Error::Interrupted);
        }
        Ok(device.with_ledger(|ledger| Recording::of_ledger(self.name(), ledger)))
    }
}
