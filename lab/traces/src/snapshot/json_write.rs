//! Writes JSON of the same structure as the pickles.

use std::io::{self, Write};

use super::sound;
use super::value::{Document, Kind, Value};

/// Largest JSON that is written: JSON repeats what a pickle shares.
pub const MAX_JSON_BYTES: u64 = 2 << 30;

/// Writes a document as JSON. Tuples become lists.
///
/// # Errors
/// Those of `out`; numbers that JSON does not have (not a number, infinity); a text larger than [`MAX_JSON_BYTES`].
pub fn write_json(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    sound::check(document).map_err(|error| refused(error.error("document").to_string()))?;
    let bytes = Sizes::new(document).width_of(document.root);
    if bytes > MAX_JSON_BYTES {
        let most = MAX_JSON_BYTES;
        return Err(refused(format!(
            "takes about {bytes} bytes as JSON, which repeats what a pickle shares; at most {most} are written"
        )));
    }
    let mut writer = Writer { document, out };
    writer.value(document.root)?;
    writer.out.write_all(b"\n")
}

fn refused(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.into())
}

/// Approximate sizes of values as JSON, in bytes. Each container is measured once, however often it occurs.
struct Sizes<'a> {
    document: &'a Document,
    /// Sizes of tuples, lists and dicts, by their numbers; 0 if not known yet.
    known: [Vec<u64>; 3],
}

impl<'a> Sizes<'a> {
    fn new(document: &'a Document) -> Self {
        let (tuples, lists, dicts) = document.counts();
        Self { document, known: [tuples, lists, dicts].map(|count| vec![0; count]) }
    }

    fn known(&mut self, kind: Kind) -> Option<&mut u64> {
        let (of, number) = match kind {
            Kind::Tuple(number) => (0, number),
            Kind::List(number) => (1, number),
            Kind::Dict(number) => (2, number),
            _ => return None,
        };
        self.known[of].get_mut(number as usize)
    }

    /// Recursion is safe: the depth was checked before.
    fn width_of(&mut self, value: Value) -> u64 {
        let document = self.document;
        match document.kind(value) {
            Kind::Int(value) => u64::from(value.unsigned_abs().checked_ilog10().unwrap_or(0)) + 1,
            Kind::Text(text) => document.texts.get(text).len() as u64 + 2,
            Kind::None | Kind::Bool(_) | Kind::Float(_) => 4,
            kind => {
                if let Some(known) = self.known(kind).filter(|known| **known > 0) {
                    return *known;
                }
                let sum = |items: &[Value], this: &mut Self| {
                    items.iter().fold(2, |sum: u64, item| sum.saturating_add(this.width_of(*item) + 1))
                };
                let bytes = match kind {
                    Kind::Tuple(tuple) => sum(document.tuple_items(tuple), self),
                    Kind::List(list) => sum(document.items(list), self),
                    Kind::Dict(dict) => document.entries(dict).fold(2, |sum: u64, (key, value)| {
                        sum.saturating_add(self.width_of(key) + 2).saturating_add(self.width_of(value))
                    }),
                    _ => 0,
                };
                // Leaves room for a comma after it.
                let bytes = bytes.min(u64::MAX / 2);
                if let Some(known) = self.known(kind) {
                    *known = bytes;
                }
                bytes
            }
        }
    }
}

struct Writer<'a> {
    document: &'a Document,
    out: &'a mut dyn Write,
}

impl Writer<'_> {
    /// Recursion is safe: the depth was checked before.
    fn value(&mut self, value: Value) -> io::Result<()> {
        let document = self.document;
        match document.kind(value) {
            Kind::None => self.out.write_all(b"null"),
            Kind::Bool(value) => write!(self.out, "{value}"),
            Kind::Int(value) => write!(self.out, "{value}"),
            Kind::Float(value) if value.is_finite() => {
                // A whole number keeps its point, so that it is read as a float again.
                write!(self.out, "{value:?}")
            }
            Kind::Float(value) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, format!("JSON has no number {value}")))
            }
            Kind::Text(text) => serde_json::to_writer(&mut self.out, document.texts.get(text)).map_err(io::Error::from),
            Kind::Tuple(tuple) => self.items(document.tuple_items(tuple)),
            Kind::List(list) => self.items(document.items(list)),
            Kind::Dict(dict) => self.dict(dict),
        }
    }

    fn items(&mut self, items: &[Value]) -> io::Result<()> {
        self.out.write_all(b"[")?;
        for (place, item) in items.iter().enumerate() {
            if place > 0 {
                self.out.write_all(b",")?;
            }
            self.value(*item)?;
        }
        self.out.write_all(b"]")
    }

    fn dict(&mut self, dict: u32) -> io::Result<()> {
        self.out.write_all(b"{")?;
        for (place, (key, value)) in self.document.entries(dict).enumerate() {
            if place > 0 {
                self.out.write_all(b",")?;
            }
            self.value(key)?;
            self.out.write_all(b":")?;
            self.value(value)?;
        }
        self.out.write_all(b"}")
    }
}
