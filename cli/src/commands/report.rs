//! `vramlab report`: makes pages from results and recordings; other commands write their pages with it.

use lab::report::{Part, Recording, Source, export, html, read};
use lab::results::merge;
use serde_json::Value;

use super::report_parts;
use crate::args::{ExportArgs, ReportArgs};
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::output;
use crate::ui::Ui;
use crate::visible;

/// Reads results and recordings, and shows them.
///
/// # Errors
/// Files that are neither results nor recordings, files that cannot be written.
pub(super) fn run(args: &ReportArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.iter().chain(&args.json).chain(args.exports.destinations()))?;
    let (mut results, mut recordings): (Vec<Value>, Vec<Recording>) = (Vec::new(), Vec::new());
    for path in &args.files {
        match read::open(path)? {
            Source::Results(found) => results.extend(found),
            Source::Recording(recording) => recordings.push(*recording),
        }
    }
    let merged = merge(results)?;
    if args.output.is_none() && args.json.is_none() && !args.exports.any() && merged.wholes.is_empty() {
        return Err(Failure::usage("nothing to write: say -o OUT.html, --json FILE or an --export-…"));
    }
    let recording = match recordings.as_slice() {
        [recording] => Some(recording),
        // Checked before anything is written.
        several if args.exports.any() => {
            let found = several.len();
            return Err(Failure::usage(format!("exports are of one recording (--events), here are {found}")));
        }
        _ => None,
    };
    if let Some(destination) = &args.output {
        page(destination, &parts(&merged.results, &recordings), ui)?;
    }
    if let Some(recording) = recording {
        exports(&args.exports, recording, ui)?;
    }
    if let Some(destination) = &args.json {
        report_parts::json(&merged.results, destination, ui)?;
    }
    report_parts::show(&merged, args.json == Some(Destination::Stdout), ui)
}

/// Pairs the result of a single run with its recording, if there is one of each.
fn parts<'a>(results: &'a [Value], recordings: &'a [Recording]) -> Vec<Part<'a>> {
    let is_run = |result: &&Value| result["schema"] == "vramlab-train-1";
    let together = results.iter().filter(is_run).count() == 1 && recordings.len() == 1;
    let of_result = |result: &'a Value| match is_run(&result) {
        true => Part::Result { result, recording: recordings.first().filter(|_| together) },
        false => Part::Result { result, recording: None },
    };
    let alone = recordings.iter().filter(|_| !together);
    let of_recording = Part::Recording;
    results.iter().map(of_result).chain(alone.map(of_recording)).collect()
}

/// Writes a page.
///
/// # Errors
/// Results that a page cannot show, a file that cannot be written.
pub(super) fn page(destination: &Destination, parts: &[Part<'_>], ui: &Ui) -> Result<()> {
    destination.write(ui, html(parts)?.as_bytes())
}

/// Writes the history of memory for other programs.
pub(super) fn exports(args: &ExportArgs, recording: &Recording, ui: &Ui) -> Result<()> {
    if let Some(destination) = &args.export_trace {
        destination.write(ui, visible::json(&export::chrome_trace(recording)).as_bytes())?;
    }
    if let Some(destination) = &args.export_folded {
        destination.write(ui, visible::visible(&export::folded_stacks(recording)).as_bytes())?;
    }
    if let Some(destination) = &args.export_minimalloc {
        destination.write(ui, export::minimalloc(recording).as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_goes_with_its_recording_only_when_it_is_clear_which() {
        let (run, other) = (json!({ "schema": "vramlab-train-1" }), json!({ "schema": "vramlab-fit-1" }));
        let recording = Recording::new("r");
        let one = [run.clone(), other];
        let shown = parts(&one, std::slice::from_ref(&recording));
        assert!(matches!(shown[..], [Part::Result { recording: Some(_), .. }, Part::Result { recording: None, .. }]));
        let two = [run.clone(), run];
        let shown = parts(&two, std::slice::from_ref(&recording));
        assert!(matches!(
            shown[..],
            [Part::Result { recording: None, .. }, Part::Result { recording: None, .. }, Part::Recording(_)]
        ));
    }
}
