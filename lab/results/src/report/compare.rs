//! Two runs side by side: the memory of each, and the settings in which they differ.

use std::collections::{BTreeMap, BTreeSet};

use lab_base::error::Result;
use lab_base::figures::short;
use lab_base::section::{Cell, Section, Table};
use serde_json::Value;

use super::timeline::Timeline;
use crate::findings::{Findings, plain};
use crate::rehearsal::{PeakShares, RehearsalResult};

/// Memory of a run, whatever the source.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    /// Name and bytes of each figure.
    figures: Vec<(&'static str, u64)>,
    /// Composition of the peak.
    by_category: BTreeMap<String, u64>,
    /// Settings in force, as far as they are known.
    settings: BTreeMap<String, String>,
}

impl Taken {
    /// Reads a result of a run or of a rehearsal; `None` if it has no peak.
    pub(super) fn of_result(result: &Value) -> Option<Self> {
        if result["schema"] == RehearsalResult::SCHEMA {
            return Self::of_rehearsal(&serde_json::from_value(result.clone()).ok()?);
        }
        let peak = &result["peak"];
        let figures = [("peak allocated", &peak["bytes"]), ("most reserved", &peak["reserved_bytes"])];
        let figures = figures.into_iter().map(|(name, bytes)| Some((name, bytes.as_u64()?))).collect::<Option<_>>()?;
        let categories = peak["by_category"].as_object().into_iter().flatten();
        let settings = result["settings"].as_object().into_iter().flatten();
        Some(Self {
            figures,
            by_category: categories.map(|(name, bytes)| (name.clone(), bytes.as_u64().unwrap_or(0))).collect(),
            settings: settings.map(|(name, value)| (name.clone(), plain(value))).collect(),
        })
    }

    /// Reads the process that reserved most; where memory ran out, what the script takes with enough memory, if that is known.
    fn of_rehearsal(found: &RehearsalResult) -> Option<Self> {
        let rank = found.ranks.iter().max_by_key(|rank| rank.peak_reserved)?;
        let (allocated, reserved, shares) = match &found.with_memory_enough {
            Some(needs) => (needs.peak_allocated, needs.peak_reserved, needs.by_category),
            None => (rank.peak_allocated, rank.peak_reserved, rank.by_category),
        };
        let settings = [
            ("command", found.command.join(" ")),
            ("card", found.gpu.name.clone()),
            ("PyTorch", found.torch.clone().unwrap_or_default()),
        ];
        Some(Self {
            figures: vec![("peak allocated", allocated), ("most reserved", reserved)],
            by_category: shares.iter().flat_map(PeakShares::named).map(|(name, bytes)| (name.into(), bytes)).collect(),
            settings: settings.map(|(name, value)| (name.to_string(), value)).into(),
        })
    }

    pub(super) fn of_timeline(timeline: &Timeline<'_>) -> Self {
        let peak = &timeline.peak;
        let reserved = timeline.moments.iter().map(|moment| moment.reserved_bytes).max().unwrap_or(0);
        let names = timeline.recording.categories();
        Self {
            figures: vec![("peak allocated", peak.allocated_bytes), ("most reserved", reserved)],
            by_category: names.iter().cloned().zip(peak.by_category).collect(),
            settings: BTreeMap::new(),
        }
    }
}

/// Compares two results in words, for a terminal; `None` if one of them has no peak.
///
/// # Errors
/// A result of an unknown kind.
pub fn side_by_side(a: &Value, b: &Value) -> Result<Option<(String, Vec<Section>)>> {
    let (Some(of_a), Some(of_b)) = (Taken::of_result(a), Taken::of_result(b)) else { return Ok(None) };
    let [name_a, name_b] = titles(&crate::read(a)?.0, &crate::read(b)?.0);
    let answer = answer(&of_a, &of_b);
    let mut all = vec![Section::Answer(answer)];
    all.extend(sections(&["first".into(), "second".into()], &of_a, &of_b));
    Ok(Some((format!("{name_a} / {name_b}"), all)))
}

/// The difference that counts: reserved memory, or allocated memory if both reserve the same.
fn answer(a: &Taken, b: &Taken) -> String {
    let differs = |(one, other): &(&(&str, u64), &(&str, u64))| one.1 != other.1;
    let Some(((name, a), (_, b))) = a.figures.iter().zip(&b.figures).rev().find(differs) else {
        return "Both take the same.".into();
    };
    let word = if b > a { "more" } else { "less" };
    format!("The second takes {} {word} than the first ({name}).", short(a.abs_diff(*b)))
}

/// Titles that distinguish the two.
pub(super) fn titles(a: &str, b: &str) -> [String; 2] {
    if a == b { [format!("{a} (first)"), format!("{b} (second)")] } else { [a.into(), b.into()] }
}

/// Figures of both and their differences, then the settings that differ.
pub(super) fn sections([a_name, b_name]: &[String; 2], a: &Taken, b: &Taken) -> Vec<Section> {
    let row = |name: String, a: u64, b: u64| {
        let change = i64::try_from(i128::from(b) - i128::from(a)).unwrap_or(i64::MAX);
        let share = if a > 0 { format!("{:+.1} %", 100.0 * change as f64 / a as f64) } else { "–".into() };
        vec![Cell::Text(name), Cell::Bytes(a), Cell::Bytes(b), Cell::Difference(change), Cell::Text(share)]
    };
    let both = |a: &[(&'static str, u64)], b: &[(&'static str, u64)]| -> Vec<Vec<Cell>> {
        a.iter().zip(b).map(|((name, a), (_, b))| row(name.to_string(), *a, *b)).collect()
    };
    let mut rows = both(&a.figures, &b.figures);
    let names: BTreeSet<&String> = a.by_category.keys().chain(b.by_category.keys()).collect();
    let held = |taken: &Taken, name: &String| taken.by_category.get(name).copied().unwrap_or(0);
    let parts = names.into_iter().map(|name| (name, held(a, name), held(b, name))).filter(|(_, a, b)| a + b > 0);
    rows.extend(parts.map(|(name, a, b)| row(format!("at the peak: {}", name.replace('_', " ")), a, b)));
    let columns = ["figure", a_name.as_str(), b_name.as_str(), "change", "in percent"];
    let mut sections = vec![Section::Table(Table::new("What each takes", &columns, rows))];
    let names: BTreeSet<&String> = a.settings.keys().chain(b.settings.keys()).collect();
    let set = |taken: &Taken, name: &String| taken.settings.get(name).cloned().unwrap_or_else(|| "–".into());
    let differing = names.into_iter().map(|name| (name, set(a, name), set(b, name))).filter(|(_, a, b)| a != b);
    let rows: Vec<Vec<Cell>> = differing.map(|(name, a, b)| [name.clone(), a, b].map(Cell::Text).to_vec()).collect();
    if !rows.is_empty() {
        sections.push(Section::Table(Table::new("Settings that differ", &["setting", a_name, b_name], rows)));
    }
    sections
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_said() {
        let run = |batch: u64, bytes: u64| {
            json!({ "settings": { "batch": batch, "model": "gpt2" },
                "peak": { "bytes": bytes, "reserved_bytes": 2 * bytes, "by_category": { "activation": bytes, "input": 0 } } })
        };
        let [a, b] = [run(8, 1000), run(4, 600)].map(|result| Taken::of_result(&result).unwrap());
        let sections = sections(&titles("gpt2", "gpt2"), &a, &b);
        let [Section::Table(taken), Section::Table(settings)] = sections.as_slice() else { panic!("{sections:?}") };
        assert_eq!(taken.columns[1..3], ["gpt2 (first)", "gpt2 (second)"]);
        let last = [Cell::Bytes(1000), Cell::Bytes(600), Cell::Difference(-400), Cell::Text("-40.0 %".into())];
        assert_eq!((taken.rows.len(), &taken.rows[2][1..]), (3, &last[..]));
        assert_eq!(settings.rows, [["batch", "8", "4"].map(|text| Cell::Text(text.into())).to_vec()]);
        assert!(Taken::of_result(&json!({ "peak": null })).is_none());
    }

    #[test]
    fn rehearsals_are_compared_by_what_they_need() {
        let rehearsal = |word: &str, reserved: u64, needs: Option<u64>| {
            let rank = json!({ "rank": 0, "gpu": 0, "pid": 1, "steps": 3, "peak_allocated": reserved, "peak_reserved": reserved,
                "ooms": 0, "oom": null, "at_peak": [], "by_category": null });
            let more = needs.map(|bytes| json!({ "total_bytes": 1_u64 << 40, "fits": true, "stopped": "steps", "steps": 3,
                "peak_allocated": bytes, "peak_reserved": bytes, "missing": 1, "at_peak": [],
                "by_category": { "parameter": 1, "gradient": 0, "optimizer": 0, "activation": bytes - 1, "input": 0, "other": 0 } }));
            let found = RehearsalResult { command: vec![word.into()], ..RehearsalResult::default() };
            let mut found = serde_json::to_value(found).unwrap();
            found["schema"] = RehearsalResult::SCHEMA.into();
            (found["ranks"], found["with_memory_enough"]) = (json!([rank]), json!(more));
            found
        };
        let (title, sections) =
            side_by_side(&rehearsal("a", 700, Some(4096)), &rehearsal("b", 1024, None)).unwrap().unwrap();
        let [Section::Answer(answer), Section::Table(taken), Section::Table(settings)] = &sections[..] else {
            panic!("{sections:?}")
        };
        assert_eq!(title, "Not known: a / Not known: b");
        assert_eq!(answer, "The second takes 3 KiB less than the first (most reserved).");
        assert_eq!(taken.rows[1][1..3], [Cell::Bytes(4096), Cell::Bytes(1024)]);
        assert_eq!(settings.rows, [["command", "a", "b"].map(|text| Cell::Text(text.into())).to_vec()]);
        assert!(side_by_side(&rehearsal("a", 1, None), &json!({ "schema": "vramlab-fit-1" })).unwrap().is_none());
    }
}
