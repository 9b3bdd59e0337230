//! Comparison of two snapshots (`vramlab-snapshot-diff-1`).

use std::collections::BTreeMap;

use lab_base::figures::{both, short, signed};
use lab_base::section::{Cell, Section, Table};
use lab_traces::snapshot::Comparison;
use lab_traces::stacks::Differences;
use serde::{Deserialize, Serialize};

use super::findings::{Findings, file_name};
use super::other_devices::OtherDevice;
use super::requests_diff::RequestsDiff;
use super::snapshot::{TotalsResult, brief};

/// Sections about the requests that stand before those about the end: the first difference, and the peak.
const BEFORE_THE_END: usize = 2;

/// Changes from one snapshot to another. The first of each pair is the earlier one. Bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapshotDiff {
    /// The files.
    pub files: [String; 2],
    /// Index of the device.
    pub device: usize,
    /// The other devices that have memory or a trace, in the second file.
    #[serde(default)]
    pub other_devices: Vec<OtherDevice>,
    /// Those that only the first file has.
    #[serde(default)]
    pub other_devices_before: Vec<OtherDevice>,
    /// Its sums.
    pub totals: [TotalsResult; 2],
    /// Stacks that hold more or less than before, those that changed most first.
    pub changes: Vec<ChangedStack>,
    /// Number of segments that only one snapshot has.
    pub segments_only_in: [usize; 2],
    /// Their bytes.
    pub segment_bytes_only_in: [u64; 2],
    /// How the recorded requests differ; absent if a file records none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestsDiff>,
    /// Number of rows in the table.
    #[serde(skip, default = "usize::max_value")]
    pub top: usize,
    /// False if a run ended with its steps: who holds memory then tells nothing.
    #[serde(skip)]
    pub went_on: bool,
}

/// A stack that holds more or less than before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedStack {
    /// Stack with the innermost frame first.
    pub stack: Vec<String>,
    /// Bytes requested.
    pub bytes: [u64; 2],
    /// Number of blocks.
    pub allocations: [u64; 2],
}

impl SnapshotDiff {
    /// Converts a comparison.
    pub fn new(
        files: [String; 2],
        device: usize,
        [other_devices_before, other_devices]: [Vec<OtherDevice>; 2],
        comparison: &Comparison,
        requests: Option<&Differences>,
        top: usize,
    ) -> Self {
        let change = |change: &lab_traces::snapshot::Change| ChangedStack {
            stack: change.stack.clone(),
            bytes: change.bytes.into(),
            allocations: change.allocations.into(),
        };
        let is_new = |other: &OtherDevice| other_devices.iter().all(|known| known.device != other.device);
        let other_devices_before = other_devices_before.into_iter().filter(is_new).collect();
        Self {
            files,
            device,
            other_devices,
            other_devices_before,
            totals: [(&comparison.totals.0).into(), (&comparison.totals.1).into()],
            changes: comparison.changes.iter().map(change).collect(),
            segments_only_in: comparison.segments.into(),
            segment_bytes_only_in: comparison.segment_bytes.into(),
            requests: requests.map(RequestsDiff::from),
            top,
            went_on: true,
        }
    }

    /// Sums by line: stacks that differ only in who called the line are one row.
    fn by_line(&self) -> Vec<([u64; 2], String)> {
        let mut sums: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for change in &self.changes {
            let sum = sums.entry(brief(&change.stack)).or_default();
            for (sum, bytes) in sum.iter_mut().zip(change.bytes) {
                *sum = sum.saturating_add(bytes);
            }
        }
        let mut rows: Vec<([u64; 2], String)> = sums
            .into_iter()
            .filter(|(_, [before, after])| before != after)
            .map(|(line, bytes)| (bytes, line))
            .collect();
        rows.sort_by_key(|([before, after], _)| std::cmp::Reverse(before.abs_diff(*after)));
        rows
    }

    fn rows(&self, lines: Vec<([u64; 2], String)>) -> Table {
        let row = |([before, after], line): ([u64; 2], String)| {
            let difference = Cell::Difference((after as i64).saturating_sub(before as i64));
            vec![Cell::Bytes(before), Cell::Bytes(after), difference, Cell::Text(line)]
        };
        let columns = ["before", "after", "difference", "by"];
        Table::new("Who holds more, or less", &columns, lines.into_iter().take(self.top).map(row).collect())
    }

    /// True if the peaks say what differs; otherwise what both hold at the end does.
    fn is_by_peak(&self) -> bool {
        let differs = |requests: &RequestsDiff| requests.peak_bytes[0] != requests.peak_bytes[1];
        self.requests.as_ref().is_some_and(|requests| !self.went_on || differs(requests))
    }

    /// What both have at the end of the recordings.
    fn end(&self) -> Vec<Section> {
        let [before, after] = &self.totals;
        let sums = [
            ("reserved", before.reserved, after.reserved),
            ("allocated", before.allocated, after.allocated),
            ("active", before.active, after.active),
            ("requested", before.requested, after.requested),
            ("free", before.free, after.free),
        ];
        let line = |(what, one, two): (&str, u64, u64)| {
            let difference = signed((two as i64).saturating_sub(one as i64));
            Section::Note(format!("{what}: {} → {} ({difference})", both(one), both(two)))
        };
        let mut sections: Vec<Section> = sums.into_iter().map(line).collect();
        sections.extend(OtherDevice::in_words(self.device, &self.other_devices).map(Section::Note));
        let before = OtherDevice::listed(&self.other_devices_before);
        sections.extend(before.map(|listed| Section::Note(format!("The first file also has {listed}: --device N."))));
        let ([first, second], [one, two]) = (self.segments_only_in, self.segment_bytes_only_in);
        sections.push(Section::Note(format!(
            "Segments only in the first: {first} ({}); only in the second: {second} ({}).",
            short(one),
            short(two)
        )));
        let lines = self.by_line();
        sections.push(match lines.is_empty() {
            true => Section::Note("No line holds more or less.".into()),
            false => Section::List(self.rows(lines)),
        });
        sections
    }
}

impl Findings for SnapshotDiff {
    const SCHEMA: &'static str = "vramlab-snapshot-diff-1";

    fn title(&self) -> String {
        // A run that was made has words instead of a file.
        let name = |file: &String| if file.contains(' ') { file.clone() } else { file_name(file).to_string() };
        let [one, two] = self.files.each_ref().map(name);
        if let Some(requests) = self.requests.as_ref().filter(|_| self.is_by_peak()) {
            let [before, after] = requests.peak_bytes;
            let difference = signed((after as i64).saturating_sub(before as i64));
            return format!("{difference} at the peak: {one} → {two}, device {}", self.device);
        }
        let [before, after] = self.totals.each_ref().map(|totals| totals.allocated as i64);
        format!("{} allocated: {one} → {two}, device {}", signed(after.saturating_sub(before)), self.device)
    }

    fn sections(&self) -> Vec<Section> {
        let Some(requests) = &self.requests else { return self.end() };
        let mut sections = requests.sections(self.top);
        if !self.went_on {
            return sections;
        }
        let ended = [vec![Section::Note("At the end of the recordings:".into())], self.end()].concat();
        let further = sections.split_off(sections.len().min(BEFORE_THE_END));
        if !self.is_by_peak() {
            sections.extend((!further.is_empty()).then_some(Section::Rest(further)));
            return [sections, ended].concat();
        }
        // Who held more at the peak comes before what is held at the end.
        let (lists, rest): (Vec<_>, Vec<_>) = further.into_iter().partition(|one| matches!(one, Section::List(_)));
        sections.extend(lists);
        sections.push(Section::Rest([rest, ended].concat()));
        sections
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows(self.by_line()))
    }
}
