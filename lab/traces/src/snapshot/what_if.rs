//! What a recorded run would have taken under other settings of the allocator, by replay of all of it.
//!
//! Nothing is said where a replay under the recorded settings does not repeat the recording.

use lab_base::error::Result;

use super::agreement::{Agreement, agreement};
use super::model::Snapshot;
use super::release::since;
use super::tune::{Cost, EXPANDABLE, ROUNDUP, SEGMENT, SPLIT, config, cost};
use crate::replay::{Machine, Policy};

/// Settings, and what the run takes under them.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Setting {
    /// In the syntax of `PYTORCH_ALLOC_CONF`; empty: the defaults.
    pub alloc_conf: String,
    /// What the run takes.
    pub cost: Cost,
}

/// What other settings would have done.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    /// The self-check: how far a replay under the recorded settings repeats the recording.
    pub check: Agreement,
    /// The recorded settings, with as much memory as was asked about.
    pub recorded: Option<Setting>,
    /// All others that were tried, the best first; none where the self-check failed.
    pub tried: Vec<Setting>,
}

/// Replays a device's trace under each setting alone that the releases read which may have recorded it, on a card with
/// `capacity_bytes` for PyTorch (`None`: as much as it wants).
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
    if !check.is_exact() {
        return Ok(WhatIf { check, recorded: None, tried: Vec::new() });
    }
    let machine = Machine { capacity_bytes: capacity_bytes.or(as_recorded.capacity_bytes), ..as_recorded };
    let now = Setting { alloc_conf: recorded.last_settings.clone(), cost: cost(&program.trace, &recorded, &machine)? };
    let options = [&EXPANDABLE[..], &SPLIT, &ROUNDUP, &SEGMENT].concat();
    let mut tried = Vec::new();
    for option in options.into_iter().chain([""]) {
        let reads = option.is_empty() || since(option) <= snapshot.releases.oldest;
        if !reads || option == now.alloc_conf {
            continue;
        }
        // What PyTorch would not take is not a setting.
        let Ok(config) = config(settings.version, option) else { continue };
        tried.push(Setting { alloc_conf: option.into(), cost: cost(&program.trace, &config, &machine)? });
    }
    tried.sort_by_key(|setting| setting.cost);
    Ok(WhatIf { check, recorded: Some(now), tried })
}
