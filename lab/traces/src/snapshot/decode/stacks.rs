//! Decodes stacks, keeping each once.

use std::collections::HashMap;

use crate::snapshot::model::{Frame, FrameId, StackId};
use crate::snapshot::parse_error::{ParseError, Result};
use crate::snapshot::value::{Document, Kind, TextId, Value};

/// Frames kept of a stack; deeper ones are cut. They have no use, and a file may repeat one frame a million times in five bytes each.
const MAX_STACK_DEPTH: usize = 4096;

const UNKNOWN: u32 = u32::MAX;

pub(super) struct Stacks {
    frames: Vec<Frame>,
    stacks: Vec<Box<[FrameId]>>,
    known_frames: HashMap<Frame, FrameId>,
    known_stacks: HashMap<Box<[FrameId]>, StackId>,
    /// Frame of each decoded dict, and stack of each decoded list.
    dicts: Vec<u32>,
    lists: Vec<u32>,
    empty: TextId,
}

impl Stacks {
    pub(crate) fn new(document: &Document) -> Self {
        let (_, lists, dicts) = document.counts();
        Self {
            frames: Vec::new(),
            stacks: vec![Box::default()],
            known_frames: HashMap::new(),
            known_stacks: [(Box::default(), StackId(0))].into(),
            dicts: vec![UNKNOWN; dicts],
            lists: vec![UNKNOWN; lists],
            empty: document.texts.find("").unwrap_or(TextId(u32::MAX)),
        }
    }

    pub(super) fn finish(self) -> (Vec<Frame>, Vec<Box<[FrameId]>>) {
        (self.frames, self.stacks)
    }

    /// Returns the stack of a list of frames.
    #[inline]
    pub(super) fn intern(&mut self, document: &Document, frames: Option<Value>) -> Result<StackId> {
        let Some(value) = frames else { return Ok(StackId(0)) };
        match value.as_list().and_then(|list| self.lists.get(list as usize)) {
            Some(&known) if known != UNKNOWN => Ok(StackId(known)),
            _ => self.make(document, value),
        }
    }

    #[cold]
    fn make(&mut self, document: &Document, value: Value) -> Result<StackId> {
        let items = match document.kind(value) {
            Kind::List(list) => document.items(list),
            Kind::Tuple(tuple) => document.tuple_items(tuple),
            Kind::None => &[],
            _ => {
                let problem = format!("frames is {}, not a list", document.name(value));
                return Err(ParseError::new(document.offset(value), problem));
            }
        };
        let frames: Result<Box<[FrameId]>> =
            items.iter().take(MAX_STACK_DEPTH).map(|frame| self.frame(document, *frame)).collect();
        let frames = frames?;
        let stack = match self.known_stacks.get(&frames) {
            Some(&known) => known,
            None => {
                let new = StackId(self.stacks.len() as u32);
                self.stacks.push(frames.clone());
                self.known_stacks.insert(frames, new);
                new
            }
        };
        if let Some(list) = value.as_list() {
            self.lists[list as usize] = stack.0;
        }
        Ok(stack)
    }

    fn frame(&mut self, document: &Document, value: Value) -> Result<FrameId> {
        let Some(dict) = value.as_dict() else {
            let problem = format!("a frame is {}, not a dict", document.name(value));
            return Err(ParseError::new(document.offset(value), problem));
        };
        if self.dicts[dict as usize] != UNKNOWN {
            return Ok(FrameId(self.dicts[dict as usize]));
        }
        let text = |key: &str| document.get(dict, key).and_then(Value::as_text).unwrap_or(self.empty);
        let line = document.get(dict, "line").and_then(Value::as_small).unwrap_or(0);
        let frame = Frame { filename: text("filename"), line, name: text("name") };
        let next = FrameId(self.frames.len() as u32);
        let id = *self.known_frames.entry(frame).or_insert(next);
        if id == next {
            self.frames.push(frame);
        }
        self.dicts[dict as usize] = id.0;
        Ok(id)
    }
}
