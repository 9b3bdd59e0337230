//! `vramlab view`: looks at a recording on the terminal, event by event.

use std::path::Path;

use lab::report::{Recording, Source, limit_of, read};
use lab::snapshot::Snapshot;
use lab::view::History;
use serde_json::Value;

use super::recording::chosen_device;
use crate::args::ViewArgs;
use crate::exit::{Code, Failure, Result};
use crate::interrupt;
use crate::ui::Ui;
use crate::viewer::{self, Screen, Theme};

/// Reads the files and shows what was recorded, until a key says to quit.
///
/// # Errors
/// Files that are neither recordings nor results, results alone, several recordings, a recording without events, no terminal.
pub(super) fn run(args: &ViewArgs, ui: &Ui) -> Result<Code> {
    let recording = recording(args)?;
    let file = args.files[0].display();
    if recording.events().is_empty() {
        return Err(Failure::usage(format!("{file}: no event was recorded: there is nothing to look at")));
    }
    if !viewer::there_is_one() {
        let instead = match recording.scopes_are_stacks {
            true => format!("`vramlab snapshot show {file}` prints, and with --html makes a page"),
            false => format!("`vramlab report {file} -o page.html` makes a page"),
        };
        return Err(Failure::usage(format!("view needs a terminal for its keys and its screen; {instead}")));
    }
    // A key leaves the program, and a signal needs no message.
    interrupt::silence();
    let mut screen = Screen::new(History::from_recording(recording), Theme::new(ui.view.style.is_on()));
    viewer::run(&mut screen)
        .map_err(|error| Failure::new(Code::Device, anyhow::Error::new(error).context("the terminal")))?;
    Ok(Code::Done)
}

/// Reads the one recording among the files, with the limit that a result tells.
fn recording(args: &ViewArgs) -> Result<Recording> {
    if let Some(device) = args.device {
        let [file] = &args.files[..] else { return Err(Failure::usage("--device: of one snapshot; name it alone")) };
        return of_device(file, device);
    }
    let (mut results, mut recordings): (Vec<Value>, Vec<Recording>) = (Vec::new(), Vec::new());
    for path in &args.files {
        match read::open(path)? {
            Source::Results(found) => results.extend(found),
            Source::Recording(recording) => recordings.push(named(*recording, path)),
        }
    }
    if recordings.len() > 1 {
        return Err(Failure::usage(format!("name one recording, not {}", recordings.len())));
    }
    let Some(mut recording) = recordings.pop() else {
        let file = args.files[0].display();
        let how = "add --events events.json to the command that made it, then: vramlab view events.json";
        return Err(Failure::usage(format!("{file}: a result without the events of its run; {how}")));
    };
    if let [result] = &results[..] {
        recording.limit = limit_of(result).or(recording.limit);
    }
    Ok(recording)
}

fn of_device(file: &Path, device: usize) -> Result<Recording> {
    let name = file.display().to_string();
    let snapshot = Snapshot::open(file)?;
    let device = chosen_device(&snapshot, &name, Some(device))?;
    Ok(named(Recording::of_snapshot(&name, &snapshot, device), file))
}

/// Names a recording by its file alone, without folders: a screen has little room. A name that the file itself gives stays.
fn named(mut recording: Recording, file: &Path) -> Recording {
    if let Some(rest) = recording.name.strip_prefix(&file.display().to_string())
        && let Some(name) = file.file_name()
    {
        // Which device it is stays.
        let device = rest.split(" (categories").next().unwrap_or_default();
        recording.name = format!("{}{device}", name.display());
    }
    recording
}
