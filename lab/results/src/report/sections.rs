//! Sections on a page.

use std::fmt::Write;

use lab_base::figures::short;
use lab_base::section::{self, Bars, Figure, Judged, Section, Table, Tries, Verdict};

use super::chart::Drawn;
use super::table::{Cell, table};
use super::text::{escaped, heading, unbroken};

/// Writes a section of a part whose title has this level.
pub(super) fn one(out: &mut String, level: usize, section: &Section) {
    match section {
        Section::Answer(text) => paragraph(out, "lead", text),
        Section::Heading(text) => heading(out, level + 1, text),
        Section::Note(text) | Section::Warning(text) => paragraph(out, "note", text),
        Section::Failure(text) => {
            let _ = writeln!(out, "<pre class=\"failure\" role=\"alert\">{}</pre>", escaped(text));
        }
        Section::Figures(list) => figures(out, list),
        Section::Verdicts(claims) => verdicts(out, claims),
        Section::Table(shown) | Section::List(shown) => rows(out, shown),
        Section::Chart(chart) | Section::Drawing(chart) => Drawn(chart).draw(out),
        Section::Bars(shown) => bars(out, shown),
        Section::Details { title, sections } => folded(out, level, title, &sections.iter().collect::<Vec<_>>()),
        Section::Rest(sections) => sections.iter().for_each(|section| one(out, level, section)),
        Section::Command(text) => command(out, text),
        Section::Try(shown) => tries(out, shown),
    }
}

/// Writes sections that a click opens.
pub(super) fn folded(out: &mut String, level: usize, title: &str, sections: &[&Section]) {
    let _ = writeln!(out, "<details><summary>{}</summary>", words(title));
    sections.iter().for_each(|section| one(out, level, section));
    out.push_str("</details>\n");
}

/// A text with what stands between backticks as code.
fn words(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return escaped(&unbroken(text));
    }
    let part = |(i, part): (usize, &&str)| match i % 2 {
        0 => escaped(&unbroken(part)),
        _ => format!("<code>{}</code>", escaped(part)),
    };
    parts.iter().enumerate().map(part).collect()
}

fn command(out: &mut String, text: &str) {
    let text = escaped(text);
    let _ = writeln!(out, "<pre class=\"command\" tabindex=\"0\"><code>{text}</code></pre>");
}

/// Writes a list of changes: each with its figures, the script's lines, the command.
fn tries(out: &mut String, tries: &Tries) {
    let _ = writeln!(out, "<p class=\"title\">{}</p>\n<ol class=\"tries\">", escaped(&tries.order));
    for entry in &tries.entries {
        let named = [("peak", entry.peak_bytes), ("reserved", entry.reserved_bytes), ("left", entry.left_bytes)];
        let known: Vec<String> =
            named.iter().filter_map(|(name, bytes)| Some(format!("{name} {}", short((*bytes)?)))).collect();
        let figures = if entry.checked { known.join(", ") } else { "not checked".into() };
        let _ = writeln!(out, "<li><b>{}</b> {}", escaped(&unbroken(&entry.change)), escaped(&unbroken(&figures)));
        if !entry.script.is_empty() {
            let _ = writeln!(out, "<br><code>{}</code>", escaped(&entry.script));
        }
        if let Some(text) = &entry.command {
            out.push_str("<details><summary>the command</summary>");
            command(out, text);
            out.push_str("</details>\n");
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ol>\n");
    for text in [&tries.search, &tries.not_here].into_iter().filter(|text| !text.is_empty()) {
        paragraph(out, "note", text);
    }
}

fn paragraph(out: &mut String, class: &str, text: &str) {
    let _ = writeln!(out, "<p class=\"{class}\">{}</p>", words(text).replace('\n', "<br>"));
}

fn figures(out: &mut String, figures: &[Figure]) {
    out.push_str("<dl class=\"figures\">\n");
    for Figure { name, value, note } in figures {
        let (name, note) = (escaped(name), escaped(note));
        let _ = writeln!(
            out,
            "<div><dt>{name}</dt><dd>{}<small>{note}</small></dd></div>",
            Cell::from_cell(value).markup()
        );
    }
    out.push_str("</dl>\n");
}

/// CSS class that colours a verdict.
pub(super) fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Fails => "fails",
        Verdict::Depends => "depends",
        Verdict::NotTested => "open",
    }
}

/// Sign of a verdict.
pub(super) fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "✓",
        Verdict::Fails => "✗",
        Verdict::Depends => "≈",
        Verdict::NotTested => "–",
    }
}

/// Writes verdicts. The word carries the meaning; colour and sign only repeat it.
fn verdicts(out: &mut String, claims: &[Judged]) {
    if claims.is_empty() {
        return;
    }
    out.push_str("<ul class=\"verdicts\">\n");
    for Judged { text, source, verdict, condition, .. } in claims {
        let (class, sign) = (class(*verdict), sign(*verdict));
        let _ = writeln!(
            out,
            "<li class=\"{class}\"><b><span aria-hidden=\"true\">{sign}</span> {}</b><div><p>{} <cite>{}</cite></p>\
             <p class=\"note\">{}</p></div></li>",
            verdict.name(),
            escaped(text),
            escaped(source),
            escaped(condition)
        );
    }
    out.push_str("</ul>\n");
}

fn rows(out: &mut String, shown: &Table) {
    let rows: Vec<Vec<Cell>> = shown.rows.iter().map(|row| row.iter().map(Cell::from_cell).collect()).collect();
    table(out, &shown.title, &shown.columns, &rows);
}

/// Writes a line for each bar, with the figure at its end.
fn bars(out: &mut String, bars: &Bars) {
    let title = escaped(&bars.title);
    let _ =
        writeln!(out, "<p class=\"title\">{title}</p>\n<div class=\"bridge\" role=\"table\" aria-label=\"{title}\">");
    for ((name, cell), share) in bars.rows.iter().zip(bars.shares()) {
        let _ = writeln!(
            out,
            "<div class=\"ring\" role=\"row\"><span role=\"rowheader\">{}</span><span class=\"track\" aria-hidden=\"true\">\
             <i style=\"left:0;width:{:.3}%\"></i></span><span role=\"cell\">{}</span></div>",
            escaped(name),
            100.0 * share,
            Cell::from_cell(cell).markup()
        );
    }
    out.push_str("</div>\n");
}

impl Cell {
    /// Converts a cell of a result.
    fn from_cell(cell: &section::Cell) -> Self {
        match cell {
            section::Cell::Text(text) if cell.is_figure() => Self::figure(text),
            section::Cell::Text(text) => Self::text(text),
            section::Cell::Bytes(n) => Self::bytes(*n),
            section::Cell::Difference(n) => Self::signed(*n),
            section::Cell::Count(n) => Self::count(*n),
            section::Cell::Number(x) => Self::figure(&lab_base::figures::number(*x)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_section_is_markup() {
        let hostile = "<script>\"'&".to_string();
        let cell = section::Cell::Text(hostile.clone());
        let table = Table { title: hostile.clone(), columns: vec![hostile.clone()], rows: vec![vec![cell.clone()]] };
        let sections = [
            Section::Answer(hostile.clone()),
            Section::Heading(hostile.clone()),
            Section::Note(hostile.clone()),
            Section::Failure(hostile.clone()),
            Section::Command(hostile.clone()),
            Section::Try(Tries {
                order: hostile.clone(),
                entries: vec![section::Try {
                    change: hostile.clone(),
                    script: hostile.clone(),
                    command: Some(hostile.clone()),
                    ..section::Try::default()
                }],
                search: hostile.clone(),
                not_here: hostile.clone(),
            }),
            Section::Figures(vec![Figure { name: hostile.clone(), value: cell.clone(), note: hostile.clone() }]),
            Section::Bars(Bars { title: hostile.clone(), rows: vec![(hostile.clone(), cell)] }),
            Section::Details { title: hostile.clone(), sections: vec![Section::Table(table)] },
        ];
        let mut out = String::new();
        sections.iter().for_each(|section| one(&mut out, 1, section));
        assert!(!out.contains("<script>") && out.matches("&lt;script&gt;").count() >= 18, "{out}");
    }
}
