//! Formats tables as Markdown and CSV.

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

/// Escapes text so that it does not end a cell or a line.
pub(crate) fn escaped(text: &str) -> String {
    visible(text).replace('\\', "\\\\").replace('|', "\\|").replace('\n', " ")
}

/// Formats a table as CSV, with a header line; bytes are plain numbers.
pub(crate) fn csv(table: &Table) -> Result<Vec<u8>, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&table.columns)?;
    for row in &table.rows {
        writer.write_record(row.iter().map(|cell| match cell {
            // Unknown values are empty.
            Cell::Text(text) if text == "–" => String::new(),
            Cell::Text(text) => visible(text).into_owned(),
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
    fn control_characters_are_visible() {
        let name = |text: &str| vec![Cell::Text(text.into())];
        let table = Table { title: "T".into(), columns: vec!["n".into()], rows: vec![name("\u{1b}[2Jx\u{9b}")] };
        assert!(markdown(&table).ends_with("| \\\\u{1b}[2Jx\\\\u{9b} |\n"), "{}", markdown(&table));
        assert_eq!(String::from_utf8(csv(&table).unwrap()).unwrap(), "n\n\\u{1b}[2Jx\\u{9b}\n");
    }
}
