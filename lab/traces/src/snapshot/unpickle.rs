//! Reads pickles of protocol 2 to 5 that hold plain data, and nothing else.
//!
//! A stack machine whose opcodes build dicts, lists, tuples, texts and numbers. Nothing is looked up, called or made: opcodes that would are refused
//! by name, or kept as records on request (`inert`). The cost of an opcode is bounded by its own bytes, so a file of n bytes takes time and memory in
//! proportion to n, whatever lengths it claims.

mod inert;

use std::collections::HashMap;
use std::io::Read;

use super::opcodes as op;
use super::parse_error::{ParseError, Result};
use super::source::Source;
use super::value::{Document, Value};

/// Reads a pickle to its end, which must be the file's.
pub(super) fn read<R: Read>(source: &mut Source<R>) -> Result<Document> {
    let document = run(Machine::new(source))?;
    at_end(source).map(|()| document)
}

fn at_end<R: Read>(source: &mut Source<R>) -> Result<()> {
    let end = source.offset();
    match source.peek()? {
        None => Ok(()),
        Some(_) => Err(ParseError::new(end, "the pickle ends here, but the file goes on")),
    }
}

/// Reads a pickle that other bytes follow.
pub(super) fn read_first<R: Read>(source: &mut Source<R>) -> Result<Document> {
    run(Machine::new(source))
}

/// Reads a pickle with objects of classes as dicts: what would be called and its arguments. Nothing is called.
pub(super) fn read_inert<R: Read>(source: &mut Source<R>) -> Result<Document> {
    let document = run(Machine { inert: true, ..Machine::new(source) })?;
    at_end(source).map(|()| document)
}

fn run<R: Read>(mut machine: Machine<'_, R>) -> Result<Document> {
    machine.protocol()?;
    while machine.step()? {}
    machine.finish()
}

struct Machine<'a, R> {
    source: &'a mut Source<R>,
    document: Document,
    stack: Vec<Value>,
    /// Height of the stack at each mark.
    marks: Vec<usize>,
    memo: Vec<Value>,
    /// Entries of the memo with numbers far beyond those before: a large number costs no memory.
    far: HashMap<u32, Value>,
    /// End of the frame.
    frame_end: u64,
    /// Offset of the opcode.
    at: u64,
    /// True if objects are kept as records.
    inert: bool,
}

/// Absent entry of the memo.
const ABSENT: Value = Value::NO_VALUE;

impl<'a, R: Read> Machine<'a, R> {
    fn new(source: &'a mut Source<R>) -> Self {
        Self {
            source,
            document: Document::default(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            far: HashMap::new(),
            frame_end: 0,
            at: 0,
            inert: false,
        }
    }

    fn protocol(&mut self) -> Result<()> {
        match self.source.array("the head of a pickle")? {
            [op::PROTO, 2..=5] => Ok(()),
            [op::PROTO, other] => Err(ParseError::new(1, format!("pickle protocol {other}; 2 to 5 are read"))),
            _ => Err(ParseError::new(0, "neither a pickle of protocol 2 to 5 nor JSON")),
        }
    }

    fn fail<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(ParseError::new(self.at, problem))
    }

    /// Runs one opcode; returns whether there are more.
    #[inline]
    fn step(&mut self) -> Result<bool> {
        self.at = self.source.offset();
        match self.source.byte("an opcode")? {
            op::BINGET => {
                let number = u32::from(self.source.byte("BINGET")?);
                self.get(number)?;
            }
            op::LONG_BINGET => {
                let number = u32::from_le_bytes(self.source.array("LONG_BINGET")?);
                self.get(number)?;
            }
            op::BININT => {
                let number = i32::from_le_bytes(self.source.array("BININT")?);
                self.stack.push(Value::small(i64::from(number)));
            }
            op::BININT1 => {
                let number = self.source.byte("BININT1")?;
                self.stack.push(Value::small(i64::from(number)));
            }
            op::BININT2 => {
                let number = u16::from_le_bytes(self.source.array("BININT2")?);
                self.stack.push(Value::small(i64::from(number)));
            }
            op::LONG1 => self.long1()?,
            op::MEMOIZE => {
                let top = self.top()?;
                self.memo.push(top);
            }
            op::EMPTY_DICT => {
                let dict = self.document.new_dict(self.at)?;
                self.stack.push(dict);
            }
            op::MARK => self.marks.push(self.stack.len()),
            op::SETITEMS => self.set_items()?,
            op::STOP => return Ok(false),
            other => self.rare(other)?,
        }
        Ok(true)
    }

    /// Runs an opcode that is rare in most files.
    fn rare(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            op::BINPUT => {
                let number = u32::from(self.source.byte("BINPUT")?);
                self.put(number)?;
            }
            op::LONG_BINPUT => {
                let number = u32::from_le_bytes(self.source.array("LONG_BINPUT")?);
                self.put(number)?;
            }
            op::SHORT_BINUNICODE => {
                let length = usize::from(self.source.byte("SHORT_BINUNICODE")?);
                self.text(length)?;
            }
            op::BINUNICODE => {
                let length = u32::from_le_bytes(self.source.array("BINUNICODE")?);
                self.text(length as usize)?;
            }
            op::BINUNICODE8 => {
                let length = u64::from_le_bytes(self.source.array("BINUNICODE8")?);
                self.text(usize::try_from(length).unwrap_or(usize::MAX))?;
            }
            op::LONG4 => self.long4()?,
            op::BINFLOAT => {
                let number = f64::from_be_bytes(self.source.array("BINFLOAT")?);
                let value = self.document.float(number);
                self.stack.push(value);
            }
            op::NONE => self.stack.push(Value::NONE),
            op::NEWTRUE => self.stack.push(Value::bool(true)),
            op::NEWFALSE => self.stack.push(Value::bool(false)),
            op::EMPTY_LIST => {
                let list = self.document.new_list(self.at)?;
                self.stack.push(list);
            }
            op::EMPTY_TUPLE => self.tuple(self.stack.len())?,
            op::TUPLE1 => self.tuple_of(1)?,
            op::TUPLE2 => self.tuple_of(2)?,
            op::TUPLE3 => self.tuple_of(3)?,
            op::TUPLE => {
                let mark = self.mark()?;
                self.tuple(mark)?;
            }
            op::APPEND => {
                let from = self.below(1)?;
                self.append(from)?;
            }
            op::APPENDS => {
                let mark = self.mark()?;
                self.append(mark)?;
            }
            op::SETITEM => {
                let from = self.below(2)?;
                self.set(from)?;
            }
            op::LIST | op::DICT => self.collect(opcode)?,
            op::FRAME => self.frame()?,
            op::PROTO => return self.fail("PROTO stands only at the beginning"),
            other if self.inert => self.object(other)?,
            other => return self.fail(op::refusal(other)),
        }
        Ok(())
    }

    /// Removes the last mark; returns the height of the stack there.
    fn mark(&mut self) -> Result<usize> {
        match self.marks.pop() {
            Some(mark) => Ok(mark),
            None => self.fail("there is no mark to go back to"),
        }
    }

    /// Returns the height of the stack below its last values, all of which must stand above the last mark.
    fn below(&self, values: usize) -> Result<usize> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len().checked_sub(values) {
            Some(below) if below >= floor => Ok(below),
            _ => self.fail(format!("needs {values} values on the stack")),
        }
    }

    fn top(&self) -> Result<Value> {
        let below = self.below(1)?;
        Ok(self.stack[below])
    }

    /// Returns the value right below a position of the stack, to be added to.
    fn under(&self, place: usize) -> Result<Value> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match place.checked_sub(1) {
            Some(at) if at >= floor => Ok(self.stack[at]),
            _ => self.fail("there is nothing to add to"),
        }
    }

    #[inline]
    fn get(&mut self, number: u32) -> Result<()> {
        let known = self.memo.get(number as usize).copied().filter(|value| *value != ABSENT);
        match known.or_else(|| self.far.get(&number).copied()) {
            Some(value) => self.stack.push(value),
            None => return self.fail(format!("entry {number} of the memo was never put there")),
        }
        Ok(())
    }

    fn put(&mut self, number: u32) -> Result<()> {
        let top = self.top()?;
        let place = number as usize;
        if place < self.memo.len() {
            self.memo[place] = top;
        } else if place <= self.memo.len() * 2 + 256 {
            self.memo.resize(place, ABSENT);
            self.memo.push(top);
        } else {
            self.far.insert(number, top);
        }
        Ok(())
    }

    fn text(&mut self, length: usize) -> Result<()> {
        let at = self.at;
        let bytes = self.source.take(length, "a text")?;
        let text = std::str::from_utf8(bytes).map_err(|error| {
            ParseError::new(at, format!("a text is not UTF-8 after its first {} bytes", error.valid_up_to()))
        })?;
        let value = self.document.text(text);
        self.stack.push(value);
        Ok(())
    }

    #[inline]
    fn long1(&mut self) -> Result<()> {
        let length = usize::from(self.source.byte("LONG1")?);
        if length <= 7 {
            let mut bytes = [0; 8];
            let given = self.source.take(length, "LONG1")?;
            bytes[8 - length..].copy_from_slice(given);
            // The arithmetic shift extends the sign.
            let number = if length == 0 { 0 } else { i64::from_le_bytes(bytes) >> (64 - 8 * length) };
            let value = self.document.int(i128::from(number));
            self.stack.push(value);
            return Ok(());
        }
        self.long(length)
    }

    fn long4(&mut self) -> Result<()> {
        match usize::try_from(i32::from_le_bytes(self.source.array("LONG4")?)) {
            Ok(length) => self.long(length),
            Err(_) => self.fail("LONG4 of a negative length"),
        }
    }

    fn long(&mut self, length: usize) -> Result<()> {
        if length > 16 {
            return self.fail(format!("a whole number of {length} bytes; at most 16 are read"));
        }
        let given = self.source.take(length, "a whole number")?;
        let negative = given.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut bytes = [if negative { 0xff } else { 0 }; 16];
        bytes[..length].copy_from_slice(given);
        let value = self.document.int(i128::from_le_bytes(bytes));
        self.stack.push(value);
        Ok(())
    }

    fn tuple_of(&mut self, values: usize) -> Result<()> {
        let from = self.below(values)?;
        self.tuple(from)
    }

    fn tuple(&mut self, from: usize) -> Result<()> {
        let tuple = self.document.tuple(&self.stack[from..]);
        self.stack.truncate(from);
        self.stack.push(tuple);
        Ok(())
    }

    fn append(&mut self, from: usize) -> Result<()> {
        let under = self.under(from)?;
        let Some(list) = under.as_list() else {
            return self.fail(format!("appends to {}", self.document.name(under)));
        };
        self.document.items_mut(list).extend_from_slice(&self.stack[from..]);
        self.stack.truncate(from);
        Ok(())
    }

    fn set_items(&mut self) -> Result<()> {
        let mark = self.mark()?;
        self.set(mark)
    }

    fn set(&mut self, from: usize) -> Result<()> {
        let under = self.under(from)?;
        let Some(dict) = under.as_dict() else {
            return self.fail(format!("sets items of {}", self.document.name(under)));
        };
        let items = &self.stack[from..];
        if !items.len().is_multiple_of(2) {
            return self.fail("a key without a value");
        }
        self.document.set(dict, items, self.at)?;
        self.stack.truncate(from);
        Ok(())
    }

    /// Builds a list or a dict of everything above the mark.
    fn collect(&mut self, opcode: u8) -> Result<()> {
        let mark = self.mark()?;
        let items = self.stack.split_off(mark);
        let value =
            if opcode == op::LIST { self.document.new_list(self.at)? } else { self.document.new_dict(self.at)? };
        self.stack.push(value);
        self.stack.extend(items);
        if opcode == op::LIST { self.append(mark + 1) } else { self.set(mark + 1) }
    }

    fn frame(&mut self) -> Result<()> {
        let length = u64::from_le_bytes(self.source.array("FRAME")?);
        let from = self.source.offset();
        if self.at < self.frame_end {
            return self.fail("a frame within a frame");
        }
        match from.checked_add(length) {
            Some(end) => self.frame_end = end,
            None => return self.fail(format!("a frame of {length} bytes")),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Document> {
        let end = self.source.offset();
        if end < self.frame_end {
            let missing = self.frame_end - end;
            return self.fail(format!("the pickle ends {missing} bytes before the end of its frame"));
        }
        match self.stack.as_slice() {
            [root] if self.marks.is_empty() => self.document.root = *root,
            other => return self.fail(format!("the pickle ends with {} values on the stack", other.len())),
        }
        Ok(self.document)
    }
}
