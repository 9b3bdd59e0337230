//! The best settings of the allocator for a recorded run, found by replay.
//!
//! The search sees the first part of the trace; what it found is checked on the rest. Both start with an empty
//! allocator: what lives at the seam is allocated first.

use lab_base::error::Result;
use memcore::memory::{AllocatorConfig, TorchVersion};

use super::release::{Releases, since};
use crate::replay::{Figures, Machine, Operation, Policy, Trace, run_once};

/// One choice of settings and what it takes.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Candidate {
    /// In the syntax of `PYTORCH_ALLOC_CONF`; empty: the defaults.
    pub alloc_conf: String,
    /// On the part that the search saw.
    pub searched: Cost,
    /// On the rest; only of the recorded settings, and of those that were checked there.
    pub held_out: Option<Cost>,
    /// On all of the trace; only of the same.
    pub whole: Option<Cost>,
}

/// What a run takes. Less is better, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Cost {
    /// Requests that fail and were served in the recording.
    pub failed: u64,
    /// The most that is reserved. Bytes.
    pub peak_reserved: u64,
    /// Calls of the driver: each takes time, and those that give memory back stop the device.
    pub driver_calls: u64,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// The recorded settings.
    pub recorded: Candidate,
    /// The best that every release reads which may have made the recording; the recorded ones if none is better on both
    /// parts.
    pub best: Candidate,
    /// What is better still, but has options that only the later ones of these releases read.
    pub newer: Option<Candidate>,
    /// All that were tried, best first.
    pub tried: Vec<Candidate>,
    /// Operations that the search saw, and those that were held out.
    pub operations: (usize, usize),
    /// The best of those that were better on the part that the search saw, but not on the rest.
    pub overfitted: Option<Candidate>,
    /// The most that lives at one time in the whole trace: no settings take less. Bytes.
    pub lower_bound: u64,
}

/// The share of the trace that the search sees.
const SEARCHED: f64 = 0.6;

/// What each option may be.
pub(super) const EXPANDABLE: [&str; 1] = ["expandable_segments:True"];
pub(super) const SPLIT: [&str; 6] = [
    "max_split_size_mb:20",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
];
pub(super) const ROUNDUP: [&str; 5] = [
    "roundup_power2_divisions:1",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
];
pub(super) const SEGMENT: [&str; 5] = [
    "large_segment_size_mb:12",
    "large_segment_size_mb:16",
    "large_segment_size_mb:32",
    "large_segment_size_mb:64",
    "large_segment_size_mb:128",
];
const COLLECT: [&str; 2] = ["garbage_collection_threshold:0.6", "garbage_collection_threshold:0.8"];

/// Searches the settings for a run on a machine, among those that the releases read which may have recorded it. Calls
/// `interrupted` between replays and stops when it says so.
///
/// # Errors
/// Recorded settings that cannot be parsed; those of a replay.
pub fn tune(
    trace: &Trace,
    recorded: &AllocatorConfig,
    machine: &Machine,
    releases: Releases,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Tuned> {
    let (first, rest) = split(trace)?;
    let mut search = Search { trace: &first, version: recorded.version, machine, tried: Vec::new() };
    search.greedily(interrupted, |option| since(option) <= releases.oldest)?;
    if releases.newest > releases.oldest {
        search.greedily(interrupted, |option| since(option) <= releases.newest)?;
    }
    let mut tried = search.tried;
    tried.sort_by(|a, b| a.searched.cmp(&b.searched).then(a.alloc_conf.len().cmp(&b.alloc_conf.len())));
    let recorded = Candidate {
        alloc_conf: recorded.last_settings.clone(),
        searched: cost(&first, recorded, machine)?,
        held_out: Some(cost(&rest, recorded, machine)?),
        whole: Some(cost(trace, recorded, machine)?),
    };
    let (mut best, mut newer, mut overfitted) = (None, None, None);
    for found in tried.iter_mut().filter(|found| found.searched < recorded.searched) {
        if interrupted() {
            break;
        }
        let config = config(first.settings.version, &found.alloc_conf)?;
        found.held_out = Some(cost(&rest, &config, machine)?);
        found.whole = Some(cost(trace, &config, machine)?);
        let holds = found.held_out <= recorded.held_out && found.whole < recorded.whole;
        let everyone_reads = found.alloc_conf.split(',').all(|option| since(option) <= releases.oldest);
        match (holds, everyone_reads) {
            (false, _) => drop(overfitted.get_or_insert_with(|| found.clone())),
            (true, false) => drop(newer.get_or_insert_with(|| found.clone())),
            (true, true) => {
                best = Some(found.clone());
                break;
            }
        }
    }
    Ok(Tuned {
        best: best.unwrap_or_else(|| recorded.clone()),
        recorded,
        newer,
        tried,
        operations: (first.operations().len(), rest.operations().len()),
        overfitted,
        lower_bound: trace.lower_bound().bytes,
    })
}

/// The option that a setting sets.
fn key(setting: &str) -> &str {
    setting.split(':').next().unwrap_or(setting)
}

pub(super) fn config(version: TorchVersion, alloc_conf: &str) -> Result<AllocatorConfig> {
    let mut config = AllocatorConfig::for_version(version);
    config.update(alloc_conf)?;
    Ok(config)
}

/// What a trace takes under settings.
pub(super) fn cost(trace: &Trace, config: &AllocatorConfig, machine: &Machine) -> Result<Cost> {
    let figures: Figures = run_once(trace, &Policy::Caching(Box::new(config.clone())), machine)?;
    Ok(Cost {
        failed: figures.newly_failed,
        peak_reserved: figures.peak_reserved,
        driver_calls: figures.driver.total(),
    })
}

struct Search<'a> {
    trace: &'a Trace,
    version: TorchVersion,
    machine: &'a Machine,
    tried: Vec<Candidate>,
}

impl Search<'_> {
    /// Tries every option that is read alone, and adds to the best the best of the others, as long as that helps.
    fn greedily(&mut self, interrupted: &mut dyn FnMut() -> bool, reads: impl Fn(&str) -> bool) -> Result<()> {
        // Collection does nothing unless the process has a share of the device.
        let shared = self.machine.memory_fraction.is_some_and(|fraction| fraction < 1.0);
        let collect: &[&str] = if shared { &COLLECT } else { &[] };
        let groups: [&[&str]; 5] = [&EXPANDABLE, &SPLIT, &ROUNDUP, &SEGMENT, collect];
        let mut chosen: Vec<&str> = Vec::new();
        let mut now = self.candidate("")?;
        loop {
            let used = |option: &str| chosen.iter().any(|other| key(other) == key(option));
            let mut best: Option<(Cost, &str)> = None;
            for option in groups.iter().copied().flatten().filter(|option| reads(option) && !used(option)) {
                if interrupted() {
                    return Ok(());
                }
                let together = chosen.iter().copied().chain([*option]).collect::<Vec<_>>().join(",");
                let Some(found) = self.candidate(&together)? else { continue };
                if best.is_none_or(|(cost, _)| found < cost) {
                    best = Some((found, option));
                }
            }
            match best {
                Some((cost, option)) if now.is_some_and(|now| cost < now) => {
                    chosen.push(option);
                    now = Some(cost);
                }
                _ => return Ok(()),
            }
        }
    }

    /// What settings take; `None` for some that PyTorch does not take together, such as blocks larger than a segment
    /// that are split.
    fn candidate(&mut self, alloc_conf: &str) -> Result<Option<Cost>> {
        if let Some(known) = self.tried.iter().find(|known| known.alloc_conf == alloc_conf) {
            return Ok(Some(known.searched));
        }
        let Ok(config) = config(self.version, alloc_conf) else { return Ok(None) };
        let searched = cost(self.trace, &config, self.machine)?;
        self.tried.push(Candidate { alloc_conf: alloc_conf.to_string(), searched, held_out: None, whole: None });
        Ok(Some(searched))
    }
}

/// The part that the search sees, and the rest, which begins with what lives at the seam.
fn split(trace: &Trace) -> Result<(Trace, Trace)> {
    let operations = trace.operations();
    let seam = (operations.len() as f64 * SEARCHED) as usize;
    let mut lives: Vec<Option<Operation>> = Vec::new();
    for operation in &operations[..seam] {
        match operation {
            Operation::Allocate { served, .. } => lives.push(served.then_some(*operation)),
            Operation::Free { allocation } => lives[*allocation as usize] = None,
            _ => {}
        }
    }
    let mut renamed: Vec<u32> = vec![u32::MAX; trace.allocations()];
    let mut made = 0;
    let mut rest = Vec::new();
    for (allocation, operation) in lives.iter().enumerate() {
        if let Some(operation) = operation {
            renamed[allocation] = made;
            made += 1;
            rest.push(*operation);
        }
    }
    let mut number = lives.len();
    for operation in &operations[seam..] {
        // What failed before the seam is nothing to free behind it.
        let there = |allocation: u32| renamed[allocation as usize] != u32::MAX;
        rest.push(match *operation {
            Operation::Free { allocation } | Operation::RecordStream { allocation, .. } if !there(allocation) => {
                continue;
            }
            Operation::Allocate { .. } => {
                renamed[number] = made;
                number += 1;
                made += 1;
                *operation
            }
            Operation::Free { allocation } => Operation::Free { allocation: renamed[allocation as usize] },
            Operation::RecordStream { allocation, stream } => {
                Operation::RecordStream { allocation: renamed[allocation as usize], stream }
            }
            other => other,
        });
    }
    if operations[..seam].contains(&Operation::HoldEvents) {
        rest.insert(0, Operation::HoldEvents);
    }
    let settings = trace.settings.clone();
    let first = Trace::new(trace.name.clone(), settings.clone(), operations[..seam].to_vec())?;
    Ok((first, Trace::new(trace.name.clone(), settings, rest)?))
}
