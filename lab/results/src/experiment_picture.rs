//! The picture of an experiment's answer: a bar for each program that it compares, or the curve of one.

use std::collections::BTreeSet;

use lab_base::section::{Bars, Cell, Section, Table};

use super::experiment::ExperimentResult;

/// The column of bytes that each experiment's answer is about, and the number of its table among those that have it. Other answers are about what
/// memory does from step to step: their first curve shows it.
const COLUMNS: [(&str, &str, usize); 20] = [
    ("batch-size", "reserved", 0),
    ("equation", "at the peak", 2),
    ("network-size", "peak", 0),
    ("optimizer", "state", 0),
    ("accumulation", "peak of the step", 0),
    ("checkpointing", "peak of the step", 0),
    ("checkpointing-in-vain", "peak of the step", 0),
    ("precision", "peak", 1),
    ("sequence-length", "kept by the graph", 0),
    ("placement", "peak", 0),
    ("quantization", "held", 0),
    ("cache", "reserved", 0),
    ("fragmentation", "reserved", 0),
    ("model-parallel", "largest peak", 0),
    ("resume", "peak of a step", 0),
    ("evaluation", "peak of evaluation", 0),
    ("sharded-saving", "peak of saving", 0),
    ("loader", "pinned, in blocks", 0),
    ("contexts", "at most", 0),
    ("beliefs", "reserved", 0),
];

/// The most bars.
const MOST: usize = 16;

impl ExperimentResult {
    /// The picture of the answer; `None` if nothing was measured.
    pub(super) fn picture(&self) -> Option<Section> {
        let column = COLUMNS.iter().find(|(name, ..)| *name == self.experiment);
        let of_column = column.and_then(|(_, column, number)| bars(&self.tables, column, *number));
        let curve = || self.curves.first().map(|curve| Section::Chart(Self::curve(curve)));
        of_column
            .or_else(|| Some(Section::Bars(self.of_first_row()?)).filter(|_| self.curves.is_empty()))
            .or_else(curve)
    }

    /// The bytes that were measured with the first setting.
    fn of_first_row(&self) -> Option<Bars> {
        let row = self.rows.first()?;
        let bytes = |name: &&str| {
            let value = row.measured.get(&format!("{name}_bytes")).copied().flatten()?;
            Some((name.to_string(), Cell::signed(value)))
        };
        let rows: Vec<(String, Cell)> = ["peak", "reserved"].iter().filter_map(bytes).collect();
        let title = row.setting.iter().map(|(name, value)| format!("{name} {}", super::findings::plain(value)));
        (!rows.is_empty()).then(|| Bars { title: title.collect::<Vec<_>>().join(", "), rows })
    }
}

/// A bar for each row of a table with this column, named by as many of the columns before it as tell rows apart.
fn bars(tables: &[Table], name: &str, number: usize) -> Option<Section> {
    let place = |table: &Table| table.columns.iter().position(|column| column == name);
    let (table, at) = tables.iter().filter_map(|table| Some((table, place(table)?))).nth(number)?;
    let label = |row: &[Cell], columns: usize| {
        let parts = row[..columns].iter().zip(&table.columns).filter_map(|(cell, column)| match cell {
            Cell::Text(text) => Some(text.clone()),
            Cell::Count(count) => Some(format!("{column} {count}")),
            _ => None,
        });
        parts.collect::<Vec<_>>().join(", ")
    };
    let labels = |columns: usize| table.rows.iter().map(|row| label(row, columns)).collect::<Vec<_>>();
    let tells = |columns: &usize| labels(*columns).iter().collect::<BTreeSet<_>>().len() == table.rows.len();
    let columns = (1..=at).find(tells).unwrap_or(at);
    let rows: Vec<(String, Cell)> =
        labels(columns).into_iter().zip(&table.rows).take(MOST).map(|(label, row)| (label, row[at].clone())).collect();
    let known = rows.iter().any(|(_, cell)| matches!(cell, Cell::Bytes(bytes) if *bytes > 0));
    known.then(|| Section::Bars(Bars { title: format!("{}{}", name[..1].to_uppercase(), &name[1..]), rows }))
}

#[cfg(test)]
mod tests {
    use lab_experiments::ALL;

    use super::*;

    #[test]
    fn every_column_is_of_an_experiment_that_there_is() {
        for (name, ..) in COLUMNS {
            assert!(ALL.iter().any(|experiment| experiment.name() == name), "{name}");
        }
    }

    #[test]
    fn rows_are_named_by_what_tells_them_apart() {
        let row = |form: &str, batch: u64, peak: u64| {
            vec![Cell::Text("adam".into()), Cell::Text(form.into()), Cell::Count(batch), Cell::Bytes(peak)]
        };
        let rows = vec![row("loop", 1, 512), row("foreach", 2, 1024)];
        let tables = [Table::new("t", &["optimizer", "form", "batch", "peak"], rows)];
        let Some(Section::Bars(shown)) = bars(&tables, "peak", 0) else { panic!("no bars") };
        let names: Vec<&str> = shown.rows.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((shown.title.as_str(), names), ("Peak", vec!["adam, loop", "adam, foreach"]));
        assert!(bars(&tables, "reserved", 0).is_none() && bars(&tables, "peak", 1).is_none());
    }
}
