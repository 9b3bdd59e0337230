//! Reading the input of a report: results, recordings and PyTorch's snapshots, recognised by their contents.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use lab_base::error::{Error, Result};
use lab_base::input;
use lab_traces::replay::{MAX_BYTES, MAX_OPERATIONS};
use lab_traces::snapshot::Snapshot;
use lab_traces::unpacked::{GZIP, Unpacked};
use memcore::memory::BLOCK_BYTES;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::recording::{Event, NameId, Recording, UNKNOWN};
use crate::schemas;

/// Schemas of recordings that can be read: those of this program, and of recorded PyTorch scripts.
const RECORDINGS: [&str; 2] = ["vramlab-events-1", "oracle-script-1"];
/// Contents of a file.
#[derive(Debug)]
pub enum Source {
    /// One or several results of commands.
    Results(Vec<Value>),
    /// A history of memory, with the device and settings if the file has them.
    Recording(Box<Recording>),
}

/// Reads a file or a pipe, compressed with gzip or not. Memory is in proportion to the file, not to its unpacked contents.
///
/// # Errors
/// [`Error::Usage`] naming the file: it does not exist, is a directory, is too long, not JSON, of an unknown kind, or inconsistent.
pub fn open(path: &Path) -> Result<Source> {
    let name = input::name(path);
    let cannot = |error: std::io::Error| Error::usage(&name, error.to_string());
    let file = input::open(path).map_err(cannot)?;
    if file.length().is_some_and(|bytes| bytes > MAX_BYTES) {
        return Err(Error::usage(&name, format!("is longer than {MAX_BYTES} bytes")));
    }
    let mut file = BufReader::new(file);
    let start = file.fill_buf().map_err(cannot)?;
    // A file may grow while it is read, and pipes and some of the system's files report no length.
    let beyond = format!("is longer than {MAX_BYTES} bytes");
    let text = if start.starts_with(&GZIP) {
        at_most(MAX_BYTES, Unpacked::new(file)).map_err(cannot)?.ok_or_else(|| Error::usage(&name, beyond))?
    } else if can_begin(start) {
        at_most(MAX_BYTES, file).map_err(cannot)?.ok_or_else(|| Error::usage(&name, beyond))?
    } else {
        return Err(Error::usage(&name, "begins neither as JSON nor as a pickle"));
    };
    read(&name, &text)
}

/// Whether the first bytes may begin a JSON file for a report, or a pickle.
fn can_begin(start: &[u8]) -> bool {
    let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
    first.is_none_or(|byte| [b'{', b'[', PICKLE, ARCHIVE].contains(byte))
}

/// Reads everything; `None` if it is longer than `most`.
fn at_most(most: u64, source: impl Read) -> std::io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    source.take(most + 1).read_to_end(&mut text)?;
    Ok((text.len() as u64 <= most).then_some(text))
}

/// Fields by which a file is recognised.
#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    format: Option<String>,
    /// Field of a snapshot.
    device_traces: Option<IgnoredAny>,
}

/// The first byte of a pickle, and of an archive of `torch.save`.
const PICKLE: u8 = 0x80;
const ARCHIVE: u8 = b'P';

/// Reads the contents of a file; `name` names it in errors.
pub fn read(name: &str, text: &[u8]) -> Result<Source> {
    let wrong = |error: serde_json::Error| Error::usage(name, format!("not a result that a report can show: {error}"));
    let is_object = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let kind = if is_object { Some(serde_json::from_slice::<Kind>(text).map_err(wrong)?) } else { None };
    if text.first().is_some_and(|first| [PICKLE, ARCHIVE].contains(first))
        || kind.as_ref().is_some_and(|kind| kind.device_traces.is_some())
    {
        let snapshot = Snapshot::read(name, text)?;
        return Ok(Source::Recording(Box::new(Recording::of_snapshot(name, &snapshot, snapshot.main_device()))));
    }
    if let Some(format) = kind.and_then(|kind| kind.format) {
        if !RECORDINGS.contains(&format.as_str()) {
            return Err(unknown(name, "format", &format));
        }
        let columns: Columns = serde_json::from_slice(text).map_err(wrong)?;
        let recording = columns.recording(name).map_err(|problem| Error::usage(name, problem))?;
        return Ok(Source::Recording(Box::new(recording)));
    }
    let results = match serde_json::from_slice(text).map_err(wrong)? {
        Value::Array(results) => results,
        result => vec![result],
    };
    for result in &results {
        match result.get("schema").and_then(Value::as_str) {
            Some(schema) if schemas().any(|known| known == schema) => {}
            Some(schema) => return Err(unknown(name, "schema", schema)),
            None => return Err(unknown(name, "schema", "")),
        }
    }
    Ok(Source::Results(results))
}

fn unknown(name: &str, what: &str, found: &str) -> Error {
    let known: Vec<&str> = schemas().chain(RECORDINGS).collect();
    let found = if found.is_empty() { format!("has no {what}") } else { format!("{what} {found:?} is unknown") };
    Error::usage(name, format!("{found}; a report is made of: {}, and snapshots of PyTorch", known.join(", ")))
}

/// Columns of a recording; absent ones are empty.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Columns {
    name: Option<String>,
    capacity: Option<u64>,
    ev: String,
    ev_size: Vec<i64>,
    ev_addr512: Vec<i64>,
    ev_free_ref: Vec<u32>,
    op_names: Vec<String>,
    ev_op: Vec<u32>,
    ev_bytes: Vec<u64>,
    categories: Vec<String>,
    ev_category: Vec<u32>,
    scope_names: Vec<String>,
    ev_scope: Vec<u32>,
    retag_at: Vec<u64>,
    retag_ref: Vec<u32>,
    retag_category: Vec<u32>,
    phase_names: Vec<String>,
    phase_at: Vec<u64>,
    phase_retags: Vec<u64>,
    phase: Vec<u32>,
}

/// Next entry of each column.
#[derive(Default)]
struct Next {
    size: usize,
    address: usize,
    free: usize,
    op: usize,
    alloc: usize,
    retag: usize,
    phase: usize,
}

/// Returns an entry of a column, or an error that says what is wrong.
fn entry<T: Copy>(column: &[T], index: usize, name: &str, event: usize) -> Result<T, String> {
    column.get(index).copied().ok_or_else(|| format!("event {event}: column {name} ends after {index} entries"))
}

/// Returns an entry of a column that may be absent altogether.
fn optional<T: Copy>(column: &[T], index: usize, name: &str, event: usize) -> Result<Option<T>, String> {
    if column.is_empty() { Ok(None) } else { entry(column, index, name, event).map(Some) }
}

struct Reading<'a> {
    columns: &'a Columns,
    next: Next,
    /// Index of the event that is being read.
    event: usize,
    recording: Recording,
    ops: Vec<NameId>,
    scopes: Vec<NameId>,
    phases: Vec<NameId>,
    categories: Vec<super::recording::CategoryId>,
    unknown: super::recording::CategoryId,
    freed: Vec<bool>,
}

impl Columns {
    fn recording(&self, file: &str) -> Result<Recording, String> {
        if self.ev.len() > MAX_OPERATIONS {
            return Err(format!("has {} events; at most {MAX_OPERATIONS} are read", self.ev.len()));
        }
        let mut recording = Recording::new(self.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(file));
        recording.of_capacity(self.capacity);
        let mut names = |texts: &[String]| texts.iter().map(|text| recording.intern(text)).collect::<Vec<_>>();
        let (ops, scopes, phases) = (names(&self.op_names), names(&self.scope_names), names(&self.phase_names));
        let categories = self.categories.iter().map(|name| recording.category(name)).collect();
        // The unknown category is added only if the file has no categories.
        let unknown = if self.ev_category.is_empty() { recording.category(UNKNOWN) } else { Default::default() };
        let (next, freed) = (Next::default(), Vec::new());
        let mut reading =
            Reading { columns: self, next, event: 0, recording, ops, scopes, phases, categories, unknown, freed };
        for (event, kind) in self.ev.bytes().enumerate() {
            reading.event = event;
            reading.between()?;
            reading.event(kind)?;
        }
        reading.event = self.ev.len();
        reading.between()?;
        Ok(reading.recording)
    }
}

impl Reading<'_> {
    /// Reads the phases and changes of category before the event.
    fn between(&mut self) -> Result<(), String> {
        let columns = self.columns;
        loop {
            let phase = columns.phase_at.get(self.next.phase).filter(|at| **at <= self.event as u64);
            let retag = columns.retag_at.get(self.next.retag).filter(|at| **at <= self.event as u64);
            let due = columns.phase_retags.get(self.next.phase).is_some_and(|n| *n <= self.next.retag as u64);
            match (retag, phase.filter(|_| due || retag.is_none())) {
                (Some(_), None) => {
                    let allocation = entry(&columns.retag_ref, self.next.retag, "retag_ref", self.event)?;
                    let category = entry(&columns.retag_category, self.next.retag, "retag_category", self.event)?;
                    let category = self.named(&self.categories, category, "retag_category")?;
                    self.next.retag += 1;
                    self.recording.push(Event::Retag { allocation, category });
                }
                (_, Some(_)) => {
                    let phase = entry(&columns.phase, self.next.phase, "phase", self.event)?;
                    let name = self.named(&self.phases, phase, "phase")?;
                    self.next.phase += 1;
                    self.recording.push(Event::Phase { name });
                }
                (None, None) => return Ok(()),
            }
        }
    }

    fn event(&mut self, kind: u8) -> Result<(), String> {
        let event = match kind {
            b'a' => self.alloc()?,
            b'f' => self.free()?,
            // A free that waits for another stream counts from the request on.
            b'q' => {
                self.size()?;
                self.free()?
            }
            b'S' | b'M' => Event::SegmentAlloc { bytes: self.size()?, address: self.address()? },
            b'F' | b'U' => Event::SegmentFree { bytes: self.size()?, address: self.address()? },
            b'o' => {
                let requested_bytes = self.size()?;
                self.next.address += 1;
                Event::Oom { requested_bytes, op: NameId(0) }
            }
            b's' => {
                self.size()?;
                self.next.address += 1;
                return Ok(());
            }
            b'c' => return Ok(()),
            other => return Err(format!("event {}: {:?} is not an event", self.event, char::from(other))),
        };
        self.recording.push(event);
        Ok(())
    }

    fn alloc(&mut self) -> Result<Event, String> {
        let (columns, index) = (self.columns, self.next.alloc);
        let (requested_bytes, address, op) = (self.size()?, self.address()?, self.op()?);
        self.next.alloc += 1;
        let bytes = optional(&columns.ev_bytes, index, "ev_bytes", self.event)?;
        let category = match optional(&columns.ev_category, index, "ev_category", self.event)? {
            Some(category) => self.named(&self.categories, category, "ev_category")?,
            None => self.unknown,
        };
        let scope = match optional(&columns.ev_scope, index, "ev_scope", self.event)? {
            Some(scope) => self.named(&self.scopes, scope, "ev_scope")?,
            None => NameId(0),
        };
        self.freed.push(false);
        let bytes = bytes.unwrap_or_else(|| requested_bytes.next_multiple_of(BLOCK_BYTES));
        if bytes > 1 << 60 {
            return Err(format!("event {}: {bytes} bytes are not the size of a block", self.event));
        }
        Ok(Event::Alloc { address, requested_bytes, bytes, category, op, scope })
    }

    fn free(&mut self) -> Result<Event, String> {
        let allocation = entry(&self.columns.ev_free_ref, self.next.free, "ev_free_ref", self.event)?;
        self.next.free += 1;
        match self.freed.get_mut(allocation as usize) {
            Some(freed) if !*freed => *freed = true,
            Some(_) => return Err(format!("event {}: allocation {allocation} was freed before", self.event)),
            None => return Err(format!("event {}: allocation {allocation} was not made yet", self.event)),
        }
        Ok(Event::Free { allocation, op: self.op()? })
    }

    fn size(&mut self) -> Result<u64, String> {
        let size = entry(&self.columns.ev_size, self.next.size, "ev_size", self.event)?;
        self.next.size += 1;
        match u64::try_from(size) {
            Ok(size) if size <= 1 << 60 => Ok(size),
            _ => Err(format!("event {}: {size} is not a size", self.event)),
        }
    }

    fn address(&mut self) -> Result<u64, String> {
        let address = entry(&self.columns.ev_addr512, self.next.address, "ev_addr512", self.event)?;
        self.next.address += 1;
        match u64::try_from(address) {
            Ok(address) if address <= 1 << 50 => Ok(address * 512),
            _ => Err(format!("event {}: {address} is not an address", self.event)),
        }
    }

    fn op(&mut self) -> Result<NameId, String> {
        let op = optional(&self.columns.ev_op, self.next.op, "ev_op", self.event)?;
        self.next.op += 1;
        op.map_or(Ok(NameId(0)), |op| self.named(&self.ops, op, "ev_op"))
    }

    fn named<T: Copy>(&self, names: &[T], index: u32, column: &str) -> Result<T, String> {
        let name = names.get(index as usize).copied();
        name.ok_or_else(|| format!("event {}: {column} {index}, but there are {} names", self.event, names.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(text: &str) -> Result<Recording> {
        match read("f", text.as_bytes())? {
            Source::Recording(recording) => Ok(*recording),
            Source::Results(_) => panic!("results"),
        }
    }

    const WHOLE: &str = r#"{"format":"vramlab-events-1","capacity":8192,"ev":"Saafo","ev_size":[2097152,40,100,7],"ev_addr512":[0,0,1,-1],
        "ev_free_ref":[1],"op_names":["","mm","mm."],"ev_op":[1,1,2],"ev_bytes":[512,1024],
        "categories":["temporary","activation"],"ev_category":[0,0],"scope_names":["","fc"],"ev_scope":[0,1],
        "retag_at":[3],"retag_ref":[1],"retag_category":[1],"phase_names":["forward"],"phase_at":[1],"phase":[0]}"#;

    #[test]
    fn every_column_is_understood() {
        let recording = recording(WHOLE).unwrap();
        let events = recording.events();
        assert_eq!((events.len(), recording.limit.as_ref().map(|limit| limit.1)), (7, Some(8192)));
        assert_eq!(events[0], Event::SegmentAlloc { address: 0, bytes: 2 << 20 });
        assert!(matches!(events[1], Event::Phase { name } if recording.text(name) == "forward"));
        let Event::Alloc { address, requested_bytes, bytes, category, op, scope } = events[3] else {
            panic!("no allocation")
        };
        assert_eq!((address, requested_bytes, bytes), (512, 100, 1024));
        assert_eq!(
            (recording.category_name(category), recording.text(op), recording.text(scope)),
            ("temporary", "mm", "fc")
        );
        assert!(
            matches!(events[4], Event::Retag { allocation: 1, category } if recording.category_name(category) == "activation")
        );
        assert!(matches!(events[5], Event::Free { allocation: 1, op } if recording.text(op) == "mm."));
        assert!(matches!(events[6], Event::Oom { requested_bytes: 7, .. }));
    }

    #[test]
    fn older_files_and_those_of_pytorch_have_fewer_columns() {
        let text = r#"{"format":"oracle-script-1","name":"n","ev":"Saqcs","ev_size":[2097152,40,40,9],"ev_addr512":[0,0,0],"ev_free_ref":[0]}"#;
        let recording = recording(text).unwrap();
        assert_eq!((recording.events().len(), recording.name.as_str()), (3, "n"));
        let Event::Alloc { bytes, category, .. } = recording.events()[1] else { panic!("no allocation") };
        assert_eq!((bytes, recording.category_name(category)), (512, UNKNOWN));
    }

    /// Otherwise a report from a file could differ in a last digit from one made directly.
    #[test]
    fn a_number_comes_back_as_it_was() {
        for i in 1..20_000u32 {
            let number = f64::from(i).sqrt() / 7.0;
            let text = serde_json::to_string(&number).unwrap();
            assert_eq!(serde_json::from_str::<f64>(&text).unwrap().to_bits(), number.to_bits(), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (from, to, message) in [
            ("\"ev_free_ref\":[1]", "\"ev_free_ref\":[2]", "f: event 3: allocation 2 was not made yet"),
            ("\"ev_bytes\":[512,1024]", "\"ev_bytes\":[512]", "f: event 2: column ev_bytes ends after 1 entries"),
            ("\"ev_scope\":[0,1]", "\"ev_scope\":[0,9]", "f: event 2: ev_scope 9, but there are 2 names"),
            ("Saafo", "Saaxo", "f: event 3: 'x' is not an event"),
            ("40,100", "40,-1", "f: event 2: -1 is not a size"),
            ("vramlab-events-1", "events", "f: format \"events\" is unknown; a report is made of"),
        ] {
            let error = recording(&WHOLE.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        for (text, message) in
            [("{", "not a result"), ("[{}]", "has no schema"), ("{\"schema\":\"x\"}", "schema \"x\"")]
        {
            assert!(read("f", text.as_bytes()).unwrap_err().to_string().contains(message));
        }
    }
}
