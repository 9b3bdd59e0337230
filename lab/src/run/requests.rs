//! The requests of a run: sizes and order of its allocations and frees, which are the same for any allocator and any size of memory.
//!
//! A dry run finds them once. What each allocator makes of them is then found without the operators, some twenty times as fast; and micro-batches and steps
//! that only repeat the one before need no dry run of their own.

use std::ops::Range;

use memcore::memory::{AllocId, Allocator, Block, BlockId, Event, Ledger, Needs, Stream};

/// Name of the phase that begins when a step has ended.
pub(super) const STEP_ENDED: &str = "step ended";

/// Micro-batches of a step that show all others: the first, one between, and the last.
pub(super) const MICRO_BATCHES: usize = 3;

/// Steps that show all others.
pub(super) const STEPS: usize = 2;

/// A request of an allocator. An allocation's number counts from 0 in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Allocate { bytes: u64 },
    Free { number: u32 },
}

/// The requests of a run, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    all: Vec<Request>,
    /// Number of requests until the end of each step.
    ends: Vec<usize>,
    /// Number of requests until the beginning of each micro-batch.
    begins: Vec<usize>,
}

impl Requests {
    /// The requests in the history of a device, from its first allocation on. A micro-batch begins with the phase of this name. `None` if a history has more
    /// than allocations and frees on one stream.
    pub(super) fn of_history(ledger: &Ledger, begins_with: &str) -> Option<Self> {
        let (mut all, mut ends, mut begins) = (Vec::new(), Vec::new(), Vec::new());
        let mut made = 0;
        for event in ledger.history() {
            match *event {
                Event::Alloc { id: AllocId(id), requested_bytes: bytes, stream: Stream::DEFAULT, .. } if id == made => {
                    made += 1;
                    all.push(Request::Allocate { bytes });
                }
                Event::Free { id: AllocId(id), .. } if id < made => {
                    all.push(Request::Free { number: u32::try_from(id).ok()? });
                }
                Event::Phase { phase } => match ledger.phase_name(phase) {
                    STEP_ENDED => ends.push(all.len()),
                    name if name == begins_with => begins.push(all.len()),
                    _ => {}
                },
                Event::Alloc { .. } | Event::Free { .. } | Event::Oom { .. } | Event::ResetPeak => return None,
                _ => {}
            }
        }
        // What ends with the program is in no peak.
        all.truncate(*ends.last()?);
        Some(Self { all, ends, begins })
    }

    /// Those of the first steps.
    pub(super) fn until_step(&self, steps: usize) -> Self {
        let ends: Vec<usize> = self.ends.iter().copied().take(steps).collect();
        let all = self.all[..ends.last().copied().unwrap_or(0)].to_vec();
        let begins = self.begins.iter().copied().filter(|at| *at < all.len()).collect();
        Self { all, ends, begins }
    }

    /// Number of steps.
    pub(super) fn steps(&self) -> usize {
        self.ends.len()
    }

    /// Number of requests.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Those of a run with more micro-batches in each step, from a run with [`MICRO_BATCHES`]: the second is repeated. `None` unless the last one begins by
    /// repeating it.
    pub(super) fn with_micro_batches(&self, wants: usize) -> Option<Self> {
        if self.begins.len() != self.ends.len() * MICRO_BATCHES {
            return None;
        }
        let numbers = Numbers::of(&self.all);
        let mut longer = Longer::of(self, &numbers);
        for begins in self.begins.chunks(MICRO_BATCHES) {
            let second = begins[1]..begins[2];
            let third = begins[2]..begins[2] + second.len();
            let pairs = numbers.repeated(&self.all, &second, &third)?;
            longer.repeat(&pairs, &third, wants.checked_sub(MICRO_BATCHES)?, Repeated::MicroBatches);
        }
        Some(longer.end())
    }

    /// Those of a run with so many steps: the last one is repeated. `None` unless it left memory as it found it.
    pub(super) fn with_steps(&self, wants: usize) -> Option<Self> {
        if wants <= self.ends.len() {
            return Some(self.until_step(wants));
        }
        let &[.., before, end] = self.ends.as_slice() else { return None };
        let numbers = Numbers::of(&self.all);
        let pairs = numbers.replaced(before, end)?;
        let mut longer = Longer::of(self, &numbers);
        longer.repeat(&pairs, &(before..end), wants - self.ends.len(), Repeated::Steps);
        Some(longer.end())
    }

    /// Serves them; `None` if memory runs out.
    ///
    /// # Errors
    /// The driver's, other than that there is no memory.
    pub(super) fn on(&self, allocator: &mut dyn Allocator) -> memcore::Result<Option<Needs>> {
        let mut blocks: Vec<(BlockId, u64)> = Vec::with_capacity(self.all.len() / 2 + 1);
        let (mut allocated, mut peak) = (0, 0);
        for request in &self.all {
            match *request {
                Request::Allocate { bytes } => match allocator.allocate(bytes, Stream::DEFAULT, &mut |_| {}) {
                    Ok(Block { id, bytes, .. }) => {
                        blocks.push((id, bytes));
                        allocated += bytes;
                        peak = peak.max(allocated);
                    }
                    Err(error) if error.is_out_of_memory() => return Ok(None),
                    Err(error) => return Err(error),
                },
                Request::Free { number } => {
                    let (id, bytes) = blocks[number as usize];
                    allocator.free(id, &mut |_| {});
                    allocated -= bytes;
                }
            }
        }
        Ok(Some(Needs { allocated_bytes: peak, reserved_bytes: allocator.stats().reserved_bytes.all.peak }))
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
    fn of(all: &[Request]) -> Self {
        let mut numbers = Self { before: Vec::with_capacity(all.len() + 1), sizes: Vec::new(), freed: Vec::new() };
        for (at, request) in all.iter().enumerate() {
            numbers.before.push(numbers.sizes.len() as u32);
            match *request {
                Request::Allocate { bytes } => {
                    numbers.sizes.push(bytes);
                    numbers.freed.push(usize::MAX);
                }
                Request::Free { number } => numbers.freed[number as usize] = at,
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
    fn repeated(&self, all: &[Request], first: &Range<usize>, then: &Range<usize>) -> Option<Vec<(u32, u32)>> {
        let (earlier, later) = (self.made_in(first), self.made_in(then));
        let size = |number: u32| self.sizes[number as usize];
        let same = |pair: (&Request, &Request)| match pair {
            (Request::Allocate { bytes: a }, Request::Allocate { bytes: b }) => a == b,
            (&Request::Free { number: a }, &Request::Free { number: b }) if later.contains(&b) => {
                earlier.contains(&a) && a - earlier.start == b - later.start
            }
            (&Request::Free { number: a }, &Request::Free { number: b }) => {
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
    to: Requests,
}

impl<'a> Longer<'a> {
    fn of(from: &'a Requests, numbers: &'a Numbers) -> Self {
        let to = Requests { all: Vec::with_capacity(from.all.len()), ends: Vec::new(), begins: Vec::new() };
        Self { from, numbers, written: 0, ended: 0, renamed: vec![0; numbers.sizes.len()], made: 0, to }
    }

    /// Writes a part.
    fn copy(&mut self, part: Range<usize>) {
        for at in part {
            let request = match self.from.all[at] {
                Request::Allocate { bytes } => {
                    self.renamed[self.numbers.before[at] as usize] = self.made;
                    self.made += 1;
                    Request::Allocate { bytes }
                }
                Request::Free { number } => Request::Free { number: self.renamed[number as usize] },
            };
            self.to.all.push(request);
        }
    }

    /// Writes what stands until the end of `part`, then `part` again, each time with the first of each of these pairs replaced by the second, as it was last made.
    fn repeat(&mut self, pairs: &[(u32, u32)], part: &Range<usize>, times: usize, what: Repeated) {
        self.until(part.end);
        for _ in 0..times {
            if what == Repeated::Steps {
                self.to.ends.push(self.to.all.len());
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
            self.to.ends.push(self.to.all.len());
            self.ended += 1;
        }
        self.copy(self.written..end);
        self.written = end;
    }

    fn end(mut self) -> Requests {
        self.until(self.from.all.len());
        self.to.ends.push(self.to.all.len());
        self.to
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
        requests: Requests,
        made: u32,
    }

    impl Program {
        fn take(&mut self, bytes: u64) -> u32 {
            self.requests.all.push(Request::Allocate { bytes });
            self.made += 1;
            self.made - 1
        }

        fn give(&mut self, number: u32) {
            self.requests.all.push(Request::Free { number });
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
                program.requests.begins.push(program.requests.all.len());
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
            program.requests.ends.push(program.requests.all.len());
        }
        program.give(parameter);
        program.requests.all.truncate(program.requests.ends[steps - 1]);
        program.requests
    }

    #[test]
    fn what_repeats_need_not_run() {
        let few = training(STEPS, MICRO_BATCHES, None);
        for (steps, micro_batches) in [(2, 3), (2, 4), (3, 3), (7, 5), (16, 32)] {
            let more = few.with_micro_batches(micro_batches).unwrap().with_steps(steps).unwrap();
            let whole = training(steps, micro_batches, None);
            assert_eq!((more.all, more.ends), (whole.all, whole.ends), "{steps} steps of {micro_batches}");
        }
        let single = training(STEPS, 1, None).with_steps(9).unwrap();
        assert_eq!(single.all, training(9, 1, None).all);
        assert_eq!(single.until_step(4).all, training(4, 1, None).all);
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
