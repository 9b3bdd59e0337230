//! Replays a whole recorded run under other allocator settings.
//!
//! There is no answer if a replay under the recorded settings does not reserve what the recording did, all along.

use lab_base::error::Result;

use super::agreement::{Agreement, agreement};
use super::model::Snapshot;
use super::release::since;
use super::tune::{Cost, EXPANDABLE, ROUNDUP, SEGMENT, SPLIT, config, cost};
use crate::replay::{Machine, Policy};

/// Settings, and the cost of the run under them.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Setting {
    /// Settings in the syntax of `PYTORCH_ALLOC_CONF`; empty for the defaults.
    pub alloc_conf: String,
    /// Cost of the run.
    pub cost: Cost,
}

/// What undoes expandable segments.
const NOT_EXPANDABLE: &str = "expandable_segments:False";

impl Setting {
    /// True for the defaults of the allocator.
    pub fn is_plain(&self) -> bool {
        self.alloc_conf.is_empty() || self.alloc_conf == NOT_EXPANDABLE
    }
}

/// Costs under other settings.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    /// Self-check: agreement of a replay under the recorded settings with the recording.
    pub check: Agreement,
    /// Recorded settings, with as much memory as was asked about.
    pub recorded: Option<Setting>,
    /// All other settings tried, best first; empty if the self-check failed.
    pub tried: Vec<Setting>,
}

/// Replays a device's trace under each single setting that the releases read which may have recorded it, on a card with `capacity_bytes` for PyTorch
/// (`None` for no limit).
///
/// # Errors
/// A snapshot without a trace; those of a replay.
pub fn what_if(snapshot: &Snapshot, device: usize, capacity_bytes: Option<u64>) -> Result<WhatIf> {
    let program = snapshot.program("the recording", device)?;
    let recorded = snapshot.allocator_config()?;
    let settings = &program.trace.settings;
    let as_recorded = Machine { capacity_bytes: settings.capacity_bytes, memory_fraction: settings.memory_fraction };
    let policy = Policy::Caching(Box::new(recorded.clone()));
    let check = agreement(snapshot, device, &program, &policy, &as_recorded)?;
    if !check.reserved_is_equal() {
        return Ok(WhatIf { check, recorded: None, tried: Vec::new() });
    }
    let machine = Machine { capacity_bytes: capacity_bytes.or(as_recorded.capacity_bytes), ..as_recorded };
    let now = Setting { alloc_conf: recorded.last_settings.clone(), cost: cost(&program.trace, &recorded, &machine)? };
    let options = [&EXPANDABLE[..], &SPLIT, &ROUNDUP, &SEGMENT].concat();
    let mut tried = Vec::new();
    // The defaults; from outside, what the script sets by itself is only undone by name.
    let plain = if now.alloc_conf.contains("expandable_segments:True") { NOT_EXPANDABLE } else { "" };
    for option in options.into_iter().chain([plain]) {
        let reads = option.is_empty() || since(option) <= snapshot.releases.oldest;
        if !reads || option == now.alloc_conf {
            continue;
        }
        // Combinations that PyTorch refuses are skipped, and those that cannot have led to the recorded state.
        let Ok(config) = config(settings.version, option) else { continue };
        if !program.trace.resumes_under(&config) {
            continue;
        }
        tried.push(Setting { alloc_conf: option.into(), cost: cost(&program.trace, &config, &machine)? });
    }
    // The plainest of equals comes first.
    tried.sort_by_key(|setting| (setting.cost, !setting.is_plain()));
    Ok(WhatIf { check, recorded: Some(now), tried })
}
