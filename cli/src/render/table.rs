//! Tables on a terminal.

use std::collections::HashSet;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};
use lab::figures::number;
use lab::section::{Cell, Table};

use super::{WIDTH, bytes, grouped, wrapped};
use crate::visible::visible;

/// Columns of a cell beside its text.
const PADDING: u16 = 2;

/// Which byte figures show the exact number too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exact {
    All,
    FirstColumn,
    None,
}

/// The table, without its title. Exact numbers stand beside rounded ones where the width allows it.
pub(crate) fn text(table: &Table) -> String {
    let rendered = [Exact::All, Exact::FirstColumn, Exact::None].map(|exact| cells(table, exact));
    let fits = |rows: &&Vec<Vec<String>>| natural_width(table, rows) <= WIDTH;
    let rows = rendered.iter().find(fits).unwrap_or(&rendered[2]);
    let usual = arranged(table, rows, &[]);
    if breaks_words(table, rows, &usual) { arranged(table, rows, &whole_words(table, rows)) } else { usual }
}

/// The columns as wide as their contents want, within the line, but no narrower than so.
fn arranged(table: &Table, rows: &[Vec<String>], at_least: &[u16]) -> String {
    let mut out = comfy_table::Table::new();
    out.load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH as u16)
        .set_header(&table.columns)
        .add_rows(rows);
    for (i, column) in out.column_iter_mut().enumerate() {
        if table.is_figures(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if let Some(width) = at_least.get(i) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width + PADDING)));
        }
    }
    format!("{out}\n")
}

/// Whether a word of the table is not in what became of it.
fn breaks_words(table: &Table, rows: &[Vec<String>], rendered: &str) -> bool {
    let there: HashSet<&str> = rendered.split_whitespace().collect();
    let mut words = table.columns.iter().chain(rows.iter().flatten()).flat_map(|text| text.split_whitespace());
    words.any(|word| !there.contains(word))
}

/// With its title above.
pub(crate) fn titled(table: &Table, style: super::style::Style) -> String {
    format!("{}\n{}", style.bold(&wrapped(&table.title, WIDTH, 0)), text(table))
}

fn cells(table: &Table, exact: Exact) -> Vec<Vec<String>> {
    let first =
        (0..table.columns.len()).find(|&i| table.rows.iter().any(|row| matches!(row.get(i), Some(Cell::Bytes(_)))));
    let shown = |i: usize, cell: &Cell| match (cell, exact) {
        (Cell::Bytes(b), Exact::All) => bytes::both(*b),
        (Cell::Bytes(b), Exact::FirstColumn) if Some(i) == first => bytes::both(*b),
        _ => cell_text(cell),
    };
    table.rows.iter().map(|row| row.iter().enumerate().map(|(i, cell)| shown(i, cell)).collect()).collect()
}

/// A cell for people, with the exact number where it is rounded.
pub(super) fn exact(cell: &Cell) -> String {
    if let Cell::Bytes(n) = cell { bytes::both(*n) } else { cell_text(cell) }
}

/// A cell for people, in short.
pub(super) fn cell_text(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => visible(text).into_owned(),
        Cell::Bytes(b) => bytes::short(*b),
        Cell::Difference(d) => bytes::signed(*d),
        Cell::Count(n) => grouped(*n),
        Cell::Number(x) => number(*x),
    }
}

/// The longest word of each column, so that none is broken; where the table is too narrow for that, so many letters of the longest words as
/// leave the others whole.
fn whole_words(table: &Table, rows: &[Vec<String>]) -> Vec<u16> {
    let longest = |text: &str| text.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
    let column = |(i, name): (usize, &String)| {
        rows.iter().filter_map(|row| row.get(i)).map(|cell| longest(cell)).fold(longest(name), usize::max)
    };
    let words: Vec<usize> = table.columns.iter().enumerate().map(column).collect();
    let at_most = |most: usize| words.iter().map(move |word| *word.min(&most));
    let fits = |most: &usize| at_most(*most).map(|word| word + 1 + usize::from(PADDING)).sum::<usize>() < WIDTH;
    let most = (1..=WIDTH).rev().find(fits).unwrap_or(0);
    at_most(most).map(|word| word as u16).collect()
}

fn natural_width(table: &Table, rows: &[Vec<String>]) -> usize {
    let len = |text: &str| text.chars().count();
    let column = |(i, name): (usize, &String)| {
        rows.iter().filter_map(|row| row.get(i)).map(|cell| len(cell)).fold(len(name), usize::max) + 3
    };
    table.columns.iter().enumerate().map(column).sum::<usize>() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: &[&str], rows: Vec<Vec<Cell>>) -> Table {
        Table { title: "t".into(), columns: columns.iter().map(|c| c.to_string()).collect(), rows }
    }

    #[test]
    fn exact_numbers_are_shown_where_they_fit() {
        let gib = Cell::Bytes(3 << 29);
        let narrow = text(&table(&["phase", "allocated"], vec![vec![Cell::Text("forward".into()), gib.clone()]]));
        assert!(narrow.contains("1.5 GiB (1610612736)"), "{narrow}");
        let row: Vec<Cell> = (0..5).map(|_| gib.clone()).collect();
        let wide = text(&table(&["one", "two", "three", "four", "five"], vec![row]));
        assert_eq!(wide.matches("(1610612736)").count(), 1, "{wide}");
        assert!(wide.lines().all(|line| line.chars().count() <= WIDTH), "{wide}");
    }

    #[test]
    fn words_stay_whole_where_there_is_room() {
        let cells = |texts: [&str; 3]| texts.map(|text| Cell::Text(text.into())).to_vec();
        let long = "a sentence that takes more than the line has room for, and so is wrapped several times over";
        let table = text(&table(&["network", "checkpoint", "what"], vec![cells(["perceptron", long, long])]));
        assert!(table.contains("perceptron") && table.contains("checkpoint"), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= WIDTH), "{table}");
    }

    #[test]
    fn long_text_is_wrapped() {
        let long = text(&table(&["a", "b"], vec![vec![Cell::Text("word ".repeat(60)), Cell::Count(1_234_567)]]));
        assert!(long.lines().all(|line| line.chars().count() <= WIDTH), "{long}");
        assert!(long.contains("1 234 567"));
    }

    #[test]
    fn numbers_keep_four_digits() {
        assert_eq!(
            [0.0, 2.312_585, 0.001_234_5, 1e-9, 123.456, 54_321.9].map(number),
            ["0", "2.3126", "0.0012", "1.00e-9", "123.46", "54322"]
        );
        assert_eq!(number(f64::NAN), "nan");
    }
}
