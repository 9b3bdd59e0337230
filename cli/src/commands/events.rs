//! Writes a device's history in the columns of the recorded PyTorch scripts.
//!
//! `ev` has a character per event: `a` alloc, `f` free, `S`/`F` segment allocated and freed, `M`/`U` pages mapped and unmapped, `o` out of memory.
//! `ev_size`: sizes of all events except `f`, in order (an alloc's is the requested size). `ev_addr512`: addresses of the same events, relative to
//! the first segment, in units of 512 bytes; -1 for `o`. `ev_free_ref`: for each `f`, the alloc that it frees. `op_names`, `ev_op`: for each `a` and
//! `f`, the operator that made it.
//!
//! Further columns are not in PyTorch's recordings. For each `a`: `ev_bytes`, the size of its block; `ev_category`, an index into `categories`;
//! `ev_scope`, an index into `scope_names`. `retag_at`, `retag_ref`, `retag_category`: before which event which alloc got which category. `phase_at`,
//! `phase_retags`, `phase`: before which event, and after how many changes of category, which of `phase_names` began.

use std::collections::HashMap;

use lab::record::op_name;
use memcore::memory::{Category, Event, Ledger, PhaseId, ScopeId};
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
    given: Vec<u64>,
    categories: Vec<usize>,
    scopes: Vec<u32>,
    most_scope: u32,
    /// Changes of category: before which event, which alloc, which category.
    retags: [Vec<u64>; 3],
    /// Beginnings of phases: before which event, after how many retags, which phase.
    phases: [Vec<u64>; 3],
    most_phase: u32,
    /// Address of the first segment.
    base: u64,
}

/// Returns the events as `vramlab-events-1`.
pub(super) fn recording(ledger: &Ledger) -> Value {
    let events = ledger.history();
    let base = events.iter().filter_map(|event| match event {
        Event::SegmentAlloc { address, .. } | Event::SegmentMap { address, .. } => Some(*address),
        _ => None,
    });
    let mut columns = Columns { base: base.min().unwrap_or(0), ..Columns::default() };
    columns.name(String::new());
    for event in events {
        columns.push(event);
    }
    let scope_names: Vec<&str> = (0..=columns.most_scope).map(|id| ledger.scope_path(ScopeId(id))).collect();
    let phase_names: Vec<&str> = (0..=columns.most_phase).map(|id| ledger.phase_name(PhaseId(id))).collect();
    json!({
        "format": "vramlab-events-1",
        "ev": columns.kinds,
        "ev_size": columns.sizes,
        "ev_addr512": columns.addresses,
        "ev_free_ref": columns.freed,
        "op_names": columns.names,
        "ev_op": columns.made_by,
        "ev_bytes": columns.given,
        "categories": Category::ALL.map(Category::name),
        "ev_category": columns.categories,
        "scope_names": scope_names,
        "ev_scope": columns.scopes,
        "retag_at": columns.retags[0],
        "retag_ref": columns.retags[1],
        "retag_category": columns.retags[2],
        "phase_names": phase_names,
        "phase_at": columns.phases[0],
        "phase_retags": columns.phases[1],
        "phase": columns.phases[2],
    })
}

impl Columns {
    fn push(&mut self, event: &Event) {
        match *event {
            Event::Alloc { requested_bytes, bytes, address, category, ref origin, .. } => {
                self.sized('a', requested_bytes, Some(address));
                self.given.push(bytes);
                self.categories.push(category as usize);
                self.scopes.push(origin.scope.0);
                self.most_scope = self.most_scope.max(origin.scope.0);
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
            Event::Retag { id, to } => {
                let retag = [self.kinds.len() as u64, id.0, to as u64];
                self.retags.iter_mut().zip(retag).for_each(|(column, value)| column.push(value));
            }
            Event::Phase { phase } => {
                let began = [self.kinds.len() as u64, self.retags[0].len() as u64, u64::from(phase.0)];
                self.phases.iter_mut().zip(began).for_each(|(column, value)| column.push(value));
                self.most_phase = self.most_phase.max(phase.0);
            }
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

#[cfg(test)]
mod tests {
    use memcore::memory::{AllocId, Category, Origin, Stream};

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
        let mut ledger = Ledger::new();
        ledger.set_history(true);
        let (scope, phase) = (ledger.scope("fc"), ledger.phase("forward"));
        let in_scope = |origin| Origin { scope, ..origin };
        let events = [
            Event::SegmentAlloc { address: 1 << 32, bytes: 2 << 20, stream: Stream::DEFAULT },
            Event::Phase { phase },
            alloc(0, 40, 1 << 32, by("_to_copy", None)),
            alloc(1, 100, (1 << 32) + 512, in_scope(by("mm", node))),
            Event::Retag { id: AllocId(0), to: Category::Activation },
            Event::Free { id: AllocId(1), origin: by("AddmmBackward0", node) },
            Event::Free { id: AllocId(0), origin: by("", None) },
            Event::Oom { requested_bytes: 7, origin: by("mm", node) },
        ];
        events.into_iter().for_each(|event| ledger.record(event));
        let recording = recording(&ledger);
        assert_eq!(recording["ev"], "Saaffo");
        assert_eq!(recording["ev_size"], json!([2 << 20, 40, 100, 7]));
        assert_eq!(recording["ev_addr512"], json!([0, 0, 1, -1]));
        assert_eq!(recording["ev_free_ref"], json!([1, 0]));
        assert_eq!(recording["op_names"], json!(["", "_to_copy", "AddmmBackward0>mm", "AddmmBackward0."]));
        assert_eq!(recording["ev_op"], json!([1, 2, 3, 0]));
        assert_eq!((&recording["ev_bytes"], &recording["ev_category"]), (&json!([512, 512]), &json!([6, 6])));
        assert_eq!((&recording["scope_names"], &recording["ev_scope"]), (&json!(["", "fc"]), &json!([0, 1])));
        let retag = ["retag_at", "retag_ref", "retag_category"].map(|column| recording[column][0].as_u64());
        assert_eq!(retag, [Some(3), Some(0), Some(3)]);
        assert_eq!((&recording["phase_names"], &recording["phase_at"]), (&json!(["", "forward"]), &json!([1])));
    }
}
