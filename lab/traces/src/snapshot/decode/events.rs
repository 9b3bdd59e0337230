//! Decodes the entries of a trace.
//!
//! Entries come in few shapes: the position of each key is found once per shape.

use rustc_hash::FxHashMap;

use super::stacks::Stacks;
use crate::snapshot::model::{Action, Frame, FrameId, PoolId, StreamId, TraceEvent};
use crate::snapshot::parse_error::{ParseError, Result};
use crate::snapshot::value::{Document, Kind, TextId, Value};

/// Keys of an entry, as [`Places`] numbers them.
const KEYS: [&str; 11] = [
    "action",
    "addr",
    "size",
    "stream",
    "time_us",
    "frames",
    "compile_context",
    "user_metadata",
    "pool_id",
    "category",
    "device_free",
];
const ACTION: usize = 0;
const ADDR: usize = 1;
const SIZE: usize = 2;
const STREAM: usize = 3;
const TIME: usize = 4;
const FRAMES: usize = 5;
const CONTEXT: usize = 6;
const METADATA: usize = 7;
const POOL: usize = 8;
const CATEGORY: usize = 9;
const DEVICE_FREE: usize = 10;

/// Position of each key's value among the fields.
type Places = [Option<u32>; KEYS.len()];

pub(super) struct Reader<'a> {
    document: &'a Document,
    pub(super) stacks: Stacks,
    keys: [Option<Value>; KEYS.len()],
    actions: [(Option<TextId>, Action); Action::ALL.len()],
    /// Shape looked up last.
    last: (u32, Places),
    places: FxHashMap<u32, Places>,
    streams: Vec<u64>,
    pools: Vec<(u64, u64)>,
    known_streams: FxHashMap<u64, StreamId>,
    known_pools: FxHashMap<(u64, u64), PoolId>,
    /// The empty text.
    empty: TextId,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(document: &'a Document) -> Self {
        let find = |text: &str| document.texts.find(text);
        Self {
            document,
            stacks: Stacks::new(document),
            keys: KEYS.map(|key| find(key).map(Value::text)),
            actions: Action::ALL.map(|action| (find(action.name()), action)),
            last: (u32::MAX, Places::default()),
            places: FxHashMap::default(),
            streams: vec![0],
            pools: vec![(0, 0)],
            known_streams: [(0, StreamId(0))].into_iter().collect(),
            known_pools: [((0, 0), PoolId(0))].into_iter().collect(),
            empty: find("").unwrap_or(TextId(u32::MAX)),
        }
    }

    /// Returns frames, stacks, streams and pools.
    #[expect(clippy::type_complexity, reason = "four lists that go to one place")]
    pub(super) fn finish(self) -> (Vec<Frame>, Vec<Box<[FrameId]>>, Vec<u64>, Vec<(u64, u64)>) {
        let (frames, stacks) = self.stacks.finish();
        (frames, stacks, self.streams, self.pools)
    }

    pub(super) fn event(&mut self, value: Value) -> Result<TraceEvent> {
        let document = self.document;
        let Some(dict) = value.as_dict() else {
            let problem = format!("an entry of a trace is {}, not a dict", document.name(value));
            return Err(ParseError::new(document.offset(value), problem));
        };
        match document.shaped(dict) {
            Some((shape, fields)) => {
                if self.last.0 != shape {
                    self.last = (shape, self.places(shape, dict));
                }
                let places = self.last.1;
                self.read(value, |key| places[key].map(|place| fields[place as usize]))
            }
            None => {
                let keys = self.keys;
                let field = |key: usize| document.entries(dict).find(|(name, _)| Some(*name) == keys[key]);
                self.read(value, |key| field(key).map(|(_, value)| value))
            }
        }
    }

    fn places(&mut self, shape: u32, dict: u32) -> Places {
        let (document, keys) = (self.document, self.keys);
        let find = |key: Option<Value>| {
            let mut entries = document.entries(dict);
            key.and_then(|key| entries.position(|(name, _)| name == key)).map(|place| place as u32)
        };
        *self.places.entry(shape).or_insert_with(|| keys.map(find))
    }

    #[inline]
    fn read(&mut self, event: Value, field: impl Fn(usize) -> Option<Value>) -> Result<TraceEvent> {
        let Some(name) = field(ACTION).and_then(Value::as_text) else {
            return Err(ParseError::new(self.document.offset(event), "an entry of a trace without action"));
        };
        let known = self.actions.iter().find(|(text, _)| *text == Some(name));
        let action = known.map_or(Action::Other, |(_, action)| *action);
        let natural = |this: &Self, key: usize| match field(key) {
            Some(value) => this.natural(event, KEYS[key], value),
            None => Ok(0),
        };
        let address = natural(self, if action == Action::Oom { DEVICE_FREE } else { ADDR })?;
        let bytes = natural(self, SIZE)?;
        let stream = natural(self, STREAM)?;
        let text = |key: usize| field(key).and_then(Value::as_text).unwrap_or(self.empty);
        let (metadata, context, category) = (text(METADATA), text(CONTEXT), text(CATEGORY));
        Ok(TraceEvent {
            action,
            address,
            bytes,
            time_us: field(TIME).and_then(Value::as_small).unwrap_or(0),
            stream: self.stream(stream),
            stack: self.stacks.intern(self.document, field(FRAMES))?,
            metadata,
            context,
            category,
            pool: self.pool(field(POOL)),
        })
    }

    /// Reads a whole number from 0 to 2^64. Negative numbers of 64 bits are addresses that a program took for signed.
    #[inline]
    pub(super) fn natural(&self, owner: Value, key: &str, value: Value) -> Result<u64> {
        if let Some(small) = value.as_small()
            && small >= 0
        {
            return Ok(small as u64);
        }
        match self.document.kind(value) {
            Kind::Int(number) if (0..=i128::from(u64::MAX)).contains(&number) => Ok(number as u64),
            Kind::Int(number) => Err(ParseError::new(
                self.document.offset(owner),
                format!("{key} is {number}, beyond 64 bits or negative"),
            )),
            _ => {
                let problem = format!("{key} is {}, not a whole number", self.document.name(value));
                Err(ParseError::new(self.document.offset(owner), problem))
            }
        }
    }

    #[inline]
    pub(super) fn stream(&mut self, stream: u64) -> StreamId {
        if stream == 0 {
            return StreamId(0);
        }
        let next = StreamId(self.streams.len() as u32);
        let id = *self.known_streams.entry(stream).or_insert(next);
        if id == next {
            self.streams.push(stream);
        }
        id
    }

    pub(super) fn pool(&mut self, value: Option<Value>) -> PoolId {
        let document = self.document;
        let items = match value.map(|value| document.kind(value)) {
            Some(Kind::Tuple(tuple)) => document.tuple_items(tuple),
            Some(Kind::List(list)) => document.items(list),
            _ => return PoolId(0),
        };
        let natural = |value: &Value| value.as_small().and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        let pool = match items {
            [a, b] => (natural(a), natural(b)),
            _ => (0, 0),
        };
        if pool == (0, 0) {
            return PoolId(0);
        }
        let next = PoolId(self.pools.len() as u32);
        let id = *self.known_pools.entry(pool).or_insert(next);
        if id == next {
            self.pools.push(pool);
        }
        id
    }
}
