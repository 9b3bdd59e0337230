//! The page: a frame, a part for each result, style and scripts inside.

use std::fmt::Write;

use lab_base::error::{Error, Result};
use lab_base::figures::short;
use lab_base::section::Section;
use serde_json::Value;

use super::payload::Payload;
use super::recording::Recording;
use super::sections;
use super::text::{bytes, counted, element, escaped};
use super::timeline::Timeline;

const STYLE: &str = include_str!("report.css");
/// In this order they are one script.
const SCRIPTS: [&str; 4] =
    [include_str!("figures.js"), include_str!("timeline.js"), include_str!("moment.js"), include_str!("report.js")];

/// What a page shows, in order.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// What happened to memory in a run of which nothing else is known.
    Recording(&'a Recording),
    /// A result as it was written; of a run, with what happened to memory in it.
    Result {
        /// With its schema.
        result: &'a Value,
        /// The history.
        recording: Option<&'a Recording>,
    },
    /// A result as what it consists of.
    Sections {
        /// What it is called.
        title: &'a str,
        /// What it consists of.
        sections: &'a [Section],
    },
}

/// One self-contained HTML file.
///
/// # Errors
/// A result of an unknown kind.
pub fn html(parts: &[Part<'_>]) -> Result<String> {
    let mut body = String::new();
    let mut first = None;
    for (index, part) in parts.iter().enumerate() {
        let _ = writeln!(body, "<article id=\"part-{index}\">");
        let title = shown(&mut body, index, part)?;
        first.get_or_insert(title);
        body.push_str("</article>\n");
    }
    Ok(frame(&first.unwrap_or_default(), &body))
}

/// Writes a part, and says what it is called.
fn shown(out: &mut String, index: usize, part: &Part<'_>) -> Result<String> {
    match *part {
        Part::Recording(recording) => {
            out.push_str("<header>\n");
            element(out, "h1", &recording.name);
            out.push_str("</header>\n");
            timeline(out, index, &Timeline::of(recording), None, true)?;
            Ok(recording.name.clone())
        }
        Part::Sections { title, sections } => {
            sections::show(out, title, sections);
            Ok(title.into())
        }
        Part::Result { result, recording } => {
            let (title, sections) = crate::read(result)?;
            match recording {
                None => sections::show(out, &title, &sections),
                Some(recording) => {
                    let driver = result["rings"]["driver"].as_u64();
                    with_timeline(out, index, (&title, sections), recording, driver)?;
                }
            }
            Ok(title)
        }
    }
}

/// The answer, what happened to memory event by event, then the rest. What the timeline shows is not drawn again.
fn with_timeline(
    out: &mut String,
    index: usize,
    (title, mut sections): (&str, Vec<Section>),
    recording: &Recording,
    driver: Option<u64>,
) -> Result<()> {
    sections.retain(|section| !matches!(section, Section::Drawing(chart) | Section::Chart(chart) if chart.bytes));
    let in_words = |section: &Section| {
        matches!(section, Section::Answer(_) | Section::Note(_) | Section::Warning(_) | Section::Failure(_))
    };
    let head = sections.iter().position(|section| !in_words(section)).unwrap_or(sections.len());
    let rest = sections.split_off(head);
    sections::show(out, title, &sections);
    timeline(out, index, &Timeline::of(recording), driver, false)?;
    rest.iter().for_each(|section| sections::one(out, section));
    Ok(())
}

fn frame(title: &str, body: &str) -> String {
    let title = escaped(title);
    let script = SCRIPTS.concat();
    // The policy lets nothing be loaded, whatever the data say.
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} · vramlab</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <main>\n{body}</main>\n\
         <footer>vramlab {} · this file is complete: it loads nothing</footer>\n\
         <div id=\"tip\" class=\"tip\" hidden></div>\n\
         <script>\n(() => {{\n\"use strict\";\n{script}}})();\n</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// The drawing's place, its data, and what can be said without a script.
fn timeline(out: &mut String, index: usize, timeline: &Timeline<'_>, driver: Option<u64>, alone: bool) -> Result<()> {
    let peak = &timeline.peak;
    if alone {
        let events = counted(timeline.recording.events().len(), "event");
        let _ = writeln!(
            out,
            "<p class=\"lead\">{events}; at most {} were allocated at once.</p>",
            bytes(peak.allocated_bytes)
        );
    }
    let payload = Payload::of(timeline, driver).script();
    let payload = payload.map_err(|error| Error::usage("report", error.to_string()))?;
    let _ = write!(
        out,
        "<section class=\"run\" data-run=\"run-{index}\" aria-label=\"Timeline of memory\">\n\
         <h2>Live memory, event by event</h2>\n\
         <noscript><p class=\"note\">The drawing needs JavaScript. The peaks are in the table below.</p></noscript>\n\
         <div class=\"stage\"></div>\n</section>\n\
         <section>\n<h2>The highest moment of each phase</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"Peaks by phase\"><table>\n<thead><tr><th>phase</th><th class=\"r\">times</th>\
         <th class=\"r\">highest</th><th class=\"r\">share of the peak</th><th>at event</th></tr></thead>\n<tbody>\n"
    );
    for highest in &timeline.phase_peaks {
        let share = 100.0 * highest.bytes as f64 / peak.allocated_bytes.max(1) as f64;
        let name = timeline.recording.text(highest.name);
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"r\">{}</td><td class=\"r\">{}</td><td class=\"r\">{share:.1} %</td>\
             <td>{}</td></tr>",
            escaped(if name.is_empty() { "(none)" } else { name }),
            highest.times,
            bytes(highest.bytes),
            highest.at
        );
    }
    let _ = write!(
        out,
        "</tbody></table></div>\n<p class=\"note\">Highest of all: {} at event {}.</p>\n</section>\n\
         <script type=\"application/json\" id=\"run-{index}\">{payload}</script>\n",
        short(peak.allocated_bytes),
        peak.at
    );
    Ok(())
}
