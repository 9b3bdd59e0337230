//! The second article's anecdote: an encoder and decoder whose attention weights are kept.

use lab_analysis::predict::rounded;
use lab_base::error::Result;
use lab_models::{ModelOptions, architecture};
use lab_training::{OptimizerKind, OptimizerSettings};

use crate::Setup;
use crate::columns::Columns;
use crate::default_allocator::predictable;
use crate::session::{Session, undisturbed};
use crate::tables::text;

/// Number of steps. The growth in the last one is measured.
const STEPS: usize = 3;

/// Figures of one length, with the attention weights freed or kept.
pub(super) struct Trial {
    keeps: bool,
    length: usize,
    growth_bytes: u64,
    predicted: Option<u64>,
}

pub(super) fn attempt(setup: &Setup<'_>, keeps: bool, length: usize, batch: usize) -> Result<Trial> {
    let predictable = predictable(setup)?;
    let device = (setup.open)()?;
    let options = ModelOptions { sequence: Some(length), keep_intermediate: keeps, ..ModelOptions::default() };
    let sgd = OptimizerSettings::new(OptimizerKind::Sgd, 1e-3);
    let mut session = Session::in_f32(&device, &*architecture("seq2seq-attention", &options)?, &sgd, setup.seed)?;
    let mut after = [0; STEPS];
    for (step, allocated) in after.iter_mut().enumerate() {
        session.whole_step(&format!("s{step}"), batch)?;
        *allocated = device.usage().allocated_bytes();
    }
    let growth_bytes = after[STEPS - 1].saturating_sub(after[STEPS - 2]);
    // Each of the T steps of the decoder makes one row of weights per example.
    let row = 4 * (batch * length) as u64;
    let known = predictable && undisturbed(&device) && rounded(row) <= 1 << 20;
    let predicted = known.then(|| if keeps { length as u64 * rounded(row) } else { 0 });
    Ok(Trial { keeps, length, growth_bytes, predicted })
}

impl Trial {
    fn habit(&self) -> &'static str {
        if self.keeps { "weights in a list" } else { "weights freed" }
    }
}

/// Most bytes that a step adds, among the trials that keep the weights or those that do not.
pub(super) fn most(trials: &[Trial], keeps: bool) -> u64 {
    trials.iter().filter(|trial| trial.keeps == keeps).map(|trial| trial.growth_bytes).max().unwrap_or(0)
}

pub(super) const TITLE: &str = "An encoder and decoder with attention: what each step adds, T·r(4·B·T) with the list";

pub(super) fn columns() -> Columns<'static, Trial> {
    Columns::new()
        .set("attention", |t: &Trial| format!("seq2seq, {}", t.habit()))
        .cell("seq2seq-attention", |t| text(t.habit()))
        .number("sequence", "tokens", |t| t.length)
        .bytes("growth_bytes", "added per step", |t| t.growth_bytes)
        .predicted("growth_bytes", |t| t.predicted)
}
