//! Result of an experiment (`vramlab-experiment-1`): the question, the verdicts, predictions with measurements.

use std::collections::{BTreeMap, BTreeSet};

use lab_base::figures::{counted, grouped};
use lab_base::section::{Cell, Chart, Judged, Section, Series, Shape, Table, Verdict};
use lab_experiments::{Curve, Experiment, Measurement, Outcome, ShortAnswer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::command;
use super::device::DeviceInfo;
use super::findings::{Findings, Settings, again, plain};
use super::shard::Shard;

/// Result of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// Its name.
    pub experiment: String,
    /// Its question.
    pub question: String,
    /// The answer in short.
    #[serde(default)]
    pub answer: ShortAnswer,
    /// Claims that were judged.
    pub claims: Vec<Judged>,
    /// Measurements, one row per setting.
    pub rows: Vec<Measurement>,
    /// Tables of what does not fit into one row per setting.
    pub tables: Vec<Table>,
    /// Values over the steps of runs.
    pub curves: Vec<Curve>,
    /// Further observations, one sentence each.
    pub notes: Vec<String>,
    /// True if it was stopped early.
    pub interrupted: bool,
    /// The settings in force, by the names of the flags.
    pub settings: Settings,
    /// The device.
    pub device: DeviceInfo,
    /// The part of several experiments that it belongs to; absent if they were not divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

/// Settings, in the order of the command line.
const TYPED: [&str; 15] = [
    "gpu",
    "devices",
    "backend",
    "model",
    "device",
    "set",
    "memory-limit",
    "memory-fraction",
    "alloc-conf",
    "allocator",
    "cudnn-workspace",
    "env",
    "multiprocessors",
    "seed",
    "like",
];
/// The most charts of one experiment.
const MAX_CHARTS: usize = 8;
/// The most lines that can be told apart in a chart.
const MAX_LINES: usize = 6;

impl ExperimentResult {
    /// Makes the result of an experiment with these settings on this device.
    pub fn new(experiment: &dyn Experiment, outcome: &Outcome, settings: &Settings, device: &DeviceInfo) -> Self {
        let Outcome { answer, claims, rows, tables, curves, notes, interrupted } = outcome.clone();
        let judged = claims.into_iter().map(|judged| Judged {
            text: judged.claim.text.into(),
            source: judged.claim.source.into(),
            verdict: judged.verdict,
            lead: judged.lead.into(),
            condition: judged.condition,
            number: judged.number,
        });
        Self {
            experiment: experiment.name().into(),
            question: experiment.question().into(),
            answer,
            claims: judged.collect(),
            rows,
            tables,
            curves,
            notes,
            interrupted,
            settings: settings.clone(),
            device: device.clone(),
            shard: None,
        }
    }

    /// The command that repeats the result: only settings that differ from the defaults, and those that decide figures.
    fn command(&self) -> String {
        let usual = |name: &str, value: &Value| match name {
            "device" => *value == 0,
            "allocator" => *value == "caching",
            _ => false,
        };
        let typed = TYPED.iter().filter_map(|name| Some((*name, self.settings.get(*name)?)));
        let typed = typed.filter(|(name, value)| !usual(name, value));
        let typed = typed.map(|(name, value)| (name.to_string(), value.clone())).collect();
        command::again(&["ask", &self.experiment], &typed)
    }

    /// A table with a row for each setting and quantity.
    fn every_row(&self) -> Table {
        let mut table = rows(&[(&self.experiment, &self.rows)]);
        table.title = format!("Predicted and measured: {}", counted(table.rows.len() as u64, "row"));
        table
    }

    /// Number of predictions, and number of those that equal the measurement.
    fn checked(&self) -> Option<String> {
        let residuals = || self.rows.iter().flat_map(|row| row.residual.values());
        let (all, exact) = (residuals().count() as u64, residuals().filter(|residual| **residual == 0).count() as u64);
        (all > 0).then(|| format!("{}, {} exact.", counted(all, "prediction"), grouped(exact, ' ')))
    }

    /// Deviations of these figures from those on a card.
    fn deviations(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().filter(|note| is_deviation(note))
    }

    pub(super) fn curve(curve: &Curve) -> Chart {
        let series = |(color, (name, values)): (usize, &(String, Vec<u64>))| Series {
            name: name.clone(),
            points: values.iter().enumerate().map(|(i, value)| (i as f64, *value as f64)).collect(),
            color: color % 8,
            shape: Shape::Steps,
        };
        Chart {
            title: curve.title.clone(),
            x: String::new(),
            labels: curve.labels.clone(),
            series: curve.series.iter().enumerate().map(series).collect(),
            bytes: true,
            limit: None,
        }
    }

    /// Charts of measured and predicted points along the setting with the most numbers, one for each quantity in bytes.
    fn charts(&self) -> Vec<Chart> {
        let mut values: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (name, value) in self.rows.iter().flat_map(|row| &row.setting) {
            if number(value).is_some() {
                values.entry(name).or_default().insert(plain(value));
            }
        }
        let longest = values.iter().filter(|(_, values)| values.len() >= 3).max_by_key(|(_, values)| values.len());
        let Some((axis, _)) = longest else { return Vec::new() };
        let mut quantities: Vec<&String> = Vec::new();
        for quantity in self.rows.iter().flat_map(|row| row.measured.keys()) {
            if quantity.ends_with("_bytes") && !quantities.contains(&quantity) {
                quantities.push(quantity);
            }
        }
        quantities.iter().filter_map(|quantity| self.chart(axis, quantity)).take(MAX_CHARTS).collect()
    }

    /// A chart; `None` if it would show nothing: too few points, too many lines, a flat zero.
    fn chart(&self, axis: &str, quantity: &str) -> Option<Chart> {
        // Key of a line: the other settings, and whether it was predicted.
        let mut lines: BTreeMap<(String, bool), Vec<(f64, f64)>> = BTreeMap::new();
        for row in &self.rows {
            let Some(x) = number(row.setting.get(axis)?) else { continue };
            for (figures, predicted) in [(&row.measured, false), (&row.predicted, true)] {
                if let Some(y) = figures.get(quantity).copied().flatten() {
                    lines.entry((others(row, axis), predicted)).or_default().push((x, y as f64));
                }
            }
        }
        let groups: Vec<&String> = lines.keys().filter(|(_, predicted)| !predicted).map(|(group, _)| group).collect();
        let flat = lines.values().flatten().all(|(_, y)| *y == 0.0);
        let long = lines.values().any(|points| points.len() >= 3);
        if groups.is_empty() || groups.len() > MAX_LINES || flat || !long {
            return None;
        }
        let alone = groups.len() == 1;
        let series = lines.iter().map(|((group, predicted), points)| {
            let mut points = points.clone();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            // With several lines, the dots' names are enough.
            let name = match (alone, predicted) {
                (true, true) => "predicted".to_string(),
                (true, false) => "measured".to_string(),
                (false, true) => String::new(),
                (false, false) => group.clone(),
            };
            let color = groups.iter().position(|known| *known == group).unwrap_or(0);
            Series { name, points, color, shape: if *predicted { Shape::Predicted } else { Shape::Dots } }
        });
        let series = series.collect();
        let title = quantity.trim_end_matches("_bytes").replace('_', " ");
        Some(Chart { title, x: axis.into(), labels: Vec::new(), series, bytes: true, limit: None })
    }
}

/// Whether a note reports a deviation from PyTorch: such notes are always shown.
fn is_deviation(note: &str) -> bool {
    note.starts_with("In these figures ")
}

/// Settings of a row except one, in words.
fn others(row: &Measurement, without: &str) -> String {
    let words = row.setting.iter().filter(|(name, _)| *name != without);
    words.map(|(name, value)| format!("{name} {}", plain(value))).collect::<Vec<_>>().join(", ")
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
}

/// A table with a row per setting and quantity: predicted, measured, residual. With several experiments, each row names its own.
fn rows(experiments: &[(&str, &[Measurement])]) -> Table {
    let several = experiments.len() > 1;
    let all_rows = || experiments.iter().flat_map(|(name, rows)| rows.iter().map(move |row| (*name, row)));
    let settings: BTreeSet<&String> = all_rows().flat_map(|(_, row)| row.setting.keys()).collect();
    let fixed = ["quantity", "predicted", "measured", "residual"].map(String::from);
    let named = several.then(|| "experiment".to_string());
    let columns = named.into_iter().chain(settings.iter().map(|name| name.to_string())).chain(fixed).collect();
    let mut rows = Vec::new();
    for (name, row) in all_rows() {
        let quantities: BTreeSet<&String> = row.predicted.keys().chain(row.measured.keys()).collect();
        for quantity in quantities {
            let name = several.then(|| Cell::Text(name.to_string()));
            let setting = settings.iter().map(|name| Cell::Text(row.setting.get(*name).map_or(String::new(), plain)));
            rows.push(name.into_iter().chain(setting).chain(figures(row, quantity)).collect());
        }
    }
    Table { title: "Predicted and measured".into(), columns, rows }
}

fn figures(row: &Measurement, quantity: &str) -> [Cell; 4] {
    let is_bytes = quantity.ends_with("_bytes");
    let figure = |value: Option<i64>| match value {
        Some(value) if is_bytes => Cell::signed(value),
        Some(value) => u64::try_from(value).map_or(Cell::Number(value as f64), Cell::Count),
        None => Cell::unknown(),
    };
    let residual = row.residual.get(quantity).copied();
    let residual = if is_bytes { residual.map_or_else(Cell::unknown, Cell::Difference) } else { figure(residual) };
    let predicted = figure(row.predicted.get(quantity).copied().flatten());
    [Cell::Text(quantity.into()), predicted, figure(row.measured.get(quantity).copied().flatten()), residual]
}

impl Findings for ExperimentResult {
    const SCHEMA: &'static str = "vramlab-experiment-1";

    fn title(&self) -> String {
        match self.answer.word.as_str() {
            "" => self.question.clone(),
            word => format!("{} {word}.", self.question),
        }
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections = vec![Section::Answer(self.answer.figures.join("\n"))];
        if self.interrupted {
            sections.push(Section::Note("Stopped early: this is what was measured until then.".into()));
        }
        sections.extend(self.picture().map(|picture| Section::Rest(vec![picture])));
        sections.push(Section::Verdicts(self.claims.clone()));
        let every = self.every_row();
        sections.extend(self.checked().map(Section::Note));
        sections.extend(self.deviations().cloned().map(Section::Note));
        sections.push(Section::Note(format!(
            "{}: --full, --html FILE. Again: {}",
            match every.rows.len() as u64 {
                0 => "More".to_string(),
                rows => counted(rows, "figure"),
            },
            self.command()
        )));
        let mut rest: Vec<Section> = self.tables.iter().cloned().map(Section::Table).collect();
        let shown_above = matches!(self.picture(), Some(Section::Chart(_)));
        let curves = self.curves.iter().skip(usize::from(shown_above));
        rest.extend(curves.map(Self::curve).map(Section::Chart));
        rest.extend(self.charts().into_iter().map(Section::Drawing));
        rest.extend(self.notes.iter().filter(|note| !is_deviation(note)).cloned().map(Section::Note));
        sections.push(Section::Rest(rest));
        if !every.rows.is_empty() {
            let title = "Every prediction beside its measurement".into();
            sections.push(Section::Details { title, sections: vec![Section::Table(every)] });
        }
        sections.push(again(&["ask", &self.experiment], &self.settings));
        sections
    }

    fn together(found: &[Self]) -> Option<(String, Vec<Section>)> {
        let row = |one: &Self| {
            let answer = if one.answer.word.is_empty() { "stopped early" } else { &one.answer.word };
            [one.experiment.as_str(), answer].map(|text| Cell::Text(text.into())).to_vec()
        };
        let claims: Vec<Verdict> = found.iter().flat_map(|one| one.claims.iter().map(|claim| claim.verdict)).collect();
        let list = Table::new("", &["experiment", "answer"], found.iter().map(row).collect());
        let title = format!("{}: {}", counted(found.len() as u64, "experiment"), super::claims::sum(&claims));
        let more = "Each by itself: vramlab ask NAME; every table of all: --full, --html FILE.";
        Some((title, vec![Section::List(list), Section::Note(more.into())]))
    }

    fn table(&self) -> Option<Table> {
        Self::table_of_all(std::slice::from_ref(self))
    }

    fn table_of_all(found: &[Self]) -> Option<Table> {
        let named: Vec<(&str, &[Measurement])> =
            found.iter().map(|e| (e.experiment.as_str(), e.rows.as_slice())).collect();
        Some(rows(&named))
    }
}
