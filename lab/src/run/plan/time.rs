//! The time of a step, estimated from the launches of its dry run.
//!
//! An optimizer's kernels do not depend on the batch, and those of forward and backward do not depend on the optimizer. So both are run apart, each once, and
//! their times add up to that of every combination.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use lab_analysis::step_time::{Speed, StepClock};
use lab_base::error::{Error, Result};

use crate::run::dry_runner::DryRunner;
use crate::run::session::flow;
use crate::run::spec::{AllocatorSpec, ParallelSpec, RunSpec};

/// Micro-batches of which the others of a step are like the last: the first of several scales its loss, and those after it add gradients.
const DIFFERENT: usize = 3;

/// Bytes that a card copies to the host or back in a second: PCI Express 4.0 with 16 lanes, of which copies reach 0.8.
const HOST_BYTES_PER_S: f64 = 25.6e9;

/// The time of one run; whoever asks first finds it, and others wait.
type Slot = Arc<Mutex<Option<f64>>>;

/// Times of steps that differ from a run by their changes, each part of a step run dry once.
pub(super) struct StepTimes<'a> {
    runner: &'a DryRunner<'a>,
    speed: Speed,
    /// The run without changes, with the smallest micro-batch.
    plain: RunSpec,
    known: Mutex<HashMap<String, Slot>>,
}

impl<'a> StepTimes<'a> {
    /// Nothing is known yet of the changes of `plain`.
    pub(super) fn new(runner: &'a DryRunner<'a>, speed: Speed, plain: RunSpec) -> Self {
        Self { runner, speed, plain, known: Mutex::default() }
    }

    /// Seconds of a step of one rank, estimated, without what ranks send each other.
    ///
    /// # Errors
    /// Fields that cannot be combined; those of the run; [`Error::Interrupted`].
    pub(super) fn step(&self, spec: &RunSpec) -> Result<f64> {
        let passes = with_optimizer_of(&self.plain, spec);
        let seconds = self.runner.seconds_of_step(&passes, &|run| self.second_step(run))?;
        if passes.training == spec.training {
            return Ok(seconds);
        }
        // The passes of these two are the same: their difference is that of the optimizers.
        let update = |of: &RunSpec| self.second_step(&alone(&with_what_is_trained(&self.plain, of)));
        Ok((seconds + (update(spec)? - update(&passes)?)).max(0.0))
    }

    fn second_step(&self, run: &RunSpec) -> Result<f64> {
        let run = RunSpec { allocator: AllocatorSpec::default(), ..run.clone() };
        let key = serde_json::to_string(&run).map_err(|error| Error::usage("run", error.to_string()))?;
        let slot = self.known.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match *slot {
            Some(seconds) => Ok(seconds),
            None => Ok(*slot.insert(self.runner.second_step(&run, self.speed)?)),
        }
    }
}

/// The run with another run's optimizer.
fn with_optimizer_of(other: &RunSpec, spec: &RunSpec) -> RunSpec {
    let mut run = spec.clone();
    let (to, from) = (&mut run.training, &other.training);
    (to.optimizer, to.optimizer_impl) = (from.optimizer, from.optimizer_impl);
    (to.capturable, to.amsgrad, to.nesterov) = (from.capturable, from.amsgrad, from.nesterov);
    run
}

/// The run with what is trained in another one, in its types, and by its optimizer.
pub(super) fn with_what_is_trained(plain: &RunSpec, other: &RunSpec) -> RunSpec {
    let mut run = with_optimizer_of(other, plain);
    (run.training.precision, run.training.lora) = (other.training.precision, other.training.lora);
    run.model.load_in_4bit = other.model.load_in_4bit;
    run
}

/// The share of one rank, with enough memory, its micro-batches in one.
fn alone(spec: &RunSpec) -> RunSpec {
    let ranks = spec.parallel.ranks.data_parallel.unwrap_or(1).max(1);
    let mut alone = RunSpec { parallel: ParallelSpec::default(), ..spec.endless() };
    alone.training.batch = alone.training.batch.map(|batch| batch / ranks);
    alone.training.accumulate = Some(1);
    alone
}

impl DryRunner<'_> {
    /// Seconds of a step of one rank, estimated, without what ranks send each other: of the second step, by whose end every state exists.
    ///
    /// # Errors
    /// Fields that cannot be combined; those of the run; [`Error::Interrupted`].
    pub(super) fn step_seconds(&self, spec: &RunSpec, speed: Speed) -> Result<f64> {
        self.seconds_of_step(spec, &|run| self.second_step(run, speed))
    }

    /// The same, with what finds the seconds of a run's second step.
    fn seconds_of_step(&self, spec: &RunSpec, second_step: &dyn Fn(&RunSpec) -> Result<f64>) -> Result<f64> {
        let alone = alone(spec);
        let accumulate = spec.training.accumulate.unwrap_or(1);
        let few = accumulate.min(DIFFERENT);
        let seconds = |micro_batches: usize| {
            let mut run = alone.clone();
            run.training.accumulate = Some(micro_batches);
            second_step(&run)
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
        // What a forward pass saves on the host goes there and comes back.
        let copied = device.host().usage().copies_peak * 2 * spec.training.accumulate.unwrap_or(1) as u64;
        let copying = copied as f64 / HOST_BYTES_PER_S;
        match ends[..] {
            [first, second] => Ok(second - first + copying),
            _ if (self.stop)() => Err(Error::Interrupted),
            // A run of a single step.
            _ => Ok(ends.last().copied().unwrap_or(0.0) + copying),
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
    fn the_parts_of_a_step_add_up_to_its_whole() {
        let runner = DryRunner::new(&[], &|| false);
        let gpt = json!({"model": "gpt", "layers": 2, "width": 64, "heads": 2, "sequence": 64, "vocabulary": 300, "batch": 8});
        let plain = spec(&gpt);
        let times = StepTimes::new(&runner, speed(), plain.clone());
        for changes in [
            json!({"optimizer-impl": "fused", "optimizer": "adamw", "checkpoint": "blocks"}),
            json!({"optimizer": "momentum", "precision": "autocast-fp16", "batch": 2, "accumulate": 4}),
            json!({"optimizer-impl": "loop", "optimizer": "adam", "attention": "sdpa", "batch": 4, "accumulate": 2}),
        ] {
            let mut changed = gpt.clone();
            let (Value::Object(all), Value::Object(changes)) = (&mut changed, changes) else { panic!("no object") };
            all.extend(changes);
            let changed = spec(&changed);
            let [parts, whole] = [times.step(&changed), runner.step_seconds(&changed, speed())].map(Result::unwrap);
            assert!((parts / whole - 1.0).abs() < 1e-9, "{parts} {whole}");
        }
    }

    #[test]
    fn what_is_saved_on_the_host_takes_the_time_of_its_copies() {
        let runner = DryRunner::new(&[], &|| false);
        let gpt = |more: Value| {
            let mut fields =
                json!({"model": "gpt", "layers": 4, "width": 512, "heads": 8, "sequence": 256, "batch": 16});
            fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec(&fields)
        };
        let of = |more: Value| runner.step_seconds(&gpt(more), speed()).unwrap();
        let session = runner.session(&gpt(json!({"save-on-cpu": "pinned"})).endless()).unwrap().of_steps(1);
        let device = session.target.open().unwrap();
        runner.train(&session, &device).unwrap();
        let copies = device.host().usage().copies_peak as f64 * 2.0 / HOST_BYTES_PER_S;
        let [plain, on_host] = [of(json!({})), of(json!({"save-on-cpu": "pinned"}))];
        assert!(copies > 0.01 && on_host > plain + 0.9 * copies, "{plain} {on_host} {copies}");
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
