//! What a run holds for as long as it trains, whatever its batch and its techniques: parameters, gradients, the optimizer's states.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use lab_analysis::sending::Sent;
use lab_base::error::{Error, Result};
use memcore::memory::Category;

use super::time::with_what_is_trained;
use crate::run::dry_runner::DryRunner;
use crate::run::spec::RunSpec;

/// Bytes at the end of a step, when a gradient of each trained parameter and every state exist. Of all ways to train the same parameters, in the same types and
/// with the same optimizer, none has a peak below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    parameters: u64,
    gradients: u64,
    states: u64,
}

impl Held {
    /// The least that each of so many ranks holds with a stage of ZeRO, which divides the states, then the gradients, then the parameters.
    pub(super) fn of_rank(self, stage: u8, ranks: usize) -> u64 {
        let share = |bytes: u64, from: u8| if stage >= from { bytes / ranks.max(1) as u64 } else { bytes };
        share(self.states, 1) + share(self.gradients, 2) + share(self.parameters, 3)
    }

    /// What ranks send each other of it.
    pub(super) fn sent(self) -> Sent {
        Sent { parameters: self.parameters, gradients: self.gradients }
    }
}

/// What runs hold that differ from one by their changes, each found once.
pub(super) struct HeldBy<'a> {
    runner: &'a DryRunner<'a>,
    /// The run without changes, with the smallest micro-batch.
    plain: RunSpec,
    known: Mutex<HashMap<String, Held>>,
}

impl<'a> HeldBy<'a> {
    /// Nothing is known yet of the changes of `plain`, whose steps have one micro-batch of this size.
    pub(super) fn new(runner: &'a DryRunner<'a>, plain: &RunSpec, micro_batch: usize) -> Self {
        let mut plain = plain.endless().undivided();
        (plain.training.batch, plain.training.accumulate) = (Some(micro_batch), None);
        Self { runner, plain, known: Mutex::default() }
    }

    /// What this run holds.
    ///
    /// # Errors
    /// Fields that cannot be combined; those of the run; [`Error::Interrupted`].
    pub(super) fn of_run(&self, spec: &RunSpec) -> Result<Held> {
        let run = with_what_is_trained(&self.plain, spec);
        let key = serde_json::to_string(&run).map_err(|error| Error::usage("run", error.to_string()))?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = known.get(&key) {
            return Ok(*held);
        }
        let session = self.runner.session(&run)?;
        let device = session.target.open()?;
        let mut at_end = None;
        session.train_steps(&device, 1, &mut |_| {
            at_end = Some(*device.usage().by_category());
            ControlFlow::Break(())
        })?;
        let bytes = at_end.ok_or(Error::Interrupted)?;
        let of = |category: Category| bytes[category as usize];
        let held = Held {
            parameters: of(Category::Parameter) + of(Category::Buffer),
            gradients: of(Category::Gradient),
            states: of(Category::OptimizerState),
        };
        known.insert(key, held);
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(more: &serde_json::Value) -> RunSpec {
        let mut fields = json!({"model": "gpt", "layers": 2, "width": 64, "heads": 2, "sequence": 64, "vocabulary": 300, "optimizer": "adamw", "batch": 4});
        let all = fields.as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        RunSpec::default().with(all.iter().map(|(name, value)| (name.as_str(), value))).unwrap()
    }

    #[test]
    fn no_rank_takes_less_than_it_holds() {
        let runner = DryRunner::new(&[], &|| false);
        let plain = spec(&json!({}));
        let held = HeldBy::new(&runner, &plain, 1);
        for changes in [
            json!({}),
            json!({"optimizer": "sgd", "checkpoint": "blocks"}),
            json!({"precision": "bf16", "optimizer-impl": "fused"}),
            json!({"data-parallel": 2}),
            json!({"data-parallel": 4, "zero": 1}),
            json!({"data-parallel": 4, "zero": 2}),
            json!({"data-parallel": 4, "zero": 3}),
        ] {
            let run = spec(&changes);
            let ranks = &run.parallel.ranks;
            let least = held.of_run(&run).unwrap().of_rank(ranks.zero.unwrap_or(0), ranks.data_parallel.unwrap_or(1));
            let taken = runner.needs(&run).unwrap().allocated_bytes;
            assert!(0 < least && least <= taken, "{changes}: {least} of {taken}");
        }
    }
}
