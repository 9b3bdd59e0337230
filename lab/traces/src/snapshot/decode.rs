//! Decodes a document into a snapshot.

mod events;
mod stacks;

use std::collections::HashSet;

use memcore::memory::BlockState;

use self::events::Reader;
use super::model::{AllocatorSettings, Annotation, Block, Segment, Snapshot};
use super::parse_error::{ParseError, Result};
use super::release::{Keys, Releases};
use super::sound;
use super::value::{Document, Kind, TextId, Value};

/// Limit on devices: more than any machine has.
const MAX_DEVICES: u32 = 1024;

/// Bytes kept of a text, such as a frame's name. What is shown of a snapshot so stays in proportion to its entries, whatever a name holds.
const MAX_TEXT_BYTES: usize = 4096;

/// Decodes a document.
pub(super) fn decode(document: Document) -> Result<Snapshot> {
    let mut snapshot = without_texts(&document)?;
    snapshot.texts = document.texts;
    snapshot.texts.shorten(MAX_TEXT_BYTES);
    Ok(snapshot)
}

/// Decodes a document, without its texts.
pub(super) fn without_texts(document: &Document) -> Result<Snapshot> {
    sound::check(document)?;
    let mut decoder = Decoder { reader: Reader::new(document), document, used: HashSet::new() };
    let mut snapshot = Snapshot::default();
    match document.kind(document.root) {
        // `torch.cuda.memory_snapshot()` alone.
        Kind::List(_) => snapshot.segments = decoder.segments(document.root)?,
        Kind::Dict(root) => decoder.root(root, &mut snapshot)?,
        _ => return Err(ParseError::new(0, "not a snapshot: neither a dict nor a list of segments")),
    }
    (snapshot.frames, snapshot.stacks, snapshot.streams, snapshot.pools) = decoder.reader.finish();
    Ok(snapshot)
}

struct Decoder<'a> {
    document: &'a Document,
    reader: Reader<'a>,
    /// Lists that were decoded: a list that a file shares a thousand times is decoded once.
    used: HashSet<u32>,
}

impl<'a> Decoder<'a> {
    fn root(&mut self, root: u32, snapshot: &mut Snapshot) -> Result<()> {
        let document = self.document;
        let (segments, traces) = (document.get(root, "segments"), document.get(root, "device_traces"));
        if segments.is_none() && traces.is_none() {
            return Err(ParseError::new(document.offset(document.root), "not a snapshot: it has no segments"));
        }
        // Some keep the traces alone.
        snapshot.segments = match segments.map_or_else(|| Ok(Vec::new()), |segments| self.segments(segments)) {
            Err(problem) if self.first_event(root).is_some() => {
                snapshot.unread_segments = Some(problem.in_words());
                Vec::new()
            }
            segments => segments?,
        };
        if let Some(traces) = traces {
            for trace in self.items(traces, "device_traces")? {
                let events = self.once(*trace, "a trace")?;
                let events: Result<Vec<_>> = events.iter().map(|event| self.reader.event(*event)).collect();
                snapshot.traces.push(events?);
            }
        }
        if let Some(annotations) = document.get(root, "external_annotations") {
            for annotation in self.items(annotations, "external_annotations")? {
                snapshot.annotations.extend(self.annotation(*annotation)?);
            }
        }
        if let Some(settings) = document.get(root, "allocator_settings").and_then(Value::as_dict) {
            snapshot.settings = Some(self.settings(settings)?);
        }
        snapshot.newer = ["host_segments", "host_traces"].iter().any(|key| document.get(root, key).is_some());
        let settings = document.get(root, "allocator_settings").and_then(Value::as_dict);
        let knows = |key: &str| settings.is_some_and(|settings| document.get(settings, key).is_some());
        snapshot.releases = Releases::of_keys(&Keys {
            host: snapshot.newer,
            settings: &knows,
            alloc_conf: snapshot.settings.as_ref().map_or("", |settings| &settings.alloc_conf),
            expandable: segments
                .and_then(|segments| self.first(segments))
                .is_some_and(|segment| document.get(segment, "is_expandable").is_some()),
            time: self.first_event(root).map(|event| document.get(event, "time_us").is_some()),
        });
        snapshot.of_2_12 = self.is_of_2_12(root);
        Ok(())
    }

    fn is_of_2_12(&self, root: u32) -> bool {
        let document = self.document;
        let has = |dict: Option<u32>, key| dict.is_some_and(|dict| document.get(dict, key).is_some());
        let event = self.first_event(root);
        let settings = document.get(root, "allocator_settings").and_then(Value::as_dict);
        has(event, "pool_id") && settings.is_some() && !has(settings, "max_round_threshold")
    }

    /// Returns the first dict of a list.
    fn first(&self, value: Value) -> Option<u32> {
        self.document.items(value.as_list()?).first().and_then(|item| item.as_dict())
    }

    /// Returns the first entry of the first trace that has one.
    fn first_event(&self, root: u32) -> Option<u32> {
        let traces = self.document.get(root, "device_traces").and_then(|traces| traces.as_list())?;
        self.document.items(traces).iter().find_map(|trace| self.first(*trace))
    }

    fn fail<T>(&self, value: Value, problem: impl Into<String>) -> Result<T> {
        Err(ParseError::new(self.document.offset(value), problem))
    }

    fn items(&self, value: Value, what: &str) -> Result<&'a [Value]> {
        match self.document.kind(value) {
            Kind::List(list) => Ok(self.document.items(list)),
            Kind::Tuple(tuple) => Ok(self.document.tuple_items(tuple)),
            _ => self.fail(value, format!("{what} is {}, not a list", self.document.name(value))),
        }
    }

    /// Returns the items of a list that may not occur twice.
    fn once(&mut self, value: Value, what: &str) -> Result<&'a [Value]> {
        let items = self.items(value, what)?;
        if let Some(list) = value.as_list().filter(|_| !items.is_empty())
            && !self.used.insert(list)
        {
            return self.fail(value, format!("{what} stands at two places"));
        }
        Ok(items)
    }

    fn dict(&self, value: Value, what: &str) -> Result<u32> {
        match value.as_dict() {
            Some(dict) => Ok(dict),
            None => self.fail(value, format!("{what} is {}, not a dict", self.document.name(value))),
        }
    }

    fn segments(&mut self, value: Value) -> Result<Vec<Segment>> {
        self.once(value, "segments")?.iter().map(|segment| self.segment(*segment)).collect()
    }

    fn segment(&mut self, value: Value) -> Result<Segment> {
        let document = self.document;
        let dict = self.dict(value, "a segment")?;
        let need = |key: &str| match document.get(dict, key) {
            Some(found) => Ok(found),
            None => self.fail(value, format!("a segment without {key}")),
        };
        let natural = |key: &str| self.reader.natural(value, key, need(key)?);
        let (address, bytes) = (natural("address")?, natural("total_size")?);
        let device = match document.get(dict, "device") {
            Some(device) => self.reader.natural(value, "device", device)?,
            None => 0,
        };
        let device = u32::try_from(device).ok().filter(|device| *device < MAX_DEVICES);
        let Some(device) = device else { return self.fail(value, format!("a segment of device {device:?}")) };
        let stream =
            document.get(dict, "stream").map_or(Ok(0), |stream| self.reader.natural(value, "stream", stream))?;
        let blocks = need("blocks")?;
        let text = |key: &str| document.get(dict, key).and_then(Value::as_text).map(|text| document.texts.get(text));
        let small = text("segment_type") == Some("small");
        let expandable = document.get(dict, "is_expandable") == Some(Value::bool(true));
        let pool = self.reader.pool(document.get(dict, "segment_pool_id"));
        let stream = self.reader.stream(stream);
        let stack = self.reader.stacks.intern(document, document.get(dict, "frames"))?;
        let blocks = self.blocks(blocks, address)?;
        let tiled = blocks.iter().try_fold(0u64, |sum, block| sum.checked_add(block.bytes));
        if tiled != Some(bytes) {
            let tiled = tiled.map_or("more than 64 bits count".into(), |sum| sum.to_string());
            return self.fail(value, format!("the blocks of a segment of {bytes} bytes take {tiled}"));
        }
        if address.checked_add(bytes).is_none() {
            return self.fail(value, "a segment beyond 64 bits");
        }
        Ok(Segment { device, address, bytes, stream, small, expandable, pool, stack, blocks })
    }

    fn blocks(&mut self, value: Value, mut address: u64) -> Result<Vec<Block>> {
        let document = self.document;
        let mut blocks = Vec::new();
        for item in self.once(value, "a list of blocks")? {
            let dict = self.dict(*item, "a block")?;
            let Some(size) = document.get(dict, "size") else { return self.fail(*item, "a block without size") };
            let bytes = self.reader.natural(*item, "size", size)?;
            let requested_bytes = match document.get(dict, "requested_size") {
                Some(requested) => self.reader.natural(*item, "requested_size", requested)?,
                None => bytes,
            };
            let state = document.get(dict, "state").and_then(Value::as_text);
            let state = match state.map(|text| document.texts.get(text)) {
                Some("active_allocated") => BlockState::ActiveAllocated,
                Some("active_pending_free" | "active_awaiting_free") => BlockState::ActivePendingFree,
                Some("inactive") => BlockState::Inactive,
                other => return self.fail(*item, format!("a block in state {:?}", other.unwrap_or("none"))),
            };
            let stack = self.reader.stacks.intern(document, document.get(dict, "frames"))?;
            // Blocks tile their segment in order; the viewer computes addresses in the same way.
            blocks.push(Block { address, bytes, requested_bytes, state, stack });
            address = match address.checked_add(bytes) {
                Some(next) => next,
                None => return self.fail(*item, "a block beyond 64 bits"),
            };
        }
        Ok(blocks)
    }

    /// Decodes an annotation that has a time and a name. Others are not decoded, but stay in the document.
    fn annotation(&self, value: Value) -> Result<Option<Annotation>> {
        let document = self.document;
        let dict = self.dict(value, "an annotation")?;
        let text = |key: &str| document.get(dict, key).and_then(Value::as_text);
        let number = |key: &str| document.get(dict, key).and_then(Value::as_small);
        let stage = text("stage").map(|stage: TextId| document.texts.get(stage));
        Ok(match (text("name"), stage, number("time_us")) {
            (Some(name), Some(stage @ ("START" | "END")), Some(time_us)) => Some(Annotation {
                name,
                start: stage == "START",
                device: number("device").and_then(|device| u32::try_from(device).ok()).unwrap_or(0),
                time_us,
            }),
            _ => None,
        })
    }

    fn settings(&self, dict: u32) -> Result<AllocatorSettings> {
        let document = self.document;
        let text = |key: &str| document.get(dict, key).and_then(Value::as_text).map(|text| document.texts.get(text));
        let alloc_conf = text("PYTORCH_CUDA_ALLOC_CONF").or_else(|| text("PYTORCH_ALLOC_CONF")).unwrap_or_default();
        let max_split = document.get(dict, "max_split_size").and_then(Value::as_small).unwrap_or(-1);
        let threshold = document.get(dict, "garbage_collection_threshold").map(|value| document.kind(value));
        let mut divisions = Vec::new();
        if let Some(steps) = document.get(dict, "roundup_power2_divisions").and_then(Value::as_dict) {
            for (key, value) in document.entries(steps) {
                let interval = key.as_text().and_then(|key| document.texts.get(key).parse::<u64>().ok());
                let steps = value.as_small().and_then(|steps| u64::try_from(steps).ok());
                divisions.extend(interval.zip(steps));
            }
        }
        Ok(AllocatorSettings {
            alloc_conf: alloc_conf.to_string(),
            max_split_bytes: u64::try_from(max_split).ok().filter(|bytes| *bytes < i64::MAX as u64 >> 4),
            garbage_collection_threshold: match threshold {
                Some(Kind::Float(threshold)) => threshold,
                Some(Kind::Int(threshold)) => threshold as f64,
                _ => 0.0,
            },
            expandable_segments: document.get(dict, "expandable_segments") == Some(Value::bool(true)),
            roundup_power2_divisions: divisions,
        })
    }
}
