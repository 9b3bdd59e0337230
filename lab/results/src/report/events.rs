//! A recording in the columns of the recorded PyTorch scripts: `vramlab-events-1`, which `report` and `replay` read.
//!
//! The columns are those of `train --events`: `ev` has a character per event, `ev_size` and `ev_addr512` sizes and addresses (relative to the lowest
//! segment, in units of 512 bytes; -1 for a failure), `ev_free_ref` the allocation that a free ends, `op_names` and `ev_op` the operator, `ev_bytes`
//! the bytes of the block, `categories` and `ev_category` its category, `scope_names` and `ev_scope` the module or the calling lines.

use serde_json::{Value, json};

use super::recording::{CategoryId, Event, NameId, Recording};

#[derive(Default)]
struct Columns {
    kinds: String,
    sizes: Vec<u64>,
    addresses: Vec<i64>,
    freed: Vec<u32>,
    ops: Vec<u32>,
    given: Vec<u64>,
    categories: Vec<u8>,
    scopes: Vec<u32>,
    base: u64,
}

/// Writes the events. Pages of an expandable segment count as segments.
pub fn events(recording: &Recording) -> Value {
    let addresses = recording.events().iter().filter_map(|event| match event {
        Event::SegmentAlloc { address, .. } | Event::Alloc { address, .. } => Some(*address),
        _ => None,
    });
    let mut columns = Columns { base: addresses.min().unwrap_or(0), ..Columns::default() };
    for event in recording.events() {
        columns.push(event);
    }
    let most = |ids: &[u32]| ids.iter().max().map_or(0, |most| most + 1);
    let names = |count: u32| (0..count).map(|id| recording.text(NameId(id))).collect::<Vec<_>>();
    json!({
        "format": "vramlab-events-1",
        "name": recording.name,
        "ev": columns.kinds,
        "ev_size": columns.sizes,
        "ev_addr512": columns.addresses,
        "ev_free_ref": columns.freed,
        "op_names": names(most(&columns.ops)),
        "ev_op": columns.ops,
        "ev_bytes": columns.given,
        "categories": recording.categories(),
        "ev_category": columns.categories,
        "scope_names": names(most(&columns.scopes)),
        "ev_scope": columns.scopes,
    })
}

impl Columns {
    fn push(&mut self, event: &Event) {
        match *event {
            Event::Alloc { address, requested_bytes, bytes, category: CategoryId(category), op, scope } => {
                self.sized('a', requested_bytes, Some(address));
                self.given.push(bytes);
                self.categories.push(category);
                self.ops.push(op.0);
                self.scopes.push(scope.0);
            }
            Event::Free { allocation, op } => {
                self.kinds.push('f');
                self.freed.push(allocation);
                self.ops.push(op.0);
            }
            Event::SegmentAlloc { address, bytes } => self.sized('S', bytes, Some(address)),
            Event::SegmentFree { address, bytes } => self.sized('F', bytes, Some(address)),
            Event::Oom { requested_bytes, .. } => self.sized('o', requested_bytes, None),
            Event::Retag { .. } | Event::Phase { .. } => {}
        }
    }

    fn sized(&mut self, kind: char, bytes: u64, address: Option<u64>) {
        self.kinds.push(kind);
        self.sizes.push(bytes);
        self.addresses.push(address.map_or(-1, |address| (address.wrapping_sub(self.base) / 512) as i64));
    }
}
