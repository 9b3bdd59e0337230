//! Memory of a run.

use std::collections::BTreeMap;
use std::hash::Hasher;

use fnv::FnvHasher;
use memcore::context;
use memcore::memory::{Category, Event, Ledger, Origin, PhaseId, Usage};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// Memory of a run, in bytes. It is the same on every machine, for one profile and one list of settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Peak, and the origin of the allocation that reached it.
    pub peak: Peak,
    /// Reserved bytes that are expected where cuDNN computes convolutions, with the workspaces of the built-in tables; none of a run without any, or with
    /// one that no table has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<u64>,
    /// Bytes allocated after the last step, before anything is dropped.
    pub held: u64,
    /// Bytes at the peak by category; they add up to the peak.
    pub by_category: BTreeMap<String, u64>,
    /// Peak of allocated bytes in each phase of a step.
    pub by_phase: BTreeMap<String, u64>,
    /// Events of the run.
    pub events: EventList,
    /// Bytes at the peak by category and origin (`addmm of blocks.0.fc1`); they add up to the peak.
    pub at_peak: BTreeMap<String, BTreeMap<String, u64>>,
}

/// The peak.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// Peak of allocated bytes.
    pub allocated: u64,
    /// Peak of reserved bytes, not necessarily at the same time.
    pub reserved: u64,
    /// Operator whose allocation reached `allocated`, with the autograd node that it ran in.
    pub op: String,
    /// Module that was running; empty outside of any.
    pub scope: String,
    /// Phase of the step.
    pub phase: String,
}

impl Peak {
    /// The operator and its module, as in [`Footprint::at_peak`].
    pub fn maker(&self) -> String {
        maker(&self.op, &self.scope)
    }
}

/// A list of events, identified by its length and a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventList {
    /// Number of events.
    pub count: u64,
    /// Hash over their kinds, their sizes and which allocation each free ends: FNV-1a, 64 bits in hexadecimal, the same in every version of Rust.
    pub hash: String,
}

impl Footprint {
    /// Reads the history that a ledger has kept since a device's first event. `held` is what was allocated after the last step.
    pub fn from_ledger(ledger: &Ledger, held: u64) -> Self {
        let events = ledger.history();
        let heights = Heights::from_events(events);
        let Origin { scope, op, node, phase } = heights.origin;
        let at_peak = Usage::replay(&events[..heights.events_to_peak]);
        let categories = Category::ALL.into_iter().zip(*at_peak.by_category()).filter(|(_, bytes)| *bytes > 0);
        let mut by_maker: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for (_, live) in at_peak.all_live() {
            let Origin { scope, op, node, .. } = live.origin;
            let who = maker(&context::label(node, op), ledger.scope_path(scope));
            *by_maker.entry(live.category.name().into()).or_default().entry(who).or_default() += live.bytes;
        }
        let by_phase = heights.by_phase.iter().filter(|(phase, _)| !ledger.phase_name(**phase).is_empty());
        Self {
            peak: Peak {
                allocated: heights.allocated,
                reserved: heights.reserved,
                op: context::label(node, op),
                scope: ledger.scope_path(scope).to_string(),
                phase: ledger.phase_name(phase).to_string(),
            },
            expected: None,
            held,
            by_category: categories.map(|(category, bytes)| (category.name().to_string(), bytes)).collect(),
            by_phase: by_phase.map(|(phase, bytes)| (ledger.phase_name(*phase).to_string(), *bytes)).collect(),
            events: EventList::from_events(events),
            at_peak: by_maker,
        }
    }
}

/// Origin in words: `addmm of blocks.0.fc1`.
fn maker(op: &str, scope: &str) -> String {
    match (op, scope) {
        ("", "") => "the program".into(),
        ("", scope) => scope.into(),
        (op, "") => op.into(),
        (op, scope) => format!("{op} of {scope}"),
    }
}

/// Peaks of a history. The program's own resets of peak counters do not lower them.
#[derive(Default)]
struct Heights {
    allocated: u64,
    reserved: u64,
    origin: Origin,
    /// Number of events up to and including the allocation that reached the peak.
    events_to_peak: usize,
    by_phase: FxHashMap<PhaseId, u64>,
}

impl Heights {
    fn from_events(events: &[Event]) -> Self {
        let (mut heights, mut now) = (Self::default(), Usage::default());
        for (i, event) in events.iter().enumerate() {
            now.apply(event);
            if let Event::Alloc { origin, .. } = *event
                && now.allocated_bytes() > heights.allocated
            {
                (heights.allocated, heights.origin, heights.events_to_peak) = (now.allocated_bytes(), origin, i + 1);
            }
            heights.reserved = heights.reserved.max(now.reserved_bytes());
            let highest = heights.by_phase.entry(now.phase()).or_default();
            *highest = now.allocated_bytes().max(*highest);
        }
        heights
    }
}

impl EventList {
    fn from_events(events: &[Event]) -> Self {
        let mut hash = FnvHasher::default();
        let mut count = 0;
        for event in events {
            let (kind, number) = match *event {
                Event::Alloc { requested_bytes, .. } => (b'a', requested_bytes),
                Event::Free { id, .. } => (b'f', id.0),
                Event::SegmentAlloc { bytes, .. } => (b'S', bytes),
                Event::SegmentFree { bytes, .. } => (b'F', bytes),
                Event::SegmentMap { bytes, .. } => (b'M', bytes),
                Event::SegmentUnmap { bytes, .. } => (b'U', bytes),
                Event::Oom { requested_bytes, .. } => (b'o', requested_bytes),
                _ => continue,
            };
            hash.write(&[kind]);
            hash.write(&number.to_le_bytes());
            count += 1;
        }
        Self { count, hash: format!("{:016x}", hash.finish()) }
    }
}

#[cfg(test)]
mod tests {
    use memcore::memory::{AllocId, ScopeId, Stream};

    use super::*;

    fn alloc(id: u64, bytes: u64, category: Category, scope: ScopeId, op: &'static str, phase: PhaseId) -> Event {
        let (id, stream) = (AllocId(id), Stream::DEFAULT);
        let origin = Origin { scope, op, phase, ..Origin::default() };
        Event::Alloc { id, requested_bytes: bytes - 1, bytes, address: 0, stream, category, origin }
    }

    fn free(id: u64) -> Event {
        Event::Free { id: AllocId(id), origin: Origin::default() }
    }

    fn ledger(events: impl IntoIterator<Item = Event>, ledger: &mut Ledger) -> Footprint {
        events.into_iter().for_each(|event| ledger.record(event));
        Footprint::from_ledger(ledger, 7)
    }

    #[test]
    fn the_peak_is_made_of_what_lived_there() {
        let mut book = Ledger::new();
        book.set_history(true);
        let (scope, forward, step) = (book.scope("fc"), book.phase("forward"), book.phase("step"));
        let of = ledger(
            [
                Event::SegmentAlloc { address: 0, bytes: 4096, stream: Stream::DEFAULT },
                Event::Phase { phase: forward },
                alloc(0, 512, Category::Parameter, ScopeId::default(), "", forward),
                alloc(1, 1024, Category::Temporary, scope, "addmm", forward),
                Event::Retag { id: AllocId(1), to: Category::Activation },
                alloc(2, 512, Category::Temporary, scope, "relu", forward),
                free(2),
                Event::ResetPeak,
                Event::Phase { phase: step },
                free(1),
                alloc(3, 600, Category::Temporary, scope, "add", step),
            ],
            &mut book,
        );
        assert_eq!(
            of.peak,
            Peak { allocated: 2048, reserved: 4096, op: "relu".into(), scope: "fc".into(), phase: "forward".into() }
        );
        assert_eq!(of.peak.maker(), "relu of fc");
        let sums = |map: &BTreeMap<String, u64>| map.iter().map(|(k, v)| (k.clone(), *v)).collect::<Vec<_>>();
        assert_eq!(
            sums(&of.by_category),
            [("activation".into(), 1024), ("parameter".into(), 512), ("temporary".into(), 512)]
        );
        assert_eq!(sums(&of.at_peak["activation"]), [("addmm of fc".into(), 1024)]);
        assert_eq!(sums(&of.at_peak["parameter"]), [("the program".into(), 512)]);
        assert_eq!(sums(&of.by_phase), [("forward".into(), 2048), ("step".into(), 1536)]);
        assert_eq!((of.held, of.events.count), (7, 7));
    }

    #[test]
    fn the_hash_knows_kinds_sizes_and_what_is_freed() {
        let hash = |events: &[Event]| EventList::from_events(events).hash;
        let phase = PhaseId::default();
        let a = |id, bytes| alloc(id, bytes, Category::Temporary, ScopeId(1), "mm", phase);
        let base = hash(&[a(0, 8), a(1, 8), free(0)]);
        assert_eq!(base.len(), 16);
        assert_ne!(base, hash(&[a(0, 8), a(1, 9), free(0)]));
        assert_ne!(base, hash(&[a(0, 8), a(1, 8), free(1)]));
        assert_ne!(base, hash(&[a(0, 8), free(0), a(1, 8)]));
        // The hash of the empty list is FNV's published offset basis.
        assert_eq!(hash(&[]), "cbf29ce484222325");
        // Names do not count.
        assert_eq!(base, hash(&[a(0, 8), alloc(1, 8, Category::Input, ScopeId(2), "add", phase), free(0)]));
    }
}
