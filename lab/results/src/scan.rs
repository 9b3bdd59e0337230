//! A run for every combination of values (`vramlab-scan-1`).

use std::fmt::Write;

use lab_base::bands::Basis;
use lab_base::figures::{lacking, short};
use lab_base::section::{Cell, Chart, Section, Series, Shape, Table};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::command;
use super::findings::{Findings, plain, settings_table};
use super::on_card::OnCard;
use super::premise::{self, Premise};
use super::run::{Prediction, TrainResult};
use super::shard::Shard;

/// Maximum number of lines of a chart; if there are more, no chart is drawn.
const MAX_LINES: usize = 8;

/// A scan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ScanResult {
    /// Names of the scanned options, in order.
    pub parameters: Vec<String>,
    /// True if it was stopped before the last point.
    #[serde(default)]
    pub interrupted: bool,
    /// Points that were run, in order.
    pub results: Vec<Point>,
    /// Notes on values that were taken from files instead of flags.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The part of a scan that it is; absent for a whole one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

/// A point.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Point {
    /// Scanned values, with the settings in force at the point.
    pub parameters: Map<String, Value>,
    /// The run, with its schema.
    #[serde(serialize_with = "with_schema")]
    pub run: TrainResult,
    /// Memory of a dry run with the same settings; null if none was asked for, or if it cannot be predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
    /// What a process takes on the card, and whether it fits, as the prediction of this run alone says; absent without a limit, and where it was trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_card: Option<PointOnCard>,
}

/// What a process takes on the card at a point. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointOnCard {
    /// The least that a card may show.
    pub lower_bytes: u64,
    /// What is expected.
    pub expected_bytes: u64,
    /// The most that a card may show.
    pub upper_bytes: u64,
    /// True if the upper figure fits, false if the lower one does not, else null.
    pub fits: Option<bool>,
    /// What is missing, where it is not expected to complete.
    pub missing_bytes: Option<u64>,
    /// What decides how far a card may be from what is expected.
    pub basis: Basis,
}

impl PointOnCard {
    /// The figures of a prediction.
    pub fn from_prediction(found: &Prediction) -> Self {
        let OnCard { lower_bytes, expected_bytes, upper_bytes, basis, .. } = found.on_card;
        let (fits, missing_bytes) = (found.fits, found.needs.missing_bytes);
        Self { lower_bytes, expected_bytes, upper_bytes, fits, missing_bytes, basis }
    }

    fn in_short(self) -> String {
        match self.fits {
            Some(true) => "yes".into(),
            Some(false) => lacking(self.missing_bytes),
            None => "perhaps".into(),
        }
    }
}

/// Memory of a dry run, with enough memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// Peak of allocated memory.
    pub peak_bytes: u64,
    /// Peak of reserved memory.
    pub reserved_bytes: u64,
}

fn with_schema<S: serde::Serializer>(run: &TrainResult, serializer: S) -> Result<S::Ok, S::Error> {
    run.to_json().map_err(serde::ser::Error::custom)?.serialize(serializer)
}

impl Point {
    /// Returns the setting of this name.
    fn value(&self, name: &str) -> Value {
        self.parameters.get(name).cloned().unwrap_or_default()
    }

    fn text(&self, name: &str) -> String {
        match self.value(name) {
            Value::Null => "–".into(),
            value => plain(&value),
        }
    }

    fn number(&self, name: &str) -> Option<f64> {
        let value = self.value(name);
        value.as_f64().or_else(|| value.as_str()?.parse().ok())
    }

    /// Returns the peak of a run that completed. If a run failed, its peak is where it stopped, not what it needs.
    fn finished<T>(&self, figure: impl Fn(&super::run::PeakResult) -> T) -> Option<T> {
        self.run.peak.as_ref().filter(|_| self.run.out_of_memory.is_none()).map(figure)
    }

    /// Says what reached the peak, or why the run failed.
    fn who(&self) -> String {
        match (&self.run.out_of_memory, &self.run.peak) {
            (Some(failed), _) => {
                let why = failed.verdict.as_ref().map_or(String::new(), |why| format!(" ({why})"));
                lacking(failed.missing_bytes) + &why
            }
            (None, Some(peak)) => {
                let parts = [&peak.phase, &peak.op, &peak.scope].into_iter().filter(|part| !part.is_empty());
                parts.cloned().collect::<Vec<_>>().join(" · ")
            }
            (None, None) => String::new(),
        }
    }
}

/// Number of points that a short answer shows from the beginning, and from the end.
const ENDS: (usize, usize) = (8, 4);

impl ScanResult {
    /// Table with a row for each point; `all`: with predictions, and what reached the peak.
    fn rows(&self, all: bool) -> Table {
        let mut columns: Vec<&str> = self.parameters.iter().map(String::as_str).collect();
        columns.extend(["parameters", "allocated"]);
        columns.extend(all.then_some("predicted"));
        columns.extend(["reserved", "fits", "ms/step", "last loss"]);
        columns.extend(all.then_some("highest when"));
        let row = |point: &Point| -> Vec<Cell> {
            let run = &point.run;
            let number = |value: Option<f64>| value.map_or_else(Cell::unknown, Cell::Number);
            let fits = match (point.on_card, &run.out_of_memory) {
                (Some(on_card), _) => Cell::Text(on_card.in_short()),
                (None, Some(failed)) => Cell::Text(lacking(failed.missing_bytes)),
                (None, None) if run.limited() => Cell::Text("yes".into()),
                (None, None) => Cell::unknown(),
            };
            let last_loss = run.losses.as_ref().and_then(|losses| *losses.last()?);
            let known = |figure: Option<f64>| figure.filter(|_| run.out_of_memory.is_none());
            let mut row: Vec<Cell> = self.parameters.iter().map(|name| Cell::Text(point.text(name))).collect();
            row.push(run.parameters.map_or_else(Cell::unknown, Cell::Count));
            row.push(Cell::bytes(point.finished(|peak| peak.bytes)));
            row.extend(all.then(|| Cell::bytes(point.predicted.map(|predicted| predicted.peak_bytes))));
            row.push(Cell::bytes(point.finished(|peak| peak.reserved_bytes)));
            row.extend([fits, number(known(run.ms_per_step_median)), number(known(last_loss))]);
            row.extend(all.then(|| Cell::Text(point.who())));
            row
        };
        Table::new("Peaks, for every combination", &columns, self.results.iter().map(row).collect())
    }

    /// The same without empty and constant columns, to leave room for the others.
    fn shown(&self) -> Table {
        let mut table = self.rows(self.results.iter().any(|point| point.predicted.is_some()));
        let says = |table: &Table, column: usize| {
            let cells: Vec<&Cell> = table.rows.iter().filter_map(|row| row.get(column)).collect();
            let constant = table.columns[column] == "parameters" && cells.windows(2).all(|pair| pair[0] == pair[1]);
            !constant && table.columns[column] != "highest when" && cells.iter().any(|cell| **cell != Cell::unknown())
        };
        for column in (self.parameters.len()..table.columns.len()).rev() {
            if !says(&table, column) {
                table.columns.remove(column);
                table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
            }
        }
        table
    }

    /// Chart of peaks along the first parameter, with a line for each combination of the others.
    fn curve(&self) -> Option<Chart> {
        let axis = self.parameters.first()?;
        let x: Option<Vec<f64>> = self.results.iter().map(|point| point.number(axis)).collect();
        let labels = different(self.results.iter().map(|point| point.text(axis)));
        let groups = different(self.results.iter().map(|point| self.group(point)));
        if labels.len() < 2 || groups.len() > MAX_LINES {
            return None;
        }
        let place = |i: usize, point: &Point| match &x {
            Some(x) => x.get(i).copied(),
            None => labels.iter().position(|known| *known == point.text(axis)).map(|i| i as f64),
        };
        let line = |group: &String, of: &dyn Fn(&Point) -> Option<u64>| -> Vec<(f64, f64)> {
            let mine = self.results.iter().enumerate().filter(|(_, point)| self.group(point) == *group);
            let mut points: Vec<(f64, f64)> =
                mine.filter_map(|(i, point)| Some((place(i, point)?, of(point)? as f64))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points
        };
        let alone = groups.len() == 1;
        let mut series = Vec::new();
        for (color, group) in groups.iter().enumerate() {
            let name = |figure: &str| if alone { figure.to_string() } else { format!("{group}: {figure}") };
            let allocated = (
                color,
                "allocated",
                line(group, &|point| point.run.peak.as_ref().map(|peak| peak.bytes)),
                line(group, &|point| Some(point.predicted?.peak_bytes)),
            );
            let reserved = (
                1,
                "reserved",
                line(group, &|point| point.run.peak.as_ref().map(|peak| peak.reserved_bytes)),
                line(group, &|point| Some(point.predicted?.reserved_bytes)),
            );
            // With several lines, allocated bytes are enough.
            for (color, figure, measured, predicted) in
                [allocated, reserved].into_iter().take(if alone { 2 } else { 1 })
            {
                let shape = if predicted.is_empty() { Shape::Line } else { Shape::Dots };
                series.push(Series { name: name(figure), points: measured, color, shape });
                if !predicted.is_empty() {
                    let name = if alone { format!("{figure}, predicted") } else { String::new() };
                    series.push(Series { name, points: predicted, color, shape: Shape::Predicted });
                }
            }
        }
        let labels = if x.is_some() { Vec::new() } else { labels };
        Some(Chart { title: "The peak".into(), x: axis.clone(), labels, series, bytes: true, limit: None })
    }

    /// Returns the values of all parameters but the first.
    fn group(&self, point: &Point) -> String {
        let words = self.parameters.iter().skip(1).map(|name| format!("{name} {}", point.text(name)));
        words.collect::<Vec<_>>().join(", ")
    }

    /// The command, with the scanned values, and the settings of all points.
    fn again(&self) -> Option<Section> {
        let mut fixed = self.results.first()?.run.settings.clone();
        self.parameters.iter().for_each(|name| drop(fixed.shift_remove(name)));
        let mut command = command::of_run(&fixed);
        for name in &self.parameters {
            let values = different(self.results.iter().map(|point| point.text(name)));
            let _ = write!(command, " -L {name} {}", values.join(","));
        }
        let sections = vec![Section::Command(command), settings_table(&fixed)];
        Some(Section::Details { title: "Do it again".into(), sections })
    }

    /// The premises of all points.
    fn premises(&self) -> Vec<Premise> {
        let first = self.results.first().map(|point| point.run.premises.as_slice()).unwrap_or_default();
        let in_all = |premise: &&Premise| self.results.iter().all(|point| point.run.premises.contains(premise));
        first.iter().filter(in_all).cloned().collect()
    }
}

/// Keeps the first and the last rows; `None` if that is hardly less than all.
pub(super) fn ends(table: &Table, (head, tail): (usize, usize)) -> Option<Table> {
    let left_out = table.rows.len().checked_sub(head + tail).filter(|rows| *rows > 1)?;
    let mut short = table.clone();
    let mut gap = vec![Cell::Text(format!("⋮ {left_out} more: --full"))];
    gap.resize(table.columns.len(), Cell::Text("⋮".into()));
    short.rows.splice(head..table.rows.len() - tail, [gap]);
    short.title.clear();
    Some(short)
}

/// Removes repetitions; the order is that of the first occurrences.
fn different(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

impl Findings for ScanResult {
    const SCHEMA: &'static str = "vramlab-scan-1";

    fn title(&self) -> String {
        let by = self.parameters.join(" and ");
        let limited = self.results.iter().any(|Point { run, .. }| run.limited() || run.out_of_memory.is_some());
        let peaks = || self.results.iter().filter_map(|point| point.finished(|peak| peak.bytes));
        match (peaks().min(), peaks().max()) {
            _ if limited => {
                let fits = |point: &&Point| match point.on_card {
                    Some(on_card) => on_card.fits == Some(true),
                    None => point.run.out_of_memory.is_none(),
                };
                let perhaps = |point: &&Point| point.on_card.is_some_and(|on_card| on_card.fits.is_none());
                let fit = self.results.iter().filter(fits).count();
                let also = match self.results.iter().filter(perhaps).count() {
                    0 => String::new(),
                    perhaps => format!(", {perhaps} perhaps"),
                };
                format!("Peaks by {by}: {fit} of {} fit{also}", self.results.len())
            }
            (Some(least), Some(most)) => format!("Peaks by {by}: {} to {}", short(least), short(most)),
            _ => format!("Peaks by {by}"),
        }
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = self.notes.iter().cloned().map(Section::Warning).collect();
        let warnings = different(self.results.iter().flat_map(|point| point.run.warnings.iter().cloned()));
        sections.extend(warnings.into_iter().map(Section::Warning));
        sections.extend(self.results.first().and_then(|point| point.run.description.clone()).map(Section::Note));
        let all = self.shown();
        match ends(&all, ENDS) {
            Some(short) => sections.extend([Section::List(short), Section::Rest(vec![Section::Table(all)])]),
            None => sections.push(Section::List(all)),
        }
        sections.extend(premise::section(&self.premises()));
        if let Some(curve) = self.curve() {
            if curve.series.iter().any(|series| series.shape == Shape::Predicted) {
                sections.push(Section::Note("Dots are measured, dashed lines predicted without the device.".into()));
            }
            sections.push(Section::Drawing(curve));
        }
        sections.push(Section::Details {
            title: "Who reached each peak".into(),
            sections: vec![Section::Table(self.rows(true))],
        });
        sections.extend(self.again());
        sections
    }

    fn table(&self) -> Option<Table> {
        Some(self.rows(false))
    }
}
