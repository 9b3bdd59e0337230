//! Writes pickles that Python and the viewer of pytorch.org/memory_viz open.
//!
//! The viewer knows a part of protocol 4: no opcode is written that its loader lacks. Lists are appended to in batches of at most 1000, since the
//! viewer spreads them as arguments of a call.

use std::io::{self, Write};

use super::opcodes as op;
use super::sound;
use super::value::{Document, Kind, Value};

/// Size of a batch, as in CPython.
const BATCH: usize = 1000;

/// Writes a document as a pickle. Containers shared in the document are shared in the pickle.
pub fn write_pickle(document: &Document, out: &mut dyn Write) -> io::Result<()> {
    let refused = |error: super::parse_error::ParseError| {
        io::Error::new(io::ErrorKind::InvalidData, error.error("document").to_string())
    };
    sound::check(document).map_err(refused)?;
    let mut writer = Writer { document, out, memo: Memo::from_document(document), next: 0 };
    writer.out.write_all(&[op::PROTO, 4])?;
    writer.value(document.root)?;
    writer.out.write_all(&[op::STOP])
}

/// For each text, tuple, list and dict: whether it occurs more than once, and its number in the memo once it was written.
struct Memo {
    texts: Vec<u32>,
    tuples: Vec<u32>,
    lists: Vec<u32>,
    dicts: Vec<u32>,
}

/// Occurs never, once, more often; numbers in the memo are stored above these.
const NEVER: u32 = 0;
const ONCE: u32 = 1;
const OFTEN: u32 = 2;
const NUMBERS: u32 = 3;

impl Memo {
    fn from_document(document: &Document) -> Self {
        let (tuples, lists, dicts) = document.counts();
        let never = |count| vec![NEVER; count];
        let mut memo = Memo { texts: Vec::new(), tuples: never(tuples), lists: never(lists), dicts: never(dicts) };
        memo.meet(document, document.root);
        memo
    }

    /// Recursion is safe: the depth was checked before.
    fn meet(&mut self, document: &Document, value: Value) {
        let Some(seen) = self.entry(document, value) else { return };
        let first = *seen == NEVER;
        *seen = if first { ONCE } else { OFTEN };
        match document.kind(value) {
            Kind::Tuple(tuple) if first => {
                document.tuple_items(tuple).iter().for_each(|item| self.meet(document, *item));
            }
            Kind::List(list) if first => document.items(list).iter().for_each(|item| self.meet(document, *item)),
            Kind::Dict(dict) if first => document.entries(dict).for_each(|(key, value)| {
                self.meet(document, key);
                self.meet(document, value);
            }),
            _ => {}
        }
    }

    fn entry(&mut self, document: &Document, value: Value) -> Option<&mut u32> {
        match document.kind(value) {
            Kind::Text(text) => {
                let place = text.0 as usize;
                if place >= self.texts.len() {
                    self.texts.resize(place + 1, NEVER);
                }
                self.texts.get_mut(place)
            }
            Kind::Tuple(tuple) => self.tuples.get_mut(tuple as usize),
            Kind::List(list) => self.lists.get_mut(list as usize),
            Kind::Dict(dict) => self.dicts.get_mut(dict as usize),
            _ => None,
        }
    }
}

struct Writer<'a> {
    document: &'a Document,
    out: &'a mut dyn Write,
    memo: Memo,
    /// Next number of the memo.
    next: u32,
}

impl Writer<'_> {
    fn value(&mut self, value: Value) -> io::Result<()> {
        let document = self.document;
        if let Some(&mut seen) = self.memo.entry(document, value)
            && seen >= NUMBERS
        {
            return self.get(seen - NUMBERS);
        }
        match document.kind(value) {
            Kind::None => self.out.write_all(&[op::NONE]),
            Kind::Bool(value) => self.out.write_all(&[if value { op::NEWTRUE } else { op::NEWFALSE }]),
            Kind::Int(value) => self.int(value),
            Kind::Float(value) => {
                self.out.write_all(&[op::BINFLOAT])?;
                self.out.write_all(&value.to_be_bytes())
            }
            Kind::Text(text) => {
                self.text(document.texts.get(text))?;
                self.memoize(value)
            }
            Kind::Tuple(tuple) => {
                self.tuple(document.tuple_items(tuple))?;
                self.memoize(value)
            }
            Kind::List(list) => {
                self.out.write_all(&[op::EMPTY_LIST])?;
                self.memoize(value)?;
                self.list(document.items(list))
            }
            Kind::Dict(dict) => {
                self.out.write_all(&[op::EMPTY_DICT])?;
                self.memoize(value)?;
                self.dict(dict)
            }
        }
    }

    fn get(&mut self, number: u32) -> io::Result<()> {
        match u8::try_from(number) {
            Ok(number) => self.out.write_all(&[op::BINGET, number]),
            Err(_) => {
                self.out.write_all(&[op::LONG_BINGET])?;
                self.out.write_all(&number.to_le_bytes())
            }
        }
    }

    /// Numbers a value that occurs again.
    fn memoize(&mut self, value: Value) -> io::Result<()> {
        let number = self.next;
        match self.memo.entry(self.document, value) {
            Some(seen) if *seen == OFTEN => *seen = number + NUMBERS,
            _ => return Ok(()),
        }
        self.next += 1;
        self.out.write_all(&[op::MEMOIZE])
    }

    fn int(&mut self, value: i128) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(value) {
            return self.out.write_all(&[op::BININT1, byte]);
        }
        if let Ok(short) = u16::try_from(value) {
            self.out.write_all(&[op::BININT2])?;
            return self.out.write_all(&short.to_le_bytes());
        }
        if let Ok(int) = i32::try_from(value) {
            self.out.write_all(&[op::BININT])?;
            return self.out.write_all(&int.to_le_bytes());
        }
        let bytes = value.to_le_bytes();
        let sign = if value < 0 { 0xff } else { 0 };
        // As few bytes as the sign allows.
        let length = (1..bytes.len())
            .rev()
            .find(|&last| bytes[last] != sign || (bytes[last - 1] ^ sign) & 0x80 != 0)
            .map_or(1, |last| last + 1);
        self.out.write_all(&[op::LONG1, length as u8])?;
        self.out.write_all(&bytes[..length])
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        match u8::try_from(text.len()) {
            Ok(length) => self.out.write_all(&[op::SHORT_BINUNICODE, length])?,
            Err(_) => {
                let length = u32::try_from(text.len())
                    .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a text of more than 4 GiB"))?;
                self.out.write_all(&[op::BINUNICODE])?;
                self.out.write_all(&length.to_le_bytes())?;
            }
        }
        self.out.write_all(text.as_bytes())
    }

    fn tuple(&mut self, items: &[Value]) -> io::Result<()> {
        if items.len() > 3 {
            self.out.write_all(&[op::MARK])?;
        }
        for item in items {
            self.value(*item)?;
        }
        self.out.write_all(match items.len() {
            0 => &[op::EMPTY_TUPLE],
            1 => &[op::TUPLE1],
            2 => &[op::TUPLE2],
            3 => &[op::TUPLE3],
            _ => &[op::TUPLE],
        })
    }

    fn list(&mut self, items: &[Value]) -> io::Result<()> {
        for batch in items.chunks(BATCH) {
            self.out.write_all(&[op::MARK])?;
            for item in batch {
                self.value(*item)?;
            }
            self.out.write_all(&[op::APPENDS])?;
        }
        Ok(())
    }

    fn dict(&mut self, dict: u32) -> io::Result<()> {
        let document = self.document;
        for from in (0..document.len(dict)).step_by(BATCH) {
            self.out.write_all(&[op::MARK])?;
            for place in from..document.len(dict).min(from + BATCH) {
                let (key, value) = document.entry(dict, place);
                self.value(key)?;
                self.value(value)?;
            }
            self.out.write_all(&[op::SETITEMS])?;
        }
        Ok(())
    }
}
