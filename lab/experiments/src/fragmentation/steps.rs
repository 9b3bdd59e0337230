//! Training steps as pieces of programs, to be put together in any order.
//!
//! A step frees what the step before left in its variables (batch, result, loss, gradients), in the same order whatever
//! the size of the batch: so one step of each size, recorded once, gives the program of every order of batches.

use lab_base::error::{Error, Result};
use lab_traces::replay::{Operation, Settings, Trace};

use super::super::Setup;
use super::super::policy_comparison::recording_device;
use super::super::session::Session;

/// One operation of a step.
#[derive(Clone, Copy, Debug)]
enum Local {
    /// Allocates; the k-th of the step.
    Take { bytes: u64 },
    /// Frees the k-th allocation of this step.
    Own(usize),
    /// Frees the k-th of those that the step before left.
    Carried(usize),
}

/// A step: what it does, and which of its allocations it leaves to the next one.
#[derive(Clone, Debug)]
struct Step {
    operations: Vec<Local>,
    left: Vec<usize>,
}

/// The steps with one size of batch: with everything that comes before it, and any other.
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

    /// Cuts a recording into its first step (and before) and its second one.
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

/// The program of an order of batches, each given as an index into `steps`.
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
