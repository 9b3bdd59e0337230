//! The clock of the comparison: three warm-up steps, then steps until a time or a number is reached, at least three.

use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};

use crate::device::Opened;

/// The limits at which timed steps end.
pub(crate) struct Limits {
    /// After this many seconds…
    pub(crate) seconds: f64,
    /// … or this many steps.
    pub(crate) steps: usize,
}

pub(crate) struct Run {
    ms: Vec<f64>,
    losses: Vec<f64>,
    warmup_s: f64,
}

const WARMUP: usize = 3;
const MIN_STEPS: usize = 3;

/// Times `step`, which does a whole step, waits for the device and returns the loss if there is one.
pub(crate) fn measure(limits: &Limits, mut step: impl FnMut() -> Result<Option<f64>>) -> Result<Run> {
    let mut losses = Vec::new();
    let start = Instant::now();
    for _ in 0..WARMUP {
        losses.extend(step()?);
    }
    let warmup_s = start.elapsed().as_secs_f64();
    let mut ms = Vec::new();
    let begin = Instant::now();
    while ms.len() < limits.steps && (ms.len() < MIN_STEPS || begin.elapsed().as_secs_f64() < limits.seconds) {
        let start = Instant::now();
        losses.extend(step()?);
        ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Run { ms, losses, warmup_s })
}

impl Run {
    /// Median milliseconds of a step; there are at least three steps.
    pub(crate) fn median(&self) -> f64 {
        lab::figures::median(&self.ms).unwrap_or_default()
    }

    /// The line that all programs print, without the fields that only a workload knows.
    pub(crate) fn line(&self, workload: &str, batch: Option<usize>, opened: &Opened) -> Value {
        let stats = opened.device.stats();
        json!({
            "peer": "vramlab",
            "version": env!("CARGO_PKG_VERSION"),
            "device": opened.name,
            "threads": opened.threads,
            "dtype": "f32",
            "workload": workload,
            "batch": batch,
            "ms_per_step_median": self.median(),
            "min": self.ms.iter().copied().reduce(f64::min),
            "max": self.ms.iter().copied().reduce(f64::max),
            "steps": self.ms.len(),
            "warmup_s": self.warmup_s,
            "loss_first": self.losses.first(),
            "loss_last": self.losses.last(),
            "losses_head": &self.losses[..self.losses.len().min(4)],
            "peak_bytes": stats.reserved_bytes.all.peak,
            "peak_kind": "reserved",
            "peak_allocated_bytes": stats.allocated_bytes.all.peak,
        })
    }
}
