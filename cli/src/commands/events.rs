//! A device's history in the columns of the recorded PyTorch scripts.
//!
//! `ev` has a character per event: `a` alloc, `f` free, `S`/`F` segment taken and given back, `M`/`U` pages mapped and unmapped, `o` out of memory.
//! `ev_size`: sizes of all events but `f`, in order (an alloc's is what was requested). `ev_addr512`: addresses of the same events, relative to the
//! first segment, in units of 512 bytes; -1 for `o`. `ev_free_ref`: for each `f`, which alloc it frees. `op_names`, `ev_op`: for each `a` and `f`,
//! who made it.

use std::collections::HashMap;

use memcore::memory::{Event, Origin};
use serde_json::{Value, json};

#[derive(Default)]
struct Columns {
    kinds: String,
    sizes: Vec<u64>,
    addresses: Vec<i64>,
    freed: Vec<u64>,
    names: Vec<String>,
    made_by: Vec<usize>,
    known: HashMap<String, usize>,
    /// Address of the first segment.
    base: u64,
}

/// The events as `vramlab-events-1`.
pub(super) fn recording(events: &[Event]) -> Value {
    let base = events.iter().filter_map(|event| match event {
        Event::SegmentAlloc { address, .. } | Event::SegmentMap { address, .. } => Some(*address),
        _ => None,
    });
    let mut columns = Columns { base: base.min().unwrap_or(0), ..Columns::default() };
    columns.name(String::new());
    for event in events {
        columns.push(event);
    }
    json!({
        "format": "vramlab-events-1",
        "ev": columns.kinds,
        "ev_size": columns.sizes,
        "ev_addr512": columns.addresses,
        "ev_free_ref": columns.freed,
        "op_names": columns.names,
        "ev_op": columns.made_by,
    })
}

impl Columns {
    fn push(&mut self, event: &Event) {
        match *event {
            Event::Alloc { requested_bytes, address, ref origin, .. } => {
                self.sized('a', requested_bytes, Some(address));
                self.made(op_name(origin, false));
            }
            Event::Free { id, ref origin } => {
                self.kinds.push('f');
                self.freed.push(id.0);
                self.made(op_name(origin, true));
            }
            Event::SegmentAlloc { address, bytes, .. } => self.sized('S', bytes, Some(address)),
            Event::SegmentFree { address, bytes, .. } => self.sized('F', bytes, Some(address)),
            Event::SegmentMap { address, bytes, .. } => self.sized('M', bytes, Some(address)),
            Event::SegmentUnmap { address, bytes, .. } => self.sized('U', bytes, Some(address)),
            Event::Oom { requested_bytes, .. } => self.sized('o', requested_bytes, None),
            _ => {}
        }
    }

    fn sized(&mut self, kind: char, bytes: u64, address: Option<u64>) {
        self.kinds.push(kind);
        self.sizes.push(bytes);
        self.addresses.push(address.map_or(-1, |address| (address.wrapping_sub(self.base) / 512) as i64));
    }

    fn made(&mut self, name: String) {
        let index = self.name(name);
        self.made_by.push(index);
    }

    fn name(&mut self, name: String) -> usize {
        *self.known.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            self.names.len() - 1
        })
    }
}

/// As a profiler would name it: `addmm`, `AddmmBackward0>mm`. A free by the engine around a node is `AddmmBackward0.`.
pub(super) fn op_name(origin: &Origin, free: bool) -> String {
    let label = memcore::context::label(origin.node, origin.op);
    if free && origin.node == Some(origin.op) { label + "." } else { label }
}

#[cfg(test)]
mod tests {
    use memcore::memory::{AllocId, Category, Stream};

    use super::*;

    #[test]
    fn the_columns_are_those_of_the_recorded_scripts() {
        let by = |op, node| Origin { op, node, ..Origin::default() };
        let alloc = |id, bytes, address, origin| Event::Alloc {
            id: AllocId(id),
            requested_bytes: bytes,
            bytes: 512,
            address,
            stream: Stream::DEFAULT,
            category: Category::Temporary,
            origin,
        };
        let node = Some("AddmmBackward0");
        let recording = recording(&[
            Event::SegmentAlloc { address: 1 << 32, bytes: 2 << 20, stream: Stream::DEFAULT },
            alloc(0, 40, 1 << 32, by("_to_copy", None)),
            alloc(1, 100, (1 << 32) + 512, by("mm", node)),
            Event::Free { id: AllocId(1), origin: by("AddmmBackward0", node) },
            Event::Free { id: AllocId(0), origin: by("", None) },
            Event::Oom { requested_bytes: 7, origin: by("mm", node) },
        ]);
        assert_eq!(recording["ev"], "Saaffo");
        assert_eq!(recording["ev_size"], json!([2 << 20, 40, 100, 7]));
        assert_eq!(recording["ev_addr512"], json!([0, 0, 1, -1]));
        assert_eq!(recording["ev_free_ref"], json!([1, 0]));
        assert_eq!(recording["op_names"], json!(["", "_to_copy", "AddmmBackward0>mm", "AddmmBackward0."]));
        assert_eq!(recording["ev_op"], json!([1, 2, 3, 0]));
    }
}
