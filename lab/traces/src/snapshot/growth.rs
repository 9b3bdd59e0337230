//! Finds leftovers: memory live at the end, and memory that grows from step to step.

use rustc_hash::FxHashMap;

use super::held::{Held, by_stack};
use super::model::{Action, FrameId, Snapshot, StackId};

/// Memory that a trace leaves behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leftovers {
    /// Allocated within the trace and live at its end, by stack, largest first.
    pub live: Vec<Held>,
    /// How memory went from step to step.
    pub course: Course,
}

/// How memory went from step to step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// Bytes live at the end of each step; empty if the recording has no steps.
    pub steps: Vec<u64>,
    /// What the steps say together.
    pub trend: Trend,
    /// Memory that grows, by stack, most bytes first; and memory that grew until much of it was freed at once.
    pub growing: Vec<Growth>,
}

/// What the ends of steps say together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trend {
    /// There are too few steps to tell.
    #[default]
    Unseen,
    /// The last step requested what the step before it did, and left the same blocks.
    Flat,
    /// Steps differ, and nothing keeps growing.
    Bounded,
    /// Something grows.
    Grows,
}

/// Memory of one stack that grows with the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Stack that allocates it.
    pub stack: StackId,
    /// Bytes of the largest allocation.
    pub largest: u64,
    /// Bytes of the smallest.
    pub smallest: u64,
    /// Allocations that were added and are live at the last end.
    pub more: u64,
    /// Bytes that were added over these steps; of memory that is freed at once now and then, what was added in all.
    pub more_bytes: u64,
    /// Number of steps over which it grew; of memory that is freed at once now and then, those in which it did not fall.
    pub steps: u64,
    /// True if the allocations of several steps were freed in one step: what Python's garbage collector does with reference cycles.
    pub freed_together: bool,
}

impl Growth {
    /// Returns the bytes that a step adds, on average.
    pub fn bytes_per_step(&self) -> u64 {
        self.more_bytes / self.steps.max(1)
    }
}

/// Number of first steps in which memory that stays may be allocated: optimizer states, workspaces.
const SETTLING: usize = 2;

/// Least number of rises. One rise is not a leak: a tensor may be held over the end of a step and freed in the next.
const MIN_RISES: usize = 2;

/// Least number of steps at which growth can be told.
pub const MIN_STEPS: usize = SETTLING + MIN_RISES;

/// From this number of steps on, memory need not rise in every step: a leak may be in a branch.
const MANY: usize = 7;

/// Least number of those steps that must have added something, then.
const ADDED: usize = 3;

impl Snapshot {
    /// Returns the end of each training step, if ranges name them: ranges of optimizers' steps or of the profiler.
    pub(crate) fn step_ends(&self, device: usize) -> Vec<i64> {
        let ends = |wanted: fn(&str) -> bool| -> Vec<i64> {
            let ends = self.annotations.iter().filter(|a| !a.start && a.device as usize == device);
            ends.filter(|a| wanted(self.text(a.name))).map(|a| a.time_us).collect()
        };
        let profiler = ends(|name| name.starts_with("ProfilerStep#"));
        if !profiler.is_empty() {
            return profiler;
        }
        ends(|name| name.starts_with("Optimizer.step#") || name == "step")
    }

    /// Returns what was allocated and not freed, and what grows.
    pub fn leftovers(&self, device: usize) -> Leftovers {
        let trace = self.trace(device);
        let live = self.live_after(device, trace.len().checked_sub(1)).into_iter();
        let live = live.filter(|(_, event, ..)| event.is_some());
        let (mut ends, mut times) = (Vec::new(), self.step_ends(device).into_iter().peekable());
        for (at, event) in trace.iter().enumerate() {
            while times.next_if(|end| *end < event.time_us).is_some() {
                ends.push(at);
            }
        }
        ends.extend(times.map(|_| trace.len()));
        Leftovers {
            live: by_stack(live.map(|(_, _, stack, bytes)| (stack, bytes))),
            course: self.course(device, &ends),
        }
    }

    /// Finds ends of steps by how many allocations and frees a process had made until each: numbers of entries before the end. `made` is the number of
    /// allocations until the end of the trace. Ends from before the trace are left out.
    pub fn ends_at(&self, device: usize, counts: &[(u64, u64)], made: u64) -> Vec<usize> {
        let trace = self.trace(device);
        let of = |action: Action| trace.iter().filter(|event| event.action == action).count() as u64;
        let (before, last) = (made.saturating_sub(of(Action::Alloc)), counts.last().copied().unwrap_or_default());
        let (mut ends, mut allocations, mut frees) = (Vec::new(), before, 0);
        // Frees from before the trace are as many as are missing; where nothing is missing there are none.
        frees += if before == 0 { 0 } else { last.1.saturating_sub(of(Action::FreeRequested)) };
        let mut wanted = counts.iter().skip_while(|(made, _)| *made < before).peekable();
        for (at, event) in trace.iter().enumerate() {
            while wanted.next_if(|(made, freed)| allocations >= *made && frees >= *freed).is_some() {
                ends.push(at);
            }
            match event.action {
                Action::Alloc => allocations += 1,
                Action::FreeRequested => frees += 1,
                _ => {}
            }
        }
        ends.extend(wanted.filter(|(made, freed)| allocations >= *made && frees >= *freed).map(|_| trace.len()));
        ends
    }

    /// Returns how memory went over steps that ended after these numbers of entries.
    pub fn course(&self, device: usize, ends: &[usize]) -> Course {
        let lives = self.lived(device, ends);
        let count = ends.len();
        let mut steps = vec![0_u64; count];
        let (mut groups, alike): (FxHashMap<StackId, Vec<Lived>>, _) = (FxHashMap::default(), self.alike());
        for life in &lives {
            for step in life.ends(count) {
                steps[step] = steps[step].saturating_add(life.bytes);
            }
            // What existed before the trace does not grow.
            if life.crosses(count) && !life.before {
                groups.entry(alike.get(life.stack.0 as usize).copied().unwrap_or(life.stack)).or_default().push(*life);
            }
        }
        let mut course = Course { trend: Trend::Unseen, growing: Vec::new(), steps };
        let falls = count >= SETTLING && course.steps.last() < course.steps.get(SETTLING - 1);
        if count >= MIN_STEPS && !falls {
            course.growing = groups.iter().filter_map(|(stack, lives)| growth(*stack, lives, count)).collect();
            course.growing.sort_unstable_by_key(|growth| (std::cmp::Reverse(growth.more_bytes), growth.stack));
        }
        course.trend = trend(&course, &lives);
        course
    }

    /// Returns what grows over steps that ended after these numbers of entries, if one of every `period` steps adds it: the others may be
    /// alike. Each period is taken as one step.
    pub fn grows_by_period(&self, device: usize, ends: &[usize], period: usize) -> Vec<Growth> {
        if period < 2 {
            return Vec::new();
        }
        let mut sparse: Vec<usize> = ends.iter().rev().step_by(period).copied().collect();
        sparse.reverse();
        let (mut groups, alike): (FxHashMap<StackId, Vec<Lived>>, _) = (FxHashMap::default(), self.alike());
        let stack_of = |stack: StackId| alike.get(stack.0 as usize).copied().unwrap_or(stack);
        for life in self.lived(device, ends) {
            groups.entry(stack_of(life.stack)).or_default().push(life);
        }
        let of_one_step = |growth: &Growth| {
            let lives = groups.get(&growth.stack).map(Vec::as_slice).unwrap_or_default();
            is_of_one_step(lives, ends.len(), period)
        };
        let found = self.course(device, &sparse).growing.into_iter();
        let grows = found.filter(|growth| (growth.more > 0 || !growth.freed_together) && of_one_step(growth));
        grows.map(|growth| Growth { steps: growth.steps * period as u64, ..growth }).collect()
    }

    /// Returns, for each stack, the first with the same frames where a rehearsal's own are left out: they differ from step to step.
    fn alike(&self) -> Vec<StackId> {
        let mut first: FxHashMap<Vec<FrameId>, StackId> = FxHashMap::default();
        let has_file = |frame: &FrameId| {
            self.frames.get(frame.0 as usize).is_some_and(|frame| self.text(frame.filename) != "<vramlab>")
        };
        let stacks = self.stacks.iter().enumerate();
        stacks
            .map(|(number, frames)| {
                let frames: Vec<FrameId> = frames.iter().copied().filter(|frame| has_file(frame)).collect();
                *first.entry(frames).or_insert(StackId(number as u32))
            })
            .collect()
    }

    /// Returns all allocations, with the steps in which they were made and freed.
    fn lived(&self, device: usize, ends: &[usize]) -> Vec<Lived> {
        let (mut lives, mut at): (Vec<Lived>, FxHashMap<u64, usize>) = (Vec::new(), FxHashMap::default());
        for (address, bytes, _) in self.before(device) {
            at.insert(address, lives.len());
            lives.push(Lived { stack: StackId(0), bytes, made: 0, freed: None, before: true });
        }
        let mut step = 0;
        for (entry, event) in self.trace(device).iter().enumerate() {
            while ends.get(step).is_some_and(|end| *end <= entry) {
                step += 1;
            }
            match event.action {
                Action::Alloc => {
                    at.insert(event.address, lives.len());
                    let life = Lived { stack: event.stack, bytes: event.bytes, made: step, freed: None, before: false };
                    lives.push(life);
                }
                Action::FreeRequested | Action::FreeCompleted => {
                    if let Some(life) = at.remove(&event.address) {
                        lives[life].freed = Some(step);
                    }
                }
                _ => {}
            }
        }
        lives
    }
}

/// Allocation, with the steps in which it was made and freed. The step after the last end has the number of ends.
#[derive(Clone, Copy, Debug)]
struct Lived {
    stack: StackId,
    bytes: u64,
    made: usize,
    freed: Option<usize>,
    /// True if it existed before the trace.
    before: bool,
}

impl Lived {
    /// Returns the steps at whose ends it lives.
    fn ends(&self, count: usize) -> std::ops::Range<usize> {
        let end = self.freed.unwrap_or(count).min(count);
        self.made.min(end)..end
    }

    /// True if it lives at the end of a step.
    fn crosses(&self, count: usize) -> bool {
        !self.ends(count).is_empty()
    }

    /// True if it lives at the end of the last step.
    fn stays(&self, count: usize) -> bool {
        self.ends(count).end == count && self.made < count
    }
}

/// True if what stays of these allocations, or all that was made, is of one of every `period` steps. The first steps do not count, nor does
/// what the last one holds, which may be replaced in the next.
fn is_of_one_step(lives: &[Lived], count: usize, period: usize) -> bool {
    let made = || lives.iter().filter(|life| life.made >= SETTLING && life.made < count);
    let stay: Vec<usize> =
        made().filter(|life| life.made + 1 < count && life.stays(count)).map(|life| life.made).collect();
    let steps = if stay.len() > 1 { stay } else { made().map(|life| life.made).collect() };
    steps.windows(2).all(|pair| pair[0] % period == pair[1] % period)
}

fn trend(course: &Course, lives: &[Lived]) -> Trend {
    let count = course.steps.len();
    if count < SETTLING + 1 {
        return Trend::Unseen;
    }
    let same = |of: &dyn Fn(usize) -> Vec<u64>| of(count - 1) == of(count - 2);
    let sorted = |mut bytes: Vec<u64>| {
        bytes.sort_unstable();
        bytes
    };
    let asked = |life: &&Lived, step: usize| life.made == step && !life.before;
    let requests = |step: usize| sorted(lives.iter().filter(|life| asked(life, step)).map(|life| life.bytes).collect());
    let blocks = |step: usize| {
        sorted(lives.iter().filter(|life| life.ends(count).contains(&step)).map(|life| life.bytes).collect())
    };
    let rose = course.steps[count - 1] > course.steps[SETTLING - 1];
    if same(&requests) && same(&blocks) {
        Trend::Flat
    } else if course.growing.iter().any(|growth| !growth.freed_together || growth.more > 0) {
        Trend::Grows
    } else if count < MANY && rose {
        Trend::Unseen
    } else {
        Trend::Bounded
    }
}

/// Returns the growth of one stack's memory, if it grows.
fn growth(stack: StackId, lives: &[Lived], count: usize) -> Option<Growth> {
    let (mut live, mut blocks) = (vec![0_u64; count], vec![0_u64; count]);
    for life in lives {
        for step in life.ends(count) {
            live[step] = live[step].saturating_add(life.bytes);
            blocks[step] += 1;
        }
    }
    let from = (SETTLING - 1).max(count / 3 * usize::from(count >= MANY));
    let together = freed_together(lives, count);
    // A tensor that is made anew and larger in every step leaves nothing behind, and grows.
    let rises = live[from..].windows(2).all(|pair| pair[1] > pair[0]);
    let is_new_most = || live[..=2 * (count - 1) / 3].iter().all(|earlier| *earlier < live[count - 1]);
    let grows = rises || count >= MANY && keeps_adding(lives, count) && (!loses(lives, count) || is_new_most());
    if !grows && !together {
        return None;
    }
    let (mut more_bytes, mut steps) = (live[count - 1].saturating_sub(live[from]), (count - 1 - from) as u64);
    if together {
        // A step in which memory was freed does not show what it added.
        let rising = || live[from..].windows(2).filter(|pair| pair[1] >= pair[0]);
        more_bytes = rising().map(|pair| pair[1] - pair[0]).sum();
        steps = rising().count() as u64;
    }
    // What the last step holds may be replaced in the next.
    let stay: Vec<u64> = lives
        .iter()
        .filter(|life| life.made >= SETTLING - 1 && life.made + 1 < count && life.stays(count))
        .map(|life| life.bytes)
        .collect();
    let sizes: Vec<u64> = if stay.is_empty() { lives.iter().map(|life| life.bytes).collect() } else { stay };
    let more = if grows { blocks[count - 1].saturating_sub(blocks[from]) } else { 0 };
    let (smallest, largest) = (*sizes.iter().min()?, *sizes.iter().max()?);
    Some(Growth { stack, largest, smallest, more, more_bytes, steps, freed_together: together })
}

/// Greatest chance with which memory that keeps growing may be taken for a cache that is full.
const CHANCE: f64 = 0.05;

/// True if what several steps added stays, and they have not stopped adding: the last third of the steps still adds, and if each step went on
/// adding as often as until the last one that did, as many steps without one would not be unlikely. The last two steps do not count: what
/// they hold may be replaced in the next.
fn keeps_adding(lives: &[Lived], count: usize) -> bool {
    let window = SETTLING..count - 2;
    let late = window.end - window.len().div_ceil(3);
    let stays = |step: usize| lives.iter().any(|life| life.made == step && life.stays(count));
    let added: Vec<usize> = window.filter(|step| stays(*step)).collect();
    let Some(last) = added.last().filter(|last| added.len() >= ADDED && **last >= late) else { return false };
    // The rule of succession: of few steps, none is certain to add.
    let seen = last + 1 - SETTLING;
    let without = (seen - added.len() + 1) as f64 / (seen + 2) as f64;
    without.powi((count - 3 - last) as i32) >= CHANCE
}

/// True if something that lived at the ends of several steps was freed: a buffer that is full replaces its oldest.
fn loses(lives: &[Lived], count: usize) -> bool {
    lives.iter().any(|life| is_old(life, count))
}

/// True if an allocation lived at the ends of several steps, after the first ones, and was freed before the last.
fn is_old(life: &Lived, count: usize) -> bool {
    life.made >= SETTLING - 1 && life.freed.is_some_and(|freed| freed < count && freed >= life.made + 2)
}

/// True if, once at least, what [`ADDED`] or more steps had added was freed in one step.
fn freed_together(lives: &[Lived], count: usize) -> bool {
    let mut freed: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
    for life in lives.iter().filter(|life| life.made >= SETTLING - 1) {
        if let Some(step) = life.freed.filter(|step| *step < count && *step > life.made) {
            freed.entry(step).or_default().push(life.made);
        }
    }
    freed.into_values().any(|mut made| {
        made.sort_unstable();
        made.dedup();
        made.len() >= ADDED
    })
}
