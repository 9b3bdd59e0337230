//! The requests of a run: sizes and order of its allocations and frees, which are the same for any allocator and any size of memory.
//!
//! A dry run finds them once. What each allocator makes of them is then found without the operators, some twenty times as fast; and micro-batches and steps
//! that only repeat the one before need no dry run of their own.

use std::ops::Range;

use lab_base::error::Result;
use lab_traces::replay::{Observer, Operation, Settings, Trace, replay};
use memcore::memory::{Allocator, Block, Event, Ledger, Needs, Stream};

/// Name of the phase that begins when a step has ended.
pub(super) const STEP_ENDED: &str = "step ended";

/// Name of the traces.
const NAME: &str = "run";

/// Micro-batches of a step that show all others: the first, one between, and the last.
pub(super) const MICRO_BATCHES: usize = 3;

/// Steps that show all others.
pub(super) const STEPS: usize = 2;

/// The requests of a run, in order.
#[derive(Debug, PartialEq)]
pub(super) struct Requests {
    trace: Trace,
    /// Number of requests until the end of each step.
    ends: Vec<usize>,
    /// Number of requests until the beginning of each micro-batch.
    begins: Vec<usize>,
}

/// Whether an allocator had no memory for a request.
#[derive(Default)]
struct Refused(bool);

impl Observer for Refused {
    fn allocated(&mut self, _operation: usize, block: Option<&Block>) {
        self.0 |= block.is_none();
    }
}

impl Requests {
    /// The requests in the history of a device, from its first allocation on. A micro-batch begins with the phase of this name. `None` if a history has more
    /// than allocations and frees on one stream.
    pub(super) fn of_history(ledger: &Ledger, begins_with: &str) -> Option<Self> {
        let (mut made, mut ends, mut begins) = (0, Vec::new(), Vec::new());
        for event in ledger.history() {
            match *event {
                Event::Alloc { stream: Stream::DEFAULT, .. } | Event::Free { .. } => made += 1,
                Event::Phase { phase } => match ledger.phase_name(phase) {
                    STEP_ENDED => ends.push(made),
                    name if name == begins_with => begins.push(made),
                    _ => {}
                },
                Event::Alloc { .. } | Event::Oom { .. } | Event::ResetPeak => return None,
                _ => {}
            }
        }
        let trace = Trace::of_history(NAME, ledger.history()).ok()?;
        // What ends with the program is in no peak.
        Self { trace, ends, begins }.until(usize::MAX)
    }

    fn new(operations: Vec<Operation>, ends: Vec<usize>, begins: Vec<usize>) -> Option<Self> {
        Some(Self { trace: Trace::new(NAME, Settings::default(), operations).ok()?, ends, begins })
    }

    fn operations(&self) -> &[Operation] {
        self.trace.operations()
    }

    /// Those until the end of this step, or of the last one. `None` without a step.
    pub(super) fn until(&self, step: usize) -> Option<Self> {
        let ends = &self.ends[..step.min(self.ends.len())];
        let end = *ends.last()?;
        let begins = self.begins.iter().copied().filter(|at| *at < end).collect();
        Self::new(self.operations()[..end].to_vec(), ends.to_vec(), begins)
    }

    /// Number of steps.
    pub(super) fn steps(&self) -> usize {
        self.ends.len()
    }

    /// Number of requests.
    pub(super) fn len(&self) -> usize {
        self.operations().len()
    }

    /// Those of a run with more micro-batches in each step, from a run with [`MICRO_BATCHES`]: the second is repeated. `None` unless the last one begins by
    /// repeating it.
    pub(super) fn with_micro_batches(&self, wants: usize) -> Option<Self> {
        if self.begins.len() != self.ends.len() * MICRO_BATCHES {
            return None;
        }
        let numbers = Numbers::of(self.operations());
        let mut longer = Longer::of(self, &numbers);
        for begins in self.begins.chunks(MICRO_BATCHES) {
            let second = begins[1]..begins[2];
            let third = begins[2]..begins[2] + second.len();
            let pairs = numbers.repeated(self.operations(), &second, &third)?;
            longer.repeat(&pairs, &third, wants.checked_sub(MICRO_BATCHES)?, Repeated::MicroBatches);
        }
        longer.end()
    }

    /// Those of a run with so many steps: the last one is repeated. `None` unless it left memory as it found it.
    pub(super) fn with_steps(&self, wants: usize) -> Option<Self> {
        if wants <= self.ends.len() {
            return self.until(wants);
        }
        let &[.., before, end] = self.ends.as_slice() else { return None };
        let numbers = Numbers::of(self.operations());
        let pairs = numbers.replaced(before, end)?;
        let mut longer = Longer::of(self, &numbers);
        longer.repeat(&pairs, &(before..end), wants - self.ends.len(), Repeated::Steps);
        longer.end()
    }

    /// Serves them; `None` if memory runs out.
    ///
    /// # Errors
    /// The driver's, other than that there is no memory.
    pub(super) fn on(&self, allocator: &mut dyn Allocator) -> Result<Option<Needs>> {
        let mut refused = Refused::default();
        replay(&self.trace, allocator, &mut refused)?;
        let stats = allocator.stats();
        let (allocated_bytes, reserved_bytes) = (stats.allocated_bytes.all.peak, stats.reserved_bytes.all.peak);
        Ok((!refused.0).then_some(Needs { allocated_bytes, reserved_bytes }))
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
    fn of(all: &[Operation]) -> Self {
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

/// A longer list of requests, as it is written.
struct Longer<'a> {
    from: &'a Requests,
    numbers: &'a Numbers,
    /// Requests of `from` that are written.
    written: usize,
    /// Ends of its steps that are written.
    ended: usize,
    /// The new number of each allocation of `from`.
    renamed: Vec<u32>,
    made: u32,
    operations: Vec<Operation>,
    ends: Vec<usize>,
}

impl<'a> Longer<'a> {
    fn of(from: &'a Requests, numbers: &'a Numbers) -> Self {
        let (renamed, operations) = (vec![0; numbers.sizes.len()], Vec::with_capacity(from.len()));
        Self { from, numbers, written: 0, ended: 0, renamed, made: 0, operations, ends: Vec::new() }
    }

    /// Writes a part.
    fn copy(&mut self, part: Range<usize>) {
        for at in part {
            let mut operation = self.from.operations()[at];
            match &mut operation {
                Operation::Allocate { .. } => {
                    self.renamed[self.numbers.before[at] as usize] = self.made;
                    self.made += 1;
                }
                Operation::Free { allocation } => *allocation = self.renamed[*allocation as usize],
                _ => {}
            }
            self.operations.push(operation);
        }
    }

    /// Writes what stands until the end of `part`, then `part` again, each time with the first of each of these pairs replaced by the second, as it was last made.
    fn repeat(&mut self, pairs: &[(u32, u32)], part: &Range<usize>, times: usize, what: Repeated) {
        self.until(part.end);
        for _ in 0..times {
            if what == Repeated::Steps {
                self.ends.push(self.operations.len());
            }
            for (earlier, later) in pairs {
                self.renamed[*earlier as usize] = self.renamed[*later as usize];
            }
            self.copy(part.clone());
        }
    }

    /// Writes up to this request, and the ends of steps before it.
    fn until(&mut self, end: usize) {
        while let Some(at) = self.from.ends.get(self.ended).copied().filter(|at| *at < end) {
            self.copy(self.written..at);
            self.written = at;
            self.ends.push(self.operations.len());
            self.ended += 1;
        }
        self.copy(self.written..end);
        self.written = end;
    }

    fn end(mut self) -> Option<Requests> {
        self.until(self.from.len());
        self.ends.push(self.operations.len());
        Requests::new(self.operations, self.ends, Vec::new())
    }
}

/// What is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeated {
    MicroBatches,
    Steps,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes requests as a program makes them.
    #[derive(Default)]
    struct Program {
        operations: Vec<Operation>,
        ends: Vec<usize>,
        begins: Vec<usize>,
        made: u32,
    }

    impl Program {
        fn take(&mut self, bytes: u64) -> u32 {
            self.operations.push(Operation::Allocate { bytes, stream: 0, pool: 0, served: true });
            self.made += 1;
            self.made - 1
        }

        fn give(&mut self, allocation: u32) {
            self.operations.push(Operation::Free { allocation });
        }

        fn give_back(&mut self, held: &mut Option<u32>) {
            held.take().into_iter().for_each(|number| self.give(number));
        }
    }

    /// A program like a training: gradients are made in the first micro-batch and freed in the next step, the optimizer's state is made once, and each loss lives
    /// until the next. `leak`: bytes that each micro-batch or each step leaves.
    fn training(steps: usize, micro_batches: usize, leak: Option<Repeated>) -> Requests {
        let mut program = Program::default();
        let parameter = program.take(1000);
        let (mut gradient, mut loss, mut state) = (None, None, None);
        for _ in 0..steps {
            program.give_back(&mut gradient);
            for _ in 0..micro_batches {
                program.begins.push(program.operations.len());
                let batch = program.take(64);
                let output = program.take(640);
                program.give_back(&mut loss);
                loss = Some(program.take(4));
                let new = program.take(1000);
                match gradient {
                    None => gradient = Some(new),
                    Some(_) => program.give(new),
                }
                program.give(output);
                program.give(batch);
                if leak == Some(Repeated::MicroBatches) {
                    program.take(1);
                }
            }
            if state.is_none() {
                state = Some(program.take(2000));
            }
            if leak == Some(Repeated::Steps) {
                program.take(1);
            }
            program.ends.push(program.operations.len());
        }
        program.give(parameter);
        Requests::new(program.operations, program.ends, program.begins).unwrap().until(steps).unwrap()
    }

    #[test]
    fn what_repeats_need_not_run() {
        let few = training(STEPS, MICRO_BATCHES, None);
        for (steps, micro_batches) in [(2, 3), (2, 4), (3, 3), (7, 5), (16, 32)] {
            let more = few.with_micro_batches(micro_batches).unwrap().with_steps(steps).unwrap();
            let whole = training(steps, micro_batches, None);
            assert_eq!((more.trace, more.ends), (whole.trace, whole.ends), "{steps} steps of {micro_batches}");
        }
        let single = training(STEPS, 1, None).with_steps(9).unwrap();
        assert_eq!(single.trace, training(9, 1, None).trace);
        assert_eq!(single.until(4).unwrap().trace, training(4, 1, None).trace);
    }

    #[test]
    fn what_grows_does_not_repeat() {
        assert_eq!(training(STEPS, MICRO_BATCHES, Some(Repeated::MicroBatches)).with_micro_batches(9), None);
        assert_eq!(training(STEPS, 1, Some(Repeated::MicroBatches)).with_steps(9), None);
        assert_eq!(training(STEPS, MICRO_BATCHES, Some(Repeated::Steps)).with_steps(9), None);
        // The first step is unlike the others: alone it shows nothing.
        assert_eq!(training(1, 1, None).with_steps(9), None);
        assert_eq!(training(STEPS, 2, None).with_micro_batches(9), None);
    }
}
