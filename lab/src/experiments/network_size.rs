//! `network-size`: what does a wider network, and what does a larger batch cost?

use memcore::memory::Category;

use super::pace::Pace;
use super::rig::{Rig, StepRecord, rules, undisturbed};
use super::show::{bytes, table, text};
use super::{Cell, Claim, Experiment, JudgedClaim, Measurement, Outcome, Setup, Size, Verdict};
use crate::error::{Error, Result};
use crate::predict::{Forecast, Layer, Network, Objective, Rules, Update, rounded};
use crate::training::OptimizerKind;

/// The experiment.
pub(super) struct NetworkSize;

const SOURCE: &str = "How does changing network parameters affect GPU memory usage in PyTorch? (2025)";

const CLAIMS: &[Claim] = &[
    Claim { text: "More filters inflate the parameters, by a number that is easily calculated.", source: SOURCE },
    Claim { text: "More filters also need more memory for activations.", source: SOURCE },
    Claim {
        text: "A larger batch leaves the parameters alone and makes the activations grow linearly.",
        source: SOURCE,
    },
];

/// The article's networks: filters of the convolution.
const NETWORKS: [(&str, usize); 2] = [("small-network", 16), ("larger-conv", 64)];

/// Side of a picture after the convolution, outputs of the linear layer.
const SIDE: usize = 30;
const OUTPUTS: usize = 128;

/// One network with one batch.
struct Trial {
    name: &'static str,
    filters: usize,
    batch: usize,
    parameters: u64,
    model_bytes: u64,
    step: StepRecord,
    predicted_model_bytes: Option<u64>,
    predicted_peak_bytes: Option<u64>,
}

impl Experiment for NetworkSize {
    fn name(&self) -> &'static str {
        "network-size"
    }

    fn question(&self) -> &'static str {
        "What does a wider network cost, and what a larger batch?"
    }

    fn claims(&self) -> &'static [Claim] {
        CLAIMS
    }

    fn sizes(&self) -> &'static [Size] {
        const { &[Size::many("batch", "examples per step, two or more values; 1, 2 and 4")] }
    }

    fn run(&self, setup: &Setup<'_>) -> Result<Outcome> {
        let mut batches = setup.sizes("batch", &[1, 2, 4]);
        batches.sort_unstable();
        batches.dedup();
        if batches.len() < 2 || batches[0] == 0 {
            return Err(Error::usage("batch", "two or more different numbers of examples, each at least 1"));
        }
        let mut outcome = Outcome::default();
        let mut pace = Pace::new(setup, NETWORKS.len() * batches.len());
        let rules = rules(setup)?;
        let mut trials = Vec::new();
        for (name, filters) in NETWORKS {
            for &batch in &batches {
                if !pace.next(&format!("{name}, batch {batch}")) {
                    outcome.interrupted = true;
                    return Ok(outcome);
                }
                let trial = attempt(setup, rules.as_ref(), name, filters, batch)?;
                outcome.rows.push(trial.measurement());
                trials.push(trial);
            }
        }
        outcome.tables.push(shown(&trials));
        outcome.claims = judge(&trials, batches.len());
        Ok(outcome)
    }
}

fn attempt(
    setup: &Setup<'_>,
    rules: Option<&Rules>,
    name: &'static str,
    filters: usize,
    batch: usize,
) -> Result<Trial> {
    let device = (setup.open)()?;
    let mut rig = Rig::new(&device, name, OptimizerKind::Sgd, 1e-3, setup.seed)?;
    let model_bytes = rig.moment("model").row.allocated;
    let step = rig.step("s0", batch)?;
    let forecast = rules.filter(|_| undisturbed(&device)).map(|rules| {
        let mut forecast = Forecast::new(rules.clone(), network(filters));
        forecast.model("model");
        forecast.step("s0", batch);
        (forecast.rows()[0].allocated, forecast.peak().allocated)
    });
    let parameters = rig.model.parameter_count();
    let (predicted_model_bytes, predicted_peak_bytes) = forecast.unzip();
    Ok(Trial { name, filters, batch, parameters, model_bytes, step, predicted_model_bytes, predicted_peak_bytes })
}

fn network(filters: usize) -> Network {
    Network {
        input: vec![3, 32, 32],
        layers: vec![
            Layer::Conv2d { inputs: 3, outputs: filters, kernel: 3, padding: 0 },
            Layer::Relu,
            Layer::Flatten,
            Layer::Linear { inputs: filters * SIDE * SIDE, outputs: OUTPUTS },
        ],
        objective: Objective::MeanSquaredError(OUTPUTS),
        update: Update::Sgd,
    }
}

impl Trial {
    /// What the graph holds when the loss is there.
    fn activation_bytes(&self) -> u64 {
        self.step.moments[3].by_category[Category::Activation as usize]
    }

    /// `3·3·3·F + F` and `900·F·128 + 128` values.
    fn counted(&self) -> u64 {
        let f = self.filters as u64;
        28 * f + (SIDE * SIDE * OUTPUTS) as u64 * f + OUTPUTS as u64
    }

    /// The result of the ReLU, and the network's result, which the loss keeps.
    fn foreseen_activation_bytes(&self) -> Option<u64> {
        let kept = [4 * self.batch * self.filters * SIDE * SIDE, 4 * self.batch * OUTPUTS].map(|n| n as u64);
        // Beyond 1 MiB a block may be larger than what was asked for.
        self.predicted_peak_bytes.filter(|_| kept[0] <= 1 << 20)?;
        Some(kept.into_iter().map(rounded).sum())
    }

    fn measurement(&self) -> Measurement {
        let mut m = Measurement::of([("network", self.name.into()), ("batch", self.batch.into())]);
        m.measure("parameters", self.parameters);
        m.predict("parameters", self.counted());
        let measured = [
            ("model_bytes", self.model_bytes, self.predicted_model_bytes),
            ("activation_bytes", self.activation_bytes(), self.foreseen_activation_bytes()),
            ("peak_bytes", self.step.peak.allocated_bytes, self.predicted_peak_bytes),
        ];
        for (quantity, bytes, predicted) in measured {
            m.measure(quantity, bytes);
            if let Some(predicted) = predicted {
                m.predict(quantity, predicted);
            }
        }
        m
    }
}

fn shown(trials: &[Trial]) -> super::Table {
    let row = |t: &Trial| {
        vec![
            text(t.name),
            Cell::Count(t.batch as u64),
            Cell::Count(t.parameters),
            Cell::Bytes(t.model_bytes),
            Cell::Bytes(t.activation_bytes()),
            Cell::Bytes(t.step.peak.allocated_bytes),
        ]
    };
    let columns = ["network", "batch", "parameters", "model", "activations", "peak"];
    table("Parameters, what the graph keeps, and the peak of a step", &columns, trials.iter().map(row).collect())
}

fn judge(trials: &[Trial], batches: usize) -> Vec<JudgedClaim> {
    let (small, large) = trials.split_at(batches);
    let counted = trials.iter().all(|t| t.parameters == t.counted());
    let (first, last) = (&small[0], &small[batches - 1]);
    let same_model = [small, large].iter().all(|of| of.iter().all(|t| t.model_bytes == of[0].model_bytes));
    let grown = last.activation_bytes() as f64 / first.activation_bytes().max(1) as f64;
    let factor = last.batch as f64 / first.batch as f64;
    // Each tensor is rounded up to 512 bytes: two tensors, so less than 1 KiB at either end.
    let linear = (last.activation_bytes() as f64 - factor * first.activation_bytes() as f64).abs() <= factor * 1024.0;
    let wider = large[0].activation_bytes() > small[0].activation_bytes();
    let verdict = |holds: bool| if holds { Verdict::Holds } else { Verdict::Fails };
    vec![
        JudgedClaim {
            claim: CLAIMS[0],
            verdict: verdict(counted),
            condition: format!(
                "16 filters: {} parameters, 64 filters: {}, as counted (28 per filter, and 900·128 per filter in the layer behind, \
                 where nearly all of them are)",
                small[0].parameters, large[0].parameters
            ),
        },
        JudgedClaim {
            claim: CLAIMS[1],
            verdict: verdict(wider),
            condition: format!(
                "with batch {}: {} with 16 filters, {} with 64",
                first.batch,
                bytes(first.activation_bytes()),
                bytes(large[0].activation_bytes())
            ),
        },
        JudgedClaim {
            claim: CLAIMS[2],
            verdict: verdict(same_model && linear),
            condition: format!(
                "from batch {} to {} the model stays at {}, what the graph keeps grows {grown:.2}-fold ({} to {}); the peak of the \
                 step only from {} to {}, since parameters and gradients do not grow",
                first.batch,
                last.batch,
                bytes(first.model_bytes),
                bytes(first.activation_bytes()),
                bytes(last.activation_bytes()),
                bytes(first.step.peak.allocated_bytes),
                bytes(last.step.peak.allocated_bytes)
            ),
        },
    ]
}
