//! `quantization`: how much memory do int8 weights save?

mod bound;
mod forms;
mod subject;

use std::sync::Arc;

use forms::{Form, Trial};
use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_base::section::{Cell, Table};
use lab_models::{ModelOptions, architecture};
use lab_training::data::{Dataset, Split, digits};
use lab_training::{OptimizerKind, OptimizerSettings, Source, TrainStep};
use subject::{Exam, HostLayer};

use super::default_allocator::predictable;
use super::progress::Progress;
use super::session::Session;
use super::tables::{table, text};
use super::{About, Claim, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes};

pub(super) struct Quantization;

const CLAIMS: &[Claim] = &[Claim {
    text: "Quantization reduces the memory footprint by converting floats to lower integers.",
    source: "How does changing network parameters affect GPU memory usage in PyTorch? (2025)",
}];

impl Experiment for Quantization {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "quantization",
                question: "What do int8 weights save, and what do they cost in accuracy?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("width", "neurons of each of two hidden layers; 128"),
                    Size::one("steps", "training steps before, on the digits; 300"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let (width, steps) = (setup.size("width", 128), setup.size("steps", 300));
        if width == 0 || steps == 0 {
            return Err(Error::usage("width, steps", "each must be at least 1"));
        }
        let mut progress = Progress::new(setup, 1 + Form::ALL.len());
        let digits = Arc::new(digits().map_err(|error| Error::usage("digits", error.to_string()))?);
        progress.next("training on the digits")?;
        let layers = trained(setup, &digits, width, steps)?;
        let (inputs, classes) =
            digits.batch(digits.split(Split::Test)).map_err(|error| Error::usage("digits", error.to_string()))?;
        let exam = Exam { inputs, classes };
        let predictable = predictable(setup)?;
        let mut trials = Vec::new();
        for form in Form::ALL {
            progress.next(form.name())?;
            let trial = forms::attempt(setup, form, &layers, &exam, predictable)?;
            outcome.rows.push(trial.measurement(&layers, &exam, trials.first()));
            trials.push(trial);
        }
        outcome.tables.push(shown(&trials, &exam));
        if trials.iter().any(|trial| trial.outputs.is_empty()) {
            outcome.notes.push("This device computes nothing: outputs, accuracy and time are not known here.".into());
        }
        outcome.claims = judge(&trials, &layers, &exam);
        outcome.answer = answer(&trials, &exam);
        Ok(())
    }
}

/// Returns the layers of the network after training. On a device that computes nothing they have sizes only.
fn trained(setup: &Setup<'_>, digits: &Arc<Dataset>, width: usize, steps: usize) -> Result<Vec<HostLayer>> {
    let device = (setup.open)()?;
    let options = ModelOptions { width: Some(width), ..ModelOptions::default() };
    let adam = OptimizerSettings::new(OptimizerKind::Adam, 1e-3);
    let mut session = Session::in_f32(&device, &*architecture("mlp", &options)?, &adam, setup.seed)?;
    session.network.source = Source::Dataset { data: digits.clone(), seed: setup.seed };
    for step in 0..if device.computes() { steps } else { 1 } {
        session.load_batch(64, step)?;
        session.zero_grad()?;
        session.forward()?;
        session.loss()?;
        session.backward()?;
        session.step()?;
    }
    let values = |array: &memcore::Array| if device.computes() { array.to_vec::<f32>() } else { Ok(Vec::new()) };
    let pairs = session.network.model.parameters.chunks_exact(2);
    pairs
        .map(|pair| {
            let [outputs, inputs] = *pair[0].array().dims() else {
                return Err(Error::usage("quantization", "a layer that is not a matrix"));
            };
            Ok(HostLayer { inputs, outputs, weight: values(pair[0].array())?, bias: values(pair[1].array())? })
        })
        .collect()
}

fn shown(trials: &[Trial], exam: &Exam) -> Table {
    let row = |t: &Trial| {
        vec![
            text(t.form.name()),
            Cell::Bytes(t.weights_bytes),
            Cell::Bytes(t.inference_peak_bytes),
            t.right(exam).map_or_else(|| text("-"), |right| text(format!("{right} of {}", exam.classes.len()))),
            text(t.times.words()),
        ]
    };
    let columns = ["weights", "held", "peak of inference", "right", "inference (range)"];
    let title = "A network for the digits, of which int8 weights have one scale per output";
    table(title, &columns, trials.iter().map(row).collect())
}

/// States the bytes of the weights, the peak of inference, and the right answers.
fn answer(trials: &[Trial], exam: &Exam) -> ShortAnswer {
    let [float, int8, _] = trials else { return ShortAnswer::default() };
    let times = float.weights_bytes as f64 / int8.weights_bytes.max(1) as f64;
    let right = match (float.right(exam), int8.right(exam)) {
        (Some(a), Some(b)) => format!("Right: {b} of {} digits instead of {a}.", exam.classes.len()),
        _ => "Accuracy is not known here: this device computes nothing.".into(),
    };
    ShortAnswer::new(
        format!("Weights {times:.1} times smaller, in inference alone"),
        [
            format!(
                "Weights {} → {}, peak of inference {} → {}.",
                bytes(float.weights_bytes),
                bytes(int8.weights_bytes),
                bytes(float.inference_peak_bytes),
                bytes(int8.inference_peak_bytes)
            ),
            right,
        ],
    )
}

fn judge(trials: &[Trial], layers: &[HostLayer], exam: &Exam) -> Vec<JudgedClaim> {
    let [float, int8, ahead] = trials else { return Vec::new() };
    // The article speaks of training, where int8 saves nothing. The verdict depends on inference.
    let verdict = if int8.weights_bytes < float.weights_bytes && int8.inference_peak_bytes < float.inference_peak_bytes
    {
        Verdict::Depends
    } else {
        Verdict::Fails
    };
    let accuracy = match (float.right(exam), int8.right(exam), int8.error(float)) {
        (Some(a), Some(b), Some(error)) => format!(
            "; right are {b} of {} digits instead of {a}, and no output is off by more than {error:.4}",
            exam.classes.len()
        ),
        _ => String::new(),
    };
    let parameters: usize = layers.iter().map(|layer| layer.outputs * (layer.inputs + 1)).sum();
    let condition = format!(
        "in inference {parameters} parameters take {} instead of {} ({:.2} times less: a byte per weight, 4 for each scale and bias), and \
         the peak is {} instead of {}, since activations stay float32; where weights become floats again before the product it is {}{accuracy}. \
         In training nothing is saved: there is no gradient through int8",
        bytes(int8.weights_bytes),
        bytes(float.weights_bytes),
        float.weights_bytes as f64 / int8.weights_bytes.max(1) as f64,
        bytes(int8.inference_peak_bytes),
        bytes(float.inference_peak_bytes),
        bytes(ahead.inference_peak_bytes),
    );
    let number = in_bytes([("float32", float.weights_bytes), ("int8", int8.weights_bytes)]);
    vec![JudgedClaim { lead: "in inference, not in training", claim: CLAIMS[0], verdict, number, condition }]
}

impl Trial {
    /// Returns the row of this form. `first` is the float32 form that the others are compared with.
    fn measurement(&self, layers: &[HostLayer], exam: &Exam, first: Option<&Trial>) -> Measurement {
        let mut m = Measurement::with_setting([("weights", self.form.name().into())]);
        m.measure("weights_bytes", self.weights_bytes);
        m.measure("conversion_peak_bytes", self.conversion_peak_bytes);
        m.measure("inference_peak_bytes", self.inference_peak_bytes);
        if let Some(foreseen) = &self.foreseen {
            m.predict("weights_bytes", foreseen.weights_bytes);
            m.predict("conversion_peak_bytes", foreseen.conversion_peak_bytes);
            m.predict("inference_peak_bytes", foreseen.inference_peak_bytes);
        }
        self.times.measure(&mut m, "forward_us");
        let mut known = |quantity: &str, value: Option<u64>| match value {
            Some(value) => m.measure(quantity, value),
            None => m.unknown(quantity),
        };
        known("digits_right", self.right(exam));
        if let Some(float) = first {
            let millionths = |error: f64| (error * 1e6).ceil() as u64;
            known("largest_error_millionths", self.error(float).map(millionths));
            match bound::beyond(layers, &exam.inputs, &float.outputs, &self.outputs) {
                Some(beyond) => {
                    m.measure("outputs_beyond_the_bound", beyond);
                    m.predict("outputs_beyond_the_bound", 0);
                }
                None => m.unknown("outputs_beyond_the_bound"),
            }
        }
        m
    }

    /// Number of examples whose largest output is that of their class.
    fn right(&self, exam: &Exam) -> Option<u64> {
        let classes = self.outputs.len() / exam.classes.len().max(1);
        if classes == 0 {
            return None;
        }
        let best = |row: &[f32]| row.iter().enumerate().fold(0, |best, (i, v)| if *v > row[best] { i } else { best });
        let rows = self.outputs.chunks(classes).zip(&exam.classes);
        Some(rows.filter(|(row, class)| best(row) as i64 == **class).count() as u64)
    }

    /// Largest difference between an output and that of `float`.
    fn error(&self, float: &Trial) -> Option<f64> {
        let pairs = self.outputs.iter().zip(&float.outputs);
        pairs.map(|(a, b)| f64::from((a - b).abs())).reduce(f64::max)
    }
}
