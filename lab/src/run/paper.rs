//! Dry runs: the memory they need, and whether they fit into a limit.

use lab_base::backends::Entry;
use lab_base::error::{Error, Result};
use lab_results::{NeedsResult, PeakResult};
use memcore::memory::Needs;
use memcore::{Deviations, Device};

use super::choices::AllocatorName;
use super::resolve::resolve;
use super::session::{Session, flow, taken};
use super::spec::RunSpec;

/// Steps, and micro-batches of each, after which everything that is kept from one to the next exists.
const FILLED: usize = 2;

/// The most steps of a run that confirms the result of a shorter one: more than a prediction makes by default.
const CONFIRMED: usize = 16;

/// Memory of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Peak of allocated memory.
    pub allocated_bytes: u64,
    /// Peak of reserved memory, with enough memory.
    pub reserved_bytes: u64,
    /// The run within the memory limit; `None` without a limit.
    pub room: Option<Room>,
    /// Deviations from the program that the run stands for.
    pub deviations: Deviations,
}

/// A run within a memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Memory that a process may use.
    pub budget_bytes: u64,
    /// Peak of memory reserved there, if the run completes. It is at most the limit, since PyTorch frees its cache before it runs out.
    pub reserved_bytes: Option<u64>,
    /// True if it would complete with the smallest context that the card may have.
    pub with_least_context: bool,
}

impl Figures {
    /// True if it completes within the limit; `None` without a limit.
    pub fn fits(&self) -> Option<bool> {
        self.room.map(|room| room.reserved_bytes.is_some())
    }

    /// Bytes that the run lacks, if it does not complete.
    pub fn missing_bytes(&self) -> Option<u64> {
        let room = self.room.filter(|room| room.reserved_bytes.is_none())?;
        Some(self.reserved_bytes.saturating_sub(room.budget_bytes))
    }

    /// True if its tensors alone would fit, so that only fragmentation prevents it.
    pub fn is_fragmented(&self) -> bool {
        self.room.is_some_and(|room| room.reserved_bytes.is_none() && self.allocated_bytes <= room.budget_bytes)
    }
}

impl From<&Figures> for NeedsResult {
    fn from(figures: &Figures) -> Self {
        Self {
            allocated_bytes: figures.allocated_bytes,
            reserved_bytes: figures.reserved_bytes,
            reserved_here_bytes: figures.room.and_then(|room| room.reserved_bytes),
            missing_bytes: figures.missing_bytes(),
            fits_with_least_context: figures.room.map(|room| room.with_least_context),
        }
    }
}

/// Makes dry runs with the backends of this build, until a stop is requested.
#[derive(Clone, Copy)]
pub struct Paper<'a> {
    /// Backends whose workspaces can be counted.
    pub backends: &'static [Entry],
    /// True if a stop was requested.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl Paper<'_> {
    /// Makes a dry run on an unlimited device and, if there is a limit, one on a device of that size.
    pub fn figures(&self, spec: &RunSpec) -> Result<Figures> {
        let session = self.settled(&spec.endless())?;
        let device = session.target.open()?;
        self.train(&session, &device)?;
        let needs = taken(&device);
        let room = match self.settled(spec)?.target.budget_bytes()? {
            None => None,
            Some(budget_bytes) => {
                let reserved_bytes = self.in_room(spec, needs)?;
                let with_least_context =
                    reserved_bytes.is_some() || self.in_room(&spec.clone().with_least_context(), needs)?.is_some();
                Some(Room { budget_bytes, reserved_bytes, with_least_context })
            }
        };
        let Needs { allocated_bytes, reserved_bytes } = needs;
        Ok(Figures { allocated_bytes, reserved_bytes, room, deviations: device.deviations() })
    }

    /// Peak of memory reserved within the limit; `None` if memory runs out.
    fn in_room(&self, spec: &RunSpec, needs: Needs) -> Result<Option<u64>> {
        let session = self.settled(spec)?;
        match session.target.budget_bytes()? {
            Some(budget) if needs.allocated_bytes > budget => return Ok(None),
            Some(budget) if needs.reserved_bytes > budget => {}
            _ => return Ok(Some(needs.reserved_bytes)),
        }
        // Memory reserved beyond need is freed before memory runs out, so only the run itself can tell.
        let device = session.target.open()?;
        match self.train(&session, &device) {
            Ok(()) => Ok(Some(device.stats().reserved_bytes.all.peak)),
            Err(Error::Core(error)) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Figures with expandable segments, if the run has a cache and does not use them already.
    pub fn with_expandable_segments(&self, spec: &RunSpec) -> Result<Option<Figures>> {
        let mut variant = spec.clone();
        let settings = variant.allocator.alloc_conf.take().unwrap_or_default();
        if variant.allocator.allocator == Some(AllocatorName::Direct) || settings.contains("expandable_segments") {
            return Ok(None);
        }
        let comma = if settings.is_empty() { "" } else { "," };
        variant.allocator.alloc_conf = Some(format!("{settings}{comma}expandable_segments:True"));
        self.figures(&variant).map(Some)
    }

    /// Returns the peaks of allocated and reserved memory within the limit, `None` if memory runs out; and the number of allocations.
    pub(super) fn in_what_there_is(&self, spec: &RunSpec) -> Result<(Option<(u64, u64)>, u64)> {
        let whole = self.settled(spec)?;
        // A short run ends at the same allocation, whether its beginning is tried first or not.
        if whole.run.accumulate <= FILLED {
            return self.in_room_of(&whole);
        }
        let (first, first_work) = self.in_its_beginning(spec)?;
        if first.is_none() {
            return Ok((first, first_work));
        }
        let (taken, work) = self.in_room_of(&whole)?;
        Ok((taken, first_work + work))
    }

    /// The same for the first steps and their first micro-batches: the whole run takes no less.
    pub(super) fn in_its_beginning(&self, spec: &RunSpec) -> Result<(Option<(u64, u64)>, u64)> {
        let mut session = self.settled(spec)?.at_most(FILLED);
        session.run.accumulate = session.run.accumulate.min(FILLED);
        self.in_room_of(&session)
    }

    /// The same for all steps of the run's command.
    pub(super) fn in_full(&self, spec: &RunSpec) -> Result<Option<(u64, u64)>> {
        let session = self.session(spec)?;
        let steps = CONFIRMED.max(session.settled_steps());
        Ok(self.in_room_of(&session.at_most(steps))?.0)
    }

    fn in_room_of(&self, session: &Session) -> Result<(Option<(u64, u64)>, u64)> {
        let device = session.target.open()?;
        let trained = self.train(session, &device);
        let work = device.usage().n_alloc();
        match trained {
            Ok(()) => {
                let Needs { allocated_bytes, reserved_bytes } = taken(&device);
                Ok((Some((allocated_bytes, reserved_bytes)), work))
            }
            Err(Error::Core(error)) if error.is_out_of_memory() => Ok((None, work)),
            Err(error) => Err(error),
        }
    }

    /// Contents of memory at the peak, with enough memory.
    pub fn peak(&self, spec: &RunSpec) -> Result<PeakResult> {
        let session = self.settled(&spec.endless())?;
        let device = session.target.open()?;
        self.train(&session, &device)?;
        Ok(PeakResult::of_device(&device))
    }

    /// The dry run, for as many steps as it takes until nothing grows.
    fn settled(&self, spec: &RunSpec) -> Result<Session> {
        Ok(self.session(spec)?.settled())
    }

    /// The dry run.
    ///
    /// # Errors
    /// Fields that cannot be read or combined.
    pub fn session(&self, spec: &RunSpec) -> Result<Session> {
        resolve(spec, self.backends)
    }

    /// Trains; the result is the device's ledger.
    ///
    /// # Errors
    /// Settings that cannot work; those of the device, including running out of memory.
    pub fn train(&self, session: &Session, device: &Device) -> Result<()> {
        Ok(session.train(device, &mut |_| flow(self.stop)).map(drop)?)
    }

    /// Number of tensors that the network has before its first step.
    pub(super) fn tensors(&self, spec: &RunSpec) -> Result<u64> {
        let session = self.settled(&spec.endless())?.at_most(0);
        let device = session.target.open()?;
        self.train(&session, &device)?;
        Ok(device.usage().n_alloc())
    }
}
