//! Training in each precision: a small network on real digits, with the same batches in the same order.

use std::sync::Arc;

use lab_base::error::Result;
use lab_base::section::{Cell, Table};
use lab_models::{ModelOptions, architecture};
use lab_training::data::{Dataset, Split};
use lab_training::{Accuracy, OptimizerKind, OptimizerSettings, Precision, RunSettings, Source, TrainStep, evaluate};
use memcore::nn::Parameter;
use memcore::ops;
use memcore::optim::{Adam, AdamOptions};

use super::super::session::Session;
use super::super::tables::{table, text};
use super::super::{Measurement, Setup};

/// Examples per step.
const BATCH: usize = 64;
const LR: f64 = 1e-3;

/// A way of training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lesson {
    pub(super) name: &'static str,
    pub(super) precision: Precision,
    /// Under autocast to float16, which comes with a loss scaler: true if the scaler is used.
    pub(super) scaler: bool,
    /// The ε that Adam adds to its denominators.
    pub(super) eps: f64,
    /// Divisor of the loss before backward.
    pub(super) divisor: f64,
}

const fn lesson(name: &'static str, precision: Precision) -> Lesson {
    Lesson { name, precision, scaler: true, eps: 1e-8, divisor: 1.0 }
}

/// Divisor that makes gradients small, as a mean over a batch of a million tokens does.
const MANY: f64 = 1_048_576.0;

const fn divided(name: &'static str, precision: Precision, scaler: bool) -> Lesson {
    // Adam's update does not depend on the size of the gradients, as long as ε is smaller still.
    Lesson { name, precision, scaler, eps: 1e-14, divisor: MANY }
}

/// Five precisions with the usual settings; autocast without its scaler; float16 with a larger ε; three with small gradients.
pub(super) const LESSONS: [Lesson; 10] = [
    lesson("fp32", Precision::Fp32),
    lesson("autocast-fp16", Precision::AutocastFp16),
    lesson("autocast-bf16", Precision::AutocastBf16),
    lesson("fp16", Precision::Fp16),
    lesson("bf16", Precision::Bf16),
    Lesson { scaler: false, ..lesson("autocast-fp16, no scaler", Precision::AutocastFp16) },
    Lesson { eps: 1e-4, ..lesson("fp16, Adam's ε 1e-4", Precision::Fp16) },
    divided("fp32, small", Precision::Fp32, false),
    divided("autocast-fp16, small, no scaler", Precision::AutocastFp16, false),
    divided("autocast-fp16, small, scaler", Precision::AutocastFp16, true),
];

/// Results of training.
pub(super) struct Learnt {
    pub(super) lesson: Lesson,
    /// Loss of each step, before the division.
    pub(super) losses: Vec<f64>,
    /// Number of gradient values of the first step that are zero, and of all.
    pub(super) zeros: (u64, u64),
    pub(super) accuracy: Option<Accuracy>,
}

/// Trains for `steps` steps; `None` on a device that computes nothing.
pub(super) fn learn(setup: &Setup<'_>, lesson: Lesson, data: &Arc<Dataset>, steps: usize) -> Result<Option<Learnt>> {
    let device = (setup.open)()?;
    if !device.computes() {
        return Ok(None);
    }
    let adam = OptimizerSettings::new(OptimizerKind::Adam, LR);
    let network = architecture("mlp", &ModelOptions::default())?;
    let mut session = Session::in_precision(&device, &*network, &adam, lesson.precision, setup.seed)?;
    let options = AdamOptions { lr: LR, eps: lesson.eps, ..AdamOptions::adam() };
    session.update.optimizer = Some(Box::new(Adam::new(session.network.model.parameters.clone(), options)?));
    session.network.source = Source::Dataset { data: data.clone(), seed: setup.seed };
    if !lesson.scaler {
        session.update.scaler = None;
    }
    let (mut losses, mut zeros) = (Vec::with_capacity(steps), (0, 0));
    for step in 0..steps {
        session.load_batch(BATCH, step)?;
        session.zero_grad()?;
        session.forward()?;
        session.loss()?;
        if let Some(loss) = &session.loss {
            losses.push(loss.item()?);
        }
        if lesson.divisor != 1.0 {
            session.loss = session.loss.as_ref().map(|loss| ops::div_scalar(loss, lesson.divisor)).transpose()?;
        }
        session.backward()?;
        if step == 0 {
            zeros = zero_gradients(&session)?;
        }
        session.step()?;
    }
    let settings = RunSettings { precision: lesson.precision, ..RunSettings::new(BATCH, steps, adam) };
    let accuracy = evaluate(&session.network.model, &device, data, Split::Test, &settings)?;
    Ok(Some(Learnt { lesson, losses, zeros, accuracy }))
}

fn zero_gradients(session: &Session) -> Result<(u64, u64)> {
    let (mut zeros, mut all) = (0, 0);
    for gradient in session.network.model.parameters.iter().filter_map(Parameter::grad) {
        let values = gradient.to_f64()?;
        all += values.len() as u64;
        zeros += values.iter().filter(|value| **value == 0.0).count() as u64;
    }
    Ok((zeros, all))
}

impl Learnt {
    /// Number of steps before the first loss that is not finite.
    pub(super) fn finite_steps(&self) -> usize {
        self.losses.iter().take_while(|loss| loss.is_finite()).count()
    }

    /// Mean of the losses of the last ten steps, because batches differ.
    pub(super) fn last_loss(&self) -> f64 {
        let last = &self.losses[self.losses.len().saturating_sub(10)..];
        last.iter().sum::<f64>() / last.len().max(1) as f64
    }

    pub(super) fn zero_share(&self) -> f64 {
        self.zeros.0 as f64 / self.zeros.1.max(1) as f64
    }
}

/// Returns the row of a lesson, with its results on a device that has values.
pub(super) fn measurement(lesson: &Lesson, learnt: Option<&Learnt>) -> Measurement {
    let mut m = Measurement::with_setting([
        ("training", lesson.name.into()),
        ("precision", lesson.precision.name().into()),
        ("loss_divided_by", lesson.divisor.into()),
    ]);
    let Some(learnt) = learnt else {
        for quantity in ["finite_steps", "last_loss_millionths", "zero_gradients", "test_right"] {
            m.unknown(quantity);
        }
        return m;
    };
    m.measure("finite_steps", learnt.finite_steps() as u64);
    m.measure("zero_gradients", learnt.zeros.0);
    match learnt.last_loss() {
        loss if loss.is_finite() => m.measure("last_loss_millionths", (loss * 1e6).round() as u64),
        _ => m.unknown("last_loss_millionths"),
    }
    match learnt.accuracy {
        Some(accuracy) => m.measure("test_right", accuracy.right as u64),
        None => m.unknown("test_right"),
    }
    m
}

/// Makes a table of the losses at some of the steps.
pub(super) fn curves(title: &str, learnt: &[&Learnt]) -> Table {
    let steps = learnt.first().map_or(0, |first| first.losses.len());
    let shown = (0..steps).filter(|step| step.is_multiple_of(steps.div_ceil(8).max(1)) || step + 1 == steps);
    let row = |step: usize| {
        let mut row = vec![Cell::Count(step as u64)];
        row.extend(learnt.iter().map(|l| text(format!("{:.4}", l.losses[step]))));
        row
    };
    let mut columns = vec!["step"];
    columns.extend(learnt.iter().map(|l| l.lesson.name));
    table(title, &columns, shown.map(row).collect())
}

/// Makes a table with the results of all lessons.
pub(super) fn summary(learnt: &[Learnt]) -> Table {
    let row = |l: &Learnt| {
        vec![
            text(l.lesson.name),
            text(format!("{:.4}", l.last_loss())),
            text(l.accuracy.map_or("-".into(), |a| format!("{:.1} %", 100.0 * a.share()))),
            text(format!("{:.1} %", 100.0 * l.zero_share())),
            Cell::Count(l.finite_steps() as u64),
        ]
    };
    let columns = ["training", "last loss", "right on test", "zero gradients at first", "finite steps"];
    table("Digits, two hidden layers, Adam", &columns, learnt.iter().map(row).collect())
}
