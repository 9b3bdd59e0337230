//! `vramlab snapshot`: PyTorch's memory snapshots, looked at, compared, converted, replayed.

use std::path::Path;

use lab::snapshot::{Change, Comparison, Document, Growth, Held, Snapshot, Totals, compare, write_json, write_pickle};
use serde_json::{Value, json};

use super::recording::chosen_device;
use crate::args::{ConvertArgs, DiffArgs, ShowArgs, SnapshotArgs, SnapshotCommand, SnapshotFormat};
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::output::{self, Results};
use crate::render::snapshot as render;
use crate::render::snapshot::Shown;
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
    let shown = Shown {
        totals: snapshot.totals(device),
        held: snapshot.held(device),
        peak: (!snapshot.trace(device).is_empty()).then(|| snapshot.peak(device)),
        leftovers: snapshot.leftovers(device),
        top: args.top,
        name,
        device,
        snapshot,
    };
    let tables = render::tables(&shown);
    let text = render::text(&shown, &tables, ui.style);
    output::deliver(ui, &args.output, &Results { json: &show_json(&shown), tables: &tables, text: &text })?;
    Ok(Code::Done)
}

fn show_json(shown: &Shown) -> Value {
    let Shown { snapshot, device, leftovers, top, .. } = shown;
    let held = |held: &[Held]| held.iter().take(*top).map(|held| held_json(snapshot, held)).collect::<Vec<_>>();
    let growth = |growth: &Growth| {
        json!({
            "bytes": growth.bytes,
            "more": growth.more,
            "steps": growth.steps,
            "stack": snapshot.stack_lines(growth.stack),
        })
    };
    let segments: Vec<Value> = snapshot
        .segments_of(*device)
        .map(|segment| {
            json!({
                "address": segment.address,
                "bytes": segment.bytes,
                "allocated": segment.allocated_bytes(),
                "active": segment.active_bytes(),
                "requested": segment.requested_bytes(),
                "largest_free": segment.largest_free_bytes(),
                "blocks": segment.blocks.len(),
                "stream": snapshot.stream(segment.stream),
                "pool": snapshot.pool(segment.pool),
                "small": segment.small,
                "expandable": segment.expandable,
            })
        })
        .collect();
    json!({
        "schema": "vramlab-snapshot-1",
        "file": shown.name,
        "device": device,
        "devices": snapshot.devices(),
        "events": snapshot.trace(*device).len(),
        "totals": totals_json(&shown.totals),
        "held": held(&shown.held),
        "segments": segments,
        "peak": shown.peak.as_ref().map(|peak| json!({
            "event": peak.event,
            "requested_bytes": peak.bytes,
            "by_stack": held(&peak.by_stack),
        })),
        "left_over": held(&leftovers.live),
        "live_at_step_ends": leftovers.steps,
        "growing": leftovers.growing.iter().take(*top).map(growth).collect::<Vec<_>>(),
    })
}

fn held_json(snapshot: &Snapshot, held: &Held) -> Value {
    json!({ "bytes": held.bytes, "allocations": held.allocations, "stack": snapshot.stack_lines(held.stack) })
}

fn totals_json(totals: &Totals) -> Value {
    json!({
        "segments": totals.segments,
        "reserved": totals.reserved,
        "allocated": totals.allocated,
        "active": totals.active,
        "requested": totals.requested,
        "free": totals.free,
        "free_in_split_segments": totals.free_split,
        "largest_free": totals.largest_free,
        "fragmentation": totals.fragmentation(),
    })
}

fn diff(args: &DiffArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    let (before, after) = (Snapshot::open(&args.before)?, Snapshot::open(&args.after)?);
    let device = chosen_device(&after, &args.after.display().to_string(), args.device)?;
    let comparison = compare(&before, &after, device);
    let names = [&args.before, &args.after].map(|path| path.display().to_string());
    let tables = render::comparison_tables(&comparison, args.top);
    let text = render::comparison(&comparison, &names, device, &tables, ui.style);
    let json = diff_json(&comparison, &names, device);
    output::deliver(ui, &args.output, &Results { json: &json, tables: &tables, text: &text })?;
    Ok(Code::Done)
}

fn diff_json(comparison: &Comparison, names: &[String; 2], device: usize) -> Value {
    let change = |change: &Change| {
        json!({
            "stack": change.stack,
            "bytes": [change.bytes.0, change.bytes.1],
            "allocations": [change.allocations.0, change.allocations.1],
        })
    };
    json!({
        "schema": "vramlab-snapshot-diff-1",
        "files": names,
        "device": device,
        "totals": [totals_json(&comparison.totals.0), totals_json(&comparison.totals.1)],
        "changes": comparison.changes.iter().map(change).collect::<Vec<_>>(),
        "segments_only_in": [comparison.segments.0, comparison.segments.1],
        "segment_bytes_only_in": [comparison.segment_bytes.0, comparison.segment_bytes.1],
    })
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
