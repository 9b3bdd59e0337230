//! Finds the best allocator settings for a recorded run, by replay.
//!
//! The search replays the first part of the trace, from where the recording's allocator began; its result is checked on the rest. That starts with an
//! empty allocator: allocations that live across the split are made first.

use lab_base::error::Result;
use memcore::memory::{AllocatorConfig, TorchVersion};

use super::release::{Releases, since};
use crate::replay::{Figures, Machine, Operation, Policy, Trace, run_once};

/// One choice of settings and its cost.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Candidate {
    /// Settings in the syntax of `PYTORCH_ALLOC_CONF`; empty for the defaults.
    pub alloc_conf: String,
    /// Cost on the part that the search replays.
    pub searched: Cost,
    /// Cost on the rest; only for the recorded settings and for candidates that were checked there.
    pub held_out: Option<Cost>,
    /// Cost on the whole trace; only for the same candidates.
    pub whole: Option<Cost>,
}

/// Cost of a run. Less is better, in the order of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Cost {
    /// Requests that fail, those included that failed in the recording.
    pub failed: u64,
    /// Peak of reserved bytes.
    pub peak_reserved: u64,
    /// Calls of the driver. Each takes time, and those that free memory stop the device.
    pub driver_calls: u64,
}

impl Cost {
    /// True if a run would notice: fewer requests fail, less is reserved, or the driver is called for a tenth less.
    fn is_worth(&self, recorded: &Self) -> bool {
        let memory = |cost: &Self| (cost.failed, cost.peak_reserved);
        let calls = recorded.driver_calls - recorded.driver_calls.div_ceil(LEAST_CALLS_SAVED);
        let fewer = self.driver_calls < recorded.driver_calls && self.driver_calls <= calls;
        memory(self) < memory(recorded) || memory(self) == memory(recorded) && fewer
    }
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// Recorded settings.
    pub recorded: Candidate,
    /// Best settings that every release reads which may have made the recording; the recorded ones if none is better on both parts.
    pub best: Candidate,
    /// Settings that are better still, but have options that only the later ones of these releases read.
    pub newer: Option<Candidate>,
    /// All candidates tried, best first.
    pub tried: Vec<Candidate>,
    /// Number of operations that the search replayed, and number held out.
    pub operations: (usize, usize),
    /// Best candidate that was better on the part that the search replayed, but not on the rest.
    pub overfitted: Option<Candidate>,
    /// Largest sum of bytes live at one time in the whole trace: no settings take less.
    pub lower_bound: u64,
}

/// Calls of the driver of which one must be saved, for settings that save nothing else.
const LEAST_CALLS_SAVED: u64 = 10;

/// Share of the trace that the search replays.
const SEARCHED: f64 = 0.6;

/// Values tried for each option.
pub(super) const EXPANDABLE: [&str; 1] = [lab_base::changes::EXPANDABLE];
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

/// Searches the settings for a run on a machine, among those read by the releases that may have recorded it. Calls `interrupted` between replays and
/// stops when it returns true.
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
        let worth = found.whole.zip(recorded.whole).is_some_and(|(found, recorded)| found.is_worth(&recorded));
        let holds = found.held_out <= recorded.held_out && worth;
        let everyone_reads = found.alloc_conf.split(',').all(|option| since(option) <= releases.oldest);
        let is_worse = found.held_out > recorded.held_out || found.whole > recorded.whole;
        match (holds, everyone_reads) {
            (false, _) if !is_worse => {}
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

/// Returns the option of a setting.
fn key(setting: &str) -> &str {
    setting.split(':').next().unwrap_or(setting)
}

pub(super) fn config(version: TorchVersion, alloc_conf: &str) -> Result<AllocatorConfig> {
    let mut config = AllocatorConfig::for_version(version);
    config.update(alloc_conf)?;
    Ok(config)
}

/// Returns the cost of a trace under settings.
pub(super) fn cost(trace: &Trace, config: &AllocatorConfig, machine: &Machine) -> Result<Cost> {
    let figures: Figures = run_once(trace, &Policy::Caching(Box::new(config.clone())), machine)?;
    Ok(Cost {
        failed: figures.out_of_memory,
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
    /// Tries every option alone that the releases read, then adds to the best the best of the others, as long as that helps.
    fn greedily(&mut self, interrupted: &mut dyn FnMut() -> bool, reads: impl Fn(&str) -> bool) -> Result<()> {
        // Collection does nothing unless the process is limited to a share of the device.
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

    /// Returns the cost of settings; `None` for combinations that PyTorch refuses, such as split blocks larger than a segment, and where the recorded
    /// state cannot be theirs.
    fn candidate(&mut self, alloc_conf: &str) -> Result<Option<Cost>> {
        if let Some(known) = self.tried.iter().find(|known| known.alloc_conf == alloc_conf) {
            return Ok(Some(known.searched));
        }
        let Ok(config) = config(self.version, alloc_conf) else { return Ok(None) };
        if !self.trace.resumes_under(&config) {
            return Ok(None);
        }
        let searched = cost(self.trace, &config, self.machine)?;
        self.tried.push(Candidate { alloc_conf: alloc_conf.to_string(), searched, held_out: None, whole: None });
        Ok(Some(searched))
    }
}

/// Splits a trace into the part that the search replays and the rest, which begins with the allocations that live across the split.
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
        // An allocation that failed before the split is not freed after it.
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
    let first = first.starting(trace.start.clone());
    Ok((first, Trace::new(trace.name.clone(), settings, rest)?))
}
