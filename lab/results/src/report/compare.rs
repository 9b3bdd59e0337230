//! Two runs side by side: the memory of each, and the settings in which they differ.

use std::collections::{BTreeMap, BTreeSet};

use lab_base::section::{Cell, Section, Table};
use serde_json::Value;

use super::timeline::Timeline;
use crate::findings::plain;

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
    /// Reads a result; `None` if it has no peak.
    pub(super) fn of_result(result: &Value) -> Option<Self> {
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
}
