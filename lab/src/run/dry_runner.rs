//! Dry runs: the memory they need, and whether they fit into a limit.

use std::ops::ControlFlow;
use std::sync::Mutex;

use lab_base::backends::Entry;
use lab_base::bands::{Basis, Range};
use lab_base::changes::EXPANDABLE;
use lab_base::error::{Error, Result};
use lab_results::PeakResult;
use lab_results::report::Recording;
use memcore::memory::{Category, Needs};
use memcore::profile::ConvolutionWorkspaces;
use memcore::{Deviations, Device};

use super::choices::AllocatorName;
use super::divided::Divided;
use super::drawn::Drawn;
use super::figures::{Figures, Room};
use super::request_cache::{Known, Part, RequestCache, RequestsPlace};
use super::requests::Served;
use super::resolve::{resolve, target};
use super::session::{Session, flow, taken};
use super::spec::RunSpec;
use super::workspaces::{KnowsWorkspaces, WorkspaceTable};

/// Steps after which everything that is kept from one to the next exists.
const FILLED: usize = 2;

/// Makes dry runs with the backends of this build, until a stop is requested, and keeps what it found.
pub struct DryRunner<'a> {
    /// Backends whose workspaces can be counted.
    pub backends: &'static [Entry],
    /// True if a stop was requested.
    pub stop: &'a (dyn Fn() -> bool + Sync),
    pub(super) request_cache: RequestCache<'a>,
    /// Who knows workspaces of cuDNN; nobody by default.
    pub(super) workspaces: Option<&'a dyn KnowsWorkspaces>,
    /// The workspaces with which runs were made.
    pub(super) made_with: MadeWith,
}

/// What runs were made with by a table, so that each is made once: the most that cuDNN may take, and what it named.
type MadeWith = Mutex<Vec<(RunSpec, WorkspaceTable, [ConvolutionWorkspaces; 2])>>;

/// What a dry run took within its memory.
pub(super) struct Taken {
    /// `None` if memory ran out.
    pub(super) needs: Option<Needs>,
    deviations: Deviations,
    /// Number of allocations that were made for it.
    work: u64,
}

/// Requests that an allocator serves in the time in which operators make one.
const SERVED_FOR_ONE: usize = 16;

impl<'a> DryRunner<'a> {
    /// Makes dry runs with these backends until a stop is requested.
    pub fn new(backends: &'static [Entry], stop: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self {
            backends,
            stop,
            request_cache: RequestCache::new(backends, stop),
            workspaces: None,
            made_with: MadeWith::default(),
        }
    }

    /// Counts the workspaces of cuDNN that somebody knows.
    #[must_use]
    pub fn with_workspaces_of(self, workspaces: &'a dyn KnowsWorkspaces) -> Self {
        Self { workspaces: Some(workspaces), ..self }
    }

    /// Draws this run when a figure of it is asked for first: both come from one dry run.
    ///
    /// # Errors
    /// Fields that cannot be written.
    pub fn drawing(mut self, spec: &RunSpec, session: &'a Session) -> Result<Self> {
        self.request_cache.draw(spec, session)?;
        Ok(self)
    }

    /// The place of the requests of a dry run that is made for something else, too; `None` if nobody may ask for them.
    ///
    /// # Errors
    /// Fields that cannot be written.
    pub fn place_of_requests(&self, spec: &RunSpec, session: &Session) -> Result<Option<RequestsPlace>> {
        if session.makes_only_requests() { self.request_cache.place(spec) } else { Ok(None) }
    }

    /// The run that was to be drawn; `None` if it was not. Then [`Session::drawn_until_it_repeats`] draws it.
    pub fn drawn(&self) -> Option<Drawn> {
        self.request_cache.drawn()
    }

    /// What the run needs with enough memory.
    ///
    /// # Errors
    /// Those of a dry run.
    pub fn needs(&self, spec: &RunSpec) -> Result<Needs> {
        let needs = self.taken_by(&spec.endless(), Part::UntilFlat)?.needs;
        needs.ok_or_else(|| Error::usage("batch", "beyond what any device holds"))
    }

    /// Another one that knows the same workspaces and has found nothing yet.
    pub fn afresh(&self) -> Self {
        Self { workspaces: self.workspaces, ..Self::new(self.backends, self.stop) }
    }

    /// Makes a dry run on an unlimited device and, if there is a limit, one on a device of that size.
    pub fn figures(&self, spec: &RunSpec) -> Result<Figures> {
        self.figures_with(spec, |_| true, true)
    }

    /// The same without asking anybody for workspaces of cuDNN.
    pub(super) fn figures_unasked(&self, spec: &RunSpec) -> Result<Figures> {
        self.figures_with(spec, |_| true, false)
    }

    /// The same for one of many changes of a run: an upper figure only where it decides whether the change fits.
    pub(super) fn figures_of_change(&self, spec: &RunSpec) -> Result<Figures> {
        self.figures_with(spec, |room| room.is_some_and(|room| room.reserved_bytes.is_some()), false)
    }

    /// The same, with an upper figure if the memory that it has asks for one. `may_ask`: whether somebody may be asked for workspaces of cuDNN.
    fn figures_with(&self, spec: &RunSpec, is_asked: impl Fn(Option<Room>) -> bool, may_ask: bool) -> Result<Figures> {
        let endless = spec.endless();
        let Taken { needs, deviations, .. } = self.taken_by(&endless, Part::UntilFlat)?;
        let needs = needs.ok_or_else(|| Error::usage("batch", "beyond what any device holds"))?;
        let basis = spec.basis();
        let (room, reserved) = self.within_room(spec, needs, basis)?;
        let Needs { allocated_bytes, reserved_bytes } = needs;
        let figures = Figures { allocated_bytes, reserved_bytes, room, deviations, with_cudnn: None, reserved, basis };
        match deviations.convolution_bytes() {
            workspace_bytes if workspace_bytes > 0 && is_asked(room) => {
                self.with_cudnn(spec, workspace_bytes, figures, may_ask)
            }
            _ => Ok(figures),
        }
    }

    /// True if the run has convolutions that PyTorch gives to cuDNN.
    pub(super) fn convolves(&self, spec: &RunSpec) -> Result<bool> {
        Ok(self.taken_by(&spec.endless(), Part::First(1))?.deviations.convolution_bytes() > 0)
    }

    /// The run within its limit, if it has one, and what it reserves with all that a card may deviate.
    fn within_room(&self, spec: &RunSpec, needs: Needs, basis: Basis) -> Result<(Option<Room>, Range)> {
        let whole = basis.range(needs.reserved_bytes, needs.reserved_bytes);
        let Some(budget_bytes) = target(spec, self.backends)?.0.budget_bytes()? else { return Ok((None, whole)) };
        let band = basis.band();
        let reserved_bytes = self.in_bytes(spec, needs, budget_bytes)?;
        let sure = match reserved_bytes {
            Some(_) => self.in_bytes(spec, needs, band.surely(budget_bytes))?,
            None => None,
        };
        let may = match reserved_bytes {
            Some(reserved) => Some(reserved),
            None => self.in_bytes(spec, needs, band.perhaps(self.most_room(spec)?.unwrap_or(budget_bytes)))?,
        };
        let expected = sure.or(may).unwrap_or(needs.reserved_bytes);
        let range =
            Range { upper: band.upper(sure.unwrap_or(needs.reserved_bytes)), ..basis.range(expected, expected) };
        let room = Room { budget_bytes, reserved_bytes, surely: sure.is_some(), perhaps: may.is_some() };
        Ok((Some(room), range))
    }

    /// Memory that a process may use with the smallest context that the card may have; `None` without a limit.
    pub(super) fn most_room(&self, spec: &RunSpec) -> Result<Option<u64>> {
        Ok(target(&spec.clone().with_least_context(), self.backends)?.0.budget_bytes()?)
    }

    /// Peak of memory reserved where there are so many bytes; `None` if memory runs out. `needs`: what the run takes with enough.
    pub(super) fn in_bytes(&self, spec: &RunSpec, needs: Needs, bytes: u64) -> Result<Option<u64>> {
        if needs.allocated_bytes > bytes {
            return Ok(None);
        }
        if needs.reserved_bytes <= bytes {
            return Ok(Some(needs.reserved_bytes));
        }
        // Memory reserved beyond need is freed before memory runs out, so only the allocator itself can tell.
        let taken = self.taken_by(&spec.clone().on_paper_in(bytes), Part::UntilFlat)?;
        Ok(taken.needs.map(|needs| needs.reserved_bytes))
    }

    /// Figures with expandable segments, if the run has a cache and does not use them already.
    pub fn with_expandable_segments(&self, spec: &RunSpec) -> Result<Option<Figures>> {
        let mut variant = spec.clone();
        let settings = variant.allocator.alloc_conf.take().unwrap_or_default();
        if variant.allocator.allocator == Some(AllocatorName::Direct) || settings.contains("expandable_segments") {
            return Ok(None);
        }
        let comma = if settings.is_empty() { "" } else { "," };
        variant.allocator.alloc_conf = Some(format!("{settings}{comma}{EXPANDABLE}"));
        self.figures(&variant).map(Some)
    }

    /// Returns the peaks of allocated and reserved memory within the limit, `None` if memory runs out; and the number of allocations made for it.
    pub(super) fn within_limit(&self, spec: &RunSpec) -> Result<(Option<Needs>, u64)> {
        let Taken { needs, work, .. } = self.taken_by(spec, Part::UntilFlat)?;
        Ok((needs, work))
    }

    /// The same for the first steps: the whole run takes no less.
    pub(super) fn first_steps_within_limit(&self, spec: &RunSpec) -> Result<(Option<Needs>, u64)> {
        let Taken { needs, work, .. } = self.taken_by(spec, Part::First(FILLED))?;
        Ok((needs, work))
    }

    /// What a part of a run takes within the memory of its device.
    pub(super) fn taken_by(&self, spec: &RunSpec, part: Part) -> Result<Taken> {
        let (target, _) = target(spec, self.backends)?;
        let room = target.budget_bytes()?;
        let (known, work) = match target.is_on_paper() {
            true => self.request_cache.requests(spec, room)?,
            false => (Known::NotReplayable, 0),
        };
        match known {
            Known::All(course, deviations) => {
                let served = self.request_cache.served((spec, room, part), || {
                    let allocator = &mut *target.allocator()?;
                    match part {
                        Part::UntilFlat => course.until_flat(allocator),
                        Part::First(steps) => course.first(allocator, steps),
                    }
                })?;
                let (needs, requests) = match served {
                    Served::All { needs, requests } => (Some(needs), requests),
                    Served::Refused { requests } => (None, requests),
                };
                Ok(Taken { needs, deviations, work: work + (requests / SERVED_FOR_ONE) as u64 })
            }
            Known::Exceeds(_) => Ok(Taken { needs: None, deviations: Deviations::default(), work }),
            Known::NotReplayable => self.trained(spec, part),
        }
    }

    /// What a run takes within the memory of its device, from the run itself; of a divided run, what the fullest rank takes.
    fn trained(&self, spec: &RunSpec, part: Part) -> Result<Taken> {
        let (devices, trained) = self.made(spec, part)?;
        let work = devices.iter().map(|device| device.usage().n_alloc()).sum();
        let deviations = devices.iter().fold(Deviations::default(), |all, device| all.union(device.deviations()));
        match trained {
            Ok(()) => Ok(Taken {
                needs: devices.iter().map(taken).max_by_key(|needs| needs.reserved_bytes),
                deviations,
                work,
            }),
            Err(Error::Core(error)) if error.is_out_of_memory() => Ok(Taken { needs: None, deviations, work }),
            Err(error) => Err(error),
        }
    }

    /// Makes a part of a run, with a history of all events. Returns its devices, and how it ended.
    fn made(&self, spec: &RunSpec, part: Part) -> Result<(Vec<Device>, Result<()>)> {
        let steps = |session: &Session| match part {
            Part::UntilFlat => session.most_steps(),
            Part::First(steps) => steps.min(session.most_steps()),
        };
        if spec.parallel.ranks.data_parallel.is_some() {
            let divided = self.divided(spec)?;
            let devices = divided.open(true)?;
            let trained = divided.train_until_flat(&devices, steps(&divided.session), self.stop);
            return Ok((devices, trained));
        }
        let session = self.session(spec)?;
        let target = session.target.clone().history(true);
        let device = target.open()?;
        let trained = session
            .train_until_flat((&target, &device), (0, steps(&session)), self.stop)
            .map(drop)
            .map_err(Error::from);
        Ok((vec![device], trained))
    }

    /// Makes a run until memory is flat, with a history of all events. Returns its device, of a divided run the fullest.
    ///
    /// # Errors
    /// Settings that cannot work; those of the device, including running out of memory.
    pub(super) fn device_after(&self, spec: &RunSpec) -> Result<Device> {
        let (devices, trained) = self.made(spec, Part::UntilFlat)?;
        trained?;
        let fullest = devices.into_iter().max_by_key(|device| device.stats().reserved_bytes.all.peak);
        fullest.ok_or_else(|| Error::usage("data-parallel", "must be at least 1"))
    }

    /// Every event of the fullest rank of a divided run with enough memory.
    ///
    /// # Errors
    /// Settings that cannot work.
    pub fn drawn_fullest_rank(&self, spec: &RunSpec) -> Result<Recording> {
        let device = self.device_after(&spec.endless())?;
        self.session(spec)?.recording(&device, self.stop)
    }

    /// Contents of memory at the peak, with enough memory.
    pub fn peak(&self, spec: &RunSpec) -> Result<PeakResult> {
        let spec = spec.endless();
        if spec.parallel.ranks.data_parallel.is_some() {
            return Ok(PeakResult::of_device(&self.device_after(&spec)?));
        }
        let highest = self.taken_by(&spec, Part::UntilFlat)?.needs.map(|needs| needs.allocated_bytes);
        if let Some(known) = self.request_cache.peak_of(&spec, highest) {
            return Ok(known);
        }
        let session = self.session(&spec)?;
        let device = session.target.open()?;
        // The steps after the one that reaches it change nothing.
        session.train_steps(
            &device,
            session.most_steps(),
            &mut |_| match Some(device.usage().peak_bytes()) >= highest {
                true => ControlFlow::Break(()),
                false => flow(self.stop),
            },
        )?;
        Ok(PeakResult::of_device(&device))
    }

    /// The dry run of a divided step.
    ///
    /// # Errors
    /// Fields that cannot be read or combined.
    pub fn divided(&self, spec: &RunSpec) -> Result<Divided> {
        Divided::from_spec(spec, self.session(spec)?)
    }

    /// The dry run; of a divided one, its form on one device.
    ///
    /// # Errors
    /// Fields that cannot be read or combined.
    pub fn session(&self, spec: &RunSpec) -> Result<Session> {
        resolve(&spec.undivided(), self.backends)
    }

    /// Trains; the result is the device's ledger.
    ///
    /// # Errors
    /// Settings that cannot work; those of the device, including running out of memory.
    pub fn train(&self, session: &Session, device: &Device) -> Result<()> {
        Ok(session.train(device, &mut |_| flow(self.stop)).map(drop)?)
    }

    /// What the network has before its first step.
    pub(super) fn before_training(&self, spec: &RunSpec) -> Result<BeforeTraining> {
        let session = self.session(&spec.endless())?.of_steps(0);
        let device = session.target.open()?;
        self.train(&session, &device)?;
        let usage = device.usage();
        Ok(BeforeTraining {
            tensors: usage.n_alloc(),
            parameter_bytes: usage.at_peak().by_category[Category::Parameter as usize],
        })
    }
}

/// What a network has before its first step.
#[derive(Clone, Copy, Debug)]
pub(super) struct BeforeTraining {
    /// Number of its tensors.
    pub tensors: u64,
    /// Bytes of its parameters.
    pub parameter_bytes: u64,
}

#[cfg(test)]
mod tests;
