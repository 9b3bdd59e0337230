//! Tables of a page: from results, and from pairs of names and values.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::text::{bytes, escaped, grouped, signed};
use crate::figures::number;

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

    /// A part of a whole, in percent.
    pub(super) fn share(part: u64, whole: u64) -> Self {
        Self { markup: format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64), figure: true }
    }

    /// A figure that is words already.
    pub(super) fn figure(text: &str) -> Self {
        Self { markup: escaped(text), figure: true }
    }

    /// As it stands in the page.
    pub(super) fn markup(&self) -> &str {
        &self.markup
    }

    /// What is not known.
    pub(super) fn none() -> Self {
        Self { markup: "–".into(), figure: true }
    }

    /// Bytes where the value is a number.
    pub(super) fn bytes_of(value: &Value) -> Self {
        match (value.as_u64(), value.as_i64()) {
            (Some(value), _) => Self::bytes(value),
            (None, Some(value)) => Self::signed(value),
            _ => Self::none(),
        }
    }

    /// A value of a result, of this kind (`bytes`, `difference`) or of its own.
    pub(super) fn value(value: &Value, kind: &str) -> Self {
        match (value, kind) {
            (Value::Number(_), "bytes") => Self::bytes_of(value),
            (Value::Number(_), "difference") => value.as_i64().map_or_else(Self::none, Self::signed),
            (Value::Number(n), _) => match (n.as_u64(), n.as_f64()) {
                (Some(n), _) => Self::count(n),
                (None, Some(x)) => Self { markup: number(x), figure: true },
                _ => Self::none(),
            },
            (Value::String(text), _) => {
                let figure = matches!(text.as_str(), "" | "-" | "–" | "⋮") || text.ends_with(" %");
                Self { markup: escaped(text), figure }
            }
            (Value::Null, _) => Self::none(),
            (Value::Bool(yes), _) => Self::text(if *yes { "yes" } else { "no" }),
            (other, _) => Self::text(&other.to_string()),
        }
    }
}

/// A table under its title. The first column names the rows.
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
        let _ = write!(out, "<th scope=\"col\"{}>{}</th>", class(i), escaped(column));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let _ = match i {
                0 => write!(out, "<th scope=\"row\">{}</th>", cell.markup),
                _ => write!(out, "<td{}>{}</td>", class(i), cell.markup),
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n</div>\n");
}

/// The values of a list; none where there is no list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A value in words: text as it is, the rest as JSON.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "–".into(),
        other => other.to_string(),
    }
}

/// Where the figures, or the results, may not be what was asked for; then what they stand for.
pub(super) fn warnings(out: &mut String, result: &Value) {
    let notes = ["warnings", "notes"].into_iter().flat_map(|key| list(&result[key]));
    for warning in notes.filter_map(Value::as_str) {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escaped(warning));
    }
}

/// What an answer rests on: type, tokens and batch, and where each came from.
pub(super) fn premises(out: &mut String, result: &Value) {
    let text = |value: &Value| value.as_str().map(escaped).unwrap_or_default();
    let part = |premise: &Value| format!("{}: {}", text(&premise["value"]), text(&premise["source"]));
    let parts: Vec<String> = list(&result["premises"]).iter().map(part).collect();
    if !parts.is_empty() {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", parts.join(" · "));
    }
}

/// The settings in force, and the command that repeats it.
pub(super) fn settings(out: &mut String, settings: Option<&Map<String, Value>>, command: &str) {
    let Some(settings) = settings else { return };
    let _ = write!(
        out,
        "<section>\n<h2>Do it again</h2>\n<pre class=\"command\" tabindex=\"0\"><code>{}</code></pre>\n\
         <details><summary>All settings in force</summary>\n<dl class=\"settings\">\n",
        escaped(command)
    );
    for (name, value) in settings.iter().filter(|(_, value)| !value.is_null()) {
        let _ = writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(&plain(value)));
    }
    out.push_str("</dl></details>\n</section>\n");
}
