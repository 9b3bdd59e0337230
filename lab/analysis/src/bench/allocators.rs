//! Time of an allocator's operations: programs that run again and again through any policy. There is no device: only the bookkeeping is measured.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use lab_base::error::Result;
use lab_models::{ModelOptions, architecture};
use lab_traces::replay::{Machine, Operation, Policy, Settings, Silent, Trace, replay};
use lab_training::{OptimizerKind, OptimizerSettings, RunSettings, Source, train};
use memcore::backend::Meta;
use memcore::memory::{Allocator, AllocatorConfig};
use memcore::{Device, Profile};

use super::clock::{Limits, Timing, time};

/// Repeats a program. Each time it ends with nothing allocated, so that it can run again.
///
/// # Errors
/// A program too long to be numbered.
pub fn repeated(trace: &Trace, times: usize) -> Result<Trace> {
    let mut operations = Vec::with_capacity((trace.operations().len() + trace.allocations()) * times);
    let mut lives = vec![false; trace.allocations()];
    for round in 0..times {
        let first = (round * trace.allocations()) as u32;
        let mut made = 0;
        for operation in trace.operations() {
            operations.push(match *operation {
                Operation::Allocate { .. } => {
                    lives[made] = true;
                    made += 1;
                    *operation
                }
                Operation::Free { allocation } => {
                    lives[allocation as usize] = false;
                    Operation::Free { allocation: first + allocation }
                }
                Operation::RecordStream { allocation, stream } => {
                    Operation::RecordStream { allocation: first + allocation, stream }
                }
                other => other,
            });
        }
        for (index, lives) in lives.iter_mut().enumerate().filter(|(_, lives)| **lives) {
            operations.push(Operation::Free { allocation: first + index as u32 });
            *lives = false;
        }
    }
    Trace::new(trace.name.clone(), Settings::default(), operations)
}

/// Events of a training run of the small transformer, as PyTorch would run it: three steps from the start.
pub fn training_program() -> Result<Trace> {
    let device = Device::builder(Arc::new(Meta::default())).profile(Profile::torch_2_11(90)).history(true).build();
    let settings = RunSettings::new(8, 3, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
    let network = architecture("gpt", &ModelOptions { layers: Some(4), ..ModelOptions::default() })?;
    let going_on = &mut |_| ControlFlow::Continue(());
    let run = train(&*network, &device, &settings, Source::Synthetic { seed: 0 }, going_on);
    run.map_err(|failed| failed.error)?;
    let trace = device.with_ledger(|ledger| Trace::of_history("three steps of gpt", ledger.history()))?;
    repeated(&trace, 1)
}

/// Makes an allocator of this policy for a program, on a device that is never full.
///
/// # Errors
/// An unknown policy.
pub fn open(policy: &str, trace: &Trace) -> Result<Box<dyn Allocator>> {
    let policy = Policy::by_name(policy, &AllocatorConfig::default())?;
    Ok(policy.open(trace, &Machine::default(), &mut |_| {})?.allocator)
}

/// Whether an allocator of this policy serves one run only, as a plan does.
pub fn serves_once(policy: &str) -> bool {
    policy == "planned"
}

/// Times a run of the program on an allocator that already has its memory; for a plan, on a new allocator.
///
/// # Errors
/// An unknown policy.
pub fn measure(policy: &str, trace: &Trace, limits: &Limits<'_>) -> Result<Option<Timing>> {
    let mut allocator = open(policy, trace)?;
    replay(trace, &mut *allocator, &mut Silent)?;
    time(limits, &mut |runs| {
        let mut taken = std::time::Duration::ZERO;
        for _ in 0..runs {
            if serves_once(policy) {
                allocator = open(policy, trace)?;
            }
            let start = Instant::now();
            replay(trace, &mut *allocator, &mut Silent)?;
            taken += start.elapsed();
        }
        Ok(taken)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_traces::replay::POLICY_NAMES;

    #[test]
    fn a_program_runs_again_on_every_policy() {
        let trace = training_program().unwrap();
        assert!(trace.operations().len() > 1000, "{}", trace.operations().len());
        let twice = repeated(&trace, 2).unwrap();
        assert_eq!(twice.operations().len(), 2 * trace.operations().len());
        for policy in POLICY_NAMES {
            let mut allocator = open(policy, &twice).unwrap();
            replay(&twice, &mut *allocator, &mut Silent).unwrap();
            assert_eq!(allocator.stats().allocated_bytes.all.current, 0, "{policy}");
            let limits = Limits { seconds: 0.0, stop: &|| false };
            assert!(measure(policy, &trace, &limits).unwrap().is_some(), "{policy}");
        }
    }
}
