//! Formats tables for a terminal.

use std::collections::HashSet;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, ContentLineStyle, TableStyle, Width};
use lab::figures::number;
use lab::section::{Cell, Table};

use super::{View, bytes, cut, grouped, wrapped};
use crate::visible::visible;

/// Marks the boundary of two columns until colours are added. A cell cannot contain it, since control characters are shown as escapes.
const BOUNDARY: char = '\u{1f}';
/// Width of a cell without its text: the boundary, and a space before it.
const GAP: usize = 2;
/// Letters of a word that a column must hold. A table with a narrower column becomes a list.
const LEGIBLE: usize = 9;

/// Least letters of a list's last column; below that, other columns are cut too.
const SHORT: usize = 24;

/// Letters of a cell that stays in one line of a list.
const UNBROKEN: usize = 14;

/// Byte figures that show the exact number too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exact {
    All,
    FirstColumn,
    None,
}

/// Formats a table without its title. In full, exact numbers follow rounded ones where the width allows it. If the line is too narrow for the
/// columns, they stand one below the other.
pub(crate) fn text(table: &Table, view: View) -> String {
    let all = [Exact::All, Exact::FirstColumn, Exact::None];
    let rendered = all[if view.full { 0 } else { 2 }..].iter().map(|exact| cells(table, *exact, view));
    let rendered: Vec<_> = rendered.collect();
    let fits = |rows: &&Vec<Vec<String>>| natural_width(table, rows) <= view.width;
    let Some(rows) = rendered.iter().find(fits).or(rendered.last()) else { return String::new() };
    let Some(words) = whole_words(table, rows, view.width) else { return list(table, rows, view) };
    let usual = arranged(table, rows, &[], view);
    if breaks_words(table, rows, &usual) { arranged(table, rows, &words, view) } else { usual }
}

/// Formats the columns as wide as their contents want, within the line, but at least `at_least` wide.
fn arranged(table: &Table, rows: &[Vec<String>], at_least: &[u16], view: View) -> String {
    let line = ContentLineStyle::none().junction(BOUNDARY);
    let mut out = comfy_table::Table::new();
    out.load_style(TableStyle::new().header_lines(line).content_lines(line))
        .set_content_arrangement(ContentArrangement::Dynamic)
        // The last column has its gap beyond the line's end.
        .set_width((view.width + 1) as u16)
        .set_header(&table.columns)
        .add_rows(rows);
    for (i, column) in out.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if table.is_figures(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if let Some(width) = at_least.get(i) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width + 1)));
        }
    }
    out.lines().enumerate().map(|(i, line)| shown_line(table, &line, i == 0, view)).collect()
}

/// Formats a line of a table whose cells have their boundaries: column names in bold, verdicts in colour.
fn shown_line(table: &Table, line: &str, is_header: bool, view: View) -> String {
    let cells: Vec<&str> = line.split(BOUNDARY).collect();
    let shown = |(i, cell): (usize, &&str)| {
        let (word, last) = (cell.trim(), i + 1 == cells.len());
        let (before, after) = cell.split_at(cell.len() - cell.trim_start().len());
        let after = &after[word.len()..];
        let marked = match word {
            "" => String::new(),
            _ if is_header => view.style.bold(word),
            _ if table.is_verdict(i) => view.style.verdict(word),
            _ => word.to_string(),
        };
        format!("{before}{marked}{}", if last { "" } else { after })
    };
    let line: Vec<String> = cells.iter().enumerate().map(shown).collect();
    format!("{}\n", line.join(" ").trim_end())
}

/// Formats a row as a line; the longest columns are cut to fit.
pub(crate) fn lines(table: &Table, view: View) -> String {
    let rows = cells(table, Exact::None, view);
    let all: Vec<&[String]> = std::iter::once(&table.columns[..]).chain(rows.iter().map(Vec::as_slice)).collect();
    let mut widths: Vec<usize> = (0..table.columns.len())
        .map(|i| all.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    while widths.iter().map(|width| width + GAP).sum::<usize>() > view.width + GAP {
        let (last, others) = widths.split_last_mut().map_or((None, &mut [][..]), |(last, others)| (Some(last), others));
        let widest = others.iter_mut().max_by_key(|width| **width);
        // The contents of the last column are also shown elsewhere: it is cut first.
        match (last.filter(|last| **last > SHORT), widest) {
            (Some(last), _) => *last -= 1,
            (None, Some(widest)) if *widest > 1 => *widest -= 1,
            _ => break,
        }
    }
    let line = |(n, row): (usize, &&[String])| {
        let cell = |(i, (cell, width)): (usize, (&String, &usize))| {
            let cell = cut(&cell.replace('\n', " "), *width);
            let right = table.is_figures(i);
            if right { format!("{cell:>width$} ") } else { format!("{cell:<width$} ") }
        };
        let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(cell).collect();
        shown_line(table, &cells.join(&BOUNDARY.to_string()), n == 0, view)
    };
    let first = usize::from(table.columns.iter().all(String::is_empty));
    all.iter().enumerate().skip(first).map(line).collect()
}

/// Formats each row by itself: its first cell, and below it the others with their names.
fn list(table: &Table, rows: &[Vec<String>], view: View) -> String {
    let mut out = String::new();
    for row in rows {
        let mut cells = table.columns.iter().zip(row);
        let (name, first) = cells.next().map_or(("", ""), |(name, cell)| (name.as_str(), cell.as_str()));
        let first = if first.is_empty() { name } else { first };
        out += &format!("{}\n", wrapped(first, view.width, 2));
        let known = cells.filter(|(_, cell)| !cell.is_empty());
        // A figure and its unit stay together.
        let whole = |cell: &String| {
            if cell.chars().count() <= UNBROKEN { cell.replace(' ', &BOUNDARY.to_string()) } else { cell.clone() }
        };
        let rest: Vec<String> =
            known.map(|(name, cell)| format!("{name} {}", whole(cell)).trim().to_string()).collect();
        if !rest.is_empty() {
            let lines = wrapped(&rest.join(", "), view.width - 2, 0).replace(BOUNDARY, " ");
            out.extend(lines.lines().map(|line| format!("  {line}\n")));
        }
    }
    out
}

/// True if a word of the table was broken in `rendered`.
fn breaks_words(table: &Table, rows: &[Vec<String>], rendered: &str) -> bool {
    let figures = rows.iter().flatten().filter(|cell| cell.contains(' ') && cell.chars().count() <= UNBROKEN);
    if figures.into_iter().any(|cell| !rendered.contains(cell.as_str())) {
        return true;
    }
    let there: HashSet<&str> = rendered.split_whitespace().collect();
    let mut words = table.columns.iter().chain(rows.iter().flatten()).flat_map(|text| text.split_whitespace());
    words.any(|word| !there.contains(word))
}

/// Formats a table with its title.
pub(crate) fn titled(table: &Table, view: View) -> String {
    view.heading(&table.title, 0) + &text(table, view)
}

fn cells(table: &Table, exact: Exact, view: View) -> Vec<Vec<String>> {
    let first =
        (0..table.columns.len()).find(|&i| table.rows.iter().any(|row| matches!(row.get(i), Some(Cell::Bytes(_)))));
    let shown = |i: usize, cell: &Cell| match (cell, exact) {
        (Cell::Bytes(b), Exact::All) => bytes::both(*b),
        (Cell::Bytes(b), Exact::FirstColumn) if Some(i) == first => bytes::both(*b),
        _ => view.figures(&cell_text(cell)),
    };
    table.rows.iter().map(|row| row.iter().enumerate().map(|(i, cell)| shown(i, cell)).collect()).collect()
}

/// Formats a cell for people, with the exact number if it is rounded.
pub(super) fn exact(cell: &Cell) -> String {
    if let Cell::Bytes(n) = cell { bytes::both(*n) } else { cell_text(cell) }
}

/// Formats a cell for people, briefly.
pub(super) fn cell_text(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => visible(text).into_owned(),
        Cell::Bytes(b) => bytes::short(*b),
        Cell::Difference(d) => bytes::signed(*d),
        Cell::Count(n) => grouped(*n),
        Cell::Number(x) => number(*x),
    }
}

/// Returns the width of each column's longest word, so that none is broken. If the line is too narrow for that, the longest words get as many letters
/// as leave the others whole; `None` if those are too few to be read.
fn whole_words(table: &Table, rows: &[Vec<String>], width: usize) -> Option<Vec<u16>> {
    // A figure and its unit stay together.
    let longest = |text: &str| match text.chars().count() {
        short if short <= UNBROKEN => short,
        _ => text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0),
    };
    let column = |(i, name): (usize, &String)| {
        rows.iter().filter_map(|row| row.get(i)).map(|cell| longest(cell)).fold(longest(name), usize::max)
    };
    let words: Vec<usize> = table.columns.iter().enumerate().map(column).collect();
    let at_most = |most: usize| words.iter().map(move |word| *word.min(&most));
    let fits = |most: &usize| at_most(*most).map(|word| word + GAP).sum::<usize>() <= width + GAP;
    let most = (LEGIBLE..=width).rev().find(fits)?;
    Some(at_most(most).map(|word| word as u16).collect())
}

fn natural_width(table: &Table, rows: &[Vec<String>]) -> usize {
    let len = |text: &str| text.chars().count();
    let column = |(i, name): (usize, &String)| {
        rows.iter().filter_map(|row| row.get(i)).map(|cell| len(cell)).fold(len(name), usize::max) + GAP
    };
    table.columns.iter().enumerate().map(column).sum::<usize>().saturating_sub(GAP)
}

#[cfg(test)]
mod tests {
    use super::super::style::Style;
    use super::*;

    fn table(columns: &[&str], rows: Vec<Vec<Cell>>) -> Table {
        Table { title: "t".into(), columns: columns.iter().map(|c| c.to_string()).collect(), rows }
    }

    fn at(width: usize) -> View {
        View { width, ..View::of_document() }
    }

    fn fits(text: &str, width: usize) -> bool {
        text.lines().all(|line| line.chars().count() <= width)
    }

    #[test]
    fn exact_numbers_are_shown_in_full_where_they_fit() {
        let gib = Cell::Bytes(3 << 29);
        let narrow = table(&["phase", "allocated"], vec![vec![Cell::Text("forward".into()), gib.clone()]]);
        assert_eq!(text(&narrow, at(80)), "phase               allocated\nforward  1.5 GiB (1610612736)\n");
        assert_eq!(text(&narrow, View { full: false, ..at(80) }), "phase    allocated\nforward    1.5 GiB\n");
        let row: Vec<Cell> = (0..5).map(|_| gib.clone()).collect();
        let wide = text(&table(&["one", "two", "three", "four", "five"], vec![row]), at(80));
        assert_eq!(wide.matches("(1610612736)").count(), 1, "{wide}");
        assert!(fits(&wide, 80), "{wide}");
    }

    #[test]
    fn words_stay_whole_where_there_is_room() {
        let cells = |texts: [&str; 3]| texts.map(|text| Cell::Text(text.into())).to_vec();
        let long = "a sentence that takes more than the line has room for, and so is wrapped several times over";
        let table = table(&["network", "checkpoint", "what"], vec![cells(["perceptron", long, long])]);
        for width in [40, 60, 80, 120, 200] {
            let text = text(&table, at(width));
            assert!(text.contains("perceptron") && text.contains("checkpoint"), "{text}");
            assert!(fits(&text, width), "{text}");
        }
    }

    #[test]
    fn a_line_too_narrow_for_the_columns_has_them_below_each_other() {
        let columns = ["batch size", "allocated", "reserved", "fragmented", "highest", "when"];
        let figures = (0..4).map(|_| Cell::Bytes(3 << 29));
        let row: Vec<Cell> =
            std::iter::once(Cell::Count(32)).chain(figures).chain([Cell::Text("backward".into())]).collect();
        let table = table(&columns, vec![row.clone(), row]);
        let brief = |width| View { full: false, ..at(width) };
        let entry =
            "32\n  allocated 1.5 GiB, reserved 1.5 GiB,\n  fragmented 1.5 GiB, highest 1.5 GiB,\n  when backward\n";
        assert_eq!(text(&table, brief(40)), entry.repeat(2));
        assert_eq!(text(&table, brief(80)).lines().count(), 3);
    }

    #[test]
    fn a_list_has_a_line_for_each_row() {
        let text = |text: &str| Cell::Text(text.into());
        let row = |name: &str| vec![text(name), text("holds"), text(&"word ".repeat(60)), Cell::Bytes(3 << 30)];
        let table = table(&["name", "verdict", "what", "bytes"], vec![row("a"), row("b")]);
        for width in [40, 60, 80, 120, 200] {
            let lines = lines(&table, at(width));
            assert_eq!(lines.lines().count(), 3, "{lines}");
            assert!(
                fits(&lines, width) && lines.lines().nth(2).is_some_and(|line| line.ends_with("…  3 GiB")),
                "{lines}"
            );
        }
    }

    #[test]
    fn verdicts_have_their_colours() {
        let rows = ["yes", "no: 1 GiB more", "no"].map(|word| vec![Cell::Text(word.into()), Cell::Text("no".into())]);
        let table = table(&["fits", "other"], rows.to_vec());
        let coloured = View { style: Style::new(true), ..at(80) };
        for text in [text(&table, coloured), lines(&table, coloured)] {
            let of = |row: usize| text.lines().nth(row).unwrap_or_default().to_string();
            let marked = [0, 1, 2, 3].map(|row| of(row).matches('\u{1b}').count());
            assert_eq!(marked, [4, 2, 2, 2], "{text:?}");
            assert!(of(1).contains("32myes") && of(2).contains("31mno: 1 GiB more") && of(3).contains("31mno"));
        }
    }

    #[test]
    fn long_text_is_wrapped() {
        let long = table(&["a", "b"], vec![vec![Cell::Text("word ".repeat(60)), Cell::Count(1_234_567)]]);
        for width in [40, 60, 80, 120, 200] {
            let text = text(&long, at(width));
            assert!(fits(&text, width) && text.contains("1 234 567"), "{text}");
        }
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
