//! The allocator's events in the recordings' form; the recorded operators; the comparison of both.

#![allow(dead_code, unused_imports, unused_macros, reason = "each test uses a part of it")]

pub(crate) mod batch_norms;
pub(crate) mod labelled;
pub(crate) mod ones;
pub(crate) mod operators;

use std::collections::HashMap;

use memcore::Device;
use memcore::context::label;
use memcore::memory::{AllocId, Event};

/// Requested bytes of an allocation; for a free, minus the allocation's number.
pub(crate) type Events = Vec<i64>;

/// Reads a device's history piece by piece, with allocations numbered from 1 in the order in which they were made.
pub(crate) struct Watch<'a> {
    device: &'a Device,
    read: usize,
    numbers: HashMap<AllocId, i64>,
}

impl<'a> Watch<'a> {
    /// From the beginning of the history.
    pub(crate) fn new(device: &'a Device) -> Self {
        Self { device, read: 0, numbers: HashMap::new() }
    }

    /// Events since the last call.
    pub(crate) fn since(&mut self) -> Events {
        self.since_by().into_iter().map(|(event, _)| event).collect()
    }

    /// Events since the last call, with their origins.
    pub(crate) fn since_by(&mut self) -> Vec<(i64, String)> {
        self.device.with_ledger(|ledger| {
            let events = &ledger.history()[self.read..];
            self.read += events.len();
            let mut out = Vec::new();
            for event in events {
                match event {
                    Event::Alloc { id, requested_bytes, origin, .. } => {
                        self.numbers.insert(*id, self.numbers.len() as i64 + 1);
                        out.push((*requested_bytes as i64, label(origin.node, origin.op)));
                    }
                    Event::Free { id, origin } => {
                        let number = self.numbers.get(id).copied().unwrap_or(i64::MAX);
                        out.push((-number, label(origin.node, origin.op)));
                    }
                    _ => {}
                }
            }
            out
        })
    }
}
