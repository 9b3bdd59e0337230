//! Contents of a snapshot's file before decoding: Python's plain data.
//!
//! A file of a million events has millions of values and few different texts, keys and stacks. A [`Value`] is therefore eight bytes, texts are kept
//! once, a dict is the number of its *shape* (its keys, in order) and a run of fields in one list of all fields, and what the file shares stays
//! shared. Everything in a file is here, known or not: converting goes from document to document and loses nothing.

use std::collections::HashMap;
use std::sync::Arc;

use super::parse_error::{ParseError, Result};

/// Largest whole number that a value holds itself.
const INLINE: i128 = 1 << 60;

/// A value of a [`Document`]: itself if small, otherwise the number of an item in the document.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Value(u64);

/// Type and contents of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `None`
    None,
    /// `True`, `False`
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A number.
    Float(f64),
    /// A text.
    Text(TextId),
    /// A tuple, by number.
    Tuple(u32),
    /// A list, by number.
    List(u32),
    /// A dict, by number.
    Dict(u32),
}

/// A text, kept once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Default)]
pub struct TextId(pub u32);

const CONSTANT: u64 = 0;
const INT: u64 = 1;
const LARGE: u64 = 2;
const FLOAT: u64 = 3;
const TEXT: u64 = 4;
const TUPLE: u64 = 5;
const LIST: u64 = 6;
const DICT: u64 = 7;

impl Value {
    /// `None`
    pub const NONE: Value = Value(CONSTANT);

    /// Marks the absence of a value: no constant has this number.
    pub(super) const NO_VALUE: Value = Value(u64::MAX << 3);

    /// `True` or `False`
    pub fn bool(value: bool) -> Self {
        Self((1 + u64::from(value)) << 3)
    }

    /// A small whole number: any of 32 bits is small.
    #[inline]
    pub fn small(value: i64) -> Self {
        Self(((value << 3) as u64) | INT)
    }

    /// A text.
    #[inline]
    pub fn text(id: TextId) -> Self {
        Self::new(TEXT, id.0)
    }

    #[inline]
    fn new(tag: u64, index: u32) -> Self {
        Self(u64::from(index) << 3 | tag)
    }

    #[inline]
    fn tag(self) -> u64 {
        self.0 & 7
    }

    #[inline]
    fn index(self) -> u32 {
        (self.0 >> 3) as u32
    }

    /// True if it has parts.
    #[inline]
    pub(super) fn is_container(self) -> bool {
        self.tag() >= TUPLE
    }

    /// Returns the number of the dict.
    #[inline]
    pub(super) fn as_dict(self) -> Option<u32> {
        (self.tag() == DICT).then(|| self.index())
    }

    /// Returns the number of the list.
    #[inline]
    pub(super) fn as_list(self) -> Option<u32> {
        (self.tag() == LIST).then(|| self.index())
    }

    /// Returns the number of the text.
    #[inline]
    pub(super) fn as_text(self) -> Option<TextId> {
        (self.tag() == TEXT).then(|| TextId(self.index()))
    }

    /// Returns the number, if it is a small whole one.
    #[inline]
    pub(super) fn as_small(self) -> Option<i64> {
        (self.tag() == INT).then_some((self.0 as i64) >> 3)
    }
}

/// Texts, each kept once. The hash is keyed at random: a file cannot choose texts that collide.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    texts: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, u32>,
}

impl Texts {
    /// Returns the number of a text, adding the text if it is new.
    pub fn intern(&mut self, text: &str) -> TextId {
        if let Some(&id) = self.ids.get(text) {
            return TextId(id);
        }
        let (id, text): (u32, Arc<str>) = (self.texts.len() as u32, text.into());
        self.texts.push(text.clone());
        self.ids.insert(text, id);
        TextId(id)
    }

    /// Returns the number of a text that exists.
    pub fn find(&self, text: &str) -> Option<TextId> {
        self.ids.get(text).copied().map(TextId)
    }

    /// Cuts each text after `most` bytes; "…" marks the place.
    pub(super) fn shorten(&mut self, most: usize) {
        for (id, text) in self.texts.iter_mut().enumerate().filter(|(_, text)| text.len() > most) {
            self.ids.remove(text);
            *text = format!("{}…", &text[..text.floor_char_boundary(most)]).into();
            // The first of two that are the same now keeps its number in both directions.
            self.ids.entry(text.clone()).or_insert(id as u32);
        }
    }

    /// Returns a text; `""` for a number from elsewhere.
    pub fn get(&self, id: TextId) -> &str {
        self.texts.get(id.0 as usize).map_or("", |text| text)
    }
}

#[derive(Clone, Debug)]
struct List {
    items: Vec<Value>,
    offset: u32,
}

/// A dict: a run of `fields`, one per key of its shape; or, if it was built from pieces, one of `wide`.
#[derive(Clone, Copy, Debug)]
struct Dict {
    shape: u32,
    start: u32,
    offset: u32,
}

#[derive(Clone, Debug, Default)]
struct Wide {
    items: Vec<(Value, Value)>,
    places: HashMap<Value, usize>,
}

/// Shape of dicts in `wide`.
const WIDE: u32 = u32::MAX;
/// Shape without keys.
const EMPTY: u32 = 0;

/// Python's plain data: see the head of this file.
#[derive(Clone, Debug)]
pub struct Document {
    /// All texts.
    pub texts: Texts,
    large: Vec<i128>,
    floats: Vec<f64>,
    tuples: Vec<Box<[Value]>>,
    known_tuples: HashMap<Box<[Value]>, u32>,
    last_tuple: u32,
    lists: Vec<List>,
    dicts: Vec<Dict>,
    fields: Vec<Value>,
    wide: Vec<Wide>,
    shapes: Vec<Box<[Value]>>,
    known_shapes: HashMap<Box<[Value]>, u32>,
    /// The two shapes used last: most dicts have one of them.
    recent: [u32; 2],
    /// Root value.
    pub root: Value,
}

impl Default for Document {
    fn default() -> Self {
        Self {
            texts: Texts::default(),
            large: Vec::new(),
            floats: Vec::new(),
            tuples: Vec::new(),
            known_tuples: HashMap::new(),
            last_tuple: 0,
            lists: Vec::new(),
            dicts: Vec::new(),
            fields: Vec::new(),
            wide: Vec::new(),
            shapes: vec![Box::default()],
            known_shapes: HashMap::new(),
            recent: [EMPTY; 2],
            root: Value::NONE,
        }
    }
}

/// Returns a number for the next item of a kind.
fn number(length: usize, offset: u64) -> Result<u32> {
    u32::try_from(length).map_err(|_| ParseError::new(offset, "more values than 32 bits count"))
}

impl Document {
    /// Returns the type and contents of a value.
    pub fn kind(&self, value: Value) -> Kind {
        let index = value.index();
        match value.tag() {
            CONSTANT => match index {
                0 => Kind::None,
                other => Kind::Bool(other == 2),
            },
            INT => Kind::Int(i128::from((value.0 as i64) >> 3)),
            LARGE => Kind::Int(self.large.get(index as usize).copied().unwrap_or(0)),
            FLOAT => Kind::Float(self.floats.get(index as usize).copied().unwrap_or(0.0)),
            TEXT => Kind::Text(TextId(index)),
            TUPLE => Kind::Tuple(index),
            LIST => Kind::List(index),
            _ => Kind::Dict(index),
        }
    }

    /// Makes a whole number.
    pub fn int(&mut self, value: i128) -> Value {
        if (-INLINE..INLINE).contains(&value) {
            return Value::small(value as i64);
        }
        self.large.push(value);
        Value::new(LARGE, (self.large.len() - 1) as u32)
    }

    /// Makes a number.
    pub fn float(&mut self, value: f64) -> Value {
        self.floats.push(value);
        Value::new(FLOAT, (self.floats.len() - 1) as u32)
    }

    /// Makes a text.
    pub fn text(&mut self, text: &str) -> Value {
        Value::text(self.texts.intern(text))
    }

    /// Makes a tuple. Equal tuples are kept once, as they cannot change.
    pub fn tuple(&mut self, items: &[Value]) -> Value {
        if self.tuples.get(self.last_tuple as usize).is_some_and(|last| **last == *items) {
            return Value::new(TUPLE, self.last_tuple);
        }
        self.last_tuple = match self.known_tuples.get(items) {
            Some(&known) => known,
            None => {
                let new = self.tuples.len() as u32;
                self.tuples.push(items.into());
                self.known_tuples.insert(items.into(), new);
                new
            }
        };
        Value::new(TUPLE, self.last_tuple)
    }

    /// Makes an empty list that begins at a byte of the file.
    pub(super) fn new_list(&mut self, offset: u64) -> Result<Value> {
        let new = number(self.lists.len(), offset)?;
        self.lists.push(List { items: Vec::new(), offset: offset as u32 });
        Ok(Value::new(LIST, new))
    }

    /// Makes an empty dict that begins at a byte of the file.
    #[inline]
    pub(super) fn new_dict(&mut self, offset: u64) -> Result<Value> {
        let new = number(self.dicts.len(), offset)?;
        self.dicts.push(Dict { shape: EMPTY, start: 0, offset: offset as u32 });
        Ok(Value::new(DICT, new))
    }

    /// Makes a list.
    pub fn list(&mut self, items: Vec<Value>) -> Value {
        self.lists.push(List { items, offset: 0 });
        Value::new(LIST, (self.lists.len() - 1) as u32)
    }

    /// Makes a dict, in order.
    pub fn dict<'a>(&mut self, items: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
        let items: Vec<Value> = items.into_iter().flat_map(|(key, value)| [self.text(key), value]).collect();
        self.dicts.push(Dict { shape: EMPTY, start: 0, offset: 0 });
        let dict = (self.dicts.len() - 1) as u32;
        self.set_wide_or_shaped(dict, &items);
        Value::new(DICT, dict)
    }

    /// Returns the items of a list.
    #[inline]
    pub fn items(&self, list: u32) -> &[Value] {
        self.lists.get(list as usize).map_or(&[], |list| &list.items)
    }

    /// Returns the items of a list, to add to.
    #[inline]
    pub(super) fn items_mut(&mut self, list: u32) -> &mut Vec<Value> {
        &mut self.lists[list as usize].items
    }

    /// Returns the items of a tuple.
    pub fn tuple_items(&self, tuple: u32) -> &[Value] {
        self.tuples.get(tuple as usize).map_or(&[], |items| items)
    }

    /// Returns the numbers of tuples, lists and dicts.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (self.tuples.len(), self.lists.len(), self.dicts.len())
    }

    /// Returns the number of keys of a dict.
    pub fn len(&self, dict: u32) -> usize {
        let Dict { shape, start, .. } = self.dicts[dict as usize];
        if shape == WIDE { self.wide[start as usize].items.len() } else { self.shapes[shape as usize].len() }
    }

    /// Returns the key and the value at a position of a dict.
    pub fn entry(&self, dict: u32, place: usize) -> (Value, Value) {
        let Dict { shape, start, .. } = self.dicts[dict as usize];
        if shape == WIDE {
            return self.wide[start as usize].items[place];
        }
        (self.shapes[shape as usize][place], self.fields[start as usize + place])
    }

    /// Returns the keys and values of a dict, in order.
    pub fn entries(&self, dict: u32) -> impl Iterator<Item = (Value, Value)> + '_ {
        (0..self.len(dict)).map(move |place| self.entry(dict, place))
    }

    /// Returns the value of a key.
    pub fn get(&self, dict: u32, key: &str) -> Option<Value> {
        let key = Value::text(self.texts.find(key)?);
        self.entries(dict).find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Returns the shape and the fields of a dict that has both: dicts of one shape have their keys at the same positions.
    #[inline]
    pub(super) fn shaped(&self, dict: u32) -> Option<(u32, &[Value])> {
        let Dict { shape, start, .. } = self.dicts[dict as usize];
        let keys = self.shapes.get(shape as usize)?;
        Some((shape, &self.fields[start as usize..start as usize + keys.len()]))
    }

    /// Returns the byte at which a container begins; 0 for anything else.
    pub(super) fn offset(&self, value: Value) -> u64 {
        let index = value.index() as usize;
        match value.tag() {
            LIST => self.lists.get(index).map_or(0, |list| u64::from(list.offset)),
            DICT => self.dicts.get(index).map_or(0, |dict| u64::from(dict.offset)),
            _ => 0,
        }
    }

    /// Sets keys and values, given alternately, in a dict; an existing key gets the new value.
    #[inline]
    pub(super) fn set(&mut self, dict: u32, items: &[Value], offset: u64) -> Result<()> {
        if self.dicts[dict as usize].shape == EMPTY {
            for shape in self.recent {
                let keys = &self.shapes[shape as usize];
                if keys.len() * 2 == items.len()
                    && keys.iter().zip(items.chunks_exact(2)).all(|(k, item)| *k == item[0])
                {
                    return self.place(dict, shape, items, offset);
                }
            }
        }
        if let Some(key) = items.iter().step_by(2).find(|key| key.tag() != TEXT) {
            let problem = format!("a key that is not text but {}", self.name(*key));
            return Err(ParseError::new(offset, problem));
        }
        number(self.fields.len() + items.len(), offset)?;
        self.set_wide_or_shaped(dict, items);
        Ok(())
    }

    fn place(&mut self, dict: u32, shape: u32, items: &[Value], offset: u64) -> Result<()> {
        let start = number(self.fields.len(), offset)?;
        self.fields.extend(items.iter().skip(1).step_by(2));
        let dict = &mut self.dicts[dict as usize];
        (dict.shape, dict.start) = (shape, start);
        Ok(())
    }

    #[cold]
    fn set_wide_or_shaped(&mut self, dict: u32, items: &[Value]) {
        let keys: Box<[Value]> = items.iter().step_by(2).copied().collect();
        let empty = self.dicts[dict as usize].shape == EMPTY;
        if empty && let Some(shape) = self.shape(keys) {
            let start = self.fields.len() as u32;
            self.fields.extend(items.iter().skip(1).step_by(2));
            let dict = &mut self.dicts[dict as usize];
            (dict.shape, dict.start) = (shape, start);
            return;
        }
        let wide = self.widen(dict);
        for item in items.chunks_exact(2) {
            let next = wide.items.len();
            match *wide.places.entry(item[0]).or_insert(next) {
                place if place < next => wide.items[place].1 = item[1],
                _ => wide.items.push((item[0], item[1])),
            }
        }
    }

    /// Returns the number of a shape; `None` if a key occurs twice.
    fn shape(&mut self, keys: Box<[Value]>) -> Option<u32> {
        let shape = match self.known_shapes.get(&keys) {
            Some(&known) => known,
            None => {
                let mut sorted: Vec<u64> = keys.iter().map(|key| key.0).collect();
                sorted.sort_unstable();
                if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
                    return None;
                }
                let new = self.shapes.len() as u32;
                self.shapes.push(keys.clone());
                self.known_shapes.insert(keys, new);
                new
            }
        };
        self.recent = [shape, self.recent[0]];
        Some(shape)
    }

    /// Turns a dict into one built from pieces.
    fn widen(&mut self, dict: u32) -> &mut Wide {
        let index = dict as usize;
        if self.dicts[index].shape != WIDE {
            let mut wide = Wide::default();
            for (key, value) in self.entries(dict) {
                wide.places.insert(key, wide.items.len());
                wide.items.push((key, value));
            }
            self.wide.push(wide);
            (self.dicts[index].shape, self.dicts[index].start) = (WIDE, (self.wide.len() - 1) as u32);
        }
        &mut self.wide[self.dicts[index].start as usize]
    }

    /// Returns the name of a value's type, for messages.
    pub(super) fn name(&self, value: Value) -> &'static str {
        match self.kind(value) {
            Kind::None => "None",
            Kind::Bool(_) => "a bool",
            Kind::Int(_) => "a whole number",
            Kind::Float(_) => "a number with a fraction",
            Kind::Text(_) => "a text",
            Kind::Tuple(_) => "a tuple",
            Kind::List(_) => "a list",
            Kind::Dict(_) => "a dict",
        }
    }
}
