//! Reads JSON of the same structure as the pickles.
//!
//! JSON repeats what a pickle shares: equal stacks are merged while reading. JSON has no tuples: the ids of pools, which PyTorch writes as tuples,
//! become tuples.

use std::collections::HashMap;
use std::io::Read;

use super::parse_error::{ParseError, Result};
use super::sound::MAX_DEPTH;
use super::source::Source;
use super::value::{Document, TextId, Value};

/// Longest number, in characters.
const LONGEST_NUMBER: usize = 400;

/// Reads one JSON value, which must be the whole file.
pub(super) fn read<R: Read>(source: &mut Source<R>) -> Result<Document> {
    let mut document = Document::default();
    let mut intern = |text: &str| document.texts.intern(text);
    let keys = Keys { frames: intern("frames"), pools: [intern("pool_id"), intern("segment_pool_id")] };
    let mut reader =
        Reader { source, document, keys, items: Vec::new(), text: Vec::new(), stacks: HashMap::new(), depth: 0 };
    reader.document.root = reader.value(Place::Other)?;
    reader.blanks()?;
    match reader.source.peek()? {
        None => Ok(reader.document),
        Some(_) => Err(ParseError::new(reader.source.offset(), "the JSON value ends here, but the file goes on")),
    }
}

/// Keys whose values are treated specially.
struct Keys {
    frames: TextId,
    pools: [TextId; 2],
}

/// Position of a value.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// The list of frames, or a value in it.
    Frames,
    /// The id of a pool.
    Pool,
    Other,
}

struct Reader<'a, R> {
    source: &'a mut Source<R>,
    document: Document,
    keys: Keys,
    /// Values of the containers that are not complete.
    items: Vec<Value>,
    text: Vec<u8>,
    /// Frames and lists of them, by their contents.
    stacks: HashMap<Box<[Value]>, Value>,
    depth: u8,
}

impl<R: Read> Reader<'_, R> {
    fn fail<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(ParseError::new(self.source.offset(), problem))
    }

    /// Skips white space; returns the byte after it without consuming it.
    fn blanks(&mut self) -> Result<u8> {
        loop {
            match self.source.peek()? {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.source.skip(),
                Some(other) => return Ok(other),
                None => return Ok(0),
            }
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<()> {
        match self.blanks()? {
            found if found == wanted => self.source.skip(),
            _ => return self.fail(format!("expected {:?}", char::from(wanted))),
        }
        Ok(())
    }

    fn value(&mut self, place: Place) -> Result<Value> {
        let value = match self.blanks()? {
            b'{' | b'[' if self.depth == MAX_DEPTH => {
                return self.fail(format!("containers are nested more than {MAX_DEPTH} deep"));
            }
            b'{' => {
                self.depth += 1;
                let dict = self.dict(place)?;
                self.depth -= 1;
                dict
            }
            b'[' => {
                self.depth += 1;
                let list = self.list(place)?;
                self.depth -= 1;
                list
            }
            b'"' => Value::text(self.text()?),
            b'-' | b'0'..=b'9' => self.number()?,
            b't' => self.word("true", Value::bool(true))?,
            b'f' => self.word("false", Value::bool(false))?,
            b'n' => self.word("null", Value::NONE)?,
            _ => return self.fail("not JSON, or not all of it"),
        };
        Ok(value)
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value> {
        let at = self.source.offset();
        if self.source.take(word.len(), word)? == word.as_bytes() {
            Ok(value)
        } else {
            Err(ParseError::new(at, format!("expected {word}")))
        }
    }

    fn dict(&mut self, place: Place) -> Result<Value> {
        let at = self.source.offset();
        let from = self.items.len();
        self.source.skip();
        if self.blanks()? == b'}' {
            self.source.skip();
            return self.document.new_dict(at);
        }
        loop {
            if self.blanks()? != b'"' {
                return self.fail("expected a key");
            }
            let key = self.text()?;
            self.expect(b':')?;
            let inside = match key {
                key if key == self.keys.frames => Place::Frames,
                key if self.keys.pools.contains(&key) => Place::Pool,
                _ => Place::Other,
            };
            let value = self.value(inside)?;
            self.items.extend([Value::text(key), value]);
            if self.more(b'}')? {
                continue;
            }
            let known = (place == Place::Frames).then(|| self.stacks.get(&self.items[from..]).copied()).flatten();
            let value = match known {
                Some(known) => known,
                None => {
                    let new = self.document.new_dict(at)?;
                    if let Some(dict) = new.as_dict() {
                        self.document.set(dict, &self.items[from..], at)?;
                    }
                    self.remember(place, from, new);
                    new
                }
            };
            self.items.truncate(from);
            return Ok(value);
        }
    }

    fn list(&mut self, place: Place) -> Result<Value> {
        let at = self.source.offset();
        let from = self.items.len();
        self.source.skip();
        if self.blanks()? == b']' {
            self.source.skip();
            return self.finish_list(place, from, at);
        }
        loop {
            let value = self.value(if place == Place::Frames { place } else { Place::Other })?;
            self.items.push(value);
            if !self.more(b']')? {
                return self.finish_list(place, from, at);
            }
        }
    }

    fn finish_list(&mut self, place: Place, from: usize, at: u64) -> Result<Value> {
        let items = &self.items[from..];
        let value = if place == Place::Pool {
            self.document.tuple(items)
        } else if let Some(known) = (place == Place::Frames).then(|| self.stacks.get(items).copied()).flatten() {
            known
        } else {
            let new = self.document.new_list(at)?;
            if let Some(list) = new.as_list() {
                self.document.items_mut(list).extend_from_slice(items);
            }
            self.remember(place, from, new);
            new
        };
        self.items.truncate(from);
        Ok(value)
    }

    fn remember(&mut self, place: Place, from: usize, value: Value) {
        if place == Place::Frames {
            self.stacks.insert(self.items[from..].into(), value);
        }
    }

    /// True if a comma follows; false at the end.
    fn more(&mut self, end: u8) -> Result<bool> {
        match self.blanks()? {
            b',' => {
                self.source.skip();
                Ok(true)
            }
            found if found == end => {
                self.source.skip();
                Ok(false)
            }
            _ => self.fail(format!("expected a comma or {:?}", char::from(end))),
        }
    }

    fn number(&mut self) -> Result<Value> {
        let at = self.source.offset();
        self.text.clear();
        while let Some(byte @ (b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) = self.source.peek()? {
            if self.text.len() == LONGEST_NUMBER {
                return Err(ParseError::new(at, "a number is too long"));
            }
            self.text.push(byte);
            self.source.skip();
        }
        let text = std::str::from_utf8(&self.text).unwrap_or_default();
        let no_number = || ParseError::new(at, format!("{text} is not a number"));
        let digits = text.trim_start_matches('-');
        if text.len() - digits.len() > 1 || digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.") {
            return Err(no_number());
        }
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = text.parse::<i128>().map_err(|_| no_number())?;
            return Ok(self.document.int(number));
        }
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(no_number)?;
        Ok(self.document.float(number))
    }

    fn text(&mut self) -> Result<TextId> {
        let at = self.source.offset();
        self.source.skip();
        self.text.clear();
        loop {
            match self.source.byte("a text")? {
                b'"' => break,
                b'\\' => self.escape()?,
                0..0x20 => return Err(ParseError::new(self.source.offset() - 1, "a control character in a text")),
                byte => self.text.push(byte),
            }
        }
        match std::str::from_utf8(&self.text) {
            Ok(text) => Ok(self.document.texts.intern(text)),
            Err(_) => Err(ParseError::new(at, "a text is not UTF-8")),
        }
    }

    fn escape(&mut self) -> Result<()> {
        let plain = match self.source.byte("an escape")? {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return self.unicode(),
            _ => return self.fail("not an escape of JSON"),
        };
        self.text.push(plain);
        Ok(())
    }

    fn unicode(&mut self) -> Result<()> {
        let mut unit = self.hex()?;
        if (0xd800..0xdc00).contains(&unit) {
            if self.source.take(2, "the second half of a character")? != b"\\u" {
                return self.fail("half a character");
            }
            let low = self.hex()?;
            if !(0xdc00..0xe000).contains(&low) {
                return self.fail("half a character");
            }
            unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
        }
        let Some(character) = char::from_u32(unit) else { return self.fail("half a character") };
        self.text.extend(character.encode_utf8(&mut [0; 4]).bytes());
        Ok(())
    }

    fn hex(&mut self) -> Result<u32> {
        let digits: [u8; 4] = self.source.array("an escape")?;
        let text = std::str::from_utf8(&digits).ok().filter(|text| !text.starts_with('+'));
        match text.and_then(|text| u32::from_str_radix(text, 16).ok()) {
            Some(unit) => Ok(unit),
            None => self.fail("not an escape of JSON"),
        }
    }
}
