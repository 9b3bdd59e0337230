//! Requests of the runs that a search tries, each noted once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lab_base::backends::Entry;
use lab_base::error::{Error, Result};
use lab_training::{OptimizerKind, Phase, RunSettings};
use memcore::Deviations;

use super::requests::{MICRO_BATCHES, Requests, STEP_ENDED, STEPS};
use super::resolve::resolve;
use super::session::{Session, flow};
use super::spec::{AllocatorSpec, RunSpec, TrainingSpec};

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// As many steps as it takes until nothing grows.
    Whole,
    /// At most so many steps.
    Steps(usize),
}

impl Part {
    /// The part as a run of its own.
    pub(super) fn of(self, session: Session) -> Session {
        match self {
            Self::Whole => session.settled(),
            Self::Steps(steps) => session.at_most(steps),
        }
    }
}

/// What is known of a run's requests.
#[derive(Clone)]
pub(super) enum Known {
    /// All of them, and how the run differs from PyTorch.
    All(Arc<Requests>, Deviations),
    /// At one moment there are more bytes than this.
    MoreThan(u64),
    /// There is more to the run than requests.
    Other,
}

impl Known {
    /// Whether this answers what a run takes in `room` bytes.
    fn answers(&self, room: Option<u64>) -> bool {
        match self {
            Self::All(..) | Self::Other => true,
            Self::MoreThan(bytes) => room.is_some_and(|room| room <= *bytes),
        }
    }

    /// The same with other requests; [`Known::Other`] where there are none.
    fn edited(self, edit: impl FnOnce(&Requests) -> Option<Requests>) -> Self {
        match self {
            Self::All(requests, deviations) => {
                edit(&requests).map_or(Self::Other, |edited| Self::All(Arc::new(edited), deviations))
            }
            other => other,
        }
    }
}

/// What is known of one run; whoever asks first finds it, and others wait.
type Slot = Arc<Mutex<Option<Known>>>;

/// Makes dry runs with these backends until a stop is requested, and keeps what is known of them.
pub(super) struct Noted<'a> {
    backends: &'static [Entry],
    stop: &'a (dyn Fn() -> bool + Sync),
    /// By all fields of the run but the allocator's.
    slots: Mutex<HashMap<(Part, String), Slot>>,
}

impl<'a> Noted<'a> {
    pub(super) fn new(backends: &'static [Entry], stop: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { backends, stop, slots: Mutex::default() }
    }

    /// Returns what is known of a part of the run's requests, which is found now if necessary; and the number of allocations made for that. `room`: bytes beyond
    /// which nothing need be known.
    ///
    /// # Errors
    /// Fields that cannot be combined; those of the run, other than that memory runs out.
    pub(super) fn requests(&self, spec: &RunSpec, part: Part, room: Option<u64>) -> Result<(Known, u64)> {
        let mut spec = RunSpec { allocator: AllocatorSpec::default(), ..spec.endless() };
        if has_no_temporaries(&spec.training) {
            spec.training.optimizer_impl = None;
        }
        self.noted(&spec, part, room)
    }

    fn noted(&self, spec: &RunSpec, part: Part, room: Option<u64>) -> Result<(Known, u64)> {
        let text = serde_json::to_string(spec).map_err(|error| Error::usage("run", error.to_string()))?;
        let slot = locked(&self.slots).entry((part, text)).or_default().clone();
        let mut slot = locked(&slot);
        if let Some(known) = slot.as_ref().filter(|known| known.answers(room)) {
            return Ok((known.clone(), 0));
        }
        let session = resolve(spec, self.backends)?;
        let (known, work) = match part {
            Part::Steps(_) if session.run.period() > 1 => (Known::Other, 0),
            Part::Steps(steps) => {
                let (whole, work) = self.noted(spec, Part::Whole, room)?;
                (whole.edited(|requests| requests.with_steps(steps.min(session.run.steps))), work)
            }
            Part::Whole => self.note(part.of(session), room)?,
        };
        *slot = Some(known.clone());
        Ok((known, work))
    }

    /// Finds the requests of a run: a dry run of a few steps and micro-batches shows the others, unless they differ.
    fn note(&self, mut session: Session, room: Option<u64>) -> Result<(Known, u64)> {
        let RunSettings { accumulate, steps, turns, schedule, .. } = &session.run;
        let (accumulate, steps) = (*accumulate, *steps);
        let more = [Phase::EmptyCache, Phase::ResetPeak].iter().any(|phase| schedule.names(*phase));
        if more || !session.target.is_on_paper() {
            return Ok((Known::Other, 0));
        }
        if turns.batches.is_empty() && turns.lengths.is_empty() {
            session.run.accumulate = accumulate.min(MICRO_BATCHES);
        }
        if session.run.period() == 1 {
            session.run.steps = steps.min(STEPS);
        }
        let (known, work) = self.note_as_it_is(&session, room)?;
        if (session.run.accumulate, session.run.steps) == (accumulate, steps) {
            return Ok((known, work));
        }
        let known = known.edited(|few| match session.run.accumulate < accumulate {
            true => few.with_micro_batches(accumulate)?.with_steps(steps),
            false => few.with_steps(steps),
        });
        if !matches!(known, Known::Other) {
            return Ok((known, work));
        }
        (session.run.accumulate, session.run.steps) = (accumulate, steps);
        let (known, more) = self.note_as_it_is(&session, room)?;
        Ok((known, work + more))
    }

    fn note_as_it_is(&self, session: &Session, room: Option<u64>) -> Result<(Known, u64)> {
        let device = session.target.noting(room)?.open()?;
        let trained = session.train(&device, &mut |_| {
            device.phase(STEP_ENDED);
            flow(self.stop)
        });
        let work = device.usage().n_alloc();
        match (trained.map_err(Error::from), room) {
            (Ok(_), _) => {}
            (Err(Error::Core(error)), Some(room)) if error.is_out_of_memory() => {
                return Ok((Known::MoreThan(room), work));
            }
            (Err(error), _) => return Err(error),
        }
        let begins_with = session.run.schedule.begins_with().map_or("", Phase::name);
        let requests = device.with_ledger(|ledger| Requests::of_history(ledger, begins_with));
        let known = requests.filter(|requests| requests.steps() == session.run.steps);
        Ok((known.map_or(Known::Other, |requests| Known::All(Arc::new(requests), device.deviations())), work))
    }
}

/// True for an optimizer that makes no temporaries in any form: SGD that only adds the gradients.
pub(super) fn has_no_temporaries(training: &TrainingSpec) -> bool {
    let TrainingSpec { optimizer, weight_decay, nesterov, maximize, capturable, .. } = training;
    let plain = weight_decay.is_none_or(|decay| decay == 0.0) && !nesterov && !maximize && !capturable;
    *optimizer == Some(OptimizerKind::Sgd) && plain
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
