//! A leak on a small device, until memory runs out.

use std::sync::Arc;

use lab_analysis::predict::product_workspaces;
use lab_base::error::{Error, Result};
use memcore::Device;
use memcore::backend::{Limited, Meta};

use super::cases::{CASES, Pattern};
use crate::{Measurement, Outcome, Setup};

const BATCH: usize = 255;
/// More steps than a device of at most 64 MiB can hold.
const MAX_STEPS: usize = 10_000;

/// Fills a small device that computes nothing, by keeping activations until a step fails.
pub(super) fn fill(setup: &Setup<'_>, memory_mib: usize, outcome: &mut Outcome) -> Result<()> {
    let profile = (setup.open)()?.profile().clone();
    let workspaces = product_workspaces(&profile);
    let capacity = workspaces + ((memory_mib as u64) << 20);
    let device = Device::builder(Arc::new(Limited::new(Meta::default(), capacity))).profile(profile).build();
    let Some(case) = CASES.iter().find(|case| case.pattern == Pattern::KeepsActivations) else { return Ok(()) };
    let mut done = 0;
    let mut stopped = false;
    let result = case.run(&device, BATCH, MAX_STEPS, setup.seed, &mut |step| {
        done = step + 1;
        stopped = step % 64 == 63 && (setup.progress)("until memory runs out", 0.95).is_break();
        !stopped
    });
    let report = match result {
        Err(Error::Core(memcore::Error::OutOfMemory(report))) => report,
        Err(other) => return Err(other),
        Ok(()) => {
            outcome.interrupted |= stopped;
            return Ok(());
        }
    };
    let mut m = Measurement::with_setting([
        ("program", case.name.into()),
        ("batch", BATCH.into()),
        ("device_bytes", capacity.into()),
    ]);
    m.measure("out_of_memory_step", done as u64);
    outcome.rows.push(m);
    let growth = case.growth(BATCH, false).unwrap_or(1);
    outcome.notes.push(format!(
        "On a device of {capacity} bytes, with {BATCH} examples and {growth} bytes more in each step, step {done} is the first one that \
         fails ({} bytes divided by the growth give {}). {report}",
        (memory_mib as u64) << 20,
        ((memory_mib as u64) << 20) / growth
    ));
    Ok(())
}
