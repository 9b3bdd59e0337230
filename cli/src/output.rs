//! Writes results to files that appear whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use lab::report::{Part, html};
use lab::results::Findings;
use lab::section::Section;
use serde_json::Value;

use crate::args::OutputArgs;
use crate::destination::Destination;
use crate::exit::{Code, Failure, Result};
use crate::render::{markdown, sections};
use crate::ui::Ui;
use crate::visible;
use crate::whole_file::WholeFile;

/// Checks, before anything is run, that all destinations can be written.
///
/// # Errors
/// A directory that is absent or not writable, a file that is a directory, two results for one destination.
pub(crate) fn check<'a>(destinations: impl IntoIterator<Item = &'a Destination>) -> Result<()> {
    let mut seen: Vec<&Destination> = Vec::new();
    for destination in destinations {
        if seen.contains(&destination) {
            return Err(Failure::usage(match destination {
                Destination::Stdout => "-: only one result can go to standard output".into(),
                Destination::File(path) => format!("{}: two results cannot go to one file", path.display()),
            }));
        }
        seen.push(destination);
        if let Destination::File(path) = destination {
            writable(path).map_err(|error| Failure::new(Code::Usage, error))?;
        }
    }
    Ok(())
}

fn writable(path: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => anyhow::bail!("cannot write {}: it is a directory", path.display()),
        // Devices and pipes are written directly.
        Ok(metadata) if !metadata.is_file() => return Ok(()),
        // Replacing a read-only file would work, but its owner would not want it.
        Ok(_) => drop(OpenOptions::new().append(true).open(path).with_context(cannot)?),
        Err(_) => {}
    }
    beside(path).map(drop).with_context(cannot)
}

/// Makes an empty file in the same directory; it is removed when dropped.
fn beside(path: &Path) -> io::Result<WholeFile> {
    // The error may name a random temporary name; the directory is what is wrong.
    WholeFile::beside(path).map_err(|error| io::Error::new(error.kind(), io_message(&error)))
}

/// Returns the system's message, without the path that the context names already.
fn io_message(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such directory".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

impl Destination {
    /// Writes the contents: a file appears complete, under its own name, or not at all.
    ///
    /// # Errors
    /// The system's, naming the file.
    pub(crate) fn write(&self, ui: &Ui, contents: &[u8]) -> Result<()> {
        match self {
            Destination::Stdout => ui.document(contents),
            Destination::File(path) => {
                let written = write_file(path, contents).with_context(|| format!("cannot write {}", path.display()));
                written.map_err(Failure::unwritten)
            }
        }
    }
}

impl Destination {
    /// Writes piece by piece: a file appears complete, under its own name, or not at all. Standard output takes JSON only.
    ///
    /// # Errors
    /// The system's, naming the file.
    pub(crate) fn fill(&self, ui: &Ui, filling: Filling<'_>) -> Result<()> {
        let path = match self {
            Destination::File(path) => return fill(path, filling),
            Destination::Stdout => Path::new("-"),
        };
        let shown = |piece: &str| ui.json(piece).map_err(|failure| io::Error::other(failure.error.to_string()));
        let mut out = BufWriter::with_capacity(PIECE, Pieces { shown, rest: Vec::new() });
        let written =
            filling(&mut out).and_then(|()| out.flush()).with_context(|| format!("cannot write {}", path.display()));
        written.map_err(Failure::unwritten)
    }
}

/// Bytes written to standard output at once.
const PIECE: usize = 1 << 16;

/// Passes text on in whole characters.
struct Pieces<F> {
    shown: F,
    /// Beginning of an incomplete character.
    rest: Vec<u8>,
}

impl<F: FnMut(&str) -> io::Result<()>> Write for Pieces<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = self.rest.split_off(whole);
        let piece = String::from_utf8(std::mem::replace(&mut self.rest, rest)).map_err(io::Error::other)?;
        (self.shown)(&piece)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_file(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    fill_file(path, &mut |out| out.write_all(contents))
}

/// Function that writes a file's contents.
type Filling<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// Writes a file piece by piece: it appears complete, under its own name, or not at all.
///
/// # Errors
/// The system's, naming the file.
pub(crate) fn fill(path: &Path, filling: Filling<'_>) -> Result<()> {
    let written = fill_file(path, filling).with_context(|| format!("cannot write {}", path.display()));
    written.map_err(Failure::unwritten)
}

fn fill_file(path: &Path, filling: Filling<'_>) -> anyhow::Result<()> {
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Ok(filling(&mut OpenOptions::new().write(true).open(path)?)?);
    }
    // A link stays a link: its target is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let mut file = beside(&target)?;
    let mut out = BufWriter::new(file.file());
    filling(&mut out)?;
    out.flush()?;
    drop(out);
    file.file().sync_all()?;
    Ok(file.appear(&target)?)
}

/// Title and sections of results, made once for all outputs.
pub(crate) struct Shown {
    each: Vec<(String, Vec<Section>)>,
    /// Several results combined as one answer.
    together: Option<(String, Vec<Section>)>,
}

impl Shown {
    pub(crate) fn from_findings<F: Findings>(found: &[F]) -> Self {
        let together = if found.len() > 1 { F::together(found) } else { None };
        Self { each: found.iter().map(|one| (one.title(), one.sections())).collect(), together }
    }

    /// Writes a page, with a part for each result.
    pub(crate) fn page(&self, ui: &Ui, destination: &Destination) -> Result<()> {
        let parts: Vec<Part<'_>> =
            self.each.iter().map(|(title, sections)| Part::Sections { title, sections, recording: None }).collect();
        destination.write(ui, html(&parts)?.as_bytes())
    }

    pub(crate) fn print(&self, ui: &Ui) -> Result<()> {
        let shown = match &self.together {
            Some(together) if !ui.view.full => std::slice::from_ref(together),
            _ => &self.each,
        };
        shown.iter().try_for_each(|(title, parts)| ui.print(&sections::text(title, parts, ui.view)))
    }
}

/// Writes a command's findings to every requested destination, in every format.
pub(crate) fn deliver_findings<F: Findings>(
    ui: &Ui,
    args: &OutputArgs,
    page: Option<&Destination>,
    found: &F,
) -> Result<()> {
    deliver_all(ui, args, page, std::slice::from_ref(found), true)
}

/// Writes several findings of a kind: as a list in JSON, unless a `single` one was requested.
pub(crate) fn deliver_all<F: Findings>(
    ui: &Ui,
    args: &OutputArgs,
    page: Option<&Destination>,
    found: &[F],
    single: bool,
) -> Result<()> {
    let shown = write_all(ui, args, page, found, single)?;
    if args.takes_stdout() { Ok(()) } else { shown.print(ui) }
}

/// Writes findings to the requested files, and returns them in the form for people.
pub(crate) fn write_all<F: Findings>(
    ui: &Ui,
    args: &OutputArgs,
    page: Option<&Destination>,
    found: &[F],
    single: bool,
) -> Result<Shown> {
    let unwritable = |error| Failure::new(Code::Usage, error);
    let shown = Shown::from_findings(found);
    if let Some(destination) = page {
        shown.page(ui, destination)?;
    }
    if let Some(destination) = &args.json {
        let json = match (found, single) {
            ([one], true) => one.to_json(),
            _ => found.iter().map(Findings::to_json).collect(),
        };
        destination.write(ui, &json_line(&json.map_err(unwritable)?)?)?;
    }
    if let Some(destination) = &args.export_csv {
        let table = F::table_of_all(found).unwrap_or_default();
        let text = markdown::csv(&table).map_err(|error| Failure::new(Code::Usage, error))?;
        destination.write(ui, &text)?;
    }
    if let Some(destination) = &args.export_markdown {
        let text: String = shown.each.iter().map(|(title, parts)| sections::as_markdown(title, parts)).collect();
        destination.write(ui, text.as_bytes())?;
    }
    Ok(shown)
}

/// Returns JSON in one line.
pub(crate) fn json_line(value: &Value) -> Result<Vec<u8>> {
    let text = serde_json::to_string(value).map_err(|error| Failure::new(Code::Usage, error))?;
    Ok((visible::json(&text) + "\n").into_owned().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path) -> Destination {
        Destination::File(path.to_path_buf())
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let directory = tempfile::tempdir().unwrap();
        let message = |destination: &Destination| format!("{:#}", check([destination]).unwrap_err().error);
        assert!(message(&file(directory.path())).contains("it is a directory"));
        assert!(message(&file(&directory.path().join("no/such.json"))).contains("no such directory"));
        let one = file(&directory.path().join("one"));
        assert!(check([&one, &one]).is_err());
        assert!(check([&Destination::Stdout, &Destination::Stdout]).is_err());
        check([&one, &Destination::Stdout]).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "checking leaves nothing behind");
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        for contents in ["first", "second"] {
            file(&path).write(&Ui::plain(), contents.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        use std::os::unix::fs::FileTypeExt;
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        file(&link).write(&Ui::plain(), b"new").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        file(Path::new("/dev/null")).write(&Ui::plain(), b"gone").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }

    #[test]
    fn a_character_that_is_cut_arrives_whole() {
        let text = "a é ☃ 𝄞 z".repeat(9);
        for size in 1..7 {
            let mut shown = Vec::new();
            let keep = |piece: &str| {
                shown.push(piece.to_string());
                Ok(())
            };
            let mut pieces = Pieces { shown: keep, rest: Vec::new() };
            text.as_bytes().chunks(size).for_each(|chunk| pieces.write_all(chunk).unwrap());
            assert!(shown.len() > 1 && shown.concat() == text, "{size}");
        }
    }
}
