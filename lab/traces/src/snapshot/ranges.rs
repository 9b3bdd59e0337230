//! Pairs the beginnings and ends of ranges that a program named.

use super::model::Snapshot;

/// A range in time, in microseconds since 1970.
pub struct TimeRange<'a> {
    /// Name as the program wrote it.
    pub name: &'a str,
    /// Beginning.
    pub from: i64,
    /// End; `None` if the range is open when the recording ends.
    pub to: Option<i64>,
}

impl Snapshot {
    /// Returns the ranges of a device in order of their beginning. Of open ranges with one name, the last one begun ends first.
    pub fn time_ranges(&self, device: usize) -> Vec<TimeRange<'_>> {
        let mut found: Vec<TimeRange<'_>> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        for mark in self.annotations.iter().filter(|mark| mark.device as usize == device) {
            let name = self.text(mark.name);
            if mark.start {
                open.push(found.len());
                found.push(TimeRange { name, from: mark.time_us, to: None });
            } else if let Some(place) = open.iter().rposition(|&range| found[range].name == name) {
                found[open.remove(place)].to = Some(mark.time_us);
            }
        }
        found.sort_by_key(|range| range.from);
        found
    }
}
