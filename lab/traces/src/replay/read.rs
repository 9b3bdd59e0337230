//! Reads recordings in one pass and in bounded memory.
//!
//! Columns of the program's requests are kept; everything else in the file is skipped.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use lab_base::error::{Error, Result};
use lab_base::input;
use memcore::memory::TorchVersion;
use struson::reader::{JsonReader, JsonStreamReader, ReaderError, ReaderSettings, ValueType};

use super::events;
use super::fields::{Columns, Numbers, ended, unknown};
use super::trace::{Fault, Operation, Settings, Trace};
use crate::unpacked::{GZIP, Unpacked};

/// Largest file that is read, in bytes (unpacked, if it is packed).
pub const MAX_BYTES: u64 = 4 << 30;

/// Longest recording that is read, in operations.
pub const MAX_OPERATIONS: usize = 32 << 20;

/// Longest text outside of the columns.
const MAX_TEXT: u64 = 1 << 16;

/// Allocator traces of PyTorch.
const TRACE: &str = "oracle-trace-1";
/// Recorded training scripts of PyTorch, and of this program.
const EVENTS: [&str; 2] = ["oracle-script-1", "vramlab-events-1"];

impl Trace {
    /// Reads a file, gzipped or not.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the file and, for an error in one operation, the operation.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let cannot = |error: io::Error| Error::usage(&name, error.to_string());
        let file = input::open(path).map_err(cannot)?;
        if let Some(bytes) = file.length().filter(|bytes| *bytes > MAX_BYTES) {
            let problem = format!("is {bytes} bytes long; {}", beyond());
            return Err(Error::usage(&name, problem));
        }
        Self::read(&name, file)
    }

    /// Reads a recording; errors call it `name`.
    pub fn read(name: &str, source: impl Read) -> Result<Self> {
        let cannot = |error: io::Error| Error::usage(name, error.to_string());
        let mut source = BufReader::with_capacity(1 << 16, source);
        let packed = source.fill_buf().map_err(cannot)?.starts_with(&GZIP);
        let mut columns = Columns::default();
        let read = if packed {
            columns.read(BufReader::with_capacity(1 << 16, Ending(Unpacked::new(source), MAX_BYTES)))
        } else {
            columns.read(Ending(source, MAX_BYTES))
        };
        read.map_err(|problem| Error::usage(name, columns.located(&problem)))?;
        columns.trace(name)
    }
}

fn beyond() -> String {
    format!("at most {MAX_BYTES} bytes and {MAX_OPERATIONS} operations are read")
}

/// A source that fails where it should have ended.
struct Ending<R>(R, u64);

impl<R: Read> Read for Ending<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1 = self.1.checked_sub(read as u64).ok_or_else(|| io::Error::other(format!("too long; {}", beyond())))?;
        Ok(read)
    }
}

impl Columns {
    fn read(&mut self, source: impl Read) -> Result<(), String> {
        // Errors name the column and entry; tracking paths would cost more than the reading.
        let settings = ReaderSettings { track_path: false, ..ReaderSettings::default() };
        let mut json = JsonStreamReader::new_custom(source, settings);
        json.begin_object().map_err(problem)?;
        while json.has_next().map_err(problem)? {
            let name = json.next_name().map_err(problem)?.to_string();
            self.field(&name, &mut json)?;
            self.reading = None;
        }
        json.end_object().map_err(problem)?;
        json.consume_trailing_whitespace().map_err(problem)
    }

    fn field<R: Read>(&mut self, name: &str, json: &mut JsonStreamReader<R>) -> Result<(), String> {
        let reading = &mut self.reading;
        match name {
            "format" => self.format = text(name, json)?,
            "name" => self.name = text(name, json)?,
            "torch" => self.torch = text(name, json)?,
            "alloc_conf" => self.alloc_conf = text(name, json)?,
            "capacity" => self.capacity = number(name, json)?,
            "memory_fraction" => self.memory_fraction = number(name, json)?,
            "op" => characters("op", &mut self.kinds, json, reading)?,
            "ev" => characters("ev", &mut self.kinds, json, reading)?,
            "id" => numbers("id", &mut self.id, json, reading)?,
            "size" => numbers("size", &mut self.size, json, reading)?,
            "ev_size" => numbers("ev_size", &mut self.size, json, reading)?,
            "stream" => numbers("stream", &mut self.stream, json, reading)?,
            "seg" => numbers("seg", &mut self.seg, json, reading)?,
            "ev_free_ref" => numbers("ev_free_ref", &mut self.free_ref, json, reading)?,
            _ => json.skip_value().map_err(problem)?,
        }
        Ok(())
    }

    /// Describes a problem, with the operation where one is known.
    fn located(&self, problem: &str) -> String {
        let Some((column, entries)) = self.reading else { return problem.to_string() };
        let kth = |counts: fn(u8) -> bool| {
            let mut those = self.kinds.iter().enumerate().filter(|(_, kind)| counts(**kind));
            those.nth(entries).map(|(operation, _)| operation)
        };
        let operation = match column {
            "op" | "ev" | "id" => Some(entries),
            "size" | "seg" => kth(|kind| kind == b'a'),
            "stream" => kth(|kind| matches!(kind, b'a' | b'r')),
            "ev_size" => kth(|kind| !matches!(kind, b'f' | b'c')),
            _ => kth(|kind| matches!(kind, b'f' | b'q')),
        };
        match operation {
            Some(operation) => format!("operation {operation}: in column {column}, after {entries} entries: {problem}"),
            None => format!("in column {column}, after {entries} entries: {problem}"),
        }
    }

    fn settings(&self, name: &str) -> Result<Settings> {
        let capacity_bytes = match self.capacity {
            None => None,
            Some(bytes) if bytes >= 1.0 && bytes <= (1u64 << 60) as f64 && bytes.fract() == 0.0 => Some(bytes as u64),
            Some(bytes) => return Err(Error::usage(name, format!("capacity: {bytes} is not a size of a device"))),
        };
        let fraction = self.memory_fraction.filter(|fraction| !(0.0..=1.0).contains(fraction));
        if let Some(fraction) = fraction {
            return Err(Error::usage(name, format!("memory_fraction: {fraction} does not lie between 0 and 1")));
        }
        Ok(Settings {
            alloc_conf: self.alloc_conf.clone(),
            capacity_bytes,
            memory_fraction: self.memory_fraction,
            version: version(&self.torch),
        })
    }

    fn trace(self, file: &str) -> Result<Trace> {
        let settings = self.settings(file)?;
        let (format, operations) = if self.format == TRACE {
            (TRACE, self.operations())
        } else if let Some(format) = EVENTS.into_iter().find(|format| self.format == *format) {
            (format, events::operations(&self, &settings))
        } else {
            let known = [TRACE, EVENTS[0], EVENTS[1]].join(", ");
            let problem = match self.format.as_str() {
                "" => format!("has no \"format\"; those that can be read: {known}"),
                other => format!("format {other:?} is not one of those that can be read: {known}"),
            };
            return Err(Error::usage(file, problem));
        };
        let operations = operations.map_err(|fault| fault.error(file))?;
        let name = if self.name.is_empty() { file.to_string() } else { self.name.clone() };
        drop(self);
        // A fault is the file's, not that of the name in it.
        Ok(Trace::new(file, settings, operations)?.said_to_be(name, format))
    }

    /// Returns the operations that the columns of an allocator trace describe.
    fn operations(&self) -> Result<Vec<Operation>, Fault> {
        let mut operations = Vec::with_capacity(self.kinds.len());
        let (mut made, mut streamed) = (0, 0);
        let mut stream = |at: usize| -> Result<u16, Fault> {
            if self.stream.values.is_empty() && self.stream.fault.is_none() {
                return Ok(0);
            }
            let stream = self.stream.natural(streamed, at, "stream")?;
            streamed += 1;
            u16::try_from(stream).map_err(|_| Fault::new(at, format!("stream {stream} is above 65535")))
        };
        for (at, kind) in self.kinds.iter().enumerate() {
            let id = self.id.natural(at, at, "id")?;
            let allocation = u32::try_from(id).unwrap_or(u32::MAX);
            operations.push(match kind {
                b'a' => {
                    if id != made as u64 {
                        return Err(Fault::new(at, format!("makes allocation {id} where {made} comes next")));
                    }
                    let (bytes, stream) = (self.size.natural(made, at, "size")?, stream(at)?);
                    let served = !self.seg.present || self.seg.at(made, at, "segment")? >= 0;
                    made += 1;
                    Operation::Allocate { bytes, stream, pool: 0, served }
                }
                b'f' => Operation::Free { allocation },
                b'r' => Operation::RecordStream { allocation, stream: stream(at)? },
                b'e' => Operation::EmptyCache,
                b'p' => Operation::ResetPeak,
                b'h' => Operation::HoldEvents,
                b'd' => Operation::CompleteEvents,
                other => return Err(unknown(at, *other)),
            });
        }
        let surplus = [
            ("id", &self.id, self.kinds.len()),
            ("size", &self.size, made),
            ("stream", &self.stream, streamed),
            ("seg", &self.seg, if self.seg.present { made } else { 0 }),
        ];
        ended(&surplus, self.kinds.len())?;
        Ok(operations)
    }
}

/// Returns the release. Except for 2.12, releases after 2.11 count as the newest that is known.
fn version(torch: &str) -> TorchVersion {
    let mut numbers = torch.split(['.', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
    let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match release {
        (2, 12) => TorchVersion::V2_12,
        release if release > (2, 11) => TorchVersion::V2_15,
        _ => TorchVersion::V2_11,
    }
}

fn problem(error: ReaderError) -> String {
    match error {
        ReaderError::SyntaxError(error) => format!("not JSON, or not all of it: {error}"),
        ReaderError::IoError { error, .. } => error.to_string(),
        other => other.to_string(),
    }
}

fn in_text(name: &str, error: &io::Error) -> String {
    format!("{name}: not JSON, or not all of it: {error}")
}

/// Reads a short text; `None` for `null`.
fn text<R: Read>(name: &str, json: &mut JsonStreamReader<R>) -> Result<String, String> {
    if json.peek().map_err(problem)? == ValueType::Null {
        return json.next_null().map_err(problem).map(|()| String::new());
    }
    let mut text = String::new();
    let mut reader = json.next_string_reader().map_err(problem)?;
    (&mut reader).take(MAX_TEXT + 1).read_to_string(&mut text).map_err(|error| in_text(name, &error))?;
    if text.len() as u64 > MAX_TEXT { Err(format!("{name} is longer than {MAX_TEXT} bytes")) } else { Ok(text) }
}

/// Reads a number; `None` for `null`.
fn number<R: Read>(name: &str, json: &mut JsonStreamReader<R>) -> Result<Option<f64>, String> {
    if json.peek().map_err(problem)? == ValueType::Null {
        return json.next_null().map_err(problem).map(|()| None);
    }
    let text = json.next_number_as_str().map_err(problem)?;
    text.parse().map(Some).map_err(|_| format!("{name}: {text} is not a number"))
}

fn characters<R: Read>(
    name: &'static str,
    into: &mut Vec<u8>,
    json: &mut JsonStreamReader<R>,
    reading: &mut Option<(&'static str, usize)>,
) -> Result<(), String> {
    if !into.is_empty() {
        return Err(format!("{name}: the operations are there twice"));
    }
    let mut reader = json.next_string_reader().map_err(problem)?;
    let mut buffer = [0; 1 << 14];
    loop {
        *reading = Some((name, into.len()));
        match reader.read(&mut buffer).map_err(|error| in_text(name, &error))? {
            0 => return Ok(()),
            read if into.len() + read > MAX_OPERATIONS => {
                return Err(format!("too many operations: {}", beyond()));
            }
            read => into.extend_from_slice(&buffer[..read]),
        }
    }
}

fn numbers<R: Read>(
    name: &'static str,
    into: &mut Numbers,
    json: &mut JsonStreamReader<R>,
    reading: &mut Option<(&'static str, usize)>,
) -> Result<(), String> {
    if into.present {
        return Err(format!("{name}: the column is there twice"));
    }
    into.present = true;
    *reading = Some((name, 0));
    json.begin_array().map_err(problem)?;
    while json.has_next().map_err(problem)? {
        let entry = into.values.len();
        if entry == MAX_OPERATIONS {
            return Err(format!("too many entries: {}", beyond()));
        }
        let kind = json.peek().map_err(problem)?;
        if kind == ValueType::Number {
            let text = json.next_number_as_str().map_err(problem)?;
            match text.parse() {
                Ok(value) => into.values.push(value),
                Err(_) => {
                    into.values.push(0);
                    into.fault.get_or_insert_with(|| (entry, text.chars().take(40).collect()));
                }
            }
        } else {
            into.values.push(0);
            into.fault.get_or_insert_with(|| (entry, kind.to_string().to_lowercase()));
            json.skip_value().map_err(problem)?;
        }
        *reading = Some((name, into.values.len()));
    }
    json.end_array().map_err(problem)
}
