//! `vramlab explain`: explains PyTorch's message when memory ran out.

use std::io::{self, ErrorKind, Read};
use std::path::Path;

use lab::Error;
use lab::explain::explain;
use lab::input;
use lab::results::ExplainResult;
use lab::unpacked::{GZIP, Unpacked};

use crate::args::ExplainArgs;
use crate::exit::{Code, Failure, Result};
use crate::output;
use crate::ui::Ui;

/// Bytes read: the end of a log, where its last message is. A third of the longest text that is read, as a byte that is not text becomes three.
const MAX_READ: usize = (1 << 20) / 3;

/// Largest stream that is read, so that an endless one ends. Bytes.
const MAX_STREAM: u64 = 1 << 30;

/// Explains a message.
///
/// # Errors
/// A text without a message; a file that cannot be read; results that cannot be written.
pub(super) fn run(args: &ExplainArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    let (name, text) = match args.text.as_slice() {
        [] => (None, file(input::STDIN)?.unwrap_or_default()),
        [one] => match file(one)? {
            Some(text) => (Some(one.as_str()), text),
            None => (None, one.clone()),
        },
        words => (None, words.join(" ")),
    };
    let found = explain(&text).map_err(|error| without_message(error, name, &text))?;
    let found = ExplainResult::from(&found);
    output::deliver_findings(ui, &args.output, None, &found)?;
    Ok(Code::Done)
}

/// The error of a text without a message, with the file's name if it has one, and with what else `open` reads.
fn without_message(error: Error, name: Option<&str>, text: &str) -> Error {
    match (error, name) {
        (Error::Usage { .. }, Some(name)) if text.trim().is_empty() => Error::usage(name, "the file is empty"),
        (Error::Usage { problem, .. }, Some(name)) => {
            let others = "vramlab open also reads snapshots (.pickle), recordings and results of --json";
            Error::usage(name, format!("{problem}. {others}"))
        }
        (error, _) => error,
    }
}

/// Returns the end of the file or pipe of that name, packed with gzip or not; `None` if there is no such file, and the argument is the message itself.
///
/// # Errors
/// A file that cannot be read; a missing file whose name cannot be a message.
fn file(name: &str) -> Result<Option<String>> {
    let path = Path::new(name);
    let unreadable = |error: io::Error| Failure::usage(format!("{}: {error}", input::name(path)));
    if name != input::STDIN {
        match path.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                return Err(Failure::usage(format!("{name}: a directory; name a log")));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound && is_file_name(name) => {
                return Err(Failure::usage(crate::absent::absent(path)));
            }
            Err(_) => return Ok(None),
        }
    }
    let is_packed = input::head(path, GZIP.len()).map_err(unreadable)? == GZIP;
    let mut file = input::open(path).map_err(unreadable)?;
    let read = if is_packed {
        last(Unpacked::new(file).take(MAX_STREAM))
    } else {
        file.to_last(MAX_READ as u64).map_err(unreadable)?;
        last(file.take(MAX_STREAM))
    };
    Ok(Some(decoded(&read.map_err(unreadable)?)))
}

/// True for one word with a directory or an ending: a message does not look like that.
fn is_file_name(text: &str) -> bool {
    let ending = text.rsplit_once('.').map_or("", |(_, ending)| ending);
    let has_ending = (1..=5).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    !text.contains(char::is_whitespace) && (text.contains(['/', '\\']) || has_ending)
}

/// Returns the last bytes of a stream.
fn last(mut reader: impl Read) -> io::Result<Vec<u8>> {
    let (mut kept, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => kept.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if kept.len() > 2 * MAX_READ {
            kept.drain(..kept.len() - MAX_READ);
        }
    }
    Ok(kept.split_off(kept.len().saturating_sub(MAX_READ)))
}

/// Decodes UTF-8, or UTF-16 as PowerShell redirects it.
fn decoded(bytes: &[u8]) -> String {
    match bytes {
        [0xff, 0xfe, text @ ..] => {
            let units: Vec<u16> = text.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
            String::from_utf16_lossy(&units)
        }
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}
