//! Reads files of arguments: JSON, YAML, and a `TrainingArguments` saved with `torch.save`.

use std::io::{Cursor, Read};
use std::path::Path;

use lab_base::error::{Error, Result};
use lab_traces::snapshot::read_objects;
use serde_json::{Map, Value};

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// Reads the arguments in a file, by name.
///
/// # Errors
/// [`Error::Usage`] naming the file: missing, too large, or of a kind that is not read.
pub(super) fn read(path: &Path) -> Result<Map<String, Value>> {
    let name = path.display().to_string();
    let bytes = lab_base::files::bytes(path, MAX_BYTES, "a file of arguments")?;
    let value = match bytes.as_slice() {
        [b'P', b'K', 3, 4, ..] => object(read_objects(&name, &pickle(&name, &bytes)?)?),
        [0x80, ..] => object(read_objects(&name, &bytes)?),
        _ => text(&name, path, bytes)?,
    };
    match value {
        Value::Object(arguments) => Ok(arguments),
        _ => Err(Error::usage(name, "holds no arguments by name")),
    }
}

/// Extracts the pickle of `torch.save`: `data.pkl` in an archive without compression.
fn pickle(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let damaged = |error: zip::result::ZipError| Error::usage(name, error.to_string());
    let mut archive = crate::zipped::open(Cursor::new(bytes)).map_err(damaged)?;
    let place = (0..archive.len()).find(|&place| match archive.name_for_index(place) {
        Some(Ok(name)) => name == "data.pkl" || name.ends_with("/data.pkl"),
        _ => false,
    });
    let Some(place) = place else { return Err(Error::usage(name, "an archive that torch.save did not make")) };
    let mut pickle = Vec::new();
    let entry = archive.by_index(place).map_err(damaged)?;
    let read = entry.take(MAX_BYTES + 1).read_to_end(&mut pickle);
    read.map_err(|error| Error::usage(name, error.to_string()))?;
    if pickle.len() as u64 > MAX_BYTES {
        return Err(Error::usage(name, format!("its pickle has more than {MAX_BYTES} bytes")));
    }
    Ok(pickle)
}

/// Returns the contents of an object: its state; for an enumeration, which is made of one text, that text.
fn object(value: Value) -> Value {
    match value {
        Value::Object(mut record) if record.contains_key("class") => {
            if let Some(state) = record.remove("state") {
                return object(state);
            }
            match record.remove("args") {
                Some(Value::Array(args)) if args.len() == 1 => object(args[0].clone()),
                _ => Value::Null,
            }
        }
        Value::Object(fields) => Value::Object(fields.into_iter().map(|(key, value)| (key, object(value))).collect()),
        Value::Array(items) => Value::Array(items.into_iter().map(object).collect()),
        plain => plain,
    }
}

fn text(name: &str, path: &Path, bytes: Vec<u8>) -> Result<Value> {
    let text = String::from_utf8(bytes).map_err(|_| Error::usage(name, "neither JSON nor YAML nor torch.save's"))?;
    let of_yaml = path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
    let read = match of_yaml {
        true => serde_saphyr::from_str(&text).map_err(|error| error.to_string()),
        false => serde_json::from_str(&text).map_err(|error| error.to_string()),
    };
    read.map_err(|error| Error::usage(name, error.lines().next().unwrap_or_default()))
}
