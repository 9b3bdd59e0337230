//! `vramlab snapshot`: PyTorch's memory snapshots, looked at, compared, converted, replayed.

use std::path::Path;

use lab::results::{SnapshotDiff, SnapshotResult};
use lab::snapshot::{Document, Snapshot, compare, write_json, write_pickle};

use super::recording::chosen_device;
use crate::args::{ConvertArgs, DiffArgs, ShowArgs, SnapshotArgs, SnapshotCommand, SnapshotFormat};
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::output;
use crate::ui::Ui;

/// Does what was asked of a snapshot.
///
/// # Errors
/// Files that are no snapshots, naming the byte; results that cannot be written.
pub(super) fn run(args: &SnapshotArgs, ui: &Ui) -> Result<Code> {
    match &args.command {
        SnapshotCommand::Show(args) => show(args, ui),
        SnapshotCommand::Diff(args) => diff(args, ui),
        SnapshotCommand::Convert(args) => convert(args, ui),
        SnapshotCommand::Replay(args) => super::replay::run(args, ui),
    }
}

fn show(args: &ShowArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    let name = args.file.display().to_string();
    let snapshot = Snapshot::open(&args.file)?;
    let device = chosen_device(&snapshot, &name, args.device)?;
    let found = SnapshotResult::of(name, &snapshot, device, args.top);
    output::deliver_findings(ui, &args.output, None, &found)?;
    Ok(Code::Done)
}

fn diff(args: &DiffArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    let (before, after) = (Snapshot::open(&args.before)?, Snapshot::open(&args.after)?);
    let device = chosen_device(&after, &args.after.display().to_string(), args.device)?;
    let comparison = compare(&before, &after, device);
    let names = [&args.before, &args.after].map(|path| path.display().to_string());
    output::deliver_findings(ui, &args.output, None, &SnapshotDiff::of(names, device, &comparison, args.top))?;
    Ok(Code::Done)
}

fn convert(args: &ConvertArgs, ui: &Ui) -> Result<Code> {
    output::check([&args.out])?;
    let format = format_of(&args.out, args.to)?;
    let (document, _) = Document::open(&args.file)?;
    // What is no snapshot is not passed on as one.
    let bytes = written(&document, format, &args.file)?;
    document.into_snapshot(&args.file.display().to_string())?;
    args.out.write(ui, &bytes)?;
    Ok(Code::Done)
}

/// As asked, or as the name ends.
///
/// # Errors
/// A name that ends otherwise; a pickle for a terminal.
pub(super) fn format_of(out: &Destination, asked: Option<SnapshotFormat>) -> Result<SnapshotFormat> {
    let path = match out {
        Destination::Stdout if asked == Some(SnapshotFormat::Pickle) => {
            return Err(Failure::usage("-: a pickle is no text; name a file"));
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

/// A document in a format.
///
/// # Errors
/// Data that the format does not have.
pub(super) fn written(document: &Document, format: SnapshotFormat, name: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let written = match format {
        SnapshotFormat::Pickle => write_pickle(document, &mut bytes),
        SnapshotFormat::Json => write_json(document, &mut bytes),
    };
    written.map_err(|error| Failure::usage(format!("{}: {error}", name.display())))?;
    Ok(bytes)
}
