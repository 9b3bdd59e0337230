//! The page: a frame, a part for each result, style and scripts inside.

use std::fmt::Write;

use serde_json::Value;

use super::payload::Payload;
use super::recording::Recording;
use super::text::{bytes, counted, element, escaped};
use super::timeline::Timeline;
use super::{run, scan, sections};
use crate::error::{Error, Result};
use crate::figures::short;
use crate::results;
use crate::section::Section;

const STYLE: &str = include_str!("report.css");
/// In this order they are one script.
const SCRIPTS: [&str; 4] =
    [include_str!("figures.js"), include_str!("timeline.js"), include_str!("moment.js"), include_str!("report.js")];

/// What a page shows, in order.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// A run: its result (`vramlab-train-1`), what happened to memory in it, or both.
    Run {
        /// Figures, settings.
        result: Option<&'a Value>,
        /// The history.
        recording: Option<&'a Recording>,
    },
    /// Any other result, as it was written.
    Result(&'a Value),
    /// Any other result, as what it consists of.
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
    let result = match *part {
        Part::Run { result, recording } => {
            run_part(out, index, result, recording)?;
            let named = recording.map_or_else(String::new, |recording| recording.name.clone());
            return Ok(result.map_or(named, run::name));
        }
        Part::Sections { title, sections } => {
            sections::show(out, title, sections);
            return Ok(title.into());
        }
        Part::Result(result) => result,
    };
    match result["schema"].as_str() {
        Some("vramlab-scan-1") => scan::show(out, result),
        Some("vramlab-train-1") => run_part(out, index, Some(result), None)?,
        Some(schema) if results::schemas().any(|known| known == schema) => {
            let (title, sections) = results::read(result)?;
            sections::show(out, &title, &sections);
            return Ok(title);
        }
        other => return Err(Error::usage("report", format!("a result of kind {other:?} is not shown"))),
    }
    Ok(run::name(result))
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

fn run_part(out: &mut String, index: usize, result: Option<&Value>, recording: Option<&Recording>) -> Result<()> {
    match (result, recording) {
        (Some(result), _) => run::header(out, result),
        (None, Some(recording)) => {
            out.push_str("<header>\n");
            element(out, "h1", &recording.name);
            out.push_str("</header>\n");
        }
        (None, None) => {}
    }
    if let Some(recording) = recording {
        let driver = result.and_then(|result| result["rings"]["driver"].as_u64());
        timeline(out, index, &Timeline::of(recording), driver, result.is_none())?;
    }
    if let Some(result) = result {
        run::details(out, result, recording.is_none());
    }
    Ok(())
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
