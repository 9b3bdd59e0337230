//! Formats tables as Markdown and CSV.

use std::borrow::Cow;

use lab::section::{Cell, Table};

use super::bytes;
use crate::visible::visible;

/// Formats a table with its title as Markdown. Bytes are shown both rounded and exact.
pub(crate) fn markdown(table: &Table) -> String {
    let line = |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    let mut out = if table.title.is_empty() { String::new() } else { format!("**{}**\n\n", escaped(&table.title)) };
    out += &line(&mut table.columns.iter().map(|name| escaped(name)));
    out += &line(&mut (0..table.columns.len()).map(|i| {
        let numeric = table.rows.iter().any(|row| row.get(i).is_some_and(|cell| !matches!(cell, Cell::Text(_))));
        if numeric { "---:".into() } else { "---".into() }
    }));
    for row in &table.rows {
        out += &line(&mut row.iter().map(|cell| match cell {
            Cell::Text(text) => escaped(text),
            Cell::Bytes(b) => bytes::both(*b),
            Cell::Difference(d) => bytes::signed(*d),
            Cell::Count(n) => n.to_string(),
            Cell::Number(x) => x.to_string(),
        }));
    }
    out
}

/// Escapes text so that it does not end a cell or a line, and is not markup: no tag, link or image.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in visible(text).chars() {
        match c {
            '\n' | '\r' => out.push(' '),
            '<' => out.push_str("&lt;"),
            '\\' | '|' | '[' | ']' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

/// Guards text that a spreadsheet would take for a formula. Figures with a sign stay as they are.
fn no_formula(text: &str) -> Cow<'_, str> {
    // A spreadsheet may trim blanks, and takes the wide forms of the signs, too.
    let trimmed = text.trim_start();
    let begins = text.starts_with(['\t', '\r', '\n'])
        || trimmed.starts_with(['=', '@', '＝', '＠', '＋', '－'])
        || trimmed.starts_with(['+', '-']) && !is_figure(trimmed);
    if begins { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) }
}

/// True for a sign, a number, and at most one word after it: `-1.5 %`, `+20 MiB`.
fn is_figure(text: &str) -> bool {
    let number = text[1..].split(' ').next().unwrap_or_default();
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '%');
    let unit = text[1..].strip_prefix(number).unwrap_or_default().trim_start();
    number.contains(|c: char| c.is_ascii_digit())
        && number.chars().all(digits)
        && unit.chars().all(|c| c.is_ascii_alphabetic() || c == '%')
}

/// Formats a table as CSV, with a header line; bytes are plain numbers.
pub(crate) fn csv(table: &Table) -> Result<Vec<u8>, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(table.columns.iter().map(|name| no_formula(&visible(name)).into_owned()))?;
    for row in &table.rows {
        writer.write_record(row.iter().map(|cell| match cell {
            // Unknown values are empty.
            Cell::Text(text) if text == "–" => String::new(),
            Cell::Text(text) => no_formula(&visible(text)).into_owned(),
            Cell::Bytes(n) | Cell::Count(n) => n.to_string(),
            Cell::Difference(d) => d.to_string(),
            Cell::Number(x) => x.to_string(),
        }))?;
    }
    writer.into_inner().map_err(|error| error.into_error().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let row = |name: &str, bytes| vec![Cell::Text(name.into()), Cell::Bytes(bytes), Cell::Difference(-1536)];
        let columns = ["phase", "allocated", "change"].map(String::from).to_vec();
        Table { title: "Rows".into(), columns, rows: vec![row("a|b", 1 << 20), row("c, \"d\"", 5)] }
    }

    #[test]
    fn markdown_escapes_what_would_end_a_cell() {
        let expected = "**Rows**\n\n| phase | allocated | change |\n| --- | ---: | ---: |\n\
            | a\\|b | 1 MiB (1048576) | -1.5 KiB |\n| c, \"d\" | 5 B | -1.5 KiB |\n";
        assert_eq!(markdown(&table()), expected);
    }

    #[test]
    fn csv_has_plain_numbers() {
        let text = String::from_utf8(csv(&table()).unwrap()).unwrap();
        assert_eq!(text, "phase,allocated,change\na|b,1048576,-1536\n\"c, \"\"d\"\"\",5,-1536\n");
        let gap =
            Table { rows: vec![vec![Cell::Text("a".into()), Cell::Text("–".into()), Cell::Count(1)]], ..table() };
        assert_eq!(String::from_utf8(csv(&gap).unwrap()).unwrap(), "phase,allocated,change\na,,1\n");
    }

    #[test]
    fn nothing_in_a_cell_is_a_formula_or_markup() {
        let row = |text: &str| vec![Cell::Text(text.into())];
        let texts =
            ["=HYPERLINK(A1).py:3", "@SUM(A1)", "+1+cmd|x", "-2+3", "-1.5 %", "+20 MiB", "plain", "＝1+1", " =1"];
        let table = |rows| Table { title: String::new(), columns: vec!["n".into()], rows };
        let csv = String::from_utf8(csv(&table(texts.map(row).to_vec())).unwrap()).unwrap();
        assert_eq!(csv, "n\n'=HYPERLINK(A1).py:3\n'@SUM(A1)\n'+1+cmd|x\n'-2+3\n-1.5 %\n+20 MiB\nplain\n'＝1+1\n' =1\n");
        let shown = markdown(&table(vec![row("<img src=x onerror=y>[a](javascript:z)")]));
        assert!(shown.ends_with("| &lt;img src=x onerror=y>\\[a\\](javascript:z) |\n"), "{shown}");
    }

    #[test]
    fn control_characters_are_visible() {
        let name = |text: &str| vec![Cell::Text(text.into())];
        let table = Table { title: "T".into(), columns: vec!["n".into()], rows: vec![name("\u{1b}[2Jx\u{9b}")] };
        assert!(markdown(&table).ends_with("| \\\\u{1b}\\[2Jx\\\\u{9b} |\n"), "{}", markdown(&table));
        assert_eq!(String::from_utf8(csv(&table).unwrap()).unwrap(), "n\n\\u{1b}[2Jx\\u{9b}\n");
    }
}
