//! The record that a device keeps of its memory.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use super::allocator::DriverEvent;
use super::event::{Event, PhaseId, ScopeId};
use super::packed::Packed;
use super::usage::Usage;

/// Folds every event into a [`Usage`]. Keeps the events themselves only on request.
///
/// With the history off, an event costs some tens of nanoseconds, and memory does not grow.
#[derive(Debug)]
pub struct Ledger {
    usage: Usage,
    history: Option<History>,
    scopes: Interner,
    phases: Interner,
}

#[derive(Debug)]
struct History {
    /// State before the first kept event.
    base: Usage,
    /// The events until someone reads them.
    packed: Packed,
    /// All events, once someone has read them.
    read: OnceLock<Vec<Event>>,
}

impl History {
    #[inline]
    fn push(&mut self, event: Event) {
        match self.read.get_mut() {
            None => self.packed.push(&event),
            Some(events) => events.push(event),
        }
    }

    fn events(&self) -> &[Event] {
        self.read.get_or_init(|| self.packed.events())
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self { usage: Usage::default(), history: None, scopes: Interner::new(), phases: Interner::new() }
    }
}

impl Ledger {
    /// Creates an empty ledger without history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records one event.
    #[inline]
    pub fn record(&mut self, event: Event) {
        self.usage.apply(&event);
        if let Some(history) = &mut self.history {
            history.push(event);
        }
    }

    /// Records an allocator's call to the driver. Reserving addresses takes no memory and is not an event.
    pub fn record_driver(&mut self, event: DriverEvent) {
        let event = match event {
            DriverEvent::SegmentAlloc { address, bytes, stream, .. } => Event::SegmentAlloc { address, bytes, stream },
            DriverEvent::SegmentFree { address, bytes, stream, .. } => Event::SegmentFree { address, bytes, stream },
            DriverEvent::Map { address, bytes, stream, .. } => Event::SegmentMap { address, bytes, stream },
            DriverEvent::Unmap { address, bytes, stream, .. } => Event::SegmentUnmap { address, bytes, stream },
            DriverEvent::Refused { bytes } | DriverEvent::MapRefused { bytes } => Event::Refused { bytes },
            DriverEvent::ExpandableUnsupported => Event::ExpandableUnsupported,
            DriverEvent::Reserve { .. } | DriverEvent::Release { .. } => return,
        };
        self.record(event);
    }

    /// The current totals.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Starts a new history, or drops the current one.
    pub fn set_history(&mut self, on: bool) {
        self.history =
            on.then(|| History { base: self.usage.clone(), packed: Packed::default(), read: OnceLock::new() });
    }

    /// The events since the history was started; empty while it is off. The first call unpacks them: until then they
    /// take a fifth of the memory or less.
    pub fn history(&self) -> &[Event] {
        self.history.as_ref().map_or(&[], History::events)
    }

    /// Replays the history. The result equals [`usage`](Self::usage), by construction of everything here. `None` while
    /// the history is off.
    pub fn replay(&self) -> Option<Usage> {
        let history = self.history.as_ref()?;
        let mut usage = history.base.clone();
        history.events().iter().for_each(|event| usage.apply(event));
        Some(usage)
    }

    /// Returns the id of a module path such as `encoder.layers.0.linear1`; `""` is the root.
    pub fn scope(&mut self, path: &str) -> ScopeId {
        ScopeId(self.scopes.intern(path))
    }

    /// The module path of an id; `""` for the root and for ids that are not this ledger's.
    pub fn scope_path(&self, scope: ScopeId) -> &str {
        self.scopes.name(scope.0)
    }

    /// Returns the id of a phase; `""` stands for none.
    pub fn phase(&mut self, name: &str) -> PhaseId {
        PhaseId(self.phases.intern(name))
    }

    /// The name of a phase; `""` for none and for ids that are not this ledger's.
    pub fn phase_name(&self, phase: PhaseId) -> &str {
        self.phases.name(phase.0)
    }
}

/// Numbers for names; the empty name is 0.
#[derive(Debug)]
struct Interner {
    ids: FxHashMap<String, u32>,
    names: Vec<String>,
}

impl Interner {
    fn new() -> Self {
        Self { ids: [(String::new(), 0)].into_iter().collect(), names: vec![String::new()] }
    }

    fn intern(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = self.names.len() as u32;
        self.ids.insert(name.to_string(), id);
        self.names.push(name.to_string());
        id
    }

    fn name(&self, id: u32) -> &str {
        self.names.get(id as usize).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{AllocId, Category, Origin, Stream};

    fn alloc(id: u64, bytes: u64) -> Event {
        Event::Alloc {
            id: AllocId(id),
            requested_bytes: bytes,
            bytes,
            address: 0,
            stream: Stream::DEFAULT,
            category: Category::Parameter,
            origin: Origin::default(),
        }
    }

    #[test]
    fn a_history_started_in_the_middle_replays_to_the_usage() {
        let mut ledger = Ledger::new();
        ledger.record(alloc(0, 512));
        assert_eq!((ledger.history().len(), ledger.replay()), (0, None));
        ledger.set_history(true);
        ledger.record(alloc(1, 1024));
        ledger.record(Event::Free { id: AllocId(0), origin: Origin::default() });
        assert_eq!(ledger.history().len(), 2);
        assert_eq!(ledger.replay().as_ref(), Some(ledger.usage()));
        assert_eq!((ledger.usage().allocated_bytes(), ledger.usage().peak_bytes()), (1024, 1536));
        ledger.set_history(true);
        ledger.record(Event::Free { id: AllocId(1), origin: Origin::default() });
        assert_eq!((ledger.history().len(), ledger.replay().as_ref()), (1, Some(ledger.usage())));
    }

    #[test]
    fn names_keep_their_ids() {
        let mut ledger = Ledger::new();
        let a = ledger.scope("encoder.0");
        let b = ledger.scope("encoder.1");
        assert_eq!((ledger.scope(""), ledger.scope("encoder.0"), ledger.scope_path(b)), (ScopeId(0), a, "encoder.1"));
        assert_eq!(ledger.scope_path(ScopeId(99)), "");
    }
}
