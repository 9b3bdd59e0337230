//! The requests of a run: sizes and order of its allocations and frees, which are the same for any allocator and any size of memory.
//!
//! A dry run finds them once. What each allocator makes of them is then found without the operators, some twenty times as fast; and micro-batches and steps
//! that only repeat the one before need no dry run of their own.

use std::collections::HashMap;
use std::ops::Range;

use lab_base::error::Result;
use lab_traces::replay::{Operation, Settings, Trace};
use memcore::memory::{Allocator, BlockId, Event, Ledger, Needs, Stream};

use super::flat::Ends;

/// Name of the phase that begins when a step has ended.
pub(super) const STEP_ENDED: &str = "step ended";

/// Name of the traces.
const NAME: &str = "run";

/// Micro-batches of a step that show all others: the first, one between, and the last.
pub(super) const MICRO_BATCHES: usize = 3;

/// Rounds of steps that show all others.
pub(super) const STEPS: usize = 2;

/// The requests of a run, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Requests {
    trace: Trace,
    /// Number of requests until the end of each step.
    ends: Vec<usize>,
    /// Number of requests until the beginning of each micro-batch.
    begins: Vec<usize>,
    /// The steps at their end that the run goes on to repeat.
    again: Option<Again>,
    /// The last micro-batch of each step, and how often it is repeated.
    micro_batches: Vec<Again>,
    times: usize,
}

/// A part that is made again and again.
#[derive(Clone, Debug, PartialEq)]
struct Again {
    part: Range<usize>,
    /// Number of allocations before the part.
    before: u32,
    /// Allocations that the part finds, each with the one that lives in its stead after the part.
    pairs: Vec<(u32, u32)>,
}

/// Who serves requests.
trait Memory {
    /// Takes memory; `None` if there is none.
    fn take(&mut self, bytes: u64) -> Result<Option<BlockId>>;

    fn give(&mut self, block: BlockId);

    /// How its blocks lie; `None` if that is never like before.
    fn layout(&self) -> Option<u64>;
}

struct Serving<'a>(&'a mut dyn Allocator);

impl Memory for Serving<'_> {
    fn take(&mut self, bytes: u64) -> Result<Option<BlockId>> {
        match self.0.allocate(bytes, Stream::DEFAULT, &mut |_| {}) {
            Ok(block) => Ok(Some(block.id)),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn give(&mut self, block: BlockId) {
        self.0.free(block, &mut |_| {});
    }

    fn layout(&self) -> Option<u64> {
        Some(self.0.layout())
    }
}

/// What came of a run's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// All were served.
    All {
        needs: Needs,
        /// Number of requests that were served until the run was flat, or ended.
        requests: usize,
    },
    /// There was no memory for the last of so many.
    Refused { requests: usize },
}

impl Requests {
    /// The requests in the history of a device, from its first allocation on. A micro-batch begins with the phase of this name. `None` if a history has more
    /// than allocations and frees on one stream, or no step.
    pub(super) fn of_history(ledger: &Ledger, begins_with: &str) -> Option<Self> {
        let (mut made, mut ends, mut begins) = (0, Vec::new(), Vec::new());
        for event in ledger.history() {
            match *event {
                Event::Alloc { .. } | Event::Free { .. } => made += 1,
                Event::Phase { phase } => match ledger.phase_name(phase) {
                    STEP_ENDED => ends.push(made),
                    name if name == begins_with => begins.push(made),
                    _ => {}
                },
                _ => {}
            }
        }
        Self::of_steps(ledger, ends, begins)
    }

    /// The requests in the history of a device, whose steps ended and whose micro-batches began after so many of them. `None` if a history has more than
    /// allocations and frees on one stream, or no step.
    pub(super) fn of_steps(ledger: &Ledger, ends: Vec<usize>, mut begins: Vec<usize>) -> Option<Self> {
        let is_usual = |event: &Event| match event {
            Event::Alloc { stream, .. } => *stream == Stream::DEFAULT,
            Event::Oom { .. } | Event::ResetPeak => false,
            _ => true,
        };
        let history = Some(ledger.history()).filter(|history| history.iter().all(is_usual))?;
        let trace = Trace::of_history(NAME, history).ok()?;
        // What ends with the program is in no peak.
        let end = *ends.last()?;
        begins.retain(|at| *at < end);
        Self::new(trace.operations().get(..end)?.to_vec(), ends, begins)
    }

    fn new(operations: Vec<Operation>, ends: Vec<usize>, begins: Vec<usize>) -> Option<Self> {
        let trace = Trace::new(NAME, Settings::default(), operations).ok()?;
        Some(Self { trace, ends, begins, again: None, micro_batches: Vec::new(), times: 0 })
    }

    fn operations(&self) -> &[Operation] {
        self.trace.operations()
    }

    /// Those of a run that differs by sizes alone: of allocations by number, in order, each with what it took and what it takes. `None` if one took something
    /// else.
    pub(super) fn resized(&self, sizes: impl IntoIterator<Item = (u64, [u64; 2])>) -> Option<Self> {
        let mut operations = self.operations().to_vec();
        let mut allocations = (0_u64..).zip(operations.iter_mut().filter_map(|operation| match operation {
            Operation::Allocate { bytes, .. } => Some(bytes),
            _ => None,
        }));
        for (number, [before, after]) in sizes {
            // What ends with the program is in no peak.
            let Some((_, bytes)) = allocations.find(|(at, _)| *at == number) else { break };
            if *bytes != before {
                return None;
            }
            *bytes = after;
        }
        drop(allocations);
        let trace = Trace::new(NAME, Settings::default(), operations).ok()?;
        Some(Self { trace, ..self.clone() })
    }

    /// Number of steps.
    pub(super) fn steps(&self) -> usize {
        self.ends.len()
    }

    /// Those of a run with more micro-batches in each step, from a run with [`MICRO_BATCHES`]: the last one is repeated. `None` unless it began by repeating the
    /// second.
    pub(super) fn with_micro_batches(mut self, wants: usize) -> Option<Self> {
        if self.begins.len() != self.ends.len() * MICRO_BATCHES {
            return None;
        }
        let numbers = Numbers::from_operations(self.operations());
        let last = |begins: &[usize]| {
            let second = begins[1]..begins[2];
            let part = begins[2]..begins[2] + second.len();
            let pairs = numbers.repeated(self.operations(), &second, &part)?;
            Some(Again { before: numbers.before[part.start], part, pairs })
        };
        self.micro_batches = self.begins.chunks(MICRO_BATCHES).map(last).collect::<Option<_>>()?;
        self.times = wants.checked_sub(MICRO_BATCHES)?;
        Some(self)
    }

    /// Those of a run that goes on by repeating its last round of so many steps. `None` unless that left memory as it found it.
    pub(super) fn repeating(mut self, period: usize) -> Option<Self> {
        let end = *self.ends.last()?;
        let start = *self.ends.get(self.steps().checked_sub(period + 1)?)?;
        let numbers = Numbers::from_operations(self.operations());
        let pairs = numbers.replaced(start, end)?;
        self.again = Some(Again { part: start..end, before: numbers.before[start], pairs });
        Some(self)
    }

    /// Serves them until memory is flat, or for `most` steps. `period`: steps of a round.
    ///
    /// # Errors
    /// The driver's, other than that there is no memory.
    pub(super) fn until_flat(&self, allocator: &mut dyn Allocator, period: usize, most: usize) -> Result<Served> {
        let mut ends = Ends::new(period);
        let mut service = Service::new(self, Serving(&mut *allocator));
        let all = service.steps(most, &mut |memory, step| {
            let again = step > self.steps();
            step.is_multiple_of(period) && memory.layout().is_some_and(|layout| ends.lie_as_before(layout)) && again
        })?;
        let requests = service.served;
        if !all {
            return Ok(Served::Refused { requests });
        }
        let stats = allocator.stats();
        let (allocated_bytes, reserved_bytes) = (stats.allocated_bytes.all.peak, stats.reserved_bytes.all.peak);
        Ok(Served::All { needs: Needs { allocated_bytes, reserved_bytes }, requests })
    }
}

/// Requests as they are served.
struct Service<'a, M> {
    requests: &'a Requests,
    memory: M,
    /// The block of each allocation that lives, by its number in `requests`.
    blocks: Vec<Option<BlockId>>,
    /// Number of the next allocation.
    number: usize,
    served: usize,
}

impl<'a, M: Memory> Service<'a, M> {
    fn new(requests: &'a Requests, memory: M) -> Self {
        let blocks = vec![None; requests.trace.allocations()];
        Self { requests, memory, blocks, number: 0, served: 0 }
    }

    /// Serves the requests of so many steps. `ended` is called after each with its number, and ends it by returning true. False if there was no memory.
    fn steps(&mut self, steps: usize, ended: &mut dyn FnMut(&M, usize) -> bool) -> Result<bool> {
        let Requests { ends, again, .. } = self.requests;
        let mut at = 0;
        for step in 1..=steps {
            let end = match (ends.get(step - 1), again) {
                (Some(end), _) => *end,
                (None, None) => break,
                (None, Some(again)) => {
                    if at == again.part.end {
                        self.enter(again);
                        at = again.part.start;
                    }
                    ends.iter().copied().find(|end| *end > at).unwrap_or(again.part.end)
                }
            };
            if !self.step(at..end)? {
                return Ok(false);
            }
            at = end;
            if ended(&self.memory, step) {
                break;
            }
        }
        Ok(true)
    }

    /// Serves a step with all of its micro-batches.
    fn step(&mut self, part: Range<usize>) -> Result<bool> {
        match self.requests.micro_batches.iter().find(|last| part.contains(&last.part.start)) {
            None => self.part(part),
            Some(last) => Ok(self.part(part.start..last.part.end)?
                && self.repeated(last)?
                && self.part(last.part.end..part.end)?),
        }
    }

    /// Repeats the last micro-batch of a step. Once memory lies as after an earlier one, the others only go through what was between.
    fn repeated(&mut self, last: &Again) -> Result<bool> {
        let (mut left, mut done, mut repeats) = (self.requests.times, 0, false);
        let mut seen = HashMap::new();
        while left > 0 {
            self.enter(last);
            if !self.part(last.part.clone())? {
                return Ok(false);
            }
            (left, done) = (left - 1, done + 1);
            let layout = if repeats { None } else { self.memory.layout() };
            if let Some(before) = layout.and_then(|layout| seen.insert(layout, done)) {
                repeats = true;
                left %= done - before;
            }
        }
        Ok(true)
    }

    /// Goes back to the beginning of a part: what it finds is what lives in its stead now.
    fn enter(&mut self, again: &Again) {
        for (earlier, later) in &again.pairs {
            self.blocks[*earlier as usize] = self.blocks[*later as usize];
        }
        self.number = again.before as usize;
    }

    /// Serves a part. False if there was no memory.
    fn part(&mut self, part: Range<usize>) -> Result<bool> {
        self.served += part.len();
        for operation in &self.requests.operations()[part] {
            match *operation {
                Operation::Allocate { bytes, .. } => {
                    let block = if bytes == 0 { None } else { self.memory.take(bytes)? };
                    if block.is_none() && bytes > 0 {
                        return Ok(false);
                    }
                    self.blocks[self.number] = block;
                    self.number += 1;
                }
                Operation::Free { allocation } => {
                    let block = self.blocks[allocation as usize].take();
                    block.into_iter().for_each(|block| self.memory.give(block));
                }
                _ => {}
            }
        }
        Ok(true)
    }
}

/// Where the allocations of a list of requests are made and freed.
struct Numbers {
    /// Number of allocations before each request, and before the end.
    before: Vec<u32>,
    /// Size of each allocation.
    sizes: Vec<u64>,
    /// The request that frees each; beyond the last one, if none does.
    freed: Vec<usize>,
}

impl Numbers {
    fn from_operations(all: &[Operation]) -> Self {
        let mut numbers = Self { before: Vec::with_capacity(all.len() + 1), sizes: Vec::new(), freed: Vec::new() };
        for (at, request) in all.iter().enumerate() {
            numbers.before.push(numbers.sizes.len() as u32);
            match *request {
                Operation::Allocate { bytes, .. } => {
                    numbers.sizes.push(bytes);
                    numbers.freed.push(usize::MAX);
                }
                Operation::Free { allocation } => numbers.freed[allocation as usize] = at,
                _ => {}
            }
        }
        numbers.before.push(numbers.sizes.len() as u32);
        numbers
    }

    /// The allocations that these requests make.
    fn made_in(&self, part: &Range<usize>) -> Range<u32> {
        self.before[part.start]..self.before[part.end]
    }

    /// Pairs of allocations of `first` and `then`, which follows it. `None` unless `then` requests the same sizes in the same order, and frees of what it did not
    /// make itself only what `first` left; and nothing that `first` made outlives `then`. A program in whose state nothing else changes then goes on so.
    fn repeated(&self, all: &[Operation], first: &Range<usize>, then: &Range<usize>) -> Option<Vec<(u32, u32)>> {
        let (earlier, later) = (self.made_in(first), self.made_in(then));
        let size = |number: u32| self.sizes[number as usize];
        let same = |pair: (&Operation, &Operation)| match pair {
            (Operation::Allocate { bytes: a, .. }, Operation::Allocate { bytes: b, .. }) => a == b,
            (&Operation::Free { allocation: a }, &Operation::Free { allocation: b }) if later.contains(&b) => {
                earlier.contains(&a) && a - earlier.start == b - later.start
            }
            (&Operation::Free { allocation: a }, &Operation::Free { allocation: b }) => {
                earlier.contains(&b) && a < earlier.start && size(a) == size(b)
            }
            _ => false,
        };
        let repeats = all[first.clone()].iter().zip(all.get(then.clone())?).all(same)
            && earlier.clone().all(|number| self.freed[number as usize] < then.end);
        repeats.then(|| earlier.zip(later.clone()).collect())
    }

    /// Pairs of the allocations that live at `before` but not at `end`, and those that live at `end` instead. `None` unless they have the same sizes in the same
    /// order. What follows then finds memory as what stands between found it.
    fn replaced(&self, before: usize, end: usize) -> Option<Vec<(u32, u32)>> {
        let freed = |number: &u32| self.freed[*number as usize];
        let gone = (0..self.before[before]).filter(|number| (before..end).contains(&freed(number)));
        let new = (self.before[before]..self.before[end]).filter(|number| freed(number) >= end);
        let (gone, new): (Vec<u32>, Vec<u32>) = (gone.collect(), new.collect());
        let size = |number: &u32| self.sizes[*number as usize];
        let same = gone.len() == new.len() && gone.iter().map(size).eq(new.iter().map(size));
        same.then(|| gone.into_iter().zip(new).collect())
    }
}

#[cfg(test)]
mod tests;
