//! `vramlab report`: makes pages from results and recordings; other commands write their pages with it.

use lab::report::{Part, Recording, Source, export, html, read};
use lab::results::{Findings as _, RehearsalResult, merge};
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
    let written = args.output.is_some() || args.json.is_some() || args.exports.any();
    if !written && merged.results.is_empty() {
        return Err(Failure::usage(
            "a recording is drawn, not printed: give -o OUT.html or an --export-…, or open it with `vramlab view`",
        ));
    }
    let recording = match recordings.as_slice() {
        [recording] => Some(recording),
        // Checked before anything is written.
        several if args.exports.any() => {
            let found = several.len();
            return Err(Failure::usage(format!("an export is made of one recording (--events), not of {found}")));
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
    if !written && merged.wholes.is_empty() {
        return report_parts::print(&merged.results, ui);
    }
    report_parts::show(&merged, args.json == Some(Destination::Stdout), ui)
}

/// Pairs the results of runs with their recordings, where it is clear which belongs to which.
fn parts<'a>(results: &'a [Value], recordings: &'a [Recording]) -> Vec<Part<'a>> {
    let paired = pairs(results, recordings);
    let of_result = |(result, recording): (&'a Value, &Option<usize>)| Part::Result {
        result,
        recording: recording.and_then(|index| recordings.get(index)),
    };
    let alone = recordings.iter().enumerate().filter(|(index, _)| !paired.contains(&Some(*index)));
    let alone = alone.map(|(_, recording)| Part::Recording(recording));
    results.iter().zip(&paired).map(of_result).chain(alone).collect()
}

/// The recording of each result, by its index: one of each belong together; of several, those with the same peaks.
fn pairs(results: &[Value], recordings: &[Recording]) -> Vec<Option<usize>> {
    let is_run = |result: &Value| result["schema"] == "vramlab-train-1" || result["schema"] == REHEARSAL;
    let runs: Vec<usize> = (0..results.len()).filter(|index| is_run(&results[*index])).collect();
    let mut paired = vec![None; results.len()];
    if let ([run], [_]) = (runs.as_slice(), recordings) {
        paired[*run] = Some(0);
        return paired;
    }
    let peaks: Vec<Peaks> = recordings.iter().map(Recording::peaks).collect();
    for run in &runs {
        let of_run = |index: &usize| peaks_of(&results[*index]);
        let mine = of_run(run);
        let like: Vec<usize> = runs.iter().copied().filter(|other| of_run(other) == mine).collect();
        let found: Vec<usize> = (0..peaks.len()).filter(|index| mine.contains(&peaks[*index])).collect();
        // Runs with equal peaks have their recordings in the order of the files, if there is one for each.
        if like.len() == found.len() {
            paired[*run] = like.iter().position(|other| other == run).and_then(|at| found.get(at).copied());
        }
    }
    paired
}

/// Schema of a rehearsal.
const REHEARSAL: &str = RehearsalResult::SCHEMA;

/// Most allocated and most reserved bytes.
type Peaks = (u64, u64);

/// The peaks that a recording of the run may have: its own, and with enough memory. Each process of a rehearsal has its own.
fn peaks_of(result: &Value) -> Vec<Peaks> {
    let (peak, needs) = (&result["peak"], &result["needs"]);
    let both = |allocated: &Value, reserved: &Value| Some((allocated.as_u64()?, reserved.as_u64()?));
    if result["schema"] == REHEARSAL {
        let ranks = result["ranks"].as_array().into_iter().flatten();
        return ranks.filter_map(|rank| both(&rank["peak_allocated"], &rank["peak_reserved"])).collect();
    }
    let own = both(&peak["bytes"], &peak["reserved_bytes"]);
    own.into_iter().chain(both(&needs["allocated_bytes"], &needs["reserved_bytes"])).collect()
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
    use lab::report::{CategoryId, Event, NameId};
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

    #[test]
    fn of_several_runs_each_has_the_recording_with_its_peaks() {
        let run =
            |bytes: u64| json!({ "schema": "vramlab-train-1", "peak": { "bytes": bytes, "reserved_bytes": bytes } });
        let recording = |bytes: u64| {
            let mut recording = Recording::new("r");
            recording.push(Event::SegmentAlloc { address: 0, bytes });
            let (category, op, scope) = (CategoryId(0), NameId(0), NameId(0));
            recording.push(Event::Alloc { address: 0, requested_bytes: 1, bytes, category, op, scope });
            recording.push(Event::Free { allocation: 0, op });
            recording.push(Event::SegmentFree { address: 0, bytes });
            recording
        };
        let of = |results: &[Value], bytes: &[u64]| {
            pairs(results, &bytes.iter().map(|bytes| recording(*bytes)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[run(512), run(1024)], &[1024, 512]), [Some(1), Some(0)]);
        assert_eq!(of(&[run(512), run(1024)], &[1024]), [None, Some(0)]);
        assert_eq!(of(&[run(512), run(1024)], &[1024, 2048]), [None, Some(0)]);
        // Equal runs: in order, or not at all.
        assert_eq!(of(&[run(512), run(512)], &[512, 512]), [Some(0), Some(1)]);
        assert_eq!(of(&[run(512), run(512)], &[512, 1024]), [None, None]);
        let mut failed = run(512);
        failed["needs"] = json!({ "allocated_bytes": 4096, "reserved_bytes": 4096 });
        assert_eq!(of(&[failed, run(1024)], &[1024, 4096]), [Some(1), Some(0)]);
    }
}
