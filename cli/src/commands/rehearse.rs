//! `vramlab rehearse`: runs a user's own script under the real PyTorch, on a card that is not there.

use std::path::{Path, PathBuf};

use lab::rehearse::{Rehearsed, Request, RequestedCard, Stop, Use, rehearse, try_changes};
use lab::report::{Part, events};
use lab::results::{Findings, RehearsalResult};
use lab::run::Gpu;
use lab::section::Section;

use super::rehearse_progress::Teller;
use crate::args::{Cudnn, RehearseArgs, UseName};
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::ui::Ui;
use crate::{interrupt, output};

/// Runs the script and writes what it took.
///
/// # Errors
/// A request that cannot be fulfilled; a library that is not found; results that cannot be written; with code 3, a script that fails.
pub(super) fn run(args: &RehearseArgs, ui: &Ui) -> Result<Code> {
    if args.scan.go_on.is_some() {
        return Err(Failure::usage("--continue: only scans of train and predict can be continued"));
    }
    let snapshot = args.snapshot.clone().map(Destination::File);
    output::check(args.output.destinations().chain(&args.page.html).chain(&args.events).chain(&snapshot))?;
    interrupt::answer("stopping the script");
    let request = request(args, ui);
    let mut teller = Teller::new(ui, &request.stop);
    let mut rehearsed = rehearse(&request, &mut |progress| teller.tell(progress))?;
    if let Some(path) = &args.snapshot {
        rehearsed.result.snapshot = keep_snapshots(&rehearsed, path)?;
    }
    try_changes(&request, &mut rehearsed, &mut |progress| teller.tell(progress))?;
    warn(&rehearsed.result, ui);
    if !args.names_card {
        ui.tell_after(format!("note: no --gpu was given, so this is for an {}", rehearsed.result.gpu.name));
    }
    if let Some(page) = &args.page.html {
        draw(&rehearsed, page, ui)?;
    }
    if let (Some(destination), Some(recording)) = (&args.events, rehearsed.recording()?) {
        destination.write(ui, &output::json_line(&events::events(&recording))?)?;
    }
    ui.begin_answer();
    output::deliver_findings(ui, &args.output, None, &rehearsed.result)?;
    code(&rehearsed)
}

/// Makes the request from the arguments.
pub(super) fn request(args: &RehearseArgs, ui: &Ui) -> Request {
    let card = match args.gpu.0 {
        Gpu::Card { card, .. } => RequestedCard::from(card),
        Gpu::Bytes(bytes) => RequestedCard::of_bytes(bytes),
    };
    let seen = |name: &UseName| match name {
        UseName::Eval => Use::Evaluation,
        UseName::Save => Use::Saving,
        UseName::Generate => Use::Generation,
    };
    Request {
        command: args.command.clone(),
        environment: args.environment(),
        card,
        cards: args.gpus(),
        world: args.world(),
        stop: Stop {
            settled: args.until_settled(),
            steps: args.steps,
            time: args.time(),
            until: args.until_seen.iter().map(seen).collect(),
        },
        late_events: args.late_events,
        asks_cudnn: args.cudnn == Cudnn::Ask,
        stacks: !args.no_stacks,
        phases: args.phases,
        values: !args.no_values,
        keep_outputs: args.keep_outputs.clone(),
        needs: !args.no_needs,
        late_again: !args.no_needs,
        enough: None,
        silent: ui.quiet,
        offline: args.offline,
        make_data: args.make_data,
    }
}

/// Prints the result's warnings, after the result.
fn warn(found: &RehearsalResult, ui: &Ui) {
    for section in found.sections() {
        if let Section::Warning(text) = section {
            ui.tell_after(format!("warning: {text}"));
        }
    }
}

/// Writes the snapshots, and returns the name of the first.
fn keep_snapshots(rehearsed: &Rehearsed, path: &Path) -> Result<Option<String>> {
    let several = rehearsed.snapshots().len() > 1;
    let mut first = None;
    for (place, rank) in rehearsed.snapshots().enumerate() {
        let target = if several { with_rank(path, rank) } else { path.to_path_buf() };
        output::fill(&target, &mut |out| rehearsed.write_snapshot(place, out))?;
        first.get_or_insert(target.display().to_string());
    }
    Ok(first)
}

fn with_rank(path: &Path, rank: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{rank}"));
    name.into()
}

/// Draws the page: the findings, and the memory history of the process that reserved most.
fn draw(rehearsed: &Rehearsed, page: &Destination, ui: &Ui) -> Result<()> {
    let (title, sections) = (rehearsed.result.title(), rehearsed.result.sections());
    let recording = rehearsed.recording()?;
    let others = rehearsed.recordings_of_others()?;
    let part = Part::Sections { title: &title, sections: &sections, recording: recording.as_ref() };
    let parts: Vec<Part<'_>> = std::iter::once(part).chain(others.iter().map(Part::Recording)).collect();
    super::report::page(page, &parts, ui)
}

/// Returns the verdict as an exit code.
fn code(rehearsed: &Rehearsed) -> Result<Code> {
    let found = &rehearsed.result;
    match (found.fits, found.script_exit) {
        _ if rehearsed.interrupted => Ok(Code::Interrupted),
        (Some(true), _) => Ok(Code::Done),
        (Some(false), _) => Ok(Code::Check),
        // Memory grows: it did not run out so far.
        (None, _) if found.fits_so_far() == Some(true) => Ok(Code::Check),
        (None, Some(code)) if code != 0 => {
            Err(Failure::new(Code::Device, anyhow::anyhow!("the script failed with exit code {code}")))
        }
        (None, _) if found.ranks.is_empty() => {
            Err(Failure::new(Code::Device, anyhow::anyhow!("the script ended before any figure was known")))
        }
        (None, _) => Err(Failure::new(Code::Device, anyhow::anyhow!("the script did not end by itself and well"))),
    }
}
