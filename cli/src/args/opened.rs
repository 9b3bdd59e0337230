//! `open FILE…`: which command reads a file, by what the file is.

use std::ffi::OsString;
use std::path::Path;

use lab::input;

use super::line::{Entered, Line};
use crate::exit::{Failure, Result};
use crate::file_kind::{self, Kind};

/// Commands that read files; `open` takes the flags of each.
const READERS: [&str; 7] = ["open", "snapshot show", "snapshot diff", "report", "replay", "view", "explain"];

/// What the files should be.
const READ: &str = "a snapshot, a result, a recording or a log";

/// How files begin that are packed, but not with gzip, and with what.
const PACKED: [(&[u8], &str); 4] =
    [(b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"7z\xbc\xaf\x27\x1c", "7z")];

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

/// True for a message that was pasted.
fn is_message(word: &OsString) -> bool {
    let text = word.to_string_lossy();
    word != input::STDIN && !Path::new(word).exists() && text.contains(char::is_whitespace)
}

/// A pipe is told apart by its beginning as a file is; who reads it gets this beginning, too.
fn kind(path: &Path) -> Result<Reader> {
    let is_pipe = input::is_pipe(path);
    if !is_pipe && !path.exists() {
        return Err(Failure::usage(crate::absent::absent(path)));
    }
    if path.is_dir() {
        return Err(Kind::Directory.refused(path, READ));
    }
    let head = file_kind::head(path).map_err(|error| Failure::usage(format!("{}: {error}", input::name(path))))?;
    match Kind::of_head(&head, path) {
        Some(Kind::Snapshot) => Ok(Reader::Snapshot),
        Some(Kind::Trace) => Ok(Reader::Trace),
        Some(Kind::Finding) => Ok(Reader::Result),
        Some(kind) => Err(kind.refused(path, READ)),
        None => match PACKED.iter().find(|(begin, _)| head.starts_with(begin)) {
            Some((_, packer)) => {
                Err(Failure::usage(format!("{}: packed with {packer}; unpack it first", input::name(path))))
            }
            None if !is_text(&head) => Err(Failure::usage(format!(
                "{}: no text, and no snapshot, result or recording; a download may be broken",
                input::name(path)
            ))),
            None if is_pipe => Ok(by_text(&head)),
            None => by_name(path).unwrap_or_else(|| Ok(by_text(&head))),
        },
    }
}

/// The error of text that another command reads, by the file's name; `None` for what may be a log or a recording.
fn by_name(path: &Path) -> Option<Result<Reader>> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    let what = match ending.as_str() {
        "yaml" | "yml" | "toml" => "a recipe, a network or flags",
        "py" | "ipynb" => "a script",
        _ => return None,
    };
    let path = path.display();
    Some(Err(Failure::usage(format!(
        "{path}: {what}, not {READ}; what it needs: vramlab predict {path} --gpu rtx4090"
    ))))
}

/// True for what may be a log: few control characters, but for those of terminals, or text of two bytes a character.
fn is_text(head: &[u8]) -> bool {
    let is_control =
        |byte: &&u8| **byte < b' ' && !matches!(**byte, b'\t' | b'\n' | b'\r' | b'\x08' | b'\x0c' | b'\x1b');
    let is_wide = head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]);
    is_wide || head.iter().filter(is_control).count() * 20 <= head.len()
}

/// Tells files apart that the kinds of files do not: recordings of scripts, of this program's and of PyTorch's, and logs.
fn by_text(head: &[u8]) -> Reader {
    let text = String::from_utf8_lossy(head);
    match text.trim_start().starts_with('{') {
        true if text.contains("vramlab-events") || text.contains("oracle-script-1") => Reader::Events,
        _ => Reader::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::is_text;

    #[test]
    fn a_log_is_text_and_a_broken_file_is_not() {
        for log in ["", "CUDA out of memory.\r\n", "\x1b[31mError\x1b[0m\x08 at 3 %\r 4 %"] {
            assert!(is_text(log.as_bytes()), "{log:?}");
        }
        assert!(is_text(b"\xff\xfeC\0U\0D\0A\0"), "as PowerShell writes it");
        assert!(!is_text(&(0..=255).collect::<Vec<u8>>()));
    }
}
