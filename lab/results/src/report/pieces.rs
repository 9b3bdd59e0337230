//! Pieces of a page, for a program that makes its own and asks again and again: style, scripts, sections, the data of a drawing.

use lab_base::error::{Error, Result};
use lab_base::section::Section;
use serde_json::Value;

use super::payload::Payload;
use super::recording::Recording;
use super::sections;
use super::timeline::{Detail, Timeline};

/// The style of every page.
pub const STYLE: &str = include_str!("report.css");

/// Scripts that draw a run, in this order. They need an element `tip`, and the words of [`glossary()`] before them.
pub const DRAWING: [&str; 9] = [
    include_str!("figures.js"),
    include_str!("words.js"),
    include_str!("run.js"),
    include_str!("axis.js"),
    include_str!("range.js"),
    include_str!("timeline.js"),
    include_str!("gestures.js"),
    include_str!("moment.js"),
    include_str!("search.js"),
];

/// Sections as markup. Nothing that a file or a name says becomes markup.
pub fn markup(list: &[Section]) -> String {
    let mut out = String::new();
    list.iter().for_each(|section| sections::one(&mut out, 1, section));
    out
}

/// The words that the scripts explain, as markup.
pub fn glossary() -> String {
    let mut out = String::new();
    super::glossary::words(&mut out);
    out
}

/// The data of a drawing in this detail, for `new Run(data)` of the scripts. `limit`: memory that there is, with its name. Bytes.
///
/// # Errors
/// Data that cannot be written in JSON.
pub fn picture(recording: &Recording, limit: Option<&(String, u64)>, detail: Detail) -> Result<Value> {
    let timeline = Timeline::in_detail(recording, detail);
    let payload = Payload::from_timeline(&timeline, limit.or(recording.limit.as_ref()));
    serde_json::to_value(payload).map_err(|error| Error::usage("report", error.to_string()))
}
