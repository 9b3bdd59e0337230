//! What repeats, and what differs by sizes alone, as a program that makes it.

use super::*;

/// What of a step grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leak {
    MicroBatches,
    Steps,
}

/// Notes what it is asked for.
#[derive(Default)]
struct Noting(Vec<Operation>, u32);

impl Memory for Noting {
    fn take(&mut self, bytes: u64) -> Result<Option<BlockId>> {
        self.0.push(Operation::Allocate { bytes, stream: 0, pool: 0, served: true });
        self.1 += 1;
        Ok(Some(BlockId(self.1 - 1)))
    }

    fn give(&mut self, block: BlockId) {
        self.0.push(Operation::Free { allocation: block.0 });
    }

    fn layout(&self) -> Option<u64> {
        None
    }
}

fn noted(requests: &Requests, steps: usize) -> Vec<Operation> {
    let mut service = Service::new(requests, Noting::default());
    assert!(service.steps(steps, &mut |_, _| false).unwrap());
    service.memory.0
}

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
fn training(steps: usize, micro_batches: usize, leak: Option<Leak>) -> Requests {
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
            if leak == Some(Leak::MicroBatches) {
                program.take(1);
            }
        }
        if state.is_none() {
            state = Some(program.take(2000));
        }
        if leak == Some(Leak::Steps) {
            program.take(1);
        }
        program.ends.push(program.operations.len());
    }
    program.give(parameter);
    let end = *program.ends.last().unwrap();
    program.operations.truncate(end);
    Requests::new(program.operations, program.ends, program.begins).unwrap()
}

#[test]
fn what_repeats_need_not_run() {
    let few = training(STEPS, MICRO_BATCHES, None);
    for (steps, micro_batches) in [(2, 3), (2, 4), (3, 3), (7, 5), (16, 32)] {
        let more = few.clone().with_micro_batches(micro_batches).unwrap().repeating(1).unwrap();
        let whole = training(steps, micro_batches, None);
        assert_eq!(noted(&more, steps), whole.operations(), "{steps} steps of {micro_batches}");
    }
    let single = training(STEPS, 1, None).repeating(1).unwrap();
    assert_eq!(noted(&single, 9), training(9, 1, None).operations());
    // Rounds of two steps are repeated by two steps.
    let rounds = training(4, 1, None).repeating(2).unwrap();
    assert_eq!(noted(&rounds, 9), training(9, 1, None).operations());
}

#[test]
fn sizes_change_where_they_are_said_to() {
    let whole = training(STEPS, MICRO_BATCHES, None);
    let resized = whole.resized([(0, [1000, 3000]), (2, [640, 0])]).unwrap();
    let sizes = |requests: &Requests| -> Vec<u64> {
        requests
            .operations()
            .iter()
            .filter_map(|one| if let Operation::Allocate { bytes, .. } = one { Some(*bytes) } else { None })
            .collect()
    };
    let (before, after) = (sizes(&whole), sizes(&resized));
    assert_eq!((&before[..4], &after[..4]), (&[1000, 64, 640, 4][..], &[3000, 64, 0, 4][..]));
    assert_eq!(before[4..], after[4..]);
    // Nothing is taken for a size of nothing, and nothing given back.
    assert_eq!(noted(&resized, STEPS).len() + 2, noted(&whole, STEPS).len());
    assert_eq!(whole.resized([(0, [999, 1])]), None);
    assert_eq!(whole.resized([(u64::MAX, [1, 2])]), Some(whole.clone()));
}

#[test]
fn what_grows_does_not_repeat() {
    assert_eq!(training(STEPS, MICRO_BATCHES, Some(Leak::MicroBatches)).with_micro_batches(9), None);
    assert_eq!(training(STEPS, 1, Some(Leak::MicroBatches)).repeating(1), None);
    assert_eq!(training(STEPS, MICRO_BATCHES, Some(Leak::Steps)).repeating(1), None);
    // The first step is unlike the others: alone it shows nothing.
    assert_eq!(training(1, 1, None).repeating(1), None);
    assert_eq!(training(STEPS, 2, None).with_micro_batches(9), None);
}
