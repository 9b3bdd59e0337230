//! Why memory ran out in a recorded run.

use lab_base::figures::{counted, grouped, short};
use lab_traces::snapshot::{Action, Snapshot, total};
use lab_traces::stacks::{Guesses, Place};
use serde::{Deserialize, Serialize};

use crate::WhatIfResult;

/// The last request that failed. Bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapshotOom {
    /// Entry of the trace.
    pub entry: usize,
    /// Number of requests that failed in all.
    pub failed: usize,
    /// Allocations that the trace has after it: the program went on.
    #[serde(default)]
    pub later_allocations: usize,
    /// Bytes requested.
    pub requested: u64,
    /// Line that requested them, in a few words; null if no stack was recorded.
    #[serde(rename = "where")]
    pub place: Option<String>,
    /// Requested bytes that were held.
    pub held: u64,
    /// Bytes that PyTorch had reserved.
    pub reserved: u64,
    /// Bytes left on the device.
    pub free_on_device: u64,
    /// Bytes reserved but not held: free parts of segments that are partly in use.
    pub free_in_reserved: u64,
    /// `full`: less was free than was requested; `fragmented`: enough was, but not in one piece; `limited`: the card had room.
    pub verdict: String,
    /// Bytes missing at that moment, at least; 0 if memory was fragmented. The rest of the run may need more.
    pub missing: u64,
    /// Effects of other allocator settings until then; null if they were not tried.
    pub what_if: Option<WhatIfResult>,
}

/// Says what refused a request that the card had room for.
pub(crate) const CARD_HAD_ROOM: &str =
    "The card had room, so a limit below it refused the request, such as set_per_process_memory_fraction";

impl SnapshotOom {
    /// Makes it for a device's trace, if a request failed in it within `range`.
    pub fn from_snapshot(snapshot: &Snapshot, device: usize, guesses: &Guesses, range: (usize, usize)) -> Option<Self> {
        let trace = snapshot.trace(device);
        let ooms = || {
            trace
                .iter()
                .enumerate()
                .filter(|(at, event)| event.action == Action::Oom && (range.0..=range.1).contains(at))
        };
        let (entry, event) = ooms().next_back()?;
        let held = total(guesses.lives.iter().filter(|life| life.lives_after(Some(entry))).map(|life| life.bytes));
        let mut reserved = snapshot.reserved_before(device);
        for event in &trace[..entry] {
            match event.action {
                Action::SegmentAlloc | Action::SegmentMap => reserved = reserved.saturating_add(event.bytes),
                Action::SegmentFree | Action::SegmentUnmap => reserved = reserved.saturating_sub(event.bytes),
                _ => {}
            }
        }
        let free_in_reserved = reserved.saturating_sub(held);
        let missing = event.bytes.saturating_sub(event.address.saturating_add(free_in_reserved));
        Some(Self {
            entry,
            failed: ooms().count(),
            later_allocations: trace[entry..].iter().filter(|event| event.action == Action::Alloc).count(),
            requested: event.bytes,
            place: snapshot.has_stack(event.stack).then(|| Place::from_stack(snapshot, event.stack).in_words()),
            held,
            reserved,
            free_on_device: event.address,
            free_in_reserved,
            verdict: snapshot.why_it_failed(event, free_in_reserved).into(),
            missing,
            what_if: None,
        })
    }

    /// The verdict in a few words.
    pub(super) fn cause(&self) -> &'static str {
        match self.verdict.as_str() {
            "full" => "the card was full",
            "limited" => "a limit below the card's memory was reached",
            _ => "free memory was fragmented",
        }
    }

    /// Formats the first sentences. `part`: the part of the program; `entries`: number of entries in the trace.
    pub(super) fn in_words(&self, part: &str, entries: usize) -> String {
        let who = self.place.as_deref().unwrap_or("The program");
        let verdict = match self.verdict.as_str() {
            "full" => format!("At least {} are missing.", short(self.missing)),
            "limited" => format!("{CARD_HAD_ROOM}."),
            _ => "Enough is free, but not in one piece.".into(),
        };
        let before = match self.failed {
            0 | 1 => String::new(),
            failed => format!(" It is the last of {failed} requests that failed."),
        };
        let after = match self.later_allocations {
            0 => String::new(),
            later => format!(" The program went on: {} follow.", counted(later as u64, "allocation")),
        };
        format!(
            "{who} asked for {}{part}, at entry {} of {}. PyTorch had reserved {}, of which {} were unused, and the card had \
             {} left. {verdict}{before}{after}",
            short(self.requested),
            grouped(self.entry as u64, ' '),
            grouped(entries as u64, ' '),
            short(self.reserved),
            short(self.free_in_reserved),
            short(self.free_on_device),
        )
    }
}
