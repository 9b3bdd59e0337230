//! `vramlab snapshot`: shows, compares, converts and replays PyTorch's memory snapshots.

use std::io::ErrorKind;

use lab::input;
use lab::report::{Part, Recording};
use lab::results::{Findings, Looked, OtherDevice, SnapshotResult};
use lab::snapshot::{Document, Snapshot, StackId, write_json, write_pickle};
use lab::stacks::matches;

use super::recording::chosen_device;
use crate::args::{ConvertArgs, ShowArgs, SnapshotArgs, SnapshotCommand, SnapshotFormat, TraceRange};
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::output;
use crate::ui::Ui;

/// Runs a subcommand.
///
/// # Errors
/// Files that are not snapshots, naming the byte; results that cannot be written.
pub(super) fn run(args: &SnapshotArgs, ui: &Ui) -> Result<Code> {
    match &args.command {
        SnapshotCommand::Show(args) => show(args, ui),
        SnapshotCommand::Diff(args) => super::diff::snapshots(args, ui),
        SnapshotCommand::Convert(args) => convert(args, ui),
        SnapshotCommand::Replay(args) => super::replay::run(args, ui),
    }
}

fn show(args: &ShowArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations().chain(&args.page.html))?;
    let name = input::name(&args.file);
    let snapshot = Snapshot::open(&args.file)?;
    let device = chosen_device(&snapshot, &name, args.device)?;
    let range = args.range.map(|range| entries(&snapshot, device, range)).transpose()?;
    if let Some(wanted) = &args.matching
        && !(0..snapshot.stack_count()).any(|stack| matches(&snapshot, StackId(stack as u32), wanted))
    {
        return Err(Failure::usage(format!("--match {wanted}: no stack of {name} has it")));
    }
    let looked = Looked { top: args.top, range, matching: args.matching.clone() };
    let found = SnapshotResult::new(name.clone(), &snapshot, device, &looked);
    if let Some(page) = &args.page.html {
        draw(page, (&snapshot, &name), &found, args.device.is_none(), ui)?;
    }
    output::deliver_findings(ui, &args.output, None, &found)?;
    Ok(Code::Done)
}

/// Draws a device; unless it was asked for by its number, the others beneath it.
fn draw(
    page: &Destination,
    (snapshot, name): (&Snapshot, &str),
    found: &SnapshotResult,
    all: bool,
    ui: &Ui,
) -> Result<()> {
    let others = if all { OtherDevice::all_but(snapshot, found.device) } else { Vec::new() };
    let others = others
        .iter()
        .map(|other| SnapshotResult::new(name.into(), snapshot, other.device, &Looked::default()))
        .collect::<Vec<_>>();
    let of = |found: &SnapshotResult| {
        let device = if others.is_empty() { String::new() } else { format!("Device {}: ", found.device) };
        let recording = Recording::of_snapshot(name, snapshot, found.device);
        (format!("{device}{}", found.title()), found.sections(), recording)
    };
    let shown: Vec<_> = std::iter::once(found).chain(&others).map(of).collect();
    let part = |(title, sections, recording)| Part::Sections { title, sections, recording: Some(recording) };
    let parts: Vec<Part<'_>> = shown
        .iter()
        .map(|(title, sections, recording)| part((title.as_str(), sections.as_slice(), recording)))
        .collect();
    super::report::page(page, &parts, ui)
}

/// Returns the first and the last entry of a range.
///
/// # Errors
/// A range without entries; a range in time if the recording has no times.
fn entries(snapshot: &Snapshot, device: usize, range: TraceRange) -> Result<(usize, usize)> {
    let trace = snapshot.trace(device);
    let (from, end) = match range {
        TraceRange::Entries(from, to) => (from, to.saturating_add(1).min(trace.len())),
        TraceRange::Micros(..) if trace.iter().all(|event| event.time_us == 0) => {
            let there = format!("give entries, of which there are {}", trace.len());
            return Err(Failure::usage(format!(
                "--range: this recording has no times (PyTorch 2.1 writes none); {there}"
            )));
        }
        TraceRange::Micros(from, to) => {
            let start = trace.first().map_or(0, |event| event.time_us);
            let before = |time: i64, too: bool| {
                trace.partition_point(|event| {
                    let since = event.time_us.saturating_sub(start);
                    since < time || too && since == time
                })
            };
            (before(from, false), before(to, true))
        }
    };
    if from >= end {
        let time =
            trace.first().zip(trace.last()).map_or(0, |(first, last)| last.time_us.saturating_sub(first.time_us));
        let there = format!("the trace has {} entries over {} ms", trace.len(), time / 1000);
        return Err(Failure::usage(format!("--range: no entry is in it; {there}")));
    }
    Ok((from, end - 1))
}

fn convert(args: &ConvertArgs, ui: &Ui) -> Result<Code> {
    output::check([&args.out])?;
    let format = format_of(&args.out, args.to)?;
    let (document, _) = Document::open(&args.file)?;
    let name = input::name(&args.file);
    // A file that is not a snapshot is not converted.
    document.check(&name)?;
    write(&args.out, &document, format, &name, ui)?;
    Ok(Code::Done)
}

/// Returns the requested format, else the format of the name's ending.
///
/// # Errors
/// A name with another ending; a pickle for a terminal.
pub(super) fn format_of(out: &Destination, asked: Option<SnapshotFormat>) -> Result<SnapshotFormat> {
    let path = match out {
        Destination::Stdout if asked == Some(SnapshotFormat::Pickle) => {
            return Err(Failure::usage("-: a pickle is not text; name a file"));
        }
        Destination::Stdout => return Ok(SnapshotFormat::Json),
        Destination::File(path) => path,
    };
    let extension = path.extension().and_then(|extension| extension.to_str());
    match (asked, extension) {
        (Some(asked), _) => Ok(asked),
        (None, Some("json")) => Ok(SnapshotFormat::Json),
        (None, Some("pickle" | "pkl")) => Ok(SnapshotFormat::Pickle),
        _ => Err(Failure::usage(format!("{}: must end in .pickle or .json", path.display()))),
    }
}

/// Writes a document in a format, piece by piece. Errors of the data call it `name`.
///
/// # Errors
/// Data that the format cannot express; a file that cannot be written.
pub(super) fn write(out: &Destination, document: &Document, format: SnapshotFormat, name: &str, ui: &Ui) -> Result<()> {
    let mut refused = None;
    let filled = out.fill(ui, &mut |out| {
        let written = match format {
            SnapshotFormat::Pickle => write_pickle(document, out),
            SnapshotFormat::Json => write_json(document, out),
        };
        written.inspect_err(|error| {
            refused = (error.kind() == ErrorKind::InvalidData).then(|| error.to_string());
        })
    });
    match refused {
        Some(problem) => Err(Failure::usage(format!("{name}: {problem}"))),
        None => filled,
    }
}
