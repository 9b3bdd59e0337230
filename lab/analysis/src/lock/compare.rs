//! Two footprints side by side: what grew, and in which operators.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::file::Locked;

/// Growth that still counts as unchanged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// This many bytes.
    Bytes(u64),
    /// This share of the figure before, in percent.
    Percent(f64),
}

impl Tolerance {
    /// Bytes above `baseline` that are allowed.
    pub fn above(self, baseline: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (baseline as f64 * percent / 100.0) as u64,
        }
    }
}

/// A figure before and now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Name of the figure.
    pub name: String,
    /// Before, in bytes.
    pub baseline: u64,
    /// Now, in bytes.
    pub now: u64,
}

impl Change {
    /// Now less before.
    pub fn difference(&self) -> i64 {
        self.now.wrapping_sub(self.baseline) as i64
    }
}

/// A part of the peak, before and now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The category.
    pub category: String,
    /// Its bytes; named by the operator and its module.
    #[serde(flatten)]
    pub change: Change,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All events are the same.
    Same,
    /// The events differ, but no figure is above its baseline by more than the tolerance.
    Changed,
    /// Some figures are lower, and none is higher.
    Shrank,
    /// Some figures are higher.
    Grew,
}

/// Two runs side by side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// Result.
    pub verdict: Verdict,
    /// The figures that may not grow: `allocated`, `reserved` (each at its peak), `held` (after the last step), and `expected` where cuDNN computes convolutions.
    pub figures: Vec<Change>,
    /// Names of the figures that grew beyond the tolerance.
    pub grew: Vec<String>,
    /// Parts of the peak that changed, from the largest growth to the largest reduction.
    pub parts: Vec<Part>,
    /// Phases whose own peak changed.
    pub phases: Vec<Change>,
    /// True if the list of events changed.
    pub events_changed: bool,
    /// Settings that changed: name, before, now.
    pub settings: Vec<(String, Value, Value)>,
}

impl Comparison {
    /// Compares a run with its locked baseline.
    pub fn new(baseline: &Locked, now: &Locked, tolerance: Tolerance) -> Self {
        let (before, after) = (&baseline.memory, &now.memory);
        let figure = |name: &str, baseline, now| Change { name: name.into(), baseline, now };
        let mut figures = vec![
            figure("allocated", before.peak.allocated, after.peak.allocated),
            figure("reserved", before.peak.reserved, after.peak.reserved),
            figure("held", before.held, after.held),
        ];
        // A file that was made without it keeps its figures.
        let expected = before.expected.zip(after.expected);
        figures.extend(expected.map(|(before, after)| figure("expected", before, after)));
        let beyond = |figure: &&Change| figure.now > figure.baseline.saturating_add(tolerance.above(figure.baseline));
        let grew: Vec<String> = figures.iter().filter(beyond).map(|figure| figure.name.clone()).collect();
        let events_changed = before.events != after.events;
        let any = |is: fn(i64) -> bool| figures.iter().any(|figure| is(figure.difference()));
        let verdict = if !grew.is_empty() {
            Verdict::Grew
        } else if any(|difference| difference > 0) {
            Verdict::Changed
        } else if any(|difference| difference < 0) {
            Verdict::Shrank
        } else if events_changed {
            Verdict::Changed
        } else {
            Verdict::Same
        };
        Self {
            verdict,
            figures,
            grew,
            parts: parts(&before.at_peak, &after.at_peak),
            phases: changes(&before.by_phase, &after.by_phase),
            events_changed,
            settings: settings(&baseline.settings, &now.settings),
        }
    }

    /// Parts of the peak that grew, the largest growth first. The same operator in modules whose names differ by a number (layers) is one part, named
    /// after the first of them.
    pub fn grown(&self) -> Vec<Part> {
        let mut alike: BTreeMap<(&str, String), (Part, usize)> = BTreeMap::new();
        for part in self.parts.iter().filter(|part| part.change.difference() > 0) {
            match alike.entry((&part.category, kind(&part.change.name))) {
                Entry::Vacant(entry) => drop(entry.insert((part.clone(), 0))),
                Entry::Occupied(mut entry) => {
                    let (sum, others) = entry.get_mut();
                    sum.change.baseline += part.change.baseline;
                    sum.change.now += part.change.now;
                    *others += 1;
                }
            }
        }
        let named = |(mut part, others): (Part, usize)| {
            if others > 0 {
                part.change.name += &format!(" and {others} alike");
            }
            part
        };
        let mut grown: Vec<Part> = alike.into_values().map(named).collect();
        grown.sort_by_key(|part| std::cmp::Reverse(part.change.difference()));
        grown
    }
}

/// Origin without the numbers of layers: `addmm of blocks.*.fc1`.
fn kind(who: &str) -> String {
    let Some((op, scope)) = who.split_once(" of ") else { return who.into() };
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = scope.split('.').map(|part| if number(part) { "*" } else { part });
    format!("{op} of {}", parts.collect::<Vec<_>>().join("."))
}

/// Entries of two maps that differ; a missing entry counts as 0.
fn changes(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<Change> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let get = |map: &BTreeMap<String, u64>, name: &String| map.get(name).copied().unwrap_or(0);
    let change = |name: &String| Change { name: name.clone(), baseline: get(before, name), now: get(after, name) };
    names.into_iter().map(change).filter(|change| change.baseline != change.now).collect()
}

fn parts(
    before: &BTreeMap<String, BTreeMap<String, u64>>,
    after: &BTreeMap<String, BTreeMap<String, u64>>,
) -> Vec<Part> {
    let none = BTreeMap::new();
    let categories: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |category: &String| {
        let changes = changes(before.get(category).unwrap_or(&none), after.get(category).unwrap_or(&none));
        changes.into_iter().map(|change| Part { category: category.clone(), change }).collect::<Vec<_>>()
    };
    let mut parts: Vec<Part> = categories.into_iter().flat_map(of).collect();
    // A stable sort: equal ones stay ordered by name.
    parts.sort_by_key(|part| std::cmp::Reverse(part.change.difference()));
    parts
}

fn settings(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<(String, Value, Value)> {
    let get = |map: &Map<String, Value>, name: &String| map.get(name).cloned().unwrap_or_default();
    let names = after.keys().chain(before.keys().filter(|name| !after.contains_key(*name)));
    let pair = |name: &String| (name.clone(), get(before, name), get(after, name));
    names.map(pair).filter(|(_, before, after)| before != after).collect()
}

#[cfg(test)]
mod tests {
    use super::super::footprint::{EventList, Footprint, Peak};
    use super::*;

    /// A run whose peak is made of `relu` (activation) and `mm` (temporary).
    fn run(relu: u64, mm: u64, held: u64) -> Locked {
        let part = |category: &str, op: &str, bytes| (category.to_string(), BTreeMap::from([(op.to_string(), bytes)]));
        let memory = Footprint {
            peak: Peak { allocated: relu + mm, reserved: 4096, op: "mm".into(), ..Peak::default() },
            expected: None,
            held,
            by_category: BTreeMap::from([("activation".into(), relu), ("temporary".into(), mm)]),
            by_phase: BTreeMap::from([("forward".into(), relu + mm)]),
            events: EventList { count: 4, hash: format!("{:016x}", relu ^ (mm << 20)) },
            at_peak: BTreeMap::from([part("activation", "relu of 1", relu), part("temporary", "mm of 0", mm)]),
        };
        let settings = Map::from_iter([("batch".to_string(), Value::from(relu))]);
        Locked { flags: Map::new(), settings, memory }
    }

    fn compared(before: &Locked, after: &Locked, tolerance: Tolerance) -> Comparison {
        Comparison::new(before, after, tolerance)
    }

    #[test]
    fn growth_names_who_grew() {
        let found = compared(&run(1000, 500, 10), &run(1600, 400, 10), Tolerance::Bytes(0));
        assert_eq!((found.verdict, found.grew.as_slice()), (Verdict::Grew, ["allocated".to_string()].as_slice()));
        let culprit = &found.grown()[0];
        assert_eq!((culprit.change.name.as_str(), culprit.change.difference()), ("relu of 1", 600));
        assert_eq!(found.parts.last().unwrap().change.difference(), -100);
        assert_eq!(found.settings, [("batch".to_string(), Value::from(1000), Value::from(1600))]);
        let leak = compared(&run(1000, 500, 10), &run(1000, 500, 11), Tolerance::Bytes(0));
        assert_eq!((leak.verdict, leak.grew.as_slice()), (Verdict::Grew, ["held".to_string()].as_slice()));
        assert!(leak.grown().is_empty());
    }

    #[test]
    fn layers_that_grew_alike_are_named_once() {
        let mut after = run(1000, 500, 10);
        for (who, bytes) in [("mm of b.0.fc", 30), ("mm of b.1.fc", 20), ("mm of b.1.up", 40), ("add", 5)] {
            after.memory.at_peak.entry("input".into()).or_default().insert(who.into(), bytes);
        }
        let found = compared(&run(1000, 500, 10), &after, Tolerance::Bytes(0));
        let named: Vec<(String, i64)> =
            found.grown().into_iter().map(|part| (part.change.name.clone(), part.change.difference())).collect();
        let expected = [("mm of b.0.fc and 1 alike", 50), ("mm of b.1.up", 40), ("add", 5)];
        assert_eq!(named, expected.map(|(name, bytes)| (name.to_string(), bytes)));
    }

    #[test]
    fn verdicts_follow_from_the_figures_and_the_tolerance() {
        let verdict = |a: &Locked, b: &Locked, tolerance| compared(a, b, tolerance).verdict;
        let (base, more, less) = (run(1000, 500, 10), run(1100, 500, 10), run(900, 500, 10));
        assert_eq!(verdict(&base, &base, Tolerance::Bytes(0)), Verdict::Same);
        assert_eq!(verdict(&base, &less, Tolerance::Bytes(0)), Verdict::Shrank);
        assert_eq!(verdict(&base, &more, Tolerance::Bytes(99)), Verdict::Grew);
        assert_eq!(verdict(&base, &more, Tolerance::Bytes(100)), Verdict::Changed);
        assert_eq!(verdict(&base, &more, Tolerance::Percent(6.6)), Verdict::Grew);
        assert_eq!(verdict(&base, &more, Tolerance::Percent(6.7)), Verdict::Changed);
        // The same peak with other parts.
        assert_eq!(verdict(&base, &run(500, 1000, 10), Tolerance::Bytes(0)), Verdict::Changed);
    }
}
