//! `vramlab explain`: what PyTorch said when memory ran out.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use lab::explain::{Explanation, explain};
use lab::section::{Cell, Table};
use serde_json::{Value, json};

use crate::args::ExplainArgs;
use crate::exit::{Code, Failure, Result};
use crate::output::{self, Results};
use crate::render::{WIDTH, bytes, table, wrapped};
use crate::ui::Ui;

/// How much is read: the end of a log, where its last message is. A third of what is looked at, as a byte that is not
/// text becomes three. Bytes.
const MAX_READ: usize = (1 << 20) / 3;

/// Where reading ends that would go on for ever. Bytes.
const MAX_STREAM: u64 = 1 << 30;

/// Explains a message.
///
/// # Errors
/// A text without one; a file that cannot be read; results that cannot be written.
pub(super) fn run(args: &ExplainArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    let text = match args.text.as_slice() {
        [] => stdin()?,
        [dash] if dash == "-" => stdin()?,
        [one] => file(one)?.unwrap_or_else(|| one.clone()),
        words => words.join(" "),
    };
    let explanation = explain(&text)?;
    let tables = vec![figures(&explanation)];
    let text = for_people(&explanation, &tables, ui);
    output::deliver(ui, &args.output, &Results { json: &as_json(&explanation), tables: &tables, text: &text })?;
    Ok(Code::Done)
}

fn stdin() -> Result<String> {
    let text = last(io::stdin().lock().take(MAX_STREAM));
    Ok(decoded(&text.map_err(|error| Failure::usage(format!("standard input: {error}")))?))
}

/// The end of the file of that name; `None`: there is none, and it is the message itself.
///
/// # Errors
/// A file that cannot be read; no file, of a name that a message cannot be.
fn file(name: &str) -> Result<Option<String>> {
    let unreadable = |error: io::Error| Failure::usage(format!("{name}: {error}"));
    let metadata = match Path::new(name).metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound && is_file_name(name) => {
            return Err(Failure::usage(format!("{name}: there is no such file")));
        }
        Err(_) => return Ok(None),
    };
    if metadata.is_dir() {
        return Err(Failure::usage(format!("{name}: a directory; name a log")));
    }
    let mut file = File::open(name).map_err(unreadable)?;
    let start = if metadata.is_file() { metadata.len().saturating_sub(MAX_READ as u64) } else { 0 };
    if start > 0 {
        file.seek(SeekFrom::Start(start)).map_err(unreadable)?;
    }
    Ok(Some(decoded(&last(file.take(MAX_STREAM)).map_err(unreadable)?)))
}

/// One word with a directory or an ending: no message is that.
fn is_file_name(text: &str) -> bool {
    let ending = text.rsplit_once('.').map_or("", |(_, ending)| ending);
    let has_ending = (1..=5).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    !text.contains(char::is_whitespace) && (text.contains(['/', '\\']) || has_ending)
}

/// The last bytes of a stream.
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

/// UTF-8, or UTF-16 as PowerShell redirects it.
fn decoded(bytes: &[u8]) -> String {
    match bytes {
        [0xff, 0xfe, text @ ..] => {
            let units: Vec<u16> = text.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
            String::from_utf16_lossy(&units)
        }
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn figures(explanation: &Explanation) -> Table {
    let row = |figure: &lab::explain::Figure| {
        vec![Cell::Text(figure.name.into()), Cell::Text(figure.size.to_string()), Cell::Text(figure.meaning.clone())]
    };
    let columns = ["figure", "size", "meaning"].map(String::from).to_vec();
    Table { title: "What each figure means".into(), columns, rows: explanation.figures.iter().map(row).collect() }
}

fn for_people(explanation: &Explanation, tables: &[Table], ui: &Ui) -> String {
    let verdict = explanation.verdict.map_or("unknown".to_string(), |verdict| verdict.to_string());
    let device = explanation.device.map_or(String::new(), |device| format!(" on GPU {device}"));
    let mut out = format!("{}: {}\n", ui.style.bold(&format!("{verdict}{device}")), explanation.wording.name());
    out += &format!("{}\n", wrapped(&explanation.reason, WIDTH, 2));
    if !explanation.figures.is_empty() {
        out += &format!("\n{}", table::titled(&tables[0], ui.style));
    }
    for sum in &explanation.sums {
        let left = bytes::signed(sum.remainder);
        let exact = match sum.remainder.unsigned_abs() <= sum.tolerance {
            true => format!("adds up (to ±{}, as the figures are rounded)", bytes::short(sum.tolerance)),
            false => format!("{left} (±{})", bytes::short(sum.tolerance)),
        };
        out += &format!("{}\n", wrapped(&format!("{}: {exact}", sum.text), WIDTH, 2));
    }
    out += &format!("\n{}\n", ui.style.bold("What to try, first things first"));
    for (number, advice) in explanation.advice.iter().enumerate() {
        out += &format!("{}\n", wrapped(&format!("{}. {}", number + 1, advice.what), WIDTH, 3));
        if let Some(command) = &advice.command {
            out += &format!("     {command}\n");
        }
    }
    out
}

fn as_json(explanation: &Explanation) -> Value {
    let figure = |figure: &lab::explain::Figure| {
        json!({
            "name": figure.name,
            "bytes": figure.size.bytes,
            "tolerance_bytes": figure.size.tolerance,
            "meaning": figure.meaning,
        })
    };
    let sum = |sum: &lab::explain::Sum| json!({ "text": sum.text, "remainder_bytes": sum.remainder, "tolerance_bytes": sum.tolerance });
    json!({
        "schema": "vramlab-explain-1",
        "wording": explanation.wording.name(),
        "device": explanation.device,
        "verdict": explanation.verdict.map(|verdict| verdict.to_string()),
        "reason": explanation.reason,
        "figures": explanation.figures.iter().map(figure).collect::<Vec<_>>(),
        "sums": explanation.sums.iter().map(sum).collect::<Vec<_>>(),
        "advice": explanation.advice.iter()
            .map(|advice| json!({ "what": advice.what, "command": advice.command }))
            .collect::<Vec<_>>(),
    })
}
