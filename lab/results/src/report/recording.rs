//! A history of memory from any source: a device's ledger, a file of events, a snapshot of PyTorch.

use lab_training::record::op_name;
use memcore::memory::{self, AllocId, Category, Ledger};
use rustc_hash::FxHashMap;

/// A text of a [`Recording`]: an operator, a module's path, a phase. 0 is the empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// Category of a block: an index into [`Recording::categories`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CategoryId(pub u8);

/// The most categories in a recording. Further ones count as the last.
pub const MAX_CATEGORIES: usize = 12;

/// Devices of at least this size count as unlimited: they were made for dry runs. Bytes.
const ENDLESS: u64 = 1 << 50;

/// Category of blocks of which nothing is known.
pub const UNKNOWN: &str = "unknown";

/// An event. Its index in [`Recording::events`] is its time: recordings have no seconds.
///
/// Allocations are numbered from 0: the k-th [`Alloc`](Self::Alloc). Addresses and sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block was allocated.
    Alloc {
        /// Its address.
        address: u64,
        /// Bytes requested.
        requested_bytes: u64,
        /// Bytes of the block.
        bytes: u64,
        /// Its category, as far as it was known then.
        category: CategoryId,
        /// Operator that requested it, or the innermost frame of a stack.
        op: NameId,
        /// Path of the module, as `encoder.layers.0`; or the stack, outermost first, with dots between.
        scope: NameId,
    },
    /// A block was freed.
    Free {
        /// Index of the allocation.
        allocation: u32,
        /// Operator that freed it.
        op: NameId,
    },
    /// The category of a block became known, or changed.
    Retag {
        /// Index of the allocation.
        allocation: u32,
        /// Its new category.
        category: CategoryId,
    },
    /// Memory was taken from the driver: a segment, or pages of one.
    SegmentAlloc {
        /// First address.
        address: u64,
        /// Size.
        bytes: u64,
    },
    /// Memory was given back to the driver: a segment, or a part of it.
    SegmentFree {
        /// First address.
        address: u64,
        /// Size.
        bytes: u64,
    },
    /// A phase of the program began.
    Phase {
        /// Its name.
        name: NameId,
    },
    /// A request failed for lack of memory.
    Oom {
        /// Bytes requested.
        requested_bytes: u64,
        /// Operator that requested them.
        op: NameId,
    },
}

/// Events of memory in order, with names.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Name of the recording where it is shown.
    pub name: String,
    /// Memory that can be allocated, in bytes, with its name; `None` if it is not known.
    pub limit: Option<(String, u64)>,
    /// True if a scope is a stack instead of a module's path.
    pub scopes_are_stacks: bool,
    /// True if categories are guessed from stacks and lives.
    pub categories_are_guesses: bool,
    /// Events before this one stand for what was there when the recording began.
    pub begins_at: u32,
    categories: Vec<String>,
    names: Vec<String>,
    known: FxHashMap<String, NameId>,
    events: Vec<Event>,
    allocations: u32,
}

impl Recording {
    /// Returns an empty recording, which has the categories of [`Category`] in their order.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            limit: None,
            scopes_are_stacks: false,
            categories_are_guesses: false,
            begins_at: 0,
            categories: Category::ALL.map(|category| category.name().to_string()).to_vec(),
            names: vec![String::new()],
            known: [(String::new(), NameId(0))].into_iter().collect(),
            events: Vec::new(),
            allocations: 0,
        }
    }

    /// Reads the history of a device's ledger.
    pub fn of_ledger(name: impl Into<String>, ledger: &Ledger) -> Self {
        let mut recording = Self::new(name);
        let history = ledger.history();
        recording.events.reserve(history.len());
        let first = history.iter().find_map(|event| match event {
            memory::Event::Alloc { id, .. } => Some(id.0),
            _ => None,
        });
        // Allocations from before the history are not in it; their frees are not events here either.
        let number = |id: AllocId| id.0.checked_sub(first.unwrap_or(0)).and_then(|n| u32::try_from(n).ok());
        for event in history {
            if let Some(event) = recording.translated(event, ledger, &number) {
                recording.push(event);
            }
        }
        recording
    }

    fn translated(
        &mut self,
        event: &memory::Event,
        ledger: &Ledger,
        number: &dyn Fn(AllocId) -> Option<u32>,
    ) -> Option<Event> {
        Some(match *event {
            memory::Event::Alloc { requested_bytes, bytes, address, category, origin, .. } => {
                let (op, scope) = (self.intern(&op_name(&origin, false)), self.intern(ledger.scope_path(origin.scope)));
                let category = CategoryId(category as u8);
                Event::Alloc { address, requested_bytes, bytes, category, op, scope }
            }
            memory::Event::Free { id, origin } => {
                Event::Free { allocation: number(id)?, op: self.intern(&op_name(&origin, true)) }
            }
            memory::Event::Retag { id, to } => Event::Retag { allocation: number(id)?, category: CategoryId(to as u8) },
            memory::Event::SegmentAlloc { address, bytes, .. } | memory::Event::SegmentMap { address, bytes, .. } => {
                Event::SegmentAlloc { address, bytes }
            }
            memory::Event::SegmentFree { address, bytes, .. } | memory::Event::SegmentUnmap { address, bytes, .. } => {
                Event::SegmentFree { address, bytes }
            }
            memory::Event::Phase { phase } => Event::Phase { name: self.intern(ledger.phase_name(phase)) },
            memory::Event::Oom { requested_bytes, origin } => {
                Event::Oom { requested_bytes, op: self.intern(&op_name(&origin, false)) }
            }
            memory::Event::Refused { .. }
            | memory::Event::ExpandableUnsupported
            | memory::Event::ResetPhasePeak
            | memory::Event::ResetPeak => return None,
        })
    }

    /// Sets the device's size, unless the device is unlimited.
    pub fn of_capacity(&mut self, bytes: Option<u64>) {
        self.limit = bytes.filter(|bytes| *bytes < ENDLESS).map(|bytes| ("the whole device".into(), bytes));
    }

    /// Returns the id of a text.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(&id) = self.known.get(text) {
            return id;
        }
        let id = NameId(self.names.len() as u32);
        self.known.insert(text.to_string(), id);
        self.names.push(text.to_string());
        id
    }

    /// Returns the id of a category, adding it if it is new. Beyond [`MAX_CATEGORIES`] all are the last one.
    pub fn category(&mut self, name: &str) -> CategoryId {
        let index = self.categories.iter().position(|known| known == name).unwrap_or_else(|| {
            if self.categories.len() < MAX_CATEGORIES {
                self.categories.push(name.to_string());
            } else if let Some(last) = self.categories.last_mut() {
                *last = "other".to_string();
            }
            self.categories.len() - 1
        });
        CategoryId(index as u8)
    }

    /// Adds an event; for an allocation, returns its index.
    pub fn push(&mut self, event: Event) -> Option<u32> {
        let number = matches!(event, Event::Alloc { .. }).then_some(self.allocations);
        self.allocations += u32::from(number.is_some());
        self.events.push(event);
        number
    }

    /// All events, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The most bytes that were allocated, and reserved, at once.
    pub fn peaks(&self) -> (u64, u64) {
        let (mut allocated, mut reserved, mut peaks) = (0_u64, 0_u64, (0, 0));
        let mut blocks = Vec::with_capacity(self.allocations());
        for event in &self.events {
            match *event {
                Event::Alloc { bytes, .. } => {
                    allocated = allocated.saturating_add(bytes);
                    blocks.push(bytes);
                }
                Event::Free { allocation, .. } => {
                    let bytes = blocks.get(allocation as usize).copied().unwrap_or(0);
                    allocated = allocated.saturating_sub(bytes);
                }
                Event::SegmentAlloc { bytes, .. } => reserved = reserved.saturating_add(bytes),
                Event::SegmentFree { bytes, .. } => reserved = reserved.saturating_sub(bytes),
                Event::Retag { .. } | Event::Phase { .. } | Event::Oom { .. } => {}
            }
            peaks = (allocated.max(peaks.0), reserved.max(peaks.1));
        }
        peaks
    }

    /// Number of allocations among the events.
    pub fn allocations(&self) -> usize {
        self.allocations as usize
    }

    /// The names of the categories.
    pub fn categories(&self) -> &[String] {
        &self.categories
    }

    /// A category's name.
    pub fn category_name(&self, category: CategoryId) -> &str {
        self.categories.get(usize::from(category.0)).map_or(UNKNOWN, String::as_str)
    }

    /// All texts, in the order of their ids.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns the text with this id; empty for an id of another recording.
    pub fn text(&self, id: NameId) -> &str {
        self.names.get(id.0 as usize).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use memcore::memory::{Origin, Stream};

    use super::*;

    #[test]
    fn a_ledger_is_told_in_names() {
        let mut ledger = Ledger::new();
        ledger.set_history(true);
        let (scope, phase) = (ledger.scope("fc.1"), ledger.phase("forward"));
        let origin = Origin { scope, op: "mm", node: Some("MmBackward0"), phase };
        ledger.record(memory::Event::Phase { phase });
        ledger.record(memory::Event::Alloc {
            id: AllocId(7),
            requested_bytes: 100,
            bytes: 512,
            address: 1024,
            stream: Stream::DEFAULT,
            category: Category::Gradient,
            origin,
        });
        ledger.record(memory::Event::Retag { id: AllocId(7), to: Category::Activation });
        ledger.record(memory::Event::Free { id: AllocId(3), origin }); // from before the history
        ledger.record(memory::Event::Free { id: AllocId(7), origin: Origin::default() });
        let recording = Recording::of_ledger("run", &ledger);
        assert_eq!((recording.events().len(), recording.allocations()), (4, 1));
        let Event::Alloc { category, op, scope, .. } = recording.events()[1] else { panic!("no allocation") };
        assert_eq!(recording.category_name(category), "gradient");
        assert_eq!((recording.text(op), recording.text(scope)), ("MmBackward0>mm", "fc.1"));
        assert_eq!(recording.events()[3], Event::Free { allocation: 0, op: NameId(0) });
    }

    #[test]
    fn categories_beyond_the_most_share_the_last() {
        let mut recording = Recording::new("r");
        assert_eq!(recording.category("activation").0, Category::Activation as u8);
        let own: Vec<u8> = (0..9).map(|i| recording.category(&format!("kind {i}")).0).collect();
        assert_eq!(own, [8, 9, 10, 11, 11, 11, 11, 11, 11]);
        assert_eq!(recording.category_name(CategoryId(11)), "other");
        assert_eq!(recording.category_name(CategoryId(99)), UNKNOWN);
    }
}
