//! Training steps as pieces of programs that can be joined in any order.
//!
//! A step frees the variables of the step before (batch, result, loss, gradients) in the same order, whatever the batch
//! size. So one recorded step of each size gives the program of every order of batches.

use lab_base::error::{Error, Result};
use lab_traces::replay::{Operation, Settings, Trace};

use super::super::Setup;
use super::super::policy_comparison::recording_device;
use super::super::session::Session;

/// One operation of a step.
#[derive(Clone, Copy, Debug)]
enum Local {
    /// Makes the k-th allocation of the step.
    Take { bytes: u64 },
    /// Frees the k-th allocation of this step.
    Own(usize),
    /// Frees the k-th allocation that the step before left.
    Carried(usize),
}

/// A step: its operations, and the allocations that it leaves to the next step.
#[derive(Clone, Debug)]
struct Step {
    operations: Vec<Local>,
    left: Vec<usize>,
}

/// Steps with one batch size: the first one, with everything that comes before it, and a later one.
pub(super) struct Steps {
    pub(super) batch: usize,
    first: Step,
    steady: Step,
}

impl Steps {
    /// Records two steps on a fresh device.
    pub(super) fn record(setup: &Setup<'_>, batch: usize) -> Result<Self> {
        let device = recording_device(setup)?;
        let mut session = Session::simple_cnn(&device, setup.seed)?;
        session.whole_step("s0", batch)?;
        let count = || device.with_ledger(|ledger| ledger.history().len());
        let cut = count();
        session.whole_step("s1", batch)?;
        let history = device.with_ledger(|ledger| ledger.history().to_vec());
        let name = format!("steps of {batch}");
        let first = Trace::of_history(&*name, history.get(..cut).unwrap_or(&[]))?;
        let whole = Trace::of_history(name, &history)?;
        Self::split(batch, &whole, first.operations().len(), first.allocations())
    }

    /// Cuts a recording into the first step, with everything before it, and the second one.
    fn split(batch: usize, whole: &Trace, cut: usize, made: usize) -> Result<Self> {
        let (before, after) = whole.operations().split_at(cut);
        let freed_by = |operations: &[Operation]| -> Vec<usize> {
            let freed = operations.iter().filter_map(|operation| match *operation {
                Operation::Free { allocation } => Some(allocation as usize),
                _ => None,
            });
            freed.collect()
        };
        let later = freed_by(after);
        let mut left: Vec<usize> = later.iter().copied().filter(|&k| k < made).collect();
        left.sort_unstable();
        let gone = later.iter().copied().filter(|&k| k >= made).collect::<std::collections::BTreeSet<_>>();
        let steady_left = (made..whole.allocations()).filter(|k| !gone.contains(k)).map(|k| k - made).collect();
        let local = |from: usize, left: &[usize], operations: &[Operation]| -> Vec<Local> {
            let translate = |operation: &Operation| match *operation {
                Operation::Allocate { bytes, .. } => Some(Local::Take { bytes }),
                Operation::Free { allocation } => {
                    let allocation = allocation as usize;
                    Some(match left.binary_search(&allocation) {
                        Ok(k) if allocation < from => Local::Carried(k),
                        _ => Local::Own(allocation - from),
                    })
                }
                _ => None,
            };
            operations.iter().filter_map(translate).collect()
        };
        let first = Step { operations: local(0, &[], before), left: left.clone() };
        let steady = Step { operations: local(made, &left, after), left: steady_left };
        if first.left.len() != steady.left.len() {
            let problem = format!("a step leaves {} tensors, the next one {}", first.left.len(), steady.left.len());
            return Err(Error::usage("fragmentation", problem));
        }
        Ok(Self { batch, first, steady })
    }
}

/// Returns the program of an order of batches. Each batch is an index into `steps`.
pub(super) fn program(name: &str, steps: &[Steps], order: &[usize]) -> Result<Trace> {
    let mut operations: Vec<Operation> = Vec::new();
    let (mut carried, mut made): (Vec<u32>, u32) = (Vec::new(), 0);
    for (at, &which) in order.iter().enumerate() {
        let step = if at == 0 { &steps[which].first } else { &steps[which].steady };
        let first = made;
        for local in &step.operations {
            operations.push(match *local {
                Local::Take { bytes } => {
                    made += 1;
                    Operation::Allocate { bytes, stream: 0, pool: 0, served: true }
                }
                Local::Own(k) => Operation::Free { allocation: first + k as u32 },
                Local::Carried(k) => Operation::Free { allocation: carried.get(k).copied().unwrap_or(u32::MAX) },
            });
        }
        carried = step.left.iter().map(|&k| first + k as u32).collect();
    }
    Trace::new(name, Settings::default(), operations)
}
