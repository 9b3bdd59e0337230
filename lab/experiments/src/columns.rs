//! What is said of each trial of an experiment, once for its table and for the rows of JSON.

use lab_base::section::{Cell, Table};

use super::Measurement;
use super::tables::{some_bytes, table};

/// A column of the table.
struct Column<'a, T> {
    title: &'static str,
    cell: Box<dyn Fn(&T) -> Cell + 'a>,
}

/// Writes a part of a trial's row.
type Part<'a, T> = Box<dyn Fn(&T, &mut Measurement) + 'a>;

/// Columns of a table of trials, and their settings and quantities in JSON. A name of JSON stands first, a title of the
/// table second.
pub(super) struct Columns<'a, T> {
    columns: Vec<Column<'a, T>>,
    parts: Vec<Part<'a, T>>,
}

impl<'a, T: 'a> Columns<'a, T> {
    pub(super) fn new() -> Self {
        Self { columns: Vec::new(), parts: Vec::new() }
    }

    /// Adds a column of the table alone.
    pub(super) fn cell(mut self, title: &'static str, cell: impl Fn(&T) -> Cell + 'a) -> Self {
        self.columns.push(Column { title, cell: Box::new(cell) });
        self
    }

    /// Adds to the row alone.
    pub(super) fn row(mut self, part: impl Fn(&T, &mut Measurement) + 'a) -> Self {
        self.parts.push(Box::new(part));
        self
    }

    /// Adds a setting to the row alone.
    pub(super) fn set<V: Into<serde_json::Value>>(self, name: &'static str, value: impl Fn(&T) -> V + 'a) -> Self {
        self.row(move |trial, m| drop(m.setting.insert(name.into(), value(trial).into())))
    }

    /// Adds a setting in words.
    pub(super) fn words<W>(self, name: &'static str, title: &'static str, words: impl Fn(&T) -> W + Copy + 'a) -> Self
    where
        W: Into<String>,
    {
        self.set(name, move |trial| words(trial).into()).cell(title, move |trial| Cell::Text(words(trial).into()))
    }

    /// Adds a setting that is a number.
    pub(super) fn number(self, name: &'static str, title: &'static str, n: impl Fn(&T) -> usize + Copy + 'a) -> Self {
        self.set(name, n).cell(title, move |trial| Cell::Count(n(trial) as u64))
    }

    /// Adds a measured quantity to the row alone.
    pub(super) fn measured(self, name: &'static str, figure: impl Fn(&T) -> u64 + 'a) -> Self {
        self.row(move |trial, m| m.measure(name, figure(trial)))
    }

    /// Adds the prediction of a quantity, where there is one.
    pub(super) fn predicted(self, name: &'static str, figure: impl Fn(&T) -> Option<u64> + 'a) -> Self {
        self.row(move |trial, m| figure(trial).into_iter().for_each(|value| m.predict(name, value)))
    }

    /// Adds measured bytes.
    pub(super) fn bytes(self, name: &'static str, title: &'static str, bytes: impl Fn(&T) -> u64 + Copy + 'a) -> Self {
        self.measured(name, bytes).cell(title, move |trial| Cell::Bytes(bytes(trial)))
    }

    /// Adds measured bytes, of which 0 is a dash in the table.
    pub(super) fn few(self, name: &'static str, title: &'static str, bytes: impl Fn(&T) -> u64 + Copy + 'a) -> Self {
        self.measured(name, bytes).cell(title, move |trial| some_bytes(bytes(trial)))
    }

    /// Adds a measured count.
    pub(super) fn count(self, name: &'static str, title: &'static str, count: impl Fn(&T) -> u64 + Copy + 'a) -> Self {
        self.measured(name, count).cell(title, move |trial| Cell::Count(count(trial)))
    }

    /// Returns the row of a trial.
    pub(super) fn measurement(&self, trial: &T) -> Measurement {
        let mut m = Measurement::default();
        self.parts.iter().for_each(|part| part(trial, &mut m));
        m
    }

    /// Returns the table of all trials.
    pub(super) fn table<'t>(&self, title: impl Into<String>, trials: impl IntoIterator<Item = &'t T>) -> Table
    where
        T: 't,
    {
        let titles: Vec<&str> = self.columns.iter().map(|column| column.title).collect();
        let cells = |trial| self.columns.iter().map(|column| (column.cell)(trial)).collect();
        table(title, &titles, trials.into_iter().map(cells).collect())
    }
}
