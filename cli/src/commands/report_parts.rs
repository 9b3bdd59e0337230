//! `vramlab report` of parts: merges them, and says what is missing.

use lab::report::side_by_side;
use lab::results::{Merged, Whole, read};
use serde_json::Value;

use crate::destination::Destination;
use crate::exit::{Code, Result};
use crate::render::sections;
use crate::ui::Ui;
use crate::visible;

/// Largest number of missing runs that are named, unless all are requested.
const NAMED: usize = 12;

/// Shows the merged result, unless standard output is taken. An incomplete one is a failed check.
///
/// # Errors
/// Results that lack a figure.
pub(super) fn show(merged: &Merged, stdout_taken: bool, ui: &Ui) -> Result<Code> {
    for whole in &merged.wholes {
        if stdout_taken {
            ui.tell(in_words(whole, ui.view.full));
            continue;
        }
        ui.print(&ui.view.heading(&in_words(whole, ui.view.full), 2))?;
        for result in &whole.results {
            let (title, parts) = read(result)?;
            ui.print(&sections::text(&title, &parts, ui.view))?;
        }
    }
    let whole = merged.wholes.iter().all(|whole| whole.missing.is_empty());
    Ok(if whole { Code::Done } else { Code::Check })
}

/// Prints results: two runs side by side, others one after the other.
///
/// # Errors
/// Results that lack a figure.
pub(super) fn print(results: &[Value], ui: &Ui) -> Result<Code> {
    if let [a, b] = results
        && let Some((title, parts)) = side_by_side(a, b)?
    {
        ui.print(&sections::text(&title, &parts, ui.view))?;
        return Ok(Code::Done);
    }
    for result in results {
        let (title, parts) = read(result)?;
        ui.print(&sections::text(&title, &parts, ui.view))?;
    }
    Ok(Code::Done)
}

fn in_words(whole: &Whole, all: bool) -> String {
    let (parts, of) = whole.parts;
    if whole.missing.is_empty() {
        return format!("Complete: all {} runs, from {parts} of {of} parts", whole.runs);
    }
    let named = if all { whole.missing.len() } else { NAMED.min(whole.missing.len()) };
    let more = match whole.missing.len() - named {
        0 => String::new(),
        more => format!("; and {more} more (--full)"),
    };
    let (missing, named) = (whole.missing.len(), whole.missing[..named].join("; "));
    format!("Missing: {missing} of {} runs; {parts} of {of} parts are here: {named}{more}", whole.runs)
}

/// Writes all results as JSON: one as an object, several as a list.
///
/// # Errors
/// A file that cannot be written.
pub(super) fn json(results: &[Value], destination: &Destination, ui: &Ui) -> Result<()> {
    let text = match results {
        [one] => one.to_string(),
        several => Value::from(several.to_vec()).to_string(),
    };
    destination.write(ui, (visible::json(&text) + "\n").as_bytes())
}
