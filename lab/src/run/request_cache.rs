//! Requests of the runs that a search tries, each noted once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lab_base::backends::Entry;
use lab_base::error::{Error, Result};
use lab_results::PeakResult;
use lab_training::data_parallel::DataParallelSettings;
use lab_training::{Continuation, Failed, OptimizerKind, Phase, RunResult, RunSettings};
use memcore::memory::{Allocator, Needs};
use memcore::{Deviations, Device};

use super::divided::Divided;
use super::drawn::Drawn;
use super::flat::MOST_DIFFERENT_ROUNDS;
use super::requests::{MICRO_BATCHES, Requests, STEP_ENDED, STEPS, Served};
use super::resolve::resolve;
use super::session::{OnStep, Session, flow, taken};
use super::spec::{AllocatorSpec, Convolutions, RunSpec, TrainingSpec};

/// The requests of a run, and how long it goes on.
pub(super) struct Course {
    requests: Requests,
    /// Steps after which all that differs in turn has had its turn.
    period: usize,
    /// The most steps of the run.
    most: usize,
}

impl Course {
    /// Serves the run's requests until memory is flat.
    ///
    /// # Errors
    /// The driver's, other than that there is no memory.
    pub(super) fn until_flat(&self, allocator: &mut dyn Allocator) -> Result<Served> {
        self.requests.until_flat(allocator, self.period, self.most)
    }

    /// Serves those of the first steps.
    pub(super) fn first(&self, allocator: &mut dyn Allocator, steps: usize) -> Result<Served> {
        self.requests.until_flat(allocator, self.period, steps.min(self.most))
    }
}

/// The requests of a run that was made for something else, and how it differs from PyTorch.
pub struct MadeRun {
    course: Course,
    deviations: Deviations,
}

/// The place of a run's requests.
pub struct RequestsPlace(Slot);

impl RequestsPlace {
    /// Makes whoever asks for them wait until [`PlaceKept::give`], or until what this returns is gone.
    pub fn keep(&self) -> PlaceKept<'_> {
        PlaceKept(locked(&self.0))
    }
}

/// A place for which somebody finds requests.
pub struct PlaceKept<'a>(MutexGuard<'a, Option<Known>>);

impl PlaceKept<'_> {
    /// Gives what was found. Whoever waited finds it by itself if that is nothing.
    pub fn give(mut self, made: Option<MadeRun>) {
        if let (None, Some(MadeRun { course, deviations })) = (&*self.0, made) {
            *self.0 = Some(Known::All(Arc::new(course), deviations));
        }
    }
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// The steps until memory is flat.
    UntilFlat,
    /// At most so many steps.
    First(usize),
}

/// What is known of a run's requests.
#[derive(Clone)]
pub(super) enum Known {
    /// All of them, and how the run differs from PyTorch.
    All(Arc<Course>, Deviations),
    /// Known only to exceed this limit of bytes.
    Exceeds(u64),
    /// Does more than allocate and free; must be run.
    NotReplayable,
}

impl Known {
    /// Whether this answers what a run takes in `room` bytes.
    fn answers(&self, room: Option<u64>) -> bool {
        match self {
            Self::All(..) | Self::NotReplayable => true,
            Self::Exceeds(bytes) => room.is_some_and(|room| room <= *bytes),
        }
    }
}

/// The requests of a run and its deviations, or what else is known of it.
type Found = Result<(Requests, Deviations), Known>;

/// What is known of one run; whoever asks first finds it, and others wait.
type Slot = Arc<Mutex<Option<Known>>>;

/// A part of a run within so many bytes.
type Asked = (Key, Option<u64>, Part);

/// Fields of a run, and what its convolutions take.
type Key = (String, Convolutions);

/// Makes dry runs with these backends until a stop is requested, and keeps what is known of them.
pub(super) struct RequestCache<'a> {
    backends: &'static [Entry],
    stop: &'a (dyn Fn() -> bool + Sync),
    /// By all fields of the run but the allocator's.
    slots: Mutex<HashMap<Key, Slot>>,
    /// What came of requests.
    served: Mutex<HashMap<Asked, Arc<Mutex<Option<Served>>>>>,
    /// A run that is drawn once somebody asks for its requests, and its drawing.
    to_draw: Option<(Key, &'a Session)>,
    drawn: Mutex<Option<Drawn>>,
}

impl<'a> RequestCache<'a> {
    pub(super) fn new(backends: &'static [Entry], stop: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self {
            backends,
            stop,
            slots: Mutex::default(),
            served: Mutex::default(),
            to_draw: None,
            drawn: Mutex::default(),
        }
    }

    /// The place of a run's requests; `None` if one is to be drawn for them.
    pub(super) fn place(&self, spec: &RunSpec) -> Result<Option<RequestsPlace>> {
        let key = without_allocator(spec)?.1;
        let place = || RequestsPlace(locked(&self.slots).entry(key).or_default().clone());
        Ok(self.to_draw.is_none().then(place))
    }

    /// Draws this run when its requests are asked for.
    pub(super) fn draw(&mut self, spec: &RunSpec, session: &'a Session) -> Result<()> {
        let key = without_allocator(spec)?.1;
        let is_whole = spec.parallel.ranks.data_parallel.is_none();
        self.to_draw = Some((key, session)).filter(|_| is_whole && session.draws_its_requests());
        Ok(())
    }

    /// The run that was to be drawn; `None` if nobody asked for its requests, or it could not be.
    pub(super) fn drawn(&self) -> Option<Drawn> {
        locked(&self.drawn).take()
    }

    /// What memory consists of at this run's peak, if it was drawn and that is known of it.
    pub(super) fn peak_of(&self, spec: &RunSpec, bytes: Option<u64>) -> Option<PeakResult> {
        let key = without_allocator(spec).ok()?.1;
        self.to_draw.as_ref().filter(|(to_draw, _)| *to_draw == key)?;
        let drawn = locked(&self.drawn);
        let peak = &drawn.as_ref()?.peak;
        (Some(peak.bytes) == bytes).then(|| peak.clone())
    }

    /// The requests of a run that is to be drawn, from its drawing.
    fn by_drawing(&self, key: &Key) -> Option<(Known, u64)> {
        let (_, session) = self.to_draw.as_ref().filter(|(to_draw, _)| to_draw == key)?;
        let mut drawn = locked(&self.drawn);
        if drawn.is_some() {
            return None;
        }
        let (found, requests, work) = session.drawn_with_requests(self.stop).ok()?;
        *drawn = Some(found);
        let (requests, deviations) = requests?;
        let (period, most) = (session.run.period(), session.most_steps());
        Some((Known::All(Arc::new(Course { requests, period, most }), deviations), work))
    }

    /// Returns what came of a part of the run's requests in `room` bytes; `serve` finds it, once.
    ///
    /// # Errors
    /// Those of `serve`.
    pub(super) fn served(
        &self,
        (spec, room, part): (&RunSpec, Option<u64>, Part),
        serve: impl FnOnce() -> Result<Served>,
    ) -> Result<Served> {
        let place = locked(&self.served).entry((key(spec)?, room, part)).or_default().clone();
        let mut place = locked(&place);
        match *place {
            Some(served) => Ok(served),
            None => Ok(*place.insert(serve()?)),
        }
    }

    /// Returns what is known of the run's requests, which is found now if necessary; and the number of allocations made for that. `room`: bytes beyond which
    /// nothing need be known.
    ///
    /// # Errors
    /// Fields that cannot be combined; those of the run, other than that memory runs out.
    pub(super) fn requests(&self, spec: &RunSpec, room: Option<u64>) -> Result<(Known, u64)> {
        let (spec, key) = without_allocator(spec)?;
        let slot = locked(&self.slots).entry(key.clone()).or_default().clone();
        let mut slot = locked(&slot);
        if let Some(known) = slot.as_ref().filter(|known| known.answers(room)) {
            return Ok((known.clone(), 0));
        }
        let (known, work) = match (self.by_drawing(&key), spec.parallel.ranks.data_parallel) {
            (Some(found), _) => found,
            (None, None) => course(&Dry::Alone(&resolve(&spec, self.backends)?), 0, room, self.stop)?,
            (None, Some(_)) => {
                let divided = Divided::from_spec(&spec, resolve(&spec.undivided(), self.backends)?)?;
                course(&Dry::Rank(&divided), 0, room, self.stop)?
            }
        };
        *slot = Some(known.clone());
        Ok((known, work))
    }
}

impl RequestCache<'_> {
    /// Makes the requests of a run known from those of another, from which it differs by the sizes of some allocations: by number, in order, each with what it
    /// took there and takes here. Nothing happens where that is not enough.
    pub(super) fn resize(
        &self,
        (from, to): (&RunSpec, &RunSpec),
        sizes: impl IntoIterator<Item = (u64, [u64; 2])>,
    ) -> Result<()> {
        let slot = |spec| Ok::<_, Error>(locked(&self.slots).entry(without_allocator(spec)?.1).or_default().clone());
        let (from, to) = (slot(from)?, slot(to)?);
        let Some(Known::All(course, deviations)) = locked(&from).clone() else { return Ok(()) };
        if let Some(requests) = course.requests.resized(sizes) {
            let course = Course { requests, ..*course };
            locked(&to).get_or_insert(Known::All(Arc::new(course), deviations));
        }
        Ok(())
    }
}

/// The run with enough memory and any allocator, and its key.
fn without_allocator(spec: &RunSpec) -> Result<(RunSpec, Key)> {
    let mut spec = RunSpec { allocator: AllocatorSpec::default(), ..spec.endless() };
    if has_no_temporaries(&spec.training) {
        spec.training.optimizer_impl = None;
    }
    let key = key(&spec)?;
    Ok((spec, key))
}

/// All fields of a run.
fn key(spec: &RunSpec) -> Result<Key> {
    let text = serde_json::to_string(spec).map_err(|error| Error::usage("run", error.to_string()))?;
    Ok((text, spec.profile.convolutions.clone()))
}

/// A run that is made dry: alone, or as one of the ranks of a divided one, which hold the same.
pub(super) enum Dry<'a> {
    Alone(&'a Session),
    Rank(&'a Divided),
}

impl Dry<'_> {
    /// The run; of a rank, its form on one device.
    fn session(&self) -> &Session {
        match self {
            Self::Alone(session) => session,
            Self::Rank(divided) => &divided.session,
        }
    }

    /// Rounds of steps that show all others. Buckets of gradients are made anew in the second step.
    fn rounds(&self) -> usize {
        match self {
            Self::Alone(_) => STEPS,
            Self::Rank(_) => STEPS + 1,
        }
    }

    fn train(&self, device: &Device, run: &RunSettings, on_step: &mut OnStep<'_>) -> Result<()> {
        match self {
            Self::Alone(session) => Ok(session.train_with(device, run, on_step).map(drop)?),
            Self::Rank(divided) => {
                let settings = DataParallelSettings { run: run.clone(), ..divided.settings.clone() };
                divided.train_with(&settings, std::slice::from_ref(device), on_step).map(drop)
            }
        }
    }
}

impl Session {
    /// Trains on a device that keeps a history for the first rounds of steps, which show what the others take. Returns its requests, too; `None` if it failed, if
    /// they do not repeat, or if it has many micro-batches, of which fewer show the others.
    pub fn train_first(
        &self,
        device: &Device,
        continuation: &mut Continuation<'_>,
        on_step: &mut OnStep<'_>,
    ) -> (Result<RunResult, Failed>, Option<MadeRun>) {
        let period = self.run.period();
        let first = RunSettings { steps: self.run.steps.min(STEPS.saturating_mul(period)), ..self.run.clone() };
        let mut ends = Vec::new();
        let trained = self.train_as(device, &first, continuation, &mut |progress| {
            let usage = device.usage();
            ends.push((usage.n_alloc() + usage.n_free()) as usize);
            on_step(progress)
        });
        let repeats = trained.is_ok() && self.run.accumulate <= MICRO_BATCHES;
        let requests = if repeats { self.repeating(device, &ends) } else { None };
        let made = requests.map(|requests| MadeRun {
            course: Course { requests, period, most: self.most_steps() },
            deviations: device.deviations(),
        });
        (trained, made)
    }

    /// Memory of the run with enough memory, from a dry run until memory is flat, or of at least so many steps.
    ///
    /// # Errors
    /// Those of [`train_from`](Self::train_from); [`Error::Interrupted`] if it was stopped.
    pub fn needs(&self, least: usize, stop: &dyn Fn() -> bool) -> Result<Needs> {
        let (target, device) = self.with_memory_enough()?;
        // An allocator alone tells what further steps take in a twentieth of the time.
        if let Known::All(course, _) = course(&Dry::Alone(self), least, None, stop)?.0
            && let Served::All { needs, .. } = course.until_flat(&mut *target.allocator()?)?
            && !stop()
        {
            return Ok(needs);
        }
        self.train_until_flat((&target, &device), (least, self.most_steps()), stop)?;
        if stop() { Err(Error::Interrupted) } else { Ok(taken(&device)) }
    }
}

/// Finds the requests of a run: a dry run of a few steps and micro-batches shows the others, unless they differ. Returns the number of allocations made for that,
/// too. The run has at least `least` steps. `room`: bytes beyond which nothing need be known.
///
/// # Errors
/// Those of the run, other than that memory runs out.
pub(super) fn course(dry: &Dry<'_>, least: usize, room: Option<u64>, stop: &dyn Fn() -> bool) -> Result<(Known, u64)> {
    let session = dry.session();
    if !session.makes_only_requests() {
        return Ok((Known::NotReplayable, 0));
    }
    let (period, accumulate, turns) = (session.run.period(), session.run.accumulate, &session.run.turns);
    let most = session.most_steps().max(least);
    let few = match turns.batches.is_empty() && turns.lengths.is_empty() {
        true => accumulate.min(MICRO_BATCHES),
        false => accumulate,
    };
    let rounds = |rounds: usize| most.min(rounds.saturating_mul(period));
    let known = |requests, deviations| Known::All(Arc::new(Course { requests, period, most }), deviations);
    let run = RunSettings { accumulate: few, steps: rounds(dry.rounds()), ..session.run.clone() };
    let (noted, work) = requests_of(dry, &run, room, stop)?;
    let (requests, deviations) = match noted {
        Ok(noted) => noted,
        Err(known) => return Ok((known, work)),
    };
    let each = if few < accumulate { requests.with_micro_batches(accumulate) } else { Some(requests) };
    let whole = each.and_then(|each| if each.steps() < most { each.repeating(period) } else { Some(each) });
    if let Some(requests) = whole {
        return Ok((known(requests, deviations), work));
    }
    let run = RunSettings { steps: rounds(MOST_DIFFERENT_ROUNDS), ..session.run.clone() };
    let (noted, more) = requests_of(dry, &run, room, stop)?;
    let known = match noted {
        Ok((requests, deviations)) => known(requests.clone().repeating(period).unwrap_or(requests), deviations),
        Err(known) => known,
    };
    Ok((known, work + more))
}

/// Returns the requests of a run with these settings and its deviations, or what else is known.
fn requests_of(dry: &Dry<'_>, run: &RunSettings, room: Option<u64>, stop: &dyn Fn() -> bool) -> Result<(Found, u64)> {
    let device = dry.session().target.noting(room)?.open()?;
    let trained = dry.train(&device, run, &mut |_| {
        device.phase(STEP_ENDED);
        flow(stop)
    });
    let work = device.usage().n_alloc();
    match (trained, room) {
        (Ok(_), _) => {}
        (Err(Error::Core(error)), Some(room)) if error.is_out_of_memory() => {
            return Ok((Err(Known::Exceeds(room)), work));
        }
        (Err(error), _) => return Err(error),
    }
    let begins_with = run.schedule.begins_with().map_or("", Phase::name);
    let requests = device.with_ledger(|ledger| Requests::of_history(ledger, begins_with));
    let whole = requests.filter(|requests| requests.steps() == run.steps);
    Ok((whole.map(|requests| (requests, device.deviations())).ok_or(Known::NotReplayable), work))
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
