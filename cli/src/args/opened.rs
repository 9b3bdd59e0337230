//! `open FILE…`: which command reads a file, by what the file is.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::line::{Entered, Line};
use crate::exit::{Failure, Result};
use crate::file_kind::{self, Kind};

/// Commands that read files; `open` takes the flags of each.
const READERS: [&str; 7] = ["open", "snapshot show", "snapshot diff", "report", "replay", "view", "explain"];

/// A file by who reads it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Snapshot,
    Trace,
    Events,
    Result,
    Text,
}

/// Returns the command that reads the files.
///
/// # Errors
/// Files that are not there, or that no command reads, with what to do with them instead; files that nothing reads together.
pub(super) fn choose(mut line: Line<'_>) -> Result<Entered> {
    let view = line.rest.iter().position(|word| word == "--view").map(|at| line.rest.remove(at)).is_some();
    let places = line.positionals(&READERS);
    let files: Vec<OsString> = places.iter().map(|&at| line.rest[at].clone()).collect();
    let Some(first) = files.first() else { return Ok(line.with_own("open")) };
    if is_message(first) {
        return Ok(line.with_own("explain"));
    }
    let kinds = files.iter().map(|file| kind(Path::new(file))).collect::<Result<Vec<_>>>()?;
    let draws =
        line.rest.iter().any(|word| word.to_str().is_some_and(|word| word.starts_with("--html") || word == "-o"));
    let command = match (kinds.as_slice(), view) {
        (_, true) => "view",
        ([Reader::Snapshot], _) => "snapshot show",
        ([Reader::Snapshot, Reader::Snapshot], _) if !draws => "snapshot diff",
        ([Reader::Events], _) if draws => "report",
        ([Reader::Trace | Reader::Events], _) => "replay",
        ([Reader::Text], _) => "explain",
        (kinds, _) if kinds.iter().all(|kind| *kind != Reader::Text) => "report",
        _ => {
            return Err(Failure::usage("open: these files are not read together; open each by itself"));
        }
    };
    Ok(line.with_own(command))
}

/// True for standard input, and for a message that was pasted.
fn is_message(word: &OsString) -> bool {
    let text = word.to_string_lossy();
    word == "-" || !Path::new(word).exists() && text.contains(char::is_whitespace)
}

fn kind(path: &Path) -> Result<Reader> {
    if !path.exists() {
        return Err(Failure::usage(format!("{}: there is no such file", path.display())));
    }
    match Kind::of(path) {
        Some(Kind::Snapshot) => Ok(Reader::Snapshot),
        Some(Kind::Trace) => Ok(Reader::Trace),
        Some(Kind::Finding) => Ok(Reader::Result),
        Some(_) => {
            file_kind::check(path, &[], "a snapshot, a result, a recording or a log")?;
            Ok(Reader::Text)
        }
        None => Ok(by_head(path)),
    }
}

/// Tells files apart that the kinds of files do not: events of this program, and what is compressed.
///
/// A pipe is read once, so nothing is seen of it beforehand: it is read as standard input is.
fn by_head(path: &Path) -> Reader {
    if !path.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Reader::Text;
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4096).read_to_end(&mut head));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match head.as_slice() {
        _ if read.is_err() => Reader::Text,
        [0x1f, 0x8b, ..] if name.contains(".pickle") || name.contains(".pkl") => Reader::Snapshot,
        [0x1f, 0x8b, ..] => Reader::Trace,
        head if String::from_utf8_lossy(head).contains("vramlab-events") => Reader::Events,
        _ => Reader::Text,
    }
}
