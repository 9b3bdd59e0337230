//! What the loader of pytorch.org/memory_viz needs of a snapshot, as rules.
//!
//! The page reads JSON, or pickles of protocol 2 to 4 in a part of the opcodes; it draws the state at each entry by
//! undoing the trace from the segments at the end, and throws where the two do not agree.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

/// Opcodes that its loader knows, with the bytes of their argument; texts have a length before them.
fn argument(opcode: u8, rest: &[u8]) -> Option<usize> {
    Some(match opcode {
        b'('
        | b'.'
        | b'}'
        | b']'
        | b')'
        | b't'
        | 0x85..=0x89
        | b'l'
        | b'd'
        | b'a'
        | b'e'
        | b's'
        | b'u'
        | b'N'
        | 0x94 => 0,
        0x80 | b'K' | b'q' | b'h' => 1,
        b'M' => 2,
        b'J' | b'r' | b'j' => 4,
        0x95 | b'G' => 8,
        0x8a | 0x8c => 1 + usize::from(rest[0]),
        b'X' => 4 + u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize,
        _ => return None,
    })
}

/// The pickle has a protocol, opcodes and batches that the page's loader takes.
pub(crate) fn pickle_opens(pickle: &[u8]) {
    assert_eq!(pickle[0], 0x80);
    assert!((2..=4).contains(&pickle[1]), "protocol {}", pickle[1]);
    let mut at = 0;
    // What stands on the stack above each mark; a batch is spread as arguments of a call.
    let mut marks: Vec<usize> = Vec::new();
    let mut height: usize = 0;
    while at < pickle.len() {
        let opcode = pickle[at];
        let Some(length) = argument(opcode, &pickle[at + 1..]) else { panic!("opcode {opcode:#x} at byte {at}") };
        at += 1 + length;
        match opcode {
            b'(' => marks.push(height),
            b'e' | b'u' | b't' | b'l' | b'd' => {
                let mark = marks.pop().unwrap();
                let batch = if opcode == b'u' { (height - mark) / 2 } else { height - mark };
                assert!(batch <= 1000, "a batch of {batch}");
                height = mark + usize::from(matches!(opcode, b't' | b'l' | b'd'));
            }
            b'a' => height -= 1,
            b's' => height -= 2,
            0x85..=0x87 => height -= usize::from(opcode - 0x85),
            0x80 | 0x94 | 0x95 | b'q' | b'r' => {}
            b'.' => assert_eq!((at, height), (pickle.len(), 1)),
            _ => height += 1,
        }
    }
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("{key} of {of}"))
}

fn frames(of: &Value) {
    for frame in of["frames"].as_array().unwrap_or(&Vec::new()) {
        assert!(frame["filename"].is_string() && frame["name"].is_string() && frame["line"].is_i64(), "{frame}");
    }
}

/// Everything that the page needs is there, and the trace leads to the segments.
pub(crate) fn opens(snapshot: &Value) {
    let segments = snapshot["segments"].as_array().unwrap();
    let traces = snapshot["device_traces"].as_array().unwrap();
    for segment in segments {
        assert!((number(segment, "device") as usize) < traces.len());
        assert!(segment["segment_pool_id"].as_array().is_some_and(|id| id.len() == 2));
        number(segment, "stream");
        frames(segment);
        let mut address = number(segment, "address");
        for block in segment["blocks"].as_array().unwrap() {
            assert_eq!(number(block, "address"), address, "blocks tile their segment in order");
            address += number(block, "size");
            number(block, "requested_size");
            assert!(block["frames"].is_array());
            frames(block);
            let state = block["state"].as_str().unwrap();
            assert!(["active_allocated", "active_pending_free", "inactive"].contains(&state), "{state}");
        }
        assert_eq!(address, number(segment, "address") + number(segment, "total_size"));
    }
    let entries = || traces.iter().flat_map(|trace| trace.as_array().unwrap());
    for entry in entries() {
        number(entry, if entry["action"] == "oom" { "device_free" } else { "addr" });
        number(entry, "size");
        number(entry, "stream");
        frames(entry);
    }
    // The page throws if there are categories and none is "unknown".
    let categories: HashSet<&str> = entries().filter_map(|entry| entry["category"].as_str()).collect();
    assert!(categories.is_empty() || categories.contains("unknown"), "{categories:?}");
    for (device, trace) in traces.iter().enumerate() {
        let of = segments.iter().filter(|segment| number(segment, "device") as usize == device);
        State::at_the_end(of).undo(trace.as_array().unwrap());
    }
}

/// The segments and blocks at one moment, by address.
struct State {
    segments: BTreeMap<u64, u64>,
    /// Active blocks, and whether their free waits.
    blocks: BTreeMap<u64, bool>,
}

impl State {
    fn at_the_end<'a>(segments: impl Iterator<Item = &'a Value>) -> Self {
        let mut state = State { segments: BTreeMap::new(), blocks: BTreeMap::new() };
        for segment in segments {
            state.map(number(segment, "address"), number(segment, "total_size"));
            for block in segment["blocks"].as_array().unwrap() {
                if block["state"] != "inactive" {
                    state.blocks.insert(number(block, "address"), block["state"] == "active_pending_free");
                }
            }
        }
        state
    }

    /// Memory is there; ranges that touch are one.
    fn map(&mut self, mut address: u64, mut bytes: u64) {
        if let Some((&before, &size)) = self.segments.range(..address).next_back()
            && before + size == address
        {
            (address, bytes) = (before, size + bytes);
        }
        if let Some(after) = self.segments.remove(&(address + bytes)) {
            bytes += after;
        }
        self.segments.insert(address, bytes);
    }

    /// Memory is gone: it must have been there, with no active block in it.
    fn unmap(&mut self, address: u64, bytes: u64) {
        let (&start, &size) = self.segments.range(..=address).next_back().expect("a segment to undo");
        assert!(address + bytes <= start + size, "a segment to undo is not there");
        assert!(self.blocks.range(address..address + bytes).next().is_none(), "a segment goes with a block in it");
        self.segments.remove(&start);
        for (from, to) in [(start, address), (address + bytes, start + size)] {
            if to > from {
                self.segments.insert(from, to - from);
            }
        }
    }

    fn holds(&self, address: u64) -> bool {
        self.segments.range(..=address).next_back().is_some_and(|(start, size)| address < start + size)
    }

    /// The trace backwards.
    fn undo(mut self, trace: &[Value]) {
        for entry in trace.iter().rev() {
            let (address, bytes) = (entry["addr"].as_u64().unwrap_or(0), number(entry, "size"));
            match entry["action"].as_str().unwrap() {
                "alloc" => {
                    let pending = self.blocks.remove(&address);
                    assert_eq!(pending, Some(false), "an allocation to undo is not there: {entry}");
                }
                "free_requested" => {
                    let pending = self.blocks.insert(address, false);
                    assert_eq!(pending, Some(true), "a free was requested of no waiting block: {entry}");
                }
                "free_completed" => {
                    assert!(self.holds(address), "a block outside of every segment: {entry}");
                    assert_eq!(self.blocks.insert(address, true), None, "two blocks at one place: {entry}");
                }
                "segment_alloc" | "segment_map" => self.unmap(address, bytes),
                "segment_free" | "segment_unmap" => self.map(address, bytes),
                "oom" | "snapshot" => {}
                other => panic!("{other}"),
            }
        }
        // Everything was recorded, from the first allocation on.
        assert!(self.blocks.is_empty() && self.segments.is_empty(), "{:?} {:?}", self.blocks, self.segments);
    }
}
