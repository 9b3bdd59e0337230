//! The time of a step, estimated from the launches of its dry run.

use std::ops::ControlFlow;

use lab_analysis::step_time::{Speed, StepClock};
use lab_base::error::{Error, Result};

use crate::run::dry_runner::DryRunner;
use crate::run::session::flow;
use crate::run::spec::{ParallelSpec, RunSpec};

/// Micro-batches of which the others of a step are like the last: the first of several scales its loss, and those after it add gradients.
const DIFFERENT: usize = 3;

impl DryRunner<'_> {
    /// Seconds of a step of one rank, estimated, without what ranks send each other: of the second step, by whose end every state exists.
    ///
    /// # Errors
    /// Fields that cannot be combined; those of the run; [`Error::Interrupted`].
    pub(super) fn step_seconds(&self, spec: &RunSpec, speed: Speed) -> Result<f64> {
        let ranks = spec.parallel.ranks.data_parallel.unwrap_or(1);
        let mut alone = RunSpec { parallel: ParallelSpec::default(), ..spec.endless() };
        alone.training.batch = alone.training.batch.map(|batch| batch / ranks);
        let accumulate = alone.training.accumulate.unwrap_or(1);
        let few = accumulate.min(DIFFERENT);
        let seconds = |micro_batches: usize| {
            let mut run = alone.clone();
            run.training.accumulate = Some(micro_batches);
            self.second_step(&run, speed)
        };
        let whole = seconds(few)?;
        if accumulate == few {
            return Ok(whole);
        }
        Ok(whole + (accumulate - few) as f64 * (whole - seconds(few - 1)?))
    }

    fn second_step(&self, spec: &RunSpec, speed: Speed) -> Result<f64> {
        let session = self.session(spec)?;
        let device = session.target.open()?;
        let clock = StepClock::new(speed);
        device.set_meter(clock.clone());
        let mut ends = Vec::new();
        session.train_steps(&device, 2, &mut |_| {
            ends.push(clock.seconds());
            if ends.len() == 2 { ControlFlow::Break(()) } else { flow(self.stop) }
        })?;
        match ends[..] {
            [first, second] => Ok(second - first),
            _ if (self.stop)() => Err(Error::Interrupted),
            // A run of a single step.
            _ => Ok(ends.last().copied().unwrap_or(0.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use lab_base::speeds::DataSheet;
    use serde_json::{Value, json};

    use super::*;

    fn spec(fields: &Value) -> RunSpec {
        let Value::Object(fields) = fields else { panic!("no object") };
        RunSpec::default().with(fields.iter().map(|(name, value)| (name.as_str(), value))).unwrap()
    }

    fn speed() -> Speed {
        Speed::from_data_sheet(&DataSheet { gb_per_s: 1008.0, f32_tflops: 82.6, f16_tflops: 165.2 }, 89)
    }

    #[test]
    fn no_division_is_faster_than_the_whole_batch() {
        let runner = DryRunner::new(&[], &|| false);
        let gpt = json!({"model": "gpt", "layers": 2, "width": 64, "heads": 2, "sequence": 64, "vocabulary": 300});
        for network in
            [json!({"model": "mlp"}), json!({"model": "simple-cnn"}), json!({"model": "resnet18", "image": 32}), gpt]
        {
            for checkpoint in ["none", "blocks"] {
                let divided = |(batch, accumulate): (u64, u64)| {
                    let mut fields = network.clone();
                    (fields["batch"], fields["accumulate"], fields["checkpoint"]) =
                        (batch.into(), accumulate.into(), checkpoint.into());
                    runner.step_seconds(&spec(&fields), speed())
                };
                // Networks without blocks have no checkpointing.
                let Ok(whole) = divided((32, 1)) else { continue };
                for parts in [(16, 2), (8, 4), (1, 32)] {
                    assert!(divided(parts).unwrap() >= whole, "{network} {checkpoint} {parts:?}");
                }
            }
        }
    }

    #[test]
    fn further_micro_batches_take_as_long_as_the_second() {
        let runner = DryRunner::new(&[], &|| false);
        let run = spec(&json!({"model": "mlp", "batch": 16, "accumulate": 7}));
        let [estimated, whole] =
            [runner.step_seconds(&run, speed()), runner.second_step(&run.endless(), speed())].map(Result::unwrap);
        assert!((estimated / whole - 1.0).abs() < 1e-6, "{estimated} {whole}");
    }
}
