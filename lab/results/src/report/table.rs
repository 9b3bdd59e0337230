//! Tables of a page, from results and from pairs of names and values.

use std::fmt::Write;

use super::text::{bytes, escaped, grouped, signed};

/// A cell: its markup, and whether it is a figure.
pub(super) struct Cell {
    markup: String,
    figure: bool,
}

impl Cell {
    pub(super) fn text(text: &str) -> Self {
        Self { markup: escaped(text), figure: false }
    }

    pub(super) fn bytes(value: u64) -> Self {
        Self { markup: bytes(value), figure: true }
    }

    pub(super) fn signed(value: i64) -> Self {
        Self { markup: signed(value), figure: true }
    }

    pub(super) fn count(value: u64) -> Self {
        Self { markup: grouped(value), figure: true }
    }

    /// A figure that is already text.
    pub(super) fn figure(text: &str) -> Self {
        Self { markup: escaped(text), figure: true }
    }

    /// Its HTML.
    pub(super) fn markup(&self) -> &str {
        &self.markup
    }
}

/// Writes a table under its title. The first column names the rows.
pub(super) fn table(out: &mut String, title: &str, columns: &[String], rows: &[Vec<Cell>]) {
    if rows.is_empty() {
        return;
    }
    let figures = |i: usize| rows.iter().all(|row| row.get(i).is_none_or(|cell| cell.figure));
    let class = |i: usize| if i > 0 && figures(i) { " class=\"r\"" } else { "" };
    let title = escaped(title);
    let _ = write!(
        out,
        "<div class=\"titled\">\n<p class=\"title\">{title}</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"{title}\">\n<table aria-label=\"{title}\">\n<thead><tr>"
    );
    for (i, column) in columns.iter().enumerate() {
        let _ = match column.is_empty() {
            true => write!(out, "<td></td>"),
            false => write!(out, "<th scope=\"col\"{}>{}</th>", class(i), escaped(column)),
        };
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let _ = match i {
                0 if !cell.markup.is_empty() => write!(out, "<th scope=\"row\">{}</th>", cell.markup),
                _ => write!(out, "<td{}>{}</td>", class(i), cell.markup),
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n</div>\n");
}
